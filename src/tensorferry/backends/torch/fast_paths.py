"""Straight to PyTorch's own call for the ordinary cases; the rest is left to the plan.

Each looks before it calls: to read an attribute takes 0.05 us, an exception that `numpy()` raises in vain 7 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...host import memory, subnormals
from .bound import LISTED

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from .tensors import TorchBackend

    Array = np.ndarray[Any, Any]

__all__ = ["fast_paths"]


def fast_paths(backend: TorchBackend) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
    """See `Backend.fast_paths`."""
    tensor, parameter = backend.torch.Tensor, backend.torch.nn.Parameter
    plain = frozenset(dtype for dtype in backend.names if dtype not in backend.exported)
    to_numpy = _to_numpy(backend, plain)
    to_list, identity = _to_list(backend), _identity(backend)
    return {
        (tensor, "numpy"): to_numpy,
        (parameter, "numpy"): to_numpy,
        (tensor, "python"): to_list,
        (parameter, "python"): to_list,
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
    tracing, as_dtype = backend.tracing, backend.tensor.view
    to_numpy, set_flags = backend.tensor.numpy, np.ndarray.setflags
    over_memory, is_spread = memory.IN_ONE_RUN, memory.is_spread
    carriers = {dtype: None if dtype in plain else backend.exported[dtype] for dtype in backend.names}
    # The flags of most, compared whole: to read their number, and look for it, takes twice as long.
    row, rows = (np.zeros(shape, np.uint8)[:1].flags for shape in (2, (2, 2, 2)))

    def path(x: Any) -> Array | None:
        carrier = carriers[x.dtype]
        if x.requires_grad:
            # What `detach` gives but for the version counter, which nobody reads through an array, in half its time.
            x, recorded = x.data, True
        else:
            recorded = False
        if carrier is None:
            array: Array = to_numpy(x)
        elif tracing() is None:
            array = to_numpy(as_dtype(x, carrier[0]))
        else:
            return None
        flags = array.flags
        if flags == row or flags == rows or flags.num in over_memory or is_spread(array):  # noqa: PLR1714, SIM109 - sooner
            if carrier is not None:
                array = array.view(carrier[1])
            if recorded:
                set_flags(array, False)  # type: ignore[call-arg]  # by its name it takes as long again
            return array
        return None

    return path


def _to_list(backend: TorchBackend) -> Callable[[Any], Any]:
    """PyTorch's own `tolist`, which detaches and resolves; it would read storage that was freed, and from a device."""
    listed = frozenset(dtype for dtype, name in backend.names.items() if name in LISTED)
    to_list, modes, lowest, are_flushed = backend.tensor.tolist, backend.modes, memory.LOWEST, subnormals.are_flushed

    def path(x: Any) -> Any:
        if x.dtype not in listed or not x.is_cpu or x.is_nested or modes() or are_flushed():
            return None
        # What has another layout has no address, and raises.
        return to_list(x) if x.data_ptr() >= lowest else None

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
    from_numpy, adopted = backend.from_numpy, backend.adopted

    def path(x: Any) -> Any:
        # carray: C-contiguous, aligned to the element and writable; the rest is for the planner.
        if not x.flags.carray:
            return None
        carried = adopted.get(x.dtype)
        return from_numpy(x) if carried is None else from_numpy(x.view(carried[0])).view(carried[1])

    return path
