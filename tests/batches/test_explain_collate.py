"""What `explain_collate` says is what `collate` does; and both are caught where a plan of a stack lies."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry
from tensorferry.execution import recipes, run, stacks
from tensorferry.execution.run import verifying

torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")
jnp = pytest.importorskip("jax.numpy")

BATCHES = {
    "arrays": ([np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")], {}),
    "torch": ([torch.ones(3), torch.zeros(3)], {}),
    "torch, a graph": ([torch.ones(3, requires_grad=True), torch.zeros(3)], {}),
    "parameters": ([torch.nn.Parameter(torch.ones(3))] * 2, {}),
    "bfloat16": ([torch.ones(3, dtype=torch.bfloat16)] * 2, {}),
    "float8": ([torch.ones(3).to(torch.float8_e5m2)] * 2, {}),
    "conjugate": ([torch.tensor([1 + 1j]).conj(), torch.tensor([2j]).conj()], {}),
    "negative bit": ([torch.tensor([1 + 2j]).conj().imag, torch.tensor([1 - 2j]).conj().imag], {}),
    "jax": ([jnp.ones(3), jnp.zeros(3)], {}),
    "tensorflow": ([tf.ones(3), tf.zeros(3)], {}),
    "frameworks": ([torch.ones(3), np.ones(3, "float32"), jnp.ones(3), tf.ones(3)], {}),
    "two dtypes": ([torch.ones(3), torch.ones(3, dtype=torch.float64)], {"dtype": "float32"}),
    "scalars": ([np.float32(1), torch.tensor(2.0)], {}),
    "no axes": ([torch.tensor(1.0), torch.tensor(2.0)], {}),
    "no elements": ([torch.ones(0, 2), torch.ones(0, 2)], {}),
    "numbers": ([1, 2], {}),
    "floats": ([0.5, -0.0], {}),
    "a number after a tensor": ([torch.tensor(1.0), 3.0], {}),
    "a number before a tensor": ([3.0, torch.tensor(1.0)], {}),
    "rows": ([[1, 2], [3, 4]], {}),
    "rows of rows": ([[[1.5], [2.5]], [[3.5], [4.5]]], {}),
    "many rows": ([[0.5] * 300, [1.5] * 300], {}),
    "rows and a tensor": ([[1, 2], torch.tensor([3, 4])], {}),
    "integers and floats": ([1, 2.5], {"dtype": {"x": "float32"}}),
    "other byte order": ([np.ones(2, ">f4"), np.zeros(2, ">f4")], {}),
    "expanded": ([torch.ones(1).expand(3)] * 2, {}),
    "float16": ([torch.ones(3), torch.zeros(3)], {"dtype": "float16"}),
    "objects": ([np.array([1, 2], object), np.array([3, 4], object)], {}),
    "padded rows": ([[1, 2], [3]], {"pad": 0}),
    "padded rows with nothing": ([[1, 2], []], {"pad": 0}),
    "padded tensors": ([torch.ones(2), torch.ones(3)], {"pad": -1, "mask": True, "lengths": True}),
    "padded in a graph": ([torch.ones(2, requires_grad=True), torch.ones(3)], {"pad": 0}),
    "padded on the left": (
        [np.ones((2, 3)), np.ones((4, 1))],
        {"pad": {"x": 7}, "padding_side": "left"},
    ),
    "padded to a multiple": (
        [[0.5] * 200, [0.5] * 150],
        {"pad": 0, "pad_to_multiple_of": 64, "mask": True},
    ),
    "padded frameworks": ([jnp.ones(2), np.ones(3, "float32")], {"pad": 0}),
    "as long": ([torch.ones(2), torch.ones(2)], {"pad": 0, "mask": True}),
    "text": (["a", "b"], {}),
    "nothing": ([None, None], {}),
    "empty lists": ([[], []], {}),
    "empty lists of a named dtype": ([[], []], {"dtype": {"x": "int16"}}),
}
TARGETS = ["numpy", "torch", "tensorflow", "jax", "python"]


def said(leaf):
    """What a plan claims of a leaf of the batch."""
    result = leaf.plan.result
    return result.framework, result.shape, result.dtype, result.device, result.requires_grad


def seen(x):
    info = ferry.describe(x)
    return info.framework, info.shape, info.dtype, info.device, info.requires_grad


def compare(samples, target, keywords):
    """That a plan says what comes out, or that both are refused for the same reason."""
    found = []
    for function in (ferry.collate, ferry.explain_collate):
        try:
            found.append(function(samples, target, **keywords))
        except ferry.ConversionError as error:
            found.append(error)
    batch, plan = found
    if isinstance(batch, Exception):
        assert (type(plan), plan.message) == (type(batch), batch.message)
        return None
    found = {f'$["{name}"]': leaf for name, leaf in batch.items()}
    assert {*plan.plans, *(leaf.path for leaf in plan.kept)} == found.keys()
    for leaf in plan.leaves:
        if target != "python":
            assert said(leaf) == seen(found[leaf.path])
        assert not leaf.plan.shares_memory
        assert leaf.plan.bytes_copied or not leaf.plan.result.size
    return plan


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BATCHES)
def test_what_is_said_is_what_comes_out(name, target):
    """Framework, shape, dtype, device, gradient; with fast paths and without."""
    column, keywords = BATCHES[name]
    samples = [{"x": x, "n": number} for number, x in enumerate(column)]
    for on in (False, True):
        with verifying(on):
            plan = compare(samples, target, {**keywords, "dtype": keywords.get("dtype", "fit")})
    if plan is not None and "x" in plan.plans and not name.startswith("padded"):
        assert plan.plans['$["x"]'].result.shape[0] == len(column)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keywords", [{}, {"pad": 0}], ids=["", "padded"])
def test_autocast_changes_nothing(target, dtype, keywords):
    """PyTorch stacks under autocast in its dtype, or refuses; a batch has the dtype and the values of its samples."""
    autocasts = [torch.autocast("cpu", dtype=other) for other in (torch.float16, torch.bfloat16)]
    for requires_grad in (False, True):
        column = [
            torch.tensor([1.5, 2.5], dtype=dtype, requires_grad=requires_grad),
            torch.zeros(2, dtype=dtype),
        ]
        column[1:] = [column[1][:1]] if keywords else column[1:]
        for on, autocast in [(on, autocast) for on in (False, True) for autocast in autocasts]:
            with verifying(on), autocast:
                samples = [{"x": x} for x in column]
                assert compare(samples, target, keywords) is not None
                batch = ferry.collate(samples, target, **keywords)
            assert ferry.to_list(batch["x"]) == [[1.5, 2.5], [0.0, 0.0]]
            assert target == "python" or seen(batch["x"])[2] == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize(
    "column", [[torch.ones(2), torch.zeros(2)], [torch.ones(2), torch.zeros(1)]]
)
def test_a_mode_that_takes_no_real_tensor_is_told_before(column):
    """`explain_collate` refuses what `collate` refuses under FakeTensorMode: real tensors, alone or among fake ones."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    for on in (False, True):
        with verifying(on), FakeTensorMode():
            for samples in ([{"x": x} for x in column], [{"x": torch.ones(2)}, {"x": column[0]}]):
                assert compare(samples, "torch", {} if len(column[1]) == 2 else {"pad": 0}) is None


LEAF = st.one_of(
    st.integers(-5, 5),
    st.floats(-2, 2),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.lists(st.integers(0, 9), max_size=4),
    st.lists(st.floats(-1, 1), min_size=1, max_size=3),
    st.builds(
        lambda make, length, dtype: make(np.arange(length).astype(dtype)),
        st.sampled_from([np.asarray, torch.from_numpy, jnp.asarray, tf.constant]),
        st.integers(0, 3),
        st.sampled_from(["float32", "int32", "bool", "float16"]),
    ),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    column=st.lists(LEAF, min_size=1, max_size=3),
    repeats=st.booleans(),
    target=st.sampled_from(TARGETS),
    keywords=st.sampled_from(
        [{}, {"pad": 0}, {"pad": 1, "mask": True}, {"dtype": "float32"}, {"grad": "error"}]
    ),
)
def test_whatever_stands_in_a_column(column, repeats, target, keywords):
    """The same result, or the same words."""
    column = [column[0]] * 3 if repeats else column
    compare([{"x": x} for x in column], target, keywords)


def test_what_is_kept_is_listed_by_path_and_type():
    """With the reason; in text and as data."""
    samples = [{"a": "x", "b": None, "d": {"e": object()}, "f": 1.5}] * 2
    plan = ferry.explain_collate(samples, "numpy")
    assert [(leaf.path, leaf.type) for leaf in plan.kept] == [
        ('$["a"]', "str"),
        ('$["b"]', "NoneType"),
        ('$["d"]["e"]', "object"),
    ]
    assert [path for path, *_ in plan.leaves] == ['$["f"]']
    data = json.loads(json.dumps(plan.to_dict()))
    assert data["samples"] == 2
    assert [leaf["path"] for leaf in data["kept"]] == [leaf.path for leaf in plan.kept]
    for text in (str(plan), plan._repr_html_()):
        assert all(leaf.why in text for leaf in plan.kept)
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own
    assert type(plan) is ferry.BatchPlan


def test_padding_is_told_by_the_shape_and_code_that_does_it():
    """The value, the side and the multiple are those of the call; what stands beside has a plan of its own."""
    samples = [{"x": torch.ones(2)}, {"x": torch.ones(5)}]
    keywords = {
        "pad": -100,
        "pad_to_multiple_of": 4,
        "padding_side": "left",
        "mask": True,
        "lengths": True,
    }
    plan = ferry.explain_collate(samples, "torch", **keywords)
    assert [(leaf.path, leaf.padded_to, leaf.beside) for leaf in plan.leaves] == [
        ('$["x"]', (8,), None),
        ('$["x_mask"]', None, "mask"),
        ('$["x_lengths"]', None, "lengths"),
    ]
    space = {"x": [each["x"] for each in samples]}
    exec(plan.leaves[0].plan.code, space)  # noqa: S102 - as pasted
    assert torch.equal(space["y"], ferry.collate(samples, "torch", **keywords)["x"])


@pytest.mark.parametrize("pad", [0.5, math.inf, -math.inf, math.nan])
def test_code_of_a_padded_leaf_can_be_pasted_with_any_number(pad):
    """An infinity and NaN have no literal in Python."""
    rows = [np.ones(2), np.zeros(1)]
    code = ferry.explain_collate([{"x": row} for row in rows], "numpy", pad=pad).leaves[0].plan.code
    space = {"x": rows}
    exec(code, space)  # noqa: S102 - as pasted
    assert space["y"].tobytes() == np.array([[1.0, 1.0], [0.0, pad]]).tobytes()


def test_nothing_is_converted_or_read(monkeypatch):
    """Neither the members nor the whole."""

    def refuse(*_):
        raise AssertionError("a step was run")

    samples = [{"x": torch.ones(2), "y": np.ones(1), "z": jnp.ones(n)} for n in (1, 2)]
    monkeypatch.setattr(stacks, "_converted_members", refuse)
    plan = ferry.explain_collate(samples, "torch", pad={"z": 0}, dtype={"z": "float16"})
    assert plan.plans['$["z"]'].result.shape == (2, 2)


def test_members_steps_are_part_of_the_plan():
    """What is done to each stands before the stack, and the code does it."""
    tensors = [torch.ones(3, dtype=torch.bfloat16, requires_grad=True)] * 2
    plan = ferry.explain(tensors, "numpy")
    assert [step.verb for step in plan.steps] == ["detach", "export", "stack"]
    space = {"x": tensors}
    exec(plan.code, space)  # noqa: S102 - as pasted
    assert space["y"].tobytes() == ferry.to_numpy(tensors).tobytes()


@pytest.mark.parametrize("claim", ["dtype", "shape", "requires_grad"])
@pytest.mark.parametrize("convert", [ferry.to_torch, lambda x: ferry.collate(x, "torch")])
def test_a_plan_of_a_stack_that_lies_is_caught(monkeypatch, convert, claim):
    """In verifying mode, for a list and for a batch."""
    honest = recipes.plan_of
    lie = {"dtype": "float16", "shape": (9, 9), "requires_grad": True}[claim]

    def lying(info, *arguments):
        plan = honest(info, *arguments)
        kept = info.kind.name not in ("stack", "rows")
        return plan if kept else plan._replace(result=plan.result._replace(**{claim: lie}))

    for members in ([torch.ones(2), torch.ones(2)], [np.ones(2, "float32"), torch.ones(2)]):
        recipes.forget_recipes()
        monkeypatch.setattr(run, "plan_of", lying)
        with verifying(), pytest.raises(ferry.PlanViolation, match=claim):
            convert(members)
        monkeypatch.undo()


def test_a_stack_that_shares_memory_with_a_member_is_caught(monkeypatch):
    """No plan says that it does; `stack` of one tensor is the easiest to get wrong."""
    from tensorferry.backends.numpy.tensors import NumpyBackend

    monkeypatch.setattr(
        NumpyBackend, "stack", staticmethod(lambda tensors, shape: tensors[0].reshape(shape))
    )
    recipes.forget_recipes()
    with verifying(), pytest.raises(ferry.PlanViolation, match="shares_memory"):
        ferry.to_numpy([np.ones(2)])
    recipes.forget_recipes()


def test_a_stack_is_exported_before_its_dtype_changes():
    """A dtype that NumPy casts on the host: without the export the cast gets what is no array."""
    for on in (False, True):
        with verifying(on):
            batch = ferry.collate([torch.ones(2), torch.zeros(2)], "torch", dtype="bfloat16")
            assert batch.dtype is torch.bfloat16
            assert batch.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    plan = ferry.explain_collate([torch.ones(2), torch.zeros(2)], "torch", dtype="bfloat16").plans[
        "$"
    ]
    assert [step.verb for step in plan.steps] == ["stack", "export", "cast", "adopt"]


@pytest.mark.parametrize("nested", [False, True])
def test_a_stack_in_a_graph_can_be_written_into_memory(nested):
    """Outside it; and the code that is shown does it."""
    rows = [torch.ones(2, requires_grad=True), torch.full((2,), 2.0)]
    x = [rows, rows] if nested else rows
    out = torch.zeros((2, 2, 2) if nested else (2, 2))
    for on in (False, True):
        with verifying(on):
            assert ferry.to_torch(x, out=out.zero_()) is out
            assert out.tolist() == (
                [[[1.0, 1.0], [2.0, 2.0]]] * 2 if nested else [[1.0, 1.0], [2.0, 2.0]]
            )
    space = {"x": x, "out": torch.zeros_like(out)}
    exec(ferry.explain(x, "torch", out=out).code, space)  # noqa: S102 - as pasted
    assert torch.equal(space["out"], out)


def test_an_error_of_a_member_says_which():
    """Of a list by its index, of a batch by its sample."""
    members = [torch.ones(2), torch.ones(2).to_sparse()]
    with pytest.raises(ferry.UnsupportedTypeError, match=r"at x\[1\]"):
        ferry.to_numpy(members)
    for function in (ferry.collate, ferry.explain_collate):
        with pytest.raises(
            ferry.UnsupportedTypeError,
            match=r'in samples\[1\].*\$\["a"\]|at samples\[1\].*\$\["a"\]',
        ):
            function([{"a": x} for x in members], "numpy")
    with pytest.raises(ferry.LossyCastError, match=r"samples\[2\]"):
        ferry.collate([{"a": 1}, {"a": 2}, {"a": 2.5}], "torch", dtype={"a": "int8"})
