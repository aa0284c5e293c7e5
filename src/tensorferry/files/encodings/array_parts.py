"""Arrays in parts: shapes and sizes, boxes of large ones, packed numbers, regions of several files."""

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
from ..base.stored import BLOCK_BYTES, Decoded, Extent, InMemory, Packed, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...typing import Array
    from ..base.stored import Stored

__all__ = [
    "BITS",
    "SLAB_BYTES",
    "ZSTD_RATIO",
    "Region",
    "bare",
    "checked",
    "cuts",
    "differ",
    "filled",
    "is_bomb",
    "is_too_large",
    "joined",
    "lengths",
    "packed_bytes",
    "runs",
    "slabs",
    "unpacked",
    "values_of",
    "varints",
]

_MOST_AXES = 64
_MOST_BYTES = 1 << 63
_LEAST_BOMB = 1 << 26
_MOST_RATIO = 2000
"""The largest plausible ratio of compression.

Deflate's limit is 1032 (https://zlib.net/zlib_tech.html).
"""
ZSTD_RATIO = 1 << 15
"""The largest ratio of Zstandard: blocks of 128 KiB in 4 bytes (RFC 8878, 3.1.1.2)."""


def checked(shape: Iterable[int], itemsize: int, where: str) -> tuple[int, ...]:
    """A shape that an array can have; messages begin with `where`.

    Raises:
        FileFormatError: A length is negative, there are too many axes, or their product overflows.
    """
    checked_shape = tuple(shape)
    if any(length < 0 for length in checked_shape):
        raise FileFormatError(f"{where} has an axis of negative length.")
    if len(checked_shape) > _MOST_AXES:
        raise FileFormatError(
            f"{where} has {len(checked_shape)} axes; {_MOST_AXES} is the most an array can have."
        )
    if is_too_large(checked_shape, itemsize):
        raise FileFormatError(f"{where} has a shape whose bytes no 64-bit number counts.")
    return checked_shape


def is_too_large(shape: tuple[int, ...], itemsize: int) -> bool:
    """Whether a shape is too large for any array, even if another axis has length 0."""
    return (
        len(shape) > _MOST_AXES or prod(length or 1 for length in shape) * itemsize >= _MOST_BYTES
    )


def is_bomb(declared: int, held: int, ratio: int = _MOST_RATIO) -> bool:
    """Whether the declared size of values is implausible for the number of bytes in the file."""
    return declared > max(_LEAST_BOMB, ratio * held)


SLAB_BYTES = 1 << 24
"""The most bytes of a box, if its shape allows it."""


def slabs(
    shape: Sequence[int],
    itemsize: int,
    chunks: Sequence[int] | None = None,
    nbytes: int = SLAB_BYTES,
) -> Iterator[tuple[slice, ...]]:
    """Yield boxes that cover an array. Each is a run of consecutive values in row-major order.

    Args:
        shape: Lengths of the axes.
        itemsize: The size of an element in bytes.
        chunks: The shape of the chunks in which it is stored. Boxes end at the ends of chunks, if a
            chunk fits.
        nbytes: The most bytes of a box; or the size of a chunk, if that is larger, since chunks are
            read as a whole.
    """
    if not prod(shape):
        return
    if not shape:
        yield ()
        return
    if chunks:
        nbytes = max(nbytes, prod(chunks) * itemsize)
    axis = 0
    while axis < len(shape) - 1 and prod(shape[axis + 1 :]) * itemsize > nbytes:
        axis += 1
    length = max(nbytes // (prod(shape[axis + 1 :]) * itemsize), 1)
    if chunks and chunks[axis] <= length:
        length -= length % chunks[axis]
    inner = tuple(slice(0, axis_length) for axis_length in shape[axis + 1 :])
    for outer in product(*(range(axis_length) for axis_length in shape[:axis])):
        lead = tuple(slice(index, index + 1) for index in outer)
        for start in range(0, shape[axis], length):
            yield (*lead, slice(start, min(start + length, shape[axis])), *inner)


def lengths(box: Sequence[slice]) -> tuple[int, ...]:
    """The shape of a box."""
    return tuple(axis.stop - axis.start for axis in box)


def cuts(total: int, most: int) -> list[int]:
    """Divide a total into pieces of the largest size; the last one may be smaller.

    >>> cuts(10, 4)
    [4, 4, 2]
    """
    return [min(most, total - start) for start in range(0, total, most)]


def filled(
    blocks: Iterable[np.ndarray[Any, Any]], sizes: Iterable[int], dtype: np.dtype[Any]
) -> Iterator[np.ndarray[Any, Any]]:
    """Divide the blocks of a tensor into pieces of other sizes.

    A piece is valid until the next one is requested.
    """
    source = iter(blocks)
    rest = np.empty(0, dtype)
    buffer = np.empty(0, dtype)
    for size in sizes:
        if rest.size >= size:
            yield rest[:size]
            rest = rest[size:]
            continue
        if buffer.size < size:
            buffer = np.empty(size, dtype)
        done = 0
        while done < size:
            if not rest.size:
                rest = next(source)
            count = min(rest.size, size - done)
            buffer[done : done + count] = rest[:count]
            rest = rest[count:]
            done += count
        yield buffer[:size]
    next(source, None)  # so that the source counts its last block too


BITS = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
"""The bits of the dtypes for which NumPy uses a whole byte."""

_GROUPS = BLOCK_BYTES // 4


def packed_bytes(size: int, bits: int) -> int:
    """How many bytes `size` packed elements take."""
    return -(-size * bits // 8)


def unpacked(raw: Iterable[Array], dtype: str, size: int) -> Iterator[Array]:
    """Unpack elements, the first of which is in the lowest bits of a byte.

    In the result each element is in the low bits of its byte, as in ml_dtypes and JAX. The other
    bits are zero.
    """
    bits, left = BITS[dtype], size
    for piece in filled(raw, cuts(packed_bytes(size, bits), 3 * _GROUPS), np.dtype(np.uint8)):
        codes = _codes(piece, bits)[:left]
        left -= codes.size
        yield codes.view(numpy_dtype(dtype))


def bare(block: Array, dtype: str) -> Array:
    """A block with its unused bits set to zero, which arithmetic fills with the sign."""
    if dtype not in BITS:
        return block
    return (block.view(np.uint8) & ((1 << BITS[dtype]) - 1)).view(block.dtype)


def _codes(raw: Array, bits: int) -> Array:
    if bits == 6:
        groups = np.zeros(-(-raw.size // 3) * 3, np.uint8)
        groups[: raw.size] = raw
        a, b, c = groups.reshape(-1, 3).T
        return np.stack(
            [a & 63, a >> 6 | (b & 15) << 2, b >> 4 | (c & 3) << 4, c >> 2], axis=1
        ).reshape(-1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes: Array = (raw[:, None] >> shifts & ((1 << bits) - 1)).reshape(-1)
    return codes


def varints(extent: Extent, size: int) -> Iterator[Array]:
    """Read variable-length numbers (https://protobuf.dev/programming-guides/encoding/), as uint64.

    Raises:
        FileFormatError: There are more or fewer than `size`, or one is too long.
    """
    rest = np.empty(0, np.uint8)
    for block in extent.blocks():
        raw = np.concatenate([rest, block])
        last = np.flatnonzero(raw < 0x80)
        used = int(last[-1]) + 1 if last.size else 0
        rest = raw[used:].copy()
        if last.size:
            first = np.concatenate([[0], last[:-1] + 1])
        else:
            first = last
        lengths = last - first + 1
        if rest.size > 10 or (last.size and int(lengths.max()) > 10):
            raise FileFormatError(
                f"{extent.path} has a number that does not end, after byte {extent.offset}."
            )
        numbers = np.zeros(last.size, np.uint64)
        for index in range(int(lengths.max()) if last.size else 0):
            longer = np.flatnonzero(lengths > index)
            numbers[longer] |= (raw[first[longer] + index] & 0x7F).astype(np.uint64) << np.uint64(
                7 * index
            )
        size -= numbers.size
        if size < 0:
            break
        yield numbers
    if size or rest.size:
        raise FileFormatError(
            f"{extent.path} has {'more' if size < 0 else 'fewer'} numbers at byte {extent.offset} "
            "than its shape says."
        )


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

    def origins(self) -> list[tuple[Stored, int]]:
        """See `Stored.origins`: of what has a region, not more than the region."""
        itemsize = find(self.dtype).itemsize
        return [
            (origin, min(prod(region.shape) * itemsize, count))
            for region in self.regions
            for origin, count in region.stored.origins()
        ]

    def pieces(self) -> list[tuple[tuple[int, ...], Stored]] | None:
        if self.grid != self.shape or any(
            region.offset or region.stored.shape != region.shape for region in self.regions
        ):
            return None
        return [(region.start, region.stored) for region in self.regions]

    def where(self, element: int) -> tuple[str | None, int | None]:
        if self.grid:
            at = np.unravel_index(element, self.grid)
        else:
            at = ()
        for region in self.regions:
            inner = tuple(int(a) - b for a, b in zip(at, region.start, strict=True))
            if all(0 <= a < length for a, length in zip(inner, region.shape, strict=True)):
                if inner:
                    place = int(np.ravel_multi_index(inner, region.shape))
                else:
                    place = 0
                return region.stored.where(region.offset + place)
        return None, None

    def _read(self) -> Iterator[Array]:
        dtype = numpy_dtype(self.dtype)
        for box in slabs(self.grid, dtype.itemsize, nbytes=_BOX_BYTES):
            whole = np.empty(lengths(box), dtype)
            for region in self.regions:
                cuts = [
                    (max(wanted.start, begin), min(wanted.stop, begin + length))
                    for wanted, begin, length in zip(box, region.start, region.shape, strict=True)
                ]
                if all(begin < end for begin, end in cuts):
                    inner = [
                        (begin - first, end - first)
                        for (begin, end), first in zip(cuts, region.start, strict=True)
                    ]
                    into = tuple(
                        slice(a - wanted.start, b - wanted.start)
                        for (a, b), wanted in zip(cuts, box, strict=True)
                    )
                    whole[into] = _part(region, inner)
            yield whole


def _part(region: Region, box: Sequence[tuple[int, int]]) -> Array:
    """A box that is one run of a region's values: inner axes complete, outer axes of length 1."""
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
    part: Array = flat.reshape(region.shape)[tuple(slice(*cut) for cut in box)]
    return part


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
    kept = [region for region in regions if prod(region.shape)]
    what = f"{where}: the pieces of {name[:200]}, which is {list(shape[:64])},"
    for region in kept:
        if len(region.start) != len(grid) or any(
            begin < 0 or begin + length > whole
            for begin, length, whole in zip(region.start, region.shape, grid, strict=True)
        ):
            raise FileFormatError(
                f"{what} lie outside of it: one of {list(region.shape)} at {list(region.start)}."
            )
        if region.stored.dtype != dtype:
            raise FileFormatError(f"{what} are of {region.stored.dtype}, where it is {dtype}.")
    have, want = sum(prod(region.shape) for region in kept), prod(grid)
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
    key = tuple((region.start, region.shape, region.offset, region.stored.key) for region in kept)
    return _Joined(dtype, shape, grid, kept, (shape, key))


def runs(vectors: Sequence[Any], offset: int, count: int, begin: int) -> list[Region]:
    """The regions of a run of values that continues over several vectors."""
    regions = []
    for stored in vectors:
        here = min(max(stored.size - offset, 0), count)
        if here > 0:
            regions.append(Region((begin,), (here,), stored, offset))
        count, begin = count - max(here, 0), begin + max(here, 0)
        if here <= 0:
            offset = max(offset - stored.size, 0)
        else:
            offset = 0
    return regions


def differ(a: Any, b: Any) -> bool:
    """Whether the copies of a tensor from two processes differ in dtype, shape or checksum."""
    if (getattr(a, "dtype", None), getattr(a, "shape", None)) != (
        getattr(b, "dtype", None),
        getattr(b, "shape", None),
    ):
        return True
    sums = [getattr(getattr(stored, "record", None), "crc", None) for stored in (a, b)]
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
    for region in regions:
        _count(corners, 1, region.start, region.shape)
    if any(corners.values()):
        raise FileFormatError(f"{what} overlap.")


def _count(
    corners: Counter[tuple[int, ...]], sign: int, start: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    ends = [((begin, 1), (begin + length, -1)) for begin, length in zip(start, shape, strict=True)]
    for corner in product(*ends):
        corners[tuple(place for place, _ in corner)] += sign * prod(side for _, side in corner)
