"""Samples become one batch: exact values, one memory for each leaf, errors that say where."""

from __future__ import annotations

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
@pytest.mark.parametrize("dtype", ["bool", "uint16", "int32", "float16", "bfloat16", "float32", "float8_e5m2"])
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

    batch = ferry.collate([{"i": 2**53 + 1, "f": 0.5, "b": True}, {"i": 1, "f": 1.5, "b": False}], "torch")
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
        assert ferry.collate(column, "torch").tolist() == [1.0, 1.0]
        with pytest.raises(ferry.GradientError):
            ferry.collate(column, "torch", grad="error")


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
    assert ferry.collate(samples, like=torch.ones(1, dtype=torch.bfloat16))["x"].dtype is torch.bfloat16
    with pytest.raises(ferry.LossyCastError, match=r'\$\["x"\]'):
        ferry.collate([{"x": np.array([1.5])}], "jax", dtype={"x": "int8"})


def test_a_list_of_numbers_is_a_row_if_a_callable_says_so():
    """Otherwise it is a container, as everywhere."""
    samples = [{"ids": [1, 2]}, {"ids": [3, 4]}]
    assert [each.tolist() for each in ferry.collate(samples, "numpy")["ids"]] == [[1, 3], [2, 4]]
    batch = ferry.collate(samples, "numpy", leaves=lambda x: isinstance(x, list))
    assert batch["ids"].tolist() == [[1, 2], [3, 4]]


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


def test_ragged_leaves_are_padded_on_request():
    """To the largest length of each axis; what stacks as it is stays as it is."""
    samples = [{"x": np.array([[1, 2]]), "y": np.ones(2)}, {"x": np.array([[3], [4]]), "y": np.zeros(2)}]
    batch = ferry.collate(samples, "torch", ragged="pad", pad_value=-100)
    assert batch["x"].tolist() == [[[1, 2], [-100, -100]], [[3, -100], [4, -100]]]
    assert batch["y"].tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("target", TARGETS)
def test_padding_works_for_every_target_and_source(target):
    """Mixed frameworks, another dtype; the padding is exact."""
    import torch

    samples = [{"x": torch.ones(1, dtype=torch.bfloat16)}, {"x": np.zeros(3, "float32")}]
    batch = ferry.collate(samples, target, ragged="pad", pad_value=float("inf"))
    assert ferry.describe(batch["x"]).framework == target
    assert ferry.to_list(batch["x"]) == [[1.0, np.inf, np.inf], [0.0, 0.0, 0.0]]


def test_a_pad_value_that_does_not_fit_is_refused():
    """Never wrapped around, never rounded to an integer."""
    samples = [{"x": np.zeros(1, "uint8")}, {"x": np.zeros(2, "uint8")}]
    for value in (-100, 0.5, float("nan")):
        with pytest.raises(ferry.LossyCastError, match=r'\$\["x"\]'):
            ferry.collate(samples, "numpy", ragged="pad", pad_value=value)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_numbers_have_one_dtype_padded_or_not(target):
    """The next batch is of the same dtype, whether its rows are of one length or not."""
    for numbers in ([1.0, 2.0], [1, 2], [True, False]):
        batches = [
            ferry.collate([{"x": numbers}, {"x": other}], target, leaves=lambda x: isinstance(x, list), ragged="pad")
            for other in (numbers, numbers[:1])
        ]
        assert len({ferry.describe(batch["x"]).dtype for batch in batches}) == 1
        assert ferry.to_list(batches[1]["x"]) == [numbers, [numbers[0], type(numbers[0])(0)]]


@pytest.mark.parametrize(
    ("dtype", "value", "asked"),
    [("float32", 0.1, None), ("bfloat16", -1e9, None), ("int64", float("nan"), "float32"), ("uint8", -1, "int16")],
)
def test_a_pad_value_is_a_number_of_the_result(dtype, value, asked):
    """A float is rounded to the dtype that the batch has, as any Python number is."""
    rows = [ferry.to_numpy([1, 2], dtype=dtype), ferry.to_numpy([1], dtype=dtype)]
    batch = ferry.collate(rows, "numpy", ragged="pad", pad_value=value, dtype={dtype: asked})
    assert ferry.describe(batch).dtype == (asked or dtype)
    assert batch[1, 1:].tobytes() == ferry.to_numpy([value], dtype=asked or dtype).tobytes()


def test_padding_does_not_leave_a_graph_that_must_be_kept():
    """`grad="error"` means it."""
    import torch

    rows = [torch.ones(2, requires_grad=True), torch.ones(3)]
    assert not ferry.collate(rows, "torch", ragged="pad").requires_grad
    with pytest.raises(ferry.GradientError):
        ferry.collate(rows, "torch", ragged="pad", grad="error")


def test_unequal_numbers_of_axes_are_not_padded():
    """Which axis is missing nobody can say."""
    with pytest.raises(ferry.ShapeError, match="1 and with 2 axes") as caught:
        ferry.collate([np.zeros(2), np.zeros((1, 2))], "numpy", ragged="pad")
    assert caught.value.message.endswith(" - at $")


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
    """A leaf that is missing, or a number that is none."""
    with pytest.raises(ferry.UnsupportedTypeError, match=words):
        ferry.collate(samples, "torch")


def test_no_samples_are_an_error():
    """There is nothing to know the structure from."""
    with pytest.raises(ferry.ShapeError, match="no samples"):
        ferry.collate([], "torch")


def test_ragged_takes_two_values():
    """Anything else is refused in words."""
    with pytest.raises(TypeError, match="ragged must be"):
        ferry.collate([1], "numpy", ragged="drop")


def test_samples_are_unchanged():
    """Also where they are padded."""
    samples = [{"x": np.arange(2)}, {"x": np.arange(3)}]
    ferry.collate(samples, "numpy", ragged="pad")
    assert [each["x"].tolist() for each in samples] == [[0, 1], [0, 1, 2]]


def test_tensors_of_the_target_are_stacked_by_it_only_where_they_are_alike():
    """Other dtypes are widened to one that holds all, other shapes and layouts refused in words."""
    import torch

    alike = ferry.collate([{"x": torch.ones(2)}, {"x": torch.zeros(2)}], "torch")
    assert alike["x"].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    mixed = ferry.collate([{"x": torch.ones(1, dtype=torch.int32)}, {"x": torch.full((1,), 0.5)}], "torch")
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
