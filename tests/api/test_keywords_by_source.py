"""No keyword is ignored in silence: for each source and target it has its effect, or it is refused by its name."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.support import EVERYWHERE

import tensorferry as ferry
from tensorferry.backends import registry

jnp = pytest.importorskip("jax.numpy")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")


def jagged():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


TENSORS = {
    "numpy": lambda: np.ones((2, 2), "f4"),
    "a NumPy scalar": lambda: np.float32(1),
    "NaN": lambda: np.array([1, np.nan], "f4"),
    "torch": lambda: torch.ones(2),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "tensorflow": lambda: tf.ones(2),
    "a variable": lambda: tf.Variable([1.0]),
    "jax": lambda: jnp.ones(2),
    "a number": lambda: 1.5,
    "bytes": lambda: b"abc",
    "a range": lambda: range(3),
}
"""What has neither nulls nor rows of unequal lengths."""
NOT_THESE = {
    "jagged": jagged,
    "nested": nested,
    "sparse": lambda: torch.eye(2).to_sparse(),
}
"""What is no plain tensor: the keywords of columns do not change that."""
COLUMNS = {
    "pandas": lambda rows: pd.Series(rows, dtype=object),
    "polars": lambda rows: pl.Series(
        rows, dtype=pl.List(pl.Int64) if isinstance(rows[0], list) else pl.Int64
    ),
    "arrow": lambda rows: pa.array(
        rows, pa.list_(pa.int64()) if isinstance(rows[0], list) else pa.int64()
    ),
    "a list": list,
    "an array of objects": lambda rows: np.array([*rows, None], object)[:-1],
}
TABLES = {
    "pandas": lambda: pd.DataFrame({"a": [1.0, 2.0]}),
    "polars": lambda: pl.DataFrame({"a": [1.0, 2.0]}),
    "arrow": lambda: pa.table({"a": [1.0, 2.0]}),
}
CALLS = {
    "convert": ferry.convert,
    "explain": ferry.explain,
    **{
        f"to_{name}": getattr(ferry, f"to_{name}")
        for name in ("numpy", "torch", "tensorflow", "jax", "list")
    },
}
KEYWORDS = {"nulls": 0, "ragged": "rows", "pad": 0}


def called(call, x, target="torch", **keywords):
    return (
        CALLS[call](x, **keywords) if call.startswith("to_") else CALLS[call](x, target, **keywords)
    )


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("source", [*TENSORS, *NOT_THESE])
def test_a_tensor_takes_no_keyword_of_columns(source, call, keyword):
    """The message begins with the keyword."""
    x = (TENSORS | NOT_THESE)[source]()
    with pytest.raises(ferry.UnsupportedTypeError, match=f"^{keyword}= is for columns") as caught:
        called(call, x, **{keyword: KEYWORDS[keyword]})
    if source in TENSORS:
        code = caught.value.hint.partition(", without")[0]
        functions = {name: getattr(ferry, name) for name in ferry.__all__}
        assert eval(code, {**functions, "x": x}) is not None  # noqa: S307 - that is what the hint is for


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("source", NOT_THESE)
def test_what_is_no_plain_tensor_has_no_mask_either(source, call):
    """It would have the shape that its library says, which is none."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r"^nulls= is for columns"):
        called(call, NOT_THESE[source](), nulls="mask")


@pytest.mark.parametrize("keyword", ["ragged", "pad"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_has_no_rows_of_one_column(kind, call, keyword):
    with pytest.raises(
        ferry.UnsupportedTypeError, match=f"^{keyword}= is about the rows of one column"
    ) as caught:
        called(call, TABLES[kind](), **{keyword: KEYWORDS[keyword]})
    assert keyword in caught.value.hint
    assert "tree(x" in caught.value.hint


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_and_lists_take_them(kind, target):
    """Each has its effect, also where a list stands for the column."""
    make, fit = COLUMNS[kind], {"dtype": "fit"}
    assert ferry.to_list(ferry.convert(make([1, None, 3]), target, nulls=7, **fit)) == [1, 7, 3]
    values, mask = ferry.convert(make([1, None, 3]), target, nulls="mask", **fit)
    assert (ferry.to_list(values), ferry.to_list(mask)) == ([1, 0, 3], [True, False, True])
    assert ferry.to_list(ferry.convert(make([[1, 2], [3]]), target, pad=7, **fit)) == [
        [1, 2],
        [3, 7],
    ]
    rows = ferry.convert(make([[1, 2], [3]]), target, ragged="rows", **fit)
    assert [ferry.to_list(row) for row in rows] == [[1, 2], [3]]


OPTIONS = sorted(
    {
        name
        for each in registry.known().values()
        for name in (*each.capabilities.options.names, *each.capabilities.options.finishers)
    }
)
TARGETS = [name for name, each in registry.known().items() if each.is_target and name != "cupy"]


def has_option(target, option):
    options = registry.backend_named(target).capabilities.options
    return option in options.names | options.finishers


@pytest.mark.parametrize("source", TENSORS)
@pytest.mark.parametrize(
    ("target", "option"), [(t, o) for t in TARGETS for o in OPTIONS if not has_option(t, o)]
)
def test_a_target_refuses_an_option_that_it_does_not_have(source, target, option):
    """By its name, whatever the source is; in trees too."""
    x = TENSORS[source]()
    for call in (ferry.convert, ferry.explain, ferry.convert_tree, ferry.explain_tree, ferry.start):
        with pytest.raises(TypeError, match=f"{target} has no option {option}="):
            call(x, target, **{option: True})
    with pytest.raises(TypeError, match=f"{target} has no option {option}="):
        ferry.prefetch([x], target, **{option: True})


def test_there_are_options_to_refuse():
    """So that the test above tests something."""
    assert {"pinned", "variable", "non_blocking"} <= {*OPTIONS}


@pytest.mark.parametrize(
    "name", ["scipy", "SciPy", "xarray", "h5py", "pillow", "PIL", "pyarrow2", "numexpr", "scikit"]
)
def test_a_library_that_is_no_target_is_not_taken_for_another(name):
    """`scipy` is not a misspelt `cupy`."""
    with pytest.raises(ferry.UnknownFrameworkError) as caught:
        ferry.convert(np.ones(2), name)
    assert "cupy" not in caught.value.hint or caught.value.hint.startswith('to="python", or one of')


@pytest.mark.parametrize(
    ("name", "meant"),
    [("tourch", "torch"), ("nunpy", "numpy"), ("tensorfow", "tensorflow"), ("pands", "pandas")],
)
def test_a_misspelt_target_is_still_understood(name, meant):
    with pytest.raises(ferry.UnknownFrameworkError) as caught:
        ferry.convert(np.ones(2), name)
    assert caught.value.hint == f'to="{meant}"'
