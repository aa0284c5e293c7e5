"""The pieces of a column in memory: arrays, bits, decimals, dictionary-encoded values; nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..core.named_tuple import NamedTuple
from ..errors import LossyCastError, UnsupportedTypeError
from ..hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..typing import Array

__all__ = ["Bits", "Cast", "Decimals", "DictionaryEncoded", "Missing", "Piece", "gone_in"]


class Bits:
    """Values of one bit each.

    Args:
        packed: The bytes, least significant bit first.
        start: The position of the first bit.
        count: The number of bits.
    """

    __slots__ = ("count", "packed", "start")

    def __init__(self, packed: Array, start: int, count: int) -> None:
        self.packed, self.start, self.count = packed, start, count

    def part(self, start: int, stop: int) -> Array:
        """Some of them, as bytes of 0 or 1."""
        first = self.start + start
        last = self.start + stop
        bits = np.unpackbits(self.packed[first // 8 : -(-last // 8)], bitorder="little")
        part: Array = bits[first % 8 : first % 8 + stop - start]
        return part

    def zeros(self) -> tuple[int, int]:
        """How many are 0, and the first of them; (0, 0) if all are 1."""
        unset = self.unset(0, self.count)
        if len(unset):
            return len(unset), int(unset[0])
        return 0, 0

    def unset(self, start: int, stop: int) -> Array:
        """The positions of zeros from `start` to `stop`, relative to `start`."""
        first, last = self.start + start, self.start + stop
        whole = self.packed[first // 8 : -(-last // 8)]
        some = np.flatnonzero(whole != 255)
        bits_of_bytes = np.flatnonzero(np.unpackbits(whole[some], bitorder="little") == 0)
        places = (some[bits_of_bytes >> 3] << 3) + (bits_of_bytes & 7) - first % 8
        if len(places) and (places[0] < 0 or places[-1] >= stop - start):
            places = places[(places >= 0) & (places < stop - start)]
        unset: Array = places
        return unset

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows into an array."""
        many = out.size // (stop - start)
        out[...] = self.part(start * many, stop * many).reshape(out.shape)


class DictionaryEncoded:
    """Values that are encoded by a dictionary.

    Args:
        indices: The index of each value.
        values: The dictionary.
        missing: A mask of indices without a meaning (nulls); ``None`` without nulls.
        encoded: The encoding, as the end of a sentence.
        first: The row of the column that the first index is in.
        many: How many indices a row has.
    """

    __slots__ = ("each", "encoded", "first", "indices", "missing", "values")

    def __init__(
        self,
        indices: Array,
        values: Array,
        missing: Array | None = None,
        encoded: str = "by a dictionary",
        first: int = 0,
        many: int = 1,
    ) -> None:
        self.indices, self.values, self.missing, self.encoded = indices, values, missing, encoded
        self.first, self.each = first, many

    def look_up(self, values: Array, start: int, stop: int) -> Array:
        """Look some indices up in another dictionary. For nulls, the result is any value.

        Raises:
            UnsupportedTypeError: An index is outside of the dictionary.
        """
        indices = self.indices[start:stop]
        if self.missing is None:
            missing = np.zeros(len(indices), bool)
        else:
            missing = self.missing[start:stop]
        if not len(values):
            if not missing.all():
                row = self._row(start + int(missing.argmin()))
                raise UnsupportedTypeError(
                    f"A dictionary has no values, and row {row} has an index of one.", None
                )
            return np.zeros(len(indices), values.dtype)
        if self.missing is not None:
            indices = np.where(missing, 0, indices)
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= len(values)):
            row = self._row(start + int(((indices < 0) | (indices >= len(values))).argmax()))
            raise UnsupportedTypeError(
                f"A dictionary's indices point past its values, at row {row}.", None
            )
        looked_up: Array = values[indices]
        return looked_up

    def _row(self, index: int) -> int:
        return self.first + index // self.each

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows into an array.

        Raises:
            UnsupportedTypeError: An index is outside of the dictionary.
        """
        many = out.size // (stop - start)
        out[...] = self.look_up(self.values, start * many, stop * many).reshape(out.shape)


class Cast:
    """Values that are cast. They are read as a whole, so that an error can name the position.

    Args:
        read: Reads them.
    """

    __slots__ = ("_read", "_values")

    def __init__(self, read: Callable[[], Array]) -> None:
        self._read = read
        self._values: Array | None = None

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows into an array.

        Raises:
            LossyCastError: One does not fit.
        """
        if self._values is None:
            self._values = self._read()
        out[...] = self._values[start:stop].reshape(out.shape)


class Missing(NamedTuple):
    """Which values are null.

    Args:
        marks: Bits that are 1 where there is a value, or booleans that are true where there is
            none.
        each: The number of marks for each row.
    """

    marks: Bits | Array
    each: int = 1

    def part(self, start: int, stop: int) -> Array:
        """A mask of the nulls in some rows."""
        first, last = start * self.each, stop * self.each
        if isinstance(self.marks, Bits):
            gone: Array = self.marks.part(first, last) == 0
            return gone
        part: Array = self.marks[first:last]
        return part


def gone_in(missing: Sequence[Missing], start: int, stop: int, many: int) -> Array | None:
    """A mask of null elements of some rows, `many` elements in a row; ``None`` without nulls."""
    marks = [
        np.repeat(missing_here.part(start, stop), many // missing_here.each)
        for missing_here in missing
    ]
    gone = np.logical_or.reduce(marks) if marks else None
    return gone if gone is not None and gone.any() else None


class Piece(NamedTuple):
    """Rows of a column in one block of memory.

    Args:
        rows: The number of rows.
        values: An array with the axes of the column, or encoded values.
        missing: Which rows, or elements of rows, are null.
    """

    rows: int
    values: Array | Bits | Cast | DictionaryEncoded | Decimals
    missing: tuple[Missing, ...] = ()

    @property
    def arrays(self) -> list[Array]:
        """Arrays over the memory of the values."""
        values = self.values
        if isinstance(values, np.ndarray):
            return [values]
        if isinstance(values, Bits):
            return [values.packed]
        if isinstance(values, DictionaryEncoded):
            return [values.indices, values.values]
        if isinstance(values, Cast):
            return []
        return [values.words]


# -- decimals --------------------------------------------------------------------------------------

_EXACT = 1 << 53
"""Integers up to this are exact floats: a division by a small power of ten is rounded once."""
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
        many = out.size // (stop - start)
        words = self.words[start * many : stop * many].astype("int64")
        gone = gone_in(self._missing, start, stop, many)
        if gone is not None:
            words[gone] = 0
        if self._dtype == "float64":
            out[...] = self._floats(words).reshape(out.shape)
            return
        values, fits = self._integers(words)
        if not fits.all():
            row = self._first + start + int(fits.argmin()) // many
            hint = Hint(hints.again(dtype="float64"), ", which rounds")
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
        """The nearest floats; if they are rounded again, rounded to odd, which makes that exact."""
        low = words[:, 0]
        small = (words[:, 1:] == (low >> 63)[:, None]).all(1) & (low <= _EXACT) & (low >= -_EXACT)
        small &= 0 <= self._scale <= _POWERS
        numbers, power = (
            np.where(small, low, 0).astype("float64"),
            10.0 ** min(max(self._scale, 0), _POWERS),
        )
        values = numbers / power
        if self._rounds_again:
            rest = _exact_residue(numbers, values, power)
        else:
            rest = np.zeros(0)
        for index in np.flatnonzero(~small).tolist():
            from fractions import Fraction  # here, because only long decimals need it

            number = int.from_bytes(words[index].tobytes(), "little", signed=True)
            exact = number / Fraction(10) ** self._scale
            try:
                values[index] = exact.numerator / exact.denominator
            except OverflowError:
                if exact > 0:
                    values[index] = np.inf
                else:
                    values[index] = -np.inf
                continue
            if self._rounds_again:
                more = exact - Fraction(float(values[index]))
                rest[index] = (more > 0) - (more < 0)
        if self._rounds_again:
            even = (rest != 0) & (values.view("int64") & 1 == 0)
            values[even] = np.nextafter(values[even], np.where(rest[even] > 0, np.inf, -np.inf))
        return values


def _exact_residue(numbers: Array, values: Array, power: float) -> Array:
    """Each number minus a value times the power, exactly (the product has at most 106 bits)."""
    high = values * power
    (first, second), (third, fourth) = _high_and_low(values), _high_and_low(power)
    low = second * fourth - (((high - first * third) - second * third) - first * fourth)
    residue: Array = (numbers - high) - low
    return residue


def _high_and_low(x: Any) -> tuple[Any, Any]:
    product = _SPLITS * x
    high = product - (product - x)
    return high, x - high
