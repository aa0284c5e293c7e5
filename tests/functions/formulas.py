"""The same formulas, written for each framework, and what the tests of functions need."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np


def _torch():
    import torch

    return SimpleNamespace(
        name="torch",
        sin=torch.sin,
        exp=torch.exp,
        conj=lambda x: x.conj().resolve_conj(),
        real=torch.real,
        floor=lambda x: torch.floor(x.detach()).to(torch.int32),
        array=lambda x: (
            torch.from_numpy(np.array(x))
            if np.asarray(x).dtype.name != "bfloat16"
            else torch.tensor(np.asarray(x, np.float32)).to(torch.bfloat16)
        ),
        numpy=lambda x: x.detach().to(torch.float32).numpy() if x.dtype == torch.bfloat16 else x.detach().numpy(),
    )


def _jax():
    import jax
    import jax.numpy as jnp

    return SimpleNamespace(
        name="jax",
        sin=jnp.sin,
        exp=jnp.exp,
        conj=jnp.conj,
        real=jnp.real,
        floor=lambda x: jnp.floor(jax.lax.stop_gradient(x)).astype(jnp.int32),
        array=jnp.asarray,
        numpy=np.asarray,
    )


def _tensorflow():
    tf = importlib.import_module("tensorflow")

    return SimpleNamespace(
        name="tensorflow",
        sin=tf.sin,
        exp=tf.exp,
        conj=tf.math.conj,
        real=tf.math.real,
        floor=lambda x: tf.cast(tf.floor(x), tf.int32),
        array=tf.constant,
        numpy=lambda x: x.numpy(),
    )


def _numpy():
    return SimpleNamespace(
        name="numpy",
        sin=np.sin,
        exp=np.exp,
        conj=np.conj,
        real=np.real,
        floor=lambda x: np.floor(x).astype(np.int32),
        array=np.asarray,
        numpy=np.asarray,
    )


MAKE = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "numpy": _numpy}


def of(name):
    """A framework's own names for what the formulas are written in."""
    return MAKE[name]()
