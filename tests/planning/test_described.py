"""H104: what `explain` says of a description is true of the object that it describes.

Over all sources and targets: a description with a framework, shape and dtype only is of the
ordinary tensor of the framework, which `convert` makes; and the description that `describe` gives
is of its object.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.host import memory

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax", "python", "pandas", "polars", "arrow")
COPY = (None, False, True)


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """A description loads no framework, and one that is not loaded has its usual settings."""
    for framework in FRAMEWORKS:
        ferry.convert([1.5], framework)


def aligned(shape, dtype):
    """Memory at an address that is a multiple of 64, as a description without one has it; and values that are wide."""
    array = memory.compact(shape, np.dtype(dtype))
    array[...] = (
        1
        if dtype == "bool"
        else np.arange(array.size).reshape(shape) + (2**40 if dtype == "int64" else 0)
    )
    return array


ORDINARY = {
    "numpy": lambda a: a,
    "torch": lambda a: ferry.to_torch(a, copy=False),
    "tensorflow": ferry.to_tensorflow,
    "jax": ferry.to_jax,
    "python": lambda a: a.tolist(),
    "pandas": lambda a: (pd.Series if a.ndim == 1 else pd.DataFrame)(a, copy=False),
    "polars": lambda a: (pl.Series if a.ndim == 1 else pl.DataFrame)(a),
    "arrow": ferry.to_arrow,
}


def said(call):
    """Everything that a plan claims; or the error."""
    try:
        plan = call()
    except ferry.ConversionError as error:
        return type(error).__name__, error.message
    assert plan.code
    steps = [(step.verb, step.backend, step.bytes) for step in plan.steps]
    steps = [
        step for step in steps if step[0] != "label"
    ]  # a description has no names and no index
    result = plan.result._replace(misalignment=0)
    result = result if result.size else result._replace(strides=())
    return plan.shares_memory, plan.keeps_dtype, plan.bytes_copied, result, steps


def differ(info, x):
    """Where the plans of a description and of an object are unlike."""
    found = []
    for target, copy in itertools.product(FRAMEWORKS, COPY):
        described, real = (
            said(partial(ferry.explain, each, target, copy=copy)) for each in (info, x)
        )
        if described != real:
            found.append(f"to {target}, copy={copy}:\n  described {described}\n  real      {real}")
    return "\n".join(found)


SHAPES = ((4,), (4, 3))
DTYPES = ("float32", "float64", "int8", "int64", "bool")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("_wide_jax")
def test_a_description_by_hand_is_of_the_ordinary_tensor(framework, dtype, shape):
    """With its framework, shape and dtype alone."""
    if framework == "python" and dtype not in ("float64", "int64", "bool"):
        dtype = "float64"  # Python has no other numbers
    x = ORDINARY[framework](aligned(shape, dtype))
    info = TensorInfo(framework, shape, dtype)
    if framework == "python":
        info = TensorInfo(framework, shape, dtype, weak_dtype=ferry.describe(x).weak_dtype)
    assert not differ(info, x)


def tables():
    a = aligned((5,), "float64")
    yield "pandas.block", pd.DataFrame(aligned((5, 2), "float32"), copy=False)
    yield "pandas.columns", pd.DataFrame({"a": a, "b": a + 1})
    yield "pandas.apart", pd.DataFrame({"a": a, "b": pd.array([1.5] * 5, dtype="Float64")})
    yield "pandas.nullable", pd.Series([1, 2, 3], dtype="Int32")
    yield "pandas.arrow", pd.Series([1.5, 2], dtype=pd.ArrowDtype(pa.float64()))
    yield "pandas.arrow-bools", pd.Series([True, False], dtype=pd.ArrowDtype(pa.bool_()))
    yield "pandas.index", pd.Series([1.5, 2], index=["a", "b"])
    yield "pandas.empty", pd.DataFrame({"a": a[:0], "b": a[:0]})
    yield "pandas.no-rows", pd.Series(a[:0])
    yield "polars.one", pl.DataFrame({"a": a})
    yield "polars.two", pl.DataFrame({"a": a, "b": a + 1})
    yield "polars.mixed", pl.DataFrame({"a": [True], "b": [False]})
    yield "polars.empty", pl.DataFrame({"a": a[:0], "b": a[:0]})
    yield "polars.bools", pl.Series([True, False, True])
    yield "polars.rows", pl.Series([[1.5, 2], [3, 4]], dtype=pl.Array(pl.Float64, 2))
    yield "polars.chunks", pl.concat([pl.Series(a), pl.Series(a)], rechunk=False)
    yield "arrow.table", pa.table({"a": a, "b": a})
    yield "arrow.one", pa.table({"a": a})
    yield "arrow.empty", pa.table({"a": a[:0]})
    yield "arrow.bools", pa.array([True, False])
    yield "arrow.chunks", pa.chunked_array([pa.array(a), pa.array(a)])
    yield "arrow.rows", ferry.to_arrow(aligned((2, 3), "float32"))
    yield "arrow.row-bools", ferry.to_arrow(aligned((2, 3), "bool"))
    yield "numpy.strided", aligned((8, 4), "float32")[::2, 1:]
    yield "numpy.read-only", np.frombuffer(aligned((8,), "int8").tobytes(), "int8")
    yield "numpy.scalar", np.float32(1.5)
    yield "python.list", [1.5, 2]
    yield "python.ints", [[1, 2], [3, 4]]
    yield "python.number", 3
    yield "python.bytes", bytearray(16)
    yield "numpy.objects", np.array([1, 2.5], object)


@pytest.mark.parametrize("x", [pytest.param(x, id=name) for name, x in tables()])
def test_what_describe_gives_is_planned_as_its_object(x):
    """The plans, and where there are none the errors, are the same."""
    assert not differ(ferry.describe(x), x)
