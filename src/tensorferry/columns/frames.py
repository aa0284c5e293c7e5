"""Several columns as one array: find the dtype, and read each column into the array once."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from .. import hints
from ..core.dtypes import DTYPES, casting_scale, common_dtype, have_common
from ..core.named_tuple import NamedTuple
from ..errors import ConversionError, CopyRequiredError, LossyCastError, UnsupportedTypeError
from ..hints import Hint
from ..host import casts, memory
from ..host.memory import gather_rows
from ..host.numpy_dtypes import numpy_dtype
from .column import CODES, DECODED, NO_CODE, Column, ColumnCode, Ragged, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.request import Request
    from ..typing import Array
    from .column import Found

__all__ = [
    "Frame",
    "asked_hint",
    "frame_of",
    "nulls_hint",
    "refusal_of_column",
    "rows_hint",
    "write_columns",
]

_ROWS = 1 << 14
"""How many rows of a row-order result are written at a time, to stay in the processor's cache."""


class Frame(NamedTuple):
    """A table as one array.

    Args:
        dtype: The canonical name of its dtype.
        rows: The number of rows.
        columns: The names and the columns.
        checks: How the cast of each column checks its values.
    """

    dtype: str
    rows: int
    columns: Sequence[tuple[object, Column]]
    checks: Sequence[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.rows, len(self.columns)

    def read(self, *, by_rows: bool) -> Array:
        """Read all values into a new array, in one pass.

        Args:
            by_rows: Whether the array is in row order; if not, it is in column order.

        Raises:
            LossyCastError: A value does not fit the dtype.
            UnsupportedTypeError: A dictionary's index is outside of it.
        """
        dtype = numpy_dtype(self.dtype)
        if by_rows:
            result = memory.compact(self.shape, dtype)
        else:
            result = memory.compact(self.shape[::-1], dtype).T
        arrays: list[tuple[int, Array]] = []
        for index, ((name, column), check) in enumerate(
            zip(self.columns, self.checks, strict=True)
        ):
            try:
                if column.dtype != self.dtype:
                    result[:, index] = casts.cast(column.read(), self.dtype, check)
                elif column.obstacles(exactly=False):
                    column.put(result[:, index])
                else:
                    arrays.append((index, column.view()))
            except (LossyCastError, UnsupportedTypeError) as error:
                raise type(error)(
                    f"{error.message} - in column {_written_name(name)}", error.advice
                ) from error
        if len(arrays) == len(self.columns) and not by_rows:
            gather_rows([array for _, array in arrays], result.T)
        else:
            write_columns(result, arrays)
        return result


def write_columns(result: Array, columns: Sequence[tuple[int, Array]]) -> None:
    """Write columns into an array in row order."""
    for start in range(0, len(result), _ROWS):
        part = slice(start, start + _ROWS)
        for index, column in columns:
            result[part, index] = column[part]


def refusal_of_column(
    what: str, column: Column | Ragged | Refused, hint: Hint | None, request: Request | None
) -> ConversionError:
    """The error for a column that cannot be converted. For nulls, it depends on ``copy=``."""
    if isinstance(column, Column):
        why = column.said_of_nulls()
        if request is not None and request.copy is False:
            return CopyRequiredError(f"{what} {why}: its memory cannot be shared.", hint)
        return UnsupportedTypeError(f"{what} {why}.", hint)
    return UnsupportedTypeError(f"{what} {column.why}.", hint)


def frame_of(
    kind: str,
    columns: Sequence[tuple[object, Found]],
    rows: int,
    request: Request | None,
    *,
    put: Callable[[object, ColumnCode], Hint],
    drop: Callable[[list[object]], str],
    apart: str,
) -> Frame:
    """Plan a table as one array.

    Args:
        kind: The name of the table's class.
        columns: The names and contents of its columns.
        rows: The number of rows.
        request: The request. A named dtype is that of all columns.
        put: Makes the hint that replaces a column.
        drop: Makes code that drops columns, for hints.
        apart: Code that converts the columns one by one, for hints.

    Raises:
        UnsupportedTypeError: A column is not a tensor.
        CopyRequiredError: A column has nulls, and ``copy=False`` is given.
        LossyCastError: The columns have no dtype in common that keeps every value, or do not take
            the one asked for.
    """
    if not columns:
        raise UnsupportedTypeError(
            f"This {kind} has no columns, so no dtype.",
            Hint(hints.tree(), ", which has no tensors"),
        )
    stays = [
        name
        for name, column in columns
        if isinstance(column, Refused) and column.stays and not column.asked
    ]
    for name, column in columns:
        what = f"Column {_written_name(name)} of this {kind}"
        if isinstance(column, Refused):
            if column.stays and len(stays) < len(columns):
                hint = Hint(hints.code(drop(stays)))
            else:
                hint = put(name, column.hint)
            if _decodes_images(column.hint) and column.stays and len(stays) < len(columns):
                hint |= put(name, column.hint)
            if column.asked:
                lacks = any(_has_nulls(other) for _, other in columns)
                hint = asked_hint(column._replace(lacks=lacks))
            raise refusal_of_column(what, column, hint, request)
        if isinstance(column, Ragged) or column.inner:
            raise UnsupportedTypeError(
                f"{what} {column.why if isinstance(column, Ragged) else 'holds rows of numbers'}.",
                Hint(hints.tree(apart), _FOR_EACH_COLUMN),
            )
        if column.fill is None and column.nulls[0]:
            names = {other.dtype for _, other in columns if isinstance(other, Column)}
            raise refusal_of_column(
                what,
                column,
                nulls_hint(column, mixed=len(names) > 1 and not _have_common(names)),
                request,
            )
    numbers = [(name, column) for name, column in columns if isinstance(column, Column)]
    dtype = _dtype_of(kind, numbers, request, apart)
    checks = [_check_of(name, column.dtype, dtype, request) for name, column in numbers]
    return Frame(dtype, rows, numbers, checks)


def _has_nulls(column: Found) -> bool:
    if isinstance(column, Column):
        return column.nulls[0] > 0
    return isinstance(column, Refused) and column.lacks


def asked_hint(refused: Refused) -> Hint:
    """The hint for a column that is converted only if its dtype is named."""
    dtype, remark = refused.asked, refused.hint.remark
    if refused.nulls is not None:
        return Hint(hints.again(dtype=dtype, nulls=refused.nulls), remark)
    if not refused.lacks:
        return Hint(hints.again(dtype=dtype), remark)
    value = refused.instead
    if value is None:
        value = "nan" if DTYPES[dtype].kind == "float" else 0
    replaced = Hint(hints.again(dtype=dtype, nulls=value), remark, " and replaces nulls")
    return replaced | Hint(hints.again(dtype=dtype, nulls="mask"))


def rows_hint(ragged: Ragged) -> Hint:
    """The hint for a column whose rows are lists of unequal lengths, and perhaps have nulls."""
    elements = ragged.elements
    zero = False if DTYPES[elements.dtype].kind == "bool" else 0
    own, asked = [elements.dtype], elements.asked
    # Another dtype, to which it was cast for the value in place of nulls, the call in the hint does
    # not name.
    value = _value_for(elements.dtype) if elements.fill is None else zero
    # Also where they are replaced, because the code for a hint is a call of its own.
    lacks = elements.nulls[0] > 0
    if asked and lacks:
        padded = hints.padded(dtype=asked, pad=zero, nulls=value)
        return Hint(padded, ", which pads them and replaces nulls")
    if asked:
        return Hint(hints.padded(dtype=asked, pad=zero), _PADS)
    filled = {"nulls": value} if lacks else {}
    rows = Hint(hints.rows(own, ragged="rows", **filled), ", which gives a list of tensors")
    return rows | Hint(hints.padded(own, pad=zero, **filled), _PADS)


_FOR_EACH_COLUMN = ", which gives a tensor for each column"
_PADS = ", which pads them"


def _decodes_images(code: ColumnCode) -> bool:
    """Whether code decodes the images of a column."""
    return code.remark == DECODED.remark


def _value_for(dtype: str) -> object:
    """A value in place of nulls."""
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return False
    return "nan" if kind == "float" else 0


def nulls_hint(column: Column, *, mixed: bool = False) -> Hint:
    """The hint for a column with nulls.

    If it is `mixed` with others, their dtypes have none in common.
    """
    if column.unit == CODES:
        value: object = NO_CODE
    else:
        value = _value_for(column.dtype)
    if not column.asked and not mixed:
        again = partial(hints.again, "call", [column.dtype])
    else:
        again = partial(hints.again, dtype=column.asked or hints.WIDEST)
    return Hint(again(nulls=value), ", which replaces them") | Hint(again(nulls="mask"))


def _dtype_of(
    kind: str, numbers: Sequence[tuple[object, Column]], request: Request | None, apart: str
) -> str:
    names = {column.dtype for _, column in numbers}
    if len(names) == 1:
        return names.pop()
    if request is None:
        asked = None
    else:
        asked = request.dtype or (request.out and request.out.dtype)
    if asked in DTYPES:
        return asked
    if _have_common(names):
        return common_dtype(names)
    first, second = _two_different(numbers)
    what = f"{_written_name(first[0])} is {first[1].dtype}, {_written_name(second[0])} is {second[1].dtype}"
    dtypes_of_columns = dict.fromkeys(column.dtype for _, column in numbers)
    error = LossyCastError(
        f"The columns of this {kind} have no dtype in common: {what}.",
        Hint(hints.DtypeOf(hints.WIDEST), ", which each value must fit")
        | Hint(hints.tree(apart, dtypes_of_columns), _FOR_EACH_COLUMN),
    )
    error.read_as = "float64"
    raise error


def _two_different(
    numbers: Sequence[tuple[object, Column]],
) -> tuple[tuple[object, Column], tuple[object, Column]]:
    """The first two columns without a common dtype; or two with different dtypes."""
    firsts: dict[str, tuple[object, Column]] = {}
    for number in numbers:
        firsts.setdefault(number[1].dtype, number)
    pairs = list(combinations(firsts.values(), 2))
    return next(
        (pair for pair in pairs if not _have_common({column.dtype for _, column in pair})), pairs[0]
    )


def _have_common(names: set[str]) -> bool:
    return "bool" not in names and have_common(names)


def _check_of(name: object, source: str, dtype: str, request: Request | None) -> str:
    try:
        return casting_scale(source, dtype, None if request is None else request.casting).check
    except LossyCastError as error:
        message = f"{error.message} - in column {_written_name(name)}"
        raise LossyCastError(message, error.advice) from error


def _written_name(name: object) -> str:
    """The name of a column, for a message."""
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:77]}..."
