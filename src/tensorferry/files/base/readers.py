"""Read many tensors of files into new memory, by several threads, ahead of the code that uses them."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ...host.copies import processors
from ...host.memory import make_pages
from .raw import read_fully

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from ...typing import Array

__all__ = ["PAGED", "Piece", "Readable", "read_ahead"]

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


class Readable(Protocol):
    """What is needed of a `Stored`."""

    @property
    def nbytes(self) -> int:
        """How many bytes its values take."""
        ...  # for pyright, which otherwise takes it for a function that returns None

    def begin(self) -> tuple[Array, Piece] | None:
        """Memory for it, and what to read into it; ``None`` if it must be decoded."""


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
    """Read tensors into memory of their own, which any framework can adopt; yield them in their order.

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
    threads = min(_MOST, processors())
    if threads < 2 or sum(stored.nbytes for stored in wanted) <= _ALONE:
        for group in _groups(wanted):
            yield from _begin(group, None).arrays
        return
    from concurrent.futures import (
        ThreadPoolExecutor,
    )  # here, because it imports logging, which takes long

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
    """Each large tensor alone, and small ones together, so that a file is not opened for each of them."""
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
        found = stored.begin()
        arrays.append(None if found is None else found[0])
        pieces += () if found is None else (found[1],)
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
