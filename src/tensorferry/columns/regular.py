"""Columns of one chunk, no nulls, rows of one length: read quickly, as arrays over their memory.

The type of a column is analysed once (`regular_of`), and used for all tables with that type
(`arrays_of`). All other columns are left to `layouts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.named_tuple import NamedTuple
from ..host.numpy_dtypes import numpy_dtype
from . import interface
from .interface import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..typing import Array
    from .interface import Type

__all__ = ["Regular", "arrays_of", "regular_of"]

_OFFSETS: dict[str, np.dtype[Any]] = {"+l": np.dtype(np.int32), "+L": np.dtype(np.int64)}
_FIXED = "+w:"


class Regular(NamedTuple):
    """A type of numbers, or of lists of numbers.

    Args:
        lists: From the outside in: the dtype of the offsets of lists, or the fixed length of lists.
        dtype: The dtype of the numbers.
    """

    lists: tuple[np.dtype[Any] | int, ...]
    dtype: np.dtype[Any]


def regular_of(kind: Type) -> Regular | None:
    """How a type with rows of one length is read; ``None`` if its memory is never a tensor's."""
    lists: list[np.dtype[Any] | int] = []
    while not kind.extension and (kind.format in _OFFSETS or kind.format.startswith(_FIXED)):
        offsets = _OFFSETS.get(kind.format)
        lists.append(int(kind.format.removeprefix(_FIXED)) if offsets is None else offsets)
        (kind,) = kind.children
    if kind.extension or kind.values is not None or kind.format not in NUMBERS:
        return None
    return Regular(tuple(lists), numpy_dtype(NUMBERS[kind.format]))


def arrays_of(capsule: object, columns: Sequence[Regular | None]) -> list[Array | None]:
    """The columns of a record batch as read-only arrays over its memory.

    Args:
        capsule: The array capsule from its ``__arrow_c_array__``.
        columns: The result of `regular_of` for each column.

    Returns:
        For each column the array; ``None`` if it is not regular, has nulls, has rows of unequal
        lengths, or is empty.
    """
    rows, nulls, offset, _, count, _, children, *_ = interface.array_at(interface.array_in(capsule))
    if nulls or count != len(columns) or not rows:
        return [None] * len(columns)
    return [
        None if column is None else _read_rows(column, at, offset, rows, capsule)
        for column, at in zip(columns, interface.pointers_at(children, count), strict=True)
    ]


def _read_rows(column: Regular, at: int, start: int, count: int, owner: object) -> Array | None:
    """Read `count` rows of an array, from `start` on."""
    shape = [count]
    for offsets in column.lists:
        part = _part_of_array(at, start, count)
        if part is None:
            return None
        start, buffers, children = part
        if isinstance(offsets, int):
            width, start = offsets, start * offsets
        else:
            places = interface.numbers_at(buffers[1] + start * offsets.itemsize, count + 1, offsets)
            start = int(places[0])
            width = int(places[1]) - start
            if start < 0 or np.count_nonzero(places[1:] - places[:-1] != width):
                return None
        if width <= 0:
            return None
        (at,), count = children, count * width
        shape.append(width)
    part = _part_of_array(at, start, count)
    if part is None:
        return None
    start, buffers, _ = part
    return interface.bytes_at(
        buffers[1] + start * column.dtype.itemsize, tuple(shape), column.dtype, owner
    )


def _part_of_array(
    at: int, start: int, count: int
) -> tuple[int, Sequence[int], Sequence[int]] | None:
    """Elements' position in an array's buffers, the buffers, its children; ``None`` with nulls."""
    length, nulls, offset, buffers, children, at_buffers, at_children, *_ = interface.array_at(at)
    buffers_there = interface.pointers_at(at_buffers, buffers)
    if (
        start + count > length
        or (nulls and (nulls > 0 or buffers_there[0]))
        or 0 in buffers_there[1:]
    ):
        return None
    return offset + start, buffers_there, interface.pointers_at(at_children, children)
