"""Some elements of an Arrow array: where they lie in memory, and which are missing.

(https://arrow.apache.org/docs/format/Columnar.html)
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ..core.named_tuple import NamedTuple
from ..errors import UnsupportedTypeError
from ..host.numpy_dtypes import numpy_dtype
from .interface import bytes_at
from .pieces import Bits, Missing, Piece, gone_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..typing import Array
    from .interface import Chunk

__all__ = ["Span", "bits_in", "buffer_of", "marker", "missing_in", "over", "piece_of", "spans_of"]


class Span(NamedTuple):
    """Some elements of an array, and the nulls in the lists around them."""

    chunk: Chunk
    start: int
    length: int
    missing: tuple[Missing, ...] = ()

    @property
    def at(self) -> int:
        """The position of the first element in the buffers."""
        return self.chunk.offset + self.start


def spans_of(chunks: Sequence[Chunk | Span]) -> list[Span]:
    """The elements of chunks, as spans."""
    return [each if isinstance(each, Span) else Span(each, 0, each.length) for each in chunks]


def marker(inner: tuple[int, ...]) -> Any:
    """A function that adds the nulls of a span's own array to those around it."""
    each = prod(inner)

    def mark(span: Span) -> Span:
        chunk = span.chunk
        if not chunk.null_count or not chunk.buffers or not chunk.buffers[0]:
            if chunk.null_count > 0 and chunk.buffers:
                raise UnsupportedTypeError(
                    "This array of Arrow's counts nulls, and does not say which.", None
                )
            return span
        bits = bits_in(span, 0)
        whole = not chunk.offset and span.length == chunk.length
        if not (whole and chunk.null_count > 0) and not bits.zeros()[0]:
            return span
        return span._replace(missing=(*span.missing, Missing(bits, each)))

    return mark


def missing_in(span: Span, inner: tuple[int, ...]) -> Array | None:
    """A mask of the null elements of a span, including nulls around them; ``None`` without nulls."""
    size = max(1, prod(inner))
    return gone_in(span.missing, 0, span.length // size, size)


def bits_in(span: Span, buffer: int) -> Bits:
    """The bits of a span in one of its buffers."""
    first, last = span.at // 8, -(-(span.at + span.length) // 8)
    packed = bytes_at(
        buffer_of(span, buffer) + first, (last - first,), numpy_dtype("uint8"), span.chunk.owner
    )
    return Bits(packed, span.at % 8, span.length)


def buffer_of(span: Span, index: int) -> int:
    """The address of a buffer.

    Raises:
        UnsupportedTypeError: There is none, and the span has elements.
    """
    if index >= len(span.chunk.buffers) or (span.length and not span.chunk.buffers[index]):
        raise UnsupportedTypeError(
            "This array of Arrow's has elements, and no memory for them.", None
        )
    return span.chunk.buffers[index]


def over(span: Span, dtype: str, *, more: int = 0) -> Array:
    """An array over the numbers in a buffer: one for each element, and `more`."""
    native = numpy_dtype(dtype)
    start = buffer_of(span, 1) + span.at * native.itemsize
    return bytes_at(start, (span.length + more,), native, span.chunk.owner)


def piece_of(span: Span, inner: tuple[int, ...], values: Any) -> Piece:
    """A piece of a column, of these values, with the nulls of the span."""
    return Piece(span.length // max(1, prod(inner)), values, span.missing)
