"""Contents of a file under other names: tensors that a table of weights makes, read when they are needed."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import warnings
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import hints
from ..core.dtypes import find
from ..errors import FileFormatError, FormatLimitError, UnsupportedTypeError, shown
from ..host.numpy_dtypes import numpy_dtype
from ..maps.applying import changed, filled, memory_for, refuse_different
from ..maps.checking import findings, refuse, refuse_growth
from ..maps.language import MOST_BYTES, read_table
from ..maps.lowering import Constant, Header, lower
from ..maps.moves import NotMovedError, ends, of_part, steps_of
from ..maps.moves import box_of as positions_of
from ..maps.table import Table
from .base.contents import blocks_of, with_block_kinds
from .base.nesting import named_values
from .base.raw import read_fully, write_fully
from .base.stored import (
    BLOCK_BYTES,
    Extent,
    FileElements,
    FilePlace,
    Packed,
    Stored,
    chunks,
)
from .base.wording import named, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from ..maps.lowering import Lowered, MadeTensor
    from ..maps.map_finding import MapFinding
    from ..maps.moves import Move
    from ..typing import Array
    from .base.contents import Contents
    from .ranges.boxes import Box

__all__ = [
    "ContentsMap",
    "FileWeights",
    "MovedTensor",
    "config_beside",
    "contents_map",
    "headers_of",
    "mapping_of",
    "table_of",
]

_WIDE = 16 * BLOCK_BYTES
"""How many bytes are made at a time if elements that are neighbours in the file are not in the target."""
_MOST_READ = 4 * BLOCK_BYTES
"""How many bytes of a source are read at a time."""
_COST_OF_READ = 8192
"""How many bytes more could be read in the time that it takes to begin a read."""
_LEAST_RUN = 1 << 16
"""From this size in bytes on, runs of a file are copied by the system."""
_MOST_RUNS = 1 << 14
_MOST_DECODED = 32 << 20
"""Up to how many bytes of tensors stay when they have been decoded; one always does."""
_MOST_CONFIG = 4 << 20
_MOST_NUMBERS = 4096


class MovedTensor(Stored):
    """A tensor whose elements are moved out of others when it is read.

    Args:
        made: The moves, and what is done then.
        sources: The tensors that it is made of, by name.
        is_part: Whether it is a part of such a tensor, for which only its own bytes are read.
    """

    __slots__ = ("dtype", "is_part", "made", "shape", "sources")

    def __init__(
        self, made: MadeTensor, sources: Mapping[str, Stored], *, is_part: bool = False
    ) -> None:
        self.made = made
        self.sources = dict(sources)
        self.is_part = is_part
        self.dtype = made.header.dtype
        self.shape = made.header.shape

    @property
    def key(self) -> Hashable:
        """Equal for tensors that are made of the same in the same way."""
        made = self.made
        keys = tuple([(name, stored.key) for name, stored in self.sources.items()])
        return keys, made.moves, made.changes, made.equal, self.dtype, self.shape

    def origins(self) -> list[tuple[Stored, int]]:
        """See `Stored.origins`: of a source, not more than is moved out of it."""
        needed = dict.fromkeys(self.sources, 0)
        for moves in (self.made.moves, *self.made.equal):
            for move in moves:
                if move.source in needed:
                    # A step of 0 repeats an element.
                    axes = zip(move.sizes, move.source_steps, strict=True)
                    needed[str(move.source)] += prod(size for size, step in axes if step)
        return [
            (origin, min(needed[name] * find(origin.dtype).itemsize, origin.nbytes))
            for name, stored in self.sources.items()
            for origin, _ in stored.origins()
        ]

    def part(self, box: Box) -> Stored | None:
        """See `Stored.part`: each move with the part in common, if that is not too many."""
        made = self.made
        if made.moved != self.size or not box.size:
            return None
        within = self.shape, *box[:3]
        try:
            moves, *equal = [
                tuple([cut for move in moves_there for cut in of_part(move, *within)])
                for moves_there in (made.moves, *made.equal)
            ]
        except NotMovedError:
            return None
        header = Header(box.shape, self.dtype)
        cut = made._replace(header=header, moves=moves, moved=box.size, equal=tuple(equal))
        sources = {name: self.sources[name] for name in cut.sources}
        return MovedTensor(cut, sources, is_part=True)

    def elements(self) -> list[FileElements] | None:
        """See `Stored.elements`: of a part, those that each move takes."""
        if not self.is_part:
            return None
        file_elements: list[FileElements] = []
        for move in [
            one_move for moves in (self.made.moves, *self.made.equal) for one_move in moves
        ]:
            if isinstance(move.source, Constant):
                continue
            inner = self.sources[str(move.source)]
            if not isinstance(inner, Packed) or inner.swapped:
                return None
            first, axes = positions_of(move, source=True)
            itemsize = find(inner.dtype).itemsize
            strides = tuple([step * itemsize for _, step in axes])
            offset = inner.offset + first * itemsize
            place = FilePlace(inner.path, offset, strides, swapped=False)
            file_elements.append(FileElements(place, tuple([count for count, _ in axes]), itemsize))
        return file_elements

    def extents(self) -> list[Extent] | None:
        """The same as runs of bytes in files; ``None`` if it is no such thing."""
        if self.made.changes or self.made.equal:
            return None
        placed: list[tuple[int, Extent]] = []
        itemsize = find(self.dtype).itemsize
        for move in self.made.moves:
            inner = self.sources.get(str(move.source))
            if not isinstance(inner, Packed) or inner.swapped:
                return None
            sizes, to, of = move.sizes, move.target_steps, move.source_steps
            is_run = bool(sizes) and to[-1] == of[-1] == 1
            length = sizes[-1] if is_run else 1
            count = prod(sizes[:-1]) if is_run else prod(sizes)
            is_short = length * itemsize < _LEAST_RUN and count > 1
            if is_short or count + len(placed) > _MOST_RUNS:
                return None
            for index in np.ndindex(sizes[:-1] if is_run else sizes):
                start = move.target_start + sum(
                    i * step for i, step in zip(index, to, strict=False)
                )
                at = move.source_start + sum(i * step for i, step in zip(index, of, strict=False))
                offset = inner.offset + at * itemsize
                extent = Extent(self.dtype, (length,), inner.path, offset, inner.record)
                placed.append((start, extent))
        return [extent for _, extent in sorted(placed, key=lambda pair: pair[0])]

    def blocks(self) -> Iterator[Array]:
        """Yield its values in order: see `Stored.blocks`."""
        made, size = self.made, self.made.moved
        itemsize = find(made.source_dtype).itemsize
        row = self.shape[-1] if self.shape else 1
        if size != self.size:
            # A view has rows of more elements, or of fewer.
            row = row * size // self.size
        rows = max(self._block_bytes() // max(row * itemsize, 1), 1)
        count = rows * row
        if rows == 1:
            count = min(row, max(self._block_bytes() // itemsize, 1))
        # The same memory for each block: the system would have to clear new pages.
        memory, others = [
            memory_for(min(count, size), made.source_dtype) if is_needed else None
            for is_needed in (size > 0, bool(made.equal and size))
        ]
        with _Elements(self.sources, made, is_part=self.is_part) as elements:
            for start in range(0, size, max(count, 1)):
                stop = min(start + count, size)
                fill = partial(
                    filled,
                    sources=elements,
                    dtype=made.source_dtype,
                    start=start,
                    stop=stop,
                    release=elements.free_pages,
                )
                part = fill(made.moves, memory=memory)
                for moves in made.equal:
                    other = fill(moves, memory=others)
                    refuse_different(made, part, other, moves)
                for chunk in chunks(part):
                    yield changed(chunk, made.changes)
                elements.release(stop)

    def held_bytes(self) -> int:
        """See `Stored.held_bytes`: the elements of a block, and what they become."""
        return 2 * min(self.nbytes, self._block_bytes())

    def _block_bytes(self) -> int:
        moves = [move for every in (self.made.moves, *self.made.equal) for move in every]
        if all(not move.sizes or move.source_steps[-1] in (0, 1) for move in moves):
            return BLOCK_BYTES
        return _WIDE


class _Elements:
    """Gives elements of tensors in files: read into memory, some MiB at a time.

    Over a map of a file, the process would end if somebody cuts it.

    Args:
        sources: The tensors.
        made: What is made of them.
        is_part: Whether what lies between the elements stays unread.
    """

    def __init__(self, sources: Mapping[str, Stored], made: MadeTensor, *, is_part: bool) -> None:
        self._sources = sources
        self._is_part = is_part
        self._unpacked: dict[str, mmap.mmap] = {}
        self._files: dict[str, int] = {}
        self._arrays: dict[str, Array] = {}
        self._last: dict[str, int] = {}
        self._memory: Array = np.empty(0, np.uint8)
        for moves in (made.moves, *made.equal):
            for move in moves:
                name = str(move.source)
                self._last[name] = max(self._last.get(name, 0), ends(move)[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)

    def __call__(self, move: Move) -> Iterator[tuple[Move, Array]]:
        """Yield what a move reads, as moves out of arrays, each until the next is asked for."""
        name = str(move.source)
        stored = self._sources[name]
        if not isinstance(stored, Packed) or stored.swapped:
            if name not in self._arrays:
                self._arrays[name] = self._decoded(name, stored)
            yield move, self._arrays[name]
            return
        kind = numpy_dtype(stored.dtype)
        waiting = [move]
        while waiting:
            part = waiting.pop()
            runs = _runs_of(part, kind.itemsize, is_part=self._is_part)
            longest = max(range(len(part.sizes)), key=runs.reach_of, default=-1)
            if runs.nbytes > _MOST_READ and longest >= 0 and runs.reach_of(longest):
                waiting += reversed(_halves(part, longest))
                continue
            yield runs.move, self._read(stored, runs).view(kind)

    def _read(self, stored: Packed, runs: _Runs) -> Array:
        """The bytes of runs, one behind the other."""
        if runs.nbytes > self._memory.size:
            self._memory = np.empty(runs.nbytes, np.uint8)
        raw = self._memory[: runs.nbytes]
        descriptor, view, length = self._file(stored.path), raw.data, runs.length
        for place, offset in enumerate(runs.offsets()):
            part = view[place * length : (place + 1) * length]
            read_fully(descriptor, part, stored.offset + offset, stored.path)
        return raw

    def _decoded(self, name: str, stored: Stored) -> Array:
        """All elements of a tensor: in memory if it is small, else in a file without a name."""
        if stored.nbytes <= _MOST_DECODED // 2:
            return stored.load().reshape(-1)
        try:
            with tempfile.TemporaryFile(prefix="tensorferry-") as file:
                for block in stored.blocks():
                    write_fully(file.fileno(), block.view(np.uint8))
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            error.filename = error.filename or tempfile.gettempdir()
            raise
        self._unpacked[name] = pages
        array: Array = np.ndarray((stored.size,), numpy_dtype(stored.dtype), pages)
        return array

    def _file(self, path: str) -> int:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._files[path]

    def release(self, position: int) -> None:
        """Free what is not needed from a position on, and the pages of what was decoded."""
        for name in [*self._arrays]:
            if self._last[name] < position:
                del self._arrays[name]
                self._unpacked.pop(name, None)
        self.free_pages()

    def free_pages(self) -> None:
        """Free the pages of what was decoded."""
        for pages in self._unpacked.values():
            # Mapped pages count as memory.
            pages.madvise(mmap.MADV_DONTNEED)


class _Runs(NamedTuple):
    """Bytes that are read for a move, and the move out of them.

    Args:
        move: The move, out of the runs one behind the other.
        first: The first byte of a tensor that is read.
        length: How many bytes each run has.
        axes: How many runs there are along each axis, and from which byte to which.
        of: The steps in a source, each times the length of its axis less 1.
    """

    move: Move
    first: int
    length: int
    axes: tuple[tuple[int, int], ...]
    of: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all runs."""
        return self.length * prod(count for count, _ in self.axes)

    def reach_of(self, axis: int) -> int:
        """How far apart the elements at both ends of an axis of the move are."""
        return self.of[axis]

    def offsets(self) -> list[int]:
        """The first byte of each run."""
        offsets: Array = np.array([self.first])
        for count, step in self.axes:
            offsets = (offsets[:, None] + np.arange(count) * step).reshape(-1)
        places: list[int] = offsets.tolist()
        return places


def _runs_of(move: Move, itemsize: int, *, is_part: bool) -> _Runs:
    """The runs of bytes that take least to read: neighbours are one, with what lies between."""
    order = sorted(range(len(move.sizes)), key=lambda axis: -abs(move.source_steps[axis]))
    axes = [axis for axis in order if move.sizes[axis] > 1 and move.source_steps[axis]]
    best: tuple[int, int, int] | None = None
    for place in range(len(axes) + 1):
        count = prod(move.sizes[axis] for axis in axes[:place])
        inner = axes[place:]
        span = 1 + sum((move.sizes[axis] - 1) * abs(move.source_steps[axis]) for axis in inner)
        if is_part and span > prod(move.sizes[axis] for axis in inner):
            continue
        cost = count * (_COST_OF_READ + span * itemsize)
        if best is None or cost < best[0]:
            best = cost, place, span
    _, place, span = best or (0, len(axes), 1)
    outer = axes[:place]
    low, _ = ends(move, source=True)
    steps = [*move.source_steps]
    counts = [move.sizes[axis] for axis in outer]
    start = move.source_start - low
    for axis, step in zip(outer, steps_of(counts), strict=True):
        if steps[axis] < 0:
            start += (move.sizes[axis] - 1) * (steps[axis] + step * span)
        steps[axis] = step * span if steps[axis] > 0 else -step * span
    return _Runs(
        move._replace(source_start=start, source_steps=tuple(steps)),
        low * itemsize,
        span * itemsize,
        tuple([(move.sizes[axis], abs(move.source_steps[axis]) * itemsize) for axis in outer]),
        tuple([(n - 1) * abs(by) for n, by in zip(move.sizes, move.source_steps, strict=True)]),
    )


def _halves(move: Move, axis: int) -> list[Move]:
    """A move in two, along an axis."""
    size = move.sizes[axis]
    halves = []
    for first, last in ((0, size // 2), (size // 2, size)):
        sizes = (*move.sizes[:axis], last - first, *move.sizes[axis + 1 :])
        to, of = [
            start + first * steps[axis]
            for start, steps in (
                (move.target_start, move.target_steps),
                (move.source_start, move.source_steps),
            )
        ]
        halves.append(move._replace(sizes=sizes, target_start=to, source_start=of))
    return halves


class FileWeights:
    """The tensors of files, to be read again and again: over maps of their own, or decoded.

    Args:
        tensors: The tensors.
    """

    def __init__(self, tensors: Mapping[str, Stored]) -> None:
        self._maps: dict[str, mmap.mmap] = {}
        self._decoded: dict[Hashable, Array] = {}
        self.tensors = {name: _Weights(stored, self) for name, stored in tensors.items()}

    def array(self, stored: Stored) -> Array:
        """All of a tensor; one that must be decoded stays, until others are."""
        array = self._decoded.get(stored.key)
        if array is None:
            array = stored.array(self._map)
            if getattr(stored, "path", None) not in self._maps:
                held = sum(decoded.nbytes for decoded in self._decoded.values())
                if held + array.nbytes > _MOST_DECODED:
                    self._decoded.clear()
                self._decoded[stored.key] = array
        return array

    def _map(self, path: str) -> mmap.mmap:
        if path not in self._maps:
            with Path(path).open("rb") as file:
                self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[path]

    def release(self, path: str | None) -> None:
        """Free the pages of a file."""
        if path in self._maps:
            self._maps[path].madvise(mmap.MADV_DONTNEED)


class _Weights(NamedTuple):
    """A tensor of `FileWeights`."""

    stored: Stored
    files: FileWeights

    @property
    def dtype(self) -> str:
        return self.stored.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    def array(self) -> Array:
        """All of it."""
        return self.files.array(self.stored)

    def release(self) -> None:
        """Free its pages."""
        self.files.release(getattr(self.stored, "path", None))


# -- contents --------------------------------------------------------------------------------------


class ContentsMap(NamedTuple):
    """A table for the tensors of files, as plain values that any process can have.

    Args:
        text: The table, as TOML.
        dims: Lengths that are given.
        config: Numbers of ``config.json``.
    """

    text: str
    dims: tuple[tuple[str, int], ...] = ()
    config: tuple[tuple[str, int], ...] = ()

    def lowered(self, contents: Contents) -> Lowered:
        """The table for these contents."""
        headers = headers_of(contents)
        return lower(self.table, headers, config=dict(self.config), dims=dict(self.dims))

    def findings(self, contents: Contents, lowered: Lowered) -> list[MapFinding]:
        """What is wrong between the table and contents."""
        return findings(lowered, headers_of(contents))

    @property
    def table(self) -> Table:
        """The table."""
        return _read(self.text)

    def mapped(self, contents: Contents, *, warns: bool = False) -> Contents:
        """The contents that the table makes: its tensors, and the metadata; nothing has been read.

        Args:
            contents: The contents.
            warns: Whether a warning says which values are left out.

        Raises:
            FormatLimitError: The table does not fit.
            TreeError: It does not fit at several places.
        """
        left = [*named_values(contents.tree)] if warns else []
        if left:
            warnings.warn(f"What is not a tensor was left out: {named(left, 20)}.", stacklevel=4)
        lowered = self.lowered(contents)
        refuse(self.findings(contents, lowered))
        refuse_growth(lowered, sum(stored.nbytes for stored in contents.tensors.values()))
        quantised = blocks_of(contents)
        tensors: dict[str, Stored] = {}
        kept = {}
        for name, made in lowered.tensors.items():
            is_as_it_is = made.is_renamed and (
                contents.tensors[made.sources[0]].shape == made.header.shape
            )
            if is_as_it_is:
                source = made.sources[0]
                tensors[name] = contents.tensors[source]
                if source in quantised:
                    kept[name] = quantised[source]
                continue
            odd = next((source for source in made.sources if source in quantised), None)
            if odd is not None:
                raise FormatLimitError(
                    f"{odd} is in quantised blocks, which the table takes apart for {name}.",
                    hints.Hint(hints.keyword("dequantize", True), " first, into another file"),
                )
            sources = {source: contents.tensors[source] for source in made.sources}
            tensors[name] = MovedTensor(made, sources)
        metadata = {
            key: text
            for key, text in contents.metadata.items()
            if key.rpartition("@")[0] not in contents.tensors
        }
        return contents._replace(
            tensors=tensors, tree=None, metadata=with_block_kinds(metadata, kept)
        )


def headers_of(contents: Contents) -> dict[str, Header]:
    """The shapes and dtypes of the tensors."""
    return {name: Header(stored.shape, stored.dtype) for name, stored in contents.tensors.items()}


@lru_cache(maxsize=8)
def _read(text: str) -> Table:
    return read_table(text)


def table_of(given: Any, called: str = "map") -> Table:
    """A table that is given as one, or as the path of its file.

    Raises:
        UnsupportedTypeError: It is neither.
        FileFormatError: The file holds none.
        OSError: It cannot be read.
    """
    if isinstance(given, Table):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise UnsupportedTypeError(f"{called}= is a table, or the path of one, not {shown(given)}.")
    with open(path_of(given, f"{called}="), "rb") as file:  # noqa: PTH123 - bounded
        text = file.read(MOST_BYTES + 1)
    try:
        return _read(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{os.fspath(given)} is no text in UTF-8: byte {error.start}."
        ) from None


def contents_map(given: Any, dims: Mapping[str, int] | None, paths: Sequence[str]) -> ContentsMap:
    """What `map=` and `dims=` say, with the numbers of ``config.json`` beside the files."""
    table = table_of(given)
    lengths = tuple(sorted(validated_dims(dims).items()))
    return ContentsMap(table.text, lengths, tuple(config_beside(paths).items()))


def mapping_of(
    given: Any, dims: Mapping[str, int] | None
) -> Callable[[Sequence[str]], ContentsMap] | None:
    """What makes a `ContentsMap` for the paths of sources; ``None`` without a table.

    The table is read at once: its file may be another when the next part begins.
    """
    if given is None:
        return None
    return partial(contents_map, table_of(given), dims)


def validated_dims(dims: Any) -> dict[str, int]:
    """Lengths by name.

    Raises:
        UnsupportedTypeError: They are none.
    """
    if dims is None:
        return {}
    is_mapping = hasattr(dims, "items")
    if not is_mapping or any(
        not isinstance(name, str) or type(length) is not int or length < 0
        for name, length in dims.items()
    ):
        raise UnsupportedTypeError(
            f"dims= is a mapping from names to whole numbers, not {shown(dims)}."
        )
    return dict(dims)


def read_config(paths: Sequence[str]) -> dict[str, Any]:
    """What is in ``config.json`` in the folder of files."""
    for path in paths:
        place = Path(path)
        folder = place if place.is_dir() else place.parent
        file = folder / "config.json"
        try:
            if file.stat().st_size > _MOST_CONFIG:
                continue
            config = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(config, dict):
            return config
    return {}


def config_beside(paths: Sequence[str]) -> dict[str, int]:
    """The whole numbers of ``config.json`` in the folder of files, by their keys with dots."""
    return dict(list(_numbers(read_config(paths), ""))[:_MOST_NUMBERS])


def _numbers(config: dict[str, Any], before: str) -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        if type(value) is int:
            yield f"{before}{key}", value
        elif isinstance(value, dict) and before.count(".") < 4:
            yield from _numbers(value, f"{before}{key}.")
