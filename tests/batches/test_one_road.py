"""What programs took over: padded tensors, TensorDicts, a function in ``leaves=``, plans, names."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry
from tensorferry.backends import together
from tensorferry.batches import padding, program
from tensorferry.batches import samples as taking_apart
from tensorferry.execution import recipes, run

MANY = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


# -- padded tensors --------------------------------------------------------------------------------

DTYPES = ("bool", "uint8", "int64", "float16", "float32", "float64")


def ragged(framework, dtype, shapes, seed):
    generator = np.random.default_rng(seed)
    arrays = [np.asarray(generator.random(shape) * 90 + 1).astype(dtype) for shape in shapes]
    if framework == "numpy":
        return arrays
    tensors = [torch.from_numpy(array) for array in arrays]
    if framework == "learnt" and dtype.startswith("float"):
        return [each.requires_grad_() for each in tensors]
    if framework == "negative" and dtype == "float32":
        return [torch._neg_view(each) for each in tensors]
    return tensors


def padded_by_hand(tensors, value, side, multiple):
    """Each is written into an array of the padding number."""
    arrays = [
        np.asarray(each.detach().resolve_neg()) if isinstance(each, torch.Tensor) else each
        for each in tensors
    ]
    shapes = np.array([array.shape for array in arrays])
    whole = shapes.max(0)
    uneven = [axis for axis in range(len(whole)) if (shapes[:, axis] != whole[axis]).any()]
    axis = uneven[0] if uneven else 0
    whole[axis] += -whole[axis] % multiple
    result = np.full((len(arrays), *whole), value, arrays[0].dtype)
    mask = np.zeros((len(arrays), whole[axis]), bool)
    for number, array in enumerate(arrays):
        place = [slice(length) for length in array.shape]
        if side == "left":
            place[axis] = slice(whole[axis] - array.shape[axis], None)
        result[(number, *place)] = array
        mask[number, place[axis]] = True
    return result, mask, shapes[:, axis]


def assert_padded(tensors, to, value, side, multiple, marks=True):
    made = ferry.collate(
        [{"x": each, "y": {"z": each}} for each in tensors],
        to,
        pad={"x": value, "y.z": type(value)(1)},
        padding_side=side,
        pad_to_multiple_of=multiple,
        mask=marks,
        lengths=marks,
    )
    assert ("x_mask" in made) == ("z_lengths" in made["y"]) == marks
    for found, number in ((made, value), (made["y"], type(value)(1))):
        name = "x" if found is made else "z"
        expected, mask, lengths = padded_by_hand(tensors, number, side, multiple)
        # What needs no padding is stacked, and stays in its graph.
        is_padded = expected.shape[1:] != tuple(tensors[0].shape) or len(set(lengths)) > 1
        if to == "torch" and is_padded:
            assert not found[name].requires_grad
        array = found[name] if to == "numpy" else found[name].detach().numpy()
        assert array.dtype == expected.dtype
        assert array.tobytes() == expected.tobytes()
        if marks:
            assert np.array_equal(np.asarray(found[f"{name}_mask"]), mask)
            assert np.asarray(found[f"{name}_lengths"]).tolist() == lengths.tolist()


SHAPES = st.integers(1, 2).flatmap(
    lambda rank: st.lists(st.tuples(*[st.integers(0, 4)] * rank), min_size=1, max_size=4)
)
BATCHES = st.tuples(
    st.sampled_from(("numpy", "torch", "learnt", "negative")), st.sampled_from(DTYPES), SHAPES
)


@pytest.mark.fast_paths
@pytest.mark.parametrize("verified", [False, True])
@settings(MANY, max_examples=examples(100))
@given(
    batches=st.lists(BATCHES, min_size=1, max_size=3),
    to=st.sampled_from(("torch", "numpy")),
    value=st.integers(0, 1),
    side=st.sampled_from(("right", "left")),
    multiple=st.sampled_from((1, 3)),
    marks=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_padded_tensors_are_those_written_by_hand(
    verified, batches, to, value, side, multiple, marks, seed
):
    """For each batch of a history, again and again, also what is in a graph, or negated lazily."""
    with run.verifying(verified):
        for _ in range(2):
            for framework, dtype, shapes in batches:
                number = bool(value) if dtype == "bool" else value
                tensors = ragged(framework, dtype, shapes, seed)
                assert_padded(tensors, to, number, side, multiple, marks)


def one_dtype_tells_for_all(monkeypatch):
    real = together.likeness
    monkeypatch.setattr(together, "likeness", lambda tensors: real(tensors[:1]))


def shapes_are_those_of_before(monkeypatch):
    real, first = padding.Padding.extent_of, {}
    monkeypatch.setattr(
        padding.Padding,
        "extent_of",
        lambda self, shapes: first.setdefault(len(shapes), real(self, shapes)),
    )


def numbers_are_shared(monkeypatch):
    monkeypatch.setattr(program, "place_of_name", lambda *_: None)


def padding_history():
    for lengths in ((2, 3, 4), (5, 1, 2), (2, 3, 4)):
        assert_padded([torch.arange(n) + 1 for n in lengths], "torch", 0, "right", 1)
    mixed = [torch.ones(2), torch.ones(3, dtype=torch.float64)]
    for _ in range(2):
        ferry.collate([{"x": torch.ones(n)} for n in (2, 3)], "torch", pad=0)
        made = ferry.collate([{"x": each} for each in mixed], "torch", pad=0)["x"]
        assert made.dtype is torch.float64
        assert made.tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.mark.quick
@pytest.mark.fast_paths
@pytest.mark.parametrize(
    "plant", [one_dtype_tells_for_all, shapes_are_those_of_before, numbers_are_shared]
)
def test_faults_of_padding_are_noticed(monkeypatch, plant):
    """The comparison by hand is one that can fail."""
    recipes.forget_recipes()
    padding_history()
    recipes.forget_recipes()
    plant(monkeypatch)
    with run.verifying(False), pytest.raises((AssertionError, RuntimeError, ValueError)):
        padding_history()
    monkeypatch.undo()
    recipes.forget_recipes()
    padding_history()


@pytest.mark.quick
@pytest.mark.fast_paths
def test_a_column_that_was_padded_is_not_planned_anew(monkeypatch):
    """Other lengths take the steps of before; lists and tensors of another dtype do not."""
    for _ in range(2):
        ferry.collate([{"x": torch.ones(n)} for n in (2, 3)], "torch", pad=0, mask=True)
    planned = []
    real = program.Batch.planned
    monkeypatch.setattr(
        program.Batch,
        "planned",
        lambda self, *given: planned.append(given[0]) or real(self, *given),
    )
    with run.verifying(False):
        ferry.collate([{"x": torch.ones(n)} for n in (5, 4, 1)], "torch", pad=0, mask=True)
        assert not planned
        ferry.collate([{"x": torch.ones(n).double()} for n in (5, 4)], "torch", pad=0, mask=True)
        assert planned == [0]


def test_padded_results_are_verified(monkeypatch):
    """In verifying mode, what a kept recipe gave is compared with the plan of this column."""
    batches = [[{"x": torch.ones(n)} for n in lengths] for lengths in ((1, 2), (3, 4))]
    ferry.collate(batches[0], "numpy", pad=0)
    real = run.execute
    monkeypatch.setattr(run, "execute", lambda *given: real(*given).astype("int8"))
    with run.verifying(True), pytest.raises(ferry.PlanViolation, match="dtype"):
        ferry.collate(batches[1], "numpy", pad=0)


# -- TensorDicts -----------------------------------------------------------------------------------


def tensordicts(count, size=(2,), names=None, **more):
    from tensordict import TensorDict

    def one(number):
        inner = TensorDict({"r": torch.full((*size, 1), number)}, batch_size=size, names=names)
        values = {"o": torch.full((*size, 3), float(number)), "next": inner, **more}
        return TensorDict(values, batch_size=size, names=names)

    return [one(number) for number in range(count)]


def tensordict_history():
    library = pytest.importorskip("tensordict")
    plain, named = tensordicts(3), tensordicts(3, names=["time"])
    for samples in (plain, named, plain, tensordicts(2, (2, 1)), tensordicts(4, note="text")):
        for _ in range(2):
            made, expected = ferry.collate(samples, "torch"), library.stack(samples, 0)
            assert type(made) is library.TensorDict
            assert made.batch_size == expected.batch_size
            assert made.names == expected.names
            assert (made["o"] == expected["o"]).all()
            assert (made["next", "r"] == expected["next", "r"]).all()
            assert [*made.keys()] == [*samples[0].keys()]
    turned = library.TensorDict({"next": plain[1]["next"], "o": plain[1]["o"]}, batch_size=[2])
    assert ferry.collate([plain[0], turned], "torch")["o"][1, 0].tolist() == [1, 1, 1]
    for odd in (tensordicts(1, (2, 1)), named, tensordicts(1, more=torch.ones(2))):
        with pytest.raises(ferry.ConversionError):
            ferry.collate([*plain, odd[0]], "torch")


def test_tensordicts_are_stacked_as_the_library_stacks_them():
    """With their batch size, names and keys in the order of the first; others are refused."""
    tensordict_history()


def test_tensordicts_that_differ_are_noticed(monkeypatch):
    """The history above can fail."""
    pytest.importorskip("tensordict")
    from tensorferry.trees.libraries import tensordict as ours

    monkeypatch.setattr(ours, "_held_alike", lambda samples: [dict(x.items()) for x in samples])
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        tensordict_history()


# -- a function that chooses leaves ----------------------------------------------------------------


def choosing_history():
    """Each sample has the leaves that the function says, whatever the first one has."""
    asked: list[Any] = []

    def is_row(x):
        asked.append(x)
        return isinstance(x, (list, np.ndarray))

    alike = [{"a": [1, n], "b": (np.ones(2) * n, "t")} for n in range(3)]
    made = ferry.collate(alike, "numpy", leaves=is_row)
    assert made["a"].tolist() == [[1, 0], [1, 1], [1, 2]]
    assert made["b"][0].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert made["b"][1] == ["t", "t", "t"]
    # The sample, the list, the tuple and what is in it: each is asked for once.
    assert len(asked) == 15
    marked = [{"a": (n, 1)} for n in range(3)]

    def is_second(x):
        return x is marked[1]["a"] or isinstance(x, int)

    with pytest.raises(ferry.UnsupportedTypeError, match="different trees"):
        ferry.collate(marked, "numpy", leaves=is_second)
    fields = [np.array([(n, 2)], [("x", "f4"), ("y", "i4")]) for n in range(2)]
    made = ferry.collate(
        fields, "numpy", leaves=lambda x: getattr(x, "ndim", 0) == 1 and not x.dtype.names
    )
    assert made["x"].tolist() == [[0], [1]]


def test_a_function_is_asked_for_each_value_of_each_sample():
    """Once for each object, also where the samples are taken apart at once."""
    choosing_history()


def test_a_function_that_is_not_asked_is_noticed(monkeypatch):
    """The history above can fail."""
    monkeypatch.setattr(taking_apart, "_are_surely_alike", lambda *_: True)
    with pytest.raises((AssertionError, pytest.fail.Exception, ferry.ConversionError)):
        choosing_history()


# -- plans, masks and names ------------------------------------------------------------------------


@pytest.mark.parametrize("keywords", [{}, {"pad": 0}, {"pad": 0, "mask": True, "lengths": True}])
def test_a_plan_is_what_is_made(keywords):
    """Path for path: shapes and dtypes of all tensors, and what is kept; also of fields."""
    samples = [
        {
            "a": [1, 2],
            "b": {"t": torch.ones(2), "s": "text"},
            "c": np.array([1, 2], [("x", "f4"), ("y", "i4")][:1]),
        }
        for _ in range(3)
    ]
    for _ in range(2):
        made = ferry.describe_tree(ferry.collate(samples, "torch", **keywords))
        plan = ferry.explain_collate(samples, "torch", **keywords)
        planned = {leaf.path: leaf.plan.result for leaf in plan.leaves}
        assert {path: (x.shape, x.dtype) for path, x in made.items()} == {
            path: (x.shape, x.dtype) for path, x in planned.items()
        }
        assert [each.path for each in plan.kept] == ['$["b"]["s"]']
    assert ('$["c"]["x_mask"]' in planned) == ("mask" in keywords)


@pytest.mark.parametrize("keyword", ["pad", "dtype"])
def test_text_that_follows_numbers_under_a_name_is_refused(keyword):
    """A program that was made for numbers does not keep text in silence."""
    value = {"pad": {"a": 0}, "dtype": {"a": "float32"}}[keyword]
    numbers = [{"a": np.ones(2), "b": 1}] * 2
    text = [{"a": np.array(["x", "y"]), "b": 1}] * 2
    for _ in range(2):
        assert ferry.collate(numbers, "numpy", **{keyword: value})["a"].shape == (2, 2)
        with pytest.raises(ferry.UnsupportedTypeError, match="'a', which no tensor has"):
            ferry.collate(text, "numpy", **{keyword: value})


@pytest.mark.fast_paths
def test_nothing_of_padded_or_chosen_samples_is_kept():
    """A recipe that is kept has no tensor of the column for which it was made."""
    tensors = [torch.ones(n) for n in (2, 3)]
    watched = [weakref.ref(each) for each in tensors]
    for keywords in ({"pad": 0}, {"pad": 0, "mask": True}, {"leaves": torch.is_tensor, "pad": 0}):
        for _ in range(3):
            ferry.collate([{"x": each} for each in tensors], "torch", **keywords)
    del tensors
    gc.collect()
    assert [each() for each in watched] == [None, None]


@pytest.mark.fast_paths
def test_objects_that_may_be_containers_have_a_program_too(monkeypatch):
    """With JAX loaded, each class may have been registered with it: whether one was is looked up."""
    pytest.importorskip("jax")
    image = pytest.importorskip("PIL.Image")
    ferry.to_jax(1.5)
    photos = [image.new("RGB", (4, 5), (number, 1, 2)) for number in range(3)]
    expected = np.stack([np.asarray(each) for each in photos])
    made = []
    real = program.BatchPrograms.make
    for _ in range(3):
        assert np.array_equal(ferry.collate(photos, "torch").numpy(), expected)
    monkeypatch.setattr(
        program.BatchPrograms, "make", lambda self, x: made.append(x) or real(self, x)
    )
    assert np.array_equal(ferry.collate(photos, "torch").numpy(), expected)
    assert not made
