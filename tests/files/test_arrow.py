"""Arrow files and Parquet: pyarrow reads what is written, and the tables that it writes are read bit for bit."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.files.support import arrays, awkward, contents, same_bits, sample

import tensorferry as ferry
from tensorferry.core.dtypes import DTYPES
from tensorferry.errors import FileFormatError, FormatLimitError, FrameworkNotInstalledError, UnsafeFileError
from tensorferry.files.base.contents import Contents, Ref
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Decoded, Extent
from tensorferry.files.formats import arrow, parquet
from tensorferry.files.opening.registry import format_for, format_of

NATIVE = [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]


@pytest.fixture(params=["arrow", "parquet"])
def form(request):
    return {"arrow": arrow.FORMAT, "parquet": parquet.FORMAT}[request.param]


@pytest.fixture
def path(form, tmp_path):
    return tmp_path / f"table{form.suffixes[0]}"


def written(form, path, held):
    form.refuse(held)
    form.write(held, path, Pump())
    return form.read(path)


def theirs(path, table, **options):
    """A file of pyarrow's, or with the suffix ``.arrows`` a stream."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, **options)
        return
    make, rows = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file, options.pop("max_chunksize", None)
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=rows)


def table_of(path):
    """What pyarrow reads."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def test_every_dtype_round_trips(form, path):
    """Each dtype of the table is declared, and comes back bit for bit, flat, in axes, 0-d and empty."""
    assert form.dtypes == set(DTYPES)
    held = sample()
    found = written(form, path, contents(held))
    assert same_bits(arrays(found), held)
    assert not found.others


def test_pyarrow_reads_the_bits(form, path):
    """Pyarrow finds a column for each tensor, in its own types or in numbers of the same bytes."""
    held = {dtype: awkward(dtype)[:24].reshape(2, -1) for dtype in DTYPES if dtype not in ("bool", "int2", "uint2")}
    held |= {"bool": np.ones((2, 1), bool), "lone": np.array(7, "i8")}
    written(form, path, contents(held))
    table = table_of(path)
    assert table.column_names == list(held)
    assert table.num_rows == 1
    for name, array in held.items():
        column = table[name].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if name == "lone":
            assert column.to_pylist() == [7]
            continue
        found = column.to_numpy_ndarray()[0]
        if name in NATIVE:
            assert same_bits(found, array)
        else:
            assert found.tobytes() == array.tobytes()
            assert table.schema.field(name).metadata[b"tensorferry.dtype"] == name.encode()


def test_tensors_of_one_length_are_the_columns_of_a_table(form, path):
    """Tensors with equal first axes have a row for each index, as any table has, and are read back so."""
    held = {
        "features": np.random.default_rng(0).random((1000, 3)),
        "label": np.arange(1000),
        "z": np.ones((1000, 2), "c8"),
    }
    found = written(form, path, contents(held))
    assert same_bits(arrays(found), held)
    assert not found.metadata
    table = table_of(path)
    assert table.num_rows == 1000
    assert same_bits(table["label"].to_numpy(), held["label"])


def test_plain_tables_are_read(form, path):
    """Numeric columns are tensors, lists of fixed size and fixed-shape tensors have more axes; the rest is listed."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(24, dtype="f4").reshape(4, 2, 3))
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
        # Its library ends the process over damaged statistics, so that nulls are seen only when they are read.
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
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
            writer.write_table(table, max_chunksize=70)
    assert same_bits(arrays(form.read(path)), {name: table[name].to_numpy() for name in table.column_names})


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("rows", [None, 70])
def test_streams_are_read(tmp_path, compression, rows):
    """A stream in a file, as Hugging Face's datasets are, gives what the file form of the same table gives."""
    table = pa.table(
        {
            "x": awkward("float32")[:500],
            "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(3000, dtype="f4").reshape(500, 2, 3)),
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
    monkeypatch.setattr("tensorferry.files.formats.arrow.ipc._MOST_BATCHES", 5)
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
    held = {"x": np.arange(5.0), "y": np.ones((2, 2), "c16")}
    found = written(arrow.FORMAT, tmp_path / "table.arrow", contents(held))
    assert all(isinstance(stored, Extent) for stored in found.tensors.values())
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    theirs(tmp_path / "packed.arrow", pa.table({"x": np.zeros(10_000)}), options=options)
    stored = arrow.FORMAT.read(tmp_path / "packed.arrow").tensors["x"]
    assert isinstance(stored, Decoded)
    assert same_bits(stored.array(), np.zeros(10_000))


def test_nulls_that_are_not_announced_are_an_error(form, path):
    """Where only the values show that there are nulls, reading them is an error and gives no number."""
    table = pa.table({"x": pa.array([1, None] * 100), "[y]": pa.array([1, None] * 100), "z": [0.5] * 200})
    if form.name == "parquet":
        theirs(path, table, write_statistics=False)
    else:
        theirs(path, table, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    left_out = []
    for name in ("x", "[y]"):
        with pytest.raises(FormatLimitError, match=re.escape(f"{name!r} has nulls")) as caught:
            ferry.load(path, exclude=left_out)
        call, _, rest = caught.value.hint.partition(", ")
        assert rest == "which leaves it out"
        left_out += ast.literal_eval(call.removeprefix("exclude="))
    assert list(ferry.load(path, exclude=left_out)) == ["z"]


def test_tree_ties_and_metadata_come_back(form, path):
    """Nested values, ties stored once, metadata of the file and of columns, and any name in its order."""
    shared = np.random.default_rng(0).random(10_000)
    names = ["b.w", "", "a/b", "\0", "Ω", "b", "w" * 1000]
    held = {name: np.array([number], "i2") for number, name in enumerate(names)} | {"tied": shared, "other": shared}
    tree = {**{name: Ref(name) for name in held}, "steps": (1, None)}
    metadata = {"": "empty", "nul": "\0", "a/b@unit": "m", "other": "tied", "long": "x" * 100_000}
    found = written(form, path, contents(held, metadata=metadata, tree=tree))
    assert (found.tree, found.metadata, found.ties) == (tree, metadata, {"other": "tied"})
    assert same_bits(arrays(found), held)
    assert path.stat().st_size < 1.9 * shared.nbytes + 200_000
    assert table_of(path).schema.field("a/b").metadata[b"unit"] == b"m"


def test_nothing_at_all(form, path):
    """A file without tensors is written and read."""
    assert arrays(written(form, path, contents({}))) == {}


def test_a_bomb_is_refused(tmp_path):
    """Compressed bodies that claim terabytes, and columns out of all proportion, are refused before they are made."""
    for name in ("a.arrow", "a.arrows"):
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        theirs(tmp_path / name, pa.table({"x": np.zeros(1 << 16)}), options=options)
        raw = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(raw.replace((1 << 19).to_bytes(8, "little"), (1 << 42).to_bytes(8, "little")))
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
    whole = {"x": np.arange(100.0), "y": np.ones((3, 2), "f2")}
    written(form, path, contents(whole))
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


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (pa.int32(), {"tensorferry.dtype": "bfloat16"}),
        (pa.float32(), {"tensorferry.dtype": "complex64"}),
        (pa.uint16(), {"tensorferry.dtype": "no such"}),
        (pa.null(), {"tensorferry.dtype": "int8", "tensorferry.shape": "[2]"}),
        (pa.null(), {"tensorferry.dtype": "int8", "tensorferry.shape": "[0, -1]"}),
        (pa.null(), {"tensorferry.dtype": "int8", "tensorferry.shape": "[0, 1.5]"}),
        (pa.null(), {"tensorferry.dtype": "int8", "tensorferry.shape": "{}"}),
    ],
)
def test_notes_that_do_not_fit_are_refused(form, path, kind, note):
    """The notes on a column are checked against its type."""
    schema = pa.schema([pa.field("x", kind, metadata=note)])
    theirs(path, pa.table([pa.nulls(2) if kind == pa.null() else pa.array([1, 2], kind)], schema=schema))
    with pytest.raises(FileFormatError):
        form.read(path)


def test_one_row_that_is_two_is_refused(form, path):
    """The note that each tensor is one row is checked against the rows."""
    theirs(path, pa.table({"x": [1, 2]}, metadata={"tensorferry.layout": "one row"}))
    with pytest.raises(FileFormatError, match="one row"):
        form.read(path)


def test_what_does_not_fit_is_refused_by_name(form):
    """Names that are no text, and tensors of more numbers than a row has, are refused before anything is written."""

    def nothing():
        raise AssertionError

    with pytest.raises(FormatLimitError, match="udc80"):
        form.refuse(contents({"\udc80": np.ones(2)}))
    for name, dtype, length in (("huge", "uint8", 1 << 31), ("pairs", "complex64", 1 << 30)):
        held = {name: Decoded(dtype, (length,), nothing, 0), "small": Decoded("int8", (2,), nothing, 1)}
        with pytest.raises(FormatLimitError, match=name):
            form.refuse(Contents("memory", (), held))
        form.refuse(Contents("memory", (), {name: held[name]}))


@pytest.mark.parametrize(
    "key", ["ARROW:x", "PARQUET:x", "ARROW:schema", "tensorferry.dtype", "tensorferry.shape", "tensorferry.layout"]
)
def test_names_that_the_metadata_cannot_have_are_refused(form, path, key):
    """What would be passed over when it is read; of a column or with another beginning it comes back."""
    with pytest.raises(FormatLimitError, match=key):
        form.refuse(contents({"x": np.ones(2)}, metadata={key: "text"}))
    metadata = {f"x@{key}": "a", f"_{key}": "b", f"@{key}": "c", "@unit": "d", "unit": "e"}
    for name in ("", "y"):
        found = written(form, path, contents({"x": np.ones(2), name: np.ones(2)}, metadata=metadata))
        assert found.metadata == metadata
        path.unlink()


def test_suffixes_and_magic_bytes(tmp_path):
    """The suffix says which of the two is written, and the first bytes which it is."""
    for form in (arrow.FORMAT, parquet.FORMAT):
        for suffix in form.suffixes:
            assert format_for(tmp_path / f"x{suffix}") is form
        written(form, tmp_path / form.name, contents({"x": np.ones(2)}))
        assert format_of(tmp_path / form.name) is form


_BIG = """
import sys, tracemalloc
from pathlib import Path
import numpy as np, pyarrow as pa
from tensorferry.files.base.contents import Contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Decoded
from tensorferry.files.formats.{name} import FORMAT

def read():
    block = np.arange(1 << 18, dtype="f4")
    for _ in range(384):
        yield block

path = Path(sys.argv[1])
held = {{"x": Decoded("float32", (384 << 10, 256), read, 0)}}
FORMAT.ensure_loaded()
small = {{"y": Decoded("float32", (1, 4), lambda: iter([np.ones(4, "f4")]), 1)}}
FORMAT.write(Contents("memory", (), small), path, Pump())
for block in FORMAT.read(path).tensors["y"].blocks():
    pass
path.unlink()
pool, held_before = pa.default_memory_pool(), pa.total_allocated_bytes()
tracemalloc.start()
FORMAT.write(Contents("memory", (), held), path, Pump())
seen = sum(block.size for block in FORMAT.read(path).tensors["x"].blocks())
assert seen == 384 << 18
print(tracemalloc.get_traced_memory()[1], pool.max_memory() - held_before)
"""


@pytest.mark.parametrize(("name", "most"), [("arrow", 16), ("parquet", 160)])
def test_memory_does_not_grow_with_the_file(tmp_path, name, most):
    """384 MiB are written and read in a fraction of it: an Arrow file in a few MiB, Parquet in some groups of rows."""
    code = _BIG.format(name=name)
    with_limits = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / f"big.{name}")]
    done = subprocess.run(with_limits, capture_output=True, text=True, check=True)
    ours, theirs = map(int, done.stdout.split())
    assert ours < most << 20
    assert theirs < most << 20


def test_without_the_library_it_says_what_to_install(form, path, monkeypatch):
    """Reading and writing without pyarrow name the extra."""
    written(form, path, contents({"x": np.ones(2)}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FrameworkNotInstalledError, match="pip install pyarrow"):
        form.read(path)
    with pytest.raises(FrameworkNotInstalledError, match="pip install pyarrow"):
        form.write(contents({"x": np.ones(2)}), path.with_name("new"), Pump())
