"""Fast paths for TensorFlow: its own calls, for ordinary tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...host import memory
from ...sequences import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .tensors import TensorflowBackend

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
    """The fast path from a list of floats: read into memory that TensorFlow adopts without a copy."""
    host, eagerly, eager = backend.host, backend.tf.executing_eagerly, backend.eager
    read = numbers.list_reader(
        {float: "float32"}, lambda length, dtype: memory.compact((length,), dtype)
    )

    def path(x: Any) -> Any:
        array = read(x) if eagerly() else None
        return None if array is None else eager(array, host, None)

    return path
