"""Python numbers: what kinds are among them, and their values in an array."""

from __future__ import annotations

import struct
from functools import cache
from itertools import chain
from math import hypot
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.named_tuple import NamedTuple
from ..host import casts, subnormals
from ..host.extensions import c_extension
from ..host.numpy_dtypes import numpy_dtype, of_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..typing import Array


__all__ = [
    "BEYOND",
    "BOOL",
    "COMPLEX",
    "DOUBT",
    "EXACT",
    "EXPECTED",
    "FEW",
    "FLOAT",
    "HAS_EXTENSION",
    "INT",
    "KINDS",
    "LARGE",
    "LARGEST",
    "MISFIT",
    "NEGATIVE",
    "PYTHON_NUMBERS",
    "SPECIAL",
    "TYPES",
    "UNSIGNED",
    "WIDE",
    "Exact",
    "apart",
    "are_exact",
    "exact_dtype",
    "exact_if_alike",
    "expected_of",
    "fill",
    "found_among",
    "found_in",
    "is_filled",
    "is_padded_as",
    "list_reader",
    "look",
    "mask_of",
    "measure",
    "opened_levels",
    "pad",
    "read",
    "read_part",
    "types_in",
    "weak_of",
    "with_types",
]


# -- kinds of numbers ------------------------------------------------------------------------------

DOUBT = -1
"""There is another object among the numbers, or rows have unequal lengths."""
BOOL, INT, FLOAT, COMPLEX = 1, 2, 4, 8
WIDE, LARGE, UNSIGNED, NEGATIVE = 16, 32, 64, 128
"""An int beyond 32 bits; beyond 2**53, which float64 may not have; from 2**63 on; below 0."""
BEYOND, SPECIAL, MISFIT = 256, 512, 1024
"""A finite float beyond float32; an infinity or NaN; a number not fitting the expected dtype."""
KINDS = BOOL | INT | FLOAT | COMPLEX
LARGEST = float(np.finfo(np.float32).max)
_EXACT_INTEGERS = 2**53


class Exact(NamedTuple):
    """The dtype that has numbers exactly.

    Args:
        dtype: Its name.
        narrow: Whether all are in the range of int32 or float32.
    """

    dtype: str
    narrow: bool

    @property
    def weak(self) -> str:
        """The narrowest ordinary dtype with the range of the numbers."""
        if self.narrow:
            return weak_of(self.dtype)
        return self.dtype

    def holds(self, other: Exact) -> bool:
        """Whether numbers expected as this dtype give the same bits if they are of another."""
        return EXACT[other.dtype] <= EXACT[self.dtype] and (other.narrow or not self.narrow)


def weak_of(dtype: str) -> str:
    """The narrowest ordinary dtype of a kind of Python numbers."""
    return _NARROWER.get(dtype, dtype)


_NARROWER = {"int64": "int32", "float64": "float32"}
EXACT = {"bool": 0, "int64": 1, "uint64": 2, "float64": 3, "complex128": 4}
"""The dtypes for exact Python numbers.

If two occur together, the later one has the numbers of both.
"""
EXPECTED = {
    bool: Exact("bool", narrow=True),
    int: Exact("int64", narrow=True),
    float: Exact("float64", narrow=True),
    complex: Exact("complex128", narrow=True),
}
"""The expected dtype of numbers, by the type of the first."""
TYPES = {expected.dtype: kind for kind, expected in EXPECTED.items()}
"""The type of the first number, by the expected dtype."""


@cache
def exact_dtype(flags: int) -> Exact | None:
    """The dtype that has numbers with these flags exactly; ``None`` if none may, or for no numbers.

    >>> exact_dtype(INT | FLOAT), exact_dtype(INT | LARGE | FLOAT)
    (Exact(dtype='float64', narrow=True), None)
    """
    if flags < 0 or not flags & KINDS:
        return None
    if flags & (FLOAT | COMPLEX):
        if flags & LARGE:
            return None
        narrow = not flags & (BEYOND | SPECIAL)
        return Exact("complex128" if flags & COMPLEX else "float64", narrow)
    if flags & UNSIGNED:
        if flags & (NEGATIVE | BOOL):
            return None
        return Exact("uint64", narrow=True)
    if flags & INT:
        return Exact("int64", not flags & WIDE)
    return Exact("bool", narrow=True)


def exact_if_alike(flags: int) -> Exact | None:
    """The exact dtype of numbers that are all of one type; otherwise ``None``."""
    if flags & KINDS in (BOOL, INT, FLOAT, COMPLEX):
        return exact_dtype(flags)
    return None


def found_in(array: Array) -> int:
    """The flags of numbers in an array of their exact dtype."""
    kind = array.dtype.kind
    if kind == "b":
        return BOOL
    if kind == "c":
        return (found_in(array.real) | found_in(array.imag)) & ~FLOAT | COMPLEX
    low, high = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
    if kind == "f":
        # Another pass would find out which of the two it is.
        if low >= -LARGEST and high <= LARGEST:
            return FLOAT
        return FLOAT | BEYOND | SPECIAL
    return found_among(int(low), int(high))


def found_among(low: int, high: int) -> int:
    """The flags of integers from `low` to `high`."""
    flags = INT | NEGATIVE if low < 0 else INT
    if low < -(2**31) or high >= 2**31:
        flags |= WIDE
    if low < -_EXACT_INTEGERS or high > _EXACT_INTEGERS:
        flags |= LARGE
    return flags | UNSIGNED if high >= 2**63 else flags


def are_exact(array: Array) -> bool:
    """Whether no integer among floats was rounded when it was read as float64."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return all(
        np.minimum.reduce(part, axis=None) > -_EXACT_INTEGERS
        and np.maximum.reduce(part, axis=None) < _EXACT_INTEGERS
        for part in parts
    )


# -- numbers ---------------------------------------------------------------------------------------
#
# Both give the same flags. Everything unusual is left to `reader`, which is slower and says what is
# wrong.

PYTHON_NUMBERS = frozenset({float, int, bool, complex})

FEW = 256
"""Up to this many elements, it is faster to examine the list than to describe an array of them."""

_SMALLEST = 5e-324  # times 1.0 it is 0.0 where subnormals are flushed: see `subnormals`


_extension = c_extension("sequences._fill")
HAS_EXTENSION = _extension is not None


_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "bfloat16": "E",
    "float32": "f",
    "float64": "d",
    "complex64": "F",
    "complex128": "D",
}
_ROUNDED_ONCE = {("float64", "float32"), ("complex128", "complex64")}
_FIRST = 32
"""How many numbers decide what the others are expected to be.

One is not enough, as floats may follow an int.
"""


def expected_of(x: Any, head: Any) -> Exact | None:
    """The expected exact dtype of many numbers, by the first few; ``None`` if they are unusual.

    >>> expected_of([[1, 2.5], [3, 4]], 1)
    Exact(dtype='float64', narrow=True)

    Args:
        x: Nested sequences of numbers.
        head: The first of them.
    """
    row = x
    while isinstance(row, (list, tuple)) and row and row[0] is not head:
        row = row[0]
    if type(row) in (list, tuple):
        return exact_dtype(look(row[:_FIRST]))
    return EXPECTED.get(type(head))


def read(x: Any, head: Any, shape: tuple[int, ...]) -> tuple[Array, int] | None:
    """Python numbers in a new array of exact dtype, and their flags; ``None`` if they are unusual.

    >>> read([1.5, 2.5], 1.5, (2,))
    (array([1.5, 2.5]), 4)

    Args:
        x: Nested sequences of numbers.
        head: The first of them.
        shape: Their shape.
    """
    if shape and 0 not in shape:
        expected = expected_of(x, head)
    else:
        expected = None
    for _ in range(2):
        if expected is None:
            return None
        array, flags = read_part(x, shape, expected.dtype, 0, shape[0])
        seen = exact_dtype(flags)
        if seen is not None and seen.dtype == expected.dtype:
            return array, flags
        expected = seen
        del array  # to free its memory before the next array is made
    return None


def _read_by_extension(
    x: Any, shape: tuple[int, ...], dtype: str, start: int, stop: int
) -> tuple[Array, int]:
    """A part of the first axis as an array, and the flags of its numbers.

    Args:
        x: Nested sequences of numbers.
        shape: The shape of all.
        dtype: A dtype in `flags.EXACT`.
        start: Where the part begins.
        stop: Where it ends.
    """
    try:
        array = np.empty((stop - start, *shape[1:]), numpy_dtype(dtype))
    except (MemoryError, ValueError):
        # There may be no memory for a shape that only the first rows have.
        return np.empty(0), DOUBT
    return array, _extension.fill(array, _CODES[dtype], x, shape, start, stop)  # type: ignore[union-attr]


@subnormals.with_subnormals
def _read_by_numpy(
    x: Any, shape: tuple[int, ...], dtype: str, start: int, stop: int
) -> tuple[Array, int]:
    """`_read_by_extension`, without the extension."""
    wanted = numpy_dtype(dtype)
    part = x if stop - start == len(x) else x[start:stop]
    try:
        # If there is a tensor or a NumPy scalar among them, the sum is not a Python number.
        plain = type(sum(opened_levels(part, len(shape) - 1))) in PYTHON_NUMBERS
        if plain and len(x) == shape[0]:
            array = np.array(part)
        else:
            array = None
    except Exception:  # noqa: BLE001 - whatever an element of somebody else's class raises
        array = None
    # Among bools, NumPy reads large integers as uint64 in some lists, and as floats in others.
    if array is None or array.shape != (stop - start, *shape[1:]) or array.dtype.kind not in "bifc":
        return np.empty(0, wanted), DOUBT
    flags = found_in(array)
    if (
        array.dtype.kind in "fc"
        and not are_exact(array)
        and int in set(map(type, opened_levels(part, len(shape) - 1)))
    ):
        flags |= LARGE
    if array.dtype == wanted:
        return array, flags
    if EXACT[of_numpy(array.dtype) or ""] > EXACT[dtype] or (
        flags & NEGATIVE and dtype == "uint64"
    ):
        return array, flags | MISFIT
    return array.astype(wanted), flags


if _extension is None:
    read_part = _read_by_numpy
else:
    read_part = _read_by_extension


def types_in(row: list[Any]) -> set[type]:
    """The types of the elements of a list.

    >>> types_in([1, 2.5]) == {int, float}, types_in([])
    (True, set())
    """
    kind = None if _extension is None else _extension.type_of(row)
    if kind is None:
        return set(map(type, row))
    return {kind}


def _apart_by_extension(samples: list[Any]) -> list[list[Any]] | None:
    """Dicts, tuples or lists, at least one, as columns: the values of all for each key or place.

    ``None`` if one has another type or length than the first, or if its keys are not surely the
    same, in its order.

    >>> apart([{"a": 1, "b": 2}, {"a": 3, "b": 4}]), apart([(1, 2), (3,)])
    ([[1, 3], [2, 4]], None)
    """
    columns = _extension.apart(samples)  # type: ignore[union-attr]
    return None if columns is None else list(columns)


def _apart_in_python(samples: list[Any]) -> list[list[Any]] | None:
    """`_apart_by_extension`, without the extension."""
    first, rows = samples[0], samples
    if len(types_in(samples)) > 1:
        return None
    if isinstance(first, dict):
        # Copies, which no other thread can change.
        held = list(map(dict.copy, samples))
        keys, known = list(chain.from_iterable(held)), [*held[0]] * len(held)
        if len(keys) != len(known) or not all(map(_is_same_key, keys, known)):
            return None
        rows = list(map(dict.values, held))
    elif isinstance(first, list):
        rows = list(map(list.copy, samples))
    if len(set(map(len, rows))) > 1:
        return None
    return list(map(list, zip(*rows, strict=True)))


def _is_same_key(key: Any, other: Any) -> bool:
    """Whether two keys are surely the same: no code of a class decides it."""
    return key is other or (type(key) is type(other) and type(key) in (str, int) and key == other)


if _extension is None:
    apart = _apart_in_python
else:
    apart = _apart_by_extension


def opened_levels(x: Any, levels: int) -> Any:
    """Iterate over the rows or elements that are `levels` levels down."""
    for _ in range(levels):
        x = chain.from_iterable(x)
    return x


def with_types(flags: int, x: Any, depth: int) -> int:
    """The flags, with those for the types of the numbers, which NumPy does not tell.

    Args:
        flags: The flags so far.
        x: Nested sequences of numbers.
        depth: The number of levels.
    """
    if _extension is not None:
        return flags
    kinds = set(map(type, opened_levels(x, depth - 1)))
    if kinds <= PYTHON_NUMBERS:
        return (flags & ~KINDS) | sum(map(_FLAGS.__getitem__, kinds))
    return DOUBT


_FLAGS = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX}


def _look_by_numpy(row: Any) -> int:
    """The flags of the numbers in a list or a tuple."""
    row = tuple(row)  # which no other thread can change between one look and the next
    kinds = set(map(type, row))
    if kinds == {float} and hypot(*row) < LARGEST / 2:
        return FLOAT
    if kinds == {int}:
        low, high = min(row), max(row)
        if low >= -(2**63) and high < 2**64:
            return found_among(low, high)
        return DOUBT
    if not kinds or not kinds <= PYTHON_NUMBERS:
        return DOUBT if kinds else 0
    flags = _read_by_numpy(row, (len(row),), "complex128", 0, len(row))[1]
    if flags & FLOAT and kinds <= {int, bool}:
        return DOUBT  # NumPy made floats from bools and ints from 2**63 on
    return with_types(flags, row, 1)


if _extension is None:
    look = _look_by_numpy
else:
    look = _extension.look


def fill(result: Array, dtype: str, check: str, x: Any, shape: tuple[int, ...]) -> int:
    """Write numbers into new memory without gaps, in one pass, rounded as by a cast.

    Gives their flags.

    The result is `DOUBT` if that is impossible. Then they are read into an array of their exact
    dtype, which is cast.

    Args:
        result: The array to write.
        dtype: Their expected exact dtype.
        check: How a cast from that dtype would check each value, see `casts.cast`.
        x: Nested sequences of numbers.
        shape: Their shape.
    """
    wanted = of_numpy(result.dtype) or ""
    if _extension is None or not is_filled(dtype, wanted, check):
        return DOUBT
    return _fill_by_extension(result, _CODES[wanted], x, shape)


def _measure_by_extension(lists: list[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The greatest and the least length on each axis of nested lists.

    ``None`` if they are not equally deep, or if it is faster to take each by itself.
    """
    return _extension.measure(lists)  # type: ignore[no-any-return, union-attr]


def _measure_by_numpy(lists: list[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """`_measure_by_extension`, without the extension: for lists of numbers."""
    if set(map(type, lists)) != {list} or list in {type(row[0]) for row in lists if row}:
        return None
    lengths = list(map(len, lists))
    return (max(lengths),), (min(lengths),)


def _pad_by_extension(
    result: Array,
    dtype: str,
    lists: list[Any],
    axis: int,
    left: bool,
    value: bytes,
    mask: Array | None,
    lengths: Array | None,
) -> int:
    """Write nested lists into new memory, each padded to its shape; gives the numbers' flags.

    Args:
        result: The array to write. Its first axis counts the lists.
        dtype: Its dtype, for which `is_padded_as` is true, or their exact dtype.
        lists: The lists.
        axis: The axis of the result that is padded on the left, if any is.
        left: Whether it is.
        value: The padding, as the bytes of one element.
        mask: An array for where there are elements on that axis, or ``None``.
        lengths: An array for how many there are, or ``None``.
    """
    return _extension.pad(  # type: ignore[no-any-return, union-attr]
        result, _CODES[dtype], lists, result.shape, axis, left, value, mask, lengths
    )


def _pad_by_numpy(
    result: Array,
    dtype: str,
    lists: list[Any],
    axis: int,
    left: bool,
    value: bytes,
    mask: Array | None,
    lengths: Array | None,
) -> int:
    """`_pad_by_extension`, without the extension: for lists of numbers, in their exact dtype."""
    flat = list(chain.from_iterable(lists))
    read, flags = read_part(flat, (len(flat),), dtype, 0, len(flat))
    flags = with_types(flags, flat, 1)
    if flags < 0 or flags & MISFIT:
        return flags
    where = mask_of(lists, result.shape[axis], left=left)
    counts = np.count_nonzero(where, axis=1)
    if counts.tolist() != list(map(len, lists)) or len(flat) != counts.sum():
        return DOUBT  # another thread has changed them
    if result.size > len(flat):
        result[...] = np.frombuffer(value, result.dtype)[0]
        result[where] = read
    else:
        result[...] = read.reshape(result.shape)
    for written, seen in ((mask, where), (lengths, counts)):
        if written is not None:
            written[...] = seen
    return flags


def mask_of(lists: list[Any], length: int, *, left: bool) -> Array:
    """For lists that are padded to a length: true where there is an element.

    >>> mask_of([[1, 2], [3]], 3, left=True).tolist()
    [[False, True, True], [False, False, True]]
    """
    places, lengths = np.arange(length), np.array(list(map(len, lists)))[:, np.newaxis]
    if left:
        return places >= length - lengths
    return places < lengths


if _extension is None:
    measure, pad = _measure_by_numpy, _pad_by_numpy
else:
    measure, pad = _measure_by_extension, _pad_by_extension


def is_padded_as(dtype: str, wanted: str, check: str) -> bool:
    """Whether `pad` reads numbers of one dtype as another, with the bits of a cast."""
    return dtype == wanted or (_extension is not None and is_filled(dtype, wanted, check))


def _read_nothing(_: object) -> None:
    """What is not read becomes nothing."""


def list_reader(
    dtypes: Mapping[type, str],
    allocate: Callable[[int, np.dtype[Any]], Array] = np.empty,
    otherwise: Callable[[list[Any]], Array | None] = _read_nothing,
) -> Callable[[list[Any]], Array | None]:
    """A function that reads a list of numbers into an array; gives ``None`` for an unusual list.

    Args:
        dtypes: The dtype of the array, by the type of the first number, or by the expected type of
            many.
        allocate: Makes a new array.
        otherwise: Reads a list that does not begin with numbers, or is long and unusual.
    """
    ways = _Ways(dtypes)
    write: Any = getattr(_extension, "fill", None)

    def read(x: list[Any]) -> Array | None:
        kind: Any = type(x[0]) if x else None
        if len(x) >= FEW:
            likely = exact_dtype(look(x[:_FIRST]))
            if likely is None:
                kind = None
            else:
                kind = TYPES.get(likely.dtype)
        way = ways[kind]
        if way is None:
            return otherwise(x)
        if not _SMALLEST * 1.0:
            return None
        dtype, code, expected = way
        if write is None:
            # A copy, which no other thread can change meanwhile.
            x = x.copy() if len(x) < FEW else []
            if not x or look(x) not in expected:
                return None
            result = allocate(len(x), dtype)
            try:
                result[...] = x
            except OverflowError:  # an integer does not fit
                return None
            return result
        result = allocate(len(x), dtype)
        if write(result, code, x) in expected:
            return result
        return None

    return read


class _Ways(dict[Any, "tuple[np.dtype[Any], str, frozenset[int]] | None"]):
    """How numbers of a type are read: dtype, code, possible flags; ``None`` if they are not read.

    It is filled at the first list of each, because to find the flags takes as long as to import a
    module.
    """

    def __init__(self, dtypes: Mapping[type, str]) -> None:
        self._dtypes = dtypes

    def __missing__(self, kind: type) -> tuple[np.dtype[Any], str, frozenset[int]] | None:
        dtype = self._dtypes.get(kind)
        if dtype is None:
            return None
        exact = EXPECTED[kind].dtype
        return self.setdefault(
            kind, (numpy_dtype(dtype), _CODES[dtype], _all_within(exact, narrow=dtype != exact))
        )


def is_filled(dtype: str, wanted: str, check: str) -> bool:
    """Whether the extension reads numbers of one dtype as another, with the bits of a cast."""
    if (dtype, wanted) in _ROUNDED_ONCE:
        return check in ("", "finite")
    if dtype == "float64" and wanted in ("float16", "bfloat16"):
        return check in ("", "finite") and _extension is not None and _are_cast_alike(wanted)
    return wanted == dtype or (dtype == "int64" and wanted in _INTEGERS)


_HALFWAY = [
    sign * size * (1 + odd * 2.0**-bits + part)
    for sign in (1, -1)
    for size in (1.0, 2.0**-20, 2.0**-130)
    for bits in (8, 11)
    for odd in (1, 3)
    for part in (-(2.0**-40), 0.0, 2.0**-40)
]
"""Floats in the middle between two 16-bit floats, or near it."""
_NANS = struct.pack(
    "<4Q", 0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FF5555555555555
)


@cache
@subnormals.with_subnormals
def _are_cast_alike(wanted: str) -> bool:
    """Whether the extension gives the same 16-bit floats as a cast, which is tested once.

    What NumPy's float16 keeps of a NaN depends on the processor, and what bfloat16 keeps on the
    version of ml_dtypes.
    """
    tried = np.array([*_HALFWAY, *struct.unpack("<4d", _NANS)])
    filled = np.empty(tried.shape, numpy_dtype(wanted))
    flags = _extension.fill(filled, _CODES[wanted], tried.tolist())  # type: ignore[union-attr]
    return not flags & MISFIT and filled.tobytes() == casts.cast(tried, wanted).tobytes()


@cache
def _all_within(dtype: str, *, narrow: bool) -> frozenset[int]:
    """The flags that numbers of a dtype can have; if `narrow`, without numbers beyond float32."""
    every = (
        (flags, exact_dtype(flags)) for flags in range(MISFIT) if not (narrow and flags & BEYOND)
    )
    return frozenset(flags for flags, seen in every if seen is not None and seen.dtype == dtype)


_INTEGERS = frozenset(name for name in _CODES if "int" in name)


@subnormals.with_subnormals
def _fill_by_extension(*arguments: Any) -> int:
    flags: int = _extension.fill(*arguments)  # type: ignore[union-attr]
    return flags
