"""Flags for the types and ranges of Python numbers, and the dtype that has all of them exactly."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ..core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from ..typing import Array

__all__ = [
    "BEYOND",
    "BOOL",
    "COMPLEX",
    "DOUBT",
    "EXACT",
    "EXPECTED",
    "FLOAT",
    "INT",
    "KINDS",
    "LARGE",
    "LARGEST",
    "MISFIT",
    "NEGATIVE",
    "SPECIAL",
    "TYPES",
    "UNSIGNED",
    "WIDE",
    "Exact",
    "alike",
    "are_exact",
    "exact",
    "found_among",
    "found_in",
    "weak_of",
]

DOUBT = -1
"""There is another object among the numbers, or rows have unequal lengths."""
BOOL, INT, FLOAT, COMPLEX = 1, 2, 4, 8
WIDE, LARGE, UNSIGNED, NEGATIVE = 16, 32, 64, 128
"""An int beyond 32 bits; one beyond 2**53, which float64 may not have; one from 2**63 on; one below 0."""
BEYOND, SPECIAL, MISFIT = 256, 512, 1024
"""A finite float beyond float32; an infinity or NaN; a number that does not fit the expected dtype."""
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
        return weak_of(self.dtype) if self.narrow else self.dtype

    def holds(self, other: Exact) -> bool:
        """Whether numbers that were expected to be of this dtype give the same bits if they are of another."""
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
def exact(found: int) -> Exact | None:
    """The dtype that has numbers with these flags exactly; ``None`` if none may have them, or there are no numbers.

    >>> exact(INT | FLOAT), exact(INT | LARGE | FLOAT)
    (Exact(dtype='float64', narrow=True), None)
    """
    if found < 0 or not found & KINDS:
        return None
    if found & (FLOAT | COMPLEX):
        if found & LARGE:
            return None
        narrow = not found & (BEYOND | SPECIAL)
        return Exact("complex128" if found & COMPLEX else "float64", narrow)
    if found & UNSIGNED:
        return None if found & (NEGATIVE | BOOL) else Exact("uint64", narrow=True)
    return Exact("int64", not found & WIDE) if found & INT else Exact("bool", narrow=True)


def alike(found: int) -> Exact | None:
    """The exact dtype of numbers that are all of one type; otherwise ``None``."""
    return exact(found) if found & KINDS in (BOOL, INT, FLOAT, COMPLEX) else None


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
        return FLOAT if low >= -LARGEST and high <= LARGEST else FLOAT | BEYOND | SPECIAL
    return found_among(int(low), int(high))


def found_among(low: int, high: int) -> int:
    """The flags of integers from `low` to `high`."""
    found = INT | NEGATIVE if low < 0 else INT
    if low < -(2**31) or high >= 2**31:
        found |= WIDE
    if low < -_EXACT_INTEGERS or high > _EXACT_INTEGERS:
        found |= LARGE
    return found | UNSIGNED if high >= 2**63 else found


def are_exact(array: Array) -> bool:
    """Whether no integer among floats was rounded when it was read as float64."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return all(
        np.minimum.reduce(part, axis=None) > -_EXACT_INTEGERS
        and np.maximum.reduce(part, axis=None) < _EXACT_INTEGERS
        for part in parts
    )
