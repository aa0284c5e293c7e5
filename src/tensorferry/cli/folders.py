"""What a folder stands for, where a command takes any number of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorferry.errors import ConversionError
from tensorferry.files.base.wording import named
from tensorferry.files.opening.paths import format_of, index_of, lone

from .console import printable
from .outcome import show_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["expanded"]


def expanded(paths: Sequence[Path], *, is_quiet: bool) -> list[Path]:
    """The paths, with the files of a folder in the place of a folder that is no model itself.

    Args:
        paths: Files and folders.
        is_quiet: Whether to be silent about what is left out of a folder.
    """
    return [each for path in paths for each in _members(path, is_quiet=is_quiet)]


def _members(path: Path, *, is_quiet: bool) -> list[Path]:
    try:
        if not path.is_dir() or index_of(path) is not None:
            return [path]
        entries = sorted(path.iterdir())
        whole = _lone(path)
    except (ConversionError, OSError):
        return [path]  # the command reports the error
    if whole == path:
        return [path]
    known = [each for each in entries if not each.name.startswith(".") and _is_known(each)]
    shown = known if whole is None else [path]
    if shown and not is_quiet:
        for what, left in _left_out(entries, known, whole):
            show_note(f"{printable(str(path))}: {what}: {printable(named(left))}")
    return shown or [path]


def _left_out(
    entries: Sequence[Path], known: Sequence[Path], whole: Path | None
) -> Iterator[tuple[str, list[str]]]:
    """What is left out of a folder: why, and the names."""
    if whole is not None:
        others = [each.name for each in known if each != whole]
        groups = {f"not read, since {whole.name} is the model": others}
    else:
        left = [each for each in entries if each not in known]
        files = [each.name for each in left if not each.is_dir()]
        folders = [each.name for each in left if each.is_dir()]
        groups = {
            "not of a format that is known": files,
            "folders that are not looked into": folders,
        }
    yield from ((what, names) for what, names in groups.items() if names)


def _lone(path: Path) -> Path | None:
    """The file that is the model of a folder, or the folder, if it is one; ``None`` if it is none."""
    try:
        return lone(path)
    except ConversionError:
        return None


def _is_known(path: Path) -> bool:
    """Whether it is a file or a folder of a known format, or a folder that is one model."""
    try:
        if path.is_dir() and (index_of(path) is not None or _lone(path) is not None):
            return True
        format_of(path)
    except (ConversionError, OSError):
        return False
    return True
