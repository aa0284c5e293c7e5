"""`Format`: the protocol that each module in `tensorferry.files.formats` implements."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from ... import hints
from ...errors import ConversionError, FormatLimitError, FrameworkNotInstalledError, UnsafeFileError
from ...hints import Hint
from .contents import FileFinding, NotTensor
from .wording import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from .contents import Blocks, Contents
    from .pump import Pump
    from .stored import Stored

__all__ = ["INSTEAD", "Format", "owned"]

INSTEAD = Hint(hints.keyword("to", "safetensors"), ", or another format")
"""The hint for a format that cannot do it."""


class Format(ABC):
    """The base of each format: a module in `tensorferry.files.formats` whose ``FORMAT`` is one.

    A format's own library is imported inside its methods, never with its module.
    """

    name: ClassVar[str]
    """The name for ``to=`` and ``--to``."""
    title: ClassVar[str] = ""
    """The name for people."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """The suffixes of its files. The first is the usual one."""
    other_suffixes: ClassVar[tuple[str, ...]] = ()
    """Another format's suffixes that its files have too; without a word they mean the other one."""
    dtypes: ClassVar[frozenset[str]] = frozenset()
    """The canonical names of the dtypes that it can hold."""
    module: ClassVar[str] = ""
    """The library that it needs, which has the same name on PyPI."""
    is_folder: ClassVar[bool] = False
    """Whether its output is a folder."""
    holds_tree: ClassVar[bool] = False
    """Whether it can store values that are not tensors, and their nesting."""
    holds_metadata: ClassVar[bool] = False
    """Whether it can store strings by name."""
    own_metadata: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Metadata that belong to the format, and not to what is stored in it: for each key, the values
    that its readers take. The first is that of a new file."""
    reserved: ClassVar[frozenset[str]] = frozenset()
    """Names of strings that it needs itself, so that no metadata can have them."""
    ties: ClassVar[Literal["own", "copy or alias", "copy"]] = "copy or alias"
    """How it says that two names are one tensor: by a convention of its ``own``.

    Without one the values are written for
    each name, a ``copy``; if it has a place for strings of ours, a record of the further names, an
    ``alias``, can stand there instead."""
    unicode_only: ClassVar[bool] = False
    """Whether all names and strings must be valid Unicode."""
    most_axes: ClassVar[int] = 64
    """The most axes of a tensor. (NumPy's limit is 64.)"""
    holds_one: ClassVar[bool] = False
    """Whether a file holds a single tensor without a name."""
    first_class: ClassVar[bool] = False
    """Whether `tensorferry roundtrip` uses it."""
    writes: ClassVar[bool] = True
    """Whether it can be written, not only read."""
    shard_stem: ClassVar[str] = "model"
    """In a folder of shards, the name before ``-00001-of-00002``."""
    index_suffix: ClassVar[str] = ""
    """What is between a shard's name and ``.json`` in the index's name; empty without shards."""
    rank: ClassVar[int] = 50
    """Its position among the formats, in tables, and if several recognise a file."""

    @abstractmethod
    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file is of this format, by its first bytes.

        `head` is empty for a folder, and for a path that does not exist (it may be the prefix of
        several files' names).
        """

    def is_named(self, path: Path, head: bytes) -> bool:
        """Whether an unrecognised file has a name of this format, and so is a broken file of it."""
        del path, head
        return False

    def claims(self, name: str) -> bool:
        """Whether a file of this name may be of this format, though it begins like another's."""
        del name
        return False

    @abstractmethod
    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        """Read the header of a file, never its data.

        Args:
            path: A file (or a folder, for formats that are folders).
            allow: Names of classes, such as ``"package.Config"``, that a pickle may contain. Their
                objects are read as plain containers of their attributes.

        Raises:
            FileFormatError: It breaks the rules of the format.
            UnsafeFileError: It asks for code to be run, or is out of all proportion.
        """

    def read_partly(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        """As `read`, for part of a file: what asks for a forbidden call is a `Refusal` in `others`.

        Args:
            path: As for `read`.
            allow: As for `read`.

        Raises:
            FileFormatError: As `read`.
            UnsafeFileError: The file is unsafe, whatever part of it is used.
        """
        return self.read(path, allow=allow)

    def asks_for(self, path: Path) -> tuple[str, ...]:
        """The globals that a file asks for, even if `read` refuses it.

        Nothing is built or executed.

        Raises:
            FileFormatError: It breaks the rules of the format.
            UnsafeFileError: It would need far too much memory or time.
        """
        del path
        return ()

    def refuse(self, contents: Contents) -> None:
        """Raise for contents that the format cannot hold for a reason that its declarations do not tell.

        `refuse_contents` calls it, after it has compared the contents with the declarations.

        Raises:
            FormatLimitError: The message names the tensors.
        """
        del contents

    def as_held(self, contents: Contents) -> Contents:
        """The contents as a file of the format has them, if it has another form for some.

        No values are read.

        Raises:
            FormatLimitError: It has no form for something.
        """
        return contents

    def owned(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The keys of a file's metadata that are the format's, with the values of a new file."""
        own = self.own_metadata.items()
        return {key: values[0] for key, values in own if metadata.get(key) in values}

    def foreign(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """Which metadata have keys of its own, and values that its readers do not take."""
        own = self.own_metadata
        return {key: text for key, text in metadata.items() if key in own and text not in own[key]}

    def metadata_of(self, contents: Contents) -> dict[str, str]:
        """The metadata of a new file: those of the contents, and its own.

        What belongs to another format is left behind if every file of that format has it.
        """
        own = {key: values[0] for key, values in self.own_metadata.items()}
        theirs = {key for key in contents.own if key not in own}
        if self.holds_metadata:
            theirs = {key for key in theirs if contents.metadata.get(key) == contents.own[key]}
        return {
            **own,
            **{key: text for key, text in contents.metadata.items() if key not in theirs},
        }

    def changes(self, contents: Contents) -> Iterator[str]:
        """What the format has in another form, or not at all: a line for each kind, for the report.

        Args:
            contents: The contents, as they were before `as_held`.
        """
        del contents
        yield from ()

    def lacks(self, contents: Contents) -> list[str]:
        """The names of tensors with a dtype that it cannot hold."""
        return [
            name for name, stored in contents.tensors.items() if stored.dtype not in self.dtypes
        ]

    def refuse_any(self, names: Iterable[object], what: str, hint: str | Hint) -> None:
        """Raise if there are any of these names of tensors or strings.

        Raises:
            FormatLimitError: The message is the format's title, `what`, and the names.
        """
        refused = list(names)
        if refused:
            raise FormatLimitError(f"{self.title or self.name} {what}: {named(refused)}.", hint)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        """Write a new file (or folder). The caller flushes it to the disk.

        The bytes of tensors go through `pump`, which counts them and compares checksums. `refuse`
        has been called.
        """
        raise FormatLimitError(f"{self.title or self.name} can be read, not written.", INSTEAD)

    def dequantised(self, stored: Stored, blocks: Blocks, name: str) -> Stored:
        """The numbers of a tensor in quantised blocks of this format; see `blocks_of`.

        Raises:
            FrameworkNotInstalledError: The library for it is not installed.
            FormatLimitError: It cannot be done; the message names the tensor.
        """
        raise FormatLimitError(f"{name}: {self.title or self.name} has no blocks of {blocks.kind}.")

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        """Find everything that is wrong with a file. ``read`` may still raise for it.

        By default, the whole file is read.

        Args:
            path: As for `read`.
            allow: As for `read`.
            found: The result or the error of `read`, if it was called before.

        Raises:
            OSError: It cannot be read.
            UnsafeFileError: It asks for code to be run, or is out of all proportion.
            FrameworkNotInstalledError: The library that the format needs is not installed.
        """
        if found is None:
            contents = self.tried(path, allow)
        else:
            contents = found
        if isinstance(contents, UnsafeFileError | FrameworkNotInstalledError):
            raise contents
        if isinstance(contents, ConversionError):
            yield FileFinding(str(path), None, None, contents.message)
            return
        for name, why in contents.others.items():
            if not isinstance(why, NotTensor):
                yield FileFinding(str(path), None, name, f"it is not looked at: {why}", error=False)
        from .pump import Pump  # here, because a file is opened without it

        pump = Pump()
        ties = contents.ties
        for name, stored in contents.tensors.items():
            if name in ties:
                continue
            try:
                for _ in pump.blocks(stored):
                    pass
                continue
            except ConversionError as error:
                message = error.message
            except Exception as error:  # noqa: BLE001 - a library raises what it likes over a damaged file
                message = f"cannot be read: {type(error).__name__}: {error}"
            file, offset = stored.where(0)
            yield FileFinding(file or str(path), offset, name, message)

    def tried(self, path: Path, allow: frozenset[str]) -> Contents | ConversionError:
        """The result or the error of `read`."""
        try:
            return self.read(path, allow=allow)
        except ConversionError as error:
            # Because the traceback refers to everything that was read.
            return error.with_traceback(None)

    def own_entries(self, folder: Path) -> list[str]:
        """The names in a folder that belong to the format with everything inside them.

        Only these may be removed when the folder is replaced. By default there are none.
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


def owned(folder: Path, fits: Callable[[str], object]) -> list[str]:
    """The entries of a folder all of whose files belong to a format.

    Args:
        folder: The folder.
        fits: Whether a file belongs to it, by its path in the folder with ``/``. A symlink counts
            as a file.
    """
    return [name for name in os.listdir(folder) if all(map(fits, _files(folder, name)))]  # noqa: PTH208 - names only


def _files(folder: Path, inner: str) -> Iterator[str]:
    if (folder / inner).is_symlink() or not (folder / inner).is_dir():
        yield inner
        return
    for name in os.listdir(folder / inner):  # noqa: PTH208 - names only
        yield from _files(folder, f"{inner}/{name}")
