"""Protocol Buffers' wire format: find fields without reading their payloads, and write fields.

The encoding is described at https://protobuf.dev/programming-guides/encoding/. A library would
parse a whole message into memory, with all weights. Here only the requested fields are read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ...errors import FileFormatError, UnsafeFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BYTES",
    "VARINT",
    "Field",
    "Message",
    "bytes_field",
    "number_field",
    "varint",
    "varint_at",
]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST_FIELDS = 5_000_000
_LONGEST_TEXT = 64 << 20
_WINDOW = 1 << 16
_LONGEST_HEAD = 16


class Field(NamedTuple):
    """A field of a message.

    Args:
        number: Its number in the message's definition.
        kind: Its wire type.
        value: The value of a varint; otherwise 0.
        start: The position of its payload.
        end: The position after its payload.
    """

    number: int
    kind: int
    value: int
    start: int
    end: int

    @property
    def signed(self) -> int:
        """The value of an ``int32`` or ``int64`` field."""
        if self.value >> 63:
            return self.value - (1 << 64)
        return self.value


class Message:
    """A message in a file or in memory, read a window at a time. Use it with `contextlib.closing`.

    Args:
        path: The file; or a name for the bytes in `held`, for messages.
        held: The bytes, if they are in memory already.
    """

    def __init__(self, path: str, held: bytes | None = None) -> None:
        self.path = path
        self._file = None if held is not None else open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - for pread
        self._window = held or b""
        self._at = 0
        self._left = _MOST_FIELDS
        if self._file is None:
            self.size = len(self._window)
        else:
            self.size = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def fields(self, start: int = 0, end: int | None = None) -> Iterator[Field]:
        """The fields between two bytes.

        Raises:
            FileFormatError: They are cut off, or these are not fields.
            UnsafeFileError: There are too many.
        """
        end = self.size if end is None else end
        while start < end:
            self._left -= 1
            if self._left < 0:
                raise UnsafeFileError(
                    f"{self.path} has more than {_MOST_FIELDS:,} fields.", "get the file again"
                )
            head = self._peek(start, min(_LONGEST_HEAD, end - start))
            tag, at = varint_at(head, 0, self.path)
            number, kind = tag >> 3, tag & 7
            value = 0
            if kind == VARINT:
                value, at = varint_at(head, at, self.path)
                first = last = start + at
            elif kind == BYTES:
                length, at = varint_at(head, at, self.path)
                first, last = start + at, start + at + length
            elif kind in (FIXED64, FIXED32):
                first = start + at
                last = first + (8 if kind == FIXED64 else 4)
            else:
                raise FileFormatError(
                    f"{self.path} has a field of wire type {kind} at byte {start}."
                )
            if last > end or not number:
                raise FileFormatError(
                    f"{self.path} has a field at byte {start} that ends past its message."
                )
            yield Field(number, kind, value, first, last)
            start = last

    def payload(self, field: Field) -> bytes:
        """The payload of a field.

        Raises:
            FileFormatError: It is cut off, or the field holds a number.
            UnsafeFileError: It is too long for a text.
        """
        if field.kind != BYTES:
            raise FileFormatError(
                f"{self.path} has a number at byte {field.start}, where a text belongs."
            )
        length = field.end - field.start
        if length > _LONGEST_TEXT:
            raise UnsafeFileError(
                f"{self.path} has a text of {length:,} bytes at byte {field.start}."
            )
        return self._peek(field.start, length)

    def text(self, field: Field) -> str:
        """As `payload`, as text.

        Raises:
            FileFormatError: It is not UTF-8.
        """
        try:
            return self.payload(field).decode()
        except UnicodeDecodeError as error:
            raise FileFormatError(
                f"{self.path} has a text at byte {field.start} that is not UTF-8."
            ) from error

    def inner(self, field: Field) -> Iterator[Field]:
        """The fields of a field that is a message itself."""
        if field.kind != BYTES:
            raise FileFormatError(
                f"{self.path} has a number at byte {field.start}, where a message belongs."
            )
        return self.fields(field.start, field.end)

    def _peek(self, offset: int, count: int) -> bytes:
        if self._file is not None and not (
            self._at <= offset and offset + count <= self._at + len(self._window)
        ):
            self._at, self._window = (
                offset,
                os.pread(self._file.fileno(), max(_WINDOW, count), offset),
            )
        peeked = self._window[offset - self._at : offset - self._at + count]
        if len(peeked) < count:
            raise FileFormatError(
                f"{self.path} ends at byte {offset + len(peeked)}, in the middle of a field."
            )
        return peeked


def varint_at(data: bytes, at: int, path: str) -> tuple[int, int]:
    """The number of variable length at a position, and the position after it.

    Raises:
        FileFormatError: It is cut off, or longer than 64 bits.
    """
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise FileFormatError(f"{path} has a number that does not end.")


def varint(value: int) -> bytes:
    """Encode a number with variable length; a negative one as 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def number_field(number: int, value: int) -> bytes:
    """Encode a field with a number."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, payload: bytes | str, following: int = 0) -> bytes:
    """Encode a field with bytes, text or a message.

    The caller writes its last `following` bytes.
    """
    if isinstance(payload, str):
        payload = payload.encode()
    return varint(number << 3 | BYTES) + varint(len(payload) + following) + payload
