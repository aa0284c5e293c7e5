"""polars: columns without nulls over their memory, frames, arrays copied as series and frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import hints
from ...columns.column import (
    BYTES,
    DECODED,
    FIELDS,
    LIST,
    STORAGE,
    TEXT,
    WITHOUT_NULLS,
    WORDS,
    Column,
    ColumnCode,
    Refused,
    code_for_images,
    is_number,
)
from ...columns.pieces import Piece
from ...core.kinds import PLAIN, Kind
from ...core.labels import Labels
from ...errors import UnsupportedTypeError, an
from ...hints import Hint
from ..columnar import ColumnBackend, Views
from ..labelling import checked, refuse_twice
from ..opening import Gathered
from .declared import CAPABILITIES, DECLARED, snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...columns.column import Found
    from ...core.capabilities import Capabilities
    from ...typing import Array

CODE = {
    LIST: ColumnCode("x.to_list()"),
    STORAGE: ColumnCode("x.ext.storage()"),
    DECODED: code_for_images("to_list"),
    WITHOUT_NULLS: WITHOUT_NULLS._replace(code="x.drop_nulls()"),
    FIELDS: FIELDS._replace(code="x.struct.unnest()"),
    WORDS: WORDS._replace(code="x.cast(pl.Categorical).to_physical()"),
}
"""Code of polars for hints, by that of pyarrow."""
_OF_ROWS = Kind(of_rows=True)
_AS_FLOAT = "x.cast(float)"


class PolarsBackend(ColumnBackend):
    """`pl.Series`; `pl.DataFrame` as a container."""

    name = "polars"
    module = "polars"
    aliases = ("pl",)
    owns = ("polars",)
    rank = 62
    install = "pip install polars"
    imports = DECLARED.imports
    renamed = ""
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        super().__init__()
        self._capabilities = CAPABILITIES

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def load(self) -> None:
        import polars as pl

        self._pl = pl
        self.column_types, self.table_types, self.not_yet_run = (
            (pl.Series,),
            (pl.DataFrame,),
            (pl.LazyFrame,),
        )
        names = [
            "Int8",
            "Int16",
            "Int32",
            "Int64",
            "UInt8",
            "UInt16",
            "UInt32",
            "UInt64",
            "Float32",
            "Float64",
        ]
        if hasattr(pl, "Float16"):
            names.append("Float16")
        else:
            self._capabilities = CAPABILITIES.holding(CAPABILITIES.dtypes.held - {"float16"})
        self._plain = {getattr(pl, name): name.lower() for name in names}

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if issubclass(kind, self._pl.LazyFrame):
            return "A LazyFrame is a query that has not run.", "x.collect()"
        if issubclass(kind, self._pl.Expr):
            return "An Expr is computed from the columns of a frame.", "frame.select(x)"
        if kind.__name__ == "GroupBy":
            return "A GroupBy is rows in groups, of which nothing was computed.", "x.mean()"
        return None

    def note(self, x: Any) -> Kind:
        # Without it, a series of rows could not be told from a frame, of which two axes are the
        # ordinary case.
        dtype = getattr(x, "dtype", None)
        if isinstance(dtype, (self._pl.Array, self._pl.List)):
            return _OF_ROWS
        return PLAIN

    def whole(self, x: Any) -> Gathered | Array | None:
        # The classes of dtypes are compared, because dtypes of numbers have no parameters.
        dtypes = [*map(type, x.dtypes)]
        if dtypes and dtypes.count(dtypes[0]) == len(dtypes):
            name = self._plain.get(dtypes[0])
        else:
            name = None
        if name is None or not x.height or any(x.null_count().row(0)):
            return None
        return Gathered(
            x.shape,
            name,
            lambda by_rows: x.to_numpy(order="c" if by_rows else "fortran", writable=True),
        )

    def plain_array(self, x: Any) -> Array | None:
        array = self._view(x)
        if array is not None and array.ndim == 1:
            return array
        return None

    def _view(self, x: Any) -> Array | None:
        """`plain_array` for a series, also for rows of equal length."""
        try:
            array: Array = x.to_numpy(allow_copy=False)
        except (RuntimeError, self._pl.exceptions.PolarsError):
            return None  # it has nulls, several chunks, or values that are not plain numbers
        # Dates are given as NumPy's dates. An empty series does not give its own memory.
        if array.dtype.kind in "iuf" and array.size:
            return array
        return None

    def views(self, x: Any) -> Views:
        names, columns = x.columns, x.get_columns()
        # The series are kept, because a frame makes new memory for a constant column at each
        # access.
        return Views(
            dict(zip(names, map(self._view, columns), strict=True)),
            lambda: dict(zip(names, columns, strict=True)),
        )

    def dtype_of(self, x: Any) -> Any:
        return x.dtype

    def empty(self, x: Any) -> Any:
        return x.clear()

    def contents_of_column(self, x: Any, asked: str | None) -> Found:
        pl, dtype = self._pl, x.dtype
        name = self._plain.get(dtype)
        if name is not None and x.n_chunks() == 1 and not x.null_count():
            return Column(name, (), [Piece(len(x), x.to_numpy(allow_copy=False))] if len(x) else [])
        if dtype == pl.String:
            written = is_number(x.first()) if len(x) else False
            if written:
                hint = ColumnCode(_AS_FLOAT, ", which reads numbers that are written out")
            else:
                hint = CODE[WORDS]
            return Refused(TEXT, hint, stays=True)
        if dtype == pl.Binary:
            return Refused(BYTES, CODE[LIST], stays=True)
        if dtype == pl.Null:
            return Refused("has nulls alone, and no dtype", ColumnCode(_AS_FLOAT), stays=True)
        if dtype == pl.Object:
            return Refused("holds Python objects", CODE[LIST])
        if dtype in (pl.Int128, getattr(pl, "UInt128", pl.Int128)):
            return Refused(
                "holds integers of 128 bits, which no dtype holds",
                ColumnCode("x.cast(int)", ", which raises if one is lost"),
            )
        return self.found_by_arrow(x, asked)

    code = CODE  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def columns_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        return [(column.name, column) for column in x.get_columns()]

    def replaced(self, x: Any, name: object, code: str) -> str:
        return f"x.with_columns({code})"

    def without_nulls(self, name: object) -> str:
        return f"x.drop_nulls({name!r})"

    def dropped(self, names: list[object]) -> str:
        return f"x.drop({names!r})"

    # -- labels ------------------------------------------------------------------------------------

    def labels_given(
        self, index: object, columns: object, to_array: Callable[[Any], Array]
    ) -> Labels:
        names = [*checked("columns", columns, '["a", "b"]', to_array)]
        odd = next((name for name in names if not isinstance(name, str)), None)
        if odd is not None:
            raise UnsupportedTypeError(
                f"polars names columns by strings, and columns= has {an(type(odd).__name__)}.",
                Hint(hints.keyword("columns", hints.code("[str(name) for name in columns]"))),
            )
        refuse_twice(names)
        return Labels(self.name, None, tuple(names))

    def labels_of(self, x: Any) -> Labels | None:
        if self.is_table(type(x)):
            names = tuple(x.columns)
            usual = all(name == f"column_{index}" for index, name in enumerate(names))
            if usual:
                return None
            return Labels(self.name, None, names)
        if x.name:
            return Labels(self.name, None, (x.name,), is_table=False)
        return None

    def label(self, x: Any, index: Labels | None, names: Labels | None) -> Any:
        if names is None or names.names is None:
            return x
        if not self.is_table(type(x)):
            return x.alias(names.names[0])
        labelled = x.clone()
        labelled.columns = [*names.names]
        return labelled

    def adopt(self, array: Array) -> Any:
        if array.ndim == 1:
            return self._pl.Series(array)
        return self._pl.from_numpy(array, orient="row")


BACKEND = PolarsBackend()
