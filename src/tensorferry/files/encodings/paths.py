"""Names of tensors as paths, for formats with nested groups."""

from __future__ import annotations

import os
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import FileFormatError, UnsafeFileError
from ..base.wording import named
from .json_scan import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..base.contents import Contents
    from ..base.stored import Stored

__all__ = [
    "NAMES",
    "is_entry",
    "paths_for",
    "refuse_links_out",
    "restore_names",
    "size_of",
    "walked",
]

NAMES = "tensorferry.names"
"""The attribute with the tensors' order, and JSON pairs of a name that is no path and its path."""


def is_entry(name: str) -> bool:
    """Whether a name is a plain entry of a folder, no path on any system: it cannot lead out."""
    return name not in ("", ".", "..") and not any(character in name for character in "/\\\0")


def refuse_links_out(folder: Path, marker: str) -> None:
    """Raise if a link in a folder leads out of it: the library would read the target as a part.

    In the cache of a hub, all files are links to one folder. So links may also lead to the folder
    to which the link `marker` leads, which is the file that identifies the format.

    Raises:
        UnsafeFileError: There is such a link.
    """
    inside, cache = folder.resolve(), (folder / marker).resolve().parent
    for entry in _below(folder):
        if entry.is_symlink():
            real = Path(os.path.realpath(entry.path))
            if not real.is_relative_to(inside) and real.parent != cache:
                raise UnsafeFileError(
                    f"{entry.path} is a link that leads out of its folder, to {real}."
                )


def size_of(folder: Path | str) -> int:
    """How many bytes the files in a folder have."""
    return sum(entry.stat().st_size for entry in _below(folder) if entry.is_file())


def _below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Everything in a folder and in its folders, but not in those to which links lead."""
    left = [os.fspath(folder)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


def paths_for(names: Iterable[str], is_path: Callable[[str], bool]) -> dict[str, str]:
    """A path for each name: the name, if the format can keep it, not above or below another."""
    names = list(names)
    used = set(names)
    groups: set[str] = set()
    leaves: set[str] = set()
    paths: dict[str, str] = {}
    for number, name in enumerate(names):
        above = {name[:at] for at, letter in enumerate(name) if letter == "/"}
        path = name
        if not is_path(name) or name in groups or above & leaves:
            path = f"tensorferry.{number}"
            while path in used or path in groups:
                path += "_"
            above = set()
        groups |= above
        leaves.add(path)
        used.add(path)
        paths[name] = path
    return paths


def walked(paths: Iterable[str]) -> list[str]:
    """Paths in the order in which they are read from groups that keep their order of insertion."""
    begun: dict[str, int] = {}
    order = {}
    for index, path in enumerate(paths):
        groups = accumulate(path.split("/"), "{}/{}".format)
        # The position of a group is that of the first path in it.
        order[path] = [begun.setdefault(group, index) for group in groups]
    return sorted(order, key=order.__getitem__)


def restore_names(contents: Contents) -> None:
    """Restore the names and the order of tensors from the attribute `NAMES`, if it exists.

    Others come last.

    Raises:
        FileFormatError: The attribute is malformed, or does not fit the tensors.
    """
    text = contents.metadata.pop(NAMES, None)
    if text is None:
        return
    where, left = contents.paths[0], dict(contents.tensors)
    restored: dict[str, Stored] = {}
    for pair in loaded(where, NAMES, text, list):
        fits = (
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(half, str) for half in pair)
        )
        if not fits or pair[1] not in left or pair[0] in restored:
            raise FileFormatError(
                f"{where}: the attribute {NAMES!r} does not fit the tensors, at {pair!r:.80}."
            )
        restored[pair[0]] = left.pop(pair[1])
    clash = restored.keys() & left.keys()
    if clash:
        raise FileFormatError(f"{where}: two tensors are named {named(sorted(clash))}.")
    contents.tensors = restored | left
