"""JAX: immutable arrays, 64-bit dtypes only when they are switched on."""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from functools import cached_property, lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.declaration import Placement
from ...core.devices import HOST, device_name, kind_of
from ...core.info import TensorInfo
from ...errors import DeviceError, UnsupportedTypeError
from ...hints import Hint
from ...host import casts, dlpack, memory
from ...host.numpy_dtypes import by_numpy, numpy_dtype, of_numpy
from ...planning.rules import frameworks_agree
from .. import registry
from ..base import Backend, DeviceParts
from ..nodes import Node, entry_of
from .declared import DECLARED, NARROW, PACKED, capabilities, loses_imaginary, snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.capabilities import Capabilities
    from ...typing import Array

_WHOLE = Hint(
    hints.keyword(
        "device",
        hints.code("jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())"),
    ),
    ", which leaves it whole on each; for a last, smaller batch, drop_last=True of a DataLoader",
)

_NAMES = by_numpy()


@lru_cache(maxsize=4096)
def _described(
    shape: tuple[int, ...], name: str, device: str, misalignment: int, shards: int, pinned: bool
) -> TensorInfo:
    never: dict[str, Any] = {"writable": False, "mutable": False}
    return TensorInfo(
        "jax", shape, name, device, misalignment=misalignment, shards=shards, pinned=pinned, **never
    )


class JaxBackend(Backend):
    """`jax.Array` and tracers."""

    name = "jax"
    module = "jax"
    aliases = ("jnp", "jax.numpy")
    owns = ("jax", "jaxlib")
    is_functional = True
    keeps_devices = True
    rank = 4
    install = "pip install jax"
    imports = DECLARED.imports
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]
    quick_code = f"{__package__}.quick"

    def load(self) -> None:
        import jax

        self.jax: Any = jax
        self.config: Any = jax.config
        self.tracer = self.jax.core.Tracer
        self.array = _concrete()
        self._place: Callable[[Array], Any] | None = None
        self._end: int | None = None
        # What an array can hold is decided by XLA, which is in jaxlib.
        lib = importlib.import_module("jaxlib")
        six_bits = tuple(map(int, lib.__version__.split(".")[:2])) >= (0, 11)
        self._now = tuple(capabilities(x64=x64, six_bits=six_bits) for x64 in (False, True))
        self.caches_views = jax.__version_info__ > (0, 11, 0)

    @property
    def capabilities(self) -> Capabilities:
        if self.loaded:
            return self._now[bool(self.config.jax_enable_x64)]
        return NARROW

    def devices(self) -> tuple[str, ...]:
        own_devices = [device_name(device) for device in self.jax.devices()]
        return tuple(dict.fromkeys([HOST, *own_devices]))

    def claims(self, kind: type) -> bool:
        return issubclass(kind, (self.jax.Array, self.tracer))

    def stands_for(self, kind: type) -> bool:
        return issubclass(kind, self.jax.Array) and not issubclass(kind, self.tracer)

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if kind.__name__ in ("BCOO", "BCSR", "CSR", "COO", "CSC"):
            return (
                f"A jax {kind.__name__} is sparse: indices and values, not one memory.",
                "x.todense()",
            )
        if kind.__name__ == "ShapeDtypeStruct":
            return (
                "A jax.ShapeDtypeStruct has a shape and a dtype, but no memory.",
                "jnp.zeros(x.shape, x.dtype)",
            )
        return None

    # -- describe ----------------------------------------------------------------------------------

    def describe(self, x: Any) -> TensorInfo:
        name = _NAMES.get(x.dtype)
        if isinstance(x, self.tracer):
            shape = [length if isinstance(length, int) else 0 for length in x.shape]
            return TensorInfo(self.name, shape, name or "uint8", abstract="traced")
        if name is None:
            if self.jax.dtypes.issubdtype(x.dtype, self.jax.dtypes.prng_key):
                place = device_name(next(iter(x.sharding.device_set)))
                return TensorInfo(self.name, x.shape, "uint32", place, abstract="key")
            raise UnsupportedTypeError(
                f"JAX's {x.dtype} cannot be converted: no other framework has it.", None
            )
        if x.is_deleted():
            return TensorInfo(self.name, x.shape, name, abstract="deleted")
        shape, shards = x.shape, x.sharding.num_devices
        if shards > 1 and x.is_fully_replicated:
            x, shards = _replica(x), 1
        device, misalignment, pinned = HOST, 0, False
        if x.platform() != HOST:
            pinned = x.sharding.memory_kind == "pinned_host"
            device = device_name(next(iter(x.sharding.device_set)))
            device = device if shards == 1 else kind_of(device)
        elif shards == 1:
            misalignment = x.unsafe_buffer_pointer() & 63
        return _described(shape, name, device, misalignment, shards, pinned)

    def holds(self, owner: object) -> bool:
        """Whether it is the capsule under the result of `np.asarray` for narrow dtypes."""
        if not self.loaded:
            return False
        if self._end is None:
            try:
                with self.jax.ensure_compile_time_eval():
                    narrow = self.adopt(np.zeros(1, numpy_dtype("bfloat16")))
            except DeviceError:
                return False  # without the CPU, JAX has no such capsule
            self._end = dlpack.end_of(np.asarray(narrow).base)
        return self._end == dlpack.end_of(owner) != 0

    def pointer(self, x: Any) -> int | None:
        if of_numpy(x.dtype) in PACKED:
            return None
        if x.sharding.num_devices > 1:
            if not x.is_fully_replicated:
                return None
            x = _replica(x)
        pointer: int = x.unsafe_buffer_pointer()
        return pointer

    # -- verbs -------------------------------------------------------------------------------------

    def export(self, x: Any) -> Array:
        # A transfer guard allows explicit transfers, and counts unpacking as one. JAX caches what
        # it had to gather, and after JAX 0.11.0 that may not own its memory.
        gathered = x.sharding.num_devices > 1 and not x.is_fully_replicated
        if gathered or of_numpy(x.dtype) in PACKED:
            return self.fetch(x)
        return export_whole(x)

    def fetch(self, x: Any) -> Array:
        """A copy of a whole array in host memory."""
        return np.array(self.jax.device_get(x))

    def start_fetch(self, x: Any) -> None:
        """See https://docs.jax.dev/en/latest/_autosummary/jax.Array.copy_to_host_async.html."""
        x.copy_to_host_async()

    def adopt(self, array: Array) -> Any:
        if self._place is None:
            self._place = self._find_place()
        return self._place(array)

    def _find_place(self) -> Callable[[Array], Any]:
        """A private function below `jax.device_put`, nine times as fast; or `jax.device_put`.

        It is tested first: it must give an array over the same memory.

        Raises:
            DeviceError: JAX was configured without the CPU.
        """
        jax = self.jax
        try:
            host = jax.local_devices(backend="cpu")[0]
        except RuntimeError as error:
            raise DeviceError(
                f"JAX has no host memory here, where arrays begin: {error}",
                'os.environ["JAX_PLATFORMS"] = "cuda,cpu", before JAX is imported',
            ) from error

        def public(array: Array) -> Any:
            return jax.device_put(array, host)

        try:
            private = importlib.import_module("jax._src.lib")
            put, guard = private.xla_client.batched_device_put, private.guard_lib.thread_local_state
            sharding = jax.sharding.SingleDeviceSharding(host)
            committed = jax.default_backend() != HOST

            @lru_cache(maxsize=1024)
            def shaped(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
                return jax.core.ShapedArray(shape, dtype)

            def place(array: Array) -> Any:
                # `jax.device_put` tells a transfer guard in the same way that the transfer is
                # explicit.
                here = guard()
                before, here.explicit_device_put = here.explicit_device_put, True
                try:
                    return put(
                        shaped(array.shape, array.dtype), sharding, [array], [host], committed
                    )
                finally:
                    here.explicit_device_put = before

            probe = memory.compact((16,), np.dtype(np.int8))
            probe[...] = range(16)
            placed = place(probe)
            alike = placed.unsafe_buffer_pointer() == memory.address(probe) and bool(
                (np.asarray(placed) == probe).all()
            )
        except (ImportError, AttributeError, TypeError):
            return public
        return place if alike else public

    def cast(self, x: Any, dtype: str, check: str = "") -> Any:
        """A cast with the same bits as on the host; inside a traced function, JAX's own cast."""
        before = _NAMES[x.dtype]
        here = (
            not check
            and self.capabilities.dtypes.casts_on_device(before, dtype)
            and frameworks_agree(before, dtype)
        )
        if not isinstance(x, self.tracer) and not here:
            return self.jax.device_put(
                casts.cast(self.jax.device_get(x), dtype, check, compact=True), x.sharding
            )
        return (x.real if loses_imaginary(before, dtype) else x).astype(numpy_dtype(dtype))

    def copy(self, x: Any) -> Any:
        """A copy on the same device."""
        if isinstance(x, self.tracer):
            return self.jax.numpy.array(x, copy=True)
        return self._copied(x)

    @cached_property
    def _copied(self) -> Callable[[Any], Any]:
        """`jax.numpy.copy`, compiled for each shape as usual, but called four times as fast."""
        copied: Callable[[Any], Any] = self.jax.jit(self.jax.numpy.copy)
        return copied

    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """A copy on another device."""
        return self.jax.device_put(x, self._device(device))

    def _device(self, name: str) -> Any:
        kind, _, index = name.partition(":")
        return self.jax.devices("gpu" if kind == "cuda" else kind)[int(index or 0)]

    def wait(self, x: Any) -> Any:
        """The array, after its values have been computed."""
        return x.block_until_ready()

    def placement(self, device: object) -> Placement | None:
        """The placement for a ``jax.sharding.Sharding``."""
        if not self.is_imported() or not isinstance(
            device, importlib.import_module(self.module).sharding.Sharding
        ):
            return None
        layout: Any = device
        name = device_name(next(iter(layout.device_set)))
        if layout.num_devices > 1:
            name = kind_of(name)
        return Placement(name, 1 if layout.is_fully_replicated else layout.num_devices, layout)

    def misfit(self, placement: Placement, shape: tuple[int, ...]) -> tuple[str, str | Hint] | None:
        layout: Any = placement.layout
        axes = len(getattr(layout, "spec", ()))
        if axes > len(shape):
            return f"{layout.spec} is for {axes} axes, and there are {len(shape)}", _WHOLE
        try:
            layout.shard_shape(shape)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            return f"{getattr(layout, 'spec', layout)} does not divide it evenly ({reason})", _WHOLE
        return None

    def is_laid_out(self, x: Any, placement: Placement) -> bool:
        return not isinstance(x, self.tracer) and bool(x.sharding == placement.layout)

    def place_over(self, x: Any, placement: Placement) -> Any:
        return self.jax.device_put(x, placement.layout)

    def device_parts(self, placement: Placement, shape: tuple[int, ...], dtype: str) -> DeviceParts:
        """Without a compiled program, and without asking other processes."""
        layout: Any = placement.layout
        indexes = layout.addressable_devices_indices_map(shape)

        def assemble(parts: Sequence[Array]) -> Any:
            places = [
                self.jax.sharding.SingleDeviceSharding(device, memory_kind=layout.memory_kind)
                for device in indexes
            ]
            shards = self.jax.device_put(list(parts), places)
            make = self.jax.make_array_from_single_device_arrays
            if shards:
                return make(shape, layout, shards)
            return make(shape, layout, [], dtype=numpy_dtype(dtype))

        return DeviceParts(list(indexes.values()), assemble)

    def export_dlpack(self, x: Any) -> Any:
        # JAX makes the consumer's stream wait for the array, whichever device is current.
        return dlpack.DlpackExport(_replica(x), _NAMES[x.dtype], nullcontext)

    def import_dlpack(self, x: Any, source: str = "") -> Any:
        """An array over the memory of another framework's tensor on the same device.

        JAX tells the producer on which stream it will read.
        (https://docs.jax.dev/en/latest/_autosummary/jax.dlpack.from_dlpack.html)
        """
        if source:
            exported = registry.backend_named(source).export_dlpack(x)
        else:
            exported = x
        if isinstance(exported, dlpack.DlpackExport):
            exported = exported.as_named()
        return self.jax.dlpack.from_dlpack(exported)

    # -- containers that are registered with jax.tree_util -----------------------------------------

    def has_node(self, kind: type) -> bool:
        # JAX's registry can be asked only about an object, not about a type.
        return not kind.__module__.startswith("builtins")

    def open_node(self, x: Any) -> Node | None:
        """A registered container, opened one level deep.

        See https://docs.jax.dev/en/latest/custom_pytrees.html.
        """
        # Without loading the backend, which would start JAX's devices.
        tree_util: Any = importlib.import_module(self.module).tree_util
        if tree_util.all_leaves([x]):
            return None

        visits = count()

        def is_value(_: Any) -> bool:
            # Everything except the first visited object is a leaf, even if an object contains
            # itself.
            return next(visits) > 0

        leaves_with_paths, spec = tree_util.tree_flatten_with_path(x, is_leaf=is_value)
        entries = [entry_of(path[0], tree_util.GetAttrKey) for path, _ in leaves_with_paths]
        values = [value for _, value in leaves_with_paths]
        return Node(
            entries, values, lambda others: tree_util.tree_unflatten(spec, others), registered=spec
        )


def export_whole(x: Any) -> Array:
    """The verb ``export`` for an array on one device whose elements are not packed."""
    array = np.asarray(x)
    return array.copy() if array.flags.owndata else array


def _concrete() -> Any:
    """The type of concrete arrays, which is private; ``None`` if it is not found.

    To make an array and read its type would compile a program, which hangs in a forked child, and
    which a transfer guard may forbid.
    """
    try:
        return importlib.import_module("jax._src.array").ArrayImpl
    except (ImportError, AttributeError):
        return None


def _replica(x: Any) -> Any:
    """The first of equal copies on several devices, as an array on one device."""
    if x.sharding.num_devices > 1:
        return x.addressable_shards[0].data
    return x


BACKEND = JaxBackend()
