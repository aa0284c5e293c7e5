"""Tensors of PyTorch over the devices of several processes: `DTensor`, for ``device=(mesh, placements)``.

See https://docs.pytorch.org/docs/stable/distributed.tensor.html. Nothing here communicates.
"""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, Any

from ... import hints
from ...core.declaration import Placement
from ...errors import UnsupportedTypeError
from ...hints import Hint

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["boxes_here", "laid_out", "misfit_of", "over_mesh", "placement_on_mesh", "shards_of"]

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
