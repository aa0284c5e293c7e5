"""Many tensors of one device in one, and back: one launch, one transfer, views."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...parcels import LARGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FetchTogether", "pack", "unpack"]


class _Part(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    order: tuple[int, ...] | None
    start: int
    end: int


def pack(torch: Any, tensors: Sequence[Any], alignment: int) -> tuple[Any, list[_Part]]:
    """The bytes of all, in the order of each one's axes in memory; the rest of a dtype's elements between them.

    `torch.cat` copies hundreds of tensors in a launch. The widest elements lie first, so that without an
    alignment nothing has to be filled up.
    """
    ranks = sorted(range(len(tensors)), key=lambda index: -tensors[index].element_size())
    pieces: list[Any] = []
    parts: dict[int, _Part] = {}
    filling = torch.zeros(alignment, dtype=torch.uint8, device=tensors[0].device) if alignment > 1 else None
    at = 0
    for index in ranks:
        tensor = tensors[index]
        order = None if tensor.is_contiguous() else _order(tensor)
        dense = tensor if order is None else tensor.permute(order).contiguous()
        raw = dense.view(-1).view(torch.uint8)
        if filling is not None and at % alignment:
            pieces.append(filling[: alignment - at % alignment])
            at += alignment - at % alignment
        pieces.append(raw)
        parts[index] = _Part(tensor.dtype, tuple(dense.shape), order, at, at + raw.numel())
        at += raw.numel()
    return torch.cat(pieces), [parts[index] for index in range(len(tensors))]


def _order(tensor: Any) -> tuple[int, ...]:
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda axis: (-abs(strides[axis]), axis)))


def unpack(parcel: Any, layout: Sequence[_Part]) -> list[Any]:
    """Each tensor, as a view of the packed one."""
    found = []
    for part in layout:
        tensor = parcel[part.start : part.end].view(part.dtype).view(part.shape)
        if part.order is not None:
            back = [0] * len(part.order)
            for place, axis in enumerate(part.order):
                back[axis] = place
            tensor = tensor.permute(back)
        found.append(tensor)
    return found


class FetchTogether:
    """Many small tensors of one device and one dtype as arrays: one launch, one copy, views of one host memory.

    What a batch in a tree's plan gives, without a plan for each leaf; accepts contiguous tensors outside any
    graph whose dtype NumPy has, none of them over another's memory.

    Args:
        torch: The framework.
        kind: The kind of device whose tensors are accepted.
    """

    def __init__(self, torch: Any, kind: str) -> None:
        self.torch = torch
        self.kind = kind
        self.dtypes = {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16}
        self.dtypes |= {torch.int8, torch.uint8, torch.bool}

    def __call__(self, tensors: list[Any]) -> list[Any] | None:
        """The arrays, or ``None`` if one of the tensors is not accepted."""
        first = tensors[0]
        if len(tensors) < 2 or first.device.type != self.kind or first.dtype not in self.dtypes:
            return None
        alike = {(x.dtype, x.get_device(), x.requires_grad, x.is_contiguous(), x.is_neg()) for x in tensors}
        if alike != {(first.dtype, first.get_device(), False, True, False)}:
            return None
        shapes = [x.shape for x in tensors]
        sizes = {shape: prod(shape) for shape in set(shapes)}
        limit = LARGEST // first.element_size()
        if (
            min(sizes.values()) == 0
            or max(sizes.values()) > limit
            or len({x.data_ptr() for x in tensors}) != len(tensors)
        ):
            return None
        if len(sizes) == 1 and len(shapes[0]):
            # One shape: no view has to be made of any.
            return list(self.torch.cat(tensors).cpu().numpy().reshape(len(tensors), *shapes[0]))
        block = self.torch.cat([x.view(-1) for x in tensors]).cpu().numpy()
        arrays, at = [], 0
        for shape in shapes:
            end = at + sizes[shape]
            arrays.append(block[at:end].reshape(shape))
            at = end
        return arrays
