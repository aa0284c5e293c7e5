"""Streams of Arrow, which can be read once: no function loses their rows, and no explanation uses them up."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.columns import interface

pa = pytest.importorskip("pyarrow")

ROWS = pa.table({"a": [1, 2]}).to_batches(max_chunksize=1)


def reader():
    """A stream that can be read once."""
    return pa.RecordBatchReader.from_batches(ROWS[0].schema, ROWS)


class Around:
    """A library's object around such a stream, which gives an empty one the second time."""

    def __init__(self, stream):
        self._stream = stream

    def __arrow_c_stream__(self, requested_schema=None):
        return self._stream.__arrow_c_stream__()


SAMPLE = {"x": np.ones(1)}
READ = {
    "convert_tree": lambda x: ferry.convert_tree(x, "numpy")["a"],
    "nulls": lambda x: ferry.convert_tree({"x": x}, "numpy", nulls=0)["x"]["a"],
    "beside a shared dict": lambda x: ferry.convert_tree([x, SAMPLE, SAMPLE], "numpy")[0]["a"],
    "twice": lambda x: ferry.convert_tree({"x": x, "y": x}, "numpy")["y"]["a"],
    "snapshot": lambda x: ferry.snapshot(x)["a"],
    "start": lambda x: ferry.start(x, "numpy").result()["a"],
    "prefetch": lambda x: next(iter(ferry.prefetch([x], "numpy")))["a"],
    "collate": lambda x: ferry.collate([x], "numpy")["a"][0],
    "collate with nulls": lambda x: ferry.collate([x, x], "numpy", nulls=0)["a"][1],
}


@pytest.mark.parametrize(
    "make", [reader, lambda: Around(reader())], ids=["reader", "around a reader"]
)
@pytest.mark.parametrize("call", READ)
def test_a_stream_is_read_once_and_nothing_is_lost(call, make):
    """Trees are walked several times, and a stream that is read again is empty."""
    x = make()
    assert READ[call](x).tolist() == [1, 2]
    assert READ[call](x).tolist() == [1, 2], "what it gave is kept as long as it is"


def failing():
    """A stream that fails after its first rows."""

    def batches():
        yield ROWS[0]
        raise OSError("the disk is gone")

    return pa.RecordBatchReader.from_batches(ROWS[0].schema, batches())


@pytest.mark.parametrize(
    "make", [failing, lambda: Around(failing())], ids=["reader", "around a reader"]
)
def test_a_stream_that_failed_fails_again(make):
    """What it gave before is lost. The rest, here no rows at all, would be taken for all of it."""
    x = make()
    for _ in range(2):
        with pytest.raises(ferry.UnsupportedTypeError, match="the disk is gone"):
            ferry.convert_tree(x, "numpy")


def _convert(x):
    try:
        ferry.convert_tree(x, "numpy")
    except ferry.UnsupportedTypeError:
        return


@pytest.mark.parametrize("make", [reader, failing])
def test_what_a_stream_gave_is_forgotten_with_it(make):
    """Else memory would grow with each stream."""
    x = Around(make())
    _convert(x)
    assert interface._readings
    del x
    gc.collect()
    assert not interface._readings


def test_a_wrapped_function_gets_the_columns_of_a_stream():
    """As it gets those of a table; it got objects of this package."""
    pytest.importorskip("torch")
    doubled = ferry.wrap(lambda columns: columns["a"] * 2, inner="torch")
    assert (
        doubled(Around(reader())).tolist()
        == doubled(pa.Table.from_batches(ROWS)).tolist()
        == [2, 4]
    )


def test_a_stream_that_can_be_read_again_is_read_again():
    """It may have other rows then."""

    class Changing:
        def __init__(self):
            self.rows = [1]

        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"a": self.rows}).__arrow_c_stream__()

    x = Changing()
    assert ferry.convert_tree(x, "numpy")["a"].tolist() == [1]
    x.rows.append(2)
    assert ferry.convert_tree(x, "numpy")["a"].tolist() == [1, 2]


LOOKS = {
    "describe": ferry.describe,
    "describe_tree": lambda x: ferry.describe_tree([x]),
    "explain": lambda x: ferry.explain(x, "numpy"),
    "explain_tree": lambda x: ferry.explain_tree([x], "numpy"),
    "explain_tree with nulls": lambda x: ferry.explain_tree([x], "numpy", nulls=0),
    "explain_collate": lambda x: ferry.explain_collate([x], "numpy"),
    "like": lambda x: ferry.convert_tree([1.0], like=x),
}


@pytest.mark.unwatched  # what nulls= needs is read, and that uses it up
@pytest.mark.unwatched  # the hint is pasted here: it uses the stream up
@pytest.mark.parametrize(
    "make", [reader, lambda: Around(reader())], ids=["reader", "around a reader"]
)
@pytest.mark.parametrize("look", LOOKS)
def test_to_explain_uses_no_stream_up(look, make):
    """It is refused, with a hint that works."""
    x = make()
    with pytest.raises(ferry.UnsupportedTypeError, match="still to be read") as caught:
        LOOKS[look](x)
    code = caught.value.hint.partition(", ")[0].replace("x[0]", "x")
    table = eval(code, {"pa": pa, "x": x})  # noqa: S307 - that is what the hint is for
    assert table.column("a").to_pylist() == [1, 2]
    assert LOOKS[look](table if look != "explain" else table.column("a")) is not None
