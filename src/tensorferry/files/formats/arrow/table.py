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
from ....core.dtypes import DTYPES, find
from ....core.names import EXCHANGE
from ....errors import ConversionError, FileFormatError, UnsafeFileError, UnsupportedTypeError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import NotTensor, TableColumn
from ...encodings.json_scan import loaded
from ...encodings.shapes import checked, is_bomb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...base.contents import Contents

__all__ = ["COMPLEX", "LAYOUT", "ColumnType", "as_format_error", "described", "flat", "is_reserved"]
__all__ += ["numbers", "refuse_nulls", "shape_of", "table_column"]

LAYOUT, _ONE_ROW = "tensorferry.layout", "one row"
"""In the metadata of the schema: whether each tensor is a single row."""
_DTYPE, _SHAPE = "tensorferry.dtype", "tensorferry.shape"
"""In the metadata of a column: the dtype of the tensor; and the shape of a tensor without elements."""
_MOST_TEXT = 1 << 26

_NATIVE = {
    "bool": "bool",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
"""The canonical names of Arrow's types, https://arrow.apache.org/docs/format/Columnar.html."""
COMPLEX = {"complex64": "float32", "complex128": "float64"}
_NARROW = frozenset(DTYPES) - set(_NATIVE.values()) - set(COMPLEX)


def is_reserved(key: str) -> bool:
    """Whether a key of the metadata belongs to us or to a library, and not to the user."""
    return key in (LAYOUT, _DTYPE, _SHAPE) or key.startswith(("ARROW:", "PARQUET:"))


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
        shape: The shape of a row; or of the whole tensor, if it has no elements.
        raw: The dtype in the file; ``"null"`` for a tensor without elements.
    """

    dtype: str
    shape: tuple[int, ...]
    raw: str


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


def _column(field: Any, where: str) -> ColumnType | str:
    """The type of a column, or why it is not a tensor."""
    import pyarrow as pa

    kind = field.type
    shape: tuple[int, ...] = ()
    notes = {key.decode("utf-8", "replace"): value for key, value in (field.metadata or {}).items()}
    if isinstance(kind, pa.FixedShapeTensorType):
        if kind.permutation is not None and list(kind.permutation) != list(range(len(kind.shape))):
            return why_not_yet(field.type)
        kind, shape = kind.value_type, tuple(kind.shape)
    else:
        while pa.types.is_fixed_size_list(kind):
            kind, shape = kind.value_type, (*shape, kind.list_size)
    raw = _NATIVE.get(str(kind))
    dtype = notes.get(_DTYPE, b"").decode("utf-8", "replace") or raw
    if pa.types.is_null(kind) and _SHAPE in notes and dtype in DTYPES:
        lengths = loaded(where, _SHAPE, notes[_SHAPE], list)
        if not all(type(each) is int for each in lengths) or 0 not in lengths:
            raise FileFormatError(f"{where} has no elements, and no axis of length 0 in its shape {lengths!r:.40}.")
        return ColumnType(dtype, tuple(lengths), "null")
    if raw is None:
        return why_not_yet(field.type)
    if dtype == raw:
        return ColumnType(raw, shape, raw)
    if COMPLEX.get(str(dtype)) == raw and shape[-1:] == (2,):
        return ColumnType(str(dtype), shape[:-1], raw)
    if dtype in _NARROW | {"bool"} and raw == f"uint{8 * find(dtype).itemsize}":
        return ColumnType(dtype, shape, raw)
    raise FileFormatError(f"{where}: the metadata {_DTYPE!r} says {dtype!r:.40}, which {kind} cannot stand for.")


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


def table_column(
    path: str,
    field: Any,
    place: int,
    rows: int,
    read: Callable[[], Any],
    column: ColumnType | None,
    *,
    one_row: bool,
) -> TableColumn:
    """A column, for the rules of tables.

    Args:
        path: The file.
        field: Its field in the schema.
        place: Its place in the schema.
        rows: The number of rows.
        read: Reads it whole.
        column: Its type, if that is a tensor's.
        one_row: Whether each tensor is a single row.
    """
    import pyarrow as pa

    is_set = column is not None and (one_row or column.raw != column.dtype)
    empty = pa.chunked_array([], type=field.type)
    return TableColumn(path, (path, place), rows, empty, None if is_set else read)


def described(path: str, schema: Any, contents: Contents) -> tuple[list[tuple[int, str, ColumnType | None]], bool]:
    """The index, name and type of the columns; and whether each tensor is a single row.

    There is no type for those that are no tensors, or whose rows must be read to know.
    """
    text = 0
    for place, entries in [("", schema.metadata), *((field.name, field.metadata) for field in schema)]:
        for key, value in (entries or {}).items():
            text += len(value)
            if text > _MOST_TEXT:
                raise UnsafeFileError(f"{path} has more than {_MOST_TEXT} bytes of metadata.")
            name = key.decode("utf-8", "replace")
            if name != LAYOUT and is_reserved(name):
                continue
            try:
                contents.metadata[f"{place}@{name}" if place else name] = value.decode()
            except UnicodeDecodeError:
                contents.others[f"{place}@{name}" if place else name] = NotTensor("metadata that is no text")
    one_row = contents.metadata.get(LAYOUT) == _ONE_ROW
    columns: list[tuple[int, str, ColumnType | None]] = []
    taken: set[str] = set()
    for index, field in enumerate(schema):
        name, count = field.name, 1
        while name in taken:
            count += 1
            name = f"{field.name}#{count}"
        taken.add(name)
        column = _column(field, f"{path}: {field.name!r}")
        if isinstance(column, str):
            contents.others[name] = column
        columns.append((index, name, None if isinstance(column, str) else column))
    return columns, one_row


def shape_of(path: str, name: str, column: ColumnType, rows: int, *, one_row: bool) -> tuple[int, ...]:
    """The shape of the tensor in a column with `rows` rows."""
    if one_row and rows != 1:
        raise FileFormatError(f"{path} says that each tensor is one row, and has {rows}.")
    if column.raw == "null":
        return checked(column.shape, 1, f"{path}: {name!r}")
    shape = column.shape if one_row else (rows, *column.shape)
    shape = checked(shape, find(column.dtype).itemsize, f"{path}: {name!r}")
    declared = prod(shape) * find(column.dtype).itemsize
    if is_bomb(declared, held := os.stat(path).st_size):  # noqa: PTH116 - a plain string
        raise UnsafeFileError(f"{path} is out of all proportion: {name!r} would be {declared} bytes; it has {held}.")
    return shape
