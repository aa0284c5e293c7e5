"""Arrow files, with pyarrow: tables, whose columns are read by the rules for tables in memory."""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ...columns.column import Column
from ...columns.interface import NUMBERS, read_chunks, type_in
from ...columns.layouts import column_of
from ...core.dtypes import ORDINARY
from ...errors import ConversionError, FileFormatError, FrameworkNotInstalledError, UnsafeFileError
from ...host.memory import address
from ..base.contents import Contents, FileFinding, NotTensor
from ..base.format import Format
from ..base.stored import Extent
from ..encodings.array_parts import is_bomb
from .columns import TableColumn, TableColumns, look_at, validate_column

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from ...columns.interface import Chunk, Type

__all__ = [
    "FORMAT",
    "MAGIC",
    "Arrow",
    "FlatBufferTable",
    "as_format_error",
    "chunks_of",
    "described",
    "is_stream",
    "put",
    "read_ipc",
    "type_of",
]


class FlatBufferTable:
    """The fields of a table, by number.

    All methods raise `FileFormatError` if the bytes are malformed.

    Args:
        data: The whole buffer.
        at: The position of the table; ``None`` for the root of the buffer.
    """

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self._data = data
        self._at = self._number("<I", 0) if at is None else at
        self._fields = self._at - self._number("<i", self._at)
        self._count = (self._number("<H", self._fields) - 4) // 2

    def table(self, field: int) -> FlatBufferTable | None:
        """A nested table, or ``None``."""
        at = self._place(field)
        if at:
            return FlatBufferTable(self._data, at + self._number("<I", at))
        return None

    def number(self, field: int, form: str) -> int:
        """An integer with a format of `struct`; 0, the default, if it is missing."""
        at = self._place(field)
        return self._number(form, at) if at else 0

    def structs(self, field: int, form: str) -> list[tuple[Any, ...]]:
        """A vector of structs, each with a format of `struct`."""
        at = self._place(field)
        if not at:
            return []
        at += self._number("<I", at)
        size, count = struct.calcsize(form), self._number("<I", at)
        if at + 4 + size * count > len(self._data):
            raise FileFormatError(
                f"A vector of {count} is longer than the {len(self._data)} bytes that it lies in."
            )
        return list(struct.iter_unpack(form, self._data[at + 4 : at + 4 + size * count]))

    def _place(self, field: int) -> int:
        if field >= self._count:
            return 0
        offset = self._number("<H", self._fields + 4 + 2 * field)
        return self._at + offset if offset else 0

    def _number(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(self._data):
            raise FileFormatError(
                f"Byte {at} lies outside of the {len(self._data)} bytes of a description."
            )
        return int(struct.unpack_from(form, self._data, at)[0])


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
    return read_chunks(array)[1]


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
    table_column = TableColumn(
        path, (path, index), name, type_of(kind), str(kind), rows, pieces, whole, in_place, code
    )
    if contents.columns is None:
        contents.columns = TableColumns()
    contents.columns[name] = table_column
    seen = look_at(table_column)
    if isinstance(seen, str):
        contents.others[name] = seen
    else:
        contents.tensors[name] = seen


MAGIC = b"ARROW1"
_MARK = b"\xff\xff\xff\xff"
_LONGEST_MESSAGE = 1 << 28
_MOST_BATCHES = 100_000
_FIXED = "+w:"
_DICTIONARY, _BATCH = 2, 3
"""The kinds of messages for a DictionaryBatch and a RecordBatch."""


def is_stream(head: bytes) -> bool:
    """Whether a file is a stream, which begins with the mark and the length of a message."""
    return head.startswith(_MARK) and 0 < int.from_bytes(head[4:8], "little") < _LONGEST_MESSAGE


def read_ipc(path: str, contents: Contents) -> None:
    """Read a file or a stream into `contents`."""
    import pyarrow as pa

    size = os.stat(path).st_size  # noqa: PTH116 - a plain string
    rows, count, is_compressed = _look_at_batches(path, size)
    with pa.memory_map(path) as source, _opened(source) as reader:
        columns = described(path, reader.schema, contents)
        opens = f"pa.ipc.open_{'file' if hasattr(reader, 'get_batch') else 'stream'}(pa.memory_map({path!r}))"
        if count == 1 and not is_compressed:
            batch = next(_each_batch(reader))
        else:
            batch = None
        source.seek(0)
        base = source.read_buffer(1).address
        for column in columns:
            index = column[0]
            pieces = partial(_pieces_of, path, index)
            whole = partial(_whole_of, path, index)
            if batch is None:
                seen = None
            else:
                seen = _seen(batch.column(index))
            if seen is None:
                in_place = None
            else:
                in_place = _in_place(path, seen, base, size)
            code = f"{opens}.read_all()"
            put(
                contents,
                path,
                column,
                rows,
                pieces=pieces,
                whole=whole,
                in_place=in_place,
                table=code,
            )
            if seen is not None and seen.nulls[0]:
                del contents.tensors[column[1]]
                contents.others[column[1]] = (
                    "a column with nulls: load and convert take nulls= for it"
                )


def _opened(source: Any, index: int | None = None) -> Any:
    """Pyarrow's reader of a file or a stream, for all columns or for one."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(
        included_fields=None if index is None else [index], use_threads=False
    )
    stream = is_stream(source.read(8))
    source.seek(0)
    return (pa.ipc.open_stream if stream else pa.ipc.open_file)(source, options=options)


def _each_batch(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "get_batch"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def _look_at_batches(path: str, size: int) -> tuple[int, int, bool]:
    """The number of rows and of batches, and whether they are compressed, before anything is read.

    The messages are those of https://github.com/apache/arrow/blob/main/format/File.fbs and
    Message.fbs.
    """
    rows = count = compressed = declared = 0
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        stream = is_stream(os.pread(file.fileno(), 8, 0))
        for end, message, kind in (_messages_of_stream if stream else _messages_of_file)(
            path, file.fileno(), size
        ):
            batch = message.table(2)
            if kind == _DICTIONARY:
                if batch is None:
                    batch = None
                else:
                    batch = batch.table(1)
                if batch is None:
                    declared += 0
                else:
                    declared += _declared(file.fileno(), batch, end, size)
                continue
            if batch is None or count == _MOST_BATCHES:
                if batch:
                    what = f"{_MOST_BATCHES:,} record batches, and more"
                else:
                    what = "a message without its record batch"
                raise (UnsafeFileError if batch else FileFormatError)(
                    f"{path} has {what}, before byte {end}."
                )
            length = batch.number(0, "<q")
            if length < 0:
                raise FileFormatError(f"{path} has a record batch of {length} rows.")
            rows += length
            count += 1
            if batch.table(3) is None:
                continue
            compressed += 1
            declared += _declared(file.fileno(), batch, end, size)
    if is_bomb(declared, size):
        raise UnsafeFileError(
            f"{path} is out of all proportion: it would inflate from {size} to {declared} bytes."
        )
    return rows, count, bool(compressed)


def _declared(descriptor: int, batch: FlatBufferTable, end: int, size: int) -> int:
    """How many bytes the buffers of a batch say that they inflate to; 0 if it is not compressed."""
    declared = 0
    is_compressed = batch.table(3) is not None
    if not is_compressed:
        return declared
    for at, held in batch.structs(2, "<qq"):
        if held >= 8:
            prefix = os.pread(descriptor, 8, min(max(end + at, 0), size))
            declared += max(int.from_bytes(prefix, "little", signed=True), 0)
    return declared


def _messages_of_file(
    path: str, descriptor: int, size: int
) -> Iterator[tuple[int, FlatBufferTable, int]]:
    """Yield the end of each batch's message, the message, and its kind, by the footer of a file."""
    tail = os.pread(descriptor, 10, max(size - 10, 0))
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 10:
        raise FileFormatError(f"{path} is cut off: it does not end as an Arrow file does.")
    footer = FlatBufferTable(os.pread(descriptor, length, size - 10 - length))
    dictionaries = [(_DICTIONARY, block) for block in footer.structs(2, "<qi4xq")]
    for kind, (begin, nbytes, _) in [
        *dictionaries,
        *((_BATCH, block) for block in footer.structs(3, "<qi4xq")),
    ]:
        if not 8 <= nbytes <= size or not 0 <= begin <= size - nbytes:
            raise FileFormatError(
                f"{path} has a record batch that lies outside of it, at byte {begin}."
            )
        raw = os.pread(descriptor, nbytes, begin)
        yield begin + nbytes, FlatBufferTable(raw[8:] if raw[:4] == _MARK else raw[4:]), kind


def _messages_of_stream(
    path: str, descriptor: int, size: int
) -> Iterator[tuple[int, FlatBufferTable, int]]:
    """Yield the same for a stream, message by message. The end may be marked or not."""
    begin = others = 0
    while begin < size:
        head = os.pread(descriptor, 8, begin)
        length = int.from_bytes(head[4:], "little")
        if head[:4] == _MARK and len(head) == 8 and not length:
            if begin + 8 < size:
                raise FileFormatError(
                    f"{path} goes on after the end of its stream, at byte {begin + 8}."
                )
            break
        if head[:4] != _MARK or length > min(size - begin - 8, _LONGEST_MESSAGE):
            raise FileFormatError(f"{path} is cut off: it has no whole message at byte {begin}.")
        message = FlatBufferTable(os.pread(descriptor, length, begin + 8))
        body = message.number(3, "<q")
        if not 0 <= body <= size - begin - 8 - length:
            raise FileFormatError(
                f"{path} is cut off: its message at byte {begin} ends past the end."
            )
        kind = message.number(1, "<B")
        if kind in (_BATCH, _DICTIONARY):
            yield begin + 8 + length, message, kind
        if kind != _BATCH:
            others += 1
            if others > _MOST_BATCHES:
                raise UnsafeFileError(
                    f"{path} has {_MOST_BATCHES:,} messages that are no record batches, and more."
                )
        begin += 8 + length + body


def _is_stored_plainly(kind: Type) -> bool:
    """Whether a type is of numbers, or of lists of a fixed length of them.

    To read them takes no memory.
    """
    if kind.format.startswith(_FIXED):
        return _is_stored_plainly(kind.children[0])
    return kind.values is None and kind.format in NUMBERS


def _seen(array: Any) -> Column | None:
    """A column in a mapped file, if its numbers lie there as they are; otherwise ``None``."""
    kind = type_of(array.type)
    if _is_stored_plainly(kind):
        column = column_of(kind, chunks_of(array))
    else:
        column = None
    return column if isinstance(column, Column) else None


def _in_place(path: str, column: Column, base: int, size: int) -> Extent | None:
    """Where a column lies in a file that is mapped at `base`, if it lies there as a tensor does."""
    if column.nulls[0] or column.order not in (None, (*range(len(column.inner)),)):
        return None
    if column.obstacles(exactly=False) or 0 in column.shape:
        return None
    stored = Extent(column.dtype, column.shape, path, address(column.view()) - base)
    if not 0 <= stored.offset <= size - stored.nbytes:
        raise FileFormatError(
            f"{path} has a column of shape {list(stored.shape)} that does not lie inside of it."
        )
    return stored


def _pieces_of(path: str, index: int) -> Generator[Sequence[Chunk], None, None]:
    import pyarrow as pa

    with as_format_error(path), pa.memory_map(path) as source, _opened(source, index) as reader:
        for batch in _each_batch(reader):
            yield chunks_of(batch.column(0))


def _whole_of(path: str, index: int) -> Sequence[Chunk]:
    return [chunk for chunks in _pieces_of(path, index) for chunk in chunks]


class Arrow(Format):
    """Tables, https://arrow.apache.org/docs/format/Columnar.html, in files and in streams."""

    name = "arrow"
    title = "Arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")
    dtypes = frozenset(name for name in ORDINARY if not name.startswith("complex"))
    module = "pyarrow"
    holds_metadata = True
    writes = False
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC + b"\0\0") or is_stream(head)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        contents = Contents(self.name, (str(path),), columns=TableColumns())
        with as_format_error(str(path)):
            self.read_table(str(path), contents)
        return contents

    def read_table(self, path: str, contents: Contents) -> None:
        """Read a file into `contents`."""
        read_ipc(path, contents)

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        if found is None:
            contents = self.tried(path, allow)
        else:
            contents = found
        if isinstance(contents, UnsafeFileError | FrameworkNotInstalledError):
            raise contents
        if isinstance(contents, ConversionError):
            yield FileFinding(str(path), None, None, contents.message)
            return
        columns: Mapping[str, TableColumn] = contents.columns or {}
        for name, why in contents.others.items():
            if name not in columns and not isinstance(why, NotTensor):
                yield FileFinding(str(path), None, name, f"it is not looked at: {why}", error=False)
        for name, column in columns.items():
            if isinstance(contents.others.get(name), NotTensor):
                continue
            try:
                validate_column(column)
            except ConversionError as error:
                yield FileFinding(str(path), None, name, error.message)


FORMAT = Arrow()
