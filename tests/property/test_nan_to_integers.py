"""NaN and infinity have no integer: the error says so, and its hint gives numbers that a person would choose."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.support import EVERYWHERE

import tensorferry as ferry

jax = pytest.importorskip("jax")
pd = pytest.importorskip("pandas")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")

SOURCES = {
    "numpy": lambda values: np.array(values, "float32"),
    "float64": np.array,
    "bfloat16": lambda values: ferry.to_numpy(values, dtype="bfloat16"),
    "float8": lambda values: ferry.to_numpy(values, dtype="float8_e5m2"),
    "torch": torch.tensor,
    "a parameter": lambda values: torch.tensor(values, requires_grad=True),
    "tensorflow": tf.constant,
    "jax": lambda values: jax.numpy.array(values, "float32"),
    "a list": list,
    "pandas": pd.Series,
}
ODD = {"NaN": float("nan"), "infinity": float("inf"), "minus infinity": float("-inf")}


def codes(hint):
    """The code of both ways."""
    first, second = hint.split("; or ")
    return first.partition(" in its place")[0], second.partition(", which")[0]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("source", SOURCES)
def test_the_hint_gives_integers(source, odd, dtype):
    """At once, whatever else is in the array; and nothing that an unsafe cast would make."""
    x = SOURCES[source]([1.0, ODD[odd], float("nan"), float("inf"), 3.0])
    with pytest.raises(
        ferry.LossyCastError, match=r"the value at \[1\] is NaN or infinite, which no integer is"
    ) as caught:
        ferry.to_numpy(x, dtype=dtype)
    assert "unsafe" not in caught.value.hint
    names = {"np": np, "to_numpy": ferry.to_numpy, "x": x}
    zeros, left = (eval(code, names) for code in codes(caught.value.hint))  # noqa: S307 - that is what the hint is for
    assert ferry.to_list(zeros, dtype=dtype) == [1, 0, 0, 0, 3]
    assert ferry.to_list(left, dtype=dtype) == [1, 3]


@pytest.mark.parametrize("target", EVERYWHERE)
def test_it_is_the_hint_for_every_target(target):
    with pytest.raises(ferry.LossyCastError, match="no integer") as caught:
        ferry.convert(np.array([np.nan]), target, dtype="int32")
    assert "np.nan_to_num(to_numpy(x)" in caught.value.hint


def test_in_a_tree_the_hint_names_the_leaf():
    tree = {"a": [np.array([np.nan, 2])]}
    with pytest.raises(ferry.LossyCastError, match=r'\$\["a"\]\[0\]') as caught:
        ferry.convert_tree(tree, "torch", dtype={"a.0": "int64"})
    names = {"np": np, "to_numpy": ferry.to_numpy, "x": tree}
    found = [eval(code, names).tolist() for code in codes(caught.value.hint)]  # noqa: S307 - that is what the hint is for
    assert found == [[0, 2], [2]]
    with pytest.raises(ferry.LossyCastError, match="no integer") as caught:
        ferry.collate([{"a": np.array([np.nan])}] * 2, "torch", dtype={"a": "int64"})
    assert re.search(r"np.nan_to_num\(", caught.value.hint)


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        (1.5, "int32", "has a fraction"),
        (3e9, "int32", "does not fit"),
        (-1.0, "uint8", "does not fit"),
    ],
)
def test_other_values_are_not_said_to_be_nan(value, dtype, why):
    with pytest.raises(ferry.LossyCastError, match=rf"the value at \[0\] {why}"):
        ferry.to_numpy(np.array([value]), dtype=dtype)


def test_floats_take_them():
    """NaN is a float of every dtype that has it."""
    assert np.isnan(ferry.to_numpy(np.array([np.nan]), dtype="float16"))[0]
