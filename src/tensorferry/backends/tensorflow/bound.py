"""TensorFlow's verbs without the checks whose results the plan knows: almost TensorFlow's own functions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.devices import HOST
from ...core.dtypes import ORDINARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from .tensors import TensorflowBackend

__all__ = ["bound"]


def bound(backend: TensorflowBackend, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """See `Backend.bound`."""
    before, after = plan.source, plan.result
    if before.abstract is not None or before.device != HOST or after.device != HOST:
        return None
    own = before.framework == backend.name and not before.kind
    if step.verb == "export" and own and before.shape:
        return _export(backend)
    if (
        step.verb == "adopt"
        and before.size
        and after.dtype in ORDINARY
        and (before.writable or not plan.shares_memory)
    ):
        return _adopt(backend)
    if step.verb == "write" and plan.written == after.dtype and not before.swapped:
        return _assign(backend)
    return None


def _export(backend: TensorflowBackend) -> Callable[[Any], Array]:
    internal, set_flags = backend.eager._numpy_internal, np.ndarray.setflags

    def export(x: Any) -> Array:
        array: Array = internal(x)
        set_flags(array, False)  # type: ignore[call-arg]  # by its name it takes as long again
        return array

    return export


def _adopt(backend: TensorflowBackend) -> Callable[[Array], Any]:
    from_dlpack, adopt = backend.from_dlpack, backend.adopt

    def bound(array: Array) -> Any:
        try:
            return from_dlpack(array.__dlpack__())
        except BufferError:  # the array is read-only
            return adopt(array)

    return bound


_SMALL = 1 << 15
"""Up to this many bytes, two copies are faster than one aligned copy."""


def _assign(backend: TensorflowBackend) -> Callable[[Array, Any], None] | None:
    """The operation below `Variable.assign`, which takes half the time.

    (https://www.tensorflow.org/api_docs/python/tf/raw_ops/AssignVariableOp)
    """
    plain = _plain_variable()
    if plain is None:
        return None
    operation, write = backend.tf.raw_ops.AssignVariableOp, backend.write
    eager, host = backend.eager, backend.host

    def assign(value: Array, out: Any) -> None:
        if type(out) is plain and value.ndim and value.nbytes < _SMALL:
            # The variable keeps the copy as its memory. TensorFlow copies it again if it is not
            # aligned.
            operation(
                resource=out.handle, value=eager(value.copy(), host, None), validate_shape=True
            )
        else:
            write(value, out)

    return assign


def _plain_variable() -> Any:
    """The class of a variable that is not distributed, which is private; ``None`` if it is not found."""
    try:
        return importlib.import_module(
            "tensorflow.python.ops.resource_variable_ops"
        ).ResourceVariable
    except (ImportError, AttributeError):
        return None
