"""Decimals in Arrow's memory, which are integers of up to 256 bits times a power of ten, as integers or floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LossyCastError
from ..hints import Hint
from .pieces import gone_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..typing import Array
    from .pieces import Missing

__all__ = ["Decimals"]

_EXACT = 1 << 53
"""Integers up to this one are exact floats, so that a division by a small power of ten is rounded once."""
_POWERS = 22
_SPLITS = 134217729.0
"""The factor that splits a float of 53 bits into two of 26."""


class Decimals:
    """Decimals in memory.

    Args:
        words: For each, its 64-bit words, lowest first; or one word of fewer bits.
        scale: The number of digits after the point; if negative, the number of zeros before it.
        dtype: ``"float64"``, to which they are rounded; or an integer dtype, which must have each
            of them.
        rounds_again: Whether the floats are rounded again, to a dtype with fewer bits.
        missing: Which of them are null, and so may have any value.
        first: The row of the first one.
    """

    __slots__ = ("_dtype", "_first", "_missing", "_rounds_again", "_scale", "words")

    def __init__(
        self,
        words: Array,
        scale: int,
        dtype: str,
        *,
        rounds_again: bool,
        missing: Sequence[Missing],
        first: int,
    ) -> None:
        self.words, self._scale, self._dtype = words, scale, dtype
        self._rounds_again, self._missing, self._first = rounds_again, missing, first

    def looked_up(self, encoded: Any, missing: Sequence[Missing], first: int) -> Decimals:
        """The decimals at the indices of a `DictionaryEncoded`."""
        words = encoded.look_up(self.words, 0, len(encoded.indices))
        return Decimals(
            words,
            self._scale,
            self._dtype,
            rounds_again=self._rounds_again,
            missing=missing,
            first=first,
        )

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows into an array.

        Raises:
            LossyCastError: One is not an integer of the dtype.
        """
        each = out.size // (stop - start)
        words = self.words[start * each : stop * each].astype("int64")
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
            error = LossyCastError(
                f"decimal to {self._dtype}: the value at row {row} does not fit.", hint
            )
            error.read_as = self._dtype
            raise error
        out[...] = values.reshape(out.shape)

    def _integers(self, words: Array) -> tuple[Array, Array]:
        """The integers, and which of them the dtype has."""
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
        """The nearest floats; or, if they are rounded again, floats rounded to odd, which makes that exact."""
        low = words[:, 0]
        small = (words[:, 1:] == (low >> 63)[:, None]).all(1) & (low <= _EXACT) & (low >= -_EXACT)
        small &= 0 <= self._scale <= _POWERS
        numbers, power = (
            np.where(small, low, 0).astype("float64"),
            10.0 ** min(max(self._scale, 0), _POWERS),
        )
        values = numbers / power
        rest = _residue(numbers, values, power) if self._rounds_again else np.zeros(0)
        for index in np.flatnonzero(~small).tolist():
            from fractions import Fraction  # here, because only long decimals need it

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
    """Each number minus a value times the power, computed exactly (the product has at most 106 bits)."""
    high = values * power
    (first, second), (third, fourth) = _split(values), _split(power)
    low = second * fourth - (((high - first * third) - second * third) - first * fourth)
    found: Array = (numbers - high) - low
    return found


def _split(x: Any) -> tuple[Any, Any]:
    product = _SPLITS * x
    high = product - (product - x)
    return high, x - high
