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
    marker,
    missing_in,
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
    "asked_of",
    "codes_of",
    "column_of",
    "decimals_in",
    "fields",
    "listed_tensors",
    "nested",
    "piece_looked_up",
    "tensors",
    "tensors_of_any_shape",
    "truths",
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
        found = decoded.look_up(absent, 0, len(indices))
        if gone is None:
            decoded.missing = found
        else:
            decoded.missing = found | gone
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
    for each in spans:
        if each.chunk.values is None:
            raise UnsupportedTypeError(
                "This array of Arrow's is indices, and has no dictionary.", None
            )
        dictionaries.setdefault(_memory_of(each.chunk.values), each.chunk.values)
    integers = NUMBERS[kind.format]
    if len(dictionaries) < 2 and not any(map(_has_nulls, dictionaries.values())):
        pieces = [piece_of(each, inner, over(each, integers).reshape(-1, *inner)) for each in spans]
        column = Column(integers, inner, pieces, unit=CODES)
        column.categories = lambda: objects_in(values, [*dictionaries.values()])
        return column
    places: dict[Any, int] = {}
    known = {at: objects_in(values, [each]) for at, each in dictionaries.items()}
    if len(known) > 1:
        codes = {
            at: [places.setdefault(each, len(places)) for each in found]
            for at, found in known.items()
        }
    else:
        codes = {at: list(range(len(found))) for at, found in known.items()}
    # There may be more categories together than the integers of one chunk can count.
    if len(places) <= np.iinfo(integers).max:
        dtype = integers
    else:
        dtype = "int64"
    pieces = []
    for each in spans:
        at = _memory_of(each.chunk.values)
        absent = np.fromiter((one is None for one in known[at]), bool)
        first = sum(piece.rows for piece in pieces)
        indices, gone = over(each, integers), missing_in(each, inner)
        found = np.array(codes[at], numpy_dtype(dtype))
        pieces.append(
            piece_looked_up(indices, found, absent, gone, "by several dictionaries", first, inner)
        )
    column = Column(dtype, inner, pieces, unit=CODES)
    column.categories = lambda: (
        [*places] if places else [each for found in known.values() for each in found]
    )
    return column


def _memory_of(dictionary: Chunk | None) -> Any:
    return None if dictionary is None else dictionary[:4]


def _has_nulls(dictionary: Chunk) -> bool:
    span = Span(dictionary, 0, dictionary.length)
    return marker(())(span) is not span


# -- extension types whose values are tensors, or booleans of a byte each --------------------------
#
# (https://arrow.apache.org/docs/format/CanonicalExtensions.html)


_ANY_BYTES = Reason("booleans of a byte that may have any value")


def truths(found: Found) -> Found:
    """Bytes as booleans: all except 0 are true."""
    if not isinstance(found, Column):
        return found
    pieces = [
        Piece(piece.rows, piece.values != 0, piece.missing)
        for piece in found.pieces
        if isinstance(piece.values, np.ndarray)
    ]
    return Column("bool", found.inner, pieces, reasons=(_ANY_BYTES,))


def tensors(metadata: bytes, found: Found, inner: tuple[int, ...]) -> Found:
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
    if not isinstance(found, Column):
        return found
    if prod(shape) != prod(found.inner[len(inner) :]):
        raise UnsupportedTypeError(
            "The shape of these tensors is not that of their elements.", None
        )
    before = len(inner)
    found = _reshaped(found, (*inner, *shape))
    if order is not None:
        found.order = (*range(before), *(before + axis for axis in order))
    return found


LISTED = frozenset({"ray.data.arrow_tensor", "ray.data.arrow_tensor_v2"})
"""Types of tensors of one shape: storage is lists of elements, metadata is the shape in JSON.

https://github.com/ray-project/ray/blob/master/python/ray/data/_internal/tensor_extensions/arrow.py
"""


def listed_tensors(metadata: bytes, found: Found) -> Found | None:
    """A column of `LISTED` tensors; ``None`` if metadata are no JSON, or the rows do not fit it."""
    try:
        shape = _lengths_in(json.loads(metadata))
    except ValueError:  # pickled by an old version
        return None
    if shape is None or isinstance(found, Ragged):
        return None
    if not isinstance(found, Column):
        return found
    if found.rows and (len(found.inner) != 1 or prod(shape) != found.inner[0]):
        return None
    return _reshaped(found, shape)


def nested(metadata: bytes, found: Found) -> Found:
    """Nested lists without rows, with the lengths in metadata of datasets' `Array3D` and others.

    (https://github.com/huggingface/datasets/blob/main/src/datasets/features/features.py)
    """
    if not isinstance(found, Column):
        return found
    try:
        said = json.loads(metadata)
    except ValueError:
        return found
    if type(said) is list and said and type(said[0]) is list:
        shape = _lengths_in([each or 0 for each in said[0]])
    else:
        shape = None
    if shape is not None and len(shape) == len(found.inner):
        return _reshaped(found, shape)
    return found


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
    if isinstance(x, list) and all(type(each) is int and each >= 0 for each in x):
        return tuple(x)
    return None


def _reshaped(found: Column, inner: tuple[int, ...]) -> Column:
    pieces = [
        piece._replace(values=piece.values.reshape(piece.rows, *inner))
        if isinstance(piece.values, np.ndarray)
        else piece
        for piece in found.pieces
    ]
    return Column(found.dtype, inner, pieces, unit=found.unit, reasons=found.reasons)


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
        chunks: Its chunks, or the spans from `fields`. Those without rows are left out.
        asked: The requested dtype. With an integer dtype, dates become counts and categories become
            codes; with a float dtype, decimals are rounded.

    Raises:
        UnsupportedTypeError: The memory does not fit the type.
    """
    spans = [each for each in spans_of(chunks) if each.length]
    found = _column(kind, spans, (), asked)
    if isinstance(found, Refused) and found.asked:
        counted = _column(kind, spans, (), found.asked)
        return found._replace(lacks=isinstance(counted, Column) and counted.nulls[0] > 0)
    return found


def asked_of(dtype: str | None, casting: str | None) -> str | None:
    """The requested dtype for `column_of`; ``None`` if none, or if `casting` forbids rounding."""
    strict = casting in ("safe", "same_value") and not are_integers(dtype)
    return None if strict or dtype not in DTYPES else dtype


def are_integers(asked: str | None) -> bool:
    """Whether the requested dtype is an integer dtype."""
    return asked in DTYPES and DTYPES[asked].kind in ("int", "uint")


def fields(kind: Type, chunks: Sequence[Chunk]) -> list[tuple[Type, list[Span]]]:
    """The columns of a table, which is a struct array, as spans for `column_of`."""
    spans = [marker(())(Span(each, 0, each.length)) for each in chunks]
    for each in spans:
        if any(each.at + each.length > child.length for child in each.chunk.children):
            raise UnsupportedTypeError(
                "A table of Arrow's has a column that ends before its rows.", None
            )
    return [
        (
            child,
            [
                Span(each.chunk.children[index], each.at, each.length, each.missing)
                for each in spans
            ],
        )
        for index, child in enumerate(kind.children)
    ]


def _column(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    if kind.extension:
        return _extension(kind.extension, kind, spans, inner, asked)
    if not spans and not inner and _OF_EXTENSION in kind.metadata:
        found = _column(kind._replace(metadata={}), spans, inner, asked)
        return nested(kind.metadata[_OF_EXTENSION], found)
    code = kind.format
    if kind.values is not None:
        return _dictionary(kind, kind.values, spans, inner, asked)
    if code in NUMBERS:
        return _numbers(NUMBERS[code], spans, inner)
    if code == "b":
        return Column(
            "bool",
            inner,
            [piece_of(each, inner, bits_in(each, 1)) for each in map(marker(inner), spans)],
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
    if code == "+s" and not inner and {each.name for each in kind.children} == {"bytes", "path"}:
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
        piece_of(each, inner, over(each, dtype).reshape(-1, *inner) if inner else over(each, dtype))
        for each in map(marker(inner), spans)
    ]
    return Column(dtype, inner, pieces)


def _fixed(
    kind: Type, width: int, spans: list[Span], inner: tuple[int, ...], asked: str | None
) -> Found:
    below, marked = [], list(map(marker(inner), spans))
    for each in marked:
        child = each.chunk.children[0]
        if (each.at + each.length) * width > child.length:
            raise UnsupportedTypeError("A list of Arrow's ends past its elements.", None)
        below.append(Span(child, each.at * width, each.length * width, each.missing))
    if not width:
        return _without_elements(kind.children[0], marked, inner, asked)
    return _column(kind.children[0], below, (*inner, width), asked)


def _lists(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    integers = "int64" if kind.format == "+L" else "int32"
    measured, size, before = [], max(1, prod(inner)), 0
    for each in spans:
        measured.append(_offsets(each, integers, before, size))
        before += each.length // size
    each_of = [each for _, _, each in measured] or [np.zeros(0, np.int64)]
    if len(each_of) == 1:
        lengths = each_of[0]
    else:
        lengths = np.concatenate(each_of)
    differ = len(lengths) > 0 and bool((lengths != lengths[0]).any())
    before = 0
    for each in spans:
        # A list in a row that is null, as rows of a struct may be, has no length either.
        gone = missing_in(marker(inner)(each), inner)
        if gone is not None:
            return _no_list(before + int(gone.argmax()) // size, inner)
        before += each.length // size
    below = [
        Span(each.chunk.children[0], start, stop - start, each.missing)
        for each, (start, stop, _) in zip(spans, measured, strict=True)
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
    for each in spans:
        # Without elements, a null list still differs from an empty list.
        gone = missing_in(each, inner)
        if gone is not None:
            return _no_list((lists + int(gone.argmax())) // size, inner)
        lists += each.length
    found = _column(kind, [], (), asked)
    if not isinstance(found, Column):
        return found
    rows, shape = lists // size, (*inner, 0, *found.shape[1:])
    pieces = []
    if rows:
        pieces.append(Piece(rows, np.empty((rows, *shape), numpy_dtype(found.dtype))))
    return Column(found.dtype, shape, pieces, unit=found.unit, reasons=found.reasons)


def _offsets(span: Span, dtype: str, first: int, each: int) -> tuple[int, int, Array]:
    """Where the lists of a span begin and end among the elements, and their lengths.

    Args:
        span: The lists.
        dtype: The dtype of the offsets.
        first: The row of the column that the first list is in.
        each: How many lists a row has.

    Raises:
        UnsupportedTypeError: An offset is less than the one before it, or past the elements.
    """
    found = over(span, dtype, more=1)
    lengths, start, stop = found[1:] - found[:-1], int(found[0]), int(found[-1])
    count = span.chunk.children[0].length
    if lengths.min(initial=0) < 0 or start < 0 or stop > count:
        row = first + int(((lengths < 0) | (found[:-1] < 0) | (found[1:] > count)).argmax()) // each
        raise UnsupportedTypeError(
            f"The offsets of lists of Arrow's go back, or past their elements, at row {row}.", None
        )
    return start, stop, lengths


def _runs(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    ends_kind = NUMBERS.get(kind.children[0].format, "int32")
    parts: list[Span] = []
    indices: list[Array] = []
    for each in spans:
        ends, values = each.chunk.children
        places = over(Span(ends, 0, ends.length), ends_kind)
        if (np.diff(places, prepend=0) <= 0).any() or places[-1:].sum() < each.at + each.length:
            raise UnsupportedTypeError(
                "The runs of an array of Arrow's go back, or end before its rows.", None
            )
        indices.append(
            np.searchsorted(places, np.arange(each.at, each.at + each.length), side="right")
        )
        parts.append(Span(values, 0, values.length))
    return _looked_up(
        kind.children[1],
        parts,
        indices,
        [missing_in(each, inner) for each in spans],
        inner,
        asked,
        "in runs",
    )


def _dictionary(
    kind: Type, values: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None
) -> Found:
    marked = list(map(marker(inner), spans))
    if values.format in (*_TEXTS, *_BYTES):
        if are_integers(asked):
            return codes_of(kind, values, marked, inner)
        return CATEGORIES
    parts = []
    for each in marked:
        if each.chunk.values is None:
            raise UnsupportedTypeError(
                "This array of Arrow's is indices, and has no dictionary.", None
            )
        parts.append(Span(each.chunk.values, 0, each.chunk.values.length))
    indices = [over(each, NUMBERS[kind.format]) for each in marked]
    return _looked_up(
        values, parts, indices, [missing_in(each, inner) for each in marked], inner, asked
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
    found = _column(kind, parts, (), asked)
    if isinstance(found, Ragged) or (isinstance(found, Column) and found.inner):
        return Refused("holds lists in a dictionary", LIST)
    if isinstance(found, Refused):
        if found.asked:
            return found
        return found._replace(hint=LIST)
    pieces: list[Piece] = []
    for part, each, gone in zip(parts, indices, missing, strict=True):
        one = _column(kind, [part] if part.length else [], (), asked)
        assert isinstance(one, Column)  # noqa: S101 - as the whole is
        first = sum(piece.rows for piece in pieces)
        decimals = one.pieces[0].values if one.pieces else None
        if isinstance(decimals, Decimals):
            # They are read after they are looked up, so that an error names the row, and only
            # values with a row count.
            piece = piece_looked_up(
                each, decimals.words, one.missing(), gone, encoded, first, inner
            )
            pieces.append(
                piece._replace(values=decimals.looked_up(piece.values, piece.missing, first))
            )
        else:
            pieces.append(
                piece_looked_up(
                    each, one.values_with_any_nulls(), one.missing(), gone, encoded, first, inner
                )
            )
    return Column(
        found.dtype,
        inner,
        pieces,
        unit=found.unit,
        reasons=() if pieces else (Reason.encoded(encoded),),
    )


def _dates(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    code = kind.format
    unit = _UNITS[code[2]]
    if not are_integers(asked):
        remark = ColumnCode(remark=f", which counts {unit}")
        return Refused(DATES, remark, stays=True, asked="int64")
    short = code in ("tdD", "tts", "ttm")
    found = _numbers("int32" if short else "int64", spans, inner)
    zone = code.partition(":")[2]
    found.unit = f"{unit}{' since 1970' if code[1] in 'ds' else ''}{' in UTC' if zone else ''}"
    return found


def _decimals(kind: Type, spans: list[Span], inner: tuple[int, ...], asked: str | None) -> Found:
    scale, bits = (int(each) for each in (*kind.format.split(","), "128")[1:3])
    dtype = _dtype_of_decimals(scale, asked)
    if not dtype:
        return _FRACTIONS
    width, word = max(1, bits // 64), numpy_dtype("int64" if bits >= 64 else "int32")
    pieces: list[Piece] = []
    for each in map(marker(inner), spans):
        at = buffer_of(each, 1) + each.at * (bits // 8)
        words = bytes_at(at, (each.length, width), word, each.chunk.owner)
        values = Decimals(
            words,
            scale,
            dtype,
            rounds_again=asked != "float64",
            missing=each.missing,
            first=sum(piece.rows for piece in pieces),
        )
        pieces.append(piece_of(each, inner, values))
    return Column(dtype, inner, pieces, reasons=() if pieces else (DECIMALS,))


def decimals_in(values: Sequence[Decimal | None], asked: str | None) -> Found:
    """Read decimals of Python, with ``None`` for nulls, as Arrow's are read."""
    from decimal import Decimal  # here, because only they need it

    gone = np.fromiter((each is None for each in values), bool)
    odd = next(
        (row for row, each in enumerate(values) if each is not None and not each.is_finite()), None
    )
    if odd is not None:
        return Refused(f"has a decimal that is no number, {values[odd]} at row {odd}", ROUNDED)
    parts = [(0, (0,), 0) if each is None else each.as_tuple() for each in values]
    scale = max([0, *(-int(power) for _, _, power in parts)])
    dtype = _dtype_of_decimals(scale, asked)
    if not dtype:
        return _FRACTIONS._replace(lacks=bool(gone.any()))
    found = [
        int(Decimal((sign, digits, 0))) * 10 ** (scale + int(power))
        for sign, digits, power in parts
    ]
    width = 1 + max(abs(each).bit_length() for each in found) // 64
    memory = b"".join(each.to_bytes(8 * width, "little", signed=True) for each in found)
    missing = (Missing(gone),) if gone.any() else ()
    words = np.frombuffer(memory, "<i8").astype("int64").reshape(len(found), width)
    read = Decimals(words, scale, dtype, rounds_again=asked != "float64", missing=missing, first=0)
    return Column(dtype, (), [Piece(len(found), read, missing)])


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
        return truths(_column(plain, spans, inner, None))
    if name == "arrow.fixed_shape_tensor":
        return tensors(said, _column(plain, spans, inner, asked), inner)
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
    if any(marker(())(each).missing for each in spans):
        return Refused("has nulls among tensors", STORAGE)
    data, shape = (
        _column(
            child,
            [Span(each.chunk.children[index], each.at, each.length) for each in spans],
            (),
            asked,
        )
        for index, child in enumerate(kind.children)
    )
    return tensors_of_any_shape(said, data, shape)
