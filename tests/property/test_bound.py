"""Steps as the frameworks' own functions, and lists of numbers on the quick way: the same results as by the verbs."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support import TARGETS, examples, memory_at, survives

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import registry, tracers
from tensorferry.execution import recipes, run

pytestmark = pytest.mark.fast_paths

EVERYWHERE = (*TARGETS, "python")
ASKED = [
    {},
    {"copy": True},
    {"copy": False},
    {"device": "cpu"},
    {"dtype": "float16"},
    {"dtype": "int8"},
    {"dtype": "complex64"},
    {"dtype": "int32", "casting": "unsafe"},
]


def seen(result):
    """All that can be told of a result, to the bit."""
    if isinstance(result, (list, bool, int, float, complex)):
        return repr(result)
    info = ferry.describe(result)
    content = testing.witness_for(info.framework).content(result)
    return type(result), info.dtype, info.shape, info.writable, info.requires_grad, content


def outcome(call, *sources):
    try:
        result = call()
    except ferry.ConversionError as error:
        return type(error), error.message
    shared = [
        not isinstance(result, (list, float)) and ferry.shares_memory(x, result) for x in sources
    ]
    return seen(result), shared


# -- lists of Python numbers -----------------------------------------------------------------------

NUMBERS = st.one_of(
    st.lists(st.floats(width=64), max_size=5),
    st.lists(st.integers(-(2**64), 2**65), max_size=5),
    st.lists(st.integers(-5, 300), max_size=300),
    st.lists(st.booleans(), max_size=3),
    st.lists(st.one_of(st.integers(-3, 3), st.floats(-2, 2), st.booleans()), max_size=4),
)


@pytest.mark.parametrize("target", EVERYWHERE)
@settings(max_examples=examples(60))
@given(x=NUMBERS, asked=st.sampled_from(ASKED))
@example(x=[0.0, -0.0, float("nan"), 5e-324], asked={})
@example(x=[2**31], asked={})
@example(x=[2**63], asked={})
@example(x=[1e300, 1.0], asked={"dtype": "float16"})
def test_lists_of_numbers_come_as_they_are_planned(target, x, asked):
    """The first such list makes the recipe, the second takes it; in verifying mode each is described and planned."""
    with run.verifying():
        planned = outcome(lambda: ferry.convert(x, target, **asked))
    for _ in range(2):
        assert outcome(lambda: ferry.convert(x, target, **asked)) == planned


@given(x=NUMBERS.filter(len), like=st.sampled_from([[1.5], [1], [True], [[1.5]], (2.5,)]))
@settings(max_examples=examples(60))
def test_numbers_in_like_say_no_dtype(x, like):
    with run.verifying():
        planned = outcome(lambda: ferry.convert(x, like=like))
    assert (
        outcome(lambda: ferry.convert(x, like=like))
        == planned
        == outcome(lambda: ferry.convert(x, "python"))
    )


# -- steps -----------------------------------------------------------------------------------------


@cache
def sources():
    """Tensors of each framework: gradients, gaps, orders of axes and of bytes, narrow dtypes, frozen memory."""
    torch = pytest.importorskip("torch", reason="PyTorch is in the test environment")
    array = memory_at((3, 4), "float32")
    array[...] = np.arange(12).reshape(3, 4) - 2.5
    frozen = array.copy()
    frozen.flags.writeable = False
    whole = array.astype("int64")
    found = [
        array,
        array.T,
        array[:, ::2],
        array[::-1],
        frozen,
        whole,
        array.astype(">f4"),
        array.astype(complex),
        array[:0],
        np.float32(1.5),
        memory_at((3,), "int8", 1),
        np.array([1, 2], np.longlong),
    ]
    tensor = torch.from_numpy(array.copy())
    found += [
        tensor,
        tensor.T,
        tensor[:, 1:],
        tensor.to(torch.bfloat16),
        tensor.clone().requires_grad_(),
        torch.nn.Parameter(tensor.clone()),
        tensor[0].expand(3, 4),
        torch._neg_view(tensor),
        torch.from_numpy(array.astype("complex64")).conj(),
        torch.tensor(2.5),
        torch.zeros(0, 3),
    ]
    for name in ("tensorflow", "jax"):
        convert = {"tensorflow": ferry.to_tensorflow, "jax": ferry.to_jax}[name]
        found += [
            convert(array, copy=True),
            convert(tensor.to(torch.bfloat16)),
            convert(np.arange(3, dtype="int32")),
        ]
    return [*found, ferry.to_tensorflow(array, variable=True)]


def as_leaf(x, target, *, out=None, **asked):
    """The same as the only leaf of a tree."""
    return ferry.convert_tree([x], target, out=None if out is None else [out], **asked)[0]


def outcomes(target):
    found = []
    for x in sources():
        for convert in (ferry.convert, as_leaf):
            found += [outcome(partial(convert, x, target, **asked), x) for asked in ASKED]
            for dtype in ("float32", "bfloat16") if target in ("numpy", "torch") else ():
                out = ferry.convert(np.zeros(ferry.describe(x).shape), target, dtype=dtype)
                found.append(outcome(partial(convert, x, target, out=out), x))
    return found


@pytest.mark.parametrize("target", EVERYWHERE)
def test_bound_functions_do_what_the_verbs_do(target, monkeypatch):
    """Values to the bit, memory in common, who may write, and what is refused."""
    recipes.forget_recipes()
    quick = outcomes(target), outcomes(target)
    assert quick[0] == quick[1]
    with monkeypatch.context() as patch:
        for backend in registry.known().values():
            patch.setattr(backend.quick, "specialised", lambda *_: None)
            patch.setattr(backend.quick, "for_many", dict)
        recipes.forget_recipes()
        assert outcomes(target) == quick[0]
    recipes.forget_recipes()


@pytest.mark.quick
def test_some_steps_are_bound():
    """Else the test above compares nothing."""
    for backend in ("numpy", "torch", "python"):
        assert "specialised" in vars(type(registry.ready(backend).quick))


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
@pytest.mark.parametrize(
    "out", [[1.0, 2.0, 3.0], 5, "text", object()], ids=["list", "number", "text", "object"]
)
def test_what_is_no_memory_is_refused_as_out(target, out):
    """In words, on the quick way too: what has no shape is not asked for it."""
    for x in (np.zeros(3, np.float32), [1.0, 2.0, 3.0]):
        with pytest.raises(ferry.UnsupportedTypeError, match="out="):
            ferry.convert(x, target, out=out)


@pytest.mark.parametrize("order", [1, -1])
def test_each_out_of_a_tree_is_written_as_its_own_dtype(order):
    """Leaves that are alike may go into tensors that are not."""
    torch = pytest.importorskip("torch", reason="PyTorch is in the test environment")
    leaves = [
        torch.tensor([1.0 + 2**-24, 65519.999, 3e-8], dtype=torch.float64),
        torch.ones(3).double(),
    ]
    dtypes = [torch.float32, torch.float16][::order]
    outs = [torch.zeros(3, dtype=dtype) for dtype in dtypes]
    ferry.convert_tree(leaves, "torch", out=outs)
    for leaf, out in zip(leaves, outs, strict=True):
        alone = ferry.to_torch(leaf, out=torch.zeros(3, dtype=out.dtype))
        assert testing.witness_for("torch").content(out) == testing.witness_for("torch").content(
            alone
        )


@pytest.mark.parametrize("shift", [-3, -1, 0, 1, 3])
@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_out_over_the_same_memory_gets_the_values_that_were(shift, kind):
    """A copy between overlapping tensors reads what it has written, if nobody looks."""
    torch = pytest.importorskip("torch", reason="PyTorch is in the test environment")
    memory = np.arange(16, dtype=np.float32)
    source, into = memory[4:12], memory[4 + shift : 12 + shift]
    expected = source.copy()
    x = torch.from_numpy(source) if kind == "tensor" else source
    for _ in range(2):
        memory[...] = np.arange(16)
        ferry.to_torch(x, out=torch.from_numpy(into))
        np.testing.assert_array_equal(into, expected)
        memory[...] = np.arange(16)
        ferry.convert_tree([x], "torch", out=[torch.from_numpy(into)])
        np.testing.assert_array_equal(into, expected)


# -- keywords beside a tracer that never comes -----------------------------------------------------

LOOKED = """
import numpy as np
import tensorferry as ferry
from tensorferry.backends import tracers

x = np.zeros(3)
for _ in range(2):
    ferry.to_numpy(x, copy=True)
    ferry.convert_tree([x], "numpy")
looked = []
shield = tracers.shield
tracers.shield = lambda function: looked.append(function) or shield(function)
for _ in range(5):
    ferry.to_numpy(x, copy=True)
    ferry.convert_tree([x], "numpy")
assert not looked, looked
import json, torch
ferry.to_numpy(x, copy=True)
ferry.to_numpy(x, copy=True)
assert len(looked) == 1
"""


def test_frameworks_are_looked_for_again_only_when_one_with_a_tracer_is_imported():
    """Without PyTorch, whose tracer is to stay out: it may come later, which a call sees without a lock."""
    survives(LOOKED)


def test_a_tracer_is_kept_out_of_what_is_imported_after_it(monkeypatch):
    """A module with such functions may come when the frameworks' tracers have been dealt with."""
    torch = pytest.importorskip("torch", reason="PyTorch is in the test environment")
    ferry.to_numpy(torch.ones(1))
    kept_out = []
    monkeypatch.setattr(
        type(registry.ready("torch")), "shield", lambda _, function: kept_out.append(function)
    )
    monkeypatch.setattr(tracers, "_untraced", [])

    @tracers.untraced
    def later():
        """Of a module that is imported now."""

    assert kept_out == [later]


# -- what a variable is assigned, and trees of very many leaves ------------------------------------


@pytest.mark.parametrize("kind", ["array", "tensor", "constant", "list"])
def test_a_variable_that_is_written_into_keeps_memory_of_its_own(kind):
    """Neither a later write to the source shows in it, nor the other way round."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is in the test environment")
    torch = pytest.importorskip("torch", reason="PyTorch is in the test environment")
    memory = memory_at((16,))
    for _ in range(2):
        memory[...] = 1.0
        x = {
            "array": lambda: memory,
            "tensor": lambda: torch.from_numpy(memory),
            "constant": lambda: ferry.to_tensorflow(memory, copy=False),
            "list": memory.tolist,
        }[kind]()
        variable = tf.Variable(tf.zeros(16))
        assert ferry.to_tensorflow(x, out=variable) is variable
        memory[...] = 2.0
        np.testing.assert_array_equal(variable.numpy(), np.ones(16, np.float32))
        variable.assign_add(tf.ones(16))
        np.testing.assert_array_equal(memory, np.full(16, 2.0, np.float32))


def test_a_variable_of_another_shape_is_refused_on_the_quick_way_too():
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is in the test environment")
    variable, other = tf.Variable(tf.zeros(3)), tf.Variable(tf.zeros(4))
    ferry.to_tensorflow(np.ones(3, np.float32), out=variable)
    with pytest.raises(ferry.ShapeError):
        ferry.to_tensorflow(np.ones(3, np.float32), out=other)
    np.testing.assert_array_equal(other.numpy(), np.zeros(4, np.float32))


@pytest.mark.parametrize(
    "asked", [{"copy": True}, {"dtype": "float16"}, {"copy": True, "dtype": "float64"}]
)
def test_a_tree_of_very_many_leaves_comes_as_its_leaves_do(asked):
    """It is converted some thousands at a time, where nothing of one part may come in the place of another's."""
    torch = pytest.importorskip("torch", reason="PyTorch is in the test environment")
    leaves = [torch.full((1 + number % 3,), float(number)) for number in range(9_001)]
    for target in ("numpy", "torch"):
        found = ferry.convert_tree(leaves, target, **asked)
        alone = [ferry.convert(x, target, **asked) for x in leaves]
        assert [(each.dtype, each.tolist()) for each in found] == [
            (each.dtype, each.tolist()) for each in alone
        ]
