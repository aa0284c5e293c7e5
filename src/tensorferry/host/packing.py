"""Many arrays in one: where each lies in a run of bytes, for whoever packs on one side and unpacks on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.layout import packed_strides
from . import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["LARGEST", "Part", "joined", "lay_out", "pack", "starts", "unpack"]

LARGEST = 1 << 20
"""Bytes of an array from which it goes alone: its transfer takes longer than what starting it costs."""

Array = np.ndarray[Any, Any]


class Part(NamedTuple):
    """Where one array lies in a run of bytes, and what it is there: strides and dtype as its framework has them."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    nbytes: int


def starts(sizes: Iterable[int], units: Iterable[int]) -> tuple[list[int], int]:
    """Where each run of bytes begins if they lie one after the other, and how many bytes they take in all.

    >>> starts([3, 16], [1, 8])
    ([0, 8], 24)

    Args:
        sizes: The bytes of each.
        units: Bytes of which each start is to be a multiple.
    """
    found, end = [], 0
    for size, unit in zip(sizes, units, strict=True):
        start = -(-end // unit) * unit
        found.append(start)
        end = start + size
    return found, end


def lay_out(arrays: Sequence[Any], strides: Iterable[tuple[int, ...]], alignment: int) -> tuple[list[Part], int]:
    """A place for each array, and how many bytes they take in all.

    The widest elements lie first, so that without an alignment there are no gaps.

    >>> parts, nbytes = lay_out([np.zeros(3, "int8"), np.zeros((2, 2))], [(1,), (16, 8)], 1)
    >>> [part.start for part in parts], nbytes
    ([32, 0], 35)

    Args:
        arrays: Arrays or tensors, wherever they are.
        strides: What each has for strides once it is packed.
        alignment: Bytes of which each start is to be a multiple, besides its element's size.
    """
    units = [int(array.itemsize) for array in arrays]
    order = sorted(range(len(arrays)), key=units.__getitem__, reverse=True)
    places, end = starts([arrays[index].nbytes for index in order], [max(alignment, units[index]) for index in order])
    place_of = dict(zip(order, places, strict=True))
    return [
        Part(place_of[index], tuple(array.shape), steps, array.dtype, array.nbytes)
        for index, (array, steps) in enumerate(zip(arrays, strides, strict=True))
    ], end


def joined(pieces: Sequence[Any], parts: Sequence[Part], filling: Callable[[int], Any]) -> list[Any]:
    """The bytes of all arrays in the order in which they lie, and between them what fills the gaps.

    Args:
        pieces: The bytes of each array.
        parts: Where each lies.
        filling: Makes so many bytes of anything.
    """
    found, end = [], 0
    for index in sorted(range(len(parts)), key=lambda index: parts[index].start):
        gap = parts[index].start - end
        if gap:
            found.append(filling(gap))
        found.append(pieces[index])
        end = parts[index].start + parts[index].nbytes
    return found


def pack(arrays: Sequence[Array], alignment: int) -> tuple[Array, list[Part]]:
    """The arrays in one run of host memory, each with its axes in the order that they have, and where each lies."""
    strides = [packed_strides(array.shape, array.strides, array.itemsize) for array in arrays]
    parts, nbytes = lay_out(arrays, strides, alignment)
    block = memory.compact((nbytes,), np.dtype(np.uint8))
    for part, array in zip(unpack(block, parts), arrays, strict=True):
        part[...] = array
    return block, parts


def unpack(block: Array, parts: Sequence[Part]) -> list[Array]:
    """Each array, as a view of the bytes in host memory."""
    return [np.ndarray(part.shape, part.dtype, block, part.start, part.strides) for part in parts]
