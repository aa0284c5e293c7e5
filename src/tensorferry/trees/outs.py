"""Write the results of a tree into ``out=``: leaves are matched by path, and no write changes another source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.info import TensorInfo
from ..core.request import Request
from ..errors import UnsupportedTypeError
from ..execution import run
from ..execution.recipes import conversion_of
from ..host import memory
from .aliases import address_of, is_read, reach_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..execution.run import Prepared

__all__ = ["in_order_of", "refused", "write_all"]

_Span = tuple[int, int, int]
"""The first byte of a tensor, the byte after its last, and the index of its leaf."""


def in_order_of(paths: Sequence[str], outs: Sequence[Any], their_paths: Sequence[str]) -> list[Any]:
    """The leaves of one tree in the order of another's paths.

    Raises:
        UnsupportedTypeError: One of the trees has a leaf that the other does not have.
    """
    by_path = dict(zip(their_paths, outs, strict=True))
    known = set(paths)
    odd = [path for path in paths if path not in by_path] + [
        path for path in their_paths if path not in known
    ]
    if odd:
        raise UnsupportedTypeError(
            f"out= is a tree of another structure - at {odd[0]}",
            "without out=, which makes a new tree",
        )
    return [by_path[path] for path in paths]


def refused(prepared: Mapping[int, Prepared], outs: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield leaves whose `out` overlaps the `out` of an earlier leaf, with the earlier leaf.

    That is allowed if the leaves share memory in the same way: tied weights into tied weights.
    """
    places = {
        index: place
        for index, each in prepared.items()
        if (place := _out_at(each, outs[index])) is not None
    }
    spans = [_span(index, *place) for index, place in places.items() if place[0].size]
    for first, second in _touching(spans):
        earlier, later = sorted((first, second))
        info, at = places[earlier]
        if memory.overlap(info, at, *places[later]) and not _alike(
            prepared, places, earlier, later
        ):
            yield later, earlier


def _alike(
    prepared: Mapping[int, Prepared],
    places: Mapping[int, tuple[TensorInfo, int]],
    earlier: int,
    later: int,
) -> bool:
    """Whether two leaves overlap in the same way as their outs, so that both write the same values."""
    first, second = prepared[earlier], prepared[later]
    (out, at), (also_out, also_at) = places[earlier], places[later]
    if first.handle is second.handle and (out, at) == (also_out, also_at):
        return True
    here, there = _source_at(first), _source_at(second)
    if here is None or there is None:
        return False
    if at == also_at and here == there:
        return (first.info, out) == (second.info, also_out)
    plain = all(
        (info.dtype, info.strides, info.swapped) == (into.dtype, into.strides, into.swapped)
        for info, into in ((first.info, out), (second.info, also_out))
    )
    return plain and there - here == also_at - at


def write_all(prepared: Mapping[int, Prepared], results: list[Any], outs: Sequence[Any]) -> None:
    """Write each result into its `out`, and replace the result by `out`.

    If the `out` of an earlier leaf overlaps the source of a leaf, the source is copied first.

    Args:
        prepared: The conversion of each leaf that has one.
        results: The values before the last step.
        outs: The tensors that they are written into.
    """
    for index in sorted(_overwritten(prepared, outs)):
        backend = registry.backend_of(results[index])
        results[index] = run.convert(
            results[index], conversion_of(backend, Request(backend.name, copy=True))
        )
    for index, each in prepared.items():
        results[index] = run.execute(each.recipe.program[-1:], results[index], outs[index])


def _overwritten(prepared: Mapping[int, Prepared], outs: Sequence[Any]) -> set[int]:
    """Leaves that share a byte with the `out` of an earlier leaf."""
    sources = {
        index: (each.info, at)
        for index, each in prepared.items()
        if (at := _source_at(each)) is not None
    }
    targets = {
        index: place
        for index, each in prepared.items()
        if (place := _out_at(each, outs[index])) is not None
    }
    # An `out` has the index of its leaf; a source has a negative index.
    spans = [_span(index, *place) for index, place in targets.items() if place[0].size]
    spans += [_span(~index, *place) for index, place in sources.items() if place[0].size]
    found = set()
    for pair in _touching(spans):
        out, source = max(pair), ~min(pair)
        if out >= 0 and source >= 0 and out < source and source not in found:
            info, at = targets[out]
            if memory.overlap(info, at, *sources[source]):
                found.add(source)
    return found


def _out_at(each: Prepared, out: Any) -> tuple[TensorInfo, int] | None:
    info = each.request.out
    if info is None or isinstance(out, TensorInfo) or info.abstract is not None:
        return None
    at = each.target.pointer(out)
    return None if at is None else (info, at)


def _source_at(each: Prepared) -> int | None:
    return None if each.info.weak_dtype is not None or is_read(each) else address_of(each)


def _span(index: int, info: TensorInfo, at: int) -> _Span:
    low, high = reach_of(info)
    return at + low, at + high, index


def _touching(spans: Iterable[_Span]) -> Iterator[tuple[int, int]]:
    """Yield the indices of each pair of spans that overlap."""
    open_spans: list[_Span] = []
    for span in sorted(spans):
        open_spans = [each for each in open_spans if each[1] > span[0]]
        for each in open_spans:
            yield each[2], span[2]
        open_spans.append(span)
