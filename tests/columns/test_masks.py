"""Masks beside values: of rows of unequal lengths, of what is no column, of dates; and what no mask is for."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")

ROWS = [[1, None], [3]]


@pytest.mark.parametrize(
    "make", [pa.array, pl.Series, lambda rows: pa.chunked_array([rows[:1], rows[1:]])]
)
def test_rows_of_unequal_lengths_have_masks_too(make):
    """Filled up, of what is there; each for itself, of its own length."""
    x = make(ROWS)
    values, mask = ferry.to_torch(x, nulls="mask", pad=-1)
    assert values.tolist() == [[1, 0], [3, -1]]
    assert mask.tolist() == [[True, False], [True, False]]
    values, mask = ferry.to_torch(x, nulls="mask", ragged="rows")
    assert [each.tolist() for each in values] == [[1, 0], [3]]
    assert [each.tolist() for each in mask] == [[True, False], [True]]
    found = ferry.convert_tree({"x": x}, "numpy", nulls="mask", pad=-1)
    assert {name: each.tolist() for name, each in found.items()} == {
        "x": [[1, 0], [3, -1]],
        "x_mask": [[True, False], [True, False]],
    }
    found = ferry.convert_tree({"x": x}, "numpy", nulls="mask", ragged="rows")
    assert [each.tolist() for each in found["x_mask"]] == [[True, False], [True]]


@pytest.mark.parametrize(
    "x",
    [np.arange(3.0), torch.arange(3), [1, 2, 3], range(3), pd.Series([1, 2, 3], dtype=object)],
    ids=type,
)
def test_what_has_no_nulls_gives_a_pair_as_well(x):
    """So that a caller who takes two things apart never takes two rows for them."""
    for target in ("numpy", "torch", "python"):
        values, mask = ferry.convert(x, target, nulls="mask")
        assert ferry.to_list(values) == ferry.to_list(x)
        assert ferry.to_list(mask) == [True] * 3
    with pytest.raises(ferry.ShapeError):
        ferry.to_numpy([[1], [2, 3]], nulls="mask")


def test_numbers_among_python_objects_have_a_mask_in_a_tree():
    """As each other column of a table; what is no column, or no number, has none."""
    frame = pd.DataFrame({"o": pd.Series([1, 2], dtype=object), "t": ["a", "b"]})
    found = ferry.convert_tree({"f": frame, "a": np.ones(2), "s": "text"}, "numpy", nulls="mask")
    assert list(found["f"]) == ["o", "o_mask", "t"]
    assert found["f"]["o_mask"].tolist() == [True, True]
    assert list(found) == ["f", "a", "s"]


@pytest.mark.parametrize(
    "table", [pd.DataFrame(), pl.DataFrame(), pa.table({}), pd.DataFrame(index=[1, 2])]
)
def test_a_table_without_columns_is_refused_whatever_is_said(table):
    """It has no dtype; in a tree it is an empty dict."""
    for said in ({}, {"nulls": "mask"}, {"nulls": 0}):
        with pytest.raises(
            ferry.UnsupportedTypeError, match="has no columns, so no dtype"
        ) as caught:
            ferry.to_torch(table, **said)
        assert caught.value.hint == 'convert_tree(x, "torch"), which has no tensors'
        assert ferry.convert_tree(table, "torch", **said) == {}


def test_a_mask_does_not_replace_a_column_of_its_name():
    """The hint is the same call with a value for nulls."""
    x = pa.table({"a": pa.array([1, None]), "a_mask": [5, 6]})
    with pytest.raises(
        ferry.UnsupportedTypeError, match="mask of 'a' would be named 'a_mask'"
    ) as caught:
        ferry.convert_tree(x, "numpy", nulls="mask")
    found = eval(  # noqa: S307
        caught.value.hint.partition(", which")[0], {"x": x, "convert_tree": ferry.convert_tree}
    )
    assert {name: values.tolist() for name, values in found.items()} == {
        "a": [1, 0],
        "a_mask": [5, 6],
    }


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_dates_and_categories_are_counts_in_a_tree_by_their_names(library):
    """With what stands for nulls; the same dtype for all leaves leaves them as they are."""
    columns = {"a": [1, 2], "d": [dt.date(1970, 1, 2), None], "c": ["x", "y"]}
    table = pa.table(columns).set_column(2, "c", pa.array(["x", "y"]).dictionary_encode())
    x = {
        "pandas": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.from_arrow(table),
        "arrow": table,
    }[library]
    found = ferry.convert_tree(
        {"t": x}, "numpy", dtype={"t.d": "int32", "t.c": "int8", "float": "float32"}, nulls=-1
    )
    assert found["t"]["d"].tolist() == [1, -1]
    assert found["t"]["d"].dtype == "int32"
    assert found["t"]["c"].tolist() == [0, 1]
    found = ferry.convert_tree(x, "numpy", dtype={"d": "int64"}, nulls="mask")
    assert found["d_mask"].tolist() == [True, False]
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 1") as caught:
        ferry.convert_tree(x, "numpy", dtype={"d": "int64"})
    assert 'dtype={"d": "int64"}, nulls=0' in caught.value.hint
    assert ferry.convert_tree(x, "numpy", dtype={"c": "int64"})["c"].tolist() == [0, 1]
    assert "the numbers count codes" in str(
        ferry.explain_tree(x, "numpy", dtype={"c": "int64"}).leaves[-1].plan
    )
    kept = ferry.convert_tree(x, "numpy", dtype="int64")
    assert kept["d"] is not None
    assert not isinstance(kept["d"], np.ndarray)
    with pytest.raises(ferry.UnsupportedTypeError, match="has the name 'q'"):
        ferry.convert_tree(x, "numpy", dtype={"q": "int64"})


def test_the_index_of_a_frame_has_a_dtype_by_its_name():
    """As its other columns."""
    frame = pd.DataFrame(
        {"a": [1]}, index=pd.Index(pd.to_datetime(["1970-01-02"]).astype("M8[s]"), name="day")
    )
    found = ferry.convert_tree(frame, "numpy", index=True, dtype={"day": "int64"})
    assert {name: each.tolist() for name, each in found.items()} == {"day": [86400], "a": [1]}


def test_hints_of_nulls_in_dates_can_be_typed():
    """They say the dtype too, without which dates are refused."""
    x = pa.array([dt.date(1970, 1, 2), None])
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 1") as caught:
        ferry.to_torch(x, dtype="int64")
    code = caught.value.hint.partition(",  ")[0].partition(", which")[0]
    assert eval(code, {"x": x, "to_torch": ferry.to_torch}).tolist() == [1, 0]  # noqa: S307 - the hint's own code


DATE, AMOUNT = dt.date(1970, 1, 2), decimal.Decimal("1.5")


@pytest.mark.parametrize(
    ("x", "values"),
    [
        (pa.array([DATE, None]), [1, 0]),
        (pa.chunked_array([[DATE], [None]]), [1, 0]),
        (pa.array([[DATE, None]]), [[1, 0]]),
        (pa.array(["a", None]).dictionary_encode(), [0, -1]),
        (pa.table({"d": pa.array([1, None], pa.date32())}), [[1], [0]]),
        (
            pa.table({"d": pa.array([1, 2], pa.date32()), "e": pa.array([1, None])}),
            [[1, 1], [2, 0]],
        ),
        (pl.Series([DATE, None]), [1, 0]),
        (pl.Series(["a", None], dtype=pl.Categorical), [0, -1]),
        (pl.DataFrame({"a": [AMOUNT, AMOUNT], "b": [None, AMOUNT]}), [[1.5, math.nan], [1.5, 1.5]]),
        (pd.Series(pd.to_datetime(["1970-01-02", None]).astype("M8[s]")), [86400, 0]),
        (pd.Series(["a", None], dtype="category"), [0, -1]),
        (
            pd.Series(pd.to_datetime(["1970-01-02", None]).astype("M8[s]"), dtype="category"),
            [86400, 0],
        ),
        (
            pd.DataFrame({"d": pd.Series(["a", None], dtype="category"), "e": [1, 2]}),
            [[0, 1], [-1, 2]],
        ),
    ],
)
def test_the_first_hint_for_dates_and_the_like_also_replaces_their_nulls(x, values):
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy(x)
    first, then = caught.value.hint.partition(", which")[0], caught.value.hint.partition("; or ")[2]
    found = eval(first, {"x": x, "to_numpy": ferry.to_numpy})  # noqa: S307 - the hint's own code
    np.testing.assert_array_equal(found, values)
    _, mask = eval(then, {"x": x, "to_numpy": ferry.to_numpy})  # noqa: S307 - the hint's own code
    assert not mask.all()


def test_without_nulls_the_hint_for_dates_does_not_replace_any():
    for x in (
        pa.array([DATE]),
        pl.Series([DATE]),
        pd.Series(["a"], dtype="category"),
        pa.table({"d": [DATE]}),
    ):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.to_numpy(x)
        assert "nulls" not in caught.value.hint


@pytest.mark.parametrize("library", [pa.table, pl.DataFrame])
def test_a_table_with_rows_of_numbers_is_refused_in_words_for_a_mask_too(library):
    """A mask cannot have one shape for both columns."""
    x = library({"a": [[1, 2], [3, 4]], "b": [1, 2]})
    with pytest.raises(ferry.UnsupportedTypeError, match=r"Column 'a' .* holds rows of numbers"):
        ferry.to_numpy(x, nulls="mask")


def test_the_mask_of_python_objects_has_the_shape_of_their_values():
    """In a table, in a dict, and alone; objects that are no numbers are refused with their path."""
    cells = pd.Series([np.arange(2), np.arange(2)])
    for tree in ({"a": cells}, pd.DataFrame({"a": cells})):
        found = ferry.convert_tree(tree, "numpy", nulls="mask")
        assert found["a"].shape == found["a_mask"].shape == (2, 2)
        assert found["a_mask"].all()
    values, mask = ferry.convert_tree(pd.Series([1, 2], dtype=object), "numpy", nulls="mask")
    assert (values.tolist(), mask.tolist()) == ([1, 2], [True, True])
    with pytest.raises(ferry.UnsupportedTypeError, match=r'at \$\["a"\]'):
        ferry.convert_tree({"a": pd.Series([1, object()], dtype=object)}, "numpy", nulls="mask")


@pytest.mark.parametrize("pad", [1, -100, {"a": 1}, {"*": -100}, {"a": 7, "a_mask": 1}], ids=str)
@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"]
)
def test_where_a_column_is_padded_its_mask_is_false(make, pad):
    """There is no value, whatever number stands there; and one name in `pad` is for both."""
    samples = [
        make({"a": pa.array(each) if make is pa.table else each})
        for each in ([1.5, None, 2.5], [3.5])
    ]
    if make is pd.DataFrame:
        samples = [each.astype("Float64") for each in samples]
    for side, mask in (("right", [True, False, False]), ("left", [False, False, True])):
        batch = ferry.collate(samples, "numpy", nulls="mask", pad=pad, padding_side=side)
        number = next(iter(pad.values())) if isinstance(pad, dict) else pad
        padded = [3.5, number, number]
        assert batch["a"].tolist() == [[1.5, 0, 2.5], padded if side == "right" else padded[::-1]]
        assert batch["a_mask"].tolist() == [[True, False, True], mask]


@pytest.mark.parametrize(
    ("first", "second"),
    [(0, "0"), (("a", "b"), "('a', 'b')"), (None, "None")],
    ids=["number", "tuple", "none"],
)
def test_two_masks_of_one_name_are_refused(first, second):
    """One of them would be lost: names of other types than text may be written like text."""
    masked = [pd.array([1, None], dtype="Int64"), pd.array([None, 2], dtype="Int64")]
    table = pd.DataFrame(dict(zip((7, "other"), masked, strict=True)))
    table.columns = pd.Index([first, second], dtype=object, tupleize_cols=False)
    for tree in (table, {first: masked[0], second: masked[1]}):
        with pytest.raises(ferry.UnsupportedTypeError, match="there is such a mask already"):
            ferry.convert_tree(tree, "numpy", nulls="mask")
        assert [
            ferry.to_list(each) for each in ferry.convert_tree(tree, "numpy", nulls=0).values()
        ] == [[1, 0], [0, 2]]


@pytest.mark.parametrize(
    "names",
    [
        [math.nan, math.nan],
        [float("nan"), np.float32("nan")],
        [("a", float("nan")), ("a", float("nan"))],
    ],
    ids=["one", "several", "tuples"],
)
def test_two_columns_named_nan_have_one_name(names):
    """NaN is not equal to itself, so a dict has both, and no key finds either."""
    table = pd.DataFrame([[1, 2]])
    table.columns = pd.Index(names, dtype=object, tupleize_cols=False)
    for tree in (table, pd.DataFrame([[1, 2]], columns=names)):
        with pytest.raises(ferry.UnsupportedTypeError, match="has two columns of the name"):
            ferry.convert_tree(tree, "numpy")
    ((_, found),) = ferry.convert_tree(table.iloc[:, :1], "numpy").items()
    assert found.tolist() == [1]
