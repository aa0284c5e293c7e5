"""Read zip archives with all bounds checked.

The format is described at https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (6.3.10). The
standard library's `zipfile` makes an object with a dozen fields for each member, which is too much
for 100,000 tensors, and it accepts members that overlap. The writer is in `zip_writer`.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ...errors import FileFormatError, UnsafeFileError
from ..base.contents import FileFinding
from ..base.raw import read_at, read_pages
from ..base.stored import BLOCK_BYTES, Record
from .zip_directory import DEFLATED, STORED, Directory

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["DEFLATED", "STORED", "Archive", "Member", "is_number"]

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
        """The indices of members whose names are a prefix and a number, by the number; -1 if there is none.

        They take less memory than the names. Only numbers below the number of members are found.
        """
        begin, count = len(prefix), len(self.names)
        found = array("i", [-1]) * count
        for place, name in enumerate(self.names):
            if name.startswith(prefix) and is_number(name[begin:]):
                number = int(name[begin:])
                if number < count:
                    found[number] = place
        return found

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
        found = self._directory
        self._asked += 1
        alone = self._names is None and self._asked < _MANY
        return Member(
            found.name(index) if alone else self.names[index],
            index,
            found.headers[index],
            found.packed[index],
            found.sizes[index],
            found.crcs[index],
            DEFLATED if found.deflated[index] else STORED,
        )

    def _find(self, name: object) -> int | None:
        """The index of a member. For a few lookups, no table of all names is made."""
        self._asked += 1
        if self._index is None and self._asked < _FEW:
            return self.names.index(name) if isinstance(name, str) and name in self.names else None
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
                f"{self.path}: {member.name} holds {member.size:,} bytes; no more than {limit:,} are read into memory."
            )
        return b"".join(self.open_blocks(member))

    def read_pages(self, member: Member, limit: int) -> bytes | mmap.mmap:
        """As `read_bytes`, but a large member is read into an anonymous map, whose pages can be freed one by one."""
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
        found = done = 0
        for block in (
            self._raw_blocks(member) if member.method == STORED else self._inflated(member)
        ):
            done += len(block)
            if done > member.size:
                raise wrong(
                    f"inflates to more than the {member.size:,} bytes that the directory says"
                )
            found = zlib.crc32(block, found)
            yield block
        if done != member.size:
            raise wrong(
                f"inflates to {done:,} bytes, not the {member.size:,} that the directory says"
            )
        self._compare(member, found)

    def _compare(self, member: Member, found: int) -> None:
        if found != member.crc and not self.lacks_sums:
            raise self._wrong(member)(
                f"is corrupt: its CRC-32 is {found:08x}, the directory says {member.crc:08x}"
            )

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """A context in which the file stays open, to read many members."""
        with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 - a plain string
            self._descriptor = file.fileno()
            try:
                yield
            finally:
                self._descriptor = None

    def findings(self, tensor_of: Callable[[str], str | None]) -> Iterator[FileFinding]:
        """Find what is wrong with the archive: the local header, data and checksum of each member are checked."""
        if self.lacks_sums:
            what = "it was saved without checksums, so that damage to its values would not be seen"
            yield FileFinding(self.path, None, None, what, error=False)
        for each in self.problems:
            # `problems` have names of members, because tensors were not known when they were found.
            yield each._replace(tensor=tensor_of(each.tensor) if each.tensor else None)
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
