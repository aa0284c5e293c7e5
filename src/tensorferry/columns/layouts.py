"""Read Arrow's memory by its type: as a `Column`, or the reason why it is not one."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.dtypes import DTYPES
from ..core.kinds import DECIMALS, Reason
from ..errors import UnsupportedTypeError
from ..host.numpy_dtypes import numpy_dtype
from .column import (
    BYTES,
    CODES,
    DECODED,
    FIELDS,
    LIST,
    NO_CODE,
    STORAGE,
    TEXT,
    WITHOUT_NULLS,
    WORDS,
    Column,
    ColumnCode,
    Ragged,
    Refused,
)
from .interface import NUMBERS, bytes_at
from .objects import (
    Span,
    bits_in,
    buffer_of,
    missing_in,
    null_marker,
    objects_in,
    over,
    piece_of,
    spans_of,
)
from .pieces import Decimals, DictionaryEncoded, Missing, Piece

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from ..typing import Array
    from .column import Found
    from .interface import Chunk, Type


__all__ = [
    "CATEGORIES",
    "DATES",
    "LISTED",
    "ROUNDED",
    "are_integers",
    "as_booleans",
    "asked_of",
    "codes_of",
    "column_of",
    "decimals_in",
    "fields_as_spans",
    "listed_tensors",
    "nested_lists",
    "piece_looked_up",
    "tensor_column",
    "tensors_of_any_shape",
]


# -- dictionaries ----------------------------------------------------------------------------------
#
# (https://arrow.apache.org/docs/format/Columnar.html#dictionary-encoded-layout)


def piece_looked_up(
    indices: Array,
    values: Array,
    absent: Array,
    gone: Array | None,
    encoded: str,
    first: int,
    inner: tuple[int, ...],
) -> Piece:
    """A piece of a column whose values are looked up.

    Args:
        indices: The index of each value.
        values: What is looked up.
        absent: Which of them are null.
        gone: Which of the indices are null; ``None`` if none is.
        encoded: The encoding, as the end of a sentence.
        first: The row of the column that the first index is in.
        inner: The shape of a row.

    Raises:
        UnsupportedTypeError: An index is outside of the values.
    """
    size = max(1, prod(inner))
    decoded = DictionaryEncoded(indices, values, gone, encoded, first, size)
    if absent.any():
        beyond = decoded.look_up(absent, 0, len(indices))
        if gone is None:
            decoded.missing = beyond
        else:
            decoded.missing = beyond | gone
    marks = () if decoded.missing is None else (Missing(decoded.missing, prod(inner)),)
    return Piece(len(indices) // size, decoded, marks)


def codes_of(kind: Type, values: Type, spans: Sequence[Span], inner: tuple[int, ...]) -> Column:
    """The codes of categories.

    If the chunks have several dictionaries, they are those of one for all, in its order.

    Args:
        kind: The type of the codes.
        values: The type of the categories: text or bytes.
        spans: The codes.
        inner: The shape of a row.

    Raises:
        UnsupportedTypeError: A chunk has no dictionary.
    """
    dictionaries: dict[Any, Chunk] = {}
    for span in spans:
        if span.chunk.values is None:
            raise UnsupportedTypeError(
                "This array of Arrow's is indices, and has no dictionary.", None
            )
        dictionaries.setdefault(_memory_of(span.chunk.values), span.chunk.values)
    integers = NUMBERS[kind.format]
    if len(dictionaries) < 2 and not any(map(_has_nulls, dictionaries.values())):
        pieces = [piece_of(span, inner, over(span, integers).reshape(-1, *inner)) for span in spans]
        column = Column(integers, inner, pieces, unit=CODES)
        column.categories = lambda: objects_in(values, [*dictionaries.values()])
        return column
    places: dict[Any, int] = {}
    known = {at: objects_in(values, [dictionary]) for at, dictionary in dictionaries.items()}
    if len(known) > 1:
        codes = {
            at: [places.setdefault(value, len(places)) for value in words]
            for at, words in known.items()
        }
    else:
        codes = {at: list(range(len(words))) for at, words in known.items()}
    # There may be more categories together than the integers of one chunk can count.
    if len(places) <= np.iinfo(integers).max:
        dtype = integers
    else:
        dtype = "int64"
    pieces = []
    for span in spans:
        at = _memory_of(span.chunk.values)
        absent = np.fromiter((value is None for value in known[at]), bool)
        first = sum(piece.rows for piece in pieces)
        indices, gone = over(span, integers), missing_in(span, inner)
        table = np.array(codes[at], numpy_dtype(dtype))
        pieces.append(
            piece_looked_up(indices, table, absent, gone, "by several dictionaries", first, inner)
        )
    column = Column(dtype, inner, pieces, unit=CODES)
    column.categories = lambda: (
        [*places] if places else [value for words in known.values() for value in words]
    )
    return column


def _memory_of(dictionary: Chunk | None) -> Any:
    return None if dictionary is None else dictionary[:4]


def _has_nulls(dictionary: Chunk) -> bool:
    span = Span(dictionary, 0, dictionary.length)
    return null_marker(())(span) is not span


# -- extension types whose values are tensors, or booleans of a byte each --------------------------
#
# (https://arrow.apache.org/docs/format/CanonicalExtensions.html)


_ANY_BYTES = Reason("booleans of a byte that may have any value")


def as_booleans(column: Found) -> Found:
    """Bytes as booleans: all except 0 are true."""
    if not isinstance(column, Column):
        return column
    pieces = [
        Piece(piece.rows, piece.values != 0, piece.missing)
        for piece in column.pieces
        if isinstance(piece.values, np.ndarray)
    ]
    return Column("bool", column.inner, pieces, reasons=(_ANY_BYTES,))


def tensor_column(metadata: bytes, column: Found, inner: tuple[int, ...]) -> Found:
    """A column of tensors of one shape.

    Raises:
        UnsupportedTypeError: The shape does not fit the number of elements, or there is none.
    """
    said = _said_in(metadata)
    shape = _lengths_in(said.get("shape"))
    if shape is None or said.get("permutation") is None:
        order = None
    else:
        order = _lengths_in(said["permutation"]) or ()
    if shape is None or (order is not None and sorted(order) != [*range(len(shape))]):
        raise UnsupportedTypeError(_WITHOUT_SHAPE, None)
    if not isinstance(column, Column):
        return column
    if prod(shape) != prod(column.inner[len(inner) :]):
        raise UnsupportedTypeError(
            "The shape of these tensors is not that of their elements.", None
        )
    before = len(inner)
    column = _reshaped(column, (*inner, *shape))
    if order is not None:
        column.order = (*range(before), *(before + axis for axis in order))
    return column


LISTED = frozenset({"ray.data.arrow_tensor", "ray.data.arrow_tensor_v2"})
"""Types of tensors of one shape: storage is lists of elements, metadata is the shape in JSON.

https://github.com/ray-project/ray/blob/master/python/ray/data/_internal/tensor_extensions/arrow.py
"""


def listed_tensors(metadata: bytes, column: Found) -> Found | None:
    """A column of `LISTED` tensors; ``None`` if metadata are no JSON, or the rows do not fit it."""
    try:
        shape = _lengths_in(json.loads(metadata))
    except ValueError:  # pickled by an old version
        return None
    if shape is None or isinstance(column, Ragged):
        return None
    if not isinstance(column, Column):
        return column
    if column.rows and (len(column.inner) != 1 or prod(shape) != column.inner[0]):
        return None
    return _reshaped(column, shape)


def nested_lists(metadata: bytes, column: Found) -> Found:
    """Nested lists without rows, with the lengths in metadata of datasets' `Array3D` and others.

    (https://github.com/huggingface/datasets/blob/main/src/datasets/features/features.py)
    """
    if not isinstance(column, Column):
        return column
    try:
        said = json.loads(metadata)
    except ValueError:
        return column
    if type(said) is list and said and type(said[0]) is list:
        shape = _lengths_in([length or 0 for length in said[0]])
    else:
        shape = None
    if shape is not None and len(shape) == len(column.inner):
        return _reshaped(column, shape)
    return column


_WITHOUT_SHAPE = "The metadata of these tensors does not say what their shape is."


def _said_in(metadata: bytes) -> dict[str, Any]:
    """What an extension type says in JSON."""
    try:
        said = json.loads(metadata or b"{}")
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise UnsupportedTypeError(_WITHOUT_SHAPE, None)
    return said


def _lengths_in(x: object) -> tuple[int, ...] | None:
    """A list from JSON, as lengths; ``None`` if it is not a list of integers from 0 on."""
    if isinstance(x, list) and all(type(length) is int and length >= 0 for length in x):
        return tuple(x)
    return None


def _reshaped(column: Column, inner: tuple[int, ...]) -> Column:
    pieces = [
        piece._replace(values=piece.values.reshape(piece.rows, *inner))
        if isinstance(piece.values, np.ndarray)
        else piece
        for piece in column.pieces
    ]
    return Column(column.dtype, inner, pieces, unit=column.unit, reasons=column.reasons)


def tensors_of_any_shape(metadata: bytes, data: Found, shape: Found) -> Found:
    """A column of tensors with different shapes.

    Raises:
        UnsupportedTypeError: A shape does not fit the number of elements.
    """
    if _said_in(metadata).get("permutation"):
        return Refused("has tensors whose axes are permuted", STORAGE)
    if isinstance(data, Refused):
        return data
    if not isinstance(shape, Column) or len(shape.inner) != 1 or shape.dtype != "int32":
        return Refused("has tensors without shapes", STORAGE)
    if shape.nulls[0]:
        return Refused(f"has a null in the shape of a tensor, at row {shape.nulls[1]}", STORAGE)
    sizes = shape.values_with_any_nulls()
    if isinstance(data, Column):
        counts = np.full(data.rows, prod(data.inner))
    else:
        counts = data.lengths
    if (sizes.prod(1) != counts).any() or (sizes < 0).any():
        raise UnsupportedTypeError(
            "The shapes of these tensors are not those of their elements.", None
        )
    if len(sizes) and (sizes != sizes[0]).any():
        elements = data.elements if isinstance(data, Ragged) else None
        if elements is None and isinstance(data, Column):
            flat = [
                Piece(piece.rows * prod(data.inner), piece.values.reshape(-1), ())
                for piece in data.pieces
                if isinstance(piece.values, np.ndarray) and not piece.missing
            ]
            if len(flat) != len(data.pieces):
                return Refused("has tensors of unequal shapes with nulls, or of bits", STORAGE)
            elements = Column(data.dtype, (), flat)
        assert elements is not None  # noqa: S101 - for the type checker
        return Ragged(elements, counts, sizes)
    if not isinstance(data, Column):
        return data
    return _reshaped(data, tuple(map(int, sizes[0])) if len(sizes) else (0,) * shape.inner[0])


# -- by type ---------------------------------------------------------------------------------------
#
# (https://arrow.apache.org/docs/format/Columnar.html)

_TEXTS, _BYTES = ("u", "U", "vu"), ("z", "Z", "vz")
_UNITS = {"s": "seconds", "m": "milliseconds", "u": "microseconds", "n": "nanoseconds", "D": "days"}
CATEGORIES = Refused(
    "holds categories, which are no numbers",
    ColumnCode(remark=", which gives their codes"),
    stays=True,
    asked="int64",
    instead=NO_CODE,
)
ROUNDED = ColumnCode('x.astype("float64")', ", which rounds")
_FRACTIONS = Refused(
    "holds decimals with a fraction, which no dtype keeps",
    ColumnCode(remark=", which rounds"),
    asked="float64",
)
DATES = "holds dates or durations, which are counts of a unit"
_ROWS = "holds rows or fields, which are no numbers"
_OF_EXTENSION = b"ARROW:extension:metadata"


def column_of(kind: Type, chunks: Sequence[Chunk | Span], asked: str | None = None) -> Found:
    """Read chunks of an array as a column.

    Args:
        kind: Its type.
        chunks: Its chunks, or the spans from `fields_as_spans`. Those without rows are left out.
        asked: The requested dtype. With an integer dtype, dates become counts and categories become
            codes; with a float dtype, decimals are rounded.

    Raises:
        UnsupportedTypeError: The memory does not fit the type.
    """
    spans = [span for span in spans_of(chunks) if span.length]
    column = _column(kind, spans, (), asked)
    if isinstance(column, Refused) and column.asked:
        counted = _column(kind, spans, (), column.asked)
        return column._replace(lacks=isinstance(counted, Column) and counted.nulls[0] > 0)
    return column


def asked_of(dtype: str | None, casting: str | None) -> str | None:
    """The requested dtype for `column_of`; ``None`` if none, or if `casting` forbids rounding."""
    strict = casting in ("safe", "same_value") and not are_integers(dtype)
    return None if strict or dtype not in DTYPES else dtype


def are_integers(asked: str | None) -> bool:
    """Whether the requested dtype is an integer dtype."""
    return asked in DTYPES and DTYPES[asked].kind in ("int", "uint")


def fields_as_spans(kind: Type, chunks: Sequence[Chunk]) -> list[tuple[Type, list[Span]]]:
    """The columns of a table, which is a struct array, as spans for `column_of`."""
    spans = [null_marker(())(Span(chunk, 0, chunk.length)) for chunk in chunks]
    for span in spans:
        if any(span.at + span.length > child.length for child in span.chunk.children):
            raise UnsupportedTypeError(
                "A table of Arrow's has a column that ends before its rows.", None
            )
    return [
        (
            child,
            [
                Span(span.chunk.children[index], span.at, span.length, span.missing)
                for span in spans
            ],
        )
        for index, child in enumerate(kind.children)
    ]


def _column(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    if kind.extension:
        return _extension(kind.extension, kind, spans, inner, asked)
    if not spans and not inner and _OF_EXTENSION in kind.metadata:
        column = _column(kind._replace(metadata={}), spans, inner, asked)
        return nested_lists(kind.metadata[_OF_EXTENSION], column)
    code = kind.format
    if kind.values is not None:
        return _dictionary(kind, kind.values, spans, inner, asked)
    if code in NUMBERS:
        return _numbers(NUMBERS[code], spans, inner)
    if code == "b":
        return Column(
            "bool",
            inner,
            [piece_of(span, inner, bits_in(span, 1)) for span in map(null_marker(inner), spans)],
        )
    if code[:3] == "+w:":
        return _fixed(kind, int(code[3:]), spans, inner, asked)
    if code in ("+l", "+L"):
        return _lists(kind, spans, inner, asked)
    if code == "+r":
        return _runs(kind, spans, inner, asked)
    if code[0] == "t" and code[:2] != "ti":
        return _dates(kind, spans, inner, asked)
    if code[:2] == "d:":
        return _decimals(kind, spans, inner, asked)
    if code == "+s" and not inner and {child.name for child in kind.children} == {"bytes", "path"}:
        return Refused("holds files, such as images", DECODED, stays=True)
    if code[:2] == "+v":
        below = _column(kind.children[0], [], (), asked)
        stays = isinstance(below, Refused) and below.stays
        return Refused("holds views of lists, whose rows lie in any order", LIST, stays)
    return _refusal(code, inner)


def _refusal(code: str, inner: tuple[int, ...]) -> Refused:
    if code in _TEXTS:
        return Refused(TEXT, LIST if inner else WORDS, stays=True)
    if code in _BYTES or code[:2] == "w:":
        return Refused(BYTES, LIST, stays=True)
    if code == "n":
        return Refused("has nulls alone, and no dtype", LIST, stays=True)
    if code[:2] == "ti":
        return Refused(
            "holds dates or durations, which are counts of several units", LIST, stays=True
        )
    if code == "+s":
        return Refused(
            "holds fields, which are several columns", LIST if inner else FIELDS, stays=True
        )
    return Refused(_ROWS, LIST, stays=code[:2] in ("+m", "+u"))


# -- by type ---------------------------------------------------------------------------------------


def _numbers(dtype: str, spans: list[Span], inner: tuple[int, ...]) -> Column:
    pieces = [
        piece_of(span, inner, over(span, dtype).reshape(-1, *inner) if inner else over(span, dtype))
        for span in map(null_marker(inner), spans)
    ]
    return Column(dtype, inner, pieces)


def _fixed(
    kind: Type, width: int, spans: list[Span], inner: tuple[int, ...], asked: str | None
) -> Found:
    below, marked = [], list(map(null_marker(inner), spans))
    for span in marked:
        child = span.chunk.children[0]
        if (span.at + span.length) * width > child.length:
            raise UnsupportedTypeError("A list of Arrow's ends past its elements.", None)
        below.append(Span(child, span.at * width, span.length * width, span.missing))
    if not width:
        return _without_elements(kind.children[0], marked, inner, asked)
    return _column(kind.children[0], below, (*inner, width), asked)


def _lists(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    integers = "int64" if kind.format == "+L" else "int32"
    measured, size, before = [], max(1, prod(inner)), 0
    for span in spans:
        measured.append(_offsets(span, integers, before, size))
        before += span.length // size
    each_of = [length for _, _, length in measured] or [np.zeros(0, np.int64)]
    if len(each_of) == 1:
        lengths = each_of[0]
    else:
        lengths = np.concatenate(each_of)
    differ = len(lengths) > 0 and bool((lengths != lengths[0]).any())
    before = 0
    for span in spans:
        # A list in a row that is null, as rows of a struct may be, has no length either.
        gone = missing_in(null_marker(inner)(span), inner)
        if gone is not None:
            return _no_list(before + int(gone.argmax()) // size, inner)
        before += span.length // size
    below = [
        Span(span.chunk.children[0], start, stop - start, span.missing)
        for span, (start, stop, _) in zip(spans, measured, strict=True)
    ]
    if differ:
        elements = _column(kind.children[0], below, (), asked)
        if isinstance(elements, Refused) and (elements.stays or elements.asked):
            if elements.asked:
                return elements
            return elements._replace(hint=LIST)
        if inner or not isinstance(elements, Column):
            row = int((lengths != lengths[0]).argmax()) // size
            return Refused(f"has lists of unequal lengths in each other, at row {row}", LIST)
        return Ragged(elements, lengths)
    width = int(lengths[0]) if len(lengths) else 0
    if not width:
        return _without_elements(kind.children[0], spans, inner, asked)
    return _column(kind.children[0], below, (*inner, width), asked)


def _no_list(row: int, inner: tuple[int, ...]) -> Refused:
    return Refused(
        f"has a null in the place of a list, at row {row}", LIST if inner else WITHOUT_NULLS
    )


def _without_elements(
    kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None
) -> Found:
    size, lists = max(1, prod(inner)), 0
    for span in spans:
        # Without elements, a null list still differs from an empty list.
        gone = missing_in(span, inner)
        if gone is not None:
            return _no_list((lists + int(gone.argmax())) // size, inner)
        lists += span.length
    elements = _column(kind, [], (), asked)
    if not isinstance(elements, Column):
        return elements
    rows, shape = lists // size, (*inner, 0, *elements.shape[1:])
    pieces = []
    if rows:
        pieces.append(Piece(rows, np.empty((rows, *shape), numpy_dtype(elements.dtype))))
    return Column(elements.dtype, shape, pieces, unit=elements.unit, reasons=elements.reasons)


def _offsets(span: Span, dtype: str, first: int, many: int) -> tuple[int, int, Array]:
    """Where the lists of a span begin and end among the elements, and their lengths.

    Args:
        span: The lists.
        dtype: The dtype of the ends.
        first: The row of the column that the first list is in.
        many: How many lists a row has.

    Raises:
        UnsupportedTypeError: An offset is less than the one before it, or past the elements.
    """
    ends = over(span, dtype, more=1)
    lengths, start, stop = ends[1:] - ends[:-1], int(ends[0]), int(ends[-1])
    count = span.chunk.children[0].length
    if lengths.min(initial=0) < 0 or start < 0 or stop > count:
        row = first + int(((lengths < 0) | (ends[:-1] < 0) | (ends[1:] > count)).argmax()) // many
        raise UnsupportedTypeError(
            f"The ends of lists of Arrow's go back, or past their elements, at row {row}.", None
        )
    return start, stop, lengths


def _runs(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    ends_kind = NUMBERS.get(kind.children[0].format, "int32")
    parts: list[Span] = []
    indices: list[Array] = []
    for span in spans:
        ends, values = span.chunk.children
        places = over(Span(ends, 0, ends.length), ends_kind)
        if (np.diff(places, prepend=0) <= 0).any() or places[-1:].sum() < span.at + span.length:
            raise UnsupportedTypeError(
                "The runs of an array of Arrow's go back, or end before its rows.", None
            )
        indices.append(
            np.searchsorted(places, np.arange(span.at, span.at + span.length), side="right")
        )
        parts.append(Span(values, 0, values.length))
    return _looked_up(
        kind.children[1],
        parts,
        indices,
        [missing_in(span, inner) for span in spans],
        inner,
        asked,
        "in runs",
    )


def _dictionary(
    kind: Type, values: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None
) -> Found:
    marked = list(map(null_marker(inner), spans))
    if values.format in (*_TEXTS, *_BYTES):
        if are_integers(asked):
            return codes_of(kind, values, marked, inner)
        return CATEGORIES
    parts = []
    for span in marked:
        if span.chunk.values is None:
            raise UnsupportedTypeError(
                "This array of Arrow's is indices, and has no dictionary.", None
            )
        parts.append(Span(span.chunk.values, 0, span.chunk.values.length))
    indices = [over(span, NUMBERS[kind.format]) for span in marked]
    return _looked_up(
        values, parts, indices, [missing_in(span, inner) for span in marked], inner, asked
    )


def _looked_up(
    kind: Type,
    parts: list[Span],
    indices: list[Array],
    missing: list[Array | None],
    inner: tuple[int, ...],
    asked: str | None,
    encoded: str = "by a dictionary",
) -> Found:
    """A column whose values are looked up in a dictionary or in runs."""
    decoded = _column(kind, parts, (), asked)
    if isinstance(decoded, Ragged) or (isinstance(decoded, Column) and decoded.inner):
        return Refused("holds lists in a dictionary", LIST)
    if isinstance(decoded, Refused):
        if decoded.asked:
            return decoded
        return decoded._replace(hint=LIST)
    pieces: list[Piece] = []
    for part, index, gone in zip(parts, indices, missing, strict=True):
        own = _column(kind, [part] if part.length else [], (), asked)
        assert isinstance(own, Column)  # noqa: S101 - as the whole is
        first = sum(piece.rows for piece in pieces)
        decimals = own.pieces[0].values if own.pieces else None
        if isinstance(decimals, Decimals):
            # They are read after they are looked up, so that an error names the row, and only
            # values with a row count.
            piece = piece_looked_up(
                index, decimals.words, own.missing(), gone, encoded, first, inner
            )
            pieces.append(
                piece._replace(values=decimals.looked_up(piece.values, piece.missing, first))
            )
        else:
            pieces.append(
                piece_looked_up(
                    index, own.values_with_any_nulls(), own.missing(), gone, encoded, first, inner
                )
            )
    return Column(
        decoded.dtype,
        inner,
        pieces,
        unit=decoded.unit,
        reasons=() if pieces else (Reason.encoded(encoded),),
    )


def _dates(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    code = kind.format
    unit = _UNITS[code[2]]
    if not are_integers(asked):
        remark = ColumnCode(remark=f", which counts {unit}")
        return Refused(DATES, remark, stays=True, asked="int64")
    short = code in ("tdD", "tts", "ttm")
    column = _numbers("int32" if short else "int64", spans, inner)
    zone = code.partition(":")[2]
    column.unit = f"{unit}{' since 1970' if code[1] in 'ds' else ''}{' in UTC' if zone else ''}"
    return column


def _decimals(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    scale, bits = (int(text) for text in (*kind.format.split(","), "128")[1:3])
    dtype = _dtype_of_decimals(scale, asked)
    if not dtype:
        return _FRACTIONS
    width, word = max(1, bits // 64), numpy_dtype("int64" if bits >= 64 else "int32")
    pieces: list[Piece] = []
    for span in map(null_marker(inner), spans):
        at = buffer_of(span, 1) + span.at * (bits // 8)
        words = bytes_at(at, (span.length, width), word, span.chunk.owner)
        values = Decimals(
            words,
            scale,
            dtype,
            rounds_again=asked != "float64",
            missing=span.missing,
            first=sum(piece.rows for piece in pieces),
        )
        pieces.append(piece_of(span, inner, values))
    return Column(dtype, inner, pieces, reasons=() if pieces else (DECIMALS,))


def decimals_in(values: Sequence[Decimal | None], asked: str | None) -> Found:
    """Read decimals of Python, with ``None`` for nulls, as Arrow's are read."""
    from decimal import Decimal  # here, because only they need it

    gone = np.fromiter((value is None for value in values), bool)
    odd = next((row for row, x in enumerate(values) if x is not None and not x.is_finite()), None)
    if odd is not None:
        return Refused(f"has a decimal that is no number, {values[odd]} at row {odd}", ROUNDED)
    parts = [(0, (0,), 0) if value is None else value.as_tuple() for value in values]
    scale = max([0, *(-int(power) for _, _, power in parts)])
    dtype = _dtype_of_decimals(scale, asked)
    if not dtype:
        return _FRACTIONS._replace(lacks=bool(gone.any()))
    scaled = [
        int(Decimal((sign, digits, 0))) * 10 ** (scale + int(power))
        for sign, digits, power in parts
    ]
    width = 1 + max(abs(number).bit_length() for number in scaled) // 64
    memory = b"".join(number.to_bytes(8 * width, "little", signed=True) for number in scaled)
    missing = (Missing(gone),) if gone.any() else ()
    words = np.frombuffer(memory, "<i8").astype("int64").reshape(len(scaled), width)
    read = Decimals(words, scale, dtype, rounds_again=asked != "float64", missing=missing, first=0)
    return Column(dtype, (), [Piece(len(scaled), read, missing)])


def _dtype_of_decimals(scale: int, asked: str | None) -> str:
    """Decimals' dtype, by digits after the point; empty if a float dtype must be named for them."""
    if asked in DTYPES and DTYPES[asked].kind == "float":
        return "float64"
    if scale > 0:
        return ""
    return "uint64" if asked == "uint64" else "int64"


# -- extension types -------------------------------------------------------------------------------


def _has_numbers(kind: Type) -> bool:
    """Whether there are numbers in a type, in any of its children."""
    if kind.values is not None:
        return _has_numbers(kind.values)
    return (
        kind.format in NUMBERS
        or kind.format == "b"
        or kind.format[:2] == "d:"
        or any(map(_has_numbers, kind.children))
    )


def _extension(
    name: str, kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None
) -> Found:
    said = kind.metadata.get(_OF_EXTENSION, b"")
    plain = kind._replace(metadata={})
    if name == "arrow.bool8":
        return as_booleans(_column(plain, spans, inner, None))
    if name == "arrow.fixed_shape_tensor":
        return tensor_column(said, _column(plain, spans, inner, asked), inner)
    if name in LISTED and not inner:
        known = listed_tensors(said, _column(plain, spans, inner, asked))
        if known is not None:
            return known
    if name != "arrow.variable_shape_tensor":
        # Numbers are not left behind in silence. What has none stays, as it does without the name
        # of the type.
        code = LIST if inner else STORAGE
        return Refused(
            f"has type {name}, which is not known here", code, stays=not _has_numbers(plain)
        )
    if kind.format != "+s" or len(kind.children) != 2:
        raise UnsupportedTypeError("These tensors have no data or no shapes.", None)
    if inner:
        return Refused("holds lists of tensors that may have any shape", LIST)
    if any(null_marker(())(span).missing for span in spans):
        return Refused("has nulls among tensors", STORAGE)
    data, shape = (
        _column(
            child,
            [Span(span.chunk.children[index], span.at, span.length) for span in spans],
            (),
            asked,
        )
        for index, child in enumerate(kind.children)
    )
    return tensors_of_any_shape(said, data, shape)
