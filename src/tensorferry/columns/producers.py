"""Read objects of any library that give Arrow data, without pyarrow. A stream is read once.

(https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html,
https://arrow.apache.org/docs/format/CStreamInterface.html)
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..core.named_tuple import NamedTuple
from ..errors import UnsupportedTypeError
from .interface import ARRAY, SCHEMA, address_in, array_in, chunk_at, memory_at, type_at, type_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .interface import Chunk, Type

__all__ = ["gives_arrow", "is_read_again", "leaving_streams", "read"]

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


def read(x: Any) -> tuple[Type, list[Chunk]]:
    """Read the type and the chunks of an object.

    They keep it alive, since only the object may own their memory.

    Raises:
        UnsupportedTypeError: It was released, its stream failed, or it gives no Arrow data; or it
            is a stream, which `leaving_streams` leaves.
    """
    if not hasattr(x, "__arrow_c_array__"):
        return _read_stream(x)
    capsules = _given(x, x.__arrow_c_array__)
    if not isinstance(capsules, tuple) or len(capsules) != 2:
        raise UnsupportedTypeError(
            f"This {type(x).__name__} gives no pair of Arrow's capsules.", None
        )
    schema, array = capsules
    kind = type_in(schema)
    return kind, [chunk_at(array_in(array), kind, (array, x))]


def _given(x: object, method: Any) -> Any:
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
            raise UnsupportedTypeError(kept.found.message, kept.found.hint)
        return _keeping(kept.found, x)
    may_be_used_up = not is_read_again(type(x))
    if may_be_used_up and _leaves_streams.get():
        raise UnsupportedTypeError(
            f"This {type(x).__name__} is a stream that is still to be read, and only a conversion reads it.",
            "x.read_all()"
            if hasattr(type(x), "read_all")
            else "pa.table(x), or pa.chunked_array(x) if it is a column",
        )
    try:
        found = _of_stream(_given(x, x.__arrow_c_stream__))
    except UnsupportedTypeError as error:
        if may_be_used_up:
            # It is kept without its traceback, which has `x`.
            _keep(x, UnsupportedTypeError(error.message, error.hint))
        raise
    if may_be_used_up and found[1] and _is_used_up(x):
        _keep(x, found)
    return _keeping(found, x)


def _keeping(found: tuple[Type, list[Chunk]], x: object) -> tuple[Type, list[Chunk]]:
    """What was read, with `x` as an owner.

    What is in `_readings` has no such owner, or `x` would live for ever.
    """
    kind, chunks = found
    return kind, [_kept(each, x) for each in chunks]


def _kept(chunk: Chunk, x: object) -> Chunk:
    values = None if chunk.values is None else _kept(chunk.values, x)
    children = tuple([_kept(each, x) for each in chunk.children])
    return chunk._replace(children=children, values=values, owner=(chunk.owner, x))


def _is_used_up(x: Any) -> bool:
    """Whether an object whose stream has been read would now give an empty one, or none."""
    if hasattr(type(x), "__next__"):
        return True
    try:
        return not _of_stream(_given(x, x.__arrow_c_stream__), most=1)[1]
    except UnsupportedTypeError:
        return True


def _keep(x: Any, found: tuple[Type, list[Chunk]] | UnsupportedTypeError) -> None:
    number, forget = id(x), _readings.pop  # the module's names may be deleted before `x`, at exit
    try:
        reference = weakref.ref(x, lambda _: forget(number, None))
    except TypeError:
        return
    _readings[number] = _Reading(reference, found)


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
        found = unpack(self._memory, self._place)[0]
        if found:
            release(found)(self.address)


_RELEASE_SCHEMA, _RELEASE_ARRAY, _RELEASE_STREAM = 56, 64, 24
"""The offsets of the release functions in the structures."""


def _of_stream(capsule: object, most: int | None = None) -> tuple[Type, list[Chunk]]:
    """Read a stream, or its first `most` chunks."""
    at = address_in(capsule, b"arrow_array_stream")
    get_schema, get_next, get_error, release, _ = _STREAM.unpack_from(memory_at(at))
    if not release:
        raise UnsupportedTypeError(
            "This stream of Arrow's was released: it has been read already. A table that is made of it before that can "
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
            said = _SAYS(get_error)(stream.address) if get_error else None
            words = said.decode(errors="replace") if said else f"error {code}"
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
