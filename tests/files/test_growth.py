"""Work in proportion to the number of tensors, counted in calls of functions, for each format as source and target."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.files.conversion.convert import convert_files
from tensorferry.files.opening.registry import format_for

NAMES = {
    "arrow": "a.arrow",
    "flax": "a.msgpack",
    "gguf": "a.gguf",
    "hdf5": "a.h5",
    "npz": "a.npz",
    "onnx": "a.onnx",
    "orbax": "a.orbax",
    "parquet": "a.parquet",
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
        ferry.save({f"w{n}": np.full((2, 2), n, "float32") for n in range(count)}, folder / "in.npz")
        written.append(calls(folder / "in.npz", folder / name))
        read.append(calls(folder / name, folder / "out.npz"))
    for _, least, less, most in (written, read):  # the first one imports
        assert most - less < 2.3 * (less - least)


@pytest.mark.parametrize("shape", [(2, 2), (1 << 14, 8)], ids=["one group of rows", "several"])
def test_a_table_with_more_columns_than_files_may_be_open(shape, tmp_path):
    """Parquet is written in rows, from all columns at once."""
    needed(tmp_path / "out.parquet")
    source = {f"w{n}": np.full(shape, n, "float32") for n in range(96)}
    ferry.save(source, tmp_path / "in.safetensors")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(open_files()) + 48, limits[1]))
    try:
        convert_files(tmp_path / "in.safetensors", tmp_path / "out.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    found = ferry.load(tmp_path / "out.parquet")
    assert all(np.array_equal(found[name], values) for name, values in source.items())


def test_files_of_parquet_stay_open_for_their_next_column_but_few_of_them(tmp_path):
    """At most four, and none after their contents are forgotten."""
    needed(tmp_path / "a.parquet")
    all_contents = []
    reading = None
    for number in range(6):
        path = tmp_path / f"{number}.parquet"
        ferry.save({"a": np.full(3, number), "b": np.zeros(3)}, path)
        all_contents.append(ferry.open(path))
        reading = all_contents[0].tensors["b"].blocks()
        next(reading)
        assert all_contents[-1].tensors["a"].load().tolist() == [number] * 3
        assert [block.tolist() for block in reading] == []
    assert sum(each.endswith(".parquet") for each in open_files()) == 4
    assert all_contents[0].tensors["a"].load().tolist() == [0] * 3
    del all_contents, reading
    assert not any(each.endswith(".parquet") for each in open_files())
