"""How much memory is free for this process: what the system and the limits of its group leave."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    _Names = tuple[str, str, tuple[str, ...]]

__all__ = ["free_memory"]

_UNIFIED = ("memory.max", "memory.current", ("inactive_file", "active_file"))
"""Version 2: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files"""
_LEGACY = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
"""Version 1: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html"""
_UNLIMITED = 1 << 62
"""Version 1 says so that there is no limit: it gives the largest number of pages."""
_MOST = 1 << 16


def free_memory(system: str | os.PathLike[str] = "/") -> int | None:
    """Bytes that this process can still use without swapping; ``None`` if the system does not say.

    Args:
        system: The folder in which ``proc`` and ``sys`` are.
    """
    root = os.fspath(system)
    available = _available(root)
    for folder, names in _groups(root):
        available = _least_of(available, folder, names)
    return None if available is None else max(available, 0)


def _available(root: str) -> int | None:
    """What Linux estimates: free memory, and the caches that it can drop."""
    _, _, rest = _text(f"{root}/proc/meminfo").partition("MemAvailable:")
    number = rest.partition("kB")[0].strip()
    return int(number) * 1024 if number.isdigit() else None


def _groups(root: str) -> Iterator[tuple[str, _Names]]:
    """The folder of each control group with a limit for this process: a container's or job's, and those around it.

    In a container some of these folders cannot be seen.
    """
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        place = path.strip("/")
        if controllers == "":
            top, names = f"{root}/sys/fs/cgroup", _UNIFIED
        elif "memory" in controllers.split(","):
            top, names = f"{root}/sys/fs/cgroup/memory", _LEGACY
        else:
            continue
        while place:
            yield f"{top}/{place}", names
            place = place.rpartition("/")[0]
        yield top, names


def _least_of(least: int | None, folder: str, names: _Names) -> int | None:
    """The least of what is known to be free, and what the limit of a group leaves.

    A file of the system takes as long as a small tensor, so only what can tell more is read.
    """
    limit = _number(f"{folder}/{names[0]}")
    if limit is None or (least is not None and limit >= _UNLIMITED):
        return least
    used = _number(f"{folder}/{names[1]}")
    if used is None or (least is not None and limit - used >= least):
        return least
    left = limit - used + _caches(f"{folder}/memory.stat", names[2])
    return left if least is None else min(least, left)


def _caches(path: str, names: tuple[str, ...]) -> int:
    """The bytes of files in memory, which the system drops when somebody needs their place."""
    total = 0
    for line in _text(path).splitlines():
        name, _, number = line.partition(" ")
        if name in names and number.strip().isdigit():
            total += int(number)
    return total


def _number(path: str) -> int | None:
    """The number in a file; ``None`` if it has none: the word "max", or there is no such file."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: str) -> str:
    """What is in a file of the system; nothing if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        content = b""
        # The system gives a page or two at a time.
        while more := os.read(descriptor, _MOST):
            content += more
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return content.decode("ascii", "replace")
