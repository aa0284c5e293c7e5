"""GGUF: the tensors of a file, those in quantised blocks as their bytes, and its key-value pairs.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Its header is read here, not
by the gguf library, which makes several arrays for each string of a vocabulary and trusts every
count.
"""

from __future__ import annotations

import json
import math
import os
import struct
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ...errors import FileFormatError, FormatLimitError, FrameworkNotInstalledError, UnsafeFileError
from ..base.contents import MOST_TENSORS, Blocks, Contents, blocks_of, with_block_kinds
from ..base.format import Format
from ..base.limits import FileHint, Metadataless, OtherDtypes, Undecoded, Without, other_names
from ..base.nesting import keys_of
from ..base.raw import write_fully
from ..base.stored import BLOCK_BYTES, BoxReader, Extent, Stored
from ..base.tree_strings import packed, unpacked
from ..base.wording import is_unicode, named
from ..encodings.array_parts import checked, cuts, filled
from ..ranges.cutting import copy_part, over_map

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from pathlib import Path

    from ...typing import Array
    from ..base.pump import Pump
    from ..base.stored import FilePlace

__all__ = [
    "ARRAY",
    "BLOCKS_BY_CODE",
    "CODES_BY_BLOCKS",
    "DEEPEST",
    "KINDS",
    "STRING",
    "VALUES",
    "Dequantised",
    "tagged",
    "text",
    "untagged",
]

VALUES = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "?"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
"""The name and the `struct` format of each gguf_metadata_value_type."""
STRING, ARRAY = 8, 9
KINDS = {name: kind for kind, (name, _) in VALUES.items()} | {"string": STRING, "array": ARRAY}
_NAMES = {kind: name for name, kind in KINDS.items()}
_TAG = "gguf."

DEEPEST = 4
"""The deepest nesting of arrays."""


def tagged(kind: int, value: Any) -> str:
    """A value as metadata: JSON with its type, or a string as it is, unless it looks tagged."""
    if kind == STRING and _is_plain(value):
        return str(value)
    return _json(kind, value)


def _is_plain(text: str) -> bool:
    return is_unicode(text) and untagged(text) is None


def _json(kind: int, value: Any) -> str:
    return json.dumps(_noted(kind, value), separators=(",", ":"))


def _noted(kind: int, value: Any) -> dict[str, Any]:
    if kind != ARRAY:
        return {_TAG + _NAMES[kind]: value}
    inner, items = value
    key = f"{_TAG}array.{_NAMES[inner]}"
    return {key: [_noted(ARRAY, item) for item in items] if inner == ARRAY else items}


def untagged(text: str) -> bytes | None:
    """The bytes of a type and value for a text from `tagged`; ``None`` for a plain string."""
    if not text.startswith('{"' + _TAG):
        return None
    try:
        note = json.loads(text)
        if json.dumps(note, separators=(",", ":")) != text:
            return None
        kind, raw = _packed(note, 0)
        if kind == STRING and _is_plain(note[_TAG + "string"]):
            return None
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
        struct.error,
    ):
        return None
    return struct.pack("<I", kind) + raw


def _packed(note: dict[str, Any], depth: int) -> tuple[int, bytes]:
    (key, value), *rest = note.items()
    if rest or not key.startswith(_TAG) or depth >= DEEPEST:
        raise ValueError(key)
    name = key[len(_TAG) :]
    if not name.startswith("array."):
        return KINDS[name], _scalar(name, value)
    inner = name[len("array.") :]
    if type(value) is not list:
        raise TypeError(key)
    if inner == "array":
        items = [_packed(item, depth + 1) for item in value]
        if any(kind != ARRAY for kind, _ in items):
            raise ValueError(key)
        raw = b"".join(part for _, part in items)
    else:
        raw = b"".join(_scalar(inner, item) for item in value)
    return ARRAY, struct.pack("<IQ", KINDS[inner], len(value)) + raw


def _scalar(name: str, value: Any) -> bytes:
    if name == "string":
        return text(value)
    code = VALUES[KINDS[name]][1]
    if code in "fd":
        width = struct.calcsize("=" + code)
        if type(value) is str:
            bits = int(value, 16)
            if f"{bits:0{2 * width}x}" != value:
                raise ValueError(value)
            raw = bits.to_bytes(width, "little")
            if math.isfinite(struct.unpack("<" + code, raw)[0]):
                raise ValueError(value)
            return raw
        raw = struct.pack("<" + code, value)
        if (
            type(value) is not float
            or not math.isfinite(value)
            or struct.unpack("<" + code, raw)[0] != value
        ):
            raise ValueError(value)
        return raw
    if type(value) is not (bool if name == "bool" else int):
        raise TypeError(value)
    return struct.pack("<" + code, value)


def text(value: str) -> bytes:
    """A string with its length before it."""
    raw = value.encode(errors="surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


_32 = {
    2: ("Q4_0", 18),
    3: ("Q4_1", 20),
    6: ("Q5_0", 22),
    7: ("Q5_1", 24),
    8: ("Q8_0", 34),
    9: ("Q8_1", 40),
}
_32 |= {20: ("IQ4_NL", 18), 39: ("MXFP4", 17)}
_256 = {
    10: ("Q2_K", 84),
    11: ("Q3_K", 110),
    12: ("Q4_K", 144),
    13: ("Q5_K", 176),
    14: ("Q6_K", 210),
}
_256 |= {
    15: ("Q8_K", 292),
    16: ("IQ2_XXS", 66),
    17: ("IQ2_XS", 74),
    18: ("IQ3_XXS", 98),
    19: ("IQ1_S", 50),
}
_256 |= {
    21: ("IQ3_S", 110),
    22: ("IQ2_S", 82),
    23: ("IQ4_XS", 136),
    29: ("IQ1_M", 56),
    34: ("TQ1_0", 54),
}
_256 |= {35: ("TQ2_0", 66)}
_ALL = {32: _32, 64: {40: ("NVFP4", 36)}, 128: {41: ("Q1_0", 18)}, 256: _256}
"""Names and bytes by ggml_type, for each length.

See https://github.com/ggml-org/ggml/blob/master/include/ggml.h.
"""
BLOCKS_BY_CODE = {
    code: Blocks(f"gguf.{name}", length, nbytes)
    for length, kinds in _ALL.items()
    for code, (name, nbytes) in kinds.items()
}
CODES_BY_BLOCKS = {blocks: code for code, blocks in BLOCKS_BY_CODE.items()}


class Dequantised(Stored):
    """The numbers of a tensor in blocks, as float32.

    Args:
        inner: The bytes.
        blocks: The kind of blocks.
        name: The name of the tensor in errors.

    Raises:
        FrameworkNotInstalledError: The library is not installed.
        FormatLimitError: It does not dequantise such blocks.
    """

    __slots__ = ("_kind", "blocks_held", "dtype", "inner", "shape")

    def __init__(self, inner: Stored, blocks: Blocks, name: str) -> None:
        try:
            import gguf
        except ImportError as error:
            raise FrameworkNotInstalledError(
                "Dequantising needs gguf, which is not installed.", "pip install gguf"
            ) from error
        self.inner = inner
        self.dtype = "float32"
        self.shape = blocks.shape(inner.shape)
        self.blocks_held = blocks
        try:
            self._kind: Any = gguf.GGMLQuantizationType(CODES_BY_BLOCKS[blocks])
            self._numbers(np.zeros(blocks.nbytes, np.uint8))
        except (KeyError, ValueError, NotImplementedError) as error:
            raise FormatLimitError(
                f"{name} is in blocks of {blocks.kind}, which the gguf library that is installed "
                "does not dequantise.",
                FileHint(Without({name: ()}), Undecoded()),
            ) from error

    @property
    def key(self) -> Hashable:
        return (self.inner.key, self.blocks_held)

    def blocks(self) -> Iterator[np.ndarray[Any, Any]]:
        step = max(BLOCK_BYTES // (4 * self.blocks_held.length), 1) * self.blocks_held.nbytes
        for piece in filled(self.inner.blocks(), cuts(self.inner.size, step), np.dtype(np.uint8)):
            yield self._numbers(piece)

    def box_reader(self) -> BoxReader | None:
        """See `Stored.box_reader`: the blocks of a part, where the file has them as they are."""
        place = self.inner.place()
        if place is None:
            return None
        chunk = *(1 for _ in self.shape[1:]), self.blocks_held.length
        return BoxReader(chunk, partial(self._box, place))

    def _box(self, place: FilePlace, slices: tuple[slice, ...]) -> Array:
        length, nbytes = self.blocks_held.length, self.blocks_held.nbytes
        *outer, last = slices
        wanted = np.arange(last.start, last.stop, last.step)
        held = np.unique(wanted // length)
        split = place._replace(strides=(*place.strides[:-1], nbytes * place.strides[-1], 1))
        shape = (*self.shape[:-1], self.shape[-1] // length, nbytes)
        there = over_map(split, shape, "uint8")[tuple(outer)]
        if held.size == held[-1] - held[0] + 1:
            blocks = there[..., held[0] : held[-1] + 1, :]
            raw = np.empty(blocks.shape, np.uint8)
            copy_part(raw, blocks)
        else:
            raw = np.ascontiguousarray(there[..., held, :])
        numbers = self._numbers(raw).reshape(*raw.shape[:-2], held.size * length)
        at = np.searchsorted(held, wanted // length) * length + wanted % length
        box: Array = numbers[..., at]
        return box

    def _numbers(self, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        import gguf

        # An infinite or NaN scale gives infinite or NaN numbers, without a warning.
        with np.errstate(all="ignore"):
            rows = raw.reshape(-1, self.blocks_held.nbytes)
            decoded: np.ndarray[Any, Any] = (
                gguf.dequantize(rows, self._kind).astype(np.float32, copy=False).reshape(-1)
            )
        return decoded


_MAGIC = b"GGUF"
_VERSION = 3
_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_OWN_ALIGNMENT = 64

# ggml_type, in https://github.com/ggml-org/ggml/blob/master/include/ggml.h.
_DTYPES = {
    0: "float32",
    1: "float16",
    24: "int8",
    25: "int16",
    26: "int32",
    27: "int64",
    28: "float64",
    30: "bfloat16",
}
_CODES = {name: code for code, name in _DTYPES.items()}
_LONGEST_HEADER = 100_000_000
_MOST_ELEMENTS = 8_000_000
_LONGEST_KEY = 65535
# ggml keeps a name in 64 bytes, the last of which is zero, and refuses a file with a longer one.
_LONGEST_NAME = 63


def _shortened(name: str) -> str:
    """The end of a name, as much as it may have: that says which layer it is."""
    return name.encode()[-_LONGEST_NAME:].decode(errors="ignore")


class Gguf(Format):
    """GGUF files of versions 2 and 3, either byte order; quantised blocks as bytes: `base.blocks`.

    Keys and values are kept as metadata: a string as it is, another value as JSON with its type,
    such as ``{"gguf.uint32": 7}``, from which it is written back the same.
    """

    name = "gguf"
    title = "GGUF"
    suffixes = (".gguf",)
    dtypes = frozenset(_CODES)
    holds_tree = True
    holds_metadata = True
    unicode_only = True
    most_axes = 4

    def recognises(self, path: Path, head: bytes) -> bool:
        return head[:4] == _MAGIC

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        with path.open("rb") as file:
            return unpacked(_Header(file, str(path)).contents())

    def lacks(self, contents: Contents) -> list[str]:
        blocks = blocks_of(contents)
        return [name for name in super().lacks(contents) if blocks.get(name) not in CODES_BY_BLOCKS]

    def refuse(self, contents: Contents) -> None:
        long = [name for name in contents.tensors if len(name.encode()) > _LONGEST_NAME]
        what = f"cannot hold a name of more than {_LONGEST_NAME} bytes"
        self.refuse_any(long, what, other_names(contents, long, _shortened))
        # gguf-py takes the last axis of whatever is not one of NumPy's own types, and fails over
        # the whole file.
        bare = [
            name
            for name, stored in contents.tensors.items()
            if not stored.shape and stored.dtype == "bfloat16"
        ]
        if bare:
            raise FormatLimitError(
                "A GGUF file with a bfloat16 that has no axes cannot be opened by its own "
                f"library: {named(bare)}.",
                FileHint(
                    OtherDtypes(dict.fromkeys(bare, "bfloat16"), {"bfloat16": "float32"}),
                    Without(keys_of(contents, bare)),
                ),
            )
        keys = [
            key
            for key in contents.metadata
            if key == _ALIGNMENT or len(key.encode()) > _LONGEST_KEY
        ]
        hint = FileHint(Metadataless(tuple(keys)))
        self.refuse_any((key[:80] for key in keys), "cannot hold metadata under these names", hint)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        strings = packed(contents)
        ties = contents.ties
        tensors = {name: stored for name, stored in contents.tensors.items() if name not in ties}
        with path.open("xb", buffering=0) as file:
            at = write_fully(
                file.fileno(), _head(tensors, with_block_kinds(strings, {}), blocks_of(contents))
            )
            for stored in tensors.values():
                pump.copy(stored, file.fileno())
                at += stored.nbytes
                at += write_fully(file.fileno(), bytes(-at % _OWN_ALIGNMENT))

    def dequantised(self, stored: Stored, blocks: Blocks, name: str) -> Stored:
        return Dequantised(stored, blocks, name)


class _Header:
    """Reads a file's header."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self._at = 0
        self._order = "<"
        self._elements = 0

    def contents(self) -> Contents:
        if self._take(4) != _MAGIC:
            raise FileFormatError(f"{self._path} does not begin with {_MAGIC.decode()}.")
        version: int = self._number("I")
        if not version & 0xFFFF:
            self._order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            raise FileFormatError(
                f"{self._path} is of version {version} of GGUF; 2 and 3 can be read.",
                "convert it with the llama.cpp that wrote it",
            )
        tensors, pairs = self._number("Q"), self._number("Q")
        # Each entry takes some bytes of the file, so that a larger count is wrong.
        if tensors > self._size // 24 or pairs > self._size // 13:
            raise FileFormatError(
                f"{self._path} claims {tensors:,} tensors and "
                f"{pairs:,} keys in {self._size:,} bytes."
            )
        if tensors > MOST_TENSORS:
            raise UnsafeFileError(f"{self._path} has {tensors:,} tensors, out of all proportion.")
        contents = Contents("gguf", (self._path,))
        alignment = self._pairs(pairs, contents)
        self._tensors(tensors, alignment, contents)
        return contents

    def _pairs(self, count: int, contents: Contents) -> int:
        alignment = _DEFAULT_ALIGNMENT
        seen = set()
        for _ in range(count):
            key = self._text()
            if key in seen:
                raise FileFormatError(f"{self._path} has the key {key[:80]!r} twice.")
            seen.add(key)
            kind: int = self._number("I")
            value = self._value(kind, 0)
            if key == _ALIGNMENT:
                alignment = value
                if kind != KINDS["uint32"] or not value or value & (value - 1):
                    raise FileFormatError(
                        f"{self._path} has an alignment that is no power of two: {value!r:.80}."
                    )
            else:
                contents.metadata[key] = tagged(kind, value)
        return alignment

    def _tensors(self, count: int, alignment: int, contents: Contents) -> None:
        entries = []
        for _ in range(count):
            name = self._text()
            axes: int = self._number("I")
            if axes > 64:
                raise FileFormatError(f"{self._path} has a tensor of {axes:,} axes: {name[:80]!r}.")
            # The first axis varies fastest, so it is the last one of a row-major array.
            lengths = [self._number("Q") for _ in range(axes)][::-1]
            entries.append((name, lengths, self._number("I"), self._number("Q")))
        begin = self._at + -self._at % alignment
        spans = []
        noted_blocks = {}
        for name, lengths, code, offset in entries:
            if name in contents.tensors or name in contents.others:
                raise FileFormatError(f"{self._path} has two tensors named {name[:80]!r}.")
            where = f"{self._path}: {name[:80]!r}"
            start = begin + offset
            if offset % alignment:
                raise FileFormatError(
                    f"{where} begins at byte {start:,}, which is not aligned to {alignment}."
                )
            shape = checked(lengths, 8, where)
            blocks = BLOCKS_BY_CODE.get(code)
            nbytes = 1 if math.prod(shape) else 0
            if code in _DTYPES or (blocks is not None and self._order == "<"):
                dtype = _DTYPES.get(code, "uint8")
                if blocks is not None:
                    shape = _in_bytes(shape, blocks, where)
                    noted_blocks[name] = blocks
                stored = Extent(dtype, shape, self._path, start, swapped=self._order == ">")
                contents.tensors[name] = stored
                nbytes = stored.nbytes
            elif blocks is not None:
                contents.others[name] = (
                    f"{blocks.kind.removeprefix('gguf.')}, quantised in big-endian blocks, "
                    f"{list(shape)}"
                )
            else:
                contents.others[name] = f"of type {code}, which is not known here, {list(shape)}"
            spans.append((start, start + nbytes, name))
        contents.metadata = with_block_kinds(contents.metadata, noted_blocks)
        end = 0
        for start, stop, name in sorted(spans):
            if stop > start and (start < end or stop > self._size):
                if stop > self._size:
                    what = "ends past the file"
                else:
                    what = "overlaps the one before it"
                raise FileFormatError(f"{self._path}: {name[:80]!r}, at byte {start:,}, {what}.")
            end = max(end, stop)

    def _value(self, kind: int, depth: int) -> Any:
        if kind == STRING:
            return self._text(strict=False)
        if kind == ARRAY:
            return self._array(depth + 1)
        if kind not in VALUES:
            raise FileFormatError(
                f"{self._path} has a value of type {kind} at byte {self._at}, which is unknown."
            )
        return self._numbers(kind, 1)[0]

    def _array(self, depth: int) -> tuple[int, list[Any]]:
        inner: int = self._number("I")
        count: int = self._number("Q")
        self._elements += count
        if depth > DEEPEST or self._elements > _MOST_ELEMENTS:
            raise UnsafeFileError(
                f"{self._path} has {self._elements:,} values in arrays, {depth} deep; "
                f"{_MOST_ELEMENTS:,} and {DEEPEST} is the most that is read."
            )
        if inner in (STRING, ARRAY):
            return inner, [self._value(inner, depth) for _ in range(count)]
        if inner not in VALUES:
            raise FileFormatError(
                f"{self._path} has an array of type {inner} at byte {self._at}, which is unknown."
            )
        return inner, self._numbers(inner, count)

    def _numbers(self, kind: int, count: int) -> list[Any]:
        code = VALUES[kind][1]
        width = struct.calcsize("=" + code)
        raw = self._take(width * count)
        if code == "?" and raw.strip(b"\0\1"):
            raise FileFormatError(
                f"{self._path} has a truth value before byte {self._at} that is neither 0 nor 1."
            )
        numbers = list(struct.unpack(f"{self._order}{count}{code}", raw))
        if code in "fd" and not all(map(math.isfinite, numbers)):
            # JSON has no NaN, and a NaN has a payload, so such numbers are kept as bits.
            bits = struct.unpack(f"{self._order}{count}{'I' if code == 'f' else 'Q'}", raw)
            numbers = [
                n if math.isfinite(n) else f"{b:0{2 * width}x}"
                for n, b in zip(numbers, bits, strict=True)
            ]
        return numbers

    def _number(self, code: str) -> Any:
        return struct.unpack(self._order + code, self._take(struct.calcsize("=" + code)))[0]

    def _text(self, *, strict: bool = True) -> str:
        raw = self._take(self._number("Q"))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if strict:
                raise FileFormatError(
                    f"{self._path} has a name before byte {self._at} that is not UTF-8."
                ) from error
            return raw.decode(errors="surrogateescape")

    def _take(self, count: int) -> bytes:
        if self._at + count > _LONGEST_HEADER:
            raise (FileFormatError if self._at + count > self._size else UnsafeFileError)(
                f"{self._path} has a header of more than {_LONGEST_HEADER:,} bytes.",
                "get the file again",
            )
        if count <= self._size - self._at:
            raw = self._file.read(count)
        else:
            raw = b""
        if len(raw) < count:
            raise FileFormatError(
                f"{self._path} ends in the middle of its header, before byte {self._at + count:,}."
            )
        self._at += count
        return raw


def _in_bytes(shape: tuple[int, ...], blocks: Blocks, where: str) -> tuple[int, ...]:
    """The shape in bytes of a tensor in blocks."""
    if not shape or shape[-1] % blocks.length:
        raise FileFormatError(
            f"{where}, of shape {list(shape)}, is no whole number of blocks of {blocks.length}."
        )
    return (*shape[:-1], shape[-1] // blocks.length * blocks.nbytes)


def _head(tensors: dict[str, Stored], strings: dict[str, str], blocks: dict[str, Blocks]) -> bytes:
    """The header of a file: everything before the data."""
    pairs = [text(_ALIGNMENT) + struct.pack("<II", KINDS["uint32"], _OWN_ALIGNMENT)]
    for key, held in strings.items():
        pairs.append(text(key) + (untagged(held) or struct.pack("<I", STRING) + text(held)))
    head = [_MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(pairs)), *pairs]
    offset = 0
    for name, stored in tensors.items():
        kind = blocks.get(name)
        if kind is None:
            shape = stored.shape
        else:
            shape = kind.shape(stored.shape)
        lengths = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        place = struct.pack(
            "<IQ", _CODES[stored.dtype] if kind is None else CODES_BY_BLOCKS[kind], offset
        )
        head.append(text(name) + struct.pack("<I", len(stored.shape)) + lengths + place)
        offset += stored.nbytes + -stored.nbytes % _OWN_ALIGNMENT
    whole = b"".join(head)
    return whole + bytes(-len(whole) % _OWN_ALIGNMENT)


FORMAT = Gguf()
