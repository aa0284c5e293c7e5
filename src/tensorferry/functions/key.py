"""`Key`: what distinguishes one set of arguments from another, by which a function is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..trees.structure import Structure

__all__ = ["Key"]


class Key:
    """What distinguishes one set of arguments from another, tensors aside."""

    __slots__ = ("_hash", "environment", "fixed", "leaves", "structure")

    def __init__(self, structure: Structure, leaves: tuple[Any, ...], environment: Hashable) -> None:
        self.structure = structure
        self.leaves = leaves
        self.environment = environment
        self.fixed = tuple(_fixed(leaf) for leaf in leaves)
        self._hash = hash((self.fixed, environment))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.fixed == other.fixed
            and self.environment == other.environment
            and self.structure.is_like(other.structure)
        )


class _Itself:
    """Stands for an object that cannot be hashed."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __hash__(self) -> int:
        return id(self._x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._x is other._x


def _fixed(leaf: Any) -> Hashable:
    kind = type(leaf)
    if kind is float or kind is complex:
        return kind, repr(leaf)
    try:
        hash(leaf)
    except TypeError:
        return _Itself(leaf)
    return kind, leaf
