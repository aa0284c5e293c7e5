"""`Bundle`: read the index of a checkpoint, and find its tensors."""

from __future__ import annotations

import re
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....core.dtypes import find
from ....errors import FileFormatError, UnsafeFileError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import Contents, NotTensor
from ...base.raw import mapped
from ...base.stored import Decoded, Extent, Stored
from ...encodings.crc32c import crc32c, masked
from ...encodings.protobuf import BYTES, Message, varint_at
from ...encodings.shapes import checked
from ...encodings.slabs import lengths
from .entries import DTYPES, OTHERS, STRING, as_metadata, string_of
from .sorted_table import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from mmap import mmap

    from ....typing import Array

__all__ = ["INDEX", "STATE", "Bundle", "index_of"]

INDEX = ".index"
STATE = "checkpoint"
"""The file that names the newest checkpoint of a folder."""
_MODELS, _VARIABLES = ("saved_model.pb", "saved_model.pbtxt"), "variables"
"""The programs and the checkpoint in the folder of a SavedModel: https://www.tensorflow.org/guide/saved_model."""
_LONGEST_STRING = 64 << 20
_MOST_SLICES = 1024


class _Summed(Stored):
    """Values without gaps and with a masked CRC-32C, which is compared after all have been read."""

    __slots__ = ("checksum", "dtype", "extent", "shape")

    def __init__(self, extent: Extent, checksum: int) -> None:
        self.dtype = extent.dtype
        self.shape = extent.shape
        self.extent = extent
        self.checksum = checksum

    @property
    def key(self) -> Hashable:
        return self.extent.key

    def where(self, element: int) -> tuple[str | None, int | None]:
        return self.extent.where(element)

    def blocks(self) -> Iterator[Array]:
        found = 0
        for block in self.extent.blocks():
            found = crc32c(block.view(np.uint8), found)
            yield block
        if masked(found) != self.checksum:
            raise FileFormatError(
                f"{self.extent.path} is corrupt: the {self.nbytes} bytes at {self.extent.offset} have another CRC-32C "
                "than the checkpoint's index says.",
                "get the file again",
            )

    def array(self, map_of: Callable[[str], mmap] = mapped) -> Array:
        return self.extent.array(map_of)


class _Entry(NamedTuple):
    """A BundleEntryProto."""

    code: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    nbytes: int
    checksum: int
    slices: tuple[tuple[tuple[int, int], ...], ...]


class Bundle:
    """Reads a checkpoint's index."""

    def __init__(self, index: Path) -> None:
        self._index = index
        self._entries: dict[bytes, bytes] = {}
        self._shards = 0
        self._files: dict[int, tuple[str, int]] = {}

    def contents(self) -> Contents:
        """The contents of the checkpoint."""
        self._entries = dict(read_table(self._index))
        self._header()
        placed = []
        strings: dict[str, str] = {}
        others: dict[str, str] = {}
        for key, value in self._entries.items():
            # A key that begins with a zero byte belongs to a slice, which is listed in the entry of
            # its tensor.
            if key[:1] in (b"", b"\0"):
                continue
            name = self._text(key)
            entry = self._entry(value, name)
            if entry.code == STRING and not entry.shape and not entry.slices:
                strings[name] = self._string(entry, name)
            elif entry.code not in DTYPES:
                if entry.code == STRING:
                    others[name] = NotTensor(f"strings, {list(entry.shape)}")
                else:
                    others[name] = (
                        f"{OTHERS.get(entry.code, f'of type {entry.code}')}, {list(entry.shape)}"
                    )
            else:
                stored, place = self._stored(entry, name)
                placed.append((place, name, stored))
        # The table is sorted by name. The result has the order in which tensors were written.
        placed.sort(key=lambda each: each[:2])
        tensors = {name: stored for _, name, stored in placed}
        paths = (str(self._index), *(path for _, (path, _) in sorted(self._files.items())))
        return Contents("tensorflow", paths, tensors, strings, None, others)

    def _header(self) -> None:
        if b"" not in self._entries:
            raise FileFormatError(f"{self._index} has no header of a TensorFlow checkpoint.")
        header = Message(str(self._index), self._entries[b""])
        numbers = {field.number: field.value for field in header.fields()}
        self._shards = numbers.get(1, 0)
        if numbers.get(2, 0):
            raise FileFormatError(
                f"{self._index} was written by a big-endian machine, which cannot be read."
            )

    def _entry(self, value: bytes, name: str) -> _Entry:
        numbers = dict.fromkeys(range(1, 7), 0)
        shape: list[int] = []
        slices = []
        message = Message(self._where(name), value)
        for field in message.fields():
            if field.number == 2:
                axes = [part for part in message.inner(field) if part.number == 2]
                shape += [
                    next((e.signed for e in message.inner(axis) if e.number == 1), 0)
                    for axis in axes
                ]
            elif field.number == 6:
                numbers[6] = int.from_bytes(value[field.start : field.end], "little")
            elif field.number == 7:
                slices.append(tuple(_axes(message, field)))
            elif field.kind != BYTES:
                numbers[field.number] = field.value
        itemsize = find(DTYPES[numbers[1]]).itemsize if numbers[1] in DTYPES else 1
        whole = checked(shape, itemsize, self._where(name))
        return _Entry(
            numbers[1], whole, numbers[3], numbers[4], numbers[5], numbers[6], tuple(slices)
        )

    def _stored(self, entry: _Entry, name: str) -> tuple[Stored, tuple[int, int]]:
        if entry.slices:
            return self._sliced(entry, name)
        where = self._where(name)
        dtype = DTYPES[entry.code]
        if entry.nbytes != prod(entry.shape) * find(dtype).itemsize:
            raise FileFormatError(
                f"{where} has {entry.nbytes:,} bytes, which is not the size of {dtype} {entry.shape}."
            )
        extent = Extent(dtype, entry.shape, self._place(entry, name), entry.offset)
        return _Summed(extent, entry.checksum), (entry.shard, entry.offset)

    def _sliced(self, entry: _Entry, name: str) -> tuple[Stored, tuple[int, int]]:
        """A partitioned variable, whose slices are separate tensors."""
        where = self._where(name)
        if len(entry.slices) > _MOST_SLICES:
            raise UnsafeFileError(
                f"{where} has {len(entry.slices):,} slices; {_MOST_SLICES:,} are read."
            )
        boxes: list[tuple[tuple[slice, ...], Stored]] = []
        places = []
        for axes in entry.slices:
            part = self._entries.get(_slice_key(name, axes))
            if part is None or len(axes) != len(entry.shape):
                raise FileFormatError(f"{where} lacks its slice {axes}.")
            own = self._entry(part, name)
            box = tuple(
                slice(0, full) if length < 0 else slice(start, start + length)
                for (start, length), full in zip(axes, entry.shape, strict=True)
            )
            inside = all(
                0 <= each.start <= each.stop <= full
                for each, full in zip(box, entry.shape, strict=True)
            )
            if not inside or own.slices or own.code != entry.code or own.shape != lengths(box):
                raise FileFormatError(f"{where} has a slice {axes} that does not fit into it.")
            stored, place = self._stored(own, name)
            boxes.append((box, stored))
            places.append(place)
        if sum(stored.size for _, stored in boxes) != prod(entry.shape) or _overlap(
            [box for box, _ in boxes]
        ):
            raise FileFormatError(f"{where} has slices that overlap or leave gaps.")
        boxes.sort(key=lambda each: [axis.start for axis in each[0]])
        key = tuple(stored.key for _, stored in boxes)
        dtype = DTYPES[entry.code]
        return Decoded(dtype, entry.shape, lambda: _joined(boxes, dtype, entry.shape), key), min(
            places
        )

    def _place(self, entry: _Entry, name: str) -> str:
        where = self._where(name)
        if entry.shard >= self._shards or self._shards > 99_999:
            raise FileFormatError(f"{where} lies in shard {entry.shard:,} of {self._shards:,}.")
        if entry.shard not in self._files:
            path = f"{str(self._index).removesuffix(INDEX)}.data-{entry.shard:05d}-of-{self._shards:05d}"
            if not Path(path).is_file():
                raise FileFormatError(
                    f"{where} lies in {path}, and there is no such file.", "put it beside the index"
                )
            self._files[entry.shard] = path, Path(path).stat().st_size
        path, size = self._files[entry.shard]
        if entry.offset + entry.nbytes > size:
            end = entry.offset + entry.nbytes
            raise FileFormatError(f"{where} ends at byte {end:,} of {path}, which has {size:,}.")
        return path

    def _string(self, entry: _Entry, name: str) -> str:
        where = self._where(name)
        if entry.nbytes > _LONGEST_STRING:
            raise UnsafeFileError(
                f"{where} is a string of {entry.nbytes:,} bytes; {_LONGEST_STRING:,} are read."
            )
        with Path(self._place(entry, name)).open("rb") as file:
            file.seek(entry.offset)
            raw = file.read(entry.nbytes)
        length, at = varint_at(raw, 0, where)
        text = raw[at + 4 :]
        expected, checksum = string_of(text)
        if len(text) != length or expected != raw or masked(checksum) != entry.checksum:
            raise FileFormatError(
                f"{where} is corrupt: its length or its CRC-32C does not fit.", "get the file again"
            )
        return as_metadata(text)

    def _where(self, name: str) -> str:
        return f"{self._index}: {name!r}"

    def _text(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise FileFormatError(
                f"{self._index} has a name that is not UTF-8: {key[:80]!r}."
            ) from error


def index_of(path: Path) -> Path | None:
    """The index of a checkpoint, from the path of the index, its prefix, its folder, or the folder of a SavedModel."""
    if not path.is_dir():
        index = path if path.name.endswith(INDEX) else path.with_name(path.name + INDEX)
        return index if index.is_file() else None
    state = path / STATE
    if state.is_file():
        with state.open("rb") as file:
            found = re.search(
                rb'^model_checkpoint_path:\s*"((?:[^"\\\n]|\\.)*)"',
                file.read(1 << 20),
                re.MULTILINE,
            )
        if found:
            # The text may contain the folder in which it was written, so only the name counts.
            name = (
                found[1]
                .decode("unicode_escape")
                .encode("latin-1", "replace")
                .decode(errors="replace")
            )
            index = path / (name.replace("\\", "/").rpartition("/")[2].replace("\0", "") + INDEX)
            if index.is_file():
                return index
    if any((path / name).is_file() for name in _MODELS):
        index = path / _VARIABLES / f"{_VARIABLES}{INDEX}"
        return index if index.is_file() else None
    found_here = sorted(path.glob(f"*{INDEX}"))
    return found_here[0] if len(found_here) == 1 and found_here[0].is_file() else None


def _axes(message: Message, field: Any) -> Iterator[tuple[int, int]]:
    """Yield the start and length of each axis of a TensorSliceProto.

    A length of -1 means the whole axis.
    """
    for part in message.inner(field):
        if part.number == 1:
            numbers = {each.number: each.signed for each in message.inner(part)}
            yield numbers.get(1, 0), numbers.get(2, -1)


def _slice_key(name: str, axes: tuple[tuple[int, int], ...]) -> bytes:
    """The key of a slice, in TensorFlow's order-preserving encoding: tensorflow/core/lib/strings/ordered_code.h."""
    escaped = re.sub(
        rb"[\0\xff]", lambda found: b"\0\xff" if found[0] == b"\0" else b"\xff\0", name.encode()
    )
    rank = len(axes)
    key = b"\0" + escaped + b"\0\1" + (bytes([1, rank]) if rank else b"\0")
    return key + b"".join(_signed(number) for axis in axes for number in axis)


def _signed(number: int) -> bytes:
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    # As many leading one bits as there are bytes, combined with the sign of the number.
    header = ((1 << length) - 1) << (8 * length - length)
    return ((number & ((1 << 8 * length) - 1)) ^ header).to_bytes(length, "big")


def _overlap(boxes: list[tuple[slice, ...]]) -> bool:
    starts = np.array([[each.start for each in box] for box in boxes], np.int64).reshape(
        len(boxes), -1
    )
    stops = np.array([[each.stop for each in box] for box in boxes], np.int64).reshape(
        len(boxes), -1
    )
    full = (starts < stops).all(1)
    starts, stops = starts[full], stops[full]
    return any(
        bool(((starts[n + 1 :] < stops[n]) & (starts[n] < stops[n + 1 :])).all(1).any())
        for n in range(len(starts) - 1)
    )


def _joined(
    boxes: list[tuple[tuple[slice, ...], Stored]], dtype: str, shape: tuple[int, ...]
) -> Iterator[Array]:
    """Yield the values of a tensor from its slices; slice by slice if they divide the first axis."""
    rows = all(lengths(box)[1:] == shape[1:] for box, _ in boxes)
    if rows and all(a[0].stop == b[0].start for (a, _), (b, _) in pairwise(boxes)):
        for _, stored in boxes:
            yield from stored.blocks()
        return
    whole = np.empty(shape, numpy_dtype(dtype))
    for box, stored in boxes:
        whole[box] = stored.load()
    yield whole
