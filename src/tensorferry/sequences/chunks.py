"""Read long sequences of Python numbers straight into the result, a chunk at a time if they must be cast.

An array of all numbers before the cast would need as much memory again as the source and the
result.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ..core.named_tuple import NamedTuple
from ..errors import ConversionError, ShapeError
from ..host import casts, memory
from ..host.numpy_dtypes import numpy_dtype
from . import flags, numbers
from .diagnostics import ROWS, length_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..typing import Array
    from .flags import Exact

    Index = tuple[Any, ...]

__all__ = ["Chunks", "Read", "Wanted", "read"]

_CHUNK = 1 << 14
"""How many elements are read at a time, so that they are still in the processor's cache when they are cast."""


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
        for index, _, chunk, found in self.with_rows():
            if found < 0 or found & flags.MISFIT:
                raise _InDoubtError(
                    "The numbers changed while they were read.", "pass a copy that nobody changes"
                )
            yield index, chunk

    def with_rows(self) -> Iterator[tuple[Index, Any, Array, int]]:
        """Iterate over indices, lists, arrays, and the flags of the numbers in each chunk."""
        for index, rows, shape in _split(self.x, self.shape):
            start, stop = index[-1].start, index[-1].stop
            if self.copies:
                own = _copied(rows[start:stop], len(shape))
                yield (
                    index,
                    own,
                    *numbers.read_part(
                        own, (stop - start, *shape[1:]), self.dtype, 0, stop - start
                    ),
                )
            else:
                yield index, rows, *numbers.read_part(rows, shape, self.dtype, start, stop)


def read(
    x: Any,
    head: Any,
    decide: Callable[[tuple[int, ...], Exact], Wanted],
    to_scalars: Callable[[Array], Any],
) -> Read | None:
    """Read numbers into the result; ``None`` if they are unusual.

    Then `reader.read` and a cast of the whole array do it, or say what is wrong.

    Args:
        x: Nested sequences of numbers.
        head: Their first element, as `reader.first` gives it.
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
    """The result, or ``None`` if the numbers are not of the expected dtype; and their exact dtype."""
    chunks = Chunks(x, shape, expected.dtype, copies=wanted.made == "lists")
    if wanted.made == "array":
        result: Any = memory.compact(shape, numpy_dtype(wanted.dtype))
        found = numbers.fill(result, expected.dtype, wanted.check, x, shape)
        exact = flags.exact(found)
        if exact is not None and not (found & flags.MISFIT and exact.dtype == expected.dtype):
            again = wanted if exact == expected else decide(shape, exact)
            same = exact.dtype == expected.dtype and again.dtype == wanted.dtype
            # The check for finite numbers has been made already.
            fits = not found & flags.BEYOND if again.check == "finite" else again == wanted
            return (result if same and fits else None), exact
    else:
        result = _hollow(shape) if wanted.made == "lists" else chunks
    return _read_chunks(wanted, result, chunks, expected, decide, to_scalars)


def _read_chunks(
    wanted: Wanted,
    result: Any,
    chunks: Chunks,
    expected: Exact,
    decide: Callable[[tuple[int, ...], Exact], Wanted],
    to_scalars: Callable[[Array], Any],
) -> tuple[Any, Exact | None]:
    found, exact = 0, None
    for index, rows, chunk, seen in chunks.with_rows():
        if seen < 0:
            return None, None
        found |= seen & ~flags.MISFIT
        exact = flags.exact(found)
        if exact is None:
            return None, None
        if result is not None and not expected.holds(exact):
            # Continue, if only the check changes; if not, the other chunks are only examined.
            expected = expected._replace(narrow=False)
            again = decide(chunks.shape, expected) if expected.holds(exact) else None
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
    found: int,
    wanted: Wanted,
    to_scalars: Callable[[Array], Any],
) -> None:
    """Put a chunk into the result: copies of the lists if no value changes, otherwise lists made from the array."""
    *outer, part = index
    for row in outer:
        result = result[row]
    if chunk.dtype != numpy_dtype(wanted.dtype):
        result[part] = to_scalars(casts.cast(chunk, wanted.dtype, wanted.check))
    else:
        exact = flags.alike(numbers.with_types(found, rows, chunk.ndim))
        result[part] = (
            rows if exact is not None and exact.dtype == wanted.dtype else to_scalars(chunk)
        )


def _copied(rows: Any, depth: int) -> list[Any]:
    """Copies of nested lists, with the same objects.

    Raises:
        ShapeError: The nesting is not as deep as `depth`.
    """
    if not isinstance(rows, ROWS):
        raise ShapeError("Rows of unequal lengths are no tensor.", None)
    return list(rows) if depth == 1 else [_copied(row, depth - 1) for row in rows]


def _hollow(shape: tuple[int, ...]) -> list[Any]:
    """Nested lists without elements, for the axes along which chunks are parts of rows."""
    if prod(shape[1:]) <= _CHUNK:
        return [None] * shape[0]
    return [_hollow(shape[1:]) for _ in range(shape[0])]


def _split(x: Any, shape: tuple[int, ...]) -> Iterator[tuple[Index, Any, tuple[int, ...]]]:
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
        for inside, part, length in _split(row, shape[1:]):
            yield (number, *inside), part, length
