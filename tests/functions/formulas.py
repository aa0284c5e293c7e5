"""The same formulas for each framework, each framework's own derivatives, and what is made of them."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np

import tensorferry as ferry

REAL = ("float32", "float64", "bfloat16")
COMPLEX = ("complex64", "complex128")
CLOSE = {"float32": 1e-4, "complex64": 1e-4, "bfloat16": 0.1, "float64": 1e-10, "complex128": 1e-10}


def plain(own, x, w):
    return own.sin(x) * w


def several(own, x, w):
    return own.sin(x) * w, x * w * w


def integer_output(own, x, w):
    return x * w, own.whole(x)


def unused_input(own, x, w):
    return own.sin(x) * x


def of_tree(own, tree):
    return {"y": own.sin(tree["x"]) * tree["rest"][0], "kept": ["text", None, tree["x"] * 2]}


def integer_input(own, x, w, k):
    return own.sin(x) * w * own.like(k, x)


def tree_of(formula):
    """The same of two tensors, in a tree on the way in."""
    return lambda own, x, w: formula(own, {"x": x, "rest": (w,)})


@cache
def torch_():
    import torch

    def whole(x):
        return torch.floor(torch.real(x.detach()) if x.is_complex() else x.detach()).to(torch.int32)

    def real(x):
        return torch.real(x) if x.is_complex() else x

    def nth(loss, order):
        """The derivative of an order of a loss of one tensor."""
        if order == 1:
            return torch.func.grad(loss)
        return torch.func.grad(lambda x: real(nth(loss, order - 1)(x)).sum())

    def compiled(function):
        return torch.compile(function, backend="aot_eager")

    def backward(loss):
        def gradient(x):
            leaf = x.detach().requires_grad_()
            loss(leaf).backward()
            return leaf.grad

        return gradient

    return SimpleNamespace(
        sin=torch.sin,
        sum=lambda x: real(x).sum(),
        real=real,
        whole=whole,
        like=lambda k, x: k.to(x.dtype),
        wave=lambda x: torch.sin(real(x) * 7),
        array=lambda x: ferry.to_torch(x, copy=True),
        jvp=lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
        nth=nth,
        modes={
            "eager": lambda f: f,
            "vmap": lambda f: lambda x: torch.vmap(f)(torch.stack([x, 2 * x])),
            "compile": compiled,
            "vmap of grad": lambda f: lambda x: torch.vmap(nth(f, 1))(torch.stack([x, 2 * x])),
            "backward": backward,
        },
    )


@cache
def jax_():
    import jax
    import jax.numpy as jnp

    def nth(loss, order):
        if order == 1:
            return jax.grad(loss)
        return jax.grad(lambda x: nth(loss, order - 1)(x).real.sum())

    return SimpleNamespace(
        sin=jnp.sin,
        sum=lambda x: jnp.real(x).sum(),
        real=jnp.real,
        whole=lambda x: jnp.floor(jnp.real(jax.lax.stop_gradient(x))).astype(jnp.int32),
        like=lambda k, x: k.astype(x.dtype),
        wave=lambda x: jnp.sin(jnp.real(x) * 7),
        array=ferry.to_jax,
        jvp=lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1],
        nth=nth,
        modes={
            "eager": lambda f: f,
            "jit": jax.jit,
            "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])),
            "vmap of grad": lambda f: jax.jit(
                lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x]))
            ),
            "jit of grad": lambda f: jax.jit(jax.grad(f)),
        },
    )


@cache
def tensorflow_():
    import tensorflow as tf

    def real(x):
        return tf.math.real(x) if x.dtype.is_complex else x

    def nth(loss, order):
        def derivative(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = loss(x) if order == 1 else tf.reduce_sum(real(nth(loss, order - 1)(x)))
            return tape.gradient(y, x)

        return derivative

    return SimpleNamespace(
        sin=tf.sin,
        sum=lambda x: tf.reduce_sum(real(x)),
        real=real,
        whole=lambda x: tf.cast(tf.floor(real(x)), tf.int32),
        like=lambda k, x: tf.cast(k, x.dtype),
        wave=lambda x: tf.sin(real(x) * 7),
        array=ferry.to_tensorflow,
        nth=nth,
        modes={
            "eager": lambda f: f,
            "tf.function": lambda f: tf.function(f, autograph=False),
            "tf.function of grad": lambda f: tf.function(nth(f, 1), autograph=False),
        },
    )


def numpy_():
    return SimpleNamespace(
        sin=np.sin,
        real=np.real,
        whole=lambda x: np.floor(np.real(x)).astype(np.int32),
        like=lambda k, x: k.astype(x.dtype),
    )


OWN = {"torch": torch_, "jax": jax_, "tensorflow": tensorflow_, "numpy": numpy_}


def numpys_derivatives(formula):
    """What a person would write beside a function of NumPy's, taken from PyTorch here."""
    import torch

    def tensors(arrays):
        return tuple(ferry.to_torch(x, copy=True) for x in arrays)

    def inexact(outputs):
        return tuple(y for y in outputs if y.dtype != torch.int32)

    def of_torch(fixed):
        def call(*some):
            found = formula(torch_(), *some, *fixed)
            return inexact(found) if isinstance(found, tuple) else (found,)

        return call

    def parted(primals):
        whole = tensors(primals)
        return [x for x in whole if x.dtype != torch.int32], [
            x for x in whole if x.dtype == torch.int32
        ]

    def vjp(primals, outputs, cotangents):
        some, fixed = parted(primals)
        _, pull = torch.func.vjp(of_torch(fixed), *some)
        found = pull(tensors(ct for ct in cotangents if ct is not None))
        return (*(ferry.to_numpy(x) for x in found), *(None for _ in fixed))

    def jvp(primals, tangents):
        some, fixed = parted(primals)
        given = tensors(t for t in tangents if t is not None)
        found = torch.func.jvp(of_torch(fixed), tuple(some), given)[1]
        outputs = formula(torch_(), *some, *fixed)
        count = len(outputs) if isinstance(outputs, tuple) else 1
        return (*(ferry.to_numpy(x) for x in found), *(None for _ in range(count - len(found))))

    return {"vjp": vjp, "jvp": jvp}
