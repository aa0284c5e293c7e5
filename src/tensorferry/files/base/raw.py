"""Read, write and map bytes of files, and see whether a file has changed.

A path that is more than a string is a `RemoteFile`, which reads bytes itself.
"""

from __future__ import annotations

import mmap
import os
import stat
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError
from ...hints.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Fingerprint",
    "bytes_of",
    "fingerprints",
    "held_open",
    "is_on_server",
    "mapped",
    "mapped_private",
    "names_url",
    "read_at",
    "read_fully",
    "read_pages",
    "write_fully",
]


def read_fully(descriptor: int, view: memoryview, offset: int, path: str) -> None:
    """Fill a buffer from a position in a file.

    Raises:
        OSError: It cannot be read. As the file is open already, only `path` says which.
        FileFormatError: The file is too short.
    """
    done = 0
    while done < view.nbytes:
        try:
            count = os.preadv(descriptor, [view[done:]], offset + done)
        except OSError as error:
            error.filename = path
            raise
        if not count:
            raise FileFormatError(
                f"{path} ends at byte {offset + done}, in the middle of a tensor."
            )
        done += count


def is_on_server(path: object) -> bool:
    """Whether a path is a `RemoteFile`, which is more than a string."""
    return isinstance(path, str) and type(path) is not str


def names_url(path: object) -> bool:
    """Whether a path is a URL: of a `RemoteFile`, or of one that is not opened yet."""
    return isinstance(path, str)


def read_at(path: str, offset: int, nbytes: int, descriptor: int | None = None) -> bytes:
    """Read bytes of a file, which may be open already.

    Raises:
        OSError: As for `read_fully`.
        FileFormatError: The file is too short.
    """
    if is_on_server(path):
        return path.read_at(offset, nbytes)  # type: ignore[attr-defined, no-any-return]
    # Opened each time, because a model may have more shards than a process can have open files.
    if descriptor is None:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    else:
        opened = descriptor
    try:
        raw = os.pread(opened, nbytes, offset)
        if len(raw) < nbytes:
            rest = bytearray(nbytes - len(raw))
            read_fully(opened, memoryview(rest), offset + len(raw), path)
            raw += rest
    except OSError as error:
        error.filename = path
        raise
    else:
        return raw
    finally:
        if descriptor is None:
            os.close(opened)


def read_pages(path: str, offset: int, nbytes: int) -> mmap.mmap:
    """As `read_at`, into a map whose memory is freed when it is closed; at least one byte."""
    pages = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if is_on_server(path):
        pages[:nbytes] = read_at(path, offset, nbytes)
        return pages
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with memoryview(pages) as view:
            read_fully(descriptor, view[:nbytes], offset, path)
    finally:
        os.close(descriptor)
    return pages


def bytes_of(path: str, descriptor: int | None = None) -> int:
    """The size of a file, which may be open already."""
    if descriptor is not None:
        return os.fstat(descriptor).st_size
    if is_on_server(path):
        return path.size  # type: ignore[attr-defined, no-any-return]
    return os.stat(path).st_size  # noqa: PTH116 - a plain string


@contextmanager
def held_open(path: str) -> Iterator[int | None]:
    """A context with the descriptor of a file, to read much of it; ``None`` for one on a server."""
    if is_on_server(path):
        yield None
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_fully(descriptor: int, data: Any, at: int | None = None) -> int:
    """Write a whole buffer at an open file's position, or at `at`; gives the number of bytes."""
    view = memoryview(data)
    done = 0
    while done < view.nbytes:
        rest = view[done:]
        if at is None:
            done += os.write(descriptor, rest)
        else:
            done += os.pwrite(descriptor, rest, at + done)
    return view.nbytes


def mapped(path: str) -> mmap.mmap:
    """A read-only map of a file, which is shared by all users of the file while it is in use."""
    status = os.stat(path)  # noqa: PTH116 - a plain string
    return _mapped(path, status.st_ino, status.st_size, status.st_mtime_ns)


def mapped_private(path: str) -> mmap.mmap:
    """A private, writable map of a file: a written page becomes a copy, the file stays the same."""
    with open(path, "rb") as file:  # noqa: PTH123 - a descriptor for mmap
        return mmap.mmap(
            file.fileno(),
            0,
            flags=mmap.MAP_PRIVATE | _NO_RESERVE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )


_NO_RESERVE: int = getattr(
    mmap, "MAP_NORESERVE", 0x4000 if os.uname().machine in ("x86_64", "aarch64") else 0
)
"""The flag to reserve no memory for written pages.

Otherwise a file larger than memory could not be mapped.
"""


@lru_cache(maxsize=16)
def _mapped(path: str, _inode: int, _size: int, _changed: int) -> mmap.mmap:
    with open(path, "rb") as file:  # noqa: PTH123 - a descriptor for mmap
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class Fingerprint(NamedTuple):
    """The facts about a file that must not change while it is in use."""

    path: str
    nbytes: int
    changed: int
    inode: int


def fingerprints(paths: tuple[str, ...]) -> tuple[Fingerprint, ...]:
    """The present fingerprints of files, and of all files in folders."""
    made = []
    for path in sorted(set(paths)):
        if is_on_server(path):
            nbytes, changed = path.facts  # type: ignore[attr-defined]
            made.append(Fingerprint(path, nbytes, changed, 0))
            continue
        status = os.stat(path)  # noqa: PTH116 - plain strings
        if not stat.S_ISDIR(status.st_mode):
            # Links are not followed: one that leads elsewhere now has changed.
            place = os.path.abspath(path)  # noqa: PTH100
            made.append(Fingerprint(place, status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(made)
