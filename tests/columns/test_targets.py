"""Columns and tables as targets: values, memory, what is refused; and the same as `like=`, in trees and copies."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")

MADE = {"arrow": ferry.to_arrow, "pandas": ferry.to_pandas, "polars": ferry.to_polars}
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
    "float32",
    "float64",
]


def plain(x):
    """Values of a result, as its own library has them in Python."""
    if isinstance(x, pa.FixedShapeTensorArray):
        return (
            x.to_numpy_ndarray().tolist()
            if x.type.value_type != pa.bool_()
            else [each.tolist() for each in x]
        )
    if isinstance(x, pa.Array):
        return x.to_pylist()
    if isinstance(x, pd.DataFrame):
        return x.to_numpy().tolist()
    if isinstance(x, pl.DataFrame):
        return [list(row) for row in x.rows()]
    return x.to_list()


def shape_of(x):
    return x.shape if isinstance(x, (pd.DataFrame, pl.DataFrame)) else (len(x),)


@pytest.mark.parametrize("target", MADE)
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("layout", ["plain", "empty", "reversed", "two", "columns", "swapped"])
def test_every_dtype_and_layout_arrives(target, dtype, layout):
    """With its values, in the library's own type, whatever the source lies like."""
    values = np.array([0, 1, 1, 0, 1, 1]).astype(dtype)
    x = {
        "plain": values,
        "empty": values[:0],
        "reversed": values[::-1],
        "two": values.reshape(2, 3),
        "columns": values.reshape(2, 3).T,
        "swapped": values.astype(values.dtype.newbyteorder()),
    }[layout]
    found = MADE[target](x)
    if layout in ("two", "columns") and target == "arrow" and dtype == "bool":
        assert ferry.to_list(found) == x.tolist()
    else:
        assert plain(found) == x.tolist()
    kinds = {
        "arrow": (pa.Array,) * 2,
        "pandas": (pd.Series, pd.DataFrame),
        "polars": (pl.Series, pl.DataFrame),
    }
    assert isinstance(found, kinds[target][x.ndim - 1])
    back = ferry.to_numpy(found)
    assert back.dtype == dtype
    assert back.tolist() == x.tolist()


@pytest.mark.parametrize("target", MADE)
def test_writable_memory_is_copied_and_shared_with_consent_alone(target):
    """All three take their memory for constant."""
    x = np.arange(6.0)
    found = MADE[target](x)
    x[0] = 9
    assert plain(found)[0] == 0
    found = MADE[target](x, copy=False)
    assert ferry.shares_memory(found, x)
    x[1] = 9
    assert plain(found)[:2] == [9, 9]
    assert "a constant" in str(ferry.explain(x, target, copy=False))


@pytest.mark.parametrize("target", MADE)
def test_immutable_memory_is_shared(target):
    """With each other, and with JAX."""
    jax = pytest.importorskip("jax")
    column = pa.array(np.arange(64, dtype="float32"))
    assert ferry.shares_memory(MADE[target](column), column)
    x = jax.numpy.arange(64, dtype="float32")
    found = MADE[target](x)
    assert ferry.shares_memory(found, x)
    assert ferry.to_numpy(found).flags.writeable is False


def test_what_is_there_already_comes_back():
    """With its name, its index and the names of its columns, whatever its memory is like."""
    apart = pd.concat(
        [pd.DataFrame({"a": [1.0]}, index=[4]), pd.DataFrame({"b": [2.0]}, index=[4])], axis=1
    )
    kept = [pl.Series("flags", [True]), pl.DataFrame({"a": [1], "b": [2]}), pl.Series("n", [1])]
    kept += [
        pl.DataFrame({"a": [True]}),
        pa.array([True, False]),
        apart,
        pd.DataFrame({"a": [1]}),
        pd.Series([1], index=[3], name="n"),
    ]
    for x in kept:
        target = type(x).__module__.partition(".")[0]
        assert ferry.convert(x, target) is x
        assert ferry.convert(x, target, copy=False) is x
        assert ferry.explain(x, target).shares_memory
        assert ferry.convert(x, target, copy=True) is not x
        assert ferry.to_list(ferry.convert(x, target, dtype="float32")) == ferry.to_list(x)


def test_a_frame_that_is_read_as_numbers_becomes_numbers():
    """Decimals, categories and Python objects are no numbers yet."""
    decimals = pd.ArrowDtype(pa.decimal128(38, 0))
    for column in (
        pd.Categorical([3, 1]),
        np.array([3, 1], object),
        pd.array([3, 1], dtype=decimals),
    ):
        assert [str(each) for each in ferry.to_pandas(pd.DataFrame({"a": column})).dtypes] == [
            "int64"
        ]
    with pytest.raises(ferry.LossyCastError, match="the value at row 1 does not fit"):
        ferry.to_pandas(pd.DataFrame({"a": pd.array([1, 2**70], dtype=decimals)}))
    of_polars = pl.DataFrame({"a": pl.Series([3, 1], dtype=pl.Decimal(38, 0))})
    assert ferry.to_polars(of_polars).dtypes == [pl.Int64]
    empty = pd.DataFrame({"day": pd.to_datetime([])})
    assert [str(each) for each in ferry.to_pandas(empty, dtype="int64").dtypes] == ["int64"]


def test_a_series_over_memory_that_is_not_to_be_written_says_so():
    """It raises, and the source is what it was; a copy can be written."""
    column = pa.array([1.0, 2.0])
    series = ferry.to_pandas(column)
    with pytest.raises(ValueError, match="read-only"):
        series.iloc[0] = 5
    own = ferry.to_pandas(column, copy=True)
    own.iloc[0] = 5
    assert column.to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("x", "target", "shape"),
    [
        (1.5, "arrow", (1,)),
        (torch.tensor(2), "polars", (1,)),
        (np.ones((2, 1, 3)), "pandas", (2, 3)),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 1, 3))), "pandas", (2, 3)),
        ([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "polars", (2, 4)),
    ],
    ids=["number", "scalar", "numpy", "arrow", "lists"],
)
def test_another_number_of_axes_is_had_as_the_hint_says(x, target, shape):
    """Numbers, lists and Arrow arrays have no method `reshape`, so that an array is made first."""
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.convert(x, target)
    code = caught.value.hint.partition(", which ")[0]
    reshaped = eval(code, {"to_numpy": ferry.to_numpy, "x": x})  # noqa: S307 - a hint
    assert ferry.describe(ferry.convert(reshaped, target)).shape == shape


@pytest.mark.parametrize("target", MADE)
def test_what_it_cannot_hold_is_refused(target):
    """No axis, too many, a dtype that it has not, a device, `out=`."""
    made = MADE[target]
    with pytest.raises(ferry.ShapeError, match="at least 1 axis"):
        made(np.float32(1))
    if target == "arrow":
        assert ferry.to_list(made(np.ones((2, 2, 2)))) == np.ones((2, 2, 2)).tolist()
    else:
        with pytest.raises(ferry.ShapeError, match="at most 2 axes"):
            made(np.ones((2, 2, 2)))
    with pytest.raises(ferry.LossyCastError, match="no bfloat16"):
        made(torch.ones(2, dtype=torch.bfloat16))
    assert ferry.to_list(made(torch.ones(2, dtype=torch.bfloat16), dtype="fit")) == [1, 1]
    if target != "pandas":
        with pytest.raises(ferry.LossyCastError, match="no complex"):
            made(np.array([1j]))
        with pytest.raises(ferry.LossyCastError, match="no complex"):
            made([1j])
    with pytest.raises(ferry.DeviceError):
        made([1.0], device="cuda")
    with pytest.raises(
        TypeError, match=f"{made.__name__}.. got an unexpected keyword argument 'out'"
    ):
        made([1.0], out=np.zeros(1))
    for x in ([1.0], np.ones(1)):
        for out in (1, made(np.ones(1)), np.ones(1)):
            with pytest.raises(ferry.UnsupportedTypeError, match="out="):
                ferry.convert(x, target, out=out)
    with pytest.raises(ferry.CopyRequiredError):
        made([1.0], copy=False)


@pytest.mark.parametrize("target", MADE)
def test_it_is_a_target_like_any_other(target):
    """By name, module and class, `like=`, in trees, in batches, as a copy."""
    module = {"arrow": pa, "pandas": pd, "polars": pl}[target]
    kind = {"arrow": pa.Array, "pandas": pd.Series, "polars": pl.Series}[target]
    y = ferry.convert(np.arange(2, dtype="int16"), target)
    for found in (
        ferry.convert([1, 2], module),
        ferry.convert([1, 2], kind),
        ferry.convert([1, 2], like=y),
    ):
        assert type(found) is type(y) or target == "arrow"
        assert plain(found) == [1, 2]
    assert ferry.describe(ferry.convert([1, 2], like=y)).dtype == "int16"
    tree = ferry.convert_tree({"a": torch.arange(2), "b": ["text"]}, target)
    assert plain(tree["a"]) == [0, 1]
    assert tree["b"] == ["text"]
    assert plain(ferry.collate([{"a": 1.0}, {"a": 2.0}], target)["a"]) == [1, 2]
    copied = ferry.snapshot({"y": y})["y"]
    assert isinstance(copied, kind)
    assert not ferry.shares_memory(copied, y)
    assert ferry.convert(y, target) is y
    assert ferry.frameworks()[target].installed


def test_none_is_imported_to_look():
    """A plan for each can be made without it; a conversion to one that is not there says how to install it."""
    from tests.support import survives

    survives("""
import sys
for name in ("pyarrow", "pandas", "polars"):
    sys.modules[name] = None
import numpy as np
import tensorferry as ferry
for target in ("arrow", "pandas", "polars"):
    assert ferry.explain(ferry.TensorInfo(target, (3,), "float32"), "numpy").shares_memory
    try:
        ferry.convert(np.ones(3), target)
    except ferry.FrameworkNotInstalledError as error:
        assert error.hint.startswith("pip install"), error.hint
    else:
        raise AssertionError(target)
ferry.convert_tree({"a": np.ones(3)}, "numpy")
""")
    survives("""
import sys
import numpy as np
import tensorferry as ferry
ferry.convert_tree({"a": np.ones(3), "b": [1]}, "numpy")
assert not {"pyarrow", "pandas", "polars"} & set(sys.modules)
""")


NULLS = {
    "pandas": lambda: pd.Series([1, None], dtype="Int16"),
    "pandas-objects": lambda: pd.Series([1, None], dtype=object),
    "polars": lambda: pl.Series([True, None]),
    "polars-rows": lambda: pl.Series([[1.5], [1.5, 2]], dtype=pl.List(pl.Float32)),
    "arrow": lambda: pa.array([1, None], pa.uint8()),
    "frame": lambda: pl.DataFrame({"a": [1, None], "b": [2, 3]}),
}


@pytest.mark.parametrize("kind", NULLS)
def test_a_column_with_nulls_has_a_dtype_to_follow(kind):
    """Its own values are not converted, so that nothing of them can be lost."""
    like = NULLS[kind]()
    framework = {"pandas-objects": "pandas", "polars-rows": "polars", "frame": "polars"}.get(
        kind, kind
    )
    dtype = {"pandas": "int16", "polars": "bool", "polars-rows": "float32", "arrow": "uint8"}.get(
        kind, "int64"
    )
    ones = np.ones(2, {"polars": "bool", "polars-rows": "float64"}.get(kind, "int32"))
    found = [ferry.convert(ones, like=like)]
    if kind != "frame":  # which is a container in a tree
        found += ferry.convert_tree([ones], like=[like])
    for each in found:
        assert ferry.describe(each).framework == framework
        assert ferry.describe(each).dtype == dtype
        assert plain(each) == [1, 1]


def test_a_table_with_nulls_can_be_made_again():
    """Column by column."""
    table = pa.table({"a": [1, None], "b": [1.5, 2.5], "t": ["x", "y"]})
    back = ferry.convert_tree(ferry.convert_tree(table, "torch", nulls=0), like=table)
    assert [each.to_pylist() for each in back.values()] == [[1, 0], [1.5, 2.5], ["x", "y"]]


def test_what_has_no_dtype_is_nothing_to_follow():
    """Text in Arrow, which has no labels either; and a stream is not read for its dtype."""
    batches = pa.table({"a": [1, None]}).to_batches()
    stream = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    for like in (pa.array(["a"]), pa.array([None]), stream):
        with pytest.raises(ferry.UnsupportedTypeError, match="like= has to be a tensor"):
            ferry.convert(np.ones(2), like=like)
    assert stream.read_all().num_rows == 2


def test_polars_float16():
    """polars has it since the end of 2025; bits are kept."""
    if not hasattr(pl, "Float16"):
        with pytest.raises(ferry.LossyCastError, match="polars has no float16"):
            ferry.to_polars(np.ones(2, np.float16))
        return
    bits = np.arange(2**16, dtype=np.uint16)
    for shape in ((-1,), (-1, 2)):
        made = ferry.to_polars(bits.view(np.float16).reshape(shape))
        assert ferry.to_numpy(made).view(np.uint16).tolist() == bits.reshape(shape).tolist()
    frame = pl.DataFrame({"x": pl.Series([1.5], dtype=pl.Float16)})
    assert ferry.snapshot(frame)["x"].dtype == pl.Float16


def test_pandas_arrays_over_numpys():
    x = pd.Series([1.5, 2.5]).array
    assert ferry.to_list(x) == [1.5, 2.5]
    assert ferry.to_list(pd.Series(["a"]).astype(object).array[:0].astype("int64")) == []


def test_the_hint_for_too_many_axes_keeps_the_rows():
    """A table has two; those of length 1 are left out, or the last are joined."""
    for shape, kept in {(2, 3, 4): (2, 12), (2, 1, 4): (2, 4), (0, 3, 4): (0, 12)}.items():
        x = np.zeros(shape, "float32")
        with pytest.raises(ferry.ShapeError, match="at most 2 axes") as caught:
            ferry.to_pandas(x)
        code = caught.value.hint.partition(", which")[0]
        assert ferry.to_pandas(eval(code, {**vars(ferry), "x": x})).shape == kept  # noqa: S307 - of the hint
