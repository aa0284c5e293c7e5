"""Columns of every dtype, with and without nulls, in chunks and slices, of numbers and of lists, for every target.

What has to come out is made of Python's own numbers, apart from any of the libraries.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from tests.support import EVERYWHERE

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pytest.importorskip("torch")
pytest.importorskip("jax")
pytest.importorskip("tensorflow")

ROWS = 11
WIDE = {
    "int64": 2**53 + 1,
    "uint64": 2**64 - 1,
    "int8": -128,
    "float16": -0.0,
    "float64": 5e-324,
    "bool": True,
}
NAMES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
WIDER_THAN_JAX = {"int64", "uint64", "float64"}
CHUNKS = {"array": None, "one": (ROWS,), "three": (2, 0, 5, 4), "none": ()}


def number(name, index):
    """The value at an index, as Python has it."""
    if index == 3 and name in WIDE:
        return WIDE[name]
    if name == "bool":
        return index % 3 == 0
    return float(index) / 2 if name.startswith("float") else index


def column(pa_type, values, chunks, offset):
    """The values as an array in these chunks, each with so many others before it."""
    if chunks is None:
        return pa.array([None] * offset + values, pa_type)[offset:]
    ends = np.cumsum([0, *chunks]).tolist()
    parts = [pa.array([None] * offset + values[a:b], pa_type)[offset:] for a, b in pairwise(ends)]
    return pa.chunked_array(parts, pa_type)


def cells():
    for name, nulls, chunks, offset, depth in product(
        NAMES, (False, True), CHUNKS, (0, 3), (0, 1, 2)
    ):
        if chunks == "none" and (nulls or offset):
            continue
        yield pytest.param(
            name, nulls, chunks, offset, depth, id=f"{name}-{nulls}-{chunks}-{offset}-{depth}"
        )


def same(found, expected):
    """The same numbers, signs of zeros too."""
    return repr(found) == repr(expected)


@pytest.mark.parametrize(("name", "nulls", "chunks", "offset", "depth"), [*cells()])
def test_a_cell(name, nulls, chunks, offset, depth):
    """The values for every target and `copy=`, or the refusal, with the first row; with `nulls=`, both."""
    kind = {
        "float16": pa.float16,
        "float32": pa.float32,
        "float64": pa.float64,
        "bool": pa.bool_,
    }.get(name, getattr(pa, name, None))()
    rows = 0 if chunks == "none" else ROWS
    values = [number(name, index) for index in range(rows)]
    gone = {2, 7} if nulls and rows else set()
    filled = [number(name, 1) if index in gone else value for index, value in enumerate(values)]
    held = [None if index in gone else value for index, value in enumerate(values)]
    width = 1
    for length in (3, 2)[:depth]:
        kind = pa.list_(kind, length)
        values, filled = ([[each] * length for each in some] for some in (values, filled))
        held = [None if each is None else [each] * length for each in held]
        width *= length
    x = column(kind, held, CHUNKS[chunks], offset)
    shareable = chunks in ("array", "one") and not gone and name != "bool"
    for target in (
        EVERYWHERE
        if (depth, chunks) in ((0, "array"), (0, "three"), (2, "three"))
        else ("torch", "python")
    ):
        if target == "jax" and name in WIDER_THAN_JAX:
            continue
        if gone:
            with pytest.raises(
                ferry.UnsupportedTypeError, match=r"nulls \(2, the first at row 2\)"
            ):
                ferry.convert(x, target)
            assert same(ferry.to_list(ferry.convert(x, target, nulls=number(name, 1))), filled)
            with pytest.raises(
                ferry.CopyRequiredError,
                match="no memory" if target == "python" else "nulls at row 2",
            ):
                ferry.convert(x, target, nulls=number(name, 1), copy=False)
            continue
        for copy in (None, True):
            assert same(ferry.to_list(ferry.convert(x, target, copy=copy)), values)
        if (not shareable or target == "python") and rows:
            why = "bit-packed" if name == "bool" else "3 chunks"
            with pytest.raises(
                ferry.CopyRequiredError, match="no memory" if target == "python" else why
            ):
                ferry.convert(x, target, copy=False)
    found = ferry.to_numpy(x, nulls=number(name, 1))
    assert found.dtype == name
    assert found.shape == (rows, *(2, 3)[2 - depth :]) if depth != 1 else found.shape == (rows, 3)
    if shareable:
        view = ferry.to_numpy(x, copy=False)
        assert same(view.tolist(), values)
        assert not view.flags.writeable
        assert view.nbytes == rows * width * view.itemsize
        assert ferry.shares_memory(view, x)
        assert ferry.explain(x, "numpy").shares_memory
    zeros, mask = ferry.to_numpy(x, nulls="mask")
    assert zeros.shape == mask.shape == found.shape
    marks = mask.reshape(rows, width) if rows else mask
    assert [bool(row.all()) for row in marks] == [index not in gone for index in range(rows)]
    assert not any(row.any() for index, row in enumerate(marks) if index in gone)
