"""Tables gathered into one tensor, by their libraries or by us: in the memory of the result and no more."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.backends import registry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")

NAMES = ["a", "b", "c"]


def tables(rows):
    """The same table in every way in which its columns may lie."""
    columns = dict(zip(NAMES, rows.T, strict=True))
    half = len(rows) // 2
    apart = pd.concat([pd.DataFrame({name: column}) for name, column in columns.items()], axis=1)
    pair = pd.concat(
        [pd.DataFrame(rows[:, 1:], columns=["b", "c"]), pd.DataFrame({"a": rows[:, 0]})], axis=1
    )
    whole = pa.table(columns)
    return {
        "pandas": pd.DataFrame(rows, columns=NAMES),
        "pandas in blocks": apart,
        "pandas in blocks, in another order": apart[["c", "a", "b"]][NAMES],
        "pandas in blocks of several": pair[NAMES],
        "pandas, sliced": pd.concat([apart, apart])[: len(rows)],
        "pandas, nullable": apart.astype("Float64"),
        "polars": pl.DataFrame(columns),
        "arrow": whole,
        "arrow, a batch": whole.to_batches()[0],
        "arrow, sliced": pa.concat_tables([whole, whole]).combine_chunks()[len(rows) :],
        "arrow in chunks": pa.concat_tables([whole[:half], whole[half:]]),
    }


@pytest.mark.parametrize(
    "target", ["numpy", "torch", "tensorflow", "jax", "arrow", "polars", "python"]
)
@pytest.mark.parametrize("count", [1, 2, 40_000])
def test_a_table_is_gathered_in_whatever_way_it_lies(target, count):
    """With rows together or columns, in few rows or in so many that they are written in parts."""
    rows = np.random.default_rng(0).random((count, 3))
    for name, x in tables(rows).items():
        if target == "jax":
            found = ferry.to_jax(x, dtype="float32")
            assert np.array_equal(np.asarray(found), rows.astype("float32")), name
        else:
            assert np.array_equal(ferry.to_numpy(ferry.convert(x, target)), rows), name


@pytest.mark.parametrize("count", [1, 5])
def test_what_is_gathered_is_memory_of_its_own(count):
    """It can be written, and the table stays what it is."""
    rows = np.arange(3.0 * count).reshape(count, 3)
    for name, x in tables(rows).items():
        made = ferry.to_torch(x)
        made.fill_(-1)
        assert ferry.to_list(x) == rows.tolist(), name
        array = ferry.to_numpy(x, copy=True)
        assert array.flags.writeable, name
        with pytest.raises(ferry.CopyRequiredError):
            ferry.to_torch(tables(rows)["pandas in blocks"], copy=False)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "float32", "float64"])
def test_nulls_are_filled_by_the_library_and_by_us_alike(dtype):
    """In one chunk, sliced, in several, among empty ones; and the memory can be written."""
    values = [1, None, 3, None, 5]
    array = pa.array(values, getattr(pa, dtype)())
    empty = array[:0]
    for x in (
        array,
        array[1:4],
        pa.chunked_array([empty, array, empty]),
        pa.chunked_array([array[:2], array[2:]]),
    ):
        expected = [7 if each is None else each for each in x.to_pylist()]
        found = ferry.to_torch(x, nulls=7)
        assert found.tolist() == expected
        found.fill_(0)
        assert x.to_pylist() == [None if at is None else at for at in x.to_pylist()]
        assert array.to_pylist() == values
        assert ferry.to_list(x, nulls=7) == expected
        assert ferry.to_numpy(x, nulls="mask")[0].tolist() == [
            0 if each == 7 else each for each in expected
        ]


@pytest.mark.parametrize("name", tables(np.zeros((2, 3))))
def test_gathering_takes_the_memory_of_the_result(name):
    """And no second array of the whole table: what NumPy and Arrow allocate is counted."""
    rows = np.random.default_rng(0).random((30_000, 3))
    x = tables(rows)[name]
    ferry.to_torch(tables(rows[:2])[name])
    pool = pa.default_memory_pool()
    tracemalloc.start()
    try:
        before, held = tracemalloc.get_traced_memory()[0], pool.bytes_allocated()
        made = ferry.to_torch(x)
        allocated = tracemalloc.get_traced_memory()[1] - before + pool.bytes_allocated() - held
    finally:
        tracemalloc.stop()
    # One column may be read into memory of its own first, where it lies in pieces.
    assert allocated <= made.nbytes * 4 / 3 + 100_000
    assert made.tolist() == rows.tolist()


def test_a_pandas_without_its_blocks_is_read_by_columns():
    """They are no promise of pandas'."""
    pytest.importorskip("pandas")
    assert registry.ready("pandas").whole(SimpleNamespace()) is None
