"""The pieces of a column where they lie: arrays, bits, what stands in a dictionary; and what is missing among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .decimals import Decimals

__all__ = ["Bits", "Cast", "Decoded", "Missing", "Piece", "gone_in"]

Array = np.ndarray[Any, Any]


class Bits:
    """Values of one bit each.

    Args:
        packed: The bytes that hold them, least significant bit first.
        start: With which bit they begin.
        count: How many they are.
    """

    __slots__ = ("count", "packed", "start")

    def __init__(self, packed: Array, start: int, count: int) -> None:
        self.packed, self.start, self.count = packed, start, count

    def part(self, start: int, stop: int) -> Array:
        """Some of them, a byte each: 0 or 1."""
        first = self.start + start
        last = self.start + stop
        bits = np.unpackbits(self.packed[first // 8 : -(-last // 8)], bitorder="little")
        part: Array = bits[first % 8 : first % 8 + stop - start]
        return part

    def zeros(self) -> tuple[int, int]:
        """How many are not set, and the first of them; (0, 0): all are."""
        found = self.unset(0, self.count)
        return (len(found), int(found[0])) if len(found) else (0, 0)

    def unset(self, start: int, stop: int) -> Array:
        """Where those stand that are not set, counted from the first that is asked for."""
        first, last = self.start + start, self.start + stop
        whole = self.packed[first // 8 : -(-last // 8)]
        some = np.flatnonzero(whole != 255)
        each = np.flatnonzero(np.unpackbits(whole[some], bitorder="little") == 0)
        places = (some[each >> 3] << 3) + (each & 7) - first % 8
        if len(places) and (places[0] < 0 or places[-1] >= stop - start):
            places = places[(places >= 0) & (places < stop - start)]
        found: Array = places
        return found

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows of them into memory."""
        each = out.size // (stop - start)
        out[...] = self.part(start * each, stop * each).reshape(out.shape)


class Decoded:
    """Values that stand in a dictionary.

    Args:
        indices: Where each stands.
        values: The dictionary.
        missing: Which of the indices mean nothing; ``None``: each is looked up.
        encoded: How they are encoded, as the end of a sentence.
    """

    __slots__ = ("encoded", "indices", "missing", "values")

    def __init__(
        self, indices: Array, values: Array, missing: Array | None = None, encoded: str = "by a dictionary"
    ) -> None:
        self.indices, self.values, self.missing, self.encoded = indices, values, missing, encoded

    def look_up(self, values: Array, start: int, stop: int) -> Array:
        """What stands in another dictionary for some of the indices; of those that mean nothing, anything.

        Raises:
            UnsupportedTypeError: An index is none of the dictionary.
        """
        each = self.indices[start:stop]
        if self.missing is not None:
            each = np.where(self.missing[start:stop], 0, each)
        if not len(values):
            if len(each) and (self.missing is None or not self.missing[start:stop].all()):
                raise UnsupportedTypeError("A dictionary has no values, and its indices point at some.", None)
            return np.zeros(len(each), values.dtype)
        if each.size and (int(each.min()) < 0 or int(each.max()) >= len(values)):
            raise UnsupportedTypeError("A dictionary's indices point past its values.", None)
        found: Array = values[each]
        return found

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows of them into memory.

        Raises:
            UnsupportedTypeError: An index is none of the dictionary.
        """
        each = out.size // (stop - start)
        out[...] = self.look_up(self.values, start * each, stop * each).reshape(out.shape)


class Cast:
    """Values of another dtype, which are read as a whole: only so is it known where one stands that does not fit.

    Args:
        read: Gives them.
    """

    __slots__ = ("_read", "_values")

    def __init__(self, read: Callable[[], Array]) -> None:
        self._read = read
        self._values: Array | None = None

    def put(self, out: Array, start: int, stop: int) -> None:
        """Write some rows of them into memory.

        Raises:
            LossyCastError: One does not fit.
        """
        if self._values is None:
            self._values = self._read()
        out[...] = self._values[start:stop].reshape(out.shape)


class Missing(NamedTuple):
    """Which values are missing.

    Args:
        marks: Bits that are set where there is a value, or booleans that are true where there is none.
        each: How many of them there are for a row.
    """

    marks: Bits | Array
    each: int = 1

    def part(self, start: int, stop: int) -> Array:
        """Where nothing is, of some rows."""
        first, last = start * self.each, stop * self.each
        if isinstance(self.marks, Bits):
            gone: Array = self.marks.part(first, last) == 0
            return gone
        found: Array = self.marks[first:last]
        return found


def gone_in(missing: Sequence[Missing], start: int, stop: int, each: int) -> Array | None:
    """Which elements of some rows, of so many each, are missing by all that is said; ``None``: none is."""
    found = [np.repeat(one.part(start, stop), each // one.each) for one in missing]
    gone = np.logical_or.reduce(found) if found else None
    return gone if gone is not None and gone.any() else None


class Piece(NamedTuple):
    """Some rows of a column that lie in one memory.

    Args:
        rows: How many.
        values: Them, an array with the axes of the column, or what else has to be read.
        missing: What is missing among them: rows, elements of rows.
    """

    rows: int
    values: Array | Bits | Cast | Decoded | Decimals
    missing: tuple[Missing, ...] = ()
