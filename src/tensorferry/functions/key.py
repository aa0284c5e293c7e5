"""`Key`: the structure and static values of a call's arguments, by which functions are cached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..trees.structure import Structure

__all__ = ["Key"]


class Key:
    """The arguments of a call without the values of tensors, and the framework that calls, as a key."""

    __slots__ = ("_hash", "environment", "fixed", "leaves", "outer", "structure")

    def __init__(
        self, structure: Structure, leaves: tuple[Any, ...], environment: Hashable, outer: str
    ) -> None:
        self.structure = structure
        self.leaves = leaves
        self.environment = environment
        self.outer = outer
        self.fixed = tuple(_fixed(leaf) for leaf in leaves)
        self._hash = hash((self.fixed, environment, outer))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.fixed == other.fixed
            and self.environment == other.environment
            and self.outer == other.outer
            and self.structure.is_like(other.structure)
        )


class _Itself:
    """An object that cannot be hashed, compared by identity."""

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
