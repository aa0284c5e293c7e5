"""Compute the smallest, largest and mean value of a tensor, and a histogram, in one pass."""

from __future__ import annotations

from math import frexp, ldexp
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..encodings.array_parts import bare

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...typing import Array
    from ..base.stored import Stored

__all__ = ["Statistics", "statistics"]

_ELEMENTS = 1 << 17
_BINS = 4096
_COLUMNS = 10


class Statistics(NamedTuple):
    """Statistics of the values of a tensor; for complex numbers, of their magnitudes.

    Args:
        smallest: The smallest finite value; ``None`` without finite values.
        largest: The largest finite value, or ``None``.
        mean: The mean of the finite values, in float64, or ``None``.
        zeros: How many values are 0.
        nans: How many values are NaN.
        infinite: How many values are infinite.
        histogram: How many values are in each tenth from the smallest to the largest.
    """

    smallest: float | None
    largest: float | None
    mean: float | None
    zeros: int
    nans: int
    infinite: int
    histogram: tuple[int, ...]


def statistics(stored: Stored, progress: Callable[[int], None] | None = None) -> Statistics:
    """The statistics of a tensor, which is read once, a block at a time.

    Args:
        stored: The tensor.
        progress: Called with the number of bytes whenever some have been checked.

    Raises:
        OSError: The file cannot be read.
        FileFormatError: It is cut off.
    """
    tally = _ValueCounts()
    for block in stored.blocks():
        values = bare(block, stored.dtype)
        with np.errstate(all="ignore"):
            for start in range(0, values.size, _ELEMENTS):
                tally.add(values[start : start + _ELEMENTS])
        if progress is not None:
            progress(block.nbytes)
    return tally.result()


class _ValueCounts:
    def __init__(self) -> None:
        self._smallest: float | None = None
        self._largest: float | None = None
        self._sum = 0.0
        self._count = self._zeros = self._nans = self._infinite = 0
        self._reach = 0
        self._bins = np.zeros(_BINS, np.int64)

    def add(self, values: Array) -> None:
        """Count more values."""
        if values.dtype.kind == "c":
            values = np.abs(values)
        if values.dtype.kind in "iub" and values.dtype.itemsize == 8:
            exact = values
        else:
            exact = None
        values = values.astype(np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            nans = int(np.count_nonzero(np.isnan(values)))
            self._nans += nans
            self._infinite += values.size - int(np.count_nonzero(finite)) - nans
            values = values[finite]
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if exact is not None:
            low, high = int(exact.min()), int(exact.max())
        if self._smallest is None:
            self._smallest = low
        else:
            self._smallest = min(self._smallest, low)
        if self._largest is None:
            self._largest = high
        else:
            self._largest = max(self._largest, high)
        self._zeros += values.size - int(np.count_nonzero(values))
        self._count += values.size
        self._widen(frexp(max(abs(low), abs(high)))[1])
        # In units of 2**reach, the sum of large values stays finite.
        values = np.ldexp(values, -self._reach)
        self._sum += float(values.sum())
        # Bins of equal width from -2**reach to 2**reach.
        places = (values + 1) * (_BINS // 2)
        self._bins += np.bincount(np.minimum(places.astype(np.int64), _BINS - 1), minlength=_BINS)

    def _widen(self, reach: int) -> None:
        """Widen the bins to a higher power of two: neighbours are joined."""
        if not self._bins.any():
            self._reach = reach
        while self._reach < reach:
            joined = self._bins.reshape(-1, 2).sum(1)
            self._bins = np.zeros(_BINS, np.int64)
            self._bins[_BINS // 4 : _BINS // 4 * 3] = joined
            self._reach += 1
            self._sum /= 2

    def result(self) -> Statistics:
        """The statistics."""
        if self._smallest is None or self._largest is None:
            return Statistics(None, None, None, 0, self._nans, self._infinite, ())
        centres = (np.arange(_BINS) + 0.5) / (_BINS // 2) - 1
        low, high = (ldexp(float(value), -self._reach) for value in (self._smallest, self._largest))
        columns = np.zeros(_BINS, np.int64)
        if high > low:
            columns = np.clip((centres - low) / (high - low) * _COLUMNS, 0, _COLUMNS - 1).astype(
                np.int64
            )
        counts = np.bincount(columns, self._bins, _COLUMNS).astype(np.int64).tolist()
        mean = ldexp(self._sum / self._count, self._reach)
        return Statistics(
            self._smallest,
            self._largest,
            mean,
            self._zeros,
            self._nans,
            self._infinite,
            tuple(map(int, counts)),
        )
