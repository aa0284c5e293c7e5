"""pandas: columns (NumPy's, masked, Arrow's, categorical), frames, series over other memory."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from math import isnan, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...columns.column import (
    BYTES,
    CODES,
    DECODED,
    FIELDS,
    LIST,
    STORAGE,
    TEXT,
    WITHOUT_NULLS,
    WORDS,
    Column,
    ColumnCode,
    Ragged,
    Refused,
    code_for_images,
    is_number,
)
from ...columns.dates import counts_of, dates_in
from ...columns.frames import write_columns
from ...columns.layouts import CATEGORIES, ROUNDED, are_integers, decimals_in
from ...columns.pieces import DictionaryEncoded, Missing, Piece
from ...core.kinds import OBJECTS, PLAIN, WITH_INDEX, Kind, Reason
from ...core.labels import Labels
from ...core.names import EXCHANGE
from ...errors import ConversionError, UnsupportedTypeError, an
from ...hints import Hint
from ...host import memory
from ...host.memory import gather_rows
from ...host.numpy_dtypes import of_numpy
from ...sequences import reader
from .. import lists, registry
from ..base import UNASKED, Opening
from ..columnar import ColumnBackend, Views
from ..labelling import checked, refuse_twice
from ..no_tensor import has_no_numbers
from ..opening import Gathered
from .declared import CAPABILITIES, DECLARED, snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...columns.column import Found
    from ...typing import Array
    from ..base import Opened

__all__ = ["CODE", "WRITTEN", "first_of", "found_in_objects", "of_text", "reads_as_list"]

CODE = {
    LIST: ColumnCode("x.tolist()"),
    STORAGE: ColumnCode("x.astype(pd.ArrowDtype(x.dtype.pyarrow_dtype.storage_type))"),
    DECODED: code_for_images("tolist"),
    WITHOUT_NULLS: WITHOUT_NULLS._replace(code="x.dropna()"),
    FIELDS: FIELDS._replace(code="x.struct.explode()"),
    WORDS: WORDS._replace(code='x.astype("category").cat.codes'),
}
"""Code of pandas for hints, by that of pyarrow."""
WRITTEN = ColumnCode('x.astype("float64")', ", which reads numbers that are written out")
_OTHER: dict[type, ColumnCode] = {
    str: ColumnCode(
        'pd.to_numeric(x, errors="coerce")', ", which makes nan of text that is no number"
    ),
    Decimal: ROUNDED,
    date: ColumnCode("pd.to_datetime(x)"),
    timedelta: ColumnCode("pd.to_timedelta(x)"),
}
"""Code that makes another column, by the type of the first object that is no number."""
_NUMBERS = (*reader.PYTHON_NUMBERS, np.generic)
_REASON = (OBJECTS,)


# -- columns of Python objects: numbers and lists of them are read, None and pd.NA are nulls -------


def reads_as_list(objects: Array, na: Any) -> bool:
    """Whether a column of Python objects is converted as the list of its objects.

    It is not if there are nulls, ragged rows, or values that this module has a better error for.
    """
    if _nulls(objects, na).any() or any(
        has_no_numbers(thing) or isinstance(thing, Decimal) for thing in objects
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
        return Refused(
            "has nulls alone, and no dtype", ColumnCode('x.astype("float64")'), stays=True
        )
    # Beside values without numbers, NaN is no number, but pandas' mark for a missing value.
    values = [row for row in rows.tolist() if not _is_nan(objects[row])]
    if registry.backend_named(EXCHANGE).is_text(objects[values]):
        return _without_numbers(objects[values[0]], values[0])
    if len(rows) and _are_rows(objects[rows]):
        return _lists(objects, gone, na)
    if values and all(isinstance(thing, Decimal) for thing in objects[values]):
        kept = set(values)
        return decimals_in(
            [thing if row in kept else None for row, thing in enumerate(objects)], asked
        )
    if gone.any():
        known = objects[rows[0]]
        if hasattr(known, "shape") and not isinstance(known, np.generic):
            return Refused(
                f"has a null in the place of an array, at row {gone.argmax()}", CODE[WITHOUT_NULLS]
            )
    known = objects[rows[0]] if len(rows) else None
    # With any of its numbers in the place of nulls, so that errors have the right rows.
    column = _numbers(
        [known if is_gone else thing for thing, is_gone in zip(objects, gone, strict=True)], gone
    )
    if isinstance(column, Column) and len(values) < len(rows):
        column.with_nan_missing = partial(_with_nan_missing, column, objects, na)
    return column


def _with_nan_missing(column: Column, objects: Array, na: Any) -> Column:
    """The column with nulls in place of NaN; other values, if any, alone decide the dtype."""
    without = objects.copy()
    without[_nans(objects)] = None
    others = found_in_objects(without, na)
    if isinstance(others, Column):
        return others
    return column.nan_as_null()


def _without_numbers(first: Any, row: int) -> Refused:
    """What a column of text, dates and the like is: it stays as it is in a tree."""
    if isinstance(first, str):
        return Refused(TEXT, of_text(first), stays=True)
    if isinstance(first, bytes):
        return Refused(BYTES, CODE[LIST], stays=True)
    return _odd(first, row, stays=True)


def first_of(texts: Iterable[Any]) -> Any:
    """The first text of a column that is not missing; ``None`` if all are."""
    return next((text for text in texts if isinstance(text, str)), None)


def of_text(first: object) -> ColumnCode:
    """The hint for a text column, by its first element: its numbers, or numbers for the words."""
    return WRITTEN if is_number(first) else CODE[WORDS]


def _odd(thing: Any, row: int, *, stays: bool = False) -> Refused:
    hint = next((code for base, code in _OTHER.items() if isinstance(thing, base)), CODE[LIST])
    return Refused(
        f"holds Python objects, such as {an(type(thing).__name__)} at row {row}", hint, stays
    )


def _nulls(objects: Iterable[Any], na: Any) -> Array:
    """A mask of ``None`` and of `na`. NaN is a number."""
    return np.fromiter((thing is None or thing is na for thing in objects), bool)


def _is_nan(x: Any) -> bool:
    return isinstance(x, float) and isnan(x)


def _nans(objects: Iterable[Any]) -> Array:
    """A mask of NaN, by which pandas marks what is missing."""
    return np.fromiter(map(_is_nan, objects), bool)


def _has_rows(objects: Array) -> bool:
    """Whether an object is a list or an array."""
    return any(isinstance(thing, (list, tuple)) or getattr(thing, "ndim", 0) for thing in objects)


def _are_rows(objects: Array) -> bool:
    """Whether all objects are lists, or all are arrays with one axis and one dtype of numbers."""
    if all(isinstance(thing, (list, tuple)) for thing in objects):
        return True
    if not all(isinstance(thing, np.ndarray) and thing.ndim == 1 for thing in objects):
        return False
    return len({thing.dtype for thing in objects}) == 1 and of_numpy(objects[0].dtype) is not None


def _numbers(values: list[Any], gone: Array) -> Found:
    odd = next((row for row, value in enumerate(values) if not isinstance(value, _NUMBERS)), None)
    if odd is not None:
        return _odd(values[odd], odd)
    try:
        if values:
            numbers = lists.read(values, values[0])[0]
        else:
            numbers = np.empty(0)
    except ConversionError as error:
        return Refused(
            f"has numbers of no common dtype. {_with_rows(error)}",
            ROUNDED,
        )
    return _column(numbers, gone)


def _column(array: Array, gone: Array) -> Column:
    many = prod(array.shape[1:])
    marked = (Missing(gone, many),) if gone.any() else ()
    if len(array):
        pieces = [Piece(len(array), array, marked)]
    else:
        pieces = []
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
        elements: Found = _column(np.concatenate(objects), gone)
    else:
        values = [value for row in objects for value in row]
        gone = _nulls(values, na)
        elements = _elements(values, gone)
        if isinstance(elements, Refused) and not elements.stays:
            elements = _deep(objects.tolist())
    if not isinstance(elements, Column) or elements.inner:
        return elements
    if (lengths != lengths[0]).any():
        return Ragged(elements, lengths)
    array = elements.values_with_any_nulls() if len(gone) else np.empty(0)
    return _column(array.reshape(len(objects), int(lengths[0])), gone)


def _elements(values: list[Any], gone: Array) -> Found:
    """The elements of all rows."""
    known = next((value for value, is_gone in zip(values, gone, strict=True) if not is_gone), None)
    if values and known is None:
        return Refused("has nulls alone, and no dtype", CODE[LIST])
    if has_no_numbers(known):
        if isinstance(known, (str, bytes)):
            what = "text, which has no numbers"
        else:
            what = f"{type(known).__name__} objects"
        return Refused(f"holds lists of {what}", CODE[LIST], stays=True)
    return _numbers(
        [known if is_gone else value for value, is_gone in zip(values, gone, strict=True)], gone
    )


def _deep(values: list[Any]) -> Found:
    """Lists in lists; or why rows are no lists of numbers."""
    if not any(isinstance(value, (list, tuple)) for row in values for value in row):
        odd = [
            row
            for row, value in enumerate(values)
            if not all(isinstance(number, _NUMBERS) for number in value)
        ]
        if odd:
            why = f"has a list with other objects than numbers, at row {odd[0]}"
        else:
            why = "has numbers of no common dtype"
        return Refused(why, CODE[LIST])
    try:
        array, _ = lists.read(values, reader.first_element(values)[0])
    except ConversionError as error:
        return Refused(f"holds lists that are no tensor. {_with_rows(error)}", CODE[LIST])
    return _column(array, np.zeros(0, bool))


_GROUPS = {"BaseGroupBy", "BaseWindow"}
"""What groups and windows of rows are; `pandas` has no public name for them."""
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


# -- the backend -----------------------------------------------------------------------------------


class PandasBackend(ColumnBackend):
    """`pd.Series`, `pd.Index` and the arrays in them; `pd.DataFrame` as a container."""

    name = "pandas"
    module = "pandas"
    aliases = ("pd",)
    owns = ("pandas",)
    rank = 61
    install = "pip install pandas"
    imports = DECLARED.imports
    renamed = "x.set_axis(range(x.shape[1]), axis=1)"
    renamed_column = "x.rename(columns={{{name!r}: {other!r}}})"
    capabilities = CAPABILITIES  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]

    def load(self) -> None:
        import pandas as pd

        self._pd = pd
        self.column_types = (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)
        self.table_types = (pd.DataFrame,)

    def claims(self, kind: type) -> bool:
        return super().claims(kind) and not issubclass(kind, self._pd.MultiIndex)

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if issubclass(kind, self._pd.MultiIndex):
            return "A MultiIndex is several columns.", "x.to_frame()"
        if any(base.__name__ in _GROUPS for base in kind.__mro__):
            return (
                f"{an(kind.__name__, 'A')} is rows in groups, of which nothing was computed.",
                "x.mean()",
            )
        return None

    def note(self, x: Any) -> Kind:
        index = getattr(x, "index", None)
        if index is None or isinstance(x, self._pd.Index) or self._is_usual(index):
            return PLAIN
        return WITH_INDEX

    def _is_usual(self, index: Any) -> bool:
        """Whether an index only numbers the rows, or the columns."""
        return (
            isinstance(index, self._pd.RangeIndex)
            and index.start == 0
            and index.step == 1
            and index.name is None
        )

    def open(self, x: Any, opening: Opening = UNASKED) -> Opened:
        objects = self._objects(x)
        if objects is not None:
            return registry.backend_named(EXCHANGE).open(objects, opening)
        return super().open(x, opening)

    def preview(self, x: Any, opening: Opening = UNASKED) -> Opened:
        objects = self._objects(x)
        if objects is not None:
            return registry.backend_named(EXCHANGE).preview(objects, opening)
        return super().preview(x, opening)

    def _objects(self, x: Any) -> Array | None:
        """The array of a column of Python objects, if it is converted as their list."""
        if self.is_table(type(x)) or x.dtype != object:
            return None
        objects: Array = x.to_numpy()
        if reads_as_list(objects, self._pd.NA):
            return objects
        return None

    def whole(self, x: Any) -> Gathered | Array | None:
        # `_mgr.blocks` is private. Without it, each column is read by itself.
        blocks: Any = getattr(getattr(x, "_mgr", None), "blocks", ())
        dtypes = {block.dtype for block in blocks}
        if len(dtypes) == 1:
            name = of_plain(dtypes.pop())
        else:
            name = None
        if name is None:
            return None
        # The array of a single block is the frame's own memory. Before pandas 3 it can be written.
        if len(blocks) == 1:
            array = x.to_numpy().view()
            array.flags.writeable = False
            return array  # type: ignore[no-any-return]

        def read(by_rows: bool) -> Array:
            if len(blocks) < x.shape[1]:
                array = x.to_numpy(copy=True)
                if by_rows:
                    return np.ascontiguousarray(array)
                return _by_columns(array)
            # Each column is a block. They are put in the order of the frame.
            columns = [blocks[place].values[0] for place in x._mgr.blknos.tolist()]
            if by_rows:
                shape: tuple[int, int] = x.shape
            else:
                shape = x.shape[::-1]
            result = memory.compact(shape, columns[0].dtype)
            if by_rows:
                write_columns(result, [*enumerate(columns)])
                return result
            gather_rows(columns, result)
            turned: Array = result.T
            return turned

        if blocks[0].dtype.isnative:
            return Gathered(x.shape, name, read)
        return None

    def plain_array(self, x: Any) -> Array | None:
        dtype = x.dtype
        if dtype.__class__.__name__ not in _PLAIN or not dtype.isnative or not len(x):
            return None
        array = x.to_numpy()
        return None if array.flags.writeable or not array.strides[0] else array

    def views(self, x: Any) -> Views | None:
        # As in `whole`: to make a series for each column takes longer than to convert it.
        manager: Any = getattr(x, "_mgr", None)
        blocks = [_read_only(block.values) for block in getattr(manager, "blocks", ())]
        if not blocks or not x.columns.is_unique or not len(x):
            return None
        places = zip(manager.blknos.tolist(), manager.blklocs.tolist(), strict=True)
        rows = [None if (values := blocks[block]) is None else values[row] for block, row in places]
        return Views(dict(zip(x.columns, rows, strict=True)), lambda: self.named_columns(x))

    def is_text(self, x: Any) -> bool:
        # Without rows, objects may be of any type. Most of them are text, which stays in other
        # batches.
        return (not self.is_table(type(x)) and x.dtype == object and not len(x)) or super().is_text(
            x
        )

    def dtype_of(self, x: Any) -> Any:
        # A dtype of another package says nothing of the values, and may have no hash.
        is_own = isinstance(x.dtype, np.dtype) or _is_own(x.dtype)
        if is_own and x.dtype != object:
            return x.dtype
        return None

    def empty(self, x: Any) -> Any:
        return x[:0]

    def contents_of_column(self, x: Any, asked: str | None) -> Found:
        pd, dtype = self._pd, x.dtype
        if isinstance(dtype, np.dtype):
            return self._found_in_numpy(x, dtype, asked)
        if isinstance(x, pd.api.extensions.ExtensionArray):
            values = x
        else:
            values = x.array
        if isinstance(dtype, pd.StringDtype):
            return Refused(TEXT, of_text(first_of(values)), stays=True)
        if isinstance(dtype, pd.ArrowDtype):
            return self.found_by_arrow(values.__arrow_array__(), asked)
        if isinstance(dtype, pd.CategoricalDtype):
            return self._found_in_categories(values, dtype, asked)
        if isinstance(dtype, (pd.DatetimeTZDtype, pd.PeriodDtype)):
            if isinstance(dtype, pd.DatetimeTZDtype):
                zone = " in UTC"
            else:
                zone = ""
            unit = _UNITS.get(
                getattr(dtype, "unit", ""), f"periods of {getattr(values, 'freqstr', '')}"
            )
            return counts_of(
                values.view("i8"), np.asarray(values.isna()), f"{unit} since 1970{zone}", asked
            )
        if isinstance(dtype, pd.SparseDtype):
            name = of_plain(dtype.subtype)
            if name is not None:
                return _over(np.asarray(values), (Reason("sparse"),))
        plain = getattr(dtype, "numpy_dtype", None)
        name = None if plain is None else of_plain(plain)
        if name is not None and isinstance(
            dtype, getattr(pd.core.dtypes.dtypes, "NumpyEADtype", ())
        ):
            return _over(values.to_numpy())
        if name is not None and hasattr(values, "_mask"):
            data, mask = values._data, values._mask
            marked = (Missing(mask),) if mask.any() else ()
            return Column(
                name, (), [Piece(len(data), data, marked)] if len(data) else [], mutable=True
            )
        if _is_own(dtype):
            column = None
        else:
            column = self._found_in_foreign(values, asked)
        if isinstance(column, (Column, Ragged)):
            return column
        return Refused(
            f"has dtype {dtype}, which cannot be converted", CODE[LIST], stays=dtype.kind == "O"
        )

    def _found_in_foreign(self, values: Any, asked: str | None) -> Found | None:
        """What another package's array (images of datasets, say) gives to Arrow, if anything."""
        if not hasattr(values, "__arrow_array__"):
            return None
        try:
            return self.found_by_arrow(values.__arrow_array__(), asked)
        except (NotImplementedError, TypeError, ValueError):
            return None

    def _found_in_numpy(self, x: Any, dtype: np.dtype[Any], asked: str | None) -> Found:
        if of_plain(dtype) is not None:
            return _over(x.to_numpy())
        if dtype.kind in "mM":
            return dates_in(np.asarray(x.to_numpy()), asked)
        if dtype.kind == "O":
            return found_in_objects(x.to_numpy(), self._pd.NA, asked)
        if dtype.kind == "U":
            return Refused(TEXT, of_text(first_of(x)), stays=True)
        if dtype.kind == "S":
            return Refused(BYTES, CODE[LIST], stays=True)
        return Refused(f"has dtype {dtype}, which cannot be converted", CODE[LIST])

    def _found_in_categories(self, values: Any, dtype: Any, asked: str | None) -> Found:
        codes = values.codes
        gone = codes < 0
        marked = (Missing(gone),) if gone.any() else ()
        # Without any category, as where all is missing, objects may be of any type. Most of them
        # are text.
        unknown = dtype.categories.dtype == object and not len(dtype.categories)
        if unknown:
            categories = None
        else:
            categories = self.contents_of_column(dtype.categories, asked)
        if (
            isinstance(categories, Column) and not categories.inner
        ):  # tuples are categories, and no rows
            decoded = DictionaryEncoded(
                codes, categories.values_with_any_nulls(), gone if marked else None
            )
            if len(codes):
                pieces = [Piece(len(codes), decoded, marked)]
            else:
                pieces = []
            reasons = () if pieces else (Reason.encoded(decoded.encoded),)
            return Column(categories.dtype, (), pieces, unit=categories.unit, reasons=reasons)
        if isinstance(categories, Refused) and categories.asked:
            return categories._replace(lacks=bool(gone.any()))
        if not are_integers(asked):
            return CATEGORIES._replace(lacks=bool(gone.any()))
        if len(codes):
            pieces = [Piece(len(codes), codes, marked)]
        else:
            pieces = []
        column = Column(of_numpy(codes.dtype) or "", (), pieces, unit=CODES, mutable=True)
        column.categories = dtype.categories.tolist
        return column

    code = CODE  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def columns_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        return list(x.items())

    def replaced(self, x: Any, name: object, code: str) -> str:
        # Only a string can be a keyword.
        if isinstance(name, str):
            table = "x"
        else:
            table = "x.rename(columns=str)"
        return f"{table}.assign(**{{{str(name)!r}: {code}}})"

    def without_nulls(self, name: object) -> str:
        return f"x.dropna(subset=[{name!r}])"

    def dropped(self, names: list[object]) -> str:
        return f"x.drop(columns={names!r})"

    def index_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        index = x.index
        if isinstance(index, self._pd.MultiIndex):
            names = [
                name if name is not None else f"index_{level}"
                for level, name in enumerate(index.names)
            ]
            return [(name, index.get_level_values(level)) for level, name in enumerate(names)]
        return [("index" if index.name is None else index.name, index)]

    # -- labels ------------------------------------------------------------------------------------

    def labels_given(
        self, index: object, columns: object, to_array: Callable[[Any], Array]
    ) -> Labels:
        if index is None:
            rows = None
        else:
            rows = self._given("index", index, to_array)
        if columns is None:
            names = None
        else:
            names = self._given("columns", columns, to_array)
        if names is not None and not names.is_unique:
            refuse_twice(names)
        return Labels(self.name, rows, names)

    def _given(self, keyword: str, value: Any, to_array: Callable[[Any], Array]) -> Any:
        """The value of a keyword for labels, as an index.

        Raises:
            TypeError: It is no labels, or a series or a frame, of which the index or the values
                could be meant.
        """
        pd = self._pd
        if isinstance(value, pd.Index):
            return value
        if isinstance(value, pd.DataFrame):
            what = {"index": "index", "columns": "columns"}[keyword]
            raise UnsupportedTypeError(
                f"{keyword}= is a DataFrame, and not its {what}.",
                Hint(hints.keyword(keyword, hints.code(f"{keyword}.{what}"))),
            )
        if isinstance(value, pd.Series):
            raise UnsupportedTypeError(
                f"{keyword}= is a Series, whose index or whose values could be meant.",
                Hint(
                    hints.keyword(keyword, hints.code(f"{keyword}.index")),
                    ", or ",
                    hints.keyword(keyword, hints.code(f"{keyword}.array")),
                    " for its values",
                ),
            )
        if keyword == "index":
            example = 'frame.index or ["a", "b"]'
        else:
            example = '["a", "b"]'
        labels = checked(keyword, value, example, to_array)
        try:
            # As the constructors of series and frames do it.
            index = pd.Index(labels, tupleize_cols=False)
            hash(index[0] if len(index) else None)  # lists are no labels
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{keyword} cannot be {an(type(value).__name__)} of this kind: {error}"
            ) from error
        return index

    def labels_of(self, x: Any) -> Labels | None:
        if not isinstance(x, (self._pd.Series, self._pd.DataFrame)):
            return None
        index = None if self._is_usual(x.index) else x.index
        is_table = self.is_table(type(x))
        names: Any = None
        if not is_table:
            names = None if x.name is None else (x.name,)
        elif not self._is_usual(x.columns):
            names = x.columns
        if index is None and names is None:
            return None
        return Labels(self.name, index, names, is_table=is_table)

    def label(self, x: Any, index: Labels | None, names: Labels | None) -> Any:
        labelled = x.copy(deep=False)
        # Each gets an index object of its own, since the names of an index can be changed.
        if index is not None:
            labelled.index = index.index.view()
        if names is not None and names.names is not None:
            if self.is_table(type(x)):
                if isinstance(names.names, self._pd.Index):
                    labelled.columns = names.names.view()
                else:
                    labelled.columns = [*names.names]
            else:
                labelled.name = names.names[0]
        return labelled

    def adopt(self, array: Array) -> Any:
        return (self._pd.Series if array.ndim == 1 else self._pd.DataFrame)(array, copy=False)


_PLAIN = frozenset(
    {
        *(
            "Int8DType",
            "Int16DType",
            "Int32DType",
            "Int64DType",
            "UInt8DType",
            "UInt16DType",
            "UInt32DType",
        ),
        *(
            "UInt64DType",
            "Float16DType",
            "Float32DType",
            "Float64DType",
            "Complex64DType",
            "Complex128DType",
        ),
        *("BoolDType", "LongLongDType", "ULongLongDType"),
    }
)


def _is_own(dtype: Any) -> bool:
    """Whether a dtype is pandas' own, and not one of another package."""
    return type(dtype).__module__.partition(".")[0] == "pandas"


def _read_only(values: Any) -> Array | None:
    """A block's values, read-only: each row is a column; ``None`` if they are not plain numbers."""
    if (
        type(values) is not np.ndarray
        or of_plain(values.dtype) is None
        or not values.dtype.isnative
    ):
        return None
    view = values.view()
    view.flags.writeable = False
    return view if view.strides[1] else None


def _by_columns(array: Array) -> Array:
    if array.flags.f_contiguous:
        return array
    return np.asfortranarray(array)


def of_plain(dtype: Any) -> str | None:
    """The canonical name of a NumPy dtype of numbers; ``None`` for other dtypes."""
    if isinstance(dtype, np.dtype) and dtype.kind in "biufc":
        return of_numpy(dtype)
    return None


def _over(array: Array, reasons: tuple[Reason, ...] = ()) -> Column:
    pieces = [Piece(len(array), array)] if array.size else []
    column = Column(
        of_numpy(array.dtype) or "", array.shape[1:], pieces, mutable=not reasons, reasons=reasons
    )
    if array.dtype.kind in "fc":
        column.with_nan_missing = column.nan_as_null
    return column


BACKEND = PandasBackend()
