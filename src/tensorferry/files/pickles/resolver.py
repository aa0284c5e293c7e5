"""`Resolver`: find the bytes of stand-ins in an archive or a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...core.layout import compact_strides, is_compact
from ...errors import FileFormatError
from ...host.numpy_dtypes import by_numpy, numpy_dtype
from ..base.stored import Extent, InMemory, Turned, View
from ..encodings.zip_archive import is_number
from ..encodings.zip_tensors import MemberForm, MemberRegion, ZipExtent, ZipView
from .standins import ArrayOf, OtherOf, StorageOf

if TYPE_CHECKING:
    from ..base.stored import Record, Stored
    from ..encodings.zip_archive import Archive
    from .standins import TensorOf, ViewOf

__all__ = ["ArchiveResolver", "FileResolver", "Resolver"]


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
            return "it is quantised" if leaf.dtype is None else self.storage(name, leaf, leaf.dtype)
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
        strides = None if compact else tuple(step * itemsize for step in view.strides)
        stored = self._at(
            name, leaf.storage, view.dtype, view.offset * itemsize, view.shape, strides
        )
        return Turned(stored, conj=view.conj, neg=view.neg) if view.conj or view.neg else stored

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
            place = self._places[number] if series.plain and number < len(self._places) else -1
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
        return Turned(stored, conj=view.conj, neg=view.neg) if view.conj or view.neg else stored

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
                    f"{self._archive.path}: the bytes of {name}, {self._folder}/{storage.key}, are not there."
                )
            if self._archive.size(index) != storage.nbytes:
                member = self._archive.member(index)
                raise FileFormatError(
                    f"{self.path}: the bytes of {name}, {self._folder}/{storage.key} (at byte {member.header}), are "
                    f"{member.size:,}; its pickle says {storage.size:,} elements of {storage.dtype}."
                )
            if self._archive.is_deflated(index):
                raise FileFormatError(
                    f"{self._archive.path}: the bytes of {name}, {self._folder}/{storage.key}, are compressed.",
                    "load it with what made it, and save it again",
                )
            region = self._regions[storage.key] = MemberRegion(self._archive, index)
        return region
