"""Dyed tensors: each element carries its own number, in digits that its dtype keeps, over a few passes.

A converter that runs on dyed tensors shows where each element of its output comes from. A number is
mixed, so that each pass looks random, and followed by check digits, so that what is no copy of an
element is not taken for one. Both are read by arithmetic alone: nothing is sorted or searched.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ..core.dtypes import find
from ..host.numpy_dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..typing import Array
    from .lowering import Header

__all__ = ["MOST_ELEMENTS", "Alphabet", "Dye", "Kind", "Pass", "alphabet", "total_bytes"]

Kind = Literal["digits", "zeros", "ones", "bits", "floats", "near", "given"]
Manner = Literal["whole", "near", "small"]

MOST_ELEMENTS = 1 << 32
"""The most elements whose numbers fit into what is mixed."""
_CHECK_BITS = 16
_CHUNK = 1 << 16
_READ = 1 << 20
_MIXERS = 0x9E3779B1, 0x85EBCA6B
_FIRST = np.uint32(0x165667B1)
_CHECKERS = 0xC2B2AE35, 0x27D4EB2F


class Alphabet(NamedTuple):
    """The values of the digits of a dtype: ``first + step * digit``.

    Args:
        bits: The bits of a digit.
        first: The value of digit 0.
        step: From one to the next.
    """

    bits: int
    first: float = 1
    step: float = 1


def alphabet(dtype: str, manner: Manner = "whole") -> Alphabet:
    """The digits that a dtype can carry exactly.

    Args:
        dtype: The canonical name of the dtype.
        manner: ``"whole"`` for whole numbers from 1, as many as there can be; ``"near"`` for
            numbers from 1 to below 2, for converters that demand small ones; ``"small"`` for whole
            numbers to which something can be added without rounding.
    """
    row = find(dtype)
    if row.kind == "bool":
        return Alphabet(1, 0)
    if row.kind in ("int", "uint"):
        bits = min(8, row.precision + (row.kind == "int"))
        if row.precision > 8:
            return Alphabet(bits)
        return Alphabet(bits, -(1 << (bits - 1)) if row.kind == "int" else 0)
    bits = max(min(8, row.precision, row.highest - 1), 1)
    if manner == "near" and row.precision > 1:
        bits = min(7, row.precision - 1)
        return Alphabet(bits, 1, 0.5**bits)
    if manner == "small":
        bits = max(bits - 1, 1)
    return Alphabet(bits)


class Pass(NamedTuple):
    """One run of a converter.

    Args:
        kind: What its tensors have: ``"digits"``; one number, ``"zeros"`` or ``"ones"``;
            ``"bits"``, any bits at all; ``"floats"``, finite numbers of both signs; ``"near"``,
            those from 1 to below 2; ``"given"``, real weights.
        digit: Which digit.
        manner: The alphabet.
        seed: Of what is random, and of all generators that the converter may use.
    """

    kind: Kind
    digit: int = 0
    manner: Manner = "whole"
    seed: int = 0


class Dye:
    """The numbers of all elements of some tensors, and how they are carried.

    Args:
        headers: The tensors.
    """

    def __init__(self, headers: Mapping[str, Header]) -> None:
        self.headers = headers
        sizes = [header.size for header in headers.values()]
        starts = [0, *accumulate(sizes)]
        self.starts = dict(zip(headers, starts, strict=False))
        """The number of the first element of each tensor."""
        self.count = starts[-1]
        self._bits = min(max(8, -(-max(self.count - 1, 1).bit_length() // 4) * 4), 32)
        self._mask = np.uint32((1 << self._bits) - 1)
        self._shift = np.uint32((self._bits + 1) // 2)
        self._inverses = [
            np.uint32(pow(mixer, -1, 1 << self._bits) & 0xFFFFFFFF) for mixer in _MIXERS
        ]
        self._numbers = {name: number for number, name in enumerate(headers)}

    # -- digits --------------------------------------------------------------------------------------

    def digits(self, bits: int) -> int:
        """How many passes it takes to carry a number in digits of so many bits."""
        return -(-self._bits // bits) - (-_CHECK_BITS // bits)

    def passes(self, manner: Manner = "whole") -> list[Pass]:
        """All passes that carry the numbers of all tensors."""
        every = {alphabet(header.dtype, manner) for header in self.headers.values()}
        count = max((self.digits(letters.bits) for letters in every), default=0)
        # Each with other seeds, so that what is made up at random is no constant.
        return [Pass("digits", index, manner, index) for index in range(count)]

    def _mixed(self, numbers: Array) -> Array:
        mixed: Array = numbers + _FIRST
        for mixer in _MIXERS:
            mixed *= np.uint32(mixer)
            mixed &= self._mask
            mixed ^= mixed >> self._shift
        return mixed

    def _unmixed(self, mixed: Array) -> Array:
        for inverse in reversed(self._inverses):
            mixed = mixed ^ (mixed >> self._shift)
            mixed = mixed * inverse & self._mask
        numbers: Array = (mixed - _FIRST) & self._mask
        return numbers

    @staticmethod
    def _check(numbers: Array) -> Array:
        """Bits that depend on all of a number, and not as the mixed ones do."""
        check: Array = (numbers + _FIRST) ^ (numbers >> np.uint32(15))
        check = check * np.uint32(_CHECKERS[0])
        check ^= check >> np.uint32(13)
        check *= np.uint32(_CHECKERS[1])
        check >>= np.uint32(32 - _CHECK_BITS)
        return check

    def _digit(self, numbers: Array, index: int, bits: int) -> Array:
        own = -(-self._bits // bits)
        if index < own:
            word, at = self._mixed(numbers), index
        else:
            word, at = self._check(numbers), index - own
        digit: Array = word >> np.uint32(at * bits)
        digit &= np.uint32((1 << bits) - 1)
        return digit.astype(np.uint8)

    # -- tensors -------------------------------------------------------------------------------------

    def array(self, name: str, one: Pass) -> Array:
        """A tensor, as it is in a pass."""
        header = self.headers[name]
        kind = numpy_dtype(header.dtype)
        if one.kind == "digits":
            return self._dyed(name, one).reshape(header.shape)
        if one.kind == "zeros":
            return np.zeros(header.shape, kind)
        if one.kind == "ones":
            return np.ones(header.shape, kind)
        seeds = np.random.SeedSequence((one.seed, self._numbers[name]))
        random = np.random.Generator(np.random.SFC64(seeds))
        if one.kind == "bits":
            elements = _random_bits(random, header.size, header.dtype)
            _add_specials(random, elements, header.dtype)
            return elements.reshape(header.shape)
        return _random_numbers(random, header.size, header.dtype, one.kind).reshape(header.shape)

    def _dyed(self, name: str, one: Pass) -> Array:
        header = self.headers[name]
        letters = alphabet(header.dtype, one.manner)
        kind = numpy_dtype(header.dtype)
        dyed = np.empty(header.size, kind)
        index = one.digit % self.digits(letters.bits)
        values = letters.first + letters.step * np.arange(1 << letters.bits)
        table = values.astype(np.float32).astype(kind)
        for start in range(0, header.size, _CHUNK):
            stop = min(start + _CHUNK, header.size)
            first = self.starts[name]
            numbers = np.arange(first + start, first + stop, dtype=np.uint32)
            dyed[start:stop] = table.take(self._digit(numbers, index, letters.bits))
        return dyed

    # -- what came out -------------------------------------------------------------------------------

    def numbers_of(
        self,
        size: int,
        parts_of: Callable[[int, int], list[Array]],
        manner: Manner = "whole",
        affine: tuple[float, float] = (1.0, 0.0),
    ) -> Array:
        """The number of the element that each element of an output is a copy of; -1 for none.

        Args:
            size: How many elements the output has.
            parts_of: Gives the elements from one place to before another, in all passes in order.
            manner: The alphabet.
            affine: A factor and a summand: what is found is a copy times one, plus the other.
        """
        numbers = np.full(size, -1, np.int64)
        every = self._alphabets(manner)
        for start in range(0, size, _READ):
            stop = min(start + _READ, size)
            parts = parts_of(start, stop)
            for first in range(0, stop - start, _CHUNK):
                some = [array[first : first + _CHUNK] for array in parts]
                for letters, ranges in every.items():
                    place = numbers[start + first : start + first + len(some[0])]
                    self._read(place, some, letters, affine, ranges)
        return numbers

    def _alphabets(self, manner: Manner) -> dict[Alphabet, Array]:
        """The alphabets, each with the numbers at which the tensors that have it begin and end."""
        edges: dict[Alphabet, list[int]] = {}
        for name, header in self.headers.items():
            ranges = edges.setdefault(alphabet(header.dtype, manner), [])
            start = self.starts[name]
            if ranges and ranges[-1] == start:
                ranges.pop()
            else:
                ranges.append(start)
            ranges.append(start + header.size)
        order = sorted(edges, reverse=True)
        return {letters: np.array(edges[letters], np.uint32) for letters in order}

    def _read(
        self,
        numbers_read: Array,
        parts: list[Array],
        letters: Alphabet,
        affine: tuple[float, float],
        ranges: Array,
    ) -> None:
        """Put in the numbers of the elements that are digits of an alphabet in all passes."""
        bits, own = letters.bits, -(-self._bits // letters.bits)
        words = [np.zeros(numbers_read.size, np.uint32), np.zeros(numbers_read.size, np.uint32)]
        is_digit = numbers_read < 0
        count = self.digits(bits)
        first: list[Array] = []
        for index, part in enumerate(parts):
            digits = _digits(part, letters, affine, is_digit)
            if index >= count:
                # Passes that others need: it has begun again.
                is_digit &= digits == first[index % count]
            first.append(digits)
            if not is_digit.any():
                return
            if index >= count:
                continue
            which, at = divmod(index, own) if index < own else (1, index - own)
            words[which] |= digits.astype(np.uint32) << np.uint32(at * bits)
        is_digit &= words[0] <= self._mask
        numbers = self._unmixed(words[0] & self._mask)
        if len(ranges) == 2:
            is_digit &= (numbers >= ranges[0]) & (numbers < ranges[1])
        else:
            is_digit &= np.searchsorted(ranges, numbers, "right") % 2 == 1
        is_digit &= self._check(numbers) == words[1]
        np.copyto(numbers_read, numbers, where=is_digit)


def _digits(part: Array, letters: Alphabet, affine: tuple[float, float], is_digit: Array) -> Array:
    """The digits of values; where there are none, `is_digit` becomes false."""
    times, plus = affine
    with np.errstate(all="ignore"):
        if times == 1 and not plus:
            values = (part.real if part.dtype.kind == "c" else part).astype(np.float32)
            if letters.first:
                values = values - np.float32(letters.first)
            if letters.step != 1:
                values = values * np.float32(1 / letters.step)
        else:
            # What was rounded lies near a digit.
            real = part.real if part.dtype.kind == "c" else part
            exact = (real.astype(np.float64) - plus) / times
            values = np.rint((exact - letters.first) / letters.step)
        digits: Array = values.astype(np.uint8)
    np.logical_and(is_digit, digits == values, out=is_digit)
    if letters.bits < 8:
        np.logical_and(is_digit, digits < (1 << letters.bits), out=is_digit)
    return digits


def _random_bits(random: np.random.Generator, size: int, dtype: str) -> Array:
    kind = numpy_dtype(dtype)
    raw = np.frombuffer(random.bytes(size * kind.itemsize), np.uint8)
    row = find(dtype)
    if row.kind == "bool":
        return (raw & 1).view(kind)
    if row.itemsize == 1 and row.kind in ("int", "uint") and row.precision < 7:
        # Less than a byte: any value that it has.
        low = -(1 << row.precision) if row.kind == "int" else 0
        values: Array = raw.astype(np.int16) % (1 << (row.precision + (row.kind == "int")))
        values += low
        return values.astype(kind)
    if dtype.startswith(("float4", "float6")):
        packed: Array = (raw & ((1 << int(dtype[5])) - 1)).view(kind)
        return packed
    plain: Array = raw.view(kind).copy()
    return plain


_MOST_SPECIALS = 64


def _add_specials(random: np.random.Generator, array: Array, dtype: str) -> None:
    """Put infinities, NaN of both signs, -0, subnormals and the largest number among others."""
    row = find(dtype)
    count = min(array.size // 3, _MOST_SPECIALS)
    if row.kind != "float" or row.itemsize < 2 or not count:
        return
    kind = array.dtype
    words = array.view(f"u{kind.itemsize}")
    inf, one = [np.array([value], kind).view(words.dtype)[0] for value in (np.inf, 1)]
    sign = words.dtype.type(1 << (8 * kind.itemsize - 1))
    tiny = words.dtype.type(1)
    plain = [inf, inf - tiny, inf + tiny, inf | (one >> tiny), inf * 0, tiny, one]
    specials = np.array([*plain, *[value | sign for value in plain]], words.dtype)
    places = np.unique(random.integers(0, array.size, count))
    words[places] = random.choice(specials, len(places))


def _random_numbers(random: np.random.Generator, size: int, dtype: str, how: Kind) -> Array:
    row, kind = find(dtype), numpy_dtype(dtype)
    if row.kind == "bool":
        return random.integers(0, 2, size, np.uint8).astype(kind)
    if row.kind in ("int", "uint"):
        low, high = (-100 if row.kind == "int" else 0), 100
        limit = 1 << min(row.precision, 30)
        bounds = max(low, -limit), min(high, limit - 1)
        return random.integers(*bounds, size, np.int32, endpoint=True).astype(kind)
    if how == "near":
        first = 1.0
    else:
        # Both signs, and a mean that is not positive, as that of other passes is.
        first = -0.75
    wide = np.float64 if row.precision > 24 else np.float32
    values = random.random(size, dtype=wide)
    values += wide(first)
    narrowed: Array = values.astype(kind, copy=False)
    return narrowed


def total_bytes(headers: Iterable[Header]) -> int:
    """The bytes of tensors in memory."""
    return sum(header.size * find(header.dtype).itemsize for header in headers)
