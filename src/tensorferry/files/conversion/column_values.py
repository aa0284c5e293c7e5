"""The tensors that a column of a table in a file becomes, read from it when they are needed."""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial
from glob import escape
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.array_like.tables import open_contents
from ...columns.column import Column, Refused
from ...core.dtypes import find
from ...core.leaf_dtypes import quoted
from ...errors import FileFormatError, UnsafeFileError, UnsupportedTypeError
from ...execution.column_keywords import Masked, Rows, contents_of
from ...host.numpy_dtypes import of_numpy
from ..base.stored import Decoded
from ..encodings.shapes import checked, is_bomb

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ...typing import Array
    from ..base.contents import TableColumn

__all__ = ["ColumnValues", "Leaf", "refuse_bomb"]


class Leaf(NamedTuple):
    """A leaf of the tree that is made.

    Args:
        held: A `Stored`; or why there is none.
    """

    held: Any


def refuse_bomb(column: TableColumn, name: str, declared: int, held: int) -> None:
    """Raise for a column that says to be far larger than its file.

    Args:
        column: The column.
        name: Its name.
        declared: How many bytes it would be.
        held: How many the file has.

    Raises:
        UnsafeFileError: It does.
    """
    if is_bomb(declared, held):
        why = f"{column.path} is out of all proportion: {name!r} would be {declared} bytes; it has {held}."
        raise UnsafeFileError(why)


class ColumnValues:
    """The tensors of one column, which is read once for all of them, if they are read one after the other.

    Args:
        column: The column.
        apply: Applies the keywords to what is read of it.
    """

    def __init__(self, column: TableColumn, apply: Any) -> None:
        self._column = column
        self._apply = apply
        self._shapes: list[tuple[str, tuple[int, ...]]] = []
        self.arrays: list[Array] | None = None
        self._lock = threading.Lock()

    def leaves_of(self, applied: Any, name: str) -> Any:
        """Leaves in place of the tensors, nested as these are.

        Raises:
            ConversionError: It is no tensor.
        """
        parts: list[Any] = []
        nested = _nested(applied, parts)
        size = os.stat(self._column.path).st_size  # noqa: PTH116 - a plain string
        total = 0
        for part in parts:
            dtype, shape = _described(part)
            checked(shape, find(dtype).itemsize, f"{self._column.path}: {name!r}")
            self._shapes.append((dtype, shape))
            total += prod(shape) * find(dtype).itemsize
        refuse_bomb(self._column, name, total, size)
        for part in parts:
            # So that a value that is none of its dtype is an error before anything is written.
            _array_of(part)
        return self._with_leaves(nested)

    def _with_leaves(self, nested: Any) -> Any:
        if isinstance(nested, Masked):
            return Masked(*map(self._with_leaves, nested))
        if isinstance(nested, list):
            return [*map(self._with_leaves, nested)]
        return self._leaf(nested)

    def _leaf(self, slot: _Slot) -> Leaf:
        dtype, shape = self._shapes[slot.number]
        key: Hashable = (self._column.key, slot.number)
        return Leaf(Decoded(dtype, shape, partial(self._read, slot.number), key))

    def _read(self, number: int) -> Iterator[Array]:
        with self._lock:
            if self.arrays is None:
                self.arrays = self._all()
                _let_others_go(self)
            array = self.arrays[number]
            if len(self.arrays) == 1:
                self.arrays = None
        yield array

    def _all(self) -> list[Array]:
        parts: list[Any] = []
        _nested(self._apply(self._column.read()), parts)
        if [_described(part) for part in parts] != self._shapes:
            raise FileFormatError(f"{self._column.path} has changed since it was opened.")
        return [_array_of(part) for part in parts]


_latest: weakref.ref[ColumnValues] | None = None
"""Whose column is in memory."""


def _let_others_go(values: ColumnValues) -> None:
    global _latest
    before = None if _latest is None else _latest()
    if before is not None and before is not values:
        before.arrays = None
    _latest = weakref.ref(values)


class _Slot(NamedTuple):
    """The number of a tensor among those of a column."""

    number: int


def _nested(applied: Any, parts: list[Any]) -> Any:
    """The nesting of what a column becomes, with a `_Slot` for each tensor, which is added to `parts`."""
    if isinstance(applied, Masked):
        return Masked(*(_nested(each, parts) for each in applied))
    if isinstance(applied, Rows):
        return [_nested(each, parts) for each in applied]
    parts.append(applied)
    return _Slot(len(parts) - 1)


def _described(part: Any) -> tuple[str, tuple[int, ...]]:
    """The dtype and the shape of a tensor.

    Raises:
        ConversionError: It is none.
    """
    if isinstance(part, np.ndarray):
        return of_numpy(part.dtype) or "", part.shape
    found = contents_of(part, None)
    assert found is not None  # noqa: S101 - it is a column
    try:
        info, _ = open_contents(found, None, None, exactly=False)
    except UnsupportedTypeError as error:
        if isinstance(found.found, Refused) and not found.found.asked:
            # The code for a column in memory would need one.
            error.hint = f"exclude=[{quoted(escape(str(found.name)))}], which leaves it out"
        raise
    return info.dtype, info.shape


def _array_of(part: Any) -> Array:
    if isinstance(part, np.ndarray):
        return part
    found = contents_of(part, None)
    assert found is not None  # noqa: S101 - it was described
    assert isinstance(found.found, Column)  # noqa: S101 - it was described
    return found.found.read()
