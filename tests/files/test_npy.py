"""NumPy's .npy and .npz: NumPy reads what is written here and the other way round, and every dtype survives."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections import OrderedDict
from pathlib import PurePosixPath

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.files.support import arrays, awkward, contents, same_bits, sample, training
from tests.support import peak_of

import tensorferry as ferry
from tensorferry.core.dtypes import DTYPES
from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.base.contents import Contents, Ref
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.objects import in_plain_values
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent, InMemory
from tensorferry.files.formats.npy import FORMAT as NPY
from tensorferry.files.formats.npz import FORMAT as NPZ
from tensorferry.host.numpy_dtypes import numpy_dtype, of_numpy

NUMPYS_OWN = sorted(name for name, row in DTYPES.items() if numpy_dtype(row.name).isbuiltin == 1)


def written(form, path, held):
    """Written with ours, and read again with ours."""
    refuse_contents(form, held)
    form.write(held, path, Pump())
    assert list(form.check(path)) == []
    return form.read(path)


def saved(array):
    """The bytes that NumPy writes."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype.hasobject)
    return buffer.getvalue()


def lone(array):
    """Contents of an array without a name."""
    return contents({"tensor": array}, tree=Ref("tensor"))


def in_blocks(stored):
    """What the blocks of a tensor add up to."""
    return b"".join(block.tobytes() for block in stored.blocks())


def test_every_dtype_is_declared():
    """An array may be of any dtype that tensorferry knows."""
    assert frozenset(DTYPES) == NPY.dtypes == NPZ.dtypes


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_survives_in_npy(tmp_path, dtype):
    """Each dtype, with every awkward bit, comes back the same, named or not; NumPy sees the same bytes, mapped too."""
    for number, (name, array) in enumerate(sample([dtype]).items()):
        found = written(NPY, tmp_path / f"{number}.npy", lone(array))
        assert same_bits(found.tensors["tensor"].array(), array)
        assert in_blocks(found.tensors["tensor"]) == array.tobytes()
        assert found.tree == Ref("tensor")
        found = written(NPY, tmp_path / f"{number}.named.npy", contents({name: array}))
        assert same_bits(arrays(found), {name: array})
        assert found.tree is None
        for mode in (None, "r") if array.size else (None,):
            theirs = np.load(tmp_path / f"{number}.named.npy", mmap_mode=mode)
            assert (theirs.shape, theirs.itemsize, theirs.tobytes()) == (
                array.shape,
                array.itemsize,
                array.tobytes(),
            )
            assert theirs.dtype == array.dtype or theirs.dtype.kind == "V"


@pytest.mark.parametrize("dtype", NUMPYS_OWN)
def test_npy_is_what_numpy_writes_byte_for_byte(tmp_path, dtype):
    """An array of a dtype of NumPy's own, without a name, makes the very file that `numpy.save` makes."""
    for number, array in enumerate(sample([dtype]).values()):
        written(NPY, tmp_path / f"{number}.npy", lone(array))
        assert (tmp_path / f"{number}.npy").read_bytes() == saved(array)


@pytest.mark.parametrize("order", "<>=")
@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("dtype", [*NUMPYS_OWN, "float8_e5m2"])
def test_npy_of_numpy_is_read(tmp_path, dtype, order, fortran):
    """What `numpy.save` writes, in any order of bytes and axes, has the same values here."""
    flat = awkward(dtype)
    array = flat[: len(flat) // 2 * 2].reshape(2, -1)
    if dtype in NUMPYS_OWN and order != "=":
        array = array.astype(array.dtype.newbyteorder(order))
    array = np.asfortranarray(array) if fortran else array
    native = (
        np.ascontiguousarray(array).astype(array.dtype.newbyteorder("=")) if order == ">" else array
    )
    (tmp_path / "a.npy").write_bytes(saved(array))
    found = NPY.read(tmp_path / "a.npy").tensors["tensor"]
    assert found.dtype == dtype == of_numpy(native.dtype)
    assert found.array().tobytes() == native.tobytes()
    assert in_blocks(found) == native.tobytes()
    assert found.array().shape == array.shape


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_each_version_of_the_header_is_read(tmp_path, version):
    """NumPy's three versions of the header are read."""
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(6).reshape(2, 3), version)
    assert NPY.read(tmp_path / "a.npy").tensors["tensor"].array().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_headers_of_other_writers_are_read(tmp_path):
    """Keys in any order, other blanks and the long integers of Python 2 are read as NumPy reads them."""
    texts = [
        "{'shape': (2, 3), 'fortran_order': False, 'descr': '<i2'}",
        '{"descr":"<i2","fortran_order":False,"shape":(2,3),}\n',
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 3L), }",
        "{'descr': 'i2', 'fortran_order': False, 'shape': (2, 3), }",
    ]
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.npy"
        path.write_bytes(
            b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + bytes(range(12))
        )
        with warnings.catch_warnings():
            # NumPy warns of the headers of Python 2.
            warnings.simplefilter("ignore", UserWarning)
            expected = np.load(path)
        assert same_bits(NPY.read(path).tensors["tensor"].array(), expected)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, "S3"),
        np.zeros(3, "U2"),
        np.zeros(3, "M8[ns]"),
        np.zeros(3, "m8[s]"),
        np.zeros(3, [("a", "i4"), ("b", "f8")]),
        np.zeros(3, "V7"),
        np.zeros(3, np.longdouble),
        np.zeros(3, ml_dtypes.bfloat16),
        np.zeros(3, ml_dtypes.int4),
    ],
    ids=lambda array: str(array.dtype),
)
def test_what_is_no_tensor_is_listed_with_the_reason(tmp_path, array):
    """Strings, times, records, and values whose dtype NumPy does not name, are listed; they are not made up."""
    (tmp_path / "a.npy").write_bytes(saved(array))
    found = NPY.read(tmp_path / "a.npy")
    assert (list(found.tensors), list(found.others)) == ([], ["tensor"])
    np.savez(tmp_path / "a.npz", x=array, y=np.ones(2))
    found = NPZ.read(tmp_path / "a.npz")
    assert (list(found.tensors), list(found.others)) == (["y"], ["x"])
    assert [(each.tensor, each.error) for each in NPZ.check(tmp_path / "a.npz")] == [("x", False)]


def test_python_objects_are_refused(tmp_path):
    """An array of objects is a pickle: listed, never loaded; what asks for a call is refused by name."""
    array = np.array([{"a": 1}, print], object)
    (tmp_path / "a.npy").write_bytes(saved(array))
    assert "array of objects" in NPY.read(tmp_path / "a.npy").others["tensor"]
    (tmp_path / "c.npy").write_bytes(saved(np.array([Counted()], object)))
    with pytest.raises(UnsafeFileError, match=r"test_npy\.Counted"):
        NPY.read(tmp_path / "c.npy")
    assert any(name.endswith(".Counted") for name in NPY.asks_for(tmp_path / "c.npy"))
    (tmp_path / "b.npy").write_bytes(saved(np.zeros(2, [("a", "i4"), ("b", [("c", "O")])])))
    with pytest.raises(UnsafeFileError, match="Python objects"):
        NPY.read(tmp_path / "b.npy")
    np.savez(tmp_path / "a.npz", x=array, y=np.ones(2))
    found = NPZ.read(tmp_path / "a.npz")
    assert list(found.tensors) == ["y"]
    assert "array of objects" in found.others["x"]


class Counted:
    """A class of a program."""


def objects():
    """A dict of arrays, as programs put it into one array of an object."""
    rng = np.random.default_rng(5)
    return {
        "a": rng.random((20, 30)),
        "f": np.asfortranarray(rng.random((5, 40))),
        "big": np.arange(300, dtype=">i4"),
        "inner": [np.arange(3), {"step": 3, "path": PurePosixPath("a/b")}],
    }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_dicts_of_arrays_in_npz_are_trees(save, tmp_path):
    """Under the names of their members, among other arrays; values as `numpy.load` gives them."""
    save(
        tmp_path / "a.npz",
        one=objects(),
        x=np.arange(4.0),
        two=np.array({"a": np.ones((2, 3))}, object),
    )
    found = NPZ.read(tmp_path / "a.npz")
    loaded = np.load(tmp_path / "a.npz", allow_pickle=True)
    one, two = loaded["one"][()], loaded["two"][()]
    expected = {"one.a": one["a"], "one.f": one["f"], "one.big": one["big"].astype("<i4")}
    expected |= {"one.inner.0": one["inner"][0], "x": loaded["x"], "two.a": two["a"]}
    assert same_bits(arrays(found), expected)
    assert found.ties == {}
    assert found.others == {}
    assert in_plain_values(found).tree["one"]["inner"][1] == {"step": 3, "path": "a/b"}
    assert list(NPZ.check(tmp_path / "a.npz")) == []
    report = ferry.convert_files(tmp_path / "a.npz", tmp_path / "a.safetensors", verify=True)
    assert ["one.inner.1.path (pathlib.PurePosixPath)" in each for each in report.warnings] == [
        True
    ]


def test_a_dict_of_arrays_in_npy_is_a_tree(tmp_path):
    """What ``np.save(path, dict)`` wrote, read where it stands, and as a whole file alone."""
    np.save(tmp_path / "a.npy", objects(), allow_pickle=True)
    found = NPY.read(tmp_path / "a.npy")
    one = np.load(tmp_path / "a.npy", allow_pickle=True)[()]
    assert isinstance(found.tensors["a"], Extent)
    assert same_bits(found.tensors["a"].load(), one["a"])
    assert same_bits(found.tensors["f"].load(), one["f"])
    assert same_bits(found.tensors["inner.0"].load(), one["inner"][0])
    raw = (tmp_path / "a.npy").read_bytes()
    for data in (raw + b"N.", raw[:-40], raw[:-1]):
        (tmp_path / "b.npy").write_bytes(data)
        with pytest.raises(FileFormatError):
            NPY.read(tmp_path / "b.npy")


def test_an_object_that_is_not_allowed_leaves_the_other_arrays(tmp_path):
    """In .npz it is told of, and refused only where it is wanted; the hint, pasted, reads it."""
    np.savez(tmp_path / "a.npz", x=np.array(Counted(), object), y=np.ones(2))
    found = ferry.open(tmp_path / "a.npz")
    assert list(found.tensors) == ["y"]
    assert "Counted" in found.others["x"]
    assert [(each.tensor, each.error) for each in NPZ.check(tmp_path / "a.npz")] == [("x", False)]
    with pytest.raises(UnsafeFileError, match=r"test_npy\.Counted.* \(at x\)") as refused:
        ferry.convert_files(tmp_path / "a.npz", tmp_path / "b.npz")
    assert ferry.convert_files(tmp_path / "a.npz", tmp_path / "b.npz", exclude="x").tensors == 1
    allow = eval(refused.value.hint.removeprefix("allow=").partition(", which")[0])  # noqa: S307 - a list
    report = ferry.convert_files(tmp_path / "a.npz", tmp_path / "c.npz", allow=allow)
    assert f"x ({Counted.__module__}.Counted)" in report.warnings[0]


def test_damage_of_objects_in_npz_is_noticed(tmp_path):
    """Every byte of a stored member is compared with its checksum when it is read or converted."""
    np.savez(tmp_path / "a.npz", one=objects())
    raw = (tmp_path / "a.npz").read_bytes()
    place = raw.index(np.load(tmp_path / "a.npz", allow_pickle=True)["one"][()]["a"].tobytes())
    (tmp_path / "b.npz").write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    with pytest.raises(FileFormatError):
        ferry.convert_files(tmp_path / "b.npz", tmp_path / "c.npz")
    assert any(finding.error for finding in NPZ.check(tmp_path / "b.npz"))


def test_arrays_behind_the_first_are_not_dropped_in_silence(tmp_path):
    """A file that two calls of `numpy.save` wrote says that there is more than the first array."""
    (tmp_path / "a.npy").write_bytes(saved(np.ones(2)) + saved(np.zeros(3)))
    found = NPY.read(tmp_path / "a.npy")
    assert "another array" in found.others["trailing"]
    assert [finding.tensor for finding in NPY.check(tmp_path / "a.npy")] == ["trailing"]


def test_names_metadata_and_trees_survive_in_npy(tmp_path):
    """A name, strings and what the tensor was nested in stand behind the array, where NumPy does not look."""
    array = awkward("bfloat16")
    held = contents(
        {"model.w": array},
        metadata={"é": "\n"},
        tree=OrderedDict(model={"w": Ref("model.w")}, epoch=3),
    )
    found = written(NPY, tmp_path / "a.npy", held)
    assert same_bits(arrays(found), {"model.w": array})
    assert (found.tree, type(found.tree), found.metadata) == (held.tree, OrderedDict, {"é": "\n"})
    assert np.load(tmp_path / "a.npy").tobytes() == array.tobytes()


def test_npy_holds_one_tensor():
    """Two tensors, and none, are refused, with the names."""
    with pytest.raises(FormatLimitError, match="one tensor, not 2: a, b"):
        refuse_contents(NPY, contents({"a": np.ones(1), "b": np.ones(2)}))
    with pytest.raises(FormatLimitError, match="one tensor, not 0"):
        refuse_contents(NPY, contents({}))


def test_every_dtype_survives_in_npz(tmp_path):
    """Each dtype, with every awkward bit, comes back; NumPy lists the arrays and nothing else, byte for byte."""
    held = sample()
    found = written(NPZ, tmp_path / "a.npz", contents(held))
    assert same_bits(arrays(found), held)
    assert all(in_blocks(stored) == held[name].tobytes() for name, stored in found.tensors.items())
    with np.load(tmp_path / "a.npz") as theirs:
        assert theirs.files == list(held)
        for name, array in held.items():
            assert theirs[name].tobytes() == array.tobytes()
            assert theirs[name].shape == array.shape
            assert theirs[name].dtype == array.dtype or theirs[name].dtype.kind == "V"
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_numpy_is_read(tmp_path, save):
    """What NumPy saves, stored or compressed, in any order of bytes and axes, has the same values here."""
    held = sample(NUMPYS_OWN)
    numbers = np.arange(600_000.0)
    held |= {
        "columns": np.asfortranarray(numbers.reshape(600, 1000)),
        "big-endian": numbers.astype(">f4").reshape(2, 3, -1),
        "both": np.asfortranarray(numbers.astype(">i8").reshape(1000, 600)),
        "row": np.asfortranarray(numbers.reshape(1, -1)),
        "a/b c.npy": np.ones(3),
    }
    save(tmp_path / "a.npz", **held)
    found = NPZ.read(tmp_path / "a.npz")
    assert list(NPZ.check(tmp_path / "a.npz")) == []
    assert list(found.tensors) == list(held)
    for name, array in held.items():
        native = array.astype(array.dtype.newbyteorder("="), "C")
        assert found.tensors[name].dtype == of_numpy(array.dtype)
        assert found.tensors[name].array().tobytes() == native.tobytes()
        assert found.tensors[name].array().shape == array.shape
        assert in_blocks(found.tensors[name]) == native.tobytes()
    # And it is written again, packed, whatever the layout was.
    again = written(NPZ, tmp_path / "b.npz", found)
    for name, array in held.items():
        assert (
            again.tensors[name].array().tobytes()
            == array.astype(array.dtype.newbyteorder("="), "C").tobytes()
        )


def test_an_npz_of_ours_that_was_packed_anew_still_names_its_dtypes(tmp_path):
    """Whoever compresses our archive with a zip program keeps what stands behind the arrays."""
    held = sample(["bfloat16", "float8_e4m3fn", "int4"])
    written(NPZ, tmp_path / "a.npz", contents(held))
    with (
        zipfile.ZipFile(tmp_path / "a.npz") as old,
        zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert same_bits(arrays(NPZ.read(tmp_path / "b.npz")), held)


@pytest.mark.parametrize("length", [10, 70_000])
def test_trees_ties_and_metadata_survive_in_npz(tmp_path, length):
    """What is not a tensor comes back, also if it is too long for the archive's comment; NumPy lists no more for it."""
    shared = awkward("bfloat16")
    held = contents(
        {"a": shared, "n.0": np.ones(2), "b": shared},
        metadata={"k": "é" * length},
        tree={"a": Ref("a"), "n": [Ref("n.0")], "b": Ref("b"), "step": 7},
    )
    found = written(NPZ, tmp_path / "a.npz", held)
    assert same_bits(arrays(found), arrays(held))
    assert (found.tree, found.ties, found.metadata) == (held.tree, {"b": "a"}, {"k": "é" * length})
    with np.load(tmp_path / "a.npz") as theirs:
        assert theirs.files == ["a", "n.0"]


def test_numpy_finds_all_of_a_training(tmp_path):
    """Each array under the name that follows from its place, also the second of two that are one."""
    tree, named = training()
    report = ferry.save(tree, tmp_path / "a.npz", verify=True)
    assert [line.endswith("model.head is model.embed.") for line in report.warnings] == [True]
    with np.load(tmp_path / "a.npz") as theirs:
        assert set(theirs.files) == set(named)
        for name, array in named.items():
            assert theirs[name].tobytes() == array.tobytes()
            assert theirs[name].shape == array.shape
    ferry.save(tree, tmp_path / "b.npz", ties="alias", verify=True)
    with np.load(tmp_path / "b.npz") as theirs:
        assert set(theirs.files) == set(named) - {"model.head"}
    assert ferry.open(tmp_path / "b.npz").ties == {"model.head": "model.embed"}


def test_a_comment_of_another_program_is_kept(tmp_path):
    """The comment of an archive is metadata."""
    np.savez(tmp_path / "a.npz", x=np.ones(2))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.comment = b"made by hand"
    found = NPZ.read(tmp_path / "a.npz")
    assert found.metadata == {"comment": "made by hand"}
    assert written(NPZ, tmp_path / "b.npz", found).metadata == found.metadata


def test_a_member_that_is_no_array_is_listed(tmp_path):
    """What else lies in the archive is listed, not dropped."""
    np.savez(tmp_path / "a.npz", x=np.ones(2))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("readme.txt", "hello")
        archive.writestr("y", saved(np.arange(3)))
    found = NPZ.read(tmp_path / "a.npz")
    assert list(found.tensors) == ["x", "y"]
    assert found.others == {"readme.txt": "a member that is no array"}


def test_names_that_no_archive_should_have_are_refused():
    """A name that leads out of the archive, or is too long or broken for one, is refused before anything is written."""
    for name in ("../a", "/a", "a/../b", "a\\b", "C:a", "x" * 66_000, "\ud800"):
        with pytest.raises(FormatLimitError):
            refuse_contents(NPZ, contents({name: np.ones(1)}))
    refuse_contents(NPZ, contents({"a/b..c/é #?*": np.ones(1)}))


def test_strings_without_any_array_need_room_in_the_comment():
    """An archive without arrays has only its comment, and what does not fit there is refused."""
    refuse_contents(NPZ, contents({}, metadata={"k": "v"}))
    with pytest.raises(FormatLimitError, match="no place for"):
        refuse_contents(NPZ, contents({}, metadata={"k": "v" * 70_000}))


def test_an_empty_npz(tmp_path):
    """An archive may hold nothing, as NumPy's may."""
    np.savez(tmp_path / "theirs.npz")
    assert NPZ.is_named(tmp_path / "theirs.npz", (tmp_path / "theirs.npz").read_bytes()[:64])
    assert NPZ.read(tmp_path / "theirs.npz").tensors == {}
    assert written(NPZ, tmp_path / "ours.npz", Contents("memory", ())).tensors == {}
    with np.load(tmp_path / "ours.npz") as theirs:
        assert theirs.files == []


def test_a_flipped_bit_in_an_npz_is_found(tmp_path):
    """A bit that flips in an array is found by its checksum: when it is copied, and by check, with its name."""
    written(NPZ, tmp_path / "a.npz", contents({"good": np.ones(100), "bad": np.arange(1000)}))
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    whole[whole.index(np.arange(1000).tobytes()) + 4321] ^= 4
    (tmp_path / "a.npz").write_bytes(whole)
    found = NPZ.read(tmp_path / "a.npz")
    with pytest.raises(FileFormatError, match="corrupt"):
        NPZ.write(found, tmp_path / "b.npz", Pump())
    assert [finding.tensor for finding in NPZ.check(tmp_path / "a.npz")] == ["bad"]


@given(
    st.dictionaries(
        st.text(max_size=6).filter(lambda name: ".." not in name and not set("/\\\0:") & set(name)),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 3), max_size=3)),
        max_size=4,
    )
)
@settings(max_examples=40, deadline=None)
def test_any_names_and_shapes_survive_in_npz(tmp_path_factory, kinds):
    """Whatever the names, dtypes and shapes, the arrays come back, and NumPy finds them under the same names."""
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    held = {name: np.zeros(shape, numpy_dtype(dtype)) for name, (dtype, shape) in kinds.items()}
    assert same_bits(arrays(written(NPZ, path, contents(held))), held)
    with np.load(path) as theirs:
        assert theirs.files == list(held)


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_array_in_columns_is_read_in_little_memory(tmp_path, packed):
    """An array whose columns are packed, compressed or not, is read by rows without all of it in memory."""
    rows, columns = 4096, 8192
    array = np.empty((columns, rows), np.float32)
    array[...] = np.arange(rows)
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", method, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        np.lib.format.write_array(member, array.T)
    del array
    stored = NPZ.read(tmp_path / "a.npz").tensors["x"]

    def read():
        start = 0
        for block in stored.blocks():
            assert (block == (start + np.arange(block.size)) // columns).all()
            start += block.size
        return start

    peak, count = peak_of(read)
    assert count == rows * columns
    # All of it would be 128 MiB.
    assert peak < 64 << 20


def test_strings_in_an_npy_are_json(tmp_path):
    """What stands behind the array can be read by anybody: one object of JSON."""
    written(NPY, tmp_path / "a.npy", contents({"w": awkward("int4")}))
    behind = (tmp_path / "a.npy").read_bytes()[128 + 16 :]
    assert json.loads(behind.removeprefix(b"\ntensorferry ")) == {
        "tensorferry.name": "w",
        "tensorferry.dtype": "int4",
    }


def test_an_array_that_is_not_packed_is_written_packed(tmp_path):
    """A transposed array in memory comes back by rows."""
    array = np.arange(600_000.0).reshape(600, 1000).T
    for form, path in ((NPY, tmp_path / "a.npy"), (NPZ, tmp_path / "a.npz")):
        found = written(form, path, Contents("memory", (), {"x": InMemory(array, "float64", 0)}))
        assert same_bits(found.tensors["x"].array(), np.ascontiguousarray(array))
