"""Work in proportion to the number of tensors, counted in calls of functions, for each format as source and target."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.files.conversion.convert import convert_files
from tensorferry.files.opening.paths import format_for

NAMES = {
    "flax": "a.msgpack",
    "gguf": "a.gguf",
    "hdf5": "a.h5",
    "npz": "a.npz",
    "orbax": "a.orbax",
    "pytorch": "a.pt",
    "safetensors": "a.safetensors",
    "zarr": "a.zarr",
}


def needed(path):
    """Skip the test if the library for a path is not installed."""
    module = format_for(path).module
    if module:
        pytest.importorskip(module, reason=f"{module} is not installed")


def open_files():
    """The files that this process has open."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("only Linux lists the open files of a process so")
    return [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]


def calls(source, target):
    """How many functions a conversion calls, of Python and of C, and how often it continues a generator."""
    count = 0

    def seen(_, event, __):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        convert_files(source, target)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_twice_as_many_tensors_are_twice_the_work(name, tmp_path):
    """Written and read. What a conversion does anyway does not count."""
    needed(tmp_path / name)
    written, read = [], []
    for count in (8, 64, 128, 256):
        folder = tmp_path / str(count)
        folder.mkdir()
        ferry.save(
            {f"w{n}": np.full((2, 2), n, "float32") for n in range(count)}, folder / "in.npz"
        )
        written.append(calls(folder / "in.npz", folder / name))
        read.append(calls(folder / name, folder / "out.npz"))
    for _, least, less, most in (written, read):  # the first one imports
        assert most - less < 2.3 * (less - least)


def arrow_file(held, path):
    """A file of Arrow's library."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pa.table(held)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def parquet_file(held, path, **options):
    """A file of Parquet's library."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    parquet.write_table(pa.table(held), path, **options)


def onnx_file(held, path):
    """A file of ONNX's library."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    tensors = [onnx.numpy_helper.from_array(values, name) for name, values in held.items()]
    graph = onnx.helper.make_graph([], "graph", [], [], tensors)
    onnx.save_model(onnx.helper.make_model(graph), path)


@pytest.mark.parametrize(
    ("make", "suffix"), [(arrow_file, "arrow"), (parquet_file, "parquet"), (onnx_file, "onnx")]
)
def test_twice_as_many_tensors_to_read_are_twice_the_work(make, suffix, tmp_path):
    """The same of formats that are only read."""
    read = []
    for count in (8, 64, 128, 256):
        path = tmp_path / f"{count}.{suffix}"
        make({f"w{n}": np.full(4, n, "float32") for n in range(count)}, path)
        read.append(calls(path, tmp_path / f"{count}.npz"))
    _, least, less, most = read  # the first one imports
    assert most - less < 2.3 * (less - least)


@pytest.mark.parametrize("rows", [2, 1 << 14], ids=["one group of rows", "several"])
def test_a_table_with_more_columns_than_files_may_be_open(rows, tmp_path):
    """A file of Parquet is opened for some columns at a time."""
    source = {f"w{n}": np.full(rows, n, "float32") for n in range(96)}
    parquet_file(source, tmp_path / "in.parquet", row_group_size=1000)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(open_files()) + 48, limits[1]))
    try:
        convert_files(tmp_path / "in.parquet", tmp_path / "out.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    found = ferry.load(tmp_path / "out.safetensors")
    assert all(np.array_equal(found[name], values) for name, values in source.items())


def test_files_of_parquet_stay_open_for_their_next_column_but_few_of_them(tmp_path):
    """At most four, and none after their contents are forgotten."""
    all_contents = []
    reading = None
    for number in range(6):
        path = tmp_path / f"{number}.parquet"
        parquet_file({"a": np.full(3, number), "b": np.zeros(3)}, path)
        all_contents.append(ferry.open(path))
        reading = all_contents[0].tensors["b"].blocks()
        next(reading)
        assert all_contents[-1].tensors["a"].load().tolist() == [number] * 3
        assert [block.tolist() for block in reading] == []
    assert sum(each.endswith(".parquet") for each in open_files()) == 4
    assert all_contents[0].tensors["a"].load().tolist() == [0] * 3
    del all_contents, reading
    assert not any(each.endswith(".parquet") for each in open_files())
