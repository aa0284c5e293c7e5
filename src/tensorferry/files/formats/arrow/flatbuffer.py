"""Read tables of FlatBuffers (https://flatbuffers.dev/internals/), with all bounds checked."""

from __future__ import annotations

import struct
from typing import Any

from ....errors import FileFormatError

__all__ = ["FlatBufferTable"]


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
        return FlatBufferTable(self._data, at + self._number("<I", at)) if at else None

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
