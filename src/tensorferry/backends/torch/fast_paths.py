"""Straight to PyTorch's own call for the ordinary cases; the rest is left to the plan.

Each looks before it calls: to read an attribute takes 0.05 us, an exception that `numpy()` raises in vain 7 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import memory, subnormals

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from .tensors import TorchBackend

    Array = np.ndarray[Any, Any]

__all__ = ["fast_paths"]


def fast_paths(backend: TorchBackend) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
    """See `Backend.lanes`."""
    tensor, parameter = backend.torch.Tensor, backend.torch.nn.Parameter
    plain = frozenset(dtype for dtype in backend.names if dtype not in backend.exported)
    to_numpy = _to_numpy(backend, plain)
    to_python = _to_python(to_numpy, plain)
    identity = _identity(backend)
    return {
        (tensor, "numpy"): to_numpy,
        (parameter, "numpy"): to_numpy,
        (tensor, "python"): to_python,
        (parameter, "python"): to_python,
        (tensor, backend.name): identity,
        (parameter, backend.name): identity,
        (np.ndarray, backend.name): _from_numpy(backend),
    }


def _to_numpy(backend: TorchBackend, plain: Container[Any]) -> Callable[[Any], Array | None]:
    """An array over the tensor's memory, read-only where the tensor is in a graph.

    PyTorch refuses what is on a device and what has a lazy bit. It gives an array that owns its memory, whose values
    were never set, for a tensor whose storage was freed, a functional one, and under a mode that fakes tensors
    (measured on 2.13).
    """
    exported, tracing = backend.exported, backend.tracing
    to_numpy, detach, set_flags = backend.tensor.numpy, backend.tensor.detach, np.ndarray.setflags
    as_dtype, over_memory = backend.tensor.view, memory.IN_ONE_RUN

    def narrow(x: Any) -> Array | None:
        carried = exported.get(x.dtype)
        if carried is None or tracing() is not None:
            return None
        recorded, x = x.requires_grad, detach(x)
        array: Array = to_numpy(as_dtype(x, carried[0]))
        if array.flags.num not in over_memory:
            return None
        array = array.view(carried[1])
        if recorded:
            set_flags(array, False)  # type: ignore[call-arg]  # by its name it takes as long again
        return array

    def path(x: Any) -> Array | None:
        if x.dtype not in plain:
            return narrow(x)
        if x.requires_grad:
            array: Array = to_numpy(detach(x))
            if array.flags.num in over_memory or memory.is_spread(array):
                set_flags(array, False)  # type: ignore[call-arg]
                return array
            return None
        array = to_numpy(x)
        return array if array.flags.num in over_memory or memory.is_spread(array) else None

    return path


def _to_python(to_numpy: Callable[[Any], Array | None], plain: Container[Any]) -> Callable[[Any], Any]:
    def path(x: Any) -> Any:
        if x.dtype not in plain or subnormals.are_flushed():
            return None
        array = to_numpy(x)
        return array.tolist() if array is not None and memory.is_there(array) else None

    return path


def _identity(backend: TorchBackend) -> Callable[[Any], Any]:
    strided, names, compiling = backend.strided, backend.names, backend.compiling

    def path(x: Any) -> Any:
        if compiling():
            # The compiler looks into this function, and knows no storage.
            return x
        known = x.layout is strided and x.dtype in names and not x.is_nested
        # Asked of the storage: to ask for the address would copy what is to be copied when it is written.
        return x if known and x.untyped_storage().nbytes() else None

    return path


def _from_numpy(backend: TorchBackend) -> Callable[[Any], Any]:
    from_numpy = backend.torch.from_numpy

    def path(x: Any) -> Any:
        # carray: C-contiguous, aligned to the element and writable; the rest is for the planner.
        return from_numpy(x) if x.flags.carray else None

    return path
