"""Train a PyTorch network with optax under jax.jit, and compare each step with PyTorch's own training.

    python examples/functions/optax_trains_pytorch.py

`ferry.wrap_module` gives a pure function and a tree of parameters, which JAX and optax can use like any other model.
PyTorch trains the same module, and the two are compared after every step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from sklearn.datasets import load_digits

import tensorferry as ferry

STEPS, BATCH, RATE = 60, 64, 0.5


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def batches():
    """The digits in batches of ndarrays."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    for start in range(0, STEPS * BATCH, BATCH):
        chosen = order[np.arange(start, start + BATCH) % len(order)]
        yield (images[chosen] / 16).astype(np.float32), labels[chosen].astype(np.int32)


def by_optax(module):
    """Yield the loss and the parameters of each step. PyTorch's forward and backward pass run inside jax.jit."""
    apply, params = ferry.wrap_module(module)
    optimizer = optax.sgd(RATE)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, images, labels):
        def loss(params):
            scores = apply(params, images)
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    for images, labels in batches():
        params, state, value = step(params, state, jnp.asarray(images), jnp.asarray(labels))
        yield float(value), params


def by_pytorch(module):
    """Yield the same without JAX."""
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for images, labels in batches():
        loss = torch.nn.functional.cross_entropy(
            module(torch.from_numpy(images)), torch.from_numpy(labels).long()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item(), dict(module.named_parameters())


def main():
    """Train both ways and compare them after every step; gives the losses of both."""
    losses = []
    for (one, params), (other, expected) in zip(
        by_optax(network()), by_pytorch(network()), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4)
        for name, parameter in expected.items():
            np.testing.assert_allclose(
                params[name], ferry.to_numpy(parameter), rtol=1e-3, atol=1e-5
            )
        losses.append((one, other))
    one, other = ([f"{losses[step][side]:.4f}" for step in (0, -1)] for side in (0, 1))
    print(f"loss by optax {' -> '.join(one)}, by PyTorch {' -> '.join(other)}")  # noqa: T201
    return losses


if __name__ == "__main__":
    main()
