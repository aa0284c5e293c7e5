"""Columns and arrays of text, dates and categories are fixed arguments and results: `convert_tree` keeps them too."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorferry as ferry

COLUMNS = {
    "pandas": pd.Series(["a", "b"]),
    "pandas-objects": pd.Series(["a", None], dtype=object),
    "pandas-dates": pd.Series(pd.to_datetime(["2020-01-01"])),
    "pandas-categories": pd.Categorical(["a", "b"]),
    "polars": pl.Series(["a", "b"]),
    "arrow": pa.array(["a", "b"]),
    "arrow-chunks": pa.chunked_array([["a"], ["b"]]),
    "numpy": np.array(["a", "b"]),
    "numpy-objects": np.array(["a", None], dtype=object),
}
columns = pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)


@columns
@pytest.mark.parametrize("inner", ["torch", "numpy", "tensorflow"])
def test_it_stays_as_it_is(column, inner):
    wrapped = ferry.wrap(lambda x, text: {"x": x * 2, "text": text}, inner=inner)
    for _ in range(2):
        found = wrapped(jnp.ones(2), column)
        assert found["x"].tolist() == [2, 2]
        assert found["text"] is column


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"]
)
def test_beside_numbers_of_a_table(frame):
    table = frame({"x": np.ones(2, np.float32), "name": ["a", "b"]})
    wrapped = ferry.wrap(lambda table: table["x"] * len(table["name"]), inner="torch", outer="jax")
    assert wrapped(table).tolist() == [2, 2]
    assert "name" not in str(ferry.explain_wrap(wrapped, table))


def test_after_a_call_with_numbers():
    """The types alone do not tell: an array may hold numbers or text."""
    both = ferry.wrap(
        lambda x, other: x if isinstance(other, np.ndarray) else x + other, inner="torch"
    )
    assert both(np.ones(2), np.ones(2)).tolist() == [2, 2]
    assert both(np.ones(2), np.array(["a"])).tolist() == [1, 1]
    either = ferry.wrap(lambda x: x if x.sum() else np.array(["none"]), inner="numpy")
    assert either(torch.ones(2)).tolist() == [1, 1]
    assert either(torch.zeros(2)).tolist() == ["none"]


def test_without_a_tensor():
    with pytest.raises(ferry.UnsupportedTypeError, match="there are no tensors") as caught:
        ferry.wrap(len, inner="torch")(pd.Series(["a"]))
    assert 'outer="' in caught.value.hint
