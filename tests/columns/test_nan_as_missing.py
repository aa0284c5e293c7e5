"""NaN by which pandas marks a missing value: a number without ``nulls=``, and a null with it, as for `isna`."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

COLUMNS = {
    "floats": lambda: pd.Series([1.5, np.nan, 3.0, np.nan]),
    "float32": lambda: pd.Series([np.nan, 2.0], dtype="float32"),
    "complex": lambda: pd.Series([1 + 2j, complex("nan")]),
    "an index": lambda: pd.Index([1.0, np.nan]),
    "an array": lambda: pd.Series([1.0, np.nan]).array,
    "sparse": lambda: pd.Series(pd.arrays.SparseArray([1.0, np.nan, 0.0])),
    "bools, as a join leaves them": lambda: pd.Series([True, np.nan, False], dtype=object),
    "objects": lambda: pd.Series([np.nan, None, pd.NA, 2], dtype=object),
    "objects, the first a number": lambda: pd.Series([2, None, np.nan, 3], dtype=object),
    "floats as objects": lambda: pd.Series([np.nan, 2.5], dtype=object),
    "NaN alone": lambda: pd.Series([np.nan, np.nan]),
    "NaN alone, as objects": lambda: pd.Series([np.nan, np.nan], dtype=object),
    "none missing": lambda: pd.Series([1.0, 2.0]),
}


@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("name", COLUMNS)
def test_nulls_are_what_pandas_calls_missing(name, target):
    """A value takes their place; a mask is false there; `fillna` and `isna` of pandas give the same."""
    pytest.importorskip(target)
    x = COLUMNS[name]()
    missing = np.asarray(pd.isna(x))
    zero = False if name.startswith("bools") else 0
    expected = [zero if is_gone else each for each, is_gone in zip(list(x), missing, strict=True)]
    before = list(x)

    assert ferry.to_list(ferry.convert(x, target, nulls=zero)) == expected
    values, mask = ferry.convert(x, target, nulls="mask")
    assert ferry.to_list(mask) == (~missing).tolist()
    assert ferry.to_list(values) == expected
    assert [str(each) for each in x] == [str(each) for each in before]


def test_without_nulls_and_with_nan_it_stays_nan():
    """As before: NaN is a number that a tensor can hold."""
    x = pd.Series([1.5, np.nan])
    for made in (
        ferry.to_numpy(x),
        ferry.to_numpy(x, nulls="nan"),
        ferry.to_numpy(x, nulls=float("nan")),
    ):
        assert np.array_equal(made, [1.5, np.nan], equal_nan=True)
    assert ferry.shares_memory(ferry.to_numpy(x), x)
    full = pd.Series([1.5, 2.5])
    assert ferry.shares_memory(ferry.to_numpy(full, nulls=0), full)


def test_the_value_is_one_of_the_dtype_that_is_asked_for():
    """So a column of counts with gaps becomes integers in one call."""
    x = pd.Series([3.0, np.nan])
    assert ferry.to_numpy(x, nulls=-1, dtype="int64").tolist() == [3, -1]
    assert ferry.to_numpy(x, nulls=0, dtype="float32").dtype == "float32"


def test_in_frames_and_in_trees_each_column_has_its_own_nulls():
    """One mask for a table, and one for each leaf of a tree."""
    frame = pd.DataFrame({"a": [1.0, np.nan], "b": pd.array([None, 2], dtype="Int64"), "c": [3, 4]})
    values, mask = ferry.to_numpy(frame, nulls="mask", dtype="float64")
    assert values.tolist() == frame.fillna(0).to_numpy("float64").tolist()
    assert mask.tolist() == frame.notna().to_numpy().tolist()
    tree = ferry.convert_tree(frame, "numpy", nulls="mask")
    assert {name: tree[f"{name}_mask"].tolist() for name in frame} == {
        name: frame[name].notna().tolist() for name in frame
    }
    assert ferry.convert_tree(frame, "numpy", nulls=-1)["a"].tolist() == [1.0, -1.0]


def test_where_a_library_has_nulls_of_its_own_nan_is_a_value():
    """In polars and in Arrow, and in pandas' columns of Arrow's dtypes."""
    has_nan = pa.array([1.5, float("nan"), None])
    for x in (pl.Series(has_nan), has_nan, pd.Series(has_nan, dtype=pd.ArrowDtype(pa.float64()))):
        values, mask = ferry.to_numpy(x, nulls="mask")
        assert mask.tolist() == [True, True, False]
        assert np.isnan(values[1])


def test_nan_in_the_place_of_a_list_or_an_array_is_a_missing_row():
    """A join leaves it there. The hint leaves the row out."""
    for rows in ([[1, 2], np.nan], [np.nan, np.ones(2)], [np.ones((2, 2)), np.nan]):
        x = pd.Series(rows)
        with pytest.raises(ferry.UnsupportedTypeError, match="a null in the place of a") as caught:
            ferry.to_numpy(x)
        assert caught.value.hint.startswith("x.dropna()")
        assert ferry.to_numpy(x.dropna()).shape == (1, *np.shape(x.dropna().iloc[0]))


def test_the_hint_for_text_goes_by_its_first_text():
    """A missing value before it is no number that was written out."""
    for dtype in (object, "str"):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.to_numpy(pd.Series([np.nan, "Oslo"], dtype=dtype))
        assert "numbers the words" in caught.value.hint
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.to_numpy(pd.Series([None, "1.5"], dtype=dtype))
        assert "written out" in caught.value.hint


MASKED = {
    "floats": np.ma.array([1.5, 2.5, 3.5], mask=[0, 1, 0]),
    "two axes": np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]),
    "the other order of bytes": np.ma.array([1, 2], mask=[0, 1], dtype=">i4"),
    "none masked": np.ma.array([1, 2]),
}


@pytest.mark.parametrize("name", MASKED)
def test_nulls_are_for_masked_arrays_too(name):
    """`filled` of NumPy gives the same, and the array is not changed."""
    x = MASKED[name]
    before = x.copy()
    assert ferry.to_numpy(x, nulls=-1).tolist() == x.filled(-1).tolist()
    values, mask = ferry.to_numpy(x, nulls="mask")
    assert values.tolist() == x.filled(0).tolist()
    assert mask.tolist() == (~np.ma.getmaskarray(x)).tolist()
    assert ferry.convert_tree({"x": x}, "numpy", nulls=-1)["x"].tolist() == x.filled(-1).tolist()
    assert ferry.to_numpy([x, x], nulls=-1).tolist() == [x.filled(-1).tolist()] * 2
    assert np.array_equal(x.data, before.data)
    assert np.array_equal(np.ma.getmaskarray(x), np.ma.getmaskarray(before))


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array])
def test_the_hint_for_missing_categories_does_not_give_them_the_first(make):
    """Zero is a code. -1 is none, as in `cat.codes`."""
    texts = pd.Series(["b", None, "a"], dtype="category")
    x = {pd.Series: texts, pl.Series: pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"]))}.get(
        make
    )
    x = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), ["a", "b"]) if x is None else x
    for keywords in ({}, {"dtype": "int64"}):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.to_numpy(x, **keywords)
        code = caught.value.hint.partition(", which")[0]
        assert eval(code, {**vars(ferry), "x": x}).tolist() == texts.cat.codes.tolist()  # noqa: S307 - of the hint


def test_what_is_still_to_be_computed_or_read_says_by_what():
    """Groups and windows of rows."""
    series = pd.Series([1.0, 2.0], index=pd.date_range("2024", periods=2))
    for x in (
        series.rolling(1),
        series.groupby([0, 1]),
        series.resample("D"),
        series.ewm(1),
        series.expanding(),
    ):
        with pytest.raises(
            ferry.UnsupportedTypeError, match="of which nothing was computed"
        ) as caught:
            ferry.to_numpy(x)
        assert len(ferry.to_numpy(eval(caught.value.hint, {"x": x}))) == 2  # noqa: S307 - the code of the hint


def test_rows_in_files_say_how_they_are_read(tmp_path):
    """Of a dataset, and of one file."""
    import pyarrow.dataset
    import pyarrow.parquet

    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), path)
    dataset = pyarrow.dataset.dataset(path)
    for x in (
        dataset,
        dataset.scanner(),
        pyarrow.parquet.ParquetFile(path),
        pyarrow.parquet.ParquetDataset(path),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match="still to be read") as caught:
            ferry.to_numpy(x)
        assert ferry.to_numpy(eval(caught.value.hint, {"x": x})).tolist() == [[1], [2]]  # noqa: S307 - of the hint
