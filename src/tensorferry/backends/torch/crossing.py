"""Transfers of PyTorch's tensors: packed buffers, elements that share memory, ``out=``, other frameworks."""

from __future__ import annotations

from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.devices import HOST
from ...core.layout import ALIGNMENT
from ...core.places import places_by
from ...host import memory
from .signatures import reach
from .snippets import AS_INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...host import packing
    from ...host.dlpack import DlpackExport
    from .tensors import TorchBackend

__all__ = [
    "copy_together",
    "cross",
    "export_dlpack",
    "import_dlpack",
    "pack",
    "put",
    "recorded",
    "span",
    "spread",
    "unpack",
]


# -- many in one: one launch, one transfer, views -------------------------------------------------


class Joined(NamedTuple):
    """How tensors without gaps lie in a packed buffer: those of one dtype one after the other, the widest first.

    Args:
        tensors: The tensors of each dtype, whose shapes count.
        places: The positions of these tensors among all.
    """

    tensors: list[list[Any]]
    places: Sequence[Sequence[int]]


def pack(
    backend: TorchBackend, tensors: Sequence[Any], alignment: int, lock: bool = False
) -> tuple[Any, Any]:
    """A packed buffer of tensors, made with `torch.cat`, which copies hundreds of tensors with one launch."""
    from ...devices import pinned  # here, because most processes have no other device

    torch = backend.torch
    joined = _join(backend, tensors, alignment)
    parts: Joined | list[packing.Part] | None = joined
    # Under autocast, they are joined as they are without it.
    with backend.without_autocast():
        if joined is None or backend.joins is None:
            pieces, parts, nbytes = _pieces(torch, list(map(backend.resolve, tensors)), alignment)
        else:
            flatten, _ = backend.joins
            # One tensor alone is not copied, so it may have any stride along an axis of length 1,
            # and lazy bits.
            flat = [
                flatten(some) if len(some) > 1 else _flat(backend.resolve(some[0]))
                for some in joined.tensors
            ]
            if len(flat) == 1 and not lock:
                return flat[0], joined
            pieces, nbytes = [x.view(torch.uint8) for x in flat], sum(x.nbytes for x in flat)
        locked = partial(torch.empty, nbytes, dtype=torch.uint8, device=HOST, pin_memory=True)
        return torch.cat(
            pieces, out=pinned.block(nbytes, locked, required=False) if lock else None
        ), parts


def _join(backend: TorchBackend, tensors: Sequence[Any], alignment: int) -> Joined | None:
    """The tensors by their dtypes; ``None`` if there would be gaps between them, or one is of a subclass."""
    if backend.joins is None or not {*map(type, tensors)} <= backend.memories:
        return None
    if not all(map(backend.tensor.is_contiguous, tensors)):
        return None
    if alignment > 1 and any(x.nbytes % alignment for x in tensors):
        return None
    places = places_by(list(map(_DTYPE, tensors)))
    ordered = [places[dtype] for dtype in sorted(places, key=_ITEMSIZE, reverse=True)]
    if len(ordered) == 1:
        return Joined([list(tensors)], ordered)
    return Joined([[tensors[index] for index in some] for some in ordered], ordered)


_DTYPE, _ITEMSIZE = attrgetter("dtype"), attrgetter("itemsize")


def _pieces(
    torch: Any, tensors: Sequence[Any], alignment: int
) -> tuple[list[Any], list[packing.Part], int]:
    """The bytes of each tensor and of the gaps between them, the places, and how many bytes they are."""
    from ...host import packing

    packed = [x if x.is_contiguous() else _packed(x) for x in tensors]
    parts, nbytes = packing.lay_out(packed, [x.stride() for x in packed], alignment)

    @cache
    def filling(nbytes: int) -> Any:
        return torch.zeros(nbytes, dtype=torch.uint8, device=tensors[0].device)

    return (
        packing.joined([_flat(x).view(torch.uint8) for x in packed], parts, filling),
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


def unpack(backend: TorchBackend, packed: Any, layout: Any) -> list[Any]:
    """The tensors in a packed buffer, as views."""
    if not isinstance(layout, Joined):
        return [
            packed[part.start : part.start + part.nbytes]
            .view(part.dtype)
            .as_strided(part.shape, part.strides)
            for part in layout
        ]
    assert backend.joins is not None  # noqa: S101 - `pack` has looked
    (_, unflatten), start = backend.joins, 0
    if len(layout.places) == 1:
        (tensors,) = layout.tensors
        return list(unflatten(packed.view(tensors[0].dtype), tensors))
    found: list[Any] = [None] * sum(map(len, layout.places))
    for tensors, places in zip(layout.tensors, layout.places, strict=True):
        end = start + sum(x.nbytes for x in tensors)
        for place, x in zip(
            places, unflatten(packed[start:end].view(tensors[0].dtype), tensors), strict=True
        ):
            found[place] = x
        start = end
    return found


# -- shared memory --------------------------------------------------------------------------------


def span(x: Any, length: int) -> Any:
    """The memory that overlapping windows share, as a tensor of one axis."""
    return x.as_strided((length,), (1,))


def spread(x: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    """A copy of the argument of `narrow` or `span`, with separate memory for each element."""
    return (x.expand(shape) if strides is None else x.as_strided(shape, strides)).contiguous()


def cross(
    backend: TorchBackend, x: Any, device: str, axes: Sequence[int], dtype: str, first: bool
) -> Any:
    """Transfer only the memory that elements share, with a cast before or after, as one operation in the graph."""

    def do(x: Any) -> Any:
        part = backend.resolve(memory.narrow(x, axes))
        moved = (
            backend.cast(part, dtype).to(device) if first else backend.cast(part.to(device), dtype)
        )
        return spread(moved, x.shape)

    return backend.in_graph(x, do)


def recorded(torch: Any) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """A function that applies a conversion to a tensor as one operation of autograd."""

    class Conversion(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any, convert: Callable[[Any], Any]) -> Any:
            result = convert(x.detach())
            context.before, context.after = ((each.device, each.dtype) for each in (x, result))
            return result

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[Any, None]:
            return gradient.to(*context.before), None

        @staticmethod
        def jvp(context: Any, tangent: Any, _: None) -> Any:
            return tangent.to(*context.after)

    return Conversion.apply  # type: ignore[no-any-return]


def copy_together(backend: TorchBackend, tensors: Sequence[Any]) -> list[Any]:
    """Copies of overlapping tensors on one device, as views of one copy of their memory."""
    torch, storage = backend.torch, tensors[0].untyped_storage()
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


# -- ``out=`` and other frameworks -----------------------------------------------------------------


def put(backend: TorchBackend, x: Any, out: Any, *, overlaps: bool) -> None:
    """Copy a tensor into another, on any devices.

    A copy to the host is complete when this returns.
    """
    if (
        x.device == out.device
        and x.untyped_storage().data_ptr() == out.untyped_storage().data_ptr()
    ):
        x = x.clone()  # PyTorch does not copy between overlapping tensors
    direct = out.is_cpu and not x.is_cpu and backend.accelerators.is_pinned(out)
    out.copy_(x, non_blocking=direct or (overlaps and x.is_pinned()))
    if direct:
        backend.accelerators.wait(x.device)


# -- to and from other frameworks on a device -----------------------------------------------------


def export_dlpack(backend: TorchBackend, x: Any) -> DlpackExport:
    """Export a tensor's memory to another framework.

    PyTorch exports only from the current device, and names the stream that is current there. Its
    narrow floats are exported as integers, whose codes every version of it knows.
    """
    from ...host.dlpack import DlpackExport

    name = backend.names[x.dtype]
    as_integer = AS_INTEGERS.get(name)
    # Not `x` itself, whose memory is freed when its owner calls `x.set_`, `x.resize_` or assigns
    # `x.data`.
    held = x.detach()
    held = held if as_integer is None else held.view(getattr(backend.torch, as_integer))
    return DlpackExport(held, name, partial(backend.accelerators.entered, x.device))


def import_dlpack(backend: TorchBackend, exported: Any) -> Any:
    """A tensor over memory that another framework exports.

    Its stream waits for the producer's stream.
    """
    from ...host.dlpack import DlpackExport

    as_integer = AS_INTEGERS.get(exported.dtype) if isinstance(exported, DlpackExport) else None
    if as_integer is None:
        return backend.torch.from_dlpack(exported)
    return backend.torch.from_dlpack(exported.as_integers()).view(backend.dtypes[exported.dtype])
