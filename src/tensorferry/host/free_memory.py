"""How much memory is free for this process: what the system and the limits of its group leave."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["free_memory"]

_SYSTEM = Path("/")
_UNIFIED = ("memory.max", "memory.current", ("inactive_file", "active_file"))
"""Version 2: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files"""
_LEGACY = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
"""Version 1: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html"""


def free_memory(system: Path = _SYSTEM) -> int | None:
    """Bytes that this process can still use without swapping; ``None`` if the system does not say.

    Args:
        system: The folder in which ``proc`` and ``sys`` are.
    """
    limits = [*_available_bytes(system), *_left_of_groups(system)]
    return max(min(limits), 0) if limits else None


def _available_bytes(system: Path) -> Iterator[int]:
    """What Linux estimates: free memory, and the caches that it can drop."""
    for line in _lines_of_file(system / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            with suppress(ValueError, IndexError):
                yield int(rest.split()[0]) * 1024


def _left_of_groups(system: Path) -> Iterator[int]:
    """What each limit leaves: a container's or job's, which lies in those of groups around it."""
    for line in _lines_of_file(system / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        place = path.strip("/")
        if controllers == "":
            yield from _up_from(system / "sys/fs/cgroup", place, _UNIFIED)
        elif "memory" in controllers.split(","):
            yield from _up_from(system / "sys/fs/cgroup/memory", place, _LEGACY)


def _up_from(top: Path, place: str, names: tuple[str, str, tuple[str, ...]]) -> Iterator[int]:
    """What the limits of a group and of all around it leave.

    In a container some of these folders cannot be seen.
    """
    parts = place.split("/") if place else []
    for count in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:count])
        limit, used = _number_in_file(folder / names[0]), _number_in_file(folder / names[1])
        if limit is not None and used is not None:
            yield limit - used + _cache_bytes(folder / "memory.stat", names[2])


def _cache_bytes(path: Path, names: tuple[str, ...]) -> int:
    """The bytes of files in memory, which the system drops when somebody needs their place."""
    total = 0
    for line in _lines_of_file(path):
        name, _, number = line.partition(" ")
        if name in names and number.strip().isdigit():
            total += int(number)
    return total


def _number_in_file(path: Path) -> int | None:
    """The number in a file; ``None`` if it has none: the word "max", or there is no such file."""
    text = "".join(_lines_of_file(path)).strip()
    return int(text) if text.isdigit() else None


def _lines_of_file(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
