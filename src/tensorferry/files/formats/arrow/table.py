"""Tables whose columns are tensors, in Arrow and Parquet files: from a schema to tensors."""

from __future__ import annotations

import os
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....columns import producers
from ....columns.column import Column, Refused
from ....columns.frames import nulls_hint
from ....columns.layouts import column_of
from ....core.dtypes import find
from ....core.names import EXCHANGE
from ....errors import ConversionError, FileFormatError, UnsafeFileError, UnsupportedTypeError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import NotTensor, TableColumn
from ...encodings.shapes import checked, is_bomb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...base.contents import Contents

__all__ = [
    "NATIVE",
    "ColumnType",
    "as_format_error",
    "described",
    "flat",
    "numbers",
    "refuse_nulls",
    "shape_of",
    "table_column",
]

_LIBRARIES = ("ARROW:", "PARQUET:")
"""The beginnings of keys in the metadata that belong to libraries, and not to the user."""
_MOST_TEXT = 1 << 26

NATIVE = {
    "bool": "bool",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
"""The canonical names of Arrow's types, https://arrow.apache.org/docs/format/Columnar.html."""


@contextmanager
def as_format_error(path: str) -> Iterator[None]:
    """A context in which errors of the library become a `FileFormatError`."""
    import pyarrow as pa

    with open(path, "rb"):  # noqa: PTH123 - OSError with its own message
        pass

    try:
        yield
    except ConversionError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise FileFormatError(f"{path} cannot be read as Arrow: {error}.") from error


class ColumnType(NamedTuple):
    """The type of a column.

    Args:
        dtype: Canonical name.
        shape: The shape of a row.
    """

    dtype: str
    shape: tuple[int, ...]


def why_not_yet(kind: Any) -> str:
    """Why a column is no tensor before its rows are read: a `NotTensor` if it is none after that either."""
    import pyarrow as pa

    found = column_of(*producers.read(pa.chunked_array([], type=kind)))
    if isinstance(found, Refused) and found.stays:
        return NotTensor(f"values of the type {kind}, which is no tensor's")
    return f"values of the type {kind}: load and convert look at its rows"


def refuse_nulls(x: Any, name: str) -> None:
    """Raise for a column with nulls, as for one in memory."""
    found = column_of(*producers.read(x))
    assert isinstance(found, Column)  # noqa: S101 - its numbers were read
    hint = nulls_hint(found).for_call("load", EXCHANGE)
    raise UnsupportedTypeError(f"This column {name!r} {found.said_of_nulls()}.", str(hint))


def _column(kind: Any) -> ColumnType | str:
    """The type of a column, or why it is not a tensor."""
    import pyarrow as pa

    inner = kind
    shape: tuple[int, ...] = ()
    if isinstance(kind, pa.FixedShapeTensorType):
        if kind.permutation is not None and list(kind.permutation) != list(range(len(kind.shape))):
            return why_not_yet(kind)
        inner, shape = kind.value_type, tuple(kind.shape)
    else:
        while pa.types.is_fixed_size_list(inner):
            inner, shape = inner.value_type, (*shape, inner.list_size)
    dtype = NATIVE.get(str(inner))
    return why_not_yet(kind) if dtype is None else ColumnType(dtype, shape)


def flat(array: Any) -> Any:
    """The numbers of a column in a record batch, without the lists around them; ``None`` if there are nulls."""
    import pyarrow as pa

    while True:
        if array.null_count:
            return None
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_fixed_size_list(array.type):
            array = array.flatten()
        else:
            return array


def numbers(array: Any, column: ColumnType) -> np.ndarray[Any, Any] | None:
    """The values of a column in a record batch, as one axis; ``None`` if there are nulls."""
    found = flat(array)
    if found is None:
        return None
    return np.ascontiguousarray(found.to_numpy(zero_copy_only=False)).view(numpy_dtype(column.dtype))


def table_column(path: str, kind: Any, place: int, rows: int, read: Callable[[], Any]) -> TableColumn:
    """A column, for the rules of tables.

    Args:
        path: The file.
        kind: Its type.
        place: Its place in the schema.
        rows: The number of rows.
        read: Reads it whole.
    """
    import pyarrow as pa

    return TableColumn(path, (path, place), rows, pa.chunked_array([], type=kind), read)


def described(path: str, schema: Any, contents: Contents) -> list[tuple[int, str, ColumnType | None]]:
    """The index, name and type of the columns.

    There is no type for those that are no tensors, or whose rows must be read to know.
    """
    text = 0
    for place, entries in [("", schema.metadata), *((field.name, field.metadata) for field in schema)]:
        for key, value in (entries or {}).items():
            text += len(value)
            if text > _MOST_TEXT:
                raise UnsafeFileError(f"{path} has more than {_MOST_TEXT} bytes of metadata.")
            name = key.decode("utf-8", "replace")
            if name.startswith(_LIBRARIES):
                continue
            try:
                contents.metadata[f"{place}@{name}" if place else name] = value.decode()
            except UnicodeDecodeError:
                contents.others[f"{place}@{name}" if place else name] = NotTensor("metadata that is no text")
    columns: list[tuple[int, str, ColumnType | None]] = []
    taken: set[str] = set()
    for index, field in enumerate(schema):
        name, count = field.name, 1
        while name in taken:
            count += 1
            name = f"{field.name}#{count}"
        taken.add(name)
        column = _column(field.type)
        if isinstance(column, str):
            contents.others[name] = column
        columns.append((index, name, None if isinstance(column, str) else column))
    return columns


def shape_of(path: str, name: str, column: ColumnType, rows: int) -> tuple[int, ...]:
    """The shape of the tensor in a column with `rows` rows."""
    shape = checked((rows, *column.shape), find(column.dtype).itemsize, f"{path}: {name!r}")
    declared = prod(shape) * find(column.dtype).itemsize
    if is_bomb(declared, held := os.stat(path).st_size):  # noqa: PTH116 - a plain string
        raise UnsafeFileError(f"{path} is out of all proportion: {name!r} would be {declared} bytes; it has {held}.")
    return shape
