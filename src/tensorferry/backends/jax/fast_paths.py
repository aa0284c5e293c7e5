"""Fast paths for JAX: its own calls, for ordinary arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.devices import HOST
from ...host.numpy_dtypes import numpy_dtype
from .declared import PACKED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .tensors import JaxBackend

__all__ = ["fast_paths", "for_many"]


def fast_paths(backend: JaxBackend) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
    """See `Backend.fast_paths`."""
    kind = backend.array
    return (
        {}
        if kind is None
        else {(kind, "numpy"): _to_numpy(backend), (kind, backend.name): _identity}
    )


def for_many(
    backend: JaxBackend,
) -> Mapping[tuple[type, str], Callable[[list[Any]], list[Any] | None]]:
    """See `Backend.fast_paths_for_many`."""
    asarray, shares = np.asarray, _shares(backend)
    if backend.array is None or not _all_on_host(backend):
        return {}

    def path(tensors: list[Any]) -> list[Any] | None:
        if shares is not None and not all(map(shares, tensors)):
            return None
        arrays = list(map(asarray, tensors))
        return None if any(array.flags.owndata for array in arrays) else arrays

    return {(backend.array, "numpy"): path}


def _to_numpy(backend: JaxBackend) -> Callable[[Any], Any]:
    asarray, all_host, shares = np.asarray, _all_on_host(backend), _shares(backend)

    def path(x: Any) -> Any:
        if not (all_host or x.platform() == HOST) or not (shares is None or shares(x)):
            return None
        array = asarray(x)
        # An array that owns its memory is JAX's cached copy, which it made from shards or packed
        # values.
        return None if array.flags.owndata else array

    return path


def _shares(backend: JaxBackend) -> Callable[[Any], bool] | None:
    """Whether `np.asarray` gives an array's own memory; ``None`` if the array that it gives says so.

    After JAX 0.11.0, JAX's cached copy of shards or packed values may not own its memory.
    """
    if not backend.caches_views:
        return None
    alone = backend.jax.sharding.SingleDeviceSharding
    packed = frozenset(map(numpy_dtype, PACKED))
    return lambda x: type(x.sharding) is alone and x.dtype not in packed


def _all_on_host(backend: JaxBackend) -> bool:
    return all(device.platform == HOST for device in backend.jax.local_devices())


def _identity(x: Any) -> Any:
    return None if x.is_deleted() else x
