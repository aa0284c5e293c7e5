"""Decimals in Arrow's memory: integers of up to 256 bits, of a power of ten each, as integers or as floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LossyCastError
from ..hints import Hint
from .pieces import gone_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .pieces import Missing

__all__ = ["Decimals"]

Array = np.ndarray[Any, Any]

_EXACT = 1 << 53
"""Integers up to here are floats, and their quotient by a power of ten up to the next is rounded once."""
_POWERS = 22
_SPLITS = 134217729.0
"""What splits a float of 53 bits into two of 26."""


class Decimals:
    """Decimals as they lie.

    Args:
        words: Each as words of 64 bits, or one of fewer, the lowest first.
        scale: The digits behind the point; negative: so many zeros before it.
        dtype: ``"float64"``, to which they are rounded; else integers, which each has to be.
        rounds_again: Whether these floats are only on the way to a dtype of fewer bits.
        missing: What is missing among them, and may be anything.
        first: The row in which they begin.
    """

    __slots__ = ("_dtype", "_first", "_missing", "_rounds_again", "_scale", "_words")

    def __init__(
        self, words: Array, scale: int, dtype: str, *, rounds_again: bool, missing: Sequence[Missing], first: int
    ) -> None:
        self._words, self._scale, self._dtype = words, scale, dtype
        self._rounds_again, self._missing, self._first = rounds_again, missing, first

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows of them into memory.

        Raises:
            LossyCastError: One is no integer of the dtype.
        """
        each = out.size // (stop - start)
        words = self._words[start * each : stop * each].astype("int64")
        gone = gone_in(self._missing, start, stop, each)
        if gone is not None:
            words[gone] = 0
        if self._dtype == "float64":
            out[...] = self._floats(words).reshape(out.shape)
            return
        values, fits = self._integers(words)
        if not fits.all():
            row = self._first + start + int(fits.argmin()) // each
            hint = Hint('{again:x|dtype="float64"}, which rounds')
            raise LossyCastError(f"decimal to {self._dtype}: the value at row {row} does not fit.", hint)
        out[...] = values.reshape(out.shape)

    def _integers(self, words: Array) -> tuple[Array, Array]:
        """Their integers, and which of them are those of the dtype."""
        low, signed = words[:, 0], self._dtype == "int64"
        fits = (words[:, 1:] == (low >> 63 if signed else np.zeros_like(low))[:, None]).all(1)
        low = low if signed else low.view("uint64")
        if not signed and words.shape[1] == 1:
            fits &= words[:, 0] >= 0
        factor, most = 10**-self._scale, int(np.iinfo(low.dtype).max)
        if factor > 1:
            fits &= (low <= most // factor) & (low >= -(most // factor) if signed else True)
            low = np.where(fits, low, 0) * (factor if factor <= most else 0)
        return low, fits

    def _floats(self, words: Array) -> Array:
        """Each rounded to the nearest float; or to an odd one, from which it is rounded again as if it were exact."""
        low = words[:, 0]
        small = (words[:, 1:] == (low >> 63)[:, None]).all(1) & (low <= _EXACT) & (low >= -_EXACT)
        small &= 0 <= self._scale <= _POWERS
        numbers, power = np.where(small, low, 0).astype("float64"), 10.0 ** min(max(self._scale, 0), _POWERS)
        values = numbers / power
        rest = _residue(numbers, values, power) if self._rounds_again else np.zeros(0)
        for index in np.flatnonzero(~small).tolist():
            from fractions import Fraction  # only long decimals need it, and importing tensorferry need not wait for it

            number = int.from_bytes(words[index].tobytes(), "little", signed=True)
            exact = number / Fraction(10) ** self._scale
            try:
                values[index] = exact.numerator / exact.denominator
            except OverflowError:
                values[index] = np.inf if exact > 0 else -np.inf
                continue
            if self._rounds_again:
                more = exact - Fraction(float(values[index]))
                rest[index] = (more > 0) - (more < 0)
        if self._rounds_again:
            even = (rest != 0) & (values.view("int64") & 1 == 0)
            values[even] = np.nextafter(values[even], np.where(rest[even] > 0, np.inf, -np.inf))
        return values


def _residue(numbers: Array, values: Array, power: float) -> Array:
    """What is left of each number without a value times the power, of which the product has no more than 106 bits."""
    high = values * power
    (first, second), (third, fourth) = _split(values), _split(power)
    low = second * fourth - (((high - first * third) - second * third) - first * fourth)
    found: Array = (numbers - high) - low
    return found


def _split(x: Any) -> tuple[Any, Any]:
    product = _SPLITS * x
    high = product - (product - x)
    return high, x - high
