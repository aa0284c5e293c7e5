"""PyTorch's files: archives, the old files without one, and programs; and where the tensors are in them."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...core.layout import compact_strides, is_compact
from ...errors import FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import by_numpy, numpy_dtype
from ..base.raw import is_on_server
from ..base.stored import Conjugated, Extent, InMemory, View
from ..encodings.zip_archive import MemberForm, MemberRegion, ZipExtent, ZipView, is_number
from .machine import Global
from .reader import described, globals_of, root_of
from .standins import ArrayOf, InstanceOf, OtherOf, StorageOf
from .torch import Names

if TYPE_CHECKING:
    from pathlib import Path

    from ..base.stored import Record, Stored
    from ..encodings.zip_archive import Archive
    from .reader import Unpickled
    from .standins import TensorOf, ViewOf

__all__ = [
    "FROM_BYTES",
    "MOST_PICKLE",
    "SPAN_FROM",
    "ArchiveResolver",
    "FileResolver",
    "LegacyNames",
    "Resolver",
    "ScriptNames",
    "asked_in",
    "asked_in_legacy",
    "pages_of",
    "read_legacy",
    "read_legacy_file",
    "resolved",
    "stem_of",
    "unpickled_in",
]


class _Form(NamedTuple):
    """The layout that tensors share: dtype, shape, strides (``None`` without gaps)."""

    layout: MemberForm
    itemsize: int
    strides: tuple[int, ...] | None


class _Series(NamedTuple):
    """The facts for tensors with the same view, which is kept so that its id stays unique."""

    view: ViewOf
    layout: MemberForm
    nbytes: int
    plain: bool


class Resolver(ABC):
    """Finds the bytes of stand-ins.

    Args:
        path: The file.
    """

    record: Record | None = None

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, name: str, leaf: Any) -> Stored | str:
        """Find the bytes of a stand-in.

        Args:
            name: The name of the tensor, for messages.
            leaf: The stand-in.

        Returns:
            The tensor, or why it cannot be loaded.

        Raises:
            FileFormatError: The bytes are missing, or there are fewer than the pickle says.
        """
        kind = type(leaf)
        if kind is OtherOf:
            return leaf.reason  # type: ignore[no-any-return]
        if kind is ArrayOf:
            return self._array(name, leaf)
        if kind is StorageOf:
            if leaf.dtype is None:
                return "it is quantised"
            return self.storage(name, leaf, leaf.dtype)
        return self.tensor(name, leaf)

    @abstractmethod
    def storage(self, name: str, leaf: StorageOf, dtype: str) -> Stored:
        """A whole storage."""

    @abstractmethod
    def tensor(self, name: str, leaf: TensorOf) -> Stored:
        """A view of a storage."""

    def all(self, leaves: dict[str, Any]) -> dict[str, str]:
        """Replace stand-ins by tensors, and remove those that cannot be loaded.

        Returns:
            The names of the removed ones, and why.
        """
        # In the same dict, to save memory.
        others = {}
        for name, leaf in leaves.items():
            resolved = leaves[name] = self(name, leaf)
            if isinstance(resolved, str):
                others[name] = resolved
        for name in others:
            del leaves[name]
        return others

    def _array(self, name: str, leaf: ArrayOf) -> Stored | str:
        if leaf.reason is not None:
            return leaf.reason
        if leaf.placed is not None:
            return self._placed(*leaf.placed)
        if leaf.values is None:
            raise FileFormatError(
                f"{self.path}: its pickle has an array of NumPy, {name}, without values."
            )
        return InMemory(
            leaf.values, by_numpy()[leaf.values.dtype], (self.path, "pickle", id(leaf.values))
        )

    def _placed(
        self, start: int, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool
    ) -> Stored:
        swapped = not dtype.isnative
        name = by_numpy()[dtype.newbyteorder("=")]
        if not fortran or len(shape) < 2:
            return Extent(name, shape, self.path, start, self.record, swapped=swapped)
        strides = compact_strides(shape[::-1], dtype.itemsize)[::-1]
        return View(name, shape, self.path, start, strides, self.record, swapped=swapped)


class FileResolver(Resolver):
    """Finds the bytes of stand-ins in a file of pickles and storages, which are little-endian.

    Args:
        path: The file.
        places: The position of each storage, by its name in the pickle; or its bytes, if they are
            encoded there.
        record: The region with a checksum that the pickle is in.
    """

    def __init__(
        self, path: str, places: dict[str, int | bytes], record: Record | None = None
    ) -> None:
        super().__init__(path)
        self._places = places
        self.record = record

    def storage(self, name: str, leaf: StorageOf, dtype: str) -> Stored:
        return self._at(name, leaf, dtype, 0, (leaf.size,), None)

    def tensor(self, name: str, leaf: TensorOf) -> Stored:
        view = leaf.view
        itemsize = find(view.dtype).itemsize
        compact = is_compact(view.shape, view.strides, 1)
        if compact:
            strides = None
        else:
            strides = tuple(step * itemsize for step in view.strides)
        stored = self._at(
            name, leaf.storage, view.dtype, view.offset * itemsize, view.shape, strides
        )
        if view.conj or view.neg:
            return Conjugated(stored, conj=view.conj, neg=view.neg)
        return stored

    def _at(
        self,
        name: str,
        storage: StorageOf,
        dtype: str,
        start: int,
        shape: tuple[int, ...],
        strides: Any,
    ) -> Stored:
        place = self._places.get(storage.key)
        if place is None:
            raise FileFormatError(
                f"{self.path}: the bytes of {name}, storage {storage.key[:100]}, are not there."
            )
        if isinstance(place, bytes):
            values: np.ndarray[Any, Any] = np.ndarray(
                shape, numpy_dtype(dtype), place, start, strides
            )
            return InMemory(values, dtype, (self.path, id(place), start, shape, dtype, strides))
        if strides is None:
            return Extent(dtype, shape, self.path, place + start, self.record)
        return View(dtype, shape, self.path, place + start, strides, self.record)


class ArchiveResolver(Resolver):
    """Finds the bytes of stand-ins in a zip archive.

    Args:
        archive: The archive.
        stem: The name of its top folder.
        folder: The name of the folder of storages in it.
    """

    def __init__(self, archive: Archive, stem: str, folder: str = "data") -> None:
        super().__init__(archive.path)
        self._archive = archive
        self._folder = folder
        self._prefix = f"{stem}/{folder}/"
        self._regions: dict[str, MemberRegion] = {}
        self._forms: dict[Any, _Form] = {}
        self._series: dict[int, _Series] = {}
        self._places = archive.numbered(self._prefix)
        self._swapped = False
        byteorder = f"{stem}/byteorder"
        if byteorder in archive:
            order = archive.read_bytes(archive[byteorder], 16)
            if order not in (b"little", b"big"):
                raise FileFormatError(
                    f"{archive.path}: its byteorder is {order!r}, neither little nor big."
                )
            self._swapped = order == b"big"

    def storage(self, name: str, leaf: StorageOf, dtype: str) -> Stored:
        layout = MemberForm(
            self._archive, dtype, (leaf.size,), self._swapped and find(dtype).itemsize > 1
        )
        return ZipExtent(layout, self._region(name, leaf))

    def tensor(self, name: str, leaf: TensorOf) -> Stored:
        number, view = leaf.number, leaf.view
        if number is not None:
            series = self._series.get(id(view)) or self._begin(view)
            if series.plain and number < len(self._places):
                place = self._places[number]
            else:
                place = -1
            if (
                place >= 0
                and self._archive.size(place) == series.nbytes
                and not self._archive.is_deflated(place)
            ):
                return ZipExtent(series.layout, place)
        region = self._region(name, leaf.storage)
        form = self._form(view)
        start = view.offset * form.itemsize
        stored: ZipExtent | ZipView
        if form.strides is None:
            stored = ZipExtent(form.layout._replace(start=start) if start else form.layout, region)
        else:
            stored = ZipView(
                view.dtype, view.shape, region, start, form.strides, swapped=form.layout.swapped
            )
        if view.conj or view.neg:
            return Conjugated(stored, conj=view.conj, neg=view.neg)
        return stored

    def _begin(self, view: ViewOf) -> _Series:
        layout, itemsize, strides = self._form(view)
        plain = strides is None and not view.conj and not view.neg
        series = self._series[id(view)] = _Series(
            view, layout._replace(start=view.offset * itemsize), view.storage.nbytes, plain
        )
        return series

    def _form(self, view: ViewOf) -> _Form:
        key = (view.dtype, view.shape, view.strides)
        form = self._forms.get(key)
        if form is None:
            itemsize = find(view.dtype).itemsize
            strides = None
            if not is_compact(view.shape, view.strides, 1):
                strides = tuple(step * itemsize for step in view.strides)
            layout = MemberForm(
                self._archive, view.dtype, view.shape, self._swapped and itemsize > 1
            )
            form = self._forms[key] = _Form(layout, itemsize, strides)
        return form

    def _place(self, key: str) -> int | None:
        if is_number(key) and int(key) < len(self._places):
            place = self._places[int(key)]
            return None if place < 0 else place
        return self._archive.places.get(self._prefix + key)

    def _region(self, name: str, storage: StorageOf) -> MemberRegion:
        region = self._regions.get(storage.key)
        if region is None:
            index = self._place(storage.key)
            if index is None:
                raise FileFormatError(
                    f"{self._archive.path}: the bytes of {name}, "
                    f"{self._folder}/{storage.key}, are not there."
                )
            if self._archive.size(index) != storage.nbytes:
                member = self._archive.member(index)
                raise FileFormatError(
                    f"{self.path}: the bytes of {name}, {self._folder}/{storage.key} (at byte "
                    f"{member.header}), are "
                    f"{member.size:,}; its pickle says {storage.size:,} elements of "
                    f"{storage.dtype}."
                )
            if self._archive.is_deflated(index):
                raise FileFormatError(
                    f"{self._archive.path}: the bytes of {name}, "
                    f"{self._folder}/{storage.key}, are compressed.",
                    "load it with what made it, and save it again",
                )
            region = self._regions[storage.key] = MemberRegion(self._archive, index)
        return region


MOST_PICKLE = 128 << 20


def stem_of(archive: Archive) -> str:
    """The name of the folder that contains the pickle ``data.pkl``.

    Raises:
        FileFormatError: There is none.
    """
    stems = [
        name.removesuffix("/data.pkl")
        for name in archive.names
        if name.endswith("/data.pkl") and name.count("/") == 1
    ]
    if len(stems) != 1:
        raise FileFormatError(
            f"{archive.path} is a zip archive, but has no data.pkl as torch.save writes it."
        )
    return stems[0]


def unpickled_in(
    archive: Archive, stem: str, vocabulary: Names, folder: str = "data", *, wrap: Any = None
) -> tuple[Unpickled, dict[str, str]]:
    """Read an archive's pickle, with tensors as leaves; and names that cannot be loaded, and why.

    Args:
        archive: The archive.
        stem: The name of its top folder.
        vocabulary: Defines the meaning of the pickle's names.
        folder: The name of the folder of storages; with ``.pkl``, the name of the pickle.
        wrap: A function that is applied to the result of the pickle.

    Raises:
        FileFormatError: It is damaged.
        UnsafeFileError: It asks for something that is not data, or needs far too much memory or
            time.
    """
    pickle = archive[f"{stem}/{folder}.pkl"]
    resolve = ArchiveResolver(archive, stem, folder)
    archive.forget_names()
    root = root_of(lambda: archive.read_pages(pickle, MOST_PICKLE), vocabulary)
    unpickled = described(wrap(root) if wrap else root, vocabulary, pickle.size)
    # They refer to the stand-ins. Without them, each stand-in is freed as soon as its tensor is
    # made.
    del root, vocabulary
    return unpickled, resolve.all(unpickled.leaves) | unpickled.besides


def asked_in(
    archive: Archive, stem: str, vocabulary: Names, folder: str = "data"
) -> tuple[str, ...]:
    """The globals that an archive's pickle asks for, as far as it can be read."""
    pickle = archive[f"{stem}/{folder}.pkl"]
    return globals_of(lambda: archive.read_pages(pickle, MOST_PICKLE), vocabulary)


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
        storage = super().load(key)
        if type(storage) is not StorageOf:
            return storage
        width = 1
        if storage.dtype:
            width = find(storage.dtype).itemsize
        elif key[1].name.endswith("QInt32Storage"):
            width = 4
        self.widths[storage.key] = width
        view = key[5] if len(key) == 6 else None
        if view is None:
            return storage
        if type(view) is tuple and len(view) == 3:
            name, start, size = view
        else:
            name, start, size = None, None, None
        if (
            type(name) is not str
            or type(start) is not int
            or type(size) is not int
            or start < 0
            or size < 0
        ):
            raise self.wrong("describes a view of a storage that has no name, place or size")
        if start + size > storage.size or self.views.setdefault(
            name, (storage.key, start * width)
        ) != (
            storage.key,
            start * width,
        ):
            raise self.wrong(
                f"describes a view of storage {storage.key[:100]!r} that reaches past it, "
                "or two of one name"
            )
        return StorageOf(name, storage.dtype, size, storage.kind)


def read_legacy_file(
    path: Path, allow: frozenset[str], *, partly: bool = False
) -> tuple[Unpickled, dict[str, str]]:
    """Read a PyTorch file before 1.6, tensors as leaves; and names that cannot be loaded, and why.

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
    pickles = []
    at = begin
    for _ in range(5):
        pickles.append(root_of(lambda: data, vocabulary, at))
        at = vocabulary.machine.at
    magic, version, system, root, keys = pickles
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
        if type(key) is str:
            storage = vocabulary.known(key)
        else:
            storage = None
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
    """A file's pickle, with tensors as leaves; and the names that cannot be loaded, and why."""
    unpickled = described(root, vocabulary, nbytes)
    return unpickled, resolve.all(unpickled.leaves) | unpickled.besides


def pages_of(path: Path) -> mmap.mmap:
    """A map of a file that is read as a pickle."""
    if is_on_server(path):
        remote: Any = path
        raise remote.refuse("holds a pickle outside of an archive, which is read as a whole")
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise FileFormatError(f"{path} is empty: it has no bytes.", "get the file again")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


_OWN = "__torch__."
"""The prefix of classes whose code is in the archive."""


class ScriptNames(Names):
    """The vocabulary of TorchScript. A module becomes a dict of its attributes.

    Args:
        where: The file, for messages.
        allow: As for `Names`.
    """

    def knows(self, name: str) -> bool:
        return name.startswith(_OWN) or super().knows(name)

    def call(self, function: Any, arguments: Any, keywords: Any = None) -> Any:
        if type(function) is Global and function.name.startswith(_OWN):
            if arguments != () or keywords:
                raise self.wrong("makes a module of something")
            return InstanceOf(function.name, ())
        return super().call(function, arguments, keywords)

    def as_it_is(self, value: Any, _kind: Any = None) -> Any:
        """``restore_type_tag(value, type)``, and ``build_intlist(value)``."""
        if type(value) not in (list, dict, tuple):
            raise self.wrong("has a list or dict of another type")
        return value


ScriptNames.calls = Names.calls | dict.fromkeys(
    (
        f"torch.jit._pickle.{name}"
        for name in (
            "restore_type_tag",
            "build_intlist",
            "build_tensorlist",
            "build_doublelist",
            "build_boollist",
        )
    ),
    ScriptNames.as_it_is,
)
