"""Functions of other frameworks among JAX's: under jit, vmap, grad, jvp and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedTypeError
from ...host.numpy_dtypes import by_numpy
from . import primitives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.derivations import Spec
    from ..functions import Function

__all__ = ["OUTER"]

_NAMES = by_numpy()


class JaxOuter:
    """Puts functions among JAX's."""

    name = "jax"
    differentiates = True
    modes = ("jit", "vmap", "grad", "jvp", "linearize", "scan", "cond", "checkpoint")

    def spec(self, tensor: Any) -> Spec:
        name = _NAMES.get(np.dtype(tensor.dtype) if not hasattr(tensor.dtype, "_impl") else None)
        if name is None:
            raise UnsupportedTypeError(f"JAX's {tensor.dtype} cannot cross: no other framework has it.", None)
        return tuple(tensor.shape), name

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        return primitives.binding()(function, tensors)  # type: ignore[no-any-return]

    def entrance(self, wrapped: Any) -> Any:
        return wrapped

    def remarks(self) -> Sequence[str]:
        return primitives.binding().remarks  # type: ignore[no-any-return]


OUTER = JaxOuter()
