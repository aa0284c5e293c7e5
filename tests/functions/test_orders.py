"""Every order and mode of the two frameworks that have all, each way."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads
from torch.autograd import gradcheck, gradgradcheck

import tensorferry as ferry


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64():
        yield


def torch_pair(dtype):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, dtype=dtype, generator=generator, requires_grad=True) for _ in range(2)]


def jax_pair(dtype):
    numbers = np.random.default_rng(1)
    whole = numbers.normal(size=(2, 3)) + 1j * numbers.normal(size=(2, 3))
    return [
        jnp.asarray(x.astype(dtype) if np.dtype(dtype).kind == "c" else x.real.astype(dtype))
        for x in whole
    ]


@ferry.wrap(inner="jax")
@jax.jit
def of_jax(x, y):
    return jnp.sin(x) * y, (x * jnp.conj(y)).sum()


@ferry.wrap(inner="torch")
def of_torch(x, y):
    return torch.sin(x) * y, (x * y.conj()).sum()


# PyTorch 2.6 says so of its own check.
@pytest.mark.filterwarnings("ignore:Please use `torch.vmap` instead:FutureWarning")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_torch_checks_gradients_of_jax(dtype):
    """PyTorch's own checks, in reverse and forward mode, of both orders."""
    pair = torch_pair(dtype)
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(of_jax, pair, check_forward_ad=True, **batched)
    assert gradgradcheck(of_jax, pair, check_fwd_over_rev=dtype is torch.float64)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_jax_checks_gradients_of_torch(dtype, jit):
    """JAX's own check, in both modes, up to the second order."""
    check_grads(
        jax.jit(of_torch) if jit else of_torch, jax_pair(dtype), order=2, modes=["fwd", "rev"]
    )


def cube(x):
    return (x * x * x).sum()


TORCH_WAYS = {
    "grad": torch.func.grad,
    "hessian": torch.func.hessian,
    "jacfwd": torch.func.jacfwd,
    "jacrev": torch.func.jacrev,
    "forward over reverse": lambda f: torch.func.jacfwd(torch.func.jacrev(f)),
    "reverse over forward": lambda f: torch.func.jacrev(torch.func.jacfwd(f)),
    "third": lambda f: torch.func.jacrev(torch.func.jacrev(torch.func.jacrev(f))),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](torch.ones((), dtype=x.dtype))[0],
    "vmap of grad": lambda f: lambda x: torch.vmap(torch.func.grad(f))(torch.stack([x, 2 * x])),
    "vectorized": lambda f: lambda x: torch.autograd.functional.hessian(f, x, vectorize=True),
    "linearize": lambda f: lambda x: torch.func.linearize(f, x)[1](torch.ones_like(x)),
    "grad of vmap": lambda f: torch.func.grad(
        lambda x: torch.vmap(f)(torch.stack([x, 2 * x])).sum()
    ),
}


@pytest.mark.filterwarnings(
    "ignore:Attempted to insert a get_attr Node"
)  # torch.func.linearize, of every function
@pytest.mark.parametrize("way", TORCH_WAYS)
def test_torch_func_differentiates_jax(way):
    """As it does the same formula written for PyTorch."""
    x = torch_pair(torch.float64)[0].detach()
    found = TORCH_WAYS[way](ferry.wrap(jax.jit(cube), inner="jax"))(x)
    torch.testing.assert_close(found, TORCH_WAYS[way](cube)(x))


def test_zeros_of_autograd_that_have_no_memory():
    """Such is the second derivative of `abs`, as PyTorch writes it."""
    x = torch_pair(torch.float64)[0]
    (first,) = torch.autograd.grad(ferry.wrap(cube, inner="jax")(x).abs(), x, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(first.abs().sum(), x)[0], 6 * x)


JAX_WAYS = {
    "grad": jax.grad,
    "hessian": jax.hessian,
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(f)),
    "third": lambda f: jax.jacrev(jax.jacrev(jax.jacfwd(f))),
    "third, forward last": lambda f: jax.jacfwd(jax.jacfwd(jax.jacrev(f))),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1],
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](jnp.ones((), x.dtype))[0],
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](jnp.ones_like(x)),
    "transposed twice": lambda f: (
        lambda x: jax.linear_transpose(jax.vjp(f, x)[1], jnp.ones((), x.dtype))((2 * x,))[0]
    ),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, y: (c + f(y * c), None), x.sum(), jnp.stack([x, x]))[0]
    ),
    "cond": lambda f: jax.grad(lambda x: jax.lax.cond(x[0] > 9, f, lambda x: 2 * f(x), x)),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x])),
    "grad of vmap": lambda f: jax.grad(lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])).sum()),
    "transposed batch": lambda f: jax.grad(
        lambda x: jax.vmap(lambda t: jax.jvp(f, (x,), (t,))[1])(jnp.eye(3)).sum()
    ),
    "batch along the last axis": lambda f: (
        lambda x: jax.vmap(jax.grad(f), in_axes=1, out_axes=1)(jnp.ones((3, 2)) * x[0])
    ),
}


@pytest.mark.parametrize("jit", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("way", JAX_WAYS)
def test_jax_transforms_torch(way, jit):
    """As it does the same formula written for JAX."""
    x = jax_pair("float64")[0]
    inside = jax.jit if jit else lambda f: f
    found = inside(JAX_WAYS[way](ferry.wrap(cube, inner="torch")))(x)
    np.testing.assert_allclose(found, JAX_WAYS[way](cube)(x), rtol=1e-10)
