"""The registry of formats, of this package and of outside packages, and how the format of a file is found."""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import stat
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from ...backends.plugins import EntryPoints
from ...errors import FileFormatError, nearest, shown
from ..base.format import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "each_format",
    "format_for",
    "format_named",
    "format_of",
    "formats",
    "may_end_process",
    "outside",
    "own_formats",
    "recognised",
]

_HEAD = 512
"""How many of the first bytes of a file are shown to the formats."""


_IMAGE = ("an image", "to_numpy(PIL.Image.open({path!r}))")
_READERS: dict[str, tuple[str, str]] = {
    ".csv": ("a table of text", 'convert_tree(pd.read_csv({path!r}), "numpy")'),
    ".tsv": ("a table of text", 'convert_tree(pd.read_csv({path!r}, sep="\\t"), "numpy")'),
    ".jsonl": ("rows of JSON", 'convert_tree(pd.read_json({path!r}, lines=True), "numpy")'),
    ".xlsx": ("a spreadsheet", 'convert_tree(pd.read_excel({path!r}), "numpy")'),
    ".json": ("JSON", "json.load(open({path!r})), whose lists of numbers to_numpy takes"),
    ".wav": ("sound", "to_numpy(scipy.io.wavfile.read({path!r})[1])"),
    ".mat": ("a file of MATLAB", 'convert_tree(scipy.io.loadmat({path!r}), "numpy")'),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"), _IMAGE),
}
"""What files with these suffixes are, and the code of other libraries that reads them."""


def formats() -> dict[str, Format]:
    """All formats by name: this package's, and those of outside packages, which are looked up."""
    outside.open_all()
    return {each.name: each for each in sorted([*own_formats(), *_brought.values()], key=_place)}


def each_format() -> Iterator[Format]:
    """Yield this package's formats, then those of outside packages, which are looked up only then."""
    yield from own_formats()
    yield from _others()


@cache
def own_formats() -> tuple[Format, ...]:
    """This package's formats."""
    from .. import formats as package

    found = (importlib.import_module(f"{package.__name__}.{name}").FORMAT for name in _modules())
    return tuple(sorted(found, key=_place))


@cache
def _modules() -> tuple[str, ...]:
    """The names of the modules of this package's formats. None is imported."""
    from .. import formats as package

    return tuple(module.name for module in pkgutil.iter_modules(package.__path__))


def _others() -> Iterator[Format]:
    outside.search()
    yield from sorted(_brought.values(), key=_place)


_brought: dict[str, Format] = {}


def _make(name: str, found: Any) -> Format:
    """The format of an entry point, which may be an instance or a class."""
    made = found() if isinstance(found, type) and issubclass(found, Format) else found
    kind = type(made).__qualname__
    if not isinstance(made, Format):
        raise TypeError(
            f"a format is an instance of tensorferry.files.base.format.Format, not of {kind}"
        )
    declared: dict[str, Any] = {
        each: getattr(made, each) for each in ("name", "suffixes", "dtypes", "rank")
    }
    if not isinstance(declared["suffixes"], tuple) or not all(
        isinstance(each, str) for each in declared["suffixes"]
    ):
        raise TypeError(f"{kind}.suffixes must be a tuple of strings")
    if not isinstance(declared["dtypes"], frozenset) or not isinstance(declared["rank"], int):
        raise TypeError(
            f"{kind}.dtypes must be a frozenset of names, and {kind}.rank a whole number"
        )
    if made.index_suffix and not made.suffixes:
        raise TypeError(f"{kind} has an index_suffix, and no suffix that it is put after")
    if declared["name"] != name:
        raise ValueError(
            f"its entry point is named {name!r}, and its format {made.name!r}: both need one name"
        )
    return made


outside: EntryPoints[Format] = EntryPoints(
    "tensorferry.formats",
    "format",
    known=lambda: _brought,
    own=lambda: {each.name for each in own_formats()},
    make=_make,
    keep=lambda made: _brought.setdefault(made.name, made),
    lock=threading.RLock(),
)
"""The formats of outside packages."""


def _namesake(path: Path) -> list[Format]:
    """The format for the file's suffix.

    Mostly it is the right one, so that the others need not be imported.
    """
    from .. import formats as package

    suffix = path.suffix[1:].lower()
    wanted = package.MODULES.get(suffix, suffix)
    return (
        [importlib.import_module(f"{package.__name__}.{wanted}").FORMAT]
        if wanted in _modules()
        else []
    )


def _place(format: Format) -> tuple[int, str]:  # noqa: A002 - the term
    return format.rank, format.name


def format_named(name: str) -> Format:
    """The format of this name.

    Raises:
        ValueError: No format has this name.
        FrameworkNotInstalledError: It is a broken one of an outside package.
    """
    found = next((each for each in own_formats() if each.name == name), None) or outside.open(name)
    if found is None:
        names = [*(each.name for each in own_formats()), *outside.names()]
        meant = nearest(str(name), names)
        raise ValueError(
            f"to must be the name of a format, one of {', '.join(names)}, not {shown(name)}"
            + (f". Did you mean {meant!r}?" if meant else "")
        )
    return found


def format_of(path: Path) -> Format:
    """The format of a file that exists, by its first bytes.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: It is not of a known format, or a URL.
    """
    head = b""
    # A path that does not exist may still be the common prefix of the names of several files.
    mode = _mode(path)
    if mode is None:
        from ..base.urls import refuse_url  # here, because only an error needs it

        refuse_url(path)
    elif not stat.S_ISDIR(mode):
        if not stat.S_ISREG(mode):
            # To open a pipe would wait for a writer.
            raise FileFormatError(
                f"{path} is neither a file nor a folder, and cannot be read at any place.",
                "the path of a file that holds the same",
            )
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if not head:
            raise FileFormatError(f"{path} is empty: it has no bytes.", "get the file again")
    # Outside packages are looked up only if needed, because that takes long.
    found = recognised(path, head, _namesake(path)) or recognised(path, head, each_format())
    if found is not None:
        return found
    if mode is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    broken = outside.failure({suffix[1:].lower() for suffix in path.suffixes})
    if broken is not None:
        raise FileFormatError(
            f"{path} is of no format that tensorferry knows. {broken.message}", broken.hint
        )
    from ..encodings.wrapped import wrapped  # here, because only an error needs it

    inside = wrapped(path, head)
    if inside is not None:
        raise inside
    named = next((each for each in own_formats() if each.is_named(path, head)), None)
    if named is not None:
        return named
    refused = f"{path} is of no format that tensorferry knows"
    reader = _READERS.get(path.suffix.lower())
    if reader is not None:
        kind, code = reader
        raise FileFormatError(f"{refused}: it is {kind}.", code.format(path=str(path)))
    raise FileFormatError(f"{refused}: it knows {', '.join(formats())}.")


def may_end_process(path: Path) -> bool:
    """Whether the library for a path may end the process: by a file's first bytes, or by the names in a folder."""
    from ..formats import is_fragile, is_fragile_folder

    mode = _mode(path)
    if mode is None or not stat.S_ISREG(mode):
        return mode is not None and stat.S_ISDIR(mode) and is_fragile_folder(path)
    with path.open("rb") as file:
        return is_fragile(path.name, file.read(_HEAD))


def _mode(path: Path) -> int | None:
    """The mode of a path; ``None`` if it does not exist."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def recognised(path: Path, head: bytes, among: Iterable[Format]) -> Format | None:
    """The first format that recognises a file or a folder."""
    for each in among:
        with outside.guard(each.name):
            if each.recognises(path, head):
                return each
    return None


def format_for(path: Path) -> Format:
    """The format to write to a path, by its suffix; one that can only be read if no other has the suffix.

    Raises:
        FileFormatError: No format has this suffix.
    """
    name = path.name.lower()
    for among in (own_formats, _others):
        fitting = [
            (each.writes, len(suffix), each)
            for each in among()
            for suffix in each.suffixes
            if name.endswith(suffix)
        ]
        if fitting:
            # The first of those that are equally good.
            return max(fitting, key=lambda fit: fit[:2])[2]
    other = f", in a file such as {path.stem}.safetensors" if path.suffix else ""
    raise FileFormatError(
        f"The name {path.name} does not say which format to write.", f'to="safetensors"{other}'
    )
