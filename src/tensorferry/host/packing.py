"""Packed buffers: many arrays in one run of bytes, to be transferred together, then unpacked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.layout import packed_strides
from ..core.named_tuple import NamedTuple
from . import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..typing import Array

__all__ = ["LARGEST", "Part", "joined_bytes", "lay_out", "pack", "packed_offsets", "unpack"]

LARGEST = 1 << 20
"""An array of this many bytes or more goes alone: its transfer takes longer than to start one."""


class Part(NamedTuple):
    """One array's place in a packed buffer, its shape, and its framework's strides and dtype."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    nbytes: int


def packed_offsets(
    sizes: Sequence[int], itemsizes: Sequence[int], alignment: int
) -> tuple[list[int], int]:
    """The offset of each array in a packed buffer, and the size of the buffer in bytes.

    Arrays with the widest elements come first, so that there are no gaps if no alignment is needed.

    >>> packed_offsets([3, 32], [1, 8], 1), packed_offsets([3, 32], [1, 8], 64)
    (([32, 0], 35), ([64, 0], 67))

    Args:
        sizes: The size of each array in bytes.
        itemsizes: The size of its elements.
        alignment: The alignment in bytes of each array, besides the size of its elements.
    """
    starts, end = [0] * len(sizes), 0
    for index in sorted(range(len(sizes)), key=itemsizes.__getitem__, reverse=True):
        unit = max(alignment, itemsizes[index])
        starts[index] = -(-end // unit) * unit
        end = starts[index] + sizes[index]
    return starts, end


def lay_out(
    arrays: Sequence[Any], strides: Iterable[tuple[int, ...]], alignment: int
) -> tuple[list[Part], int]:
    """The place of each array in a packed buffer, and the size of the buffer in bytes.

    >>> parts, nbytes = lay_out([np.zeros(3, "int8"), np.zeros((2, 2))], [(1,), (16, 8)], 1)
    >>> [part.start for part in parts], nbytes
    ([32, 0], 35)

    Args:
        arrays: Arrays or tensors, on any device.
        strides: The strides of each array in the buffer.
        alignment: The alignment in bytes of each array, besides the size of its elements.
    """
    starts, end = packed_offsets(
        [array.nbytes for array in arrays], [int(array.itemsize) for array in arrays], alignment
    )
    return [
        Part(place, tuple(array.shape), steps, array.dtype, array.nbytes)
        for place, array, steps in zip(starts, arrays, strides, strict=True)
    ], end


def joined_bytes(
    pieces: Sequence[Any], parts: Sequence[Part], filling: Callable[[int], Any]
) -> list[Any]:
    """The bytes of all arrays in the order of the buffer, with filling between them.

    Args:
        pieces: The bytes of each array.
        parts: The place of each array.
        filling: Makes a given number of bytes, whose values do not matter.
    """
    filled, end = [], 0
    for index in sorted(range(len(parts)), key=lambda index: parts[index].start):
        gap = parts[index].start - end
        if gap:
            filled.append(filling(gap))
        filled.append(pieces[index])
        end = parts[index].start + parts[index].nbytes
    return filled


def pack(arrays: Sequence[Array], alignment: int) -> tuple[Array, list[Part]]:
    """Copy arrays into a packed buffer on the host, with the order of their axes kept.

    Gives the place of each, too.
    """
    strides = [packed_strides(array.shape, array.strides, array.itemsize) for array in arrays]
    parts, nbytes = lay_out(arrays, strides, alignment)
    block = memory.compact((nbytes,), np.dtype(np.uint8))
    for part, array in zip(unpack(block, parts), arrays, strict=True):
        part[...] = array
    return block, parts


def unpack(block: Array, parts: Sequence[Part]) -> list[Array]:
    """The arrays, as views of a packed buffer on the host."""
    return [np.ndarray(part.shape, part.dtype, block, part.start, part.strides) for part in parts]
