"""The names of ``torch.distributed`` in pickles.

Only the arguments and attributes of its objects are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ..base.contents import Special
from ..base.nesting import Keys
from .machine import Global
from .standins import InstanceOf, OtherOf, RefusedOf, TensorOf, TensorStandIn
from .torch import Names

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DistributedNames", "PiecesOf", "RankNames", "fields", "lengths"]

_LONGEST_NAME = 1_000


class _ObjectKeys(Keys):
    """As `Keys`, and also objects, which are compared by identity."""

    def takes(self, key: Any) -> bool:
        return type(key) is InstanceOf or super().takes(key)


class DistributedNames(Names):
    """The vocabulary of files that several processes save together.

    Args:
        where: The file, for messages.
        allow: As for `Names`.
        packages: Names of modules whose objects' arguments and attributes are kept.
    """

    def __init__(
        self, where: str, allow: frozenset[str], packages: Iterable[str] = ("torch.distributed.",)
    ) -> None:
        super().__init__(where, allow)
        self.keys = _ObjectKeys()
        self._packages = tuple(packages)

    def is_kept(self, name: str) -> bool:
        """Whether a name is a class of such an object."""
        return name.startswith(self._packages)

    def knows(self, name: str) -> bool:
        return self.is_kept(name) or super().knows(name)

    def call(self, function: Any, arguments: Any, keywords: Any = None) -> Any:
        if type(function) is Global and type(arguments) is tuple and not keywords:
            name = function.name
            if name == "builtins.getattr":
                inner = self._inner(arguments)
            else:
                inner = None
            if inner is not None:
                return inner
            if self.is_kept(name):
                return InstanceOf(name, arguments)
        return super().call(function, arguments, keywords)

    def _inner(self, arguments: tuple[Any, ...]) -> Global | None:
        """A nested class, ``getattr(class, name)``; ``None`` for anything else."""
        if len(arguments) != 2 or type(arguments[0]) is not Global or type(arguments[1]) is not str:
            return None
        outer, name = arguments
        if not self.is_kept(outer.name) or len(outer.name) + len(name) > _LONGEST_NAME:
            return None
        return Global(f"{outer.name}.{name}")


def fields(instance: Any, kind: str) -> dict[Any, Any]:
    """The attributes of an object whose class name ends with `kind`; empty for others."""
    if type(instance) is not InstanceOf or not instance.name.endswith(kind):
        return {}
    if type(instance.state) is tuple:
        states = instance.state
    else:
        states = (instance.state,)
    return {name: value for state in states if type(state) is dict for name, value in state.items()}


def lengths(value: Any) -> tuple[int, ...] | None:
    """A value as a shape, or as a position; ``None`` if it is not one."""
    if type(value) is Special:
        value = value.value
    if type(value) not in (list, tuple) or not all(
        type(length) is int and length >= 0 for length in value
    ):
        return None
    return tuple(value)


@dataclass(slots=True, eq=False)
class PiecesOf(TensorStandIn):
    """The pieces that a process has of a distributed tensor.

    Args:
        dtype: The canonical name of the dtype.
        shape: The shape of the whole tensor.
        pieces: For each piece: the position of its first element on each axis, and the tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    pieces: list[tuple[tuple[int, ...], TensorOf]]


class RankNames(DistributedNames):
    """The vocabulary of the file of one process, with pieces of distributed tensors."""

    def of_type(self, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
        """See the base class; a ``ShardedTensor`` or ``DTensor`` becomes its pieces."""
        name = kind.name if type(kind) is Global else ""
        if name.endswith(".ShardedTensor"):
            return self._sharded(state)
        if name.endswith(".DTensor") and self.is_kept(name):
            own = fields(InstanceOf(name, (), state), name)
            return self._placed(own.get("_local_tensor"), fields(own.get("_spec"), ".DTensorSpec"))
        return super().of_type(function, kind, arguments, state)

    def _sharded(self, state: Any) -> Any:
        if type(state) is tuple:
            shards, about = (*state, None, None)[:2]
        else:
            shards, about = None, None
        metadata = fields(about, ".ShardedTensorMetadata")
        shape = lengths(metadata.get("size"))
        properties = getattr(metadata.get("tensor_properties"), "state", None)
        if type(properties) is tuple and properties:
            dtype = properties[0]
        else:
            dtype = None
        if type(shards) is not list or shape is None or type(dtype) is not Special:
            raise self.wrong("has a ShardedTensor without shards, size or dtype")
        pieces = []
        for shard in shards:
            own = fields(shard, ".Shard")
            about = fields(own.get("metadata"), ".ShardMetadata")
            start, tensor = lengths(about.get("shard_offsets")), own.get("tensor")
            pieces.append(self._piece(start, tensor))
        return PiecesOf(str(dtype.value), shape, pieces)

    def _piece(self, start: Any, tensor: Any) -> tuple[tuple[int, ...], TensorOf]:
        if start is None or type(tensor) is not TensorOf or len(start) != len(tensor.view.shape):
            raise self.wrong("has a piece of a tensor without a place, or of no tensor")
        return start, tensor

    def _placed(self, tensor: Any, spec: dict[Any, Any]) -> Any:
        about = fields(spec.get("mesh"), ".DeviceMesh")
        meta, placements = spec.get("tensor_meta"), spec.get("placements")
        if type(meta) is InstanceOf:
            given = meta.arguments
        else:
            given = ()
        shape = lengths(given[0] if given else None)
        mesh, mine = _mesh_shape(about), lengths(about.get("_coordinate_on_dim"))
        if type(tensor) is RefusedOf:
            return tensor
        if (
            shape is None
            or mesh is None
            or mine is None
            or type(placements) is not tuple
            or type(tensor) is not TensorOf
        ):
            raise self.wrong(
                "has a DTensor without a tensor, shape, mesh, place in it or placements"
            )
        if not len(mesh) == len(mine) == len(placements):
            raise self.wrong("has a DTensor whose placements do not fit its mesh")
        start, left = [0] * len(shape), [*shape]
        for placement, count, place in zip(placements, mesh, mine, strict=True):
            if type(placement) is InstanceOf:
                kind = placement.name.rpartition(".")[2]
            else:
                kind = ""
            if kind == "Replicate":
                continue
            axis = fields(placement, ".Shard").get("dim")
            if kind != "Shard":
                return OtherOf(
                    f"it is placed as {kind or 'nothing that is known'}, which only its processes "
                    "can put together"
                )
            if type(axis) is not int or not 0 <= axis < len(shape) or not 0 <= place < count:
                raise self.wrong(
                    "has a DTensor that is shared out along an axis, or to a place, "
                    "that is not there"
                )
            # The same division as torch.chunk.
            most = -(-left[axis] // count)
            begin = min(place * most, left[axis])
            start[axis] += begin
            left[axis] = min(most, left[axis] - begin)
        if tuple(left) != tensor.view.shape:
            raise self.wrong(
                f"has a piece of shape {list(tensor.view.shape)} where its "
                f"DTensor's placements say {left}"
            )
        return PiecesOf(tensor.view.dtype, shape, [self._piece(tuple(start), tensor)])


def _mesh_shape(about: dict[Any, Any]) -> tuple[int, ...] | None:
    """The number of processes along each axis of a mesh, in the layouts of several releases."""
    if type(about.get("mesh")) is TensorOf:
        return about["mesh"].view.shape  # type: ignore[no-any-return]
    axes = fields(about.get("_layout"), "._MeshLayout").get("axes")
    if type(axes) is not tuple:
        return None
    mesh_shape = []
    for axis in axes:
        counts = lengths(fields(axis, "._FlatLayout").get("shape"))
        if counts is None:
            return None
        mesh_shape.append(prod(counts))
    return tuple(mesh_shape)


RankNames.calls = Names.calls | {"torch._tensor._rebuild_from_type_v2": RankNames.of_type}
