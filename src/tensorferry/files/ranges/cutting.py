"""`cut`: a part of a tensor in a file as a tensor in a file, of which only the part is read where its bytes tell it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...core.dtypes import find
from ...core.layout import compact_strides, is_compact
from ...errors import FileFormatError
from ...host.memory import compact, make_pages
from ...host.numpy_dtypes import numpy_dtype
from ..base.raw import mapped
from ..base.stored import BLOCK_BYTES, Extent, FilePlace, Piece, Stored, View, chunks, new_array
from .boxes import Box, chunk_elements, in_chunks, inside, rank, whole_box

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from ...typing import Array
    from ..base.stored import BoxReader

__all__ = ["CutTensor", "copy_part", "cut", "over_map"]


def cut(stored: Stored, box: Box) -> Stored:
    """The part of a tensor that a box gives; the tensor itself if that is all of it.

    Where a file has the values as they are, the part is a place in the file too.
    """
    if box.is_whole(stored.shape):
        return stored
    if isinstance(stored, CutTensor):
        return cut(stored.inner, inside(stored.box, box))
    place = stored.place()
    if place is None:
        part = stored.part(box)
        return CutTensor(stored, box) if part is None else part
    offset = place.offset + sum(
        start * stride for start, stride in zip(box.starts, place.strides, strict=True)
    )
    strides = box.kept(
        [step * stride for step, stride in zip(box.steps, place.strides, strict=True)]
    )
    dtype, shape = stored.dtype, box.shape
    if not box.size or is_compact(shape, strides, find(dtype).itemsize):
        return stored.alike(CutExtent(dtype, shape, place.path, offset, swapped=place.swapped))
    return stored.alike(CutView(dtype, shape, place.path, offset, strides, swapped=place.swapped))


_AT_ONCE = 16 << 20
"""How many bytes a library gives at a time, which are held beside the part."""
_REUSED = 32 << 20
"""Memory of less bytes than this is used again by the C library, whose pages need not be made anew."""


def _new_part(shape: tuple[int, ...], dtype: str) -> Array:
    """New memory for a part: there are many of one size, and others like it go when they are used."""
    kind = numpy_dtype(dtype)
    if prod(shape) * kind.itemsize < _REUSED:
        return compact(shape, kind)
    return new_array(shape, dtype)


class CutExtent(Extent):
    """A part that is one run of bytes in a file."""

    __slots__ = ()

    def begin(self) -> tuple[Array, Piece] | None:
        """Memory for it, and what to read into it."""
        result = _new_part(self.shape, self.dtype)
        return result, Piece(self.path, self.offset, result.reshape(-1), self.swapped)


class CutView(View):
    """A part that is many runs of bytes: copied out of a map, which is faster than to read each."""

    __slots__ = ()

    def decoded(self) -> Array:
        """The part in new memory. Of the file, only its own pages are used."""
        result = _new_part(self.shape, self.dtype)
        if result.nbytes >= _REUSED:
            make_pages(result)
        place = FilePlace(self.path, self.offset, self.strides, self.swapped)
        copy_part(result, over_map(place, self.shape, self.dtype))
        if self.swapped:
            result.byteswap(inplace=True)
        return result


def over_map(place: FilePlace, shape: tuple[int, ...], dtype: str) -> Array:
    """Elements over a map of their file, in the file's own order of bytes.

    Raises:
        FileFormatError: The file is shorter.
    """
    pages = mapped(place.path)
    try:
        there: Array = np.ndarray(shape, numpy_dtype(dtype), pages, place.offset, place.strides)
    except (TypeError, ValueError):
        raise FileFormatError(
            f"{place.path} ends at byte {len(pages)}, in the middle of a tensor."
        ) from None
    return there


def copy_part(result: Array, there: Array) -> None:
    """Copy elements out of a map into new memory."""
    np.copyto(result, there)


class CutTensor(Stored):
    """A part of a tensor that is decoded or put together when it is read.

    Of a tensor in pieces or in chunks, only those are read in which the part is. One that is
    decoded from its start is decoded to the last element that is needed, a block at a time.

    Args:
        inner: The tensor.
        box: The part.
    """

    __slots__ = ("box", "dtype", "inner", "shape")

    def __init__(self, inner: Stored, box: Box) -> None:
        self.inner = inner
        self.box = box
        self.dtype = inner.dtype
        self.shape = box.shape

    @property
    def key(self) -> Hashable:
        """Equal for the same part of the same tensor."""
        return self.inner.key, self.box

    def pieces(self) -> list[tuple[tuple[int, ...], Stored]] | None:
        """Each piece that has a part of it; see `Stored.pieces`."""
        cut_pieces = self._pieces()
        if cut_pieces is None:
            return None
        return [(self.box.kept(starts), cut(piece, part)) for starts, piece, part in cut_pieces]

    def _pieces(self) -> list[tuple[tuple[int, ...], Stored, Box]] | None:
        whole = self.inner.pieces_in(self.box)
        if whole is None:
            return None
        pieces = []
        for starts, piece in whole:
            meeting = _meeting(self.box, starts, piece.shape)
            if meeting is not None:
                pieces.append((meeting[0], piece, meeting[1]))
        return pieces

    def held_bytes(self) -> int:
        """See `Stored.held_bytes`: a piece, what a library gives at a time, or a block."""
        pieces = self.pieces()
        if pieces is not None:
            decoded = [piece for _, piece in pieces if piece.place() is None]
            return max((piece.nbytes + piece.held_bytes() for piece in decoded), default=0)
        reader = self.inner.box_reader()
        if reader is None:
            return min(self.decoded_bytes(), BLOCK_BYTES)
        itemsize = find(self.dtype).itemsize
        return min(self.decoded_bytes(), max(_AT_ONCE, prod(reader.chunk) * itemsize))

    def decoded_bytes(self) -> int:
        """How many bytes of values are decoded, of the whole tensor's; see the class."""
        if not self.size:
            return 0
        reader = self.inner.box_reader()
        if reader is not None:
            elements = chunk_elements(self.box, reader.chunk, self.inner.shape)
            return elements * find(self.dtype).itemsize
        last = [
            start + (count - 1) * step
            for start, count, step in zip(
                self.box.starts, self.box.counts, self.box.steps, strict=True
            )
        ]
        steps = compact_strides(self.inner.shape, find(self.dtype).itemsize)
        end = sum(at * step for at, step in zip(last, steps, strict=True))
        return end + find(self.dtype).itemsize

    def blocks(self) -> Iterator[Array]:
        """See `Stored.blocks`."""
        for part in chunks(self.decoded()):
            yield np.ascontiguousarray(part).reshape(-1)

    def decoded(self) -> Array:
        """The part in new memory."""
        result = _new_part(self.shape, self.dtype)
        if not self.size:
            return result
        pieces = self.pieces()
        if pieces is None:
            reader = self.inner.box_reader()
            if reader is None:
                self._decode_into(result.reshape(-1))
            else:
                self._read_into(result.reshape(self.box.counts), reader)
            return result
        for starts, piece in pieces:
            into = tuple(
                slice(start, start + count)
                for start, count in zip(starts, piece.shape, strict=True)
            )
            result[into] = piece.array()
        return result

    def _read_into(self, result: Array, reader: BoxReader) -> None:
        box = self.box
        most = max(_AT_ONCE // result.itemsize, prod(reader.chunk))
        for part in in_chunks(box, reader.chunk, most):
            into = tuple(
                slice((first - start) // step, (first - start) // step + count)
                for first, start, step, count in zip(
                    part.starts, box.starts, box.steps, part.counts, strict=True
                )
            )
            wanted = tuple(
                slice(start, start + (count - 1) * step + 1, step)
                for start, count, step in zip(*part[:3], strict=True)
            )
            result[into] = reader.read(wanted)

    def _decode_into(self, result: Array) -> None:
        box, shape = self.box, self.inner.shape
        steps = np.array(compact_strides(shape, 1), np.int64)
        first = int(np.dot(steps, np.array(box.starts, np.int64)))
        strides = steps * np.array(box.steps, np.int64)
        begin = done = 0
        for block in self.inner.blocks():
            end = begin + block.size
            upto = rank(box, shape, end)
            if upto > done:
                # Row-major order is the same in both, so a block has neighbours of the result.
                ends = _positions(np.array([done, upto - 1]), box.counts, strides, first)
                if ends[1] - ends[0] == upto - 1 - done:
                    result[done:upto] = block[ends[0] - begin : ends[1] + 1 - begin]
                else:
                    at = _positions(np.arange(done, upto), box.counts, strides, first)
                    result[done:upto] = block[at - begin]
            begin, done = end, upto
            if done == box.size:
                return


def _positions(numbers: Array, counts: Sequence[int], strides: Array, first: int) -> Array:
    """Where elements of a box are in its tensor, by their numbers in the box."""
    places = np.full(numbers.shape, first, np.int64)
    rest = numbers
    for count, stride in zip(reversed(counts), reversed(strides.tolist()), strict=True):
        rest, at = np.divmod(rest, count)
        places += at * stride
    return places


def _meeting(
    box: Box, starts: Sequence[int], shape: Sequence[int]
) -> tuple[tuple[int, ...], Box] | None:
    """What a box and a piece of its tensor have in common; ``None`` if that is nothing.

    Returns:
        Where it is in the box, and which part of the piece it is.
    """
    into, first, counts = [], [], []
    for start, count, step, begin, length in zip(
        box.starts, box.counts, box.steps, starts, shape, strict=True
    ):
        low = max(-(-(begin - start) // step), 0)
        high = min(-(-(begin + length - start) // step), count)
        if low >= high:
            return None
        into.append(low)
        first.append(start + low * step - begin)
        counts.append(high - low)
    part = whole_box(shape)._replace(
        starts=tuple(first),
        counts=tuple(counts),
        steps=tuple(
            step if count > 1 else 1 for step, count in zip(box.steps, counts, strict=True)
        ),
        dropped=box.dropped,
    )
    return tuple(into), part
