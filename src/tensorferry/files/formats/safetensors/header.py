"""`Scan`: read the header of a safetensors file, and find everything that is wrong with it.

The official reader: https://github.com/huggingface/safetensors/blob/main/safetensors/src/tensor.rs.
"""

from __future__ import annotations

import json
import os
import re
from itertools import count
from typing import TYPE_CHECKING, Any

from ....errors import UnsafeFileError
from ...base.contents import MOST_TENSORS, FileFinding
from ...base.raw import read_at
from ...base.stored import Extent
from ...base.wording import is_unicode, named
from ...encodings.json_scan import BLANK, Cut, blank, compound, expect, string, strings
from .dtypes import BITS, DTYPES, UNPACKED, nibbles
from .places import misplaced

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.stored import Stored

__all__ = ["HEADER_LIMIT", "METADATA", "Scan"]

HEADER_LIMIT = 100_000_000
"""The longest header that the official reader accepts."""
METADATA = "__metadata__"
_METADATA_NAME = b'"__metadata__"'
_MOST_AXES = 64
"""NumPy's limit: https://numpy.org/devdocs/release/2.0.0-notes.html"""

_ALIKE = re.compile(
    r'( ?"([^"\\\x00-\x1f]*)": ?\{"dtype": ?"([A-Z0-9_]{1,16})", ?"shape": ?\[([0-9, ]*)\], ?'
    r'"data_offsets": ?\[(0|[1-9][0-9]{0,18}), ?(0|[1-9][0-9]{0,18})\]\}(?:,|\}\Z))'
)
"""A whole entry as the official writer or `json.dumps` puts it; then its name, dtype, shape, beginning and end."""
_EMPTY = re.compile(rb"\{" + BLANK + rb"\}")
_FIELDS = ("dtype", "shape", "data_offsets")
_LONGEST_NAME = 1 << 20
_USUAL_ENTRY = 80
_MOST_MORE = 1 << 20
_MOST_MORE_AXES = 100_000
"""The most axes beyond NumPy's limit, in all shapes together."""
_WINDOW = 1 << 17
"""How many bytes of a header are in memory at a time."""


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
        with path.open("rb", buffering=0) as file:
            self._descriptor = file.fileno()
            self._size = os.fstat(self._descriptor).st_size
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
        head = os.pread(self._descriptor, 9, 0)
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
        empty = _EMPTY.match(self._text, self._at)
        self._at = self._at + 1 if empty is None else empty.end()
        ended = empty is not None
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
            free = next(each for n in count() if (each := key + "#" * n) not in self.metadata)
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
        """Read many entries together: those in a usual form, without anything wrong.

        Gives how many bytes they take; 0 if an entry is not like this, and then none is read.
        """
        end = text.rfind(b"]}", position, min(len(text) - 1, position + _WINDOW)) + 3
        try:
            entries = text[position:end].decode()
        except UnicodeDecodeError:
            return 0
        found = _ALIKE.findall(entries)
        # What stands between two entries is not found, and so not counted.
        if not found or sum([len(each[0]) for each in found]) != len(entries):
            return 0
        if len(self.tensors) + len(self.findings) + len(found) >= MOST_TENSORS:
            return 0
        _, names, dtypes, shapes, starts, stops = zip(*found, strict=True)
        kinds = list(zip(dtypes, shapes, strict=True))
        known = {kind: self._kind(*kind) for kind in set(kinds)}
        begins, ends = list(map(int, starts)), list(map(int, stops))
        made: dict[str, Stored] = {}
        path, data = self.path, self._data
        for name, kind, begin, stop in zip(names, kinds, begins, ends, strict=True):
            dtype, shape, nbytes = known[kind]
            if stop - begin != nbytes:
                return 0
            made[name] = Extent(dtype, shape, path, data + begin)
        are_new = self.tensors.keys().isdisjoint(made) and self.others.keys().isdisjoint(made)
        if len(made) < len(found) or METADATA in made or not are_new:
            return 0
        self._in_order = self._in_order and begins == [self._reached, *ends[:-1]]
        self._reached = ends[-1]
        self.tensors.update(made)
        return end - position

    def _kind(self, dtype: str, raw: str) -> tuple[str, tuple[int, ...], int]:
        """The canonical dtype, the shape and the number of bytes; -1 if it is not an ordinary tensor."""
        if dtype not in DTYPES or BITS[dtype] % 8 or raw.count(",") >= _MOST_AXES:
            return "", (), -1
        try:
            shape: Any = json.loads(f"[{raw}]")
        except ValueError:
            return "", (), -1
        size, span = self._sizes(tuple(shape)) if _whole(shape) else (0, 1 << 66)
        if span * BITS[dtype] >= 1 << 66:
            return "", (), -1
        return DTYPES[dtype], tuple(shape), size * BITS[dtype] // 8

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
                    f"{self.path} has shapes of more than {_MOST_AXES} axes with more than {_MOST_MORE_AXES:,} in all, "
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
        """Read an entry in an unusual form; gives the position after it, and the character there."""
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
            what = "it nests too deep" if isinstance(error, RecursionError) else str(error)
            return self._find(f"its entry cannot be read: {what}", at, name)
        if not isinstance(pairs, _Pairs):
            # The official reader also accepts a list of the values of the fields.
            pairs = (
                _Pairs(zip(_FIELDS, pairs, strict=True)) if len(pairs) == len(_FIELDS) else _Pairs()
            )
        if sorted(key for key, _ in pairs if key in _FIELDS) != sorted(_FIELDS):
            return self._find(
                f"its entry has the fields {named([key for key, _ in pairs])}; dtype, shape and data_offsets are due",
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
        """Keep additional fields, which the official reader ignores, as metadata: strings, or other values as JSON."""
        self._more_bytes += max(len(raw) - _USUAL_ENTRY, 0)
        if self._more_bytes > _MOST_MORE:
            raise UnsafeFileError(
                f"{self.path} has more than {_MOST_MORE:,} bytes of fields that no tensor has."
            )
        for key, value in json.loads(raw).items():
            if key not in _FIELDS:
                plain = isinstance(value, str) and is_unicode(value)
                self._more[f"{name}@{key}"] = value if plain else json.dumps(value)


class _Pairs(list[Any]):
    """The names and values of an object, in which a name may occur twice."""


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(
        type(each) is int and 0 <= each < 1 << 64 for each in numbers
    )
