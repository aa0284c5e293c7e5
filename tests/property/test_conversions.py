"""What holds for every tensor of every framework, in any layout, with any bits."""

from __future__ import annotations

import json
import pickle
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import registry
from tensorferry.execution import recipes
from tensorferry.testing import strategies as these

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")
PAIRS = [(source, target) for source in FRAMEWORKS for target in FRAMEWORKS]

pytestmark = pytest.mark.parametrize(("source", "target"), PAIRS)


def bytes_of(name, x):
    place = testing.witness_for(name).place(x)
    return set() if place is None else testing.addresses(place)


def packed(name, dtype):
    return dtype in registry.ready(name).capabilities.dtypes.unshared


@settings(max_examples=examples(30))
@given(data=st.data())
def test_a_round_trip_gives_the_same_bits(source, target, data):
    """There and back again: dtype, shape and every bit, whatever the layout."""
    dtype = data.draw(these.dtypes(source, target))
    x = data.draw(these.tensors(source, dtype))
    witness = testing.witness_for(source)
    before = witness.content(x)
    there = ferry.convert(x, target)
    back = ferry.convert(there, source)
    assert witness.dtype(back) == dtype
    assert witness.shape(back) == witness.shape(x)
    assert witness.content(back) == before == witness.content(x)
    assert testing.witness_for(target).content(there) == before


@settings(max_examples=examples(20))
@given(data=st.data())
def test_copy_true_never_aliases(source, target, data):
    """copy=True: no byte in common with the source, and both say so."""
    dtype = data.draw(these.dtypes(source, target))
    x = data.draw(these.tensors(source, dtype))
    result = ferry.convert(x, target, copy=True)
    assert not bytes_of(source, x) & bytes_of(target, result)
    assert not ferry.shares_memory(x, result)
    assert not ferry.explain(x, target, copy=True).shares_memory


@settings(max_examples=examples(30))
@given(data=st.data())
def test_copy_false_aliases_or_raises(source, target, data):
    """copy=False: exactly the source's bytes of memory, or CopyRequiredError; never a copy."""
    dtype = data.draw(these.dtypes(source, target))
    x = data.draw(these.tensors(source, dtype))
    try:
        result = ferry.convert(x, target, copy=False)
    except ferry.CopyRequiredError:
        with pytest.raises(ferry.CopyRequiredError):
            ferry.explain(x, target, copy=False)
        # What is compact, aligned and has no reason not to be shared is shared.
        place = testing.witness_for(source).place(x)
        odd = place is None or packed(source, dtype) or packed(target, dtype)
        plan = ferry.explain(ferry.describe(x)._replace(misalignment=0), target)
        assert odd or place.address % 64 or not ferry.describe(x).is_compact, plan
        return
    if testing.witness_for(source).content(x) and not packed(source, dtype):
        assert bytes_of(target, result) == bytes_of(source, x)


@settings(max_examples=examples(30))
@given(data=st.data())
def test_the_steps_of_the_plan_are_the_steps_that_run(source, target, data):
    """Record each verb of each backend that is called: they are explain's steps, in that order."""
    dtype = data.draw(these.dtypes(source, target))
    x = data.draw(these.tensors(source, dtype))
    keywords = data.draw(these.requests())
    if data.draw(st.booleans()):
        keywords.update(dtype=data.draw(these.dtypes(target)), casting="unsafe")
    try:
        plan = ferry.explain(x, target, **keywords)
    except ferry.ConversionError as error:
        with pytest.raises(type(error)):
            ferry.convert(x, target, **keywords)
        return
    with recorded(source, target) as calls:
        ferry.convert(x, target, **keywords)
    assert calls == [(step.backend, step.verb, step.arguments) for step in plan.steps]


def test_verbs_are_recorded_without_the_other_frameworks(source, target, monkeypatch):
    """Which may not be installed; and if one of the two is not, no verb stays replaced."""
    ready = registry.ready

    def ready_here(name):
        if name not in (source, target, "numpy", "python"):
            raise ferry.FrameworkNotInstalledError(f"{name} is not here.", None)
        return ready(name)

    monkeypatch.setattr(registry, "ready", ready_here)
    x = ferry.convert([1.5], source, dtype="float32")
    with recorded(source, target) as calls:
        ferry.convert(x, target, copy=True)
    assert calls
    with pytest.raises(ferry.FrameworkNotInstalledError), recorded(source, target, "elsewhere"):
        pytest.fail("nothing can be recorded there")
    assert not any(
        VERBS.intersection(vars(ready(name))) for name in (source, target, "numpy", "python")
    )


@contextmanager
def recorded(*names):
    """The verbs that these backends, and NumPy's and Python's, are asked to do by a conversion, not by a verb."""
    calls, depth = [], [0]

    def spy(name, verb, true):
        def called(x, *arguments):
            if not depth[0]:
                calls.append((name, verb, arguments))
            depth[0] += 1
            try:
                return true(x, *arguments)
            finally:
                depth[0] -= 1

        return called

    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in dict.fromkeys(("numpy", "python", *names)):
                backend = registry.ready(name)
                for verb in VERBS.intersection(dir(type(backend))):
                    patch.setattr(backend, verb, spy(name, verb, getattr(backend, verb)))
            recipes.forget_recipes()
            yield calls
    finally:
        recipes.forget_recipes()


VERBS = {
    *(
        "export",
        "adopt",
        "copy",
        "cast",
        "detach",
        "resolve",
        "move",
        "pin",
        "import_dlpack",
        "read",
        "read_only",
    ),
    *("write", "check", "value", "variable", "gather", "stack"),
}


@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_plan_is_plain_data(source, target, data):
    """A plan pickles to an equal one, and to_dict is JSON that says the same."""
    dtype = data.draw(these.dtypes(source, target))
    x = data.draw(these.tensors(source, dtype))
    plan = ferry.explain(x, target)
    again = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own bytes
    assert again == plan
    assert str(again) == str(plan)
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["shares_memory"] == plan.shares_memory
    assert told["bytes_copied"] == plan.bytes_copied == sum(step["bytes"] for step in told["steps"])
    assert [step["verb"] for step in told["steps"]] == [step.verb for step in plan.steps]
    assert (told["source"]["dtype"], told["result"]["framework"]) == (dtype, target)
    assert "<svg" in plan._repr_html_()


# PyTorch before 2.9 says so once, as a comment in the code does.
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
@settings(max_examples=examples(30))
@given(data=st.data())
def test_the_plans_code_does_what_the_conversion_does(source, target, data):
    """Paste plan.code where x is: y has the same type, dtype, shape and bits, and is shared and read-only alike."""
    dtype = data.draw(these.dtypes(source, target))
    x = data.draw(these.tensors(source, dtype))
    keywords = data.draw(these.requests())
    try:
        plan = ferry.explain(x, target, **keywords)
    except ferry.ConversionError:
        return
    names = {"x": x}
    exec(plan.code, names)  # noqa: S102 - that is what the code is for
    pasted, result = names["y"], ferry.convert(x, target, **keywords)
    looks = testing.witness_for(target)
    assert type(pasted) is type(result), plan.code
    assert looks.dtype(pasted) == looks.dtype(result), plan.code
    assert looks.shape(pasted) == looks.shape(result), plan.code
    assert looks.content(pasted) == looks.content(result), plan.code
    if keywords["copy"] is True:
        assert not bytes_of(source, x) & bytes_of(target, pasted), plan.code
    if plan.shares_memory and source != target and "constant copies it" not in plan.code:
        assert bytes_of(target, pasted) == bytes_of(source, x), plan.code
    if plan.result.writable is False:
        assert looks.writable(pasted) is False, plan.code
    place = looks.place(pasted)
    if target == "tensorflow" and place is not None and ferry.describe(pasted).size:
        assert place.address % 64 == 0, plan.code


@settings(max_examples=examples(30))
@given(data=st.data())
def test_the_plans_code_casts_as_the_conversion_does(source, target, data):
    """The same of casts, and of out= where the target can be written: plan.code pastes, to the same bits."""
    dtype, other = data.draw(these.dtypes(source)), data.draw(these.dtypes(target))
    x = data.draw(these.tensors(source, dtype))
    keywords = {
        "dtype": other,
        "casting": data.draw(st.sampled_from([None, "same_value", "unsafe"])),
    }
    outs = [None, None]
    if target in ("numpy", "torch") and data.draw(st.booleans()):
        shape = ferry.describe(x).shape
        outs = [
            ferry.convert(np.zeros(shape), target, dtype=other, casting="unsafe") for _ in range(2)
        ]
        if data.draw(st.booleans()) and shape:
            outs = [
                out.swapaxes(0, -1).reshape(shape[::-1]).T if target == "numpy" else out
                for out in outs
            ]
        if target == "torch" and outs[0].is_complex():
            outs = [out.conj() for out in outs]
    names = {"x": x, "out": outs[0]}
    with np.errstate(all="ignore"):
        try:
            plan = ferry.explain(x, target, out=outs[1], **keywords)
            result = ferry.convert(x, target, out=outs[1], **keywords)
        except ferry.ConversionError:
            return
        exec(plan.code, names)  # noqa: S102 - that is what the code is for
    pasted, looks = names["y"], testing.witness_for(target)
    assert type(pasted) is type(result), plan.code
    assert looks.dtype(pasted) == looks.dtype(result), plan.code
    assert looks.shape(pasted) == looks.shape(result), plan.code
    assert looks.content(pasted) == looks.content(result), plan.code


@settings(max_examples=examples(20))
@given(data=st.data())
def test_what_is_described_is_what_is_there(source, target, data):
    """describe agrees with the framework's own words, and with the plan's claims about the result."""
    dtype = data.draw(these.dtypes(source, target))
    x = data.draw(these.tensors(source, dtype))
    witness = testing.witness_for(source)
    info, place = ferry.describe(x), witness.place(x)
    assert (info.framework, info.dtype, info.shape) == (source, dtype, witness.shape(x))
    assert info.writable == witness.writable(x)
    assert info.nbytes == len(witness.content(x))
    if place is not None and info.size and not packed(source, dtype):
        assert info.misalignment == place.address % 64
        steps = [
            (length, step)
            for length, step in zip(info.shape, info.strides, strict=True)
            if length > 1
        ]
        assert steps == [
            (length, step)
            for length, step in zip(place.shape, place.strides, strict=True)
            if length > 1
        ]
    told = ferry.describe(ferry.convert(x, target))
    plan = ferry.explain(x, target)
    assert (plan.source, plan.result.shape) == (info, told.shape)
    assert (plan.result.dtype, plan.result.writable) == (told.dtype, told.writable)
