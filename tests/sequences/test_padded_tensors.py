"""Lists of tensors of unequal shapes: `pad=`, `ragged=` and `nulls="mask"`, as for lists of numbers.

Against PyTorch's `pad_sequence`, TensorFlow's ragged tensors, and loops of Python.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.support import EVERYWHERE, dtype_name

import tensorferry as ferry

jnp = pytest.importorskip("jax.numpy")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")

MAKES = {
    "numpy": lambda rows: [np.array(row, "float32") for row in rows],
    "torch": lambda rows: [torch.tensor(row, dtype=torch.float32) for row in rows],
    "jax": lambda rows: [jnp.array(row, "float32") for row in rows],
    "tensorflow": lambda rows: [tf.constant(row, tf.float32) for row in rows],
    "bytes": lambda rows: [bytes(map(int, row)) for row in rows],
    "several": lambda rows: [
        make(row, dtype="float32")
        for make, row in zip((np.array, jnp.array, np.asarray), rows, strict=False)
    ],
    "a tuple": lambda rows: tuple(np.array(row, "float32") for row in rows),
    "an array of objects": lambda rows: _objects([np.array(row, "float32") for row in rows]),
}
ROWS = [[1.0, 2.0], [3.0, 4.0, 5.0], []]


def _objects(rows):
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


def pasted(hint, x):
    """What the first code of a hint gives."""
    functions = {name: getattr(ferry, name) for name in ferry.__all__}
    return eval(hint.partition(", which")[0], {**functions, "x": x})  # noqa: S307 - that is what the hint is for


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("name", MAKES)
def test_tensors_are_padded(name, target):
    """As PyTorch pads them, in the dtype that they have."""
    x = MAKES[name](ROWS)
    expected = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in ROWS], batch_first=True, padding_value=7
    )
    result = ferry.convert(x, target, pad=7)
    assert ferry.to_list(result) == expected.tolist()
    if target != "python":
        assert dtype_name(result) == ("uint8" if name == "bytes" else "float32")


@pytest.mark.parametrize("target", EVERYWHERE)
def test_the_mask_is_true_where_there_is_a_value(target):
    """As TensorFlow's mask of the same rows."""
    x = MAKES["torch"](ROWS)
    values, mask = ferry.convert(x, target, pad=0, nulls="mask")
    ragged = tf.ragged.constant(ROWS, dtype=tf.float32)
    assert ferry.to_list(values) == ragged.to_tensor().numpy().tolist()
    assert ferry.to_list(mask) == tf.sequence_mask(ragged.row_lengths()).numpy().tolist()


@pytest.mark.parametrize("rows", [[[1, 2], [3]], [[1, None], [3]], [[[1], []], [[2, 3]]]])
def test_the_mask_of_padded_numbers_is_false_where_they_are_padded(rows):
    """It was true there if no number was missing."""
    values, mask = ferry.to_numpy(rows, pad=9, nulls="mask")
    assert values.shape == mask.shape
    kept = [each for each in _numbers(rows) if each is not None]
    assert sorted(values[mask].tolist()) == sorted(kept)
    assert set(values[~mask].tolist()) <= {9, 0}


def _numbers(rows):
    return [each for row in rows for each in (_numbers(row) if isinstance(row, list) else [row])]


def test_the_mask_of_a_padded_array_of_lists_in_a_tree():
    """As of the same lists alone."""
    tree = ferry.convert_tree({"a": _objects([[1, 2], [3]])}, "numpy", pad=0, nulls="mask")
    assert tree["a_mask"].tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
def test_several_axes_are_padded(target):
    """Each up to the longest."""
    shapes = [(2, 1), (1, 3), (0, 2)]
    x = [np.full(shape, number + 1.0, "float32") for number, shape in enumerate(shapes)]
    expected = np.zeros((3, 2, 3), "float32")
    for index, each in enumerate(x):
        expected[index, : each.shape[0], : each.shape[1]] = each
    values, mask = ferry.convert(x, target, pad=0, nulls="mask")
    assert np.array_equal(np.asarray(values), expected)
    assert np.array_equal(np.asarray(mask), expected > 0)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_nested_lists_of_tensors_are_padded(make):
    """Lists of unequal lengths, and tensors with or without axes in them."""
    numbers = [[make(1.0), make(2.0)], [make(3.0)], []]
    assert ferry.to_numpy(numbers, pad=-1).tolist() == [[1, 2], [3, -1], [-1, -1]]
    values, mask = ferry.to_torch(numbers, pad=0.5, nulls="mask", dtype="float16")
    assert values.tolist() == [[1, 2], [3, 0.5], [0.5, 0.5]]
    assert mask.tolist() == [[True, True], [True, False], [False, False]]
    rows = [[make([1, 2]), make([3])], [make([4, 5, 6])]]
    expected = [[[1, 2, 0], [3, 0, 0]], [[4, 5, 6], [0, 0, 0]]]
    assert ferry.to_jax(rows, pad=0, dtype="int32").tolist() == expected


def test_numbers_beside_tensors_are_rows_too():
    """Of which each is padded, or a tensor of its own."""
    for x in ([np.array([1, 2]), [3, 4, 5]], [(3, 4, 5), np.array([1, 2])]):
        assert ferry.to_torch(x, pad=0).tolist() == [[*each] + [0] * (3 - len(each)) for each in x]
        assert [each.tolist() for each in ferry.to_torch(x, ragged="rows")] == [[*x[0]], [*x[1]]]


def test_columns_are_padded_after_their_nulls_are_replaced():
    """A list of series of unequal lengths, as the groups of a frame."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame({"g": list("aab"), "x": [1.0, np.nan, 3.0]})
    groups = [group for _, group in frame.groupby("g")["x"]]
    assert ferry.to_numpy(groups, pad=-1, nulls=0).tolist() == [[1, 0], [3, -1]]
    values, mask = ferry.to_torch(groups, pad=-1, nulls="mask")
    assert (values.tolist(), mask.tolist()) == ([[1, 0], [3, -1]], [[True, False], [True, False]])
    rows, masks = ferry.to_torch(groups, ragged="rows", nulls="mask")
    assert [each.tolist() for each in rows] == [[1, 0], [3]]
    assert [each.tolist() for each in masks] == [[True, False], [True]]
    days = [np.array(["1970-01-03"], "M8[D]"), np.array([], "M8[D]")]
    assert ferry.to_torch(days, pad=-1, dtype="int64").tolist() == [[2], [-1]]


def test_the_dtype_is_one_that_holds_all():
    """The narrowest that has all values, or the one that is named; it has to hold the number too."""
    narrow = [np.ones(2, "int8"), np.ones(1, "int16")]
    assert ferry.to_numpy(narrow, pad=300).dtype == np.int16
    mixed = [np.ones(2, "int64"), np.ones(1, "float32")]
    with pytest.raises(ferry.LossyCastError, match=r"holds every value of float32, int64"):
        ferry.to_numpy(mixed, pad=0)
    assert ferry.to_numpy(mixed, pad=0.5, dtype="float64").tolist() == [[1, 1], [1, 0.5]]
    for x, pad in ((narrow, 0.5), (narrow, 2**20), (narrow, False), ([b"ab", b"a"], -1)):
        with pytest.raises(ferry.LossyCastError, match="pad=") as caught:
            ferry.to_numpy(x, pad=pad)
        assert caught.value.hint == "pad=0"
    bools = [np.ones(2, bool), np.ones(1, bool)]
    with pytest.raises(ferry.ShapeError) as raised:
        ferry.to_torch(bools)
    assert pasted(raised.value.hint.partition("; or ")[2], bools).tolist() == [[1, 1], [1, 0]]
    beyond = [np.array([2.0**40]), np.ones(2)]
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy(beyond, pad=0, dtype="int32")
    assert ferry.to_torch([torch.ones(2).bfloat16(), torch.ones(1).bfloat16()], pad=0).dtype == (
        torch.bfloat16
    )


def test_the_plan_says_what_is_done():
    """Its code gives the same, and it gives the bytes that the result has."""
    for x in (
        [torch.ones(2), torch.ones(3)],
        [[np.ones(1), np.ones(2)], [np.ones(3)]],
        [np.ones(2, "int64"), np.ones(1, "float32")],
    ):
        plan = ferry.explain(x, "torch", pad=float("nan"), dtype="float64")
        result = ferry.to_torch(x, pad=float("nan"), dtype="float64")
        names = {"x": x}
        exec(plan.code, names)  # noqa: S102 - the plan's own
        assert names["y"].equal(names["y"].new_tensor(result.numpy())) or torch.equal(
            names["y"].nan_to_num(9), result.nan_to_num(9)
        )
        assert plan.result.shape == tuple(result.shape)
        assert not plan.shares_memory


def test_what_cannot_be_padded_says_why():
    """Unequal numbers of axes, None, text; with a hint that works."""
    for odd in (np.ones((2, 2)), 3):
        x = [np.arange(2), odd]
        with pytest.raises(ferry.ShapeError, match=r"and with \d axes cannot be padded") as caught:
            ferry.to_torch(x, pad=0)
        assert len(pasted(caught.value.hint, x)) == 2
    x = [np.arange(2), None]
    with pytest.raises(ferry.UnsupportedTypeError, match=r"None is not a tensor\. - at x\[1\]"):
        ferry.to_torch(x, pad=0)
    with pytest.raises(ferry.UnsupportedTypeError, match=r"text, not numbers\. - at x\[1\]"):
        ferry.to_torch([np.arange(2), "a"], pad=0)
    with pytest.raises(ferry.UnsupportedTypeError, match="this list has tensors"):
        ferry.to_torch([torch.arange(2), torch.arange(3)], pad=0, nulls=0)


def test_a_gradient_is_not_left_in_silence():
    """PyTorch to PyTorch stays in the graph, which padding does not; elsewhere it is left as usual."""
    x = [torch.ones(2, requires_grad=True), torch.full((3,), 2.0)]
    for call in (ferry.to_torch, lambda x, **keywords: ferry.explain(x, "torch", **keywords)):
        with pytest.raises(ferry.GradientError, match="would leave it") as caught:
            call(x, pad=0)
    assert pasted(_hint(lambda: ferry.to_torch(x, pad=0.5)), x).tolist() == [[1, 1, 0.5], [2, 2, 2]]
    assert pasted(caught.value.hint, x).result.shape == (2, 3)
    assert ferry.to_jax(x, pad=0).tolist() == [[1, 1, 0], [2, 2, 2]]
    with pytest.raises(ferry.GradientError):
        ferry.to_jax(x, pad=0, grad="error")


def _hint(call):
    with pytest.raises(ferry.ConversionError) as caught:
        call()
    return caught.value.hint


def test_in_a_tree_an_array_of_arrays_is_padded():
    """One rule: as it is alone. A list there is a container, whose hint is the call that pads it."""
    rows = _objects([np.arange(2), np.arange(3)])
    tree = ferry.convert_tree({"a": rows}, "torch", pad=-1, nulls="mask")
    assert tree["a"].tolist() == [[0, 1, -1], [0, 1, 2]]
    assert tree["a_mask"].tolist() == [[True, True, False], [True, True, True]]
    for x in ([np.arange(2), np.arange(3)], [[0, 1], [0, 1, 2]]):
        found = {"a": x}
        hint = _hint(
            lambda found=found: ferry.convert_tree(
                found, "torch", leaves=lambda leaf: isinstance(leaf, list)
            )
        )
        code = hint.rpartition("; or ")[2].partition(" in its place")[0]
        assert pasted(code, found).tolist() == [[0, 1, 0], [0, 1, 2]]


def test_the_sources_are_not_changed():
    """Nor is their memory shared."""
    x = [np.arange(2.0), np.arange(3.0)[::-1]]
    result = ferry.to_numpy(x, pad=0)
    result[...] = 9
    assert [each.tolist() for each in x] == [[0, 1], [2, 1, 0]]
    out = np.zeros((2, 3))
    assert ferry.to_numpy(x, pad=5, out=out) is out
    assert out.tolist() == [[0, 1, 5], [2, 1, 0]]
