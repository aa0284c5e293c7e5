"""Arrow's objects: spans of their memory, and what they are told apart by."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..core.named_tuple import NamedTuple
from ..errors import UnsupportedTypeError
from ..hints import Hint
from ..host.numpy_dtypes import numpy_dtype
from .interface import NUMBERS, bytes_at
from .pieces import Bits, Missing, Piece, gone_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

    from ..typing import Array
    from .interface import Chunk, Type


__all__ = [
    "Span",
    "bits_in",
    "buffer_of",
    "missing_in",
    "null_marker",
    "objects_in",
    "over",
    "piece_of",
    "spans_of",
]


# -- spans -----------------------------------------------------------------------------------------
#
# (https://arrow.apache.org/docs/format/Columnar.html)


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
    return [chunk if isinstance(chunk, Span) else Span(chunk, 0, chunk.length) for chunk in chunks]


def null_marker(inner: tuple[int, ...]) -> Any:
    """A function that adds the nulls of a span's own array to those around it."""
    many = prod(inner)

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
        return span._replace(missing=(*span.missing, Missing(bits, many)))

    return mark


def missing_in(span: Span, inner: tuple[int, ...]) -> Array | None:
    """A mask of a span's null elements, including nulls around them; ``None`` without nulls."""
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


# -- Arrow's objects -------------------------------------------------------------------------------
#
# (https://arrow.apache.org/docs/format/Columnar.html)

_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_SHORT = frozenset({"tts", "ttm"})
_MIDNIGHT = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIXED_ZONE = re.compile(r"([+-])([01]\d|2[0-3]):?([0-5]\d)?")
_INLINE = 12
"""Text of up to so many bytes is in its view itself."""


def objects_in(kind: Type, chunks: Sequence[Chunk | Span]) -> list[Any]:
    """The values of a column as Python objects, with ``None`` for nulls.

    Lists become lists, fields dicts, and maps lists of pairs. Dates in nanoseconds, or beyond the
    year 9999, become ``np.datetime64``, because Python's own have microseconds and four digits;
    durations likewise. Intervals become tuples of months, days and nanoseconds, as far as they have
    them.

    Args:
        kind: The column's type.
        chunks: Its chunks, or the spans from `layouts.fields_as_spans`.

    Raises:
        UnsupportedTypeError: Python has no such objects (unions), or the memory does not fit the
            type.
    """
    objects: list[Any] = []
    for span in spans_of(chunks):
        values = _values_of_span(kind, span) if span.length else []
        for missing in span.missing:
            gone = missing.part(0, span.length)
            values = [
                None if is_gone else value for value, is_gone in zip(values, gone, strict=True)
            ]
        objects += values
    row = next((row for row, thing in enumerate(objects) if type(thing) is _Broken), None)
    if row is not None:
        raise UnsupportedTypeError(
            f"An array of Arrow's has {objects[row].why}, at row {row}.", None
        )
    return objects


class _Broken(NamedTuple):
    """What stands for a value that the memory does not have. It is an error unless it is null."""

    why: str


def _values_of_span(kind: Type, span: Span) -> list[Any]:
    if kind.format == "n":
        return [None] * span.length
    chunk = span.chunk
    values = _present_values(kind, span)
    # An array in runs and a union have no nulls of their own.
    if (
        kind.format[:2] in ("+r", "+u")
        or not chunk.null_count
        or not chunk.buffers
        or not chunk.buffers[0]
    ):
        return values
    there = bits_in(span, 0).part(0, span.length)
    return [value if is_there else None for value, is_there in zip(values, there, strict=True)]


def _present_values(kind: Type, span: Span) -> list[Any]:
    """The values, with any object in place of nulls."""
    code = kind.format
    if kind.values is not None:
        if span.chunk.values is None:
            raise UnsupportedTypeError(
                "This array of Arrow's is indices, and has no dictionary.", None
            )
        meanings = objects_in(kind.values, [span.chunk.values])
        none = _Broken("an index past its dictionary")
        return [
            meanings[code_of_row] if 0 <= code_of_row < len(meanings) else none
            for code_of_row in over(span, NUMBERS[code]).tolist()
        ]
    if code in NUMBERS:
        return over(span, NUMBERS[code]).tolist()  # type: ignore[no-any-return]
    if code == "b":
        return bits_in(span, 1).part(0, span.length).astype(bool).tolist()  # type: ignore[no-any-return]
    if code[:2] == "w:":
        return _of_width(span, int(code[2:]))
    if code[0] == "t" and code[:2] != "ti":
        return _dates(code, span)
    reader = next((_READERS[start] for start in (code, code[:2]) if start in _READERS), None)
    if reader is None:
        raise UnsupportedTypeError(
            f"Python has no objects for Arrow's format {code!r}.",
            Hint(hints.code("pa.table(x)"), ", whose columns pyarrow reads"),
        )
    return reader(kind, span)


def _bytes_in_buffer(span: Span, buffer: int, start: int, length: int) -> bytes:
    there = (
        bytes_at(buffer_of(span, buffer) + start, (length,), np.dtype("uint8"), span.chunk.owner)
        if length
        else b""
    )
    return bytes(there)


def _of_width(span: Span, width: int) -> list[bytes]:
    whole = span.length * width
    if width:
        return _bytes_of(
            _bytes_in_buffer(span, 1, span.at * width, whole), range(0, whole + 1, width)
        )
    return [b""] * span.length


def _bytes_of(data: bytes, ends: Sequence[int]) -> list[bytes]:
    return [data[start:stop] for start, stop in pairwise(ends)]


# -- by type ---------------------------------------------------------------------------------------


def _element_offsets(span: Span, dtype: str) -> list[int]:
    """Where each element begins, and where the last one ends.

    Raises:
        UnsupportedTypeError: An offset is less than the one before it.
    """
    offsets = over(span, dtype, more=1)
    if offsets[0] < 0 or (np.diff(offsets) < 0).any():
        raise UnsupportedTypeError("The offsets of an array of Arrow's go back.", None)
    return offsets.tolist()  # type: ignore[no-any-return]


def _text(kind: Type, span: Span) -> list[Any]:
    ends = _element_offsets(span, "int64" if kind.format in "UZ" else "int32")
    data = _bytes_in_buffer(span, 2, ends[0], ends[-1] - ends[0])
    texts = _bytes_of(data, [end - ends[0] for end in ends])
    if kind.format in "uU":
        return list(map(_decoded, texts))
    return texts


def _decoded(text: Any) -> Any:
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError:
        return _Broken("text that is not UTF-8")


def _views(kind: Type, span: Span) -> list[Any]:
    """Text and bytes in views: a length, then the bytes themselves, or where they are."""
    # The last buffer has the lengths of those between.
    *more, lengths = range(2, len(span.chunk.buffers)) or [0]
    if more:
        sizes: Any = bytes_at(
            span.chunk.buffers[lengths], (len(more),), np.dtype("int64"), span.chunk.owner
        )
    else:
        sizes = []
    packed, none = (
        _bytes_in_buffer(span, 1, span.at * 16, span.length * 16),
        _Broken("a view of text past its buffers"),
    )
    texts: list[Any] = []
    for start in range(0, len(packed), 16):
        length, _, buffer, offset = np.frombuffer(packed, "int32", 4, start).tolist()
        if length <= _INLINE:
            texts.append(packed[start + 4 : start + 4 + max(length, 0)])
        elif 0 <= buffer < len(more) and 0 <= offset <= int(sizes[buffer]) - length:
            texts.append(_bytes_in_buffer(span, more[buffer], offset, length))
        else:
            texts.append(none)
    if kind.format == "vu":
        return list(map(_decoded, texts))
    return texts


def _dates(code: str, span: Span) -> list[Any]:
    unit = "D" if code == "tdD" else _UNITS[code[2]]
    short = code == "tdD" or code in _SHORT
    counts = over(span, "int32" if short else "int64").astype("int64")
    if code[1] == "D":
        return _listed(counts.view(f"m8[{unit}]"))
    if code[1] == "t":
        counted = _listed(counts.view(f"m8[{unit}]"))
        return [
            _time(duration) if isinstance(duration, timedelta) else duration for duration in counted
        ]
    dates = _listed(counts.view(f"M8[{unit}]"))
    if code[1] == "d":
        return [moment.date() if isinstance(moment, datetime) else moment for moment in dates]
    zone = code.partition(":")[2]
    if not zone or unit == "ns":
        return dates
    there, naive = _zone_of(zone), counts.view(f"M8[{unit}]")
    return [_in_zone(moment, there, naive[index]) for index, moment in enumerate(dates)]


def _time(since_midnight: timedelta) -> Any:
    # Outside of a day, which is no time, it stays what it is.
    if 0 <= since_midnight.days < 1:
        return (_MIDNIGHT + since_midnight).time()
    return since_midnight


def _listed(dates: Array) -> list[Any]:
    """As Python's own objects; what they cannot say as NumPy's."""
    own = (date, datetime, timedelta)
    return [
        moment if isinstance(moment, own) else dates[index]
        for index, moment in enumerate(dates.tolist())
    ]


def _in_zone(moment: Any, zone: tzinfo, otherwise: Any) -> Any:
    try:
        return (
            moment.replace(tzinfo=timezone.utc).astimezone(zone)
            if isinstance(moment, datetime)
            else moment
        )
    except OverflowError:  # there, it is the year 10,000
        return otherwise


def _zone_of(name: str) -> tzinfo:
    fixed = _FIXED_ZONE.fullmatch(name)
    if fixed is not None:
        offset = timedelta(hours=int(fixed[2]), minutes=int(fixed[3] or 0))
        return timezone(-offset if fixed[1] == "-" else offset)
    from zoneinfo import ZoneInfo  # here, because only dates in zones need it

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # it may be the name of a folder of zones
        raise UnsupportedTypeError(
            f"Python does not know the time zone {name!r}.",
            "pip install tzdata, which has all common zones",
        ) from error


def _decimals(kind: Type, span: Span) -> list[Any]:
    scale, bits = (int(text) for text in (*kind.format[2:].split(","), "128")[1:3])
    numbers = [int.from_bytes(word, "little", signed=True) for word in _of_width(span, bits // 8)]
    # From its digits, because arithmetic rounds to the precision of the context.
    return [Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)) for number in numbers]


def _intervals(kind: Type, span: Span) -> list[Any]:
    layout = np.dtype({"tiM": "i4,", "tiD": "i4,i4", "tin": "i4,i4,i8"}[kind.format])
    there = _bytes_in_buffer(span, 1, span.at * layout.itemsize, span.length * layout.itemsize)
    return np.frombuffer(there, layout).tolist()  # type: ignore[no-any-return]


def _lists(kind: Type, span: Span) -> list[Any]:
    ends = _element_offsets(span, "int64" if kind.format == "+L" else "int32")
    return _split_lists(kind, span, ends)


def _list_views(kind: Type, span: Span) -> list[Any]:
    integers = np.dtype("int64" if kind.format == "+vL" else "int32")
    sizes = bytes_at(
        buffer_of(span, 2) + span.at * integers.itemsize, (span.length,), integers, span.chunk.owner
    ).tolist()
    starts, child = over(span, integers.name).tolist(), span.chunk.children[0]
    if min(starts) < 0 or min(sizes) < 0 or max(map(int.__add__, starts, sizes)) > child.length:
        raise UnsupportedTypeError("A view of a list of Arrow's points past its elements.", None)
    elements = objects_in(kind.children[0], [child])
    return [elements[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def _fixed(kind: Type, span: Span) -> list[Any]:
    width = int(kind.format[3:])
    return _split_lists(
        kind, span, [index * width for index in range(span.at, span.at + span.length + 1)]
    )


def _split_lists(kind: Type, span: Span, ends: list[int]) -> list[Any]:
    child = span.chunk.children[0]
    if ends[-1] > child.length:
        raise UnsupportedTypeError("A list of Arrow's ends past its elements.", None)
    elements = objects_in(kind.children[0], [Span(child, ends[0], ends[-1] - ends[0])])
    return [elements[start - ends[0] : stop - ends[0]] for start, stop in pairwise(ends)]


def _maps(kind: Type, span: Span) -> list[Any]:
    return [[tuple(pair.values()) for pair in pairs] for pairs in _lists(kind, span)]


def _fields(kind: Type, span: Span) -> list[Any]:
    if any(span.at + span.length > child.length for child in span.chunk.children):
        raise UnsupportedTypeError("A field of Arrow's ends before its rows.", None)
    columns = [
        objects_in(child, [Span(values, span.at, span.length)])
        for child, values in zip(kind.children, span.chunk.children, strict=True)
    ]
    names = [child.name for child in kind.children]
    if len(set(names)) < len(names):
        raise UnsupportedTypeError(
            "Two fields of Arrow's have the same name, and one would be lost.", None
        )
    rows = zip(*columns, strict=True) if columns else [()] * span.length
    return [dict(zip(names, row, strict=True)) for row in rows]


_READERS: dict[str, Callable[[Type, Span], list[Any]]] = {
    **dict.fromkeys(("u", "U", "z", "Z"), _text),
    **dict.fromkeys(("vu", "vz"), _views),
    **dict.fromkeys(("+l", "+L"), _lists),
    "+v": _list_views,
    "d:": _decimals,
    "ti": _intervals,
    "+w": _fixed,
    "+m": _maps,
    "+s": _fields,
}
"""For each format, or its first two characters, the function that reads it."""
