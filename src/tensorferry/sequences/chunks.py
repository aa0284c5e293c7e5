"""Long sequences of Python numbers, read part by part straight into what is wanted of them.

An array of all of them, as wide as they are, would be as much memory again as source and result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConversionError, ShapeError
from ..host import casts, memory
from ..host.numpy_dtypes import numpy_dtype, of_numpy
from . import reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    Array = np.ndarray[Any, Any]
    Index = tuple[Any, ...]
    Put = Callable[[Index, Any, Array, str], None]
    Sink = Callable[[tuple[int, ...], str], tuple[Any, Put]]

__all__ = ["Parts", "Read", "Wanted", "into_array", "into_lists", "read"]

_PART = 1 << 13
"""Elements that are read at a time: they are in a cache still when they are looked at and narrowed."""


class Wanted(NamedTuple):
    """What numbers are to become, which the request and the target say.

    Args:
        dtype: The dtype of the result.
        check: What a cast to it has to look at, as for `casts.cast`.
        sink: Makes the result of a shape and a dtype, and the function that puts a part where it lies.
    """

    dtype: str
    check: str
    sink: Sink | None


class Read(NamedTuple):
    """Numbers that have been read.

    Args:
        value: What the sink made; without one, the `Parts` to read once more.
        shape: The shape.
        dtype: The dtype that holds the numbers exactly.
        weak_dtype: The narrowest ordinary one; ``None`` if they are typed.
    """

    value: Any
    shape: tuple[int, ...]
    dtype: str
    weak_dtype: str | None


class _UnlikePartsError(ConversionError):
    """A part takes another dtype than the parts before it."""


class Parts:
    """Where each part of the numbers lies, and the part as an array of the dtype that holds them all.

    >>> [(index, part.tolist()) for index, part in Parts([1, 2.5], 1, (2,), "float64")]
    [((slice(0, 2, None),), [1.0, 2.5])]

    Args:
        x: Nested sequences of numbers.
        head: Their first element, as `sequences.first` gives it.
        shape: Their shape.
        dtype: The dtype that holds them all exactly; ``None``: that of the first part.

    Raises:
        ConversionError: While it is iterated: a part cannot be read, or its shape or dtype is another.
    """

    def __init__(self, x: Any, head: Any, shape: tuple[int, ...], dtype: str | None) -> None:
        self.x = x
        self.head = head
        self.shape = shape
        self.dtype = dtype

    def __iter__(self) -> Iterator[tuple[Index, Array]]:
        for index, _, numbers in self.with_objects():
            yield index, numbers

    def with_objects(self) -> Iterator[tuple[Index, Any, Array]]:
        """The same, with the sequence that was read between the two."""
        wanted = self.dtype
        for index, part in _split(self.x, self.shape):
            numbers = reader.read(part, self.head)
            if numbers.shape != _shape_at(self.shape, index):
                raise ShapeError("Rows of unequal lengths are no tensor.", None)
            found = of_numpy(numbers.dtype) or ""
            wanted = wanted or found
            if found != wanted:
                if self.dtype is None:
                    raise _UnlikePartsError(f"{found} after {wanted}", None)
                numbers = casts.cast(numbers, wanted, "value")
            yield index, part, numbers


def read(
    x: Any,
    head: Any,
    decide: Callable[[tuple[int, ...], str, str | None], Wanted | None],
    dtype: str | None = None,
    weak: str | None = None,
    *,
    narrows: bool = True,
) -> Read | None:
    """Numbers as what is wanted of them.

    ``None`` if an array of what they are is what is wanted, or if a part cannot be read or kept:
    `reader.read` and a cast of the whole then know why.

    Args:
        x: As for `reader.read`.
        head: As for `reader.read`.
        decide: What they are to become, for a shape, the dtype that holds them exactly and the
            narrowest ordinary one; ``None``: an array of what they are.
        dtype: The dtype that holds all exactly, if the first part's is known not to.
        weak: The narrowest ordinary one, if the first part's is known to be too narrow.
        narrows: Whether it matters which that is; else it is the dtype that holds them exactly.
    """
    shape = reader.shape_of(x)
    parts = Parts(x, head, shape, dtype)
    wanted, result, put = None, None, None
    try:
        for index, part, numbers in parts.with_objects():
            if wanted is None:
                dtype = of_numpy(numbers.dtype) or ""
                if not reader.is_number(head):
                    weak = None
                elif weak is None:
                    weak = reader.narrowest(numbers) if narrows else dtype
                wanted = decide(shape, dtype, weak)
                if wanted is None:
                    return None
                result, put = (wanted.sink or _nowhere)(shape, wanted.dtype)
            elif weak not in (None, dtype) and reader.narrowest(numbers) != weak:
                weak, before = dtype, wanted
                wanted = decide(shape, dtype or "", weak)
                if wanted is None or wanted.dtype != before.dtype:
                    result = put = None  # so that their memory is free
                    return read(x, head, decide, parts.dtype, weak, narrows=narrows)
            if put is not None:
                put(index, part, numbers, wanted.check)
    except _UnlikePartsError:
        result = put = None
        dtype = _common(x, head, shape)
        return None if dtype is None else read(x, head, decide, dtype, narrows=narrows)
    except ConversionError:
        return None
    if wanted is None:
        return None
    return Read(result if wanted.sink else Parts(x, head, shape, dtype), shape, dtype or "", weak)


def into_array(shape: tuple[int, ...], dtype: str) -> tuple[Array, Put]:
    """Compact and aligned memory, to be filled."""
    result = memory.compact(shape, numpy_dtype(dtype))

    def put(index: Index, _part: Any, numbers: Array, check: str) -> None:
        casts.fill(result[index], numbers, check)

    return result, put


def into_lists(to_scalars: Callable[[Array], Any]) -> Sink:
    """Nested lists: of the very objects where that makes no difference, else of what a function makes of an array."""

    def sink(shape: tuple[int, ...], dtype: str) -> tuple[list[Any], Put]:
        result, kept, kind = _hollow(shape), numpy_dtype(dtype), _KINDS.get(dtype)

        def put(index: Index, part: Any, numbers: Array, check: str) -> None:
            *rows, last = index
            at = result
            for row in rows:
                at = at[row]
            if numbers.dtype == kept:
                at[last] = (kind and _same(part, numbers.shape, kind)) or to_scalars(numbers)
            else:
                at[last] = to_scalars(casts.cast(numbers, dtype, check))

        return result, put

    return sink


def _same(part: Any, shape: tuple[int, ...], kind: type) -> list[Any] | None:
    """New lists of the same immutable numbers, if all are of a kind and there are enough to gain by it."""
    if not isinstance(part, (list, tuple)) or shape[-1] < _SHORT:
        return None
    if len(shape) == 1:
        return list(part) if list(map(type, part)).count(kind) == len(part) else None
    rows = [_same(row, shape[1:], kind) for row in part]
    return None if None in rows else rows


def _nowhere(_shape: tuple[int, ...], dtype: str) -> tuple[None, Put]:
    """Numbers are compared, and not kept."""

    def put(_index: Index, _part: Any, numbers: Array, check: str) -> None:
        if check:
            casts.check_values(numbers, dtype, check)

    return None, put


def _hollow(shape: tuple[int, ...]) -> list[Any]:
    """Nested lists without their elements, as deep as parts are smaller than a row."""
    if math.prod(shape[1:]) <= _PART:
        return [None] * shape[0]
    return [_hollow(shape[1:]) for _ in range(shape[0])]


def _split(x: Any, shape: tuple[int, ...]) -> Iterator[tuple[Index, Any]]:
    """Where each part lies, and the part: some rows if a row is short, else parts of rows."""
    inner = math.prod(shape[1:])
    if inner <= _PART:
        rows = max(1, _PART // max(inner, 1))
        for start in range(0, shape[0], rows):
            index = slice(start, min(start + rows, shape[0]))
            yield (index,), x[index]
        return
    rows = x[: shape[0]]
    if len(rows) != shape[0] or any(reader.length_of(row) != shape[1] for row in rows):
        raise ShapeError("Rows of unequal lengths are no tensor.", None)
    for row, each in enumerate(rows):
        for inside, part in _split(each, shape[1:]):
            yield (row, *inside), part


def _shape_at(shape: tuple[int, ...], index: Index) -> tuple[int, ...]:
    last = index[-1]
    return (last.stop - last.start, *shape[len(index) :])


_KINDS = {"bool": bool, "int64": int, "uint64": int, "float64": float, "complex128": complex}
"""What `tolist` makes of an array."""
_SHORT = 32
"""Elements of a row that are made anew sooner than they are looked at once more."""
_EXACT = ("bool", "int64", "uint64", "float64", "complex128")
"""What Python numbers are read as, each before those that hold its values where it stands among them."""


def _common(x: Any, head: Any, shape: tuple[int, ...]) -> str | None:
    """The dtype that all parts are read as where they stand in one array; ``None``: the whole has to tell."""
    found: set[str] = set()
    kinds: set[type] = set()
    try:
        for _, part in _split(x, shape):
            found.add(of_numpy(reader.read(part, head).dtype) or "")
            kinds |= reader.element_types(part)
    except ConversionError:
        return None
    if not kinds <= reader.PYTHON_NUMBERS or not found <= set(_EXACT):
        return None
    # NumPy reads int64 and uint64 in one list as float64; `reader.read` mends that where no bool is among them.
    if found <= {"bool", "int64", "uint64"} and {"int64", "uint64"} <= found and bool in kinds:
        return None
    return max(found, key=_EXACT.index)
