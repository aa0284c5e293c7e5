"""Hints are data: code in them is put elsewhere as Python reads it, and none is rendered before it is shown."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry import hints
from tensorferry.files.base.limits import FileHint, Given, Leaving, Without
from tensorferry.hints import Caller, Hint
from tensorferry.hints.placing import code_at

X = np.array([[1.0, -2.0], [3.0, 4.0]])

CODES = [
    "x",
    "x.sum()",
    "abs(x).max()",
    "[row.sum() for row in x]",
    "[x for x in range(3)]",
    'dict(x=x, y="x").keys()',
    "(lambda x: x + 1)(2)",
    "{'x': x}['x'].tolist()",
    "np.where(x > 0, x, 0)",
    "x.T if x.size else None",
    '"é", x.shape',
    "(x\n.sum())",
]


@pytest.mark.parametrize("code", CODES)
def test_code_at_a_place_gives_what_it_gives_there(code):
    """Only the tensor has another name: no word in a string, no keyword, no variable of the code's own."""
    here = eval(code, {"x": X, "np": np})  # noqa: S307 - the code is above
    there = eval(code_at(code, 'tree["a"]'), {"tree": {"a": X}, "np": np})  # noqa: S307 - the same
    assert str(there) == str(here)


@pytest.mark.parametrize("text", ["ask x, its author", "x is what f(", "", "no code"])
def test_text_that_python_cannot_read_stays(text):
    assert code_at(text, "y") == text


def shown(hint, function, target="torch"):
    return str(hint.for_call(Caller(function, target)))


def test_a_call_stays_only_for_the_whole_tree():
    """At a leaf, code for a tensor goes into its place; a call with the whole tree is the user's."""
    hint = Hint(hints.tree("x.numpy()")) | Hint(hints.tree(), ", which converts each")
    placed = hint.at('x["a"]')
    assert shown(placed, "to_torch") == (
        'x["a"].numpy() in its place; or convert_tree(x, "torch"), which converts each'
    )
    assert shown(hint, "explain", "jax").startswith('explain_tree(x.numpy(), "jax"); or explain_')


def test_members_of_samples_keep_their_number_or_not():
    """Of a list of all samples' leaves, code names a member by its sample, or by the leaf of any sample."""
    numbered = Hint(hints.code("sorted(x[3])", numbered=True)).for_sample('["a"]')
    assert str(numbered) == 'sorted(samples[3]["a"])'
    each = Hint(hints.code("float(x[3])"), ", which rounds").for_sample('["a"]')
    assert str(each) == 'float(sample["a"]) in its place, which rounds'
    assert str(Hint(hints.code("sorted(x)")).for_sample('["a"]')) == "sorted(x)"


def test_what_is_done_for_each_member_is_done_for_one():
    hint = Hint(hints.code("[t.detach() for t in x]"), " first").for_each_sample().at("sample")
    assert str(hint) == "sample.detach() in its place"
    kept = Hint(hints.code("[t for t in x if t]"))
    assert kept.for_each_sample() == kept


def test_a_target_without_the_dtype_changes_the_call():
    """The caller says what the target has; a hint of itself knows nothing of it."""
    hint = Hint(hints.again(dtype="float64", nulls="nan"))
    few = frozenset({"float32", "int32"})
    assert shown(hint, "to_jax", "jax") == 'to_jax(x, dtype="float64", nulls="nan")'
    assert (
        str(hint.for_call(Caller("to_jax", "jax", few)))
        == 'to_jax(x, dtype="float32", nulls="nan")'
    )
    integers = Hint(hints.again(dtype={"a": "int64"})).for_call(
        Caller("to_jax", "jax", few, "switch")
    )
    assert str(integers) == 'to_jax(x, dtype={"a": "int64"}); switch'
    fitted = Hint(hints.tree("x", ["int64"])).for_call(Caller("to_jax", "jax", few))
    assert str(fitted) == 'convert_tree(x, "jax", dtype="fit")'


def pickled(x):
    return pickle.loads(pickle.dumps(x))  # noqa: S301 - our own


def test_a_description_is_changed_at_its_place():
    """In a tree of descriptions, the one that cannot be converted is named."""
    tree = {"x": [ferry.TensorInfo("numpy", (2,), device="cuda:0")]}
    with pytest.raises(ferry.DeviceError) as refused:
        ferry.explain_tree(tree, "numpy")
    made = eval(refused.value.hint, {"x": tree})  # noqa: S307 - the hint, as it is pasted
    assert made == ferry.TensorInfo("numpy", (2,))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_hint_about_a_file_is_still_completed_after_a_copy(copied):
    """The errors of workers cross processes before the call that they are for is known."""
    error = ferry.FileFormatError("no", FileHint(Leaving(), Without({"a": ("a",)})))
    again = copied(error)
    assert again.hint == error.hint
    completed = again.advice.for_files(Given(exclude=("b",)))
    assert str(completed).endswith('; or exclude=["b", "a"], which leaves it out')


RAISED = """
import sys
import numpy as np
import tensorferry as ferry
for call in (lambda: ferry.to_numpy({1}), lambda: ferry.to_numpy(np.ones(2), dtype="bfloat17")):
    try:
        call()
    except ferry.ConversionError as error:
        kept = error
later = {f"tensorferry.hints.{name}" for name in ("rendering", "placing")}
assert later.isdisjoint(sys.modules), later & {*sys.modules}
assert kept.hint
assert later & {*sys.modules} == {"tensorferry.hints.rendering"}
"""


def test_a_hint_is_rendered_when_it_is_shown():
    """An error that is caught and forgotten costs no import."""
    done = subprocess.run(
        [sys.executable, "-c", RAISED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
