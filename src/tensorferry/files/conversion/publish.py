"""`publishing`: make files that appear only when they are complete; and check where output may be written.

A new ``model.safetensors`` is made in the hidden folder ``.model.safetensors.partial`` next to it,
flushed to the disk and renamed. The name of the folder is always the same, so that a run finds the
remains of a killed run. A lock in it, which ends with its process, shows whether a run is still
working.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import OutputExistsError
from ..base.urls import refuse_url
from ..base.wording import named
from .workspace import Workspace, is_empty_folder, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["naming", "publishing", "validate_target"]

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
        raise OutputExistsError(f"{target} exists already.", "overwrite=True, which replaces it")
    if not _may(target, os.W_OK):
        target.stat()
        raise PermissionError(
            errno.EACCES, "cannot replace a file that may not be written", str(target)
        )
    if stat.S_ISDIR(mode) and own is not None:
        foreign = sorted({each.name for each in target.iterdir()} - set(own))
        if foreign:
            raise OutputExistsError(
                f"{target} also holds what no conversion wrote, and would be lost with it: {named(foreign)}.",
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
