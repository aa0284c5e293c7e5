"""Remember the last tree of a loop, so that a tree of the same structure and dtypes is converted faster."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..backends import fast_paths, registry
from ..core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from .leaves import LeafRule

__all__ = ["Alike"]

_DTYPE = attrgetter("dtype")
_MOST = 4096
"""The most leaves of a tree that is remembered."""


class Alike(NamedTuple):
    """A dict of tensors of one type, which a fast path has converted together.

    Args:
        keys: Its keys.
        kind: The type of its tensors.
        dtypes: Their dtypes.
        rule: Which leaves are converted.
        revision: The revision of the registry of backends.
    """

    keys: list[Any]
    kind: type
    dtypes: list[Any]
    rule: LeafRule
    revision: int

    @classmethod
    def of(cls, keys: list[Any], leaves: list[Any], rule: LeafRule) -> Alike | None:
        """What is remembered of a tree; ``None`` if it has tensors of several types, or too many."""
        kinds = set(map(type, leaves))
        if len(kinds) > 1 or len(leaves) > _MOST:
            return None
        return cls(keys, kinds.pop(), list(map(_DTYPE, leaves)), rule, registry.revision)

    def convert(self, tree: Any, target: str, rule: LeafRule) -> dict[Any, Any] | None:
        """Convert another tree to the same target; ``None`` if it is not like this one, or not for the fast path."""
        path = fast_paths.path_for_many(self.kind, target)
        if (
            path is None
            or type(tree) is not dict
            or rule is not self.rule
            or registry.revision != self.revision
        ):
            return None
        leaves = [*tree.values()]
        if (
            {*map(type, leaves)} != {self.kind}
            or [*tree] != self.keys
            or [*map(_DTYPE, leaves)] != self.dtypes
        ):
            return None
        if len({*map(id, leaves)}) < len(leaves):
            return None
        try:
            results = path(leaves)
        except fast_paths.NOT_ACCEPTED:
            return None
        return None if results is None else dict(zip(self.keys, results, strict=True))
