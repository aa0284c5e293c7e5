"""Lists of tensors of one kind, quickly: what they have in common, and their values as one array.

The backend of the first tensor says both. Whatever is in doubt is described: see `lists`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..host import memory
from .fast_paths import NOT_ACCEPTED
from .registry import BY_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..typing import Array

__all__ = ["join", "join_as_arrays", "likeness", "shape_of", "signature"]


def signature(tensors: Sequence[Any]) -> Hashable | None:
    """The signature of tensors that become one: see `Quick.signature_together`.

    ``None`` if they must be described, or if the first one is of a type that was never converted.
    """
    kind = type(tensors[0])
    owner = BY_TYPE.get(kind)
    of_all = None if owner is None else owner.quick.signature_together(tensors)
    return None if of_all is None else (kind, of_all)


def likeness(tensors: Sequence[Any]) -> Hashable | None:
    """What tensors have in common that become one after padding: see `Quick.likeness_together`.

    ``None`` if they must be described, or if the first one is of a type that was never converted.
    """
    kind = type(tensors[0])
    owner = BY_TYPE.get(kind)
    of_all = None if owner is None else owner.quick.likeness_together(tensors)
    return None if of_all is None else (kind, of_all)


def join(tensors: Sequence[Any]) -> Array | None:
    """A new array of the values of tensors: see `Quick.join`."""
    owner = BY_TYPE.get(type(tensors[0])) if tensors else None
    return None if owner is None else owner.quick.join(tensors)


def join_as_arrays(tensors: Sequence[Any], to_array: Callable[[Any], Array | None]) -> Array | None:
    """`Quick.join` for tensors of a framework whose fast path to NumPy gives views.

    Args:
        tensors: The tensors.
        to_array: The fast path.
    """
    if not memory.can_join() or len(set(map(type, tensors))) > 1:
        return None
    try:
        return memory.joined_array(list(map(to_array, tensors)))
    except NOT_ACCEPTED:
        return None


def shape_of(tensors: Sequence[Any]) -> tuple[int, ...]:
    """The shape of what tensors with a signature become."""
    first = tensors[0]
    return (len(tensors), *BY_TYPE[type(first)].quick.lengths(first))
