"""Read nested sequences of numbers into one array, in one pass.

The first element decides: if it is a Python number, all are Python numbers, whose dtype the target
chooses; if it is a NumPy scalar or a tensor, they have dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.named_tuple import NamedTuple
from ..errors import LossyCastError, ShapeError
from ..host import subnormals
from ..host.numpy_dtypes import of_numpy
from . import flags, numbers
from .diagnostics import DEEPEST, ROWS, each_rounded, leaves, shape_of, why_unreadable
from .numbers import PYTHON_NUMBERS, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import ConversionError
    from ..typing import Array

__all__ = [
    "PYTHON_NUMBERS",
    "NewArray",
    "Others",
    "element_types",
    "first",
    "is_number",
    "narrowest",
    "read",
]

_READABLE = (*PYTHON_NUMBERS, np.generic, *ROWS)


def first(x: Any) -> tuple[Any, int]:
    """The first element that is not a sequence, or the empty sequence; and the number of elements if rows are equal."""
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
    """A new array that takes the place of a list, which was read or stacked before it was described.

    Args:
        array: The array, whose memory no other object has.
        weak: Whether it holds Python numbers, whose dtype the target chooses.
    """

    __slots__ = ("array", "weak")

    def __init__(self, array: Array, *, weak: bool = False) -> None:
        self.array = array
        self.weak = weak


class Others(NamedTuple):
    """What is done with elements that are no numbers. Only the caller knows which are tensors.

    Args:
        replace: Gives the rows, in which numbers take the place of tensors.
        refuse: Gives the error for another object at a path in the sequence.
    """

    replace: Callable[[Any], Any]
    refuse: Callable[[str, Any, Any], ConversionError]


# -- numbers ------------------------------------------------------------------------------------


@subnormals.kept
def read(x: Any, head: Any, others: Others) -> tuple[Array, str | None]:
    """Numbers in a new array of their exact dtype (int64, uint64, float64 …), and the narrowest ordinary dtype.

    The narrowest dtype has the range of the numbers; it is ``None`` if they have dtypes of their
    own.

    Args:
        x: Nested sequences of numbers, or a number.
        head: Its first element, as `first` gives it.
        others: What is done with elements that are no numbers.

    Raises:
        UnsupportedTypeError: An element is not a number; the message says where.
        ShapeError: Rows of unequal lengths; the message says which.
        LossyCastError: No dtype has all of these numbers.
    """
    found = numbers.read(x, head, shape_of(x))
    exact = flags.exact(found[1]) if found else None
    if found and exact:
        return found[0], exact.weak
    array = _read_range(x) if isinstance(x, range) else _read_carefully(x, others)
    return array, narrowest(array) if is_number(head) else None


def _read_carefully(x: Any, others: Others) -> Array:
    kinds = element_types(x)
    if not all(issubclass(kind, _READABLE) for kind in kinds):
        x = others.replace(x)
    try:
        array = np.array(x)
    except MemoryError:
        raise
    except Exception as error:  # an element of any class may raise anything
        raise why_unreadable(x, error, others.refuse) from error
    if of_numpy(array.dtype) is None:
        raise why_unreadable(x, None, others.refuse)
    if array.dtype.char in "dD" and _may_be_rounded(x, array):
        return _read_exactly(x, array, others)
    return array


def _read_range(x: range) -> Array:
    ends = (x[0], x[-1]) if x else (0,)
    if min(ends) >= -(2**63) and max(ends) < 2**63 and abs(x.step) < 2**63:
        return (
            np.array(x, np.int64)
            if abs(x.stop) >= 2**63
            else np.arange(x.start, x.stop, x.step, dtype=np.int64)
        )
    if min(ends) >= 0 and max(ends) < 2**64:
        return np.array(list(x), np.uint64)
    raise LossyCastError("A range beyond 64 bits fits no dtype.", "[float(number) for number in x]")


def _may_be_rounded(x: Any, array: Array) -> bool:
    """Whether an integer may have been rounded when it was read as float64."""
    if not array.size or flags.are_exact(array):
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
        kinds = set(map(type, opened(x, level)))
    rest = depth - level - 1
    if rest and any(issubclass(kind, ROWS) for kind in kinds):
        for row in opened(x, level):
            if isinstance(row, ROWS):
                kinds |= _types_within(row, rest)
    return kinds


def _read_exactly(x: Any, array: Array, others: Others) -> Array:
    """The array; if integers were rounded in it, they are read again as integers, which may raise."""
    if _has_only_integers(x):
        # As Python integers, because NumPy's would wrap around instead of raising.
        integers = [int(number) for _, number in leaves(x)]
        try:
            whole: Array = np.array(integers, np.uint64).reshape(array.shape)
        except (OverflowError, ValueError):
            raise why_unreadable(x, None, others.refuse) from None
        return whole
    for path, number in leaves(x):
        if isinstance(number, (int, np.integer)) and not _is_float64(int(number)):
            among = "complex numbers" if array.dtype.kind == "c" else "floats"
            raise LossyCastError(
                f"The integer at {path} stands among {among}, and float64 cannot hold it.",
                each_rounded(x, path),
            )
    return array


def _is_float64(number: int) -> bool:
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _has_only_integers(x: Any) -> bool:
    return all(
        isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        for _, number in leaves(x)
    )


def narrowest(array: Array) -> str:
    """The narrowest ordinary dtype with the range of Python numbers that were read into an array."""
    name = of_numpy(array.dtype) or ""
    found = flags.exact(flags.found_in(array)) if array.size and name in flags.EXACT else None
    return flags.weak_of(name) if found is None else found.weak
