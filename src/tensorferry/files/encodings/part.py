"""`Part`: some of a file's bytes as a file of their own."""

from __future__ import annotations

import io
import os
from typing import Any

__all__ = ["Part"]


class Part(io.RawIOBase):
    """A part of a file, read-only.

    Args:
        file: The whole, which has to stay open.
        offset: The first byte.
        nbytes: How many.
    """

    def __init__(self, file: io.FileIO, offset: int, nbytes: int) -> None:
        self._descriptor = file.fileno()
        self._offset = offset
        self._nbytes = nbytes
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place, as `io.IOBase` says."""
        self._at = offset + (0, self._at, self._nbytes)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there is something to read."""
        view = memoryview(buffer).cast("B")
        count = max(min(view.nbytes, self._nbytes - self._at), 0)
        count = os.preadv(self._descriptor, [view[:count]], self._offset + self._at) if count else 0
        self._at += count
        return count
