"""TensorFlow checkpoints, as ``tf.train.Checkpoint`` and ``tf.compat.v1.train.Saver`` write them.

A sorted table of protocol messages, ``NAME.index``, has the position of each tensor in
``NAME.data-…``:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto.
They are read and written here without TensorFlow, which takes seconds to import and has each tensor
in memory.
"""

from __future__ import annotations

import base64
import re
import struct
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...errors import FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import Contents, NotTensor
from ..base.format import Format, owned
from ..base.limits import FileHint, Metadataless, Renamed
from ..base.nesting import keys_of
from ..base.raw import mapped, write_fully
from ..base.stored import Decoded, Extent, Stored
from ..base.tree_strings import TIES, TREE, packed, unpacked
from ..encodings.array_parts import checked, lengths
from ..encodings.crc32c import crc32c, masked
from ..encodings.protobuf import BYTES, Message, bytes_field, number_field, varint, varint_at

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from mmap import mmap

    from ...typing import Array
    from ..base.pump import Pump
    from ..base.stored import FilePlace

__all__ = [
    "CODES",
    "DTYPES",
    "INDEX",
    "OTHERS",
    "STATE",
    "STRING",
    "Bundle",
    "as_metadata",
    "entry_of",
    "from_metadata",
    "index_of",
    "is_table",
    "read_table",
    "string_of",
    "table",
]

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
_LARGEST = 256 << 20
_LONGEST_KEY = 1 << 16
_BLOCK = 1 << 15


def is_table(path: Path) -> bool:
    """Whether a file is such a table, by its end."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < _FOOTER:
            return False
        file.seek(size - 8)
        return file.read() == struct.pack("<Q", _MAGIC)


def read_table(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, in order.

    Raises:
        FileFormatError: It breaks the rules of the format, or a checksum is wrong.
        UnsafeFileError: It is too large for a table of names.
    """
    if path.stat().st_size > _LARGEST:
        raise UnsafeFileError(
            f"{path} is larger than {_LARGEST:,} bytes, which is the most that is read of a table."
        )
    data = path.read_bytes()
    if len(data) < _FOOTER or data[-8:] != struct.pack("<Q", _MAGIC):
        raise FileFormatError(f"{path} does not end as a table does; it may be cut off.")
    footer = data[-_FOOTER:]
    meta, at = _handle(footer, 0, path)
    index, _ = _handle(footer, at, path)
    # Its entries are not needed, but its checksum is compared.
    list(_entries(data, meta, path))
    before = b""
    for number, (_, place) in enumerate(_entries(data, index, path)):
        handle, _ = _handle(place, 0, path)
        for key, value in _entries(data, handle, path):
            if key <= before and (number or before):
                raise FileFormatError(
                    f"{path} has its keys out of order: {key[:80]!r} after {before[:80]!r}."
                )
            yield key, value
            before = key


def _handle(data: bytes, at: int, path: Path) -> tuple[tuple[int, int], int]:
    offset, at = varint_at(data, at, str(path))
    size, at = varint_at(data, at, str(path))
    return (offset, size), at


def _entries(data: bytes, handle: tuple[int, int], path: Path) -> Iterator[tuple[bytes, bytes]]:
    offset, size = handle
    if offset + size + _TRAILER > len(data) - _FOOTER or size < 4:
        raise FileFormatError(
            f"{path} has a block of {size:,} bytes at {offset:,}, which is not in the file."
        )
    block = data[offset : offset + size]
    kind, checksum = struct.unpack("<BI", data[offset + size : offset + size + _TRAILER])
    if kind:
        raise FileFormatError(f"{path} has a compressed block at {offset:,}, which is not read.")
    if masked(crc32c(data[offset : offset + size + 1])) != checksum:
        raise FileFormatError(
            f"{path} is corrupt: the block at {offset:,} has another CRC-32C.", "get the file again"
        )
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise FileFormatError(
            f"{path} has a block at {offset:,} whose restarts do not fit into it."
        )
    at, key = 0, b""
    while at < end:
        shared, at = varint_at(block, at, str(path))
        added, at = varint_at(block, at, str(path))
        length, at = varint_at(block, at, str(path))
        if shared > len(key) or at + added + length > end or shared + added > _LONGEST_KEY:
            raise FileFormatError(
                f"{path} has an entry in the block at {offset:,} that does not fit into it."
            )
        key = key[:shared] + block[at : at + added]
        at += added
        yield key, block[at : at + length]
        at += length


def table(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a table with these sorted keys and values."""
    data = bytearray()
    index: list[tuple[bytes, bytes]] = []
    block: list[bytes] = []
    last, size = b"", 0
    for last, value in items:
        block.append(_entry(last, value))
        size += len(block[-1])
        if size > _BLOCK:
            index.append((last, _append(data, block)))
            block, size = [], 0
    if block or not index:
        index.append((last, _append(data, block)))
    meta = _append(data, [])
    footer = meta + _append(data, [_entry(key, handle) for key, handle in index])
    return bytes(data) + footer.ljust(_FOOTER - 8, b"\0") + struct.pack("<Q", _MAGIC)


def _entry(key: bytes, value: bytes) -> bytes:
    """An entry with its whole key, so that a search can start there."""
    return varint(0) + varint(len(key)) + varint(len(value)) + key + value


def _append(data: bytearray, entries: list[bytes]) -> bytes:
    """Append a block of entries, and return its handle."""
    starts = [0, *accumulate(map(len, entries[:-1]))]
    raw = b"".join(entries) + struct.pack(f"<{len(starts) + 1}I", *starts, len(starts))
    handle = varint(len(data)) + varint(len(raw))
    data += raw + b"\0" + struct.pack("<I", masked(crc32c(raw + b"\0")))
    return handle


DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz",
    28: "float8_e5m2fnuz",
    29: "int4",
    30: "uint4",
    31: "int2",
    32: "uint2",
    33: "float4_e2m1fn",
}
"""https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/types.proto"""
CODES = {name: code for code, name in DTYPES.items()}
STRING = 7
OTHERS = {
    11: "qint8",
    12: "quint8",
    13: "qint32",
    15: "qint16",
    16: "quint16",
    20: "a resource",
    21: "a variant",
}

_BASE64 = "tensorflow.base64:"


def as_metadata(text: bytes) -> str:
    """Bytes as metadata: as text if they are UTF-8 and do not look encoded; otherwise in base64."""
    try:
        plain = text.decode()
    except UnicodeDecodeError:
        plain = None
    if plain is not None and from_metadata(plain) == text:
        return plain
    return _BASE64 + base64.b64encode(text).decode()


def from_metadata(text: str) -> bytes:
    """The bytes for a text from `as_metadata`."""
    if text.startswith(_BASE64):
        try:
            raw = base64.b64decode(text[len(_BASE64) :], validate=True)
        except ValueError:
            return text.encode()
        if as_metadata(raw) == text:
            return raw
    return text.encode()


def string_of(text: bytes) -> tuple[bytes, int]:
    """The encoding of a string without axes, and its checksum.

    In the checksum, the length counts as four or eight bytes.
    """
    width = "<I" if len(text) < 1 << 32 else "<Q"
    checksum = crc32c(struct.pack(width, len(text)))
    own = struct.pack("<I", masked(checksum))
    return varint(len(text)) + own + text, crc32c(own + text, checksum)


def entry_of(code: int, shape: tuple[int, ...], offset: int, nbytes: int, checksum: int) -> bytes:
    """A BundleEntryProto."""
    axes = b"".join(bytes_field(2, number_field(1, length)) for length in shape)
    entry = (
        number_field(1, code)
        + bytes_field(2, axes)
        + number_field(4, offset)
        + number_field(5, nbytes)
    )
    return entry + varint(6 << 3 | 5) + struct.pack("<I", masked(checksum))


INDEX = ".index"
STATE = "checkpoint"
"""The file that names the newest checkpoint of a folder."""
_MODELS, _VARIABLES = ("saved_model.pb", "saved_model.pbtxt"), "variables"
"""The programs and checkpoint of a SavedModel: https://www.tensorflow.org/guide/saved_model."""
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

    def place(self) -> FilePlace | None:
        return self.extent.place()

    def blocks(self) -> Iterator[Array]:
        checksum = 0
        for block in self.extent.blocks():
            checksum = crc32c(block.view(np.uint8), checksum)
            yield block
        if masked(checksum) != self.checksum:
            raise FileFormatError(
                f"{self.extent.path} is corrupt: the {self.nbytes} bytes at {self.extent.offset} "
                "have another CRC-32C "
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
        placed.sort(key=lambda placed_entry: placed_entry[:2])
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
        if numbers[1] in DTYPES:
            itemsize = find(DTYPES[numbers[1]]).itemsize
        else:
            itemsize = 1
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
                f"{where} has {entry.nbytes:,} bytes, "
                f"which is not the size of {dtype} {entry.shape}."
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
                0 <= cut.start <= cut.stop <= full
                for cut, full in zip(box, entry.shape, strict=True)
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
        boxes.sort(key=lambda placed: [axis.start for axis in placed[0]])
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
    """A checkpoint's index, from its path, prefix or folder, or the folder of a SavedModel."""
    if not path.is_dir():
        if path.name.endswith(INDEX):
            index = path
        else:
            index = path.with_name(path.name + INDEX)
        return index if index.is_file() else None
    state = path / STATE
    if state.is_file():
        with state.open("rb") as file:
            match = re.search(
                rb'^model_checkpoint_path:\s*"((?:[^"\\\n]|\\.)*)"',
                file.read(1 << 20),
                re.MULTILINE,
            )
        if match:
            # The text may contain the folder in which it was written, so only the name counts.
            name = (
                match[1]
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
    if len(found_here) == 1 and found_here[0].is_file():
        return found_here[0]
    return None


def _axes(message: Message, field: Any) -> Iterator[tuple[int, int]]:
    """Yield the start and length of each axis of a TensorSliceProto.

    A length of -1 means the whole axis.
    """
    for part in message.inner(field):
        if part.number == 1:
            numbers = {number.number: number.signed for number in message.inner(part)}
            yield numbers.get(1, 0), numbers.get(2, -1)


def _slice_key(name: str, axes: tuple[tuple[int, int], ...]) -> bytes:
    """A slice's key, encoded to keep the order: tensorflow/core/lib/strings/ordered_code.h."""
    escaped = re.sub(
        rb"[\0\xff]", lambda match: b"\0\xff" if match[0] == b"\0" else b"\xff\0", name.encode()
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
    starts = np.array([[axis.start for axis in box] for box in boxes], np.int64).reshape(
        len(boxes), -1
    )
    stops = np.array([[axis.stop for axis in box] for box in boxes], np.int64).reshape(
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
    """Yield a tensor's values from its slices; slice by slice if they divide the first axis."""
    rows = all(lengths(box)[1:] == shape[1:] for box, _ in boxes)
    if rows and all(a[0].stop == b[0].start for (a, _), (b, _) in pairwise(boxes)):
        for _, stored in boxes:
            yield from stored.blocks()
        return
    whole = np.empty(shape, numpy_dtype(dtype))
    for box, stored in boxes:
        whole[box] = stored.load()
    yield whole


_PREFIX = "variables"
_ALIGNMENT = 64


def _better_name(name: str) -> str:
    return name.lstrip("\0") or "tensor"


class TensorflowCheckpoint(Format):
    """TensorFlow checkpoints (version 2, since 2016). The output is a folder with one checkpoint.

    From the folder of a SavedModel the variables are read, not the programs. Strings without axes
    become metadata, also the object graph that ``tf.train.Checkpoint`` needs. Those that are not
    UTF-8 are in base64, after ``tensorflow.base64:``.
    """

    name = "tensorflow"
    title = "TensorFlow checkpoint"
    suffixes = (".tfckpt",)
    other_suffixes = (".ckpt",)
    dtypes = frozenset(CODES)
    is_folder = True
    holds_tree = True
    holds_metadata = True
    unicode_only = True
    rank = 70

    def recognises(self, path: Path, head: bytes) -> bool:
        if head and not path.name.endswith(INDEX):
            return False
        index = index_of(path)
        return index is not None and is_table(index)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        index = index_of(path)
        if index is None:
            raise FileFormatError(
                f"{path} has no TensorFlow checkpoint, or several.",
                f"the path of one, such as {path}/ckpt-1{INDEX}",
            )
        return unpacked(Bundle(index).contents())

    def refuse(self, contents: Contents) -> None:
        wrong = [
            name
            for name in (*contents.tensors, *contents.metadata)
            if not name or name.startswith("\0")
        ]
        wrong += [name for name in packed(contents) if name in contents.tensors]
        what = "needs a name of its own for each tensor and each string"
        ours = keys_of(contents, [name for name in wrong if name in contents.tensors])
        theirs = tuple(key for key in wrong if key in contents.metadata)
        taken = frozenset((*contents.tensors, *contents.metadata, TREE, TIES))
        renamed = Renamed(ours, taken, _better_name)
        self.refuse_any(wrong, what, FileHint(renamed if ours else Metadataless(theirs)))

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        path.mkdir()
        entries = [(b"", number_field(1, 1) + bytes_field(3, number_field(1, 1)))]
        ties = contents.ties
        with (path / f"{_PREFIX}.data-00000-of-00001").open("xb", buffering=0) as file:
            at = 0
            for name, stored in contents.tensors.items():
                if name in ties:
                    continue
                # An empty tensor also gets some room, so that offsets have the order of names.
                at += write_fully(
                    file.fileno(), bytes(-at % _ALIGNMENT or (0 if stored.size else _ALIGNMENT))
                )
                checksum, begin = 0, at
                for block in pump.blocks(stored):
                    checksum = crc32c(block.view(np.uint8), checksum)
                    at += write_fully(file.fileno(), block.view(np.uint8))
                entries.append(
                    (
                        name.encode(),
                        entry_of(CODES[stored.dtype], stored.shape, begin, at - begin, checksum),
                    )
                )
            for key, text in packed(contents).items():
                raw, checksum = string_of(from_metadata(text))
                entries.append((key.encode(), entry_of(STRING, (), at, len(raw), checksum)))
                at += write_fully(file.fileno(), raw)
        (path / f"{_PREFIX}{INDEX}").write_bytes(table(sorted(entries)))
        (path / STATE).write_text(
            f'model_checkpoint_path: "{_PREFIX}"\nall_model_checkpoint_paths: "{_PREFIX}"\n',
            "utf-8",
        )

    def own_entries(self, folder: Path) -> list[str]:
        index = index_of(folder)
        if index is None:
            return []
        stem = re.escape(index.name.removesuffix(INDEX))
        return owned(
            folder,
            re.compile(
                rf"{STATE}|{stem}(?:{re.escape(INDEX)}|\.data-\d{{5}}-of-\d{{5}})"
            ).fullmatch,
        )


FORMAT = TensorflowCheckpoint()
