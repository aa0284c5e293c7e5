"""Columns of tables: numbers, or why they are none and what to type; and several of them as one array."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import DTYPES, casting_scale, common
from ...errors import ConversionError, CopyRequiredError, LossyCastError, UnsupportedTypeError
from ...hints import Hint
from ...host import casts, memory
from ...host.numpy_dtypes import numpy_dtype
from .sources import later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.info import TensorInfo
    from ...core.request import Request

__all__ = ["NULLS", "TEXT", "Column", "Numbers", "Refused", "refuse", "table"]

Array = np.ndarray[Any, Any]

NULLS = "has nulls, which lie beside its values and would be lost"
TEXT = "holds text, which has no numbers"


class Numbers(NamedTuple):
    """A column of numbers without nulls.

    Args:
        dtype: The name of its dtype.
        read: Gives its values.
    """

    dtype: str
    read: Callable[[], Array]


class Refused(NamedTuple):
    """A column that is no tensor.

    Args:
        why: The end of a sentence about it.
        hint: Code that makes one of it, ``{x}`` standing for it; then, perhaps, a comma and a remark.
    """

    why: str
    hint: str


class Column(NamedTuple):
    """A column of a table.

    Args:
        name: Its name.
        found: What it holds.
    """

    name: object
    found: Numbers | Refused


def refuse(what: str, why: str, hint: str | None, request: Request | None) -> ConversionError:
    """The error for something that cannot be carried as it is; nulls are a matter of memory too."""
    if why is NULLS and request is not None and request.copy is False:
        return CopyRequiredError(f"{what} {why}: its memory cannot be shared.", hint)
    return UnsupportedTypeError(f"{what} {why}.", hint)


def table(
    x: object,
    columns: Sequence[Column],
    rows: int,
    request: Request | None,
    *,
    put: Callable[[object, str], str],
    drop: Callable[[list[object]], str],
    apart: str,
) -> tuple[TensorInfo, Any]:
    """A table as an array with a column for each of its own.

    Args:
        x: The table.
        columns: Its columns.
        rows: Their length.
        request: What was asked for: a dtype that is named is the dtype of all columns.
        put: Code that puts code in place of a column.
        drop: Code that leaves columns out.
        apart: Code that gives a dict of the columns.

    Raises:
        UnsupportedTypeError: A column is no tensor.
        CopyRequiredError: A column has nulls, and memory was to be shared.
        LossyCastError: The columns have no dtype in common that keeps every value, or do not take the one asked for.
    """
    kind = type(x).__name__
    if not columns:
        raise UnsupportedTypeError(f"This {kind} has no columns, so no dtype.", None)
    refused = [each for each in columns if isinstance(each.found, Refused)]
    for name, found in refused:
        if isinstance(found, Refused):
            texts = [each.name for each in refused if each.found.why is TEXT]  # type: ignore[union-attr]
            hint = drop(texts) if found.why is TEXT and len(texts) < len(columns) else put(name, found.hint)
            raise refuse(f"Column {_written(name)} of this {kind}", found.why, hint, request)
    numbers = [(name, found) for name, found in columns if isinstance(found, Numbers)]
    dtype = _dtype_of(kind, numbers, request, apart)
    checks = [_check_of(name, found.dtype, dtype, request) for name, found in numbers]

    def read() -> Array:
        result = memory.compact((rows, len(numbers)), numpy_dtype(dtype))
        for index, ((name, found), check) in enumerate(zip(numbers, checks, strict=True)):
            try:
                result[:, index] = casts.cast(found.read(), dtype, check)
            except LossyCastError as error:
                raise LossyCastError(f"{error.message} - in column {_written(name)}", error.hint) from error
        return result

    return later(x, read, (rows, len(numbers)), dtype, aligned=True)


def _dtype_of(kind: str, numbers: Sequence[tuple[object, Numbers]], request: Request | None, apart: str) -> str:
    names = {found.dtype for _, found in numbers}
    if len(names) == 1:
        return names.pop()
    asked = None if request is None else request.dtype or (request.out and request.out.dtype)
    if asked in DTYPES:
        return asked
    if _have_common(names):
        return common(names)
    first, second = _two(numbers)
    what = f"{_written(first[0])} is {first[1].dtype}, {_written(second[0])} is {second[1].dtype}"
    raise LossyCastError(
        f"The columns of this {kind} have no dtype in common: {what}.",
        Hint(f'dtype="float64", which each value must fit; or {{tree:{apart}}}, each for itself'),
    )


def _two(numbers: Sequence[tuple[object, Numbers]]) -> tuple[tuple[object, Numbers], tuple[object, Numbers]]:
    """The first two columns that have no dtype in common, or else two that differ."""
    firsts: dict[str, tuple[object, Numbers]] = {}
    for each in numbers:
        firsts.setdefault(each[1].dtype, each)
    pairs = list(combinations(firsts.values(), 2))
    return next((pair for pair in pairs if not _have_common({found.dtype for _, found in pair})), pairs[0])


def _have_common(names: set[str]) -> bool:
    if "bool" in names:
        return False
    try:
        common(names)
    except LossyCastError:
        return False
    return True


def _check_of(name: object, source: str, dtype: str, request: Request | None) -> str:
    try:
        return casting_scale(source, dtype, None if request is None else request.casting).check
    except LossyCastError as error:
        raise LossyCastError(f"{error.message} - in column {_written(name)}", error.hint) from error


def _written(name: object) -> str:
    """A column's name for a message."""
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:77]}..."
