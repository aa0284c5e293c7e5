"""`snapshot`: the tensors of a tree as they are now, in memory that nobody else has."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import memory, parcels, registry, run
from ..backend import EXCHANGE
from ..devices import HOST
from ..errors import ConversionError
from ..info import packed_strides
from ..recipes import conversion_of
from ..request import Request
from .aliases import clusters, copied_together, is_broadcast
from .journey import raise_all
from .leaves import LeafRule
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..backend import Backend
    from ..info import TensorInfo

__all__ = ["take_snapshot"]

Array = np.ndarray[Any, Any]


def take_snapshot(tree: Any, unknown: str) -> Any:
    """See `tensorferry.snapshot`."""
    rule = LeafRule("tensors", unknown=unknown)
    leaves, structure = take_apart(tree, rule.chosen, sharing=True)
    rule.check(structure)
    on_host: dict[int, tuple[Backend, Array]] = {}
    on_devices: dict[int, tuple[Backend, TensorInfo, Any]] = {}
    errors: dict[int, ConversionError] = {}
    lanes = registry.lanes_to(EXCHANGE)
    for index, leaf in enumerate(leaves):
        try:
            if not rule.takes(leaf):
                continue
            backend = registry.backend_of(leaf)
            quick = _quickly(lanes, leaf)
            if memory.is_there(quick):
                on_host[index] = backend, quick
                continue
            opened, info, handle = backend.open(leaf)
            if info.device == HOST:
                array = run.convert(leaf, conversion_of(registry.backend_named(EXCHANGE), Request(EXCHANGE)))
                on_host[index] = backend if backend.is_target else registry.backend_named(EXCHANGE), array
            else:
                on_devices[index] = opened, info, handle
        except ConversionError as error:
            errors[index] = error
    results = {} if errors else {**_on_host(on_host, errors), **_on_devices(on_devices, leaves, errors)}
    if errors:
        raise_all(errors, structure.paths().__getitem__)
    twins = structure.twins
    return structure.rebuild([results.get(twins.get(index, index), leaf) for index, leaf in enumerate(leaves)])


def _quickly(lanes: Mapping[type, Callable[[Any], Any]], leaf: Any) -> Any:
    """What its fast lane gives for a leaf, if that accepts it."""
    try:
        found = lanes[type(leaf)](leaf)
    except registry.REFUSALS:
        return None
    return found


def _on_host(found: Mapping[int, tuple[Backend, Array]], errors: dict[int, ConversionError]) -> dict[int, Any]:
    """Copies of arrays, all in one allocation; what overlaps still does."""
    arrays = {index: array for index, (_, array) in found.items()}
    same, firsts = _ties(found)
    sizes = {index: arrays[index].nbytes for index in firsts}
    # What nobody may write shares no memory with what anybody may.
    intervals: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}
    for index in firsts:
        if sizes[index] and (
            arrays[index].flags.c_contiguous or not is_broadcast(arrays[index].shape, arrays[index].strides)
        ):
            intervals[found[index][0].capabilities.memory.writable].append((*_interval(arrays[index]), index))
    groups = [group for each in intervals.values() for group in clusters(each, sizes)]
    grouped = {index for group in groups for index in group.members}
    alone = [index for index in firsts if index not in grouped]
    rooms = [*(group.room for group in groups), *(sizes[index] for index in alone)]
    starts, total = parcels.starts(rooms, [memory.ALIGNMENT] * len(rooms))
    block = memory.compact((total,), np.dtype(np.uint8))
    copies: dict[int, Array] = {}
    for group, start in zip(groups, starts, strict=False):
        copies.update(copied_together(group, arrays, block[start : start + group.room]))
    for index, start in zip(alone, starts[len(groups) :], strict=True):
        copies[index] = _copy(arrays[index], block, start)
    results: dict[int, Any] = {}
    for index, copied in copies.items():
        backend = found[index][0]
        try:
            results[index] = _as_tensor(copied, backend)
        except ConversionError as error:
            errors[index] = error
    return {index: results.get(same.get(index, index)) for index in found}


def _ties(found: Mapping[int, tuple[Backend, Array]]) -> tuple[dict[int, int], list[int]]:
    """For each array that is an earlier one over again, which; and the others."""
    seen: dict[Any, int] = {}
    same, firsts = {}, []
    for index, (backend, array) in found.items():
        key = backend.name, memory.address(array), array.shape, array.strides, array.dtype
        first = seen.setdefault(key, index) if array.size else index
        if first == index:
            firsts.append(index)
        else:
            same[index] = first
    return same, firsts


def _interval(array: Array) -> tuple[int, int]:
    start = memory.address(array)
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    low, high = memory.spans(array.shape, array.strides, array.itemsize)
    return start + low, start + high


def _copy(array: Array, block: Array, start: int) -> Array:
    plain = array.flags.c_contiguous
    strides = None if plain else packed_strides(array.shape, array.strides, array.itemsize)
    copied: Array = np.ndarray(array.shape, array.dtype, block, start, strides)
    copied[...] = array
    return copied


def _as_tensor(array: Array, backend: Backend) -> Any:
    """An array of one's own as a tensor that lies over it, if the framework has a way."""
    if backend.capabilities.memory.writable:
        # To what can be written, a lane shares.
        quick = _quickly(registry.lanes_to(backend.name), array)
        if quick is not None:
            return quick
    info = registry.backend_named(EXCHANGE).describe(array)
    shares = info.dtype not in backend.capabilities.dtypes.unshared and array.size
    request = Request(backend.name, copy=False if shares else None, device=HOST)
    return run.convert(array, conversion_of(backend, request))


def _on_devices(
    found: Mapping[int, tuple[Backend, TensorInfo, Any]], leaves: list[Any], errors: dict[int, ConversionError]
) -> dict[int, Any]:
    """Copies on each leaf's own device: packed in one where its framework packs."""
    results: dict[int, Any] = {}
    packs: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    same: dict[int, int] = {}
    seen: dict[Any, int] = {}
    for index, (backend, info, handle) in found.items():
        at = backend.pointer(handle) if info.abstract is None and info.size else None
        first = seen.setdefault((backend.name, id(handle) if at is None else at, info), index)
        if first != index:
            same[index] = first
            continue
        if backend.capabilities.devices.packs and info.shards == 1 and info.abstract is None:
            packs[backend.name, info.device][index] = _plain(backend, info, handle)
            continue
        try:
            results[index] = run.convert(leaves[index], conversion_of(backend, Request(backend.name, copy=True)))
        except ConversionError as error:
            errors[index] = error
    for (name, _), values in packs.items():
        backend = registry.backend_named(name)
        parts = backend.unpack(*backend.pack(list(values.values()), memory.ALIGNMENT))
        results.update(zip(values, parts, strict=True))
    return results | {index: results[first] for index, first in same.items() if first in results}


def _plain(backend: Any, info: TensorInfo, handle: Any) -> Any:
    """A tensor outside the graph, without lazy bits."""
    value = backend.detach(handle) if info.requires_grad else handle
    return backend.resolve(value) if info.conjugate or info.negative else value
