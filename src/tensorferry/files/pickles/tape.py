"""`Tape`: the bytes of a pickle, the position in it, and a count of the bytes in memory."""

from __future__ import annotations

from codecs import escape_decode
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError, UnsafeFileError

if TYPE_CHECKING:
    from mmap import mmap
    from struct import Struct

    from .words import UnreadBytes

__all__ = ["LINE", "MOST_BYTES", "Tape", "integer_of", "text_of"]

MOST_BYTES = 128 << 20
"""The most bytes of a pickle that are read into memory."""
LINE = 1_000
"""The most bytes of a line. From this size on, sizes are checked against the length of the file."""


class Tape:
    """The input of a machine.

    Args:
        data: Bytes that contain the pickle.
        where: The file, for messages.
        begin: The position of the pickle in `data`.
    """

    def __init__(self, data: bytes | mmap, where: str, begin: int) -> None:
        self.data = data
        self.where = where
        self.begin = self.at = begin
        self.left = 0

    def bomb(self, what: str) -> UnsafeFileError:
        """The error for a pickle that needs too much memory or time."""
        return UnsafeFileError(f"{self.where}: its pickle {what}, out of all proportion.")

    def take(self, nbytes: int) -> bytes:
        """Read the next bytes."""
        start = self.at
        self.at = end = start + nbytes
        if nbytes > LINE or end > len(self.data):
            self.reach(start, nbytes)
        return self.data[start:end]

    def leave(self, nbytes: int) -> int:
        """Skip bytes, which stay in the file; gives the position of the first."""
        start = self.at
        if start + nbytes > len(self.data):
            self.reach(start, nbytes)
        self.at += nbytes
        self.left += nbytes
        return start

    def take_left(self, span: UnreadBytes) -> bytes:
        """Read bytes that were skipped."""
        self.left -= span.nbytes
        self.weigh(self.at)
        return self.data[span.start : span.start + span.nbytes]

    def reach(self, start: int, nbytes: int) -> None:
        """Raise if a read would go past the end, or take too much memory."""
        if start + nbytes > len(self.data):
            raise FileFormatError(
                f"{self.where}: its pickle is cut off: {nbytes:,} bytes at {start:,} reach past its {len(self.data):,}."
            )
        self.weigh(start + nbytes)

    def weigh(self, end: int) -> None:
        """Raise if more is in memory than a pickle of data up to this position needs."""
        if end - self.begin - self.left > MOST_BYTES:
            raise self.bomb(f"has more than {MOST_BYTES:,} bytes beside those of arrays")

    def line(self, encoding: str = "utf-8", most: int = LINE) -> str:
        """Read the next line, without its end."""
        end = self.data.find(b"\n", self.at, self.at + most)
        if end < 0:
            raise FileFormatError(
                f"{self.where}: its pickle has a name without an end at byte {self.at}."
            )
        start, self.at = self.at, end + 1
        return self.data[start:end].decode(encoding)

    def unpack(self, kind: Struct) -> Any:
        """Read the next number."""
        return kind.unpack(self.take(kind.size))[0]


def integer_of(line: str) -> int | bool:
    """The integer in a line of protocols 0 and 1, in which bools are ``00`` and ``01``."""
    return line == "01" if line in ("00", "01") else int(line.removesuffix("L"))


def text_of(line: str) -> str:
    """The text in a line of Python 2, which is between quotes, with escapes."""
    if len(line) < 2 or line[0] != line[-1] or line[0] not in "'\"":
        raise ValueError("text without quotes")
    return escape_decode(line[1:-1])[0].decode("latin-1")
