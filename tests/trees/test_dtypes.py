"""Which dtype each leaf takes: by kind, by dtype, by name, and the same wherever trees are converted."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorferry as ferry
from tensorferry.core.leaf_dtypes import dtype_of_leaf, rule_of

torch = pytest.importorskip("torch")


def batch():
    return {
        "image": np.array([0.5, 1.5]),
        "ids": np.array([1, 257], "uint16"),
        "label": np.array([3, 257]),
        "mask": np.array([True, False]),
        "phase": np.array([1j]),
        "encoder": [
            {"weight": torch.ones(2, dtype=torch.float32)},
            {"bias": torch.zeros(1, dtype=torch.float16)},
        ],
        "name": "a",
    }


def dtypes(tree):
    return {path: info.dtype for path, info in ferry.describe_tree(tree).items()}


def changed(tree, **keywords):
    """The dtypes that are not what they were, by path."""
    before, after = dtypes(tree), dtypes(ferry.convert_tree(tree, "numpy", **keywords))
    assert before.keys() == after.keys()
    return {path: name for path, name in after.items() if name != before[path]}


# -- H82: a named dtype is for leaves of its kind --------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "kinds"),
    [
        ("bfloat16", {"float"}),
        (torch.bfloat16, {"float"}),
        (float, {"float"}),
        ("complex64", {"complex"}),
        ("int32", {"int", "uint"}),
        ("uint32", {"int", "uint"}),
        ("bool", {"bool"}),
    ],
)
def test_H82_a_named_dtype_goes_to_leaves_of_its_own_kind(dtype, kinds):
    """Labels, ids and masks keep theirs: 257 is no bfloat16, and nobody asked for one."""
    from tensorferry.core.dtype_names import name_of
    from tensorferry.core.dtypes import find

    tree = batch()
    for path, after in dtypes(ferry.convert_tree(tree, "numpy", dtype=dtype)).items():
        before = dtypes(tree)[path]
        assert after == (name_of(dtype) if find(before).kind in kinds else before)


def test_H82_like_one_tensor_its_dtype_goes_to_its_kind():
    """As for a dtype that is named; with `dtype=` beside it, that says more of the leaves that it speaks of."""
    half = torch.ones(1, dtype=torch.float16)
    floats = {'$["image"]': "float16", '$["encoder"][0]["weight"]': "float16"}
    tree = batch()
    before = dtypes(tree)
    assert dtypes(ferry.convert_tree(tree, like=half)) == {**before, **floats}
    besides = ferry.convert_tree(tree, like=half, dtype={"mask": "uint8", "encoder.*": None})
    assert dtypes(besides) == {**before, '$["image"]': "float16", '$["mask"]': "uint8"}
    assert dtypes(ferry.convert_tree(tree, like=half, dtype="int32")) == {
        **before,
        **floats,
        '$["ids"]': "int32",
        '$["label"]': "int32",
    }


def test_H82_H102_like_a_tree_each_leaf_takes_that_of_its_own_unless_dtype_speaks_of_it():
    """If it is of its kind: a mask, or an index, stays what it is."""
    tree = {"x": np.ones(2), "n": np.arange(2), "m": np.array([True, False])}
    like = {
        "x": torch.ones(1, dtype=torch.float32),
        "n": torch.ones(1, dtype=torch.float16),
        "m": torch.ones(1, dtype=torch.int8),
    }
    result = ferry.convert_tree(tree, like=like)
    assert {name: x.dtype for name, x in result.items()} == {
        "x": torch.float32,
        "n": torch.int64,
        "m": torch.bool,
    }
    result = ferry.convert_tree(tree, like=like, dtype={"float": "bfloat16", "n": torch.float16})
    assert {name: x.dtype for name, x in result.items()} == {
        "x": torch.bfloat16,
        "n": torch.float16,
        "m": torch.bool,
    }
    result = ferry.convert_tree(tree, like=like, dtype={"x": None})
    assert result["x"].dtype == torch.float64
    planned = {
        leaf.path: leaf.plan.result.dtype for leaf in ferry.explain_tree(tree, like=like).leaves
    }
    assert planned == {'$["x"]': "float32", '$["n"]': "int64", '$["m"]': "bool"}


def test_H102_numbers_take_the_dtype_of_the_leaf_in_like():
    """Python numbers, alone or in a list below a key, have no dtype of their own."""
    like = {"x": np.ones(1, np.float32), "n": np.ones(1, np.float16)}
    result = ferry.convert_tree({"x": 1, "n": 2}, like=like, leaves="numbers")
    assert {name: x.dtype for name, x in result.items()} == {"x": np.float32, "n": np.float16}
    batch = ferry.collate([{"x": 1, "n": [2, 3]}, {"x": 2, "n": [4]}], like=like, pad=0)
    assert {name: x.dtype for name, x in batch.items()} == {"x": np.float32, "n": np.float16}
    assert batch["n"].tolist() == [[2, 3], [4, 0]]
    batch = ferry.collate([{"x": 1, "n": np.int8(2)}, {"x": 2, "n": np.int8(4)}], like=like)
    assert {name: x.dtype for name, x in batch.items()} == {"x": np.float32, "n": np.int8}
    batch = ferry.collate(
        [{"x": 1, "n": 2}, {"x": np.bool_(True), "n": np.bool_(True)}],
        like=like,
        dtype={"x": "uint8", "n": "uint8"},
    )
    assert {name: x.dtype for name, x in batch.items()} == {"x": np.uint8, "n": np.uint8}


def test_H102_like_one_tensor_numbers_that_are_leaves_count_by_their_kind():
    """Labels stay integers beside images that become float16, as with a dtype that is named."""
    samples = [{"image": np.ones(2), "label": 3}, {"image": np.zeros(2), "label": 4}]
    batch = ferry.collate(samples, like=np.ones(1, np.float16))
    assert (batch["image"].dtype, batch["label"].dtype) == (np.float16, np.int64)


def test_the_example_of_the_contract():
    """Names, dtypes and kinds, of any framework, in one mapping."""
    wanted = {"image": "bfloat16", "int64": "int32", "bool": "uint8"}
    assert changed(batch(), dtype=wanted) == {
        '$["image"]': "bfloat16",
        '$["label"]': "int32",
        '$["mask"]': "uint8",
    }


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({}, {}),
        (
            {"float": "bfloat16", "encoder.*": None, "encoder.1.bias": "float64"},
            {"image": 1, "encoder.1.bias": 2},
        ),
        (
            {"encoder.1.bias": "float64", "encoder.*": "bfloat16"},
            {"encoder.0.weight": 1, "encoder.1.bias": 2},
        ),
        (
            {"encoder.*": "bfloat16", "*.bias": "float64"},
            {"encoder.0.weight": 1, "encoder.1.bias": 2},
        ),
        (
            {"*.bias": "float64", "encoder.*": "bfloat16"},
            {"encoder.0.weight": 1, "encoder.1.bias": 1},
        ),
        (
            {"float16": "float64", "float": "bfloat16"},
            {"image": 1, "encoder.0.weight": 1, "encoder.1.bias": 2},
        ),
        (
            {float: "bfloat16", torch.float16: np.float64},
            {"image": 1, "encoder.0.weight": 1, "encoder.1.bias": 2},
        ),
        ({"encoder.?.[bw]*": "bfloat16"}, {"encoder.0.weight": 1, "encoder.1.bias": 1}),
        ({"float32": "default"}, {"encoder.0.weight": 2}),
    ],
)
def test_names_win_over_dtypes_and_dtypes_over_kinds(mapping, expected):
    """A whole name over a glob, a later glob over an earlier one; None keeps what there is."""
    words = {"image": '$["image"]'}
    words |= {
        f"encoder.{n}.{k}": f'$["encoder"][{n}]["{k}"]' for n, k in [(0, "weight"), (1, "bias")]
    }
    names = {1: "bfloat16", 2: "float64"}
    assert changed(batch(), dtype=mapping) == {
        words[leaf]: names[which] for leaf, which in expected.items()
    }


def test_int_is_signed_and_uint_is_not():
    """As keys each is one kind; as one dtype for all, an integer goes to both."""
    assert changed(batch(), dtype={"int": "int32"}) == {'$["label"]': "int32"}
    assert changed(batch(), dtype={"uint": "uint32"}) == {'$["ids"]': "uint32"}


def test_a_leaf_that_is_called_as_a_kind_or_a_dtype_is_reached_by_a_glob():
    """The word itself is the kind or the dtype."""
    tree = {"float": np.ones(1), "int64": np.ones(1), "other": np.arange(1)}
    assert changed(tree, dtype={"float": "float16"}) == {
        '$["float"]': "float16",
        '$["int64"]': "float16",
    }
    assert changed(tree, dtype={"[f]loat": "float16"}) == {'$["float"]': "float16"}
    assert changed(tree, dtype={"int64": "int8"}) == {'$["other"]': "int8"}
    assert changed(tree, dtype={"int6[4]": "float16"}) == {'$["int64"]': "float16"}


def test_what_only_sounds_like_a_dtype_is_a_leafs_name():
    """b is a bias and not NumPy's code for int8; a dtype's short names are refused in words."""
    tree = {"w": np.ones(1), "b": np.ones(1), "half": np.ones(1), "i": np.arange(1)}
    assert changed(tree, dtype={"b": "float16", "half": "float32"}) == {
        '$["b"]': "float16",
        '$["half"]': "float32",
    }
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.convert_tree(tree, "numpy", dtype={"f8": "float32"})
    assert caught.value.hint == 'dtype={"float64": "float32"}'
    with pytest.raises(ferry.UnsupportedTypeError, match="the nearest are w") as caught:
        ferry.convert_tree({"w": np.ones(1)}, "numpy", dtype={"b": "float16"})
    assert caught.value.hint == 'dtype={"w": "float16"}'


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Sample:
    image: Any
    pair: Pair


def test_names_lead_through_every_container():
    """Keys, places, attributes and fields, with dots between them; a number as a key is a place."""
    tree = [
        Sample(np.ones(1), Pair(np.ones(1), {3: np.ones(1)})),
        np.zeros(1, [("x", "f8"), ("y", "f8")]),
        {"a.b": np.ones(1), 'say "c"': np.ones(1)},
    ]
    names = {
        "0.image": "$[0].image",
        "0.pair.first": "$[0].pair.first",
        "0.pair.second.3": "$[0].pair.second[3]",
        "1.y": '$[1]["y"]',
        "2.a.b": '$[2]["a.b"]',
        '2.say "c"': '$[2]["say \\"c\\""]',
    }
    for name, path in names.items():
        assert changed(tree, dtype={name: "float16"}) == {path: "float16"}
    assert changed([np.ones(1), np.ones(1)], dtype={1: "float16"}) == {"$[1]": "float16"}
    assert changed(np.ones(1), dtype={"*": "float16"}) == {"$": "float16"}


@pytest.mark.parametrize(
    ("mapping", "hint"),
    [
        ({"imge": "bfloat16"}, 'dtype={"image": "bfloat16"}'),
        ({"encoder": "bfloat16"}, 'dtype={"encoder.*": "bfloat16"}'),
        ({"encoder.0.wieght": None}, 'dtype={"encoder.0.weight": None}'),
        ({"float": "float16", "Label": "int32"}, 'dtype={"label": "int32", "float": "float16"}'),
        ({'$["encoder"][0]["weight"]': "bfloat16"}, 'dtype={"encoder.0.weight": "bfloat16"}'),
        ({'$["encoder"][0]': "bfloat16"}, 'dtype={"encoder.0.*": "bfloat16"}'),
        ({"flaot": "bfloat16"}, 'dtype={"float": "bfloat16"}'),
    ],
)
def test_a_name_that_no_leaf_has_is_an_error(mapping, hint):
    """With the nearest, as code; in every function for trees; nothing has been converted."""
    tree = batch()
    for call in (
        lambda: ferry.convert_tree(tree, "numpy", dtype=mapping),
        lambda: ferry.explain_tree(tree, "numpy", dtype=mapping),
        lambda: ferry.collate([tree, tree], "numpy", dtype=mapping),
        lambda: ferry.start(tree, "numpy", dtype=mapping),
        lambda: next(iter(ferry.prefetch([tree], "numpy", dtype=mapping))),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match="which no tensor has") as caught:
            call()
        assert caught.value.hint == hint


def test_a_leaf_that_is_no_tensor_has_no_name_to_ask_for():
    """Text stays text; a number is one where numbers are converted."""
    with pytest.raises(ferry.UnsupportedTypeError, match="which no tensor has"):
        ferry.convert_tree(batch(), "numpy", dtype={"name": "float32"})
    with pytest.raises(ferry.UnsupportedTypeError, match="none has a name"):
        ferry.convert_tree({"n": 1}, "numpy", dtype={"n": "int8"})
    assert (
        ferry.convert_tree({"n": 1}, "numpy", dtype={"n": "int8"}, leaves="numbers")["n"].dtype
        == np.int8
    )


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"float": "flot32"}, "is not a dtype"),
        ({"float": {"image": "float32"}}, "a mapping under"),
        ({torch.float32: "float16", "float32": "bfloat16"}, "two things of float32"),
        ({None: "float16"}, "is not a dtype"),
        ([("float", "float16")], "is not a dtype"),
    ],
)
def test_wrong_mappings_are_refused(mapping, words):
    """Before anything is looked at."""
    for call in (
        lambda: ferry.convert_tree({}, "numpy", dtype=mapping),
        lambda: ferry.collate([{}], "numpy", dtype=mapping),
        lambda: ferry.start({}, "numpy", dtype=mapping),
        lambda: ferry.prefetch([], "numpy", dtype=mapping),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match=words):
            call()


def test_python_numbers_have_the_kind_of_their_type():
    """And the dtype that `describe` says: a bool is no integer."""
    tree = {"i": 3, "f": 1.5, "b": True, "c": 1j, "s": np.float32(2)}

    def found(dtype):
        result = ferry.convert_tree(tree, "numpy", dtype=dtype, leaves="numbers")
        return {name: array.dtype.name for name, array in result.items()}

    plain = {"i": "int64", "f": "float64", "b": "bool", "c": "complex128", "s": "float32"}
    assert found(None) == plain
    assert found("float16") == {**plain, "f": "float16", "s": "float16"}
    assert found("int8") == {**plain, "i": "int8"}
    assert found({"int64": "int8", "float32": "float64"}) == {**plain, "i": "int8", "s": "float64"}


def test_lists_of_numbers_are_read_exactly_before_their_dtype_is_decided():
    """Many of them too, which are read part by part: a float64 that was asked for is not rounded on the way."""
    rows = {"x": [0.1] * 100_000, "n": [2**40] * 100_000}
    result = ferry.convert_tree(
        rows, "torch", dtype={"x": "float64"}, leaves=lambda x: isinstance(x, list)
    )
    assert result["x"].dtype == torch.float64
    assert result["x"][-1].item() == 0.1
    assert result["n"][-1].item() == 2**40


def test_stacks_stay_in_the_graph():
    """A leaf that is a list of tensors is still stacked by its own framework."""
    leaf = torch.ones(2, requires_grad=True)
    result = ferry.convert_tree(
        {"rows": [leaf, leaf]},
        "torch",
        dtype={"float": "float64"},
        leaves=lambda x: isinstance(x, list),
    )
    assert result["rows"].requires_grad


def test_fit_for_every_leaf():
    """JAX without 64-bit types has the widest that it can; integers are compared, with their path."""
    pytest.importorskip("jax")
    result = ferry.convert_tree(batch(), "jax", dtype="fit")
    assert dtypes(result) == {
        **dtypes(batch()),
        '$["image"]': "float32",
        '$["label"]': "int32",
        '$["phase"]': "complex64",
    }
    with pytest.raises(ferry.LossyCastError, match=r'\$\["n"\]'):
        ferry.convert_tree({"n": np.array([2**40])}, "jax", dtype="fit")
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.convert_tree({"n": np.array([2**40])}, "jax")
    assert caught.value.hint.startswith('dtype="fit"')


def test_what_is_tied_stays_tied_where_the_same_is_asked_of_it():
    """Two names of one tensor with two dtypes are two results."""
    weight = torch.ones(2)
    tree = {"a": weight, "b": weight, "c": weight}
    result = ferry.convert_tree(tree, "torch", dtype={"c": "float16", "float": "bfloat16"})
    assert result["a"] is result["b"]
    assert (result["a"].dtype, result["c"].dtype) == (torch.bfloat16, torch.float16)


def test_collate_asks_of_what_is_stacked():
    """By the dtype that the tensors of a leaf have together, or the kind of a number among them that is higher."""
    samples = [
        {"x": np.ones(2, "float32"), "y": 1, "m": True},
        {"x": torch.zeros(2).double(), "y": 2, "m": False},
    ]

    def found(dtype, samples=samples):
        return {
            name: each.dtype.name
            for name, each in ferry.collate(samples, "numpy", dtype=dtype).items()
        }

    assert found("float16") == {"x": "float16", "y": "int64", "m": "bool"}
    assert found({"float64": "float16", "y": "int8"}) == {"x": "float16", "y": "int8", "m": "bool"}
    assert found("int32") == {"x": "float64", "y": "int32", "m": "bool"}
    mixed = [{"x": torch.tensor(2)}, {"x": 1.5}]
    assert found("float32", mixed) == {"x": "float32"}
    with pytest.raises(ferry.LossyCastError):
        found("int32", mixed)


def test_an_out_of_another_dtype_than_its_leaf_takes_contradicts():
    """Only of the leaves that dtype= speaks of."""
    tree = {"x": np.ones(2), "n": np.arange(2)}
    out = {"x": torch.zeros(2), "n": torch.zeros(2, dtype=torch.int32)}
    assert ferry.convert_tree(tree, "torch", out=out, dtype="float32")["n"].tolist() == [0, 1]
    with pytest.raises(ferry.LossyCastError, match=r'out= is float32.*\$\["x"\]'):
        ferry.convert_tree(tree, "torch", out=out, dtype="float64")


# -- one function, read literally ------------------------------------------------------------------

KINDS = {
    "float64": "float",
    "float32": "float",
    "int64": "int",
    "uint8": "uint",
    "bool": "bool",
    "complex64": "complex",
}
NAMES = ["x", "y", "deep.x", "deep.y"]
DTYPE = st.sampled_from(list(KINDS))
VALUE = st.sampled_from([*KINDS, "fit", "default", None, "bfloat16"])
KEYS = st.sampled_from([*NAMES, "deep.*", "*x", *KINDS, "float", "int", "uint", "complex"])


def literal(asked, dtype, name):
    """The row of the table."""
    kind = KINDS[dtype]
    if not isinstance(asked, dict):
        if asked in (None, "fit", "default"):
            return asked
        own = "float" if asked == "bfloat16" else KINDS[asked]
        integers = {"int", "uint"}
        return asked if kind == own or {kind, own} <= integers else None
    if name in asked:
        return asked[name]
    globs = [key for key in asked if "*" in key]
    for key in reversed(globs):
        if (key == "deep.*" and name.startswith("deep.")) or (key == "*x" and name.endswith("x")):
            return asked[key]
    return asked[dtype] if dtype in asked else asked.get(kind)


@given(st.one_of(VALUE, st.dictionaries(KEYS, VALUE)), DTYPE, st.sampled_from(NAMES))
def test_the_function_says_what_the_table_says(asked, dtype, name):
    """For one dtype and for mappings of names, globs, dtypes and kinds."""
    assert dtype_of_leaf(rule_of(asked), dtype, name) == literal(asked, dtype, name)


@given(
    st.one_of(VALUE, st.dictionaries(KEYS, VALUE, max_size=4)),
    st.lists(DTYPE, min_size=4, max_size=4),
)
def test_all_that_converts_trees_goes_by_it(asked, kinds):
    """The same dtypes from convert_tree, explain_tree, collate, start and prefetch."""
    x, y, deep_x, deep_y = (np.ones(2, kind) for kind in kinds)
    tree = {"x": x, "y": y, "deep": {"x": deep_x, "y": deep_y}}
    keywords = {"dtype": asked, "casting": "unsafe"}

    expected = {
        path: leaf.result.dtype
        for path, leaf in ferry.explain_tree(tree, "numpy", **keywords).plans.items()
    }
    for name, kind, path in zip(NAMES, kinds, expected, strict=True):
        said = literal(asked, kind, name)
        assert (
            expected[path]
            == ferry.to_numpy(np.ones(2, kind), dtype=said, casting="unsafe").dtype.name
        )
    assert dtypes(ferry.convert_tree(tree, "numpy", **keywords)) == expected
    assert dtypes(ferry.collate([tree, tree], "numpy", **keywords)) == expected
    assert dtypes(ferry.start(tree, "numpy", **keywords).result()) == expected
    assert dtypes(next(iter(ferry.prefetch([tree], "numpy", **keywords)))) == expected


# -- a hint asks for another dtype of what cannot be as asked, and for the rest as it was asked ----

WIDE = {
    "x": np.ones(2),
    "y": np.ones(2, "int64"),
    "z": np.ones(2, "uint64"),
    "w": np.ones(2, "complex128"),
}
ASKED = (
    *(
        None,
        "bfloat16",
        "float64",
        "int64",
        "uint8",
        {},
        {"float": "bfloat16"},
        {"float64": "bfloat16"},
    ),
    *(
        {"int": "int64", "uint": "uint8"},
        {"x": "float64", "*": None},
        {"y": "int64", "float": "float64"},
    ),
    {"[w-z]": None, "complex": "complex64"},
)
TO_JAX = {
    "convert_tree": lambda dtype: ferry.convert_tree(WIDE, "jax", dtype=dtype),
    "explain_tree": lambda dtype: {
        each.path: each.plan.result for each in ferry.explain_tree(WIDE, "jax", dtype=dtype).leaves
    },
    "collate": lambda dtype: ferry.collate([WIDE], "jax", dtype=dtype),
    "start": lambda dtype: ferry.start(WIDE, "jax", dtype=dtype).result(),
}


@pytest.mark.parametrize("function", TO_JAX)
@pytest.mark.parametrize("dtype", ASKED, ids=str)
def test_a_hint_keeps_what_was_asked_for(function, dtype):
    """In one mapping for all leaves that cannot be converted: pasted, it works, and what was asked for is as asked."""
    pytest.importorskip("jax")
    call = TO_JAX[function]
    with pytest.raises(ferry.TreeError) as caught:
        call(dtype)
    hints = {each.hint for each in caught.value.exceptions}
    assert len(hints) == 1
    code, _, remedy = hints.pop().removeprefix("dtype=").partition(", or jax")
    assert remedy
    found = {
        str(path).strip('$["]'): str(leaf.dtype)
        for path, leaf in call(ast.literal_eval(code)).items()
    }
    narrower = {
        "float64": "float32",
        "int64": "int32",
        "uint64": "uint32",
        "complex128": "complex64",
    }
    for name, leaf in WIDE.items():
        asked = dtype_of_leaf(rule_of(dtype), str(leaf.dtype), name, str(leaf.dtype)) or str(
            leaf.dtype
        )
        assert found[name] == narrower.get(asked, asked)


def test_the_same_for_one_tensor_and_for_a_file(tmp_path):
    """For one tensor, the hint has the same mapping in a call for trees."""
    pytest.importorskip("jax")
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_jax(WIDE["x"], dtype={"float": "bfloat16", "int64": "fit"})
    whole = 'convert_tree(x, "jax", dtype={"float": "bfloat16", "int64": "fit"})'
    assert caught.value.hint == whole
    assert caught.value.__context__ is None
    assert (
        str(eval(whole, {"convert_tree": ferry.convert_tree, "x": WIDE["x"]}).dtype) == "bfloat16"  # noqa: S307
    )
    ferry.save({"x": WIDE["x"], "y": WIDE["y"]}, tmp_path / "a.npz")
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.load(tmp_path / "a.npz", "jax", dtype="bfloat16")["y"]
    assert caught.value.hint.startswith('dtype={"float": "bfloat16", "int64": "fit"}, or jax')


def test_a_column_with_several_levels_is_named_by_its_tuple():
    """pandas calls the columns of a pivot so; signs in a level stand for themselves."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({(1, "p"): [1.5], (2, "q[0]"): [2.5], (2, "q0"): [3.5]})
    for name in frame:
        found = ferry.convert_tree(frame, "numpy", dtype={name: "float32"})
        assert {other: each.dtype.name for other, each in found.items()} == {
            other: "float32" if other == name else "float64" for other in frame
        }
