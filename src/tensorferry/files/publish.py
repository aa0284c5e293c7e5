"""Files that appear whole or not at all: `publishing`, and the `Workspace` beside the target that it is made of.

A successor of ``model.safetensors`` is made in the hidden folder ``.model.safetensors.partial`` next to it, under
its own name, flushed to the disk and renamed. The folder's name is always the same, so that a run finds what a
killed one has left; a lock in it, which dies with its process, tells the two apart.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OutputExistsError
from .format import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Self

__all__ = ["Workspace", "demand", "identity", "publishing", "remove", "sync"]

_LOCK = "lock"
_NOTE = "published"
_PREVIOUS = "previous"

_NO_REPLACE, _EXCHANGE = 1, 2
"""Flags of renameat2: https://man7.org/linux/man-pages/man2/rename.2.html"""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def publishing(
    target: Path,
    *,
    overwrite: bool = False,
    sources: Iterable[str | Path] = (),
    nbytes: int = 0,
    is_folder: bool = False,
) -> Iterator[Path]:
    """A path to write to, which becomes `target` when the block ends without an error.

    The path has the target's name and is free; a file or a folder may be made there. It is flushed to the disk
    with its folder before it is renamed, and removed if the block raises. A new file has the mode that the umask
    gives, also in the place of another. A symlink stays, and what it points to is replaced, as ``cp`` does.

    Args:
        target: Where the output shall appear.
        overwrite: Replace what is there.
        sources: Files and folders that must not be the target, lie in it, or contain it.
        nbytes: How much will be written, at least: refused if the disk has not that much room.
        is_folder: Whether it will be a folder, which may take the place of an empty one.

    Raises:
        OutputExistsError: The target exists and `overwrite` is false, is one of the sources, or is being written
            by somebody else.
        OSError: It cannot be written there, or not so much.
    """
    demand(target, overwrite=overwrite, sources=sources, nbytes=nbytes, is_folder=is_folder)
    with Workspace(target) as work:
        work.recover()
        demand(target, overwrite=overwrite, is_folder=is_folder)
        work.clear()
        try:
            yield work.output
            work.publish(overwrite=overwrite)
        finally:
            work.discard()


def demand(
    target: Path,
    *,
    overwrite: bool = False,
    sources: Iterable[str | Path] = (),
    nbytes: int = 0,
    is_folder: bool = False,
    own: Iterable[str] | None = None,
) -> None:
    """Refuse a target that must not be, or cannot be, written; nothing is touched.

    Args:
        target: As for `publishing`.
        overwrite: As for `publishing`.
        sources: As for `publishing`.
        nbytes: As for `publishing`.
        is_folder: As for `publishing`.
        own: The names in the target, if it is a folder, that an earlier output consists of; others must not be
            lost. ``None``: all of them.

    Raises:
        OutputExistsError: As for `publishing`; or the target is a folder that has other things in it.
        OSError: As for `publishing`.
    """
    target = _resolved(target)
    for source in sources:
        _keep_apart(target, Path(source))
    folder = target.parent
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"cannot write {target.name} into what is no folder", str(folder))
    if not _may(folder, os.W_OK | os.X_OK) and folder.exists():
        raise PermissionError(errno.EACCES, f"cannot write {target.name} into a folder without permission", str(folder))
    # Others may write there at the same time: what is there now may be gone at the next look.
    with suppress(FileNotFoundError, NotADirectoryError):
        _demand_room(target, target.stat().st_mode, overwrite=overwrite, is_folder=is_folder, own=own)
    try:
        free = shutil.disk_usage(folder).free
    except (FileNotFoundError, NotADirectoryError):
        message = f"cannot write {target.name}, because the folder it goes into does not exist"
        raise FileNotFoundError(errno.ENOENT, message, str(folder)) from None
    if nbytes > free:
        message = f"cannot write {target.name}: it takes {nbytes:,} bytes, and {free:,} are free"
        raise OSError(errno.ENOSPC, message, str(folder))


def _demand_room(target: Path, mode: int, *, overwrite: bool, is_folder: bool, own: Iterable[str] | None) -> None:
    """Refuse what is at the target's place; a `FileNotFoundError`: it is gone by now."""
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OutputExistsError(
            f"{target} is a device, a pipe or a socket, and no file takes the place of one.", "another target"
        )
    if stat.S_ISDIR(mode) and not is_folder:
        raise OutputExistsError(f"{target} is a folder, and one file is to be written.", "the name of a file in it")
    if is_folder and _is_empty_folder(target):
        return
    if not overwrite:
        raise OutputExistsError(f"{target} exists already.", "overwrite=True replaces it")
    if not _may(target, os.W_OK):
        target.stat()
        raise PermissionError(errno.EACCES, "cannot replace a file that may not be written", str(target))
    if stat.S_ISDIR(mode) and own is not None:
        foreign = sorted({each.name for each in target.iterdir()} - set(own))
        if foreign:
            raise OutputExistsError(
                f"{target} also holds what no conversion wrote, and would be lost with it: {named(foreign)}.",
                "another target, or move them away",
            )


def _keep_apart(target: Path, source: Path) -> None:
    real = _resolved(source)
    if target == real or _is_same(target, real):
        raise OutputExistsError(f"{target} is what would be read, and a source is never changed.", "another target")
    if target in real.parents:
        raise OutputExistsError(f"{target} contains {source}, which would be read.", "another target")
    if real in target.parents:
        raise OutputExistsError(
            f"{target} lies in {source}, which would be read, and a source is never changed.",
            "a target outside of it",
        )


class Workspace:
    """The hidden folder beside a target in which its successor is made.

    As a context manager it is locked, for its process alone; when the block ends it is unlocked, and stays.

    Args:
        target: Where the output shall appear.
        shared: Lock it together with others who write parts of the same output.
    """

    def __init__(self, target: Path, *, shared: bool = False) -> None:
        self.target = _resolved(target)
        name = self.target.name
        if len(os.fsencode(name)) > 200:
            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        self.folder = self.target.parent / f".{name}.partial"
        self.output = self.folder / self.target.name
        self._shared = shared
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.lock(shared=self._shared)
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
            # Whoever had it before may have removed it, folder and all.
            if self._is_lock(descriptor):
                self._lock = descriptor
            else:
                os.close(descriptor)

    def share(self) -> None:
        """Let others lock it likewise, from now on."""
        if self._lock is not None:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_SH)

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
        elif _is_empty_folder(self.target) and self.output.is_dir():
            self.output.rename(self.target)
        elif not _rename(self.output, self.target, _NO_REPLACE):
            demand(self.target)
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
        raise OutputExistsError(f"{target} exists by now.", "overwrite=True replaces it")
    if number in _NO_FLAGS:
        return False
    raise OSError(number, os.strerror(number), str(target))


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_empty_folder(path: Path) -> bool:
    try:
        return path.is_dir() and next(path.iterdir(), None) is None
    except FileNotFoundError:
        return False


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
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
