"""PyTorch's devices: streams, events and page-locked memory of its accelerator; transfers.

What is transferred is packed buffers, and elements that share memory.
(https://docs.pytorch.org/docs/stable/torch.html#accelerators)
And tensors over the devices of several processes: `DTensor`, for ``device=(mesh, placements)``.
(https://docs.pytorch.org/docs/stable/distributed.tensor.html)
"""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from functools import cache, partial
from inspect import signature
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ... import hints
from ...core.capabilities import DeviceFacts
from ...core.declaration import Placement
from ...core.devices import HOST, device_name, kind_of, meant_kind
from ...core.layout import ALIGNMENT, byte_span
from ...core.named_tuple import NamedTuple
from ...core.signature import places_by
from ...errors import UnsupportedTypeError
from ...hints import Hint
from .declared import DECLARED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from ...host import packing

__all__ = [
    "Accelerators",
    "PackedBuffers",
    "TorchEvent",
    "TorchStream",
    "accelerator",
    "boxes_here",
    "conversion_in_graph",
    "copy_together",
    "laid_out",
    "misfit_of",
    "over_mesh",
    "placement_on_mesh",
    "reach",
    "resolved",
    "shards_of",
    "spread",
]

_PARTS = {"complex64": "float32", "complex128": "float64"}


def accelerator(torch: Any) -> Any:
    """PyTorch's accelerator, as a device without index; ``None`` if there is no such device."""
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator()
    return None


class TorchEvent:
    """`torch.Event`."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def wait(self) -> None:
        self.event.synchronize()


class TorchStream:
    """`torch.Stream`."""

    def __init__(self, torch: Any, stream: Any) -> None:
        self.torch, self.stream = torch, stream
        self._before: list[tuple[Any, Any]] = []

    @property
    def device(self) -> str:
        return device_name(self.stream.device)

    def __enter__(self) -> Self:
        current = self.torch.accelerator.current_stream
        self._before.append((current(self.stream.device), current()))
        self.torch.accelerator.set_stream(self.stream)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The device of the last stream becomes the current one.
        for stream in self._before.pop():
            self.torch.accelerator.set_stream(stream)

    def record(self) -> TorchEvent:
        # With `blocking`, a waiting thread sleeps instead of polling.
        event = self.torch.Event(self.stream.device, blocking=True)
        event.record(self.stream)
        return TorchEvent(event)

    def wait_for(self, event: Any) -> None:
        self.stream.wait_event(event.event)

    def uses(self, tensor: Any) -> None:
        if tensor.device.type == self.stream.device.type:
            tensor.record_stream(self.stream)


class Accelerators:
    """What PyTorch can do on each kind of device.

    Args:
        torch: The module.
        dtypes: PyTorch's dtypes by their canonical names.
    """

    def __init__(self, torch: Any, dtypes: dict[str, Any]) -> None:
        self.torch, self.dtypes = torch, dtypes
        self._facts: dict[str, DeviceFacts] = {}
        # PyTorch 2.6 counts the devices to find its accelerator, which starts the driver, and
        # raises without one.
        self._counts = (
            "check_available" not in signature(torch.accelerator.current_accelerator).parameters
        )

    def module(self, kind: str) -> Any:
        """PyTorch's module for a kind of device; ``None`` if there is none."""
        try:
            return self.torch.get_device_module(kind)
        except RuntimeError:
            return None

    def is_one(self, kind: str) -> bool:
        """Whether a kind of device is PyTorch's accelerator on this machine."""
        current = accelerator(self.torch)
        return current is not None and current.type == kind

    def names(self) -> list[str]:
        """The devices of the accelerator."""
        current = accelerator(self.torch)
        if current is None:
            return []
        return [f"{current.type}:{index}" for index in range(self.torch.accelerator.device_count())]

    def facts(self, kind: str) -> DeviceFacts:
        """See `Declaration.device_facts`."""
        facts = self._facts.get(kind)
        if facts is None:
            if kind == HOST:
                module = None
            else:
                module = self.module(kind)
            if module is not None and module.is_available():
                count = module.device_count()
            else:
                count = 0
            if not count:
                return DECLARED.device_facts(kind)._replace(meant=self._meant(kind))
            works, own = self._works, self.is_one(kind)
            streams = own and works("Stream", device=kind) and works("Event", kind)
            # Tested with 0 bytes. Whether memory can really be locked shows when it is needed.
            pins = own and works("empty", 0, device=HOST, pin_memory=True)
            lacking = {
                name
                for name, dtype in self.dtypes.items()
                if not works("empty", 0, dtype=dtype, device=kind)
            }
            absent = lacking | {name for name, part in _PARTS.items() if part in lacking}
            facts = self._facts[kind] = DeviceFacts(count, streams, pins, frozenset(absent))
        return facts

    def _meant(self, kind: str) -> str:
        """The kind that was meant by one that PyTorch lacks, or that has no memory; else empty."""
        try:
            self.torch.device(kind)
        except RuntimeError as error:
            known = re.search("one of ([a-z, ]+) device", str(error))
            return meant_kind(kind, known[1].split(", ") if known is not None else (HOST,))
        named = kind != HOST and self.module(kind) is None and self._works("empty", 0, device=kind)
        if named and self.torch.empty(0, device=kind).is_meta:
            return HOST
        return ""

    def _works(self, function: str, *arguments: Any, **keywords: Any) -> bool:
        try:
            getattr(self.torch, function)(*arguments, **keywords)
        except Exception:  # noqa: BLE001 - each kind of device has its own software, which says what it likes
            return False
        return True

    def is_pinned(self, x: Any) -> bool:
        """Whether a host tensor is in page-locked memory.

        PyTorch is asked only if an accelerator is in use.
        """
        kinds: tuple[str, ...]
        if self._counts:
            kinds = ("cuda", "xpu", self.torch._C._get_privateuse1_backend_name())
        else:
            current = self.torch.accelerator.current_accelerator()
            kinds = () if current is None else (current.type,)
        return any(map(self._is_in_use, kinds)) and bool(x.is_pinned())

    def _is_in_use(self, kind: str) -> bool:
        module = self.module(kind)
        return module is not None and bool(getattr(module, "is_initialized", module.is_available)())

    # -- streams -----------------------------------------------------------------------------------

    def _has_streams(self, device: str) -> bool:
        facts = self.facts(kind_of(device))
        return facts.present > 0 and facts.streams

    def current_stream(self, device: str) -> TorchStream | None:
        """This thread's current stream for a device; without an index, for the current device."""
        if not self._has_streams(device):
            return None
        _, _, index = device.partition(":")
        return TorchStream(
            self.torch, self.torch.accelerator.current_stream(int(index) if index else None)
        )

    def side_stream(self, device: str) -> TorchStream | None:
        """A stream of a device from PyTorch's pool."""
        if not self._has_streams(device):
            return None
        return TorchStream(self.torch, self.torch.Stream(device=self.torch.device(device)))

    def wait(self, device: Any) -> None:
        """Make the host wait for work on the current stream, or, without streams, on the device."""
        stream = self.current_stream(device_name(device))
        if stream is not None:
            stream.record().wait()
        else:
            getattr(self.module(device.type), "synchronize", lambda: None)()

    def entered(self, device: Any) -> Any:
        """A context in which a device is the current one."""
        context = getattr(self.module(device.type), "device", None)
        if context is None:
            return nullcontext()
        return context(device)

    # -- page-locked memory ------------------------------------------------------------------------

    def lock(self, x: Any, required: bool) -> Any:
        """See `pinned.lock`."""
        from ...devices import pinned  # here, because most processes have no device

        return pinned.lock(x, self._allocator(x), required=required)

    def land(self, x: Any, required: bool) -> Any:
        """See `pinned.land`."""
        from ...devices import pinned

        landed = pinned.land(
            x, self._allocator(x), self.current_stream(device_name(x.device)), required=required
        )
        return x.to(HOST) if landed is None else landed

    def _allocator(self, x: Any) -> Any:
        # With the device, because otherwise a default device would be used.
        return partial(self.torch.empty_like, x, device=HOST, pin_memory=True, requires_grad=False)


# -- many in one: one launch, one transfer, views --------------------------------------------------


def resolved(x: Any) -> Any:
    """The tensor, or a copy in which the conjugate and negative bits are applied."""
    return x.resolve_conj().resolve_neg()


class Joined(NamedTuple):
    """How tensors without gaps lie in a packed buffer: one dtype after the other, the widest first.

    Args:
        tensors: The tensors of each dtype, whose shapes count.
        places: The positions of these tensors among all.
    """

    tensors: list[list[Any]]
    places: Sequence[Sequence[int]]


class PackedBuffers:
    """Packed buffers: many tensors in one.

    Args:
        torch: The module.
        memories: The types of plain tensors and parameters.
        without_autocast: A context in which they are joined as they are, also under autocast.
    """

    def __init__(
        self, torch: Any, memories: frozenset[type], without_autocast: Callable[[], Any]
    ) -> None:
        self.torch, self.memories, self.without_autocast = torch, memories, without_autocast
        self.is_contiguous = torch.Tensor.is_contiguous
        lists = getattr(torch._C, "_nn", None)
        flatten, unflatten = (
            getattr(lists, f"{word}_dense_tensors", None) for word in ("flatten", "unflatten")
        )
        self.joins: tuple[Any, Any] | None = (flatten, unflatten) if flatten and unflatten else None

    def pack(self, tensors: Sequence[Any], alignment: int, lock: bool = False) -> tuple[Any, Any]:
        """A packed buffer of tensors, made with `torch.cat`, which copies hundreds of tensors with one launch."""
        from ...devices import pinned  # here, because most processes have no other device

        torch = self.torch
        joined = self._join(tensors, alignment)
        parts: Joined | list[packing.Part] | None = joined
        # Under autocast, they are joined as they are without it.
        with self.without_autocast():
            if joined is None or self.joins is None:
                pieces, parts, nbytes = _pieces(torch, list(map(resolved, tensors)), alignment)
            else:
                flatten, _ = self.joins
                # One tensor alone is not copied, so it may have any stride along an axis of length
                # 1, and lazy bits.
                flat = [
                    flatten(some) if len(some) > 1 else _flat(resolved(some[0]))
                    for some in joined.tensors
                ]
                if len(flat) == 1 and not lock:
                    return flat[0], joined
                pieces, nbytes = [x.view(torch.uint8) for x in flat], sum(x.nbytes for x in flat)
            locked = partial(torch.empty, nbytes, dtype=torch.uint8, device=HOST, pin_memory=True)
            return torch.cat(
                pieces, out=pinned.locked_block(nbytes, locked, required=False) if lock else None
            ), parts

    def _join(self, tensors: Sequence[Any], alignment: int) -> Joined | None:
        """The tensors by their dtypes; ``None`` if there would be gaps between them, or one is of a subclass."""
        if self.joins is None or not {*map(type, tensors)} <= self.memories:
            return None
        if not all(map(self.is_contiguous, tensors)):
            return None
        if alignment > 1 and any(x.nbytes % alignment for x in tensors):
            return None
        places = places_by(list(map(_DTYPE, tensors)))
        ordered = [places[dtype] for dtype in sorted(places, key=_ITEMSIZE, reverse=True)]
        if len(ordered) == 1:
            return Joined([list(tensors)], ordered)
        return Joined([[tensors[index] for index in some] for some in ordered], ordered)

    def unpack(self, packed: Any, layout: Any) -> list[Any]:
        """The tensors in a packed buffer, as views."""
        if not isinstance(layout, Joined):
            return [
                packed[part.start : part.start + part.nbytes]
                .view(part.dtype)
                .as_strided(part.shape, part.strides)
                for part in layout
            ]
        assert self.joins is not None  # noqa: S101 - `pack` has looked
        (_, unflatten), start = self.joins, 0
        if len(layout.places) == 1:
            (tensors,) = layout.tensors
            return list(unflatten(packed.view(tensors[0].dtype), tensors))
        unpacked: list[Any] = [None] * sum(map(len, layout.places))
        for tensors, places in zip(layout.tensors, layout.places, strict=True):
            end = start + sum(x.nbytes for x in tensors)
            for place, x in zip(
                places, unflatten(packed[start:end].view(tensors[0].dtype), tensors), strict=True
            ):
                unpacked[place] = x
            start = end
        return unpacked


_DTYPE, _ITEMSIZE = attrgetter("dtype"), attrgetter("itemsize")


def _pieces(
    torch: Any, tensors: Sequence[Any], alignment: int
) -> tuple[list[Any], list[packing.Part], int]:
    """Bytes of each tensor and of the gaps between them, the places, and the number of bytes."""
    from ...host import packing

    packed = [x if x.is_contiguous() else _packed(x) for x in tensors]
    parts, nbytes = packing.lay_out(packed, [x.stride() for x in packed], alignment)

    @cache
    def filling(nbytes: int) -> Any:
        return torch.zeros(nbytes, dtype=torch.uint8, device=tensors[0].device)

    return (
        packing.joined_bytes([_flat(x).view(torch.uint8) for x in packed], parts, filling),
        parts,
        nbytes,
    )


def _flat(x: Any) -> Any:
    """The elements of a tensor without gaps, in the order of memory, as one axis."""
    return x.as_strided((x.numel(),), (1,))


def _packed(x: Any) -> Any:
    """The tensor, or a copy without gaps that keeps the order of its axes in memory."""
    strides = x.stride()
    order = sorted(range(x.dim()), key=lambda axis: (-strides[axis], axis))
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.permute(order).contiguous().permute(back)


# -- elements that share memory --------------------------------------------------------------------


def spread(x: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    """A copy of the argument of `narrow` or `span`, with separate memory for each element."""
    return (x.expand(shape) if strides is None else x.as_strided(shape, strides)).contiguous()


def conversion_in_graph(torch: Any) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """A function that applies a conversion to a tensor as one operation of autograd."""

    class Conversion(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any, convert: Callable[[Any], Any]) -> Any:
            result = convert(x.detach())
            context.before, context.after = ((side.device, side.dtype) for side in (x, result))
            return result

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[Any, None]:
            return gradient.to(*context.before), None

        @staticmethod
        def jvp(context: Any, tangent: Any, _: None) -> Any:
            return tangent.to(*context.after)

    return Conversion.apply  # type: ignore[no-any-return]


def copy_together(torch: Any, tensors: Sequence[Any]) -> list[Any]:
    """Copies of overlapping tensors on one device, as views of one copy of their memory."""
    storage = tensors[0].untyped_storage()
    if len({x.untyped_storage().data_ptr() for x in tensors}) > 1:
        return [x.detach().clone() for x in tensors]  # they overlap, but have different storages
    ends = [(_first_byte(x), _first_byte(x) + reach(x)) for x in tensors]
    low = min(start for start, _ in ends) // ALIGNMENT * ALIGNMENT
    whole = torch.empty(0, dtype=torch.uint8, device=tensors[0].device).set_(storage)
    block = whole[low : max(end for _, end in ends)].clone()
    return [
        block[start - low : end - low].view(x.dtype).as_strided(x.shape, x.stride())
        for x, (start, end) in zip(tensors, ends, strict=True)
    ]


def _first_byte(x: Any) -> int:
    return x.storage_offset() * x.itemsize  # type: ignore[no-any-return]


def reach(x: Any) -> int:
    """The number of bytes from a tensor's first element to the end of its last."""
    if x.is_contiguous():
        return x.nbytes  # type: ignore[no-any-return]
    itemsize = x.itemsize
    return byte_span(x.shape, [step * itemsize for step in x.stride()], itemsize)[1]


# -- one tensor over the devices of several processes; nothing here communicates ------------------

_REPLICATED = Hint(
    hints.keyword(
        "device", hints.code("(mesh, [torch.distributed.tensor.Replicate()] * mesh.ndim)")
    ),
    ", which leaves it whole on each",
)


def placement_on_mesh(device: object) -> Placement | None:
    """The placement for a mesh of devices and its placements, together in a tuple; else ``None``.

    Raises:
        UnsupportedTypeError: They are no placements, not one for each axis of the mesh, or others
            than ``Shard`` and ``Replicate``.
    """
    mesh_module: Any = sys.modules.get("torch.distributed.device_mesh")
    if mesh_module is None or type(device) is not tuple or len(device) != 2:
        return None
    mesh, placements = device
    if not isinstance(mesh, mesh_module.DeviceMesh):
        return None
    from torch.distributed.tensor import Replicate, Shard

    chosen = tuple(placements) if isinstance(placements, (list, tuple)) else (placements,)
    for placement in chosen:
        # A `_StridedShard` has rows that are not neighbours, a `Partial` has terms of a sum.
        if type(placement) not in (Shard, Replicate):
            raise UnsupportedTypeError(
                f"device= has {type(placement).__name__} among its placements: what a process has is "
                "known only of Shard and Replicate.",
                _REPLICATED,
            )
    if len(chosen) != mesh.ndim:
        raise UnsupportedTypeError(
            f"device= has {len(chosen)} placements, and the mesh has {mesh.ndim} axes.", _REPLICATED
        )
    # Meshes of the same ranks are equal, but not the same after `init_process_group` has been called
    # again: this process may have another rank, and the groups of the older one are gone.
    return Placement(mesh.device_type, _different_parts(mesh, chosen), (mesh, chosen, id(mesh)))


def shards_of(x: Any) -> int:
    """How many different parts a ``DTensor`` has."""
    return _different_parts(x.device_mesh, x.placements)


def _different_parts(mesh: Any, placements: Sequence[Any]) -> int:
    return prod(
        mesh.size(axis) for axis, placement in enumerate(placements) if placement.is_shard()
    )


def misfit_of(placement: Placement, shape: tuple[int, ...]) -> tuple[str, str | Hint] | None:
    """Why a tensor of this shape cannot be laid out so; ``None`` if it can."""
    _, placements = _layout(placement)
    for part in placements:
        axis = getattr(part, "dim", None)
        if axis is not None and not -len(shape) <= axis < len(shape):
            return f"{part} is for axis {axis}, and there are {len(shape)}", _REPLICATED
    return None


def boxes_here(placement: Placement, shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """What this process has of a tensor: one box, or none if it is not in the mesh."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = _layout(placement)
    if mesh.get_coordinate() is None:
        return []
    counts, starts = compute_local_shape_and_global_offset(
        shape, mesh, _counted(placements, len(shape))
    )
    return [tuple(slice(start, start + count) for start, count in zip(starts, counts, strict=True))]


def laid_out(placement: Placement, x: Any) -> Any:
    """The ``DTensor`` of a whole tensor, of which each process takes its own part."""
    shape = tuple(x.shape)
    boxes = boxes_here(placement, shape)
    return over_mesh(placement, shape, x[boxes[0]].clone() if boxes else x.new_empty(0))


def over_mesh(placement: Placement, shape: tuple[int, ...], local: Any) -> Any:
    """The ``DTensor`` of which this process has the part `local`."""
    from torch.distributed.tensor import DTensor

    mesh, placements = _layout(placement)
    stride = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    # The shape cannot be told from one part if the parts are unequal.
    return DTensor.from_local(
        local.to(mesh.device_type),
        mesh,
        _counted(placements, len(shape)),
        run_check=False,
        shape=type(local.size())(shape),
        stride=tuple(stride),
    )


def _layout(placement: Placement) -> tuple[Any, tuple[Any, ...]]:
    layout: Any = placement.layout
    mesh, placements, _ = layout
    return mesh, placements


def _counted(placements: Sequence[Any], axes: int) -> list[Any]:
    """The placements with axes that are counted from the first."""
    return [
        type(placement)(placement.dim + axes) if getattr(placement, "dim", 0) < 0 else placement
        for placement in placements
    ]
