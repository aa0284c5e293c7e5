"""TensorFlow's tensors, quickly: signatures, short ways for the verbs, fast paths."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.devices import HOST
from ...core.dtypes import ORDINARY
from ...core.layout import AXES
from ...host import memory
from .. import together
from ..fast_paths import made_when_called
from ..quick import Quick
from .tensors import TensorflowBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.request import Request
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from ..quick import Described

__all__ = ["QUICK", "TensorflowQuick"]


class TensorflowQuick(Quick[TensorflowBackend]):
    """What makes conversions of ordinary tensors fast."""

    def __init__(self, backend: TensorflowBackend) -> None:
        super().__init__(backend)
        # Read at every call, and a lookup through the backend takes twice as long.
        self._eager, self._enums, self._host = backend.eager, backend.enums, backend.host
        self._to_array = _to_numpy_path(backend)

    def signature(self, x: Any) -> Hashable | None:
        if not isinstance(x, self._eager):
            if isinstance(x, self.backend.tf.Variable):
                return self._signature_of_variable(x)
            return None
        dtype = x._datatype_enum()
        if dtype not in self._enums or x.backing_device != self._host or x._rank() > AXES:
            return None
        array = self.backend.memory_of(x)
        if array.size:
            return self.backend.name, dtype, array.ndim, memory.address(array) & 63
        return None

    def signature_reader(
        self, kind: type, target: Described, request: Request
    ) -> Callable[[Any], Hashable | None]:
        # Elements are always aligned to their size, which is enough for most targets.
        asks = target.capabilities.memory.alignment > 1 or not issubclass(kind, self._eager)
        return self.signature if asks else self._read_unaligned

    def _read_unaligned(self, x: Any) -> Hashable | None:
        """A signature without the address, which would take as long as everything else."""
        dtype, rank = x._datatype_enum(), x._rank()
        ordinary = (
            dtype in self._enums
            and x.backing_device == self._host
            and rank <= AXES
            and x._num_elements()
        )
        if ordinary:
            return self.backend.name, dtype, rank
        return None

    def lengths(self, x: Any) -> tuple[int, ...]:
        return x._shape_tuple() if isinstance(x, self._eager) else tuple(x.shape)

    def _signature_of_variable(self, x: Any) -> Hashable | None:
        if not self.backend.tf.executing_eagerly() or x.device != self._host:
            return None
        try:
            dtype, shape = x.dtype.base_dtype, tuple(x.shape)
        except ValueError:  # the number of axes is unknown
            return None
        ordinary = (
            dtype in self.backend.names and not {0, None}.intersection(shape) and len(shape) <= AXES
        )
        if ordinary:
            return self.backend.name, "Variable", dtype, len(shape)
        return None

    def extents(
        self, tensors: Sequence[Any], *, compact: bool
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        if not all(isinstance(x, self._eager) for x in tensors):
            return None  # a variable's memory may be another one at each look
        arrays = list(map(self.backend.memory_of, tensors))
        starts = memory.first_addresses(arrays)
        return starts, [at + x.nbytes for x, at in zip(arrays, starts, strict=True)]

    def join(self, tensors: Sequence[Any]) -> Array | None:
        if type(tensors[0]) is not self._eager:
            return None
        return together.join_as_arrays(tensors, self._to_array)

    def likeness(self, x: Any) -> Hashable | None:
        if not isinstance(x, self._eager) or x.backing_device != self._host:
            return None
        dtype = x._datatype_enum()
        return dtype if dtype in self._enums else None

    def specialised(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        before, after = plan.source, plan.result
        if before.abstract is not None or before.device != HOST or after.device != HOST:
            return None
        own = before.framework == self.backend.name and not before.kind
        if step.verb == "export" and own and before.shape:
            return _export(self.backend)
        if (
            step.verb == "adopt"
            and before.size
            and after.dtype in ORDINARY
            and (before.writable or not plan.shares_memory)
        ):
            return _adopt(self.backend)
        if step.verb == "write" and plan.written == after.dtype and not before.swapped:
            return _assign(self.backend)
        return None

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        eager, name = self._eager, self.backend.name
        return {
            (eager, "numpy"): self._to_array,
            (eager, name): _identity_path(self.backend),
            (list, name): made_when_called(list, name, partial(_numbers_path, self.backend)),
        }


# -- verbs without the checks whose results the plan knows -----------------------------------------


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
    """The private class of a variable that is not distributed; ``None`` if it is not found."""
    try:
        return importlib.import_module(
            "tensorflow.python.ops.resource_variable_ops"
        ).ResourceVariable
    except (ImportError, AttributeError):
        return None


# -- fast paths ------------------------------------------------------------------------------------


def _to_numpy_path(backend: TensorflowBackend) -> Callable[[Any], Any]:
    array_type, enums = np.ndarray, backend.enums
    all_host, host, over_memory = backend.all_host, backend.host, memory.IN_ONE_RUN
    # Looked up once, because a lookup through the instance takes as long as the call.
    internal, set_flags = backend.eager._numpy_internal, array_type.setflags

    def path(x: Any) -> Any:
        if not (all_host or x.backing_device == host):
            return None
        # The array from which `numpy()` copies: the tensor's own memory, or a scalar for shape ().
        try:
            array = internal(x)
        except Exception:  # noqa: BLE001 - resources and variants raise what is no public class
            return None
        # By the tensor's dtype, because the array of a quantized tensor has plain integers.
        if (
            type(array) is array_type
            and x._datatype_enum() in enums
            and array.flags.num in over_memory
        ):
            set_flags(array, False)  # type: ignore[call-arg]  # by its name it takes as long again
            return array
        return None

    return path


def _identity_path(backend: TensorflowBackend) -> Callable[[Any], Any]:
    enums = backend.enums

    def path(x: Any) -> Any:
        return x if x._datatype_enum() in enums else None

    return path


def _numbers_path(backend: TensorflowBackend) -> Callable[[Any], Any]:
    """Fast path from a list of floats: read into memory that TensorFlow adopts without a copy."""
    from ...sequences import numbers  # here, because only lists need it

    host, eagerly, eager = backend.host, backend.tf.executing_eagerly, backend.eager
    read = numbers.list_reader(
        {float: "float32"}, lambda length, dtype: memory.compact((length,), dtype)
    )

    def path(x: Any) -> Any:
        array = read(x) if eagerly() else None
        if array is None:
            return None
        return eager(array, host, None)

    return path


QUICK = TensorflowQuick
