"""The code of a plan is pasted, for every kind of column: it runs with its imports, and gives the same bits."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")

DAYS = [dt.date(2020, 1, 1), dt.date(1969, 12, 31)]
LONG = pa.decimal128(38, 0)
HALF = Decimal("16777217.00000000001")  # between two float32, unless it is rounded to float64 first
VALUES = {
    "int": ([3, -4], pa.int64()),
    "byte": ([3, 4], pa.uint8()),
    "float": ([1.5, -0.0], pa.float64()),
    "half": ([1.5, -2.0], pa.float16()),
    "bool": ([True, False], pa.bool_()),
    "date": (DAYS, pa.date32()),
    "moment": ([dt.datetime(2020, 1, 1), dt.datetime(1969, 12, 31)], pa.timestamp("us", "UTC")),  # noqa: DTZ001
    "duration": ([dt.timedelta(1), dt.timedelta(-1)], pa.duration("ms")),
    "price": ([HALF, Decimal("-0.1")], pa.decimal128(38, 11)),
    "whole": ([Decimal(2**63 - 1), Decimal(-1)], LONG),
    "lists": ([[1, 2], [3, 4]], pa.list_(pa.int64())),
    "fixed": ([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
    "ragged": ([[1], [2, 3]], pa.list_(pa.int64())),
    "holes": ([[1, None], [3]], pa.list_(pa.int64())),
    "missing": ([7, None], pa.int64()),
    "gaps": ([1.5, None], pa.float64()),
    "maybe": ([True, None], pa.bool_()),
    "no day": ([DAYS[0], None], pa.date32()),
    "no price": ([HALF, None], pa.decimal128(38, 11)),
    "text": (["b", "a"], pa.string()),
}
ARROW = {
    name: pa.array(np.array(each, "float16") if name == "half" else each, kind)
    for name, (each, kind) in VALUES.items()
}
COLUMNS = {
    **ARROW,
    **{
        f"{name} in chunks": pa.chunked_array([each.slice(0, 1), each.slice(1)])
        for name, each in ARROW.items()
    },
    **{
        f"{name} in a dictionary": ARROW[name].dictionary_encode()
        for name in ("int", "float", "date", "price", "whole", "missing", "text")
    },
    **{f"polars {name}": pl.Series(ARROW[name]) for name in ARROW},
    **{
        f"pandas {name}": pd.Series(each, dtype=pd.ArrowDtype(each.type))
        for name, each in ARROW.items()
    },
    **{
        f"pandas object {name}": pd.Series(VALUES[name][0], dtype=object)
        for name in ("int", "float", "bool", "lists", "ragged", "missing", "holes")
    },
    "pandas": pd.Series([3, -4], dtype="int16"),
    "pandas nullable": pd.Series([3, 4], dtype="Int64"),
    "pandas nullable boolean": pd.Series([True, False], dtype="boolean"),
    "pandas null": pd.Series([3, None], dtype="Int64"),
    "pandas null float": pd.Series([3.5, None], dtype="Float32"),
    "pandas dates": pd.Series(pd.to_datetime(DAYS)),
    "pandas no date": pd.Series(pd.to_datetime([DAYS[0], None])),
    "pandas categories": pd.Series(["b", "a"], dtype="category"),
    "pandas categories of numbers": pd.Series([5, 5], dtype="category"),
    "pandas sparse": pd.Series(pd.arrays.SparseArray([0, 1])),
    "pandas index": pd.Index([3, 4]),
    "pandas with an index": pd.Series([3, 4], index=["a", "b"]),
    "table": pa.table({"a": [1, 2], "b": [3, 4]}),
    "table of two dtypes": pa.table({"a": [1, 2], "b": [1.5, 2.5]}),
    "table with nulls": pa.table({"a": [1, None], "b": [3, 4]}),
    "table of booleans": pa.table({"a": [True, None]}),
    "table of days": pa.table({"a": ARROW["date"], "b": [3, 4]}),
    "table of prices": pa.table({"a": ARROW["price"], "b": [0.5, 4]}),
    "batch": pa.record_batch({"a": [1.5, None], "b": [3.5, 4]}),
    "polars table": pl.DataFrame({"a": [1, 2], "b": [3, 4]}),
    "polars table of two dtypes": pl.DataFrame({"a": [1, None], "b": [1.5, 2.5]}),
    "pandas table": pd.DataFrame({"a": [1, 2], "b": [3, 4]}),
    "pandas table of two dtypes": pd.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}),
    "pandas table with nulls": pd.DataFrame({"a": pd.array([1, None]), "b": [3, 4]}),
}
KEYWORDS = [
    {"copy": True},
    {"copy": False},
    *({"dtype": dtype} for dtype in ("int64", "int32", "float64", "float32", "fit", "default")),
    *({"nulls": nulls} for nulls in (0, False, -1.5, "nan", "mask")),
    {"pad": -1},
    {"pad": float("nan")},
]
TOGETHER = [
    {"copy": True},
    {"dtype": "int64"},
    {"dtype": "float32"},
    {"nulls": 0},
    {"nulls": "mask"},
    {"pad": -1},
]
CASES = [
    {},
    *KEYWORDS,
    *(
        {**one, **other}
        for one, other in itertools.combinations(TOGETHER, 2)
        if one.keys().isdisjoint(other)
    ),
    {"dtype": "int32", "casting": "unsafe"},
    {"dtype": "float32", "casting": "same_kind", "nulls": 0},
    {"dtype": "float64", "nulls": "mask", "pad": 0},
]


def _bits(x):
    array = x.numpy() if isinstance(x, torch.Tensor) else x
    return type(x).__name__, array.dtype, array.shape, array.tobytes()


def _tried(do, x, target, keywords):
    try:
        return do(x, target, **keywords)
    except ferry.ConversionError as error:
        return error


# PyTorch before 2.9 says so, as a comment in the code does.
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_the_code_of_a_plan_gives_the_same_bits(name, target):
    """Where a conversion is refused, so is its plan, unless that depends on values."""
    x, compared = COLUMNS[name], 0
    for keywords in CASES:
        plan, expected = (
            _tried(ferry.explain, x, target, keywords),
            _tried(ferry.convert, x, target, keywords),
        )
        if isinstance(expected, ferry.ConversionError):
            assert type(plan) is type(expected) or not isinstance(plan, ferry.ConversionError), (
                keywords
            )
            continue
        names = {"x": x}
        try:
            exec(plan.code, names)  # noqa: S102 - that is what the code is for
        except Exception as error:
            raise AssertionError(f"{keywords}: {plan.code}") from error
        expected = expected[0] if keywords.get("nulls") == "mask" else expected
        assert _bits(names["y"]) == _bits(expected), (keywords, plan.code)
        compared += 1
    assert compared or "text" in name


@pytest.mark.parametrize("name", COLUMNS)
def test_the_code_of_a_plan_to_arrow_runs(name):
    """Whatever order NumPy has a table in, and without elements, for which pyarrow's function raises."""
    for x in (COLUMNS[name], COLUMNS[name][:0]):
        for keywords in ({}, {"nulls": 0}, {"dtype": "float64", "nulls": 0}):
            expected = _tried(ferry.convert, x, "arrow", keywords)
            if not isinstance(expected, ferry.ConversionError) and expected is not x:
                names = {"x": x}
                exec(_tried(ferry.explain, x, "arrow", keywords).code, names)  # noqa: S102 - that is what it is for
                assert names["y"].type == expected.type
                assert names["y"].equals(expected)


RAGGED = [
    (pa.chunked_array([[[1, 2]], [[3]]]), 24, [[1, 2], [3]]),
    (pd.Series([[1, 2], [3]]), 24, [[1, 2], [3]]),
    (pa.array([[True, False], [True]]), 3, [[True, False], [True]]),
    (pa.array([[1, 2], [3]]), 0, [[1, 2], [3]]),
    (pl.Series([[1.5, 2.5], [3.5]]), 0, [[1.5, 2.5], [3.5]]),
]


@pytest.mark.parametrize(("x", "copied", "rows"), RAGGED)
def test_the_plan_of_rows_says_what_is_copied(x, copied, rows):
    """Out of several chunks, or of bits: then nobody else has the rows, and they are writable."""
    plan = ferry.explain_tree({"x": x}, "numpy", ragged="rows")
    assert (plan.bytes_copied, len(plan.leaves)) == (copied, 2)
    found = ferry.convert_tree({"x": x}, "numpy", ragged="rows")["x"]
    assert (
        [each.tolist() for each in found]
        == [each.tolist() for each in ferry.to_numpy(x, ragged="rows")]
        == rows
    )
    assert [each.flags.writeable for each in found] == [bool(copied)] * 2
    assert [leaf.plan.result.writable for leaf in plan.leaves] == [bool(copied)] * 2
    for target in ("torch", "jax", "tensorflow"):
        pytest.importorskip(target)
        given = ferry.convert_tree({"x": x}, target, ragged="rows", dtype="fit")["x"]
        assert [ferry.to_list(each) for each in given] == rows


@pytest.mark.parametrize(("x", "copied", "rows"), RAGGED)
def test_one_plan_is_not_that_of_several_rows(x, copied, rows):
    """The hint of the plan without the keyword leads to the plan of each row, and so does that with it."""
    del copied
    for keywords in ({}, {"ragged": "rows"}):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.explain(x, "numpy", **keywords)
        code = caught.value.hint.partition(", which")[0]
        plan = eval(code, {"x": x, "explain_tree": ferry.explain_tree})  # noqa: S307 - that is what the hint is for
        assert [leaf.plan.result.shape for leaf in plan.leaves] == [(len(row),) for row in rows]
    assert ferry.explain(pa.array([[1, 2], [3, 4]]), "numpy", ragged="rows").result.shape == (2, 2)


def test_the_plan_of_padded_rows_says_that_they_are_copied():
    x = pa.array([[1, 2], [3]])
    for target in ("numpy", "torch"):
        plan = ferry.explain(x, target, pad=0)
        assert (plan.bytes_copied, plan.shares_memory, plan.reason) == (
            32,
            False,
            "rows are padded",
        )
        assert plan.result.writable
        with pytest.raises(ferry.CopyRequiredError, match="rows are padded"):
            ferry.convert(x, target, pad=0, copy=False)
    assert ferry.to_numpy(x, pad=0).flags.writeable
