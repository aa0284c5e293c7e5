"""`shares_memory` knows all memory of a column or a table."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

NUMBERS = pa.array([1, 2, 3])
GAPS = pa.array([1, None, 3])
BITS = pa.array([True, False, None])
FRAME = pd.DataFrame({"a": [1.5, 2.5], "b": [3.5, 4.5], "t": ["x", "y"]})
POLARS = pl.DataFrame({"a": [1, 2], "b": [3, 4]})
NULLABLE = pd.Series([1, None], dtype="Int64")
ROWS = pa.array([[1], [2, 3]])
CODED = pa.array([1, 2, 1]).dictionary_encode()
SHARED = {
    "a table and itself": (pa.table({"a": NUMBERS}),) * 2,
    "a table and its column": (pa.table({"a": NUMBERS}), NUMBERS),
    "chunks": (pa.chunked_array([GAPS, NUMBERS]), NUMBERS),
    "a frame of polars": (POLARS, POLARS["b"]),
    "a frame of pandas": (FRAME, FRAME["a"]),
    "bits": (BITS, BITS),
    "nulls": (GAPS, GAPS[1:]),
    "nullable": (NULLABLE, NULLABLE.array._data),
    "lists": (ROWS, ROWS.values),
    "a dictionary": (CODED, CODED.indices),
    "an array over it": (pa.table({"a": NUMBERS}), ferry.to_numpy(NUMBERS)),
    "decimals": (pa.array([1], pa.decimal128(9, 0)).cast(pa.decimal128(9, 0)),) * 2,
}
APART = {
    "copies": (FRAME, FRAME.copy()),
    "columns": (FRAME["a"], FRAME["b"]),
    "halves": (NUMBERS[:1], NUMBERS[1:]),
    "no rows": (NUMBERS[:0], NUMBERS),
    "another table": (pa.table({"a": NUMBERS}), pa.table({"a": pa.array([1, 2, 3])})),
    "an array": (pa.table({"a": NUMBERS}), np.ones(3)),
}


@pytest.mark.parametrize("name", SHARED)
def test_memory_in_common(name):
    one, other = SHARED[name]
    assert ferry.shares_memory(one, other)
    assert ferry.shares_memory(other, one)


@pytest.mark.parametrize("name", APART)
def test_no_memory_in_common(name):
    one, other = APART[name]
    assert not ferry.shares_memory(one, other)
    assert not ferry.shares_memory(other, one)


def test_what_has_no_numbers_is_refused():
    with pytest.raises(ferry.UnsupportedTypeError, match="holds text"):
        ferry.shares_memory(pa.array(["a"]), NUMBERS)


def test_a_stream_is_not_used_up():
    batch = pa.record_batch({"a": NUMBERS})
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    with pytest.raises(ferry.UnsupportedTypeError, match="still to be read"):
        ferry.shares_memory(reader, NUMBERS)
    assert ferry.convert_tree(reader, "numpy")["a"].tolist() == [1, 2, 3]
