"""Names of tensors as paths, for formats that nest as folders do."""

from __future__ import annotations

import os
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import FileFormatError, UnsafeFileError
from ..base.wording import named
from .json_scan import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..base.contents import Contents
    from ..base.stored import Stored

__all__ = ["NAMES", "is_entry", "placed", "refuse_links_out", "restore_names", "walked"]

NAMES = "tensorferry.names"
"""The attribute that keeps the order of the tensors and the names that are no paths: JSON pairs of name and path."""


def is_entry(name: str) -> bool:
    """Whether a name is that of an entry of a folder, and no path in any system's sense: it cannot lead out of it."""
    return name not in ("", ".", "..") and not any(character in name for character in "/\\\0")


def refuse_links_out(folder: Path, marker: str) -> None:
    """Refuse a folder in which a link leads out of it, to what the library would read as if it were of the folder.

    In the cache of a hub every file is a link, and all lead to one folder. So links may also lead to the folder that
    `marker` links to: the file that says of which format this folder is.

    Raises:
        UnsafeFileError: There is such a link.
    """
    inside, cache = folder.resolve(), (folder / marker).resolve().parent
    left = [os.fspath(folder)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    real = Path(os.path.realpath(entry.path))
                    if not real.is_relative_to(inside) and real.parent != cache:
                        raise UnsafeFileError(f"{entry.path} is a link that leads out of its folder, to {real}.")
                elif entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


def placed(names: Iterable[str], is_path: Callable[[str], bool]) -> dict[str, str]:
    """A path for each name: the name itself, if the format keeps it as it is and it is not above or below another."""
    names = list(names)
    used = set(names)
    groups: set[str] = set()
    leaves: set[str] = set()
    found: dict[str, str] = {}
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
        found[name] = path
    return found


def walked(paths: Iterable[str]) -> list[str]:
    """Paths in the order in which they are found where groups keep the order in which they were filled."""
    begun: dict[str, int] = {}
    order = {}
    for place, path in enumerate(paths):
        groups = accumulate(path.split("/"), "{}/{}".format)
        # A group stands where the first path in it does.
        order[path] = [begun.setdefault(group, place) for group in groups]
    return sorted(order, key=order.__getitem__)


def restore_names(contents: Contents) -> None:
    """Give tensors by path the names and the order of the attribute `NAMES`, if it is there; those it lacks come last.

    Raises:
        FileFormatError: It is no such text, or does not fit the tensors.
    """
    text = contents.metadata.pop(NAMES, None)
    if text is None:
        return
    where, left = contents.paths[0], dict(contents.tensors)
    found: dict[str, Stored] = {}
    for pair in loaded(where, NAMES, text, list):
        fits = isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
        if not fits or pair[1] not in left or pair[0] in found:
            raise FileFormatError(f"{where}: the attribute {NAMES!r} does not fit the tensors, at {pair!r:.80}.")
        found[pair[0]] = left.pop(pair[1])
    clash = found.keys() & left.keys()
    if clash:
        raise FileFormatError(f"{where}: two tensors are named {named(sorted(clash))}.")
    contents.tensors = found | left
