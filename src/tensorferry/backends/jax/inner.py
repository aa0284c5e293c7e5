"""Call functions of JAX from other frameworks."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.derivations import Jvp, Vjp, Vmap, chosen, derived
from ...host.numpy_dtypes import by_numpy, numpy_dtype
from .. import registry
from ..functions import Inner
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from contextlib import AbstractContextManager

    from ...core.derivations import Rule, Spec
    from ..functions import Flat

__all__ = ["INNER"]

jax: Any = registry.load(BACKEND).jax  # type: ignore[attr-defined]
jnp: Any = jax.numpy
_NAMES = by_numpy()
_WORTH_A_CHECK = 1 << 14
"""From this size in bytes on, a copy takes longer than a check whether it is needed."""
_ONLY_IN_TUPLE = 2
"""The reference count of an object that only a tuple refers to, including the reference of the call."""


class JaxInner(Inner):
    """Calls functions of JAX."""

    name = "jax"

    def environment(self) -> Hashable:
        """Whether 64-bit dtypes are on (which may differ between threads), and whether jit is off."""
        return bool(jax.config.jax_enable_x64), bool(jax.config.jax_disable_jit)

    def under(self, environment: Any) -> AbstractContextManager[Any]:
        enable = (
            jax.enable_x64
            if hasattr(jax, "enable_x64")
            else import_module("jax.experimental").enable_x64
        )
        return enable(environment[0])  # type: ignore[no-any-return]

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        return jnp.asarray(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else None

    def native(self, flat: Flat, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        """Functions that are derived from a jitted function are jitted too."""
        if not rules:
            return flat.plain
        found = derived(flat, rules, {Vjp: _vjp, Jvp: _jvp, Vmap: _vmap})
        return jax.jit(found) if _is_jitted(flat) else found  # type: ignore[no-any-return]

    def shapes(self, flat: Flat, specs: Sequence[Spec]) -> Sequence[Spec]:
        inputs = [jax.ShapeDtypeStruct(shape, numpy_dtype(name)) for shape, name in specs]
        # A new function each time. JAX would cache the result, and not call it again.
        found = jax.eval_shape(lambda *tensors: flat(*tensors), *inputs)  # noqa: PLW0108
        return [(tuple(each.shape), _NAMES[np.dtype(each.dtype)]) for each in found]

    def borrows(self, flat: Any) -> bool:
        return _is_jitted(flat) and not flat.environment[1]

    def unshared(self, results: Sequence[Any], inputs: Sequence[Any]) -> Sequence[bool]:
        # Other code also has the object if a jitted function returns an argument or a constant.
        alone = [
            sys.getrefcount(results[i]) <= _ONLY_IN_TUPLE and _bytes(results[i]) >= _WORTH_A_CHECK
            for i in range(len(results))
        ]
        if not any(alone) or any(x.is_deleted() for x in inputs):
            return [False] * len(results)
        known = [x.unsafe_buffer_pointer() for x in (*results, *inputs)]
        return [one and known.count(known[index]) == 1 for index, one in enumerate(alone)]

    def remarks(self, flat: Flat) -> Sequence[str]:
        if _is_jitted(flat):
            return ()
        return [
            "the function is not jitted, so it and its gradients run one operation at a time: jax.jit(function)"
        ]


def _bytes(x: Any) -> int:
    return x.size * x.dtype.itemsize  # type: ignore[no-any-return]  # `nbytes` takes three times as long


def _is_jitted(flat: Flat) -> bool:
    return hasattr(flat.source.function, "lower") and hasattr(flat.source.function, "eval_shape")


def _vjp(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    """JAX transposes without conjugating; the others conjugate.

    See https://github.com/jax-ml/jax/issues/9110.
    """

    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = tensors[: rule.kept], tensors[rule.kept :]
        _, pull = jax.vjp(chosen(function, inputs, rule), *(inputs[index] for index in rule.wrt))
        return tuple(jnp.conj(x) for x in pull(tuple(jnp.conj(x) for x in cotangents)))

    return gradients


def _jvp(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def tangents(*tensors: Any) -> Sequence[Any]:
        inputs, input_tangents = tensors[: rule.kept], tensors[rule.kept :]
        primals = tuple(inputs[index] for index in rule.wrt)
        found: Sequence[Any] = jax.jvp(
            chosen(function, inputs, rule), primals, tuple(input_tangents)
        )[1]
        return found

    return tangents


def _vmap(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    return jax.vmap(function, in_axes=tuple(rule.dims), axis_size=rule.size)  # type: ignore[no-any-return]


INNER = JaxInner()
