"""`Location`: the place of an HDF5 file, which may be inside another file, such as an archive."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.

from __future__ import annotations

import io
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ....errors import ConversionError, FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...base.stored import Record

__all__ = ["MAGIC", "Location"]

MAGIC = b"\x89HDF\r\n\x1a\n"


class Location(NamedTuple):
    """The place of an HDF5 file: a whole file, or a part of one.

    Args:
        path: The file.
        offset: The position of the first byte.
        nbytes: The number of bytes.
        record: The region with a checksum that contains it, if there is one.
    """

    path: str
    offset: int
    nbytes: int
    record: Record | None = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The h5py.File, as a context in which all its errors become a `FileFormatError`."""
        import h5py

        with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 - OSError with its own message, and a descriptor
            whole = self.offset == 0 and self.record is None
            try:
                # The chunk cache keeps chunks that several slabs need.
                with h5py.File(
                    self.path if whole else Window(file, self.offset, self.nbytes), "r"
                ) as opened:
                    yield opened
            except ConversionError:
                raise
            except (
                OSError,
                RuntimeError,
                KeyError,
                ValueError,
                TypeError,
                AttributeError,
                OverflowError,
            ) as error:
                raise FileFormatError(f"{self.path} cannot be read as HDF5: {error}.") from error


class Window(io.RawIOBase):
    """A read-only part of an open file."""

    def __init__(self, file: io.FileIO, offset: int, nbytes: int) -> None:
        self._descriptor = file.fileno()
        self._offset = offset
        self._nbytes = nbytes
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._nbytes)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(min(view.nbytes, self._nbytes - self._at), 0)
        count = os.preadv(self._descriptor, [view[:count]], self._offset + self._at) if count else 0
        self._at += count
        return count
