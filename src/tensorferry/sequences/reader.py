"""Nested sequences of numbers, read into one array in one pass; `stacks` has those of tensors.

What a sequence is, its first element says: if that is a Python number, they are Python numbers,
whose dtype the target chooses; if it is a NumPy scalar or a tensor, they are typed.
"""

from __future__ import annotations

import marshal
import math
from array import array as typed_array
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends import registry
from ..errors import ConversionError, GradientError, LossyCastError, ShapeError
from ..host import subnormals
from ..host.numpy_dtypes import of_numpy
from .diagnostics import DEEPEST, ROWS, at_member, leaves, length_of, shape_of, why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "FEW",
    "PYTHON_NUMBERS",
    "NewArray",
    "add_up_to_float",
    "element_types",
    "first",
    "fit_float32",
    "is_number",
    "is_tensor",
    "length_of",
    "narrowest",
    "read",
    "read_plain",
    "shape_of",
]

Array = np.ndarray[Any, Any]

PYTHON_NUMBERS = frozenset({float, int, bool, complex})
_FLOATS = frozenset({float})
_READABLE = (*PYTHON_NUMBERS, np.generic, *ROWS)
_BUFFERS = (bytes, bytearray, memoryview, typed_array)
_EXACT_INTEGERS = 2**53
FEW = 256
"""Elements that Python looks at sooner than NumPy."""
_AT_ONCE = 1 << 16
"""Elements whose bytes are made at a time."""


class _Narrower(NamedTuple):
    name: str
    low: float
    high: float


_FLOAT32 = float(np.finfo(np.float32).max)
_LONGEST_FLOAT32 = 2.0**127
_NARROWER = {"int64": _Narrower("int32", -(2**31), 2**31 - 1), "float64": _Narrower("float32", -_FLOAT32, _FLOAT32)}


def first(x: Any) -> tuple[Any, int]:
    """The first element that is not a sequence, or the empty sequence, and how many there are if all rows are alike."""
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
    """Whether a first element says that they are Python numbers, not typed ones."""
    return type(element) in PYTHON_NUMBERS or not isinstance(element, np.generic)


def is_tensor(element: Any) -> bool:
    """Whether a first element is a tensor, or something that has to be refused like one."""
    if type(element) in PYTHON_NUMBERS or isinstance(element, (np.generic, *ROWS)):
        return False
    try:
        return registry.backend_of(element).name != "python" or isinstance(element, _BUFFERS)
    except ConversionError:
        return isinstance(element, np.ndarray)


class NewArray:
    """What a list was read or stacked into before it was described, in the list's place: nobody else has its memory.

    Args:
        array: The memory.
        weak: Whether it holds Python numbers, whose dtype the target chooses.
    """

    __slots__ = ("array", "weak")

    def __init__(self, array: Array, *, weak: bool = False) -> None:
        self.array = array
        self.weak = weak


# -- numbers ------------------------------------------------------------------------------------


@subnormals.kept
def read(x: Any, head: Any) -> Array:
    """Numbers in one fresh array, exactly: integers as int64 or uint64, floats as float64.

    >>> read([[1, 2], [3, 4]], 1)
    array([[1, 2],
           [3, 4]])

    Args:
        x: Nested sequences of numbers, or a number.
        head: Its first element, as `first` gives it.

    Raises:
        UnsupportedTypeError: An element is not a number; the message says where.
        ShapeError: Rows of unequal lengths; the message says which.
        LossyCastError: No dtype holds all of these numbers.
    """
    if type(x) is list and len(x) < FEW and set(map(type, x)) == _FLOATS:
        return np.array(x)
    if isinstance(x, range):
        return _read_range(x)
    plain = None if type(x) is list and 0 < len(x) < FEW and x[0] is head else read_plain(x, head)
    if plain is None:
        kinds = element_types(x)
        if not kinds <= PYTHON_NUMBERS and not all(issubclass(kind, _READABLE) for kind in kinds):
            x = _with_numbers(x, "x")
        plain = _read_by_types(x, kinds)
    if plain.dtype.char in "dD" and not _are_ordinary(plain) and _may_be_rounded(x, plain):
        return _read_exactly(x, plain)
    return plain


def _read_by_types(x: Any, kinds: set[type]) -> Array:
    """What `np.array` gives, in two thirds of its time where all are integers of at most 64 bits."""
    try:
        numbers = _read_integers(x) if kinds == {int} else np.array(x)
    except MemoryError:
        raise
    except Exception as error:  # whatever an element of somebody else's class raises when it is looked at
        raise why_unreadable(x, error) from error
    if of_numpy(numbers.dtype) is None:
        raise why_unreadable(x, None)
    return numbers


def _read_integers(x: Any) -> Array:
    try:
        if isinstance(x[0], int):
            return np.frombuffer(typed_array("q", x), np.int64)
        if not isinstance(x[0][0], ROWS) and len(set(map(len, x))) == 1:
            flat = typed_array("q", chain.from_iterable(x))
            return np.frombuffer(flat, np.int64).reshape(len(x), -1)
    except (TypeError, OverflowError):
        pass
    return np.array(x)


def read_plain(x: Any, head: Any) -> Array | None:
    """Many floats, or many integers of 32 bits, and nothing else; ``None`` if it is not that.

    `marshal` writes the type before each value, so one pass in C reads them and leaves no other type unseen.
    (https://docs.python.org/3/library/marshal.html: version 2 writes floats in binary)
    """
    kind = _MARSHALLED.get(type(head))
    shape = shape_of(x)
    if kind is None or math.prod(shape) < FEW:
        return None
    result: Array = np.empty(shape, kind.result)
    return result if _fill_plain(result, x, kind) else None


class _Marshalled(NamedTuple):
    mark: int
    stored: str
    result: type


_MARSHALLED: dict[type, _Marshalled] = {
    float: _Marshalled(ord("g"), "<f8", np.float64),
    int: _Marshalled(ord("i"), "<i4", np.int64),
}
_ROW_MARKS = (ord("["), ord("("))


def _fill_plain(result: Array, x: Any, kind: _Marshalled) -> bool:
    inner = math.prod(result.shape[1:])
    if not isinstance(x, (list, tuple)) or len(x) != len(result):
        return False
    if inner > _AT_ONCE:
        return all(_fill_plain(row, each, kind) for row, each in zip(result, x, strict=True))
    step = max(1, _AT_ONCE // inner)
    for start in range(0, len(x), step):
        part = result[start : start + step]
        record = _record(part.shape, kind)
        try:
            written = marshal.dumps(x[start : start + step], 2)
        except ValueError:
            return False
        if len(written) != record.itemsize:
            return False
        level = np.frombuffer(written, record)
        for length in part.shape:
            mark = level["mark"].flat[0]
            if mark not in _ROW_MARKS or not ((level["mark"] == mark).all() and (level["length"] == length).all()):
                return False
            level = level["items"]
        if not (level["mark"] == kind.mark).all():
            return False
        part[...] = level["value"][0]
    return True


@lru_cache(maxsize=64)
def _record(shape: tuple[int, ...], kind: _Marshalled) -> np.dtype[Any]:
    """The bytes of nested rows as `marshal` writes them."""
    record = np.dtype([("mark", "u1"), ("value", kind.stored)])
    for length in reversed(shape):
        record = np.dtype([("mark", "u1"), ("length", "<u4"), ("items", record, (length,))])
    return record


def _read_range(x: range) -> Array:
    ends = (x[0], x[-1]) if x else (0,)
    if min(ends) >= -(2**63) and max(ends) < 2**63 and abs(x.step) < 2**63:
        return np.array(x, np.int64) if abs(x.stop) >= 2**63 else np.arange(x.start, x.stop, x.step, dtype=np.int64)
    if min(ends) >= 0 and max(ends) < 2**64:
        return np.array(list(x), np.uint64)
    raise LossyCastError("A range beyond 64 bits fits no dtype.", "[float(number) for number in x]")


def _are_ordinary(numbers: Array) -> bool:
    """Whether one look says that every float lies within `_EXACT_INTEGERS`, so within float32's range as well.

    The norm is no smaller than the largest magnitude, up to rounding, for which there is room.
    """
    few = numbers.ndim == 1 and numbers.size < FEW and numbers.dtype.char == "d"
    return few and math.hypot(*numbers.tolist()) < _EXACT_INTEGERS / 2


def _may_be_rounded(x: Any, array: Array) -> bool:
    """Whether an integer can have been rounded on its way into float64."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    if not array.size or all(
        np.minimum.reduce(part, axis=None) > -_EXACT_INTEGERS and np.maximum.reduce(part, axis=None) < _EXACT_INTEGERS
        for part in parts
    ):
        return False
    return any(issubclass(kind, (int, np.integer)) and kind is not bool for kind in element_types(x))


def element_types(x: Any) -> set[type]:
    """The types of the elements, and of rows where elements stand among them, as deep as the first element lies.

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
        kinds = set(map(type, _opened(x, level)))
    rest = depth - level - 1
    if rest and any(issubclass(kind, ROWS) for kind in kinds):
        for row in _opened(x, level):
            if isinstance(row, ROWS):
                kinds |= _types_within(row, rest)
    return kinds


def add_up_to_float(x: Any) -> bool:
    """Whether the sum of nested numbers is a Python float: a NumPy scalar or a tensor among them would make it another.

    >>> add_up_to_float([[1.0, 2], [3.0, 4.5]]), add_up_to_float([1.0, np.float32(2)])
    (True, False)
    """
    try:
        return type(sum(_opened(x, len(shape_of(x)) - 1))) is float
    except (TypeError, OverflowError):
        return False


def _opened(x: Any, levels: int) -> Any:
    """The rows or elements some levels down, one after the other."""
    for _ in range(levels):
        x = chain.from_iterable(x)
    return x


def _with_numbers(x: Any, path: str, depth: int = 0) -> Any:
    """The same rows, with the numbers of tensors that stand among numbers.

    Raises:
        UnsupportedTypeError: A tensor has no numbers to give, as one with a mask.
        GradientError: A tensor requires grad.
    """
    if isinstance(x, (list, tuple)) and depth < DEEPEST:
        return [_with_numbers(each, f"{path}[{index}]", depth + 1) for index, each in enumerate(x)]
    if not is_tensor(x):
        return x
    from ..core.request import Request
    from ..execution.recipes import conversion_of
    from ..execution.run import convert

    try:
        _, info, _ = registry.backend_of(x).open(x)
        if not info.requires_grad:
            return convert(x, conversion_of(registry.backend_named("python"), Request("python")))
    except ConversionError as error:
        raise at_member(error, path) from error
    raise GradientError(
        f"The {info.framework} tensor at {path} requires grad, and stands among numbers, which have no graph.",
        f"{path}.detach()",
    )


def _read_exactly(x: Any, array: Array) -> Array:
    """The array, unless integers were rounded: alone they take a dtype that holds them all, or raise."""
    if _has_only_integers(x):
        # NumPy's own integers would wrap around where Python's raise.
        numbers = [int(number) for _, number in leaves(x)]
        try:
            whole: Array = np.array(numbers, np.uint64).reshape(array.shape)
        except (OverflowError, ValueError):
            raise why_unreadable(x, None) from None
        return whole
    for path, number in leaves(x):
        if isinstance(number, (int, np.integer)) and not _is_float64(int(number)):
            among = "complex numbers" if array.dtype.kind == "c" else "floats"
            raise LossyCastError(
                f"The integer at {path} stands among {among}, and float64 cannot hold it.",
                "keep integers and floats apart, or float(number), which rounds",
            )
    return array


def _is_float64(number: int) -> bool:
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _has_only_integers(x: Any) -> bool:
    return all(isinstance(number, (int, np.integer)) and not isinstance(number, bool) for _, number in leaves(x))


def fit_float32(numbers: Iterable[float]) -> bool:
    """Whether one look says that each of few floats is within float32's range: so is their length all together.

    >>> fit_float32([1.5, -2.0]), fit_float32([1e300]), fit_float32([float("nan")])
    (True, False, False)
    """
    return math.hypot(*numbers) < _LONGEST_FLOAT32


def narrowest(array: Array) -> str:
    """The narrowest ordinary dtype that holds Python numbers as they were read, as far as their range goes."""
    name = of_numpy(array.dtype) or ""
    narrower = _NARROWER.get(name)
    if narrower is None:
        return name
    if not array.size or _are_ordinary(array):
        return narrower.name
    if array.ndim == 1 and array.size < FEW:
        numbers = array.tolist()
        low, high = min(numbers), max(numbers)
    else:
        low, high = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
    return narrower.name if narrower.low <= low and high <= narrower.high else name
