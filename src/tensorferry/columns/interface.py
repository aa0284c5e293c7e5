"""Arrow's C interfaces: schemas and arrays as structs, and the objects that give them."""

from __future__ import annotations

import ctypes
import re
import struct
import sys
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..core.layout import compact_strides
from ..core.named_tuple import NamedTuple
from ..errors import UnsupportedTypeError
from ..hints import Hint
from ..host import memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    "gives_arrow",
    "is_read_again",
    "leaving_streams",
    "memory_at",
    "numbers_at",
    "pointers_at",
    "read_chunks",
    "type_at",
    "type_in",
]


# -- structs ---------------------------------------------------------------------------------------
#
# (https://arrow.apache.org/docs/format/CDataInterface.html)

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
        """Its extension type's name; empty for one that only means nested lists, as in datasets."""
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
    kind_read = Type(
        ctypes.string_at(format_).decode(errors="replace"),
        ctypes.string_at(name).decode(errors="replace") if name else "",
        _metadata_at(metadata) if metadata else {},
        tuple([type_at(pointer) for pointer in pointers_at(children, count)]),
        type_at(values) if values else None,
    )
    if not _is_whole(kind_read):
        raise UnsupportedTypeError(
            f"This schema of Arrow's has the format {kind_read.format!r}, and not what belongs to it.",
            None,
        )
    return kind_read


def _is_whole(kind: Type) -> bool:
    """Whether a type has the parameters, the children and the indices that its format needs."""
    count = len(kind.children)
    if kind.values is not None and kind.format not in _INTEGERS:
        return False
    if kind.format == "+r":
        return count == 2 and kind.children[0].format in _INTEGERS
    if _LIST.fullmatch(kind.format):
        return count == 1
    return _OTHER.fullmatch(kind.format) is not None


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
        pointers_at(buffers, count),
        tuple(
            map(
                partial(chunk_at, owner=owner, inside=True),
                pointers_at(children, inner),
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


def pointers_at(at: int, count: int) -> tuple[int, ...]:
    """Read `count` addresses from memory."""
    if count == 2 and at:  # the most common number of buffers
        return _PAIR.unpack_from(memory_at(at))
    if count and at:
        return struct.unpack_from(f"{count}P", memory_at(at))
    return ()


def _metadata_at(at: int) -> dict[bytes, bytes]:
    count = ctypes.c_int32.from_address(at).value
    at += 4
    parts: list[bytes] = []
    for _ in range(2 * min(count, _MOST)):
        length = ctypes.c_int32.from_address(at).value
        parts.append(ctypes.string_at(at + 4, length))
        at += 4 + length
    return dict(zip(parts[::2], parts[1::2], strict=True))


def numbers_at(at: int, count: int, dtype: np.dtype[Any]) -> Array:
    """An array over Arrow's memory. The caller must keep the memory alive."""
    memory_there: Any = memory_at(at)
    numbers: Array = np.frombuffer(memory_there, dtype, count)
    return numbers


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


# -- objects of any library that give Arrow data ---------------------------------------------------
#
# (https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html,
# https://arrow.apache.org/docs/format/CStreamInterface.html)

_STREAM = struct.Struct("PPPPP")
_POINTER = struct.Struct("P")


def gives_arrow(kind: type) -> bool:
    """Whether objects of a type give Arrow data."""
    return hasattr(kind, "__arrow_c_array__") or hasattr(kind, "__arrow_c_stream__")


def is_read_again(kind: type) -> bool:
    """Whether objects of a type surely give the same data each time.

    Streams, which have no length, may not.
    """
    return hasattr(kind, "__arrow_c_array__") or hasattr(kind, "__len__")


def read_chunks(x: Any) -> tuple[Type, list[Chunk]]:
    """Read the type and the chunks of an object.

    They keep it alive, since only the object may own their memory.

    Raises:
        UnsupportedTypeError: It was released, its stream failed, or it gives no Arrow data; or it
            is a stream, which `leaving_streams` leaves.
    """
    if not hasattr(x, "__arrow_c_array__"):
        return _read_stream(x)
    capsules = _call_given(x, x.__arrow_c_array__)
    if not isinstance(capsules, tuple) or len(capsules) != 2:
        raise UnsupportedTypeError(
            f"This {type(x).__name__} gives no pair of Arrow's capsules.", None
        )
    schema, array = capsules
    kind = type_in(schema)
    return kind, [chunk_at(array_in(array), kind, (array, x))]


def _call_given(x: object, method: Any) -> Any:
    try:
        return method()
    except Exception as error:
        raise UnsupportedTypeError(
            f"Arrow's interface of this {type(x).__name__} fails: {error}", None
        ) from error


# -- streams ---------------------------------------------------------------------------------------


class _Reading(NamedTuple):
    """What a stream gave that cannot be read again.

    It is kept as long as the object that gave the stream.

    Args:
        x: A weak reference to that object.
        found: The type and the chunks; or the error of a stream that failed. What it gave before is
            lost, and the rest alone would be taken for all of it.
    """

    x: weakref.ref[Any]
    found: tuple[Type, list[Chunk]] | UnsupportedTypeError


_readings: dict[int, _Reading] = {}
_leaves_streams: ContextVar[bool] = ContextVar("leaves_streams", default=False)


@contextmanager
def leaving_streams() -> Iterator[None]:
    """Refuse to read streams meanwhile: to explain a conversion must not use one up."""
    before = _leaves_streams.set(True)
    try:
        yield
    finally:
        _leaves_streams.reset(before)


def _read_stream(x: Any) -> tuple[Type, list[Chunk]]:
    kept = _readings.get(id(x))
    if kept is not None and kept.x() is x:
        if isinstance(kept.found, UnsupportedTypeError):
            raise UnsupportedTypeError(kept.found.message, kept.found.advice)
        return _with_owner(kept.found, x)
    may_be_used_up = not is_read_again(type(x))
    if may_be_used_up and _leaves_streams.get():
        raise UnsupportedTypeError(
            f"This {type(x).__name__} is a stream that is still to be read, "
            "and only a conversion reads it.",
            "x.read_all()"
            if hasattr(type(x), "read_all")
            else Hint(
                hints.code("pa.table(x)"),
                ", or ",
                hints.code("pa.chunked_array(x)"),
                " if it is a column",
            ),
        )
    try:
        stream_read = _of_stream(_call_given(x, x.__arrow_c_stream__))
    except UnsupportedTypeError as error:
        if may_be_used_up:
            # It is kept without its traceback, which has `x`.
            _keep_reading(x, UnsupportedTypeError(error.message, error.advice))
        raise
    if may_be_used_up and stream_read[1] and _is_used_up(x):
        _keep_reading(x, stream_read)
    return _with_owner(stream_read, x)


def _with_owner(stream_read: tuple[Type, list[Chunk]], x: object) -> tuple[Type, list[Chunk]]:
    """What was read, with `x` as an owner.

    What is in `_readings` has no such owner, or `x` would live for ever.
    """
    kind, chunks = stream_read
    return kind, [_owned_chunk(chunk, x) for chunk in chunks]


def _owned_chunk(chunk: Chunk, x: object) -> Chunk:
    if chunk.values is None:
        values = None
    else:
        values = _owned_chunk(chunk.values, x)
    children = tuple([_owned_chunk(child, x) for child in chunk.children])
    return chunk._replace(children=children, values=values, owner=(chunk.owner, x))


def _is_used_up(x: Any) -> bool:
    """Whether an object whose stream has been read would now give an empty one, or none."""
    if hasattr(type(x), "__next__"):
        return True
    try:
        return not _of_stream(_call_given(x, x.__arrow_c_stream__), most=1)[1]
    except UnsupportedTypeError:
        return True


def _keep_reading(x: Any, reading: tuple[Type, list[Chunk]] | UnsupportedTypeError) -> None:
    number, forget = id(x), _readings.pop  # the module's names may be deleted before `x`, at exit
    try:
        reference = weakref.ref(x, lambda _: forget(number, None))
    except TypeError:
        return
    _readings[number] = _Reading(reference, reading)


_GIVES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SAYS = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_RELEASES = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Owned:
    """A structure that a library has filled in.

    It is released when nothing uses what it has any more.
    """

    def __init__(self, layout: struct.Struct, release: int) -> None:
        self._memory = ctypes.create_string_buffer(layout.size)
        self._place = release
        self.address = ctypes.addressof(self._memory)

    # Everything that it needs is an argument, because the module's names may be deleted before, at
    # exit.
    def __del__(self, unpack: Any = _POINTER.unpack_from, release: Any = _RELEASES) -> None:
        address_of_release = unpack(self._memory, self._place)[0]
        if address_of_release:
            release(address_of_release)(self.address)


_RELEASE_SCHEMA, _RELEASE_ARRAY, _RELEASE_STREAM = 56, 64, 24
"""The offsets of the release functions in the structures."""


def _of_stream(capsule: object, most: int | None = None) -> tuple[Type, list[Chunk]]:
    """Read a stream, or its first `most` chunks."""
    at = address_in(capsule, b"arrow_array_stream")
    get_schema, get_next, get_error, release, _ = _STREAM.unpack_from(memory_at(at))
    if not release:
        raise UnsupportedTypeError(
            "This stream of Arrow's was released: it has been read already. A table that is made "
            "of it before that can "
            "be read again and again."
        )
    # The stream is moved, as its interface asks for: the capsule has none any more. Read again, it
    # would be empty.
    stream = _Owned(_STREAM, _RELEASE_STREAM)
    ctypes.memmove(stream.address, at, _STREAM.size)
    _POINTER.pack_into(memory_at(at), _RELEASE_STREAM, 0)

    def call(function: int, into: _Owned) -> None:
        code = _GIVES(function)(stream.address, into.address)
        if code:
            if get_error:
                said = _SAYS(get_error)(stream.address)
            else:
                said = None
            if said:
                words = said.decode(errors="replace")
            else:
                words = f"error {code}"
            raise UnsupportedTypeError(f"This stream of Arrow's cannot be read: {words}", None)

    schema = _Owned(SCHEMA, _RELEASE_SCHEMA)
    call(get_schema, schema)
    kind = type_at(schema.address)
    chunks: list[Chunk] = []
    while most is None or len(chunks) < most:
        array = _Owned(ARRAY, _RELEASE_ARRAY)
        call(get_next, array)
        if not _POINTER.unpack_from(memory_at(array.address), _RELEASE_ARRAY)[0]:
            break
        chunks.append(chunk_at(array.address, kind, array))
    return kind, chunks
