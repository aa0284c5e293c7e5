"""Plain columns take fast paths and signatures: they give what the road gives, and nothing else takes them."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.execution.run import verifying

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

VALUES = np.arange(64, dtype="float32")


def columns():
    """Plain ones, and each way of not being so."""
    array = pa.array(VALUES)
    yield from (
        array,
        array[3:],
        pa.chunked_array([array]),
        pa.chunked_array([array, array]),
        array[:0],
    )
    yield from (
        pa.array([True, False]),
        pa.array([1, None]),
        pa.array([["a"]]),
        pa.array([1]).dictionary_encode(),
    )
    series = pl.Series(VALUES)
    yield from (
        series,
        series[3:],
        series[::2],
        series[:0],
        pl.Series([1, None]),
        pl.Series([True]),
        pl.Series(["a"]),
    )
    yield pl.concat([series, series], rechunk=False)
    whole = pd.Series(VALUES)
    yield from (
        whole,
        whole[3:],
        whole[::2],
        whole[::-1],
        whole[:0],
        pd.Index(VALUES),
        pd.RangeIndex(3),
    )
    yield from (
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1], dtype="Int64"),
        pd.Series(["a"]),
    )
    yield from (
        pd.Series([1, 2], dtype=object),
        pd.Series(VALUES.astype(">f4")),
        pd.DataFrame({"a": VALUES})["a"],
    )
    yield from (
        pd.Series(pd.to_datetime(["2020-01-01"])),
        pd.Series([1.0]).astype("float32[pyarrow]"),
    )
    yield from map(pl.DataFrame, contents_of_tables())
    yield from map(pa.table, contents_of_tables())
    yield from map(pd.DataFrame, contents_of_tables())


def contents_of_tables():
    """Columns of one dtype and of several, with nulls, without numbers, rows or columns."""
    yield from (
        {"a": VALUES, "b": -VALUES},
        {"a": VALUES},
        {"a": [1, 2], "b": [3, 2**53 + 1]},
        {"a": [True], "b": [False]},
    )
    yield from (
        {"a": [1.5], "b": [np.nan]},
        {"a": [1.5], "b": [None]},
        {"a": [1], "b": [None]},
        {"a": [1], "b": [1.5]},
    )
    yield from (
        {"a": VALUES[:0], "b": VALUES[:0]},
        {"a": ["x"], "b": ["y"]},
        {"a": [1], "b": ["y"]},
        {},
    )


def outcome(x, target, said):
    """What comes out: its values, dtype and whether it shares; or what is raised."""
    try:
        found = ferry.convert(x, target, **said)
    except ferry.ConversionError as error:
        return type(error), error.message
    if target == "python":
        return repr(found)
    return (
        repr(ferry.to_list(found)),
        str(found.dtype),
        ferry.describe(found).writable,
        ferry.shares_memory(found, x),
    )


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "python"])
@pytest.mark.parametrize(
    "said", [{}, {"copy": False}, {"copy": True}, {"dtype": "float16"}], ids=str
)
def test_a_fast_path_gives_what_the_road_gives(target, said):
    """Each column twice, after all others: what is kept of one is not taken for another."""
    all_of_them = [*columns()]
    with verifying():
        road = [outcome(x, target, said) for x in all_of_them]
    with verifying(False):
        quick = [outcome(x, target, said) for x in all_of_them]
        again = [outcome(x, target, said) for x in reversed(all_of_them)][::-1]
    assert quick == road
    assert again == road


def test_a_tree_of_plain_columns_is_what_each_gives_alone():
    """Of one library, of several, into memory that is given."""
    tree = {
        "a": pa.array(VALUES),
        "p": pl.Series(VALUES),
        "d": pd.Series(VALUES),
        "t": pa.array(["x"]),
    }
    with verifying(False):
        for target in ("numpy", "torch", "jax"):
            found = ferry.convert_tree(tree, target)
            assert found["t"] is tree["t"]
            for name in "apd":
                assert type(found[name]) is type(ferry.convert(tree[name], target))
                assert found[name].tolist() == VALUES.tolist()
        out = {name: torch.zeros(64) for name in "apd"} | {"t": 0}
        ferry.convert_tree(tree, "torch", out=out)
        assert all(torch.equal(out[name], torch.from_numpy(VALUES)) for name in "apd")


def test_what_a_series_shares_is_no_constant():
    """It can be written: JAX gets a copy, whatever shared before."""
    index, series = pd.Index(VALUES), pd.Series(VALUES)
    with verifying(False):
        ferry.to_jax(index)
        constant = ferry.to_jax(series)
        series.iloc[0] = 9
    assert constant[0] == 0


def test_views_of_one_memory_overlap_in_the_copy():
    """As those of any other library."""
    array = pa.array(VALUES)
    found = ferry.convert_tree({"a": array[:40], "b": array[20:]}, "torch")
    found["a"][25] = 9
    assert found["b"][5] == 9
    assert array[25].as_py() == 25


def test_a_table_of_plain_columns_is_one_tensor():
    """In the layout that the target takes, and in no memory that a writable target could write."""
    rows = np.arange(12.0).reshape(4, 3)
    names = ["a", "b", "c"]
    apart = pd.concat([pd.DataFrame({name: rows[:, at]}) for at, name in enumerate(names)], axis=1)
    whole = pd.DataFrame(rows, columns=names)
    chunked = pa.concat_tables(
        [pa.table(dict(zip(names, part.T, strict=True))) for part in (rows[:1], rows[1:])]
    )
    for x in (
        whole,
        apart,
        pl.DataFrame(rows, schema=names),
        pa.table(dict(zip(names, rows.T, strict=True))),
        chunked,
    ):
        for target in ("numpy", "torch", "tensorflow", "python"):
            assert ferry.to_list(ferry.convert(x, target)) == rows.tolist()
        made = ferry.to_torch(x)
        made.zero_()
        assert ferry.to_list(x) == rows.tolist()
    assert ferry.to_numpy(whole, copy=False).base is not None
    for x in (apart, chunked):
        with pytest.raises(ferry.CopyRequiredError, match="each column has its own memory"):
            ferry.to_numpy(x, copy=False)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_keyword_that_changes_nothing_leaves_the_column_to_its_library(kind):
    """The plan is the same, with the code that a person would type."""
    library = pytest.importorskip(kind)
    x = library.array([1.0, 2.0]) if kind == "pyarrow" else library.Series([1.0, 2.0])
    plan = ferry.explain(x, "numpy")
    assert "x.to_numpy(" in plan.code
    assert ferry.explain(x, "numpy", pad=0) == ferry.explain(x, "numpy", ragged="rows") == plan
