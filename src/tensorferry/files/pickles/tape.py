"""`Tape`: the bytes of a pickle, how far they were read, and how many of them are in memory."""

from __future__ import annotations

from codecs import escape_decode
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError, UnsafeFileError

if TYPE_CHECKING:
    from mmap import mmap
    from struct import Struct

    from .words import Span

__all__ = ["LINE", "MOST_BYTES", "Tape", "integer_of", "text_of"]

MOST_BYTES = 128 << 20
"""Bytes of a pickle that are read into memory."""
LINE = 1_000
"""Bytes of a line, and those from which it is looked how many there are."""


class Tape:
    """What a machine reads.

    Args:
        data: The pickle, or what it stands in.
        where: The file, for messages.
        begin: Where it begins in `data`.
    """

    def __init__(self, data: bytes | mmap, where: str, begin: int) -> None:
        self.data = data
        self.where = where
        self.begin = self.at = begin
        self.left = 0

    def bomb(self, what: str) -> UnsafeFileError:
        """The error for what takes too much."""
        return UnsafeFileError(f"{self.where}: its pickle {what}, out of all proportion.")

    def take(self, nbytes: int) -> bytes:
        """The next bytes."""
        start = self.at
        self.at = end = start + nbytes
        if nbytes > LINE or end > len(self.data):
            self.reach(start, nbytes)
        return self.data[start:end]

    def leave(self, nbytes: int) -> int:
        """Step over bytes, which stay where they are; gives the place of the first."""
        start = self.at
        if start + nbytes > len(self.data):
            self.reach(start, nbytes)
        self.at += nbytes
        self.left += nbytes
        return start

    def take_left(self, span: Span) -> bytes:
        """Bytes that were left where they are, after all."""
        self.left -= span.nbytes
        self.weigh(self.at)
        return self.data[span.start : span.start + span.nbytes]

    def reach(self, start: int, nbytes: int) -> None:
        """Refuse to read past the end, or to fill the memory."""
        if start + nbytes > len(self.data):
            raise FileFormatError(
                f"{self.where}: its pickle is cut off: {nbytes:,} bytes at {start:,} reach past its {len(self.data):,}."
            )
        self.weigh(start + nbytes)

    def weigh(self, end: int) -> None:
        """Refuse to have more in memory than a pickle of data needs, having read up to a place."""
        if end - self.begin - self.left > MOST_BYTES:
            raise self.bomb(f"has more than {MOST_BYTES:,} bytes beside those of arrays")

    def line(self, encoding: str = "utf-8", most: int = LINE) -> str:
        """The next line, without its end."""
        end = self.data.find(b"\n", self.at, self.at + most)
        if end < 0:
            raise FileFormatError(f"{self.where}: its pickle has a name without an end at byte {self.at}.")
        start, self.at = self.at, end + 1
        return self.data[start:end].decode(encoding)

    def unpack(self, kind: Struct) -> Any:
        """The next number."""
        return kind.unpack(self.take(kind.size))[0]


def integer_of(line: str) -> int | bool:
    """A line of protocols 0 and 1, which have truth values as ``00`` and ``01``."""
    return line == "01" if line in ("00", "01") else int(line.removesuffix("L"))


def text_of(line: str) -> str:
    """A line of Python 2: what it has between quotes, with its escapes."""
    if len(line) < 2 or line[0] != line[-1] or line[0] not in "'\"":
        raise ValueError("text without quotes")
    return escape_decode(line[1:-1])[0].decode("latin-1")
