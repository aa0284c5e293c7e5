"""Zarr: zarr-python reads what is written, and what it or TensorStore writes is read bit for bit."""

from __future__ import annotations

import json
import sys
import tracemalloc

import numpy as np
import pytest
from tests.files.support import arrays, awkward, contents, same_bits, sample, training

import tensorferry as ferry
from tensorferry.core.dtypes import DTYPES
from tensorferry.errors import (
    FileFormatError,
    FormatLimitError,
    FrameworkNotInstalledError,
    UnsafeFileError,
)
from tensorferry.files.base.contents import NotTensor, Ref
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Decoded, Extent
from tensorferry.files.formats.zarr import FORMAT
from tensorferry.files.opening.paths import format_of

zarr = pytest.importorskip("zarr", reason="zarr 3 is not installed; it needs Python 3.11")

numcodecs = pytest.importorskip("numcodecs", reason="zarr brings it")

NATIVE = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
NATIVE += ["float16", "float32", "float64", "complex64", "complex128"]


def written(path, held):
    refuse_contents(FORMAT, held)
    FORMAT.write(held, path, Pump())
    return FORMAT.read(path)


def node(path, **changes):
    """A folder with a hand-made description of an array."""
    path.mkdir()
    described = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "int8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": {},
    }
    (path / "zarr.json").write_text(json.dumps(described | changes))
    return path


def test_every_dtype_round_trips(tmp_path):
    """Each dtype of the table is declared and comes back bit for bit."""
    assert FORMAT.dtypes == set(DTYPES)
    held = sample([*NATIVE, "bfloat16"])
    # The narrow ones differ by their names alone: one shape of each is enough.
    held |= {dtype: awkward(dtype) for dtype in DTYPES if dtype not in NATIVE}
    assert same_bits(arrays(written(tmp_path / "all.zarr", contents(held))), held)


def test_zarr_reads_the_bits(tmp_path):
    """zarr-python finds the bits in its own dtypes, or in unsigned integers with an attribute that names the dtype."""
    held = {dtype: awkward(dtype)[:600] for dtype in DTYPES}
    written(tmp_path / "all.zarr", contents(held))
    group = zarr.open_group(str(tmp_path / "all.zarr"), mode="r")
    for dtype, array in held.items():
        found = group[dtype][...]
        if dtype in NATIVE:
            assert same_bits(found, array)
        else:
            assert found.dtype.kind == "u"
            assert found.dtype.itemsize == array.dtype.itemsize
            assert found.tobytes() == array.tobytes()
            assert group[dtype].attrs["tensorferry.dtype"] == dtype


def test_what_zarr_writes_is_read(tmp_path):
    """Chunks, shards, compressed or not, in either byte order, and chunks that were never written."""
    group = zarr.create_group(str(tmp_path / "theirs.zarr"))
    values = awkward("float32")[:500].reshape(20, 25)
    default = {"shape": values.shape, "dtype": "float32"}
    plain = {"compressors": None, "filters": None, "config": {"write_empty_chunks": True}}
    group.create_array("default", **default)[...] = values
    group.create_array("deep/chunked", chunks=(7, 10), **default, **plain)[...] = values
    group.create_array("one", chunks=(20, 25), **default, **plain)[...] = values
    group.create_array("sharded", chunks=(5, 5), shards=(10, 10), **default)[...] = values
    big = zarr.codecs.BytesCodec(endian="big")
    group.create_array("big", chunks=(20, 25), serializer=big, compressors=None, **default)[...] = (
        values
    )
    group.create_array("scalar", shape=(), dtype="int64")[...] = 7
    group.create_array("empty", shape=(0, 3), dtype="int64")
    group.create_array("unwritten", shape=(5,), chunks=(2,), dtype="float64", fill_value=-0.0)
    found = FORMAT.read(tmp_path / "theirs.zarr")
    held = arrays(found)
    for name in ("default", "deep/chunked", "one", "sharded", "big"):
        assert same_bits(held[name], values)
    assert same_bits(held["scalar"], np.array(7))
    assert same_bits(held["empty"], np.zeros((0, 3), "i8"))
    assert same_bits(held["unwritten"], np.full(5, -0.0))
    assert isinstance(found.tensors["one"], Extent)
    assert isinstance(found.tensors["big"], Decoded)


@pytest.mark.parametrize(
    "codecs", [None, [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "gzip"}]]
)
def test_bfloat16_of_tensorstore_is_read(tmp_path, codecs):
    """TensorStore has a bfloat16 of its own, which zarr-python has not: it is read bit for bit, fill value too."""
    tensorstore = pytest.importorskip("tensorstore", reason="TensorStore is not installed")
    metadata = {"shape": [5, 4], "data_type": "bfloat16", "fill_value": "NaN"}
    metadata["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}
    if codecs:
        metadata["codecs"] = codecs
    spec = {
        "driver": "zarr3",
        "kvstore": f"file://{tmp_path}/theirs/",
        "metadata": metadata,
        "create": True,
    }
    theirs = tensorstore.open(spec).result()
    theirs[:2] = awkward("bfloat16")[0x7F7E:0x7F86].reshape(2, 4)
    found = FORMAT.read(tmp_path / "theirs")
    assert same_bits(arrays(found), {"tensor": theirs.read().result()})


def test_negative_zeros_are_no_empty_chunks(tmp_path):
    """A tensor of nothing but -0.0 keeps its signs, which zarr-python takes for the fill value."""
    held = {"x": np.full(9, -0.0)}
    assert same_bits(arrays(written(tmp_path / "zeros.zarr", contents(held))), held)


def test_any_name_keeps_its_order_and_stays_inside(tmp_path):
    """Names that are no paths, or lead out of the folder, come back as they were; nothing is written elsewhere."""
    names = [
        "b.weight",
        "a/b",
        "a",
        "z/y/x",
        "",
        "/",
        ".",
        "x//y",
        "../../up",
        "\0",
        "\udc80",
        "q/",
        "z/y",
        "__own",
    ]
    names += ["zarr.json", "a\\c", "Ω", "x" * 300, "c/0"]
    held = {name: np.array([number], "i2") for number, name in enumerate(names)}
    found = written(tmp_path / "in" / "names.zarr", contents(held, metadata={"a/b@unit": "m"}))
    assert same_bits(arrays(found), held)
    assert found.metadata == {"a/b@unit": "m"}
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]
    assert list((tmp_path / "in").iterdir()) == [tmp_path / "in" / "names.zarr"]
    assert (
        zarr.open_group(str(tmp_path / "in" / "names.zarr"), mode="r")["a/b"].attrs["unit"] == "m"
    )


def test_tree_ties_and_metadata_come_back(tmp_path):
    """Nested values, ties stored once, and metadata."""
    shared = np.arange(1000.0)
    tree = {"model": {"w": Ref("model.w"), "tied": Ref("model.tied")}, "steps": (1, None)}
    metadata = {"": "empty", "nul": "\0", "model.tied": "model.w"}
    found = written(
        tmp_path / "tree.zarr",
        contents({"model.w": shared, "model.tied": shared}, metadata=metadata, tree=tree),
    )
    assert (found.tree, found.metadata, found.ties) == (tree, metadata, {"model.tied": "model.w"})
    assert (
        sum(each.stat().st_size for each in (tmp_path / "tree.zarr").rglob("0") if each.is_file())
        == shared.nbytes
    )


def test_zarr_finds_all_of_a_training(tmp_path):
    """Each array under the name that follows from its place, also the second of two that are one."""
    tree, named = training()
    report = ferry.save(tree, tmp_path / "a.zarr", verify=True)
    assert [line.endswith("model.head is model.embed.") for line in report.warnings] == [True]
    theirs = dict(zarr.open_group(str(tmp_path / "a.zarr"), mode="r").arrays())
    assert set(theirs) == set(named)
    for name, array in named.items():
        assert theirs[name][...].tobytes() == array.tobytes()
        assert theirs[name].shape == array.shape
    ferry.save(tree, tmp_path / "b.zarr", ties="alias", verify=True)
    theirs = dict(zarr.open_group(str(tmp_path / "b.zarr"), mode="r").arrays())
    assert set(theirs) == set(named) - {"model.head"}
    assert ferry.open(tmp_path / "b.zarr").ties == {"model.head": "model.embed"}


def test_attributes_and_dimension_names_are_metadata(tmp_path):
    """Attributes are kept as text, what is no text as JSON."""
    group = zarr.create_group(str(tmp_path / "theirs.zarr"), attributes={"title": "a run", "n": 3})
    made = group.create_array("x", shape=(2, 2), dtype="int8", dimension_names=["row", None])
    made.attrs["unit"] = "m"
    found = FORMAT.read(tmp_path / "theirs.zarr")
    assert found.metadata == {
        "title": "a run",
        "n": "3",
        "x@unit": "m",
        "x@dimension_names": '["row", null]',
    }


def test_what_is_no_tensor_is_listed(tmp_path):
    """Strings, times, codecs that are not known and links to folders are named with the reason."""
    group = zarr.create_group(str(tmp_path / "theirs.zarr"))
    group.create_array("time", shape=(2,), dtype="M8[s]")
    group.create_array("fine", shape=(2,), dtype="int8")
    group.create_array("codec", shape=(2,), dtype="int8")
    described = tmp_path / "theirs.zarr" / "codec" / "zarr.json"
    changed = json.loads(described.read_text())
    changed["codecs"].append({"name": "numcodecs.pickle"})
    described.write_text(json.dumps(changed))
    (tmp_path / "theirs.zarr" / "linked").symlink_to(tmp_path / "theirs.zarr" / "fine")
    found = FORMAT.read(tmp_path / "theirs.zarr")
    assert list(found.tensors) == ["fine"]
    assert set(found.others) == {"time", "codec", "linked"}
    assert "numcodecs.pickle" in found.others["codec"]


def test_large_tensors_are_written_and_read_in_chunks(tmp_path):
    """Chunks have at most 4 MiB, and writing or reading one tensor takes but a few of them."""
    big = np.arange(12 << 20, dtype="f4").reshape(3, -1)
    held = contents({"x": big})
    tracemalloc.start()
    found = written(tmp_path / "big.zarr", held)
    peak_written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    seen = 0
    for block in found.tensors["x"].blocks():
        assert block[0] == np.float32(seen)
        seen += block.size
    peak_read = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == big.size
    assert max(peak_written, peak_read) < 40 << 20
    assert zarr.open_group(str(tmp_path / "big.zarr"), mode="r")["x"].chunks == (1, 1 << 20)
    assert same_bits(found.tensors["x"].array(), big)


HOSTILE = {
    "no JSON": None,
    "negative length": {"shape": [-4]},
    "overflow": {
        "shape": [2**40, 2**40],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1]}},
    },
    "no shape": {"shape": "4"},
    "shape of bools": {"shape": [True]},
    "empty chunks": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
    "other chunks": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}},
    "no chunks": {"chunk_grid": {"name": "regular"}},
    "no codecs": {"codecs": 5},
    "codecs in codecs": {
        "codecs": [{"name": "sharding_indexed", "configuration": {"codecs": [[]]}}]
    },
    "a dtype of another size": {
        "attributes": {"tensorferry.dtype": "bfloat16"},
        "data_type": "uint8",
    },
    "a wrong dtype": {"attributes": {"tensorferry.dtype": 5}, "data_type": "uint8"},
    "a dtype for floats": {"attributes": {"tensorferry.dtype": "bfloat16"}, "data_type": "float16"},
    "attributes that are none": {"attributes": []},
    "another version": {"zarr_format": 4},
    "no node": {"node_type": "file"},
    "names that do not fit": {"attributes": {"tensorferry.names": '[["a", "b"]]'}},
    "a wrong fill value": {"data_type": "bfloat16", "fill_value": ["x"]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_descriptions_are_refused(tmp_path, case):
    """Whatever does not add up is a named error, found from the description or when the values are read."""
    path = node(tmp_path / "hostile", **(HOSTILE[case] or {}))
    if HOSTILE[case] is None:
        (path / "zarr.json").write_text("[" * 100_000)
    with pytest.raises(FileFormatError):
        arrays(FORMAT.read(path))


@pytest.mark.parametrize(("shape", "chunk"), [(2**42, 2**20), (2**32, 2**32), (10, 2**40)])
def test_a_shape_out_of_all_proportion_is_refused(tmp_path, shape, chunk):
    """Terabytes declared in a few bytes are refused, and nothing of that size is made."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [chunk]}}
    with pytest.raises(UnsafeFileError, match="out of all proportion"):
        FORMAT.read(node(tmp_path / "bomb", shape=[shape], chunk_grid=grid))


def test_a_chunk_that_is_cut_off_is_refused(tmp_path):
    """Missing bytes of a chunk are an error, for every reader."""
    written(tmp_path / "x.zarr", contents({"one": np.arange(100), "many": np.arange(3 << 20)}))
    for chunk in ("one/c/0", "many/c/1"):
        path = tmp_path / "x.zarr" / chunk
        raw = path.read_bytes()
        path.write_bytes(raw[:-8])
        with pytest.raises(FileFormatError):
            arrays(FORMAT.read(tmp_path / "x.zarr"))
        path.write_bytes(raw)


def test_strings_that_are_no_text_are_refused():
    """Half a surrogate pair in the metadata, or its reserved name, is refused by name."""
    for key in ("\udc80", "tensorferry.names"):
        with pytest.raises(FormatLimitError, match="metadata"):
            refuse_contents(FORMAT, contents({"x": np.ones(2)}, metadata={key: "x"}))


def test_a_folder_is_known_by_its_description(tmp_path):
    """A folder with zarr.json is of this format, whatever its name."""
    written(tmp_path / "model", contents({"x": np.ones(2)}))
    assert format_of(tmp_path / "model") is FORMAT


def test_without_the_library_it_says_what_to_install(tmp_path, monkeypatch):
    """Reading and writing without zarr name the extra."""
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(FrameworkNotInstalledError, match="pip install zarr"):
        FORMAT.read(tmp_path)
    with pytest.raises(FrameworkNotInstalledError, match="pip install zarr"):
        FORMAT.write(contents({"x": np.ones(2)}), tmp_path / "new.zarr", Pump())


def test_what_is_not_of_the_array_or_group_is_not_its_own(tmp_path):
    """All that is written is its own; a file that is neither a description nor a chunk is not, however deep."""
    held = {
        "a.b": np.ones(3),
        "c": np.zeros((2, 0)),
        "group/d": np.ones((2, 2), np.int8),
        "group/0": np.ones(()),
    }
    written(tmp_path / "a", contents(held))
    assert sorted(FORMAT.own_entries(tmp_path / "a")) == sorted(
        each.name for each in (tmp_path / "a").iterdir()
    )
    zarr.create_array(str(tmp_path / "lone"), data=np.ones((4, 4)), chunks=(2, 2))
    assert sorted(FORMAT.own_entries(tmp_path / "lone")) == ["c", "zarr.json"]
    (tmp_path / "a" / "mine.txt").write_text("")
    (tmp_path / "a" / "0").write_text("")  # A chunk's name, and no chunk: the group is no array.
    (tmp_path / "a" / "link").symlink_to(tmp_path / "lone")
    (tmp_path / "a" / "group" / "d" / "mine.txt").write_text("")
    left = {each.name for each in (tmp_path / "a").iterdir()} - set(
        FORMAT.own_entries(tmp_path / "a")
    )
    assert left == {"mine.txt", "0", "link", "group"}


def zarr_v2(path):
    """A group by zarr-python in version 2: every compressor that numcodecs has here, filters, orders, a group in it."""
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    values = awkward("float32")[:500].reshape(20, 25)
    held = {}

    def add(name, values, dtype=None, **options):
        made = group.create_array(name, shape=values.shape, dtype=dtype or values.dtype, **options)
        made[...] = values
        held[name] = values

    compressors = [
        numcodecs.Zlib(),
        numcodecs.GZip(),
        numcodecs.Zstd(),
        numcodecs.Blosc(),
        numcodecs.LZ4(),
    ]
    for codec in [None, *compressors, numcodecs.BZ2(), numcodecs.LZMA()]:
        add(codec.codec_id if codec else "raw", values, chunks=(7, 10), compressors=codec)
    plain = {"compressors": None, "filters": None}
    add("one", values, chunks=values.shape, **plain)
    add("big", values, ">f4", chunks=values.shape, **plain)
    add("columns", values, chunks=values.shape, order="F", **plain)
    add(
        "deep/slashes",
        values,
        chunks=(7, 10),
        chunk_key_encoding={"name": "v2", "separator": "/"},
        **plain,
    )
    add("delta", np.arange(100).reshape(10, 10) ** 3, filters=[numcodecs.Delta("<i8")])
    add("scalar", np.array(7), **plain)
    add("empty", np.zeros((0, 3), "i2"))
    for kind in NATIVE:
        add(f"of.{kind}", awkward(kind)[:64], chunks=(10,), compressors=numcodecs.Zstd())
    group.create_array("unwritten", shape=(5,), chunks=(2,), dtype="float64", fill_value=-0.0)
    return group, held | {"unwritten": np.full(5, -0.0)}


def test_version_2_is_read(tmp_path):
    """What zarr-python writes in version 2, in every encoding, comes back bit for bit; packed values where they lie."""
    group, held = zarr_v2(tmp_path / "theirs")
    group.attrs["title"] = "a run"
    group["deep/slashes"].attrs["unit"] = "m"
    assert format_of(tmp_path / "theirs") is FORMAT
    found = FORMAT.read(tmp_path / "theirs")
    assert same_bits(dict(sorted(arrays(found).items())), dict(sorted(held.items())))
    assert found.metadata == {"title": "a run", "deep/slashes@unit": "m"}
    lying = {name for name, stored in found.tensors.items() if isinstance(stored, Extent)}
    assert lying == {"one", "scalar"}
    assert not found.others


def test_a_lone_array_of_version_2_is_read(tmp_path):
    """An array that stands in no group has no name of its own."""
    made = zarr.open_array(
        str(tmp_path / "theirs"), mode="w", shape=(3,), dtype="i4", zarr_format=2
    )
    made[...] = [1, 2, 3]
    assert same_bits(
        arrays(FORMAT.read(tmp_path / "theirs")), {"tensor": np.array([1, 2, 3], "i4")}
    )


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("compressor", [None, {"id": "zlib", "level": 1}])
def test_narrow_dtypes_of_tensorstore_in_version_2_are_read(tmp_path, kind, compressor):
    """TensorStore names dtypes in version 2 that zarr-python has not there: they are read bit for bit."""
    tensorstore = pytest.importorskip("tensorstore", reason="TensorStore is not installed")
    values = awkward(kind)[-120:].reshape(10, 12)
    metadata = {
        "shape": [10, 12],
        "chunks": [4, 5],
        "dtype": kind,
        "compressor": compressor,
        "fill_value": None,
    }
    spec = {
        "driver": "zarr",
        "kvstore": f"file://{tmp_path}/theirs/",
        "metadata": metadata,
        "create": True,
    }
    tensorstore.open(spec).result()[...] = values
    assert same_bits(arrays(FORMAT.read(tmp_path / "theirs")), {"tensor": values})


def test_what_is_no_tensor_in_version_2_is_listed(tmp_path):
    """Text, objects, times and codecs that are not known, those that run code first of all, are named."""
    group = zarr.open_group(str(tmp_path / "theirs"), mode="w", zarr_format=2)
    group.create_array("fine", shape=(2,), dtype="int8")
    described = tmp_path / "theirs" / "fine" / ".zarray"
    plain = json.loads(described.read_text())
    changes = {
        "text": {"dtype": "<U3"},
        "object": {"dtype": "|O", "filters": [{"id": "pickle"}]},
        "time": {"dtype": "<M8[s]"},
        "fields": {"dtype": [["a", "<f4"]]},
        "pickled": {"filters": [{"id": "pickle"}]},
        "unknown": {"compressor": {"id": "mine"}},
    }
    for name, change in changes.items():
        (tmp_path / "theirs" / name).mkdir()
        (tmp_path / "theirs" / name / ".zarray").write_text(json.dumps(plain | change))
    found = FORMAT.read(tmp_path / "theirs")
    assert list(found.tensors) == ["fine"]
    assert set(found.others) == set(changes)
    assert {name for name, why in found.others.items() if isinstance(why, NotTensor)} == {
        "text",
        "object",
    }
    assert "pickle, which is not known" in found.others["pickled"]


HOSTILE_V2 = {
    "no JSON": None,
    "another version": {"zarr_format": 3},
    "negative length": {"shape": [-4]},
    "overflow": {"shape": [2**40, 2**40], "chunks": [1, 1]},
    "no shape": {"shape": "4"},
    "empty chunks": {"chunks": [0]},
    "other chunks": {"chunks": [2, 2]},
    "a codec without a name": {"compressor": {"level": 1}},
    "codecs that are none": {"filters": "zlib"},
    "a wrong compressor": {"compressor": 5},
    "settings that are none": {
        "compressor": {"id": "zlib", "level": "x"},
        "shape": [4],
        "chunks": [4],
    },
    "a wrong order": {"order": "X"},
    "a wrong separator": {"dimension_separator": 5},
    "a wrong fill value": {"dtype": "bfloat16", "fill_value": ["x"]},
}


@pytest.mark.parametrize("case", HOSTILE_V2)
def test_hostile_descriptions_of_version_2_are_refused(tmp_path, case):
    """Whatever does not add up is a named error."""
    described = {
        "zarr_format": 2,
        "shape": [4],
        "chunks": [2],
        "dtype": "|i1",
        "order": "C",
        "fill_value": 0,
    }
    described |= {"compressor": None, "filters": None} | (HOSTILE_V2[case] or {})
    (tmp_path / ".zarray").write_text(
        "[" * 100_000 if HOSTILE_V2[case] is None else json.dumps(described)
    )
    (tmp_path / "0").write_bytes(b"\1\2")
    (tmp_path / "1").write_bytes(b"\3\4")
    with pytest.raises(FileFormatError):
        arrays(FORMAT.read(tmp_path))


def test_damage_in_version_2_is_found(tmp_path):
    """Chunks that are cut off or changed, in each encoding, are an error and never numbers; no code is run."""
    _, held = zarr_v2(tmp_path / "theirs")
    for name in ("zlib", "gzip", "zstd", "blosc", "lz4", "bz2", "lzma", "raw", "one"):
        chunk = min((tmp_path / "theirs" / name).glob("[0-9]*"))
        whole = chunk.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"\xff" * 40):
            chunk.write_bytes(damaged)
            # Damage may say that there are gigabytes in it.
            with pytest.raises((FileFormatError, UnsafeFileError)):
                FORMAT.read(tmp_path / "theirs").tensors[name].load()
        chunk.write_bytes(whole)
    assert same_bits(
        arrays(FORMAT.read(tmp_path / "theirs")) | held, arrays(FORMAT.read(tmp_path / "theirs"))
    )


def test_a_chunk_of_blosc_that_is_cut_off_is_refused(tmp_path):
    """Its library would read past the end of what it was given, in version 3 too."""
    codec = zarr.codecs.BloscCodec()
    zarr.create_array(str(tmp_path / "a"), data=np.arange(1000), compressors=codec)
    chunk = tmp_path / "a" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-100])
    with pytest.raises(FileFormatError, match="cut off"):
        FORMAT.read(tmp_path / "a").tensors["tensor"].load()


def test_shapes_out_of_proportion_and_links_out_of_version_2_are_refused(tmp_path):
    """Terabytes declared in a few bytes, and a chunk that lies elsewhere."""
    described = {
        "zarr_format": 2,
        "shape": [2**42],
        "chunks": [2**20],
        "dtype": "|i1",
        "order": "C",
        "fill_value": 0,
    }
    (tmp_path / ".zarray").write_text(json.dumps(described | {"compressor": None, "filters": None}))
    with pytest.raises(UnsafeFileError, match="out of all proportion"):
        FORMAT.read(tmp_path)
    (tmp_path / "0").symlink_to("/etc/hostname")
    with pytest.raises(UnsafeFileError, match="leads out"):
        FORMAT.read(tmp_path)


def test_what_belongs_to_version_2_is_its_own(tmp_path):
    """Descriptions, attributes and chunks are; what stands beside them is not."""
    zarr_v2(tmp_path / "theirs")
    (tmp_path / "theirs" / "mine.txt").write_text("")
    (tmp_path / "theirs" / "raw" / "mine.txt").write_text("")
    left = {each.name for each in (tmp_path / "theirs").iterdir()} - set(
        FORMAT.own_entries(tmp_path / "theirs")
    )
    assert left == {"mine.txt", "raw"}
