"""Values that are encoded by dictionaries: the pieces of a column, and the codes of categories.

(https://arrow.apache.org/docs/format/Columnar.html#dictionary-encoded-layout)
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnsupportedTypeError
from ..host.numpy_dtypes import numpy_dtype
from .column import CODES, Column
from .interface import NUMBERS
from .objects import objects_in
from .pieces import DictionaryEncoded, Missing, Piece
from .spans import Span, marker, missing_in, over, piece_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..typing import Array
    from .interface import Chunk, Type

__all__ = ["codes_of", "piece_looked_up"]


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
        decoded.missing = found if gone is None else found | gone
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
    dtype = integers if len(places) <= np.iinfo(integers).max else "int64"
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
