"""Read text in Arrow's memory as Python strings, because text stays readable in a tree."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .interface import Chunk, Type

__all__ = ["texts"]


def texts(kind: Type, spans: Sequence[Any]) -> list[Any]:
    """The strings of a column, or its bytes, with ``None`` for nulls.

    Args:
        kind: The column's type.
        spans: Its memory: see `layouts.fields`.

    Raises:
        UnsupportedTypeError: It has neither strings nor bytes.
    """
    if kind.values is not None or kind.format not in ("u", "U", "z", "Z"):
        raise UnsupportedTypeError(
            f"Columns of Arrow's format {kind.format!r} are read by pyarrow.",
            "pa.table(x), whose columns pyarrow reads",
        )
    return [each for span in spans for each in _texts(kind.format, span.chunk, span.at, span.length)]


def _texts(code: str, chunk: Chunk, at: int, count: int) -> list[Any]:
    if not count:
        return []
    size = 8 if code in "UZ" else 4
    ends = struct.unpack(
        f"{count + 1}{'q' if size == 8 else 'i'}",
        ctypes.string_at(chunk.buffers[1] + at * size, (count + 1) * size),
    )
    data = ctypes.string_at(chunk.buffers[2] + ends[0], ends[-1] - ends[0]) if ends[-1] > ends[0] else b""
    valid = chunk.buffers[0]
    bits = ctypes.string_at(valid, (at + count + 7) // 8) if valid else None
    found: list[Any] = []
    for index in range(count):
        place = at + index
        if bits is not None and not bits[place // 8] >> place % 8 & 1:
            found.append(None)
            continue
        each = data[ends[index] - ends[0] : ends[index + 1] - ends[0]]
        found.append(each.decode() if code in "uU" else each)
    return found
