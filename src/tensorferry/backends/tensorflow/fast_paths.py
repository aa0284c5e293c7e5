"""Straight to TensorFlow's own call for the ordinary cases; the rest is left to the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...host import memory, subnormals
from ...sequences import reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .tensors import TensorflowBackend

    Array = np.ndarray[Any, Any]

__all__ = ["fast_paths"]


def fast_paths(backend: TensorflowBackend) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
    """See `Backend.fast_paths`."""
    return {
        (backend.eager, "numpy"): _to_numpy_path(backend),
        (backend.eager, backend.name): _identity_path(backend),
        (list, backend.name): _numbers_path(backend),
    }


def _to_numpy_path(backend: TensorflowBackend) -> Callable[[Any], Any]:
    array_type, enums = np.ndarray, backend.enums
    all_host, host, over_memory = backend.all_host, backend.host, memory.IN_ONE_RUN
    # Looked up once: through the instance each takes twice its own time.
    internal, set_flags = backend.eager._numpy_internal, array_type.setflags

    def path(x: Any) -> Any:
        if not (all_host or x.backing_device == host):
            return None
        # What numpy() copies from: the tensor's own memory, or a scalar for shape ().
        try:
            array = internal(x)
        except Exception:  # noqa: BLE001 - resources and variants raise what is no public class
            return None
        # The tensor's own dtype: the array of a quantized one is of plain integers.
        if type(array) is array_type and x._datatype_enum() in enums and array.flags.num in over_memory:
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
    """TensorFlow reads a list of Python numbers faster than NumPy; the planned path has the last word.

    Over a `np.timedelta64` among integers it ends the process, and it drops masks (measured on 2.21), so
    each type is looked at before. Many floats leave no time for that: among them nothing harms it, and a
    masked element becomes 0.0, so there it is enough to look where there is a zero.
    """
    constant, host, reduce_max, reduce_min = backend.tf.constant, backend.host, np.max, np.min
    eagerly, eager = backend.tf.executing_eagerly, backend.eager

    def few(x: list[Any]) -> Any:
        """A list of few floats, all within float32: NumPy reads those sooner still."""
        if set(map(type, x)) != _FLOATS or not reader.fit_float32(x) or not eagerly() or subnormals.are_flushed():
            return None
        # Which copies once more where the memory is not aligned, as operations need it.
        return eager(np.array(x, np.float32), host, None)

    def path(x: Any) -> Any:
        if x and type(x[0]) is float and len(x) < reader.FEW:
            return few(x)
        first, size = reader.first(x)
        kind = type(first)
        if kind not in (float, int) or not backend.tf.executing_eagerly() or subnormals.are_flushed():
            return None
        if size > _MANY and kind is int:
            return None
        if size <= _MANY and reader.element_types(x) != {kind}:
            return None
        try:
            result = constant(x)
        except (ValueError, TypeError, SystemError):
            return None
        if result.device != host:
            return None
        seen = np.asarray(result)
        if kind is int:
            return result if seen.dtype.kind == "i" else None
        # Beyond 2**24 an integer among the floats may have been rounded: let the plan look.
        if seen.dtype != np.float32 or (size > _MANY and _has_zero(seen) and not reader.add_up_to_float(x)):
            return None
        if seen.size > _MANY and _are_small(seen):
            return result
        return result if reduce_min(seen) > -16777216 and reduce_max(seen) < 16777216 else None

    return path


_FLOATS = {float}
_MANY = 4096
"""Elements from which one pass over them is worth a call more."""


def _has_zero(numbers: Array) -> bool:
    """Whether 0.0 is among 32-bit floats: as an integer it is the least, and so one pass without a mask finds it."""
    return bool(np.minimum.reduce(numbers.reshape(-1).view(np.uint32)) == 0)


def _are_small(numbers: Array) -> bool:
    """Whether one pass says that all lie within 2**24: none is larger than the root of the sum of the squares.

    That sum is rounded, so half of 2**48 is asked for; a sum that is larger, or no number, says nothing.
    """
    flat = numbers.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.dot(flat, flat) < 2.0**47)
