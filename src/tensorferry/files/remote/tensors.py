"""`RemoteTensor`: a tensor in a file on a server, of which only what is used is asked for."""

from __future__ import annotations

import zlib
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import find
from ...errors import FileFormatError
from ...host.numpy_dtypes import numpy_dtype
from ..base.stored import BLOCK_BYTES, Packed, Stored, View, chunks
from ..ranges.requests import REQUEST_BYTES
from .reading import read_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ...typing import Array
    from ..base.stored import FilePlace, Record
    from .files import RemoteFile

__all__ = ["RemoteTensor"]

_AHEAD = 4
"""How many requests are made before the first of them is used."""
_MOST_AROUND = 64 << 10
"""How many bytes a member of an archive has at most beside those of a tensor that is compared with its checksum."""


class RemoteTensor(Stored):
    """A tensor in a file on a server.

    Args:
        held: The same tensor as in a file of this machine, which says where it is.
    """

    __slots__ = ("dtype", "held", "shape")

    is_remote = True

    def __init__(self, held: Packed | View) -> None:
        self.held = held
        self.dtype = held.dtype
        self.shape = held.shape

    @property
    def path(self) -> str:
        """The file."""
        return self.held.path

    @property
    def key(self) -> Hashable:
        """See `Stored.key`."""
        return self.held.key

    def where(self, element: int) -> tuple[str | None, int | None]:
        """See `Stored.where`."""
        return self.held.where(element)

    def place(self) -> FilePlace | None:
        """See `Stored.place`; the header of an archive's member is read for that."""
        return self.held.place()

    def alike(self, other: Stored) -> Stored:
        """See `Stored.alike`."""
        return RemoteTensor(other)  # type: ignore[arg-type]

    @property
    def has_checksum(self) -> bool:
        """Whether its file has one, which is compared when it is read in blocks."""
        record: Record | None = getattr(self.held, "record", None)
        return record is not None and record.crc is not None

    def header_span(self) -> tuple[RemoteFile, int, int] | None:
        """The local header of its member, if it is in an archive and that has not been read."""
        region: Any = getattr(self.held, "region", None)
        if region is None or region.is_known:
            return None
        member = region.archive.member(region.index)
        return region.archive.path, member.header, member.header + 30 + len(member.name.encode())

    def decoded(self) -> Array:
        """See `Stored.decoded`."""
        (result,) = read_remote([self])
        return result  # type: ignore[return-value]

    def blocks(self) -> Iterator[Array]:
        """See `Stored.blocks`; a checksum of the file is compared on the way."""
        if not isinstance(self.held, Packed) or not self.size:
            for part in chunks(self.decoded()):
                yield np.ascontiguousarray(part).reshape(-1)
            return
        kind = numpy_dtype(self.dtype)
        for piece in self._checked_bytes():
            block: Array = piece.view(kind)
            yield block.byteswap() if self.held.swapped else block

    def _checked_bytes(self) -> Iterator[Array]:
        """Yield the bytes in order, each time a whole number of elements."""
        begin, nbytes = self.held.offset, self.nbytes
        record: Record | None = self.held.record
        if record is None or record.crc is None or record.nbytes > nbytes + _MOST_AROUND:
            yield from self._pieces(begin, begin + nbytes)
            return
        file: RemoteFile = self.held.path  # type: ignore[assignment]
        end = record.offset + record.nbytes
        checksum = zlib.crc32(file.read_at(record.offset, begin - record.offset, 0))
        for piece in self._pieces(begin, begin + nbytes):
            checksum = zlib.crc32(piece.data, checksum)
            yield piece
        checksum = zlib.crc32(file.read_at(begin + nbytes, end - begin - nbytes, 0), checksum)
        if checksum != record.crc:
            raise FileFormatError(
                f"{file} is corrupt: the {record.nbytes} bytes at {record.offset} have CRC-32 "
                f"{checksum:08x}, the archive says {record.crc:08x}.",
                "get the file again",
            )

    def _pieces(self, start: int, stop: int) -> Iterator[Array]:
        """Yield bytes in blocks; requests go ahead of what is used."""
        file: RemoteFile = self.held.path  # type: ignore[assignment]
        itemsize = find(self.dtype).itemsize
        block = BLOCK_BYTES // itemsize * itemsize
        step = REQUEST_BYTES // itemsize * itemsize

        def read(first: int) -> Array:
            last = min(first + step, stop)
            held = file.held(first, last - first)
            if held is not None:
                return np.frombuffer(held, np.uint8)
            piece = np.empty(last - first, np.uint8)
            file.place.fetch(first, [piece.data])
            return piece

        for piece in _ahead(read, range(start, stop, step)):
            for at in range(0, piece.size, block):
                yield piece[at : at + block]


def _ahead(read: Callable[[int], Array], starts: range) -> Iterator[Array]:
    """Yield what a function gives for numbers, called in threads for a few of them ahead."""
    if len(starts) < 2:
        yield from map(read, starts)
        return
    # Here, because it imports logging, which takes long.
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[Future[Array]] = deque()
    pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="tensorferry")
    try:
        for start in starts:
            waiting.append(pool.submit(read, start))
            if len(waiting) >= _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
