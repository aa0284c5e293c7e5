"""Many tensors of one device in one, and back: one launch, one transfer, views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pack", "unpack"]


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
