"""pandas: columns with NumPy's, masked, Arrow's or categorical memory; frames; series over other memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns.code import LIST
from ...columns.column import BYTES, CODES, TEXT, Column, Ragged, Refused
from ...columns.dates import counts_of, dates_in
from ...columns.frames import write_columns
from ...columns.layouts import CATEGORIES, are_integers
from ...columns.pieces import DictionaryEncoded, Missing, Piece
from ...core.info import INDEXED
from ...core.labels import Labels
from ...core.names import EXCHANGE
from ...errors import UnsupportedTypeError, an
from ...host import memory
from ...host.copies import gather
from ...host.numpy_dtypes import of_numpy
from .. import registry
from ..columnar import ColumnBackend, Views
from ..labelling import checked, refuse_twice
from ..opening import Gathered
from .declared import CAPABILITIES, DECLARED, snippet
from .objects import CODE, first_of, found_in_objects, of_text, reads_as_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...columns.column import Found
    from ...core.request import Request
    from ...typing import Array
    from ..base import Backend, Opened

_GROUPS = {"BaseGroupBy", "BaseWindow"}
"""What groups and windows of rows are; `pandas` has no public name for them."""
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


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

    def refusal(self, kind: type) -> tuple[str, str | None] | None:
        if issubclass(kind, self._pd.MultiIndex):
            return "A MultiIndex is several columns.", "x.to_frame()"
        if any(base.__name__ in _GROUPS for base in kind.__mro__):
            return (
                f"{an(kind.__name__, 'A')} is rows in groups, of which nothing was computed.",
                "x.mean()",
            )
        return None

    def note(self, x: Any) -> str:
        index = getattr(x, "index", None)
        return (
            ""
            if index is None or isinstance(x, self._pd.Index) or self._is_usual(index)
            else INDEXED
        )

    def _is_usual(self, index: Any) -> bool:
        """Whether an index only numbers the rows, or the columns."""
        return (
            isinstance(index, self._pd.RangeIndex)
            and index.start == 0
            and index.step == 1
            and index.name is None
        )

    def open(self, x: Any, target: Backend | None = None, request: Request | None = None) -> Opened:
        objects = self._objects(x)
        if objects is not None:
            return registry.backend_named(EXCHANGE).open(objects, target, request)
        return super().open(x, target, request)

    def preview(
        self, x: Any, target: Backend | None = None, request: Request | None = None
    ) -> Opened:
        objects = self._objects(x)
        if objects is not None:
            return registry.backend_named(EXCHANGE).preview(objects, target, request)
        return super().preview(x, target, request)

    def _objects(self, x: Any) -> Array | None:
        """The array of a column of Python objects, if it is converted as their list."""
        if self.is_table(type(x)) or x.dtype != object:
            return None
        objects: Array = x.to_numpy()
        return objects if reads_as_list(objects, self._pd.NA) else None

    def whole(self, x: Any) -> Gathered | Array | None:
        # `_mgr.blocks` is private. Without it, each column is read by itself.
        blocks: Any = getattr(getattr(x, "_mgr", None), "blocks", ())
        dtypes = {block.dtype for block in blocks}
        name = of_plain(dtypes.pop()) if len(dtypes) == 1 else None
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
                return np.ascontiguousarray(array) if by_rows else _by_columns(array)
            # Each column is a block. They are put in the order of the frame.
            columns = [blocks[place].values[0] for place in x._mgr.blknos.tolist()]
            shape: tuple[int, int] = x.shape if by_rows else x.shape[::-1]
            result = memory.compact(shape, columns[0].dtype)
            if by_rows:
                write_columns(result, [*enumerate(columns)])
                return result
            gather(columns, result)
            turned: Array = result.T
            return turned

        return Gathered(x.shape, name, read) if blocks[0].dtype.isnative else None

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
        return x.dtype if is_own and x.dtype != object else None

    def empty(self, x: Any) -> Any:
        return x[:0]

    def found(self, x: Any, asked: str | None) -> Found:
        pd, dtype = self._pd, x.dtype
        if isinstance(dtype, np.dtype):
            return self._found_in_numpy(x, dtype, asked)
        values = x if isinstance(x, pd.api.extensions.ExtensionArray) else x.array
        if isinstance(dtype, pd.StringDtype):
            return Refused(TEXT, of_text(first_of(values)), stays=True)
        if isinstance(dtype, pd.ArrowDtype):
            return self.found_by_arrow(values.__arrow_array__(), asked)
        if isinstance(dtype, pd.CategoricalDtype):
            return self._found_in_categories(values, dtype, asked)
        if isinstance(dtype, (pd.DatetimeTZDtype, pd.PeriodDtype)):
            zone = " in UTC" if isinstance(dtype, pd.DatetimeTZDtype) else ""
            unit = _UNITS.get(
                getattr(dtype, "unit", ""), f"periods of {getattr(values, 'freqstr', '')}"
            )
            return counts_of(
                values.view("i8"), np.asarray(values.isna()), f"{unit} since 1970{zone}", asked
            )
        if isinstance(dtype, pd.SparseDtype):
            name = of_plain(dtype.subtype)
            if name is not None:
                return _over(np.asarray(values), ("sparse",))
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
        found = None if _is_own(dtype) else self._found_in_foreign(values, asked)
        if isinstance(found, (Column, Ragged)):
            return found
        return Refused(
            f"has dtype {dtype}, which cannot be converted", CODE[LIST], stays=dtype.kind == "O"
        )

    def _found_in_foreign(self, values: Any, asked: str | None) -> Found | None:
        """What an array of another package (images and matrices of datasets, say) gives to Arrow, if anything."""
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
        found = None if unknown else self.found(dtype.categories, asked)
        if isinstance(found, Column) and not found.inner:  # tuples are categories, and no rows
            decoded = DictionaryEncoded(codes, found.whatever(), gone if marked else None)
            pieces = [Piece(len(codes), decoded, marked)] if len(codes) else []
            reasons = () if pieces else (f"encoded {decoded.encoded}",)
            return Column(found.dtype, (), pieces, unit=found.unit, reasons=reasons)
        if isinstance(found, Refused) and found.asked:
            return found._replace(lacks=bool(gone.any()))
        if not are_integers(asked):
            return CATEGORIES._replace(lacks=bool(gone.any()))
        pieces = [Piece(len(codes), codes, marked)] if len(codes) else []
        column = Column(of_numpy(codes.dtype) or "", (), pieces, unit=CODES, mutable=True)
        column.categories = dtype.categories.tolist
        return column

    code = CODE  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def columns_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        return list(x.items())

    def replaced(self, x: Any, name: object, code: str) -> str:
        # Only a string can be a keyword.
        table = "x" if isinstance(name, str) else "x.rename(columns=str)"
        return f"{table}.assign(**{{{str(name)!r}: {code}}})"

    def without_nulls(self, name: object) -> str:
        return f"x.dropna(subset=[{name!r}]), which leaves those rows out"

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

    def labels_given(self, index: object, columns: object) -> Labels:
        rows = None if index is None else self._given("index", index)
        names = None if columns is None else self._given("columns", columns)
        if names is not None and not names.is_unique:
            refuse_twice(names)
        return Labels(self.name, rows, names)

    def _given(self, keyword: str, value: Any) -> Any:
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
                f"{keyword}= is a DataFrame, and not its {what}.", f"{keyword}={keyword}.{what}"
            )
        if isinstance(value, pd.Series):
            raise UnsupportedTypeError(
                f"{keyword}= is a Series, whose index or whose values could be meant.",
                f"{keyword}={keyword}.index, or {keyword}={keyword}.array for its values",
            )
        labels = checked(
            keyword, value, 'frame.index or ["a", "b"]' if keyword == "index" else '["a", "b"]'
        )
        try:
            found = pd.Index(
                labels, tupleize_cols=False
            )  # as the constructors of series and frames do it
            hash(found[0] if len(found) else None)  # lists are no labels
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{keyword} cannot be {an(type(value).__name__)} of this kind: {error}"
            ) from error
        return found

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
        return (
            None
            if index is None and names is None
            else Labels(self.name, index, names, is_table=is_table)
        )

    def label(self, x: Any, index: Labels | None, names: Labels | None) -> Any:
        labelled = x.copy(deep=False)
        # Each gets an index object of its own, since the names of an index can be changed.
        if index is not None:
            labelled.index = index.index.view()
        if names is not None and names.names is not None:
            if self.is_table(type(x)):
                labelled.columns = (
                    names.names.view()
                    if isinstance(names.names, self._pd.Index)
                    else [*names.names]
                )
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
    """The values of a block, read-only, in which each row is a column; ``None`` if they are not plain numbers."""
    if (
        type(values) is not np.ndarray
        or of_plain(values.dtype) is None
        or not values.dtype.isnative
    ):
        return None
    found = values.view()
    found.flags.writeable = False
    return found if found.strides[1] else None


def _by_columns(array: Array) -> Array:
    return array if array.flags.f_contiguous else np.asfortranarray(array)


def of_plain(dtype: Any) -> str | None:
    """The canonical name of a NumPy dtype of numbers; ``None`` for other dtypes."""
    return of_numpy(dtype) if isinstance(dtype, np.dtype) and dtype.kind in "biufc" else None


def _over(array: Array, reasons: tuple[str, ...] = ()) -> Column:
    pieces = [Piece(len(array), array)] if array.size else []
    found = Column(
        of_numpy(array.dtype) or "", array.shape[1:], pieces, mutable=not reasons, reasons=reasons
    )
    if array.dtype.kind in "fc":
        found.with_nan_missing = found.nan_as_null
    return found


BACKEND = PandasBackend()
