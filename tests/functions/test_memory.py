"""What a call copies is what its plan says, and calls leave nothing behind."""

from __future__ import annotations

import gc
import tracemalloc

import jax
import jax.numpy as jnp
import pytest
import torch
from tests.support import peak_of

import tensorferry as ferry

LITTLE = 1 << 16
"""Bytes that Python itself takes for a call."""


@pytest.mark.fast_paths
@pytest.mark.parametrize("length", [1 << 18, pytest.param(25 << 20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("inner", ["jax", "torch", "numpy"])
def test_no_copies_beyond_the_plans(inner, length):
    """Counted where it lies in host memory of NumPy's: copies of arguments on the way, and of results."""
    wrapped = ferry.wrap(
        jax.jit(lambda x: x[:8] * 2) if inner == "jax" else lambda x: x[:8] * 2, inner=inner
    )
    x = torch.ones(length) if inner != "torch" else jnp.ones(length)
    wrapped(x)
    plan = ferry.explain_wrap(wrapped, x)
    peak, _ = peak_of(lambda: wrapped(x))
    assert peak <= plan.bytes_copied + LITTLE


@pytest.mark.fast_paths
@pytest.mark.slow
def test_ten_thousand_calls_leave_nothing():
    """Forward and backward, both ways."""
    loss = ferry.wrap(jax.jit(lambda x: (x * x).sum()), inner="jax")
    step = jax.jit(jax.grad(ferry.wrap(lambda x: (x * x).sum(), inner="torch")))
    x, leaf = jnp.ones(8), torch.ones(8, requires_grad=True)

    def call():
        loss(leaf).backward()
        step(x).block_until_ready()

    tracemalloc.start()
    try:
        # What JAX has still to let go of grows in the first thousands of calls, and no further.
        for _ in range(3_000):
            call()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10_000):
            call()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < LITTLE
