"""A value in the place of nulls that the column's dtype does not have, and the dtype that was named does."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

COLUMNS = {
    "pandas": lambda values: pd.Series(values, dtype="Int64"),
    "polars": lambda values: pl.Series("x", values, dtype=pl.Int64),
    "arrow": lambda values: pa.array(values, pa.int64()),
    "chunks": lambda values: pa.chunked_array(
        [pa.array(values[:1], pa.int64()), pa.array(values[1:], pa.int64())]
    ),
}
EXACT = 2**24


@pytest.mark.parametrize("library", COLUMNS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_integers_become_floats_with_nan(library, dtype):
    """Each value is kept, and the plan says where the dtype changed."""
    column = COLUMNS[library]([1, None, 3])
    found = ferry.to_numpy(column, dtype=dtype, nulls="nan")
    assert found.dtype.name == dtype
    assert np.array_equal(found.astype("float64"), [1, np.nan, 3], equal_nan=True)
    plan = ferry.explain(column, "numpy", dtype=dtype, nulls="nan")
    assert f"int64 read as {dtype}" in plan.reason
    assert f'ferry.to_numpy(x, dtype="{dtype}", nulls="nan")' in plan.code
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_numpy(column, dtype=dtype, nulls="nan", copy=False)


@pytest.mark.parametrize("library", COLUMNS)
def test_an_integer_that_is_no_float_is_refused_as_without_nulls(library):
    """By the casting rule: compared by default, refused by "safe", taken as it comes by "unsafe"."""
    column = COLUMNS[library]([EXACT + 1, None, -EXACT])
    with pytest.raises(
        ferry.LossyCastError, match=r"int64 to float32: the value at \[0\] does not fit"
    ):
        ferry.to_numpy(column, dtype="float32", nulls="nan")
    with pytest.raises(
        ferry.LossyCastError, match='casting="safe" does not permit int64 to float32'
    ):
        ferry.to_numpy(column, dtype="float32", nulls="nan", casting="safe")
    rounded = ferry.to_numpy(column, dtype="float32", nulls="nan", casting="unsafe")
    assert np.array_equal(rounded, np.float32([EXACT, np.nan, -EXACT]), equal_nan=True)
    assert ferry.to_list(column, dtype="float64", nulls=0.5) == [EXACT + 1, 0.5, -EXACT]


def test_without_a_dtype_the_hint_names_one():
    """Beside the value that the column has."""
    column = pd.Series([1, None], dtype="Int64")
    for nulls in ("nan", float("nan")):
        with pytest.raises(ferry.LossyCastError) as caught:
            ferry.to_numpy(column, nulls=nulls)
        assert caught.value.hint == 'nulls=0, or dtype="float64", nulls="nan"'
    assert np.isnan(ferry.to_numpy(column, dtype="float64", nulls="nan")[1])
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.convert_tree({"a": column}, "numpy", nulls="nan", dtype="float32")
    assert caught.value.hint == 'nulls=0, or dtype={"int64": "float64"}, nulls="nan"'
    tree = ferry.convert_tree({"a": column}, "numpy", nulls="nan", dtype={"int64": "float64"})
    assert np.isnan(tree["a"][1])


def test_in_a_tree_it_goes_by_what_is_asked_of_the_leaf():
    """By its name, its dtype or its kind; floats keep theirs."""
    frame = pd.DataFrame({"a": pd.Series([1, None], dtype="Int64"), "b": [1.5, None]})
    for dtype in ({"a": "float16"}, {"int64": "float16"}, {"int": "float16"}):
        found = ferry.convert_tree(frame, "numpy", nulls="nan", dtype=dtype)
        assert (found["a"].dtype, found["b"].dtype) == ("float16", "float64")
        assert np.isnan(found["a"][1])
    batch = ferry.collate([frame, frame], "numpy", nulls="nan", dtype={"a": "float32"})
    assert batch["a"].dtype == "float32"


def test_tables_and_lists_take_it_too():
    """Each column, or the elements of each row; a table of several dtypes has the one that was named."""
    frame = pd.DataFrame({"a": pd.Series([1, None], dtype="Int64"), "b": [1.5, 2.5]})
    found = ferry.to_numpy(frame, nulls="nan", dtype="float32")
    assert np.array_equal(found, np.float32([[1, 1.5], [np.nan, 2.5]]), equal_nan=True)
    lists = pa.array([[1, None], [3]])
    assert np.array_equal(
        ferry.to_numpy(lists, nulls="nan", dtype="float32", pad=0), [[1, np.nan], [3, 0]], True
    )
    rows = ferry.to_numpy(lists, nulls="nan", dtype="float32", ragged="rows")
    assert np.isnan(rows[0][1])
    fixed = pa.array([[1, None], [3, 4]], pa.list_(pa.int64(), 2))
    assert np.array_equal(
        ferry.to_numpy(fixed, nulls="nan", dtype="float32"), [[1, np.nan], [3, 4]], True
    )
    flags = pd.Series([True, None], dtype="boolean")
    assert ferry.to_numpy(flags, nulls=-1, dtype="int8").tolist() == [1, -1]


@pytest.mark.parametrize(
    ("values", "dtype", "keywords"),
    [
        ([1.0, None], pa.float64(), {"nulls": 2**53 + 1}),
        ([1.0, None], pa.float32(), {"nulls": 2**24 + 1}),
        ([1.0, None], pa.float64(), {"nulls": 1e300, "dtype": "float32"}),
        ([[1.0], [1.0, 2.0]], pa.list_(pa.float64()), {"pad": 2**53 + 1}),
    ],
)
def test_a_number_that_would_be_another_one_replaces_nothing(values, dtype, keywords):
    with pytest.raises(ferry.LossyCastError, match=r"is no value of float"):
        ferry.to_numpy(pa.array(values, dtype), **keywords)


def test_a_float_that_replaces_nulls_is_rounded():
    column = pa.array([1.0, None])
    assert ferry.to_list(column, nulls=2**53) == [1.0, 2.0**53]
    assert ferry.to_list(column, nulls=0.1, dtype="float32") == [1.0, float(np.float32(0.1))]
    assert ferry.to_list(pa.array([True, None]), nulls=False, dtype="int64") == [1, 0]
    assert ferry.to_list(column, nulls=1e300, dtype="float32", casting="unsafe") == [
        1.0,
        float("inf"),
    ]


@pytest.mark.parametrize(
    "rows", [[np.ones((2, 2)), None], [None, np.ones((1, 2, 2))]], ids=["last", "first"]
)
@pytest.mark.parametrize("keywords", [{}, {"nulls": 0}])
def test_a_null_beside_a_matrix_is_named(rows, keywords):
    pd = pytest.importorskip("pandas")
    row = next(place for place, each in enumerate(rows) if each is None)
    with pytest.raises(
        ferry.UnsupportedTypeError, match=f"has a null in the place of an array, at row {row}"
    ):
        ferry.to_numpy(pd.Series(rows), **keywords)
