"""`out=`: results are written into memory that is given, or nothing is touched."""

import warnings

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tensorferry as ferry
from tensorferry.core.info import MANY


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("layout", ["compact", "strided", "transposed"])
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_every_layout_of_out_takes_the_values(target, layout, dtype):
    """The values arrive in the memory that was given, cast to its dtype, and that very object comes back."""
    memory = ferry.convert(np.zeros((4, 8)), target, dtype=dtype)
    out = {
        "compact": memory[:2, :3],
        "strided": memory[::2, 1:7:2],
        "transposed": memory[:3, :2].T,
    }[layout]

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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_subclass_takes_the_values_into_its_memory(dtype):
    """Arrays with units do not take plain numbers by their own `__setitem__`; a tree was half written then."""

    class Units(np.ndarray):
        def __setitem__(self, key, value):
            raise TypeError("these are no metres")

    outs = [np.zeros(2, dtype), np.zeros(2, dtype).view(Units)]
    leaves = [torch.tensor([1.5, 2.5]), torch.tensor([3.5, 4.5])]

    assert ferry.convert_tree(leaves, "numpy", out=outs)[1] is outs[1]
    assert [out.tolist() for out in outs] == [[1.5, 2.5], [3.5, 4.5]]


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


@pytest.mark.parametrize("source", ["numpy", "torch"])
@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize(("read", "write"), [(1, 2), (2, 1), (-1, -2), (1, -2), (3, 2)])
def test_overlapping_memory_with_other_strides(source, target, read, write):
    """Along one axis, NumPy itself reads elements that it has already written."""
    for offset in range(-4, 5):
        memory = np.arange(40)
        taken, out = memory[16::read][:4], memory[16 + offset :: write][:4]
        expected = taken.tolist()
        taken = torch.from_numpy(taken) if source == "torch" and read > 0 else taken
        given = torch.from_numpy(out) if target == "torch" and write > 0 else out

        ferry.convert(taken, like=given, out=given)

        assert out.tolist() == expected


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
        (
            "tensorflow",
            lambda: tf.zeros(2),
            ferry.UnsupportedTypeError,
            "tensorflow tensors are immutable",
        ),
        (
            "jax",
            lambda: ferry.to_jax([0.0, 0.0]),
            ferry.UnsupportedTypeError,
            "jax tensors are immutable",
        ),
        ("python", lambda: [0, 0], ferry.UnsupportedTypeError, "not memory to write to"),
        ("numpy", lambda: np.frombuffer(bytes(16)), ferry.UnsupportedTypeError, "read-only"),
        ("numpy", lambda: torch.zeros(2), ferry.UnsupportedTypeError, "out= is a torch tensor"),
        (
            "numpy",
            lambda: np.zeros(3),
            ferry.ShapeError,
            r"out= has shape \(3,\), the source has \(2,\)",
        ),
        ("torch", lambda: torch.zeros(2, requires_grad=True), ferry.GradientError, "requires grad"),
        (
            "torch",
            lambda: torch.zeros(1).expand(2),
            ferry.UnsupportedTypeError,
            "several of its elements lie in one",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(target, out, error, words):
    """Immutable, read-only, foreign, broadcast, of another shape, or in a graph: each with its reason."""
    with pytest.raises(error, match=words):
        ferry.convert([1.0, 2.0], target, out=out())


def faked():
    with FakeTensorMode():
        return torch.zeros(2)


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch deprecates what makes one
        return torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (lambda: torch.zeros(2).to_sparse(), "it is sparse"),
        (quantized, "it is quantized"),
        (faked, "FakeTensor"),
        (lambda: torch._efficientzerotensor((2,)), "zero tensor"),
        (lambda: torch.zeros(2, device="meta"), "meta tensor"),
        (torch.nn.UninitializedParameter, "has no shape yet"),
        (lambda: np.float64(0), "has no memory"),
        (lambda: ferry.TensorInfo("numpy", (2,)), "A TensorInfo describes a tensor"),
    ],
)
def test_an_out_without_memory_is_refused(out, words):
    """Nothing could be written to it; the reason is named."""
    given = out()
    target = "torch" if isinstance(given, torch.Tensor) else "numpy"
    x = 1.0 if isinstance(given, np.generic) else np.ones(2, "float32")
    with pytest.raises(ferry.UnsupportedTypeError, match=words) as caught:
        ferry.convert(x, target, out=given)
    assert caught.value.hint


def test_an_out_inside_vmap_is_refused():
    """What vmap wraps has no memory of its own."""

    def inside(y):
        with pytest.raises(ferry.UnsupportedTypeError, match="vmap"):
            ferry.to_torch(np.ones(2, "float32"), out=y)
        return y

    torch.vmap(inside)(torch.zeros(3, 2))


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_elements_of_out_that_overlap_are_refused(target):
    """Windows over one memory cannot hold different values; a layout that only looks like it can."""
    values = np.arange(6.0).reshape(2, 3)

    def layout(shape, steps):
        block = np.zeros(16)
        windows = np.lib.stride_tricks.as_strided(block, shape, [8 * step for step in steps])
        return windows if target == "numpy" else torch.from_numpy(block).as_strided(shape, steps)

    with pytest.raises(ferry.UnsupportedTypeError, match="windows overlap"):
        ferry.convert(values, target, out=layout((2, 3), (1, 1)))
    with pytest.raises(ferry.UnsupportedTypeError, match="windows overlap"):
        ferry.convert(values, target, out=layout((2, 3), (2, 1)))
    # The steps interleave: 0 2 4 and 3 5 7.
    interleaved = layout((2, 3), (3, 2))
    assert ferry.to_list(ferry.convert(values, target, out=interleaved)) == values.tolist()


def test_out_and_options_that_ask_for_other_memory_contradict_each_other():
    """A variable of its own, page-locked memory, another device: none of them is ignored."""
    with pytest.raises(ferry.UnsupportedTypeError, match="variable=True"):
        ferry.to_tensorflow([1.0], out=tf.Variable([0.0]), variable=True)
    with pytest.raises(ferry.UnsupportedTypeError, match="pinned=True"):
        ferry.to_torch([1.0], out=torch.zeros(1), pinned=True)
    with pytest.raises(ferry.DeviceError, match="out= is on cpu"):
        ferry.to_torch([1.0], out=torch.zeros(1), device="cuda")


def test_a_variable_of_any_shape_can_be_given():
    """It has the shape of its value."""
    variable = tf.Variable([0.0, 0.0], shape=tf.TensorShape(None))

    assert ferry.describe(variable).shape == (2,)
    assert ferry.to_list(ferry.to_tensorflow([1.0, 2.0], out=variable)) == [1.0, 2.0]


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


def test_the_default_dtype_is_a_name_too():
    """ "default" beside an out= of that dtype says the same twice; of another dtype it contradicts."""
    out = torch.zeros(2)

    assert ferry.to_torch(np.ones(2), out=out, dtype="default") is out
    with pytest.raises(ferry.LossyCastError, match="asks for float32"):
        ferry.to_torch(np.ones(2), out=torch.zeros(2, dtype=torch.float64), dtype="default")


def test_many_numbers_are_written_in_chunks():
    """Without a whole array of them beside `out`."""
    numbers = [float(number) for number in range(MANY + 10)]
    out = np.empty(len(numbers), "float32")
    assert ferry.to_numpy(numbers, out=out) is out
    assert out.tolist() == numbers
