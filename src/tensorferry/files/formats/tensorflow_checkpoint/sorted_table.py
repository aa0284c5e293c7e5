"""Sorted tables of keys and values in LevelDB's format, which TensorFlow uses for the index of a checkpoint.

The format: https://github.com/google/leveldb/blob/main/doc/table_format.md.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import TYPE_CHECKING

from ....errors import FileFormatError, UnsafeFileError
from ...encodings.crc32c import crc32c, masked
from ...encodings.protobuf import varint, varint_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["is_table", "read_table", "table"]

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
_LARGEST = 256 << 20
_LONGEST_KEY = 1 << 16
_BLOCK = 1 << 15


def is_table(path: Path) -> bool:
    """Whether a file is such a table, by its end."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < _FOOTER:
            return False
        file.seek(size - 8)
        return file.read() == struct.pack("<Q", _MAGIC)


def read_table(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, in order.

    Raises:
        FileFormatError: It breaks the rules of the format, or a checksum is wrong.
        UnsafeFileError: It is too large for a table of names.
    """
    if path.stat().st_size > _LARGEST:
        raise UnsafeFileError(
            f"{path} is larger than {_LARGEST:,} bytes, which is the most that is read of a table."
        )
    data = path.read_bytes()
    if len(data) < _FOOTER or data[-8:] != struct.pack("<Q", _MAGIC):
        raise FileFormatError(f"{path} does not end as a table does; it may be cut off.")
    footer = data[-_FOOTER:]
    meta, at = _handle(footer, 0, path)
    index, _ = _handle(footer, at, path)
    # Its entries are not needed, but its checksum is compared.
    list(_entries(data, meta, path))
    before = b""
    for number, (_, place) in enumerate(_entries(data, index, path)):
        handle, _ = _handle(place, 0, path)
        for key, value in _entries(data, handle, path):
            if key <= before and (number or before):
                raise FileFormatError(
                    f"{path} has its keys out of order: {key[:80]!r} after {before[:80]!r}."
                )
            yield key, value
            before = key


def _handle(data: bytes, at: int, path: Path) -> tuple[tuple[int, int], int]:
    offset, at = varint_at(data, at, str(path))
    size, at = varint_at(data, at, str(path))
    return (offset, size), at


def _entries(data: bytes, handle: tuple[int, int], path: Path) -> Iterator[tuple[bytes, bytes]]:
    offset, size = handle
    if offset + size + _TRAILER > len(data) - _FOOTER or size < 4:
        raise FileFormatError(
            f"{path} has a block of {size:,} bytes at {offset:,}, which is not in the file."
        )
    block = data[offset : offset + size]
    kind, checksum = struct.unpack("<BI", data[offset + size : offset + size + _TRAILER])
    if kind:
        raise FileFormatError(f"{path} has a compressed block at {offset:,}, which is not read.")
    if masked(crc32c(data[offset : offset + size + 1])) != checksum:
        raise FileFormatError(
            f"{path} is corrupt: the block at {offset:,} has another CRC-32C.", "get the file again"
        )
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise FileFormatError(
            f"{path} has a block at {offset:,} whose restarts do not fit into it."
        )
    at, key = 0, b""
    while at < end:
        shared, at = varint_at(block, at, str(path))
        added, at = varint_at(block, at, str(path))
        length, at = varint_at(block, at, str(path))
        if shared > len(key) or at + added + length > end or shared + added > _LONGEST_KEY:
            raise FileFormatError(
                f"{path} has an entry in the block at {offset:,} that does not fit into it."
            )
        key = key[:shared] + block[at : at + added]
        at += added
        yield key, block[at : at + length]
        at += length


def table(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a table with these sorted keys and values."""
    data = bytearray()
    index: list[tuple[bytes, bytes]] = []
    block: list[bytes] = []
    last, size = b"", 0
    for last, value in items:
        block.append(_entry(last, value))
        size += len(block[-1])
        if size > _BLOCK:
            index.append((last, _append(data, block)))
            block, size = [], 0
    if block or not index:
        index.append((last, _append(data, block)))
    meta = _append(data, [])
    footer = meta + _append(data, [_entry(key, handle) for key, handle in index])
    return bytes(data) + footer.ljust(_FOOTER - 8, b"\0") + struct.pack("<Q", _MAGIC)


def _entry(key: bytes, value: bytes) -> bytes:
    """An entry with its whole key, so that a search can start there."""
    return varint(0) + varint(len(key)) + varint(len(value)) + key + value


def _append(data: bytearray, entries: list[bytes]) -> bytes:
    """Append a block of entries, and return its handle."""
    starts = [0, *accumulate(map(len, entries[:-1]))]
    raw = b"".join(entries) + struct.pack(f"<{len(starts) + 1}I", *starts, len(starts))
    handle = varint(len(data)) + varint(len(raw))
    data += raw + b"\0" + struct.pack("<I", masked(crc32c(raw + b"\0")))
    return handle
