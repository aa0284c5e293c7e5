"""Make functions of other frameworks part of JAX: under jit, vmap, grad, jvp and combinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..functions import Outer
from . import primitives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.derivations import Spec
    from ..functions import Function

__all__ = ["OUTER"]


class JaxOuter(Outer):
    """Makes functions part of JAX."""

    name = "jax"
    modes = ("jit", "vmap", "grad", "jvp", "linearize", "scan", "cond", "checkpoint")

    def spec(self, tensor: Any) -> Spec:
        return primitives.spec_of(tensor)

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        return primitives.binding()(function, tensors)  # type: ignore[no-any-return]

    def remarks(self) -> Sequence[str]:
        return primitives.binding().remarks  # type: ignore[no-any-return]


OUTER = JaxOuter()
