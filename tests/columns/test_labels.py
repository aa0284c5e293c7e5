"""An index and names for results: `index=`, `columns=`, `like=`, and those that a series or a frame has already."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.execution.run import verifying

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _every_plan_is_verified():
    with verifying():
        yield


def frame():
    """A frame of which rows have been left out, so that its labels are not their places."""
    whole = pd.DataFrame(
        {"a": [1.0, 2, 3, 4], "n": [5, 6, 7, 8], "text": [*"wxyz"]}, index=[10, 20, 30, 40]
    )
    return whole[whole["a"] > 1].rename_axis("id")


INDEXES = {
    "index": lambda: frame().index,
    "list": lambda: ["u", "v", "w"],
    "range": lambda: range(5, 8),
    "range-index": lambda: pd.RangeIndex(5, 11, 2),
    "dates": lambda: pd.date_range("2024-02-27", periods=3, freq="D", name="day"),
    "tuples": lambda: [(1, "a"), (1, "b"), (2, "a")],
    "levels": lambda: pd.MultiIndex.from_tuples([(1, 2), (3, 4), (5, 6)], names=["p", "q"]),
    "twice": lambda: ["u", "u", "w"],
    "array": lambda: np.array([7, 8, 9], "int16"),
    "categories": lambda: pd.CategoricalIndex(["b", "a", "b"]),
}


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("shape", [(3,), (3, 2)], ids=str)
def test_an_index_is_that_of_pandas_own_constructor(kind, shape):
    """For a series and for a frame, with its names and its frequency."""
    values = np.arange(np.prod(shape), dtype="float64").reshape(shape)
    make = pd.Series if len(shape) == 1 else pd.DataFrame
    expected = make(values, index=INDEXES[kind]())
    assert_equal = (
        pd.testing.assert_series_equal if len(shape) == 1 else pd.testing.assert_frame_equal
    )
    assert_equal(ferry.to_pandas(torch.from_numpy(values), index=INDEXES[kind]()), expected)
    assert_equal(ferry.convert(values, "pandas", index=INDEXES[kind]()), expected)


def test_labels_of_other_libraries_are_labels():
    """Their values: numbers and text."""
    for index in (torch.tensor([4, 5, 6]), pl.Series([4, 5, 6]), pa.array([4, 5, 6])):
        assert ferry.to_pandas(np.ones(3), index=index).index.tolist() == [4, 5, 6]
    for index in (pl.Series([*"uvw"]), pa.array([*"uvw"])):
        assert ferry.to_pandas(np.ones(3), index=index).index.tolist() == [*"uvw"]
    for names in (pd.Index(["u", "v"]), np.array(["u", "v"]), pl.Series(["u", "v"])):
        assert ferry.to_polars(np.ones((3, 2)), columns=names).columns == ["u", "v"]


def test_columns_are_named():
    """Also with names that are no strings, and of several levels; polars has strings alone."""
    values = np.arange(6.0).reshape(3, 2)
    for columns in (["u", "v"], [0.5, 1], [("a", 1), ("a", 2)], pd.Index(["u", "v"], name="part")):
        expected = pd.DataFrame(values, index=[*"xyz"], columns=columns)
        pd.testing.assert_frame_equal(
            ferry.to_pandas(values, index=[*"xyz"], columns=columns), expected
        )
    expected = pl.DataFrame({"u": [0.0, 2, 4], "v": [1.0, 3, 5]})
    assert ferry.to_polars(values, columns=["u", "v"]).equals(expected)
    assert ferry.convert(values, "polars", columns=("u", "v")).equals(expected)


def predictions():
    """One tensor of each framework, with the same values."""
    yield "torch", torch.tensor([0.25, 0.5, 0.75], requires_grad=True)
    yield "list", [0.25, 0.5, 0.75]
    yield "bfloat16", torch.tensor([0.25, 0.5, 0.75], dtype=torch.bfloat16)
    jax, tf = pytest.importorskip("jax"), pytest.importorskip("tensorflow")
    yield "jax", jax.numpy.array([0.25, 0.5, 0.75])
    yield "tensorflow", tf.constant([0.25, 0.5, 0.75])


def test_a_prediction_lands_in_its_rows():
    """In the frame that was filtered, and in the whole one. Without labels it does not."""
    whole = pd.DataFrame({"a": [1.0, 2, 3, 4]}, index=[3, 2, 1, 0])
    kept = whole[whole["a"] > 1]
    whole["p"] = ferry.to_pandas(torch.tensor([0.25, 0.5, 0.75]))
    assert whole["p"].tolist() != [np.nan, 0.25, 0.5, 0.75]
    for _, x in predictions():
        for series in (
            ferry.convert(x, like=kept["a"]),
            ferry.to_pandas(x, index=kept.index, dtype="float64"),
        ):
            whole["p"] = series
            np.testing.assert_array_equal(whole["p"].to_numpy(), [np.nan, 0.25, 0.5, 0.75])
        assert ferry.convert(x, like=kept["a"]).name == "a"


def test_like_gives_the_index_and_names_where_they_fit():
    """A series is one column, in a frame of one column too.

    A frame of text and numbers has labels, but no dtype.
    """
    like = frame()
    found = ferry.convert(np.arange(9, dtype="int8").reshape(3, 3), like=like)
    expected = pd.DataFrame(
        np.arange(9, dtype="int8").reshape(3, 3), index=like.index, columns=like.columns
    )
    pd.testing.assert_frame_equal(found, expected)
    two = ferry.convert(np.ones((3, 2)), like=like)
    assert (two.index.equals(like.index), two.columns.tolist()) == (True, [0, 1])
    other_rows = ferry.convert(np.ones((5, 3)), like=like)
    assert (other_rows.index.tolist(), other_rows.columns.tolist()) == (
        [0, 1, 2, 3, 4],
        ["a", "n", "text"],
    )
    as_frame = ferry.convert(np.ones((3, 1)), like=like["a"])
    assert (as_frame.index.equals(like.index), as_frame.columns.tolist()) == (True, ["a"])
    as_series = ferry.convert(np.ones(3), like=like[["a"]])
    assert (as_series.index.equals(like.index), as_series.name) == (True, "a")
    text = ferry.convert(np.array([1, 0, 1], "int8"), like=like["text"])
    pd.testing.assert_series_equal(text, pd.Series([1, 0, 1], like.index, "int8", "text"))
    of_polars = pl.DataFrame({"u": [1.0, 2], "v": [3.0, 4]})
    assert ferry.convert(np.ones((5, 2)), like=of_polars).columns == ["u", "v"]
    assert ferry.convert(np.ones(5), like=of_polars["v"]).name == "v"


def test_what_is_given_wins_over_like():
    """The rest is taken from it."""
    like = frame()["a"]
    found = ferry.convert(np.ones(3), like=like, index=[1, 2, 3])
    assert (found.index.tolist(), found.name) == ([1, 2, 3], "a")


def test_the_plan_says_where_labels_come_from_and_which_are_left():
    """With code that gives the same, pasted."""
    like, x = frame()[["a", "n"]], torch.arange(6.0).reshape(3, 2)
    cases = [
        (x, {"to": "pandas", "index": like.index, "columns": ["u", "v"]}, "index= and columns="),
        (x, {"like": like}, "the index of like= and the names of like="),
        (x[:, 0], {"like": like["a"]}, "the index of like= and the names of like="),
        (x[:, :1], {"like": like["a"]}, "the index of like= and the names of like="),
        (x[:, 0], {"like": like[["n"]]}, "the index of like= and the names of like="),
        (x, {"to": "polars", "columns": ["u", "v"]}, "columns="),
        (x[:, 0], {"like": pl.Series("s", [1.0])}, "the names of like="),
        (like, {"to": "pandas", "dtype": "float32"}, "the index of x and the names of x"),
        (like["a"], {"to": "pandas", "index": [1, 2, 3]}, "index="),
    ]
    for tensor, keywords, words in cases:
        plan = ferry.explain(tensor, **keywords)
        assert plan.steps[-1].why == f"labelled by {words}"
        pasted = {"x": tensor, **keywords}
        exec(plan.code, pasted)  # noqa: S102 - our own code
        found = ferry.convert(tensor, **keywords)
        assert type(pasted["y"]) is type(found)
        assert pasted["y"].equals(found)
        if "name" in dir(found):
            assert pasted["y"].name == found.name
        elif hasattr(found, "index"):
            assert found.columns.equals(pasted["y"].columns)
    plan = ferry.explain(torch.ones(5, 3), like=like)
    assert "the index of like= has 3 labels for 5 rows" in plan.reason
    assert "like= has 2 names for 3 columns" in plan.reason
    assert plan.steps[-1].verb != "label"
    described = ferry.explain(ferry.TensorInfo("torch", (3, 2)), like=like)
    assert described.steps[-1].verb == "label"
    with pytest.raises(ferry.ShapeError, match="index= has 3 labels, and the result has 2 rows"):
        ferry.explain(ferry.TensorInfo("torch", (2,)), "pandas", index=like.index)


def test_labels_change_nothing_about_memory():
    """What is shared stays shared, what is read-only stays so, what is copied is."""
    column, index = pa.array([1.0, 2.0]), [8, 9]
    found = ferry.to_pandas(column, index=index)
    assert ferry.shares_memory(found, column)
    with pytest.raises(ValueError, match="read-only"):
        found.iloc[0] = 5
    x = np.ones((2, 2))
    found = ferry.to_pandas(x, copy=False, index=index, columns=["a", "b"])
    assert np.shares_memory(found.to_numpy(), x)
    x[0, 0] = 7
    assert found.loc[8, "a"] == 7
    assert not np.shares_memory(ferry.to_pandas(x, index=index).to_numpy(), x)
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_pandas([1.0, 2.0], copy=False, index=index)
    own = ferry.to_pandas(column, copy=True, index=index)
    own.iloc[0] = 5
    assert column.to_pylist() == [1, 2]
    series = pl.Series("s", [1.0, 2.0])
    assert ferry.shares_memory(ferry.convert(column, like=series), column)


def test_a_source_and_a_like_are_not_changed():
    """Nor are the names of their index when those of the result change."""
    x, like = frame()["a"], frame()["n"]
    for found in (ferry.to_pandas(x, index=like.index), ferry.convert(np.ones(3), like=like)):
        found.index.name = "other"
        found.name = "other"
    assert (x.index.name, x.name, like.index.name, like.name) == ("id", "a", "id", "n")
    table = frame()[["a"]]
    found = ferry.to_pandas(table, columns=["z"])
    found.columns.name = "other"
    assert (table.columns.tolist(), table.columns.name) == (["a"], None)
    assert found.index.equals(table.index)


def test_a_series_or_frame_that_is_made_anew_keeps_its_labels():
    """For another dtype, as a copy, without nulls, and in a tree."""
    x = frame()
    pd.testing.assert_series_equal(
        ferry.to_pandas(x["a"], dtype="float32"), x["a"].astype("float32")
    )
    pd.testing.assert_frame_equal(
        ferry.to_pandas(x[["a", "n"]], dtype="float32"), x[["a", "n"]].astype("float32")
    )
    for copied in (ferry.to_pandas(x["a"], copy=True), ferry.snapshot([x["a"]])[0]):
        pd.testing.assert_series_equal(copied, x["a"])
        assert not np.shares_memory(copied.to_numpy(), x["a"].to_numpy())
    lacking = pd.Series([1, None], index=[5, 6], name="q", dtype="Int64")
    filled = pd.Series([1, 0], index=[5, 6], name="q")
    pd.testing.assert_series_equal(ferry.to_pandas(lacking, nulls=0), filled)
    pd.testing.assert_series_equal(ferry.convert_tree([lacking], "pandas", nulls=0)[0], filled)
    values, mask = ferry.to_pandas(lacking, nulls="mask")
    pd.testing.assert_series_equal(values, filled)
    assert (mask.index.tolist(), mask.tolist()) == ([5, 6], [True, False])
    tree = ferry.convert_tree({"one": x["a"], "again": x["a"]}, "pandas", dtype="float32")
    pd.testing.assert_series_equal(tree["one"], x["a"].astype("float32"))
    assert tree["again"] is tree["one"]
    table = pl.DataFrame({"u": [1], "v": [2]})
    assert ferry.to_polars(table, dtype="float32").columns == ["u", "v"]
    assert ferry.to_polars(table["v"], dtype="float32").name == "v"
    # Its own labels are facts, and those of `like=` a wish.
    kept = ferry.convert(x["a"], like=pd.Series([1.0, 2, 3], index=[7, 8, 9], name="z"))
    pd.testing.assert_series_equal(kept, x["a"])
    assert ferry.explain(x["a"], "pandas").warnings == ()
    assert "the index does not come along" in str(ferry.explain(x["a"], "torch"))


def test_trees_take_the_labels_of_like():
    """Of one for all leaves, or of each leaf's own."""
    like = frame()[["a", "n"]]
    tree = ferry.convert_tree({"p": torch.ones(3), "other": torch.ones(4)}, like=like["a"])
    assert tree["p"].index.equals(like.index)
    assert tree["other"].index.tolist() == [0, 1, 2, 3]
    tree = ferry.convert_tree(
        {"a": torch.ones(3), "n": torch.zeros(3, dtype=torch.int64)}, like=like
    )
    assert [(each.name, each.index.equals(like.index)) for each in tree.values()] == [
        ("a", True),
        ("n", True),
    ]
    plan = ferry.explain_tree({"p": torch.ones(3)}, like=like["a"])
    assert plan.leaves[0].plan.steps[-1].verb == "label"
    assert ferry.start({"p": torch.ones(3)}, like=like["a"]).result()["p"].index.equals(like.index)
    assert ferry.start(torch.ones(3), like=like["a"]).result().index.equals(like.index)
    assert ferry.collate([1.0, 2.0, 3.0], like=like["a"]).index.equals(like.index)
    with pytest.raises(TypeError, match=r"index must be True or False here.*like= all"):
        ferry.convert_tree([torch.ones(3)], "pandas", index=like.index)
    for call in (ferry.convert_tree, ferry.start, ferry.explain_tree):
        with pytest.raises(
            TypeError, match=r"columns= is for one tensor: to_pandas\(leaf, columns=…\)"
        ):
            call([torch.ones(3, 2)], "pandas", columns=["a", "b"])


def test_masks_and_rows():
    """A mask has the rows of its values; rows of unequal lengths have labels of their own, if any."""
    like = frame()["a"]
    values, mask = ferry.convert([1, None, 3], like=like, nulls="mask")
    assert values.index.equals(like.index)
    assert mask.index.equals(like.index)
    rows = ferry.convert([[1], [2, 3, 4]], like=like, ragged="rows")
    assert [row.index.tolist() for row in rows] == [[0], [0, 1, 2]]
    with pytest.raises(ferry.UnsupportedTypeError, match="index= labels one result"):
        ferry.to_pandas([[1], [2, 3]], ragged="rows", index=[1, 2])
    padded = ferry.to_pandas([[1], [2, 3]], pad=0, index=[5, 6], columns=["u", "v"])
    pd.testing.assert_frame_equal(
        padded, pd.DataFrame([[1, 0], [2, 3]], index=[5, 6], columns=["u", "v"])
    )


MATRIX = np.arange(6.0).reshape(3, 2)
REFUSED = [
    ("pandas", np.ones(3), {"index": [1, 2]}, "index= has 2 labels, and the result has 3 rows"),
    ("pandas", MATRIX, {"columns": ["a"]}, "columns= has 1 name, and the result has 2 columns"),
    ("polars", MATRIX, {"columns": [*"abc"]}, "columns= has 3 names, and the result has 2 columns"),
    ("pandas", np.ones(3), {"columns": ["a"]}, "whose name is set by its method rename"),
    ("polars", np.ones(3), {"columns": ["a"]}, "whose name is set by its method rename"),
    ("pandas", 1.5, {"index": [1]}, "at least 1 axis"),
    ("pandas", np.ones((2, 2, 2)), {"columns": ["a", "b"]}, "at most 2 axes"),
    ("pandas", np.ones(3), {"index": np.ones((3, 1))}, r"index= has shape \(3, 1\)"),
]


@pytest.mark.parametrize(("target", "x", "keywords", "message"), REFUSED)
def test_what_does_not_fit_is_refused(target, x, keywords, message):
    """By its conversion and by its plan; without the keyword it is as before."""
    for call in (ferry.convert, ferry.explain):
        with pytest.raises(ferry.ShapeError, match=message) as caught:
            call(x, target, **keywords)
        assert caught.value.hint


MENDED = [
    ("pandas", np.ones(3), "index", frame(), "is a DataFrame"),
    ("pandas", np.ones(3), "index", frame()["a"], "is a Series"),
    ("pandas", np.ones((3, 3)), "columns", frame(), "is a DataFrame"),
    ("pandas", MATRIX, "columns", ["a", "a"], "the name 'a' twice"),
    ("polars", MATRIX, "columns", ["a", "a"], "the name 'a' twice"),
    ("polars", MATRIX, "columns", [1, 2], "by strings"),
    ("pandas", np.ones((3, 1)), "columns", "p", "one string"),
    ("polars", np.ones((3, 1)), "columns", "p", "one string"),
]


@pytest.mark.parametrize(("target", "x", "keyword", "value", "message"), MENDED)
def test_a_hint_works_pasted(target, x, keyword, value, message):
    """Each of the ways that it names."""
    with pytest.raises(ferry.ConversionError, match=message) as caught:
        ferry.convert(x, target, **{keyword: value})
    for code in caught.value.hint.removesuffix(" for its values").split(", or "):
        mended = eval(code.partition("=")[2], {keyword: value})  # noqa: S307 - a hint
        found = ferry.convert(x, target, **{keyword: mended})
        assert list(found.index if keyword == "index" else found.columns) == list(mended)


def test_values_that_are_no_labels():
    """They have no order, or are no sequence."""
    for value in ({1, 2, 3}, {1: 2, 3: 4, 5: 6}, 3, True, b"abc", [[1], [2], [3]]):
        with pytest.raises(TypeError, match=r"^index (must be|cannot be)"):
            ferry.to_pandas(np.ones(3), index=value)
    with pytest.raises(TypeError, match=r"^columns must be"):
        ferry.to_polars(MATRIX, columns={"a": 1, "b": 2})


def test_a_target_without_labels_refuses_them_by_name():
    """Nothing is ignored."""
    for target, keyword, who in (
        ("numpy", "index", "pandas has it"),
        ("polars", "index", "pandas has it"),
        ("torch", "columns", "pandas and polars have it"),
    ):
        for call in (ferry.convert, ferry.explain):
            with pytest.raises(TypeError, match=f"^{target} has no option {keyword}=: {who}$"):
                call(MATRIX, target, **{keyword: [1, 2, 3]})
    with pytest.raises(
        TypeError, match=r"to_polars\(\) got an unexpected keyword argument 'index': pandas has it"
    ):
        ferry.to_polars(MATRIX, index=[1, 2, 3])
    with pytest.raises(TypeError, match=r"'indx'\. Did you mean 'index'"):
        ferry.to_pandas(MATRIX, indx=[1, 2, 3])


def test_labels_are_not_kept():
    """They can take as much memory as the result."""
    import gc
    import weakref

    index = pd.Index(np.arange(100, 103))
    gone = weakref.ref(index)
    ferry.to_pandas(np.ones(3), index=index)
    ferry.explain(np.ones(3), "pandas", index=index)
    like = pd.Series(np.ones(3), index=index)
    ferry.convert(np.ones(3), like=like)
    ferry.convert_tree([np.ones(3)], like=like)
    del index, like
    gc.collect()
    assert gone() is None
