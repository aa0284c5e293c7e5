"""Hostile .safetensors, .npy and .npz: refused with a named error, in little memory and time, every finding told."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.files.support import contents
from tests.support import examples, peak_of

from tensorferry.errors import ConversionError, FileFormatError, UnsafeFileError
from tensorferry.files.base.contents import Contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import InMemory
from tensorferry.files.formats.npy import FORMAT as NPY
from tensorferry.files.formats.npz import FORMAT as NPZ
from tensorferry.files.formats.safetensors import FORMAT as SAFETENSORS


def raw(header, data=b"", length=None):
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin, end, shape=None, dtype="U8", **more):
    """What a header says of a tensor."""
    return {
        "dtype": dtype,
        "shape": [end - begin] if shape is None else shape,
        "data_offsets": [begin, end],
        **more,
    }


def text(name, begin, end):
    """The same as JSON, with its name."""
    return f'"{name}":{json.dumps(entry(begin, end))}'


SAFETENSORS_FILES = {
    "empty": (b"", "shorter than the 8 bytes"),
    "short": (b"\1\0\0", "shorter than the 8 bytes"),
    "length past the end": (
        raw({"a": entry(0, 1)}, b"\0", length=1000),
        "past the end of the file",
    ),
    "length of 2**64 - 1": (raw({}, length=(1 << 64) - 1), "100000000 are allowed"),
    "length of 2**63": (raw({}, length=1 << 63), "100000000 are allowed"),
    "length over the limit": (raw({}, length=100_000_001), "100000000 are allowed"),
    "no length": (raw(b""), "does not begin with"),
    "a list": (raw(b"[]"), "does not begin with"),
    "no JSON": (raw(b"{{{{"), "not what it should be"),
    "cut off": (raw(b'{"a":{"dtype":"U8","shape":[1],"data_off'), "not what it should be"),
    "comma at the end": (
        raw(b"{" + text("a", 0, 1).encode() + b",}", b"\0"),
        "not what it should be",
    ),
    "more behind it": (raw(b"{" + text("a", 0, 1).encode() + b"}x", b"\0"), "goes on after"),
    "zeros behind it": (raw(b"{" + text("a", 0, 1).encode() + b"}\0\0", b"\0"), "goes on after"),
    "two objects": (raw(b"{}{}"), "goes on after"),
    "not UTF-8": (
        raw(b'{"\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0"),
        "a string is malformed",
    ),
    "half a character": (
        raw(b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0"),
        "a string is malformed",
    ),
    "names that are equal": (
        raw(f"{{{text('a', 0, 1)},{text('a', 1, 2)}}}".encode(), b"\0\0"),
        "stands there twice",
    ),
    "names that are equal at last": (
        raw(f"{{{text('a', 0, 1)},{text(chr(92) + 'u0061', 1, 2)}}}".encode(), b"\0\0"),
        "stands there twice",
    ),
    "fields that are equal": (
        raw(b'{"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}', b"\0"),
        "dtype, shape and data_offsets are due",
    ),
    "fields in another entry": (
        raw(b'{"a":{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}', b"\0"),
        "dtype, shape and data_offsets are due",
    ),
    "values of two fields": (
        raw(b'{"a":["U8",[1]]}', b"\0"),
        "dtype, shape and data_offsets are due",
    ),
    "a field that does not end": (
        raw(b'{"a":{"x":"' + b"y" * (1 << 21), b"\0"),
        "of at most 64 KiB is due",
    ),
    "a field of brackets": (
        raw(b'{"a":{"x":' + b"[" * (1 << 21), b"\0"),
        "of at most 64 KiB is due",
    ),
    "a field too few": (
        raw({"a": {"dtype": "U8", "shape": [1]}}, b"\0"),
        "dtype, shape and data_offsets are due",
    ),
    "no object": (raw({"a": 3}), "an object or array of at most 64 KiB is due"),
    "an unknown dtype": (raw({"a": entry(0, 1, dtype="C128")}, b"\0"), "dtype C128 is not one of"),
    "a dtype that is no name": (raw({"a": entry(0, 1, dtype=3)}, b"\0"), "not a name and lengths"),
    "a negative length": (raw({"a": entry(0, 1, shape=[-1])}, b"\0"), "not a name and lengths"),
    "two negative lengths": (
        raw({"a": entry(0, 1, shape=[-1, -1])}, b"\0"),
        "not a name and lengths",
    ),
    "a fraction": (raw({"a": entry(0, 1, shape=[1.0])}, b"\0"), "not a name and lengths"),
    "a truth value": (raw({"a": entry(0, 1, shape=[True])}, b"\0"), "not a name and lengths"),
    "a length with a zero before it": (
        raw(b'{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', b"\0"),
        "its entry cannot be read",
    ),
    "no numbers": (
        raw(b'{"a":{"dtype":"U8","shape":[1,,1],"data_offsets":[0,1]}}', b"\0"),
        "its entry cannot be read",
    ),
    "NaN": (
        raw(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"\0"),
        "NaN is no JSON",
    ),
    "a length of 2**64": (raw({"a": entry(0, 0, shape=[1 << 64])}), "not a name and lengths"),
    "a length of 5000 digits": (
        raw(b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}', b"\0"),
        "its entry cannot be read",
    ),
    "lengths that overflow": (
        raw({"a": entry(0, 0, shape=[1 << 32, 1 << 32])}),
        "too large for any machine",
    ),
    "lengths that overflow to 1": (
        raw({"a": entry(0, 1, shape=[(1 << 32) + 1, (1 << 32) - 1])}, b"\0"),
        "too large for any machine",
    ),
    "lengths that overflow beside 0": (
        raw({"a": entry(0, 0, shape=[0, 1 << 40, 1 << 40])}),
        "too large for any machine",
    ),
    "bytes that overflow": (
        raw({"a": entry(0, 0, shape=[1 << 61], dtype="F64")}),
        "too large for any machine",
    ),
    "too few bytes": (
        raw({"a": entry(0, 4, shape=[2], dtype="F32")}, bytes(4)),
        "takes 8 bytes, its offsets 0 and 4",
    ),
    "offsets the wrong way round": (
        raw({"a": entry(4, 0, shape=[4])}, bytes(4)),
        "its offsets 4 and 0",
    ),
    "negative offsets": (
        raw({"a": entry(-1, 0, shape=[1])}, bytes(4)),
        "not a beginning and an end",
    ),
    "three offsets": (
        raw({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, b"\0"),
        "not a beginning and an end",
    ),
    "offsets of 2**64": (
        raw({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1 << 64, (1 << 64) + 1]}}, b"\0"),
        "not a beginning and an end",
    ),
    "offsets past the end": (raw({"a": entry(0, 100)}, bytes(10)), "past the end of the file"),
    "an overlap": (
        raw({"a": entry(0, 6), "b": entry(4, 10)}, bytes(10)),
        "overlaps what lies before it, 'a'",
    ),
    "the same bytes twice": (
        raw({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)),
        "overlaps what lies before it",
    ),
    "nothing within something": (
        raw({"a": entry(0, 4), "b": entry(2, 2, shape=[0])}, bytes(4)),
        "overlaps what lies before it",
    ),
    "a hole": (
        raw({"a": entry(0, 4), "b": entry(6, 10)}, bytes(10)),
        "2 bytes before it belong to no tensor",
    ),
    "a hole at the start": (
        raw({"a": entry(2, 4)}, bytes(4)),
        "2 bytes before it belong to no tensor",
    ),
    "bytes at the end": (raw({"a": entry(0, 4)}, bytes(7)), "its last 3 bytes belong to no tensor"),
    "bytes without tensors": (raw({}, bytes(7)), "its last 7 bytes belong to no tensor"),
    "half a byte": (raw({"a": entry(0, 2, shape=[3], dtype="F4")}, bytes(2)), "takes 1.5 bytes"),
    "metadata of numbers": (raw({"__metadata__": {"a": 1}}), "not what it should be"),
    "metadata that is a list": (raw({"__metadata__": []}), "not what it should be"),
    "metadata that is a tensor": (raw({"__metadata__": entry(0, 1)}, b"\0"), "'\"' is due"),
    "metadata twice": (raw(b'{"__metadata__":{},"__metadata__":{}}'), "stands there twice"),
    "a string twice": (raw(b'{"__metadata__":{"a":"b","a":"c"}}'), "has 'a' twice"),
    "nested lists": (
        raw(b'{"a":{"dtype":' + b"[" * 9000 + b"]" * 9000 + b"}}"),
        "nests too deep|cannot be read|its entry has",
    ),
    "nested objects": (raw(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "not what it should be"),
    "an entry of another field": (
        raw({"__metadata__": {"a": "b"}, "x": {"y": [[[[1]]]]}}),
        "are due",
    ),
}


@pytest.mark.parametrize("name", SAFETENSORS_FILES)
def test_a_hostile_safetensors_file_is_refused(tmp_path, name):
    """The error says what is wrong and where; check says the same and raises nothing; the file is left as it is."""
    whole, message = SAFETENSORS_FILES[name]
    path = tmp_path / "a.safetensors"
    path.write_bytes(whole)
    with pytest.raises(FileFormatError, match=message):
        SAFETENSORS.read(path)
    findings = list(SAFETENSORS.check(path))
    assert findings
    assert all(
        finding.error and finding.offset is not None and finding.path == str(path)
        for finding in findings
    )
    assert path.read_bytes() == whole


def test_the_official_reader_refuses_these_too():
    """Nothing is refused that the official reader takes, save what its specification forbids."""
    safetensors = pytest.importorskip("safetensors", reason="compares with the official reader")
    lenient = set()
    for name, (whole, _) in SAFETENSORS_FILES.items():
        try:
            safetensors.deserialize(whole)
        except safetensors.SafetensorError:
            continue
        lenient.add(name)
    assert lenient <= {
        "names that are equal",
        "names that are equal at last",
        "lengths that overflow beside 0",
        "metadata twice",
        "a string twice",
    }


def test_a_tensor_of_more_axes_than_numpy_has_is_listed(tmp_path):
    """What no array can be is not an error of the file; it is listed with the reason."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw({"a": entry(0, 1, shape=[1] * 65), "b": entry(1, 2)}, b"\0\1"))
    found = SAFETENSORS.read(path)
    assert "65 axes" in found.others["a"]
    assert found.tensors["b"].array().tolist() == [1]


def test_check_tells_every_finding_with_its_tensor_and_byte(tmp_path):
    """All that is wrong with a header is told at once, each with the tensor and the byte where it is wrong."""
    path = tmp_path / "a.safetensors"
    header = {
        "good": entry(0, 4),
        "negative": entry(4, 8, shape=[-4]),
        "unknown": entry(4, 8, dtype="F99"),
        "small": entry(4, 8, shape=[3]),
        "overlapping": entry(2, 6),
        "far": entry(100, 108),
    }
    path.write_bytes(raw(header, bytes(8)))
    findings = {finding.tensor: finding for finding in SAFETENSORS.check(path)}
    assert set(findings) == set(header) - {"good"}
    whole = path.read_bytes()
    data = len(whole) - 8
    for name in ("negative", "unknown", "small"):
        assert findings[name].offset == pytest.approx(whole.index(f'"{name}"'.encode()), abs=2)
    assert findings["overlapping"].offset == data + 2
    both = [finding for finding in SAFETENSORS.check(path) if finding.tensor == "far"]
    assert [finding.offset for finding in both] == [data + 6, data + 100]


def test_a_truncated_safetensors_file_names_every_tensor_that_is_cut(tmp_path):
    """Of a file that was cut off, check names the tensors that are incomplete, and no other."""
    path = tmp_path / "a.safetensors"
    SAFETENSORS.write(contents({f"t{n}": np.full(64, n, np.uint8) for n in range(8)}), path, Pump())
    path.write_bytes(path.read_bytes()[: -64 * 3 - 10])
    assert [finding.tensor for finding in SAFETENSORS.check(path)] == ["t4", "t5", "t6", "t7"]


LARGE = {
    "brackets": (b'{"a":', b"[", b""),
    "lists": (b'{"a":', b"[],", b""),
    "a name": (b'{"', b"a", b""),
    "a name and backslashes": (b'{"', b"\\", b""),
    "a shape": (b'{"a":{"dtype":"U8","shape":[', b"1,", b""),
    "blanks": (b"{", b" ", b""),
    "an entry": (b'{"a":{', b"[", b""),
    "digits": (b'{"a":{"dtype":"U8","shape":[', b"9", b'],"data_offsets":[0,1]}}'),
}
"""What such a header begins with, what comes over and over, and its end."""


@pytest.mark.parametrize("megabytes", [12, pytest.param(99, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LARGE)
def test_a_large_hostile_header_takes_little_memory(tmp_path, name, megabytes):
    """A header of up to nearly the largest size that is nothing but a trap is refused in two thirds of its own."""
    path = tmp_path / "a.safetensors"
    begin, again, end = LARGE[name]
    size = megabytes * 1_000_000
    path.write_bytes(raw(begin + again * ((size - len(begin) - len(end)) // len(again)) + end))

    def refuse():
        with pytest.raises(FileFormatError):
            SAFETENSORS.read(path)

    assert peak_of(refuse)[0] < size * 2 / 3


def npy(descr="'<f4'", fortran="False", shape="(2,)", data=bytes(8), version=b"\1\0", end="\n"):
    """A .npy file with any header."""
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}{end}".encode(
        "latin1"
    )
    length = struct.pack("<H" if version[:1] == b"\1" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + data


NPY_FILES = {
    "empty": (b"", "does not begin with"),
    "another": (b"hello", "does not begin with"),
    "magic alone": (b"\x93NUMPY", "version"),
    "version 9": (npy(version=b"\x09\0"), "version"),
    "version 1.1": (npy(version=b"\1\1"), "version"),
    "no length": (b"\x93NUMPY\1\0", "in the middle of its header"),
    "header past the end": (b"\x93NUMPY\1\0\xff\x00{", "in the middle of its header"),
    "header of 4 GiB": (b"\x93NUMPY\2\0\xff\xff\xff\xff{", "no more than 10000"),
    "code": (npy(shape="__import__('os').system('true')"), "cannot be read"),
    "a call": (npy(shape="tuple([2])"), "cannot be read"),
    "no dict": (npy(end="")[:10] + b" " * len(npy(end="")[10:]), "cannot be read"),
    "a field too many": (npy(shape="(2,), 'more': 1"), "cannot be read"),
    "a shape that is a list": (npy(shape="[2]"), "cannot be read"),
    "a shape that is a number": (npy(shape="(2)"), "cannot be read"),
    "a truth value": (npy(shape="(True,)"), "cannot be read"),
    "an order that is a number": (npy(fortran="1"), "cannot be read"),
    "a negative length": (npy(shape="(-2,)"), "negative"),
    "two negative lengths": (npy(shape="(-2, -1)"), "negative"),
    "lengths that overflow": (npy(shape="(4294967296, 4294967296)"), "no 64-bit number"),
    "lengths that overflow to 2": (npy(shape="(9223372036854775809, 2)"), "no 64-bit number"),
    "lengths that overflow beside 0": (
        npy(shape="(0, 1099511627776, 1099511627776)"),
        "no 64-bit number",
    ),
    "65 axes": (npy(shape="(" + "1, " * 65 + ")"), "65 axes"),
    "past the end": (npy(shape="(3,)"), "ends at byte"),
    "terabytes": (npy(shape="(1000000000000,)"), "ends at byte"),
    "terabytes by columns": (npy(shape="(1000000, 1000000)", fortran="True"), "ends at byte"),
    "nested brackets": (npy(shape="(" * 3000 + ")" * 3000), "cannot be read"),
    "nested minus signs": (npy(shape="-" * 9000 + "1"), "cannot be read"),
    "strings behind that are none": (npy(data=bytes(8) + b'\ntensorferry {"a":'), "cannot be read"),
    "strings behind that are lists": (
        npy(data=bytes(8) + b"\ntensorferry " + b"[" * 99999),
        "cannot be read",
    ),
    "a string twice": (npy(data=bytes(8) + b'\ntensorferry {"a":"b","a":"c"}'), "twice"),
    "a dtype of another size": (
        npy("'<V2'", data=bytes(4) + b'\ntensorferry {"tensorferry.dtype":"int8"}'),
        "names their dtype 'int8'",
    ),
    "a wrong dtype": (
        npy("'<V2'", data=bytes(4) + b'\ntensorferry {"tensorferry.dtype":"object"}'),
        "names their dtype 'object'",
    ),
    "a dtype that NumPy names": (
        npy("'<i2'", data=bytes(4) + b'\ntensorferry {"tensorferry.dtype":"bfloat16"}'),
        "names their dtype 'bfloat16'",
    ),
}


@pytest.mark.parametrize("name", NPY_FILES)
def test_a_hostile_npy_file_is_refused(tmp_path, name):
    """The error says what is wrong; check says the same and raises nothing; an archive with it is refused alike."""
    whole, message = NPY_FILES[name]
    path = tmp_path / "a.npy"
    path.write_bytes(whole)
    with pytest.raises(FileFormatError, match=message):
        NPY.read(path)
    (finding,) = NPY.check(path)
    assert finding.error
    if not whole.startswith(b"\x93NUMPY"):
        return
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("good.npy", npy())
        archive.writestr("bad.npy", whole)
    with pytest.raises(FileFormatError, match=r"bad\.npy"):
        NPZ.read(tmp_path / "a.npz")
    assert [found.tensor for found in NPZ.check(tmp_path / "a.npz")] == ["bad"]


def packed(members, method=zipfile.ZIP_STORED):
    """An archive of members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, held in members:
            archive.writestr(name, held)
    return buffer.getvalue()


def test_arrays_with_one_name_are_refused(tmp_path):
    """Two members of one name, and two whose arrays have one name, are refused."""
    path = tmp_path / "a.npz"
    with pytest.warns(UserWarning, match="Duplicate"):
        path.write_bytes(packed([("a.npy", npy()), ("a.npy", npy())]))
    with pytest.raises(ConversionError, match=r"a\.npy'? is there twice"):
        NPZ.read(path)
    assert [finding.tensor for finding in NPZ.check(path)] == ["a"]
    path.write_bytes(packed([("a.npy", npy()), ("a", npy())]))
    with pytest.raises(FileFormatError, match="two arrays named 'a'"):
        NPZ.read(path)


def test_a_name_that_leads_out_of_the_archive_is_refused(tmp_path):
    """A member that an unpacker would write elsewhere is refused by name."""
    path = tmp_path / "a.npz"
    path.write_bytes(packed([("../../evil.npy", npy())]))
    with pytest.raises(UnsafeFileError, match="evil"):
        NPZ.read(path)


def test_a_member_that_inflates_to_more_than_it_says_is_refused(tmp_path):
    """A bomb whose directory lies about its size is refused when it is read, in bounded memory; check finds it."""
    path = tmp_path / "a.npz"
    whole = bytearray(
        packed([("a.npy", npy(shape="(1000000,)", data=bytes(4_000_000)))], zipfile.ZIP_DEFLATED)
    )
    size = struct.pack("<I", len(npy(shape="(1000000,)", data=bytes(4_000_000))))
    lie = struct.pack("<I", len(npy()))
    assert whole.count(size) == 2
    path.write_bytes(whole.replace(size, lie))
    with pytest.raises(FileFormatError, match=r"a\.npy"):
        NPZ.read(path)
    assert [finding.tensor for finding in NPZ.check(path)] == ["a"]


def test_a_member_that_claims_more_than_deflate_can_is_refused(tmp_path):
    """A size that no compressed data of that length can have is refused before anything is inflated."""
    path = tmp_path / "a.npz"
    held = npy(data=bytes(8))
    whole = packed([("a.npy", held)], zipfile.ZIP_DEFLATED)
    path.write_bytes(whole.replace(struct.pack("<I", len(held)), struct.pack("<I", 0xF0000000)))
    with pytest.raises(UnsafeFileError, match="zip bomb"):
        NPZ.read(path)


def test_a_bomb_of_zeros_is_read_in_little_memory(tmp_path):
    """An array of 512 MiB that is compressed to half a MiB is read, and looked at, in 64 MiB."""
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.npy", "w") as member,
    ):
        member.write(npy("'|u1'", shape="(512, 1048576)", data=b""))
        for _ in range(512):
            member.write(bytes(1 << 20))

    def read():
        total = sum(block.nbytes for block in NPZ.read(path).tensors["a"].blocks())
        assert not list(NPZ.check(path))
        return total

    peak, total = peak_of(read)
    assert total == 512 << 20
    assert peak < 64 << 20


@pytest.mark.parametrize(
    "comment",
    [
        b"tensorferry {",
        b"tensorferry []",
        b'tensorferry {"a":"b"}x',
        b'tensorferry {"a":"b","a":"c"}',
        b"tensorferry \xff",
    ],
)
def test_a_comment_that_nobody_wrote_is_an_error(tmp_path, comment):
    """A comment that only begins like ours is an error, not dropped."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones(2))
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = comment
    with pytest.raises(FileFormatError, match="comment"):
        NPZ.read(path)
    assert [finding.error for finding in NPZ.check(path)] == [True]


def _good(folder):
    """A good file of each format."""
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    held = {"a": array, "b": np.asfortranarray(array), "é": np.ones(3, np.int8)}
    tensors = {name: InMemory(value, value.dtype.name, name) for name, value in held.items()}
    SAFETENSORS.write(Contents("memory", (), tensors, {"k": "v"}), folder / "a.safetensors", Pump())
    np.save(folder / "a.npy", held["b"])
    np.savez_compressed(folder / "a.npz", **held)
    return {form: folder / f"a.{form.name}" for form in (SAFETENSORS, NPY, NPZ)}


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_no_damage_is_worse_than_a_named_error(tmp_path_factory, data):
    """Whatever bytes of a good file are changed, dropped or added, reading it works or raises a named error."""
    folder = tmp_path_factory.mktemp("damaged")
    form, path = data.draw(
        st.sampled_from(sorted(_good(folder).items(), key=lambda each: each[0].name))
    )
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(whole) - 1, 0)))
        kind = data.draw(st.sampled_from(["change", "cut", "drop", "add"]))
        if kind == "change" and whole:
            whole[place] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del whole[place:]
        elif kind == "drop":
            del whole[place : place + data.draw(st.integers(1, 9))]
        else:
            whole[place:place] = data.draw(st.binary(max_size=9))
    path.write_bytes(whole)
    with contextlib.suppress(ConversionError):
        for stored in form.read(path).tensors.values():
            assert sum(block.nbytes for block in stored.blocks()) == stored.nbytes
    for finding in form.check(path):
        assert finding.message
    assert path.read_bytes() == whole
