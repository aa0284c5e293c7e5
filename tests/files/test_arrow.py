"""Arrow files and Parquet: the tables that pyarrow writes are read bit for bit, and are not written."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from tests.files.support import arrays, awkward, same_bits

import tensorferry as ferry
from tensorferry.errors import (
    FileFormatError,
    FormatLimitError,
    FrameworkNotInstalledError,
    UnsafeFileError,
    UnsupportedTypeError,
)
from tensorferry.files.base.stored import Decoded, Extent
from tensorferry.files.opening.paths import format_for, format_of
from tensorferry.files.tables import arrow, parquet

NATIVE = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
]


@pytest.fixture(params=["arrow", "parquet"])
def form(request):
    return {"arrow": arrow.FORMAT, "parquet": parquet.FORMAT}[request.param]


@pytest.fixture
def path(form, tmp_path):
    return tmp_path / f"table{form.suffixes[0]}"


def theirs(path, table, **options):
    """A file of pyarrow's, or with the suffix ``.arrows`` a stream."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, **options)
        return
    make, rows = (
        pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file,
        options.pop("max_chunksize", None),
    )
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=rows)


def test_every_type_of_numbers_is_read(form, path):
    """Each of Arrow's own types that is a dtype, and bools, which Arrow packs into bits, bit for bit."""
    held = {dtype: awkward(dtype)[:200] for dtype in NATIVE}
    held["bool"] = np.resize([True, False, True], 200)
    theirs(path, pa.table(held))
    found = form.read(path)
    assert same_bits(arrays(found), held)
    assert not found.others


@pytest.mark.parametrize("name", ["x.arrow", "x.feather", "x.parquet"])
def test_tables_are_read_but_not_written(tmp_path, name):
    """Nobody keeps weights in them: the hint names a file that readers of weights have."""
    path, x = tmp_path / name, {"w": np.ones(2)}
    np.savez(tmp_path / "in.npz", w=np.ones(2))
    with pytest.raises(FormatLimitError, match="can be read, not written") as caught:
        ferry.save(x, path)
    call = caught.value.hint.partition(", or ")[0]
    assert call == 'save(x, "x.safetensors")'
    with pytest.raises(FormatLimitError, match="can be read, not written") as caught:
        ferry.convert_files(tmp_path / "in.npz", path)
    call = caught.value.hint.partition(", or ")[0]
    eval(call, {"convert_files": ferry.convert_files, "source": str(tmp_path / "in.npz")})  # noqa: S307 - the hint
    assert load_file(tmp_path / "x.safetensors")["w"].tolist() == [1, 1]
    (tmp_path / "x.safetensors").unlink()
    with pytest.raises(FormatLimitError, match="can be read, not written"):
        ferry.save(x, tmp_path / "x.npz", to="parquet")
    assert [each.name for each in tmp_path.iterdir()] == ["in.npz"]


def test_plain_tables_are_read(form, path):
    """Numeric columns are tensors, lists of fixed size and fixed-shape tensors have more axes; the rest is listed."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.arange(24, dtype="f4").reshape(4, 2, 3)
    )
    twice = pa.list_(pa.list_(pa.int16(), 2), 1)
    table = pa.table(
        {
            "x": pa.array([1.5, -0.0, 3, 4]),
            "a.b": pa.array([1, 2, 3, 4], pa.uint8()),
            "a": pa.array([5, 6, 7, 8], pa.int64()),
            "flags": pa.array([True, False, True, True]),
            "pairs": pa.array([[1, 2]] * 4, pa.list_(pa.int32(), 2)),
            "deep": pa.array([[[1, 2]]] * 4, twice),
            "tensors": tensors,
            "text": ["a", "b", "c", "d"],
            "gaps": pa.array([1, None, 3, 4]),
            "list": [[1], [2, 3], [], [4]],
            "time": pa.array([0, 1, 2, 3], pa.timestamp("s")),
            "struct": [{"x": 1}] * 4,
        },
        metadata={"note": "hello"},
    )
    if path.suffix == ".parquet":
        table = table.drop_columns(["deep"])
    if path.suffix == ".parquet":
        # Its library ends the process over damaged statistics, so that nulls are seen only when
        # they are read.
        table = table.drop_columns(["gaps"])
    theirs(path, table)
    found = form.read(path)
    held = arrays(found)
    expected = {
        "x": np.array([1.5, -0.0, 3, 4]),
        "a.b": np.array([1, 2, 3, 4], "u1"),
        "a": np.array([5, 6, 7, 8]),
        "flags": np.array([True, False, True, True]),
        "pairs": np.array([[1, 2]] * 4, "i4"),
        "deep": np.array([[[1, 2]]] * 4, "i2"),
        "tensors": np.arange(24, dtype="f4").reshape(4, 2, 3),
    }
    if path.suffix == ".parquet":
        del expected["deep"]
    assert same_bits(held, expected)
    assert set(found.others) - {"gaps"} == {"text", "list", "time", "struct"}
    assert path.suffix == ".parquet" or "nulls" in found.others["gaps"]
    assert found.metadata == {"note": "hello"}


def test_batches_and_groups_are_joined(form, path):
    """Tables in several batches or groups of rows, compressed or not, are one tensor for each column."""
    table = pa.table({"x": awkward("float32")[:500], "y": np.arange(500)})
    schema = table.schema
    if form.name == "parquet":
        theirs(path, table, row_group_size=70)
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, schema, options=options) as writer,
        ):
            writer.write_table(table, max_chunksize=70)
    assert same_bits(
        arrays(form.read(path)), {name: table[name].to_numpy() for name in table.column_names}
    )


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("rows", [None, 70])
def test_streams_are_read(tmp_path, compression, rows):
    """A stream in a file, as Hugging Face's datasets are, gives what the file form of the same table gives."""
    table = pa.table(
        {
            "x": awkward("float32")[:500],
            "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(
                np.arange(3000, dtype="f4").reshape(500, 2, 3)
            ),
            "flags": pa.array([True, False] * 250),
            "text": ["a"] * 500,
            "words": pa.array(["a", "b"] * 250).dictionary_encode(),
        },
        metadata={"note": "hello"},
    )
    options = {"options": pa.ipc.IpcWriteOptions(compression=compression), "max_chunksize": rows}
    theirs(tmp_path / "a.arrow", table, **options)
    theirs(tmp_path / "a.arrows", table, **options)
    assert format_of(tmp_path / "a.arrows") is arrow.FORMAT
    file, stream = (arrow.FORMAT.read(tmp_path / name) for name in ("a.arrow", "a.arrows"))
    assert same_bits(arrays(stream), arrays(file))
    assert same_bits(arrays(stream)["x"], awkward("float32")[:500])
    assert (stream.metadata, stream.others) == (file.metadata, file.others)
    assert isinstance(stream.tensors["x"], Decoded if compression or rows else Extent)


def test_a_stream_without_batches_or_an_end_is_read(tmp_path):
    """Without batches its columns are empty; the mark at its end may be missing."""
    path = tmp_path / "a.arrows"
    theirs(path, pa.table({"x": pa.array([], pa.float32())}))
    assert same_bits(arrays(arrow.FORMAT.read(path)), {"x": np.zeros(0, "f4")})
    theirs(path, pa.table({"x": [1, 2]}))
    path.write_bytes(path.read_bytes()[:-8])
    assert same_bits(arrays(arrow.FORMAT.read(path)), {"x": np.array([1, 2])})


def test_a_stream_of_too_many_batches_is_refused(tmp_path, monkeypatch):
    """Each takes a hundred bytes, and longer to look at than to write."""
    path = tmp_path / "a.arrows"
    monkeypatch.setattr("tensorferry.files.tables.arrow._MOST_BATCHES", 5)
    theirs(path, pa.table({"x": np.arange(50)}), max_chunksize=10)
    assert arrays(arrow.FORMAT.read(path))["x"].size == 50
    theirs(path, pa.table({"x": np.arange(51)}), max_chunksize=10)
    with pytest.raises(UnsafeFileError, match="5 record batches, and more"):
        arrow.FORMAT.read(path)
    words = pa.array(["a", "b"]).dictionary_encode()
    theirs(path, pa.table({f"w{number}": words for number in range(9)}))
    with pytest.raises(UnsafeFileError, match="5 messages that are no record batches"):
        arrow.FORMAT.read(path)


def test_a_stream_that_is_cut_off_or_damaged_is_refused(tmp_path):
    """No length cuts a message in two, nothing comes after the end, and no flipped bit ends the process."""
    path = tmp_path / "a.arrows"
    theirs(path, pa.table({"x": np.arange(100.0), "y": np.arange(100)}), max_chunksize=40)
    raw = path.read_bytes()
    for length in range(1, len(raw), 13):
        if raw[length : length + 4] == b"\xff" * 4:  # a message begins there
            continue
        path.write_bytes(raw[:length])
        with pytest.raises(FileFormatError):
            format_of(path).read(path)
    path.write_bytes(raw + raw)
    with pytest.raises(FileFormatError, match="goes on after the end"):
        arrow.FORMAT.read(path)
    generator = np.random.default_rng(5)
    for place in generator.integers(8, len(raw), 300):
        changed = bytearray(raw)
        changed[place] ^= 1 << int(generator.integers(0, 8))
        path.write_bytes(changed)
        try:
            found = arrays(arrow.FORMAT.read(path))
        except (FileFormatError, FormatLimitError, UnsafeFileError):
            continue
        assert all(isinstance(array, np.ndarray) for array in found.values())


def test_an_arrow_file_is_mapped(tmp_path):
    """What lies packed in an Arrow file is used where it lies, and what is compressed is not."""
    held = {"x": np.arange(5.0), "y": np.arange(5, dtype="i2")}
    theirs(tmp_path / "table.arrow", pa.table(held))
    found = arrow.FORMAT.read(tmp_path / "table.arrow")
    assert same_bits(arrays(found), held)
    assert all(isinstance(stored, Extent) for stored in found.tensors.values())
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    theirs(tmp_path / "packed.arrow", pa.table({"x": np.zeros(10_000)}), options=options)
    stored = arrow.FORMAT.read(tmp_path / "packed.arrow").tensors["x"]
    assert isinstance(stored, Decoded)
    assert same_bits(stored.array(), np.zeros(10_000))


def test_nulls_that_are_not_announced_are_an_error(form, path):
    """Where only the values show that there are nulls, reading them is an error and gives no number."""
    table = pa.table(
        {"x": pa.array([1, None] * 100), "[y]": pa.array([1, None] * 100), "z": [0.5] * 200}
    )
    if form.name == "parquet":
        theirs(path, table, write_statistics=False)
    else:
        theirs(path, table, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    for name, left_out in (("x", "[[]y]"), ("[y]", "x")):
        with pytest.raises(
            UnsupportedTypeError, match=re.escape(f"{name!r} has nulls (100, the first at row 1)")
        ) as caught:
            ferry.load(path, exclude=left_out)
        both = {"x": '"[[]y]", "x"', "[y]": '"x", "[[]y]"'}[name]
        ways = [
            "nulls=0, which replaces them",
            'nulls="mask"',
            f"exclude=[{both}], which leaves it out",
        ]
        assert caught.value.hint == "; or ".join(ways)
    found = ferry.load(path, nulls=0)
    assert {name: each[:2].tolist() for name, each in found.items()} == {
        "x": [1, 0],
        "[y]": [1, 0],
        "z": [0.5, 0.5],
    }


def test_nothing_at_all(form, path):
    """A table without columns is read."""
    theirs(path, pa.table({}))
    assert arrays(form.read(path)) == {}


def test_a_bomb_is_refused(tmp_path):
    """Compressed bodies that claim terabytes, and columns out of all proportion, are refused before they are made."""
    for name in ("a.arrow", "a.arrows"):
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        theirs(tmp_path / name, pa.table({"x": np.zeros(1 << 16)}), options=options)
        raw = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(
            raw.replace((1 << 19).to_bytes(8, "little"), (1 << 42).to_bytes(8, "little"))
        )
    zeros, huge = pa.table({"x": pa.array(np.zeros(1 << 25, "i4"))}), {"row_group_size": 1 << 25}
    try:
        theirs(tmp_path / "a.parquet", zeros, max_rows_per_page=1 << 25, **huge)
    except TypeError:  # pyarrow 18 has no such limit
        theirs(tmp_path / "a.parquet", zeros, **huge)
    tracemalloc.start()
    for form in (arrow.FORMAT, parquet.FORMAT):
        with pytest.raises(UnsafeFileError, match="out of all proportion"):
            form.read(tmp_path / f"a{form.suffixes[0]}")
    with pytest.raises(UnsafeFileError, match="out of all proportion"):
        arrow.FORMAT.read(tmp_path / "a.arrows")
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_a_file_that_is_cut_off_or_damaged_is_refused(form, path):
    """Whatever is missing or changed, there are arrays or a named error; nothing ends the process."""
    pairs = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((100, 2), "f2"))
    theirs(path, pa.table({"x": np.arange(100.0), "y": pairs}))
    raw = path.read_bytes()
    for length in range(0, len(raw), 37):
        path.write_bytes(raw[:length])
        with pytest.raises(FileFormatError):
            form.read(path)
    generator = np.random.default_rng(3)
    for place in generator.integers(0, len(raw), 300):
        changed = bytearray(raw)
        changed[place] ^= 1 << int(generator.integers(0, 8))
        path.write_bytes(changed)
        try:
            found = arrays(form.read(path))
        except (FileFormatError, FormatLimitError, UnsafeFileError):
            continue
        assert all(isinstance(array, np.ndarray) for array in found.values())


def test_suffixes_and_magic_bytes(tmp_path):
    """The suffix names the format, and the first bytes say which it is."""
    for form in (arrow.FORMAT, parquet.FORMAT):
        for suffix in form.suffixes:
            assert format_for(tmp_path / f"x{suffix}") is form
        path = tmp_path / f"x{form.suffixes[0]}"
        theirs(path, pa.table({"x": np.ones(2)}))
        assert format_of(path.rename(tmp_path / form.name)) is form


_BIG = """
import sys, tracemalloc
from pathlib import Path
import numpy as np, pyarrow as pa
from tensorferry.files.tables.{name} import FORMAT

path, small = map(Path, sys.argv[1:])
for block in FORMAT.read(small).tensors["x"].blocks():
    pass
pool, held_before = pa.default_memory_pool(), pa.total_allocated_bytes()
tracemalloc.start()
seen = sum(block.size for block in FORMAT.read(path).tensors["x"].blocks())
assert seen == 384 << 18
print(tracemalloc.get_traced_memory()[1], pool.max_memory() - held_before)
"""


@pytest.mark.parametrize(
    ("name", "most"), [("arrow", 16), pytest.param("parquet", 160, marks=pytest.mark.slow)]
)
def test_memory_does_not_grow_with_the_file(tmp_path, name, most):
    """384 MiB are read in a fraction of it: an Arrow file in a few MiB, Parquet in some groups of rows."""
    path, small = tmp_path / f"big.{name}", tmp_path / f"small.{name}"
    group = pa.table({"x": np.arange(1 << 18, dtype="f4")})
    for file, count in ((small, 2), (path, 384)):
        make = pq.ParquetWriter if name == "parquet" else pa.ipc.new_file
        with make(str(file), group.schema) as writer:
            for _ in range(count):
                writer.write_table(group)
    command = [sys.executable, "-W", "ignore", "-c", _BIG.format(name=name), str(path), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours, library = map(int, done.stdout.split())
    assert ours < most << 20
    assert library < most << 20


def test_without_the_library_it_says_what_to_install(form, path, monkeypatch):
    """Reading without pyarrow names the extra."""
    theirs(path, pa.table({"x": np.ones(2)}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FrameworkNotInstalledError, match="pip install pyarrow"):
        form.read(path)
