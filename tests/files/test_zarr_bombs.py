"""Chunks of Zarr that hold more than they are declared to: refused, and not expanded first."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zlib

import numpy as np
import pytest
from tests.files.support import arrays, awkward, same_bits
from tests.support import peak_of

from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.formats.zarr import FORMAT

zarr = pytest.importorskip("zarr", reason="zarr 3 is not installed; it needs Python 3.11")
numcodecs = pytest.importorskip("numcodecs", reason="zarr brings it")

DECLARED, HELD = 1000, 1 << 25
LITTLE = {"name": "bytes"}
STEP = bytes(1 << 22)


def zstd_frame(blocks, told=None):
    """A frame of blocks that repeat one byte 131,072 times (RFC 8878, 3.1.1.2); `told` is what it says it holds."""
    head = bytes([0, 0x58]) if told is None else bytes([0xC0, 0x58]) + told.to_bytes(8, "little")
    kinds = [(last | 1 << 1 | 131_072 << 3).to_bytes(3, "little") + b"\0" for last in (0, 1)]
    return b"\x28\xb5\x2f\xfd" + head + kinds[0] * (blocks - 1) + kinds[1]


def streams():
    """The bombs, by the codec that expands them; several streams in a row count as one."""
    blocks, steps = HELD // 131_072, HELD // len(STEP)
    return {
        "gzip": gzip.compress(STEP) * steps,
        "zlib": zlib.compress(bytes(HELD), 1),
        "bz2": bz2.compress(STEP, 1) * steps,
        "lzma": lzma.compress(STEP, preset=0) * steps,
        "zstd": zstd_frame(blocks, HELD),
        "zstd that does not say": zstd_frame(blocks),
        "zstd behind a frame that fits": numcodecs.Zstd().encode(bytes(DECLARED))
        + zstd_frame(blocks),
        "zstd behind a small frame": zstd_frame(1, 131_072) + zstd_frame(blocks, HELD),
        "blosc": numcodecs.Blosc().encode(bytes(HELD)),
        "lz4": numcodecs.LZ4().encode(bytes(HELD)),
    }


def array_v2(folder, raw, compressor, *, filters=None):
    folder.mkdir(parents=True)
    described = {
        "zarr_format": 2,
        "shape": [DECLARED],
        "chunks": [DECLARED],
        "dtype": "|u1",
        "order": "C",
    }
    described |= {"fill_value": 0, "compressor": compressor, "filters": filters}
    (folder / ".zarray").write_text(json.dumps(described))
    (folder / "0").write_bytes(raw)


def array_v3(folder, raw, codecs):
    (folder / "c").mkdir(parents=True)
    described = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [DECLARED],
        "data_type": "uint8",
        "attributes": {},
    }
    described |= {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [DECLARED]}},
        "fill_value": 0,
    }
    described |= {"chunk_key_encoding": {"name": "default"}, "codecs": codecs}
    (folder / "zarr.json").write_text(json.dumps(described))
    (folder / "c" / "0").write_bytes(raw)


def shard(raw, count):
    """A shard whose chunks are all one bomb."""
    index = np.array([[0, len(raw)]] * count, "<u8").tobytes()
    return (
        raw + index + int(numcodecs.CRC32C().encode(index)[:4].view("<u4")[0]).to_bytes(4, "little")
    )


def sharded(inner, chunk):
    index = {
        "index_codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ]
    }
    settings = {"chunk_shape": [chunk], "codecs": inner, "index_location": "end"}
    return [{"name": "sharding_indexed", "configuration": settings | index}]


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """A folder with an array for each bomb."""
    root, raw = tmp_path_factory.mktemp("bombs"), streams()
    for name, each in raw.items():
        array_v2(root / "v2" / name, each, {"id": name.split()[0]})
    twice = gzip.compress(raw["gzip"])
    array_v2(root / "v2" / "twice", twice, {"id": "gzip"}, filters=[{"id": "gzip"}])
    array_v2(
        root / "v2" / "filter",
        raw["zlib"],
        None,
        filters=[{"id": "zlib"}, {"id": "shuffle", "elementsize": 1}],
    )
    for name in (each for each in raw if each.split()[0] in ("gzip", "zstd", "blosc")):
        codec = {"name": name.split()[0], "configuration": settings_of(name.split()[0])}
        array_v3(root / "v3" / name, raw[name], [LITTLE, codec])
        array_v3(
            root / "v3" / f"{name}, sharded",
            shard(raw[name], 10),
            sharded([LITTLE, codec], DECLARED // 10),
        )
    array_v3(root / "v3" / "long", b"", [LITTLE, {"name": "crc32c"}])
    with (root / "v3" / "long" / "c" / "0").open("wb") as file:
        file.truncate(HELD)
    return root


def settings_of(kind):
    if kind == "blosc":
        return {"typesize": 1, "cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0}
    return {"level": 1, "checksum": False} if kind == "zstd" else {"level": 1}


def test_no_bomb_is_expanded(bombs, tmp_path):
    """Each is refused, and at no time is as much held as a quarter of what one of them holds."""
    array_v2(tmp_path / "small", gzip.compress(bytes(DECLARED)), {"id": "gzip"})
    assert (
        FORMAT.read(tmp_path / "small").tensors["tensor"].load().size == DECLARED
    )  # the library is there

    paths = [path for version in ("v2", "v3") for path in sorted((bombs / version).iterdir())]
    assert len(paths) > 20
    for path in paths:
        held, error = peak_of(lambda path=path: refusal(path))
        assert isinstance(error, (UnsafeFileError, FileFormatError)), path
        assert held < HELD // 4, path


def refusal(path):
    try:
        return FORMAT.read(path).tensors["tensor"].load()
    except (FileFormatError, UnsafeFileError) as error:
        return error.with_traceback(None)


def test_bombs_are_refused_as_such(bombs):
    """What says how much it holds, and what is seen to hold more, is unsafe and named with its folder."""
    for place in (
        "v2/gzip",
        "v2/zlib",
        "v2/bz2",
        "v2/lzma",
        "v2/zstd",
        "v2/blosc",
        "v2/lz4",
        "v2/twice",
        "v2/filter",
    ):
        with pytest.raises(UnsafeFileError, match="declared: a bomb") as refused:
            FORMAT.read(bombs / place).tensors["tensor"].load()
        assert str(bombs / place) in str(refused.value)
    with pytest.raises(UnsafeFileError, match="where a chunk has 1,004 at most"):
        FORMAT.read(bombs / "v3" / "long").tensors["tensor"].load()
    described = {
        "id": "lzma",
        "format": lzma.FORMAT_RAW,
        "filters": [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}],
    }
    array_v2(bombs / "other" / "window", b"\0", described)
    with pytest.raises(UnsafeFileError, match="look back"):
        FORMAT.read(bombs / "other" / "window").tensors["tensor"].load()


def test_what_is_no_bomb_is_read(tmp_path):
    """Zstandard's frames that do not say their size, codecs over codecs, shards, checksums, lzma without a header."""
    raw = np.arange(DECLARED, dtype="u1")
    unsized = (
        b"\x28\xb5\x2f\xfd\x00\x58" + (1 | len(raw) << 3).to_bytes(3, "little") + raw.tobytes()
    )
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
    alone = lzma.compress(raw, format=lzma.FORMAT_RAW, filters=filters)
    array_v2(tmp_path / "unsized", unsized, {"id": "zstd"})
    array_v2(
        tmp_path / "summed",
        numcodecs.CRC32().encode(unsized).tobytes(),
        {"id": "crc32"},
        filters=[{"id": "zstd"}],
    )
    array_v2(
        tmp_path / "twice",
        gzip.compress(bz2.compress(raw)),
        {"id": "gzip"},
        filters=[{"id": "bz2"}],
    )
    array_v2(
        tmp_path / "members",
        gzip.compress(raw[:10]) + gzip.compress(raw[10:]) + bytes(8),
        {"id": "gzip"},
    )
    array_v2(
        tmp_path / "alone", alone, {"id": "lzma", "format": lzma.FORMAT_RAW, "filters": filters}
    )
    for name in ("unsized", "summed", "twice", "members", "alone"):
        assert np.array_equal(FORMAT.read(tmp_path / name).tensors["tensor"].load(), raw), name
    values = np.resize(awkward("float32"), (64, 64))
    for codec in (
        zarr.codecs.GzipCodec(),
        zarr.codecs.ZstdCodec(checksum=True),
        zarr.codecs.BloscCodec(),
        None,
    ):
        name = type(codec).__name__
        each = {"shards": (32, 64), "chunks": (8, 16), "compressors": codec}
        zarr.create_array(str(tmp_path / "shards" / name), data=values, **each)
        assert same_bits(arrays(FORMAT.read(tmp_path / "shards" / name)), {"tensor": values})


def test_a_cut_stream_is_damaged(tmp_path):
    """An error that says so, as for whatever else is cut off."""
    array_v2(tmp_path / "a", gzip.compress(bytes(range(200)) * 5)[:-9], {"id": "gzip"})
    with pytest.raises(FileFormatError, match="cut off"):
        FORMAT.read(tmp_path / "a").tensors["tensor"].load()
