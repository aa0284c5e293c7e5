"""Hazards of tables: columns with nulls, of several dtypes, of text, of dates; images; sparse matrices."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest
from tests.support import EVERYWHERE

import tensorferry as ferry

pytest.importorskip("jax")
torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")

LARGE = 2**53 + 1
WHY = "not in the test environment: tables are an everyday input, no dependency"


@pytest.fixture
def pd():
    return pytest.importorskip("pandas", reason=f"pandas is {WHY}")


@pytest.fixture
def pl():
    return pytest.importorskip("polars", reason=f"polars is {WHY}")


@pytest.fixture
def pa():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


PUBLIC = {name: getattr(ferry, name) for name in ferry.__all__}
"""What a hint may name."""


def refused(x, match=None, *, error=ferry.UnsupportedTypeError, **names):
    """The result of the hint's code, after `x` was refused for every target."""
    for target in EVERYWHERE:
        with pytest.raises(error, match=match) as caught:
            ferry.convert(x, target)
    code = caught.value.hint.partition(", which")[0]
    return eval(code, {"x": x, "np": np, **PUBLIC, **names})  # noqa: S307 - that is what the hint is for


def accepted(x, expected, dtype):
    """`x` arrives with these values and this dtype, and its code gives the same."""
    for target in EVERYWHERE:
        if target == "jax" and dtype in ("int64", "uint64", "float64"):
            continue  # has them only when it is told to
        assert ferry.to_list(ferry.convert(x, target)) == expected
    result = ferry.to_numpy(x)
    assert result.dtype == dtype
    namespace = {"x": x, "np": np, "ferry": ferry}
    exec("\n".join([*ferry.explain(x, "numpy").imports, ferry.explain(x, "numpy").code]), namespace)  # noqa: S102 - that is what the code is for
    assert any(
        isinstance(each, np.ndarray) and each.tolist() == expected for each in namespace.values()
    )


# -- pandas ---------------------------------------------------------------------------------------


def test_H79_pandas_columns_without_nulls_are_exact(pd):
    """Nullable dtypes, sparse ones and categories of numbers included; what lies in memory is shared."""
    accepted(pd.Series([LARGE, 1], dtype="Int64"), [LARGE, 1], "int64")
    accepted(pd.Series([1.5, 2], dtype="Float32"), [1.5, 2.0], "float32")
    accepted(pd.Series([True, False], dtype="boolean"), [True, False], "bool")
    accepted(pd.Series(pd.arrays.SparseArray([0.0, 1.0])), [0.0, 1.0], "float64")
    accepted(pd.Series([2, 1, 2]).astype("category"), [2, 1, 2], "int64")
    accepted(pd.array([1, 2], dtype="UInt8"), [1, 2], "uint8")
    accepted(pd.RangeIndex(3), [0, 1, 2], "int64")
    nan = ferry.to_numpy(pd.Series([1.0, None]))
    assert np.isnan(nan[1])
    for column in (
        pd.Series(np.arange(9.0)),
        pd.Series(np.arange(9), dtype="Int64"),
        pd.Index(np.arange(9)),
    ):
        view = ferry.to_numpy(column, copy=False)
        assert ferry.shares_memory(view, ferry.to_numpy(column))
        assert ferry.explain(column, "numpy").shares_memory


def test_H79_an_index_is_not_to_be_written(pd):
    """It is immutable, though the array that it gives is not."""
    index = pd.Index([1, 2, 3])
    assert not ferry.to_numpy(index).flags.writeable
    ferry.to_torch(index).add_(1)
    assert index.tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean"])
def test_H79_pandas_nulls_are_refused(pd, dtype):
    """They would be rounded, or become another value; the line makes numbers of them."""
    value = {"Int64": LARGE, "Float64": 1.5, "boolean": True}[dtype]
    x = pd.Series([value, None], dtype=dtype)
    assert ferry.to_list(refused(x, "has nulls"))[0] == value
    frame = pd.DataFrame({"a": x, "b": x})
    with pytest.raises(ferry.UnsupportedTypeError, match="Column 'a' of this DataFrame has nulls"):
        ferry.to_torch(frame)
    for each in (x, frame):
        with pytest.raises(ferry.CopyRequiredError, match="nulls"):
            ferry.to_numpy(each, copy=False)


def test_H79_columns_of_arrow_in_pandas(pd, pa):
    """The same, in the memory of every library."""
    accepted(pd.Series([LARGE, 1], dtype="int64[pyarrow]"), [LARGE, 1], "int64")
    accepted(pd.Series([True, False], dtype="bool[pyarrow]"), [True, False], "bool")
    assert ferry.to_list(refused(pd.Series([LARGE, None], dtype="int64[pyarrow]"), "nulls")) == [
        LARGE,
        0,
    ]
    not_a_number = pd.Series(pa.array([1.5, float("nan")]), dtype=pd.ArrowDtype(pa.float64()))
    assert np.isnan(ferry.to_numpy(not_a_number)[1])
    day = pd.Series([dt.date(1970, 1, 2)], dtype="date32[pyarrow]")
    assert ferry.to_list(refused(day, "dates")) == [1]


def test_H79_pandas_frames_of_one_dtype(pd):
    """Shared where they lie in one memory, exact where a wider dtype holds all."""
    frame = pd.DataFrame(np.arange(6.0).reshape(3, 2))
    assert ferry.shares_memory(ferry.to_numpy(frame, copy=False), ferry.to_numpy(frame))
    accepted(frame, [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], "float64")
    accepted(
        pd.DataFrame({"a": [LARGE, 1], "b": [2, 3]}).astype("Int64"), [[LARGE, 2], [1, 3]], "int64"
    )
    accepted(
        pd.DataFrame({"a": np.array([1, 2], "i4"), "b": [LARGE, 3]}), [[1, LARGE], [2, 3]], "int64"
    )
    frame["c"] = 1.0
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_numpy(pd.DataFrame({"a": [1, 2], "b": np.array([1, 2], "i4")}), copy=False)
    with pytest.raises(ferry.UnsupportedTypeError, match="no columns"):
        ferry.to_numpy(pd.DataFrame(index=[1, 2]))


@pytest.mark.parametrize("other", [[2.5, 3.5], [True, False]])
def test_H79_pandas_frames_of_several_dtypes(pd, other):
    """No dtype keeps all; one that is named is looked at value by value."""
    frame = pd.DataFrame({"n": [1, 2], "m": other})
    with pytest.raises(
        ferry.LossyCastError, match=r"'n' is int64, 'm' is (float64|bool)"
    ) as caught:
        ferry.to_numpy(frame)
    keyword, _, rest = caught.value.hint.partition(", which each value must fit; or ")
    assert keyword == 'dtype="float64"'
    columns = eval(rest.partition(", which")[0], {"x": frame, **PUBLIC})  # noqa: S307 - that is what the hint is for
    assert [each.tolist() for each in columns.values()] == [[1, 2], other]
    result = ferry.to_torch(frame, dtype="float32")
    assert result.dtype == torch.float32
    assert result.tolist() == [[1.0, float(other[0])], [2.0, float(other[1])]]
    frame.loc[0, "n"] = LARGE
    with pytest.raises(ferry.LossyCastError, match="in column 'n'"):
        ferry.to_numpy(frame, dtype="float64")


def test_H79_pandas_columns_that_are_no_numbers(pd):
    """Text, categories, dates, durations, objects: by name, with a line each."""
    text = pd.Series(["1", "2.5"])
    assert refused(text, "text").tolist() == [1.0, 2.5]
    assert refused(text.astype(object), "text").tolist() == [1.0, 2.5]
    assert ferry.to_list(refused(text.astype("category"), "categories")) == [0, 1]
    assert ferry.to_list(refused(pd.Categorical(["b", "a"]), "categories")) == [1, 0]
    assert refused(pd.Series([1, None]).astype("category"), "nulls")[0] == 1
    dates = pd.Series(pd.to_datetime(["1970-01-01"]))
    for x in (
        dates,
        dates.dt.tz_localize("UTC"),
        pd.DatetimeIndex(dates),
        pd.Series(pd.to_timedelta([0])),
    ):
        assert ferry.to_list(refused(x, "dates")) == [0]
    assert ferry.to_list(
        refused(pd.Series(pd.period_range("1970", periods=1, freq="M")), "dates")
    ) == [0]
    assert ferry.to_list(pd.Series([1, 2], dtype=object)) == [1, 2]
    assert refused(pd.MultiIndex.from_tuples([(1, 2)])).shape == (1, 2)
    assert refused(pd.Series(pd.interval_range(0, 1)), "interval")


def test_H79_pandas_frames_with_columns_that_are_no_numbers(pd):
    """The message has the column, the line gives a frame of numbers."""
    frame = pd.DataFrame({"t": ["a", "b"], "n": [1, 2], "u": ["c", "d"]})
    assert ferry.to_list(refused(frame, "Column 't' of this DataFrame holds text")) == [[1], [2]]
    frame = pd.DataFrame({"d": pd.to_datetime(["1970-01-01"]), "n": [1]})
    assert ferry.to_list(refused(frame, "Column 'd'")) == [[0, 1]]
    frame = pd.DataFrame({"c": pd.Categorical(["x"]), "n": np.array([1], "i1")})
    assert ferry.to_list(refused(frame, "Column 'c'")) == [[0, 1]]
    frame = pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "m": [1, 2]})
    assert ferry.to_list(refused(frame, "Column 'n'")) == [[1, 1], [0, 2]]
    frame = pd.DataFrame({0: pd.array([1, None], dtype="Int64"), 1: [1, 2]})
    assert ferry.to_list(refused(frame, "Column 0")) == [[1, 1], [0, 2]]
    doubled = pd.DataFrame([[1, "x"]], columns=["a", "a"]).astype(object)
    with pytest.raises(ferry.UnsupportedTypeError, match="Column 'a'"):
        ferry.to_numpy(doubled)


def test_H79_pandas_columns_of_python_objects(pd):
    """Numbers are exact, None and pd.NA are nulls, lists are rows; a message has the row of anything else."""
    accepted(
        pd.DataFrame({"o": pd.Series([LARGE, 2], dtype=object), "n": [1, 2]}),
        [[LARGE, 1], [2, 2]],
        "int64",
    )
    for null in (None, pd.NA):
        column = pd.Series([LARGE, null], dtype=object, name="o")
        assert ferry.to_list(refused(column, "Series 'o' has nulls .at row 1")) == [LARGE, 0]
        assert ferry.to_list(refused(pd.DataFrame({"o": column, "n": [1, 2]}), "Column 'o'")) == [
            [LARGE, 1],
            [0, 2],
        ]
    frame = pd.DataFrame({"o": pd.Series([1, None, "x"], dtype=object), "n": [1, 2, 3]})
    made = refused(
        frame, "Column 'o' of this DataFrame holds Python objects, such as a str at row 2", pd=pd
    )
    assert np.isnan(ferry.to_numpy(made, dtype="float64")[:, 0]).tolist() == [False, True, True]
    frame = pd.DataFrame({"o": pd.Series([2**64, 1], dtype=object)})
    assert ferry.to_list(
        refused(frame, "Column 'o' of this DataFrame has .* row 0 does not fit")
    ) == [[2.0**64], [1]]
    assert ferry.to_list(
        refused(pd.DataFrame({"o": [Decimal("1.5")]}), "decimals with a fraction")
    ) == [[1.5]]
    dates = refused(pd.DataFrame({"o": [dt.date(1970, 1, 2)]}), "such as a date at row 0", pd=pd)
    assert ferry.to_list(ferry.to_numpy(dates["o"], dtype="int64"))[0] > 0
    for kind in (list, tuple, np.array):
        equal, unequal = (pd.Series([kind([1, 2]), kind(last)]) for last in ([3, 4], [3]))
        accepted(equal, [[1, 2], [3, 4]], "int64")
        assert refused(unequal, "row 0 has 2 elements, row 1 has 1") == [[1, 2], [3]]
        assert ferry.to_list(unequal, pad=0) == [[1, 2], [3, 0]]
        assert ferry.convert_tree(pd.DataFrame({"o": unequal}), "numpy", pad=9)["o"].tolist() == [
            [1, 2],
            [3, 9],
        ]
        assert ferry.to_list(
            refused(pd.Series([kind([1, 2]), None]), "null in the place of a list, at row 1")
        ) == [[1, 2]]
        frame = refused(
            pd.DataFrame({"o": [kind([1, 2]), None], "n": [1, 2]}), "Column 'o' .* at row 1"
        )
        assert ferry.convert_tree(frame, "numpy")["o"].tolist() == [[1, 2]]
    for values, filled in (
        ([[1, None], [3, 4]], [[1, 0], [3, 4]]),
        ([[1, None], [3]], [[1, 0], [3, 7]]),
    ):
        assert (
            ferry.to_list(pd.Series(values), nulls=0, **({} if len(values[1]) == 2 else {"pad": 7}))
            == filled
        )
    masked, mask = ferry.to_numpy(pd.Series([[1, None], [None, 4]]), nulls="mask")
    assert mask.tolist() == [[True, False], [False, True]]
    assert masked[mask].tolist() == [1, 4]
    accepted(pd.Series([[[1], [2]], [[3], [4]]]), [[[1], [2]], [[3], [4]]], "int64")
    for values, words in (
        ([[1, "x"], [3]], "other objects than numbers, at row 0"),
        ([[[1], [2]], [[3]]], "lists that are no tensor"),
        ([["a"], ["b", "c"]], "lists of text"),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match=words):
            ferry.to_numpy(pd.Series(values))
    kept = ferry.convert_tree(pd.DataFrame({"o": [["a"], ["b", "c"]], "n": [1, 2]}), "numpy")
    assert kept["o"].tolist() == [["a"], ["b", "c"]]


# -- polars ---------------------------------------------------------------------------------------


def test_H79_polars_columns_without_nulls_are_exact(pl):
    """Shared if they are one piece of memory."""
    accepted(pl.Series([LARGE, 1]), [LARGE, 1], "int64")
    accepted(pl.Series([True, False]), [True, False], "bool")
    accepted(pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int32, 2)), [[1, 2], [3, 4]], "int32")
    accepted(pl.DataFrame({"a": [1.5], "b": [2.5]}), [[1.5, 2.5]], "float64")
    accepted(
        pl.DataFrame({"a": [1], "b": [2]}, schema={"a": pl.Int8, "b": pl.Int16}), [[1, 2]], "int16"
    )
    whole = pl.Series(np.arange(9.0))
    assert ferry.shares_memory(ferry.to_numpy(whole, copy=False), ferry.to_numpy(whole))
    assert not ferry.to_numpy(whole).flags.writeable
    pieces = pl.concat([whole, whole], rechunk=False)
    for x in (pieces, pl.Series([True]), pl.DataFrame({"a": [1.0], "b": [2.0]})):
        assert not ferry.explain(x, "numpy").shares_memory
        with pytest.raises(ferry.CopyRequiredError):
            ferry.to_numpy(x, copy=False)
    assert ferry.to_numpy(pieces).shape == (18,)


def test_H79_polars_nulls_are_refused(pl):
    """Also inside rows, where polars has NaN instead."""
    assert ferry.to_list(refused(pl.Series("c", [LARGE, None]), "This Series 'c' has nulls")) == [
        LARGE,
        0,
    ]
    assert np.isnan(ferry.to_numpy(refused(pl.Series([1.5, None]), "nulls"))[1])
    assert ferry.to_list(refused(pl.Series([True, None]), "nulls")) == [True, False]
    for rows, filled in (
        ([[1, None], [3, 4]], [[1, 0], [3, 4]]),
        ([[1, 2], None], [[1, 2], [0, 0]]),
    ):
        assert refused(pl.Series(rows, dtype=pl.Array(pl.Int64, 2)), "nulls") == filled
    frame = pl.DataFrame({"a": [LARGE, None], "b": [1, 2]})
    assert ferry.to_list(refused(frame, "Column 'a' of this DataFrame has nulls")) == [
        [LARGE, 1],
        [0, 2],
    ]
    for x in (frame, pl.Series([1.5, None])):
        with pytest.raises(ferry.CopyRequiredError, match="nulls"):
            ferry.to_numpy(x, copy=False)


def test_H79_polars_columns_that_are_no_numbers(pl):
    """Each with a line of its own; a query has to run first."""
    assert refused(pl.Series(["1.5"]), "text").to_list() == [1.5]
    assert (
        ferry.to_list(refused(pl.Series(["a", "b"], dtype=pl.Categorical), "categories"))
        is not None
    )
    assert ferry.to_list(refused(pl.Series(["b"], dtype=pl.Enum(["a", "b"])), "categories")) == [1]
    assert ferry.to_list(refused(pl.Series([dt.date(1970, 1, 2)]), "dates")) == [1]
    assert refused(
        pl.Series([[1, 2], [3]]), "unequal lengths: row 0 has 2 elements, row 1 has 1"
    ) == [[1, 2], [3]]
    assert ferry.to_list(refused(pl.Series(["1.5"]).cast(pl.Decimal(4, 2)), "decimal")) == [1.5]
    assert ferry.to_list(refused(pl.Series([1], dtype=pl.Int128), "128")) == [1]
    assert ferry.to_list(refused(pl.Series([{"a": 1}]), "fields")) == [[1]]
    assert refused(pl.Series([[{"a": 1}]]), "fields") == [[{"a": 1}]]
    assert refused(pl.Series([b"x"]), "bytes") == [b"x"]
    assert refused(pl.Series([[1], None]), "null in the place of a list").to_list() == [[1]]
    assert refused(pl.DataFrame({"a": [[1], None]}), "Column 'a'").to_dict(as_series=False) == {
        "a": [[1]]
    }
    assert ferry.to_list(refused(pl.LazyFrame({"a": [1]}), "has not run")) == [[1]]
    frame = pl.DataFrame({"t": ["a"], "n": [1], "d": [dt.date(1970, 1, 2)]})
    without_text = refused(frame, "Column 't'")
    with pytest.raises(ferry.UnsupportedTypeError, match="Column 'd'"):
        ferry.to_numpy(without_text)
    with pytest.raises(ferry.LossyCastError, match="'a' is int64, 'b' is bool"):
        ferry.to_numpy(pl.DataFrame({"a": [1], "b": [True]}))
    assert ferry.to_numpy(pl.DataFrame({"a": [1], "b": [True]}), dtype="float32").tolist() == [
        [1, 1]
    ]


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow", "numpy"])
def test_H79_the_hint_for_several_dtypes_is_of_the_call(target, pd, pl, pa):
    """With the target that was asked for, and with a dtype that it has."""
    if target != "numpy":
        pytest.importorskip(target, reason=f"{target} is not installed")
    columns = {"a": [1, 2], "b": [True, False]}
    for x in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        for function in (ferry.explain, ferry.convert):
            with pytest.raises(ferry.LossyCastError) as caught:
                function(x, target)
            keyword, _, code = caught.value.hint.partition("; or ")
            together = eval(  # noqa: S307
                f"convert(x, {target!r}, {keyword.partition(', which')[0]})", {"x": x, **PUBLIC}
            )
            assert ferry.to_list(together) == [[1.0, 1.0], [2.0, 0.0]]
            code = code.partition(", which")[0]
            assert code.startswith(
                "convert_tree(" if function is ferry.convert else "explain_tree("
            )
            made = eval(code, {"x": x, **PUBLIC})  # noqa: S307 - that is what the hint is for
        assert [ferry.to_list(each) for each in made.values()] == [*columns.values()]


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow", "numpy"])
def test_H79_nulls_in_one_of_several_dtypes_have_one_hint(target, pd):
    """It names a dtype too, so that the call that it shows is not refused."""
    if target != "numpy":
        pytest.importorskip(target, reason=f"{target} is not installed")
    x = pd.DataFrame({"a": pd.array([1, 2, None], "Int64"), "b": [0.5, 1.5, 2.5]})
    with pytest.raises(ferry.UnsupportedTypeError, match=r"Column 'a' .* row 2") as caught:
        ferry.convert(x, target)
    filled, masked = caught.value.hint.split(", which replaces them; or ")
    assert ferry.to_list(eval(filled, {"x": x, **PUBLIC})) == [[1, 0.5], [2, 1.5], [0, 2.5]]  # noqa: S307 - that is what the hint is for
    values, mask = eval(masked, {"x": x, **PUBLIC})  # noqa: S307 - that is what the hint is for
    assert ferry.to_list(values)[:2] == [[1, 0.5], [2, 1.5]]
    assert ferry.to_list(mask) == [[True, True], [True, True], [False, True]]


# -- Arrow ----------------------------------------------------------------------------------------


def test_H79_arrow_columns_without_nulls_are_exact(pa):
    """Chunks and bits are copied, the rest is shared."""
    accepted(pa.array([LARGE, 1]), [LARGE, 1], "int64")
    accepted(pa.array([1.5, 2.5], pa.float32())[1:], [2.5], "float32")
    accepted(pa.array([True, False]), [True, False], "bool")
    accepted(pa.chunked_array([[LARGE], [1, 2]]), [LARGE, 1, 2], "int64")
    accepted(pa.chunked_array([], pa.int16()), [], "int16")
    accepted(
        pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2))[1:], [[3, 4], [5, 6]], "int16"
    )
    accepted(pa.table({"a": [1, 2], "b": [3, 4]}), [[1, 3], [2, 4]], "int64")
    accepted(pa.record_batch({"a": [1], "b": pa.array([LARGE])}), [[1, LARGE]], "int64")
    whole = pa.array(np.arange(9.0))
    for x in (whole, pa.chunked_array([whole]), pa.FixedSizeListArray.from_arrays(whole, 3)):
        view = ferry.to_numpy(x, copy=False)
        assert ferry.shares_memory(view, whole)
        assert not view.flags.writeable
    pieces = pa.chunked_array([pa.FixedSizeListArray.from_arrays(whole, 3)] * 2)
    assert ferry.to_list(ferry.to_torch(pieces)) == pieces.to_pylist()
    images = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype="f4").reshape(2, 2, 2))
    accepted(images, np.arange(8).reshape(2, 2, 2).tolist(), "float32")
    for x in (pa.array([True]), pa.chunked_array([[1], [2]]), pa.table({"a": [1]})):
        with pytest.raises(ferry.CopyRequiredError):
            ferry.to_numpy(x, copy=False)


def test_H79_arrow_nulls_are_refused(pa):
    """The line puts a value in their place."""
    assert ferry.to_list(refused(pa.array([LARGE, None]), "nulls")) == [LARGE, 0]
    assert ferry.to_list(refused(pa.chunked_array([[LARGE], [None]]), "nulls")) == [LARGE, 0]
    assert np.isnan(ferry.to_numpy(refused(pa.array([1.5, None]), "nulls"))[1])
    assert ferry.to_list(refused(pa.array([True, None]), "nulls")) == [True, False]
    assert refused(pa.array([[1, None]], pa.list_(pa.int8(), 2)), "nulls") == [[1, 0]]
    assert refused(pa.array([None, None])) == [None, None]
    table = pa.table({"a": [1, 2], "b": [LARGE, None]})
    assert ferry.to_list(refused(table, "Column 'b' of this Table has nulls")) == [
        [1, LARGE],
        [2, 0],
    ]
    for x in (table, pa.array([1, None])):
        with pytest.raises(ferry.CopyRequiredError, match="nulls"):
            ferry.to_numpy(x, copy=False)


def test_H79_arrow_columns_that_are_no_numbers(pa):
    """Each with a line of its own."""
    assert ferry.to_list(refused(pa.array(["b", "a", "b"]), "text")) == [1, 0, 1]
    accepted(pa.array([5, 6, 5]).dictionary_encode(), [5, 6, 5], "int64")
    assert refused(pa.array(["a", "b"]).dictionary_encode(), "categories") == [0, 1]
    assert ferry.to_list(refused(pa.array([dt.date(1970, 1, 2)]), "dates")) == [1]
    assert ferry.to_list(refused(pa.array([dt.datetime(1970, 1, 1)]), "dates")) == [0]  # noqa: DTZ001 - naive
    assert ferry.to_list(refused(pa.array([dt.timedelta(0)]), "dates")) == [0]
    assert ferry.to_list(refused(pa.array([dt.time(0, 0, 1)]), "dates")) == [1_000_000]
    assert ferry.to_list(refused(pa.array([1]).cast(pa.decimal128(20, 1)), "decimal")) == [1.0]
    accepted(pa.array([1]).cast(pa.decimal128(20)), [1], "int64")
    accepted(pa.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]], "int64")
    assert refused(pa.array([[1, 2], [3]]), "unequal lengths") == [[1, 2], [3]]
    table = pa.table({"t": ["a"], "n": [1]})
    assert ferry.to_list(refused(table, "Column 't' of this Table holds text")) == [[1]]
    table = pa.table({"d": [dt.date(1970, 1, 2)], "n": pa.array([1], pa.int32())})
    assert ferry.to_list(refused(table, "Column 'd'")) == [[1, 1]]
    with pytest.raises(ferry.LossyCastError, match="'a' is int64, 'b' is float64"):
        ferry.to_numpy(pa.table({"a": [1], "b": [1.5]}))
    assert ferry.to_numpy(pa.table({"a": [1], "b": [1.5]}), dtype="float64").tolist() == [
        [1.0, 1.5]
    ]


def test_H79_a_cast_that_is_not_permitted_names_the_column(pa):
    """``casting=`` holds for each column."""
    table = pa.table({"a": [1], "b": [1.5]})
    with pytest.raises(ferry.LossyCastError, match="in column 'a'"):
        ferry.to_numpy(table, dtype="float32", casting="safe")
    with pytest.raises(ferry.LossyCastError, match="in column 'b'"):
        ferry.to_numpy(table, dtype="int64")


# -- in trees -------------------------------------------------------------------------------------


def test_H79_tables_in_trees(pa):
    """A table is a dict of its columns; text is kept, as an array of it is; what is refused is named by its path."""
    text = pa.array(["a", None])
    tree = {"x": pa.array([1.5, 2.5]), "t": text, "b": [pa.table({"a": [1], "b": [2]})]}
    result = ferry.convert_tree(tree, "torch")
    assert result["t"] is text
    assert {name: column.tolist() for name, column in result["b"][0].items()} == {
        "a": [1],
        "b": [2],
    }
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.convert_tree({"x": [pa.array([1, None])]}, "torch")
    assert caught.value.message.endswith('at $["x"][0]')
    assert ferry.collate([{"x": pa.array([1, 2])}, {"x": pa.array([3, 4])}], "torch")[
        "x"
    ].tolist() == [[1, 2], [3, 4]]


# -- H90: images, sparse matrices -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "CMYK", "F", "I", "I;16", "I;16B"])
def test_H90_images_are_copied(mode):
    """Their pixels are made when they are asked for; the shape is known before."""
    image = pytest.importorskip("PIL.Image", reason=f"Pillow is {WHY}").new(mode, (3, 2))
    expected = np.array(image)
    info = ferry.describe(image)
    assert (info.shape, info.dtype) == (expected.shape, expected.dtype.newbyteorder("=").name)
    for target in EVERYWHERE:
        assert ferry.to_list(ferry.convert(image, target)) == expected.tolist()
        with pytest.raises(ferry.CopyRequiredError):
            ferry.convert(image, target, copy=False)
    assert ferry.to_numpy(image).flags.writeable
    assert not ferry.explain(image, "torch").shares_memory


def test_H90_a_palette_image_is_said_to_be_indices():
    """Masks are stored so, and photographs: its numbers are converted, and the plan says what they are."""
    image = pytest.importorskip("PIL.Image", reason=f"Pillow is {WHY}").new("P", (3, 2))
    assert "palette indices" in str(ferry.describe(image))
    plan = ferry.explain(image, "torch")
    assert any("indices" in each and 'x.convert("RGB")' in each for each in plan.warnings)
    assert not ferry.explain(image.convert("RGB"), "torch").warnings
    assert ferry.to_torch(image).shape == (2, 3)


def test_H90_a_broken_image_is_an_error(tmp_path):
    """Never one of zeros."""
    image = pytest.importorskip("PIL.Image", reason=f"Pillow is {WHY}")
    whole = tmp_path / "whole.png"
    image.new("RGB", (64, 64), "red").save(whole)
    part = tmp_path / "part.png"
    part.write_bytes(whole.read_bytes()[:50])
    with image.open(part) as x, pytest.raises(ferry.UnsupportedTypeError, match="cannot be read"):
        ferry.to_numpy(x)
    with image.open(whole) as x:
        assert ferry.to_torch(x)[0, 0].tolist() == [255, 0, 0]


def test_H79_sparse_matrices_are_refused_with_the_way():
    """Alone and in trees."""
    sparse = pytest.importorskip("scipy.sparse", reason="scipy is not installed")
    for x in (
        sparse.eye_array(2, format="csr"),
        sparse.coo_matrix((2, 2)),
        sparse.dok_array((2, 2)),
        sparse.dok_matrix((2, 2)),
    ):
        assert ferry.to_numpy(refused(x, "sparse")).shape == (2, 2)
        with pytest.raises(ferry.UnsupportedTypeError, match=r'sparse(.|\n)*\$\["m"\]'):
            ferry.convert_tree({"m": x}, "torch")


def test_H79_a_frame_of_dask_has_to_be_computed():
    """What comes by itself would be rounded."""
    pd = pytest.importorskip("pandas", reason=f"pandas is {WHY}")
    dd = pytest.importorskip("dask.dataframe", reason="dask is installed without its tables")
    x = dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=1)
    assert ferry.to_list(refused(x, "has not run")) == [[1], [2]]


# -- batches of Hugging Face's datasets -----------------------------------------------------------


def objects(*values):
    made = np.empty(len(values), object)
    made[:] = values
    return made


def test_a_batch_with_text_is_converted():
    """Text, text of several words and what is missing stay; numbers are converted."""
    batch = {
        "id": np.arange(2),
        "text": objects("a", None),
        "words": objects(objects("a", "b"), objects()),
        "none": objects(None, None),
        "raw": objects(b"a", b"bc"),
        "rows": objects(np.ones(2, "f4"), np.zeros(2, "f4")),
        "numbers": objects(1, 2),
    }
    result = ferry.convert_tree(batch, "torch")
    for name in ("text", "words", "none", "raw"):
        assert result[name] is batch[name]
    assert result["rows"].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert result["numbers"].tolist() == [1, 2]
    assert ferry.describe_tree(batch).keys() == {'$["id"]', '$["rows"]', '$["numbers"]'}


@pytest.mark.parametrize("odd", [("a", 1), (np.ones(1), "a"), (objects("a"), np.ones(1))])
def test_text_among_numbers_is_refused_by_path(odd):
    """It is neither."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["x"\]'):
        ferry.convert_tree({"x": objects(*odd), "y": np.ones(1)}, "torch")


def test_ragged_rows_are_refused_by_path():
    """As a list of them is."""
    with pytest.raises(ferry.ShapeError, match=r'x\[1\](.|\n)*\$\["x"\]'):
        ferry.convert_tree({"x": objects(np.ones(1), np.ones(2)), "t": objects("a", "b")}, "torch")


@pytest.mark.parametrize("order", [1, -1])
def test_text_is_kept_beside_numbers_of_the_same_dtype(order):
    """Both are arrays of objects: what one holds says nothing of the other."""
    leaves = [objects(1.5, 2.5), objects("a", "b")][::order]
    kept = ferry.convert_tree(leaves, "torch")
    assert {type(leaf) for leaf in kept} == {torch.Tensor, np.ndarray}


def test_an_array_of_dicts_says_how_it_is_entered():
    """Its list is a tree."""
    tree = {"x": objects({"a": np.ones(1), "t": "b"}, {"a": np.ones(1), "t": "c"})}
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.convert_tree(tree, "torch")
    code = caught.value.hint.partition(" in its place")[0]
    entered = ferry.convert_tree(eval(code, {"x": tree, "np": np}), "torch")  # noqa: S307 - that is what the hint is for
    assert isinstance(entered[1]["a"], torch.Tensor)


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
def test_batches_of_datasets_themselves(form):
    """With the real package."""
    datasets = pytest.importorskip("datasets", reason=f"datasets is {WHY}")
    columns = {
        "id": [1, 2],
        "text": ["a", None],
        "emb": [[1.0, 2.0], [3.0, 4.0]],
        "words": [["a", "b"], ["c"]],
    }
    x = datasets.Dataset.from_dict({**columns, "none": [None, None]}).with_format(form)
    leaves = (
        "tensors"
        if form
        else lambda x: isinstance(x, list) and bool(x) and isinstance(x[0], (int, float))
    )
    result = ferry.convert_tree(x[:], "torch", leaves=leaves)
    assert list(result["text"]) == ["a", None]
    assert result["id"].tolist() == [1, 2]
    assert [list(each) for each in result["emb"]] == columns["emb"]
    assert ferry.to_torch(x["emb"]).tolist() == columns["emb"]
    assert ferry.to_torch(x["id"]).tolist() == [1, 2]
    with pytest.raises(ferry.UnsupportedTypeError, match="several columns") as caught:
        ferry.to_torch(x)
    whole = ferry.convert_tree(x, "torch")
    assert list(whole) == [*columns, "none"]
    assert whole["emb"].tolist() == columns["emb"]
    tree, _, batches = caught.value.hint.partition(", or batch by batch: ")
    assert isinstance(eval(tree, {"x": x, **PUBLIC}), dict)  # noqa: S307 - that is what the hint is for
    with pytest.raises(ferry.UnsupportedTypeError, match="several columns") as streamed:
        ferry.to_torch(x.to_iterable_dataset())
    for code, given in ((batches, x), (streamed.value.hint, x.to_iterable_dataset())):
        (batch,) = eval(code, {"x": given, **PUBLIC})  # noqa: S307 - that is what the hint is for
        assert batch["emb"].tolist() == columns["emb"]


# -- masked arrays without a masked element -------------------------------------------------------


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H12_a_mask_without_a_masked_element_is_none(target):
    """Alone, in a list, in a tree, in an array of objects, from an object; shared as its data are."""

    class Gives:
        def __array__(self, dtype=None, copy=None):
            return np.ma.array(np.float32([1, 2]), mask=[False, False])

    for x in (
        np.ma.array(np.float32([1, 2])),
        np.ma.array(np.float32([1, 2]), mask=[False, False]),
        Gives(),
    ):
        assert ferry.to_list(ferry.convert(x, target)) == [1.0, 2.0]
        assert ferry.to_list(ferry.convert([x, x], target)) == [[1.0, 2.0]] * 2
        assert ferry.to_list(ferry.convert_tree({"x": x}, target)["x"]) == [1.0, 2.0]
    assert ferry.to_list(
        ferry.convert(objects(np.ma.array(np.float32([1])), np.ma.array(np.float32([2]))), target)
    ) == [[1.0], [2.0]]
    assert ferry.to_list(ferry.convert([1.0, np.ma.array(2.0)], target)) == [1.0, 2.0]
    assert ferry.to_list(ferry.convert(np.ma.array([1, 2], object), target)) == [1, 2]


def test_H12_what_comes_of_a_masked_array_is_a_plain_one():
    """Over the same memory; a snapshot and a collated batch too."""
    x = np.ma.array(np.arange(4.0))
    result = ferry.to_numpy(x)
    assert type(result) is np.ndarray
    assert np.shares_memory(result, x.data)
    assert ferry.collate([x, x], "torch").shape == (2, 4)
    assert ferry.shares_memory(x, result)
    assert type(ferry.snapshot({"x": x})["x"]) is np.ndarray


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ma.masked,
        lambda: [np.ma.masked],
        lambda: np.ma.array([1, 2], mask=[0, 1]),
        lambda: np.ma.array([1, None], object, mask=[0, 1]),
        lambda: np.ma.array([(1.0, 2)], dtype=[("a", "f4"), ("b", "i4")], mask=[(True, False)]),
        lambda: np.array([np.ma.array([1, 2], mask=[0, 1]), None], object),
    ],
)
def test_H12_a_masked_element_is_refused_everywhere(make):
    """Though the type is the same."""
    ferry.to_numpy(np.ma.array([1.0]))
    for tree in (make(), {"x": make()}, [make()]):
        with pytest.raises(ferry.ConversionError):
            ferry.convert_tree(tree, "torch")
    with pytest.raises(ferry.ConversionError):
        ferry.to_numpy(make())


def test_H12_fields_of_a_masked_array_without_a_mask():
    """They are refused as fields are, with a line that takes each; of the last target that is asked, to lists."""
    x = np.ma.array([(1.0, 2)], dtype=[("a", "f4"), ("b", "i4")])
    assert refused(x, "structured") == {"a": [1.0], "b": [2]}
