"""Dates and durations: one rule for every value.

They stay in trees, and are counts where their names are given.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.support import EVERYWHERE

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
torch = pytest.importorskip("torch")
pytest.importorskip("jax")
pytest.importorskip("tensorflow")

DATES = np.array(["2024-01-01T00:00:01", "1969-12-31T23:59:59"], "M8[us]")
COUNTS = DATES.astype("int64").tolist()


class Given:
    """A library's array of dates."""

    dtype = DATES.dtype
    shape = DATES.shape

    def __array__(self, dtype=None, copy=None):
        return DATES.copy()


def xarray():
    return pytest.importorskip("xarray", reason="xarray is not in this environment").DataArray(
        DATES, dims="t"
    )


def dask():
    return pytest.importorskip("dask.array", reason="dask is not in this environment").from_array(
        DATES
    )


MANY = {
    "numpy": lambda: DATES,
    "strided": lambda: np.repeat(DATES, 3)[::3],
    "another byte order": lambda: DATES.astype(">M8[us]"),
    "a subclass": lambda: DATES.view(type("Mine", (np.ndarray,), {})),
    "xarray": xarray,
    "dask": dask,
    "another library": Given,
    "pandas": lambda: pd.Series(DATES),
    "an index of pandas": lambda: pd.DatetimeIndex(DATES),
    "polars": lambda: pl.Series(DATES),
    "arrow": lambda: pa.array(DATES),
}
ONE = {"a scalar": lambda: DATES[0], "an array without axes": lambda: np.array(DATES[0])}
DURATIONS = {
    "numpy": lambda: DATES - DATES[1],
    "pandas": lambda: pd.Series(DATES - DATES[1]),
    "arrow": lambda: pa.array(DATES - DATES[1]),
}


@pytest.fixture(autouse=True)
def _x64():
    import jax

    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("source", [*MANY, *ONE])
def test_alone_they_are_refused_with_their_unit(source):
    """The hint is the same call with a dtype, which gives the counts."""
    x = (MANY | ONE)[source]()
    for call in (ferry.to_numpy, ferry.describe, ferry.explain):
        arguments = (x, "numpy") if call is ferry.explain else (x,)
        with pytest.raises(ferry.UnsupportedTypeError, match="holds dates or durations") as caught:
            call(*arguments)
        assert "microseconds since 1970" in caught.value.hint or "microseconds" in caught.value.hint
    code = caught.value.hint.partition(", which")[0]
    plan = eval(code, {"explain": ferry.explain, "x": x})  # noqa: S307 - that is what the hint is for
    assert plan.result.dtype == "int64"
    assert any("microseconds" in warning for warning in plan.warnings)


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("source", [*MANY, *ONE])
def test_with_a_dtype_they_are_counts(source, target):
    """And the printed code gives the same."""
    x = (MANY | ONE)[source]()
    expected = COUNTS if source in MANY else COUNTS[0]
    assert ferry.to_list(ferry.convert(x, target, dtype="int64")) == expected
    names = {"x": x}
    exec(ferry.explain(x, target, dtype="int64").code, names)  # noqa: S102 - that is what it is for
    assert ferry.to_list(names["y"]) == expected


@pytest.mark.parametrize("source", [*MANY, *ONE])
def test_in_trees_they_stay(source):
    """In every function for trees; `explain_tree` and `explain_collate` list them."""
    x = (MANY | ONE)[source]()
    tree = {"t": x, "n": np.ones(2)}
    for made in (
        ferry.convert_tree(tree, "torch"),
        ferry.convert_tree(tree, "torch", dtype="int64"),
        ferry.convert_tree(tree, "torch", dtype={"int": "int32"}),
        ferry.convert_tree(tree, like=torch.ones(1)),
        ferry.convert_tree(tree, "torch", unknown="keep"),
        ferry.snapshot(tree),
        ferry.start(tree, "torch").result(),
        *ferry.prefetch([tree], "torch"),
    ):
        assert made["t"] is x
        assert made["n"].tolist() == [1, 1]
    assert [each.path for each in ferry.explain_tree(tree, "torch").kept] == ['$["t"]']
    batch = ferry.collate([tree, tree], "torch")
    assert [each is x for each in batch["t"]] == [True, True]
    assert [each.path for each in ferry.explain_collate([tree, tree], "torch").kept] == ['$["t"]']
    assert ferry.describe_tree(tree).keys() == {'$["n"]'}


@pytest.mark.parametrize("source", [*MANY, *ONE])
def test_by_their_names_they_are_counts_in_trees(source):
    x = (MANY | ONE)[source]()
    expected = COUNTS if source in MANY else COUNTS[0]
    tree, dtype = {"t": x, "n": np.ones(2)}, {"t": "int64"}
    for made in (
        ferry.convert_tree(tree, "torch", dtype=dtype),
        ferry.start(tree, "torch", dtype=dtype).result(),
        *ferry.prefetch([tree], "torch", dtype=dtype),
    ):
        assert made["t"].dtype == torch.int64
        assert made["t"].tolist() == expected
    assert ferry.collate([tree, tree], "torch", dtype=dtype)["t"].tolist() == [expected, expected]
    plan = ferry.explain_tree(tree, "torch", dtype=dtype)
    assert any("microseconds" in warning for warning in plan.warnings)
    assert (
        ferry.explain_collate([tree, tree], "torch", dtype=dtype).plans['$["t"]'].result.dtype
        == "int64"
    )


@pytest.mark.parametrize("source", DURATIONS)
def test_durations_are_counts_too(source):
    x = DURATIONS[source]()
    expected = (DATES - DATES[1]).astype("int64").tolist()
    assert ferry.convert_tree([x], "numpy")[0] is x
    assert ferry.to_list(x, dtype="int64") == expected
    assert "since" not in str(ferry.explain(x, "numpy", dtype="int64").warnings)


def test_a_dataset_with_times_is_a_dict_with_times():
    xr = pytest.importorskip("xarray", reason="xarray is not in this environment")
    x = xr.Dataset({"a": ("t", np.ones(2))}, coords={"t": DATES})
    found = ferry.convert_tree({"x": x}, "torch")["x"]
    assert found["t"] is x.variables["t"]
    assert found["a"].tolist() == [1, 1]
    assert (
        ferry.convert_tree({"x": x}, "torch", dtype={"x.t": "int64"})["x"]["t"].tolist() == COUNTS
    )
    assert ferry.collate([x, x], "torch", dtype={"t": "int64"})["t"].tolist() == [COUNTS, COUNTS]
    assert ferry.snapshot(x)["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "make", [np.asarray, pd.Series, lambda x: x[1]], ids=["numpy", "pandas", "scalar"]
)
def test_a_date_that_is_missing_is_a_null(make):
    """NaT is no number, and never -9223372036854775808."""
    x = make(np.array(["1970-01-01T00:00:05", "NaT"], "M8[s]"))
    with pytest.raises(ferry.UnsupportedTypeError, match="has nulls") as caught:
        ferry.to_numpy(x, dtype="int64")
    code = caught.value.hint.partition(", which")[0]
    assert ferry.to_list(eval(code, {"to_numpy": ferry.to_numpy, "x": x})) in ([5, 0], 0)  # noqa: S307 - the hint's code
    values, mask = ferry.to_numpy(x, dtype="int64", nulls="mask")
    assert (values.tolist(), mask.tolist()) in (([5, 0], [True, False]), (0, False))
    with pytest.raises(ferry.UnsupportedTypeError, match=r'has nulls.* - at \$\["t"\]'):
        ferry.convert_tree({"t": x}, "numpy", dtype={"t": "int64"})
    found = ferry.convert_tree({"t": x}, "numpy", dtype={"t": "int64"}, nulls=-1)["t"]
    assert found.tolist() in ([5, -1], -1)


@pytest.mark.parametrize(
    "unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "10s"]
)
def test_every_unit_has_a_name(unit):
    x = np.array([5, 7], f"M8[{unit}]")
    (warning,) = ferry.explain(x, "numpy", dtype="int64").warnings
    assert "since 1970" in warning
    assert ferry.to_numpy(x, dtype="int64").tolist() == [5, 7]


def test_several_axes_and_lists_of_dates():
    x = np.stack([DATES, DATES[::-1]])[:, None, ::-1]
    assert np.array_equal(ferry.to_numpy(x, dtype="int64"), x.astype("int64"))
    assert ferry.to_numpy([DATES, DATES], dtype="int64").tolist() == [COUNTS, COUNTS]
    assert ferry.to_numpy([pd.Series(DATES)] * 2, dtype="int64").tolist() == [COUNTS, COUNTS]
    assert ferry.to_numpy(DATES[:0], dtype="int64").shape == (0,)
    with pytest.raises(ferry.UnsupportedTypeError, match="holds dates or durations"):
        ferry.to_numpy([DATES, DATES])


def test_the_view_shares_and_is_read_only():
    """As that of a column: who writes dates through it writes counts of another unit than he thinks."""
    found = ferry.to_numpy(DATES, dtype="int64", copy=False)
    assert np.shares_memory(found, DATES)
    assert not found.flags.writeable
    assert ferry.to_numpy(DATES, dtype="int64", copy=True).flags.writeable
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy(DATES, dtype="int32")


def test_a_file_does_not_leave_them_out(tmp_path):
    """There they would be lost: refused with the path."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["t"\]') as caught:
        ferry.save({"t": DATES, "n": np.ones(2)}, tmp_path / "x.npz")
    assert 'dtype={"t": "int64"}' in caught.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "x",
    [np.array(["a"]), np.array([b"a"]), np.array([None, "a"], object)],
    ids=["text", "bytes", "objects"],
)
def test_other_arrays_without_numbers_stay_as_they_did(x):
    assert ferry.convert_tree([x], "torch")[0] is x


@pytest.mark.fast_paths
@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize(
    "target", ["numpy", "torch", "jax", "tensorflow", "python", "pandas", "polars", "arrow"]
)
def test_dates_convert_again_and_again(target, dtype):
    """The second array of one layout ended in a KeyError: the steps of the first took its counts, not the dates."""
    if (target, dtype) == ("jax", "int64"):
        pytest.skip("jax has int64 only where jax_enable_x64 is on")
    for dates in (
        np.array(["1970-01-03", "1969-12-31"], "M8[D]"),
        np.array([3, -4], "m8[s]"),
        np.array([5, 6], "m8"),
    ):
        counts = [2, -1] if dates.dtype.kind == "M" else dates.astype("int64").tolist()
        for _ in range(3):
            found = ferry.convert(dates.copy(), target, dtype=dtype)
            assert ferry.to_list(found) == counts
            tree = ferry.convert_tree(
                {"a": dates.copy(), "b": dates.copy()}, target, dtype={"a": dtype, "b": dtype}
            )
            assert ferry.to_list(tree["b"]) == counts
