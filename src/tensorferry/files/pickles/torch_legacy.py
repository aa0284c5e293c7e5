"""Files of PyTorch before version 1.6, whose storages come after the pickle.

They have a magic number, a version, facts about the machine, the object, the names of its storages,
each as a pickle, and then the storages (``_legacy_save`` in torch/serialization.py).
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...core.dtypes import find
from ...errors import FileFormatError, UnsafeFileError
from .reader import described, root_of
from .resolver import FileResolver
from .standins import StorageOf
from .torch import Names

if TYPE_CHECKING:
    from pathlib import Path

    from .reader import Unpickled

__all__ = [
    "FROM_BYTES",
    "SPAN_FROM",
    "LegacyNames",
    "asked_in_legacy",
    "pages_of",
    "read_legacy",
    "read_legacy_file",
    "resolved",
]

FROM_BYTES = "torch.storage._load_from_bytes"
"""The function for a storage in a pickle by `pickle.dump`, which contains such a file."""
SPAN_FROM = 128
"""From this size on, the bytes of an array are not read into memory."""
_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_VERSION = 1001


class LegacyNames(Names):
    """The vocabulary of PyTorch's old files, in which a storage may be a view of another.

    Args:
        where: The file, for messages.
        allow: As for `Names`.
    """

    span_from = SPAN_FROM

    def __init__(self, where: str, allow: frozenset[str]) -> None:
        super().__init__(where, allow)
        self.widths: dict[str, int] = {}
        self.views: dict[str, tuple[str, int]] = {}

    def load(self, key: Any) -> Any:
        if type(key) is tuple and len(key) == 4 and key[0] == "module":
            # A class and its source code: only the class matters here, and it is refused unless it
            # is allowed.
            return key[1]
        found = super().load(key)
        if type(found) is not StorageOf:
            return found
        width = (
            find(found.dtype).itemsize
            if found.dtype
            else 4
            if key[1].name.endswith("QInt32Storage")
            else 1
        )
        self.widths[found.key] = width
        view = key[5] if len(key) == 6 else None
        if view is None:
            return found
        name, start, size = view if type(view) is tuple and len(view) == 3 else (None, None, None)
        if (
            type(name) is not str
            or type(start) is not int
            or type(size) is not int
            or start < 0
            or size < 0
        ):
            raise self.wrong("describes a view of a storage that has no name, place or size")
        if start + size > found.size or self.views.setdefault(name, (found.key, start * width)) != (
            found.key,
            start * width,
        ):
            raise self.wrong(
                f"describes a view of storage {found.key[:100]!r} that reaches past it, or two of one name"
            )
        return StorageOf(name, found.dtype, size, found.kind)


def read_legacy_file(
    path: Path, allow: frozenset[str], *, partly: bool = False
) -> tuple[Unpickled, dict[str, str]]:
    """Read a file of PyTorch before 1.6, with tensors as leaves; and the names that cannot be loaded, and why.

    Args:
        path: The file.
        allow: As for `Names`.
        partly: As for `Names`.

    Raises:
        FileFormatError: It is damaged.
        UnsafeFileError: It asks for something that is not data, or needs far too much memory or
            time.
    """
    vocabulary = LegacyNames(os.fspath(path), allow)
    vocabulary.partly = partly
    data = pages_of(path)
    root, places = read_legacy(data, 0, len(data), vocabulary)
    return resolved(root, vocabulary, FileResolver(vocabulary.where, {**places}), len(data))


def asked_in_legacy(path: Path) -> tuple[str, ...]:
    """The globals that a file of PyTorch before 1.6 asks for, as far as it can be read."""
    data = pages_of(path)
    vocabulary = LegacyNames(os.fspath(path), frozenset())
    with suppress(FileFormatError, UnsafeFileError):
        read_legacy(data, 0, len(data), vocabulary)
    return tuple(dict.fromkeys([*vocabulary.asked, *vocabulary.demands]))


def read_legacy(
    data: Any, begin: int, end: int, vocabulary: LegacyNames
) -> tuple[Any, dict[str, int]]:
    """The result of a file in PyTorch's old format, and the position of each storage.

    Args:
        data: Bytes that contain the file.
        begin: The position of the file.
        end: The end of the file.
        vocabulary: Defines the meaning of its names.

    Raises:
        FileFormatError: It is damaged.
        UnsafeFileError: As for `root_of`.
    """
    found = []
    at = begin
    for _ in range(5):
        found.append(root_of(lambda: data, vocabulary, at))
        at = vocabulary.machine.at
    magic, version, system, root, keys = found
    if (
        magic != _MAGIC_NUMBER
        or version != _VERSION
        or type(system) is not dict
        or type(keys) is not list
    ):
        raise vocabulary.wrong(
            f"is of no version of PyTorch's old format that is known: {str(version)[:50]}"
        )
    places: dict[str, int] = {}
    for key in keys:
        storage = vocabulary.known(key) if type(key) is str else None
        if storage is None or key in places:
            raise vocabulary.wrong(
                f"has a storage that is not described, or there twice: {str(key)[:100]}"
            )
        size = int.from_bytes(data[at : at + 8], "little", signed=True)
        nbytes = storage.size * vocabulary.widths[key]
        if at + 8 + nbytes > end:
            raise FileFormatError(
                f"{vocabulary.where} is cut off: storage {key[:100]} reaches past its end."
            )
        if size != storage.size:
            raise vocabulary.wrong(
                f"says {storage.size:,} elements of storage {key[:100]}, at byte {at}: {size:,}"
            )
        places[key] = at + 8
        at += 8 + nbytes
    if at != end:
        raise FileFormatError(
            f"{vocabulary.where}: {end - at:,} bytes follow its storages.",
            "a file with one object, such as a dict of all",
        )
    for name, (key, start) in vocabulary.views.items():
        if key not in places:
            raise vocabulary.wrong(f"has no bytes of storage {key[:100]}")
        places[name] = places[key] + start
    return root, places


def resolved(
    root: Any, vocabulary: Names, resolve: FileResolver, nbytes: int
) -> tuple[Unpickled, dict[str, str]]:
    """The contents of a pickle in a file, with tensors as leaves; and the names that cannot be loaded, and why."""
    found = described(root, vocabulary, nbytes)
    return found, resolve.all(found.leaves) | found.besides


def pages_of(path: Path) -> mmap.mmap:
    """A map of a file that is read as a pickle."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise FileFormatError(f"{path} is empty: it has no bytes.", "get the file again")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
