"""`verify`: what was written is read again and compared, tensor by tensor, with what was to be written."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConversionError, VerificationError
from .base.contents import Ref
from .base.nesting import written
from .base.wording import named
from .diff import pairs, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .base.contents import Contents
    from .base.format import Format
    from .base.stored import Stored

__all__ = ["verify"]


def verify(
    expected: Contents,
    path: Path,
    format: Format,  # noqa: A002 - the term
    *,
    allow: frozenset[str] = frozenset(),
    progress: Callable[[int], None] | None = None,
) -> None:
    """Compare names, dtypes, shapes and each tensor's bits, then what stands beside the tensors.

    The sources are read a second time (their checksums were compared the first time); the output is read from the
    disk, not from what the system remembers of it, if it was flushed and the system obliges.

    Args:
        expected: What was to be written.
        path: What was written.
        format: Its format.
        allow: As for `Format.read`.
        progress: Is told the number of bytes each time some of the output have been read.

    Raises:
        VerificationError: They differ; the message names the tensors.
    """
    _forget(path)
    try:
        found = format.read(path, allow=allow)
    except ConversionError as error:
        raise VerificationError(f"{path.name} does not read back: {error.message}") from error
    tensors = found.tensors
    if format.holds_one and len(tensors) == 1:
        tensors = dict(zip(expected.tensors, tensors.values(), strict=True))
    if list(tensors) != list(expected.tensors):
        absent = [name for name in expected.tensors if name not in tensors]
        added = [name for name in tensors if name not in expected.tensors]
        raise VerificationError(
            f"{path.name} does not read back the same: "
            + (f"without {named(absent)}." if absent else f"with {named(added)}." if added else "in another order.")
        )
    wrong = _different(expected, tensors, progress)
    if wrong:
        raise VerificationError(f"{path.name} does not read back the same: {named(wrong)}.")
    _beside(expected, found, path)


def _different(expected: Contents, tensors: dict[str, Stored], progress: Callable[[int], None] | None) -> list[str]:
    wrong = []
    for name, before in expected.tensors.items():
        after = tensors[name]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            wrong.append(f"{name} (dtype or shape)")
            continue
        # A format may have stored a tie once, or for each name; what was to be written is read for each, as
        # what is no tie may have been taken for one.
        try:
            for _, one, other in pairs(before, after):
                if not np.array_equal(words(one), words(other)):
                    wrong.append(name)
                    break
                if progress is not None:
                    progress(other.nbytes)
        except ConversionError as error:
            wrong.append(f"{name} ({error.message})")
    return wrong


def _beside(expected: Contents, found: Contents, path: Path) -> None:
    lost = [key for key, value in expected.metadata.items() if found.metadata.get(key) != value]
    if lost:
        raise VerificationError(f"{path.name} does not read back the same: its metadata {named(lost)}.")
    if expected.tree is not None and _tree(found) != _tree(expected):
        raise VerificationError(f"{path.name} does not read back the same: its values that are not tensors.")


def _tree(contents: Contents) -> str:
    # A dict from the names to the tensors is what a file is without a tree, and an OrderedDict of those is not told
    # from it in every format.
    flat = {name: Ref(name) for name in contents.tensors}
    tree = flat if contents.tree is None else contents.tree
    return written(flat if tree == flat and type(tree) is OrderedDict and not vars(tree) else tree)


def _forget(path: Path) -> None:
    """Ask the system to drop its copies of a file's pages that are on the disk already."""
    files: list[Any] = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    for each in files:
        descriptor = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
