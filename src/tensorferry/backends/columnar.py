"""`ColumnBackend`: the base of the backends whose tensors are columns of tables.

A column is a tensor. A table is a container of columns, or one tensor if they have one dtype.
`tensorferry.columns` reads columns, and `opening` describes them for the planner.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..columns import interface
from ..columns.column import DECODED, FIELDS, LIST, WITHOUT_NULLS, Column, ColumnCode, Refused
from ..columns.frames import refusal_of_column
from ..columns.layouts import asked_of, column_of
from ..core.kinds import PLAIN, Kind, Reason
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..core.signature import COMPACT, layout_of, places_by
from ..hints import Hint
from ..host import memory
from . import registry, together
from .base import UNASKED, Backend, Opening
from .nodes import as_dict
from .opening import (
    Gathered,
    Table,
    TableContents,
    Unread,
    open_column,
    open_gathered,
    open_table,
    over,
    remark_of,
)
from .quick import Quick

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..columns.column import Found
    from ..core.info import TensorInfo
    from ..core.request import Request
    from ..typing import Array
    from .base import Opened
    from .nodes import Node

    Described = tuple[TensorInfo, Any]

__all__ = ["QUICK", "ColumnBackend", "ColumnQuick", "Views"]

_TABLE = 2
"""The number of axes of a table."""
_MOST = 1024
"""The most dtypes that are remembered. (Each categorical dtype is another one.)"""


def _as_one(name: object) -> object:
    """A column's name, in which each NaN equals every other: nobody can tell such names apart."""
    if isinstance(name, tuple):
        return tuple(map(_as_one, name))
    is_nan = isinstance(name, (float, np.floating)) and name != name  # noqa: PLR0124 - that is what NaN is
    return float if is_nan else name


def _is_wanted(same: bool, request: Request | None) -> bool:
    """Whether the source itself is the result: it stays in its library and nothing is requested."""
    return same and request is not None and request.asks_nothing_else


class Views(NamedTuple):
    """The columns of a table, read quickly.

    Args:
        arrays: For each name, a read-only array over the column's memory; ``None`` if it must be
            described.
        columns: Gives the columns as the library's own objects, over the same memory.
    """

    arrays: Mapping[object, Array | None]
    columns: Callable[[], Mapping[object, Any]]


class ColumnBackend(Backend):
    """The base of a backend of columns.

    A subclass implements `contents_of_column`, which reads a column, and `columns_of`; and
    ``adopt`` if it is a target. Its `load` sets the types of columns and of tables.
    """

    reads_as_asked = True
    quick_code = __name__
    column_types: tuple[type, ...]
    """The types of its columns. The first is that of plain columns."""
    table_types: tuple[type, ...]
    """The types of its tables."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, (*self.column_types, *self.table_types))

    def stands_for(self, kind: type) -> bool:
        return kind is self.column_types[0]

    def is_table(self, kind: type) -> bool:
        """Whether a type that it claims is a type of tables."""
        return issubclass(kind, self.table_types)

    @abstractmethod
    def contents_of_column(self, x: Any, asked: str | None) -> Found:
        """The contents of a column; `asked` is the requested dtype."""

    @abstractmethod
    def columns_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        """The names and columns of a table, as the library's own objects."""

    @abstractmethod
    def replaced(self, x: Any, name: object, code: str) -> str:
        """The code for a table with a replaced column."""

    @abstractmethod
    def dropped(self, names: list[object]) -> str:
        """The code for a table without some of its columns."""

    @abstractmethod
    def without_nulls(self, name: object) -> str:
        """The code for a table without the rows in which a column has nulls."""

    code: Mapping[ColumnCode, ColumnCode] = {}
    """This library's code for hints, by pyarrow's."""

    def table(self, x: Any) -> Table:
        """The `Table` for a table: its columns, and code for hints."""

        def put(name: object, hint: ColumnCode) -> Hint:
            if hint == self.code.get(WITHOUT_NULLS, WITHOUT_NULLS):
                return Hint(hints.code(self.without_nulls(name)), hint.remark)
            code = hint.of(f"x[{name!r}]")
            if hint == self.code.get(DECODED, DECODED):
                return Hint(hints.code(code), hint.remark)
            gives_no_column = hint in [self.code.get(way, way) for way in (LIST, FIELDS)]
            if gives_no_column or not code.endswith(")"):
                # Without its only column, a table has no dtype.
                if len(columns) > 1:
                    code = self.dropped([name])
                return Hint(hints.code(code))
            return Hint(hints.code(self.replaced(x, name, code)), hint.remark)

        columns = self.columns_of(x)
        return Table(columns, len(x), put, self.dropped, "x")

    def found_by_arrow(self, x: Any, asked: str | None) -> Found:
        """The contents of a column, read through Arrow's interfaces."""
        column = column_of(*interface.read_chunks(x), asked)
        if isinstance(column, Refused):
            return column._replace(hint=self.code.get(column.hint, column.hint))
        return column

    def plain_array(self, x: Any) -> Array | None:
        """A read-only array over a plain column's memory; ``None`` if it must be described."""
        return None

    def whole(self, x: Any) -> Gathered | Array | None:
        """A table's values, if in one block of memory; or its library's function, if that is best.

        Then its columns have one dtype, and no nulls.
        """
        return None

    def views(self, x: Any) -> Views | None:
        """The columns of a table, read together; ``None`` if they must be read one by one."""
        return None

    def name_of(self, x: Any) -> object:
        """The name of a column, or ``None``."""
        return getattr(x, "name", None)

    def note(self, x: Any) -> Kind:
        """What its `TensorInfo.kind` says, besides what the values are."""
        return PLAIN

    # -- as a backend ------------------------------------------------------------------------------

    def describe(self, x: Any) -> TensorInfo:
        return self._opened(x, UNASKED, exactly=False)[0]

    def open(self, x: Any, opening: Opening = UNASKED) -> Opened:
        request = opening.request
        exactly = request is not None and request.copy is False
        return self, *self._opened(x, opening, exactly=exactly)

    def preview(self, x: Any, opening: Opening = UNASKED) -> Opened:
        return self, *self._opened(x, opening, exactly=True)

    def _opened(self, x: Any, opening: Opening, *, exactly: bool) -> Described:
        target, request = opening.target, opening.request
        if request is None:
            asked = None
        else:
            asked = asked_of(request.dtype, request.casting)
        as_it_is = _is_wanted(target is self, request)
        if self.is_table(type(x)):
            as_it_is = as_it_is and self.capabilities.memory.axes == _TABLE
            name, kind, note = self.name, type(x).__name__, self.note(x)
            whole = self.whole(x)
            if isinstance(whole, Gathered):
                return open_gathered(
                    name, kind, whole, target, note=note, kept=x if as_it_is else None
                )
            if whole is not None:
                return over(name, whole, mutable=True, kind=note), x if target is self else whole
            table = self.table(x)
            columns = [
                (column, self.contents_of_column(values, asked)) for column, values in table.columns
            ]
            kept = x if target is self else None
            return open_table(
                name, kind, table, columns, target, request, note=note, kept=kept, as_it_is=as_it_is
            )
        read = self.contents_of_column(x, asked)
        if target is self and isinstance(read, Column) and read.unit:
            # The column itself is not the numbers that were requested: a new column is made of
            # them.
            read.reasons = (*read.reasons, Reason.read_as(read.unit, read.dtype))
        return open_column(
            self.name,
            type(x).__name__,
            self.name_of(x),
            read,
            request,
            exactly=exactly,
            note=self.note(x),
            kept=x if target is self else None,
            as_it_is=as_it_is,
        )

    # -- from an array over its memory -------------------------------------------------------------

    def signature_of_array(self, array: Array, at: int) -> Hashable:
        """The signature of a plain column, whose memory begins at this address modulo 64."""
        compact = array.flags.c_contiguous
        layout = COMPACT if compact else layout_of(array.shape, array.strides, array.itemsize)
        return self.name, array.dtype, array.ndim, layout, at

    def signature_of_view(self, array: Array) -> Hashable:
        """The signature of a plain column, from an array over its memory."""
        return self.signature_of_array(array, memory.address(array) & 63)

    def grouped_views(
        self, arrays: Sequence[Array], alignment: int
    ) -> Mapping[Hashable, Sequence[int]]:
        """`grouped` for columns, from arrays over their memory."""
        first = arrays[0]
        alike = len({x.dtype for x in arrays}) == len({x.ndim for x in arrays}) == 1
        where = alignment > first.itemsize or not first.flags.aligned
        if (
            alike
            and not where
            and {x.flags.num for x in arrays} == {first.flags.num}
            and first.flags.c_contiguous
        ):
            return {self.signature_of_array(first, 0): range(len(arrays))}
        return places_by(list(map(self.signature_of_view, arrays)))

    def plain_types(self) -> Sequence[type]:
        """The types of columns that may be plain."""
        return self.column_types[:1]

    # -- what it holds -----------------------------------------------------------------------------

    def contents_of(self, x: Any, asked: str | None) -> TableContents:
        """The contents of a column or a table."""
        kind = type(x).__name__
        if not self.is_table(type(x)):
            return TableContents(
                kind, self.name_of(x), self.contents_of_column(x, asked), labels=self.labels_of(x)
            )
        table = self.table(x)
        columns = [(name, self.contents_of_column(values, asked)) for name, values in table.columns]
        return TableContents(kind, None, None, table, columns, labels=self.labels_of(x))

    def is_text(self, x: Any) -> bool:
        if self.is_table(type(x)):
            columns = self.table(x).columns
            return bool(columns) and all(self.is_text(column) for _, column in columns)
        dtype = self.dtype_of(x)
        if dtype is None:
            stays = None
        else:
            stays = self._stays.get(dtype)
        if stays is None:
            column = self.contents_of_column(x if dtype is None else self.empty(x), None)
            stays = isinstance(column, Refused) and column.stays
            if dtype is not None and len(self._stays) < _MOST:
                self._stays[dtype] = stays
        return stays

    def __init__(self) -> None:
        self._stays: dict[Hashable, bool] = {}

    @abstractmethod
    def dtype_of(self, x: Any) -> Hashable | None:
        """A column's dtype in its library, if it decides whether it has numbers; else ``None``."""

    @abstractmethod
    def empty(self, x: Any) -> Any:
        """An empty column of the same dtype."""

    def remark(self, info: TensorInfo) -> str:
        return remark_of(info.kind)

    def pointer(self, x: Any) -> int | None:
        if isinstance(x, (Unread, np.ndarray)):
            handle = x
        else:
            handle = self._opened(x, UNASKED, exactly=False)[1]
        if isinstance(handle, Unread):
            return None
        return memory.address(self.export(handle))

    def read(self, x: Any) -> Array:
        """The values, in a new array."""
        array: Array = x.read()
        return array

    def export(self, x: Any) -> Array:
        if isinstance(x, np.ndarray):
            return x
        if self.is_table(type(x)):
            array = self.whole(x)
        else:
            array = self.plain_array(x)
        if isinstance(array, np.ndarray):
            return array
        if self.is_table(type(x)):
            empty: Array = self._opened(x, UNASKED, exactly=False)[1]
            return empty
        column = self.contents_of_column(x, None)
        assert isinstance(column, Column)  # noqa: S101 - it was described
        return column.view()

    def opener_of(self, kind: type) -> Callable[[Any], Node] | None:
        if not self.loaded:
            registry.load(self)
        is_table = self.claims(kind) and self.is_table(kind)
        if is_table:
            return lambda x: as_dict(self.named_columns(x))
        return None

    def named_columns(self, x: Any, *, index: bool = False) -> Mapping[object, Any]:
        """The columns of a table by name; with `index`, also its index.

        Raises:
            UnsupportedTypeError: Two columns have the same name, or a column has that of the index.
        """
        places = [*self.index_of(x)] if index else []
        columns: dict[object, Any] = {}
        known: set[object] = set()
        for number, (name, column) in enumerate([*places, *self.table(x).columns]):
            if _as_one(name) in known:
                why, hint = (
                    f"has two columns of the name {name!r}, of which one would be lost",
                    self.renamed,
                )
                if number >= len(places) and name in dict(places):
                    why = f"has an index and a column of the name {name!r}, of which one would be lost"
                    hint = self.renamed_column.format(name=name, other=f"{name}_column")
                refused = Refused(why, ColumnCode())
                raise refusal_of_column(
                    f"This {type(x).__name__}", refused, Hint(hints.code(hint)), None
                )
            known.add(_as_one(name))
            columns[name] = column
        return columns

    renamed: str = ""
    """The code that renames the columns of a table, for hints."""

    renamed_column: str = ""
    """The code that renames one column, for hints: a format with ``name`` and ``other``."""

    def index_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        """The index of a table, as columns."""
        return ()


class ColumnQuick(Quick[ColumnBackend]):
    """What makes conversions of plain columns fast, and of tables in one block of memory."""

    def signature(self, x: Any) -> Hashable | None:
        if self.backend.is_table(type(x)):
            array = None
        else:
            array = self.backend.plain_array(x)
        return None if array is None else self.backend.signature_of_view(array)

    def lengths(self, x: Any) -> tuple[int, ...]:
        return (len(x),)

    def join(self, tensors: Sequence[Any]) -> Array | None:
        if self.backend.is_table(type(tensors[0])):
            return None
        return together.join_as_arrays(tensors, self.backend.plain_array)

    def likeness(self, x: Any) -> Hashable | None:
        # A result follows its labels, which are not in the signature.
        if self.backend.labels_of(x) is not None:
            return None
        return self.signature(x)

    def extents(
        self, tensors: Sequence[Any], *, compact: bool
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        arrays = [self.backend.export(x) for x in tensors]
        starts = memory.first_addresses(arrays)
        ends = [
            at + max(x.strides[0], x.itemsize) * len(x)
            for at, x in zip(starts, arrays, strict=True)
        ]
        if all(x.strides[0] > 0 for x in arrays):
            return starts, ends
        return None

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        paths = dict.fromkeys(self.backend.plain_types(), self.backend.plain_array)
        paths |= dict.fromkeys(self.backend.table_types, self._gathered)
        return {(kind, EXCHANGE): path for kind, path in paths.items()}

    def _gathered(self, x: Any) -> Array | None:
        """The fast path of a table: a new array, if the library makes one."""
        whole = self.backend.whole(x)
        if isinstance(whole, Gathered):
            return whole.read(False)
        return None


QUICK = ColumnQuick
