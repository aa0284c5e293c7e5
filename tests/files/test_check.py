"""What is wrong with a file is found, with the tensor and the byte; what is right is not."""

from __future__ import annotations

import json
import zipfile
from itertools import pairwise

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from tests.files.support import awkward

from tensorferry.core.dtypes import DTYPES, find
from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.base.contents import Contents, FileFinding
from tensorferry.files.base.format import Format
from tensorferry.files.base.stored import Decoded, Extent, InMemory, View
from tensorferry.files.conversion.convert import convert_files
from tensorferry.files.reports.check import check_path, check_values
from tensorferry.host.numpy_dtypes import numpy_dtype


def _extent(tmp_path, array, dtype=None, offset=16):
    path = tmp_path / "raw"
    path.write_bytes(bytes(offset) + array.tobytes())
    return Contents(
        "raw",
        (str(path),),
        {"x": Extent(dtype or str(array.dtype), array.shape, str(path), offset)},
    )


def _values(array):
    dtype = next(row.name for row in DTYPES.values() if numpy_dtype(row.name) == array.dtype)
    return list(check_values(Contents("raw", ("f",), {"x": InMemory(array, dtype, "x")})))


@pytest.mark.parametrize(
    "dtype", sorted(name for name, row in DTYPES.items() if row.kind in ("float", "complex"))
)
def test_nan_and_infinity_are_counted_in_every_dtype(dtype):
    """The counts are those of each element by itself, whatever bits a NaN has."""
    array = awkward(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = array.astype(np.complex128 if find(dtype).kind == "complex" else np.float64)

    found = {
        each.message.split()[4].strip(","): each.message for each in _values(array) if each.error
    }

    for word, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        count = int(test(wide).sum())
        assert (word in found) is bool(count)
        if count:
            assert found[word].startswith(f"{count:,} of {array.size:,} ")
            assert found[word].endswith(f"first at [{int(np.argmax(test(wide)))}]")


def test_the_byte_of_the_first_nan(tmp_path):
    """The offset is that of the element in the file: packed, and strided."""
    array = np.zeros((3, 5), np.float32)
    array[1, 2] = np.nan
    contents = _extent(tmp_path, array)
    path = contents.paths[0]
    contents.tensors["t"] = View("float32", (5, 3), path, 16, (4, 20))

    assert list(check_values(contents)) == [
        FileFinding(path, 16 + 4 * 7, "x", "1 of 15 is NaN, the first at [1, 2]", True),
        FileFinding(path, 16 + 4 * 7, "t", "1 of 15 is NaN, the first at [2, 1]", True),
    ]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((2, 2)), [("all 4 are 0", False)]),
        (np.array([0.0, -0.0]), [("all 2 are 0", False)]),
        (np.zeros(3, bool), [("all 3 are 0", False)]),
        (np.zeros(3, np.int64), [("all 3 are 0", False)]),
        (np.zeros((2, 0)), []),
        (np.array([0, 1], np.uint8), []),
        (np.array(5.0), []),
        (np.array([[0, -np.inf], [0, 0]]), [("1 of 4 are -infinity and the others 0, as in a mask", False)]),
        (np.array([0, np.inf]), [("1 of 2 is infinite, the first at [1]", True)]),
        (np.array([1, -np.inf]), [("1 of 2 is infinite, the first at [1]", True)]),
        (np.array([0, np.nan, 2]), [("1 of 3 is NaN, the first at [1]", True)]),
        (np.array([np.nan, np.nan]), [("2 of 2 are NaN, the first at [0]", True)]),
        (np.array(np.nan), [("1 of 1 is NaN, the first at []", True)]),
    ],
)  # fmt: skip
def test_what_is_an_error_and_what_a_note(array, expected):
    """NaN and infinities are errors; all zero, and masks of 0 and -infinity, are only told."""
    assert [(each.message, each.error) for each in _values(array)] == expected


def test_one_without_a_zero_is_never_all_zero():
    """A dtype that has no 0 is not taken for one whose elements are all 0."""
    array = np.ones(4, numpy_dtype("float8_e8m0fnu"))
    array.view(np.uint8)[:] = 0

    assert _values(array) == []


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_blocks_do_not_matter(sizes, data):
    """Counts and the first place are those of the whole tensor, however it comes."""
    total = sum(sizes)
    array = np.ones(total, np.float32)
    array[data.draw(st.sets(st.integers(0, total - 1)).map(sorted))] = np.nan
    starts = np.cumsum([0, *sizes])
    stored = Decoded("float32", (total,), lambda: (array[a:b] for a, b in pairwise(starts)), "x")

    found = list(check_values(Contents("raw", ("f",), {"x": stored})))

    count = int(np.isnan(array).sum())
    assert len(found) == bool(count)
    if count:
        first = int(np.argmax(np.isnan(array)))
        are = "is" if count == 1 else "are"
        assert found == [
            FileFinding(
                "f", None, "x", f"{count} of {total} {are} NaN, the first at [{first}]", True
            )
        ]


def test_tied_tensors_are_looked_at_once():
    """A tensor with two names is told once, under its first."""
    stored = InMemory(np.zeros(2), "float64", "key")
    told = []

    found = list(check_values(Contents("raw", ("f",), {"a": stored, "b": stored}), told.append))

    assert [each.tensor for each in found] == ["a"]
    assert told == [16]


class Broken(Format):
    """A format whose files are damaged in each way."""

    name = "broken"

    def __init__(self, error):
        self.error = error

    def recognises(self, path, head):
        return True

    def read(self, path, *, allow=frozenset()):
        if path.name == "header":
            raise self.error

        def damaged():
            yield np.zeros(2, np.float32)
            raise self.error

        whole = Decoded("float32", (2,), lambda: iter([np.zeros(2, np.float32)]), "b")
        return Contents(
            "broken", (str(path),), {"a": Decoded("float32", (4,), damaged, "a"), "b": whole}
        )


@pytest.mark.parametrize(
    "error", [FileFormatError("bad"), RuntimeError("bad"), OSError("bad"), KeyError("bad")]
)
def test_reading_tells_which_tensor_is_damaged(tmp_path, error):
    """Whatever a library raises over damaged data becomes a finding about that tensor, and the others are read."""
    found = list(Broken(error).check(tmp_path / "data"))

    assert [(each.tensor, each.error) for each in found] == [("a", True)]
    assert "bad" in found[0].message


def test_reading_does_not_hide_what_is_unsafe(tmp_path):
    """A refusal for safety is no finding, but raised."""
    with pytest.raises(UnsafeFileError):
        list(Broken(UnsafeFileError("no")).check(tmp_path / "header"))
    assert [each.message for each in Broken(FileFormatError("bad")).check(tmp_path / "header")] == [
        "bad"
    ]


@pytest.fixture
def model(tmp_path):
    """A safetensors file as the official library writes it."""
    path = tmp_path / "model.safetensors"
    arrays = {
        "a": np.ones((2, 3), np.float32),
        "b": np.arange(4, dtype=np.int64),
        "c": np.ones(8, np.float16),
    }
    safetensors.numpy.save_file(arrays, path)
    return path


@pytest.mark.parametrize("to", ["model.safetensors", "model.pt", "model.npz", "model.h5"])
@pytest.mark.parametrize("values", [False, True])
def test_a_good_file_has_nothing_wrong(model, tmp_path, to, values):
    """What the official library or we have written passes, in every format."""
    path = tmp_path / to
    if path != model:
        convert_files(model, path)

    assert list(check_path(path, values=values)) == []


def test_a_file_that_is_cut_off_names_each_tensor_and_byte(model):
    """Every tensor that the end of the file is missing of is named, with the byte at which it begins."""
    data = model.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    start = len(data) - max(end for each in header.values() for end in each["data_offsets"])
    cut = 20
    model.write_bytes(data[: start + cut])

    found = list(check_path(model))

    lost = {
        name: start + each["data_offsets"][0]
        for name, each in header.items()
        if each["data_offsets"][1] > cut
    }
    assert {each.tensor: each.offset for each in found if each.tensor} == lost
    assert all(each.error for each in found)
    assert list(check_path(model, values=True)) == found


def test_a_flipped_bit_in_a_pytorch_file_is_found(model, tmp_path):
    """The zip's CRC catches a bit of a tensor's data; the tensor and its byte are told."""
    path = tmp_path / "model.pt"
    convert_files(model, path)
    with zipfile.ZipFile(path) as archive:
        data = {name: archive.read(name) for name in archive.namelist() if "/data/" in name}
    raw = bytearray(path.read_bytes())
    place = raw.index(np.arange(4, dtype=np.int64).tobytes())
    raw[place + 9] ^= 4
    path.write_bytes(raw)

    found = list(check_path(path))

    assert len(data) == 3
    assert [each.tensor for each in found] == ["b"]
    # Of the record, whose header stands before the data.
    assert place - 128 < found[0].offset <= place
    assert found[0].error


@pytest.fixture
def shards(model, tmp_path):
    """A folder of shards, one tensor in each, and its index as plain data."""
    folder = tmp_path / "shards"
    convert_files(model, folder, to="safetensors", shard=1)
    index = folder / "model.safetensors.index.json"
    return folder, index, json.loads(index.read_text())


def test_shards_that_fit_their_index(shards):
    """A folder of shards passes, and so does its index."""
    folder, index, _ = shards

    assert list(check_path(folder, values=True)) == list(check_path(index, values=True)) == []


@pytest.mark.parametrize(
    "wrong", ["missing shard", "moved", "not listed", "not there", "no json", "cut"]
)
def test_shards_that_do_not_fit_their_index(shards, wrong):
    """A shard that is missing or damaged, and tensors that are elsewhere, unlisted or not there, are errors."""
    folder, index, plain = shards
    where = plain["weight_map"]
    files = sorted(set(where.values()))
    about = "b"
    if wrong == "missing shard":
        (folder / where["b"]).unlink()
        about = where["b"]
    elif wrong == "moved":
        where["b"] = next(file for file in files if file != where["b"])
    elif wrong == "not listed":
        safetensors.numpy.save_file({"z": np.ones(1), "b": np.arange(4)}, folder / where["b"])
        about = "z"
    elif wrong == "not there":
        where["y"] = where["b"]
        about = "y"
    elif wrong == "cut":
        (folder / where["b"]).write_bytes((folder / where["b"]).read_bytes()[:-1])
    index.write_text("{" if wrong == "no json" else json.dumps(plain))
    if wrong == "no json":
        about = "index.json"

    found = list(check_path(folder, values=True))

    assert found
    assert all(each.error for each in found)
    assert any(about in f"{each.path} {each.tensor} {each.message}" for each in found)
    assert not any(each.tensor == "a" for each in found)


def test_a_shard_elsewhere_is_refused(shards):
    """An index that names a file outside of its folder is unsafe, not just wrong."""
    folder, index, plain = shards
    plain["weight_map"]["b"] = "../model.safetensors"
    index.write_text(json.dumps(plain))

    with pytest.raises(UnsafeFileError):
        list(check_path(folder))


@pytest.mark.parametrize("name", ["nothing", "text.txt", "text.pt", "empty.txt", "folder"])
def test_what_is_no_such_file_is_no_finding(tmp_path, name):
    """A file that is not there, or of no known format, cannot be checked at all: that is raised."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.txt").write_text("words\n" * 50)
    (tmp_path / "text.pt").write_text("words\n" * 50)
    (tmp_path / "empty.txt").touch()

    with pytest.raises(FileNotFoundError if name == "nothing" else FileFormatError):
        list(check_path(tmp_path / name))
