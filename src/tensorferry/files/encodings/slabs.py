"""Divide a large array into boxes, in row-major order, for libraries that read and write boxes."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["SLAB_BYTES", "cuts", "filled", "lengths", "slabs"]

SLAB_BYTES = 1 << 24
"""The most bytes of a box, if its shape allows it."""


def slabs(
    shape: Sequence[int],
    itemsize: int,
    chunks: Sequence[int] | None = None,
    nbytes: int = SLAB_BYTES,
) -> Iterator[tuple[slice, ...]]:
    """Yield boxes that cover an array. Each is a run of consecutive values in row-major order.

    Args:
        shape: Lengths of the axes.
        itemsize: The size of an element in bytes.
        chunks: The shape of the chunks in which it is stored. Boxes end at the ends of chunks, if a
            chunk fits.
        nbytes: The most bytes of a box; or the size of a chunk, if that is larger, since chunks are
            read as a whole.
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
    """Divide a total into pieces of the largest size; the last one may be smaller.

    >>> cuts(10, 4)
    [4, 4, 2]
    """
    return [min(most, total - start) for start in range(0, total, most)]


def filled(
    blocks: Iterable[np.ndarray[Any, Any]], sizes: Iterable[int], dtype: np.dtype[Any]
) -> Iterator[np.ndarray[Any, Any]]:
    """Divide the blocks of a tensor into pieces of other sizes.

    A piece is valid until the next one is requested.
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
    next(source, None)  # so that the source counts its last block too
