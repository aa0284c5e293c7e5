"""Columns and tables, to the simulated device: the host's values, all over there."""

from __future__ import annotations

import pytest
from tests.columns.on_devices import columns, compare_all

import tensorferry as ferry

pytest.importorskip("torch")


def test_a_device_gets_what_the_host_gets(sim):
    compare_all("torch", "sim:0", "torch")


def test_batches_of_a_table_are_there_ahead_of_the_loop(sim):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": range(7), "n": [1.5, None] * 3 + [2.5], "t": ["a"] * 7})
    there, here = (
        list(ferry.prefetch(iter(table.to_batches(max_chunksize=3)), "torch", nulls="mask", **said))
        for said in ({"device": "sim:1"}, {})
    )
    assert [[*batch] for batch in there] == [["x", "x_mask", "n", "n_mask", "t"]] * 3
    for batch, expected in zip(there, here, strict=True):
        assert {str(batch[name].device) for name in batch if name != "t"} == {"sim:1"}
        assert [batch[name].tolist() for name in batch] == [
            expected[name].tolist() for name in batch
        ]


def test_a_column_that_must_not_be_copied_is_refused(sim):
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_torch(columns()["float32"], device="sim:0", copy=False)


def test_a_tensor_of_the_device_becomes_a_column(sim):
    x = ferry.to_torch([[1.5, 2], [3, 4]], device="sim:1")
    assert ferry.to_arrow(x).to_pylist() == ferry.to_list(x)
    assert ferry.to_pandas(x).to_numpy().tolist() == ferry.to_list(x)
    assert [*ferry.to_polars(x).row(1)] == [3, 4]
