"""Columns that are read as the dtype that is named for them, in trees and batches as alone."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")

DAY = (dt.date(2020, 1, 1) - dt.date(1970, 1, 1)).days
LONG = pa.decimal128(38, 0)
COLUMNS = [
    (pa.array([dt.date(2020, 1, 1)]), "int64", [DAY]),
    (pl.Series([dt.date(2020, 1, 1)]), "int32", [DAY]),
    (pd.Series(["b", "a"], dtype="category"), "int64", [1, 0]),
    (pa.array(["b", "a"]).dictionary_encode(), "int16", [0, 1]),
    (pa.array([decimal.Decimal("1.5")]), "float64", [1.5]),
    (pl.Series([decimal.Decimal("-0.25")]), "float32", [-0.25]),
    (pa.array([decimal.Decimal(2**70)], LONG), "float64", [float(2**70)]),
    (pa.array([decimal.Decimal(2**64 - 1)], LONG), "uint64", [2**64 - 1]),
    (pa.array([decimal.Decimal(2**70)], LONG).dictionary_encode(), "float64", [float(2**70)]),
    (pd.Series([np.ones(2), np.ones(2, int)]), "float64", [[1.0, 1.0], [1.0, 1.0]]),
]


def _same(found, values, dtype):
    assert found.dtype == dtype
    assert found.tolist() == values


@pytest.mark.parametrize(("x", "dtype", "values"), COLUMNS)
def test_a_column_is_read_as_it_is_asked_in_a_tree_as_alone(x, dtype, values):
    """By its name; and the plan says so."""
    _same(ferry.to_numpy(x, dtype=dtype), values, dtype)
    for tree in ({"c": x, "n": np.ones(1)}, {"c": x}):
        asked = {"c": dtype}
        _same(ferry.convert_tree(tree, "numpy", dtype=asked)["c"], values, dtype)
        (plan,) = [
            each.plan
            for each in ferry.explain_tree(tree, "numpy", dtype=asked).leaves
            if "c" in each.path
        ]
        assert (plan.result.dtype, plan.result.shape) == (dtype, np.shape(values))
        _same(ferry.start(tree, "numpy", dtype=asked).result()["c"], values, dtype)


@pytest.mark.parametrize(("x", "dtype", "values"), COLUMNS[:-1])
@pytest.mark.parametrize("nulls", [None, 0])
def test_columns_of_record_batches_are_read_as_they_are_asked_when_they_are_stacked(
    x, dtype, values, nulls
):
    """With or without ``nulls=``, which has nothing to do with it."""
    arrow = (
        x if isinstance(x, pa.Array) else pa.array(x) if isinstance(x, pd.Series) else x.to_arrow()
    )
    batch = pa.record_batch({"n": [1.0] * len(arrow), "c": arrow})
    for samples in ([batch] * 2, [{"n": np.ones(1), "c": x}] * 2):
        keywords = {} if nulls is None else {"nulls": nulls}
        found = ferry.collate(samples, "numpy", dtype={"c": dtype}, **keywords)
        _same(found["c"], [values] * 2, dtype)
        plan = ferry.explain_collate(samples, "numpy", dtype={"c": dtype}, **keywords)
        planned = {leaf.path: leaf.plan.result for leaf in plan.leaves}
        assert {path: (each.dtype, each.shape) for path, each in planned.items()} == {
            '$["n"]': ("float64", found["n"].shape),
            '$["c"]': (dtype, found["c"].shape),
        }


def test_a_rule_for_a_dtype_reads_decimals_of_that_dtype():
    """Once: what the rule says of the dtype that comes out of it is not applied to it again."""
    whole = pa.array([decimal.Decimal(2**70)], LONG)
    chain = {"int64": "float64", "float64": "float32"}
    _same(ferry.convert_tree({"c": whole}, "numpy", dtype=chain)["c"], [float(2**70)], "float64")
    prices = pa.record_batch({"p": pa.array([decimal.Decimal("1.5")])})
    for rule in ("float32", {"float64": "float32"}, {"float": "float32"}):
        _same(ferry.collate([prices] * 2, "numpy", dtype=rule)["p"], [[1.5]] * 2, "float32")
    with pytest.raises(ferry.UnsupportedTypeError, match="decimals with a fraction"):
        ferry.collate([prices] * 2, "numpy", dtype="int64")


def test_what_a_leaf_of_lists_is_asked_for_decides_where_no_dtype_holds_it():
    """The hint names a dtype, and it works in a tree, and for a list that a callable chooses."""
    mixed = [np.ones(2), np.ones(2, int)]
    for tree, keywords in (
        ({"a": pd.Series(mixed)}, {}),
        ({"a": mixed}, {"leaves": lambda x: isinstance(x, list)}),
    ):
        with pytest.raises(ferry.LossyCastError, match="No dtype holds every value") as caught:
            ferry.convert_tree(tree, "numpy", **keywords)
        assert caught.value.hint == 'dtype="float64", which each value must fit'
        found = ferry.convert_tree(tree, "numpy", dtype="float64", **keywords)
        _same(found["a"], [[1.0, 1.0], [1.0, 1.0]], "float64")
