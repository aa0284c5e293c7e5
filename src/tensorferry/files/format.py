"""`Format`: what a module in `tensorferry.formats` declares and does, and how a file finds its own."""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import re
import stat
import threading
from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from ..backends.plugins import Door
from ..errors import FileFormatError, FormatLimitError, FrameworkNotInstalledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from .contents import Contents, Finding
    from .pump import Pump

__all__ = [
    "Format",
    "each_format",
    "format_for",
    "format_named",
    "format_of",
    "formats",
    "outside",
    "own_formats",
    "owned",
    "recognised",
]

_HEAD = 64
"""The first bytes of a file that are shown to each format."""


class Format(ABC):
    """The base of every format: one module in `tensorferry.formats`, whose ``FORMAT`` is an instance.

    A format's own library is imported inside its methods, never with its module.
    """

    name: ClassVar[str]
    """What ``to=`` and ``--to`` take."""
    title: ClassVar[str] = ""
    """What people call it."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """The names of its files end with one of these; the first is the usual one."""
    dtypes: ClassVar[frozenset[str]] = frozenset()
    """Canonical names of the dtypes that it can hold."""
    module: ClassVar[str] = ""
    """The library that it needs, which `pip` has under the same name."""
    is_folder: ClassVar[bool] = False
    """Whether what it writes is a folder."""
    holds_tree: ClassVar[bool] = False
    """Whether it has a place for values that are not tensors, and for how they nest."""
    holds_metadata: ClassVar[bool] = False
    """Whether it has a place for strings by name."""
    holds_one: ClassVar[bool] = False
    """Whether a file of it holds a single tensor, which has no name."""
    first_class: ClassVar[bool] = False
    """Whether it is one of those that `tensorferry roundtrip` goes through."""
    writes: ClassVar[bool] = True
    """Whether it can be written, not only read."""
    shard_stem: ClassVar[str] = "model"
    """In a folder of shards: the name before ``-00001-of-00002``; a format with an ``index_suffix`` has those."""
    index_suffix: ClassVar[str] = ""
    """What is put after a shard's name for the name of the index, up to ``.json``; ``""``: it has no shards."""
    rank: ClassVar[int] = 50
    """Its place among the others, in tables and where several recognise a file."""

    @abstractmethod
    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file is of this format, by its first bytes; its name only as a last resort.

        They are empty for a folder, and for what is not there but may be the prefix of several files' names.
        """

    @abstractmethod
    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        """What a file holds: its header, never its data.

        Args:
            path: A file (or a folder, for formats that are folders).
            allow: Names of classes, such as ``"package.Config"``, whose instances a pickle may contain: they are
                read as plain containers of their attributes, never made.

        Raises:
            FileFormatError: It breaks the rules of the format.
            UnsafeFileError: It asks for code to be run, or is out of all proportion.
        """

    def asks_for(self, path: Path) -> tuple[str, ...]:
        """The globals that a file asks for, even one that `read` refuses for them; nothing is built, nothing executed.

        Raises:
            FileFormatError: It breaks the rules of the format.
            UnsafeFileError: It is out of all proportion.
        """
        del path
        return ()

    def refuse(self, contents: Contents) -> None:
        """Refuse what the format cannot hold, before anything is written.

        Raises:
            FormatLimitError: The message names the tensors.
        """
        lacking = [name for name, stored in contents.tensors.items() if stored.dtype not in self.dtypes]
        if lacking:
            kinds = ", ".join(sorted({contents.tensors[name].dtype for name in lacking}))
            raise FormatLimitError(
                f"{self.title or self.name} cannot hold {kinds}: {named(lacking)}.",
                "dtype= with one that it can hold, or exclude=[…]",
            )
        if self.holds_one and len(contents.tensors) != 1:
            raise FormatLimitError(
                f"{self.title or self.name} holds one tensor, not {len(contents.tensors)}: {named(contents.tensors)}.",
                "include=[…] with the name of one",
            )
        if contents.tree is not None and not self.holds_tree:
            raise FormatLimitError(
                f"{self.title or self.name} has no place for what is not a tensor, nor for how they nest.",
                "tensors_only=True, which leaves the rest out",
            )
        if contents.metadata and not self.holds_metadata:
            raise FormatLimitError(
                f"{self.title or self.name} has no place for metadata: {named(contents.metadata)}.",
                "tensors_only=True, which leaves the rest out",
            )

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        """Write a new file (or folder) at a path where there is none, and leave it on the disk (fsync is the caller's).

        The tensors' bytes go through `pump`, which counts them and checks what can be checked. `refuse` has passed.
        """
        raise FormatLimitError(f"{self.title or self.name} can be read, not written.", "another to=")

    def check(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Iterator[Finding]:
        """What is wrong with a file, all of it, not just the first; ``read`` may still raise for it.

        Args:
            path: As for `read`.
            allow: As for `read`.
        """
        from .check import check_by_reading

        return check_by_reading(self, path, allow=allow)

    def own_entries(self, folder: Path) -> list[str]:
        """The names in a folder that it recognises of what belongs to the format, with all that is in it.

        Only they may go when the folder is replaced; a format that does not say has none.
        """
        del folder
        return []

    def ensure_loaded(self) -> None:
        """Import the library that it needs.

        Raises:
            FrameworkNotInstalledError: It is not installed, or its import fails.
        """
        if not self.module:
            return
        try:
            importlib.import_module(self.module)
        except Exception as error:
            raise FrameworkNotInstalledError(
                f"{self.title or self.name} needs {self.module}, which cannot be imported "
                f"({type(error).__name__}: {error}).",
                f"pip install {self.module}",
            ) from error


def named(names: object, most: int = 5) -> str:
    """Some names for a message: the first few, and how many more there are."""
    listed = [str(name) for name in names]  # type: ignore[attr-defined]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def formats() -> dict[str, Format]:
    """Every format by name: this package's, and those of outside packages, which are looked up now."""
    outside.open_all()
    return {each.name: each for each in sorted([*own_formats(), *_brought.values()], key=_place)}


def each_format() -> Iterator[Format]:
    """This package's formats; then, if none of them was what is looked for, those of outside packages."""
    yield from own_formats()
    yield from _others()


@cache
def own_formats() -> tuple[Format, ...]:
    """This package's formats."""
    from . import formats as package

    modules = [module.name for module in pkgutil.iter_modules(package.__path__)]
    found = (importlib.import_module(f"{package.__name__}.{name}").FORMAT for name in modules)
    return tuple(sorted(found, key=_place))


def _others() -> Iterator[Format]:
    outside.search()
    yield from sorted(_brought.values(), key=_place)


_brought: dict[str, Format] = {}


def _make(name: str, found: Any) -> Format:
    """The format that an entry point gave, as an instance or its class."""
    made = found() if isinstance(found, type) and issubclass(found, Format) else found
    kind = type(made).__qualname__
    if not isinstance(made, Format):
        raise TypeError(f"a format is an instance of tensorferry.files.format.Format, not of {kind}")
    declared: dict[str, Any] = {each: getattr(made, each) for each in ("name", "suffixes", "dtypes", "rank")}
    if not isinstance(declared["suffixes"], tuple) or not all(isinstance(each, str) for each in declared["suffixes"]):
        raise TypeError(f"{kind}.suffixes must be a tuple of strings")
    if not isinstance(declared["dtypes"], frozenset) or not isinstance(declared["rank"], int):
        raise TypeError(f"{kind}.dtypes must be a frozenset of names, and {kind}.rank a whole number")
    if made.index_suffix and not made.suffixes:
        raise TypeError(f"{kind} has an index_suffix, and no suffix that it is put after")
    if declared["name"] != name:
        raise ValueError(f"its entry point is named {name!r}, and its format {made.name!r}: both need one name")
    return made


outside: Door[Format] = Door(
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
    """The format whose module goes with the file's suffix: most often it saves importing the others."""
    from . import formats as package

    suffix = path.suffix[1:].lower()
    wanted = package.MODULES.get(suffix, suffix)
    here = any(module.name == wanted for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{wanted}").FORMAT] if here else []


def _place(format: Format) -> tuple[int, str]:  # noqa: A002 - the term
    return format.rank, format.name


def format_named(name: str) -> Format:
    """The format of this name.

    Raises:
        FileFormatError: There is none.
        FrameworkNotInstalledError: It is an outside package's, and broken.
    """
    found = next((each for each in own_formats() if each.name == name), None) or outside.open(name)
    if found is None:
        names = [*(each.name for each in own_formats()), *outside.names()]
        raise FileFormatError(f"There is no format named {name!r}.", "one of " + ", ".join(names))
    return found


def format_of(path: Path) -> Format:
    """The format of a file that exists, by its first bytes.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: No format knows it.
    """
    head = b""
    # What is not there may still be the common prefix of the names of several files.
    mode = _mode(path)
    if mode is not None and not stat.S_ISDIR(mode):
        if not stat.S_ISREG(mode):
            # To open a pipe is to wait for who writes into it.
            raise FileFormatError(
                f"{path} is neither a file nor a folder, and cannot be read at any place.",
                "the path of a file that holds the same",
            )
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if not head:
            raise FileFormatError(f"{path} is empty: it has no bytes.", "get the file anew")
    # Others are only looked for if need be: what finds them is larger than all that is here.
    found = recognised(path, head, _namesake(path)) or recognised(path, head, each_format())
    if found is not None:
        return found
    if mode is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    broken = outside.failure({suffix[1:].lower() for suffix in path.suffixes})
    if broken is not None:
        raise FileFormatError(f"{path} is of no format that tensorferry knows. {broken.message}", broken.hint)
    if _is_pickle(path, head):
        raise bare_pickle(path)
    raise FileFormatError(f"{path} is of no format that tensorferry knows.", "one of " + ", ".join(formats()))


def bare_pickle(path: Path) -> FileFormatError:
    """The error for what `pickle.dump` wrote."""
    return FileFormatError(
        f"{path} is a bare pickle, as pickle.dump writes it: it cannot be read without running it.",
        "where it can be trusted, in Python: import pathlib, pickle; import tensorferry as ferry; "
        f"ferry.save(pickle.loads(pathlib.Path({str(path)!r}).read_bytes()), "
        f"{str(path.with_suffix('.safetensors'))!r})",
    )


_PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth", ".bin", ".ckpt")
_PICKLED = re.compile(rb"\x80[\2-\5]")
_PICKLED_AS_TEXT = re.compile(rb"\([dl]p\d+\n|c[\w.]+\n\w+\n|[}\])]q\0|\((?:[FILSV].*\n|[BGJKMNTUX\]}])", re.DOTALL)
"""Protocols 0 and 1 have no mark: how a container begins in them, which is not enough without a suffix."""


def _is_pickle(path: Path, head: bytes) -> bool:
    named = path.name.lower().endswith(_PICKLES)
    return bool(_PICKLED.match(head) or (named and _PICKLED_AS_TEXT.match(head)))


def _mode(path: Path) -> int | None:
    """What kind of thing a path is; ``None`` if there is nothing."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def recognised(path: Path, head: bytes, among: Iterable[Format]) -> Format | None:
    """The first format that a file, or a folder, is of."""
    for each in among:
        with outside.guard(each.name):
            if each.recognises(path, head):
                return each
    return None


def owned(folder: Path, fits: Callable[[str], object]) -> list[str]:
    """The names in a folder of those entries all of whose files fit.

    Args:
        folder: The folder.
        fits: Is asked for each file's path from there, with ``/``; a symlink counts as a file.
    """
    return [name for name in os.listdir(folder) if all(map(fits, _files(folder, name)))]  # noqa: PTH208 - names only


def _files(folder: Path, inner: str) -> Iterator[str]:
    if (folder / inner).is_symlink() or not (folder / inner).is_dir():
        yield inner
        return
    for name in os.listdir(folder / inner):  # noqa: PTH208 - names only
        yield from _files(folder, f"{inner}/{name}")


def format_for(path: Path) -> Format:
    """The format to write to a path, by its suffix.

    Raises:
        FileFormatError: No format has it.
    """
    name = path.name.lower()
    for among in (own_formats, _others):
        fitting = [
            (len(suffix), each) for each in among() for suffix in each.suffixes if each.writes and name.endswith(suffix)
        ]
        if fitting:
            longest = max(length for length, _ in fitting)
            return next(each for length, each in fitting if length == longest)
    raise FileFormatError(f"The name {path.name} does not say which format to write.", 'to="safetensors"')
