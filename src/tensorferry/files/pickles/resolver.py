"""`Resolver`: from what a pickle describes to the places in its archive where the bytes are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.dtypes import find
from ...core.layout import is_compact
from ...errors import FileFormatError
from ...host.numpy_dtypes import by_numpy
from ..base.stored import InMemory
from ..encodings.zip_archive import is_number
from ..encodings.zip_tensors import MemberForm, MemberRegion, ZipExtent, ZipTurned, ZipView
from .standins import ArrayOf, OtherOf, StorageOf

if TYPE_CHECKING:
    from ..base.stored import Stored
    from ..encodings.zip_archive import Archive
    from .standins import TensorOf, ViewOf

__all__ = ["Resolver"]


class _Form(NamedTuple):
    """How tensors of one dtype, shape and strides lie in their storages; the strides are ``None`` if that is packed."""

    layout: MemberForm
    itemsize: int
    strides: tuple[int, ...] | None


class _Series(NamedTuple):
    """What follows for tensors that have one view; its identity stands for it as long as it is kept here."""

    view: ViewOf
    layout: MemberForm
    nbytes: int
    plain: bool


class Resolver:
    """Finds the bytes of stand-ins.

    Args:
        archive: The archive.
        stem: The name of its folder.
    """

    def __init__(self, archive: Archive, stem: str) -> None:
        self._archive = archive
        self._prefix = f"{stem}/data/"
        self._regions: dict[str, MemberRegion] = {}
        self._forms: dict[Any, _Form] = {}
        self._series: dict[int, _Series] = {}
        self._places = archive.numbered(self._prefix)
        self._swapped = False
        byteorder = f"{stem}/byteorder"
        if byteorder in archive:
            order = archive.read_bytes(archive[byteorder], 16)
            if order not in (b"little", b"big"):
                raise FileFormatError(f"{archive.path}: its byteorder is {order!r}, neither little nor big.")
            self._swapped = order == b"big"

    def __call__(self, name: str, leaf: Any) -> Stored | str:
        """Where the bytes of a stand-in are.

        Args:
            name: The name of the tensor, for messages.
            leaf: The stand-in.

        Returns:
            The tensor, or why it cannot be carried.

        Raises:
            FileFormatError: The bytes are not there, or not as many as the pickle says.
        """
        kind = type(leaf)
        if kind is OtherOf:
            return leaf.reason  # type: ignore[no-any-return]
        if kind is ArrayOf:
            if leaf.values is None:
                if leaf.reason is None:
                    raise FileFormatError(
                        f"{self._archive.path}: its pickle has an array of NumPy, {name}, without values."
                    )
                return leaf.reason  # type: ignore[no-any-return]
            return InMemory(leaf.values, by_numpy()[leaf.values.dtype], (self._archive.path, "pickle", id(leaf)))
        if kind is StorageOf:
            if leaf.dtype is None:
                return "it is quantised"
            layout = MemberForm(
                self._archive, leaf.dtype, (leaf.size,), self._swapped and find(leaf.dtype).itemsize > 1
            )
            return ZipExtent(layout, self._region(name, leaf))
        return self._tensor(name, leaf)

    def _tensor(self, name: str, leaf: TensorOf) -> Stored:
        number, view = leaf.number, leaf.view
        if number is not None:
            series = self._series.get(id(view)) or self._begin(view)
            place = self._places[number] if series.plain and number < len(self._places) else -1
            if place >= 0 and self._archive.size(place) == series.nbytes and not self._archive.is_deflated(place):
                return ZipExtent(series.layout, place)
        region = self._region(name, leaf.storage)
        form = self._form(view)
        start = view.offset * form.itemsize
        stored: ZipExtent | ZipView
        if form.strides is None:
            stored = ZipExtent(form.layout._replace(start=start) if start else form.layout, region)
        else:
            stored = ZipView(view.dtype, view.shape, region, start, form.strides, swapped=form.layout.swapped)
        return ZipTurned(stored, conj=view.conj, neg=view.neg) if view.conj or view.neg else stored

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
            layout = MemberForm(self._archive, view.dtype, view.shape, self._swapped and itemsize > 1)
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
                raise FileFormatError(f"{self._archive.path}: the bytes of {name}, data/{storage.key}, are not there.")
            if self._archive.size(index) != storage.nbytes:
                member = self._archive.member(index)
                raise FileFormatError(
                    f"{self._archive.path}: the bytes of {name}, data/{storage.key} (at byte {member.header}), are "
                    f"{member.size:,}; its pickle says {storage.size:,} elements of {storage.dtype}."
                )
            if self._archive.is_deflated(index):
                raise FileFormatError(
                    f"{self._archive.path}: the bytes of {name}, data/{storage.key}, are compressed.",
                    "load it with what made it, and save it again",
                )
            region = self._regions[storage.key] = MemberRegion(self._archive, index)
        return region
