"""Leaves that share memory: they are converted once, or copied together, so that they still share memory.

The same object may occur twice (tied weights), two objects may use the same bytes (the two names
of a tied weight in a ``state_dict()``), and two may be overlapping views of one storage.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.devices import HOST
from ..core.dtypes import find
from ..core.info import TensorInfo
from ..core.layout import ALIGNMENT, spans
from ..core.named_tuple import NamedTuple
from ..core.request import OVERLAPS, Request
from ..execution.recipes import conversion_of
from ..execution.run import convert
from ..host import memory
from ..host.numpy_dtypes import numpy_dtype
from ..planning.rules import layout_obstacles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..execution.run import Prepared
    from ..typing import Array

__all__ = [
    "Cluster",
    "address_of",
    "clusters",
    "converted_together",
    "copied_together",
    "is_broadcast",
    "is_read",
    "overlapping",
    "reach_of",
    "ties",
]


class Cluster(NamedTuple):
    """Leaves that overlap, by their indices, and the bytes from the first to the last of all."""

    start: int
    end: int
    members: tuple[int, ...]

    @property
    def room(self) -> int:
        """The bytes that a copy needs, from an aligned address on, for the same alignment (modulo 64)."""
        return self.end - self.start + self.start % ALIGNMENT


def ties(prepared: Mapping[int, Prepared]) -> dict[int, int]:
    """For each leaf that is the same as an earlier one: the index of the earlier one.

    Args:
        prepared: The conversion of each leaf that has one.
    """
    found: dict[int, int] = {}
    seen: dict[Any, int] = {}
    # Leaves with the same signature have the same recipe.
    one_of_each = {id(each.recipe): each for each in prepared.values()}
    copied = {key for key, each in one_of_each.items() if each.recipe.copies and not is_read(each)}
    places = {
        index: address_of(each) for index, each in prepared.items() if id(each.recipe) in copied
    }
    handles = [id(each.handle) for each in prepared.values()]
    if len(set(handles)) == len(handles) and len(set(places.values())) == len(places):
        return found
    objects, starts = Counter(handles), Counter(places.values())
    for index, each in prepared.items():
        at = places.get(index)
        if objects[id(each.handle)] == 1 and (at is None or starts[at] == 1):
            continue
        for key in _identities(each, at):
            first = seen.setdefault(key, index)
            if first != index:
                # The first may itself be the same as an earlier one: another object over the same
                # memory.
                found[index] = found.get(first, first)
                break
    return found


def _identities(each: Prepared, at: int | None) -> Iterable[Any]:
    """Values that two leaves have in common only if they are the same: the object, or the memory that is copied."""
    if each.info.weak_dtype is not None or is_read(each):
        return
    yield id(each.handle), each.request
    if at is not None and not each.info.requires_grad and each.info.size:
        yield each.source.name, at, each.info, each.request


def is_read(each: Prepared) -> bool:
    """Whether a leaf has no memory of its own, and is read into new memory (numbers, several tensors)."""
    return each.info.kind in each.source.capabilities.objects.read_kinds


def address_of(each: Prepared) -> int | None:
    """The address of a leaf; ``None`` if it has no memory (it is traced, or only described)."""
    if each.info.abstract is not None or isinstance(each.handle, TensorInfo):
        return None
    return each.source.pointer(each.handle)


def overlapping(prepared: Mapping[int, Prepared], skipped: Iterable[int]) -> list[Cluster]:
    """Groups of leaves that overlap on one device, and would be copied separately.

    Args:
        prepared: The conversion of each leaf that has one.
        skipped: Leaves that are the same as an earlier one.
    """
    out = set(skipped)
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    # Leaves with the same signature have the same recipe.
    copied: dict[int, bool] = {}
    for index, each in prepared.items():
        if index in out:
            continue
        recipe = id(each.recipe)
        if recipe not in copied:
            copied[recipe] = _is_plain_copy(each)
        if (
            copied[recipe]
            and each.info.size
            and not is_broadcast(each.info.shape, each.info.strides)
        ):
            at = address_of(each)
            if at is not None:
                low, high = reach_of(each.info)
                found[each.info.device].append((at + low, at + high, index))
    return [
        group
        for intervals in found.values()
        for group in clusters(
            intervals, {index: prepared[index].info.nbytes for _, _, index in intervals}
        )
    ]


def clusters(intervals: Iterable[tuple[int, int, int]], sizes: Mapping[int, int]) -> list[Cluster]:
    """Groups of leaves that overlap, if the gaps in their memory are not larger than the leaves.

    Args:
        intervals: For each leaf: its first byte, the byte after its last, and its index.
        sizes: The bytes of each leaf's elements.
    """
    found: list[Cluster] = []
    left = [_chains(intervals)]
    while left:
        for chain in left.pop():
            if len(chain) == 1:
                continue
            group = Cluster(
                chain[0][0], max(end for _, end, _ in chain), tuple(index for _, _, index in chain)
            )
            if group.end - group.start <= sum(sizes[index] for index in group.members):
                found.append(group)
                continue
            # Without the leaf with the largest gaps, the others may form a group.
            sparse = [(end - start) / sizes[index] for start, end, index in chain]
            left.append(
                _chains(each for each, how in zip(chain, sparse, strict=True) if how < max(sparse))
            )
    return found


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


def _is_plain_copy(each: Prepared) -> bool:
    """Whether the bytes of a leaf are copied without a change, on the same device, into writable memory."""
    info, plan = each.info, each.recipe.plan
    result = plan.result
    return (
        not plan.shares_memory
        and not {*each.request.options} - {OVERLAPS}
        and each.request.placement is None
        and info.abstract is None
        and info.device == result.device
        and (
            info.device == HOST
            or (each.source is each.target and each.source.capabilities.devices.spreads)
        )
        and info.shards == 1
        and info.dtype == result.dtype
        and not (info.conjugate or info.negative or result.requires_grad)
        and not layout_obstacles(
            info, each.target
        )  # in the copy it has the same strides and alignment
        and not is_read(each)
        and info.dtype not in each.source.capabilities.dtypes.unshared
        and each.target.capabilities.memory.writable
        and each.target.capabilities.memory.exists
    )


def is_broadcast(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements share memory by a stride of 0.

    A copy must not, because each element must be independent.
    """
    return any(length > 1 and step == 0 for length, step in zip(shape, strides, strict=True))


def reach_of(info: TensorInfo) -> tuple[int, int]:
    """How many bytes a tensor reaches before, and from, its address."""
    return spans(info.shape, info.strides, find(info.dtype).itemsize)


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
    arrays = {}
    for index in group.members:
        each = prepared[index]
        shape, strides, dtype = each.info.shape, each.info.strides, numpy_dtype(each.info.dtype)
        arrays[index] = memory.over_address(
            address_of(each) or 0, shape, strides, dtype, read_only=True, owner=each.handle
        )
    views = copied_together(group, arrays, memory.compact((group.room,), np.dtype(np.uint8)))
    targets = {index: prepared[index].target for index in views}
    return {
        index: convert(
            view, conversion_of(targets[index], Request(targets[index].name, device=HOST))
        )
        for index, view in views.items()
    }


def copied_together(group: Cluster, arrays: Mapping[int, Array], block: Array) -> dict[int, Array]:
    """The arrays of a group as views of one copy of their memory, with the same alignment (modulo 64).

    Args:
        group: The arrays.
        arrays: Each of them, by its index.
        block: New, aligned memory of `Cluster.room` bytes.
    """
    length = group.end - group.start
    block = block[group.room - length :]
    owner = [arrays[index] for index in group.members]
    block[...] = memory.over_address(
        group.start, (length,), (1,), block.dtype, read_only=True, owner=owner
    )
    copies = {}
    for index in group.members:
        array = arrays[index]
        offset = memory.address(array) - group.start
        copies[index] = np.ndarray(array.shape, array.dtype, block, offset, array.strides)
    return copies
