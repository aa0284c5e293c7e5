"""`Repeats`: read tensors that are pickled in the same way as earlier ones, without running their opcodes.

An entry of a dict from names to tensors is the name, followed by bytes that are always the same except for the number
of the storage and the memo indices, which count up. Read as one large integer, these bytes are
``constant + first * factor``, where `first` is the next memo index. So one comparison checks every bit of an entry.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from .words import Vocabulary

__all__ = ["Repeats", "Template"]

_MOST_TEMPLATES = 16
_MOST_INDEX = 1 << 31
_RELEASED = 1 << 18
"""After this many bytes, pages that have been read are freed."""


class Template:
    """The pattern of an entry's bytes after its name, and the tensor that it describes.

    Args:
        data: The pickle.
        begin: The position of the PUT of the name, in an entry of this kind.
        match: The match of the regular expression.
        indices: The positions of the indices of its other PUTs.
        first: The memo index of the name.
        made: The stand-in that the entry makes.
    """

    __slots__ = ("_constant", "_factor", "digits", "head", "made", "next", "puts", "tail")

    def __init__(
        self, data: Any, begin: int, match: re.Match[bytes], indices: Sequence[int], first: int, made: Any
    ) -> None:
        key, stop = match.span(4)
        self.head, self.digits, self.tail = key - begin, stop - key, match.end() - stop
        self.puts = 1 + len(indices)
        self.made = made
        self.next = self
        """The template of the entry that followed an entry of this kind the last time."""
        # Without the digits of the number, as in `fits`.
        places = [at - begin - (self.digits if at > key else 0) for at in (begin + 1, *indices)]
        self._factor = sum(1 << 8 * place for place in places)
        self._constant = int.from_bytes(data[begin:key] + data[stop : match.end()], "little") - first * self._factor

    def fits(self, data: Any, at: int, first: int) -> bool:
        """Whether the bytes after a name match.

        Args:
            data: The pickle.
            at: The position after the name.
            first: The next memo index.
        """
        key = at + self.head
        stop = key + self.digits
        found = int.from_bytes(data[at:key] + data[stop : stop + self.tail], "little")
        return found == self._constant + first * self._factor


class Repeats:
    """Reads entries that match known templates.

    Args:
        data: The pickle. The pages of an anonymous map are freed once they are read.
        vocabulary: Makes the tensors.
    """

    def __init__(self, data: Any, vocabulary: Vocabulary) -> None:
        self._data = data
        self._vocabulary = vocabulary
        self._templates: list[Template] = []
        self._firsts = array("I")
        self._puts = bytearray()
        self._names: list[str] = []
        self._released = 0

    def forget(self) -> None:
        """Drop all templates, because the memo, on which they depend, has changed."""
        self._templates.clear()

    def read(self, template: Template, at: int, first: int, stack: list[Any]) -> tuple[int, int]:
        """Read entries as long as they match.

        Args:
            template: A new template, or an earlier one.
            at: The position of the first entry.
            first: The next memo index.
            stack: The list to which names and tensors are appended.

        Returns:
            The position of the first entry that does not match, and the next memo index.
        """
        data, again, names, firsts, puts = self._data, self._vocabulary.again, self._names, self._firsts, self._puts
        if template not in self._templates:
            self._templates = [template, *self._templates[: _MOST_TEMPLATES - 1]]
        while first < _MOST_INDEX and data[at : at + 1] == b"X":
            begin = at + 5
            stop = begin + int.from_bytes(data[at + 1 : begin], "little")
            guess = template.next
            if not guess.fits(data, stop, first):
                fitting = (each for each in self._templates if each.fits(data, stop, first))
                found = next(fitting, None)
                if found is None:
                    break
                guess = template.next = found
            key = stop + guess.head
            digits = data[key : key + guess.digits]
            # Only numbers in the usual spelling count.
            if not digits.isdigit() or (digits[0] == 0x30 and guess.digits > 1):
                break
            name = data[begin:stop].decode("utf-8", "surrogatepass")
            made = again(guess.made, int(digits))
            if made is None:
                break
            stack += (name, made)
            names.append(name)
            firsts.append(first)
            puts.append(guess.puts)
            first += guess.puts
            at = key + guess.digits + guess.tail
            template = guess
            if at - self._released > _RELEASED:
                self._release(at)
        return at, first

    def remembered(self, index: int) -> Any:
        """The value that the memo would have at an index.

        Raises:
            KeyError: There is none, or it was never made.
        """
        place = bisect_right(self._firsts, index) - 1
        if place >= 0:
            step = index - self._firsts[place]
            tensor = self._vocabulary.repeated[place]
            kept = {0: self._names[place], 1: str(tensor.number), self._puts[place] - 1: tensor}
            if step in kept:
                return kept[step]
        raise KeyError(index)

    def _release(self, at: int) -> None:
        if isinstance(self._data, mmap.mmap):
            end = at - at % mmap.PAGESIZE
            self._data.madvise(mmap.MADV_DONTNEED, self._released, end - self._released)
            self._released = end
