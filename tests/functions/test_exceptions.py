"""An exception keeps its type and names the side that it came from, as far as the runtimes between let it."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry

ones = jnp.ones(3)


@pytest.mark.parametrize("inner", ["torch", "jax", "numpy"])
def test_an_exception_keeps_its_type_and_names_its_side(inner):
    def function(x):
        raise KeyError("no such thing")

    x = ones if inner != "jax" else torch.ones(3)
    with pytest.raises(KeyError, match="no such thing") as caught:
        ferry.wrap(function, inner=inner)(x)
    assert any(f"which is {inner}'s" in note for note in caught.value.__notes__)


def refuses_two(x):
    if x[0] == 2:
        raise KeyError("no such thing")
    return x


def chain(*inner):
    """A function of NumPy's that refuses, called from the runtime of each of these in turn."""
    function = ferry.wrap(refuses_two, inner="numpy", shapes=lambda x: x)
    for name in inner:
        known = {"jax": jax.jit, "tensorflow": tf.function}.get(name, lambda function: function)
        function = ferry.wrap(known(function), inner=name, shapes=lambda x: x)
    return function


@pytest.mark.parametrize("runtime", ["jax", "tensorflow"])
@pytest.mark.parametrize("others", [(), ("jax", "torch"), ("tensorflow", "torch")])
def test_an_exception_under_a_frameworks_own_jit_is_named(runtime, others):
    """The runtime makes its own error of it, which has its type's name, its text and each side."""
    jitted, x = (jax.jit, 2 * ones) if runtime == "jax" else (tf.function, tf.fill(3, 2.0))
    others = [name for name in others if name != runtime]
    with pytest.raises(Exception, match="KeyError: 'no such thing'") as caught:
        jax.block_until_ready(jitted(chain(*others))(x))
    assert type(caught.value).__module__.partition(".")[0] == runtime
    assert all(f"which is {name}'s" in str(caught.value) for name in ["numpy", *others])


@pytest.mark.parametrize("length", [3, 1 << 18])
@pytest.mark.parametrize(
    "others", [("jax",), ("tensorflow",), ("jax", "torch", "jax"), ("tensorflow", "torch", "jax")]
)
def test_an_exception_keeps_its_type_where_the_call_is_ours(others, length):
    """Also if it went through the runtimes of others, which make other types of it, and is raised when values come."""
    wrapped = chain(*others)
    assert wrapped(torch.ones(length)).shape == (length,)
    for _ in range(2):
        with pytest.raises(KeyError, match="no such thing") as caught:
            wrapped(torch.full((length,), 2.0))
        assert [
            name
            for name in ["numpy", *others]
            if f"which is {name}'s" not in str(caught.value.__notes__)
        ] == []


def test_an_exception_that_a_runtime_took_keeps_no_tensors():
    """It is kept for the caller of the runtime, if there is one."""
    gone = []

    def refuses(x):
        gone.append(weakref.ref(x))
        raise KeyError("no such thing")

    with pytest.raises(Exception, match="no such thing"):
        jax.jit(ferry.wrap(refuses, inner="torch", shapes=lambda x: x)).lower(ones).compile()(
            ones
        ).block_until_ready()
    gc.collect()
    assert gone[-1]() is None


def test_an_exception_in_backward_keeps_its_type():
    def vjp(primals, outputs, cotangents):
        raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError):
        ferry.wrap(np.sin, inner="numpy", vjp=vjp)(
            torch.ones(3, requires_grad=True)
        ).sum().backward()
