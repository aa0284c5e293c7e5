"""`verify`: read a written file again, and compare it, tensor by tensor, with the contents that were written."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ConversionError, VerificationError
from ..base.contents import Ref
from ..base.nesting import written
from ..base.wording import named
from ..reports.diff import pairs, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..base.contents import Contents
    from ..base.format import Format
    from ..base.stored import Stored

__all__ = ["verify"]


def verify(
    expected: Contents,
    path: Path,
    format: Format,  # noqa: A002 - the term
    *,
    allow: frozenset[str] = frozenset(),
    progress: Callable[[int], None] | None = None,
) -> None:
    """Compare names, dtypes, shapes and bits of tensors, then everything else.

    The sources are read a second time (their checksums were compared the first time). The output is
    read from the disk, not from the page cache, if it was flushed and the system drops its pages.

    Args:
        expected: The contents that were to be written.
        path: The written file or folder.
        format: Its format.
        allow: As for `Format.read`.
        progress: Called with the number of bytes whenever some of the output have been read.

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
            + (
                f"without {named(absent)}."
                if absent
                else f"with {named(added)}."
                if added
                else "in another order."
            )
        )
    wrong = _different(expected, tensors, progress)
    if wrong:
        raise VerificationError(f"{path.name} does not read back the same: {named(wrong)}.")
    _beside(expected, found, path)


def _different(
    expected: Contents, tensors: dict[str, Stored], progress: Callable[[int], None] | None
) -> list[str]:
    wrong = []
    for name, before in expected.tensors.items():
        after = tensors[name]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            wrong.append(f"{name} (dtype or shape)")
            continue
        # A format may store tied tensors once, or for each name. The expected tensor is read for
        # each name, in case that different tensors were taken for tied ones.
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
        raise VerificationError(
            f"{path.name} does not read back the same: its metadata {named(lost)}."
        )
    if expected.tree is not None and _tree(found) != _tree(expected):
        raise VerificationError(
            f"{path.name} does not read back the same: its values that are not tensors."
        )


def _tree(contents: Contents) -> str:
    # A dict from names to tensors equals a file without a tree. Some formats cannot distinguish an
    # OrderedDict from it.
    flat = {name: Ref(name) for name in contents.tensors}
    tree = flat if contents.tree is None else contents.tree
    return written(flat if tree == flat and type(tree) is OrderedDict and not vars(tree) else tree)


def _forget(path: Path) -> None:
    """Ask the system to drop the pages of a file from its cache, if they are on the disk."""
    files: list[Any] = (
        [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    )
    for each in files:
        descriptor = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
