"""Columns without numbers stay as they are in a tree, and can be read there, whichever library they are of."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import PurePosixPath

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.backends.array_like.tables import ArrowColumn
from tensorferry.columns.interface import Type
from tensorferry.columns.objects import objects_in

pa = pytest.importorskip("pyarrow")

DAY, OTHER = dt.date(2024, 2, 29), dt.date(1969, 12, 31)
MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - a column may have no zone
LONG = "text that is longer than twelve bytes"
KINDS = {
    "days": (pa.date32(), [DAY, None, OTHER]),
    "milliseconds of days": (pa.date64(), [DAY, None, OTHER]),
    "seconds": (pa.timestamp("s"), [MOMENT.replace(microsecond=0), None]),
    "microseconds": (pa.timestamp("us"), [MOMENT, None, MOMENT]),
    "of a zone": (
        pa.timestamp("us", "Europe/Berlin"),
        [MOMENT.replace(tzinfo=dt.timezone.utc), None],
    ),
    "of an offset": (
        pa.timestamp("ms", "-05:30"),
        [dt.datetime(2024, 7, 1, tzinfo=dt.timezone.utc), None],
    ),
    "times": (pa.time32("ms"), [dt.time(23, 59, 59, 999000), None]),
    "short times": (pa.time64("us"), [dt.time(0, 0, 0, 1), None]),
    "durations": (pa.duration("us"), [dt.timedelta(-1, 2, 3), None]),
    "decimals": (pa.decimal128(38, 2), [Decimal("-0.01"), None, Decimal("9" * 36 + ".99")]),
    "long decimals": (pa.decimal256(76, 1), [Decimal("1" * 75 + ".5"), None]),
    "short decimals": (pa.decimal32(5, 2), [Decimal("1.50"), None]),
    "hundreds": (pa.decimal128(10, -2), [Decimal(1200), None]),
    "text": (pa.string(), ["a", None, "é", ""]),
    "large text": (pa.large_string(), ["a", None]),
    "views of text": (pa.string_view(), ["a", None, LONG, ""]),
    "bytes": (pa.binary(), [b"\x00\xff", None]),
    "large bytes": (pa.large_binary(), [b"a", None]),
    "views of bytes": (pa.binary_view(), [b"a", None, LONG.encode()]),
    "three bytes": (pa.binary(3), [b"abc", None, b"\x00\x00\x00"]),
    "no bytes": (pa.binary(0), [b"", None]),
    "categories": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b", "a"]),
    "nothing": (pa.null(), [None, None]),
    "integers": (pa.int64(), [2**63 - 1, None, -1]),
    "unsigned": (pa.uint64(), [2**64 - 1, None]),
    "floats": (pa.float32(), [0.5, None]),
    "bits": (pa.bool_(), [True, None, False, True]),
    "lists": (pa.list_(pa.int64()), [[1, None], None, []]),
    "large lists of days": (pa.large_list(pa.date32()), [[DAY], None, [None, OTHER]]),
    "views of lists": (pa.list_view(pa.string()), [["a", None], None, [], ["b"]]),
    "large views of lists": (pa.large_list_view(pa.date32()), [[DAY], None]),
    "pairs": (pa.list_(pa.int8(), 2), [[1, 2], None, [None, 3]]),
    "lists of fields": (pa.list_(pa.struct([("a", pa.int64())])), [[{"a": 1}, None], None]),
    "maps": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], None, []]),
    "intervals": (pa.month_day_nano_interval(), [(1, -2, 3), None]),
}


class ByArray:
    """An object of a library that is known by Arrow's interface for arrays only."""

    def __init__(self, x):
        self._x = x

    def __arrow_c_array__(self, requested_schema=None):
        return self._x.__arrow_c_array__()


class ByStream:
    """The same for streams."""

    def __init__(self, x):
        self._x = x

    def __arrow_c_stream__(self, requested_schema=None):
        return self._x.__arrow_c_stream__()


def expected(kind, values):
    """The values, with dates in the zone of the column."""
    zone = getattr(kind, "tz", None)
    if zone is None:
        return values
    offset = {"Europe/Berlin": 60, "-05:30": -330}[zone]
    there = dt.timezone(dt.timedelta(minutes=offset))
    return [None if each is None else each.astimezone(there) for each in values]


@pytest.mark.parametrize("name", KINDS)
def test_a_kept_column_gives_its_values(name):
    kind, values = KINDS[name]
    whole = pa.array(values * 5, kind)
    rows = pa.table(
        {"x": pa.chunked_array([whole, whole[:0], whole[3:7]]), "n": range(len(values) * 5 + 4)}
    )
    kept = ferry.convert_tree(ByStream(rows), "numpy", leaves=lambda x: False)["x"]
    assert isinstance(kept, ArrowColumn)
    found, wanted = kept.tolist(), expected(kind, values) * 5
    wanted += wanted[3:7]
    assert found == wanted
    assert list(map(type, found)) == list(map(type, wanted))
    zones = [
        [each.utcoffset() for each in side if isinstance(each, dt.datetime)]
        for side in (found, wanted)
    ]
    assert zones[0] == zones[1], "which the comparison leaves out"


def test_what_python_cannot_say_stays_numpys():
    """Nanoseconds, and dates after the year 9999."""
    for kind, count in (
        (pa.timestamp("ns"), 1),
        (pa.duration("ns"), 1),
        (pa.time64("ns"), 1),
        (pa.timestamp("s"), 2**40),
    ):
        x = (
            pa.array([count, None], pa.int64()).cast(kind)
            if kind != pa.time64("ns")
            else pa.array([1, None], kind)
        )
        found = ferry.convert_tree(ByStream(pa.table({"x": x})), "numpy")["x"].tolist()
        assert int(found[0].view("int64")) == count, kind
        assert found[1] is None


def test_nulls_of_rows_are_nulls():
    rows = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"])], ["x"], mask=pa.array([False, True, False])
    )
    assert ferry.convert_tree(ByArray(rows), "numpy")["x"].tolist() == ["a", None, "c"]


@pytest.mark.parametrize("make", [ByArray, pytest.param(lambda x: x, id="pyarrow's")])
def test_a_column_of_text_is_the_same_object(make):
    x = make(pa.array(["a", None]))
    assert ferry.convert_tree({"x": x}, "numpy")["x"] is x
    assert ferry.convert_tree(x, "numpy") is x
    numbers = make(pa.array([1, 2]))
    assert ferry.convert_tree({"x": numbers}, "numpy")["x"].tolist() == [1, 2]


def test_memory_that_has_no_such_values_is_refused_by_row():
    """But not where it is null."""
    index = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int8()), pa.array(["a"]), safe=False)
    bytes_of = [None, pa.py_buffer(np.array([0, 1, 2], "i4")), pa.py_buffer(b"a\xff")]
    for x, why in (
        (index, "an index past its dictionary"),
        (pa.Array.from_buffers(pa.string(), 2, bytes_of), "UTF-8"),
    ):
        kept = ferry.convert_tree(ByStream(pa.table({"x": x, "n": [1, 2]})), "numpy")["x"]
        with pytest.raises(ferry.UnsupportedTypeError, match=f"{why}.*row 1"):
            kept.tolist()
    bytes_of[0] = pa.py_buffer(b"\x01")
    nulled = pa.Array.from_buffers(pa.string(), 2, bytes_of)
    assert ferry.convert_tree(ByStream(pa.table({"x": nulled, "n": [1, 2]})), "numpy")[
        "x"
    ].tolist() == ["a", None]


def test_zones():
    unknown = pa.array([1], pa.timestamp("us", "Nowhere/Else"))
    with pytest.raises(ferry.UnsupportedTypeError, match="Nowhere/Else"):
        ferry.convert_tree(ByStream(pa.table({"x": unknown, "n": [1]})), "numpy")["x"].tolist()
    last = np.datetime64("9999-12-31T23:59:59", "us")
    x = pa.array([int(last.view("int64"))], pa.timestamp("us", "+05:00"))
    assert ferry.convert_tree(ByStream(pa.table({"x": x, "n": [1]})), "numpy")["x"].tolist() == [
        last
    ]


@pytest.mark.parametrize("zone", ["Europe", "a" * 300, "+99:00", "../Europe", "+5"])
def test_zones_that_there_are_not_are_refused(zone):
    """`ZoneInfo` raises errors of the file system for some of them."""
    x = pa.array([1], pa.timestamp("us", zone))
    with pytest.raises(ferry.UnsupportedTypeError, match="does not know the time zone"):
        ferry.convert_tree(ByStream(pa.table({"x": x, "n": [1]})), "numpy")["x"].tolist()


@pytest.mark.parametrize(("zone", "hours"), [("+0530", 5.5), ("-05", -5), ("+23:59", 23 + 59 / 60)])
def test_offsets_are_written_in_several_ways(zone, hours):
    x = pa.array([1], pa.timestamp("us", zone))
    (found,) = ferry.convert_tree(ByStream(pa.table({"x": x, "n": [1]})), "numpy")["x"].tolist()
    assert found.utcoffset() == dt.timedelta(hours=hours)
    assert found == dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.timezone.utc)


def test_a_view_past_its_buffers_is_named_by_row():
    """If it is null, it does not matter where it points."""
    x = pa.array(["a" * 20, "b" * 20], pa.string_view())
    valid, views, *data = x.buffers()
    views = bytearray(views.to_pybytes())
    views[24:28] = (7).to_bytes(4, "little")
    broken = [pa.py_buffer(bytes(views)), *data]
    kept = pa.Array.from_buffers(x.type, 2, [valid, *broken])
    with pytest.raises(ferry.UnsupportedTypeError, match="view of text past its buffers, at row 1"):
        ferry.convert_tree(ByStream(pa.table({"x": kept, "n": [1, 2]})), "numpy")["x"].tolist()
    kept = pa.Array.from_buffers(x.type, 2, [pa.py_buffer(b"\x01"), *broken])
    found = ferry.convert_tree(ByStream(pa.table({"x": kept, "n": [1, 2]})), "numpy")["x"]
    assert found.tolist() == ["a" * 20, None]


def test_unions_are_refused():
    x = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    kept = ferry.convert_tree(ByStream(pa.table({"x": x, "n": [1]})), "numpy")["x"]
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"Python has no objects for Arrow's format"
    ):
        kept.tolist()


def test_two_fields_of_one_name_are_refused():
    x = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    kept = ferry.convert_tree(ByStream(pa.table({"x": x, "n": [1]})), "numpy")["x"]
    with pytest.raises(ferry.UnsupportedTypeError, match="the same name"):
        kept.tolist()


def test_nothing_is_read_for_no_rows():
    assert objects_in(Type("u", "", {}, (), None), []) == []


# -- pandas' columns of objects --------------------------------------------------------------------

VALUES = {
    "dates": [DAY, OTHER],
    "moments": [MOMENT, MOMENT],
    "times": [dt.time(1), dt.time(2)],
    "durations": [dt.timedelta(1), dt.timedelta(2)],
    "identifiers": [uuid.UUID(int=1), uuid.UUID(int=2)],
    "paths": [PurePosixPath("a"), PurePosixPath("b")],
    "text and dates": ["a", DAY],
    "lists of dates": [[DAY], [OTHER]],
    "lists of some dates": [[DAY], [OTHER, DAY]],
    "lists of text": [["a"], ["b"]],
}


@pytest.mark.parametrize("name", VALUES)
def test_pandas_objects_without_numbers_stay(name):
    pd = pytest.importorskip("pandas")
    # A null in the place of a list is refused, whatever the lists have.
    for values in (VALUES[name], [*VALUES[name], None])[: 1 if name.startswith("lists") else 2]:
        frame = pd.DataFrame({"n": np.arange(len(values)), "x": pd.Series(values, dtype=object)})
        found = ferry.convert_tree(frame, "torch")
        assert found["x"].tolist() == values
        assert found["n"].tolist() == list(range(len(values)))
        with pytest.raises(ferry.UnsupportedTypeError, match=r"row 0|holds lists of|holds text"):
            ferry.to_numpy(frame["x"])


@pytest.mark.parametrize(
    "values",
    [
        ["a", np.nan],
        [np.nan, "a", None],
        [DAY, float("nan")],
        [["a"], None],
        [["a"], ["b", "c"], None],
        [],
    ],
    ids=["text", "all marks", "dates", "lists", "ragged lists", "no rows"],
)
def test_pandas_marks_for_what_is_missing_change_nothing(values):
    """NaN is one of them, beside text."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": np.arange(len(values)), "x": pd.Series(values, dtype=object)})
    kept = ferry.convert_tree(frame, "numpy")["x"]
    assert isinstance(kept, pd.Series)
    assert all(one is other for one, other in zip(kept.tolist(), values, strict=True))


def test_tuples_are_categories():
    pd = pytest.importorskip("pandas")
    x = pd.Series(pd.Categorical([(1, 2), (3, 4), (1, 2)]))
    assert ferry.convert_tree({"x": x}, "numpy")["x"] is x
    assert ferry.to_list(x, dtype="int64") == [0, 1, 0]


@pytest.mark.parametrize(
    ("values", "row", "kind"),
    [
        ([1, "a"], 1, "str"),
        ([DAY, 1], 0, "date"),
        ([1, None, DAY], 2, "date"),
        ([Decimal("1.5"), 2.5], 0, "Decimal"),
    ],
)
def test_pandas_objects_with_numbers_are_refused_by_row(values, row, kind):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": np.arange(len(values)), "x": pd.Series(values, dtype=object)})
    for call in (lambda: ferry.convert_tree(frame, "numpy"), lambda: ferry.to_numpy(frame)):
        with pytest.raises(ferry.UnsupportedTypeError, match=rf"'x' .*a {kind} at row {row}"):
            call()


@pytest.mark.parametrize("name", VALUES)
def test_numpys_arrays_of_them_stay_too(name):
    rows = np.empty(3, dtype=object)
    rows[:2], rows[2] = (
        [np.array(each, dtype=object) if isinstance(each, list) else each for each in VALUES[name]],
        None,
    )
    assert ferry.convert_tree({"x": rows}, "torch")["x"] is rows
    with pytest.raises(ferry.UnsupportedTypeError, match=r"x\[0\]"):
        ferry.to_torch(rows)
    rows[2] = 1
    with pytest.raises(ferry.UnsupportedTypeError, match=r"x\[0\]"):
        ferry.convert_tree({"x": rows}, "torch")


@pytest.mark.parametrize(
    "x",
    [[DAY], [MOMENT, 1], np.array([dt.timedelta(2)], dtype=object)],
    ids=["date", "moment", "duration"],
)
def test_the_hint_for_a_date_counts_it(x):
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy(x)
    code = caught.value.hint.partition(", which")[0]
    assert eval(code, {"np": np, "x": x}) == np.asarray(  # noqa: S307
        x[0], "M8" if isinstance(x[0], dt.date) else "m8"
    ).view("int64")


@pytest.mark.parametrize(
    ("call", "name", "x"),
    [
        (ferry.to_numpy, "x", [1, {3, 2}]),
        (ferry.to_numpy, "x", [np.array([1, 0], object), np.array([1, {3, 2}], object)]),
        (ferry.convert_tree, "x", {"a{b}": np.array([1, {3, 2}], object)}),
        (ferry.explain_tree, "x", [{"k": np.array([[1, 2], [{3, 2}, 4]], object)}]),
        (ferry.collate, "samples", [{"k": [np.array([1, {3, 2}], object)]}] * 2),
        (
            ferry.explain_collate,
            "samples",
            [np.array([0, 1], object), np.array([1, {3, 2}], object)],
        ),
    ],
    ids=["list", "list of arrays", "tree", "plan of a tree", "samples", "plan of samples"],
)
def test_the_hint_for_a_set_finds_it(call, name, x):
    """Where it is in what was given, of which a leaf may be a part."""
    with pytest.raises(ferry.ConversionError) as caught:
        call(x, *(() if call.__name__ == "to_numpy" else ("torch",)))
    assert eval(caught.value.hint, {name: x}) == [2, 3]  # noqa: S307 - it is what the user types


# -- arrays of Python numbers in trees -------------------------------------------------------------


def batch_of_objects():
    """A batch with an array of numbers and None, and what nulls= is not for."""
    return {
        "x": np.array([[1, 2], [3, None]], object),
        "words": np.array(["a", None], object),
        "list": [1, None],
        "f": np.ones(2),
    }


@pytest.mark.parametrize(
    "call",
    [
        lambda x, **said: ferry.convert_tree(x, "numpy", **said),
        lambda x, **said: ferry.start(x, "numpy", **said).result(),
        lambda x, **said: next(iter(ferry.prefetch([x], "numpy", **said))),
    ],
    ids=["convert_tree", "start", "prefetch"],
)
def test_nulls_are_replaced_in_arrays_of_numbers_in_trees(call):
    """The hint said so, and pasted it gave the same error again.

    Text and lists stay as they are.
    """
    x = batch_of_objects()
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"None at x\[1\]\[1\] is not a number"
    ) as caught:
        call(x)
    assert "nulls=0" in caught.value.hint
    filled = call(x, nulls=0)
    assert (filled["x"].dtype.name, filled["x"].tolist()) == ("int64", [[1, 2], [3, 0]])
    assert filled["words"] is x["words"]
    assert filled["list"] == [1, None]
    masked = call(x, nulls="mask")
    assert (masked["x"].tolist(), masked["x_mask"].tolist()) == (
        [[1, 2], [3, 0]],
        [[True, True], [True, False]],
    )
    assert x["x"].tolist() == [[1, 2], [3, None]]


def test_nan_for_nulls_among_integers_in_a_tree_needs_a_dtype():
    """And the hint has one that is for them: a float dtype for all is for floats alone."""
    x = {"x": np.array([1, None], object)}
    with pytest.raises(ferry.LossyCastError, match="is no value of int64") as caught:
        ferry.convert_tree(x, "numpy", nulls="nan", dtype="float64")
    said = eval(f"dict({caught.value.hint.partition(', or ')[2]})")  # noqa: S307 - the keywords of the hint
    for given in (said, {"nulls": "nan", "dtype": {"x": "float64"}}):
        found = ferry.convert_tree(x, "numpy", **given)["x"]
        assert (found[0], np.isnan(found[1])) == (1.0, True)


def test_rows_of_python_numbers_in_a_tree_are_padded_or_kept():
    rows = np.empty(2, object)
    rows[:] = [[1, None], [2]]
    assert ferry.convert_tree({"x": rows}, "numpy", nulls=0, pad=7)["x"].tolist() == [
        [1, 0],
        [2, 7],
    ]
    kept = ferry.convert_tree({"x": rows}, "numpy", nulls=0, ragged="rows")["x"]
    assert [(type(row), row.tolist()) for row in kept] == [(np.ndarray, [1, 0]), (np.ndarray, [2])]
    batch = ferry.collate([{"x": np.array([1, None], object)}] * 2, "numpy", nulls=-1)
    assert batch["x"].tolist() == [[1, -1], [1, -1]]
