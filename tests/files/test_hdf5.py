"""HDF5: what h5py writes is read bit for bit and the other way round, and no file leads out of itself."""

from __future__ import annotations

import sys
import tracemalloc

import h5py
import ml_dtypes
import numpy as np
import pytest
from tests.files.support import arrays, awkward, contents, same_bits, sample

from tensorferry.core.dtypes import DTYPES
from tensorferry.errors import (
    FileFormatError,
    FormatLimitError,
    FrameworkNotInstalledError,
    UnsafeFileError,
)
from tensorferry.files.base.contents import Contents, Ref
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Decoded, Extent, InMemory
from tensorferry.files.encodings.array_parts import SLAB_BYTES
from tensorferry.files.formats.hdf5 import FORMAT
from tensorferry.files.opening.paths import format_of

NATIVE = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
NATIVE += ["float16", "float32", "float64", "complex64", "complex128"]


def written(path, held):
    refuse_contents(FORMAT, held)
    FORMAT.write(held, path, Pump())
    return FORMAT.read(path)


def test_every_dtype_round_trips(tmp_path):
    """Each dtype of the table is declared, and comes back bit for bit, flat, in axes, 0-d and empty."""
    assert FORMAT.dtypes == set(DTYPES)
    held = sample()
    found = written(tmp_path / "all.h5", contents(held))
    assert same_bits(arrays(found), held)
    assert all(isinstance(stored, Extent) for stored in found.tensors.values())


def test_h5py_reads_the_bits(tmp_path):
    """h5py finds the same bits in its own dtypes; bfloat16 as floats of the same values; the narrow ones as bytes."""
    held = sample([*NATIVE, "bfloat16", "float8_e5m2", "float8_e4m3fn", "int4"])
    written(tmp_path / "all.h5", contents(held))
    with h5py.File(tmp_path / "all.h5") as file:
        for name, array in held.items():
            found = file[name][()]
            dtype = name.partition(".")[0]
            if dtype in NATIVE:
                assert same_bits(np.asarray(found), array)
            elif dtype in ("bfloat16", "float8_e5m2"):
                assert np.array_equal(found, array.astype(found.dtype), equal_nan=True)
            else:
                assert np.asarray(found).tobytes() == array.tobytes()
                assert file[name].attrs["dtype"] == dtype


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"chunks": (3, 20)},
        {"chunks": (3, 20), "compression": "gzip", "shuffle": True, "fletcher32": True},
        {"chunks": (2, 7), "compression": "lzf"},
    ],
    ids=["contiguous", "chunked", "gzip", "lzf"],
)
def test_what_h5py_writes_is_read(tmp_path, layout, order):
    """Contiguous, chunked and compressed datasets of either byte order are read bit for bit, NaN payloads too."""
    held = {name: awkward(name)[:512].reshape(8, -1) for name in NATIVE if name != "bool"}
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        for name, array in held.items():
            made = file.create_dataset(name, array.shape, array.dtype.newbyteorder(order), **layout)
            made.id.write(
                h5py.h5s.ALL,
                h5py.h5s.ALL,
                np.ascontiguousarray(array.astype(made.dtype.newbyteorder("="))),
            )
    found = FORMAT.read(tmp_path / "theirs.h5")
    assert same_bits(arrays(found), dict(sorted(held.items())))
    kinds = {type(stored) for stored in found.tensors.values()}
    assert kinds == ({Decoded} if layout else {Extent})


def test_bools_compact_scalars_and_unwritten_values(tmp_path):
    """Enumerated bools, compact datasets, scalars, empty ones and the fill value of what was never written are read."""
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file["bool"] = np.array([True, False])
        file["scalar"] = np.float64(-0.0)
        file["empty"] = np.zeros((3, 0), "i2")
        file.create_dataset("filled", (4,), "f4", fillvalue=7.5)
        file.create_dataset("sparse", (10,), "i8", chunks=(4,), fillvalue=-1)[2] = 5
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.COMPACT)
        compact = h5py.h5d.create(
            file.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3,)), layout
        )
        h5py.Dataset(compact)[:] = [1, 2, 3]
    found = arrays(FORMAT.read(tmp_path / "theirs.h5"))
    assert same_bits(found["bool"], np.array([True, False]))
    assert same_bits(found["scalar"], np.array(-0.0))
    assert same_bits(found["empty"], np.zeros((3, 0), "i2"))
    assert same_bits(found["filled"], np.full(4, 7.5, "f4"))
    assert same_bits(found["sparse"], np.array([-1, -1, 5, -1, -1, -1, -1, -1, -1, -1]))
    assert same_bits(found["compact"], np.array([1, 2, 3], "f4"))


def test_bfloat16_in_chunks_keeps_signalling_nans(tmp_path):
    """A foreign bfloat16 type is known by its fields, and HDF5 is not allowed to convert it on the way."""
    held = awkward("bfloat16")
    kind = h5py.h5t.IEEE_F16LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_ebias(127)
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_chunk((1000,))
        made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(held.shape), layout)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, held.view("V2"), kind)
    found = FORMAT.read(tmp_path / "theirs.h5").tensors["x"]
    assert isinstance(found, Decoded)
    assert same_bits(found.array(), held)


def test_opaque_bytes_are_never_guessed(tmp_path):
    """Opaque bytes are a tensor where the attribute of Keras says of which dtype, and not otherwise."""
    held = np.arange(3).astype(ml_dtypes.bfloat16)
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file.create_dataset("said", data=held).attrs["dtype"] = "bfloat16"
        file.create_dataset("unsaid", data=held)
        file.create_dataset("wrong", data=held).attrs["dtype"] = "float32"
        file["text"] = ["a", "b"]
        file["pairs"] = np.zeros(2, [("a", "i4"), ("b", "f4")])
        file["nothing"] = h5py.Empty("f4")
    found = FORMAT.read(tmp_path / "theirs.h5")
    assert list(found.tensors) == ["said"]
    assert same_bits(found.tensors["said"].array(), held)
    assert set(found.others) == {"unsaid", "wrong", "text", "pairs", "nothing"}
    assert "opaque" in found.others["unsaid"]
    assert "strings" in found.others["text"]


def test_values_lie_aligned_in_the_file(tmp_path):
    """What is written can be mapped: in one piece, from a multiple of 64 bytes on."""
    found = written(
        tmp_path / "model.h5", contents({str(size): np.arange(size) for size in (100, 1001, 5000)})
    )
    assert {stored.offset % 64 for stored in found.tensors.values()} == {0}


def test_any_name_keeps_its_order(tmp_path):
    """Names that are no paths, or lie above one another, come back as they were, in their order."""
    names = [
        "b.weight",
        "a/b",
        "a",
        "z/y/x",
        "a/c",
        "",
        "/",
        ".",
        "x//y",
        "../up",
        "\0",
        "\udc80",
        "q/",
        "z/y",
    ]
    names += ["tensorferry.2", "Ω", "a@b"]
    held = {name: np.array([number], "i2") for number, name in enumerate(names)}
    found = written(
        tmp_path / "names.h5", contents(held, metadata={"a/b@unit": "m", "a@b": "root"})
    )
    assert same_bits(arrays(found), held)
    assert found.metadata == {"a/b@unit": "m", "a@b": "root"}
    with h5py.File(tmp_path / "names.h5") as file:
        assert file["b.weight"][0] == 0
        assert file["a/b"].attrs["unit"] == "m"


def test_ties_are_hard_links(tmp_path):
    """Tied tensors are stored once, and h5py sees one dataset under both names."""
    shared = np.arange(100_000.0)
    found = written(
        tmp_path / "tied.h5", contents({"head": shared, "a": np.ones(2), "body/embedding": shared})
    )
    assert found.ties == {"body/embedding": "head"}
    assert list(found.tensors) == ["head", "a", "body/embedding"]
    assert (tmp_path / "tied.h5").stat().st_size < 1.1 * shared.nbytes
    with h5py.File(tmp_path / "tied.h5") as file:
        assert file["head"] == file["body/embedding"]


def test_links_inside_the_file(tmp_path):
    """Soft links to datasets are further names; groups that are linked twice, or into themselves, are entered once."""
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file["a/x"] = np.arange(3)
        file["a/y"] = h5py.SoftLink("x")
        file["z"] = h5py.SoftLink("/a/x")
        file["a/self"] = file["a"]
        file["twice"] = file["a"]
        file["nowhere"] = h5py.SoftLink("/b")
    found = FORMAT.read(tmp_path / "theirs.h5")
    assert found.ties == {"a/y": "a/x", "z": "a/x"}
    assert set(found.others) == {"a/self", "twice", "nowhere"}
    assert not found.refuses


def test_tree_and_metadata_come_back(tmp_path):
    """Nested values, metadata of any length and of any characters come back."""
    tree = {"model": {"w": Ref("model.w"), "tied": Ref("model.tied")}, "steps": (1, None, 2.5)}
    shared = np.ones(3, "f4")
    metadata = {
        "long": "x" * 200_000,
        "nul": "\0",
        "": "empty",
        "half": "\udc80",
        "model.tied": "model.w",
        "@": "at",
    }
    found = written(
        tmp_path / "tree.h5",
        contents({"model.w": shared, "model.tied": shared}, metadata=metadata, tree=tree),
    )
    assert found.tree == tree
    assert found.metadata == metadata
    assert found.ties == {"model.tied": "model.w"}


def test_attributes_are_metadata(tmp_path):
    """Attributes are kept as text, numbers as JSON; what is neither is listed and not dropped."""
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file["x"] = np.ones(2)
        file["other"] = np.ones(2)
        file.attrs["title"] = "a run"
        file.attrs["bytes"] = np.bytes_(b"old")
        file.attrs["none"] = h5py.Empty("f4")
        file["x"].attrs["scale"] = [1.5, 2.0]
        file["x"].attrs["names"] = ["a", "b"]
        file["x"].attrs["where"] = file["other"].ref
        file["x"].attrs["nobody"] = np.zeros(0, "S1")
    found = FORMAT.read(tmp_path / "theirs.h5")
    assert found.metadata == {
        "title": "a run",
        "bytes": "old",
        "none": "null",
        "x@scale": "[1.5, 2.0]",
        "x@names": '["a", "b"]',
        "x@nobody": "[]",
    }
    assert list(found.others) == ["x@where"]


def test_other_files_are_never_read(tmp_path):
    """External links, external storage and virtual datasets are refused by name; what they point to stays unread."""
    secret = tmp_path / "secret.raw"
    secret.write_bytes(b"password" * 4)
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["data"] = np.frombuffer(b"password" * 4, "u1")
    with h5py.File(tmp_path / "hostile.h5", "w") as file:
        file["fine"] = np.arange(3)
        file["linked"] = h5py.ExternalLink("source.h5", "/data")
        file.create_dataset("outside", (32,), "u1", external=[(str(secret), 0, 32)])
        layout = h5py.VirtualLayout((32,), "u1")
        layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "data", (32,))
        file.create_virtual_dataset("virtual", layout)
        file["through"] = h5py.SoftLink("/linked")
    found = FORMAT.read(tmp_path / "hostile.h5")
    assert list(found.tensors) == ["fine"]
    assert set(found.others) == {"linked", "outside", "virtual", "through"}
    assert found.refuses == (
        "another file (linked)",
        "another file (outside)",
        "another file (virtual)",
    )


@pytest.mark.parametrize(
    "layout",
    [{}, {"chunks": (1 << 20,), "compression": "gzip"}, {"chunks": (1 << 29,)}],
    ids=["contiguous", "chunked", "one chunk"],
)
def test_a_shape_out_of_all_proportion_is_refused(tmp_path, layout):
    """A small file that declares terabytes, or a huge chunk, is refused, and nothing of that size is made."""
    size = 1 << (29 if layout.get("chunks", (0,))[0] == 1 << 29 else 40)
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file.create_dataset("x", (size,), "f4", **layout)
    tracemalloc.start()
    with pytest.raises(UnsafeFileError, match="out of all proportion: 'x'"):
        FORMAT.read(tmp_path / "bomb.h5")
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_a_filter_of_another_library_is_not_loaded(tmp_path):
    """A dataset that asks for a compression plugin is listed with its number."""
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_chunk((10,))
        layout.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((10,)), layout)
    found = FORMAT.read(tmp_path / "theirs.h5")
    assert "32015" in found.others["x"]


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    """Whatever is missing at the end, the error is named, from reading the header or the values."""
    written(tmp_path / "whole.h5", contents({"x": np.arange(1000.0), "y": np.ones(3)}))
    raw = (tmp_path / "whole.h5").read_bytes()
    for length in (*range(8, 200, 40), len(raw) // 2, len(raw) - 1):
        (tmp_path / "cut.h5").write_bytes(raw[:length])
        with pytest.raises(FileFormatError):
            arrays(FORMAT.read(tmp_path / "cut.h5"))


def test_groups_nested_too_deep_are_refused(tmp_path):
    """A hundred groups in each other are refused instead of followed."""
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file["/".join("g" * 100)] = 1
    with pytest.raises(UnsafeFileError, match="deep"):
        FORMAT.read(tmp_path / "deep.h5")


@pytest.mark.parametrize(
    "names",
    ["no JSON", "{}", '[["a"]]', '[["a", "y"]]', '[["a", "x"], ["a", "x"]]', '[["z", "x"]]'],
)
def test_names_that_do_not_fit_are_refused(tmp_path, names):
    """The attribute that keeps names is checked against the datasets."""
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["x"] = file["z"] = np.ones(2)
        file.attrs["tensorferry.names"] = names
    with pytest.raises(FileFormatError):
        FORMAT.read(tmp_path / "odd.h5")


def test_too_many_axes_are_refused(tmp_path):
    """HDF5 has 32 axes; a tensor of more is refused by name."""
    held = Contents("memory", (), {"deep": InMemory(np.ones((1,) * 33), "float64", 0)})
    with pytest.raises(FormatLimitError, match="deep"):
        refuse_contents(FORMAT, held)
    assert (
        written(tmp_path / "x.h5", contents({"x": np.ones((1,) * 32)})).tensors["x"].shape
        == (1,) * 32
    )


def test_large_compressed_datasets_are_read_by_slabs(tmp_path):
    """A compressed dataset of four times the largest slab takes little more than one to read."""
    rows = SLAB_BYTES // 4096
    with h5py.File(tmp_path / "big.h5", "w") as file:
        made = file.create_dataset(
            "x", (4 * rows, 1024), "f4", chunks=(64, 1024), compression="lzf"
        )
        for start in range(0, 4 * rows, rows):
            made[start : start + rows] = np.repeat(
                np.arange(start, start + rows, dtype="f4"), 1024
            ).reshape(rows, 1024)
    stored = FORMAT.read(tmp_path / "big.h5").tensors["x"]
    tracemalloc.start()
    seen = 0
    for block in stored.blocks():
        assert block[0] == seen // 1024
        seen += block.size
    assert seen == stored.size
    assert tracemalloc.get_traced_memory()[1] < 3 * SLAB_BYTES
    tracemalloc.stop()


def test_a_file_is_known_by_its_first_bytes(tmp_path):
    """Magic bytes decide, whatever the name says."""
    written(tmp_path / "model.bin", contents({"x": np.ones(2)}))
    assert format_of(tmp_path / "model.bin") is FORMAT


def test_without_the_library_it_says_what_to_install(tmp_path, monkeypatch):
    """Reading and writing without h5py name the extra."""
    written(tmp_path / "model.h5", contents({"x": np.ones(2)}))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(FrameworkNotInstalledError, match="pip install h5py"):
        FORMAT.read(tmp_path / "model.h5")
    with pytest.raises(FrameworkNotInstalledError, match="pip install h5py"):
        FORMAT.write(contents({"x": np.ones(2)}), tmp_path / "new.h5", Pump())
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        FORMAT.read(tmp_path / "absent.h5")
