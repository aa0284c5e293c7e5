"""`Scan`: the header of a safetensors file, its dtypes, and everything that is wrong with it.

The official reader: https://github.com/huggingface/safetensors/blob/main/safetensors/src/tensor.rs.
"""

from __future__ import annotations

import json
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import UnsafeFileError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import MOST_TENSORS, FileFinding
from ...base.raw import bytes_of, held_open, read_at
from ...base.stored import Decoded, Extent
from ...base.wording import is_unicode, named
from ...encodings.json_scan import Cut, blank, compound, expect, string, strings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ....typing import Array
    from ...base.stored import Stored

__all__ = ["DTYPES", "HEADER_LIMIT", "METADATA", "NAMES", "NIBBLES", "Scan"]

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
    "F4": "float4_e2m1fn",
}
NIBBLES = "float4_e2m1fn"
"""The dtype with two numbers in a byte, the first in the low half: ``torch.float4_e2m1fn_x2``."""
NAMES = {canonical: name for name, canonical in DTYPES.items()}
UNPACKED = ("F6_E2M3", "F6_E3M2")
BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(UNPACKED, 6),
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}

HEADER_LIMIT = 100_000_000
"""The longest header that the official reader accepts."""
METADATA = "__metadata__"
_MOST_AXES = 64
"""NumPy's limit: https://numpy.org/devdocs/release/2.0.0-notes.html"""

_METADATA_NAME = b'"__metadata__"'
_FIELDS = ("dtype", "shape", "data_offsets")
_LONGEST_NAME = 1 << 20
_USUAL_ENTRY = 80
_MOST_MORE = 1 << 20
_MOST_MORE_AXES = 100_000
"""The most axes beyond NumPy's limit, in all shapes together."""
_LARGEST = 1 << 63
"""No file is so long. Longer ones are read entry by entry, which says so."""
_WINDOW = 1 << 17
"""How many bytes of a header are in memory at a time."""
_TOGETHER = 1 << 13
"""How many bytes of it are parsed together. The parser's objects take twenty times as much, and
memory that the next entries use again is faster than new memory."""
_MOST_KINDS = 1000
"""How many dtypes with shapes are kept for the next entries."""


class Scan:
    """The entries of a header, and everything that is wrong with it.

    It is read in windows, entry by entry. So a hundred thousand entries take only the memory of
    their names and positions, and a malformed header takes almost none.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.tensors: dict[str, Stored] = {}
        self.metadata: dict[str, str] = {}
        self.others: dict[str, str] = {}
        self.findings: list[FileFinding] = []
        self._has_metadata = False
        self._in_order = True
        self._reached = 0
        self._more: dict[str, str] = {}
        self._more_bytes = 0
        self._more_axes = 0
        self._aside: dict[str, tuple[int, int]] = {}
        self._kinds: dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...], int]] = {}
        with held_open(self.path) as self._descriptor:
            self._size = bytes_of(self.path, self._descriptor)
            self._data = self._opening()
            if self._data and self._entries() and not self._is_gapless():
                self._compare_places()

    def _is_gapless(self) -> bool:
        return self._in_order and self._reached == self._size - self._data and not self.findings

    def _compare_places(self) -> None:
        names = [name for name in self.tensors if name not in self._aside] + list(self._aside)
        places = (
            place for name in names for place in self._aside.get(name) or self._extent_of(name)
        )
        for message, offset, name in misplaced(names, places, self._data, self._size):
            # If there are broken entries, what is left over at the end may belong to them.
            if name is not None or not self.findings:
                self._find(message, offset, name)

    def _extent_of(self, name: str) -> tuple[int, int]:
        stored: Any = self.tensors[name]
        begin = stored.offset - self._data
        return begin, begin + stored.nbytes

    def _find(self, message: str, offset: int | None = None, tensor: str | None = None) -> None:
        self.findings.append(FileFinding(self.path, offset, tensor, message))

    def _opening(self) -> int:
        head = read_at(self.path, 0, min(self._size, 9), self._descriptor)
        length = int.from_bytes(head[:8], "little")
        if len(head) < 8:
            self._find("it is shorter than the 8 bytes that say how long its header is", 0)
        elif length > HEADER_LIMIT:
            self._find(f"its header has {length} bytes, and {HEADER_LIMIT} are allowed", 0)
        elif 8 + length > self._size:
            self._find(
                f"its header ends at byte {8 + length}, past the end of the file at {self._size}", 0
            )
        else:
            return 8 + length
        return 0

    def _entries(self) -> bool:
        """Read all entries. Whether the end was reached."""
        self._base, self._text, self._at = 8, self._window(8, _WINDOW), 0
        if not self._goes_on() or self._text[self._at : self._at + 1] != b"{":
            self._find("its header does not begin with '{'", self._base + self._at)
            return False
        inside = blank(self._text, self._at + 1)
        ended = self._text[inside : inside + 1] == b"}"
        self._at = inside + 1 if ended else self._at + 1
        while not ended:
            try:
                self._whole_entries()
                ended = True
            except Cut as cut:
                rest = len(self._text) - self._at
                self._base += self._at
                # Only metadata may be long.
                short = (
                    rest > _LONGEST_NAME
                    and METADATA.encode() not in self._text[self._at : self._at + 64]
                )
                if self._base + rest >= self._data or short:
                    self._find(f"its header is not what it should be: {cut}", self._base)
                    return False
                self._text, self._at = self._window(self._base, rest + max(rest, _WINDOW)), 0
        if self._goes_on():
            self._find("its header goes on after its closing '}'", self._base + self._at)
            return False
        for key, text in self._more.items():
            # The file may have metadata with this key.
            free = next(
                candidate for n in count() if (candidate := key + "#" * n) not in self.metadata
            )
            self.metadata[free] = text
        return True

    def _goes_on(self) -> bool:
        """Skip white space. Whether there is more text."""
        while (at := blank(self._text, self._at)) == len(self._text):
            self._base += len(self._text)
            if self._base >= self._data:
                return False
            self._text, self._at = self._window(self._base, _WINDOW), 0
        self._at = at
        return True

    def _window(self, start: int, length: int) -> bytes:
        return read_at(self.path, start, min(length, self._data - start), self._descriptor)

    def _whole_entries(self) -> None:
        """Read the complete entries in the window.

        `Cut` is raised for the first incomplete one, at ``_at``.
        """
        text, base, position = self._text, self._base, self._at
        closing, failed = b",", False
        while closing == b",":
            if not (failed or text.startswith(_METADATA_NAME, blank(text, position))):
                length = self._entries_alike(text, position)
                if length:
                    self._at = position = position + length
                    closing = text[position - 1 : position]
                    continue
                # It is not tried again in this window, which would take a time that grows with its
                # square.
                failed = True
            self._at = position
            position, closing = self._other_entry(text, base, position)
        self._at = position

    def _entries_alike(self, text: bytes, position: int) -> int:
        """Read many entries together: those in the usual form, without anything wrong.

        Gives how many bytes they take; 0 if an entry is not like this, and then none is read.
        """
        last = text.rfind(b"]}", position, min(len(text) - 1, position + _TOGETHER))
        end = last + 3
        if last < 0 or text[end - 1 : end] not in (b",", b"}"):
            return 0
        reached, in_order = self._reached, self._in_order
        try:
            made = self._made_of(text[position : end - 1].decode())
        except (ValueError, TypeError, KeyError, RecursionError):
            made = {}
        are_few = len(self.tensors) + len(self.findings) + len(made) < MOST_TENSORS
        names = made.keys()
        are_new = names.isdisjoint(self.tensors.keys()) and names.isdisjoint(self.others.keys())
        if not (made and are_few and are_new):
            self._reached, self._in_order = reached, in_order
            return 0
        self.tensors.update(made)
        return end - position

    def _made_of(self, text: str) -> dict[str, Stored]:
        """The tensors of entries.

        Raises:
            ValueError: An entry is not in the usual form, or has something wrong.
            TypeError: So it is.
            KeyError: So it is.
            RecursionError: So it is.
        """
        entries = _WITHOUT_FLOATS.decode(f"{{{text}}}")
        # The parser keeps the last of two fields with one name, so the names are counted. Without
        # escapes, every quote is the end of a string: a name, those of three fields, and a dtype.
        if "\\" in text or text.count('"') != 10 * len(entries) or METADATA in entries:
            raise ValueError(text)
        made: dict[str, Stored] = {}
        kinds, path, data, reached = self._kinds, self.path, self._data, self._reached
        if len(kinds) > _MOST_KINDS:
            kinds.clear()
        for name, fields in entries.items():
            lengths = fields["shape"]
            begin, end = fields["data_offsets"]
            asked = fields["dtype"], tuple(lengths)
            known = kinds.get(asked)
            if known is None:
                known = kinds[asked] = self._kind(*asked)
            dtype, shape, nbytes = known
            if end - begin != nbytes or len(fields) != 3 or type(lengths) is not list:
                raise ValueError(name)
            if begin != reached:
                self._in_order = False
                # As long as nothing lies between them, places grow, and the last tells of all.
                if not 0 <= begin < _LARGEST or reached > _LARGEST:
                    raise ValueError(name)
            reached = end
            made[name] = Extent(dtype, shape, path, data + begin)
        if reached > _LARGEST:
            raise ValueError(text)
        self._reached = reached
        # The only other numbers: `True` and `1` are equal.
        if "true" in text or "false" in text:
            _refuse_bools(entries)
        return made

    def _kind(self, dtype: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], int]:
        """The canonical dtype, the shape itself, and the number of bytes.

        Raises:
            ValueError: It is not an ordinary tensor.
            TypeError: So it is.
        """
        if dtype not in DTYPES or BITS[dtype] % 8 or len(shape) > _MOST_AXES:
            raise ValueError(dtype)
        if _whole([*shape]):
            size, span = self._sizes(shape)
        else:
            size, span = 0, 1 << 66
        if span * BITS[dtype] >= 1 << 66:
            raise ValueError(shape)
        return DTYPES[dtype], shape, size * BITS[dtype] // 8

    def _add(
        self, name: str, dtype: str, shape: tuple[int, ...], begin: int, end: int, at: int
    ) -> None:
        if len(self.tensors) + len(self.findings) >= MOST_TENSORS:
            raise UnsafeFileError(
                f"{self.path} has more than {MOST_TENSORS:,} tensors, out of all proportion."
            )
        size, span = self._sizes(shape)
        if name in self.tensors or name in self.others:
            return self._find("the name stands there twice", at, name)
        bits = BITS.get(dtype)
        if bits is None:
            return self._find(f"dtype {dtype} is not one of {', '.join(BITS)}", at, name)
        if span * bits >= 1 << 66:
            return self._find(f"shape {list(shape)} is too large for any machine", at, name)
        if (end - begin) * 8 != size * bits:
            return self._find(
                f"shape {list(shape)} of {dtype} takes {size * bits / 8:g} bytes, "
                f"its offsets {begin} and {end} have {end - begin}",
                at,
                name,
            )
        offset = self._data + begin
        if len(shape) > _MOST_AXES:
            self.others[name] = f"{dtype} with {len(shape)} axes; NumPy has at most {_MOST_AXES}"
        elif dtype in UNPACKED:
            self.others[name] = f"{dtype} {list(shape)}: how its bits are packed is not laid down"
        elif dtype == "F4":
            self.tensors[name] = nibbles(shape, self.path, offset)
        else:
            self.tensors[name] = Extent(DTYPES[dtype], shape, self.path, offset)
        if bits % 8 or name in self.others:
            self._aside[name] = begin, end
        if begin != self._reached:
            self._in_order = False
        self._reached = end
        return None

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The number of elements, and an upper bound of that number without empty axes."""
        if len(shape) > _MOST_AXES:
            self._more_axes += len(shape)
            if self._more_axes > _MOST_MORE_AXES:
                raise UnsafeFileError(
                    f"{self.path} has shapes of more than {_MOST_AXES} axes with more than "
                    f"{_MOST_MORE_AXES:,} in all, "
                    "out of all proportion."
                )
        span = 1
        for length in shape:
            span *= length or 1
            # Stop here, because a product of thousands of numbers takes seconds.
            if span >= 1 << 66:
                break
        return 0 if 0 in shape else span, span

    def _other_entry(self, text: bytes, base: int, position: int) -> tuple[int, bytes]:
        """Read an entry of unusual form; gives the position after it, and the character there."""
        at = base + position
        name, position = string(text, position)
        position = blank(text, expect(text, position, b":"))
        pairs, raw = None, b""
        if name == METADATA:
            pairs, position = strings(text, position)
        else:
            raw, position = compound(text, position)
        position = blank(text, position)
        closing = text[position : position + 1]
        if closing not in (b",", b"}"):
            raise Cut("an entry is followed by neither ',' nor '}'")
        if pairs is None:
            self._fields(name, raw, at)
        else:
            self._strings(pairs, at)
        return position + 1, closing

    def _strings(self, pairs: list[tuple[str, str]], at: int) -> None:
        if self._has_metadata:
            self._find(f"{METADATA} stands there twice", at)
        self._has_metadata = True
        for key, value in pairs:
            if key in self.metadata:
                self._find(f"{METADATA} has {key!r} twice", at)
            self.metadata[key] = value

    def _fields(self, name: str, raw: bytes, at: int) -> None:
        try:
            pairs = json.loads(raw.decode(), object_pairs_hook=_Pairs, parse_constant=_no_json)
        except (ValueError, TypeError, RecursionError) as error:
            if isinstance(error, RecursionError):
                what = "it nests too deep"
            else:
                what = str(error)
            return self._find(f"its entry cannot be read: {what}", at, name)
        if not isinstance(pairs, _Pairs):
            # The official reader also accepts a list of the values of the fields.
            if len(pairs) == len(_FIELDS):
                pairs = _Pairs(zip(_FIELDS, pairs, strict=True))
            else:
                pairs = _Pairs()
        if sorted(key for key, _ in pairs if key in _FIELDS) != sorted(_FIELDS):
            return self._find(
                f"its entry has the fields {named([key for key, _ in pairs])}; dtype, shape and "
                "data_offsets are due",
                at,
                name,
            )
        fields: dict[str, Any] = dict(pairs)
        dtype, shape, offsets = (fields[key] for key in _FIELDS)
        if not isinstance(dtype, str) or not _whole(shape):
            return self._find(
                f"dtype {str(dtype)[:80]} and shape {str(shape)[:80]} are not a name and lengths",
                at,
                name,
            )
        if not _whole(offsets) or len(offsets) != 2 or max(offsets) >= 1 << 64:
            return self._find(
                f"data_offsets {str(offsets)[:80]} are not a beginning and an end", at, name
            )
        if len(pairs) > len(_FIELDS):
            self._keep_more(name, raw)
        return self._add(name, dtype[:80], tuple(shape), offsets[0], offsets[1], at)

    def _keep_more(self, name: str, raw: bytes) -> None:
        """Keep extra fields, which the official reader ignores, as metadata: strings or JSON."""
        self._more_bytes += max(len(raw) - _USUAL_ENTRY, 0)
        if self._more_bytes > _MOST_MORE:
            raise UnsafeFileError(
                f"{self.path} has more than {_MOST_MORE:,} bytes of fields that no tensor has."
            )
        for key, value in json.loads(raw).items():
            if key not in _FIELDS:
                plain = isinstance(value, str) and is_unicode(value)
                if plain:
                    self._more[f"{name}@{key}"] = value
                else:
                    self._more[f"{name}@{key}"] = json.dumps(value)


class _Pairs(list[Any]):
    """The names and values of an object, in which a name may occur twice."""


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _no_length(word: str) -> None:
    raise ValueError(f"{word} is no whole number")


_WITHOUT_FLOATS = json.JSONDecoder(parse_float=_no_length, parse_constant=_no_json)


def _refuse_bools(entries: Mapping[str, Mapping[str, list[object]]]) -> None:
    """Raise if ``True`` or ``False`` stands for a number.

    Raises:
        TypeError: So it is.
    """
    for fields in entries.values():
        if {int, *map(type, fields["shape"]), *map(type, fields["data_offsets"])} != {int}:
            raise TypeError(fields)


def _whole(numbers: Any) -> bool:
    # An object is a list too, of `_Pairs`.
    return type(numbers) is list and all(
        type(number) is int and 0 <= number < 1 << 64 for number in numbers
    )


def misplaced(
    names: list[str], places: Iterable[int], data: int, size: int
) -> Iterator[tuple[str, int, str | None]]:
    """Yield what is wrong with tensors' places, its position in the file, and the tensor's name.

    Args:
        names: The names of the tensors.
        places: For each name, where it begins and ends, in bytes from the start of the data.
        data: The position of the data in the file.
        size: How many bytes the file has.

    Yields:
        Findings in the order of the file. The last has no name if bytes at the end belong to no
        tensor.
    """
    begins, ends = np.fromiter(places, np.uint64, 2 * len(names)).reshape(-1, 2).T
    order = np.lexsort((ends, begins))
    starts, stops = begins[order], ends[order]
    reached = np.concatenate([np.zeros(1, np.uint64), np.maximum.accumulate(stops)])
    for place in np.flatnonzero(starts != reached[:-1]):
        name, start, before = names[order[place]], int(starts[place]), int(reached[place])
        if start < before:
            other = names[order[max(place - 1, 0)]]
            yield f"it overlaps what lies before it, {other!r}", data + start, name
        else:
            yield f"{start - before} bytes before it belong to no tensor", data + before, name
    for place in np.flatnonzero(stops > size - data):
        message = f"it ends at byte {data + int(stops[place])}, past the end of the file at {size}"
        yield message, data + int(starts[place]), names[order[place]]
    last = data + int(reached[-1])
    if last < size:
        yield f"its last {size - last} bytes belong to no tensor", last, None


def nibbles(shape: tuple[int, ...], path: str, offset: int) -> Decoded:
    """Numbers of four bits, two in a byte, at a position in a file."""
    packed = Extent("uint8", (prod(shape) // 2,), path, offset)

    def read() -> Iterator[Array]:
        for block in packed.blocks():
            halves = np.empty((block.size, 2), np.uint8)
            np.bitwise_and(block, 15, out=halves[:, 0])
            np.right_shift(block, 4, out=halves[:, 1])
            yield halves.reshape(-1).view(numpy_dtype(NIBBLES))

    return Decoded(NIBBLES, shape, read, (path, offset, shape, NIBBLES))
