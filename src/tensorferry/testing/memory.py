"""Layouts of test tensors in memory, computed without any framework."""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import product
from typing import NamedTuple

from .bits import FORMATS, patterns

__all__ = ["LAYOUTS", "Image", "Place", "addresses", "compact_strides", "image", "read"]


class Place(NamedTuple):
    """The address, shape and strides of a tensor, as its framework reports them, in bytes.

    .. versionadded:: 0.1
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class Image(NamedTuple):
    """A block of memory and the tensor in it.

    Args:
        block: The bytes of the whole block, to be put at a 64-byte aligned address.
        offset: Bytes from the start of the block to the first element.
        shape: The shape.
        strides: Bytes from one element to the next along each axis.
        content: The elements' bytes in C order. Every conversion must keep them.

    .. versionadded:: 0.1
    """

    block: bytes
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    content: bytes


def compact_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of a tensor without gaps, in C order."""
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(length, 1))
    return tuple(strides[: len(shape)])


def _geometries_of(size: int) -> dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """For each layout, its offset, shape and strides, for elements of this size."""
    shape = (4, 6)
    rows, columns = compact_strides(shape, size)
    return {
        "aligned": (0, shape, (rows, columns)),
        "offset": (16, shape, (rows, columns)),
        "fortran": (0, shape, (size, 4 * size)),
        "permuted": (0, (2, 3, 4), (4 * size, 8 * size, size)),
        "strided": (16, shape, (2 * rows, 2 * columns)),
        "negative": (3 * rows, shape, (-rows, columns)),
        "reversed": (3 * rows + 5 * columns, shape, (-rows, -columns)),
        "broadcast": (0, shape, (0, columns)),
        "unaligned": (1, shape, (rows, columns)),
        "field": (0, shape, (6 * (size + 1), size + 1)),
        "single": (0, (1, 24, 1), (7, size, 3)),
        "zero-d": (0, (), ()),
        "zero-d offset": (16, (), ()),
        "empty": (0, (0, 3), (3 * size, size)),
    }


LAYOUTS = tuple(_geometries_of(1))
"""The names of the layouts of host memory."""


@cache
def image(layout: str, dtype: str) -> Image:
    """A block of memory with a tensor of this layout, filled with special values of the dtype.

    >>> found = image("negative", "int16")
    >>> found.shape, found.strides, found.offset
    ((4, 6), (-12, 2), 36)
    """
    itemsize = FORMATS[dtype].itemsize
    offset, shape, strides = _geometries_of(itemsize)[layout]
    places = [
        offset + sum(at * step for at, step in zip(index, strides, strict=True))
        for index in product(*map(range, shape))
    ]
    distinct = sorted(set(places))
    elements = dict(zip(distinct, patterns(dtype, max(len(distinct), 1)), strict=False))
    block = bytearray(b"\x01" * (max(distinct, default=0) + itemsize))
    for place, element in elements.items():
        block[place : place + itemsize] = element
    return Image(bytes(block), offset, shape, strides, b"".join(elements[at] for at in places))


def addresses(place: Place) -> set[int]:
    """The address of every byte of a tensor's elements.

    .. versionadded:: 0.1
    """
    return {start + byte for start in _element_addresses(place) for byte in range(place.itemsize)}


def read(place: Place) -> bytes:
    """The elements' bytes in C order, read from memory by address."""
    return b"".join(ctypes.string_at(start, place.itemsize) for start in _element_addresses(place))


def _element_addresses(place: Place) -> list[int]:
    """The address of each element, in C order."""
    starts = [place.address]
    for length, step in zip(place.shape, place.strides, strict=True):
        starts = [start + at * step for start in starts for at in range(length)]
    return starts
