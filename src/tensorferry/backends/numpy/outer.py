"""Call functions of other frameworks with NumPy arrays.

NumPy has no graph, so they are only called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...host.numpy_dtypes import of_numpy
from ..functions import Outer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.derivations import Spec
    from ..functions import Function

__all__ = ["OUTER"]


class NumpyOuter(Outer):
    """Calls functions with arrays."""

    name = "numpy"
    differentiates = False
    modes = ()

    def spec(self, tensor: Any) -> Spec:
        return tensor.shape, of_numpy(tensor.dtype) or ""

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        return function.run(tensors, self)


OUTER = NumpyOuter()
