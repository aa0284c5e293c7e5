"""Columns and tables to a device and back: what a device gets is what the host gets.

For tests with a device.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest

import tensorferry as ferry

KEYWORDS = [
    {},
    {"dtype": "float32"},
    {"dtype": "int64"},
    {"dtype": "fit"},
    {"dtype": "float64", "nulls": 0},
    {"nulls": 0},
    {"nulls": "mask"},
    {"nulls": "nan"},
    {"pad": 0},
    {"ragged": "rows"},
    {"copy": True},
]


def columns():
    """Columns of every kind, by a name for it."""
    pa = pytest.importorskip("pyarrow")
    random = np.random.default_rng(0)
    floats, integers = random.standard_normal(7), np.arange(7)
    tensors = pa.array(random.random((4, 6)).astype("f4").tolist(), pa.list_(pa.float32(), 6))
    return {
        "float32": pa.array(floats.astype("f4")),
        "float64": pa.array(floats),
        "float16": pa.array(floats.astype("f2")),
        "int64": pa.array(integers),
        "uint8": pa.array(integers.astype("u1")),
        "bool": pa.array(integers % 2 == 0),
        "a slice": pa.array(integers)[2:6],
        "chunks": pa.chunked_array(
            [pa.array(integers), pa.array(integers[:0]), pa.array(integers[3:])]
        ),
        "no rows": pa.array([], pa.float32()),
        "integers with nulls": pa.array([1, None, 2**53 + 1, None, 5]),
        "floats with nulls": pa.array([1.5, None, 5e-324]),
        "bools with nulls": pa.array([True, None, False]),
        "lists": pa.array([[1, 2], [3, 4], [5, 6]]),
        "unequal lists": pa.array([[1.5, 2], [], [3]]),
        "lists of one size": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
        "lists with nulls": pa.array([[1, None], [3, 4]], pa.list_(pa.int32(), 2)),
        "tensors": pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), (2, 3)), tensors
        ),
        "categories": pa.array(["a", "b", "a"]).dictionary_encode(),
        "decimals": pa.array([Decimal("1.5"), Decimal("2.25")]),
        "dates": pa.array([dt.date(2020, 1, 1), None]),
        "text": pa.array(["a", "b"]),
    }


def frames():
    """Columns and tables of each library, by a name for it."""
    pa, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    two = {"a": np.arange(7.0), "b": -np.arange(7.0)}
    found = {
        "a series of pandas": pd.Series(np.arange(7)),
        "integers of pandas with nulls": pd.Series([1, None, 3], dtype="Int64"),
        "a frame of pandas": pd.DataFrame(two),
        "a table of Arrow": pa.table(two),
    }
    try:
        import polars as pl
    except ImportError:
        return found
    return found | {
        "integers of polars with nulls": pl.Series([1, None, 3]),
        "a frame of polars": pl.DataFrame(two),
    }


def outcome(call):
    """The bits of all tensors that a call gives, what else it gives, and its devices; or the class of its error."""
    try:
        result = call()
    except ferry.ConversionError as error:
        return type(error), set()
    return _seen(result)


def _seen(result):
    if isinstance(result, dict):
        found = {key: _seen(each) for key, each in result.items()}
        return {key: bits for key, (bits, _) in found.items()}, set().union(
            *(there for _, there in found.values())
        )
    if isinstance(result, (list, tuple)):
        each = [_seen(one) for one in result]
        return [bits for bits, _ in each], set().union(*(there for _, there in each))
    if type(result).__module__.partition(".")[0] in ("pyarrow", "pandas", "polars", "tensorferry"):
        return list(map(str, result)), set()
    array = ferry.to_numpy(result)
    return (str(array.dtype), array.shape, array.tobytes()), {ferry.describe(result).device}


def each_call(target, device, host):
    """For each source and keyword, a name, and the same call for a device and for the host."""
    alone = columns() | frames()
    mixed = {
        name: alone[name]
        for name in alone
        if "null" not in name and name not in ("unequal lists", "dates")
    }
    for said in KEYWORDS:
        for name, x in alone.items():
            yield (
                (name, said),
                lambda x=x, said=said: ferry.convert(x, target, device=device, **said),
                lambda x=x, said=said: ferry.convert(x, host, **said),
            )
        yield (
            ("a tree", said),
            lambda said=said: ferry.convert_tree(mixed, target, device=device, **said),
            lambda said=said: ferry.convert_tree(mixed, host, **said),
        )


def compare_all(target, device, host):
    """Compare each call for a device with the one for the host.

    Args:
        target: The framework with the device.
        device: The device.
        host: A framework with the same dtypes, on the host.
    """
    done = 0
    for name, there, here in each_call(target, device, host):
        found, places = outcome(there)
        expected, _ = outcome(here)
        assert found == expected, name
        assert places <= {device}, name
        done += places == {device}
    assert done > 150
