"""Lists of tensors: looked at without being read, and mixed with rows of numbers in whatever order."""

from __future__ import annotations

from collections import namedtuple
from itertools import product

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.core import request
from tensorferry.execution import recipes, run

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")


def objects(*values):
    made = np.empty(len(values), object)
    made[:] = values
    return made


LISTS = {
    "an array of tensors": lambda: objects(torch.ones(3), torch.zeros(3)),
    "arrays": lambda: [np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")],
    "other byte order": lambda: [np.ones(2, ">f4"), np.zeros(2, ">f4")],
    "torch": lambda: [torch.ones(3), torch.zeros(3)],
    "torch, nested": lambda: [[torch.ones(3)], [torch.zeros(3)]],
    "torch, a graph": lambda: [torch.ones(3, requires_grad=True), torch.zeros(3)],
    "parameters": lambda: [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))],
    "torch, bfloat16": lambda: [torch.ones(3, dtype=torch.bfloat16)] * 2,
    "torch, expanded": lambda: [torch.ones(1).expand(3)] * 2,
    "torch, strided": lambda: [torch.ones(6)[::2], torch.zeros(6)[::2]],
    "torch, conjugate": lambda: [torch.tensor([1j]).conj(), torch.tensor([2j]).conj()],
    "torch, no axes": lambda: [torch.tensor(1.0), torch.tensor(2.0)],
    "two dtypes": lambda: [torch.ones(3), torch.ones(3, dtype=torch.int16)],
    "jax": lambda: [jax.numpy.ones(3), jax.numpy.zeros(3)],
    "jax, bfloat16": lambda: [jax.numpy.ones(3, "bfloat16")] * 2,
    "tensorflow": lambda: [tf.ones(3), tf.zeros(3)],
    "variables": lambda: [tf.Variable([1.0]), tf.Variable([2.0])],
    "frameworks": lambda: [torch.ones(3), np.ones(3, "float32"), jax.numpy.ones(3), tf.ones(3)],
    "a tuple": lambda: (torch.ones(3), torch.zeros(3)),
    "scalars among tensors": lambda: [np.float32(1), torch.tensor(2.0)],
    "no elements": lambda: [torch.ones(0, 2), torch.ones(0, 2)],
}
TARGETS = ["numpy", "torch", "tensorflow", "jax", "python"]


@pytest.fixture
def _no_stacking(monkeypatch):
    """Nothing is stacked while this is in use."""

    def refuse(*_):
        raise AssertionError("data were read")

    monkeypatch.setattr(run, "execute", refuse)
    monkeypatch.setattr(torch, "stack", refuse)
    monkeypatch.setattr(np, "stack", refuse)
    monkeypatch.setattr(np, "concatenate", refuse)


@pytest.mark.usefixtures("_no_stacking")
@pytest.mark.parametrize("name", LISTS)
def test_looking_at_a_list_of_tensors_reads_nothing(name):
    """describe, explain, shares_memory, like= and the functions for trees go by each one's description."""
    x = LISTS[name]()
    info = ferry.describe(x)
    assert (
        info.shape[: 1 + isinstance(x[0], list)] == (2, 1)[: 1 + isinstance(x[0], list)]
        or len(x) == info.shape[0]
    )
    for target in TARGETS:
        assert ferry.explain(x, target).source.shape == info.shape
    assert not ferry.shares_memory(x, x)
    assert ferry.explain([1, 2], like=x).result.dtype == info.dtype
    whole = lambda each: each is x  # noqa: E731 - one word for the two calls below
    assert ferry.describe_tree({"x": x}, leaves=whole)['$["x"]'] == info
    assert (
        ferry.explain_tree({"x": x}, "numpy", leaves=whole).leaves[0].plan.source.shape
        == info.shape
    )


@pytest.mark.parametrize(("name", "target"), list(product(LISTS, TARGETS)))
def test_the_plan_that_is_shown_is_the_plan_that_runs(name, target):
    """explain goes by descriptions, a conversion by the stack itself: the same steps from the same source."""
    x = LISTS[name]()
    shown = ferry.explain(x, target)
    backend = registry.ready(target)
    ran = run.prepare(x, recipes.conversion_of(backend, request.Request(backend.name))).plan

    assert shown.source == ran.source
    assert shown.steps == ran.steps
    assert shown.result == ran.result


def test_a_list_that_does_not_stack_says_so_when_it_is_looked_at():
    """Errors are those of the conversion, with the same words."""
    cases = {
        "shapes": [torch.ones(2), torch.ones(3)],
        "dtypes": [torch.ones(2, dtype=torch.int64), torch.ones(2)],
        "no memory": [torch.ones(2), torch.ones(2, device="meta")],
        "no tensor": [torch.ones(2), "text"],
        "ragged": [[torch.ones(2)], [torch.ones(2)] * 2],
    }
    for name, x in cases.items():
        with pytest.raises(ferry.ConversionError) as looked:
            ferry.explain(x, "numpy")
        with pytest.raises(ferry.ConversionError) as converted:
            ferry.to_numpy(x)
        assert (type(looked.value), looked.value.message) == (
            type(converted.value),
            converted.value.message,
        ), name


# -- rows of numbers among tensors -----------------------------------------------------------------

ROWS = {
    "tensorflow": (lambda: tf.constant([1, 2]), [3, 4]),
    "arrays": (lambda: np.array([1, 2]), [3, 4]),
    "torch": (lambda: torch.tensor([1.5, 2]), [3, 4]),
    "jax": (lambda: jax.numpy.array([1, 2]), [3.5, 4]),
    "tuples": (lambda: np.array([1, 2]), (3, 4)),
    "ranges": (lambda: np.array([1, 2]), range(3, 5)),
    "two axes": (lambda: np.array([[1, 2]]), [[3, 4]]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ROWS)
def test_a_tensor_before_rows_of_numbers_is_read_as_after_them(name, target):
    """``[tf.constant([1, 2]), [3, 4]]`` gives the dtype and the numbers of the other order."""
    make, row = ROWS[name]
    before, after = ferry.convert([make(), row], target), ferry.convert([row, make()], target)

    assert ferry.to_list(before) == ferry.to_list(after)[::-1]
    if target != "python":
        assert before.dtype == after.dtype
    assert ferry.describe([make(), row]).shape == ferry.describe([row, make()]).shape


def test_deeper_rows_are_found_too():
    """One level further down."""
    assert ferry.to_list(ferry.to_numpy([[np.array([1, 2])], [[3, 4]]])) == [[[1, 2]], [[3, 4]]]


def test_rows_of_tensors_among_tensors_are_still_no_numbers():
    """Both orders say the shapes that differ."""
    row = [torch.tensor(1.0), torch.tensor(2.0)]
    for x in ([torch.ones(2), row], [row, torch.ones(2)]):
        with pytest.raises(ferry.ShapeError):
            ferry.to_numpy(x)


MIXED = {
    "int64 and float32": lambda: [np.array([1]), np.array([0.5], "float32")],
    "uint64 and int64": lambda: [np.array([1], "uint64"), np.array([-1])],
    "complex64 and int64": lambda: [np.array([2j], "complex64"), np.array([1])],
}
"""Dtypes that have none in common."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MIXED)
def test_dtypes_with_none_in_common_take_the_one_that_the_hint_names(name, target):
    """The call is refused as its plan is, and what the hint says gives all values."""
    x = MIXED[name]()
    for call, argument in ((ferry.convert, x), (ferry.explain, x)):
        with pytest.raises(ferry.LossyCastError, match="No dtype holds every value") as caught:
            call(argument, target)
        dtype = caught.value.hint.removeprefix('dtype="').partition('"')[0]
        assert ferry.explain(x, target, dtype=dtype).result.dtype == dtype
        assert ferry.to_list(ferry.convert(x, target, dtype=dtype)) == [each.tolist() for each in x]


def test_each_value_must_fit_the_dtype_that_dtypes_with_none_in_common_take():
    """Before they are joined; the error says which tensor it is."""
    x = [np.array([2**24 + 1]), np.array([0.5], "float32")]
    assert ferry.to_list(ferry.to_numpy(x, dtype="float64")) == [[2**24 + 1], [0.5]]
    with pytest.raises(
        ferry.LossyCastError,
        match=r"int64 to float32: the value at \[0\] does not fit. - at x\[0\]",
    ):
        ferry.to_numpy(x, dtype="float32")
    assert ferry.to_list(ferry.to_numpy(x, dtype="float32", casting="unsafe")) == [[2**24], [0.5]]
    out = np.zeros((2, 1))
    assert ferry.to_numpy(x, out=out) is out
    assert out.tolist() == [[2**24 + 1], [0.5]]


# -- tensors in an autograd graph, and numbers beside tensors --------------------------------------

BESIDE = {
    "a float": lambda loss: [loss, 2.0],
    "a float before it": lambda loss: [2.0, loss],
    "an integer": lambda loss: [loss, 2],
    "a bool": lambda loss: [True, loss],
    "a scalar of NumPy": lambda loss: [loss, np.float32(2)],
    "an array of NumPy": lambda loss: [np.array(2.0, "float32"), loss],
    "an array of JAX": lambda loss: [loss, jax.numpy.array(2.0)],
    "a tensor of TensorFlow": lambda loss: [loss, tf.constant(2.0)],
    "another dtype": lambda loss: [loss, loss.double()],
    "integers": lambda loss: [loss, torch.tensor(2, dtype=torch.int16)],
    "rows": lambda loss: [[loss, 2.0], [1.0, loss]],
    "rows of numbers first": lambda loss: [[1, 2], [loss, 2.5]],
    "a tuple": lambda loss: (loss, 2.0),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_beside_a_tensor_in_a_graph_joins_the_graph(name):
    """The gradient is that of `torch.stack` of the same numbers, and nothing of it is lost in silence."""
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    x = BESIDE[name]((weight * 3).sum())

    def by_hand(each):
        is_row = isinstance(each, (list, tuple))
        return (
            torch.stack(list(map(by_hand, each)))
            if is_row
            else torch.as_tensor(np_or_torch(each)).double()
        )

    def np_or_torch(each):
        return (
            each if isinstance(each, (torch.Tensor, bool, int, float)) else np.asarray(each).item()
        )

    expected = by_hand(x)
    (by_torch,) = torch.autograd.grad(expected.sum(), weight, retain_graph=True)
    found = ferry.to_torch(x, grad="error")
    (gradient,) = torch.autograd.grad(found.sum(), weight)

    assert torch.equal(found.double(), expected)
    assert torch.equal(gradient, by_torch)
    assert found.dtype == (torch.float64 if name == "another dtype" else torch.float32)


def test_the_printed_code_of_a_list_that_joins_a_graph_gives_the_same():
    """As for every plan."""
    loss = torch.tensor(1.5, requires_grad=True)
    for make in BESIDE.values():
        x = make(loss)
        names = {"x": x}
        exec(ferry.explain(x, "torch").code, names)  # noqa: S102 - the code of the plan
        assert names["y"].requires_grad
        assert torch.equal(names["y"], ferry.to_torch(x))


def test_a_list_with_a_tensor_in_a_graph_leaves_it_for_another_target_in_every_order():
    """``[loss, 2.0]`` and ``[2.0, loss]``: by default, and not with ``grad="error"``."""
    loss = torch.tensor(1.5, requires_grad=True)
    for x in ([loss, 2.0], [2.0, loss]):
        assert sorted(ferry.to_numpy(x)) == [1.5, 2.0]
        with pytest.raises(ferry.GradientError):
            ferry.to_numpy(x, grad="error")
    with torch.no_grad():
        assert not ferry.to_torch([loss, 2.0]).requires_grad


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow"])
def test_numbers_beside_tensors_take_their_dtype(target):
    """An integer among float32 is a float32 of the same value, as after `torch.stack` and in NumPy's promotion."""
    tensor = ferry.convert(np.float32(0.5), target)
    for number in (2, True, 0.1):
        made = ferry.convert([tensor, number], target)
        assert made.dtype == tensor.dtype
        assert ferry.to_list(made) == [0.5, float(np.float32(number))]
        assert ferry.describe([tensor, number]).shape == (2,)


def test_a_number_beside_tensors_is_kept_or_refused():
    """An integer that float32 does not have, and a float beyond it, are errors; NumPy keeps float64."""
    for number in (2**24 + 1, 1e300):
        with pytest.raises(ferry.LossyCastError, match=r"at x\[1\]"):
            ferry.to_torch([torch.tensor(0.5), number])
    assert ferry.to_numpy([np.array(0.5, "float32"), 0.1]).tolist() == [0.5, 0.1]
    assert ferry.to_torch([torch.tensor(1, dtype=torch.int8), 300]).tolist() == [1, 300]


# -- what is no tensor, and what is several --------------------------------------------------------


def pasted(error, x):
    """What the first code of a hint gives."""
    code = error.hint.partition(", which")[0].partition("; or ")[0]
    return eval(code, {**vars(ferry), "x": x, "np": np})  # noqa: S307 - the code of the hint


def test_none_among_tensors_is_left_out_or_kept_and_no_number_takes_its_place():
    """Also with ``nulls=``, which is for numbers: the hint does not lead back."""
    x = [np.ones(2), None, np.zeros(2)]
    for keywords in ({}, {"nulls": 0}, {"nulls": "nan"}):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r"None is not a tensor. - at x\[1\]"
        ) as caught:
            ferry.to_numpy(x, **keywords)
        assert ferry.to_numpy(pasted(caught.value, x)).tolist() == [[1, 1], [0, 0]]


def test_tensors_with_names_are_several():
    """The values and the places that `torch.sort` gives are no tensor together, though their shapes are equal."""
    point = namedtuple("point", "x y")  # noqa: PYI024 - the oldest kind of them
    several = [
        torch.sort(torch.tensor([3, 1, 2])),
        torch.ones(2, 3).max(dim=1),
        torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(2, 2)]),
        point(np.ones(2), np.ones(2)),
        [point(np.ones(2), np.ones(2))] * 2,
    ]
    for x in several:
        with pytest.raises(
            ferry.UnsupportedTypeError, match="several tensors with names"
        ) as caught:
            ferry.to_numpy(x)
        assert type(pasted(caught.value, x)) is type(x)
    assert ferry.to_numpy([point(1, 2), point(3, 4)]).tolist() == [[1, 2], [3, 4]]
    assert ferry.to_numpy(point(np.float32(1), np.float32(2))).tolist() == [1, 2]


def test_tables_of_several_dtypes_stack_in_the_dtype_that_is_named():
    """As one of them is converted; without it the hint names one that works."""
    pd = pytest.importorskip("pandas")
    frames = [pd.DataFrame({"a": [1, 2], "b": [0.5, row]}) for row in (1.5, 2.5)]
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.to_numpy(frames)
    assert caught.value.hint.startswith('dtype="float64"')
    for dtype in ("float64", "float32"):
        made = ferry.to_numpy(frames, dtype=dtype)
        assert made.dtype == dtype
        assert made.tolist() == [frame.to_numpy().tolist() for frame in frames]
    with pytest.raises(ferry.LossyCastError, match="fraction"):
        ferry.to_numpy(frames, dtype="int64")


def test_columns_in_a_list_take_nulls():
    """Each column has its own, as the hint of one says."""
    pd = pytest.importorskip("pandas")
    columns = [pd.Series([1, None], dtype="Int64"), pd.Series([3, 4])]
    assert ferry.to_numpy(columns, nulls=0).tolist() == [[1, 0], [3, 4]]
    values, mask = ferry.to_numpy(columns, nulls="mask")
    assert (values.tolist(), mask.tolist()) == ([[1, 0], [3, 4]], [[True, False], [True, True]])


def test_dicts_and_text_in_a_list_have_hints_that_make_tensors():
    """Rows as dicts are samples; words are numbered."""
    for x in (
        [{"a": 1, "b": 2.5}, {"a": 3, "b": 4.5}],
        ["b", "a", "b"],
        objects("b", "a", "b"),
        [["b"], ["a"]],
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match="is not a number") as caught:
            ferry.to_numpy(x)
        if isinstance(x[0], dict):
            code = caught.value.hint.partition("; or ")[2].partition(", which")[0]
            made = eval(code, {**vars(ferry), "x": x})  # noqa: S307 - the code of the hint
            assert {name: each.tolist() for name, each in made.items()} == {
                "a": [1, 3],
                "b": [2.5, 4.5],
            }
        else:
            made = pasted(caught.value, x)
            assert np.ravel(made).tolist() == [1, 0, 1][: np.size(made)]
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy([["1", "Oslo"], ["2", "Bari"]])  # rows of a CSV: numbers are no words
    assert "numbers the words" not in caught.value.hint
