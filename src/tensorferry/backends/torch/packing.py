"""Many tensors of one device in one, and back: one launch, one transfer, views."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from ...host import packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tensors import TorchBackend

__all__ = ["FetchTogether", "pack", "unpack"]


def pack(backend: TorchBackend, tensors: Sequence[Any], alignment: int) -> tuple[Any, list[packing.Part]]:
    """The bytes of all, in the order of each one's axes in memory: `torch.cat` copies hundreds in a launch."""
    torch = backend.torch
    packed = [x if x.is_contiguous() else _packed(x) for x in tensors]
    parts, _ = packing.lay_out(packed, [x.stride() for x in packed], alignment)

    @cache
    def filling(nbytes: int) -> Any:
        return torch.zeros(nbytes, dtype=torch.uint8, device=tensors[0].device)

    return torch.cat(packing.joined([backend.flat(x) for x in packed], parts, filling)), parts


def _packed(x: Any) -> Any:
    """A tensor whose elements fill one run of memory, its axes in the order that they have."""
    strides = x.stride()
    order = sorted(range(x.dim()), key=lambda axis: (-strides[axis], axis))
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.permute(order).contiguous().permute(back)


def unpack(parcel: Any, layout: Sequence[packing.Part]) -> list[Any]:
    """Each tensor, as a view of the packed one."""
    return [
        parcel[part.start : part.start + part.nbytes].view(part.dtype).as_strided(part.shape, part.strides)
        for part in layout
    ]


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
        limit = packing.LARGEST // first.element_size()
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
