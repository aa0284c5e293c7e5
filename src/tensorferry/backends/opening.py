"""Open columns and tables: descriptions for the planner, and objects that the first step takes.

`dates_of`: arrays of dates, which are opened as columns too, of NumPy and of libraries with its
dtypes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..columns.column import SEVERAL_CHUNKS, ColumnCode, Ragged, Refused
from ..columns.dates import dates_in
from ..columns.frames import asked_hint, frame_of, nulls_hint, refusal_of_column, rows_hint
from ..core.dtypes import find
from ..core.info import ANY_ADDRESS, TensorInfo
from ..core.kinds import APART, BIT_PACKED, PLAIN, Kind, kind_with
from ..core.layout import compact_strides
from ..core.named_tuple import NamedTuple
from ..errors import UnsupportedTypeError
from ..hints import Hint
from ..host import memory
from ..host.masked import has_masked
from ..host.numpy_dtypes import of_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..columns.column import Column, Found
    from ..columns.frames import Frame
    from ..core.labels import Labels
    from ..core.request import Request
    from ..typing import Array
    from .base import Backend

    Described = tuple[TensorInfo, Any]

__all__ = [
    "Gathered",
    "Table",
    "TableContents",
    "Unread",
    "dates_of",
    "open_column",
    "open_gathered",
    "open_table",
    "over",
    "remark_of",
]


class Table(NamedTuple):
    """A table, by its columns.

    Args:
        columns: The names of the columns, and the columns as the library's own objects. Names may
            occur twice.
        rows: The number of rows.
        put: Makes the hint that replaces a column.
        drop: Makes code that drops columns, for hints.
        apart: Code that gives a dict of the columns, for hints.
    """

    columns: Sequence[tuple[object, Any]]
    rows: int
    put: Callable[[object, ColumnCode], Hint]
    drop: Callable[[list[object]], str]
    apart: str


class TableContents:
    """The contents of a column or a table, whose nulls may have been replaced.

    Args:
        kind: The name of the class of the column or table.
        name: The name of the column.
        found: The contents of the column; ``None`` for a table.
        table: The table.
        columns: The names and contents of its columns.
        note: What was done with it, for its `TensorInfo.kind`; ``None`` if nulls were replaced, or
            nothing was done.
        is_one: Whether the column has one row, which is an element of shape ``()``.
        labels: The labels of the column or table.
    """

    __slots__ = ("columns", "found", "is_one", "kind", "labels", "name", "note", "table")

    def __init__(
        self,
        kind: str,
        name: object,
        found: Found | None,
        table: Table | None = None,
        columns: Sequence[tuple[object, Found]] = (),
        note: Kind | None = None,
        *,
        is_one: bool = False,
        labels: Labels | None = None,
    ) -> None:
        self.kind, self.name, self.found, self.table, self.columns = (
            kind,
            name,
            found,
            table,
            columns,
        )
        self.note, self.is_one, self.labels = note, is_one, labels

    def with_found(self, found: Found) -> TableContents:
        """The column, with other contents."""
        return TableContents(self.kind, self.name, found, is_one=self.is_one, labels=self.labels)


class Gathered(NamedTuple):
    """A table whose library makes one array of it.

    Args:
        shape: The numbers of rows and columns.
        dtype: The canonical name of the dtype of all columns.
        read: Makes a new array, in row or column order.
    """

    shape: tuple[int, int]
    dtype: str
    read: Callable[[bool], Array]


class Unread(NamedTuple):
    """Values that are read only when the conversion runs.

    Args:
        read: Makes a new array.
    """

    read: Callable[[], Array]


def remark_of(kind: Kind) -> str:
    """The warning of a plan for a column of a kind."""
    remarks = []
    if kind.counts:
        remarks.append(f"the numbers count {kind.counts}")
    if kind.has_index:
        remarks.append("the index does not come along: index=True keeps it as a column, in a tree")
    return "; ".join(remarks)


def open_column(
    framework: str,
    kind: str,
    name: object,
    found: Found,
    request: Request | None,
    *,
    exactly: bool,
    note: Kind = PLAIN,
    kept: object = None,
    as_it_is: bool = False,
) -> Described:
    """Open a column: its description, and the object that the first step takes.

    Args:
        framework: The name of its backend.
        kind: The name of its class.
        name: The name of the column.
        found: Its contents.
        request: The request.
        exactly: Whether reasons contain numbers, which differ between columns.
        note: What else its `TensorInfo.kind` says.
        kept: The column, if the first step takes the column itself and not an array over its
            memory.
        as_it_is: Whether the column is also the result.

    Raises:
        UnsupportedTypeError: It is not a tensor, or has nulls.
        CopyRequiredError: It has nulls, and ``copy=False`` is given.
    """
    if name is None or name == "":
        what = f"This {kind}"
    else:
        what = f"This {kind} {name!r}"
    if isinstance(found, Refused):
        if found.asked:
            hint = asked_hint(found)
        else:
            hint = found.hint.hint()
        raise refusal_of_column(what, found, hint, request)
    if isinstance(found, Ragged):
        raise refusal_of_column(what, found, rows_hint(found), request)
    if found.fill is None and found.nulls[0]:
        raise refusal_of_column(what, found, nulls_hint(found), request)
    if found.unit:
        note = kind_with(note, counts=found.unit)
    obstacles = found.obstacles(exactly=exactly)
    if not obstacles:
        view = found.view()
        info = over(framework, view, mutable=found.mutable, kind=note)
        return info, view if kept is None else kept
    if as_it_is and obstacles == [BIT_PACKED]:
        return TensorInfo(framework, found.shape, found.dtype, kind=note), kept
    itemsize = find(found.dtype).itemsize
    physical = compact_strides((found.rows, *found.inner), itemsize)
    if found.order is None:
        strides = physical
    else:
        strides = physical[0], *(physical[1 + axis] for axis in found.order)
    info = TensorInfo(
        framework,
        found.shape,
        found.dtype,
        strides=strides,
        misalignment=found.at,
        kind=kind_with(note, name=kind, copied=True, reasons=tuple(obstacles)),
    )
    return info, Unread(found.read)


def open_table(
    framework: str,
    kind: str,
    table: Table,
    columns: Sequence[tuple[object, Found]],
    target: Backend | None,
    request: Request | None,
    *,
    note: Kind = PLAIN,
    kept: object = None,
    as_it_is: bool = False,
) -> Described:
    """Open a table as one array, in the layout that the target takes.

    Raises:
        ConversionError: See `frames.frame_of`.
    """
    frame: Frame = frame_of(
        kind, columns, table.rows, request, put=table.put, drop=table.drop, apart=table.apart
    )
    by_rows = _takes_rows(target)
    stored_so = all(
        column.dtype == frame.dtype and _is_stored_so(column) for _, column in frame.columns
    )
    if not table.rows and (kept is None or stored_so):
        view = frame.read(by_rows=by_rows)
        view.flags.writeable = False
        return over(framework, view, mutable=False, kind=note), view if kept is None else kept
    if as_it_is and stored_so:
        return TensorInfo(framework, frame.shape, frame.dtype, kind=note), kept
    info = _info_apart(framework, kind, note, frame.shape, frame.dtype, by_rows, 0)
    return info, Unread(lambda: frame.read(by_rows=by_rows))


def _is_stored_so(column: Column) -> bool:
    """Whether its library has the dtype; decimals, categories and Python objects are read as it."""
    return not column.unit and {*column.obstacles(exactly=False)} <= {SEVERAL_CHUNKS, BIT_PACKED}


def open_gathered(
    framework: str,
    kind: str,
    whole: Gathered,
    target: Backend | None,
    *,
    note: Kind,
    kept: object = None,
) -> Described:
    """Open a table whose library makes the array; with `kept`, the table itself is the result."""
    if kept is not None:
        return TensorInfo(framework, whole.shape, whole.dtype, kind=note), kept
    by_rows = _takes_rows(target)
    info = _info_apart(framework, kind, note, whole.shape, whole.dtype, by_rows, ANY_ADDRESS)
    return info, Unread(lambda: whole.read(by_rows))


@lru_cache(maxsize=256)
def _info_apart(
    framework: str,
    kind: str,
    note: Kind,
    shape: tuple[int, int],
    dtype: str,
    by_rows: bool,
    misalignment: int,
) -> TensorInfo:
    """The description of a table whose columns have their own memory, as the array made of it."""
    itemsize = find(dtype).itemsize
    return TensorInfo(
        framework,
        shape,
        dtype,
        strides=None if by_rows else (itemsize, itemsize * max(shape[0], 1)),
        misalignment=misalignment,
        kind=note._replace(name=kind, copied=True, reasons=(APART,)),
    )


def _takes_rows(target: Backend | None) -> bool:
    """Whether the target needs row order.

    Otherwise the result has column order, as the table has.
    """
    if target is None:
        memory_of = None
    else:
        memory_of = target.capabilities.memory
    return memory_of is None or memory_of.strides == "compact" or not memory_of.exists


def over(
    framework: str,
    array: Array,
    dtype: str = "",
    *,
    mutable: bool,
    kind: Kind,
    writable: bool = False,
) -> TensorInfo:
    """The description of an object, from an array over its memory."""
    return TensorInfo(
        framework,
        array.shape,
        dtype or of_numpy(array.dtype) or "",
        strides=array.strides,
        misalignment=memory.address(array) if array.size else 0,
        writable=writable,
        mutable=mutable,
        swapped=not array.dtype.isnative,
        memory_map=memory.is_mapped(array),
        kind=kind,
    )


def dates_of(x: Any, asked: str | None) -> TableContents:
    """Dates as a column. They become integers if `asked` is an integer dtype.

    Raises:
        UnsupportedTypeError: It has masked elements.
    """
    array = np.asanyarray(x)
    if has_masked(array):
        raise UnsupportedTypeError(
            f"This {type(x).__name__} is values and a mask, and its mask would be lost.",
            Hint(hints.code("x.filled(0)"), ", or another value"),
        )
    array = np.asarray(array)
    dates = dates_in(array.reshape(1) if array.ndim == 0 else array, asked)
    return TableContents(type(x).__name__, None, dates, is_one=array.ndim == 0)
