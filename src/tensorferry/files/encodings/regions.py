"""Whole tensors from regions that several processes have saved, read box by box in constant memory."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...errors import FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import Ref
from ..base.nesting import relabel, written
from ..base.stored import Decoded, Extent, InMemory, Packed, View
from .shapes import is_too_large
from .slabs import lengths, slabs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...typing import Array
    from ..base.stored import Stored

__all__ = ["Region", "differ", "joined", "runs", "values_of"]

_BOX_BYTES = 1 << 22
_MOST_CORNERS = 20_000_000


class Region(NamedTuple):
    """A box of a tensor.

    Args:
        start: The position of its first element on each axis.
        shape: Its shape.
        stored: The saved values, in row-major order.
        offset: The position of its first element in the saved values.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    stored: Stored
    offset: int = 0


class _Joined(Decoded):
    """A tensor in regions."""

    __slots__ = ("grid", "regions")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        grid: tuple[int, ...],
        regions: list[Region],
        key: object,
    ) -> None:
        super().__init__(dtype, shape, self._read, key)
        self.grid = grid
        self.regions = regions

    @property
    def parts(self) -> list[Stored]:
        """The tensors of its regions, whose checksums are compared."""
        return [region.stored for region in self.regions]

    def where(self, element: int) -> tuple[str | None, int | None]:
        at = np.unravel_index(element, self.grid) if self.grid else ()
        for region in self.regions:
            inner = tuple(int(a) - b for a, b in zip(at, region.start, strict=True))
            if all(0 <= a < length for a, length in zip(inner, region.shape, strict=True)):
                place = int(np.ravel_multi_index(inner, region.shape)) if inner else 0
                return region.stored.where(region.offset + place)
        return None, None

    def _read(self) -> Iterator[Array]:
        dtype = numpy_dtype(self.dtype)
        for box in slabs(self.grid, dtype.itemsize, nbytes=_BOX_BYTES):
            whole = np.empty(lengths(box), dtype)
            for region in self.regions:
                cuts = [
                    (max(each.start, begin), min(each.stop, begin + length))
                    for each, begin, length in zip(box, region.start, region.shape, strict=True)
                ]
                if all(begin < end for begin, end in cuts):
                    inner = [
                        (begin - first, end - first)
                        for (begin, end), first in zip(cuts, region.start, strict=True)
                    ]
                    into = tuple(
                        slice(a - each.start, b - each.start)
                        for (a, b), each in zip(cuts, box, strict=True)
                    )
                    whole[into] = _part(region, inner)
            yield whole


def _part(region: Region, box: Sequence[tuple[int, int]]) -> Array:
    """A box of a region that is one run of its values: inner axes are complete, outer axes have length 1."""
    stored, shape = region.stored, tuple(end - begin for begin, end in box)
    stored = getattr(stored, "inner", stored)
    first = tuple(begin for begin, _ in box)
    if isinstance(stored, Packed):
        place = region.offset + (int(np.ravel_multi_index(first, region.shape)) if first else 0)
        begin = stored.offset + place * find(stored.dtype).itemsize
        return Extent(stored.dtype, shape, stored.path, begin, swapped=stored.swapped).load()
    if isinstance(stored, View) and not region.offset:
        begin = stored.offset + sum(a * step for a, step in zip(first, stored.strides, strict=True))
        return View(
            stored.dtype, shape, stored.path, begin, stored.strides, swapped=stored.swapped
        ).load()
    flat = stored.load().reshape(-1)[region.offset : region.offset + prod(region.shape)]
    found: Array = flat.reshape(region.shape)[tuple(slice(*each) for each in box)]
    return found


def joined(
    where: str,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    regions: Sequence[Region],
    *,
    flat: bool = False,
) -> Stored:
    """A whole tensor from its regions: boxes; or, if `flat`, runs of its values in row-major order.

    Raises:
        FileFormatError: They do not cover it, are outside of it, or overlap.
        UnsafeFileError: There are far too many.
    """
    if is_too_large(shape, find(dtype).itemsize):
        raise FileFormatError(
            f"{where}: {name[:200]} is {list(shape[:64])}, larger than any array."
        )
    grid = (prod(shape),) if flat else shape
    kept = [each for each in regions if prod(each.shape)]
    what = f"{where}: the pieces of {name[:200]}, which is {list(shape[:64])},"
    for each in kept:
        if len(each.start) != len(grid) or any(
            begin < 0 or begin + length > whole
            for begin, length, whole in zip(each.start, each.shape, grid, strict=True)
        ):
            raise FileFormatError(
                f"{what} lie outside of it: one of {list(each.shape)} at {list(each.start)}."
            )
        if each.stored.dtype != dtype:
            raise FileFormatError(f"{what} are of {each.stored.dtype}, where it is {dtype}.")
    have, want = sum(prod(each.shape) for each in kept), prod(grid)
    if have < want:
        raise FileFormatError(
            f"{what} do not cover it: {have:,} of its {want:,} elements are there."
        )
    if not want:
        return InMemory(np.empty(shape, numpy_dtype(dtype)), dtype, (where, name))
    _refuse_overlaps(what, grid, kept)
    first = kept[0]
    if len(kept) == 1 and not first.offset and first.stored.shape == shape:
        return first.stored
    # By its regions, so that it is equal only to a tensor of the same bytes.
    key = tuple((each.start, each.shape, each.offset, each.stored.key) for each in kept)
    return _Joined(dtype, shape, grid, kept, (shape, key))


def runs(vectors: Sequence[Any], offset: int, count: int, begin: int) -> list[Region]:
    """The regions of a run of values that continues over several vectors."""
    found = []
    for stored in vectors:
        here = min(max(stored.size - offset, 0), count)
        if here > 0:
            found.append(Region((begin,), (here,), stored, offset))
        count, begin = count - max(here, 0), begin + max(here, 0)
        offset = max(offset - stored.size, 0) if here <= 0 else 0
    return found


def differ(a: Any, b: Any) -> bool:
    """Whether the copies of a tensor from two processes differ in dtype, shape or checksum."""
    if (getattr(a, "dtype", None), getattr(a, "shape", None)) != (
        getattr(b, "dtype", None),
        getattr(b, "shape", None),
    ):
        return True
    sums = [getattr(getattr(each, "record", None), "crc", None) for each in (a, b)]
    return None not in sums and sums[0] != sums[1]


def values_of(tree: Any) -> str:
    """The values that a process saved, as text to compare, in which a tensor is only its name."""
    return written(relabel(tree, lambda ref: Ref(ref.name)))


def _refuse_overlaps(what: str, grid: tuple[int, ...], regions: list[Region]) -> None:
    """Raise for regions that do not tile a tensor.

    The differences along all axes of the indicator of a region are its corners, with signs. Their
    sum equals that of the tensor if, and only if, each element is covered exactly once.
    """
    if len(regions) << len(grid) > _MOST_CORNERS:
        raise UnsafeFileError(
            f"{what} are {len(regions):,}, on {len(grid)} axes: out of all proportion."
        )
    corners: Counter[tuple[int, ...]] = Counter()
    _count(corners, -1, (0,) * len(grid), grid)
    for each in regions:
        _count(corners, 1, each.start, each.shape)
    if any(corners.values()):
        raise FileFormatError(f"{what} overlap.")


def _count(
    corners: Counter[tuple[int, ...]], sign: int, start: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    ends = [((begin, 1), (begin + length, -1)) for begin, length in zip(start, shape, strict=True)]
    for corner in product(*ends):
        corners[tuple(place for place, _ in corner)] += sign * prod(side for _, side in corner)
