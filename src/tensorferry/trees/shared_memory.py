"""Leaves that share memory: ties, views and overlaps are kept, in ``out=`` too."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import registry
from ..core.devices import HOST
from ..core.dtypes import find
from ..core.info import TensorInfo
from ..core.layout import ALIGNMENT, byte_span
from ..core.named_tuple import NamedTuple
from ..core.request import OVERLAPS, Request
from ..errors import UnsupportedTypeError
from ..execution import run
from ..execution.groups import sharing_memory, some_of
from ..execution.recipes import conversion_of
from ..execution.run import convert
from ..host import memory
from ..host.numpy_dtypes import numpy_dtype
from ..planning.rules import layout_obstacles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ..execution.groups import Arrangement
    from ..execution.recipes import Conversion
    from ..execution.run import Prepared


__all__ = [
    "Bindings",
    "Cluster",
    "address_of",
    "bind",
    "bindings_of",
    "clusters",
    "converted_together",
    "in_order_of",
    "is_broadcast",
    "is_read",
    "overlapping",
    "reach_of",
    "ties",
    "written_over",
]


# -- ties, views and overlaps ----------------------------------------------------------------------
#
# The same object may occur twice (tied weights), two objects may use the same bytes (the two names
# of a tied weight in a ``state_dict()``), and two may be overlapping views of one storage.


class Cluster(NamedTuple):
    """Leaves that overlap, by their indices, and the bytes from the first to the last of all."""

    start: int
    end: int
    members: tuple[int, ...]


class Bindings(NamedTuple):
    """What leaves have in common.

    Args:
        same: For each leaf that is the same as an earlier one: the place of the earlier one.
        together: Leaves that are copied together.
        prepared: The conversion of each leaf that is copied together with others.
        overwritten: Leaves that share memory with the `out` of another.
    """

    same: Mapping[int, int] = {}
    together: Sequence[Cluster] = ()
    prepared: Mapping[int, Prepared] = {}
    overwritten: Collection[int] = ()


def bind(prepared: Mapping[int, Prepared], twins: Mapping[int, int]) -> Bindings:
    """What described leaves have in common.

    Args:
        prepared: The conversion of each leaf that has one.
        twins: For each leaf of a recurring container: its place at the first occurrence. They are
            the same if they have the same targets.
    """
    same = {
        index: first
        for index, first in twins.items()
        if index in prepared
        and first in prepared
        and prepared[index].request == prepared[first].request
    }
    same |= ties(prepared)
    return Bindings(same, overlapping(prepared, same), prepared)


def bindings_of(
    arrangement: Arrangement,
    leaves: list[Any],
    twins: Mapping[int, int],
    original: Callable[[Any], Any] | None,
) -> Bindings | None:
    """What leaves have in common that were told by their signatures; ``None`` if nothing.

    Only those are described that may share memory with another.

    Args:
        arrangement: The leaves by their steps.
        leaves: The leaves.
        twins: As for `bind`.
        original: Gives the column that an array is over.
    """
    some = some_of(leaves, arrangement.copied)
    shared = sharing_memory(some, compact=arrangement.is_compact)
    # Two of one object share memory, too.
    if not shared and len(arrangement.copied) == sum(
        [len(group.indices) for group in arrangement.groups]
    ):
        return None
    same = _recurring_leaves(arrangement, leaves, twins)
    left = arrangement.copied
    prepared: dict[int, Prepared] = {}
    for at in shared:
        if left[at] in same:
            continue
        x = some[at] if original is None else original(some[at])
        prepared[left[at]] = run.prepare(x, _conversion_at(arrangement, left[at]))
    if not prepared:
        return Bindings(same) if same else None
    tied = ties(dict(sorted(prepared.items())))
    same = {index: tied.get(first, first) for index, first in same.items()} | tied
    return Bindings(same, overlapping(prepared, same), prepared)


def _recurring_leaves(
    arrangement: Arrangement, leaves: list[Any], twins: Mapping[int, int]
) -> dict[int, int]:
    """For each leaf that is the same object as an earlier one, the place of that one.

    Numbers are made anew wherever they stand, unless their container recurs.

    Args:
        arrangement: The leaves by their steps.
        leaves: The leaves.
        twins: As for `bind`.
    """
    same = {}
    for group in arrangement.groups:
        source = group.recipe.plan.source
        reads = registry.backend_named(source.framework).capabilities.objects.reads(source.kind)
        if reads or source.weak_dtype is not None:
            keys = [twins.get(index, index) for index in group.indices]
        else:
            keys = [*map(id, some_of(leaves, group.indices))]
        if len({*keys}) == len(keys):
            continue
        first_of: dict[int, int] = {}
        for key, index in zip(keys, group.indices, strict=True):
            first = first_of.setdefault(key, index)
            if first != index:
                same[index] = first
    return same


def _conversion_at(arrangement: Arrangement, place: int) -> Conversion:
    return next(
        group.conversion
        for group in arrangement.groups
        if group.conversion is not None and place in group.indices
    )


def ties(prepared: Mapping[int, Prepared]) -> dict[int, int]:
    """For each leaf that is the same as an earlier one: the index of the earlier one.

    Args:
        prepared: The conversion of each leaf that has one.
    """
    tied: dict[int, int] = {}
    seen: dict[Any, int] = {}
    objects = {id(one.handle) for one in prepared.values()}
    if len(objects) == len(prepared) and not any(one.recipe.copies for one in prepared.values()):
        return tied
    for index, one in prepared.items():
        for key in _identities(one):
            first = seen.setdefault(key, index)
            if first != index:
                # The first may itself be the same as an earlier one: another object over the same
                # memory.
                tied[index] = tied.get(first, first)
                break
    return tied


def _identities(prepared: Prepared) -> Iterable[Any]:
    """Values that two leaves have in common only if the same: the object, or the memory copied."""
    if prepared.info.weak_dtype is not None or is_read(prepared):
        return
    yield id(prepared.handle), prepared.request
    if prepared.recipe.copies and prepared.info.size and not prepared.info.requires_grad:
        at = address_of(prepared)
        if at is not None:
            yield prepared.source.name, at, prepared.info, prepared.request


def is_read(prepared: Prepared) -> bool:
    """Whether a leaf has no own memory and is read into new memory (numbers, several tensors)."""
    return prepared.source.capabilities.objects.reads(prepared.info.kind)


def address_of(prepared: Prepared) -> int | None:
    """The address of a leaf; ``None`` if it has no memory (it is traced, or only described)."""
    if prepared.info.abstract is not None or isinstance(prepared.handle, TensorInfo):
        return None
    return prepared.source.pointer(prepared.handle)


def overlapping(prepared: Mapping[int, Prepared], skipped: Collection[int]) -> list[Cluster]:
    """Groups of leaves that overlap on one device, and would be copied separately.

    Args:
        prepared: The conversion of each leaf that has one.
        skipped: Leaves that are the same as an earlier one.
    """
    spans_by_device: dict[str, list[tuple[int, int, int]]] = {}
    # Leaves with the same signature have the same recipe.
    one_of_each = {id(one.recipe): one for one in prepared.values()}
    plain = {recipe for recipe, one in one_of_each.items() if _is_plain_copy(one)}
    for index, one in prepared.items():
        info = one.info
        if index in skipped or id(one.recipe) not in plain or not info.size:
            continue
        at = address_of(one)
        if at is not None and not is_broadcast(info.shape, info.strides):
            spans_by_device.setdefault(info.device, []).append(_span(index, info, at))
    sizes = {index: one.info.nbytes for index, one in prepared.items()}
    return list(chain.from_iterable(clusters(spans, sizes) for spans in spans_by_device.values()))


def clusters(intervals: Iterable[tuple[int, int, int]], sizes: Mapping[int, int]) -> list[Cluster]:
    """Groups of leaves that overlap, if the gaps in their memory are not larger than the leaves.

    Args:
        intervals: For each leaf: its first byte, the byte after its last, and its index.
        sizes: The bytes of each leaf's elements.
    """
    clusters_found: list[Cluster] = []
    left = [_chains(intervals)]
    while left:
        for linked in left.pop():
            if len(linked) == 1:
                continue
            group = Cluster(
                linked[0][0],
                max(end for _, end, _ in linked),
                tuple(index for _, _, index in linked),
            )
            if group.end - group.start <= sum(sizes[index] for index in group.members):
                clusters_found.append(group)
                continue
            # Without the leaf with the largest gaps, the others may form a group.
            sparse = [(end - start) / sizes[index] for start, end, index in linked]
            left.append(
                _chains(
                    chain_ for chain_, how in zip(linked, sparse, strict=True) if how < max(sparse)
                )
            )
    return clusters_found


def _chains(intervals: Iterable[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Intervals, grouped so that each overlaps an earlier one of its group."""
    chains: list[list[tuple[int, int, int]]] = []
    reach = 0
    for interval in sorted(intervals):
        if chains and interval[0] < reach:
            chains[-1].append(interval)
            reach = max(reach, interval[1])
        else:
            chains.append([interval])
            reach = interval[1]
    return chains


def _is_plain_copy(prepared: Prepared) -> bool:
    """Whether a leaf's bytes are copied unchanged, on the same device, into writable memory."""
    info, plan = prepared.info, prepared.recipe.plan
    result = plan.result
    # In the copy it has the same strides and alignment.
    return (
        not plan.shares_memory
        and not {*prepared.request.options} - {OVERLAPS}
        and prepared.request.placement is None
        and info.abstract is None
        and info.device == result.device
        and (
            info.device == HOST
            or (prepared.source is prepared.target and prepared.source.capabilities.devices.spreads)
        )
        and info.shards == 1
        and info.dtype == result.dtype
        and not (info.conjugate or info.negative or result.requires_grad)
        and not layout_obstacles(info, prepared.target)
        and not is_read(prepared)
        and info.dtype not in prepared.source.capabilities.dtypes.unshared
        and prepared.target.capabilities.memory.writable
        and prepared.target.capabilities.memory.exists
    )


def is_broadcast(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements share memory by a stride of 0.

    A copy must not, because each element must be independent.
    """
    return any(length > 1 and step == 0 for length, step in zip(shape, strides, strict=True))


def reach_of(info: TensorInfo) -> tuple[int, int]:
    """How many bytes a tensor reaches before, and from, its address."""
    return byte_span(info.shape, info.strides, find(info.dtype).itemsize)


def converted_together(group: Cluster, prepared: Mapping[int, Prepared]) -> dict[int, Any]:
    """The leaves of a group as tensors of the target, which are views of one copy of their memory.

    Args:
        group: The leaves.
        prepared: The conversion of each leaf.
    """
    first = prepared[group.members[0]]
    if first.info.device != HOST:
        source: Any = first.source  # it `spreads`
        copies = source.copy_together([prepared[index].handle for index in group.members])
        return dict(zip(group.members, copies, strict=True))
    skipped, length = group.start % ALIGNMENT, group.end - group.start
    # With the same alignment (modulo 64).
    block = memory.compact((skipped + length,), np.dtype(np.uint8))[skipped:]
    owner = [prepared[index].handle for index in group.members]
    block[...] = memory.over_address(
        group.start, (length,), (1,), block.dtype, read_only=True, owner=owner
    )
    converted = {}
    for index in group.members:
        info, target = prepared[index].info, prepared[index].target
        offset = (address_of(prepared[index]) or 0) - group.start
        view = np.ndarray(info.shape, numpy_dtype(info.dtype), block, offset, info.strides)
        converted[index] = convert(view, conversion_of(target, Request(target.name, device=HOST)))
    return converted


# -- results written into out= ---------------------------------------------------------------------


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
            hints.without("out") + ", which makes a new tree",
        )
    return [by_path[path] for path in paths]


def written_over(
    prepared: Mapping[int, Prepared], outs: Sequence[Any]
) -> tuple[dict[int, int], set[int]]:
    """What described leaves have in common with the tensors that they are written into.

    Returns:
        Leaves whose `out` overlaps the `out` of an earlier leaf, with the first of those, unless
        both share memory in the same way: tied weights into tied weights. And leaves that share a
        byte with the `out` of another leaf.
    """
    places: dict[int, tuple[TensorInfo, int]] = {}
    # An `out` has the index of its leaf; a source has a negative index.
    for index, one in prepared.items():
        into, source = _out_at(one, outs[index]), _source_at(one)
        if into is not None:
            places[index] = into
        if source is not None:
            places[~index] = one.info, source
    refused: dict[int, int] = {}
    overwritten = set()
    for pair in _touching([_span(index, *at) for index, at in places.items() if at[0].size]):
        first, second = sorted(pair)
        if (
            second < 0
            or second == ~first
            or not memory.share_a_byte(*places[first], *places[second])
        ):
            continue
        if first < 0:
            overwritten.add(~first)
        elif not _alike(prepared, places, first, second):
            refused[second] = min(first, refused.get(second, first))
    return refused, overwritten


def _alike(
    prepared: Mapping[int, Prepared],
    places: Mapping[int, tuple[TensorInfo, int]],
    earlier: int,
    later: int,
) -> bool:
    """Whether two leaves overlap in the same way as their outs: both write the same values."""
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


def _out_at(prepared: Prepared, out: Any) -> tuple[TensorInfo, int] | None:
    info = prepared.request.out
    if info is None or isinstance(out, TensorInfo) or info.abstract is not None:
        return None
    at = prepared.target.pointer(out)
    return None if at is None else (info, at)


def _source_at(prepared: Prepared) -> int | None:
    if prepared.info.weak_dtype is not None or is_read(prepared):
        return None
    return address_of(prepared)


def _span(index: int, info: TensorInfo, at: int) -> tuple[int, int, int]:
    """The first byte of a tensor, the byte after its last, and an index."""
    low, high = reach_of(info)
    return at + low, at + high, index


def _touching(spans: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the indices of each pair of spans that overlap."""
    open_spans: list[tuple[int, int, int]] = []
    for span in sorted(spans):
        open_spans = [open_span for open_span in open_spans if open_span[1] > span[0]]
        for open_span in open_spans:
            yield open_span[2], span[2]
        open_spans.append(span)
