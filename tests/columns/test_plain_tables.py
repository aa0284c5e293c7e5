"""Tables of plain columns are converted in one go: they give what the road gives, and nothing else goes that way."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.columns.interface import type_in
from tensorferry.columns.regular import regular_of
from tensorferry.execution import recipes
from tensorferry.execution.run import verifying
from tensorferry.trees import program, tables
from tensorferry.trees.described import DescribedTree

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

VALUES = np.arange(24, dtype="float32")
ROWS = pa.FixedSizeListArray.from_arrays(pa.array(VALUES), 4)
LISTS = pa.ListArray.from_arrays(pa.array([0, 3, 6, 9, 12, 15, 18], "int32"), pa.array(VALUES))
DEEP = pa.LargeListArray.from_arrays(pa.array([0, 2, 4, 6], "int64"), LISTS)


def unchecked(*offsets):
    """A table of lists of six numbers, whose offsets nobody checked: Arrow looks at them when it is made."""
    places = np.zeros(len(offsets), "int32")
    buffers = [None, pa.py_buffer(places)]
    kind = pa.list_(pa.float32())
    made = pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=[pa.array(VALUES[:6])])
    table = pa.table({"l": made})
    places[:] = offsets
    return table


def plain():
    """Tables whose columns are all plain memory, or text."""
    yield pa.table({"a": VALUES[:6], "b": np.arange(6, dtype="int16"), "l": LISTS})
    yield pa.table({"r": ROWS, "l": LISTS, "text": ["x"] * 6})
    yield pa.table({"d": DEEP, "f": pa.FixedSizeListArray.from_arrays(LISTS, 2), "i": [1, 2, 3]})
    yield pa.table({"r": ROWS, "l": LISTS})[2:5]
    yield pa.table(
        {"l": LISTS[1:4], "f": pa.FixedSizeListArray.from_arrays(LISTS[2:], 2)[:2].take([0, 1, 0])}
    )
    yield pa.record_batch({"a": VALUES[:3], "d": DEEP})
    yield pa.record_batch({"d": DEEP[1:], "a": VALUES[1:3]})
    yield pa.record_batch({"a": VALUES[:3], "d": DEEP})[1:]
    yield pa.table(
        {"i": np.arange(3, dtype="uint64"), "when": pa.array([1, 2, 3], pa.timestamp("s"))}
    )
    yield (
        pa.table({"a": pa.array([None, 1.0, 2.0])})
        .slice(1)
        .cast(pa.schema({"a": pa.float32()}))
        .combine_chunks()
    )
    yield pl.DataFrame({"a": VALUES, "b": np.arange(24), "text": ["x"] * 24})
    yield pl.DataFrame({"a": VALUES, "r": VALUES.reshape(-1, 1)})[3:9]
    yield pl.DataFrame({f"c{index}": VALUES + index for index in range(20)})
    yield pl.DataFrame({"one": 1.0, "a": VALUES})
    yield pd.DataFrame(
        {"a": VALUES, "b": VALUES + 1, "i": np.arange(24), "text": ["x"] * 24, "c": VALUES + 2}
    )
    yield pd.concat(
        [pd.DataFrame({name: VALUES + index}) for index, name in enumerate("abc")], axis=1
    )
    yield pd.DataFrame({"a": VALUES, 3: np.arange(24) > 4}, index=np.arange(24) * 2)[2:9]
    yield pl.DataFrame(
        {"h": np.arange(5, dtype="float16"), "when": pl.Series([1] * 5).cast(pl.Datetime)}
    )


def others():
    """Tables of which a column is not: each has something that has to be described, or refused."""
    one, other = pa.table({"l": LISTS}), pa.table({"l": LISTS[3:]})
    yield from (pa.concat_tables([one, other]), one[:0], pa.table({}), pa.table({"text": ["a"]}))
    yield from (
        pa.table({"a": [1.0, None]}),
        pa.table({"l": [[1.0, None]]}),
        pa.table({"l": [[1.0], None]}),
    )
    yield from (
        pa.table({"l": [[1, 2], [3]]}),
        pa.table({"l": [[[1], [2]], [[3, 4], [5]]]}),
        pa.table({"b": [True]}),
    )
    yield from (pa.table({"l": [[], []]}), pa.table({"c": pa.array([1, 1]).dictionary_encode()}))
    yield from (
        pa.table([[1], [2]], names=["a", "a"]),
        pa.table({"l": [["a"]]}),
        pa.table({"s": [{"a": 1}]}),
    )
    yield pa.table({"t": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3)))})
    for offsets in ((0, 4, 8), (-2, 0, 2), (4, 2, 0), (0, 2, 3), (3, 1, -1), (2**30, 2**30 + 2)):
        yield unchecked(*offsets)
    yield from (
        pl.DataFrame({"a": [1.0, None]}),
        pl.DataFrame({"b": [True]}),
        pl.DataFrame({"l": [[1, 2], [3]]}),
    )
    yield from (
        pl.DataFrame({"a": []}),
        pl.DataFrame(),
        pl.concat([pl.DataFrame({"a": VALUES})] * 2, rechunk=False),
    )
    yield pl.DataFrame({"text": ["a"], "null": [None]})
    yield from (
        pd.DataFrame({"a": [1, None]}, dtype="Int64"),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
    )
    yield from (pd.DataFrame({"a": []}), pd.DataFrame(), pd.DataFrame({"t": ["a"]}))
    yield pd.DataFrame({"a": VALUES.astype(">f4")})


def shared():
    """Tables of which two columns have memory in common."""
    buffer = pa.array(VALUES)
    yield pa.table({"a": buffer, "b": buffer})
    yield pa.table({"a": buffer[:16], "b": buffer[8:]})
    yield pd.DataFrame(VALUES.reshape(-1, 2), columns=["a", "b"], copy=False)
    series = pl.Series("a", VALUES)
    yield pl.DataFrame([series, series.alias("b")])


def seen(tree):
    """Each column: its values, dtype, whether it can be written, and with which others it shares memory."""
    return {
        name: (
            ferry.to_list(x),
            str(x.dtype),
            ferry.describe(x).writable,
            [ferry.shares_memory(x, y) for y in tensors],
        )
        if isinstance(x, (np.ndarray, torch.Tensor, jax.Array))
        else x
        if type(x) is list
        else (type(x), x.to_pylist() if hasattr(x, "to_pylist") else x.to_list())
        for tensors in [
            [y for y in tree.values() if isinstance(y, (np.ndarray, torch.Tensor, jax.Array))]
        ]
        for name, x in tree.items()
    }


def outcome(x, to, said):
    """What comes out, and with which of the table's columns it shares; or what is raised."""
    try:
        found = ferry.convert_tree(x, to, **said)
    except (ferry.ConversionError, ferry.TreeError) as error:
        return type(error), str(error)
    views = ferry.convert_tree(x, "numpy", copy=None)
    tensors = [
        name for name in found if isinstance(found[name], (np.ndarray, torch.Tensor, jax.Array))
    ]
    return seen(found), [ferry.shares_memory(found[name], views[name]) for name in tensors]


SAID = [
    {},
    {"copy": False},
    {"copy": True},
    {"dtype": "fit"},
    {"dtype": {"float": "float16"}},
    {"dtype": "int32"},
]


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "python"])
@pytest.mark.parametrize("said", SAID, ids=str)
def test_a_table_gives_what_the_road_gives(to, said, monkeypatch):
    """Each table twice, after all others: what is kept of one schema is not taken for another's."""
    tables = [*plain(), *others(), *shared()]
    with monkeypatch.context() as patch, verifying(True):
        patch.setattr(program.Programs, "_find", lambda *_: None)
        road = [outcome(x, to, said) for x in tables]
    checked = [outcome(x, to, said) for x in tables]
    with verifying(False):
        quick = [outcome(x, to, said) for x in tables]
        again = [outcome(x, to, said) for x in reversed(tables)][::-1]
    assert checked == road
    assert quick == road
    assert again == road


@pytest.mark.quick
@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("inside", [False, True])
def test_plain_columns_are_read_together_and_others_are_described(to, inside, monkeypatch):
    """Text stays beside them; to PyTorch without copies, as some of these have memory in common."""
    described = []
    real = DescribedTree.prepare
    monkeypatch.setattr(DescribedTree, "prepare", lambda self: described.append(self) or real(self))

    def convert(table, **said):
        tree = {"x": [table, VALUES.copy()]} if inside else table
        found = ferry.convert_tree(tree, to, **said)
        return found["x"][0] if inside else found

    said = {"copy": False} if to == "torch" else {"dtype": "fit"}
    for table in plain():
        found = convert(table, **said)
        assert not described
        assert list(found) == list(
            table.schema.names if isinstance(table, (pa.Table, pa.RecordBatch)) else table.columns
        )
    for table in shared():
        for copy in (False, True):
            convert(table, copy=copy)
            assert not described  # but for the columns that share memory, alone


@pytest.mark.fast_paths
def test_columns_of_tables_against_numpy():
    """Whatever was converted before: each table twice in turn with others of the same first sight."""
    rng = np.random.default_rng(3)
    dtypes = ("float32", "float64", "int32", "uint8", "bool")
    makers = (pd.DataFrame, pl.DataFrame, pa.table)
    for round_ in range(40):
        names = [f"c{index}" for index in range(rng.integers(1, 5))]
        held = {name: (rng.random(6) * 9).astype(rng.choice(dtypes)) for name in names}
        if round_ % 3 == 0:
            held["text"] = np.array(list("abcdef"), dtype=object)
        for make in makers:
            table = make(held)
            for to, as_array in (("numpy", np.asarray), ("torch", lambda x: x.numpy())):
                for said in ({}, {"copy": True}, {"dtype": {"float": "float64"}}):
                    found = ferry.convert_tree([table, held["c0"]], to, **said)[0]
                    assert list(found) == list(held)
                    for name in names:
                        wide = "dtype" in said and held[name].dtype.kind == "f"
                        expected = held[name].astype("float64") if wide else held[name]
                        array = as_array(found[name])
                        assert (array.dtype, array.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.quick
@pytest.mark.fast_paths
@pytest.mark.parametrize("fault", ["columns in another order", "a column of another table"])
def test_planted_faults_of_tables_are_noticed(monkeypatch, fault):
    """The comparison above is one that can fail."""
    test_columns_of_tables_against_numpy()
    real, last = tables.opening_together, []

    def faulty(owner):
        opening = real(owner)

        def opened(x):
            views, columns = opening.open(x)
            if fault == "columns in another order":
                return views, columns[::-1]
            last.append(columns)
            return views, last[max(0, len(last) - 2)]

        return opening._replace(open=opened)

    monkeypatch.setattr(tables, "opening_together", faulty)
    recipes.forget_recipes()
    with pytest.raises((AssertionError, AttributeError)):
        test_columns_of_tables_against_numpy()
    recipes.forget_recipes()


def test_a_library_s_own_columns_stay_its_own():
    """To the library that they are of they are no arrays."""
    frame, table = pl.DataFrame({"a": VALUES}), pa.table({"a": VALUES})
    assert isinstance(ferry.convert_tree(frame, "polars")["a"], pl.Series)
    assert isinstance(ferry.convert_tree(table, "arrow")["a"], (pa.ChunkedArray, pa.Array))
    assert ferry.convert_tree(table, "polars")["a"].to_list() == VALUES.tolist()


def test_what_is_kept_of_schemas_is_bounded():
    """And a schema is not taken for another with the same names."""
    from tensorferry.backends.arrow.tensors import BACKEND

    for number in range(200):
        ferry.convert_tree(pa.table({f"column {number}": VALUES}), "numpy")
    assert 0 < len(BACKEND._schemas) <= 64
    for kind in ("int8", "float64", "uint16", "int8"):
        assert (
            ferry.convert_tree(pa.table({"x": np.arange(3, dtype=kind)}), "numpy")["x"].dtype
            == kind
        )


@pytest.mark.quick
def test_no_type_is_made_for_an_extension_type_of_lists():
    """As those of datasets: each look at a column's type makes one again, with the library's own code."""
    made = []
    ferry.to_torch([1.0])  # what was made before a framework was loaded is made again

    class Rows(pa.ExtensionType):
        def __init__(self):
            made.append(self)
            super().__init__(
                pa.list_(pa.list_(pa.float32())), "datasets.features.features.Array2DExtensionType"
            )

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage, serialized):
            return cls()

    storage = pa.array(VALUES.reshape(2, 3, 4).tolist(), pa.list_(pa.list_(pa.float32())))
    table = pa.table({"image": pa.ExtensionArray.from_storage(Rows(), storage)})
    whole = ferry.convert_tree(table, "torch")
    with verifying(False):
        made.clear()
        assert ferry.convert_tree(table, "torch")["image"].tolist() == whole["image"].tolist()
        assert not made
    assert whole["image"].tolist() == VALUES.reshape(2, 3, 4).tolist()


@pytest.mark.parametrize(
    ("said", "shape"), [(b'[[3, 4], "float32"]', (3, 4)), (b'[[null, 4], "float32"]', (0, 4))]
)
def test_a_column_without_rows_has_the_lengths_that_datasets_says(said, shape):
    """As of Array2D, whose first length may be open; what it says otherwise is left alone."""

    class Rows(pa.ExtensionType):
        def __init__(self, said):
            self.said = said
            super().__init__(
                pa.list_(pa.list_(pa.float32())), "datasets.features.features.Array2DExtensionType"
            )

        def __arrow_ext_serialize__(self):
            return self.said

        @classmethod
        def __arrow_ext_deserialize__(cls, storage, serialized):
            return cls(serialized)

    def empty(said):
        storage = pa.array([], pa.list_(pa.list_(pa.float32())))
        return pa.table({"image": pa.ExtensionArray.from_storage(Rows(said), storage)})

    found = ferry.convert_tree(empty(said), "torch")["image"]
    assert (tuple(found.shape), found.dtype) == ((0, *shape), torch.float32)
    for odd in (b"", b"{}", b"[]", b"[3]", b"[[3]]", b'[["3", 4]]', b"[[-1, 4]]", b"\xff"):
        assert ferry.convert_tree(empty(odd), "numpy")["image"].shape == (0, 0, 0)


def test_an_extension_type_without_a_hash_is_refused_in_words():
    """As all are that say no more than what they are: Python takes the hash of a class that compares."""

    class Mine(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.float32(), "mine")

        def __arrow_ext_serialize__(self):
            return b""

    with pytest.raises(TypeError):
        hash(Mine())
    column = pa.ExtensionArray.from_storage(Mine(), pa.array(VALUES))
    with pytest.raises(
        ferry.UnsupportedTypeError, match="has type mine, which is not known here"
    ) as caught:
        ferry.to_numpy(column)
    assert caught.value.hint == "x.cast(x.type.storage_type)"
    table = pa.table({"mine": column, "a": VALUES})
    for _ in range(2):
        with pytest.raises(ferry.UnsupportedTypeError, match=r'has type mine.* - at \$\["mine"\]'):
            ferry.convert_tree(table, "torch")
    with pytest.raises(ferry.UnsupportedTypeError, match="has type mine"):
        ferry.to_torch(table)


def test_what_is_no_number_or_of_another_extension_type_is_left_to_the_road():
    """By the type alone."""
    batch = pa.record_batch(
        {
            "number": [1],
            "lists": [[[1.0]]],
            "text": ["a"],
            "bits": [True],
            "category": pa.array(["a"]).dictionary_encode(),
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((1, 3))),
        }
    )
    found = [regular_of(kind) for kind in type_in(batch.__arrow_c_array__()[0]).children]
    assert [each is not None for each in found] == [True, True, False, False, False, False]


def test_memory_lives_as_long_as_what_lies_over_it():
    """Whatever becomes of the table."""
    table = pa.table({"l": LISTS, "a": VALUES[:6]})
    with verifying(False):
        found = ferry.convert_tree(pa.concat_tables([table]).combine_chunks(), "jax")
    assert found["l"].tolist() == VALUES[:18].reshape(6, 3).tolist()
    assert found["a"].tolist() == VALUES[:6].tolist()
