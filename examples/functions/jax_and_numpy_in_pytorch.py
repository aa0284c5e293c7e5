"""Use a loss written for JAX and a simulator written for NumPy in a training loop of PyTorch.

    python examples/functions/jax_and_numpy_in_pytorch.py

A rod cools from both ends. From its temperatures at a later time, the program finds the diffusivity and the
temperatures at the start. The simulator has an adjoint that is written by hand, JAX differentiates the loss, and
PyTorch's optimizer does not have to know. At the end, JAX differentiates the same simulator under jit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch

import tensorferry as ferry

STEPS, POINTS = 20, 24


def laplacian(u):
    """The second difference, with both ends at zero. It is its own adjoint."""
    padded = np.pad(u, 1)
    return padded[2:] - 2 * u + padded[:-2]


def cool(start, diffusivity):
    """The temperatures after all steps."""
    u = start
    for _ in range(STEPS):
        u = u + diffusivity * laplacian(u)
    return u


def adjoint(primals, _, cotangents):
    """The gradients of `cool`: the same steps backwards, from the last state to the first."""
    (start, diffusivity), (cotangent,) = primals, cotangents
    states = [start]
    for _ in range(STEPS - 1):
        states.append(states[-1] + diffusivity * laplacian(states[-1]))
    slope = np.zeros_like(diffusivity)
    for u in reversed(states):
        slope = slope + (cotangent * laplacian(u)).sum()
        cotangent = cotangent + diffusivity * laplacian(cotangent)
    return cotangent, slope


simulate = ferry.wrap(cool, inner="numpy", vjp=adjoint, shapes=lambda start, diffusivity: start)


@ferry.wrap(inner="jax", dtype="fit")
@jax.jit
def loss(result, seen, start):
    """The distance from the temperatures that were seen, plus a penalty for a rough start."""
    return ((result - seen) ** 2).mean() + 1e-4 * (jnp.diff(start) ** 2).mean()


def train():
    """Find the start and the diffusivity with PyTorch's Adam; gives the losses and the diffusivity."""
    points = torch.linspace(0, 3, POINTS)
    seen = simulate(torch.exp(-((points - 1.2) ** 2) * 4), torch.tensor(0.2))
    start = torch.full((POINTS,), 0.3, requires_grad=True)
    diffusivity = torch.tensor(0.1, requires_grad=True)
    optimizer = torch.optim.Adam([start, diffusivity], 0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(simulate(start, diffusivity), seen, start)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses, diffusivity.item()


def gradients_in_both():
    """The simulator's gradient by PyTorch, and by JAX under jit."""
    start = np.linspace(0, 1, POINTS, dtype=np.float32)
    x, k = torch.tensor(start, requires_grad=True), torch.tensor(0.15, requires_grad=True)
    (simulate(x, k) ** 2).sum().backward()
    gradient = jax.jit(jax.grad(lambda x, k: (simulate(x, k) ** 2).sum(), argnums=(0, 1)))
    return (x.grad, k.grad), gradient(jnp.asarray(start), jnp.float32(0.15))


def main():
    """Train, and compare the gradients; gives the losses."""
    losses, diffusivity = train()
    for one, other in zip(*gradients_in_both(), strict=True):
        np.testing.assert_allclose(ferry.to_numpy(one), other, rtol=1e-5)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, diffusivity {diffusivity:.3f}")  # noqa: T201
    return losses


if __name__ == "__main__":
    main()
