"""`Pump`: the bytes of tensors on their way into a file, counted and checked, a block at a time."""

from __future__ import annotations

import ctypes
import errno
import os
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FileFormatError
from .stored import BLOCK_BYTES, Extent, Record, read_fully

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .stored import Stored

__all__ = ["Pump"]

Array = np.ndarray[Any, Any]

_NO_RANGES = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What copy_file_range says between file systems, or where there is no such call."""

_ASIDE = 4 * BLOCK_BYTES
"""Bytes from which a checksum is computed beside the copying, in a thread."""

_BEGIN = 2
"""SYNC_FILE_RANGE_WRITE (https://man7.org/linux/man-pages/man2/sync_file_range.2.html)."""


class Pump:
    """Moves the bytes of tensors, and looks at the checksums that their sources have.

    Args:
        progress: Is told the number of bytes each time some have been moved.
    """

    def __init__(self, progress: Callable[[int], None] | None = None) -> None:
        self._progress = progress or _silent
        self._checked: set[Record] = set()

    def copy(self, stored: Stored, descriptor: int, *, crc: int | None = None) -> int | None:
        """Append a tensor's packed little-endian bytes to an open file.

        Args:
            stored: The tensor.
            descriptor: A file that is open for writing, at the place where the bytes go.
            crc: The CRC-32 of what stands before the bytes in their record, if the caller wants to go on with it.

        Returns:
            The CRC-32 so far, or ``None`` if it was not asked for.

        Raises:
            FileFormatError: The source's own checksum does not fit, or the source is cut off.
        """
        if isinstance(stored, Extent) and not stored.swapped:
            with self._checking(stored):
                if crc is not None:
                    return self._copy_blocks(stored, descriptor, crc)
                self._copy_range(stored, descriptor)
                return None
        for block in self.blocks(stored):
            bits: Any = block.view(np.uint8)
            raw = memoryview(bits if block.size else b"")
            if crc is not None:
                crc = zlib.crc32(raw, crc)
            _write_fully(descriptor, raw)
        return crc

    def blocks(self, stored: Stored) -> Iterator[Array]:
        """A tensor's values in order, as `Stored.blocks` gives them, for libraries that write by themselves."""
        self.check(stored)
        for block in stored.blocks():
            yield block
            self._progress(block.nbytes)

    def array(self, stored: Stored) -> Array:
        """All of a tensor in memory, for libraries that take nothing else."""
        self.check(stored)
        array = stored.array()
        self._progress(array.nbytes)
        return array

    def check(self, stored: Stored) -> None:
        """Compare the checksum of the region that a tensor lies in, once for each region.

        Raises:
            FileFormatError: It does not fit.
        """
        record = getattr(stored, "record", None)
        if record is None or record in self._checked:
            return
        found = 0
        whole = Extent("uint8", (record.nbytes,), record.path, record.offset)
        for block in whole.blocks():
            raw: Any = block
            found = zlib.crc32(raw, found)
        self._compare(record, found)

    @contextmanager
    def _checking(self, stored: Stored) -> Iterator[None]:
        """Check a tensor's region meanwhile, beside the copying if that takes a while."""
        if stored.nbytes < _ASIDE or getattr(stored, "record", None) is None:
            self.check(stored)
            yield
            return
        from concurrent.futures import ThreadPoolExecutor  # which brings logging: not to look into a file

        with ThreadPoolExecutor(1) as aside:
            checked = aside.submit(self.check, stored)
            yield
            checked.result()

    def _copy_range(self, stored: Extent, descriptor: int) -> None:
        done, total = 0, stored.nbytes
        with open(stored.path, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            while done < total:
                wanted = min(total - done, 16 * BLOCK_BYTES)
                try:
                    count = os.copy_file_range(file.fileno(), descriptor, wanted, stored.offset + done)
                except OSError as error:
                    if error.errno not in _NO_RANGES:
                        raise
                    count = 0
                # Some file systems say nothing was copied instead of that they cannot.
                if not count:
                    break
                done += count
                _begin_to_write(descriptor, count)
                self._progress(count)
        if done < total:
            self._copy_blocks(stored, descriptor, None, done)

    def _copy_blocks(self, stored: Extent, descriptor: int, crc: int | None, done: int = 0) -> int | None:
        view = memoryview(bytearray(min(BLOCK_BYTES, max(stored.nbytes, 1))))
        with open(stored.path, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            total = stored.nbytes
            while done < total:
                part = view[: min(view.nbytes, total - done)]
                read_fully(file.fileno(), part, stored.offset + done, stored.path)
                if crc is not None:
                    crc = zlib.crc32(part, crc)
                _write_fully(descriptor, part)
                _begin_to_write(descriptor, part.nbytes)
                done += part.nbytes
                self._progress(part.nbytes)
        return crc

    def _compare(self, record: Record, found: int) -> None:
        if found != record.crc:
            raise FileFormatError(
                f"{record.path} is corrupt: the {record.nbytes} bytes at {record.offset} have CRC-32 {found:08x}, "
                f"the archive says {record.crc:08x}.",
                "get the file anew",
            )
        self._checked.add(record)


def _find_sync() -> Callable[[int, int, int, int], int] | None:
    """Linux's sync_file_range, which begins to write and waits for nothing; ``None`` elsewhere."""
    try:
        found: Any = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint)
    return found  # type: ignore[no-any-return]


_sync_range = _find_sync()


def _begin_to_write(descriptor: int, count: int) -> None:
    """Let the disk begin with what was just put into a file, so that fsync has less to wait for at the end."""
    if _sync_range is not None:
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        _sync_range(descriptor, end - count, count, _BEGIN)


def _write_fully(descriptor: int, view: memoryview) -> None:
    done = 0
    while done < view.nbytes:
        done += os.write(descriptor, view[done:])


def _silent(_: int) -> None:
    return None
