"""Zip archives: their directory is read with every bound checked, and their members are written aligned.

The rules are those of https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (6.3.10). The standard library's
`zipfile` makes an object with a dozen fields for each member, which is too much for 100,000 tensors, and it does
not refuse members that overlap. `zip_writer` has the writer.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import FileFormatError, UnsafeFileError
from ..files.contents import Finding
from ..files.stored import BLOCK_BYTES, Record, read_fully

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["DEFLATED", "STORED", "Archive", "Member"]

STORED = 0
"""The method of members whose bytes stand in the archive as they are."""
DEFLATED = 8
"""The method of compressed members."""

_LOCAL = struct.Struct("<I2xHH4xIIIHH")
_LENGTHS = struct.Struct("<HHH")
_CENTRAL = np.dtype(
    {
        "names": ["signature", "flags", "method", "crc", "sizes", "lengths", "header"],
        "formats": ["<u4", "<u2", "<u2", "<u4", ("<u4", 2), ("<u2", 3), "<u4"],
        "offsets": [0, 8, 10, 16, 20, 28, 42],
        "itemsize": 46,
    }
)
_ENTRY = np.dtype(
    [
        ("signature", "u4"),
        ("flags", "u2"),
        ("method", "u2"),
        ("crc", "u4"),
        ("sizes", "u4", 3),
        ("lengths", "u2", 3),
    ]
)
_END = struct.Struct("<IHHHHIIH")
_LOCATOR = struct.Struct("<IIQI")
_END_64 = struct.Struct("<IQHHIIQQQQ")

_NARROW = 0xFFFFFFFF
_MOST_DIRECTORY = 1 << 28
_MOST_DEFLATE = 1032
"""Deflate makes no more than so many bytes of one: https://www.zlib.net/zlib_tech.html"""
_UNSAFE_NAME = re.compile(r"^/|^[A-Za-z]:|(?:^|/)\.\.(?:/|$)|[\\\0]", re.MULTILINE)


class Member(NamedTuple):
    """A member of an archive, as the directory describes it.

    Args:
        name: Its name.
        place: Its place in the directory.
        header: The byte at which its local header begins.
        packed: The bytes that it takes in the archive.
        size: The bytes that it holds.
        crc: The CRC-32 of those.
        method: `STORED` or `DEFLATED`.
    """

    name: str
    place: int
    header: int
    packed: int
    size: int
    crc: int
    method: int


class Archive(Mapping[str, Member]):
    """A zip archive: its members by name, in the order of its directory. `Archive.open` makes it.

    Args:
        path: The file.
        tolerant: Collect what is wrong in `problems` instead of raising the first of it, as far as that goes.
    """

    def __init__(self, path: str, *, tolerant: bool = False) -> None:
        self.path = path
        self.problems: list[Finding] = []
        self.comment = b""
        self._tolerant = tolerant
        self._size = os.stat(path).st_size  # noqa: PTH116 - a plain string
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._directory, nbytes, count = self._find_directory()
        self._read_directory(self._read(self._directory, nbytes), count)
        self._order = self._lay_out()

    @classmethod
    def open(cls, path: Path | str) -> Archive:
        """Read an archive's directory.

        Args:
            path: The file.

        Raises:
            OSError: It cannot be read.
            FileFormatError: It is no zip archive, is cut off, or its members overlap or lie outside of it.
            UnsafeFileError: Two members have one name, a name leads out of the archive, a member claims to
                inflate to more than is possible, or the directory is out of all proportion.
        """
        return cls(os.fspath(path))

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, name: str) -> Member:
        return self.member(self._index[name])

    def place(self, name: str) -> int | None:
        """The place in the directory of a member, or ``None``: for `size` and `member`."""
        return self._index.get(name)

    def size(self, index: int) -> int:
        """The bytes that a member holds."""
        return int(self._sizes[index])

    def is_deflated(self, index: int) -> bool:
        """Whether a member is compressed."""
        return bool(self._deflated[index])

    def member(self, index: int) -> Member:
        """The member at a place in the directory, counted from 0."""
        return Member(
            self._names[index],
            index,
            self._headers[index],
            self._packed[index],
            self._sizes[index],
            self._crcs[index],
            DEFLATED if self._deflated[index] else STORED,
        )

    def offset(self, member: Member) -> int:
        """The byte at which a member's data begins; its local header is compared with the directory.

        Raises:
            FileFormatError: They disagree, or the data reaches into the next member.
        """
        raw = self._read(member.header, 30 + len(member.name.encode()))
        signature, flags, method, crc, packed, size, name_length, extra_length = _LOCAL.unpack_from(raw)
        wrong = self._wrong(member)
        if signature != 0x04034B50:
            raise wrong("has no local header")
        if flags & 0x41 or method != member.method:
            raise wrong("has a local header with another method than the directory")
        if raw[30:] != member.name.encode() or name_length != len(raw) - 30:
            raise wrong("has another name in its local header")
        # Bit 3: checksum and sizes follow the data, and may be zero here; 0xFFFFFFFF: they are in the extra field.
        if not flags & 8 and (crc != member.crc or not {packed, size} <= {member.packed, member.size, 0xFFFFFFFF}):
            raise wrong("has another size or checksum in its local header")
        begin = member.header + 30 + name_length + extra_length
        if begin + member.packed > self._next(member.header):
            raise wrong("overlaps what stands after it")
        return int(begin)

    def record(self, member: Member) -> Record:
        """The region of a stored member, with its checksum.

        Raises:
            FileFormatError: As for `offset`; or it is compressed, so that there is no such region.
        """
        if member.method != STORED:
            raise self._wrong(member)("is compressed, where it must be stored as it is")
        return Record(self.path, self.offset(member), member.size, member.crc)

    def read_bytes(self, member: Member, limit: int) -> bytes:
        """All of a member, its checksum compared.

        Args:
            member: The member.
            limit: The most bytes that it may hold.

        Raises:
            FileFormatError: As for `open_blocks`.
            UnsafeFileError: It holds more.
        """
        if member.size > limit:
            raise UnsafeFileError(
                f"{self.path}: {member.name} holds {member.size:,} bytes; no more than {limit:,} are read into memory."
            )
        return b"".join(self.open_blocks(member))

    def open_blocks(self, member: Member) -> Iterator[bytes]:
        """A member's bytes in order, in blocks of at most about `BLOCK_BYTES`, stored or inflated.

        Raises:
            FileFormatError: It is cut off or corrupt, holds more or less than the directory says, or its checksum
                does not fit; this comes after the last block.
        """
        wrong = self._wrong(member)
        found = done = 0
        for block in self._raw_blocks(member) if member.method == STORED else self._inflated(member):
            done += len(block)
            if done > member.size:
                raise wrong(f"inflates to more than the {member.size:,} bytes that the directory says")
            found = zlib.crc32(block, found)
            yield block
        if done != member.size:
            raise wrong(f"inflates to {done:,} bytes, not the {member.size:,} that the directory says")
        if found != member.crc:
            raise wrong(f"is corrupt: its CRC-32 is {found:08x}, the directory says {member.crc:08x}")

    def findings(self, tensor_of: Callable[[str], str | None]) -> Iterator[Finding]:
        """What is wrong with the archive: each member's local header, data and checksum are looked at.

        Args:
            tensor_of: Gives the name of the tensor that a member holds.
        """
        for each in self.problems:
            # `problems` name the member, since the tensors are not known yet when they are found.
            yield each._replace(tensor=tensor_of(each.tensor) if each.tensor else None)
        for name in self:
            member = self[name]
            try:
                for _ in self.open_blocks(member):
                    pass
            except FileFormatError as error:
                yield Finding(self.path, member.header, tensor_of(name), error.message)

    def _find_directory(self) -> tuple[int, int, int]:
        tail_at = max(0, self._size - 22 - 0xFFFF)
        tail = self._read(tail_at, self._size - tail_at)
        at = tail.rfind(b"PK\5\6")
        while at >= 0 and (len(tail) - at < 22 or at + 22 + _END.unpack_from(tail, at)[7] != len(tail)):
            at = tail.rfind(b"PK\5\6", 0, at)
        if at < 0:
            raise FileFormatError(
                f"{self.path} is no whole zip archive: its directory, which is at the end, is missing.",
                "the file was probably cut off: get it anew",
            )
        _, disk, start_disk, here, count, nbytes, begin, _ = _END.unpack_from(tail, at)
        end = tail_at + at
        self.comment = tail[at + 22 :]
        if end >= 20 and self._read(end - 20, 4) == b"PK\6\7":
            _, _, end_64, disks = _LOCATOR.unpack(self._read(end - 20, 20))
            if disks > 1 or end_64 + 56 != end - 20:
                raise FileFormatError(f"{self.path}: the zip64 end of the directory is not where it must be.")
            fields = _END_64.unpack(self._read(end_64, 56))
            wide = fields[4:]
            narrow = (disk, start_disk, here, count, nbytes, begin)
            saturated = (0xFFFF,) * 4 + (0xFFFFFFFF,) * 2
            if fields[0] != 0x06064B50 or any(
                a not in (b, most) for a, b, most in zip(narrow, wide, saturated, strict=True)
            ):
                raise FileFormatError(f"{self.path}: the two ends of the zip directory contradict each other.")
            disk, start_disk, here, count, nbytes, begin = wide
            end = end_64
        if disk or start_disk or here != count:
            raise FileFormatError(f"{self.path} is one part of a zip archive of several.")
        if begin + nbytes != end or count * 46 > nbytes:
            raise FileFormatError(
                f"{self.path}: the zip directory of {count:,} members claims bytes {begin} to {begin + nbytes}; "
                f"it has to end at {end}."
            )
        if nbytes > _MOST_DIRECTORY:
            raise UnsafeFileError(f"{self.path} has a zip directory of {nbytes:,} bytes, out of all proportion.")
        return begin, nbytes, count

    def _read_directory(self, raw: bytes, count: int) -> None:
        index, at, places, names = self._index, 0, array("Q"), self._names
        lengths = _LENGTHS.unpack_from
        for place in range(count):
            if at + 46 > len(raw):
                raise FileFormatError(f"{self.path}: the zip directory ends after {place:,} of {count:,} members.")
            name_length, extra_length, comment_length = lengths(raw, at + 28)
            after = at + 46 + name_length
            places.append(at)
            at = after + extra_length + comment_length
            try:
                names.append(raw[after - name_length : after].decode())
            except UnicodeDecodeError:
                raise FileFormatError(f"{self.path}: the name of member {place:,} is not UTF-8.") from None
        if at != len(raw):
            raise FileFormatError(
                f"{self.path}: the zip directory is {len(raw):,} bytes long, its members take {at:,}."
            )
        index.update(zip(names, range(count), strict=True))
        fields = _entries(raw, places)
        damaged = np.flatnonzero(fields["signature"] != 0x02014B50)
        if damaged.size:
            where = self._directory + places[damaged[0]]
            raise FileFormatError(f"{self.path}: the zip directory is damaged at byte {where}, member {damaged[0]:,}.")
        wide = np.flatnonzero((fields["sizes"] == _NARROW).any(axis=1))
        sizes = fields["sizes"].astype(np.int64)
        for place in wide.tolist():
            name_length, extra_length, _ = fields["lengths"][place].tolist()
            start = places[place] + 46 + name_length
            sizes[place] = self._wide(raw[start : start + extra_length], sizes[place], names[place])
        self._keep(fields, sizes)

    def _keep(self, fields: Any, sizes: Any) -> None:
        packed, size, header = sizes.T
        deflated = fields["method"] == DEFLATED
        spans = 30 + fields["lengths"][:, 0].astype(np.int64) + packed
        # Subtractions, since a sum could overflow.
        outside = (packed > self._directory) | (header > self._directory - spans)
        problems = {
            "is encrypted, or compressed in an unknown way": ((fields["method"] != STORED) & ~deflated)
            | (fields["flags"] & 0x41 != 0),
            "is stored, yet takes another number of bytes than it holds": ~deflated & (packed != size),
            "lies outside of the archive": outside,
        }
        for what, found in problems.items():
            for place in np.flatnonzero(found):
                self._problem(int(header[place]), self._names[place], f"{self._names[place]} {what}")
        for place in np.flatnonzero(deflated & ((size - 64) // _MOST_DEFLATE > packed)):
            what = f"{self._names[place]} claims {size[place]:,} bytes in {packed[place]:,}: a zip bomb"
            self._problem(int(header[place]), self._names[place], what, unsafe=True)
        self._packed, self._sizes, self._headers = (_compact(each) for each in (packed, size, header))
        self._crcs, self._deflated = array("I", fields["crc"].tobytes()), deflated.tobytes()
        self._spans, self._outside = spans, outside
        self._look_at_names()

    def _look_at_names(self) -> None:
        if _UNSAFE_NAME.search("\n".join(self._names)):
            for place, name in enumerate(self._names):
                if _UNSAFE_NAME.search(name):
                    self._problem(self._headers[place], name, f"{name!r} leads out of the archive", unsafe=True)
        if len(self._index) != len(self._names):
            seen: set[str] = set()
            for place, name in enumerate(self._names):
                if name in seen:
                    self._problem(self._headers[place], name, f"{name!r} is there twice", unsafe=True)
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
                        values[place] = int.from_bytes(extra[at + 4 + 8 * step : at + 12 + 8 * step], "little")
                    if max(values) < 1 << 62:
                        return values
                break
            at += 4 + length
        raise FileFormatError(f"{self.path}: {name} has no possible zip64 sizes where it must have them.")

    def _lay_out(self) -> Any:
        headers = np.frombuffer(self._headers, np.int64) if self._headers else np.empty(0, np.int64)
        order = np.argsort(headers, kind="stable")
        order = order[~self._outside[order]]
        ends = (headers + self._spans)[order[:-1]]
        for place in np.flatnonzero(ends > headers[order[1:]]):
            first, second = self._names[order[place]], self._names[order[place + 1]]
            self._problem(int(headers[order[place + 1]]), second, f"{second} overlaps {first}", unsafe=True)
        return headers[order]

    def _next(self, header: int) -> int:
        at = int(np.searchsorted(self._order, header, side="right"))
        return int(self._order[at]) if at < len(self._order) else self._directory

    def _problem(self, offset: int, name: str, message: str, *, unsafe: bool = False) -> None:
        if self._tolerant:
            self.problems.append(Finding(self.path, offset, name, f"{message}."))
        elif unsafe:
            raise UnsafeFileError(f"{self.path}: {message}.", "do not open it with anything else either")
        else:
            raise FileFormatError(f"{self.path}: {message}.")

    def _wrong(self, member: Member) -> Callable[[str], FileFormatError]:
        return lambda what: FileFormatError(f"{self.path}: {member.name} (at byte {member.header}) {what}.")

    def _read(self, offset: int, nbytes: int) -> bytes:
        # Opened each time: a model may have more shards than a process may have open files.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.pread(descriptor, nbytes, offset)
            if len(raw) < nbytes:
                rest = bytearray(nbytes - len(raw))
                read_fully(descriptor, memoryview(rest), offset + len(raw), self.path)
                raw += rest
            return raw
        finally:
            os.close(descriptor)

    def _raw_blocks(self, member: Member) -> Iterator[bytes]:
        begin = self.offset(member)
        for start in range(0, member.packed, BLOCK_BYTES):
            yield self._read(begin + start, min(BLOCK_BYTES, member.packed - start))

    def _inflated(self, member: Member) -> Iterator[bytes]:
        wrong = self._wrong(member)
        inflate = zlib.decompressobj(-15)
        try:
            for block in self._raw_blocks(member):
                rest = block
                while rest:
                    yield inflate.decompress(rest, BLOCK_BYTES)
                    rest = inflate.unconsumed_tail
                if inflate.unused_data:
                    raise wrong("has bytes after the end of its compressed data")
            while not inflate.eof:
                more = inflate.decompress(b"", BLOCK_BYTES)
                if not more:
                    raise wrong("is cut off")
                yield more
        except zlib.error as error:
            raise wrong(f"cannot be inflated ({error})") from None


def _entries(raw: bytes, places: array[int]) -> Any:
    """The fixed fields of a directory's entries; packed size, size and place as `sizes`."""
    octets = np.frombuffer(raw, np.uint8)
    starts = np.frombuffer(places, np.int64) if places else np.empty(0, np.int64)
    entries = np.empty(len(starts), _ENTRY)
    for start in range(0, len(starts), 4096):
        part = starts[start : start + 4096]
        read = octets[part[:, None] + np.arange(46)].reshape(-1).view(_CENTRAL)
        made = entries[start : start + 4096]
        for name in ("signature", "flags", "method", "crc", "lengths"):
            made[name] = read[name]
        made["sizes"][:, :2] = read["sizes"]
        made["sizes"][:, 2] = read["header"]
    return entries


def _compact(values: Any) -> array[int]:
    return array("q", np.ascontiguousarray(values).tobytes())
