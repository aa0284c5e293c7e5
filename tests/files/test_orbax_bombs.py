"""Chunks of Orbax checkpoints that hold more than they are declared to: refused before tensorstore reads them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.formats.orbax import FORMAT

tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is not installed")

HELD = 1 << 24
BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
BLOSC_3 = {
    "name": "blosc",
    "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4},
}
SHARDED = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [2, 2], "codecs": [{"name": "bytes"}, BLOSC_3]},
}
VALUES = np.arange(70, dtype="<f4").reshape(10, 7)


def checkpoint(
    folder, driver, *, database=False, kind="np.ndarray", values=VALUES, zeros=False, **metadata
):
    """A checkpoint with one array, and what tensorstore keeps it in."""
    folder.mkdir()
    value = {"value_type": kind, "skip_deserialize": False}
    entry = {"key_metadata": [{"key": "a", "key_type": 2}], "value_metadata": value}
    note = {
        "tree_metadata": {"('a',)": entry},
        "use_ocdbt": database,
        "use_zarr3": driver == "zarr3",
    }
    (folder / "_METADATA").write_text(json.dumps(note))
    place = {"driver": "file", "path": f"{folder}/"}
    place = (
        {"driver": "ocdbt", "base": place, "path": "a/"}
        if database
        else {**place, "path": f"{folder}/a/"}
    )
    described = {"shape": values.shape, **metadata}
    spec = {
        "driver": driver,
        "kvstore": place,
        "metadata": described,
        "store_data_equal_to_fill_value": zeros,
    }
    store = tensorstore.open(spec, create=True).result()
    store.write(values).result()
    return store.kvstore


def grid(*chunk):
    return {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "data_type": "float32",
    }


def layouts():
    """Arrays in chunks of blosc, by how they are laid out, and the key of their chunk at place 2, 1."""
    in_2 = {"driver": "zarr", "dtype": "<f4", "chunks": [4, 3], "compressor": BLOSC}
    in_3 = {"driver": "zarr3", **grid(4, 3), "codecs": [{"name": "bytes"}, BLOSC_3]}
    by_dots = {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}}
    return {
        "version 2": (in_2, "2.1"),
        "version 2 in folders": ({**in_2, "dimension_separator": "/"}, "2/1"),
        "version 2 in a database": ({**in_2, "database": True}, "2.1"),
        "version 3": (in_3, "c/2/1"),
        "version 3 with dots": ({**in_3, **by_dots}, "c.2.1"),
        "version 3 named as in 2": ({**in_3, "chunk_key_encoding": {"name": "v2"}}, "2.1"),
        "version 3 in a database": ({**in_3, "database": True}, "c/2/1"),
    }


def bomb():
    """What blosc made of zeros."""
    numcodecs = pytest.importorskip("numcodecs", reason="needs numcodecs to compress by blosc")
    return numcodecs.Blosc().encode(bytes(HELD))


@pytest.mark.parametrize("layout", layouts())
def test_a_chunk_of_blosc_is_not_expanded_beyond_its_size(layout, tmp_path):
    """One of sixteen million bytes, where 48 are declared, is unsafe and named; as it was written it is read."""
    settings, key = layouts()[layout]
    store = checkpoint(tmp_path / "a", **settings)
    stored = FORMAT.read(tmp_path / "a").tensors["a"]
    assert np.array_equal(stored.load(), VALUES)

    assert store.read(key).result().value
    store.write(key, bomb()).result()
    with pytest.raises(
        UnsafeFileError, match=r"'a' has a chunk of 16,777,216 bytes .* 48 are declared: a bomb"
    ) as found:
        stored.load()
    assert str(tmp_path / "a") in str(found.value)


@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
def test_a_file_longer_than_its_chunk_is_not_read(driver, tmp_path):
    """Tensorstore would read all of it into memory, though it takes no more than the chunk."""
    settings = (
        {"dtype": "<f4", "chunks": [10, 7], "compressor": None} if driver == "zarr" else grid(10, 7)
    )
    checkpoint(tmp_path / "a", driver, **settings)
    stored = FORMAT.read(tmp_path / "a").tensors["a"]
    assert np.array_equal(stored.load(), VALUES)

    chunk = next(path for path in (tmp_path / "a" / "a").rglob("*0") if path.is_file())
    with chunk.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnsafeFileError, match="a chunk of 1,099,511,627,776 bytes or more"):
        stored.load()


def test_blosc_in_shards_is_refused(tmp_path):
    """Where a piece of a shard begins is not looked up; Orbax compresses shards by Zstandard, which is bounded."""
    plain = {
        "name": "sharding_indexed",
        "configuration": {"chunk_shape": [2, 2], "codecs": [{"name": "bytes"}]},
    }
    values = np.arange(64, dtype="<f4").reshape(8, 8)
    checkpoint(tmp_path / "a", "zarr3", values=values, **grid(4, 4), codecs=[plain])
    assert np.array_equal(FORMAT.read(tmp_path / "a").tensors["a"].load(), values)

    checkpoint(tmp_path / "b", "zarr3", values=values, **grid(4, 4), codecs=[SHARDED])
    with pytest.raises(UnsafeFileError, match="shards of chunks that are compressed by blosc"):
        FORMAT.read(tmp_path / "b")


def test_a_number_that_is_an_array_is_refused_before_it_is_read(tmp_path):
    """A number of the tree is one number: a million zeros under its name are not made."""
    settings = {"dtype": "<f8", "chunks": [], "compressor": BLOSC}
    checkpoint(tmp_path / "a", "zarr", kind="scalar", values=np.float64(2.5), **settings)
    assert FORMAT.read(tmp_path / "a").tree == {"a": 2.5}

    described = json.loads((tmp_path / "a" / "a" / ".zarray").read_text())
    described |= {"shape": [1 << 20], "chunks": [1 << 20]}
    (tmp_path / "a" / "a" / ".zarray").write_text(json.dumps(described))
    with pytest.raises(FileFormatError, match="'a' is no number, but an array of 1,048,576"):
        FORMAT.read(tmp_path / "a")


@pytest.mark.parametrize("database", [False, True])
@pytest.mark.parametrize(("length", "chunk"), [(1 << 40, 1 << 20), (8, 1 << 30)])
def test_values_that_are_nowhere_are_not_made(length, chunk, database, tmp_path):
    """Missing chunks are filled in: many small ones would take for ever, and a large one all memory."""
    store = checkpoint(tmp_path / "a", "zarr", database=database, dtype="<f4", chunks=[10, 7])
    described = json.loads(store.read(".zarray").result().value)
    described |= {"shape": [length], "chunks": [chunk]}
    store.write(".zarray", json.dumps(described).encode()).result()
    with pytest.raises(
        UnsafeFileError, match=r"'a' is out of all proportion: .* bytes are declared in"
    ):
        FORMAT.read(tmp_path / "a")


def test_what_zstandard_makes_of_zeros_is_read(tmp_path):
    """The moments of an optimizer are zeros at first: 128 MiB of them in some kilobytes are a checkpoint."""
    values = np.zeros((1 << 12, 1 << 13), np.float32)
    zstd = {"id": "zstd", "level": 1}
    settings = {"dtype": "<f4", "chunks": [1 << 12, 1 << 13], "compressor": zstd, "zeros": True}
    checkpoint(tmp_path / "a", "zarr", database=True, values=values, **settings)
    assert FORMAT.read(tmp_path / "a").tensors["a"].nbytes == values.nbytes
