"""Read MessagePack without its data, with all bounds checked.

The encoding is described at https://github.com/msgpack/msgpack/blob/master/spec.md. The msgpack
library reads whole values, so that each tensor would be in memory.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import FileFormatError

if TYPE_CHECKING:
    import mmap

__all__ = [
    "Array",
    "Binary",
    "Extension",
    "Map",
    "Reader",
    "array_header",
    "binary_header",
    "extension_header",
]
__all__ += ["map_header", "packed"]


class Array(NamedTuple):
    """The beginning of an array: the number of values that follow."""

    length: int


class Map(NamedTuple):
    """The beginning of a map: the number of pairs that follow."""

    length: int


class Binary(NamedTuple):
    """The position of bytes, or of a string, in the file."""

    begin: int
    end: int
    is_text: bool


class Extension(NamedTuple):
    """The position of a value of an application's own type."""

    code: int
    begin: int
    end: int


_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {
    0xC4: ">B",
    0xC5: ">H",
    0xC6: ">I",
    0xC7: ">B",
    0xC8: ">H",
    0xC9: ">I",
    0xD9: ">B",
    0xDA: ">H",
    0xDB: ">I",
}
_LENGTHS |= {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


class Reader:
    """Reads one value after another between two positions.

    Values inside arrays and maps are read like all others.
    """

    def __init__(self, data: mmap.mmap, path: str, begin: int, end: int) -> None:
        self.at = begin
        self._data = data
        self._path = path
        self._end = end

    def next(self) -> Any:
        """A plain value; or an `Array`, `Map`, `Binary` or `Extension`.

        Raises:
            FileFormatError: The file is cut off, or this is not the beginning of a value.
        """
        begin = self.at
        first = self._data[self._take(1)]
        if first < 0x80 or first >= 0xE0:
            return first - 0x100 * (first >= 0xE0)
        if first < 0x90:
            return Map(first & 0x0F)
        if first < 0xA0:
            return Array(first & 0x0F)
        if first < 0xC0:
            return self._binary(first & 0x1F, is_text=True)
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        if 0xD4 <= first <= 0xD8:
            return self._extension(1 << (first - 0xD4))
        if first not in _LENGTHS:
            raise FileFormatError(
                f"{self._path} is no MessagePack: no value begins with byte {first:#x}, at {begin}."
            )
        length = self._number(_LENGTHS[first])
        if first >= 0xDC:
            if first <= 0xDD:
                return Array(length)
            return Map(length)
        if 0xC7 <= first <= 0xC9:
            return self._extension(length)
        return self._binary(length, is_text=first >= 0xD9)

    def bytes_of(self, binary: Binary) -> bytes | str:
        """The bytes or the string at a position.

        Raises:
            FileFormatError: A string is not UTF-8.
        """
        raw = self._data[binary.begin : binary.end]
        try:
            return raw.decode() if binary.is_text else raw
        except UnicodeDecodeError as error:
            raise FileFormatError(
                f"{self._path}: the string at byte {binary.begin} is not UTF-8."
            ) from error

    def _take(self, count: int) -> int:
        begin = self.at
        if begin + count > self._end:
            raise FileFormatError(
                f"{self._path} is cut off: a value at byte {begin} reaches past byte {self._end}."
            )
        self.at = begin + count
        return begin

    def _number(self, form: str) -> Any:
        size = struct.calcsize(form)
        begin = self._take(size)
        return struct.unpack(form, self._data[begin : begin + size])[0]

    def _binary(self, length: int, *, is_text: bool) -> Binary:
        begin = self._take(length)
        return Binary(begin, begin + length, is_text)

    def _extension(self, length: int) -> Extension:
        code = self._number(">b")
        begin = self._take(length)
        return Extension(code, begin, begin + length)


def packed(value: Any) -> bytes:
    """Encode ``None``, a bool, 64-bit integer, float, string, bytes, or a list or dict of these."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, int):
        if -32 <= value < 128:
            return struct.pack(">B", value & 0xFF)
        size = (value if value >= 0 else 2 * ~value).bit_length()
        step = (size > 8) + (size > 16) + (size > 32)
        if value < 0:
            return struct.pack(f">B{'bhiq'[step]}", 0xD0 + step, value)
        return struct.pack(f">B{'BHIQ'[step]}", 0xCC + step, value)
    if isinstance(value, str):
        raw = value.encode()
        return (
            bytes([0xA0 | len(raw)]) if len(raw) < 32 else _header(len(raw), 0xD9, 0xDA, 0xDB)
        ) + raw
    if isinstance(value, list):
        return array_header(len(value)) + b"".join(map(packed, value))
    if isinstance(value, dict):
        return map_header(len(value)) + b"".join(
            packed(key) + packed(child) for key, child in value.items()
        )
    return binary_header(len(value)) + bytes(value)


def array_header(count: int) -> bytes:
    """The header of an array."""
    if count < 16:
        return bytes([0x90 | count])
    return _header(count, None, 0xDC, 0xDD)


def map_header(count: int) -> bytes:
    """The header of a map."""
    if count < 16:
        return bytes([0x80 | count])
    return _header(count, None, 0xDE, 0xDF)


def binary_header(nbytes: int) -> bytes:
    """The header of bytes."""
    return _header(nbytes, 0xC4, 0xC5, 0xC6)


def extension_header(code: int, nbytes: int) -> bytes:
    """The header of a value of an application's own type."""
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(nbytes)
    if fixed is None:
        header = _header(nbytes, 0xC7, 0xC8, 0xC9)
    else:
        header = bytes([fixed])
    return header + struct.pack(">b", code)


def _header(count: int, byte: int | None, word: int, long: int) -> bytes:
    if byte is not None and count < 1 << 8:
        return struct.pack(">BB", byte, count)
    if count < 1 << 16:
        return struct.pack(">BH", word, count)
    return struct.pack(">BI", long, count)
