"""Columns of Python numbers: of each sample one number, or a nested list of them.

Such a column is read in one pass into one array, and its lists are padded there. Whatever is
unusual is left to the caller, which takes each sample by itself and says what is wrong.
"""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.named_tuple import NamedTuple
from ..errors import ConversionError
from ..host import casts, memory, subnormals
from ..host.numpy_dtypes import numpy_dtype, of_numpy
from . import numbers
from .numbers import BEYOND, MISFIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..typing import Array
    from .numbers import Exact

__all__ = [
    "ListLayout",
    "Read",
    "Wanted",
    "columns_apart",
    "read_lists",
    "read_numbers",
    "read_scalars",
]

_KEYS = frozenset({str, int})
"""Types of keys whose comparison is Python's own."""
_FIRST = 32
"""How many numbers decide what the others are expected to be, as in `numbers.expected_of`."""
_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)
_OF_ONE_KIND = frozenset({"bool", "int64", "float64", "complex128"})
"""Exact dtypes that do not depend on which other numbers there are, as that of uint64 does."""


class ListLayout(NamedTuple):
    """Where the lists of a column are put.

    Args:
        whole: The shape to which each is padded.
        axis: The axis that is padded on the left, if any is.
        left: Whether it is.
        mask: Whether a mask of that axis is wanted.
        lengths: Whether the lengths on that axis are wanted.
    """

    whole: tuple[int, ...]
    axis: int = 0
    left: bool = False
    mask: bool = False
    lengths: bool = False


class Wanted(NamedTuple):
    """What numbers become.

    Args:
        dtype: The dtype of the array.
        check: How the cast checks each value, see `casts.cast`.
        value: The padding, as an array of that dtype without axes; ``None`` for zero.
    """

    dtype: str
    check: str = ""
    value: Any = None


class Read(NamedTuple):
    """A column that has been read.

    Args:
        array: The numbers.
        exact: The dtype that has all of them.
        mask: True where a list has an element; ``None`` if that is not wanted.
        lengths: The length of each list; ``None`` if that is not wanted.
    """

    array: Array
    exact: Exact
    mask: Any = None
    lengths: Any = None


def columns_apart(samples: list[Any]) -> list[list[Any]] | None:
    """Dicts, tuples or lists of one type and length, as columns; ``None`` if they have other keys.

    Dicts may have their keys in different orders. Keys of classes must be the same objects.

    >>> (
    ...     columns_apart([{"a": 1, "b": 2}, {"b": 4, "a": 3}]),
    ...     columns_apart([(1, 2), (3,)]),
    ...     columns_apart([{1: 2}, {True: 2}]),
    ... )
    ([[1, 3], [2, 4]], None, None)

    Args:
        samples: At least one of these.
    """
    columns = numbers.apart(samples)
    if columns is not None:
        return columns
    kinds, first = numbers.types_in(samples), samples[0]
    if len(kinds) > 1 or not isinstance(first, dict):
        return None
    # Copies, which no other thread can change.
    held = list(map(dict.copy, samples))
    keys = list(held[0])
    every = set(map(type, chain.from_iterable(held)))
    if not every <= _KEYS or len(every) > 1 or any(keys.keys() != held[0].keys() for keys in held):
        return None
    return [list(map(itemgetter(key), held)) for key in keys]


def read_numbers(column: list[Any]) -> Read | None:
    """A column of numbers, in their exact dtype; ``None`` if they are not all of one kind.

    >>> read_numbers([1.5, 2.5]).array, read_numbers([1, 2.5])
    (array([1.5, 2.5]), None)
    """
    numbers_read = numbers.read(column, column[0], (len(column),))
    if numbers_read is None:
        return None
    exact = _of_one_kind(numbers.with_types(numbers_read[1], column, 1))
    if exact is None:
        return None
    return Read(numbers_read[0], exact)


def read_scalars(column: list[Any]) -> Array | None:
    """A column of NumPy's scalars of one type; ``None`` if they have no dtype of ours.

    >>> read_scalars([np.float32(1), np.float32(2)]), read_scalars([np.str_("a")])
    (array([1., 2.], dtype=float32), None)
    """
    array = np.array(column)
    name = of_numpy(array.dtype)
    return array if name is not None and array.dtype.type is type(column[0]) else None


def read_lists(
    column: list[Any], layout: ListLayout, decide: Callable[[Exact], Wanted]
) -> Read | None:
    """A column of lists, as one array; ``None`` if they are not all numbers of one kind.

    Args:
        column: The lists, measured before.
        layout: Where they are put.
        decide: Gives what they become, by their exact dtype. If it raises, the result is ``None``.
    """
    marks = _marks_of(len(column), layout)
    expected = _expected_dtype(column)
    for _ in range(2):
        if expected is None:
            return None
        try:
            wanted = decide(expected)
            straight = numbers.is_padded_as(expected.dtype, wanted.dtype, wanted.check)
            # What cannot be read as it is wanted is cast afterwards, and padded then.
            asked = wanted if straight else Wanted(expected.dtype)
            array, flags = _padded_column(column, layout, expected, asked, marks)
            exact = _of_one_kind(flags)
            if exact is None:
                return None
            again = wanted if exact == expected else decide(exact)
        except ConversionError:
            return None
        if again[:2] == wanted[:2]:
            break
        expected = exact
    else:
        return None
    if flags & MISFIT or (straight and wanted.check == "finite" and flags & BEYOND):
        return None
    result = array if straight else _cast_column(array, wanted, column, layout)
    if result is None:
        return None
    return Read(result, exact, *marks)


def _marks_of(count: int, layout: ListLayout) -> tuple[Any, Any]:
    """New memory for the mask and the lengths; ``None`` for what is not wanted."""
    mask = lengths = None
    if layout.mask:
        mask = memory.compact((count, layout.whole[layout.axis]), _BOOL)
    if layout.lengths:
        lengths = memory.compact((count,), _INT64)
    return mask, lengths


def _of_one_kind(flags: int) -> Exact | None:
    exact = numbers.exact_if_alike(flags)
    if exact is None or exact.dtype not in _OF_ONE_KIND:
        return None
    return exact


def _expected_dtype(column: list[Any]) -> Exact | None:
    """The expected exact dtype, by the first few numbers."""
    for row in column:
        head = row[:_FIRST]
        while head and type(head[0]) is list:
            head = head[0][:_FIRST]
        if head:
            return _of_one_kind(numbers.look(head))
    return None


def _padded_column(
    column: list[Any], layout: ListLayout, expected: Exact, asked: Wanted, marks: tuple[Any, Any]
) -> tuple[Array, int]:
    """A new array with a column that is padded, and the flags of its numbers."""
    dtype = numpy_dtype(asked.dtype)
    try:
        array = memory.compact((len(column), *layout.whole), dtype)
    except (MemoryError, ValueError):
        # There may be no memory for a shape that only the first rows have.
        return np.empty(0), numbers.DOUBT
    if asked.value is None:
        value = bytes(dtype.itemsize)
    else:
        value = asked.value.tobytes()
    arguments = (array, asked.dtype, column, layout.axis + 1, layout.left, value, *marks)
    if asked.dtype == expected.dtype:
        return array, numbers.pad(*arguments)
    return array, _pad_as_cast(*arguments)


@subnormals.with_subnormals
def _pad_as_cast(*arguments: Any) -> int:
    return numbers.pad(*arguments)


def _cast_column(
    array: Array, wanted: Wanted, column: list[Any], layout: ListLayout
) -> Array | None:
    """The array in another dtype, and with the padding; ``None`` if a number does not fit."""
    try:
        result = casts.cast(array, wanted.dtype, wanted.check, compact=True)
    except ConversionError:
        return None
    if wanted.value is None or not wanted.value.tobytes().strip(b"\0"):
        return result
    if len(layout.whole) > 1:
        return None
    where = numbers.mask_of(column, layout.whole[0], left=layout.left)
    np.copyto(result, wanted.value, where=~where)
    return result
