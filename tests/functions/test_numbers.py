"""Python numbers in results have no dtype, and take what the framework that calls gives them; NumPy's keep theirs."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry

MAKE = {
    "torch": torch.tensor,
    "jax": jnp.asarray,
    "tensorflow": tf.convert_to_tensor,
    "numpy": np.asarray,
}
ONES = {
    "torch": torch.ones,
    "jax": jnp.ones,
    "tensorflow": tf.ones,
    "numpy": lambda n: np.ones(n, np.float32),
}
PAIRS = [pair for pair in product(MAKE, MAKE) if pair[0] != pair[1]]


def name(x):
    """The name of a dtype, without its framework's."""
    return x.dtype.name if hasattr(x.dtype, "name") else str(x.dtype).removeprefix("torch.")


def modes(outer):
    yield lambda f: f
    if outer == "jax":
        yield jax.jit
    if outer == "tensorflow":
        yield lambda f: tf.function(f, autograph=False)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(("inner", "outer"), PAIRS)
@pytest.mark.parametrize("number", [True, 3, -1, 2.5, 0.1, 1j])
def test_a_number_has_the_dtype_that_the_caller_gives_numbers(inner, outer, number, x64):
    wrapped = ferry.wrap(lambda x: {"one": number, "many": [number, number], "x": x}, inner=inner)
    with jax.enable_x64(x64):
        expected = MAKE[outer](number)
        for mode in modes(outer):
            found = mode(lambda x: wrapped(x))(ONES[outer](3))  # noqa: PLW0108 - jit keeps it by its identity
            for each in (found["one"], *found["many"]):
                assert type(each) is type(expected)
                assert (name(each), tuple(each.shape)) == (name(expected), ())
                assert np.asarray(each) == np.asarray(expected)
            assert name(found["x"]) == name(ONES[outer](3))


@pytest.mark.parametrize(("inner", "outer"), [pair for pair in PAIRS if pair[1] != "jax"])
@pytest.mark.parametrize(
    "number", [np.float64(0.1), np.float32(0.1), np.int64(3), np.int8(3), np.bool_(True)]
)
def test_a_number_of_numpys_keeps_its_dtype(inner, outer, number):
    """With JAX in between, what JAX makes of it."""
    with jax.enable_x64():
        found = ferry.wrap(lambda x: number, inner=inner)(ONES[outer](3))
    assert name(found) == number.dtype.name
    assert np.asarray(found) == number


@pytest.mark.parametrize("inner", ["torch", "tensorflow", "numpy"])
def test_what_jax_does_not_have(inner):
    with pytest.raises(ferry.LossyCastError, match="no float64"):
        ferry.wrap(lambda x: np.float64(1), inner=inner)(jnp.ones(3))
    for number in (2**40, 1e300):
        with pytest.raises(ferry.LossyCastError) as caught:
            ferry.wrap(lambda x, number=number: number, inner=inner)(jnp.ones(3))
        assert str(caught.value.hint).startswith("jax.config.update")
        with jax.enable_x64():
            assert ferry.wrap(lambda x, number=number: number, inner=inner)(jnp.ones(3)) == number
    wrapped = jax.jit(ferry.wrap(lambda x: 1e300, inner=inner))
    with pytest.raises(jax.errors.JaxRuntimeError, match="does not fit"):
        jax.block_until_ready(wrapped(jnp.ones(3)))


@pytest.mark.parametrize(
    ("inner", "outer"), [("jax", "torch"), ("jax", "numpy"), ("numpy", "tensorflow")]
)
def test_a_number_that_the_inner_framework_does_not_have(inner, outer):
    found = ferry.wrap(lambda x: 2**40, inner=inner)(ONES[outer](3))
    assert (name(found), int(found)) == ("int64", 2**40)


def test_a_float_that_is_too_large():
    """Its hint keeps it."""
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.wrap(lambda x: 1e300, inner="numpy")(torch.ones(3))
    assert str(caught.value.hint) == "numpy.float64(number)"
    assert ferry.wrap(lambda x: np.float64(1e300), inner="numpy")(torch.ones(3)).item() == 1e300
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.wrap(lambda x: 2**70, inner="numpy")(torch.ones(3))
    assert str(caught.value.hint) == "float(number), which rounds"
    assert ferry.wrap(lambda x: float(2**70), inner="numpy")(torch.ones(3)).item() == 2.0**70


@pytest.mark.parametrize("inner", ["torch", "tensorflow", "numpy"])
def test_numbers_beside_tensors_have_no_gradient(inner):
    """They are constants, also in batches; the gradient of the tensor is its own."""
    derivatives = {"vjp": lambda p, o, c: (2 * c[0],)} if inner == "numpy" else {}
    wrapped = ferry.wrap(lambda x: (x * 2, x.shape[0], 2.5), inner=inner, **derivatives)
    x = jnp.ones(3)
    assert jax.grad(lambda x: wrapped(x)[0].sum())(x).tolist() == [2, 2, 2]
    many = jax.vmap(wrapped)(jnp.ones((2, 3)))
    assert [(str(each.dtype), each.tolist()) for each in many[1:]] == [
        ("int32", [3, 3]),
        ("float32", [2.5, 2.5]),
    ]


def test_batches_of_pytorch():
    found = torch.vmap(ferry.wrap(lambda x: (x, 3, 2.5), inner="jax"))(torch.ones(2, 3))
    assert [(each.dtype, each.tolist()) for each in found[1:]] == [
        (torch.int64, [3, 3]),
        (torch.float32, [2.5, 2.5]),
    ]


@pytest.mark.parametrize("inner", ["torch", "tensorflow", "numpy"])
def test_narrow_floats_of_numpys_extensions(inner):
    bfloat16 = jnp.bfloat16.dtype.type
    found = ferry.wrap(lambda x: bfloat16(1.5), inner=inner)(jnp.ones(3))
    assert (str(found.dtype), float(found)) == ("bfloat16", 1.5)
