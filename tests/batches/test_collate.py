"""Samples become one batch: exact values, one memory for each leaf, errors that say where."""

from __future__ import annotations

import ast
import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support import TARGETS

import tensorferry as ferry


@dataclasses.dataclass
class Sample:
    image: Any
    label: int
    name: str = "digit"
    extra: Any = None


class Pair(NamedTuple):
    image: Any
    label: int


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "dtype", ["bool", "uint16", "int32", "float16", "bfloat16", "float32", "float8_e5m2"]
)
def test_samples_stack_bit_for_bit(target, dtype):
    """What `np.stack` gives, in the target's own tensor, for every dtype."""
    bits = np.random.default_rng(3).integers(0, 2 if dtype == "bool" else 256, (5, 6 * 8), "uint8")
    arrays = [row.view(ferry.to_numpy([0], dtype=dtype).dtype)[:6].reshape(2, 3) for row in bits]
    batch = ferry.collate([{"x": each} for each in arrays], target)
    assert ferry.describe(batch["x"]).framework == target
    assert ferry.describe(batch["x"]).dtype == dtype
    assert ferry.to_numpy(batch["x"]).tobytes() == np.stack(arrays).tobytes()


def test_what_default_collate_takes_gives_the_same():
    """Dicts, lists, named tuples of arrays and tensors, against PyTorch's own."""
    import torch
    from torch.utils.data import default_collate

    generator = np.random.default_rng(0)
    samples = [
        {
            "x": generator.random((3, 4)),
            "t": torch.from_numpy(generator.random(2)),
            "p": Pair(generator.random(1), 3),
            "s": "a",
        }
        for _ in range(7)
    ]
    ours, theirs = ferry.collate(samples, "torch"), default_collate(samples)
    assert torch.equal(ours["x"], theirs["x"])
    assert torch.equal(ours["t"], theirs["t"])
    assert torch.equal(ours["p"].image, theirs["p"].image)
    assert torch.equal(ours["p"].label, theirs["p"].label)
    assert ours["s"] == theirs["s"]


def test_h52_what_default_collate_refuses():
    """Dataclasses, None, mixed frameworks; numbers take the dtype that the target gives them."""
    import jax.numpy as jnp
    import tensorflow as tf
    import torch

    samples = [
        Sample(np.ones(2, "float32"), 1),
        Sample(torch.zeros(2), 2, "b"),
        Sample(jnp.full(2, 2.0), 3),
        Sample(tf.fill([2], 3.0), 4),
    ]
    batch = ferry.collate(samples, "torch")
    assert type(batch) is Sample
    assert batch.image.tolist() == [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0], [3.0, 3.0]]
    assert batch.label.dtype is torch.int64
    assert batch.name == ["digit", "b", "digit", "digit"]
    assert batch.extra is None


def test_numbers_keep_their_kind():
    """Integers are integers, beyond float's exact ones too; floats are the target's default; bools are bools."""
    import torch

    batch = ferry.collate(
        [{"i": 2**53 + 1, "f": 0.5, "b": True}, {"i": 1, "f": 1.5, "b": False}], "torch"
    )
    assert batch["i"].tolist() == [2**53 + 1, 1]
    assert [batch[key].dtype for key in "ifb"] == [torch.int64, torch.float32, torch.bool]
    kept = ferry.collate([{"i": 1}, {"i": 2}], "torch", leaves="tensors")
    assert kept == {"i": [1, 2]}


def test_numbers_among_tensors_take_their_dtype_whatever_comes_first():
    """Nothing is lost by the order of the samples; what does not fit into the tensors' dtype is refused."""
    import jax.numpy as jnp
    import torch

    tenth = torch.tensor(0.1, dtype=torch.float64)
    for typed in (tenth, np.float64(0.1), np.array(0.1)):
        for column in ([typed, 3.0], [3.0, typed]):
            batch = ferry.collate(column, "torch")
            assert batch.dtype == torch.float64
            assert sorted(batch.tolist()) == [0.1, 3.0]
    for column in ([3, jnp.float32(1.5)], [jnp.float32(1.5), 3]):
        assert sorted(ferry.collate(column, "jax").tolist()) == [1.5, 3.0]
    for column in ([torch.tensor(2), 1.5], [1.5, torch.tensor(2)]):
        with pytest.raises(ferry.LossyCastError):
            ferry.collate(column, "torch")
        assert sorted(ferry.collate(column, "torch", dtype="float64").tolist()) == [1.5, 2.0]
    leaf = torch.ones((), requires_grad=True)
    for column in ([leaf, 1.0], [1.0, leaf]):
        assert ferry.collate(column, "torch", grad="error").requires_grad
        assert ferry.collate(column, "numpy").tolist() == [1.0, 1.0]
        with pytest.raises(ferry.GradientError):
            ferry.collate(column, "numpy", grad="error")


def test_text_and_numbers_of_one_type_do_not_stack():
    """An array of strings in one sample and of numbers in another: refused in either order."""
    for column in ([np.array(["a"]), np.ones(1)], [np.ones(1), np.array(["a"])]):
        with pytest.raises(ferry.UnsupportedTypeError, match="do not stack"):
            ferry.collate([{"x": each} for each in column], "torch")


@pytest.mark.parametrize("target", TARGETS)
def test_the_batch_shares_nothing_with_the_samples(target):
    """A batch of one too."""
    sample = {"x": np.zeros((2, 16), "float32")}
    batch = ferry.collate([sample], target)
    sample["x"][...] = 7
    assert ferry.to_numpy(batch["x"]).max() == 0


@pytest.mark.parametrize("target", TARGETS)
def test_each_leaf_takes_one_allocation(target):
    """Memory at the peak is the batch itself, not the batch and a list of its tensors."""
    import tracemalloc

    samples = [{"x": np.ones((64, 256), "float32")} for _ in range(64)]
    nbytes = 64 * 64 * 256 * 4
    ferry.collate(samples[:2], target)
    tracemalloc.start()
    try:
        ferry.collate(samples, target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * nbytes


def test_graphs_are_kept_inside_torch():
    """Samples that require grad stack in their graph."""
    import torch

    samples = [{"x": torch.ones(2, requires_grad=True)} for _ in range(3)]
    batch = ferry.collate(samples, "torch")
    batch["x"].sum().backward()
    assert samples[1]["x"].grad.tolist() == [1.0, 1.0]


def test_keywords_and_like():
    """dtype, casting and a tensor that says what to be like."""
    import torch

    samples = [{"x": np.array([1.0, 2.0])}, {"x": np.array([3.0, 4.0])}]
    assert ferry.collate(samples, "jax", dtype={"float": "int8"})["x"].dtype == np.int8
    assert (
        ferry.collate(samples, like=torch.ones(1, dtype=torch.bfloat16))["x"].dtype
        is torch.bfloat16
    )
    with pytest.raises(ferry.LossyCastError, match=r'\$\["x"\]'):
        ferry.collate([{"x": np.array([1.5])}], "jax", dtype={"x": "int8"})


# -- lists of numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [*TARGETS, "python"])
@pytest.mark.parametrize(
    "row", [[1, 2], [1.5, 2.5], [True, False], [[1, 2], [3, 4]], [np.int16(3)], [2**40, -1]]
)
def test_a_list_of_numbers_below_a_key_is_one_tensor(target, row):
    """Flat or nested, of what `convert` makes of it."""
    if target == "jax" and row[0] == 2**40:
        pytest.skip("JAX has no int64 here: that it is refused is the business of other tests")
    batch = ferry.collate([{"x": row, "y": {"z": row}}, {"y": {"z": row}, "x": row}], target)
    alone = ferry.convert(row, target)
    for stacked in (batch["x"], batch["y"]["z"]):
        assert ferry.to_list(stacked) == [ferry.to_list(alone)] * 2
        if target != "python":
            assert ferry.describe(stacked).dtype == ferry.describe(alone).dtype
            assert ferry.describe(stacked).shape == (2, *ferry.describe(alone).shape)


@pytest.mark.parametrize("many", [False, True])
def test_lists_of_numbers_are_read_exactly(many):
    """Few and many, which go different ways: integers beyond 32 bits, floats, and both kinds of zero."""
    length = 300 if many else 3
    for row in ([2**62 + 1, -(2**62)] * length, [1] * length, [-0.0, 0.1, float("inf")] * length):
        batch = ferry.collate([{"x": row}, {"x": row[::-1]}], "numpy")["x"]
        assert batch.tobytes() == np.array([row, row[::-1]]).tobytes()
        assert batch.dtype.kind == np.array(row).dtype.kind


def test_features_and_labels_stay_apart():
    """A sample that is a list is a container, and so are lists in tuples and in lists of other things."""
    features, labels = ferry.collate([[1.5, 0], [2.5, 1]], "numpy")
    assert (features.tolist(), labels.tolist()) == ([1.5, 2.5], [0, 1])
    pair = ferry.collate([([1, 2], 3), ([4, 5], 6)], "numpy")
    assert type(pair[0]) is list
    assert [each.tolist() for each in pair[0]] == [[1, 4], [2, 5]]
    inside = ferry.collate([{"x": ([1, 2], 0)}, {"x": ([3, 4], 0)}], "numpy")
    assert [each.tolist() for each in inside["x"][0]] == [[1, 3], [2, 4]]
    mixed = ferry.collate([{"x": [np.ones(1), 2]}, {"x": [np.zeros(1), 3]}], "numpy")
    assert [each.tolist() for each in mixed["x"]] == [[[1.0], [0.0]], [2, 3]]
    in_class = ferry.collate([Sample([1, 2], 0), Sample([3, 4], 0)], "numpy")
    assert [each.tolist() for each in in_class.image] == [[1, 3], [2, 4]]


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
@pytest.mark.parametrize(
    "other", [np.array([0.5]), np.array([0.5], "float16"), np.array([3])], ids=str
)
def test_the_hint_for_complex_numbers_among_others_holds_them(target, other):
    """A dtype of floats, which the hint had, has no room for them."""
    samples = [{"x": np.array([1 + 2j], "complex64")}, {"x": other}]

    with pytest.raises(ferry.LossyCastError, match="Numbers of different kinds") as caught:
        ferry.collate(samples, target)

    dtype = ast.literal_eval(caught.value.hint.removeprefix("dtype="))
    assert ferry.to_list(ferry.collate(samples, target, dtype=dtype)["x"]) == [
        [1 + 2j],
        list(map(complex, other)),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_one_list_in_both_places_stacks_with_lists_of_other_samples(order):
    """It is a row below the key and a container in the tuple, in the first sample or in a later one."""
    row = [1, 2]
    samples = [{"x": row, "pair": (row, 0)}, {"x": [3, 4], "pair": ([5, 6], 0)}][::order]

    batch = ferry.collate(samples, "numpy")

    assert batch["x"].tolist() == [[1, 2], [3, 4]][::order]
    assert [each.tolist() for each in batch["pair"][0]] == [[1, 5][::order], [2, 6][::order]]
    plan = ferry.explain_collate(samples, "numpy")
    assert [*plan.plans] == ['$["x"]', '$["pair"][0][0]', '$["pair"][0][1]', '$["pair"][1]']


@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("keywords", [{}, {"dtype": {"x": "int32"}}, {"dtype": "bfloat16"}])
def test_empty_lists_below_a_key_are_rows_of_length_0(target, keywords):
    """In the dtype that is named, or else in that of an empty list alone; one sample or several."""
    for many in (1, 3):
        found = ferry.describe(ferry.collate([{"x": []}] * many, target, **keywords)["x"])
        named = keywords.get("dtype", {})
        alone = ferry.convert([], target, dtype=named if isinstance(named, str) else named.get("x"))
        assert (found.framework, found.shape, found.dtype) == (
            target,
            (many, 0),
            ferry.describe(alone).dtype,
        )
    with pytest.raises(ferry.ShapeError, match="0 in samples"):
        ferry.collate([{"x": []}, {"x": [1]}], target, **keywords)
    assert ferry.collate([{"x": []}] * 2, target, leaves="tensors") == {"x": []}


def test_other_lists_stay_as_they_are():
    """Text, None among numbers, tuples of numbers; and rows where numbers are not to stack."""
    samples = [{"words": ["a", "b"], "some": [1, None], "pair": (1, 2)}] * 2
    batch = ferry.collate(samples, "numpy")
    assert batch["words"] == [["a", "a"], ["b", "b"]]
    assert (batch["some"][0].tolist(), batch["some"][1]) == ([1, 1], None)
    assert [each.tolist() for each in batch["pair"]] == [[1, 1], [2, 2]]
    assert ferry.collate([{"x": [1, 2]}] * 2, "numpy", leaves="tensors") == {"x": [[1, 1], [2, 2]]}
    chosen = ferry.collate([{"x": [1, 2], "y": [3]}] * 2, "numpy", leaves=lambda x: x == [1, 2])
    assert chosen["x"].tolist() == [[1, 2], [1, 2]]
    assert chosen["y"] == [[3, 3]]


@pytest.mark.parametrize("first", ["a", "b"])
def test_one_list_at_two_places_is_a_tensor_only_below_a_key(first):
    """What is asked of an object alone must not decide what it is at another place."""
    row = [1, 2]
    places = {"a": row, "b": (row, 3)}
    sample = {key: places[key] for key in (first, *places)}
    for make in (dict, collections.UserDict, lambda x: {"deep": x}):
        batch = ferry.collate([make(sample), make(sample)], "numpy")
        batch = batch.get("deep", batch)
        assert list(batch) == list(sample)
        assert batch["a"].tolist() == [[1, 2], [1, 2]]
        assert [each.tolist() for each in batch["b"][0]] == [[1, 1], [2, 2]]


def test_lists_of_numbers_in_containers_of_every_kind():
    """Below a key of whatever mapping, inside whatever it stands in."""
    for make in (
        collections.OrderedDict,
        collections.UserDict,
        lambda x: [Sample(x, 0)],
        lambda x: Pair(x, 0),
    ):
        batch = ferry.collate([make({"x": [1, 2]}), make({"x": [3, 4]})], "numpy")
        inner = batch[0] if isinstance(batch, (list, tuple)) else batch
        inner = inner.image if isinstance(inner, Sample) else inner
        assert inner["x"].tolist() == [[1, 2], [3, 4]]


def test_lists_of_unequal_lengths_are_refused_by_path():
    """Few and many; and where the rows inside one sample are unequal, the message says so."""
    for short, long in (([1], [1, 2]), ([1.5] * 200, [1.5] * 201)):
        with pytest.raises(
            ferry.ShapeError,
            match=rf'{len(short)} in samples\[0\].*{len(long)} in samples\[1\].*"x"',
        ) as caught:
            ferry.collate([{"x": short}, {"x": long}], "torch")
        assert caught.value.hint == 'pad={"x": 0}'
    for keywords in ({}, {"pad": 0}):
        with pytest.raises(
            ferry.ShapeError, match=r'samples\[1\]\[0\].*samples\[1\]\[1\].*"x"'
        ) as caught:
            ferry.collate([{"x": [[1], [2]]}, {"x": [[1], [2, 3]]}], "torch", **keywords)
        assert "pad=" not in caught.value.hint


def test_a_list_and_a_tensor_stack():
    """A row of one sample, and what was a tensor already in another."""
    import torch

    for column in (
        [[1, 2], torch.tensor([3, 4])],
        [torch.tensor([3, 4]), [1, 2]],
        [np.array([3, 4]), [1, 2]],
    ):
        batch = ferry.collate([{"x": each} for each in column], "torch")
        assert batch["x"].dtype is torch.int64
        assert sorted(batch["x"].tolist()) == [[1, 2], [3, 4]]


# -- integers and floats ---------------------------------------------------------------------------


def _meeting():
    import torch

    return {
        "numbers": [1, 2.5],
        "whole floats": [1, 2.0],
        "lists": [[1, 2], [2.5, 3.5]],
        "in one list": [[1, 2.5], [2.5, 3.5]],
        "deep": [[[1.0], [2]], [[1.0], [2.0]]],
        "many": [[1.5] * 300, [1.5] * 299 + [1]],
        "tensors": [torch.ones(2), torch.ones(2, dtype=torch.int32)],
        "arrays": [np.ones(2, "int8"), np.ones(2)],
        "a float among integers": [torch.tensor(2), 1.0],
        "scalars": [np.int32(1), np.float32(1)],
        "a list and a tensor": [[1.5], torch.tensor([1])],
        "frameworks": [np.ones(1, "int32"), torch.ones(1)],
    }


@pytest.mark.parametrize("case", _meeting())
@pytest.mark.parametrize("pad", [None, 0])
def test_integers_and_floats_do_not_meet_in_silence(case, pad):
    """Whatever comes first: refused with the path, and each hint works when pasted."""
    column = _meeting()[case]
    for samples in ([{"a": x} for x in column], [{"a": x} for x in reversed(column)]):
        with pytest.raises(ferry.LossyCastError, match=r'do not stack.*\$\["a"\]') as caught:
            ferry.collate(samples, "torch", pad=pad)
        for hint in caught.value.hint.split(" or "):
            batch = ferry.collate(samples, "torch", pad=pad, **eval(f"dict({hint})"))  # noqa: S307 - as pasted
            assert ferry.describe(batch["a"]).dtype.startswith("float")
            assert ferry.to_list(batch["a"]) == [
                ferry.to_list(sample["a"], dtype="float64") for sample in samples
            ]


@pytest.mark.parametrize(
    "keywords",
    [{"dtype": "fit"}, {"dtype": "default"}, {"dtype": "int64"}, {"dtype": {"b": "int8"}}],
)
def test_only_a_dtype_that_is_named_for_the_leaf_lets_them_meet(keywords):
    """One for integers says nothing of what floats become."""
    with pytest.raises(ferry.LossyCastError, match="do not stack"):
        ferry.collate([{"a": 1, "b": 1}, {"a": 2.5, "b": 1}], "torch", **keywords)


@pytest.mark.parametrize(
    "column", [[True, 2], [True, 0.5], [1j, 1.0], [[True], [2]], [np.array([True]), np.array([1])]]
)
def test_other_kinds_do_not_meet_either(column):
    """A mask that becomes a count is as little what was meant."""
    with pytest.raises(ferry.LossyCastError, match="do not stack") as caught:
        ferry.collate([{"a": x} for x in column], "numpy")
    hint = caught.value.hint.split(" or ")[-1]
    batch = ferry.collate([{"a": x} for x in column], "numpy", **eval(f"dict({hint})"))  # noqa: S307 - as pasted
    assert batch["a"].tolist() == [
        x if isinstance(x, list) else np.asarray(x).tolist() for x in column
    ]


def test_values_that_a_named_dtype_does_not_hold_are_refused():
    """A named dtype is no leave to round an integer."""
    with pytest.raises(ferry.LossyCastError):
        ferry.collate([{"a": 2**24 + 1}, {"a": 2.5}], "torch", dtype="float32")
    with pytest.raises(ferry.LossyCastError):
        ferry.collate([{"a": 1}, {"a": 2.5}], "torch", dtype={"a": "int64"})


def test_an_integer_among_float_tensors_is_exact_or_refused():
    """A number without a dtype takes the tensors', as in their own arithmetic."""
    import torch

    for dtype in (torch.float32, torch.float64):
        batch = ferry.collate([torch.tensor(0.5, dtype=dtype), 3], "torch")
        assert batch.dtype is dtype
        assert batch.tolist() == [0.5, 3.0]
    with pytest.raises(ferry.LossyCastError):
        ferry.collate([torch.tensor(0.5), 2**24 + 1], "torch")


def test_tensors_of_several_kinds_keep_their_graph_where_a_dtype_is_named():
    """Each is cast by its own framework."""
    import torch

    leaf = torch.ones(2, requires_grad=True)
    batch = ferry.collate(
        [{"a": leaf}, {"a": torch.ones(2, dtype=torch.int64)}], "torch", dtype={"a": "float64"}
    )
    batch["a"].sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0]


def test_the_order_of_keys_may_differ():
    """The first sample's is the batch's."""
    batch = ferry.collate([{"b": np.ones(1), "a": 1}, {"a": 2, "b": np.zeros(1)}], "numpy")
    assert list(batch) == ["b", "a"]
    assert (batch["b"].tolist(), batch["a"].tolist()) == ([[1.0], [0.0]], [1, 2])


def test_containers_that_optree_does_not_know_collate_too():
    """A UserDict in a list, one level down."""
    samples = [[collections.UserDict(x=np.full(1, float(number)))] for number in range(3)]
    batch = ferry.collate(samples, "numpy")
    assert type(batch[0]) is collections.UserDict
    assert batch[0]["x"].tolist() == [[0.0], [1.0], [2.0]]


def test_any_iterable_of_samples():
    """A generator, a tensor of samples."""
    assert ferry.collate(({"x": number} for number in range(3)), "numpy")["x"].tolist() == [0, 1, 2]
    assert ferry.collate([np.zeros(2), np.ones(2)], "numpy").shape == (2, 2)


# -- what does not stack ------------------------------------------------------------------------


def test_ragged_leaves_raise_with_path_and_shapes():
    """All of them at once."""
    samples = [{"x": np.ones(2), "y": [np.ones((2, 1))]}, {"x": np.ones(3), "y": [np.ones((1, 1))]}]
    with pytest.raises(ferry.TreeError) as caught:
        ferry.collate(samples, "torch")
    first, second = caught.value.exceptions
    assert type(first) is type(second) is ferry.ShapeError
    assert all(word in first.message for word in ('$["x"]', "(2,)", "(3,)"))
    assert all(word in second.message for word in ('$["y"][0]', "(2, 1)", "(1, 1)"))


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([{"a": 1}, {"b": 1}], r'Samples 0 and 1 are different trees.*\$\["a"\]'),
        ([[1, 2], [1]], r"Samples 0 and 1 are different trees.*\$\[1\]"),
        ([{"a": None}, {"a": 1}], r'NoneType.*int.*\$\["a"\]'),
        ([{"a": np.ones(1)}, {"a": "x"}], r'ndarray.*str.*\$\["a"\]'),
    ],
)
def test_different_samples_are_refused_by_path(samples, words):
    """A leaf that is missing, or something else in place of a number."""
    with pytest.raises(ferry.UnsupportedTypeError, match=words):
        ferry.collate(samples, "torch")


def test_no_samples_are_an_error():
    """There is nothing to know the structure from."""
    with pytest.raises(ferry.ShapeError, match="no samples"):
        ferry.collate([], "torch")


def test_tensors_of_the_target_are_stacked_by_it_only_where_they_are_alike():
    """Other dtypes are widened to one that holds all, other shapes and layouts refused in words."""
    import torch

    alike = ferry.collate([{"x": torch.ones(2)}, {"x": torch.zeros(2)}], "torch")
    assert alike["x"].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    mixed = ferry.collate(
        [{"x": torch.ones(1, dtype=torch.float64)}, {"x": torch.full((1,), 0.5)}], "torch"
    )
    assert mixed["x"].dtype is torch.float64
    assert mixed["x"].tolist() == [[1.0], [0.5]]
    with pytest.raises(ferry.ShapeError, match=r"\(2,\).*\(3,\)"):
        ferry.collate([torch.ones(2), torch.ones(3)], "torch")
    with pytest.raises(ferry.UnsupportedTypeError, match="sparse"):
        ferry.collate([torch.eye(2).to_sparse(), torch.eye(2)], "torch")
    with pytest.raises(ferry.UnsupportedTypeError, match="sparse"):
        ferry.collate([torch.eye(2).to_sparse(), torch.eye(2).to_sparse()], "torch")


@pytest.mark.parametrize("samples", [{"x": [1, 2]}, "ab", b"ab"], ids=["dict", "text", "bytes"])
def test_one_value_is_no_batch(samples):
    """To iterate over a dict would give its keys, and lose its values without a word."""
    with pytest.raises(ferry.UnsupportedTypeError, match="samples of a batch"):
        ferry.collate(samples, "numpy")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_large_batches_are_the_same_as_small_ones(dtype, monkeypatch):
    """Where PyTorch does not stack them itself; in their graph where they have one."""
    import torch

    from tensorferry.host import memory

    monkeypatch.setattr(memory, "MAPPED", 1)
    samples = [
        torch.tensor([[1, 0], [number, 1]]).to(getattr(torch, dtype)).T for number in range(3)
    ]
    batch = ferry.collate([{"x": each} for each in samples], "torch")["x"]
    assert batch.dtype is samples[0].dtype
    assert torch.equal(batch, torch.stack(samples))
    samples[0][0, 0] = 0
    assert batch[0, 0, 0] == 1
    if dtype == "float32":
        leaf = torch.ones(2, requires_grad=True)
        ferry.collate([leaf, leaf], "torch").sum().backward()
        assert leaf.grad.tolist() == [2.0, 2.0]


def test_parameters_stack_in_their_graph():
    """As torch.stack gives it: a plain tensor, through which gradients reach each of them."""
    import torch

    parameters = [torch.nn.Parameter(torch.full((3,), float(index))) for index in range(4)]
    batch = ferry.collate(parameters, "torch")
    assert type(batch) is torch.Tensor
    assert torch.equal(batch, torch.stack(parameters))
    batch.sum().backward()
    assert all(torch.equal(each.grad, torch.ones(3)) for each in parameters)


class Celsius(float):
    """A float of somebody's own class."""


class Count(int):
    """An int of somebody's own class."""


@pytest.mark.parametrize(
    ("column", "plain"),
    [
        ([Celsius(1.5), 2.5], [1.5, 2.5]),
        ([Count(1), Count(2)], [1, 2]),
    ],
)
def test_numbers_of_own_classes_collate_as_those_of_python(column, plain):
    found, wanted = ferry.collate(column, to="numpy"), ferry.collate(plain, to="numpy")
    assert found.dtype == wanted.dtype
    assert found.tolist() == wanted.tolist()


def test_a_number_that_no_dtype_holds_is_named_where_it_stands():
    with pytest.raises(ferry.UnsupportedTypeError, match="longdouble"):
        ferry.collate([[np.longdouble(1)], [np.longdouble(2)]], to="numpy")


def test_the_hint_for_leaves_of_which_some_are_no_tensors_leaves_those_samples_out():
    """Whatever the samples are."""
    pairs = {
        "a dict": [{"a": np.ones(2)}, {"a": None}, {"a": np.zeros(2)}],
        "a tuple": [(np.ones(2), 1), (None, 2), (np.zeros(2), 3)],
        "itself": [np.ones(2), None, np.zeros(2)],
        "text": [{"a": np.ones(2)}, {"a": "none"}, {"a": np.zeros(2)}],
    }
    for name, samples in pairs.items():
        with pytest.raises(ferry.UnsupportedTypeError, match="they do not stack") as caught:
            ferry.collate(samples, "numpy")
        code = caught.value.hint.partition(", which")[0]
        kept = eval(code, {"samples": samples})  # noqa: S307 - the code of the hint
        assert len(kept) == 2, name
        assert len(ferry.describe_tree(ferry.collate(kept, "numpy"))) == (
            2 if name == "a tuple" else 1
        )
