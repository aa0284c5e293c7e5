"""A function that somebody forgot to call, and what can be read only once, where a tree or a tensor was meant."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tensorferry as ferry

torch = pytest.importorskip("torch")

LAYER = torch.nn.Linear(2, 2)
PUBLIC = {name: getattr(ferry, name) for name in ferry.__all__}
TREES = {
    "convert_tree": lambda x: ferry.convert_tree(x, "numpy"),
    "explain_tree": lambda x: ferry.explain_tree(x, "numpy"),
    "describe_tree": ferry.describe_tree,
    "snapshot": ferry.snapshot,
    "start": lambda x: ferry.start(x, "numpy"),
    "save": lambda x: ferry.save(x, "/nowhere/a.npz"),
}
TENSORS = {"to_numpy": ferry.to_numpy, "to_torch": ferry.to_torch, "describe": ferry.describe}


def hint_of(call):
    """The message's hint, and the message."""
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        call()
    return caught.value.hint, caught.value.message


@pytest.mark.parametrize("function", TREES)
@pytest.mark.parametrize(
    "x", [LAYER.state_dict, np.ones, len, str.join, lambda: [np.ones(2)], {}.copy], ids=type
)
def test_a_function_is_no_tree(function, x):
    """It came back as it was: a snapshot that copied nothing, a description of nothing."""
    hint, message = hint_of(lambda: TREES[function](x))
    assert f"{x.__name__} is a function that was not called" in message
    assert message.endswith("it has no values.")
    takes_some = x in (np.ones, len, str.join)
    assert hint is None if takes_some else hint.startswith(f"{function}(x()")


def test_the_hint_works_when_it_is_pasted():
    """For a module's state, which is the most likely one."""
    for function in ("convert_tree", "explain_tree", "describe_tree", "snapshot"):
        hint, _ = hint_of(lambda function=function: TREES[function](LAYER.state_dict))
        assert eval(hint, PUBLIC, {"x": LAYER.state_dict})  # noqa: S307 - that is what it is for
    hint, _ = hint_of(lambda: ferry.to_numpy(LAYER.weight.detach))
    assert eval(hint, PUBLIC, {"x": LAYER.weight.detach}).shape == (2, 2)  # noqa: S307


@pytest.mark.parametrize("function", [*TREES, *TENSORS])
def test_a_class_is_neither(function):
    """An object of it may be."""
    hint, message = hint_of(lambda: {**TREES, **TENSORS}[function](torch.nn.Linear))
    assert "is a class, not an object" in message
    assert hint == "an object of it"


@pytest.mark.parametrize("function", TENSORS)
def test_a_function_is_no_tensor(function):
    """Nor is what a method of a tensor's would give."""
    hint, message = hint_of(lambda: TENSORS[function](torch.ones(2).numpy))
    assert message == "numpy is a function that was not called: it has no values."
    assert hint == f"{function}(x())"


def test_inside_a_tree_functions_stay_as_they_are():
    """As everything does that is no tensor; a callable that chooses leaves, and unknown="keep", say so of the root."""
    tree = {"hook": len, "x": np.ones(2)}
    assert ferry.convert_tree(tree, "torch")["hook"] is len
    assert ferry.convert_tree([LAYER.parameters], "numpy") == [LAYER.parameters]
    assert ferry.snapshot(len, unknown="keep") is len


@pytest.mark.parametrize("function", [ferry.collate, ferry.explain_collate])
def test_functions_are_no_samples(function):
    """Neither many of them, nor one in the place of the samples."""
    _, message = hint_of(lambda: function([LAYER.state_dict] * 2, "numpy"))
    assert "was not called" in message
    hint, message = hint_of(lambda: function(LAYER.state_dict, "numpy"))
    assert message == "collate takes the samples of a batch, not a method."
    assert re.fullmatch(r'(explain_)?collate\(x\(\), "numpy"\)', hint)
    hint, message = hint_of(lambda: function(5, "numpy"))
    assert re.fullmatch(r'(explain_)?collate\(\[x\], "numpy"\)', hint)
    assert message == "collate takes the samples of a batch, not an int."
    with pytest.raises(
        TypeError, match=re.escape("not a method; prefetch(x(), to), for a function x")
    ):
        ferry.prefetch(LAYER.parameters, "numpy")


@pytest.mark.parametrize("function", ["to_numpy", "to_torch", "explain", "describe"])
def test_what_is_read_once_is_made_a_list(function):
    """Whose elements are rows of one tensor, or tensors of several shapes: each hint works for its own."""
    call = {**TENSORS, "explain": lambda x: ferry.explain(x, "torch")}[function]
    hint, _ = hint_of(lambda: call(LAYER.parameters()))
    one, _, tree = hint.removesuffix(" if it gives several tensors").partition(", or ")
    found = eval(tree, PUBLIC, {"x": LAYER.parameters()})  # noqa: S307
    assert len(getattr(found, "leaves", found)) == 2
    eval(one, PUBLIC, {"x": iter([[1, 2], [3, 4]])})  # noqa: S307
    hint, _ = hint_of(lambda: ferry.convert_tree(LAYER.parameters(), "numpy"))
    assert len(eval(hint.partition(", if")[0], PUBLIC, {"x": LAYER.parameters()})) == 2  # noqa: S307
