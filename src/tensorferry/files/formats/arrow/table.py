"""The columns of tables in Arrow and Parquet files, from their schema."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ....columns.interface import type_in
from ....columns.producers import read
from ....errors import ConversionError, FileFormatError, UnsafeFileError
from ...base.contents import NotTensor, TableColumn
from ...encodings.columns import look_at

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from ....columns.interface import Chunk, Type
    from ...base.contents import Contents
    from ...base.stored import Extent

__all__ = ["as_format_error", "chunks_of", "described", "put", "type_of"]

_MOST_TEXT = 1 << 26
_LIBRARIES = ("ARROW:", "PARQUET:")
"""The beginnings of keys of the metadata that belong to the library, and not to the user."""


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
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
    ) as error:
        raise FileFormatError(f"{path} cannot be read as Arrow: {error}.") from error


def type_of(kind: Any) -> Type:
    """A type of the library, as it describes it to others."""
    import pyarrow as pa

    return type_in(pa.field("", kind).__arrow_c_schema__())


def chunks_of(array: Any) -> Sequence[Chunk]:
    """The memory of an array of the library, whose bounds are checked.

    Raises:
        ValueError: It does not fit its type.
    """
    array.validate()
    return read(array)[1]


def described(path: str, schema: Any, contents: Contents) -> list[tuple[int, str, Any]]:
    """The index, name and type of each column. Metadata go into `contents`.

    Raises:
        UnsafeFileError: There is far too much metadata.
    """
    text = 0
    for place, entries in [
        ("", schema.metadata),
        *((field.name, field.metadata) for field in schema),
    ]:
        for key, value in (entries or {}).items():
            text += len(value)
            if text > _MOST_TEXT:
                raise UnsafeFileError(f"{path} has more than {_MOST_TEXT} bytes of metadata.")
            name = key.decode("utf-8", "replace")
            if name.startswith(_LIBRARIES):
                continue
            name = f"{place}@{name}" if place else name
            try:
                contents.metadata[name] = value.decode()
            except UnicodeDecodeError:
                contents.others[name] = NotTensor("metadata that is no text")
    columns = []
    taken: set[str] = set()
    for index, field in enumerate(schema):
        name, count = field.name, 1
        while name in taken:
            count += 1
            name = f"{field.name}#{count}"
        taken.add(name)
        columns.append((index, name, field.type))
    return columns


def put(
    contents: Contents,
    path: str,
    column: tuple[int, str, Any],
    rows: int,
    *,
    pieces: Callable[[], Generator[Sequence[Chunk], None, None]],
    whole: Callable[[], Sequence[Chunk]],
    in_place: Extent | None = None,
    table: str,
) -> None:
    """Put a column into contents.

    The other arguments are those of `TableColumn`; `table` is code that reads the table.

    Raises:
        FileFormatError: It has a shape that no array has.
        UnsafeFileError: It has far more rows than the size of the file allows.
    """
    index, name, kind = column
    code = f"{table}.column({index})".replace("{", "{{").replace("}", "}}")
    found = TableColumn(
        path, (path, index), name, type_of(kind), str(kind), rows, pieces, whole, in_place, code
    )
    columns = contents.columns = {} if contents.columns is None else contents.columns
    columns[name] = found
    seen = look_at(found)
    if isinstance(seen, str):
        contents.others[name] = seen
    else:
        contents.tensors[name] = seen
