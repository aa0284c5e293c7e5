"""One contract for all leaves: keywords, targets, aliasing, errors, and what is written into."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support import TARGETS, address

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.execution.run import verifying
from tensorferry.trees.structure import at_path


def mixed():
    """One tensor of each framework."""
    import jax.numpy as jnp
    import tensorflow as tf
    import torch

    return {
        "numpy": np.arange(3, dtype="float32"),
        "torch": torch.arange(3, dtype=torch.float32),
        "tensorflow": tf.range(3, dtype="float32"),
        "jax": jnp.arange(3, dtype="float32"),
    }


@pytest.mark.parametrize("target", TARGETS)
def test_every_framework_goes_to_every_other_in_one_tree(target):
    """Each leaf is what `convert` gives for it: framework, dtype, values, shared or not."""
    tree = mixed()
    result = ferry.convert_tree(tree, target)
    for name, x in tree.items():
        alone = ferry.convert(x, target)
        assert ferry.describe(result[name]).framework == target
        assert ferry.to_list(result[name]) == [0.0, 1.0, 2.0]
        assert ferry.shares_memory(result[name], x) == ferry.shares_memory(alone, x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("copy", [None, True, False])
def test_the_keywords_mean_the_same_as_for_one_tensor(target, copy):
    """Each leaf's plan is the plan of the same call of `explain`."""
    from tests.support import counted

    tree = [counted((4,)), counted((2, 2), "int32")]
    plan = ferry.explain_tree(tree, target, copy=copy)
    assert [leaf.plan for leaf in plan.leaves] == [
        ferry.explain(x, target, copy=copy) for x in tree
    ]
    for x, result in zip(tree, ferry.convert_tree(tree, target, copy=copy), strict=True):
        assert ferry.shares_memory(x, result) == ferry.explain(x, target, copy=copy).shares_memory


def test_values_are_checked_leaf_by_leaf():
    """As `casting` says, with the leaf's path."""
    tree = {"a": np.array([1.5]), "b": np.array([2], "int64")}
    result = ferry.convert_tree(tree, "torch", dtype={"float": "bfloat16", "int": "bfloat16"})
    assert [str(result[key].dtype) for key in tree] == ["torch.bfloat16"] * 2
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.convert_tree(tree, "torch", dtype={"*": "int32"})
    assert caught.value.message.endswith(' - at $["a"]')


def test_like_one_tensor_all_leaves_take_its_framework_and_dtype():
    """A tensor in the place of a name."""
    import torch

    result = ferry.convert_tree([np.ones(2), np.ones(1)], like=torch.ones(1, dtype=torch.float16))
    assert [each.dtype for each in result] == [torch.float16] * 2


def test_like_a_tree_each_leaf_takes_its_own():
    """What came in can be given back: the same frameworks and dtypes in the same places."""
    tree = {**mixed(), "text": "x"}
    there = ferry.convert_tree(tree, "numpy")
    back = ferry.convert_tree(there, like=tree)
    assert ferry.describe_tree(back).keys() == ferry.describe_tree(tree).keys()
    for path, info in ferry.describe_tree(tree).items():
        found = ferry.describe_tree(back)[path]
        assert (found.framework, found.dtype) == (info.framework, info.dtype)
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"like= has no tensor there\. - at \$\[1\]"
    ):
        ferry.convert_tree([np.ones(1), np.ones(1)], like=[np.ones(1)])


def test_to_or_like_not_both_and_not_neither():
    """As for `convert`."""
    with pytest.raises(TypeError, match="give one of to and like"):
        ferry.convert_tree([1])
    with pytest.raises(TypeError, match="give one of to and like"):
        ferry.convert_tree([1], "numpy", like=np.ones(1))
    with pytest.raises(ferry.UnknownFrameworkError):
        ferry.convert_tree([np.ones(1)], "tensorflux")


def test_options_reach_the_target():
    """`variable=True`, for one."""
    import tensorflow as tf

    result = ferry.convert_tree([np.ones(2, "float32")], "tensorflow", variable=True)
    assert isinstance(result[0], tf.Variable)


# -- aliasing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("target", TARGETS)
def test_what_appears_twice_is_converted_once(target, copy):
    """Tied weights stay tied: one result, twice."""
    import torch

    weight = torch.ones(3)
    result = ferry.convert_tree(
        {"a": weight, "b": [weight], "c": SimpleNamespace(w=weight)}, target, copy=copy
    )
    assert result["a"] is result["b"][0] is result["c"].w


def test_two_names_of_one_memory_are_copied_once():
    """A `state_dict()` makes a new object for each name of a tied weight."""
    import torch

    model = torch.nn.Sequential(
        torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    )
    model[1].weight = model[0].weight
    state = model.state_dict()
    assert state["0.weight"] is not state["1.weight"]
    result = ferry.convert_tree(state, "numpy", copy=True)
    assert result["0.weight"] is result["1.weight"]
    plan = ferry.explain_tree(state, "numpy", copy=True)
    assert plan.leaves[1].same_as == '$["0.weight"]'
    assert plan.bytes_copied == 16


@pytest.mark.parametrize("copy", [None, True])
def test_one_tensor_with_two_targets_becomes_two(copy):
    """Where `like=` gives each place its own framework or dtype, the same tensor, or its memory, is two leaves."""
    import torch

    weight = torch.arange(3.0)
    tree = {"a": weight, "b": weight, "c": weight.view(3), "d": weight}
    like = {"a": np.ones(1, "f4"), "b": torch.ones(1), "c": np.ones(1, "f8"), "d": np.ones(1, "f4")}
    result = ferry.convert_tree(tree, like=like, copy=copy)
    for path, each in result.items():
        assert type(each) is type(like[path])
        assert each.dtype == like[path].dtype
        assert ferry.to_list(each) == [0.0, 1.0, 2.0]
    assert result["a"] is result["d"]


@pytest.mark.parametrize(
    "convert", [ferry.snapshot, lambda tree: ferry.convert_tree(tree, "torch", copy=True)]
)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_another_object_over_a_tied_memory_may_be_there_twice(framework, convert):
    """It is the same as the first of all, not as its own first occurrence."""
    first = ferry.convert(np.arange(4.0), framework)
    other = first[:]
    for tree in (
        [first, other, other],
        {"a": first, "b": other, "c": {"d": other}, "e": [first, other]},
    ):
        result = ferry.convert_tree(convert(tree), "numpy")
        leaves = (
            result
            if isinstance(result, list)
            else [result["a"], result["b"], result["c"]["d"], *result["e"]]
        )
        assert all(
            leaf.tolist() == [0, 1, 2, 3] and ferry.shares_memory(leaf, leaves[0])
            for leaf in leaves
        )
        plans = ferry.explain_tree(tree, "torch", copy=True).leaves
        assert {plan.same_as for plan in plans[1:]} == {plans[0].path}


def test_views_that_are_shared_stay_views_of_one_memory():
    """A write through one shows in the other, and in the source."""
    import torch

    base = torch.arange(6.0)
    result = ferry.convert_tree({"all": base, "part": base[2:4]}, "numpy")
    result["part"][0] = 9
    assert result["all"][2] == base[2] == 9


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_views_that_are_copied_become_views_of_one_copy(target):
    """They overlap as before, in memory of their own, strides, offsets and values kept."""
    base = np.arange(12.0).reshape(3, 4)
    tree = {
        "left": base[:, :3],
        "right": base[:, 1:],
        "reversed": base[:, ::-1],
        "apart": np.ones(3),
    }
    result = ferry.convert_tree(
        {k: v for k, v in tree.items() if k != "reversed" or target == "numpy"}, target, copy=True
    )
    for key in result:
        assert ferry.to_list(result[key]) == tree[key].tolist()
        assert not ferry.shares_memory(result[key], base)
    assert ferry.shares_memory(result["left"], result["right"])
    assert not ferry.shares_memory(result["left"], result["apart"])
    result["left"][0, 1] = 77
    assert result["right"][0, 0] == 77
    assert base[0, 1] == 1
    plan = ferry.explain_tree(tree, target, copy=True)
    assert {leaf.path: leaf.view_with for leaf in plan.leaves}['$["right"]'] == '$["left"]'


def test_the_plan_of_views_is_what_is_done():
    """One copy is counted once, and the strides are those that the views have."""
    base = np.arange(6.0)
    plan = ferry.explain_tree({"all": base, "part": base[2:4]}, "torch", copy=True)
    assert plan.bytes_copied == base.nbytes
    square = np.arange(16.0).reshape(4, 4)
    halves = {"left": square[:, :2], "right": square[:, 2:]}
    plan = ferry.explain_tree(halves, "numpy", copy=True)
    result = ferry.convert_tree(halves, "numpy", copy=True)
    assert {path: info.strides for path, info in ferry.describe_tree(result).items()} == {
        leaf.path: leaf.plan.result.strides for leaf in plan.leaves
    }


def test_the_plan_of_a_tie_to_a_view_is_that_of_the_view():
    """The same object has the same strides in the copy, wherever in the tree it is."""
    import torch

    base = torch.arange(6.0)
    tree = [base, base[::2], base[::2], {"again": base[::2]}]
    plan = ferry.explain_tree(tree, "numpy", copy=True)
    result = ferry.convert_tree(tree, "numpy", copy=True)
    assert [leaf.same_as for leaf in plan.leaves] == [None, None, "$[1]", "$[1]"]
    assert result[1] is result[2] is result[3]["again"]
    assert [leaf.plan.result for leaf in plan.leaves] == [*ferry.describe_tree(result).values()]


def test_a_view_that_the_target_cannot_have_is_copied_alone():
    """PyTorch has no negative strides, so such a view is a copy of its own, and the plan says so."""
    base = np.arange(6.0)
    tree = [base[::-1], base, base[1:3]]
    plan = ferry.explain_tree(tree, "torch", copy=True)
    result = ferry.convert_tree(tree, "torch", copy=True)
    assert [ferry.to_list(each) for each in result] == [each.tolist() for each in tree]
    assert ferry.shares_memory(result[1], result[2])
    assert [leaf.view_with for leaf in plan.leaves] == [None, None, "$[1]"]
    assert plan.bytes_copied == 2 * base.nbytes
    assert [leaf.plan.result.strides for leaf in plan.leaves] == [(8,), (8,), (8,)]


def test_far_apart_views_do_not_drag_along_what_lies_between():
    """Two elements that overlap nothing are two small copies, not one of everything between them."""
    base = np.zeros(1_000_000)
    plan = ferry.explain_tree([base[:1], base[-1:], base[::999_999]], "numpy", copy=True)
    assert [leaf.view_with for leaf in plan.leaves] == [None] * 3


def test_frozen_and_written_results_are_as_for_one_tensor():
    """A tensor that requires grad comes read-only."""
    import torch

    result = ferry.convert_tree([torch.ones(2, requires_grad=True), torch.ones(2)], "numpy")
    assert [each.flags.writeable for each in result] == [False, True]


# -- errors -------------------------------------------------------------------------------------


def test_one_failing_leaf_raises_its_own_error_with_its_path():
    """The class that `convert` raises, the hint, and where."""
    with pytest.raises(ferry.CopyRequiredError) as caught:
        ferry.convert_tree(
            {"encoder": [np.ones(1), SimpleNamespace(weight=np.ones(4)[::-1])]}, "torch", copy=False
        )
    assert caught.value.message.endswith(' - at $["encoder"][1].weight')
    assert "negative stride on axis 0" in caught.value.message
    assert "\n\nHint: " in str(caught.value)


def test_all_failing_leaves_are_reported_at_once():
    """A group, in the tree's order, which also is a ConversionError; planning and values alike."""
    pytest.importorskip("torch")
    tree = {
        "a": np.array([2.5]),
        "b": np.ones(1),
        "c": np.ma.array([1.0], mask=[True]),
        "d": [np.array([np.nan])],
    }
    with pytest.raises(ferry.ConversionError) as caught:
        ferry.convert_tree(tree, "torch", dtype={"float": "int32"})
    error = caught.value
    assert isinstance(error, ferry.TreeError)
    assert [each.message.rpartition(" - at ")[2] for each in error.exceptions] == [
        '$["a"]',
        '$["c"]',
        '$["d"][0]',
    ]
    assert [type(each) for each in error.exceptions] == [
        ferry.LossyCastError,
        ferry.UnsupportedTypeError,
        ferry.LossyCastError,
    ]
    assert all(each.message in str(error) for each in error.exceptions)
    assert isinstance(error.exceptions[0].__cause__, ferry.LossyCastError)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_several_errors_are_an_exception_group():
    """Split by class as ``except*`` does it, each part is still one of ours."""
    error = ferry.TreeError("2 leaves", [ferry.LossyCastError("a"), ferry.ShapeError("b")])
    assert isinstance(error, ExceptionGroup)  # noqa: F821 - it is there
    lossy, rest = error.split(ferry.LossyCastError)
    assert (type(lossy), type(rest)) == (ferry.TreeError, ferry.TreeError)
    assert [str(each) for each in lossy.exceptions] == ["a"]


@pytest.mark.parametrize("target", TARGETS)
def test_leaves_is_not_asked_about_the_one_tensor_of_like(target):
    """A function that says what of a tree is a leaf said no to it: "like= has no tensor in it".

    It may be the first tensor of its type that is met.
    """
    pytest.importorskip(target, reason=f"{target} is not installed")
    tree = {"mean": np.float32(2), "count": 2, "a": np.ones(2, "float32")}
    like = ferry.convert(np.ones(3, "float32"), target)
    registry.BY_TYPE.pop(type(like), None)
    found = ferry.convert_tree(
        tree, like=like, leaves=lambda x: isinstance(x, (np.ndarray, np.generic))
    )
    assert [ferry.describe(found[name]).framework for name in ("mean", "a")] == [target, target]
    assert found["count"] == 2


def test_several_errors_have_the_hints_that_their_text_ends_in():
    """Who logs `error.hint` got nothing, though the text had one.

    One that is the same for all is there once.
    """
    two = ferry.TreeError(
        "2 leaves", [ferry.LossyCastError("a", "h"), ferry.LossyCastError("b", "h")]
    )
    assert (two.hint, str(two).count("Hint: h")) == ("h", 1)
    other = ferry.TreeError(
        "2 leaves", [ferry.LossyCastError("a", "h"), ferry.ShapeError("b", "i")]
    )
    assert other.hint == "h; or i"
    assert ferry.TreeError("2 leaves", [ferry.ShapeError("a"), ferry.ShapeError("b")]).hint is None
    with pytest.raises(ferry.TreeError) as caught:
        ferry.convert_tree(
            {"a": np.ma.array([1.0], mask=[True]), "b": np.ones(1).view(np.matrix)}, "numpy"
        )
    assert all(each.hint in caught.value.hint for each in caught.value.exceptions)
    assert at_path(other, "x").exceptions == other.exceptions


def test_errors_survive_pickling():
    """They cross processes, text and parts."""
    import pickle

    error = ferry.TreeError("2 leaves", [ferry.LossyCastError("a", "h"), ferry.ShapeError("b")])
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again)) == (ferry.TreeError, str(error))
    assert [type(each) for each in again.exceptions] == [ferry.LossyCastError, ferry.ShapeError]


# -- out ----------------------------------------------------------------------------------------


def test_results_are_written_into_out():
    """Each into its own place; out's leaves come back."""
    out = {"a": np.zeros(2), "b": [np.zeros(3, "float32")], "c": None}
    result = ferry.convert_tree(
        {"a": np.ones(2), "b": [np.full(3, 2.0)], "c": None}, "numpy", out=out
    )
    assert result["a"] is out["a"]
    assert result["b"][0] is out["b"][0]
    assert (out["a"].tolist(), out["b"][0].tolist()) == ([1.0, 1.0], [2.0, 2.0, 2.0])


def test_out_is_untouched_if_one_leaf_fails():
    """Also if the leaf that fails comes last, and only its values say so."""
    out = [np.zeros(2, "int32"), np.zeros(1, "int32")]
    with pytest.raises(ferry.LossyCastError, match=r"\$\[1\]"):
        ferry.convert_tree([np.ones(2), np.array([0.5])], "numpy", out=out)
    assert [each.tolist() for each in out] == [[0, 0], [0]]


@pytest.mark.parametrize("out", [[np.zeros(1)], {"a": np.zeros(1)}, [np.zeros(1), [np.zeros(1)]]])
def test_out_of_another_structure_is_refused(out):
    """By the path where it differs."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r"another structure - at \$"):
        ferry.convert_tree([np.ones(1), np.ones(1)], "numpy", out=out)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_leaves_may_change_places(target, dtype):
    """What is written for one leaf is not read as another's source, whatever the order and the dtype."""
    block = np.arange(6, dtype=dtype)
    parts = {"x": block[:2], "y": block[2:4], "z": block[4:]}
    turned = {"x": parts["y"], "y": parts["z"], "z": parts["x"]}
    before = {path: part.tolist() for path, part in parts.items()}
    out = ferry.convert_tree(turned, target)
    ferry.convert_tree(parts, target, out=out)
    assert {path: ferry.to_list(out[path]) for path in parts} == before
    shifted = np.arange(6, dtype=dtype)
    ferry.convert_tree(
        {"a": shifted[:3], "b": shifted[3:5]}, "numpy", out={"a": shifted[2:5], "b": shifted[:2]}
    )
    assert shifted.tolist() == [3, 4, 0, 1, 2, 5]


@pytest.mark.parametrize("count", [2, 40])
def test_an_out_with_gaps_is_compared_with_the_sources_as_far_as_it_reaches(count):
    """Its last elements lie in the source of a later leaf, beyond as many bytes as it has."""
    block, result = np.arange(64.0), np.zeros(4)
    tree = {str(index): np.full(4, -1.0) for index in range(count - 1)} | {"last": block[8:12]}
    out = {path: np.zeros(4) for path in tree} | {"0": block[0:16:4], "last": result}
    ferry.convert_tree(tree, "numpy", out=out)
    assert result.tolist() == [8, 9, 10, 11]
    assert block[:13:4].tolist() == [-1.0] * 4


def test_two_leaves_are_not_written_into_one_memory():
    """The one would overwrite the other; tied leaves and views that lie likewise may be."""
    first, second, room = np.ones(4), np.zeros(4), np.full(6, 7.0)
    for out in ({"a": room[:4], "b": room[2:]}, {"a": room[:4], "b": room[:4]}):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r'same memory here as at \$\["a"\].* - at \$\["b"\]'
        ):
            ferry.convert_tree({"a": first, "b": second}, "numpy", out=out)
        assert room.tolist() == [7.0] * 6
    ferry.convert_tree({"a": first, "b": first}, "numpy", out={"a": room[:4], "b": room[:4]})
    assert room.tolist() == [1, 1, 1, 1, 7, 7]
    base = np.arange(6.0)
    ferry.convert_tree({"a": base[:4], "b": base[2:]}, "numpy", out={"a": room[:4], "b": room[2:]})
    assert room.tolist() == base.tolist()


def test_out_may_have_its_keys_in_another_order():
    """As `like=` and `collate` take them; what only one of the two has is named."""
    out = {"b": np.zeros(1), "a": np.zeros(2)}
    result = ferry.convert_tree({"a": np.ones(2), "b": np.ones(1)}, "numpy", out=out)
    assert result["a"] is out["a"]
    assert out["a"].tolist() == [1.0, 1.0]
    with pytest.raises(ferry.UnsupportedTypeError, match=r'another structure - at \$\["c"\]'):
        ferry.convert_tree(
            {"a": np.ones(2), "b": np.ones(1)}, "numpy", out={**out, "c": np.zeros(1)}
        )


def test_an_error_keeps_nothing_alive():
    """Whoever catches it and lets it go lets the tree go too, without a collection."""
    gc.collect()
    gc.disable()
    try:
        for call in (
            lambda leaf: ferry.convert_tree([leaf, leaf[:]], "torch", copy=False),
            lambda leaf: ferry.collate([[leaf, leaf], [leaf[1:], leaf[1:]]], "torch"),
        ):
            leaf = np.ones(4)[::-1]
            before = sys.getrefcount(leaf)
            with pytest.raises(ferry.ConversionError) as caught:
                call(leaf)
            del caught
            assert sys.getrefcount(leaf) == before
    finally:
        gc.enable()


def test_the_same_tensor_twice_is_written_into_two_outs():
    """out= has the last word about which memory there is."""
    x, out = np.ones(2), [np.zeros(2), np.zeros(2)]
    ferry.convert_tree([x, x], "numpy", out=out)
    assert [each.tolist() for each in out] == [[1.0, 1.0], [1.0, 1.0]]


# -- explain ------------------------------------------------------------------------------------


def test_a_plan_sums_up_its_leaves():
    """Leaves, what is kept, bytes copied and shared, what is there twice counted once."""
    shared, copied = np.zeros(4), np.zeros(3)[::-1]
    plan = ferry.explain_tree({"a": shared, "b": shared, "c": copied, "d": "text"}, "torch")
    assert len(plan.leaves) == 3
    (kept,) = plan.kept
    assert (kept.path, kept.type, kept.tensor) == ('$["d"]', "str", None)
    assert plan.bytes_shared == shared.nbytes
    assert plan.bytes_copied == copied.nbytes
    assert list(plan.plans) == ['$["a"]', '$["b"]', '$["c"]']
    assert plan.leaves[1].same_as == '$["a"]'


def test_a_plan_is_text_data_and_html():
    """For people, programs and notebooks; it can be pickled."""
    import json
    import pickle

    plan = ferry.explain_tree({"<a>": np.zeros(4), "b": np.zeros(2)[::-1]}, "torch")
    assert '$["b"]' in str(plan)
    assert json.loads(json.dumps(plan.to_dict()))["bytes_copied"] == 16
    assert "&lt;a&gt;" in plan._repr_html_()
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own


def test_a_plan_warns_once():
    """The same warning of many leaves, with the first one's path."""
    from tests.support import counted

    tree = [counted((4,)), counted((4,))]
    plan = ferry.explain_tree(tree, "jax", copy=False)
    assert len(plan.warnings) == 1
    assert plan.warnings[0].endswith(" - at $[0]")


def test_a_plan_needs_neither_tensors_nor_their_frameworks():
    """`TensorInfo`s stand for tensors; a GPU can be asked about where there is none."""
    info = ferry.TensorInfo("torch", (3, 4), "bfloat16", "cuda:0", requires_grad=True)
    plan = ferry.explain_tree(
        {"layers": [info, ferry.TensorInfo("jax", (4,), device="cuda:0")]}, "numpy"
    )
    assert [leaf.path for leaf in plan.leaves] == ['$["layers"][0]', '$["layers"][1]']
    assert plan.leaves[0].plan == ferry.explain(info, "numpy")


def test_nothing_is_converted_by_explain():
    """No leaf is touched: out keeps what it has."""
    out = [np.zeros(1)]
    ferry.explain_tree([np.ones(1)], "numpy", out=out)
    assert out[0][0] == 0


# -- the fast way and the planned way -----------------------------------------------------------


def test_the_fast_way_gives_what_the_planned_way_gives():
    """With fast paths and without: types, sharing, ties and what is kept."""

    tree = {**mixed(), "again": None, "n": 3, "s": "x"}
    tree["again"] = tree["torch"]
    for target in TARGETS:
        fast = ferry.convert_tree(tree, target)
        with verifying():
            planned = ferry.convert_tree(tree, target)
        assert ferry.describe_tree(fast).keys() == ferry.describe_tree(planned).keys()
        for key in ("numpy", "torch", "tensorflow", "jax"):
            assert ferry.to_list(fast[key]) == ferry.to_list(planned[key])
            sharing = [ferry.shares_memory(each[key], tree[key]) for each in (fast, planned)]
            assert sharing[0] == sharing[1]
        assert fast["again"] is fast["torch"]
        assert planned["again"] is planned["torch"]
        assert (fast["n"], fast["s"]) == (3, "x")


def test_identities_stay_the_same_objects():
    """A tensor that is what was asked for comes back as it is."""
    x = np.ones(2)
    result = ferry.convert_tree([x, x, {"a": x}], "numpy")
    assert result[0] is result[1] is result[2]["a"] is x


@pytest.mark.parametrize("target", TARGETS)
def test_h33_copy_true_is_independent_of_a_reused_buffer(target):
    """H33: the frame that is stored does not become the next one."""
    frame = np.zeros(16, "float32")
    stored = []
    for number in range(3):
        frame[...] = number
        stored.append(ferry.convert_tree({"frame": frame}, target, copy=True))
    assert [ferry.to_list(each["frame"])[0] for each in stored] == [0.0, 1.0, 2.0]
    assert all(address(ferry.to_numpy(each["frame"])) != address(frame) for each in stored)


def test_h50_h51_h52_what_a_batch_holds_is_carried():
    """H50: a dict has no `.numpy()`; H51: None, order and subclasses; H52: dataclasses and plain numbers."""
    import torch

    batch = {"z": torch.ones(2), "a": None, "n": 3}
    result = ferry.convert_tree(batch, "numpy")
    assert list(result) == ["z", "a", "n"]
    assert type(result["z"]) is np.ndarray
    assert (result["a"], result["n"]) == (None, 3)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
def test_torch_compile_does_not_look_inside():
    """A tree is converted inside a compiled function, with the values of each call."""
    import torch

    def step(x):
        y = x * 2
        found = ferry.convert_tree({"y": y, "n": 1}, "numpy")
        batch = ferry.collate([{"y": y}, {"y": x}], "torch")
        return found, batch["y"] + 1, ferry.snapshot([x])

    compiled = torch.compile(step, backend="eager")
    for value in (1.0, 5.0):
        found, batch, copied = compiled(torch.full((2,), value))
        assert (found["y"].tolist(), found["n"]) == ([2 * value] * 2, 1)
        assert batch.tolist() == [[2 * value + 1] * 2, [value + 1] * 2]
        assert copied[0].tolist() == [value] * 2


def test_a_description_of_what_cannot_be_is_refused_by_path():
    """As `explain` refuses it for one tensor."""
    with pytest.raises(ferry.DeviceError, match=r'does not support cuda.* - at \$\["x"\]'):
        ferry.explain_tree({"x": ferry.TensorInfo("numpy", (3,), device="cuda:0")}, "torch")


def test_the_first_conversion_of_a_process_is_like_the_second():
    """Whether a recipe is known already decides nothing: what is there stays the same object."""
    import torch

    from tensorferry.execution import recipes

    tree = {"a": torch.zeros(16), "b": torch.zeros(3)}
    with verifying(False):
        for _ in range(2):
            recipes.forget_recipes()
            first, second = (ferry.convert_tree(tree, "torch", device="cpu") for _ in range(2))
            assert first["a"] is second["a"] is tree["a"]


@pytest.mark.parametrize("target", TARGETS)
def test_lists_of_tensors_that_are_leaves_are_stacked_each_as_its_members_are(target):
    """What is the same of several stacks, or in one memory, is so of none of their members."""
    import tensorflow as tf
    import torch

    array = np.arange(2, dtype="float32")
    tree = {
        "tensorflow": [tf.zeros(2), tf.ones(2)],
        "arrays": [array, array],
        "again": [array, array],
        "torch": [torch.zeros(2), torch.ones(2)],
    }
    wanted = {
        "tensorflow": [[0, 0], [1, 1]],
        "arrays": [[0, 1]] * 2,
        "again": [[0, 1]] * 2,
        "torch": [[0, 0], [1, 1]],
    }
    for on in (False, True):
        with verifying(on):
            result = ferry.convert_tree(tree, target, leaves=lambda x: isinstance(x, list))
            assert ferry.convert_tree(result, "python") == wanted
    plans = ferry.explain_tree(tree, target, leaves=lambda x: isinstance(x, list)).plans
    assert [plan.shares_memory for plan in plans.values()] == [False] * 4


def test_a_tree_of_python_numbers_has_no_scalars_of_numpy():
    """So `json` takes it.

    Everything else stays: text, dates, large integers; and for other targets scalars do, too.
    """
    import json

    import ml_dtypes

    tree = {
        "loss": np.float32(0.5),
        "n": [np.int64(3), np.bool_(True)],
        "p": np.arange(2),
        "h": ml_dtypes.bfloat16(2),
    }
    for target in ("list", "python", list):
        made = ferry.convert_tree(tree, target)
        assert json.loads(json.dumps(made)) == {"loss": 0.5, "n": [3, True], "p": [0, 1], "h": 2.0}
    assert ferry.explain_tree(tree, "list").leaves[0].path == '$["loss"]'
    rest = {
        "large": 2**70,
        "text": np.str_("a"),
        "day": np.datetime64("2024-01-01"),
        "name": "x",
        "none": None,
    }
    assert ferry.convert_tree(rest, "list") == rest
    assert ferry.convert_tree(tree, "numpy")["loss"] is tree["loss"]
