"""`ArchiveWriter`: write zip archives of uncompressed members, data aligned, front to back."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from ..base.raw import write_fully

if TYPE_CHECKING:
    from ..base.pump import Pump
    from ..base.stored import Stored

__all__ = ["ALIGNMENT", "ArchiveWriter"]

ALIGNMENT = 64
"""The alignment of the data of members in bytes, as in the files of ``torch.save``."""

_MOST_NARROW = 0xFFFFFFFF
_DAY = 0x21
"""1980-01-01, the first date of zip. With a fixed date, equal contents give equal bytes."""


class ArchiveWriter:
    """Writes a zip archive, member after member, without seeking.

    The layout is the same as that of ``torch.save``: checksum and sizes follow the data of each
    member, and an extra field ``FB`` pads its header.
    ``torch.utils.serialization.config.load.calculate_storage_offsets`` depends on it:
    https://docs.pytorch.org/docs/stable/notes/serialization.html

    Args:
        descriptor: A file that is open for writing, and empty.
    """

    def __init__(self, descriptor: int) -> None:
        import hashlib  # here, because OpenSSL takes four MiB of memory, which reading does not need

        self._descriptor = descriptor
        self._at = 0
        self._directory = bytearray()
        self._count = 0
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> bytes:
        """A hash of the names and checksums of the members so far."""
        return self._digest.digest()

    def add(
        self,
        name: str,
        prefix: bytes = b"",
        stored: Stored | None = None,
        suffix: bytes = b"",
        pump: Pump | None = None,
    ) -> None:
        """Append a member with a new name: a prefix, the bytes of a tensor (if any), and a suffix.

        Raises:
            OSError: It cannot be written.
            FileFormatError: The tensor's source is cut off, or its checksum is wrong.
        """
        size = len(prefix) + (stored.nbytes if stored is not None else 0) + len(suffix)
        raw_name = name.encode()
        header = self._at
        extra = _zip64(
            (size, size) if size >= _MOST_NARROW else (),
            (header,) if header >= _MOST_NARROW else (),
        )
        begin = header + 30 + len(raw_name) + len(extra) + 4
        padding = -begin % ALIGNMENT
        narrow = _MOST_NARROW if size >= _MOST_NARROW else 0
        lengths = len(raw_name), len(extra) + 4 + padding
        version = 45 if extra else 20
        local = struct.pack(
            "<IHHHHHIIIHH", 0x04034B50, version, 0x808, 0, 0, _DAY, 0, narrow, narrow, *lengths
        )
        self._write(
            local + raw_name + extra + b"FB" + struct.pack("<H", padding) + b"Z" * padding + prefix
        )
        crc = zlib.crc32(prefix)
        if stored is not None and pump is not None:
            crc = pump.copy(stored, self._descriptor, crc=crc) or 0
            self._at += stored.nbytes
        crc = zlib.crc32(suffix, crc)
        self._write(
            suffix + struct.pack("<IIQQ" if extra else "<IIII", 0x08074B50, crc, size, size)
        )
        self._enter(raw_name, header, size, crc, extra)

    def finish(self, comment: bytes = b"") -> None:
        """Write the directory and the comment. After that, nothing can be added."""
        begin, nbytes, count = self._at, len(self._directory), self._count
        end = b""
        if count >= 0xFFFF or begin >= _MOST_NARROW or nbytes >= _MOST_NARROW:
            end = struct.pack(
                "<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, nbytes, begin
            )
            end += struct.pack("<IIQI", 0x07064B50, 0, begin + nbytes, 1)
        narrow = min(count, 0xFFFF)
        place = min(nbytes, _MOST_NARROW), min(begin, _MOST_NARROW)
        end += struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, narrow, narrow, *place, len(comment))
        self._write(bytes(self._directory))
        self._write(end + comment)

    def _enter(self, name: bytes, header: int, size: int, crc: int, extra: bytes) -> None:
        self._count += 1
        self._digest.update(name + struct.pack("<II", crc, len(name)))
        version, narrow = 45 if extra else 20, min(size, _MOST_NARROW)
        self._directory += struct.pack(
            "<IHHHHHHIII", 0x02014B50, version, version, 0x808, 0, 0, _DAY, crc, narrow, narrow
        )
        self._directory += struct.pack(
            "<HHHHHII", len(name), len(extra), 0, 0, 0, 0, min(header, _MOST_NARROW)
        )
        self._directory += name + extra

    def _write(self, raw: bytes) -> None:
        self._at += len(raw)
        write_fully(self._descriptor, raw)


def _zip64(sizes: tuple[int, ...], header: tuple[int, ...]) -> bytes:
    values = sizes + header
    if values:
        return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values)
    return b""
