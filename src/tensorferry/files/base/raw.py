"""Bytes of files: read at a place, written to the end, mapped."""

from __future__ import annotations

import mmap
import os
from functools import lru_cache
from typing import Any

from ...errors import FileFormatError

__all__ = ["mapped", "mapped_private", "read_at", "read_fully", "read_pages", "write_fully"]


def read_fully(descriptor: int, view: memoryview, offset: int, path: str) -> None:
    """Fill a buffer from a place in a file.

    Raises:
        FileFormatError: The file ends before.
    """
    done = 0
    while done < view.nbytes:
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            raise FileFormatError(f"{path} ends at byte {offset + done}, in the middle of a tensor.")
        done += count


def read_at(path: str, offset: int, nbytes: int, descriptor: int | None = None) -> bytes:
    """Bytes of a file, which may be open already.

    Raises:
        FileFormatError: The file ends before.
    """
    # Opened each time: a model may have more shards than a process may have open files.
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    try:
        raw = os.pread(opened, nbytes, offset)
        if len(raw) < nbytes:
            rest = bytearray(nbytes - len(raw))
            read_fully(opened, memoryview(rest), offset + len(raw), path)
            raw += rest
        return raw
    finally:
        if descriptor is None:
            os.close(opened)


def read_pages(path: str, offset: int, nbytes: int) -> mmap.mmap:
    """As `read_at`, in memory that is given back as soon as it is closed; at least one byte, as maps are."""
    pages = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with memoryview(pages) as view:
            read_fully(descriptor, view[:nbytes], offset, path)
    finally:
        os.close(descriptor)
    return pages


def write_fully(descriptor: int, data: Any, at: int | None = None) -> int:
    """Write all of a buffer where an open file stands, or at a place in it; gives the number of bytes."""
    view = memoryview(data)
    done = 0
    while done < view.nbytes:
        rest = view[done:]
        done += os.write(descriptor, rest) if at is None else os.pwrite(descriptor, rest, at + done)
    return view.nbytes


def mapped(path: str) -> mmap.mmap:
    """One read-only map of a file, shared by all that lies in it for as long as any of it lives."""
    status = os.stat(path)  # noqa: PTH116 - a plain string
    return _mapped(path, status.st_ino, status.st_size, status.st_mtime_ns)


def mapped_private(path: str) -> mmap.mmap:
    """A map of a file that can be written: a page that is becomes a copy of one's own; the file stays as it is."""
    with open(path, "rb") as file:  # noqa: PTH123 - a descriptor for mmap
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | _NO_RESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


_NO_RESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().machine in ("x86_64", "aarch64") else 0)
"""No memory is set aside for pages that may be written, or a file larger than what there is could not be mapped."""


@lru_cache(maxsize=16)
def _mapped(path: str, _inode: int, _size: int, _changed: int) -> mmap.mmap:
    with open(path, "rb") as file:  # noqa: PTH123 - a descriptor for mmap
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
