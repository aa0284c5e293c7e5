"""Lists of rows of unequal lengths, and lists with None: `pad=`, `ragged=` and `nulls=`, as for columns of tables."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support import EVERYWHERE, dtype_name

import tensorferry as ferry

jnp = pytest.importorskip("jax.numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")

RAGGED = {
    "rows": ([[1, 2], [3]], [[1, 2], [3, -1]]),
    "an empty row": ([[], [3]], [[-1], [3]]),
    "tuples": (([1.5], (2.5, 3.5)), [[1.5, -1.0], [2.5, 3.5]]),
    "ranges": ([range(3), range(1)], [[0, 1, 2], [0, -1, -1]]),
    "deep": ([[[1], [2, 3]], [[4]]], [[[1, -1], [2, 3]], [[4, -1], [-1, -1]]]),
    "scalars": ([[np.int16(1)], [np.int16(2), np.int16(3)]], [[1, -1], [2, 3]]),
    "an array of lists": (np.array([[1, 2], [3]], object), [[1, 2], [3, -1]]),
}


def pasted(hint, x):
    """What the first code of a hint gives."""
    functions = {name: getattr(ferry, name) for name in ferry.__all__}
    return eval(hint.partition(", which")[0], {**functions, "x": x})  # noqa: S307 - that is what the hint is for


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("name", RAGGED)
def test_rows_are_padded(name, target):
    """The dtype is the one of the same numbers in rows of one length."""
    x, expected = RAGGED[name]
    result = ferry.convert(x, target, pad=-1)
    assert ferry.to_list(result) == expected
    if target != "python" and name != "scalars":
        assert dtype_name(result) == dtype_name(ferry.convert(expected, target))
    if target == "numpy" and name == "scalars":
        assert result.dtype == np.int16


def test_the_other_keywords_mean_what_they_mean():
    """A dtype for all, a cast that loses nothing, memory to write into."""
    assert ferry.to_torch([[1, 2], [3]], pad=0.5, dtype="float16").tolist() == [[1, 2], [3, 0.5]]
    assert ferry.to_torch([[1, 2], [3]], pad=0, dtype="float16").dtype == torch.float16
    out = np.zeros((2, 2), np.float32)
    assert ferry.to_numpy([[1.5, 2], [3]], pad=0, out=out) is out
    assert out.tolist() == [[1.5, 2], [3, 0]]
    like = ferry.convert([[1, 2], [3]], like=torch.ones(1, dtype=torch.float64), pad=0)
    assert like.dtype == torch.float64


@pytest.mark.parametrize("target", EVERYWHERE)
def test_rows_stay_rows(target):
    """Each becomes a tensor."""
    rows = ferry.convert([[1, 2], [3]], target, ragged="rows")
    assert isinstance(rows, list)
    assert [ferry.to_list(row) for row in rows] == [[1, 2], [3]]
    assert {type(row) for row in rows} == {type(ferry.convert([1], target))}
    tensors = ferry.convert([np.ones(2, "f4"), np.ones(3, "f4")], target, ragged="rows")
    assert [ferry.to_list(row) for row in tensors] == [[1, 1], [1, 1, 1]]


@pytest.mark.parametrize("target", EVERYWHERE)
def test_none_is_a_null(target):
    """At any depth; the mask is true where there is a value."""
    assert ferry.to_list(ferry.convert([1, None], target, nulls=0)) == [1, 0]
    assert ferry.to_list(ferry.convert([[1.5, None], [None, 2.5]], target, nulls=0)) == [
        [1.5, 0],
        [0, 2.5],
    ]
    values, mask = ferry.convert([True, None], target, nulls="mask")
    assert (ferry.to_list(values), ferry.to_list(mask)) == ([True, False], [True, False])
    values, mask = ferry.convert([[1, None], [3]], target, nulls="mask", pad=-1)
    assert ferry.to_list(values) == [[1, 0], [3, -1]]
    assert ferry.to_list(mask) == [[True, False], [True, False]]
    values, mask = ferry.convert([[1, None], [3]], target, nulls="mask", ragged="rows")
    assert [ferry.to_list(row) for row in values] == [[1, 0], [3]]
    assert [ferry.to_list(row) for row in mask] == [[True, False], [True]]
    assert np.isnan(ferry.to_list(ferry.convert([1.5, None], target, nulls="nan"))[1])


def test_the_list_is_not_changed():
    x = [[1, None], [3]]
    ferry.to_numpy(x, nulls=0, pad=0)
    assert x == [[1, None], [3]]


@pytest.mark.parametrize(
    ("x", "keywords"),
    [
        ([[1, 2], [3]], {"pad": 0.5}),
        ([[1, 2], [3]], {"pad": True}),
        ([[True, False], [True]], {"pad": 0}),
        ([1, None], {"nulls": 0.5}),
        ([1, None], {"nulls": "nan"}),
        ([1.5, None], {"nulls": True}),
        ([[1], [2, 3]], {"pad": float("nan")}),
    ],
)
def test_a_value_of_another_kind_is_refused(x, keywords):
    """As in a column; and the hint can be typed."""
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.to_numpy(x, **keywords)
    for code in caught.value.hint.split(", or "):
        assert ferry.to_numpy(x, **eval(f"dict({code})")).size  # noqa: S307 - that is what the hint is for


def test_a_missing_row_has_no_length():
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"None at x\[1\] stands in the place of a row"
    ) as caught:
        ferry.to_numpy([[1, 2], None], nulls=0, pad=0)
    assert pasted(caught.value.hint, [[1, 2], None]) == [[1, 2]]


def test_numbers_beside_rows_are_refused():
    with pytest.raises(ferry.ShapeError, match=r"the int at x\[0\] is beside rows"):
        ferry.to_numpy([1, [2]], pad=0)
    itself = [[1]]
    itself[0] = itself
    with pytest.raises(ferry.ShapeError, match="contains itself"):
        ferry.to_numpy(itself, pad=0)


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    "x", [[[1, 2], [3]], [[[1], [2, 3]], [[4]]], [[True], [True, False]]], ids=str
)
def test_the_error_says_so(x, target):
    """Its hint is the same call with `pad=`."""
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.convert(x, target)
    assert "pad=" in caught.value.hint
    made = pasted(caught.value.hint, x)
    longest = max(len(row) for row in x)
    assert [len(row) for row in ferry.to_list(made)] == [longest] * len(x)


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    "x",
    [
        (np.ones(2), np.ones((2, 3))),
        [np.ones(2), np.ones(3)],
        list(torch.nn.Linear(3, 2).parameters()),
        [[np.ones(2, "f4"), np.ones(2, "f4")], [np.ones(2, "f4")]],
    ],
    ids=["a batch", "one axis", "parameters", "rows"],
)
def test_tensors_of_unequal_shapes_are_a_tree(x, target):
    """The hint converts each of them; nobody who passes a batch of two things wants them padded."""
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.convert(x, target)
    assert caught.value.hint.startswith(f'convert_tree(x, "{target}"')
    tree = pasted(caught.value.hint, x)
    assert type(tree) is type(x)
    assert ferry.to_list(tree[0][0]) == ferry.to_list(x[0][0])
    assert type(tree[-1]) is type(ferry.convert_tree(x[-1], target, dtype="fit"))


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    "keywords",
    [
        {"pad": 0},
        {"pad": -1, "nulls": 7},
        {"nulls": "mask", "pad": 0},
        {"pad": float("inf"), "dtype": "float32"},
    ],
)
def test_the_plan_is_of_the_same_call(keywords, target):
    """Its code can be pasted."""
    x = [[1, None], [3]] if "nulls" in keywords else [[1, 2], [3]]
    plan = ferry.explain(x, target, **({"dtype": "fit"} if target == "jax" else {}) | keywords)
    names = {"x": x}
    exec(plan.code, names)  # noqa: S102 - that is what it is for
    given = ferry.convert(x, target, **({"dtype": "fit"} if target == "jax" else {}) | keywords)
    given = given[0] if isinstance(given, tuple) else given
    assert ferry.to_list(names["y"]) == ferry.to_list(given)
    assert plan.result.shape == (2, 2)
    with pytest.raises(ferry.UnsupportedTypeError, match="list of tensors") as caught:
        ferry.explain([[1, 2], [3]], target, ragged="rows")
    assert caught.value.hint


@pytest.mark.parametrize("nulls", [0, "mask"])
def test_an_integer_that_no_float_holds_is_refused_with_code_that_keeps_none(nulls):
    """The hint is for the list that was given, where None still stands, and not for one without."""
    x = [2**53 + 1, 0.5, None]
    with pytest.raises(ferry.LossyCastError, match=r"The integer at x\[0\]") as caught:
        ferry.to_numpy(x, nulls=nulls)
    floats = pasted(caught.value.hint, x)
    assert floats == [float(2**53), 0.5, None]
    again = ferry.to_numpy(floats, nulls=nulls)
    values = again[0] if nulls == "mask" else again
    assert values.tolist() == [2.0**53, 0.5, 0.0]
