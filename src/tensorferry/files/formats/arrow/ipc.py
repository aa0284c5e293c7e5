"""Find the columns in Arrow files and streams.

https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
describes both.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from ....columns.column import Column
from ....columns.interface import NUMBERS
from ....columns.layouts import column_of
from ....errors import FileFormatError, UnsafeFileError
from ....host.memory import address
from ...base.stored import Extent
from ...encodings.shapes import is_bomb
from .flatbuffer import FlatBufferTable
from .table import as_format_error, chunks_of, described, put, type_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from ....columns.interface import Chunk, Type
    from ...base.contents import Contents

__all__ = ["MAGIC", "is_stream", "read_ipc"]

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
        batch = next(_each_batch(reader)) if count == 1 and not is_compressed else None
        source.seek(0)
        base = source.read_buffer(1).address
        for column in columns:
            index = column[0]
            pieces = partial(_pieces_of, path, index)
            whole = partial(_whole_of, path, index)
            seen = None if batch is None else _seen(batch.column(index))
            in_place = None if seen is None else _in_place(path, seen, base, size)
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
                batch = None if batch is None else batch.table(1)
                declared += 0 if batch is None else _declared(file.fileno(), batch, end, size)
                continue
            if batch is None or count == _MOST_BATCHES:
                what = (
                    f"{_MOST_BATCHES:,} record batches, and more"
                    if batch
                    else "a message without its record batch"
                )
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
    for at, held in batch.structs(2, "<qq") if batch.table(3) is not None else ():
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
    found = column_of(kind, chunks_of(array)) if _is_stored_plainly(kind) else None
    return found if isinstance(found, Column) else None


def _in_place(path: str, found: Column, base: int, size: int) -> Extent | None:
    """Where a column lies in a file that is mapped at `base`, if it lies there as a tensor does."""
    if found.nulls[0] or found.order not in (None, (*range(len(found.inner)),)):
        return None
    if found.obstacles(exactly=False) or 0 in found.shape:
        return None
    stored = Extent(found.dtype, found.shape, path, address(found.view()) - base)
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
