"""A table is one value: a loop over it gives columns or their names, and no samples."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

MAKERS = {
    "pandas": lambda module: module.DataFrame({"a": [1, 2], "b": [3, 4]}),
    "polars": lambda module: module.DataFrame({"a": [1, 2], "b": [3, 4]}),
    "pyarrow": lambda module: module.table({"a": [1, 2], "b": [3, 4]}),
}


@pytest.fixture(params=MAKERS)
def table(request):
    return MAKERS[request.param](pytest.importorskip(request.param))


def test_a_table_is_not_a_list_of_samples(table):
    with pytest.raises(ferry.UnsupportedTypeError, match="is one value"):
        ferry.collate(table, "numpy")
    with pytest.raises(ferry.UnsupportedTypeError, match="is one value"):
        ferry.explain_collate(table, "numpy")
    with pytest.raises(TypeError, match="is one value"):
        ferry.prefetch(table, "numpy")


def test_tables_are_samples_and_batches(table):
    stacked = ferry.collate([table, table], "numpy")
    assert {name: array.tolist() for name, array in stacked.items()} == {
        "a": [[1, 2]] * 2,
        "b": [[3, 4]] * 2,
    }
    batches = list(ferry.prefetch([table, table], "numpy"))
    assert [{name: array.tolist() for name, array in batch.items()} for batch in batches] == [
        {"a": [1, 2], "b": [3, 4]}
    ] * 2


def test_a_column_of_objects_with_integers_that_only_uint64_holds():
    pd = pytest.importorskip("pandas")
    for x in (pd.Series([2**64 - 1], dtype=object), np.array([2**64 - 1], dtype=object)):
        assert ferry.collate([{"x": x}, {"x": x}], "numpy")["x"].tolist() == [[2**64 - 1]] * 2
