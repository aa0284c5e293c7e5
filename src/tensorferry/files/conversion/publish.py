"""`publishing`: make files that appear only when complete; check where output may be written.

A new ``model.safetensors`` is made in the hidden folder ``.model.safetensors.partial`` next to it,
flushed to the disk and renamed. The name of the folder is always the same, so that a run finds the
remains of a killed run. A lock in it, which ends with its process, shows whether a run is still
working.
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

from ... import hints
from ...errors import OutputExistsError
from ...hints import Hint
from ..base.raw import is_on_server
from ..base.urls import refuse_url
from ..base.wording import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Self

__all__ = [
    "Workspace",
    "identity",
    "is_empty_folder",
    "naming",
    "publishing",
    "remove",
    "resolved",
    "sync",
    "validate_target",
]

_LOCK = "lock"
_NOTE = "published"
_PREVIOUS = "previous"

_NO_REPLACE, _EXCHANGE = 1, 2
"""Flags of renameat2: https://man7.org/linux/man-pages/man2/rename.2.html"""

_OVERWRITE = Hint(hints.keyword("overwrite", True), ", which replaces it")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class Workspace:
    """The hidden folder beside a target, in which the new output is made.

    As a context manager, it is locked for this process. It stays after the block, unlocked.
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
        """Make the folder if it does not exist, and lock it.

        Args:
            shared: Whether others can have a shared lock at the same time.
            wait: Whether to wait until others unlock it.

        Raises:
            OutputExistsError: Another process has locked it, or it is not such a folder.
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
                    f"{self.target} is being written by another process at this moment.",
                    "wait for it to end",
                ) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(descriptor)
                    raise
            # The process that had locked it may have removed the lock and the folder.
            if self._is_lock(descriptor):
                self._lock = descriptor
            else:
                os.close(descriptor)

    def unlock(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def has_published(self) -> bool:
        """Whether a killed run had published its output. Nothing is changed."""
        note = self._note()
        return note is not None and identity(self.target) == note

    def recover(self) -> bool:
        """Repair what a killed run has left.

        Returns:
            Whether that run had published its output, and only the clean-up is missing.
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
        """Remove everything in the folder except the lock and the names in `keep`."""
        kept = {_LOCK, *keep}
        for entry in list(self.folder.iterdir()):
            if entry.name not in kept:
                remove(entry)

    def discard(self) -> None:
        """Remove the folder and its contents, without an error if that fails."""
        with suppress(OSError):
            self.clear()
            # The lock is removed last: a process that waits for it finds that it is gone.
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
            # Only here the target is missing for a moment. If this process is killed then,
            # `recover` restores it.
            self.target.rename(self.folder / _PREVIOUS)
            self.output.rename(self.target)

    def _give_mode(self) -> None:
        """Give the output a new file's mode: libraries may make files only the owner can read."""
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
            number: Any = json.loads((self.folder / _NOTE).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return number if isinstance(number, int) else None

    def _open_lock(self) -> int | None:
        try:
            # Not `Path.mkdir(exist_ok=True)`, which fails if the folder is removed meanwhile.
            with suppress(FileExistsError):
                self.folder.mkdir()
            status = self.folder.lstat()
            owners = (os.geteuid(), self.target.parent.stat().st_uid)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners:
                raise OutputExistsError(
                    f"{self.folder}, in which {self.target.name} would be made, "
                    "is not a folder of yours.",
                    "remove it",
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
    """Flush a file, or a folder and its contents, to the disk.

    Raises:
        OSError: The disk reports an error.
    """
    if path.is_dir():
        for entry in path.iterdir():
            sync(entry)
    _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(source: Path, target: Path, flag: int) -> bool:
    """Rename with a flag `os.rename` lacks; ``False`` if the system or file system lacks it."""
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
    """The path with all links resolved."""
    return Path(os.path.realpath(path))


def is_empty_folder(path: Path) -> bool:
    """Whether a path is an empty folder."""
    try:
        return path.is_dir() and next(path.iterdir(), None) is None
    except FileNotFoundError:
        return False


def identity(path: Path) -> int | None:
    """A number that a file keeps when it is renamed; ``None`` if the file does not exist."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def remove(path: Path) -> None:
    """Remove a file, a folder with its contents, or a symlink (not its target)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def naming(target: Path) -> Iterator[None]:
    """Add the path of the file to the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(target)
        raise


@contextmanager
def publishing(target: Path, *, overwrite: bool = False, is_folder: bool = False) -> Iterator[Path]:
    """A path to write to, which becomes `target` when the block ends without an error.

    The path has the target's name and is free; a file or a folder may be made there. It is flushed
    to the disk with its folder before it is renamed, and removed if the block raises. A new file
    has the mode that the umask gives, also in the place of another. A symlink stays, and what it
    points to is replaced, as ``cp`` does.

    Args:
        target: The path of the output.
        overwrite: Whether to replace an existing output.
        is_folder: Whether it is a folder, which may replace an empty one.

    Raises:
        OutputExistsError: The target exists and `overwrite` is false, or is being written by
            another process.
        OSError: It cannot be written.
    """
    validate_target(target, overwrite=overwrite, is_folder=is_folder)
    with Workspace(target) as work:
        work.recover()
        validate_target(target, overwrite=overwrite, is_folder=is_folder)
        work.clear()
        try:
            yield work.output
            work.publish(overwrite=overwrite)
        finally:
            work.discard()


def validate_target(
    target: Path,
    *,
    overwrite: bool = False,
    sources: Iterable[str | Path] = (),
    nbytes: int = 0,
    is_folder: bool = False,
    own: Iterable[str] | None = None,
) -> None:
    """Raise for a target that must not or cannot be written. Nothing is changed.

    Args:
        target: As for `publishing`.
        overwrite: As for `publishing`.
        sources: Files and folders that must not be the target, be in it, or contain it.
        nbytes: How much will be written at least. It is an error if the disk has less room.
        is_folder: As for `publishing`.
        own: If the target is a folder: the names in it that belong to an earlier output; other
            files must not be lost. ``None`` if all belong to it.
    """
    refuse_url(target, is_target=True)
    target = resolved(target)
    for source in sources:
        if is_on_server(source):
            continue
        _keep_apart(target, Path(source))
    folder = target.parent
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            errno.ENOTDIR,
            f"cannot write {target.name} into this, which is not a folder",
            str(folder),
        )
    if not _may(folder, os.W_OK | os.X_OK) and folder.exists():
        raise PermissionError(
            errno.EACCES, f"no permission to write {target.name} into this folder", str(folder)
        )
    # Other processes may write there at the same time, and remove files between two checks.
    with suppress(FileNotFoundError, NotADirectoryError):
        _validate_room(
            target, target.stat().st_mode, overwrite=overwrite, is_folder=is_folder, own=own
        )
    try:
        free = shutil.disk_usage(folder).free
    except (FileNotFoundError, NotADirectoryError):
        message = f"cannot write {target.name}, because the folder it goes into does not exist"
        raise FileNotFoundError(errno.ENOENT, message, str(folder)) from None
    if nbytes > free:
        message = f"cannot write {target.name}: it takes {nbytes:,} bytes, and {free:,} are free"
        raise OSError(errno.ENOSPC, message, str(folder))


def _validate_room(
    target: Path, mode: int, *, overwrite: bool, is_folder: bool, own: Iterable[str] | None
) -> None:
    """Raise for what exists at the target.

    A `FileNotFoundError` means that it has just been removed.
    """
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OutputExistsError(
            f"{target} is a device, a pipe or a socket, and no file takes the place of one.",
            "another target",
        )
    if stat.S_ISDIR(mode) and not is_folder:
        raise OutputExistsError(
            f"{target} is a folder, and one file is to be written.", "the name of a file in it"
        )
    if is_folder and is_empty_folder(target):
        return
    if not overwrite:
        raise OutputExistsError(f"{target} exists already.", _OVERWRITE)
    if not _may(target, os.W_OK):
        target.stat()
        raise PermissionError(
            errno.EACCES, "cannot replace a file that may not be written", str(target)
        )
    if stat.S_ISDIR(mode) and own is not None:
        foreign = sorted({entry.name for entry in target.iterdir()} - set(own))
        if foreign:
            raise OutputExistsError(
                f"{target} also holds what no conversion wrote, and would be lost with it: "
                f"{named(foreign)}.",
                "another target, or move them away",
            )


def _keep_apart(target: Path, source: Path) -> None:
    real = resolved(source)
    if target == real or _is_same(target, real):
        raise OutputExistsError(
            f"{target} is what would be read, and a source is never changed.", "another target"
        )
    if target in real.parents:
        raise OutputExistsError(
            f"{target} contains {source}, which would be read.", "another target"
        )
    if real in target.parents:
        raise OutputExistsError(
            f"{target} lies in {source}, which would be read, and a source is never changed.",
            "a target outside of it",
        )


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
