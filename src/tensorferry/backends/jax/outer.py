"""Make functions of other frameworks part of JAX: under jit, vmap, grad, jvp and combinations."""

from __future__ import annotations

import threading
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

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._call: Any = None

    @property
    def call(self) -> Any:
        """See `primitives.call_for`. It is made and tested at the first use."""
        if self._call is None:
            with self._lock:
                if self._call is None:
                    self._call = primitives.call_for(self)
        return self._call

    def spec(self, tensor: Any) -> Spec:
        return primitives.spec_of(tensor)

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        return self.call(function, tensors)  # type: ignore[no-any-return]

    def remarks(self) -> Sequence[str]:
        return self.call.remarks  # type: ignore[no-any-return]


OUTER = JaxOuter()
