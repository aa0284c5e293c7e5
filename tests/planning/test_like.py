"""H102: `like=` gives its dtype to tensors of its kind only; what has no dtype of its own takes it."""

import itertools

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry
from tensorferry import TensorInfo

# The kinds are those of NumPy's own letters, in which signed and unsigned integers are one.
VALUES = {
    "bool": [True, False, True],
    "uint8": [2, 0, 1],
    "int16": [2, 0, 1],
    "int32": [2, 0, 1],
    "float16": [0.5, 2, 1],
    "bfloat16": [0.5, 2, 1],
    "float32": [0.5, 2, 1],
    "complex64": [1, 1j, 2],
}
LIKES = ["bool", "uint8", "int32", "float16", "float32", "complex64"]
SOURCES = {
    "numpy": lambda a: a,
    "torch": lambda a: (
        torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
        if a.dtype == ml_dtypes.bfloat16
        else torch.from_numpy(a)
    ),
    "tensorflow": tf.constant,
    "jax": jnp.asarray,
}


def array(dtype):
    return np.array(VALUES[dtype], ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def kind_of(dtype):
    letter = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).kind
    return {"u": "i", "V": "f"}.get(letter, letter)


def like_of(target, dtype):
    return SOURCES[target](np.ones(2, dtype))


@pytest.mark.parametrize(("source", "target"), [*itertools.product(SOURCES, SOURCES)])
def test_the_dtype_goes_to_tensors_of_its_kind(source, target):
    """In all ways in: with and without keywords, planned, described by hand, into a tree of one leaf, in a transfer."""
    for dtype, wanted in itertools.product(VALUES, LIKES):
        x, like = SOURCES[source](array(dtype)), like_of(target, wanted)
        becomes = wanted if kind_of(dtype) == kind_of(wanted) else dtype
        results = [
            ferry.convert(x, like=like),
            ferry.convert(x, like=like, copy=True),
            *ferry.convert_tree([x], like=like),
            *ferry.convert_tree([x], like=[like]),
            ferry.start(x, like=like).result(),
            *ferry.prefetch([x], like=like),
        ]
        plans = [
            ferry.explain(x, like=like),
            ferry.explain(x, like=TensorInfo(target, (1,), wanted)),
            ferry.explain(TensorInfo(source, (3,), dtype), like=like),
            ferry.explain_tree({"x": x}, like=like).leaves[0].plan,
        ]
        found = {ferry.describe(each).dtype for each in results} | {
            plan.result.dtype for plan in plans
        }
        assert found == {becomes}, (dtype, wanted)
        assert all(ferry.to_list(each) == VALUES[dtype] for each in results), (dtype, wanted)


def test_masks_and_indices_select():
    """What a library computes with NumPy selects from the tensor that its caller gave."""
    t = torch.tensor([0.25, 0.75, 0.5])
    a = t.numpy()
    assert t[ferry.convert(a > 0.4, like=t)].tolist() == [0.75, 0.5]
    assert t[ferry.convert(np.argsort(a), like=t)].tolist() == [0.25, 0.5, 0.75]
    x = jnp.asarray(a)
    assert x[ferry.convert(a > 0.4, like=x)].tolist() == [0.75, 0.5]


NUMBERS = {
    "ints": [1, 0, 1],
    "floats": [1.0, 0.0],
    "bools": [True, False],
    "one": 1,
    "rows": [[1], [0]],
}
NUMBERS["many"] = list(range(2)) * 3000
NUMBERS["objects"] = np.array([1, 0.0], object)


@pytest.mark.parametrize("target", SOURCES)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_python_numbers_have_no_dtype_so_they_take_it(numbers, target):
    """Of whatever kind; a value that the dtype does not have is refused."""
    x = NUMBERS[numbers]
    for wanted in LIKES:
        like = like_of(target, wanted)
        for result in (ferry.convert(x, like=like), ferry.convert(x, like=like, copy=True)):
            assert ferry.describe(result).dtype == wanted
            assert ferry.to_list(result) == (x.tolist() if isinstance(x, np.ndarray) else x)
        assert ferry.explain(x, like=like).result.dtype == wanted
    assert (
        ferry.explain(
            TensorInfo("python", (3,), "int64"), like=like_of(target, "float16")
        ).result.dtype
        == "float16"
    )
    with pytest.raises(ferry.LossyCastError, match=r"the value at \[1\] has a fraction"):
        ferry.convert([1, 2.5], like=like_of(target, "int32"))


def test_a_number_with_a_dtype_keeps_its_kind():
    """NumPy's scalars have one."""
    like = torch.ones(1)
    assert ferry.convert(np.float64(0.5), like=like).dtype == torch.float32
    assert ferry.convert(np.int16(3), like=like).dtype == torch.int16
    assert ferry.convert(np.bool_(True), like=like).dtype == torch.bool


def test_a_stack_of_tensors_has_the_kind_of_their_common_dtype():
    """If they have none, the floats among them decide, and every value is kept."""
    floats, ints = np.ones(2, np.float32), np.array([1, 2])
    like = torch.ones(1, dtype=torch.float64)
    assert ferry.convert([ints, ints.astype("int8")], like=like).dtype == torch.int64
    assert ferry.convert([floats, floats.astype("float16")], like=like).dtype == torch.float64
    assert ferry.convert([ints, floats], like=like).tolist() == [[1.0, 2.0], [1.0, 1.0]]
    with pytest.raises(ferry.LossyCastError, match="No dtype holds every value"):
        ferry.convert([ints, floats], like=torch.ones(1, dtype=torch.int32))


def arrow(x, dtype):
    return pa.array(
        [None if each is None else bool(each) for each in x] if dtype == pa.bool_() else x, dtype
    )


def polars_series(x, dtype):
    return pl.Series(x, dtype=dtype, strict=False)


COLUMNS = {
    "pandas": (pd.Series, {"int64": "int64", "float64": "float64", "bool": "bool"}),
    "pandas-nullable": (pd.Series, {"Int64": "int64", "Float64": "float64", "boolean": "bool"}),
    "polars": (polars_series, {pl.Int64: "int64", pl.Float64: "float64", pl.Boolean: "bool"}),
    "arrow": (arrow, {pa.int64(): "int64", pa.float64(): "float64", pa.bool_(): "bool"}),
}


@pytest.mark.parametrize("library", COLUMNS)
def test_columns_count_by_the_kind_of_their_own_dtype(library):
    """With nulls that are replaced too."""
    make, kinds = COLUMNS[library]
    for own, dtype in kinds.items():
        for wanted in ("float32", "int32", "bool"):
            becomes = wanted if kind_of(dtype) == kind_of(wanted) else dtype
            like, x = torch.ones(1, dtype=getattr(torch, wanted)), make([1, 0, 1], dtype=own)
            found = ferry.convert(x, like=like)
            assert (str(found.dtype), found.tolist()) == (f"torch.{becomes}", [1, 0, 1])
            assert ferry.explain(x, like=like).result.dtype == becomes
            if library in ("polars", "arrow", "pandas-nullable"):
                lacking, zero = make([1, None], dtype=own), dtype != "bool" and 0
                found = ferry.convert(lacking, like=like, nulls=zero)
                assert (str(found.dtype), found.tolist()) == (f"torch.{becomes}", [1, 0])
                assert ferry.explain(lacking, like=like, nulls=zero).result.dtype == becomes
                values, mask = ferry.convert(lacking, like=like, nulls="mask")
                assert (str(values.dtype), mask.tolist()) == (f"torch.{becomes}", [True, False])


def test_a_table_has_the_kind_of_the_dtype_that_its_columns_have_together():
    """If they have none, it is one of floats.

    Dates have no kind, and are not counted for `like=`.
    """
    like = np.ones(1, np.float32)
    assert ferry.convert(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), like=like).dtype == np.int64
    assert ferry.convert(pd.DataFrame({"a": [0.5], "b": [3.0]}), like=like).dtype == np.float32
    mixed = pd.DataFrame({"a": [1, 2], "b": [0.5, 1]})
    assert ferry.convert(mixed, like=like).tolist() == [[1, 0.5], [2, 1]]
    with pytest.raises(ferry.LossyCastError, match="have no dtype in common"):
        ferry.convert(mixed, like=np.ones(1, int))
    dates = pd.Series(pd.to_datetime(["2020-01-01"]))
    for dtype in (int, float):
        with pytest.raises(ferry.UnsupportedTypeError, match="holds dates"):
            ferry.convert(dates, like=np.ones(1, dtype))


def test_a_decimal_column_is_read_as_the_dtype_of_like():
    """Its own dtype is float64, in which it would be rounded first."""
    from decimal import Decimal

    column = pa.array([Decimal("1.00000005960464477539062500001")])
    # Half a step above 1, and a little more. In float64, the little is lost, and the tie goes to 1.
    assert np.float32(np.float64("1.00000005960464477539062500001")) == 1
    like = np.ones(1, np.float32)
    assert ferry.convert(column, like=like).tolist() == [1 + 2**-23]
    assert ferry.convert(column, like=like, nulls=0).tolist() == [1 + 2**-23]
    assert ferry.convert_tree([column], like=like)[0].tolist() == [1 + 2**-23]
    with pytest.raises(ferry.UnsupportedTypeError, match="decimals with a fraction"):
        ferry.convert(column, like=np.ones(1, int))


def test_an_array_of_another_kind_keeps_its_dtype_or_is_refused_as_without_like():
    """A target that lacks the dtype says what to do, as in a call without dtype=."""
    assert ferry.convert(np.array([0.5]), like=torch.tensor([1])).dtype == torch.float64
    assert (
        ferry.convert(np.array([0.5]), like=torch.tensor([1]), dtype="int8", casting="unsafe").dtype
        == torch.int8
    )
    with pytest.raises(ferry.LossyCastError, match="jax has no int64 while") as error:
        ferry.convert(np.argsort([1.5, 0.5]), like=jnp.ones(1))
    assert 'dtype="fit"' in str(error.value)
    assert ferry.convert(np.argsort([1.5, 0.5]), like=jnp.ones(1), dtype="fit").tolist() == [1, 0]


def test_out_decides_before_like():
    """The dtype of the memory that is written into is that of `out`."""
    out = np.empty(2, np.int16)
    assert ferry.convert(np.array([1, 2]), like=np.ones(1, np.float32), out=out) is out
    assert out.tolist() == [1, 2]


def test_a_function_with_a_fixed_target_has_no_like():
    """It is no keyword of theirs, and is not taken in silence."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'like'"):
        ferry.to_numpy([1], like=np.ones(1))


def test_what_only_gives_its_memory_is_no_target():
    """The error was about "array-like" as a target, which nobody had asked for; its hint was about `x`."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    like = xarray.DataArray(np.ones(2, "float32"), dims="t", coords={"t": [3, 5]})
    for call in (ferry.convert, ferry.explain, ferry.convert_tree):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r"like= is a DataArray, .* no result can be one"
        ) as caught:
            call(torch.ones(2, dtype=torch.float64), like=like)
    assert caught.value.hint == 'to="numpy", without like='
    x = torch.ones(2, dtype=torch.float64)
    for each in (like, like.variable):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.convert(x, like=each)
        first, _, second = caught.value.hint.partition(", which keeps its dimensions")
        names = {"to_numpy": ferry.to_numpy, "x": x, "like": each, "np": np}
        made = eval(first, names)  # noqa: S307 - that is what the hint is for
        assert (type(made), made.dims) == (type(each), ("t",))
        assert made.values.tolist() == [1, 1]
        assert "like=np.asarray(like)" in second
    assert like.copy(data=ferry.to_numpy(x)).t.values.tolist() == [3, 5]
    result = ferry.convert(torch.ones(2, dtype=torch.float64), like=np.asarray(like))
    assert (type(result), result.dtype) == (np.ndarray, np.float32)


def test_a_table_of_arrow_is_not_what_comes_back():
    """It came back as an array of rows, in silence."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    table = pa.table({"a": [0.0, 0.0], "b": [0.0, 0.0]})
    for like in (table, table.to_batches()[0]):
        for call in (ferry.convert, ferry.explain):
            with pytest.raises(
                ferry.UnsupportedTypeError, match="which is several arrays"
            ) as caught:
                call(x, like=like)
        code, _, other = caught.value.hint.partition(", which makes one of two axes; or ")
        names = {"to_numpy": ferry.to_numpy, "x": x, "like": like, "pa": pa}
        made = eval(code, names)  # noqa: S307 - that is what the hint is for
        assert type(made) is type(like)
        assert made.to_pydict() == {"a": [1, 3], "b": [2, 4]}
        assert other == 'to="arrow", without like='
    back = ferry.convert_tree({"a": x[:, 0].clone(), "b": x[:, 1].clone()}, like=table)
    assert pa.table(back).to_pydict() == {"a": [1, 3], "b": [2, 4]}
