"""`Directory`: the directory of a zip archive, read with all bounds checked, in a few bytes for each member."""

from __future__ import annotations

import os
import re
import struct
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import FileFormatError, UnsafeFileError
from ..base.contents import MOST_TENSORS
from ..base.raw import read_at, read_pages

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

__all__ = ["DEFLATED", "STORED", "Directory"]

STORED = 0
"""The method of members without compression."""
DEFLATED = 8
"""The method of compressed members."""

_LENGTHS = struct.Struct("<HHH")
_CENTRAL = np.dtype(
    {
        "names": ["signature", "flags", "method", "crc", "sizes", "lengths", "header"],
        "formats": ["<u4", "<u2", "<u2", "<u4", ("<u4", 2), ("<u2", 3), "<u4"],
        "offsets": [0, 8, 10, 16, 20, 28, 42],
        "itemsize": 46,
    }
)
_END = struct.Struct("<IHHHHIIH")
_LOCATOR = struct.Struct("<IIQI")
_END_64 = struct.Struct("<IQHHIIQQQQ")

_NARROW = 0xFFFFFFFF
_PART = 1024
"""How many members are checked together. Larger temporary arrays would leave holes in the heap."""
_MOST_DIRECTORY = 1 << 28
_MOST_DEFLATE = 1032
"""The largest ratio of compression of deflate: https://www.zlib.net/zlib_tech.html"""
_UNSAFE_NAME = re.compile(r"^/|^[A-Za-z]:|(?:^|/)\.\.(?:/|$)|[\\\0]", re.MULTILINE)


class Directory:
    """The columns of an archive's directory, indexed by the index of a member.

    Args:
        path: The archive.
        problem: Called for each problem of a member: its position, its name, the message, and
            whether it is unsafe.
        within: The position and length of the archive in the file; ``None`` if it is the whole
            file.

    Raises:
        OSError: It cannot be read.
        FileFormatError: It is not a zip archive, or is cut off.
        UnsafeFileError: The directory is far too large.
    """

    def __init__(
        self, path: str, problem: Callable[..., None], within: tuple[int, int] | None = None
    ) -> None:
        self.path = path
        self._base, self._size = within or (0, os.stat(path).st_size)  # noqa: PTH116 - a plain string
        self.comment = b""
        self._problem = problem
        self.crcs, self.deflated = array("I"), array("b")
        self.packed, self.sizes, self.headers, self._spans = (array("q") for _ in range(4))
        self._starts = array("I")
        self._order: Any = None
        self.begin, self._nbytes, self._count = self._locate()

    def read(self) -> list[str]:
        """Fill the columns; gives the names of the members.

        Raises:
            FileFormatError: It is damaged.
        """
        with read_pages(self.path, self.begin, self._nbytes) as raw:
            return self._read_all(raw)

    def names(self) -> list[str]:
        """The names of the members, read again."""
        with read_pages(self.path, self.begin, self._nbytes) as raw:
            return [_name(raw, at) for at in self._starts]

    def name(self, place: int) -> str:
        """The name of one member, read again."""
        start = self.begin + self._starts[place]
        return _name(
            read_at(self.path, start, 46 + _LENGTHS.unpack(read_at(self.path, start + 28, 6))[0]), 0
        )

    def after(self, header: int) -> int:
        """The position of the next local header, or of the directory."""
        at = int(self._order.searchsorted(header, side="right"))
        return int(self._order[at]) if at < len(self._order) else self.begin

    def _locate(self) -> tuple[int, int, int]:
        base, size = self._base, self._size
        tail_at = max(0, size - 22 - 0xFFFF)
        tail = read_at(self.path, base + tail_at, size - tail_at)
        at = tail.rfind(b"PK\5\6")
        while at >= 0 and (
            len(tail) - at < 22 or at + 22 + _END.unpack_from(tail, at)[7] != len(tail)
        ):
            at = tail.rfind(b"PK\5\6", 0, at)
        if at < 0:
            raise FileFormatError(
                f"{self.path} is not a complete zip archive: its directory, which is at the end, is missing.",
                "the file was probably cut off: get it again",
            )
        _, disk, start_disk, here, count, nbytes, begin, _ = _END.unpack_from(tail, at)
        end = tail_at + at
        self.comment = tail[at + 22 :]
        if end >= 20 and read_at(self.path, base + end - 20, 4) == b"PK\6\7":
            _, _, end_64, disks = _LOCATOR.unpack(read_at(self.path, base + end - 20, 20))
            if disks > 1 or end_64 + 56 != end - 20:
                raise FileFormatError(
                    f"{self.path}: the zip64 end of the directory is not where it must be."
                )
            fields = _END_64.unpack(read_at(self.path, base + end_64, 56))
            wide = fields[4:]
            narrow = (disk, start_disk, here, count, nbytes, begin)
            saturated = (0xFFFF,) * 4 + (0xFFFFFFFF,) * 2
            if fields[0] != 0x06064B50 or any(
                a not in (b, most) for a, b, most in zip(narrow, wide, saturated, strict=True)
            ):
                raise FileFormatError(
                    f"{self.path}: the two ends of the zip directory contradict each other."
                )
            disk, start_disk, here, count, nbytes, begin = wide
            end = end_64
        if disk or start_disk or here != count:
            raise FileFormatError(f"{self.path} is one part of a zip archive of several.")
        if begin + nbytes != end or count * 46 > nbytes:
            raise FileFormatError(
                f"{self.path}: the zip directory of {count:,} members claims bytes {begin} to {begin + nbytes}; "
                f"it has to end at {end}."
            )
        if nbytes > _MOST_DIRECTORY or count > MOST_TENSORS:
            raise UnsafeFileError(
                f"{self.path} has a zip directory of {nbytes:,} bytes and {count:,} members, out of all proportion."
            )
        return base + begin, nbytes, count

    def _read_all(self, raw: mmap.mmap) -> list[str]:
        nbytes, count = self._nbytes, self._count
        at, names = 0, list[str]()
        lengths = _LENGTHS.unpack_from
        while len(names) < count:
            starts, begin, entries = array("I"), len(names), list[bytes]()
            for place in range(begin, min(begin + _PART, count)):
                if at + 46 > nbytes:
                    raise FileFormatError(
                        f"{self.path}: the zip directory ends after {place:,} of {count:,} members."
                    )
                name_length, extra_length, comment_length = lengths(raw, at + 28)
                after = at + 46 + name_length
                starts.append(at)
                entries.append(raw[at : at + 46])
                at = after + extra_length + comment_length
                try:
                    names.append(raw[after - name_length : after].decode())
                except UnicodeDecodeError:
                    raise FileFormatError(
                        f"{self.path}: the name of member {place:,} is not UTF-8."
                    ) from None
            self._enter(raw, starts, np.frombuffer(b"".join(entries), _CENTRAL), names[begin:])
        if at != nbytes:
            raise FileFormatError(
                f"{self.path}: the zip directory is {nbytes:,} bytes long, its members take {at:,}."
            )
        self._look_at(names)
        self._lay_out(names)
        return names

    def _enter(self, raw: mmap.mmap, starts: array[int], fields: Any, names: list[str]) -> None:
        damaged = np.flatnonzero(fields["signature"] != 0x02014B50)
        if damaged.size:
            first = damaged[0]
            where, place = self.begin + starts[first], len(self._starts) + first
            raise FileFormatError(
                f"{self.path}: the zip directory is damaged at byte {where}, member {place:,}."
            )
        sizes = np.stack([*fields["sizes"].T, fields["header"]], axis=1).astype(np.int64)
        for place in np.flatnonzero((sizes == _NARROW).any(axis=1)).tolist():
            name_length, extra_length, _ = fields["lengths"][place].tolist()
            start = starts[place] + 46 + name_length
            sizes[place] = self._wide(raw[start : start + extra_length], sizes[place], names[place])
        sizes[:, 2] += self._base
        packed, size, header = sizes.T
        deflated = fields["method"] == DEFLATED
        span = 30 + fields["lengths"][:, 0].astype(np.int64) + packed
        # With subtractions, because a sum could overflow.
        outside = (packed > self.begin) | (header > self.begin - span)
        problems = {
            "is encrypted, or compressed in an unknown way": (
                (fields["method"] != STORED) & ~deflated
            )
            | (fields["flags"] & 0x41 != 0),
            "is stored, yet takes another number of bytes than it holds": ~deflated
            & (packed != size),
            "lies outside of the archive": outside,
        }
        for what, found in problems.items():
            for place in np.flatnonzero(found):
                self._problem(int(header[place]), names[place], f"{names[place]} {what}")
        for place in np.flatnonzero(deflated & ((size - 64) // _MOST_DEFLATE > packed)):
            what = f"{names[place]} claims {size[place]:,} bytes in {packed[place]:,}: a zip bomb"
            self._problem(int(header[place]), names[place], what, unsafe=True)
        self._starts += starts
        for column, values in (
            (self.packed, packed),
            (self.sizes, size),
            (self.headers, header),
            # A member outside of the archive does not count as overlapping.
            (self._spans, np.where(outside, -1, span)),
            (self.crcs, fields["crc"]),
            (self.deflated, deflated),
        ):
            column.frombytes(np.ascontiguousarray(values).tobytes())

    def _look_at(self, names: list[str]) -> None:
        if _UNSAFE_NAME.search("\n".join(names)):
            for place, name in enumerate(names):
                if _UNSAFE_NAME.search(name):
                    self._problem(
                        self.headers[place], name, f"{name!r} leads out of the archive", unsafe=True
                    )
        marks = np.fromiter(map(hash, names), np.int64, len(names))
        marks.sort()
        if (marks[1:] == marks[:-1]).any():
            seen: set[str] = set()
            for place, name in enumerate(names):
                if name in seen:
                    self._problem(
                        self.headers[place], name, f"{name!r} is there twice", unsafe=True
                    )
                seen.add(name)

    def _wide(self, extra: bytes, sizes: Any, name: str) -> list[int]:
        values = [int(each) for each in sizes]
        wanted = [place for place in (1, 0, 2) if values[place] == _NARROW]
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, at)
            if kind == 1:
                if length >= 8 * len(wanted) and at + 4 + length <= len(extra):
                    for step, place in enumerate(wanted):
                        values[place] = int.from_bytes(
                            extra[at + 4 + 8 * step : at + 12 + 8 * step], "little"
                        )
                    if max(values) < 1 << 62:
                        return values
                break
            at += 4 + length
        raise FileFormatError(
            f"{self.path}: {name} has no possible zip64 sizes where it must have them."
        )

    def _lay_out(self, names: list[str]) -> None:
        headers, spans = np.asarray(self.headers), np.asarray(self._spans)
        order = np.argsort(headers, kind="stable")
        order = order[spans[order] >= 0]
        inside = headers[order]
        for place in np.flatnonzero(inside[:-1] + spans[order[:-1]] > inside[1:]):
            first, second = names[order[place]], names[order[place + 1]]
            self._problem(int(inside[place + 1]), second, f"{second} overlaps {first}", unsafe=True)
        # In most archives members are in order and uncompressed, so that one array is enough.
        self._order = headers if np.array_equal(headers, inside) else inside
        if self.packed == self.sizes:
            self.packed = self.sizes
        del self._spans


def _name(raw: bytes | mmap.mmap, start: int) -> str:
    """The name in an entry of the directory.

    If the file has changed, it will not match the local header.
    """
    length = _LENGTHS.unpack_from(raw, start + 28)[0]
    return raw[start + 46 : start + 46 + length].decode(errors="replace")
