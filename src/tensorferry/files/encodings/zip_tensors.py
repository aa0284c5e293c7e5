"""Tensors in members of a zip archive. The position of a member is looked up when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..base.stored import Packed, Record, View

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .zip_archive import Archive

__all__ = ["MemberForm", "MemberRegion", "ZipExtent", "ZipView"]


class MemberRegion:
    """An uncompressed member of an archive, by its index, which contains tensors."""

    __slots__ = ("_record", "archive", "index")

    def __init__(self, archive: Archive, index: int) -> None:
        self.archive = archive
        self.index = index
        self._record: Record | None = None

    @property
    def record(self) -> Record:
        """Its position in the file, and its checksum.

        Raises:
            FileFormatError: Its local header and the directory differ.
        """
        if self._record is None:
            self._record = self.archive.record(self.archive.member(self.index))
        return self._record


class MemberForm(NamedTuple):
    """The facts that many tensors of an archive share, to save memory.

    Args:
        archive: The archive.
        dtype: The canonical name of the dtype.
        shape: Lengths of the axes.
        swapped: Whether the bytes are big-endian.
        start: The position of the first byte in the member.
    """

    archive: Archive
    dtype: str
    shape: tuple[int, ...]
    swapped: bool
    start: int = 0


class ZipExtent(Packed):
    """Values without gaps in a member of an archive; `region` may also be the index of the member."""

    __slots__ = ("_region", "layout")

    def __init__(self, layout: MemberForm, region: MemberRegion | int) -> None:
        self.layout = layout
        self._region = region

    @property
    def region(self) -> MemberRegion:
        """The member."""
        if isinstance(self._region, int):
            self._region = MemberRegion(self.layout.archive, self._region)
        return self._region

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.layout.dtype

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.layout.shape

    @property
    def swapped(self) -> bool:  # type: ignore[override]
        return self.layout.swapped

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.layout.archive.path

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self.region.record.offset + self.layout.start

    @property
    def record(self) -> Record:  # type: ignore[override]
        return self.region.record

    @property
    def key(self) -> Hashable:
        region, (archive, dtype, shape, _, start) = self._region, self.layout
        return (
            archive.id,
            region if type(region) is int else self.region.index,
            start,
            shape,
            dtype,
        )


class ZipView(View):
    """Values with strides in a member of an archive; `start` is the position of the first one in the member."""

    __slots__ = ("region", "start")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        region: MemberRegion,
        start: int,
        strides: tuple[int, ...],
        *,
        swapped: bool = False,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.region = region
        self.start = start
        self.strides = strides
        self.swapped = swapped

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.region.archive.path

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self.region.record.offset + self.start

    @property
    def record(self) -> Record:  # type: ignore[override]
        return self.region.record

    @property
    def key(self) -> Hashable:
        return (
            self.region.archive.id,
            self.region.index,
            self.start,
            self.shape,
            self.dtype,
            self.strides,
        )
