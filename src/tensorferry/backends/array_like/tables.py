"""Tables and columns of any library with Arrow's interfaces, datasets, and `TableContents`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import hints
from ...columns import interface
from ...columns.column import Column, Refused
from ...columns.layouts import asked_of, column_of, fields_as_spans
from ...columns.objects import objects_in
from ...core.kinds import Kind, kind_with
from ...errors import UnsupportedTypeError
from ...hints import Hint
from .. import registry
from ..nodes import Node, as_dict
from ..opening import Table, TableContents, Unread, open_column, open_table
from .declared import NAME
from .libraries import known_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...columns.column import Found
    from ...columns.interface import Type
    from ...core.info import TensorInfo
    from ...core.request import Request
    from ..base import Backend

__all__ = [
    "ArrowColumn",
    "found_in",
    "is_known_by_arrow",
    "named_columns",
    "open_arrow",
    "open_contents",
    "opener_of",
]


class ArrowColumn:
    """A column of a library that is known only by Arrow's interfaces.

    Args:
        kind: The name of the class of the object that gave it.
        name: Its name.
        meaning: How its memory is read.
        chunks: Its memory.
        code: Code for hints: it, as pyarrow's. If it names a column of the table `x`, it stays.
    """

    __slots__ = ("chunks", "code", "kind", "name", "type")

    def __init__(self, kind: str, name: str, meaning: Type, chunks: Any, code: hints.Code) -> None:
        self.kind, self.name, self.type, self.chunks, self.code = kind, name, meaning, chunks, code

    def contents(self, asked: str | None) -> Found:
        """Its contents; `asked` is the requested dtype."""
        return column_of(self.type, self.chunks, asked)

    def tolist(self) -> list[Any]:
        """Its values as Python objects, with ``None`` for nulls: see `objects_in`.

        Raises:
            UnsupportedTypeError: Python has no such objects.
        """
        if self.type.extension:
            column = self.contents(None)
        else:
            column = None
        if not isinstance(column, Column) or column.inner:
            return objects_in(self.type, self.chunks)
        gone = column.missing().tolist()
        return [
            None if is_gone else value
            for value, is_gone in zip(column.values_with_any_nulls().tolist(), gone, strict=True)
        ]

    def __len__(self) -> int:
        return sum(chunk.length for chunk in self.chunks)

    def __repr__(self) -> str:
        return f"<column {self.name!r} of a {self.kind}: {len(self)} rows of Arrow's format {self.type.format!r}>"


def read_arrow(x: Any) -> ArrowColumn | dict[object, ArrowColumn]:
    """Read an object through Arrow's interfaces: a column, or the columns of a table by name.

    Raises:
        UnsupportedTypeError: It gives no Arrow data, or two columns with the same name.
    """
    kind, chunks = interface.read_chunks(x)
    if kind.format != "+s" or kind.extension:
        if hasattr(x, "__arrow_c_array__"):
            alone = hints.code("pa.array(x)")
        else:
            alone = hints.code("pa.chunked_array(x)")
        return ArrowColumn(type(x).__name__, kind.name, kind, chunks, alone)
    columns: dict[object, ArrowColumn] = {}
    # A table has no nulls of its own.
    has_nulls = hasattr(x, "__arrow_c_array__") and any(chunk.null_count for chunk in chunks)
    for child, spans in fields_as_spans(kind, chunks):
        if child.name in columns:
            raise UnsupportedTypeError(
                f"This {type(x).__name__} has two columns of the name {child.name!r}, "
                "of which one would be lost.",
                None,
            )
        if has_nulls:
            code = f"pa.array(x).drop_null().field({child.name!r})"
        else:
            code = f"pa.table(x)[{child.name!r}]"
        of_table = hints.Code(code, stays=True)
        columns[child.name] = ArrowColumn(type(x).__name__, child.name, child, spans, of_table)
    return columns


def found_in(x: Any, asked: str | None) -> TableContents:
    """The contents of an object with Arrow's interfaces.

    Raises:
        UnsupportedTypeError: It gives no Arrow data.
    """
    read = x if isinstance(x, ArrowColumn) else read_arrow(x)
    if isinstance(read, ArrowColumn):
        column = read.contents(asked)
        if isinstance(column, Refused):
            column = column._replace(hint=column.hint.within(read.code))
        return TableContents(read.kind, read.name or None, column)
    if read:
        rows = sum(span.length for span in next(iter(read.values())).chunks)
    else:
        rows = 0
    columns = [(name, part.contents(asked)) for name, part in read.items()]
    table = Table(
        list(read.items()), rows, lambda name, _: Hint(hints.code(_without([name]))), _without, "x"
    )
    return TableContents(type(x).__name__, None, None, table, columns)


def _without(names: list[object]) -> str:
    return f"pa.table(x).drop_columns({names!r})"


def open_arrow(
    x: Any, target: Backend | None, request: Request | None, *, exactly: bool
) -> tuple[TensorInfo, Any]:
    """Open an object with Arrow's interfaces as one tensor."""
    contents = found_in(x, None if request is None else asked_of(request.dtype, request.casting))
    return open_contents(contents, target, request, exactly=exactly)


_COLUMN = Kind(is_column=True)


def open_contents(
    x: TableContents, target: Backend | None, request: Request | None, *, exactly: bool
) -> tuple[TensorInfo, Any]:
    """Open `TableContents`."""
    if x.table is not None:
        note = x.note or _COLUMN
        return open_table(NAME, x.kind, x.table, x.columns, target, request, note=note)
    assert x.found is not None  # noqa: S101 - it is one of the two
    if isinstance(x.found, Column):
        fill = x.found.fill
    else:
        fill = None
    if x.note is not None:
        note = x.note
    elif fill is not None:
        note = kind_with(_COLUMN, filled=str(fill.item()))
    else:
        note = _COLUMN
    info, handle = open_column(NAME, x.kind, x.name, x.found, request, exactly=exactly, note=note)
    if not x.is_one:
        return info, handle
    if isinstance(handle, Unread):
        number: Any = Unread(lambda: handle.read().reshape(()))
    else:
        number = handle.reshape(())
    return info._replace(shape=(), strides=()), number


def opener_of(kind: type) -> Callable[[Any], Node | None] | None:
    """The function that opens tables with an Arrow stream, and datasets; ``None`` for others."""
    if kind in (TableContents, ArrowColumn):
        return None
    if _is_dataset(kind):
        return lambda x: as_dict(named_columns(x))
    if is_known_by_arrow(kind) and not registry.is_tensor(kind):
        return _open_table
    return None


def _open_table(x: Any) -> Node | None:
    read = read_arrow(x)
    if isinstance(read, dict):
        return as_dict(read)
    # A column is a leaf itself, unless it is a stream, which can be read once.
    if interface.is_read_again(type(x)):
        return None
    return Node([""], [read], lambda values: values[0])


def is_known_by_arrow(kind: type) -> bool:
    """Whether a type is known only by Arrow's interfaces."""
    return (
        interface.gives_arrow(kind)
        and not hasattr(kind, "__dlpack__")
        and known_class(kind) is None
    )


def named_columns(x: Any) -> Any:
    """The columns of a table or a dataset by name; or the column that `x` is.

    Raises:
        UnsupportedTypeError: It gives no Arrow data, or two columns with the same name.
    """
    if _is_dataset(type(x)):
        chosen = x.format
        if chosen["type"] == "custom":
            return dict(x[:])
        table = x.with_format("arrow", columns=chosen["columns"])[:]
        return registry.backend_of(table).named_columns(table)  # type: ignore[attr-defined]
    return read_arrow(x)


def _is_dataset(kind: type) -> bool:
    return any(
        base.__name__ == "Dataset" and base.__module__.partition(".")[0] == "datasets"
        for base in kind.__mro__
    )
