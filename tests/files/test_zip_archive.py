"""Zip archives: what the standard library and torch write is read, what lies is refused, what we write they read."""

from __future__ import annotations

import os
import random
import struct
import zipfile
import zlib

import numpy as np
import pytest
from tests.files import hostile
from tests.files.hostile import Lies
from tests.support import peak_of

from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent, InMemory
from tensorferry.files.encodings.zip_archive import DEFLATED, STORED, Archive
from tensorferry.files.encodings.zip_writer import ALIGNMENT, ArchiveWriter

TRUE = Lies()
DATA = bytes(range(256)) * 20


def write(tmp_path, data):
    path = tmp_path / "archive.zip"
    path.write_bytes(data)
    return path


def made(tmp_path, members, comment=b""):
    """An archive of our own writing, of members as `ArchiveWriter.add` takes them."""
    path = tmp_path / "made.zip"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        writer = ArchiveWriter(descriptor)
        for member in members:
            writer.add(**member)
        writer.finish(comment)
    finally:
        os.close(descriptor)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_zipfile_writes_is_read(method, tmp_path):
    """Stored and deflated members, empty ones, names beyond ASCII and a comment: the same bytes by name."""
    members = {
        "a/b": DATA,
        "empty": b"",
        "größe.npy": os.urandom(3_000_000),
        "zeros": bytes(5_000_000),
    }
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = b"PK\5\6 in a comment"
    archive = Archive(path)
    assert list(archive) == list(members)
    for name, data in members.items():
        member = archive[name]
        assert member.method == (DEFLATED if method else STORED)
        assert member.size == len(data)
        assert archive.read_bytes(member, 10_000_000) == data
        assert all(len(block) <= 1 << 20 for block in archive.open_blocks(member))


def test_streamed_archives_are_read(tmp_path):
    """Members whose sizes follow their data, as programs write that cannot seek, are read."""
    path = tmp_path / "archive.zip"
    with path.open("wb") as file:

        class Stream:
            def write(self, data):
                return file.write(data)

            def flush(self):
                file.flush()

        with zipfile.ZipFile(Stream(), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a", DATA)
    archive = Archive(path)
    assert archive.read_bytes(archive["a"], 1 << 20) == DATA


def test_what_is_written_is_read_by_zipfile_and_aligned(tmp_path):
    """Names, bytes and checksums are those that were given, and each member's data begins at a multiple of 64."""
    source = tmp_path / "source"
    source.write_bytes(DATA)
    members = [
        {"name": "a", "prefix": b"begin", "suffix": b"end"},
        {
            "name": "b" * 200,
            "stored": Extent("uint8", (len(DATA),), str(source), 0),
            "pump": Pump(),
        },
        {
            "name": "größe",
            "prefix": b"x" * 64,
            "stored": InMemory(np.arange(9.0), "float64", 0),
            "pump": Pump(),
        },
        {"name": "empty"},
    ]
    expected = [b"beginend", DATA, b"x" * 64 + np.arange(9.0).tobytes(), b""]
    path = made(tmp_path, members, b"a comment")
    own = Archive(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment == b"a comment"
        assert archive.namelist() == [member["name"] for member in members] == list(own)
        for name, data in zip(archive.namelist(), expected, strict=True):
            assert archive.read(name) == data == own.read_bytes(own[name], 1 << 20)
            assert own.offset(own[name]) % ALIGNMENT == 0
            assert path.read_bytes()[own.offset(own[name]) :][: len(data)] == data


def test_equal_contents_make_equal_bytes(tmp_path):
    """Nothing of the time or the machine is in an archive."""
    members = [{"name": "a", "prefix": DATA}, {"name": "b", "prefix": b"1"}]
    first = made(tmp_path, members).read_bytes()
    assert made(tmp_path, members).read_bytes() == first
    assert made(tmp_path, members[:1]).read_bytes() != first


def test_sizes_of_zip64_are_read_wherever_they_stand(tmp_path):
    """Members whose sizes stand in a zip64 field, behind more than 64 KiB of directory too."""
    wide = struct.pack("<HHQQ", 1, 16, len(DATA), len(DATA))
    lies = Lies({"extra": b""}, size=0xFFFFFFFF, packed=0xFFFFFFFF, extra=wide)
    members = [(f"member {number:060}", b"", TRUE) for number in range(2_000)]
    archive = Archive(
        write(tmp_path, hostile.zip_bytes([("first", DATA, lies), *members, ("last", DATA, lies)]))
    )
    assert [archive.read_bytes(archive[name], 1 << 20) for name in ("first", "last")] == [
        DATA,
        DATA,
    ]


@pytest.mark.slow
def test_archives_of_many_members_and_gigabytes(tmp_path):
    """More than 65,535 members, and a member of more than 4 GiB with one after it, which zip64 is for."""
    path = made(
        tmp_path, [{"name": f"{number}", "prefix": b"%d" % number} for number in range(70_000)]
    )
    assert len(Archive(path)) == 70_000
    with zipfile.ZipFile(path) as archive:
        assert archive.read("69999") == b"69999"
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate((1 << 32) + 7)
    big = Extent("uint8", ((1 << 32) + 7,), str(sparse), 0)
    path = made(
        tmp_path,
        [{"name": "big", "stored": big, "pump": Pump()}, {"name": "after", "prefix": b"after"}],
    )
    archive = Archive(path)
    assert (archive["big"].size, archive.read_bytes(archive["after"], 10)) == (
        (1 << 32) + 7,
        b"after",
    )
    assert archive.offset(archive["after"]) % ALIGNMENT == 0
    with zipfile.ZipFile(path) as other:
        assert [each.file_size for each in other.infolist()] == [(1 << 32) + 7, 5]
        assert other.read("after") == b"after"
    assert archive["big"].crc == Archive(path)["big"].crc == other.getinfo("big").CRC
    path.unlink()


LIARS = {
    "cut off in the directory": {"cut": -30},
    "cut off in the end": {"cut": -5},
    "count too large": {"count": 3},
    "count too small": {"count": 1},
    "count out of proportion": {"count": 60_000},
    "directory beyond the file": {"directory_offset": 1 << 30},
    "directory too early": {"directory_offset": 3},
    "directory too long": {"directory_size": 1 << 31},
    "bytes before it": {"extra": b"#!/bin/sh\n", "directory_offset": 0},
}


@pytest.mark.parametrize("what", LIARS)
def test_directories_that_lie_are_refused(what, tmp_path):
    """An end of the directory that does not fit the file is an error, whatever it claims."""
    members = [("a", DATA, TRUE), ("b", DATA, TRUE)]
    assert len(Archive(write(tmp_path, hostile.zip_bytes(members)))) == 2
    with pytest.raises(FileFormatError):
        Archive(write(tmp_path, hostile.zip_bytes(members, **LIARS[what])))


MEMBERS = {
    "overlap": ([("a", DATA, TRUE), ("b", DATA, Lies(offset=5))], UnsafeFileError, "overlaps"),
    "one place for two": (
        [("a", DATA, TRUE), ("b", DATA, Lies(offset=0))],
        UnsafeFileError,
        "overlaps",
    ),
    "out of the file": ([("a", DATA, Lies(offset=1 << 30))], FileFormatError, "outside"),
    "past the end": ([("a", DATA, Lies(packed=1 << 20, size=1 << 20))], FileFormatError, "outside"),
    "in the directory": (
        [("a", DATA, Lies(packed=len(DATA) + 9, size=len(DATA) + 9))],
        FileFormatError,
        "outside",
    ),
    "name twice": ([("a", DATA, TRUE), ("a", b"other", TRUE)], UnsafeFileError, "twice"),
    "encrypted": ([("a", DATA, Lies(flags=1))], FileFormatError, "encrypted"),
    "unknown method": ([("a", DATA, Lies(method=14))], FileFormatError, "unknown way"),
    "stored in fewer bytes": (
        [("a", DATA, Lies(size=len(DATA) + 1))],
        FileFormatError,
        "another number of bytes",
    ),
    "bomb": ([("a", DATA, Lies(method=8, size=1 << 31))], UnsafeFileError, "bomb"),
    "path up": ([("a/../../b", DATA, TRUE)], UnsafeFileError, "leads out"),
    "path of the root": ([("/etc/passwd", DATA, TRUE)], UnsafeFileError, "leads out"),
    "path of a drive": ([("c:b", DATA, TRUE)], UnsafeFileError, "leads out"),
    "path with a backslash": ([("a\\b", DATA, TRUE)], UnsafeFileError, "leads out"),
    "name with a zero": ([("a\0b", DATA, TRUE)], UnsafeFileError, "leads out"),
    "name that is no text": ([("a", DATA, Lies(name=b"\xff\xfe"))], FileFormatError, "UTF-8"),
    "zip64 without its field": ([("a", DATA, Lies(size=0xFFFFFFFF))], FileFormatError, "zip64"),
    "zip64 out of range": (
        [("a", DATA, Lies(size=0xFFFFFFFF, extra=struct.pack("<HHQ", 1, 8, 1 << 63)))],
        FileFormatError,
        "zip64",
    ),
    "zip64 field cut off": (
        [("a", DATA, Lies(size=0xFFFFFFFF, extra=struct.pack("<HHI", 1, 4, 7)))],
        FileFormatError,
        "zip64",
    ),
}


@pytest.mark.parametrize("what", MEMBERS)
def test_members_that_lie_are_refused_and_found(what, tmp_path):
    """Opening raises the named error; `check`, which goes on, finds the same."""
    members, error, message = MEMBERS[what]
    path = write(tmp_path, hostile.zip_bytes(members))
    with pytest.raises(error, match=message):
        Archive(path)
    if "UTF-8" in message or "zip64" in message:
        # Without names or sizes there is nothing to go on with.
        with pytest.raises(error, match=message):
            Archive(path, tolerant=True)
        return
    found = list(Archive(path, tolerant=True).findings({}.get))
    assert any(message in finding.message for finding in found)
    assert all(finding.offset is not None for finding in found)


LOCAL = {
    "another name": ({"name": b"z"}, "another name"),
    "longer name": ({"name": b"aa"}, "another name"),
    "another method": ({"method": 8}, "another method"),
    "another size": ({"size": 5, "packed": 5}, "another size"),
    "another checksum": ({"crc": 5}, "another size or checksum"),
    "space that the next has": ({"extra": b"\0" * 100}, None),
}


@pytest.mark.parametrize("what", LOCAL)
def test_local_headers_are_compared_when_data_is_needed(what, tmp_path):
    """A member that says one thing in the directory and another before its data is refused: readers would differ."""
    fields, message = LOCAL[what]
    path = write(tmp_path, hostile.zip_bytes([("a", DATA, Lies(local=fields)), ("b", DATA, TRUE)]))
    archive = Archive(path)
    assert archive.read_bytes(archive["b"], 1 << 20) == DATA
    if message is None:
        assert archive.read_bytes(archive["a"], 1 << 20) == DATA
        return
    with pytest.raises(FileFormatError, match=message):
        archive.record(archive["a"])
    assert [finding.offset for finding in archive.findings({"a": "weight"}.get)] == [0]


def test_data_that_reaches_into_the_next_member_is_refused(tmp_path):
    """An extra field that only the local header has can push data over what follows it."""
    raw = bytearray(hostile.zip_bytes([("a", DATA, TRUE), ("b", DATA, TRUE)]))
    raw[28:30] = struct.pack("<H", 40)
    archive = Archive(write(tmp_path, raw))
    with pytest.raises(FileFormatError, match="overlaps what stands after it"):
        archive.offset(archive["a"])


def test_a_flipped_bit_is_found_with_its_tensor_and_place(tmp_path):
    """Each member's checksum is compared, and the finding names the tensor and the byte."""
    raw = bytearray(hostile.zip_bytes([("a", DATA, TRUE), ("b", DATA, TRUE)]))
    second = raw.index(b"PK\3\4", 4)
    raw[second + 100] ^= 1
    archive = Archive(write(tmp_path, raw))
    (finding,) = archive.findings({"b": "weight"}.get)
    assert (finding.tensor, finding.offset, finding.error) == ("weight", second, True)
    with pytest.raises(FileFormatError, match="corrupt"):
        archive.read_bytes(archive["b"], 1 << 20)


def deflated(data):
    """Raw deflate."""
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("packed", "size", "message"),
    [
        (deflated(DATA), len(DATA) - 1, "inflates to more"),
        (deflated(DATA), len(DATA) + 1, "inflates to 5,120"),
        (deflated(DATA)[:-5], len(DATA), "cut off|cannot be inflated"),
        (deflated(DATA) + b"more", len(DATA), "after the end"),
        (b"\xff" * 50, len(DATA), "cannot be inflated"),
        (b"", 10, "cut off|bomb"),
    ],
)
def test_deflated_members_hold_what_the_directory_says(packed, size, message, tmp_path):
    """More or fewer bytes than declared, or a stream that is no deflate, is an error; never more is inflated."""
    lies = Lies(method=8, size=size, crc=zlib.crc32(DATA))
    path = write(tmp_path, hostile.zip_bytes([("a", packed, lies)]))
    archive = Archive(path)
    with pytest.raises(FileFormatError, match=message):
        archive.read_bytes(archive["a"], 1 << 20)


def test_a_limit_on_what_is_read_into_memory(tmp_path):
    """A member that claims more than the caller's limit is not read at all."""
    path = write(
        tmp_path, hostile.zip_bytes([("a", deflated(bytes(1 << 20)), Lies(method=8, size=1 << 20))])
    )
    archive = Archive(path)
    with pytest.raises(UnsafeFileError, match="no more than 1,000"):
        archive.read_bytes(archive["a"], 1_000)


def test_files_that_are_no_archives(tmp_path):
    """Empty files, text, and ends without a beginning raise the named error."""
    for data in (b"", b"hello", b"PK\5\6", b"PK\5\6" + bytes(17), b"PK\5\6" + b"\xff" * 18):
        with pytest.raises(FileFormatError):
            Archive(write(tmp_path, data))
    assert len(Archive(write(tmp_path, b"PK\5\6" + bytes(18)))) == 0


def test_an_archive_cut_off_or_damaged_anywhere_raises_nothing_else(tmp_path):
    """Whatever byte is changed, and wherever it is cut: a named error, or the members' own checked bytes."""
    good = hostile.zip_bytes([("a", b"first", TRUE), ("b", b"second", TRUE)], comment=b"end")
    outcomes = set()
    draw = random.Random(5)  # noqa: S311 - not for secrets
    damaged = [good[:length] for length in range(len(good))]
    for place in range(len(good)):
        damaged += [
            good[:place] + bytes([byte]) + good[place + 1 :]
            for byte in (0, 255, draw.randrange(256))
        ]
    for data in damaged:
        try:
            archive = Archive(write(tmp_path, data))
            assert {archive.read_bytes(archive[name], 100) for name in archive} <= {
                b"first",
                b"second",
            }
            outcomes.add("read")
        except (FileFormatError, UnsafeFileError) as error:
            outcomes.add(type(error).__name__)
    assert outcomes == {"read", "FileFormatError", "UnsafeFileError"}


def test_zip64_ends_are_read_and_compared(tmp_path):
    """Where an archive has both ends, they may not contradict each other: readers would differ."""
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", DATA)
    raw = path.read_bytes()
    begin = raw.index(b"PK\1\2")
    end = raw.index(b"PK\5\6")
    wide = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, end - begin, begin)
    locator = struct.pack("<IIQI", 0x07064B50, 0, end, 1)
    both = raw[:end] + wide + locator + raw[end:]
    archive = Archive(write(tmp_path, both))
    assert archive.read_bytes(archive["a"], 1 << 20) == DATA
    for at, value in ((end + 48, begin + 1), (end + 24, 2), (end + 56 + 8, end + 1)):
        other = bytearray(both)
        other[at : at + 8] = struct.pack("<Q", value)
        with pytest.raises(FileFormatError):
            Archive(write(tmp_path, other))


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_members_take_little(tmp_path, count):
    """A directory of many members is read in less than half of the memory that `zipfile` takes."""
    path = made(
        tmp_path,
        [{"name": f"archive/data/{number}", "prefix": b"12345678"} for number in range(count)],
    )
    ours, archive = peak_of(lambda: Archive(path))
    assert len(archive) == count
    theirs, _ = peak_of(lambda: zipfile.ZipFile(path).close())
    assert ours < theirs / 2
