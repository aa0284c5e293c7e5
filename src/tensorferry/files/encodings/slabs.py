"""Boxes of a large array, in the order of its values, for libraries that read and write by box."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["SLAB_BYTES", "cuts", "filled", "lengths", "slabs"]

SLAB_BYTES = 1 << 24
"""Bytes that a box has at most, where its shape allows."""


def slabs(
    shape: Sequence[int], itemsize: int, chunks: Sequence[int] | None = None, nbytes: int = SLAB_BYTES
) -> Iterator[tuple[slice, ...]]:
    """Boxes that cover an array, each of them a run of consecutive values in row-major order.

    Args:
        shape: Lengths of the axes.
        itemsize: Bytes of an element.
        chunks: Lengths of the chunks that it is stored in: a box ends where a chunk does, if one fits in.
        nbytes: The most bytes of a box; as many as a chunk has, if it has more, since it is read as a whole.
    """
    if not prod(shape):
        return
    if not shape:
        yield ()
        return
    nbytes = max(nbytes, prod(chunks) * itemsize) if chunks else nbytes
    axis = 0
    while axis < len(shape) - 1 and prod(shape[axis + 1 :]) * itemsize > nbytes:
        axis += 1
    length = max(nbytes // (prod(shape[axis + 1 :]) * itemsize), 1)
    if chunks and chunks[axis] <= length:
        length -= length % chunks[axis]
    inner = tuple(slice(0, each) for each in shape[axis + 1 :])
    for outer in product(*(range(each) for each in shape[:axis])):
        lead = tuple(slice(index, index + 1) for index in outer)
        for start in range(0, shape[axis], length):
            yield (*lead, slice(start, min(start + length, shape[axis])), *inner)


def lengths(box: Sequence[slice]) -> tuple[int, ...]:
    """The shape of a box."""
    return tuple(each.stop - each.start for each in box)


def cuts(total: int, most: int) -> list[int]:
    """A total as the sizes of pieces: as large as they may be, except for the last.

    >>> cuts(10, 4)
    [4, 4, 2]
    """
    return [min(most, total - start) for start in range(0, total, most)]


def filled(
    blocks: Iterable[np.ndarray[Any, Any]], sizes: Iterable[int], dtype: np.dtype[Any]
) -> Iterator[np.ndarray[Any, Any]]:
    """A tensor's blocks, cut anew into pieces of these sizes, which have together no more than the blocks.

    A piece is valid until the next is asked for.
    """
    source = iter(blocks)
    rest = np.empty(0, dtype)
    buffer = np.empty(0, dtype)
    for size in sizes:
        if rest.size >= size:
            yield rest[:size]
            rest = rest[size:]
            continue
        if buffer.size < size:
            buffer = np.empty(size, dtype)
        done = 0
        while done < size:
            if not rest.size:
                rest = next(source)
            count = min(rest.size, size - done)
            buffer[done : done + count] = rest[:count]
            rest = rest[count:]
            done += count
        yield buffer[:size]
