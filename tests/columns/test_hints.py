"""The code in hints about columns does what it says: it is run, in the place where it was given."""

from __future__ import annotations

import datetime as dt
import decimal
import re

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
pl = pytest.importorskip("polars", reason="polars is not in this environment")
torch = pytest.importorskip("torch")

NAMES = {name: getattr(ferry, name) for name in ferry.__all__} | {
    "np": np,
    "pd": pd,
    "pa": pa,
    "pl": pl,
}


def hint_of(do, *arguments, **keywords):
    with pytest.raises(ferry.ConversionError) as caught:
        do(*arguments, **keywords)
    return caught.value.hint


def ways(hint):
    """The calls in a hint."""
    return [part.partition(", which")[0].removeprefix("or ") for part in hint.split("; ")]


def run(code, x):
    return eval(code, {**NAMES, "x": x})  # noqa: S307 - that is what the hint is for


@pytest.mark.parametrize("nulls", [0, False, 1.5])
def test_nulls_of_booleans_beside_numbers_name_what_is_right_for_both(nulls):
    """No value is one of both, so that a hint with a value would lead to the other column, and back."""
    table = pa.table({"a": [1, None], "b": [True, None]})
    seen = set()
    code = f"nulls={nulls}"
    for _ in range(3):
        hint = hint_of(
            lambda given: eval(f'f(x, "numpy", {given})', {"f": ferry.convert_tree, "x": table}),  # noqa: S307
            code,
        )
        assert hint not in seen
        seen.add(hint)
        if hint == 'nulls="mask"':
            break
        code = hint
    found = ferry.convert_tree(table, "numpy", nulls="mask")
    assert {name: each.tolist() for name, each in found.items()} == {
        "a": [1, 0],
        "a_mask": [True, False],
        "b": [True, False],
        "b_mask": [True, False],
    }
    assert hint_of(ferry.to_numpy, pa.array([True, None]), nulls=0) == "nulls=False"


def test_an_error_about_nulls_says_in_which_column():
    with pytest.raises(ferry.LossyCastError, match=re.escape('no value of bool. - at $["f"]["b"]')):
        ferry.convert_tree({"f": pa.table({"a": [1, None], "b": [True, None]})}, "numpy", nulls=0)


@pytest.mark.parametrize(
    ("x", "values"),
    [
        (pd.Series(["b", "a"], dtype="category"), [1, 0]),
        (pa.array([decimal.Decimal("1.5"), decimal.Decimal(2)]), [1.5, 2.0]),
        (pa.array([decimal.Decimal(2**70)], pa.decimal128(38, 0)), [float(2**70)]),
    ],
)
@pytest.mark.parametrize("kind", ["a name", "a.b", 'a "word"', "int64", "x*"])
def test_a_hint_in_a_tree_names_the_leaf_and_keeps_what_was_asked(x, values, kind, tmp_path):
    """One dtype would change the leaves of its kind, and none of these."""
    tree = {"f": {kind: x}, "n": np.ones(1)}

    def refused(hint):
        (code,) = ways(hint)
        return run(code, tree)

    if not isinstance(x, pd.Series):
        found = refused(hint_of(ferry.convert_tree, tree, "numpy", dtype="int32"))
        assert (found["f"][kind].tolist(), found["n"].dtype) == (values, "float64")
    if values != [float(2**70)]:
        found = refused(hint_of(ferry.save, tree, tmp_path / "file.safetensors"))
        assert (found["f"][kind].tolist(), found["n"].dtype) == (values, "float64")
        ferry.save(found, tmp_path / "file.safetensors")


def test_a_hint_about_nulls_of_dates_names_the_leaf():
    table = pd.DataFrame({"d": pd.to_datetime(["1970-01-02", None]).astype("datetime64[s]")})
    hint = hint_of(ferry.convert_tree, table, "numpy", dtype={"d": "int64"})
    filled, masked = (run(code, table) for code in ways(hint))
    assert filled["d"].tolist() == masked["d"].tolist() == [86400, 0]
    assert masked["d_mask"].tolist() == [True, False]
    alone = pa.array([decimal.Decimal("1.5")])
    (code,) = ways(hint_of(ferry.convert_tree, alone, "numpy"))
    assert run(code, alone).tolist() == [1.5]


@pytest.mark.parametrize(
    ("x", "padded", "keywords"),
    [
        (pa.array([[True], [True, False]]), [[True, False], [True, False]], {}),
        (pa.array([[1.5], [2.5, 3.0], [None]]), [[1.5, 0], [2.5, 3.0], [None, 0]], {}),
        (pl.Series([[1], [2, None]]), [[1, 0], [2, 0]], {}),
        (pd.Series([[1], [2, None]]), [[1, 0], [2, 0]], {}),
        (pa.array([[1], [2, None]], pa.list_(pa.date32())), [[1, 0], [2, 0]], {"dtype": "int64"}),
        (pa.array([[decimal.Decimal("1.5")], []]), [[1.5], [0]], {"dtype": "float64"}),
    ],
)
def test_hints_about_rows_of_unequal_lengths_work(x, padded, keywords):
    """Also with nulls among the elements, and for a column that is numbers only if a dtype is named."""
    named = {"dtype": {"a": keywords["dtype"]}} if keywords else {}
    for do, given, leaf in (
        (lambda given: ferry.to_torch(given, **keywords), x, lambda found: found),
        (
            lambda given: ferry.convert_tree(given, "torch", **named),
            {"a": x},
            lambda found: found["a"],
        ),
    ):
        *rows, filled = (leaf(run(code, given)) for code in ways(hint_of(do, given)))
        assert [
            [None if each != each else each for each in row]  # noqa: PLR0124
            for row in filled.tolist()
        ] == padded
        assert [list(map(len, each)) for each in rows] == ([] if keywords else [list(map(len, x))])
    if keywords:
        (code,) = ways(
            hint_of(ferry.convert_tree, {"a": x}, "torch", **named, ragged="rows", nulls=0)
        )
        found = ferry.convert_tree(
            {"a": x},
            "torch",
            **eval(f"dict({code})"),  # noqa: S307
            ragged="rows",
            nulls=0,
        )["a"]
        assert [str(each.dtype) for each in found] == [f"torch.{keywords['dtype']}"] * len(x)


def test_hints_about_types_that_are_not_known_give_their_storage():
    """In one piece or in several, in a table, and in the words of each library."""
    of_arrow = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", "[]"]))
    both = pa.chunked_array([of_arrow, of_arrow])
    of_pandas, of_polars = (
        pd.Series(pd.arrays.ArrowExtensionArray(of_arrow)),
        pl.from_arrow(pa.table({"c": of_arrow})),
    )
    for x in (
        of_arrow,
        both,
        pa.table({"c": both}),
        of_pandas,
        of_pandas.to_frame("c"),
        of_polars,
        of_polars["c"],
    ):
        found = run(hint_of(ferry.to_numpy, x), x)
        found = found if not hasattr(found, "columns") else found["c"]
        assert list(found.to_pylist() if hasattr(found, "to_pylist") else found)[:2] == ["{}", "[]"]
    lists = pa.ListArray.from_arrays([0, 2], of_arrow)
    assert run(hint_of(ferry.to_numpy, lists), lists) == [["{}", "[]"]]


def test_hints_about_files_and_fields_are_in_the_words_of_each_library():
    """Also where the fields are in lists, or in a dictionary, which are no table."""
    files = pa.array([{"bytes": b"GIF", "path": None}])
    for x in (
        files,
        pl.from_arrow(files),
        pd.Series(files.to_pylist(), dtype=pd.ArrowDtype(files.type)),
    ):
        code = hint_of(ferry.to_numpy, x).removesuffix(", which decodes images")
        code = code.replace("PIL.Image.open(io.BytesIO", "(bytes")
        assert run(code.replace('(bytes(each["bytes"]))', 'each["bytes"]'), x) == [b"GIF"]
    unequal = pa.array([[{"a": 1}], []])
    encoded = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([{"a": 1}]))
    for x in (unequal, encoded):
        assert run(hint_of(ferry.to_numpy, x), x) == x.to_pylist()


def test_hints_about_a_column_that_came_alone_make_no_table_of_it():
    class Column:
        def __arrow_c_array__(self, requested_schema=None):
            return pa.array([[1], None]).__arrow_c_array__()

    x = Column()
    for tree, keywords in ((x, {}), (x, {"nulls": 0})):
        (code,) = ways(hint_of(ferry.convert_tree, tree, "numpy", **keywords))
        assert run(code, tree).to_pylist() == [[1]]


def test_rows_that_are_no_numbers_are_refused_for_what_they_hold():
    """And not for their lengths, which no keyword would help."""
    with pytest.raises(ferry.UnsupportedTypeError, match="holds text"):
        ferry.to_numpy(pa.array([["a"], []]))
    with pytest.raises(ferry.UnsupportedTypeError, match="and nulls, the first at row 2"):
        ferry.to_numpy(pa.array([[1, 2], [], [None]]), pad=0)


def test_hints_about_rows_name_what_jax_has():
    jax = pytest.importorskip("jax")
    x = pa.array([[1], [2, 3]])
    with jax.enable_x64(False):
        rows, padded = (run(code, x) for code in ways(hint_of(ferry.to_jax, x)))
    assert [row.tolist() for row in rows] == [[1], [2, 3]]
    assert padded.tolist() == [[1, 0], [2, 3]]


@pytest.mark.parametrize(
    "do", [ferry.convert_tree, lambda x, *rest, **keys: ferry.collate([x], *rest, **keys)]
)
def test_a_dtype_for_text_is_refused_with_the_reason(do):
    """It is a leaf, with this name: only that it is no tensor."""
    table = pd.DataFrame({"t": ["a"], "x": [1], "d": pd.to_datetime(["2020"])})
    with pytest.raises(
        ferry.UnsupportedTypeError, match="'t', which is no tensor: it holds text"
    ) as caught:
        do(table, "numpy", dtype={"t": "int64"})
    assert caught.value.hint == "without dtype="
    with pytest.raises(
        ferry.UnsupportedTypeError, match="'t', which is no tensor: it holds text"
    ) as caught:
        do(table, "numpy", dtype={"t": "int64", "x": "int8", "float": "float32"})
    assert caught.value.hint == 'dtype={"x": "int8", "float": "float32"}'
    with pytest.raises(
        ferry.UnsupportedTypeError, match="'d', which is no tensor: it holds dates"
    ) as caught:
        do(table, "numpy", dtype={"d": "float32"})
    assert caught.value.hint == 'dtype={"d": "int64"}'
    with pytest.raises(ferry.UnsupportedTypeError, match="'y', which no tensor has"):
        do(table, "numpy", dtype={"y": "int64"})


@pytest.mark.unwatched  # inside of jax.enable_x64, which goes before jax.config
def test_a_hint_for_jax_without_64_bits_says_what_comes_first():
    """A count of microseconds has no other dtype; a decimal is rounded in any case."""
    jax = pytest.importorskip("jax")
    x = pa.array([dt.datetime(2020, 1, 1)])  # noqa: DTZ001 - Arrow's own without a zone
    with jax.enable_x64(False):
        code, setting = ways(hint_of(ferry.to_jax, x))
        assert setting == 'jax.config.update("jax_enable_x64", True) first'
        assert run(
            *ways(hint_of(ferry.to_jax, pa.array([decimal.Decimal("1.5")]))), pa.array([1.5])
        ).tolist() == [1.5]
    with jax.enable_x64(True):
        assert run(code, x).tolist() == [
            (dt.date(2020, 1, 1) - dt.date(1970, 1, 1)).days * 86400 * 10**6
        ]


def test_samples_that_differ_are_named_by_the_classes_of_their_library():
    samples = [{"a": pa.array([1.5, None])}, {"a": pa.nulls(2)}]
    with pytest.raises(
        ferry.UnsupportedTypeError, match="Sample 0 has a DoubleArray there, sample 1 a NullArray"
    ):
        ferry.collate(samples, "numpy", nulls="nan")


@pytest.mark.parametrize(
    "make",
    [lambda kept: pd.DataFrame({"a b": kept}), lambda kept: {"deep": {"a b": pd.Series(kept)}}],
)
def test_a_hint_about_a_column_in_a_tree_has_its_place(make):
    """`x` is the tree there, which has no method of the column."""
    kept = [{"k": 1}, {"k": 2}]
    tree = make(kept)
    for do, x in (
        (ferry.convert_tree, tree),
        (ferry.to_numpy, pd.Series(kept)),
        (ferry.to_numpy, make(kept)),
    ):
        if do is ferry.convert_tree or not isinstance(x, dict):
            code = hint_of(do, x, *(["numpy"] if do is ferry.convert_tree else [])).partition(
                ", which"
            )[0]
            found = run(code.removesuffix(" in its place"), x)
            assert ferry.to_list([each["k"] for each in found]) == [1, 2]


MIXED = pd.Series([np.ones(2), np.ones(2, int)])


@pytest.mark.parametrize(
    ("do", "x", "values"),
    [
        (
            ferry.snapshot,
            {"h": pd.Series([torch.ones(2, dtype=torch.bfloat16)] * 2)},
            [[1.0, 1.0]] * 2,
        ),
        (ferry.snapshot, {"h": MIXED}, [[1.0, 1.0]] * 2),
        (ferry.describe_tree, {"h": MIXED}, [[1.0, 1.0]] * 2),
        (ferry.describe, MIXED, [[1.0, 1.0]] * 2),
        (lambda x: ferry.shares_memory(x, x), MIXED, [[1.0, 1.0]] * 2),
        (ferry.describe, pa.table({"a": [1], "b": [True]}), [[1.0, 1.0]]),
    ],
)
def test_functions_without_dtype_do_not_hint_at_it(do, x, values):
    code, *_ = ways(hint_of(do, x))
    found = run(code, x)
    assert (found["h"] if isinstance(x, dict) else found).tolist() == values


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([decimal.Decimal("1.5")]), [[1.5]] * 2),
        (pa.array([decimal.Decimal(2**70)], pa.decimal128(38, 0)), [[float(2**70)]] * 2),
        (pa.array([1, None]), [[1, 0]] * 2),
    ],
)
def test_hints_of_collate_are_about_samples(column, values):
    """`x` is the list of samples there, and `convert_tree` would have other names for its leaves."""
    x = [{"p": column}] * 2
    for code in ways(hint_of(ferry.collate, x, "numpy")):
        assert run(code.removeprefix("or "), x)["p"].tolist() == values
