"""Read any nested sequence of numbers: in chunks into the result, or in one exact array."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.named_tuple import NamedTuple
from ..errors import ConversionError, LossyCastError, ShapeError
from ..host import casts, memory, subnormals
from ..host.numpy_dtypes import numpy_dtype, of_numpy
from . import numbers
from .diagnostics import (
    DEEPEST,
    ROWS,
    each_rounded,
    leaves_with_paths,
    length_of,
    shape_of,
    why_unreadable,
)
from .numbers import PYTHON_NUMBERS, opened_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..typing import Array
    from .numbers import Exact

    Index = tuple[Any, ...]

__all__ = [
    "PYTHON_NUMBERS",
    "Chunks",
    "NewArray",
    "Others",
    "Read",
    "Wanted",
    "element_types",
    "first_element",
    "is_number",
    "narrowest_dtype",
    "read",
    "read_into",
    "refuse_rounded_integers",
]


# -- in chunks -------------------------------------------------------------------------------------
#
# An array of all numbers before the cast would need as much memory again as the source and the
# result.

_CHUNK = 1 << 14
"""How many elements are read at a time: they are still in the processor's cache when cast."""


class Wanted(NamedTuple):
    """What numbers become, by the request and the target.

    Args:
        dtype: The dtype of the result.
        check: How the cast checks each value, see `casts.cast`.
        made: ``"array"``, ``"lists"``, or empty if the numbers are only checked.
    """

    dtype: str
    check: str
    made: str


class Read(NamedTuple):
    """The result of `read`.

    Args:
        value: The array or the lists; or the `Chunks`, to read them again.
        shape: The shape of the numbers.
        exact: The dtype that has all of them.
    """

    value: Any
    shape: tuple[int, ...]
    exact: Exact


class _InDoubtError(ConversionError):
    """The numbers do not have the types that the first ones suggested."""


class Chunks:
    """The chunks of a sequence of Python numbers: the index of each, and its values as an array.

    >>> [(index, chunk.tolist()) for index, chunk in Chunks([1, 2.5], (2,), "float64")]
    [((slice(0, 2, None),), [1.0, 2.5])]

    Args:
        x: Nested sequences of numbers.
        shape: Their shape.
        dtype: The dtype that has all of them exactly.
        copies: Whether chunks are read from copies of the lists, which no other thread can change.

    Raises:
        ConversionError: During iteration, if the sequence does not have this shape and dtype, or
            has changed.
    """

    def __init__(self, x: Any, shape: tuple[int, ...], dtype: str, *, copies: bool = False) -> None:
        self.x = x
        self.shape = shape
        self.dtype = dtype
        self.copies = copies

    def __iter__(self) -> Iterator[tuple[Index, Array]]:
        for index, _, chunk, flags in self.with_rows():
            if flags < 0 or flags & numbers.MISFIT:
                raise _InDoubtError(
                    "The numbers changed while they were read.", "pass a copy that nobody changes"
                )
            yield index, chunk

    def with_rows(self) -> Iterator[tuple[Index, Any, Array, int]]:
        """Iterate over indices, lists, arrays, and the flags of the numbers in each chunk."""
        for index, rows, shape in _chunk_places(self.x, self.shape):
            start, stop = index[-1].start, index[-1].stop
            if self.copies:
                own = _copied_lists(rows[start:stop], len(shape))
                yield (
                    index,
                    own,
                    *numbers.read_part(
                        own, (stop - start, *shape[1:]), self.dtype, 0, stop - start
                    ),
                )
            else:
                yield index, rows, *numbers.read_part(rows, shape, self.dtype, start, stop)


def read_into(
    x: Any,
    head: Any,
    decide: Callable[[tuple[int, ...], Exact], Wanted],
    to_scalars: Callable[[Array], Any],
) -> Read | None:
    """Read numbers into the result; ``None`` if they are unusual.

    Then `reader.read` and a cast of the whole array do it, or say what is wrong.

    Args:
        x: Nested sequences of numbers.
        head: Their first element, as `reader.first_element` gives it.
        decide: Gives what they become, by their shape and exact dtype.
        to_scalars: Makes nested lists from an array.
    """
    shape, exact = shape_of(x), numbers.expected_of(x, head)
    try:
        for _ in range(2):
            if exact is None:
                return None
            # After the first pass their exact dtype is known.
            value, exact = _read_as(decide(shape, exact), x, shape, exact, decide, to_scalars)
            if value is not None and exact is not None:
                return Read(value, shape, exact)
    except (ConversionError, MemoryError, ValueError):
        # The shape comes from the first rows. There may be no memory for it, though the others are
        # shorter.
        pass
    return None


def _read_as(
    wanted: Wanted,
    x: Any,
    shape: tuple[int, ...],
    expected: Exact,
    decide: Callable[[tuple[int, ...], Exact], Wanted],
    to_scalars: Callable[[Array], Any],
) -> tuple[Any, Exact | None]:
    """The result, or ``None`` if the numbers are not of the expected dtype; and their exact one."""
    chunks = Chunks(x, shape, expected.dtype, copies=wanted.made == "lists")
    if wanted.made == "array":
        result: Any = memory.compact(shape, numpy_dtype(wanted.dtype))
        flags = numbers.fill(result, expected.dtype, wanted.check, x, shape)
        exact = numbers.exact_dtype(flags)
        if exact is not None and not (flags & numbers.MISFIT and exact.dtype == expected.dtype):
            if exact == expected:
                again = wanted
            else:
                again = decide(shape, exact)
            same = exact.dtype == expected.dtype and again.dtype == wanted.dtype
            # The check for finite numbers has been made already.
            if again.check == "finite":
                fits = not flags & numbers.BEYOND
            else:
                fits = again == wanted
            return (result if same and fits else None), exact
    elif wanted.made == "lists":
        result = _hollow_lists(shape)
    else:
        result = chunks
    return _read_chunks(wanted, result, chunks, expected, decide, to_scalars)


def _read_chunks(
    wanted: Wanted,
    result: Any,
    chunks: Chunks,
    expected: Exact,
    decide: Callable[[tuple[int, ...], Exact], Wanted],
    to_scalars: Callable[[Array], Any],
) -> tuple[Any, Exact | None]:
    flags, exact = 0, None
    for index, rows, chunk, seen in chunks.with_rows():
        if seen < 0:
            return None, None
        flags |= seen & ~numbers.MISFIT
        exact = numbers.exact_dtype(flags)
        if exact is None:
            return None, None
        if result is not None and not expected.holds(exact):
            # Continue, if only the check changes; if not, the other chunks are only examined.
            expected = expected._replace(narrow=False)
            if expected.holds(exact):
                again = decide(chunks.shape, expected)
            else:
                again = None
            if again and again.dtype == wanted.dtype:
                wanted = again
            else:
                result = None
        if result is None:
            continue
        if wanted.made == "array":
            casts.fill(result[index], chunk, wanted.check)
        elif wanted.made == "lists":
            _put_lists(result, index, rows, chunk, seen, wanted, to_scalars)
        elif wanted.check:
            casts.check_values(chunk, wanted.dtype, wanted.check)
    if exact is not None and exact.dtype != chunks.dtype:
        result = None
    return result, exact


def _put_lists(
    result: Any,
    index: Index,
    rows: Any,
    chunk: Array,
    flags: int,
    wanted: Wanted,
    to_scalars: Callable[[Array], Any],
) -> None:
    """Put a chunk into the result: lists copied if no value changes, else made from the array."""
    *outer, part = index
    for row in outer:
        result = result[row]
    if chunk.dtype != numpy_dtype(wanted.dtype):
        result[part] = to_scalars(casts.cast(chunk, wanted.dtype, wanted.check))
    else:
        exact = numbers.exact_if_alike(numbers.with_types(flags, rows, chunk.ndim))
        if exact is not None and exact.dtype == wanted.dtype:
            result[part] = rows
        else:
            result[part] = to_scalars(chunk)


def _copied_lists(rows: Any, depth: int) -> list[Any]:
    """Copies of nested lists, with the same objects.

    Raises:
        ShapeError: The nesting is not as deep as `depth`.
    """
    if not isinstance(rows, ROWS):
        raise ShapeError("Rows of unequal lengths are no tensor.", None)
    if depth == 1:
        return list(rows)
    return [_copied_lists(row, depth - 1) for row in rows]


def _hollow_lists(shape: tuple[int, ...]) -> list[Any]:
    """Nested lists without elements, for the axes along which chunks are parts of rows."""
    if prod(shape[1:]) <= _CHUNK:
        return [None] * shape[0]
    return [_hollow_lists(shape[1:]) for _ in range(shape[0])]


def _chunk_places(x: Any, shape: tuple[int, ...]) -> Iterator[tuple[Index, Any, tuple[int, ...]]]:
    """The index of each chunk, the sequence that contains it, and the shape of that sequence.

    A chunk is several rows if rows are short, and part of a row if they are long.
    """
    inner = prod(shape[1:])
    if inner <= _CHUNK:
        rows = max(1, _CHUNK // max(inner, 1))
        for start in range(0, shape[0], rows):
            yield (slice(start, min(start + rows, shape[0])),), x, shape
        return
    rows = x[: shape[0]]
    if len(rows) != shape[0] or any(length_of(row) != shape[1] for row in rows):
        raise ShapeError("Rows of unequal lengths are no tensor.", None)
    for number, row in enumerate(rows):
        for inside, part, length in _chunk_places(row, shape[1:]):
            yield (number, *inside), part, length


# -- any sequence ----------------------------------------------------------------------------------
#
# The first element decides: if it is a Python number, all are Python numbers, whose dtype the
# target chooses; if it is a NumPy scalar or a tensor, they have dtypes.

_READABLE = (*PYTHON_NUMBERS, np.generic, *ROWS)


def first_element(x: Any) -> tuple[Any, int]:
    """The first element that is not a sequence, or the empty sequence.

    Also the number of elements, if rows are equal.
    """
    if type(x) is list and x and type(x[0]) in PYTHON_NUMBERS:
        return x[0], len(x)
    size = 1
    for _ in range(DEEPEST):
        if not isinstance(x, (list, tuple)) or not x:
            break
        size *= len(x)
        x = x[0]
    return x, size * len(x) if isinstance(x, range) else size


def is_number(element: Any) -> bool:
    """Whether the first element is a Python number, without a dtype."""
    return type(element) in PYTHON_NUMBERS or not isinstance(element, np.generic)


class NewArray:
    """A new array in place of a list, which was read or stacked before it was described.

    Args:
        array: The array, whose memory no other object has.
        exact: The exact dtype of the Python numbers in it, whose dtype the target chooses; ``None``
            if it has a dtype of its own.
        scalars: Whether it was read of NumPy's scalars, which have its dtype.
    """

    __slots__ = ("array", "exact", "scalars")

    def __init__(self, array: Array, exact: Exact | None = None, *, scalars: bool = False) -> None:
        self.array = array
        self.exact = exact
        self.scalars = scalars


class Others(NamedTuple):
    """What is done with elements that are no numbers. Only the caller knows which are tensors.

    Args:
        replace: Gives the rows, in which numbers take the place of tensors.
        refuse: Gives the error for another object at a path in the sequence.
    """

    replace: Callable[[Any], Any]
    refuse: Callable[[str, Any, Any], ConversionError]


# -- numbers ------------------------------------------------------------------------------------


@subnormals.with_subnormals
def read(x: Any, head: Any, others: Others) -> tuple[Array, str | None]:
    """Numbers in a new array of their exact dtype (int64, uint64, float64 …).

    Also the narrowest ordinary dtype.

    The narrowest dtype has the range of the numbers; it is ``None`` if they have dtypes of their
    own.

    Args:
        x: Nested sequences of numbers, or a number.
        head: Its first element, as `first_element` gives it.
        others: What is done with elements that are no numbers.

    Raises:
        UnsupportedTypeError: An element is not a number; the message says where.
        ShapeError: Rows of unequal lengths; the message says which.
        LossyCastError: No dtype has all of these numbers.
    """
    numbers_read = numbers.read(x, head, shape_of(x))
    exact = numbers.exact_dtype(numbers_read[1]) if numbers_read else None
    if numbers_read and exact:
        return numbers_read[0], exact.weak
    if isinstance(x, range):
        array = _read_range(x)
    else:
        array = _read_carefully(x, others)
    return array, narrowest_dtype(array) if is_number(head) else None


def _read_carefully(x: Any, others: Others) -> Array:
    kinds = element_types(x)
    had_tensors = False
    if not all(issubclass(kind, _READABLE) for kind in kinds):
        x = others.replace(x)
        had_tensors = not kinds <= element_types(x)
    try:
        array = np.array(x)
    except MemoryError:
        raise
    except Exception as error:  # an element of any class may raise anything
        raise why_unreadable(x, error, others.refuse, had_tensors=had_tensors) from error
    if of_numpy(array.dtype) is None:
        raise why_unreadable(x, None, others.refuse, had_tensors=had_tensors)
    if array.dtype.char in "dD" and _may_be_rounded(x, array):
        return _read_exactly(x, array, others)
    return array


def _read_range(x: range) -> Array:
    ends = (x[0], x[-1]) if x else (0,)
    if min(ends) >= -(2**63) and max(ends) < 2**63 and abs(x.step) < 2**63:
        if abs(x.stop) >= 2**63:
            return np.array(x, np.int64)
        return np.arange(x.start, x.stop, x.step, dtype=np.int64)
    if min(ends) >= 0 and max(ends) < 2**64:
        return np.array(list(x), np.uint64)
    raise LossyCastError("A range beyond 64 bits fits no dtype.", "[float(number) for number in x]")


def _may_be_rounded(x: Any, array: Array) -> bool:
    """Whether an integer may have been rounded when it was read as float64."""
    if not array.size or numbers.are_exact(array):
        return False
    return any(
        issubclass(kind, (int, np.integer)) and kind is not bool for kind in element_types(x)
    )


def element_types(x: Any) -> set[type]:
    """The types of the objects that are as deep as the first element.

    >>> element_types([[1, 2.5], [True, 4]]) == {int, float, bool}
    True

    Raises:
        ShapeError: It is nested too deeply, or contains itself.
    """
    if type(x) is list and x and type(x[0]) in PYTHON_NUMBERS:
        kinds = set(map(type, x))
        if kinds <= PYTHON_NUMBERS:
            return kinds
    depth, row = 0, x
    while isinstance(row, ROWS) and len(row) and depth < DEEPEST:
        depth, row = depth + 1, row[0]
    if depth == DEEPEST:
        raise ShapeError(f"x is nested deeper than {DEEPEST} levels, or contains itself.", None)
    return _types_within(x, depth) if depth else {type(x)}


def _types_within(x: Any, depth: int) -> set[type]:
    level, kinds = 0, set(map(type, x))
    while level < depth - 1 and all(issubclass(kind, ROWS) for kind in kinds):
        level += 1
        kinds = set(map(type, opened_levels(x, level)))
    rest = depth - level - 1
    if rest and any(issubclass(kind, ROWS) for kind in kinds):
        for row in opened_levels(x, level):
            if isinstance(row, ROWS):
                kinds |= _types_within(row, rest)
    return kinds


def _read_exactly(x: Any, array: Array, others: Others) -> Array:
    """The array; integers rounded in it are read again as integers, which may raise."""
    if _has_only_integers(x):
        # As Python integers, because NumPy's would wrap around instead of raising.
        integers = [int(number) for _, number in leaves_with_paths(x)]
        try:
            whole: Array = np.array(integers, np.uint64).reshape(array.shape)
        except (OverflowError, ValueError):
            raise why_unreadable(x, None, others.refuse) from None
        return whole
    refuse_rounded_integers(x, "complex numbers" if array.dtype.kind == "c" else "floats")
    return array


def refuse_rounded_integers(x: Any, among: str = "floats") -> None:
    """Raise for the first integer in nested lists that float64 does not have.

    Raises:
        LossyCastError: There is one.
    """
    for path, number in leaves_with_paths(x):
        if isinstance(number, (int, np.integer)) and not _is_float64(int(number)):
            raise LossyCastError(
                f"The integer at {path} stands among {among}, and float64 cannot hold it.",
                each_rounded(x, path),
            )


def _is_float64(number: int) -> bool:
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _has_only_integers(x: Any) -> bool:
    return all(
        isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        for _, number in leaves_with_paths(x)
    )


def narrowest_dtype(array: Array) -> str:
    """The narrowest ordinary dtype with the range of Python numbers read into an array."""
    name = of_numpy(array.dtype) or ""
    if array.size and name in numbers.EXACT:
        exact = numbers.exact_dtype(numbers.found_in(array))
    else:
        exact = None
    if exact is None:
        return numbers.weak_of(name)
    return exact.weak
