"""Nested sequences: numbers read into one array in one pass, tensors stacked into one memory.

What a sequence is, its first element says: if that is a Python number, they are Python numbers,
whose dtype the target chooses; if it is a NumPy scalar or a tensor, they are typed.
"""

from __future__ import annotations

import math
from array import array as typed_array
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import casts, dtypes, memory, registry
from .backend import EXCHANGE
from .errors import ConversionError, LossyCastError, ShapeError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .backend import Backend

__all__ = [
    "PYTHON_NUMBERS",
    "Stacked",
    "collect_types",
    "first",
    "is_number",
    "is_tensor",
    "length_of",
    "narrowest",
    "read",
    "shape_of",
    "stack",
]

Array = np.ndarray[Any, Any]

PYTHON_NUMBERS = frozenset({float, int, bool, complex})
_EXACT_INTEGERS = 2**53
_DEEPEST = 64
_FEW = 256
"""Elements that Python looks at sooner than NumPy."""


class _Narrower(NamedTuple):
    name: str
    low: float
    high: float


_FLOAT32 = float(np.finfo(np.float32).max)
_NARROWER = {"int64": _Narrower("int32", -(2**31), 2**31 - 1), "float64": _Narrower("float32", -_FLOAT32, _FLOAT32)}


class Stacked(NamedTuple):
    """Tensors of equal shapes as one; `framework` is ``None`` if it is an array."""

    framework: Backend | None
    value: Any
    requires_grad: bool


def first(x: Any) -> tuple[Any, int]:
    """The first element that is not a sequence, or the empty sequence, and how many there are if all rows are alike."""
    if type(x) is list and x and type(x[0]) in PYTHON_NUMBERS:
        return x[0], len(x)
    size = 1
    for _ in range(_DEEPEST):
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
    if type(element) in PYTHON_NUMBERS or isinstance(element, (np.generic, list, tuple, range)):
        return False
    try:
        return registry.backend_of(element).name != "python" or isinstance(element, (bytes, bytearray, memoryview))
    except ConversionError:
        return isinstance(element, np.ndarray)


# -- numbers ------------------------------------------------------------------------------------


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
    if isinstance(x, range):
        return _read_range(x)
    try:
        numbers = _read_integers(x) if type(head) is int else np.array(x)
    except (ValueError, OverflowError, TypeError, RuntimeError, RecursionError) as error:
        raise _why_unreadable(x, error) from None
    if dtypes.of_numpy(numbers.dtype) is None:
        raise _why_unreadable(x, None)
    if numbers.dtype.char in "dD" and not _are_ordinary(x, numbers) and _may_be_rounded(x, numbers):
        return _read_exactly(x, numbers)
    return numbers


def _read_integers(x: Any) -> Array:
    """What `np.array` gives, in two thirds of its time where all are integers of at most 64 bits."""
    depth, row = 0, x
    while isinstance(row, (list, tuple)) and row:
        depth, row = depth + 1, row[0]
    try:
        if depth == 1:
            return np.frombuffer(typed_array("q", x), np.int64)
        if depth == 2 and set(map(type, x)) <= {list, tuple} and len(set(map(len, x))) == 1:
            flat = typed_array("q")
            for row in x:
                flat.extend(row) if type(row) is tuple else flat.fromlist(row)
            return np.frombuffer(flat, np.int64).reshape(len(x), -1)
    except (TypeError, OverflowError):
        pass
    return np.array(x)


def _read_range(x: range) -> Array:
    ends = (x[0], x[-1]) if x else (0,)
    if min(ends) >= -(2**63) and max(ends) < 2**63 and abs(x.step) < 2**63:
        return np.array(x, np.int64) if abs(x.stop) >= 2**63 else np.arange(x.start, x.stop, x.step, dtype=np.int64)
    if min(ends) >= 0 and max(ends) < 2**64:
        return np.array(list(x), np.uint64)
    raise LossyCastError("A range beyond 64 bits fits no dtype.", "[float(number) for number in x]")


def _are_ordinary(x: Any, numbers: Array) -> bool:
    """Whether one look says that every float lies within `_EXACT_INTEGERS`, so within float32's range as well.

    The norm is no smaller than the largest magnitude, up to rounding, for which there is room.
    """
    few = numbers.ndim == 1 and numbers.size < _FEW and numbers.dtype.char == "d"
    return few and math.hypot(*x) < _EXACT_INTEGERS / 2


def _may_be_rounded(x: Any, array: Array) -> bool:
    """Whether an integer can have been rounded on its way into float64."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    if not array.size or all(
        np.minimum.reduce(part, axis=None) > -_EXACT_INTEGERS and np.maximum.reduce(part, axis=None) < _EXACT_INTEGERS
        for part in parts
    ):
        return False
    kinds: set[type] = set()
    collect_types(x, array.ndim, kinds)
    return any(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds)


def collect_types(x: Any, depth: int, kinds: set[type]) -> None:
    """The types of the elements, which are `depth` levels down, a row at a time."""
    if depth > 1:
        for row in x:
            collect_types(row, depth - 1, kinds)
    else:
        kinds.update(map(type, x) if depth else (type(x),))


def _read_exactly(x: Any, array: Array) -> Array:
    """The array, unless integers were rounded: alone they take a dtype that holds them all, or raise."""
    if _has_only_integers(x):
        try:
            return np.array(x, np.uint64)
        except (OverflowError, ValueError):
            raise _why_unreadable(x, None) from None
    for path, number in _leaves(x):
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
    return all(isinstance(number, (int, np.integer)) and not isinstance(number, bool) for _, number in _leaves(x))


def narrowest(x: Any, array: Array) -> str:
    """The narrowest ordinary dtype that holds these Python numbers, as far as their range goes."""
    name = dtypes.of_numpy(array.dtype) or ""
    narrower = _NARROWER.get(name)
    if narrower is None:
        return name
    if not array.size or _are_ordinary(x, array):
        return narrower.name
    if array.ndim == 1 and array.size < _FEW and not isinstance(x, range):
        low, high = min(x), max(x)
    else:
        low, high = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
    return narrower.name if narrower.low <= low and high <= narrower.high else name


# -- tensors ------------------------------------------------------------------------------------


def stack(x: Any, target: Backend | None) -> Stacked:
    """Tensors of equal shapes in one memory: on the target if it keeps their graph, else an array.

    Raises:
        ShapeError: Unequal shapes; the message says where, and both.
        UnsupportedTypeError: An element is not a tensor; the message says where.
        LossyCastError: No dtype holds the values of all.
    """
    own = _stack_quickly(x, target)
    if own is not None:
        return own
    arrays = _as_arrays(x)
    if arrays is not None and len({(each.dtype, each.shape) for each in arrays}) == 1:
        dtype = arrays[0].dtype
        if dtypes.is_native_and_known(dtype):
            return Stacked(None, _stack_alike(arrays, dtype), requires_grad=False)
    shape = _outer_shape(x)
    leaves = list(_leaves(x))
    opened = [_open(path, leaf) for path, leaf in leaves]
    first_path, (_, head, _) = leaves[0][0], opened[0]
    for (path, _), (_, info, _) in zip(leaves, opened, strict=True):
        if info.shape != head.shape:
            raise ShapeError(
                f"Tensors of unequal shapes do not stack: {head.shape} at {first_path}, {info.shape} at {path}.",
                "pad them to one shape first",
            )
    whole = (*shape, *head.shape)
    requires_grad = any(info.requires_grad for _, info, _ in opened)
    if (
        target is not None
        and target.capabilities.gradients
        and all(source is target for source, _, _ in opened)
        and len({info.dtype for _, info, _ in opened}) == 1
        and {info.abstract for _, info, _ in opened} <= {None, *target.capabilities.inside_only}
    ):
        return Stacked(target, target.stack([handle for _, _, handle in opened], whole), requires_grad)
    return Stacked(None, _stack_arrays(leaves, opened, whole), requires_grad)


def _stack_quickly(x: Any, target: Backend | None) -> Stacked | None:
    """Tensors of the target's own, stacked by it, if it sees at a glance that they are alike."""
    if target is None or not target.capabilities.gradients:
        return None
    kinds = set(map(type, x))
    if len(kinds) > 1 or not registry.is_known_tensor(type(x[0])) or registry.backend_of(x[0]) is not target:
        return None
    value = target.stack_alike(x)
    return None if value is None else Stacked(target, value, target.describe(value).requires_grad)


def _as_arrays(x: Any) -> Sequence[Array] | None:
    """Tensors of one type as arrays, if a fast lane takes all of them: what has a graph it refuses."""
    kinds = set(map(type, x))
    if kinds == {np.ndarray}:
        return x  # type: ignore[no-any-return]
    kind = kinds.pop()
    if kinds or not registry.is_known_tensor(kind):
        return None
    try:
        arrays = list(map(registry.lanes_to(EXCHANGE)[kind], x))
    except registry.REFUSALS:
        return None
    return None if any(each is None for each in arrays) else arrays


def _open(path: str, leaf: Any) -> tuple[Backend, Any, Any]:
    try:
        source, info, handle = registry.backend_of(leaf).open(leaf)
    except ConversionError as error:
        raise type(error)(f"{error.message} - at {path}", error.hint) from error
    return source, info, handle


def _stack_arrays(
    leaves: list[tuple[str, Any]], opened: list[tuple[Backend, Any, Any]], whole: tuple[int, ...]
) -> Array:
    from .request import Request
    from .run import carry

    name = dtypes.common(info.dtype for _, info, _ in opened)
    exchange = registry.backend_named("numpy")
    arrays = []
    for (path, leaf), (source, info, handle) in zip(leaves, opened, strict=True):
        if source is exchange and not info.swapped:
            arrays.append(handle)
            continue
        try:
            arrays.append(carry(leaf, exchange, Request(target=exchange.name)))
        except ConversionError as error:
            raise type(error)(f"{error.message} - at {path}", error.hint) from error
    row = dtypes.find(name)
    if all(array.dtype == row.numpy for array in arrays):
        return _stack_alike(arrays, row.numpy).reshape(whole)
    result = memory.compact((len(arrays), *arrays[0].shape), row.numpy)
    for index, array in enumerate(arrays):
        casts.copy_into(result[index : index + 1], array[np.newaxis])
    return result.reshape(whole)


def _stack_alike(arrays: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """Arrays of one dtype and shape in one memory, aligned so that any target can adopt it."""
    length, shape = len(arrays), arrays[0].shape
    result = memory.compact((length, *shape), dtype)
    if shape:
        # Not `np.stack`, which makes a view of each: where arrays are small, as much memory again.
        np.concatenate(arrays, out=result.reshape(length * shape[0], *shape[1:]))
    else:
        np.stack(arrays, out=result)
    return result


# -- where something is wrong -------------------------------------------------------------------


def _leaves(x: Any, path: str = "x", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(x, (list, tuple, range)) and depth < _DEEPEST:
        for index, element in enumerate(x):
            yield from _leaves(element, f"{path}[{index}]", depth + 1)
    else:
        yield path, x


def _outer_shape(x: Any, path: str = "x") -> tuple[int, ...]:
    """The shape of the nesting around tensors.

    Raises:
        ShapeError: Rows of unequal lengths.
    """
    problem = _ragged(x, path)
    if problem is not None:
        raise problem
    shape = []
    while isinstance(x, (list, tuple)):
        shape.append(len(x))
        x = x[0]
    return tuple(shape)


def _why_unreadable(x: Any, cause: Exception | None) -> ConversionError:
    """The error that says what is wrong with a sequence, and where."""
    ragged = _ragged(x, "x")
    if ragged is not None:
        return ragged
    for path, leaf in _leaves(x):
        problem = _why_no_number(path, leaf)
        if problem is not None:
            return problem
    if cause is not None:
        return UnsupportedTypeError(f"This sequence cannot be read: {cause}", None)
    return LossyCastError(
        "No dtype holds all of these integers: int64 has no room for the largest, uint64 none for the negative.",
        "[float(number) for number in x], which rounds",
    )


def _why_no_number(path: str, leaf: Any) -> ConversionError | None:
    if isinstance(leaf, (bool, float, complex, np.bool_, np.number)):
        return None
    if isinstance(leaf, int):
        if -(2**63) <= leaf < 2**64:
            return None
        return LossyCastError(f"The integer at {path} does not fit into 64 bits.", "float(number), which rounds")
    if isinstance(leaf, (list, tuple)):
        return ShapeError(f"{path} is nested deeper than {_DEEPEST} levels, or contains itself.", None)
    name = type(leaf).__name__
    if isinstance(leaf, (Decimal, Fraction)):
        return UnsupportedTypeError(
            f"The {name} at {path} is an exact number that no dtype holds.",
            "float(number), which rounds",
        )
    if leaf is None:
        return UnsupportedTypeError(f"None at {path} is not a number.", 'float("nan"), or leave it out')
    return UnsupportedTypeError(f"The {name} at {path} is not a number.", None)


def _ragged(x: Any, path: str, depth: int = 0) -> ShapeError | None:
    """The error for the first place where lengths differ, or ``None`` if they do not."""
    if not isinstance(x, (list, tuple, range)) or not len(x) or depth > _DEEPEST:
        return None
    lengths = [length_of(element) for element in x]
    for index, length in enumerate(lengths):
        if length != lengths[0]:
            here, there = ("a number" if size is None else f"length {size}" for size in (lengths[0], length))
            return ShapeError(
                f"Rows of unequal lengths are no tensor: {here} at {path}[0], {there} at {path}[{index}].",
                "pad the rows to one length first",
            )
    if lengths[0] is None:
        return None
    for index, element in enumerate(x):
        found = _ragged(element, f"{path}[{index}]", depth + 1)
        if found is not None:
            return found
    return _ragged_across(x, path)


def _ragged_across(x: Any, path: str) -> ShapeError | None:
    """Rows of one length each, whose own rows differ in length from one to the next."""
    shapes = [shape_of(element) for element in x]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            return ShapeError(
                f"Rows of unequal lengths are no tensor: shape {shapes[0]} at {path}[0], {shape} at {path}[{index}].",
                "pad the rows to one length first",
            )
    return None


def length_of(x: Any) -> int | None:
    """How long a sequence is; ``None``: it is an element."""
    return len(x) if isinstance(x, (list, tuple, range)) else None


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of the nesting, as the first row of each level tells it."""
    shape: list[int] = []
    while isinstance(x, (list, tuple, range)) and len(shape) < _DEEPEST:
        shape.append(len(x))
        if not len(x):
            break
        x = x[0]
    return tuple(shape)
