"""Fast paths for PyTorch: its own calls, for ordinary tensors.

Each checks attributes before the call: an attribute takes 0.05 us, an exception from `numpy()`
takes 7 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...host import memory, subnormals
from ...host.numpy_dtypes import numpy_dtype
from .bound import LISTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...typing import Array
    from .tensors import TorchBackend

__all__ = ["array_path", "fast_paths"]


def fast_paths(backend: TorchBackend) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
    """See `Backend.fast_paths`."""
    tensor, parameter = backend.torch.Tensor, backend.torch.nn.Parameter
    to_list, identity = _to_list(backend), _identity(backend)
    return {
        (tensor, "numpy"): backend.to_array,
        (parameter, "numpy"): backend.to_array,
        (tensor, "python"): to_list,
        (parameter, "python"): to_list,
        (tensor, backend.name): identity,
        (parameter, backend.name): identity,
        (np.ndarray, backend.name): _from_numpy(backend),
    }


def array_path(backend: TorchBackend) -> Callable[[Any], Array | None]:
    """The fast path to NumPy: an array over the tensor's memory, which is read-only if the tensor requires grad.

    PyTorch refuses tensors with lazy bits, and tensors on devices, which are left out before that,
    because an exception takes longer than their transfer. For a tensor whose storage was freed, for
    a functional tensor, and under a fake tensor mode, it gives an array that owns its memory, with
    values that were never set (measured on 2.13). It is for tensors that the reader in C leaves to
    Python, or for all if there is none.
    """
    makers, over_memory, is_spread = _array_makers(backend), memory.IN_ONE_RUN, memory.is_spread
    set_flags = np.ndarray.setflags

    def path(x: Any) -> Array | None:
        if not x.is_cpu:
            return None
        make, recorded = makers[x.dtype], x.requires_grad
        # Like `detach`, but without the version counter, which an array does not need, in half the
        # time.
        array: Array | None = make(x.data if recorded else x)
        if array is None or not (array.flags.num in over_memory or is_spread(array)):
            return None
        if recorded:
            set_flags(array, False)  # type: ignore[call-arg]  # by its name it takes as long again
        return array

    return path


def _array_makers(backend: TorchBackend) -> dict[Any, Callable[[Any], Any]]:
    """For each dtype, a function that gives an array over the memory of a tensor that does not require grad.

    It gives ``None`` if the tensor must be converted in another way.
    """
    return {dtype: _array_maker(backend, dtype) for dtype in backend.names}


def _array_maker(backend: TorchBackend, dtype: Any) -> Callable[[Any], Any]:
    to_numpy, as_dtype, tracing = backend.tensor.numpy, backend.tensor.view, backend.tracing
    if dtype not in backend.exported:
        return to_numpy
    (as_integer, name), view_as = backend.exported[dtype], np.ndarray.getfield

    def through_integers(x: Any) -> Any:
        # A tracer would record a view of another dtype. `getfield` gives what `view` does, in two
        # thirds of the time.
        return (
            view_as(to_numpy(as_dtype(x, as_integer)), numpy_dtype(name))
            if tracing() is None
            else None
        )

    return through_integers


def _to_list(backend: TorchBackend) -> Callable[[Any], Any]:
    """The fast path to lists: PyTorch's `tolist`.

    It would also read freed storage, so the address is checked.
    """
    listed = frozenset(dtype for dtype, name in backend.names.items() if name in LISTED)
    to_list, modes, lowest, are_flushed = (
        backend.tensor.tolist,
        backend.modes,
        memory.LOWEST,
        subnormals.are_flushed,
    )

    def path(x: Any) -> Any:
        if x.dtype not in listed or not x.is_cpu or x.is_nested or modes() or are_flushed():
            return None
        # A tensor with another layout has no address, and raises.
        return to_list(x) if x.data_ptr() >= lowest else None

    return path


def _identity(backend: TorchBackend) -> Callable[[Any], Any]:
    strided, names, compiling = backend.strided, backend.names, backend.compiling

    def path(x: Any) -> Any:
        if compiling():
            # The compiler traces this function, and does not support storages.
            return x
        known = x.layout is strided and x.dtype in names and not x.is_nested
        # By the size of the storage, because to read the address would copy a copy-on-write tensor.
        return x if known and x.untyped_storage().nbytes() else None

    return path


def _from_numpy(backend: TorchBackend) -> Callable[[Any], Any]:
    from_numpy, adopted = backend.from_numpy, backend.adopted

    def path(x: Any) -> Any:
        flags = x.flags
        # Without gaps, by rows or by columns, aligned to the element and writable. All others are
        # for the planner. (NumPy's `farray` is also true of arrays that are none of it.)
        if not (flags.carray or (flags.behaved and flags.f_contiguous)):
            return None
        pair = adopted[x.dtype]
        return from_numpy(x) if pair is None else from_numpy(x.view(pair[0])).view(pair[1])

    return path
