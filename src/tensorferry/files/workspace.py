"""`Workspace`: the hidden folder beside a target in which its successor is made.

The folder's name is always the same, so that a run finds what a killed one has left; a lock in it, which dies with
its process, tells the two apart.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OutputExistsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

__all__ = ["Workspace", "identity", "is_empty_folder", "remove", "resolved", "sync"]

_LOCK = "lock"
_NOTE = "published"
_PREVIOUS = "previous"

_NO_REPLACE, _EXCHANGE = 1, 2
"""Flags of renameat2: https://man7.org/linux/man-pages/man2/rename.2.html"""

_OVERWRITE = "overwrite=True replaces it"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class Workspace:
    """The hidden folder beside a target in which its successor is made.

    As a context manager it is locked, for its process alone; when the block ends it is unlocked, and stays.
    """

    def __init__(self, target: Path) -> None:
        self.target = resolved(target)
        name = self.target.name
        if len(os.fsencode(name)) > 200:
            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        self.folder = self.target.parent / f".{name}.partial"
        self.output = self.folder / self.target.name
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.lock()
        return self

    def __exit__(self, *_: object) -> None:
        self.unlock()

    def lock(self, *, shared: bool = False, wait: bool = False) -> None:
        """Make the folder if it is not there, and lock it.

        Args:
            shared: Let others lock it likewise.
            wait: Wait for others to unlock it.

        Raises:
            OutputExistsError: Somebody else has locked it, or it is not a folder of ours.
            OSError: It cannot be made.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        while self._lock is None:
            descriptor = self._open_lock()
            if descriptor is None:
                continue
            try:
                fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise OutputExistsError(
                    f"{self.target} is being written by another process at this moment.", "wait for it to end"
                ) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(descriptor)
                    raise
            # The process that had it before may have removed it, folder and all.
            if self._is_lock(descriptor):
                self._lock = descriptor
            else:
                os.close(descriptor)

    def unlock(self) -> None:
        """Let others in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def has_published(self) -> bool:
        """Whether a killed run had published its output; nothing is touched."""
        note = self._note()
        return note is not None and identity(self.target) == note

    def recover(self) -> bool:
        """Bring what a killed run left to a safe state.

        Returns:
            Whether that run had published its output, and only its cleaning up is missing.
        """
        if self.has_published():
            return True
        note = self._note()
        previous = self.folder / _PREVIOUS
        if not self.target.exists() and identity(previous) is not None:
            if note is not None and identity(self.output) == note:
                self.output.rename(self.target)
                return True
            previous.rename(self.target)
        return False

    def clear(self, *, keep: Iterable[str] = ()) -> None:
        """Remove what is in the folder, but for the lock and what is to be kept."""
        kept = {_LOCK, *keep}
        for each in list(self.folder.iterdir()):
            if each.name not in kept:
                remove(each)

    def discard(self) -> None:
        """Remove the folder with all that is in it; without an error if that cannot be done."""
        with suppress(OSError):
            self.clear()
            # The lock goes last: who waits for it sees that it is gone.
            (self.folder / _LOCK).unlink()
            self.folder.rmdir()

    def publish(self, *, overwrite: bool = False) -> None:
        """Flush the output to the disk and rename it to the target.

        Raises:
            OutputExistsError: The target exists by now, and `overwrite` is false.
            OSError: It cannot be flushed or renamed.
        """
        self._give_mode()
        sync(self.output)
        (self.folder / _NOTE).write_text(json.dumps(identity(self.output)), "utf-8")
        sync(self.folder / _NOTE)
        _sync_one(self.folder)
        if overwrite:
            self._replace()
        elif is_empty_folder(self.target) and self.output.is_dir():
            self.output.rename(self.target)
        elif not _rename(self.output, self.target, _NO_REPLACE):
            if self.target.exists():
                raise OutputExistsError(f"{self.target} exists by now.", _OVERWRITE)
            self.output.rename(self.target)
        _sync_one(self.target.parent)

    def _replace(self) -> None:
        folders = self.target.is_dir() or (self.target.exists() and self.output.is_dir())
        if not folders:
            self.output.replace(self.target)
        elif not _rename(self.output, self.target, _EXCHANGE):
            # Only here is there a moment without a target; `recover` ends it if this process does not.
            self.target.rename(self.folder / _PREVIOUS)
            self.output.rename(self.target)

    def _give_mode(self) -> None:
        """Libraries may make their files for the owner alone; a probe tells what the umask, or an ACL, gives."""
        if self.output.is_dir():
            return
        probe = self.folder / "probe"
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        wanted = stat.S_IMODE(probe.stat().st_mode)
        probe.unlink()
        if stat.S_IMODE(self.output.stat().st_mode) != wanted:
            self.output.chmod(wanted)

    def _note(self) -> int | None:
        try:
            found: Any = json.loads((self.folder / _NOTE).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, int) else None

    def _open_lock(self) -> int | None:
        try:
            # Not `Path.mkdir(exist_ok=True)`, which looks again and complains if the folder is gone by then.
            with suppress(FileExistsError):
                self.folder.mkdir()
            status = self.folder.lstat()
            owners = (os.geteuid(), self.target.parent.stat().st_uid)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners:
                raise OutputExistsError(
                    f"{self.folder}, in which {self.target.name} would be made, is not a folder of yours.", "remove it"
                )
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(self.folder / _LOCK, flags, 0o666)
        except FileNotFoundError:
            if not self.target.parent.is_dir():
                raise
            return None

    def _is_lock(self, descriptor: int) -> bool:
        try:
            there = (self.folder / _LOCK).stat()
        except FileNotFoundError:
            return False
        ours = os.fstat(descriptor)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def sync(path: Path) -> None:
    """Flush a file, or a folder and all that is in it, to the disk.

    Raises:
        OSError: The disk says that it cannot.
    """
    if path.is_dir():
        for each in path.iterdir():
            sync(each)
    _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(source: Path, target: Path, flag: int) -> bool:
    """Rename with a flag that `os.rename` has not; ``False`` if this system, or its file system, has not either."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here = -100  # AT_FDCWD
    if call(here, os.fsencode(source), here, os.fsencode(target), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EEXIST:
        raise OutputExistsError(f"{target} exists by now.", _OVERWRITE)
    if number in _NO_FLAGS:
        return False
    raise OSError(number, os.strerror(number), str(target))


def resolved(path: Path) -> Path:
    """A path without links."""
    return Path(os.path.realpath(path))


def is_empty_folder(path: Path) -> bool:
    """Whether a path is a folder with nothing in it."""
    try:
        return path.is_dir() and next(path.iterdir(), None) is None
    except FileNotFoundError:
        return False


def identity(path: Path) -> int | None:
    """What a file keeps when it is renamed, or ``None`` if there is none."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def remove(path: Path) -> None:
    """Remove a file, or a folder and all that is in it; a symlink itself."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
