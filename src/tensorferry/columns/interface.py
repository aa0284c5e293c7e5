"""Read the structures of Arrow's C data interface, without pyarrow.

(https://arrow.apache.org/docs/format/CDataInterface.html)
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.layout import compact_strides
from ..core.named_tuple import NamedTuple
from ..errors import UnsupportedTypeError
from ..host import memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..typing import Array

__all__ = [
    "ARRAY",
    "NUMBERS",
    "SCHEMA",
    "Chunk",
    "Type",
    "address_in",
    "array_at",
    "array_in",
    "bytes_at",
    "chunk_at",
    "memory_at",
    "numbers_at",
    "pointers",
    "type_at",
    "type_in",
]

NUMBERS = {
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float32",
    "g": "float64",
}
"""The dtypes of the formats of numbers."""

SCHEMA = struct.Struct("PPPqqPPPP")
ARRAY = struct.Struct("qqqqqPPPPP")
_PAIR = struct.Struct("2P")
memory_at = (ctypes.c_char * (sys.maxsize // 2)).from_address
"""Memory from an address on. Nothing is read before it is indexed."""
_EXTENSION, _DATASETS = b"ARROW:extension:name", "datasets.features"
_MOST = 1 << 20
"""The most children, buffers or metadata entries.

Larger numbers mean that the structure is broken.
"""


class Type(NamedTuple):
    """The type of an Arrow array.

    Args:
        format: The format string.
        name: The field's name.
        metadata: The field's metadata, such as its extension type.
        children: The types of its children.
        values: The type of its dictionary.
    """

    format: str
    name: str
    metadata: Mapping[bytes, bytes]
    children: tuple[Type, ...]
    values: Type | None

    @property
    def extension(self) -> str:
        """The name of its extension type; empty for one that only means nested lists, as in datasets."""
        name = self.metadata.get(_EXTENSION, b"").decode(errors="replace")
        return "" if name.startswith(_DATASETS) else name


class Chunk(NamedTuple):
    """One Arrow array.

    Args:
        length: The number of elements.
        null_count: The number of nulls; negative if it is unknown.
        offset: The position of the first element in its buffers.
        buffers: The addresses of its buffers.
        children: Its children.
        values: Its dictionary.
        owner: The object that keeps the memory alive.
    """

    length: int
    null_count: int
    offset: int
    buffers: tuple[int, ...]
    children: tuple[Chunk, ...]
    values: Chunk | None
    owner: object


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def address_in(capsule: object, name: bytes) -> int:
    """The address in a capsule.

    Raises:
        UnsupportedTypeError: It is not a capsule, or not one of this name.
    """
    try:
        return int(_pointer_of(capsule, name))
    except ValueError as error:
        raise UnsupportedTypeError(
            f"This object gives Arrow no capsule of the name {name.decode()!r}.", None
        ) from error


def type_in(capsule: object) -> Type:
    """Read the type in a schema capsule.

    Raises:
        UnsupportedTypeError: It was released, or is not a schema.
    """
    return type_at(address_in(capsule, b"arrow_schema"))


def array_in(capsule: object) -> int:
    """The address of the structure in an array capsule."""
    return address_in(capsule, b"arrow_array")


def type_at(at: int) -> Type:
    """Read the type in a schema.

    Raises:
        UnsupportedTypeError: It was released, or is not a schema.
    """
    format_, name, metadata, _, count, children, values, release, _ = SCHEMA.unpack_from(
        memory_at(at)
    )
    if not release or not format_ or not 0 <= count <= _MOST:
        raise UnsupportedTypeError("This is not a schema of Arrow's, or it was released.", None)
    found = Type(
        ctypes.string_at(format_).decode(errors="replace"),
        ctypes.string_at(name).decode(errors="replace") if name else "",
        _metadata(metadata) if metadata else {},
        tuple([type_at(each) for each in pointers(children, count)]),
        type_at(values) if values else None,
    )
    if not _is_whole(found):
        raise UnsupportedTypeError(
            f"This schema of Arrow's has the format {found.format!r}, and not what belongs to it.",
            None,
        )
    return found


def _is_whole(kind: Type) -> bool:
    """Whether a type has the parameters, the children and the indices that its format needs."""
    count = len(kind.children)
    if kind.values is not None and kind.format not in _INTEGERS:
        return False
    if kind.format == "+r":
        return count == 2 and kind.children[0].format in _INTEGERS
    return count == 1 if _LIST.fullmatch(kind.format) else _OTHER.fullmatch(kind.format) is not None


_INTEGERS = frozenset("cCsSiIlL")
_LIST = re.compile(r"\+(l|L|vl|vL|m|w:\d{1,18})")
_OTHER = re.compile(
    r"[^+dt].*|\+[^lLvmwr].*|d:\d+,-?\d+(,(32|64|128|256))?|td[Dm]|t[tD][smun]|ts[smun]:.*|ti[MDn]",
    re.DOTALL,
)
"""Formats of lists, and other formats: those with parameters that are read are given in full."""


def chunk_at(at: int, kind: Type, owner: object, *, inside: bool = False) -> Chunk:
    """Read an array.

    Args:
        at: The address of its structure.
        kind: Its type.
        owner: The object that keeps the memory alive.
        inside: Whether another array releases it.

    Raises:
        UnsupportedTypeError: It was released, or is not an array of this type.
    """
    length, nulls, offset, count, inner, buffers, children, values, release, _ = array_at(at)
    if (
        not (release or inside)
        or length < 0
        or offset < 0
        or not (0 <= count <= _MOST and 0 <= inner <= _MOST)
    ):
        raise UnsupportedTypeError(
            "This array of Arrow's was released, or has a negative length or offset.", None
        )
    if inner != len(kind.children):
        raise UnsupportedTypeError("This array of Arrow's has other children than its type.", None)
    return Chunk(
        length,
        nulls,
        offset,
        pointers(buffers, count),
        tuple(
            map(
                partial(chunk_at, owner=owner, inside=True),
                pointers(children, inner),
                kind.children,
            )
        ),
        chunk_at(values, kind.values, owner, inside=True)
        if values and kind.values is not None
        else None,
        owner,
    )


def array_at(at: int) -> tuple[int, ...]:
    """The fields of an array's structure, in order."""
    return ARRAY.unpack_from(memory_at(at))


def pointers(at: int, count: int) -> tuple[int, ...]:
    """Read `count` addresses from memory."""
    if count == 2 and at:  # the most common number of buffers
        return _PAIR.unpack_from(memory_at(at))
    return struct.unpack_from(f"{count}P", memory_at(at)) if count and at else ()


def _metadata(at: int) -> dict[bytes, bytes]:
    count = ctypes.c_int32.from_address(at).value
    at += 4
    found: list[bytes] = []
    for _ in range(2 * min(count, _MOST)):
        length = ctypes.c_int32.from_address(at).value
        found.append(ctypes.string_at(at + 4, length))
        at += 4 + length
    return dict(zip(found[::2], found[1::2], strict=True))


def numbers_at(at: int, count: int, dtype: np.dtype[Any]) -> Array:
    """An array over Arrow's memory. The caller must keep the memory alive."""
    memory_there: Any = memory_at(at)
    found: Array = np.frombuffer(memory_there, dtype, count)
    return found


def bytes_at(at: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: object) -> Array:
    """A read-only array over Arrow's memory, which it keeps alive.

    Raises:
        UnsupportedTypeError: The address is missing.
    """
    if not at and 0 not in shape:
        raise UnsupportedTypeError(
            "This array of Arrow's has elements, and no memory for them.", None
        )
    return memory.over_address(
        at, shape, compact_strides(shape, dtype.itemsize), dtype, read_only=True, owner=owner
    )
