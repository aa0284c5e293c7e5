"""What files look like, by which one that has changed is known."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

__all__ = ["Fingerprint", "fingerprints"]


class Fingerprint(NamedTuple):
    """What a file must still look like when it has been read."""

    path: str
    nbytes: int
    changed: int
    inode: int


def fingerprints(paths: tuple[str, ...]) -> tuple[Fingerprint, ...]:
    """What files look like now; folders are what is in them."""
    found = []
    for path in sorted(set(paths)):
        status = os.stat(path)  # noqa: PTH116 - plain strings
        if not stat.S_ISDIR(status.st_mode):
            found.append(Fingerprint(os.path.realpath(path), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(found)
