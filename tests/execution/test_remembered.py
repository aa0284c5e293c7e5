"""What was planned once is not planned again: recipes of tensors, of `out` tensors and of leaves of trees."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support import lives

import tensorferry as ferry
from tensorferry.core.signature import COMPACT
from tensorferry.execution import groups, recipes, run

pytestmark = pytest.mark.fast_paths


@pytest.fixture
def prepared(monkeypatch):
    """The tensors that were described and planned, because no recipe was found."""
    found = []
    for module in (run, groups):
        prepare = module.prepare
        monkeypatch.setattr(
            module, "prepare", lambda x, *rest, real=prepare: found.append(x) or real(x, *rest)
        )
    recipes.forget_recipes()
    return found


@pytest.mark.quick
@pytest.mark.parametrize("keywords", [{}, {"device": "cpu"}])
def test_a_recipe_is_kept_for_a_tensor_that_is_written_into(prepared, keywords):
    """Its signature is a part of the key; so are the devices that are there, if it depends on them."""
    torch = pytest.importorskip("torch")
    x, out = np.ones(3, "float32"), torch.empty(3)
    for _ in range(3):
        ferry.to_torch(x, out=out, **keywords)
    assert len(prepared) == 1


@pytest.mark.quick
def test_a_recipe_is_kept_for_leaves_of_trees_of_other_structures(prepared):
    """By the signature of the leaf, so that the next tree need not be like the last one."""
    leaves = [np.ones(3, "float32") for _ in range(4)]
    for tree in (leaves, dict(enumerate(leaves)), tuple(leaves[:3])):
        ferry.convert_tree(tree, "numpy", dtype="float16")
    assert len(prepared) == 1


def test_a_cast_is_one_call_of_numpys_where_no_array_was_seen_before():
    """Its backend is loaded when a recipe needs it, not only by an array or as a target."""
    pytest.importorskip("torch")
    lives(
        """
        import torch, tensorferry as ferry
        from tensorferry.execution import recipes
        ferry.to_torch(torch.ones(2), dtype="bfloat16")
        (recipe,) = recipes.conversion_as("torch", dtype="bfloat16").recent.values()
        assert recipe.program[1].__qualname__.startswith("cast_to"), recipe.program
        """
    )


def test_a_step_of_many_tensors_is_one_call_where_its_function_has_one():
    """Else it is a call for each."""
    plan = ferry.explain(np.ones(3, "float32"), "numpy", dtype="float16")
    (step,) = plan.steps

    def one(value):
        return value

    def together(values):
        return values

    one.for_many = together
    assert recipes._bound_for_many(step, one) is together


@pytest.mark.quick
def test_whether_tensors_have_gaps_is_read_from_their_signatures():
    """Then the memory of each begins and ends with its first and last element, and no strides are read."""
    x = np.ones((4, 4))
    (signature,) = groups.grouped_indices([x], np.ndarray, 1)
    (apart,) = groups.grouped_indices([x[:, ::2]], np.ndarray, 1)
    assert COMPACT in signature
    assert groups._is_compact(signature)
    assert not groups._is_compact(apart)
    assert not groups._is_compact(None)


def test_members_of_a_stack_are_checked_in_verifying_mode(monkeypatch):
    """Each by itself, also where all are alike: a plan of a member that lies is found."""
    torch = pytest.importorskip("torch")
    honest = run.plan_of

    def lying(info, *rest):
        plan = honest(info, *rest)
        alone = not info.kind
        return plan._replace(result=plan.result._replace(dtype="int8")) if alone else plan

    recipes.forget_recipes()
    monkeypatch.setattr(run, "plan_of", lying)
    with run.verifying(), pytest.raises(ferry.PlanViolation, match="dtype"):
        ferry.to_numpy([torch.ones(2, requires_grad=True), torch.ones(2)])
    recipes.forget_recipes()


@pytest.mark.quick
def test_verifying_mode_takes_the_way_of_the_second_call():
    """A recipe that was kept gets the list itself, not what was made of it to describe it; its result is checked."""
    recipes.forget_recipes()
    x, given = [1.0, 2.0], []
    conversion = recipes.conversion_as("numpy", None, dtype="float32")
    ferry.to_numpy(x, dtype="float32")
    ((key, recipe),) = conversion.recent.items()

    def note(value):
        given.append(value)
        return value

    with run.verifying():
        conversion.recent[key] = recipe._replace(program=(note, *recipe.program))
        ferry.to_numpy(x, dtype="float32")
        assert given[0] is x
        wrong = (*recipe.program, lambda array: array.astype("int8"))
        conversion.recent[key] = recipe._replace(program=wrong)
        with pytest.raises(ferry.PlanViolation, match="dtype"):
            ferry.to_numpy(x, dtype="float32")
    recipes.forget_recipes()
