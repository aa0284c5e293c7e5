"""Columns of Python objects: numbers and lists of numbers are read, and ``None`` and ``pd.NA`` are nulls."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from math import isnan, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns.code import DECODED, FIELDS, LIST, STORAGE, WITHOUT_NULLS, WORDS, is_number
from ...columns.column import BYTES, TEXT, Column, Ragged, Refused
from ...columns.layouts import ROUNDED, decimals_in
from ...columns.pieces import Missing, Piece
from ...core.names import EXCHANGE
from ...errors import ConversionError, an
from ...host.numpy_dtypes import of_numpy
from ...sequences import reader
from .. import elements, registry
from ..no_tensor import has_no_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...columns.column import Found
    from ...typing import Array

__all__ = ["CODE", "WRITTEN", "first_of", "found_in_objects", "of_text", "reads_as_list"]

CODE = {
    LIST: "{x}.tolist()",
    STORAGE: "{x}.astype(pd.ArrowDtype({x}.dtype.pyarrow_dtype.storage_type))",
    DECODED: DECODED.replace("to_pylist", "tolist"),
    WITHOUT_NULLS: "{x}.dropna(), which leaves those rows out",
    FIELDS: "{x}.struct.explode(), which has a column for each field",
    WORDS: '{x}.astype("category").cat.codes, which numbers the words',
}
"""Code of pandas for hints, by that of pyarrow."""
WRITTEN = '{x}.astype("float64"), which reads numbers that are written out'
_OTHER: dict[type, str] = {
    str: 'pd.to_numeric({x}, errors="coerce"), which makes nan of text that is no number',
    Decimal: ROUNDED,
    date: "pd.to_datetime({x})",
    timedelta: "pd.to_timedelta({x})",
}
"""Code that makes another column, by the type of the first object that is no number."""
_NUMBERS = (*reader.PYTHON_NUMBERS, np.generic)
_REASON = ("Python objects",)


def reads_as_list(objects: Array, na: Any) -> bool:
    """Whether a column of Python objects is converted as the list of its objects.

    It is not if there are nulls, ragged rows, or values that this module has a better error for.
    """
    if _nulls(objects, na).any() or any(
        has_no_numbers(each) or isinstance(each, Decimal) for each in objects
    ):
        return False
    if _has_rows(objects) and any(map(_is_nan, objects)):
        return False  # there, NaN is pandas' mark for a missing row
    if not len(objects) or not _are_rows(objects):
        return True
    if len(set(map(len, objects))) > 1:
        return False
    are_lists = not isinstance(objects[0], np.ndarray)
    return not any(
        _nulls(row, na).any() or has_no_numbers(row[0]) for row in objects if are_lists and len(row)
    )


def found_in_objects(objects: Array, na: Any, asked: str | None = None) -> Found:
    """What a column of Python objects holds.

    Args:
        objects: Its array of objects.
        na: ``pd.NA``.
        asked: The requested dtype, to which decimals are rounded.
    """
    gone = _nulls(objects, na)
    if _has_rows(objects):
        gone |= _nans(objects)
    rows = np.flatnonzero(~gone)
    if len(objects) and not len(rows):
        return Refused("has nulls alone, and no dtype", '{x}.astype("float64")', stays=True)
    # Beside values without numbers, NaN is no number, but pandas' mark for a missing value.
    values = [row for row in rows.tolist() if not _is_nan(objects[row])]
    if registry.backend_named(EXCHANGE).is_text(objects[values]):
        return _without_numbers(objects[values[0]], values[0])
    if len(rows) and _are_rows(objects[rows]):
        return _lists(objects, gone, na)
    if values and all(isinstance(each, Decimal) for each in objects[values]):
        kept = set(values)
        return decimals_in(
            [each if row in kept else None for row, each in enumerate(objects)], asked
        )
    if gone.any():
        known = objects[rows[0]]
        if hasattr(known, "shape") and not isinstance(known, np.generic):
            return Refused(
                f"has a null in the place of an array, at row {gone.argmax()}", CODE[WITHOUT_NULLS]
            )
    known = objects[rows[0]] if len(rows) else None
    # With any of its numbers in the place of nulls, so that errors have the right rows.
    found = _numbers(
        [known if is_gone else each for each, is_gone in zip(objects, gone, strict=True)], gone
    )
    if isinstance(found, Column) and len(values) < len(rows):
        found.with_nan_missing = partial(_with_nan_missing, found, objects, na)
    return found


def _with_nan_missing(found: Column, objects: Array, na: Any) -> Column:
    """The column with nulls in place of NaN; if there are other values, they alone decide the dtype."""
    without = objects.copy()
    without[_nans(objects)] = None
    others = found_in_objects(without, na)
    return others if isinstance(others, Column) else found.nan_as_null()


def _without_numbers(first: Any, row: int) -> Refused:
    """What a column of text, dates and the like is: it stays as it is in a tree."""
    if isinstance(first, str):
        return Refused(TEXT, of_text(first), stays=True)
    if isinstance(first, bytes):
        return Refused(BYTES, CODE[LIST], stays=True)
    return _odd(first, row, stays=True)


def first_of(texts: Iterable[Any]) -> Any:
    """The first text of a column that is not missing; ``None`` if all are."""
    return next((each for each in texts if isinstance(each, str)), None)


def of_text(first: object) -> str:
    """The hint for a column of text, by its first element: its numbers, or numbers for the words."""
    return WRITTEN if is_number(first) else CODE[WORDS]


def _odd(found: Any, row: int, *, stays: bool = False) -> Refused:
    hint = next((code for base, code in _OTHER.items() if isinstance(found, base)), CODE[LIST])
    return Refused(
        f"holds Python objects, such as {an(type(found).__name__)} at row {row}", hint, stays
    )


def _nulls(objects: Iterable[Any], na: Any) -> Array:
    """A mask of ``None`` and of `na`. NaN is a number."""
    return np.fromiter((each is None or each is na for each in objects), bool)


def _is_nan(x: Any) -> bool:
    return isinstance(x, float) and isnan(x)


def _nans(objects: Iterable[Any]) -> Array:
    """A mask of NaN, by which pandas marks what is missing."""
    return np.fromiter(map(_is_nan, objects), bool)


def _has_rows(objects: Array) -> bool:
    """Whether an object is a list or an array."""
    return any(isinstance(each, (list, tuple)) or getattr(each, "ndim", 0) for each in objects)


def _are_rows(objects: Array) -> bool:
    """Whether each object is a list, or each is an array with one axis and of the same dtype of numbers."""
    if all(isinstance(each, (list, tuple)) for each in objects):
        return True
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in objects):
        return False
    return len({each.dtype for each in objects}) == 1 and of_numpy(objects[0].dtype) is not None


def _numbers(values: list[Any], gone: Array) -> Found:
    odd = next((row for row, each in enumerate(values) if not isinstance(each, _NUMBERS)), None)
    if odd is not None:
        return _odd(values[odd], odd)
    try:
        numbers = elements.read(values, values[0])[0] if values else np.empty(0)
    except ConversionError as error:
        return Refused(
            f"has numbers of no common dtype. {_with_rows(error)}",
            '{x}.astype("float64"), which rounds',
        )
    return _column(numbers, gone)


def _column(array: Array, gone: Array) -> Column:
    each = prod(array.shape[1:])
    marked = (Missing(gone, each),) if gone.any() else ()
    pieces = [Piece(len(array), array, marked)] if len(array) else []
    return Column(of_numpy(array.dtype) or "", array.shape[1:], pieces, reasons=_REASON)


def _with_rows(error: ConversionError) -> str:
    """A message about the list of a column, in which places have the number of the row."""
    return re.sub(r"\bx\[(\d+)\]", r"row \1", error.message.rstrip("."))


def _lists(objects: Array, missing: Array, na: Any) -> Found:
    """What rows of numbers are, as one column."""
    if missing.any():
        others = _lists(objects[~missing], np.zeros(len(objects), bool)[~missing], na)
        if isinstance(others, Refused) and others.stays:
            return others
        return Refused(
            f"has a null in the place of a list, at row {missing.argmax()}", CODE[WITHOUT_NULLS]
        )
    lengths = np.fromiter(map(len, objects), np.int64)
    if isinstance(objects[0], np.ndarray):
        gone = np.zeros(int(lengths.sum()), bool)
        found: Found = _column(np.concatenate(objects), gone)
    else:
        values = [each for row in objects for each in row]
        gone = _nulls(values, na)
        found = _elements(values, gone)
        if isinstance(found, Refused) and not found.stays:
            found = _deep(objects.tolist())
    if not isinstance(found, Column) or found.inner:
        return found
    if (lengths != lengths[0]).any():
        return Ragged(found, lengths)
    array = found.whatever() if len(gone) else np.empty(0)
    return _column(array.reshape(len(objects), int(lengths[0])), gone)


def _elements(values: list[Any], gone: Array) -> Found:
    """The elements of all rows."""
    known = next((each for each, is_gone in zip(values, gone, strict=True) if not is_gone), None)
    if values and known is None:
        return Refused("has nulls alone, and no dtype", CODE[LIST])
    if has_no_numbers(known):
        what = (
            "text, which has no numbers"
            if isinstance(known, (str, bytes))
            else f"{type(known).__name__} objects"
        )
        return Refused(f"holds lists of {what}", CODE[LIST], stays=True)
    return _numbers(
        [known if is_gone else each for each, is_gone in zip(values, gone, strict=True)], gone
    )


def _deep(values: list[Any]) -> Found:
    """Lists in lists; or why rows are no lists of numbers."""
    if not any(isinstance(each, (list, tuple)) for row in values for each in row):
        odd = [
            row
            for row, each in enumerate(values)
            if not all(isinstance(one, _NUMBERS) for one in each)
        ]
        why = (
            f"has a list with other objects than numbers, at row {odd[0]}"
            if odd
            else "has numbers of no common dtype"
        )
        return Refused(why, CODE[LIST])
    try:
        array, _ = elements.read(values, reader.first(values)[0])
    except ConversionError as error:
        return Refused(f"holds lists that are no tensor. {_with_rows(error)}", CODE[LIST])
    return _column(array, np.zeros(0, bool))
