"""PyTorch casts its own small tensors where it gives the bits that NumPy gives; NumPy casts all others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support import lives

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.backends.torch.bound import _ALONE
from tensorferry.backends.torch.declared import CAST_ALIKE
from tensorferry.execution.run import verifying
from tensorferry.host.numpy_dtypes import numpy_dtype

BACKEND = registry.ready("torch")
PAIRS = sorted(CAST_ALIKE)
WIDTHS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""Bits of the mantissa."""


class Marked(torch.Tensor):
    """Its methods give tensors of this class."""


def bits_of(dtype):
    return np.dtype(f"i{numpy_dtype(dtype).itemsize}")


def values(dtype, count, seed=7):
    """All kinds of floats, without a signalling NaN: its quiet bit is set."""
    random, whole = np.random.default_rng(seed), bits_of(dtype)
    info = np.iinfo(whole)
    bits = random.integers(info.min, info.max, count, whole, endpoint=True)
    # Half of them in the range of the narrower dtypes, where it is rounded.
    powers = np.float32(2.0) ** random.integers(-30, 18, count // 2)
    near = random.standard_normal(count // 2).astype(np.float32) * powers
    bits[: count // 2] = near.astype(numpy_dtype(dtype)).view(whole)
    array = bits.view(numpy_dtype(dtype))
    quiet = np.array(1, whole) << (WIDTHS[dtype] - 1)
    with np.errstate(invalid="ignore"):  # by a bfloat16 that signals
        unordered = np.isnan(array)
    return np.where(unordered, bits | quiet, bits).astype(whole).view(numpy_dtype(dtype))


def of_numpy(array):
    found = ferry.to_torch(array, copy=True)
    assert type(found) is torch.Tensor
    return found


def assert_same_bits(result, expected, dtype):
    assert result.dtype is getattr(torch, dtype)
    assert ferry.to_numpy(result).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("source", "dtype"), PAIRS)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33, 5000, _ALONE - 1, _ALONE, _ALONE + 1])
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_each_pair_has_the_bits_of_numpy(source, dtype, count):
    """Rounding, subnormals, infinities, signed zeros and quiet NaN; vectorized parts and what is left over."""
    array = values(source, count)
    expected = array.astype(numpy_dtype(dtype))
    assert_same_bits(ferry.to_torch(of_numpy(array), dtype=dtype), expected, dtype)
    tree = ferry.convert_tree(
        [of_numpy(array), of_numpy(array[: count // 2])], "torch", dtype=dtype
    )
    assert_same_bits(tree[0], expected, dtype)
    assert_same_bits(tree[1], expected[: count // 2], dtype)


@pytest.mark.parametrize(("source", "dtype"), PAIRS)
def test_a_signalling_nan_stays_nan(source, dtype):
    whole = bits_of(source)
    infinity = np.array([np.inf], numpy_dtype(source)).view(whole)
    signals = of_numpy(np.repeat(infinity | np.array(1, whole), 37).view(numpy_dtype(source)))
    assert ferry.to_torch(signals, dtype=dtype).isnan().all()


@pytest.mark.parametrize(("source", "dtype"), PAIRS)
def test_the_plan_has_one_step(source, dtype):
    x = torch.ones(2, 3, dtype=getattr(torch, source))
    plan = ferry.explain(x, "torch", dtype=dtype)
    assert [(step.backend, step.verb) for step in plan.steps] == [("torch", "cast")]
    assert plan.code == f"import torch\ny = x.to(torch.{dtype})"
    assert plan.reason == f"the dtype changes from {source} to {dtype}"
    with verifying():
        assert ferry.to_torch(x, dtype=dtype).tolist() == x.tolist()
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_torch(x, dtype=dtype, copy=False)


@pytest.mark.parametrize(
    ("make", "dtype", "keywords"),
    [
        (lambda: torch.ones(3), "bfloat16", {}),
        (lambda: torch.ones(3, dtype=torch.float64), "float16", {}),
        (lambda: torch.ones(3), "float8_e4m3fn", {}),
        (lambda: torch.ones(6)[::2], "float16", {}),
        (lambda: torch.ones(3, 2).T, "float16", {}),
        (lambda: torch._neg_view(torch.ones(3)), "float16", {}),
        (lambda: torch.ones(3), "float16", {"casting": "same_value"}),
        (lambda: torch.ones(3).as_subclass(Marked), "float16", {}),
    ],
    ids=[
        "sign of NaN",
        "rounded twice",
        "saturated",
        "gaps",
        "transposed",
        "negative bit",
        "checked",
        "subclass",
    ],
)
def test_numpy_casts_all_others(make, dtype, keywords):
    plan = ferry.explain(make(), "torch", dtype=dtype, **keywords)
    assert ("numpy", "cast") in [(step.backend, step.verb) for step in plan.steps]
    with verifying():
        found = ferry.to_torch(make(), dtype=dtype, **keywords)
    assert type(found) is torch.Tensor
    assert found.tolist() == make().tolist()


def test_a_gradient_is_left_or_kept_as_before():
    x = torch.tensor([1.5, 2.5], requires_grad=True)
    kept = ferry.to_torch(x, dtype="float16")
    kept.sum().backward()
    assert kept.requires_grad
    assert x.grad.tolist() == [1.0, 1.0]
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert type(ferry.to_torch(frozen, dtype="float16")) is torch.Tensor


def test_no_thread_of_pytorch_casts_many_elements():
    """One that was started while subnormals were flushed goes on to flush them."""
    lives(
        """
        import numpy as np, torch, tensorferry as ferry
        torch.set_num_threads(2)
        torch.set_flush_denormal(True)
        torch.ones(1 << 20).half()
        torch.set_flush_denormal(False)
        for count in (1, 100, 1 << 15, 1 << 20):
            x = torch.full((count,), 1e-310, dtype=torch.float64)
            assert ferry.to_numpy(ferry.to_torch(x, dtype="float32")).max() == 0
            y = torch.full((count,), 1e-40, dtype=torch.float32)
            assert ferry.to_numpy(ferry.to_torch(y, dtype="float64")).min() == float(np.float32(1e-40)), count
            (z,) = ferry.convert_tree([y], "torch", dtype="float64")
            assert ferry.to_numpy(z).min() == float(np.float32(1e-40)), count
        small = torch.from_numpy(np.full(3, 1e-40, "float32"))
        torch.set_flush_denormal(True)
        assert ferry.to_numpy(ferry.to_torch(small, dtype="float64")).view("i8").min() > 0
        assert ferry.to_numpy(ferry.convert_tree([small], "torch", dtype="float64")[0]).view("i8").min() > 0
        """
    )


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_tensor_with_more_axes_than_an_array_is_cast_in_its_graph(dtype):
    """NumPy's error came out, since NumPy casts what stays in a graph."""
    x = torch.tensor([1.5, -2.0]).reshape([1] * 69 + [2]).requires_grad_()
    found = ferry.to_torch(x, dtype=dtype)
    assert found.equal(x.to(getattr(torch, dtype)))
    found.sum().backward()
    assert x.grad.equal(torch.ones_like(x))
    # Outside a graph, what PyTorch casts alike is for the verb too, which may do it with NumPy.
    assert BACKEND.cast(x.detach(), dtype).equal(found)
