"""`Column`: values of a column of a table, and which of them are null."""

from __future__ import annotations

import re
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..core.dtypes import casting_scale, find
from ..core.kinds import BIT_PACKED, DECIMALS, Reason
from ..core.named_tuple import NamedTuple
from ..errors import LossyCastError, UnsupportedTypeError
from ..hints import Hint
from ..host import casts, memory
from ..host.numpy_dtypes import numpy_dtype
from .pieces import Bits, Cast, Decimals, DictionaryEncoded, Missing, Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..typing import Array


__all__ = [
    "BYTES",
    "CODES",
    "DECODED",
    "FIELDS",
    "LIST",
    "NO_CODE",
    "SEVERAL_CHUNKS",
    "STORAGE",
    "TEXT",
    "WITHOUT_NULLS",
    "WORDS",
    "Column",
    "ColumnCode",
    "Found",
    "Ragged",
    "Refused",
    "code_for_images",
    "is_number",
    "value_in",
]


# -- code ------------------------------------------------------------------------------------------


class ColumnCode(NamedTuple):
    """What to do with a column that is no tensor.

    Args:
        code: The code, in which `x` is the column; empty if there is none.
        remark: What comes after it.
        stays: Whether the code names the column in a table `x`, which is not in a tree.
    """

    code: str = ""
    remark: str = ""
    stays: bool = False

    def of(self, column: str) -> str:
        """The code, for a column that has code of its own."""
        from ..hints.placing import code_at  # here, because only an error needs it

        return code_at(self.code, column)

    def within(self, column: hints.Code) -> ColumnCode:
        """The same, if the column has code of its own."""
        return ColumnCode(self.of(column.text), self.remark, column.stays)

    def hint(self) -> Hint:
        """The hint for a column that was given alone."""
        return Hint(hints.Code(self.code, numbered=True, stays=self.stays), self.remark)


# Backends have their own instead of it.

LIST = ColumnCode("x.to_pylist()")
STORAGE = ColumnCode("x.cast(x.type.storage_type)")
WITHOUT_NULLS = ColumnCode("x.drop_null()", ", which leaves those rows out")
FIELDS = ColumnCode("pa.Table.from_struct_array(x)", ", which has a column for each field")


def code_for_images(to_list: str) -> ColumnCode:
    """Code for a list of the images in a column of files, as datasets stores them.

    Args:
        to_list: The method of the column that gives a list.
    """
    code = f'[PIL.Image.open(io.BytesIO(each["bytes"])) for each in x.{to_list}()]'
    return ColumnCode(code, ", which decodes images")


DECODED = code_for_images("to_pylist")
WORDS = ColumnCode(
    'np.unique(x.fill_null(""), return_inverse=True)[1]', ", which numbers the words"
)
"""Integers for text."""


def is_number(text: object) -> bool:
    """Whether text is a number that is written out.

    >>> is_number("1.5"), is_number("one"), is_number(None)
    (True, False, False)
    """
    try:
        float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


# -- columns ---------------------------------------------------------------------------------------

TEXT = "holds text, which has no numbers"
CODES = "codes of categories"
"""What such integers count: see `Column`."""
NO_CODE = -1
"""The code for a value that is the code of no category. Zero is the code of the first one."""
BYTES = "holds bytes, which are no numbers"
SEVERAL_CHUNKS = Reason("several chunks")
"""What keeps numbers in memory from being a tensor's, as `BIT_PACKED`: see `Column.obstacles`."""
_FEW = 8
"""If fewer than one element in so many is null, nulls are written one by one, which is faster."""
_BLOCK = 1 << 15
"""How many elements are read and filled at a time, so that they stay in the processor's cache."""


class Refused(NamedTuple):
    """A column that is not a tensor.

    Args:
        why: The reason, as the end of a sentence.
        hint: The code that makes a tensor of it. With `asked`, it is a remark alone.
        stays: Whether it stays as it is in a tree, because it has no numbers (text, for example).
        asked: The dtype that must be named to convert it (dates, for example).
        lacks: With `asked`: whether it has nulls, so that ``nulls=`` must be given too.
        instead: The value that can stand for nulls; ``None`` for zero, or NaN among floats.
        nulls: With `asked`: the value of ``nulls=`` of the call; ``None`` if it was not given, or
            that dtype does not have it.
    """

    why: str
    hint: ColumnCode
    stays: bool = False
    asked: str = ""
    lacks: bool = False
    instead: object = None
    nulls: object = None


class Ragged(NamedTuple):
    """A column whose rows are lists of unequal lengths.

    Args:
        elements: The elements of all rows, one after the other.
        lengths: The length of each row.
        shapes: The shapes of the rows, if they are tensors.
    """

    elements: Column
    lengths: Array
    shapes: Array | None = None

    @property
    def why(self) -> str:
        """The reason why it is not a tensor, as the end of a sentence."""
        if self.shapes is None:
            sizes = self.lengths
        else:
            sizes = self.shapes
        first = sizes[0]
        row = int(np.argmax((sizes != first).reshape(len(sizes), -1).any(1)))
        if self.shapes is None:
            what = "elements"
        else:
            what = "as its shape"
        why = f"has rows of unequal lengths: row 0 has {first} {what}, row {row} has {sizes[row]}"
        if self.lacks:
            return f"{why}; and nulls, the first at row {self.row_of(self.elements.nulls[1])}"
        return why

    @property
    def lacks(self) -> bool:
        """Whether its elements have nulls that are not replaced."""
        return self.elements.fill is None and self.elements.nulls[0] > 0

    def row_of(self, element: int) -> int:
        """The row that an element is in."""
        return int(np.searchsorted(np.cumsum(self.lengths), element, side="right"))

    def read(self) -> Array:
        """The elements of all rows, as an array.

        Raises:
            LossyCastError, UnsupportedTypeError: One is not a value of its dtype. The message names
                its row.
        """
        try:
            return self.elements.read()
        except (LossyCastError, UnsupportedTypeError) as error:
            message = re.sub(
                r"(?<=\bat row )\d+", lambda match: str(self.row_of(int(match[0]))), error.message
            )
            raise type(error)(message, error.advice) from None

    def rows(self, elements: Array) -> list[Array]:
        """The rows, as views of an array of all elements."""
        ends = np.cumsum(self.lengths)
        rows = [
            elements[end - length : end]
            for length, end in zip(self.lengths.tolist(), ends.tolist(), strict=True)
        ]
        if self.shapes is None:
            return rows
        return [row.reshape(shape) for row, shape in zip(rows, self.shapes.tolist(), strict=True)]

    @property
    def longest(self) -> tuple[int, ...]:
        """The shape of all rows in one array."""
        if self.shapes is None:
            shapes = self.lengths[:, None]
        else:
            shapes = self.shapes
        return (len(self.lengths), *map(int, shapes.max(0)), *self.elements.shape[1:])

    def padded(self, elements: Array, value: Any) -> Array:
        """The rows in one array, padded at their ends."""
        rows = self.rows(elements)
        result = memory.compact(self.longest, elements.dtype)
        result[...] = value
        for into, row in zip(result, rows, strict=True):
            into[tuple(slice(length) for length in row.shape)] = row
        return result


class Column:
    """The values of a column in memory.

    Args:
        dtype: The canonical name of their dtype.
        inner: The shape of one row.
        pieces: The pieces of memory, in order.
        mutable: Whether the memory may be written to by other code.
        unit: What the integers count, if they stand for dates and the like.
        reasons: Reasons, besides the pieces, why the memory is not that of a tensor.
        order: The order of the inner axes in the result; ``None`` for their order in memory.
    """

    def __init__(
        self,
        dtype: str,
        inner: tuple[int, ...],
        pieces: Sequence[Piece],
        *,
        mutable: bool = False,
        unit: str = "",
        reasons: tuple[Reason, ...] = (),
        order: tuple[int, ...] | None = None,
    ) -> None:
        self.dtype, self.inner, self.pieces, self.mutable = dtype, inner, pieces, mutable
        self.unit, self.reasons, self.order = unit, reasons, order
        self.rows = sum([piece.rows for piece in pieces])
        self.at = 0
        """The address, modulo 64, of the new array into which it is read."""
        self.fill: Any = None
        self.fill_all: Callable[[Any], Array] | None = None
        """The function of its library that replaces nulls in a new array, if there is one."""
        self.categories: Callable[[], list[Any]] | None = None
        """If the numbers are codes of categories: gives the categories."""
        self.with_nan_missing: Callable[[], Column] | None = None
        """If its library marks missing values by NaN: gives it with nulls there, for ``nulls=``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        if self.order is None:
            inner = self.inner
        else:
            inner = tuple(self.inner[axis] for axis in self.order)
        return (self.rows, *inner)

    @property
    def asked(self) -> str:
        """The dtype that must be named to convert it: see `Refused`."""
        if self.unit:
            return "int64"
        if self.dtype == "float64" and self.reads_as_asked:
            return "float64"
        return ""

    @property
    def reads_as_asked(self) -> bool:
        """Whether its values are read differently if another dtype is requested."""
        return DECIMALS in self.reasons or any(
            isinstance(piece.values, Decimals) for piece in self.pieces
        )

    @property
    def memory(self) -> list[Array]:
        """Arrays over the memory of its values."""
        return [array for piece in self.pieces for array in piece.arrays]

    # -- what is missing ---------------------------------------------------------------------------

    @property
    def lacks(self) -> bool:
        """Whether there may be nulls."""
        return any(piece.missing for piece in self.pieces)

    @cached_property
    def nulls(self) -> tuple[int, int]:
        """How many rows have nulls, and the first of them; (0, 0) without nulls."""
        count, first, before = 0, 0, 0
        for piece in self.pieces:
            if (
                len(piece.missing) == 1
                and piece.missing[0].each == 1
                and isinstance(piece.missing[0].marks, Bits)
            ):
                here, at = piece.missing[0].marks.zeros()
                if here and not count:
                    first = before + at
                count += here
            elif piece.missing:
                marked = np.zeros(piece.rows, bool)
                for missing in piece.missing:
                    marks = missing.part(0, piece.rows)
                    if missing.each == 1:
                        marked |= marks
                    else:
                        marked |= marks.reshape(piece.rows, missing.each).any(1)
                here = int(np.count_nonzero(marked))
                if here and not count:
                    first = before + int(marked.argmax())
                count += here
            before += piece.rows
        return count, first

    def said_of_nulls(self) -> str:
        """The nulls, as the end of a sentence."""
        count, first = self.nulls
        if count == 1:
            where = f"at row {first}"
        else:
            where = f"{count}, the first at row {first}"
        return f"has nulls ({where}), which would be lost"

    def missing(self) -> Array:
        """A mask that is true for null elements."""
        result = np.zeros((self.rows, *self.inner), bool)
        at = 0
        for piece in self.pieces:
            _mark_missing(result[at : at + piece.rows], piece, 0)
            at += piece.rows
        return self._ordered(result)

    def nan_as_null(self) -> Column:
        """The column, with nulls in place of NaN."""
        pieces = []
        for piece in self.pieces:
            # An array, as only those of NumPy's dtypes have NaN for nulls.
            values: Any = piece.values
            marks = np.isnan(values)
            if marks.any():
                missing = (*piece.missing, Missing(marks.reshape(-1), prod(self.inner)))
            else:
                missing = piece.missing
            pieces.append(Piece(piece.rows, piece.values, missing))
        column = self._with(pieces)
        return column if column.lacks else self

    def filled(self, value: Any) -> Column:
        """The column, with a value in place of nulls."""
        column = self._with(self.pieces)
        column.fill = value
        return column

    def _with(self, pieces: Sequence[Piece]) -> Column:
        """The column over other pieces, with its nulls."""
        column = Column(
            self.dtype,
            self.inner,
            pieces,
            mutable=self.mutable,
            unit=self.unit,
            reasons=self.reasons,
            order=self.order,
        )
        column.fill_all, column.categories = self.fill_all, self.categories
        return column

    def cast(self, dtype: str, casting: str | None) -> Column:
        """The column in another dtype, with zeros for nulls.

        Its values are cast when they are read.

        Raises:
            LossyCastError: `casting` does not allow it; or later, a value does not fit.
        """
        check = casting_scale(self.dtype, dtype, casting).check
        zeros = self.filled(numpy_dtype(self.dtype).type(0))
        marks = Missing(self.missing().reshape(-1), prod(self.inner))
        piece = Piece(self.rows, Cast(lambda: casts.cast(zeros.read(), dtype, check)), (marks,))
        return Column(
            dtype,
            self.shape[1:],
            [piece],
            unit=self.unit,
            reasons=(Reason.read_as(self.dtype, dtype),),
        )

    def value_of(self, value: Any, keyword: str = "nulls", hint: Hint | None = None) -> Any:
        """A value in the dtype of the column: see `value_in`."""
        return value_in(self.dtype, value, keyword, hint)

    # -- its values --------------------------------------------------------------------------------

    def obstacles(self, *, exactly: bool) -> list[Reason]:
        """The reasons why its memory is not that of a tensor; empty if it is.

        Args:
            exactly: Whether reasons contain numbers.
        """
        reasons = list(self.reasons)
        if len(self.pieces) > 1:
            reasons.append(Reason(f"{len(self.pieces)} chunks") if exactly else SEVERAL_CHUNKS)
        if any(isinstance(piece.values, Bits) for piece in self.pieces):
            reasons.append(BIT_PACKED)
        if self.reads_as_asked and DECIMALS not in reasons:
            reasons.append(DECIMALS)
        encodings = {
            piece.values.encoded
            for piece in self.pieces
            if isinstance(piece.values, DictionaryEncoded)
        }
        reasons += map(Reason.encoded, sorted(encodings))
        if self.fill is not None and self.lacks:
            reasons.append(Reason(f"nulls at row {self.nulls[1]}" if exactly else "nulls"))
        return reasons

    def view(self) -> Array:
        """An array over its memory; only if there are no `obstacles`."""
        if not self.pieces:
            values: Any = np.empty((self.rows, *self.inner), numpy_dtype(self.dtype))
        else:
            values = self.pieces[0].values
        if values.flags.writeable:
            values = values.view()
            values.flags.writeable = False
        return self._ordered(values)

    def read(self) -> Array:
        """Its values: as an array over its memory if possible, otherwise in a new one."""
        if not self.obstacles(exactly=False):
            return self.view()
        if self.fill_all is not None and self.fill is not None:
            return self.fill_all(self.fill)
        result = memory.compact((self.rows, *self.inner), numpy_dtype(self.dtype))
        self.put(result)
        return self._ordered(result)

    def values_with_any_nulls(self) -> Array:
        """Its values, with any values in place of nulls."""
        result = np.empty((self.rows, *self.inner), numpy_dtype(self.dtype))
        self.put(result)
        return self._ordered(result)

    def put(self, out: Array) -> None:
        """Write its values into an array in one pass, with `fill` in place of nulls."""
        at = 0
        step = max(1, _BLOCK // max(1, prod(self.inner)))
        for piece in self.pieces:
            values, marks = piece.values, piece.missing if self.fill is not None else ()
            if not marks and isinstance(values, np.ndarray):
                out[at : at + piece.rows] = values
            else:
                for start in range(0, piece.rows, step):
                    stop = min(start + step, piece.rows)
                    into = out[at + start : at + stop]
                    if isinstance(values, np.ndarray):
                        into[...] = values[start:stop]
                    else:
                        values.put(into, start, stop)
                    for mark in marks:
                        if isinstance(mark.marks, Bits) and into.ndim == 1:
                            into[mark.marks.unset(start, stop)] = self.fill
                        else:
                            _fill_where(
                                into,
                                self.fill,
                                _spread_marks(mark.part(start, stop), into.shape, mark.each),
                            )
            at += piece.rows

    def _ordered(self, array: Array) -> Array:
        return (
            array if self.order is None else array.transpose(0, *(axis + 1 for axis in self.order))
        )


def value_in(dtype: str, value: Any, keyword: str = "nulls", hint: Hint | None = None) -> Any:
    """A value in a dtype.

    Raises:
        LossyCastError: The dtype has no such value.
    """
    kind = find(dtype).kind
    if isinstance(value, str) and value == "nan":
        number: Any = float("nan")
    else:
        number = value
    if isinstance(number, np.generic):
        number = number.item()
    of_dtype: Any = None
    kept = isinstance(number, bool) == (kind == "bool") and not (
        isinstance(number, complex) and kind != "complex"
    )
    try:
        with np.errstate(all="ignore"):
            if kept:
                of_dtype = np.asarray(number).astype(numpy_dtype(dtype))
            else:
                of_dtype = None
        # A float may be rounded, but must not become infinite.
        rounds = kept and kind == "float" and isinstance(number, float)
        kept = kept and bool(
            np.isfinite(of_dtype) == np.isfinite(number) if rounds else of_dtype.item() == number
        )
    except (TypeError, ValueError, OverflowError):
        kept = False
    if not kept:
        zero = Hint(hints.keyword(keyword, False if kind == "bool" else 0))
        raise LossyCastError(f"{keyword}={value!r} is no value of {dtype}.", hint or zero)
    return of_dtype


def _fill_where(out: Array, value: Any, where: Array) -> None:
    """Write a value where a mask is true; one by one if that is rare, which is faster."""
    count = np.count_nonzero(where)
    if count * _FEW > where.size or not out.flags.c_contiguous:
        np.copyto(out, value, where=where)
    elif count:
        out.reshape(-1)[np.flatnonzero(where)] = value


def _mark_missing(out: Array, piece: Piece, start: int) -> None:
    for missing in piece.missing:
        out |= _spread_marks(missing.part(start, start + len(out)), out.shape, missing.each)


def _spread_marks(marks: Array, shape: tuple[int, ...], many: int) -> Array:
    """A mask of rows, or of some of their axes, as a mask of elements."""
    if len(shape) == 1:
        return marks
    size = prod(shape[1:])
    if many == size:
        return marks.reshape(shape)
    return np.repeat(marks.reshape(shape[0], many), size // max(many, 1), axis=1).reshape(shape)


Found = Column | Ragged | Refused
"""The contents of a column."""
