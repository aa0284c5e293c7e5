"""`Stored`: tensors in files: where their bytes are, and how they are read, a block at a time or many of them ahead."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from itertools import groupby
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...core.dtypes import find
from ...core.layout import compact_strides
from ...hints.named_tuple import NamedTuple
from ...host.memory import compact, make_pages, paged_array, processor_count
from ...host.numpy_dtypes import numpy_dtype
from .raw import mapped, read_fully

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Protocol

    from ...typing import Array
    from .box import Box

    class Readable(Protocol):
        """What is needed of a `Stored`."""

        @property
        def nbytes(self) -> int:
            """How many bytes its values take."""
            ...  # for pyright, which otherwise takes it for a function that returns None

        def begin(self) -> tuple[Array, Piece] | None:
            """Memory for it, and what to read into it; ``None`` if it must be decoded."""


__all__ = [
    "BLOCK_BYTES",
    "PAGED",
    "BoxReader",
    "Conjugated",
    "Decoded",
    "Extent",
    "FileElements",
    "FilePlace",
    "InMemory",
    "Packed",
    "Piece",
    "Record",
    "Repeated",
    "Stored",
    "View",
    "chunks",
    "new_array",
    "read_ahead",
]

PAGED = 1 << 20
"""From this size in bytes on, a tensor has pages of its own."""
_STEP = 4 << 20
"""What one thread reads at a time, in bytes: of one tensor, or of several small ones."""
_ALONE = 8 << 20
"""Up to this size in bytes, no thread is started, because that takes as long."""
_MOST = 4
"""The most threads. A few use all the bandwidth of memory."""

_path_of = attrgetter("path")


class Piece(NamedTuple):
    """A run of bytes in a file, and the memory for it.

    Args:
        path: The file.
        offset: The position of the first byte.
        values: Their place: a part of a tensor's memory, as an array of one axis.
        swapped: Whether the values in the file are big-endian.
    """

    path: str
    offset: int
    values: Array
    swapped: bool

    def cut(self) -> Iterator[Piece]:
        """The same in pieces of about `_STEP`."""
        itemsize = self.values.itemsize
        count = max(_STEP // itemsize, 1)
        for start in range(0, self.values.size, count):
            part = self.values[start : start + count]
            yield Piece(self.path, self.offset + start * itemsize, part, self.swapped)


class _Begun(NamedTuple):
    """Tensors that are being read.

    Args:
        nbytes: How many bytes they have.
        arrays: Their memory; ``None`` for one that must be decoded.
        jobs: What still goes on in other threads.
    """

    nbytes: int
    arrays: Sequence[Array | None]
    jobs: Sequence[Future[None]]

    def finish(self) -> Sequence[Array | None]:
        """Wait until they are read."""
        for job in self.jobs:
            job.result()
        return self.arrays


def read_ahead(
    tensors: Iterable[Readable], most: int | None = None
) -> Generator[Array | None, None, None]:
    """Read tensors into their own memory, which any framework can adopt; yield them in order.

    Bytes that stand in a file as they are needed are read straight into this memory, by several
    threads if there are many of them. For a tensor that must be decoded it yields ``None``, and the
    caller does that.

    Args:
        tensors: The tensors.
        most: How many bytes may be read before they are used; ``None``: all of them.

    Raises:
        OSError: A file cannot be read.
        FileFormatError: A file is too short, or damaged.
        MemoryError: There is no memory for them.
    """
    wanted = list(tensors)
    threads = min(_MOST, processor_count())
    if threads < 2 or sum(stored.nbytes for stored in wanted) <= _ALONE:
        for group in _groups(wanted):
            yield from _begin(group, None).arrays
        return
    # Here, because it imports logging, which takes long.
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(threads, thread_name_prefix="tensorferry")
    waiting: deque[_Begun] = deque()
    ahead = 0
    try:
        for group in _groups(wanted):
            waiting.append(_begin(group, pool))
            ahead += waiting[-1].nbytes
            while waiting and most is not None and ahead > most:
                ahead -= waiting[0].nbytes
                yield from waiting.popleft().finish()
        while waiting:
            yield from waiting.popleft().finish()
    finally:
        pool.shutdown(cancel_futures=True)


def _groups(tensors: Iterable[Readable]) -> Iterator[list[Readable]]:
    """Each large tensor alone, small ones together, so that a file is not opened for each."""
    group: list[Readable] = []
    held = 0
    for stored in tensors:
        group.append(stored)
        held += stored.nbytes
        if held >= _STEP:
            yield group
            group, held = [], 0
    if group:
        yield group


def _begin(group: Sequence[Readable], pool: ThreadPoolExecutor | None) -> _Begun:
    arrays: list[Array | None] = []
    pieces: list[Piece] = []
    for stored in group:
        begun = stored.begin()
        arrays.append(None if begun is None else begun[0])
        pieces += () if begun is None else (begun[1],)
    jobs: list[Future[None]] = []
    for part in _parts(pieces):
        if pool is not None:
            with suppress(
                RuntimeError
            ):  # no thread can be started: the interpreter is ending, or there are no more
                jobs.append(pool.submit(_read, part))
                continue
        _read(part)
    return _Begun(sum(stored.nbytes for stored in group), arrays, jobs)


def _parts(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """What is read at a time."""
    part: list[Piece] = []
    held = 0
    for piece in pieces:
        for cut in piece.cut():
            part.append(cut)
            held += cut.values.nbytes
            if held >= _STEP:
                yield part
                part, held = [], 0
    if part:
        yield part


def _read(pieces: Sequence[Piece]) -> None:
    for path, group in groupby(pieces, _path_of):
        # Not opened for longer, because a model may have more shards than a process can have open
        # files.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for piece in group:
                if piece.values.nbytes >= PAGED:
                    make_pages(piece.values)
                read_fully(descriptor, piece.values.view(np.uint8).data, piece.offset, path)
                if piece.swapped:
                    piece.values.byteswap(inplace=True)
        finally:
            os.close(descriptor)


BLOCK_BYTES = 1 << 20
"""How many bytes are in memory at a time while a tensor is copied."""


class Record(NamedTuple):
    """A region of a file with its own checksum (or ``None``), such as a member of a zip archive."""

    path: str
    offset: int
    nbytes: int
    crc: int | None


class FilePlace(NamedTuple):
    """Where a file has the values of a tensor as they are.

    Args:
        path: The file.
        offset: The byte of the first element.
        strides: How many bytes the elements are apart along each axis; not negative.
        swapped: Whether they are big-endian.
    """

    path: str
    offset: int
    strides: tuple[int, ...]
    swapped: bool


class FileElements(NamedTuple):
    """Elements in a file, as they are.

    Args:
        place: Where they are.
        shape: How many there are along each axis.
        itemsize: The size of one in bytes.
    """

    place: FilePlace
    shape: tuple[int, ...]
    itemsize: int


class BoxReader(NamedTuple):
    """Reads boxes of a tensor in chunks, and of the chunks only those in which a box is.

    Args:
        chunk: The lengths of a chunk.
        read: Gives the elements that slices have, one slice for each axis: with a start, a stop
            and a step of at least 1.
    """

    chunk: tuple[int, ...]
    read: Callable[[tuple[slice, ...]], Array]


class Stored(ABC):
    """A tensor in a file.

    Its values are row-major and little-endian, whatever the file's own order.

    Args of every subclass begin with `dtype`, a canonical name, and `shape`.
    """

    __slots__ = ()

    dtype: str
    shape: tuple[int, ...]

    is_remote: ClassVar[bool] = False
    """Whether its bytes are on a server."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype}{list(self.shape)}>"

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes its values take without gaps."""
        return self.size * find(self.dtype).itemsize

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """A key that is equal for tensors that are the same (tied weights)."""

    def where(self, element: int) -> tuple[str | None, int | None]:
        """The file and byte position of an element, by its row-major index; ``None`` if encoded."""
        del element
        return None, None

    def place(self) -> FilePlace | None:
        """Where a file has its values as they are; ``None`` if they are decoded or put together."""
        return None

    def pieces(self) -> Sequence[tuple[tuple[int, ...], Stored]] | None:
        """The boxes that it is put together of, each by its first element; ``None`` if by none."""
        return None

    def elements(self) -> Sequence[FileElements] | None:
        """Where files have the elements that it is made of; ``None`` if it must be decoded."""
        place = self.place()
        if place is None:
            return None
        return [FileElements(place, self.shape, find(self.dtype).itemsize)]

    def held_bytes(self) -> int:
        """How many bytes are in memory beside its own, at most, while it is read."""
        return 0 if self.place() is not None else min(self.nbytes, BLOCK_BYTES)

    def pieces_in(self, box: Box) -> Sequence[tuple[tuple[int, ...], Stored]] | None:
        """At least those of its boxes in which a part is: see `pieces`."""
        del box
        return self.pieces()

    def box_reader(self) -> BoxReader | None:
        """What reads boxes of it without the rest; ``None`` if it is decoded from its start."""
        return None

    def part(self, box: Box) -> Stored | None:
        """A part of it as a tensor that needs nothing else of it; ``None`` if it knows none."""
        del box
        return None

    def alike(self, other: Stored) -> Stored:
        """Another tensor of the same file, read as this one is."""
        return other

    def origins(self) -> list[tuple[Stored, int]]:
        """The tensors in files that it is made of, each with how many bytes of it are needed."""
        inner: Stored | None = getattr(self, "inner", None)
        return [(self, self.nbytes)] if inner is None else inner.origins()

    @abstractmethod
    def blocks(self) -> Iterator[Array]:
        """Yield its values in order, as one-dimensional native arrays of about `BLOCK_BYTES`.

        Do not write to them.

        A block is valid only until the next one is requested.
        """

    def array(self, map_of: Callable[[str], mmap.mmap] = mapped) -> Array:
        """The whole tensor as an array: over a map of the file if possible, else as from `load`.

        Args:
            map_of: Gives the map of a file; by default a read-only one.
        """
        del map_of
        return self.load()

    def begin(self) -> tuple[Array, Piece] | None:
        """New memory for the whole tensor, and bytes to read; ``None`` if it must be decoded."""
        return None

    def decoded(self) -> Array:
        """The whole tensor in new memory, from `blocks`."""
        result = new_array(self.shape, self.dtype)
        flat = result.reshape(-1)
        start = 0
        for block in self.blocks():
            flat[start : start + block.size] = block
            start += block.size
        return result

    def load(self) -> Array:
        """The whole tensor in new memory, which any framework can adopt."""
        (result,) = read_ahead([self])
        return self.decoded() if result is None else result


class Packed(Stored):
    """Values in a file in row-major order without gaps. Subclasses know where.

    Args of every subclass:
        path: The file.
        offset: The first byte.
        record: The region with a checksum that contains it, if there is one.
        swapped: Whether its bytes are big-endian.
    """

    __slots__ = ()

    path: str
    offset: int
    record: Record | None
    swapped: bool

    def where(self, element: int) -> tuple[str | None, int | None]:
        return self.path, self.offset + element * find(self.dtype).itemsize

    def place(self) -> FilePlace | None:
        strides = compact_strides(self.shape, find(self.dtype).itemsize)
        return FilePlace(self.path, self.offset, strides, self.swapped)

    def blocks(self) -> Iterator[Array]:
        dtype = numpy_dtype(self.dtype)
        buffer = np.empty(max(min(BLOCK_BYTES, self.nbytes) // dtype.itemsize, 1), dtype)
        view = buffer.view(np.uint8).data
        for done in range(0, self.nbytes, view.nbytes):
            wanted = min(view.nbytes, self.nbytes - done)
            # Not open between the blocks, because a table is written from blocks of all its
            # columns.
            with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered, for preadv
                read_fully(file.fileno(), view[:wanted], self.offset + done, self.path)
            block = buffer[: wanted // dtype.itemsize]
            yield block.byteswap() if self.swapped else block

    def array(self, map_of: Callable[[str], mmap.mmap] = mapped) -> Array:
        if self.swapped or not self.size:
            return self.load()
        array: Array = np.ndarray(
            self.shape, numpy_dtype(self.dtype), map_of(self.path), self.offset
        )
        return array

    def begin(self) -> tuple[Array, Piece] | None:
        result = new_array(self.shape, self.dtype)
        return result, Piece(self.path, self.offset, result.reshape(-1), self.swapped)


class _Placed(Stored):
    """Values at a position in a file.

    Args:
        dtype: The canonical name of the dtype.
        shape: Lengths of the axes.
        path: The file.
        offset: The byte of the first element.
        record: The region with a checksum that contains it, if there is one.
        swapped: Whether its bytes are big-endian.
    """

    __slots__ = ("dtype", "offset", "path", "record", "shape", "swapped")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        path: str,
        offset: int,
        record: Record | None = None,
        *,
        swapped: bool = False,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.path = path
        self.offset = offset
        self.record = record
        self.swapped = swapped

    @property
    def key(self) -> Hashable:
        return (self.path, self.offset, self.shape, self.dtype)


class Extent(_Placed, Packed):
    """Values without gaps at a position in a file."""

    __slots__ = ()


class View(_Placed):
    """Values in a file with strides (bytes, not negative), as of a transposed PyTorch tensor."""

    __slots__ = ("strides",)

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        path: str,
        offset: int,
        strides: tuple[int, ...],
        record: Record | None = None,
        *,
        swapped: bool = False,
    ) -> None:
        super().__init__(dtype, shape, path, offset, record, swapped=swapped)
        self.strides = strides

    @property
    def key(self) -> Hashable:
        return (*super().key, self.strides)  # type: ignore[misc]

    def where(self, element: int) -> tuple[str | None, int | None]:
        if not self.size or not self.shape:
            return self.path, self.offset
        index = np.unravel_index(element, self.shape)
        return self.path, self.offset + sum(
            int(i) * step for i, step in zip(index, self.strides, strict=True)
        )

    def place(self) -> FilePlace | None:
        return FilePlace(self.path, self.offset, self.strides, self.swapped)

    def blocks(self) -> Iterator[Array]:
        # A separate map, whose pages are freed as soon as they are read, because mapped pages count
        # as memory.
        with open(self.path, "rb") as file:  # noqa: PTH123 - a descriptor for mmap
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        array: Array = np.ndarray(
            self.shape, numpy_dtype(self.dtype), pages, self.offset, self.strides
        )
        for part in chunks(array, 8 * BLOCK_BYTES):
            packed = np.empty(part.shape, part.dtype)
            for source, target in _tiles(part, packed, 8 * BLOCK_BYTES):
                target[...] = source
                pages.madvise(mmap.MADV_DONTNEED)
            for block in chunks(packed.reshape(-1)):
                yield block.byteswap() if self.swapped else block

    def array(self, map_of: Callable[[str], mmap.mmap] = mapped) -> Array:
        if self.swapped or not self.size:
            return self.load()
        array: Array = np.ndarray(
            self.shape, numpy_dtype(self.dtype), map_of(self.path), self.offset, self.strides
        )
        return array


class Decoded(Stored):
    """Values that must be decoded: compressed, chunked or encoded.

    Args:
        dtype: The canonical name of the dtype.
        shape: Lengths of the axes.
        read: Yields its values in order, as arrays of the dtype with any shape. It is called for
            each reading.
        key: See `Stored.key`.
        boxes: What reads boxes of it, if something does.
    """

    __slots__ = ("_boxes", "_key", "dtype", "read", "shape")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        read: Callable[[], Iterator[Array]],
        key: Hashable,
        boxes: BoxReader | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.read = read
        self._key = key
        self._boxes = boxes

    def box_reader(self) -> BoxReader | None:
        """See `Stored.box_reader`."""
        return self._boxes

    @property
    def key(self) -> Hashable:
        return self._key

    def blocks(self) -> Iterator[Array]:
        for part in self.read():
            for piece in chunks(part, BLOCK_BYTES):
                yield np.ascontiguousarray(piece).reshape(-1)


class Conjugated(Decoded):
    """Values that are conjugated or negated when they are read.

    Args:
        source: The values in the file.
        conj: Whether they are conjugated.
        neg: Whether they are negated, after that.
    """

    __slots__ = ("conj", "neg", "source")

    def __init__(self, source: Stored, *, conj: bool, neg: bool) -> None:
        super().__init__(source.dtype, source.shape, self._turned, (source.key, conj, neg))
        self.source = source
        self.conj = conj
        self.neg = neg

    @property
    def record(self) -> Record | None:
        """The region with a checksum that contains them."""
        return getattr(self.source, "record", None)

    def _turned(self) -> Iterator[Array]:
        for block in self.source.blocks():
            if self.conj:
                turned = np.conjugate(block)
            else:
                turned = block
            yield np.negative(turned) if self.neg else turned


class InMemory(Stored):
    """An array in memory that will be written.

    Args:
        array: The array, in any layout.
        key: See `Stored.key`.
    """

    __slots__ = ("_key", "dtype", "shape", "values")

    def __init__(self, array: Array, dtype: str, key: Hashable) -> None:
        self.dtype = dtype
        self.shape = array.shape
        self.values = array
        self._key = key

    @property
    def key(self) -> Hashable:
        return self._key

    def blocks(self) -> Iterator[Array]:
        for part in chunks(self.values, BLOCK_BYTES):
            yield np.ascontiguousarray(part).reshape(-1)

    def array(self, map_of: Callable[[str], mmap.mmap] = mapped) -> Array:
        del map_of
        return self.values


def new_array(shape: tuple[int, ...], dtype: str) -> Array:
    """New memory: aligned to 64 bytes, and if it is large to a page."""
    kind = numpy_dtype(dtype)
    return (paged_array if prod(shape) * kind.itemsize >= PAGED else compact)(shape, kind)


def chunks(array: Array, nbytes: int = BLOCK_BYTES) -> Iterator[Array]:
    """Yield chunks of an array of about `nbytes` bytes, in row-major order."""
    if not array.size:
        return
    if array.nbytes <= nbytes or not array.ndim:
        yield array
        return
    row = array.nbytes // array.shape[0]
    if row <= nbytes:
        rows = nbytes // row
        for start in range(0, array.shape[0], rows):
            yield array[start : start + rows]
        return
    for part in array:
        yield from chunks(part, nbytes)


def _tiles(source: Array, target: Array, nbytes: int) -> Iterator[tuple[Array, Array]]:
    """Yield matching parts of two arrays; those of the first span about `nbytes` if possible."""
    reach = [
        (length - 1) * stride for length, stride in zip(source.shape, source.strides, strict=True)
    ]
    if sum(reach) <= nbytes:
        yield source, target
        return
    axis = max(range(source.ndim), key=reach.__getitem__)
    step = max(source.shape[axis] * nbytes // sum(reach), 1)
    for start in range(0, source.shape[axis], step):
        cut = (*(slice(None) for _ in range(axis)), slice(start, start + step))
        yield from _tiles(source[cut], target[cut], nbytes)


class Repeated(Stored):
    """The values of a tensor for a further name, to be written again: a tensor of its own.

    Args:
        inner: The tensor.
        name: The further name.
    """

    __slots__ = ("dtype", "inner", "name", "shape")

    def __init__(self, inner: Stored, name: str) -> None:
        self.dtype = inner.dtype
        self.shape = inner.shape
        self.inner = inner
        self.name = name

    @property
    def key(self) -> Hashable:
        return self.inner.key, self.name

    def where(self, element: int) -> tuple[str | None, int | None]:
        return self.inner.where(element)

    def blocks(self) -> Iterator[Array]:
        return self.inner.blocks()

    def array(self, map_of: Callable[[str], mmap.mmap] = mapped) -> Array:
        return self.inner.array(map_of)

    def load(self) -> Array:
        return self.inner.load()
