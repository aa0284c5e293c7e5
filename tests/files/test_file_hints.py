"""Hints keep what a call has already, and name places in the tree as it is in memory."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

import tensorferry as ferry


class Point(NamedTuple):
    x: Any
    y: Any


def ways(call):
    """The ways of the hint of the error that a call raises, without remarks."""
    with pytest.raises(ferry.ConversionError) as caught:
        call()
    return [re.split(r", (?=which|or )", way)[0] for way in re.split(r"; or ", caught.value.hint)]


def test_what_is_left_out_stays_left_out(tmp_path):
    """Of a format that lacks a dtype, of a file whose columns have nulls."""
    source, out = tmp_path / "in.safetensors", tmp_path / "out.gguf"
    save_file(
        {"c": np.ones(2, "complex64"), "d": np.ones(2), "e[0]": np.ones(2, "complex64")}, source
    )
    assert ways(lambda: ferry.convert_files(source, out, exclude="c")) == [
        'exclude=["c", "e[[]0]"]'
    ]
    pq.write_table(pa.table({"a": [1, None], "b": [None, 1], "c": [1, 2]}), tmp_path / "a.parquet")
    for call in (
        ferry.load,
        lambda path, **keywords: ferry.convert_files(path, tmp_path / "b.npz", **keywords),
    ):
        code = ways(lambda: call(tmp_path / "a.parquet", exclude=["a"]))[-1]  # noqa: B023
        assert code == 'exclude=["a", "b"]'


def test_names_are_those_of_the_source(tmp_path):
    """Where the call renames, `exclude` takes the old ones, and `rename` comes after what is there."""
    source, out = tmp_path / "in.safetensors", tmp_path / "out.npz"
    save_file({"a": np.ones(2), "b": np.zeros(2)}, source)
    renames, excludes = ways(lambda: ferry.convert_files(source, out, rename="s|^a|../a|"))
    assert excludes == 'exclude=["a"], without rename='
    several = ["s|^a|../a|", "s|^b|c|"]
    _, excludes = ways(lambda: ferry.convert_files(source, out, rename=several))
    assert excludes == 'exclude=["a"], rename=["s|^b|c|"]'  # the other would change no name
    ferry.convert_files(source, tmp_path / "c.npz", **eval(f"dict({excludes})"))  # noqa: S307
    assert list(np.load(tmp_path / "c.npz")) == ["c"]
    ferry.convert_files(source, out, **eval(f"dict({renames})"))  # noqa: S307
    assert {name: array.tolist() for name, array in np.load(out).items()} == {
        "_/a": [1, 1],
        "b": [0, 0],
    }


def test_metadata_that_can_be_written_stay(tmp_path):
    """Only those that cannot are left out of what the call has."""
    source = tmp_path / "in.safetensors"
    save_file({"a": np.ones(2)}, source)
    for call in (
        lambda **keywords: ferry.convert_files(source, tmp_path / "a.safetensors", **keywords),
        lambda **keywords: ferry.save({"a": np.ones(2)}, tmp_path / "b.safetensors", **keywords),
    ):
        (code,) = ways(lambda: call(metadata={"note": "\ud800", "kept": "1"}))  # noqa: B023
        assert code == "metadata={'kept': '1'}"


def test_places_are_those_in_memory(tmp_path):
    """A named tuple has fields, which a file has as a dict."""
    tree = {"points": [Point({"a/b": np.ones(2, "complex128")}, np.zeros(2))]}
    (code,) = ways(lambda: ferry.save(tree, tmp_path / "a.gguf"))
    assert (
        code
        == "{key: value for key, value in x['points'][0].x.items() if key != 'a/b'} in its place"
    )
    assert eval(code.removesuffix(" in its place"), {"x": tree}) == {}  # noqa: S307
    (code,) = ways(lambda: ferry.save({"p": Point(np.ones(2), np.zeros(2))}, tmp_path / "a.npy"))
    assert code == "save(x['p'].x, path)"


def test_keys_of_a_dict_become_others(tmp_path):
    """The order stays, and no other key is lost."""
    tree = {"metadata": np.ones(1), "__metadata__": np.zeros(1)}
    code = ways(lambda: ferry.save(tree, tmp_path / "a.safetensors"))[0]
    made = eval(code.removesuffix(" in its place"), {"x": tree})  # noqa: S307
    ferry.save(made, tmp_path / "a.safetensors")
    assert {
        key: array.tolist() for key, array in load_file(tmp_path / "a.safetensors").items()
    } == {
        "metadata": [1],
        "metadata_2": [0],
    }


def test_a_pattern_that_fits_nothing_is_replaced_among_the_others(tmp_path):
    """By the nearest name; or it is left out."""
    source = tmp_path / "in.safetensors"
    save_file({"encoder": np.ones(2), "head": np.ones(2)}, source)
    assert ways(lambda: ferry.load(source, names=["head", "encodr"])) == [
        "names=['head', 'encoder']"
    ]
    assert ways(lambda: ferry.load(source, exclude=["head", "zzz"])) == ["exclude=['head']"]
    assert ways(lambda: ferry.load(source, exclude="zzz")) == ["without exclude="]


def test_a_column_with_one_keyword_is_not_told_the_other(tmp_path):
    """ragged= and pad= exclude each other."""
    table = pa.table({"x": pa.array([[1, None], [2]]), "beside": pa.array([1, 2])})
    pq.write_table(table, tmp_path / "a.parquet")
    assert ways(lambda: ferry.load(tmp_path / "a.parquet", ragged="rows")) == [
        'ragged="rows", nulls=0',
        'exclude=["x"]',
    ]
    assert ways(lambda: ferry.load(tmp_path / "a.parquet", pad=7)) == [
        "pad=0, nulls=0",
        'exclude=["x"]',
    ]


def test_what_would_leave_nothing_is_not_said(tmp_path):
    """A file of which nothing is left is an error of its own, whichever of its names are taken."""
    x, beside = pa.array([[1, None], [2]]), pa.array([1, 2])
    pq.write_table(pa.table({"x": x}), tmp_path / "one.parquet")
    pq.write_table(pa.table({"x": x, "beside": beside}), tmp_path / "two.parquet")
    padded = "pad=0, nulls=0"
    assert ways(lambda: ferry.load(tmp_path / "one.parquet", pad=7)) == [padded]
    two = tmp_path / "two.parquet"
    assert ways(lambda: ferry.load(two, pad=7)) == [padded, 'exclude=["x"]']
    assert ways(lambda: ferry.load(two, pad=7, names="x")) == [padded]
    assert ways(lambda: ferry.load(two, pad=7, exclude="beside")) == [padded]
    out = tmp_path / "out.npz"
    assert ways(lambda: ferry.convert_files(two, out, pad=7)) == [padded, 'exclude=["x"]']
    assert ways(lambda: ferry.convert_files(two, out, pad=7, include="x")) == [padded]


def test_what_cannot_be_cast_is_left_as_it_is(tmp_path):
    """`load` casts values or raises; the rest of dtype= stays."""
    save_file({"big": np.array([1 << 40]), "small": np.array([1])}, tmp_path / "a.safetensors")
    (code,) = ways(lambda: ferry.load(tmp_path / "a.safetensors", dtype="int32"))
    assert code == 'dtype={"big": None, "int": "int32", "uint": "int32"}'
    found = ferry.load(tmp_path / "a.safetensors", dtype=eval(code.removeprefix("dtype=")))  # noqa: S307
    assert {name: str(array.dtype) for name, array in found.items()} == {
        "big": "int64",
        "small": "int32",
    }
