"""`Pump`: copy tensors' bytes into a file, count them, compare checksums, a block at a time."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import zlib
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import FileFormatError
from .raw import read_fully, write_fully
from .stored import BLOCK_BYTES, Extent, Packed, Record, Repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

    from ...typing import Array
    from .stored import Stored

__all__ = ["Pump", "silent"]

_NO_RANGES = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""Errors of copy_file_range between file systems, or on systems without it."""

_ASIDE = 4 * BLOCK_BYTES
"""From this size in bytes on, a checksum is computed in a thread, beside the copy."""

_CHECKERS = 2
"""The number of threads for checksums. One thread would be slower than the copy."""
_BEHIND = 256 * BLOCK_BYTES

_BEGIN = 2
"""SYNC_FILE_RANGE_WRITE (https://man7.org/linux/man-pages/man2/sync_file_range.2.html)."""


class Pump:
    """Copies the bytes of tensors, and compares the checksums of their sources.

    Args:
        progress: Called with the number of bytes whenever some have been copied.
    """

    def __init__(self, progress: Callable[[int], None] | None = None) -> None:
        self.progress = progress or silent
        self._checked: set[Record] = set()
        self._checkers: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[int, Future[None]]] = deque()
        self._defers = False

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """A context in which large regions are checked while later ones are copied.

        At its end, all have been checked.

        Raises:
            FileFormatError: A checksum is wrong.
        """
        self._defers = True
        try:
            yield
            self._settle(0)
        finally:
            self._defers = False
            self._pending.clear()
            if self._checkers is not None:
                self._checkers.shutdown(cancel_futures=True)
                self._checkers = None

    def copy(self, stored: Stored, descriptor: int, *, crc: int | None = None) -> int | None:
        """Append the bytes of a tensor (compact, little-endian) to an open file.

        Args:
            stored: The tensor.
            descriptor: A file that is open for writing, at the right position.
            crc: The CRC-32 of the bytes before, if the caller needs the CRC-32 of all.

        Returns:
            The CRC-32 so far, or ``None`` if it was not asked for.

        Raises:
            FileFormatError: The checksum of the source is wrong, or the source is cut off.
        """
        if isinstance(stored, Repeated):
            stored = stored.inner
        if isinstance(stored, Packed) and not stored.swapped:
            with self._checking(stored):
                if crc is not None:
                    copy = self._copy_blocks if stored.nbytes < _ASIDE else self._copy_and_sum
                    return copy(stored, descriptor, crc)
                self._copy_range(stored, descriptor)
                return None
        runs = self._runs_of(stored) if crc is None else None
        if runs is not None:
            self.check(stored)
            for run in runs:
                self._copy_range(run, descriptor)
            return None
        waiting = 0
        for block in self.blocks(stored):
            bits: Any = block.view(np.uint8)
            raw = memoryview(bits if block.size else b"")
            if crc is not None:
                crc = zlib.crc32(raw, crc)
            waiting += write_fully(descriptor, raw)
            if waiting >= 16 * BLOCK_BYTES:
                _begin_to_write(descriptor, waiting)
                waiting = 0
        return crc

    def _runs_of(self, stored: Stored) -> list[Extent] | None:
        """A tensor as runs of bytes in files; ``None`` if it is no such thing."""
        find_runs: Any = getattr(stored, "extents", None)
        return None if find_runs is None else find_runs()

    def blocks(self, stored: Stored) -> Iterator[Array]:
        """A tensor's values in order, as from `Stored.blocks`, for libraries that write files."""
        self.check(stored)
        for block in stored.blocks():
            yield block
            self.progress(block.nbytes)

    def array(self, stored: Stored) -> Array:
        """The whole tensor in memory, for libraries that need it."""
        self.check(stored)
        array = stored.array()
        self.progress(array.nbytes)
        return array

    def check(self, stored: Stored) -> None:
        """Compare the checksums of the regions of a tensor, once for each region.

        Raises:
            FileFormatError: A checksum is wrong.
        """
        for part, _ in stored.origins():
            record = getattr(part, "record", None)
            if record is not None and record.crc is not None and record not in self._checked:
                self._compare_sum(record)

    def _defer(self, record: Record) -> None:
        if self._checkers is None:
            # Here, because it imports logging, which takes long.
            from concurrent.futures import ThreadPoolExecutor

            self._checkers = ThreadPoolExecutor(_CHECKERS)
        self._checked.add(record)
        self._pending.append((record.nbytes, self._checkers.submit(self._compare_sum, record)))
        # Soon after the copy, while the bytes are still in the page cache.
        self._settle(_BEHIND)

    def _settle(self, nbytes: int) -> None:
        """Wait until at most `nbytes` bytes are still unchecked, and raise the errors found."""
        left = sum(pending for pending, _ in self._pending)
        while self._pending and (left > nbytes or self._pending[0][1].done()):
            count, checked = self._pending.popleft()
            checked.result()
            left -= count

    def _compare_sum(self, record: Record) -> None:
        self._compare(record, _sum(record.path, record.offset, record.nbytes))

    @contextmanager
    def _checking(self, stored: Stored) -> Iterator[None]:
        """A context in which the region of a tensor is checked, in a thread if it is large."""
        record = getattr(stored, "record", None)
        if stored.nbytes < _ASIDE or record is None or record.crc is None:
            self.check(stored)
            yield
            return
        if self._defers:
            if record not in self._checked:
                self._defer(record)
            yield
            return
        # Here, because it imports logging, which takes long.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as aside:
            checked = aside.submit(self.check, stored)
            yield
            checked.result()

    def _copy_range(self, stored: Packed, descriptor: int) -> None:
        done, total = 0, stored.nbytes
        with open(stored.path, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            is_shifted = _is_shifted(file.fileno(), stored.offset, descriptor)
            while done < total and not is_shifted:
                wanted = min(total - done, 16 * BLOCK_BYTES)
                try:
                    count = os.copy_file_range(
                        file.fileno(), descriptor, wanted, stored.offset + done
                    )
                except OSError as error:
                    if error.errno not in _NO_RANGES:
                        raise
                    count = 0
                # Some file systems return 0 instead of an error if they cannot do it.
                if not count:
                    break
                done += count
                _begin_to_write(descriptor, count)
                self.progress(count)
        if done < total:
            self._copy_blocks(stored, descriptor, None, done)

    def _copy_blocks(
        self, stored: Packed, descriptor: int, crc: int | None, done: int = 0
    ) -> int | None:
        view = memoryview(bytearray(min(BLOCK_BYTES, max(stored.nbytes, 1))))
        with open(stored.path, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            total = stored.nbytes
            while done < total:
                part = view[: min(view.nbytes, total - done)]
                read_fully(file.fileno(), part, stored.offset + done, stored.path)
                if crc is not None:
                    crc = zlib.crc32(part, crc)
                write_fully(descriptor, part)
                _begin_to_write(descriptor, part.nbytes)
                done += part.nbytes
                self.progress(part.nbytes)
        return crc

    def _copy_and_sum(self, stored: Packed, descriptor: int, crc: int) -> int:
        """As `_copy_blocks`, but in the kernel, while a thread computes the checksum."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as aside:
            summed = aside.submit(_sum, stored.path, stored.offset, stored.nbytes, crc)
            self._copy_range(stored, descriptor)
            return summed.result()

    def _compare(self, record: Record, crc: int) -> None:
        if crc != record.crc:
            raise FileFormatError(
                f"{record.path} is corrupt: the {record.nbytes} bytes at {record.offset} have "
                f"CRC-32 {crc:08x}, "
                f"the archive says {record.crc:08x}.",
                "get the file again",
            )
        self._checked.add(record)


def _find_sync() -> Callable[[int, int, int, int], int] | None:
    """Linux's sync_file_range, which starts writing to disk without waiting; ``None`` elsewhere."""
    try:
        sync: Any = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    sync.argtypes = (ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint)
    return sync  # type: ignore[no-any-return]


_sync_range = _find_sync()


def _is_shifted(source: int, offset: int, target: int) -> bool:
    """Whether bytes get another place in their page on a disk of this machine.

    Then the system copies each page in two parts, and a buffer that stays in the cache takes two
    thirds of the time. File systems without a device may be on other machines, which copy there.
    """
    is_local = os.major(os.fstat(source).st_dev) != 0
    return is_local and (os.lseek(target, 0, os.SEEK_CUR) - offset) % mmap.PAGESIZE != 0


def _begin_to_write(descriptor: int, count: int) -> None:
    """Start to write new bytes of a file to the disk, so that fsync takes less time at the end."""
    if _sync_range is not None:
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        _sync_range(descriptor, end - count, count, _BEGIN)


def _sum(path: str, offset: int, nbytes: int, crc: int = 0) -> int:
    """The CRC-32 of a region of a file, continued from the CRC-32 of the bytes before."""
    for block in Extent("uint8", (nbytes,), path, offset).blocks():
        raw: Any = block
        crc = zlib.crc32(raw, crc)
    return crc


def silent(_: int) -> None:
    """Report no progress."""
