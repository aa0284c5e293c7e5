"""Functions across frameworks: what a crossing adds to the two calls, against what a person would write by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

from .case import Case, Pace, Section, Target

__all__ = ["SECTIONS"]

_LOWER = "jitted(x).block_until_ready()"
_BY_CALLBACK = "by_pure_callback(x).block_until_ready()"


def _world(length: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch

    import tensorferry as ferry

    def of_torch(x: Any) -> Any:
        return torch.sin(x) * x

    def host(x: Any) -> Any:
        return of_torch(torch.from_numpy(np.array(x))).numpy()

    @jax.jit
    def loss(x: Any) -> Any:
        return (jnp.sin(x) * x).sum()

    @jax.jit
    def gradient(x: Any, cotangent: Any) -> Any:
        return jax.vjp(loss, x)[1](cotangent)[0]

    wrapped = ferry.wrap(loss, inner="jax")
    leaf = torch.full((length,), 0.5).requires_grad_()
    one = torch.ones(())

    def backward() -> Any:
        leaf.grad = None
        wrapped(leaf).backward()
        return leaf.grad

    def by_hand() -> Any:
        x = jax.dlpack.from_dlpack(leaf.detach())
        torch.from_dlpack(loss(x))
        return torch.from_dlpack(
            gradient(jax.dlpack.from_dlpack(leaf.detach()), jax.dlpack.from_dlpack(one))
        )

    lower = ferry.wrap(of_torch, inner="torch")
    x = jnp.full(length, 0.5)
    return {
        "x": x,
        "jitted": jax.jit(lower),
        "by_pure_callback": jax.jit(
            lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        ),
        "backward": backward,
        "by_hand": by_hand,
    }


def _cases(callback: float, hand: float) -> tuple[Case, ...]:
    return (
        Case(_LOWER, _BY_CALLBACK, Target(ratio=callback)),
        Case("backward()", "by_hand()", Target(ratio=hand)),
    )


SECTIONS = (
    Section(
        "Functions of 8 elements: PyTorch's in jax.jit, JAX's in autograd",
        partial(_world, 8),
        _cases(0.25, 1.8),
    ),
    Section(
        "Functions of 1 MB: PyTorch's in jax.jit, JAX's in autograd",
        partial(_world, 1 << 18),
        _cases(0.7, 1.1),
        pace=Pace(rounds=41, batch=5e-3, best=True),
    ),
)
