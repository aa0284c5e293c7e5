"""Fingerprints of files, which show whether a file has changed."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

__all__ = ["Fingerprint", "fingerprints"]


class Fingerprint(NamedTuple):
    """The facts about a file that must not change while it is in use."""

    path: str
    nbytes: int
    changed: int
    inode: int


def fingerprints(paths: tuple[str, ...]) -> tuple[Fingerprint, ...]:
    """The present fingerprints of files, and of all files in folders."""
    found = []
    for path in sorted(set(paths)):
        status = os.stat(path)  # noqa: PTH116 - plain strings
        if not stat.S_ISDIR(status.st_mode):
            found.append(
                Fingerprint(
                    os.path.realpath(path), status.st_size, status.st_mtime_ns, status.st_ino
                )
            )
    return tuple(found)
