"""What a column means besides its numbers: dates, categories, decimals, tensors, indexes, names; and what stays."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.backends import registry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
pytest.importorskip("torch")

DAYS = [dt.date(1970, 1, 2), dt.date(2000, 1, 1)]
COUNTS = [1, 10957]


def columns_of(values, kind=None):
    """The same column of each library."""
    array = pa.array(values, kind)
    return {
        "arrow": array,
        "chunked": pa.chunked_array([array]),
        "polars": pl.from_arrow(array),
        "pandas": pd.Series(values, dtype=pd.ArrowDtype(array.type)),
    }


@pytest.mark.parametrize("source", ["arrow", "chunked", "polars", "pandas"])
def test_dates_are_counts_where_that_is_said(source):
    """With the unit in the plan; without it they are refused, with the line that works; null ones are nulls."""
    x = columns_of(DAYS, pa.date32())[source]
    with pytest.raises(ferry.UnsupportedTypeError, match="dates") as caught:
        ferry.to_torch(x)
    assert caught.value.hint == 'to_torch(x, dtype="int64"), which counts days'
    assert ferry.to_list(x, dtype="int64") == COUNTS
    assert "the numbers count days since 1970" in ferry.explain(x, "numpy", dtype="int64").warnings
    x = columns_of([DAYS[0], None], pa.date32())[source]
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 1"):
        ferry.to_torch(x, dtype="int64")
    assert ferry.to_list(x, dtype="int64", nulls=-1) == [1, -1]
    assert ferry.explain(x, "numpy", dtype="int64", nulls=-1).warnings == (
        "the numbers count days since 1970",
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_and_zone(unit):
    """Counts of that unit, in UTC."""
    words = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}[unit]
    for kind in (pa.timestamp(unit), pa.timestamp(unit, "Europe/Paris"), pa.duration(unit)):
        x = pa.array([5, 2**53 + 1], pa.int64()).cast(kind)
        assert ferry.to_list(x, dtype="int64") == [5, 2**53 + 1]
        assert words in ferry.explain(x, "numpy", dtype="int64").warnings[0]
    series = pd.Series(np.array([5, "NaT"], f"M8[{unit}]"))
    assert ferry.to_list(series, dtype="int64", nulls=7) == [5, 7]
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 1"):
        ferry.to_numpy(series, dtype="int64")
    assert ferry.to_list(series.dt.tz_localize("UTC"), dtype="int64", nulls=7) == [5, 7]


def test_categories_are_their_numbers_or_their_codes():
    """Numbers where they stand for numbers; codes where an integer is asked for; nulls are nulls in both."""
    assert ferry.to_list(pa.array([5, 7, 5]).dictionary_encode()) == [5, 7, 5]
    assert ferry.to_list(pa.array([5, None]).dictionary_encode(), nulls=0) == [5, 0]
    in_values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([1.5, None]))
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 1"):
        ferry.to_numpy(in_values)
    assert ferry.to_list(in_values, nulls=2) == [1.5, 2, 1.5]
    text = pa.array(["b", "a", "b", None]).dictionary_encode()
    assert ferry.to_list(text, dtype="int32", nulls=-1) == [0, 1, 0, -1]
    assert ferry.to_list(
        pd.Series(["b", "a", None]).astype("category"), dtype="int8", nulls=-1
    ) == [1, 0, -1]
    assert ferry.to_list(pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"])), dtype="int64") == [1, 0]
    for numbers in ("Int64", "int64[pyarrow]", "int64"):
        of_numbers = pd.Series(pd.Categorical(pd.array([7, 5, 7], dtype=numbers)))
        assert ferry.to_list(of_numbers) == ferry.to_list(of_numbers, dtype="int64") == [7, 5, 7]
    of_days = pd.Series(pd.Categorical(pd.to_datetime(["1970-01-02"]).astype("M8[s]")))
    assert ferry.to_list(of_days, dtype="int64") == [86400]
    assert "seconds since 1970" in ferry.explain(of_days, "numpy", dtype="int64").warnings[0]
    assert ferry.to_list(pd.Series(pd.cut([1, 3], [0, 2, 4])), dtype="int64") == [0, 1]
    past = pa.DictionaryArray.from_arrays(pa.array([0, 9]), pa.array([1, 2]), safe=False)
    with pytest.raises(ferry.UnsupportedTypeError, match="past its values"):
        ferry.to_numpy(past)


def test_tensors_in_a_column():
    """Of one shape, with the axes in the order that is said; of several, as rows or padded."""
    array = np.arange(24, dtype="float32").reshape(2, 3, 4)
    assert ferry.to_list(pa.FixedShapeTensorArray.from_numpy_ndarray(array)) == array.tolist()
    kind = pa.fixed_shape_tensor(pa.float32(), (3, 4), permutation=[1, 0])
    turned = pa.ExtensionArray.from_storage(
        kind, pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), 12)
    )
    assert ferry.to_list(turned) == array.transpose(0, 2, 1).tolist()
    assert ferry.shares_memory(ferry.to_numpy(turned, copy=False), turned.storage.values)
    assert (
        ferry.to_list(pa.chunked_array([turned, turned]))
        == [*array.transpose(0, 2, 1).tolist()] * 2
    )


class Ragged:
    """A producer of Arrow's variable_shape_tensor, which pyarrow has not."""

    def __init__(self, data, shapes):
        storage = pa.StructArray.from_arrays(
            [
                pa.array(data, pa.list_(pa.int32())),
                pa.array(shapes, pa.list_(pa.int32(), len(shapes[0]))),
            ],
            ["data", "shape"],
        )
        metadata = {
            b"ARROW:extension:name": b"arrow.variable_shape_tensor",
            b"ARROW:extension:metadata": b"{}",
        }
        self.batch = pa.record_batch(
            [storage], pa.schema([pa.field("x", storage.type, metadata=metadata)])
        )

    def __arrow_c_stream__(self, requested_schema=None):
        return self.batch.__arrow_c_stream__(requested_schema)


def test_tensors_of_unequal_shapes():
    """Each for itself, or padded; those that are equal are one."""
    x = Ragged([[1, 2, 3, 4], [5, 6]], [[2, 2], [1, 2]])
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"unequal lengths: row 0 has \[2 2\].*row 1 has \[1 2\]"
    ):
        ferry.convert_tree(x, "numpy")
    rows = ferry.convert_tree(x, "numpy", ragged="rows")["x"]
    assert [each.tolist() for each in rows] == [[[1, 2], [3, 4]], [[5, 6]]]
    assert ferry.convert_tree(x, "torch", pad=0)["x"].tolist() == [
        [[1, 2], [3, 4]],
        [[5, 6], [0, 0]],
    ]
    assert ferry.convert_tree(Ragged([[1, 2], [3, 4]], [[2, 1], [2, 1]]), "numpy")[
        "x"
    ].tolist() == [
        [[1], [2]],
        [[3], [4]],
    ]
    with pytest.raises(ferry.UnsupportedTypeError, match="not those of their elements"):
        ferry.convert_tree(Ragged([[1, 2], [3]], [[2, 1], [2, 1]]), "numpy")


def test_lists_of_tensors_of_any_shape():
    """Refused if the lists are one tensor: their shape was lost; a null in a shape is no shape."""
    x = Ragged([[1, 2], [3, 4]], [[2, 1], [2, 1]])
    field = x.batch.schema.field("x")
    for lists in (
        pa.FixedSizeListArray.from_arrays(x.batch["x"], 2),
        pa.ListArray.from_arrays([0, 1, 2], x.batch["x"]),
    ):
        kind = pa.list_(field, 2) if isinstance(lists, pa.FixedSizeListArray) else pa.list_(field)
        with pytest.raises(
            ferry.UnsupportedTypeError, match="lists of tensors that may have any shape"
        ):
            ferry.to_numpy(lists.cast(kind))
    with pytest.raises(ferry.UnsupportedTypeError, match="null in the shape of a tensor, at row 1"):
        ferry.convert_tree(Ragged([[1, 2], []], [[2, 1], [None, 1]]), "numpy")


def test_lists_of_tensors_whose_axes_are_permuted():
    """Padded, as rows, and without elements, they have the axes in the order that is said."""
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0])
    tensors = pa.ExtensionArray.from_storage(
        kind, pa.FixedSizeListArray.from_arrays(pa.array(range(18), "int32"), 6)
    )
    each = np.arange(18).reshape(3, 2, 3).transpose(0, 2, 1).tolist()
    x = pa.ListArray.from_arrays([0, 1, 3], tensors)
    assert ferry.to_list(x, pad=-1) == [[each[0], [[-1, -1]] * 3], each[1:]]
    assert [row.tolist() for row in ferry.to_numpy(x, ragged="rows")] == [each[:1], each[1:]]
    assert ferry.to_numpy(pa.ListArray.from_arrays([0, 0, 0], tensors)).shape == (2, 0, 3, 2)


def test_a_row_that_is_null_has_no_list():
    """Also where the row is null because the fields around it are; its list was counted among the others."""

    class Fields:
        def __init__(self, array):
            self.array = array

        def __arrow_c_array__(self, requested_schema=None):
            return self.array.__arrow_c_array__()

    for rows in ([[1], [2, 3], [4, 5, 6]], [[1], [2], [3]]):
        fields = pa.StructArray.from_arrays(
            [pa.array(rows)], ["x"], mask=pa.array([False, True, False])
        )
        for keywords in (
            {},
            {"nulls": 0},
            {"nulls": 0, "pad": 0},
            {"nulls": "mask", "ragged": "rows"},
        ):
            with pytest.raises(
                ferry.UnsupportedTypeError, match="null in the place of a list, at row 1"
            ):
                ferry.convert_tree(Fields(fields), "numpy", **keywords)


def test_lists_of_unequal_lengths():
    """Refused by row; rows, or padded, where that is said."""
    for x in (
        pa.array([[1, 2], [3]]),
        pa.chunked_array([[[1, 2]], [[3]]]),
        pl.Series([[1, 2], [3]]),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match="row 0 has 2 elements, row 1 has 1"):
            ferry.to_torch(x)
        assert [each.tolist() for each in ferry.to_torch(x, ragged="rows")] == [[1, 2], [3]]
        assert ferry.to_torch(x, pad=-1).tolist() == [[1, 2], [3, -1]]
        assert ferry.convert_tree({"x": x}, "numpy", pad=0)["x"].tolist() == [[1, 2], [3, 0]]
    with pytest.raises(ferry.LossyCastError, match=r"pad=0.5 is no value of int64"):
        ferry.to_torch(pa.array([[1, 2], [3]]), pad=0.5)
    for x, keywords in (
        (pa.array([[1, 2], [3]]), {"pad": 1j}),
        (pa.array([1.0, None]), {"nulls": 1j}),
    ):
        with pytest.raises(ferry.LossyCastError, match=r"1j is no value of"):
            ferry.to_torch(x, **keywords)
    with pytest.raises(ferry.UnsupportedTypeError, match="null in the place of a list, at row 2"):
        ferry.to_torch(pa.chunked_array([[[1], [2]], [None]]))
    inside = pa.array([[1, None], [3]])
    with pytest.raises(ferry.UnsupportedTypeError):
        ferry.to_torch(inside, ragged="rows")
    assert [each.tolist() for each in ferry.to_torch(inside, ragged="rows", nulls=9)] == [
        [1, 9],
        [3],
    ]


def test_what_is_no_number_stays_as_it_is_in_a_tree():
    """Text, dates, categories, fields, intervals; decimals and unequal lists are refused by their path."""
    table = pa.table(
        {
            "n": [1, 2],
            "t": ["a", "b"],
            "d": DAYS,
            "c": pa.array(["a", "b"]).dictionary_encode(),
            "s": [{"a": 1}, {"a": 2}],
            "b": [b"x", b"y"],
        }
    )
    found = ferry.convert_tree(table, "torch")
    assert list(found) == table.column_names
    assert found["n"].tolist() == [1, 2]
    for name in "tdcsb":
        assert found[name].equals(table[name])
    frame = pd.DataFrame(
        {"n": [1, 2], "t": ["a", "b"], "d": pd.to_datetime(DAYS), "c": pd.Categorical(["a", "b"])}
    )
    for x in (pl.from_arrow(table.drop_columns(["s"])), frame):
        found = ferry.convert_tree(x, "torch")
        assert found["n"].tolist() == [1, 2]
        assert type(found["t"]) is type(x["t"])
    nothing = pa.table({"x": [None, None], "w": [["a"], ["b", "c"]]})
    assert ferry.convert_tree(nothing, "torch")["x"].equals(nothing["x"])
    for bad in ({"x": pa.array([1, 2]).cast(pa.decimal128(20, 1))}, {"x": [[1], [2, 3]]}):
        with pytest.raises(ferry.UnsupportedTypeError, match=r'at \$\["x"\]'):
            ferry.convert_tree(pa.table(bad), "torch")


def test_an_index_is_a_column_where_that_is_said():
    """It is dropped with a word in the plan, or is the first of the columns."""
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 6], name="k"))
    assert list(ferry.convert_tree(frame, "torch")) == ["a"]
    assert "the index does not come along" in str(ferry.explain(frame["a"], "torch"))
    assert "the index does not come along" in str(ferry.explain(frame, "torch"))
    assert "index" not in str(ferry.explain(pd.Series([1.0]), "torch"))
    found = ferry.convert_tree(frame, "torch", index=True)
    assert {name: each.tolist() for name, each in found.items()} == {"k": [5, 6], "a": [1, 2]}
    both = pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(3, "x")]))
    found = ferry.convert_tree({"f": both}, "torch", index=True)["f"]
    assert list(found) == ["index_0", "index_1", "a"]
    assert found["index_0"].tolist() == [3]


def test_masks_stand_beside_their_columns():
    """Under a name of their own, which must be free."""
    frame = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "t": ["x", "y"]})
    found = ferry.convert_tree([frame, {"s": pl.Series([1.5, None])}], "numpy", nulls="mask")
    assert list(found[0]) == ["a", "a_mask", "t"]
    assert found[0]["a_mask"].tolist() == [True, False]
    assert found[1]["s"].tolist() == [1.5, 0]
    assert found[1]["s_mask"].tolist() == [True, False]
    with pytest.raises(
        ferry.UnsupportedTypeError, match="'a_mask', and there is such a column already"
    ):
        ferry.convert_tree({"a": pa.array([1]), "a_mask": 1}, "numpy", nulls="mask")


def test_names_that_are_there_twice_are_refused():
    """As a dict one would be lost; as one tensor both are there."""
    twice = pa.table([[1], [2]], names=["a", "a"])
    for x in (twice, pd.DataFrame([[1, 2]], columns=["a", "a"])):
        with pytest.raises(
            ferry.UnsupportedTypeError, match="two columns of the name 'a'"
        ) as caught:
            ferry.convert_tree(x, "numpy")
        assert ferry.to_list(x) == [[1, 2]]
        renamed = eval(caught.value.hint, {"x": x})  # noqa: S307 - that is what the hint is for
        assert [each.tolist() for each in ferry.convert_tree(renamed, "numpy").values()] == [
            [1],
            [2],
        ]


def test_a_frame_whose_only_column_has_no_name_is_a_dict_too():
    """Its key is None; only a column that came alone, as a stream, is no dict."""
    for dtype in ("int64", "Int64"):
        frame = pd.DataFrame({None: pd.array([1, 2], dtype=dtype)})
        for keywords in ({}, {"nulls": 0}):
            assert ferry.convert_tree(frame, "numpy", **keywords)[None].tolist() == [1, 2]
        assert ferry.collate([frame, frame], "numpy")[None].tolist() == [[1, 2], [1, 2]]
    assert [*ferry.describe_tree(frame)] == ["$[None]"]


def test_an_index_with_the_name_of_a_column_is_refused():
    """The frame has only one column of that name, and its hint renames this column."""
    unnamed, named = (
        pd.DataFrame({"index": [1]}, index=[7]),
        pd.DataFrame({"k": [1]}, index=pd.Index([7], name="k")),
    )
    for x in (unnamed, named):
        with pytest.raises(
            ferry.UnsupportedTypeError, match="an index and a column of the name '"
        ) as caught:
            ferry.convert_tree(x, "numpy", index=True)
        renamed = eval(caught.value.hint, {"x": x})  # noqa: S307 - that is what the hint is for
        found = ferry.convert_tree(renamed, "numpy", index=True)
        assert [each.tolist() for each in found.values()] == [[7], [1]]


@pytest.mark.parametrize("dtype", [pl.Int128, pl.Array(pl.Int128, 2)])
def test_columns_of_128_bits_without_rows_are_refused_as_those_with_rows(dtype):
    """polars raises another error for them."""
    for rows in ([], [None]):
        x = pl.Series("x", rows, dtype=dtype)
        for call in (
            lambda x=x: ferry.to_torch(x),
            lambda x=x: ferry.convert_tree(x.to_frame(), "numpy", nulls=0),
        ):
            with pytest.raises(ferry.UnsupportedTypeError, match=r"no dtype holds|no numbers"):
                call()


def test_frames_without_rows_or_columns():
    """A dict of nothing, or of empty columns; as one tensor a dtype is needed."""
    for x in (pd.DataFrame(), pl.DataFrame(), pa.table({})):
        assert ferry.convert_tree(x, "numpy") == {}
        with pytest.raises(ferry.UnsupportedTypeError, match="no columns"):
            ferry.to_numpy(x)
    for x in (
        pd.DataFrame({"a": np.zeros(0, "f4")}),
        pl.DataFrame({"a": np.zeros(0, "f4")}),
        pa.table({"a": np.zeros(0, "f4")}),
    ):
        assert ferry.to_numpy(x).shape == (0, 1)
        assert ferry.convert_tree(x, "torch")["a"].shape == (0,)


@pytest.mark.parametrize("value", [1.5, "nan", True, 2**63, "text", [1], None])
def test_a_value_for_nulls_is_one_of_the_dtype(value):
    """Or is refused, in words of the keyword."""
    x = pa.array([1, None])
    with pytest.raises(
        (ferry.LossyCastError, TypeError, ValueError, ferry.UnsupportedTypeError), match="null"
    ):
        ferry.to_numpy(x, nulls=value)
    with pytest.raises(ValueError, match="ragged must be"):
        ferry.to_numpy(x, ragged="pad")
    with pytest.raises(TypeError, match="give one"):
        ferry.to_numpy(x, ragged="rows", pad=0)
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy(pa.array([1, None], pa.uint64()), nulls=-1)
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy(pa.array([1, None], pa.float16()), nulls=1e30)
    assert ferry.to_list(pa.array([1, None], pa.float16()), nulls=float("-inf")) == [
        1,
        float("-inf"),
    ]
    assert ferry.to_numpy(pa.array([1, None], pa.float32()), nulls=0.1)[1] == np.float32(0.1)
    assert ferry.to_numpy([1.5], nulls=0).tolist() == [1.5]


def test_nan_is_a_value():
    """Not a null, where a library has nulls: neither is the one taken for the other."""
    for x in (pa.array([1.0, float("nan")]), pl.Series([1.0, float("nan")])):
        assert np.isnan(ferry.to_numpy(x)[1])
        assert ferry.to_numpy(x, nulls="mask")[1].tolist() == [True, True]
    assert np.isnan(ferry.to_numpy(pa.array([1.0, None]), nulls="nan")[1])


def test_batches_that_are_prefetched_say_it_too():
    """Each batch; and `start`."""
    batches = [pa.record_batch({"a": pa.array([1, None])}), pa.record_batch({"a": [3, 4]})]
    found = [*ferry.prefetch(batches, "torch", nulls="mask")]
    assert [each["a"].tolist() for each in found] == [[1, 0], [3, 4]]
    assert [each["a_mask"].tolist() for each in found] == [[True, False], [True, True]]
    assert ferry.start(batches[0], "numpy", nulls=7).result()["a"].tolist() == [1, 7]
    with pytest.raises(ValueError, match="nulls must be"):
        [*ferry.prefetch(batches, "torch", nulls="masks")]


def test_batches_of_tables_are_collated():
    """With what is said of nulls; masks and lengths have their places as beside the keys of a dict."""
    batches = [pa.record_batch({"a": pa.array([1, None])}), pa.record_batch({"a": [3, 4]})]
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 1"):
        ferry.collate(batches, "torch")
    assert ferry.collate(batches, "torch", nulls=0)["a"].tolist() == [[1, 0], [3, 4]]
    found = ferry.collate(batches, "torch", nulls="mask")
    assert found["a_mask"].tolist() == [[True, False], [True, True]]
    assert (
        ferry.explain_collate(batches, "torch", nulls="mask").leaves[1].plan.result.dtype == "bool"
    )
    short = [batches[1], pa.record_batch({"a": [5]})]
    found = ferry.collate(short, "numpy", pad=0, mask=True, lengths=True)
    assert {name: each.tolist() for name, each in found.items()} == {
        "a": [[3, 4], [5, 0]],
        "a_mask": [[True, True], [True, False]],
        "a_lengths": [2, 1],
    }
    samples = [{"x": pl.Series([1.5, None])}, {"x": pl.Series([2.5, 3.5])}]
    assert ferry.collate(samples, "numpy", nulls=0)["x"].tolist() == [[1.5, 0], [2.5, 3.5]]
    with pytest.raises(ValueError, match="nulls must be"):
        ferry.collate(samples, "numpy", nulls="masks")


@pytest.mark.parametrize("value", [-2.5, "nan", float("inf")])
def test_the_code_of_a_plan_says_what_stands_for_nulls(value):
    """So that it gives what the conversion gives."""
    x = pa.array([1.0, None])
    plan = ferry.explain(x, "numpy", nulls=value)
    assert "nulls at row 1" in plan.reason
    names = {"x": x, "ferry": ferry}
    exec("\n".join([*plan.imports, plan.code]), names)  # noqa: S102 - that is what the code is for
    assert np.array_equal(names["y"], ferry.to_numpy(x, nulls=value), equal_nan=True)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize(
    ("x", "to"),
    [
        (pl.Series([dt.date(1970, 1, 2)]), "polars"),
        (pl.Series([dt.time(0, 0, 0, 0)]), "polars"),
        (pl.Series(["a"], dtype=pl.Categorical), "polars"),
        (pa.array([dt.date(1970, 1, 2)]), "arrow"),
        (pa.array([1], pa.timestamp("us")), "arrow"),
        (pa.array(["a"]).dictionary_encode(), "arrow"),
        (pd.Series(pd.to_datetime(["1970-01-01"])), "pandas"),
        (pd.Series(["a"], dtype="category"), "pandas"),
    ],
)
def test_dates_become_numbers_in_their_own_library_too(x, to, copy, dtype):
    """Not the dates themselves, and not an array of another library."""
    found = ferry.convert(x, to, dtype=dtype, copy=copy)
    assert registry.backend_of(found).name == to
    assert ferry.describe(found).dtype == dtype
    assert ferry.to_list(found) == ferry.to_list(x, dtype=dtype)
    with pytest.raises(ferry.CopyRequiredError):
        ferry.convert(x, to, dtype=dtype, copy=False)
