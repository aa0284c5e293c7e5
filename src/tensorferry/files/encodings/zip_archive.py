"""Zip archives: their directories, which are not trusted, their members, and tensors in these."""

from __future__ import annotations

import os
import re
import struct
import zlib
from array import array
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import FileFormatError, UnsafeFileError
from ..base.contents import MOST_TENSORS, FileFinding
from ..base.raw import bytes_of, held_open, read_at, read_pages
from ..base.stored import BLOCK_BYTES, Packed, Record, View

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

__all__ = [
    "DEFLATED",
    "STORED",
    "Archive",
    "Directory",
    "Member",
    "MemberForm",
    "MemberRegion",
    "ZipExtent",
    "ZipView",
    "is_number",
]

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
        self._base, self._size = within or (0, bytes_of(path))
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
        if at < len(self._order):
            return int(self._order[at])
        return self.begin

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
                f"{self.path} is not a complete zip archive: its directory, "
                "which is at the end, is missing.",
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
                f"{self.path}: the zip directory of {count:,} members claims bytes {begin} to "
                f"{begin + nbytes}; "
                f"it has to end at {end}."
            )
        if nbytes > _MOST_DIRECTORY or count > MOST_TENSORS:
            raise UnsafeFileError(
                f"{self.path} has a zip directory of {nbytes:,} bytes and {count:,} members, out "
                "of all proportion."
            )
        return base + begin, nbytes, count

    def _read_all(self, raw: mmap.mmap) -> list[str]:
        nbytes, count = self._nbytes, self._count
        at, names = 0, list[str]()
        lengths = _LENGTHS.unpack_from
        while len(names) < count:
            starts, begin, entries = array("I"), len(names), list[bytes]()
            for index in range(begin, min(begin + _PART, count)):
                if at + 46 > nbytes:
                    raise FileFormatError(
                        f"{self.path}: the zip directory ends after {index:,} of {count:,} members."
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
                        f"{self.path}: the name of member {index:,} is not UTF-8."
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
        for what, is_wrong in problems.items():
            for place in np.flatnonzero(is_wrong):
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
            for index, name in enumerate(names):
                if _UNSAFE_NAME.search(name):
                    self._problem(
                        self.headers[index], name, f"{name!r} leads out of the archive", unsafe=True
                    )
        marks = np.fromiter(map(hash, names), np.int64, len(names))
        marks.sort()
        if (marks[1:] == marks[:-1]).any():
            seen: set[str] = set()
            for index, name in enumerate(names):
                if name in seen:
                    self._problem(
                        self.headers[index], name, f"{name!r} is there twice", unsafe=True
                    )
                seen.add(name)

    def _wide(self, extra: bytes, sizes: Any, name: str) -> list[int]:
        values = [int(size) for size in sizes]
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
        if np.array_equal(headers, inside):
            self._order = headers
        else:
            self._order = inside
        if self.packed == self.sizes:
            self.packed = self.sizes
        del self._spans


def _name(raw: bytes | mmap.mmap, start: int) -> str:
    """The name in an entry of the directory.

    If the file has changed, it will not match the local header.
    """
    length = _LENGTHS.unpack_from(raw, start + 28)[0]
    return raw[start + 46 : start + 46 + length].decode(errors="replace")


_LOCAL = struct.Struct("<I2xHH4xIIIHH")

_SMALL = 1 << 20
"""Up to this size in bytes, a member is read into ordinary memory."""
_FEW = 10
"""How many members are searched one by one, before a table of all names is made."""
_MANY = 1000
"""How many names are read one by one, after the table has been dropped."""


def is_number(name: str) -> bool:
    """Whether the name of a member is a number in the usual spelling, with at most nine digits."""
    return (
        name.isascii() and name.isdecimal() and len(name) < 10 and (name[0] != "0" or name == "0")
    )


class Member(NamedTuple):
    """A member of an archive, as the directory describes it.

    Args:
        name: Its name.
        place: Its index in the directory.
        header: The position of its local header.
        packed: Its size in the archive in bytes.
        size: Its size in bytes after decompression.
        crc: Its CRC-32.
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
    """A zip archive: its members by name, in the order of its directory, which is read at once.

    Args:
        path: The file.
        tolerant: Whether problems are collected in `problems`, if possible, instead of raising the
            first one.
        may_lack_sums: Whether checksums that are all zero mean that there are none, as in PyTorch.
        within: Its position and length in the file; ``None`` if it is the whole file.

    Raises:
        OSError: It cannot be read.
        FileFormatError: It is not a zip archive, is cut off, or has members that overlap or are
            outside of it.
        UnsafeFileError: Two members have the same name, a name leads out of the archive, the
            declared size of a member is impossible, or the directory is far too large.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        tolerant: bool = False,
        may_lack_sums: bool = False,
        within: tuple[int, int] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.id = (self.path, *(within or ()))
        self.problems: list[FileFinding] = []
        self._tolerant = tolerant
        self._asked = 0
        self._descriptor: int | None = None
        self._index: dict[str, int] | None = None
        self._directory = Directory(self.path, self._problem, within)
        self._names: list[str] | None = self._directory.read()
        self.comment = self._directory.comment
        self.lacks_sums = may_lack_sums and not any(self._directory.crcs)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __contains__(self, name: object) -> bool:
        return self._find(name) is not None

    def __getitem__(self, name: str) -> Member:
        place = self._find(name)
        if place is None:
            raise KeyError(name)
        return self.member(place)

    @property
    def names(self) -> list[str]:
        """The names of the members, in the order of the directory.

        They are read again if they were dropped.
        """
        if self._names is None:
            self._names = self._directory.names()
        return self._names

    @property
    def places(self) -> dict[str, int]:
        """The index of each member by its name, for `size` and `member`."""
        if self._index is None:
            self._index = dict(zip(self.names, range(len(self.names)), strict=True))
        return self._index

    def numbered(self, prefix: str) -> array[int]:
        """The indices of members whose names are a prefix and a number, by number; -1 if none.

        They take less memory than the names. Only numbers below the number of members are found.
        """
        begin, count = len(prefix), len(self.names)
        indices = array("i", [-1]) * count
        for index, name in enumerate(self.names):
            if name.startswith(prefix) and is_number(name[begin:]):
                number = int(name[begin:])
                if number < count:
                    indices[number] = index
        return indices

    def forget_names(self) -> None:
        """Drop the names, which take most of the memory.

        They are read again when they are needed.
        """
        self._names = self._index = None

    def size(self, index: int) -> int:
        """The size of a member in bytes."""
        return self._directory.sizes[index]

    def is_deflated(self, index: int) -> bool:
        """Whether a member is compressed."""
        return bool(self._directory.deflated[index])

    def member(self, index: int) -> Member:
        """The member with an index."""
        directory = self._directory
        self._asked += 1
        alone = self._names is None and self._asked < _MANY
        return Member(
            directory.name(index) if alone else self.names[index],
            index,
            directory.headers[index],
            directory.packed[index],
            directory.sizes[index],
            directory.crcs[index],
            DEFLATED if directory.deflated[index] else STORED,
        )

    def _find(self, name: object) -> int | None:
        """The index of a member. For a few lookups, no table of all names is made."""
        self._asked += 1
        if self._index is None and self._asked < _FEW:
            if isinstance(name, str) and name in self.names:
                return self.names.index(name)
            return None
        return self.places.get(name)  # type: ignore[call-overload, no-any-return]

    def offset(self, member: Member) -> int:
        """The position of a member's data. Its local header is compared with the directory.

        Raises:
            FileFormatError: They differ, or the data overlaps the next member.
        """
        raw = read_at(self.path, member.header, 30 + len(member.name.encode()), self._descriptor)
        signature, flags, method, crc, packed, size, name_length, extra_length = _LOCAL.unpack_from(
            raw
        )
        wrong = self._wrong(member)
        if signature != 0x04034B50:
            raise wrong("has no local header")
        if flags & 0x41 or method != member.method:
            raise wrong("has a local header with another method than the directory")
        if raw[30:] != member.name.encode() or name_length != len(raw) - 30:
            raise wrong("has another name in its local header")
        # With bit 3, checksum and sizes follow the data, and may be zero here. 0xFFFFFFFF means the
        # extra field.
        if not flags & 8 and (
            crc != member.crc or not {packed, size} <= {member.packed, member.size, 0xFFFFFFFF}
        ):
            raise wrong("has another size or checksum in its local header")
        begin = member.header + 30 + name_length + extra_length
        if begin + member.packed > self._directory.after(member.header):
            raise wrong("overlaps what stands after it")
        return int(begin)

    def record(self, member: Member, begin: int | None = None) -> Record:
        """The region of a stored member, with its checksum; `begin` is its `offset`, if known."""
        if member.method != STORED:
            raise self._wrong(member)("is compressed, where it must be stored as it is")
        begin = self.offset(member) if begin is None else begin
        return Record(self.path, begin, member.size, None if self.lacks_sums else member.crc)

    def read_bytes(self, member: Member, limit: int) -> bytes:
        """Read a member, and compare its checksum.

        Raises:
            FileFormatError: As for `open_blocks`.
            UnsafeFileError: It is larger than `limit`.
        """
        if member.size > limit:
            raise UnsafeFileError(
                f"{self.path}: {member.name} holds {member.size:,} bytes; no more than {limit:,} "
                "are read into memory."
            )
        return b"".join(self.open_blocks(member))

    def read_pages(self, member: Member, limit: int) -> bytes | mmap.mmap:
        """As `read_bytes`; a large member goes into an anonymous map that can be freed by pages."""
        if member.method != STORED or not _SMALL < member.size <= limit:
            return self.read_bytes(member, limit)
        pages = read_pages(self.path, self.offset(member), member.size)
        self._compare(member, zlib.crc32(pages))
        return pages

    def open_blocks(self, member: Member) -> Iterator[bytes]:
        """Yield the bytes of a member in order, in blocks of about `BLOCK_BYTES`, decompressed.

        Raises:
            FileFormatError: It is cut off or corrupt, or its size or checksum is not that of the
                directory (raised after the last block).
        """
        wrong = self._wrong(member)
        crc = done = 0
        for block in (
            self._raw_blocks(member) if member.method == STORED else self._inflated(member)
        ):
            done += len(block)
            if done > member.size:
                raise wrong(
                    f"inflates to more than the {member.size:,} bytes that the directory says"
                )
            crc = zlib.crc32(block, crc)
            yield block
        if done != member.size:
            raise wrong(
                f"inflates to {done:,} bytes, not the {member.size:,} that the directory says"
            )
        self._compare(member, crc)

    def _compare(self, member: Member, crc: int) -> None:
        if crc != member.crc and not self.lacks_sums:
            raise self._wrong(member)(
                f"is corrupt: its CRC-32 is {crc:08x}, the directory says {member.crc:08x}"
            )

    @contextmanager
    def held_open(self) -> Iterator[int | None]:
        """A context in which the file stays open, to read many members."""
        with held_open(self.path) as descriptor:
            self._descriptor = descriptor
            try:
                yield descriptor
            finally:
                self._descriptor = None

    def findings(self, tensor_of: Callable[[str], str | None]) -> Iterator[FileFinding]:
        """Find what is wrong with the archive: each member's local header, data and checksum."""
        if self.lacks_sums:
            what = "it was saved without checksums, so that damage to its values would not be seen"
            yield FileFinding(self.path, None, None, what, error=False)
        for problem in self.problems:
            # `problems` have names of members, because tensors were not known when they were found.
            yield problem._replace(tensor=tensor_of(problem.tensor) if problem.tensor else None)
        for name in self:
            member = self[name]
            try:
                for _ in self.open_blocks(member):
                    pass
            except FileFormatError as error:
                yield FileFinding(self.path, member.header, tensor_of(name), error.message)

    def _problem(self, offset: int, name: str, message: str, *, unsafe: bool = False) -> None:
        if self._tolerant:
            self.problems.append(FileFinding(self.path, offset, name, f"{message}."))
        elif unsafe:
            raise UnsafeFileError(
                f"{self.path}: {message}.", "do not open it with anything else either"
            )
        else:
            raise FileFormatError(f"{self.path}: {message}.")

    def _wrong(self, member: Member) -> Callable[[str], FileFormatError]:
        return lambda what: FileFormatError(
            f"{self.path}: {member.name} (at byte {member.header}) {what}."
        )

    def _raw_blocks(self, member: Member) -> Iterator[bytes]:
        begin = self.offset(member)
        for start in range(0, member.packed, BLOCK_BYTES):
            yield read_at(
                self.path, begin + start, min(BLOCK_BYTES, member.packed - start), self._descriptor
            )

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


class MemberRegion:
    """An uncompressed member of an archive, by its index, which contains tensors."""

    __slots__ = ("_record", "archive", "index")

    def __init__(self, archive: Archive, index: int) -> None:
        self.archive = archive
        self.index = index
        self._record: Record | None = None

    @property
    def is_known(self) -> bool:
        """Whether its local header has been read."""
        return self._record is not None

    @property
    def record(self) -> Record:
        """Its position in the file, and its checksum.

        Raises:
            FileFormatError: Its local header and the directory differ.
        """
        if self._record is None:
            self._record = self.archive.record(self.archive.member(self.index))
        return self._record


class MemberForm(NamedTuple):
    """The facts that many tensors of an archive share, to save memory.

    Args:
        archive: The archive.
        dtype: The canonical name of the dtype.
        shape: Lengths of the axes.
        swapped: Whether the bytes are big-endian.
        start: The position of the first byte in the member.
    """

    archive: Archive
    dtype: str
    shape: tuple[int, ...]
    swapped: bool
    start: int = 0


class ZipExtent(Packed):
    """Values without gaps in a member of an archive; `region` may also be the member's index."""

    __slots__ = ("_region", "layout")

    def __init__(self, layout: MemberForm, region: MemberRegion | int) -> None:
        self.layout = layout
        self._region = region

    @property
    def region(self) -> MemberRegion:
        """The member."""
        if isinstance(self._region, int):
            self._region = MemberRegion(self.layout.archive, self._region)
        return self._region

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.layout.dtype

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.layout.shape

    @property
    def swapped(self) -> bool:  # type: ignore[override]
        return self.layout.swapped

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.layout.archive.path

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self.region.record.offset + self.layout.start

    @property
    def record(self) -> Record:  # type: ignore[override]
        return self.region.record

    @property
    def key(self) -> Hashable:
        region, (archive, dtype, shape, _, start) = self._region, self.layout
        return (
            archive.id,
            region if type(region) is int else self.region.index,
            start,
            shape,
            dtype,
        )


class ZipView(View):
    """Values with strides in a member of an archive; `start` is the first one's position in it."""

    __slots__ = ("region", "start")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        region: MemberRegion,
        start: int,
        strides: tuple[int, ...],
        *,
        swapped: bool = False,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.region = region
        self.start = start
        self.strides = strides
        self.swapped = swapped

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.region.archive.path

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self.region.record.offset + self.start

    @property
    def record(self) -> Record:  # type: ignore[override]
        return self.region.record

    @property
    def key(self) -> Hashable:
        return (
            self.region.archive.id,
            self.region.index,
            self.start,
            self.shape,
            self.dtype,
            self.strides,
        )
