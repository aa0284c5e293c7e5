"""Many arrays in one: where each lies in a run of bytes, for whoever packs on one side and unpacks on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import memory
from .info import packed_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LARGEST", "WIDEST", "Part", "lay_out", "pack", "unpack"]

LARGEST = 1 << 20
"""Bytes of an array from which it goes alone: its transfer takes longer than what starting it costs."""

WIDEST = 16
"""Bytes of the widest element."""

Array = np.ndarray[Any, Any]


class Part(NamedTuple):
    """Where one array lies in a run of bytes, and what it is there."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


def lay_out(arrays: Sequence[Any], alignment: int) -> tuple[list[Part], int]:
    """A place for each array, packed with its axes in the order that they have, and how many bytes they take in all.

    >>> parts, nbytes = lay_out([np.zeros(3, "int8"), np.zeros((2, 2))], 1)
    >>> [part.start for part in parts], nbytes
    ([0, 8], 40)

    Args:
        arrays: Arrays of NumPy's kind, wherever they lie.
        alignment: Bytes of which each start is to be a multiple, besides its element's size.
    """
    parts, end = [], 0
    for array in arrays:
        unit = max(alignment, array.dtype.itemsize)
        start = -(-end // unit) * unit
        steps = packed_strides(array.shape, array.strides, array.dtype.itemsize)
        parts.append(Part(start, array.shape, steps, array.dtype, array.nbytes))
        end = start + array.nbytes
    return parts, end


def pack(arrays: Sequence[Array], alignment: int) -> tuple[Array, list[Part]]:
    """The arrays one after the other in host memory, and where each lies."""
    parts, nbytes = lay_out(arrays, alignment)
    block = memory.compact((nbytes,), np.dtype(np.uint8))
    for part, array in zip(unpack(block, parts), arrays, strict=True):
        part[...] = array
    return block, parts


def unpack(block: Array, parts: Sequence[Part]) -> list[Array]:
    """Each array, as a view of the bytes in host memory."""
    return [np.ndarray(part.shape, part.dtype, block, part.start, part.strides) for part in parts]
