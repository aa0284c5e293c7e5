"""JAX's arrays, quickly: signatures, a short way for a verb, fast paths."""

from __future__ import annotations

from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.devices import HOST
from ...host.numpy_dtypes import numpy_dtype
from .. import together
from ..quick import Quick
from .declared import PACKED
from .tensors import JaxBackend, export_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.request import Request
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from ..quick import Described

__all__ = ["QUICK", "JaxQuick"]


class JaxQuick(Quick[JaxBackend]):
    """What makes conversions of ordinary arrays fast."""

    lengths = staticmethod(attrgetter("shape"))  # pyright: ignore[reportAssignmentType]

    def __init__(self, backend: JaxBackend) -> None:
        super().__init__(backend)
        self._array = backend.array  # read at every call
        self._read = self._find_reader()
        self._to_array = _to_numpy(backend)

    def signature(self, x: Any) -> Hashable | None:
        if type(x) is not self._array:
            return None
        read = self._read
        facts = read(x)
        # The alignment of memory of a device is nobody's business.
        if facts is None or x.platform() != HOST:
            return facts
        return (*facts, x.unsafe_buffer_pointer() & 63)

    def signature_reader(
        self, kind: type, target: Described, request: Request
    ) -> Callable[[Any], Hashable | None]:
        # Elements are always aligned to their size, which is enough for most targets.
        if kind is self.backend.array and target.capabilities.memory.alignment <= 1:
            return self._read
        return self.signature

    def _find_reader(self) -> Callable[[Any], tuple[Any, ...] | None]:
        """A function that reads a signature without address, for the type of concrete arrays."""
        alone, host, name = self.backend.jax.sharding.SingleDeviceSharding, HOST, self.backend.name

        def read(x: Any) -> tuple[Any, ...] | None:
            if x.is_deleted():
                return None
            sharding, shape = x.sharding, x.shape
            # `num_devices` takes as long as everything else, so it is read only if needed.
            if (type(sharding) is not alone and sharding.num_devices > 1) or 0 in shape:
                return None
            if x.platform() == host:
                return name, x.dtype, len(shape)
            return name, x.dtype, len(shape), x.device, sharding.memory_kind

        return read

    def likeness(self, x: Any) -> Hashable | None:
        facts = self.signature(x)
        if facts is None or x.platform() != HOST or x.device.id:
            return None
        return facts

    def extents(
        self, tensors: Sequence[Any], *, compact: bool
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        if not _all_on_host(self.backend):
            return None
        dtypes = [x.dtype for x in tensors]
        if not _PACKED_DTYPES.isdisjoint(dtypes):
            return None
        starts = [x.unsafe_buffer_pointer() for x in tensors]
        # Not by `nbytes`, which takes five times as long.
        nbytes = [prod(x.shape) * dtype.itemsize for x, dtype in zip(tensors, dtypes, strict=True)]
        return starts, [at + length for at, length in zip(starts, nbytes, strict=True)]

    def join(self, tensors: Sequence[Any]) -> Array | None:
        if type(tensors[0]) is not self.backend.array:
            return None
        return together.join_as_arrays(tensors, self._to_array)

    def specialised(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        before = plan.source
        whole = (
            before.abstract is None
            and before.shards == 1
            and before.device == HOST
            and before.dtype not in PACKED
        )
        if step.verb == "export" and whole:
            return export_whole
        return None

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        kind, name = self.backend.array, self.backend.name
        if kind is None:
            return {}
        return {(kind, "numpy"): self._to_array, (kind, name): _identity}


_PACKED_DTYPES = frozenset(map(numpy_dtype, PACKED))


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
    """Whether `np.asarray` gives an array's own memory; ``None`` if the array it gives says so.

    After JAX 0.11.0, JAX's cached copy of shards or packed values may not own its memory.
    """
    if not backend.caches_views:
        return None
    alone = backend.jax.sharding.SingleDeviceSharding
    return lambda x: type(x.sharding) is alone and x.dtype not in _PACKED_DTYPES


def _all_on_host(backend: JaxBackend) -> bool:
    return all(device.platform == HOST for device in backend.jax.local_devices())


def _identity(x: Any) -> Any:
    return None if x.is_deleted() else x


QUICK = JaxQuick
