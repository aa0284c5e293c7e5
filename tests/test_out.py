"""`out=`: results are written into memory that is given, or nothing is touched."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("layout", ["compact", "strided", "transposed"])
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_every_layout_of_out_takes_the_values(target, layout, dtype):
    """The values arrive in the memory that was given, cast to its dtype, and that very object comes back."""
    memory = ferry.convert(np.zeros((4, 8)), target, dtype=dtype)
    out = {"compact": memory[:2, :3], "strided": memory[::2, 1:7:2], "transposed": memory[:3, :2].T}[layout]

    result = ferry.convert([[1, 2, 3], [4, 5, 6]], target, out=out)

    assert result is out
    assert ferry.to_list(out, dtype="float64") == [[1, 2, 3], [4, 5, 6]]


def test_a_variable_is_assigned():
    """A tf.Variable can be given, although TensorFlow's tensors are immutable."""
    variable = tf.Variable([0.0, 0.0])

    assert ferry.to_tensorflow(np.array([1.5, 2.5]), out=variable) is variable
    assert variable.numpy().tolist() == [1.5, 2.5]


def test_lazy_bits_of_out_are_honoured():
    """What is written into a conjugate view is what is read from it."""
    memory = torch.zeros(2, dtype=torch.complex64)

    ferry.to_torch(np.array([1 + 2j, 3], np.complex64), out=memory.conj())

    assert memory.tolist() == [1 - 2j, 3]


def test_autograd_sees_the_write():
    """A write counts as a new version, so that a backward pass over the old values is refused."""
    saved = torch.ones(2)
    weight = torch.ones(2, requires_grad=True)
    product = (weight * saved).sum()

    ferry.to_torch(np.zeros(2, "float32"), out=saved)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_overlapping_memory_is_read_before_it_is_written():
    """An array can be moved by one element within itself."""
    array = np.arange(5.0)

    ferry.to_numpy(array[:-1], out=array[1:])

    assert array.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_out_is_untouched_when_a_value_does_not_fit(target):
    """The last value is looked at before the first is written."""
    out = ferry.convert(np.full(3, 7), target, dtype="int8")

    with pytest.raises(ferry.LossyCastError, match=r"at \[2\]"):
        ferry.convert(np.array([1, 2, 300]), target, out=out)

    assert ferry.to_list(out) == [7, 7, 7]


@pytest.mark.parametrize(
    ("target", "out", "error", "words"),
    [
        ("tensorflow", lambda: tf.zeros(2), ferry.UnsupportedTypeError, "tensorflow tensors are immutable"),
        ("jax", lambda: ferry.to_jax([0.0, 0.0]), ferry.UnsupportedTypeError, "jax tensors are immutable"),
        ("python", lambda: [0, 0], ferry.UnsupportedTypeError, "not memory to write to"),
        ("numpy", lambda: np.frombuffer(bytes(16)), ferry.UnsupportedTypeError, "read-only"),
        ("numpy", lambda: torch.zeros(2), ferry.UnsupportedTypeError, "out= is a torch tensor"),
        ("numpy", lambda: np.zeros(3), ferry.ShapeError, r"out= has shape \(3,\), the source has \(2,\)"),
        ("torch", lambda: torch.zeros(2, requires_grad=True), ferry.GradientError, "requires grad"),
        ("torch", lambda: torch.zeros(1).expand(2), ferry.UnsupportedTypeError, "several of its elements lie in one"),
    ],
)
def test_what_cannot_be_written_is_refused(target, out, error, words):
    """Immutable, read-only, foreign, broadcast, of another shape, or in a graph: each with its reason."""
    with pytest.raises(error, match=words):
        ferry.convert([1.0, 2.0], target, out=out())


def test_out_and_copy_false_contradict_each_other():
    """Writing into given memory is a copy."""
    with pytest.raises(ferry.CopyRequiredError, match="written into"):
        ferry.to_numpy(np.ones(2), out=np.zeros(2), copy=False)


def test_out_names_the_dtype():
    """Another dtype beside out= is a contradiction; its own is not."""
    out = np.zeros(2, ml_dtypes.bfloat16)

    assert ferry.to_numpy([1.0, 2.0], out=out, dtype="bfloat16") is out
    with pytest.raises(ferry.LossyCastError, match="out= is bfloat16"):
        ferry.to_numpy([1.0, 2.0], out=out, dtype="float32")
