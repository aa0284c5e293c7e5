"""A tree like the last one, as the batches of a loop are: what was found out about that is not asked again."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import fast_paths, registry

if TYPE_CHECKING:
    from .leaves import LeafRule

__all__ = ["Alike"]

_DTYPE = attrgetter("dtype")
_MOST = 4096
"""Leaves up to which a tree is remembered."""


class Alike(NamedTuple):
    """A dict of nothing but tensors of one type, which a fast path has converted in one go.

    Args:
        keys: Its keys.
        kind: The type of its tensors.
        dtypes: Their dtypes.
        rule: Which leaves are converted.
        revision: Of the backends that there were.
    """

    keys: list[Any]
    kind: type
    dtypes: list[Any]
    rule: LeafRule
    revision: int

    @classmethod
    def of(cls, keys: list[Any], leaves: list[Any], rule: LeafRule) -> Alike | None:
        """What is remembered of a tree; ``None``: nothing is."""
        kinds = set(map(type, leaves))
        if len(kinds) > 1 or len(leaves) > _MOST:
            return None
        return cls(keys, kinds.pop(), list(map(_DTYPE, leaves)), rule, registry.revision)

    def convert(self, tree: Any, target: str, rule: LeafRule) -> dict[Any, Any] | None:
        """Another tree converted to the same target; ``None``: it is not like this one, or the fast path declines."""
        path = fast_paths.path_for_many(self.kind, target)
        if path is None or type(tree) is not dict or rule is not self.rule or registry.revision != self.revision:
            return None
        leaves = [*tree.values()]
        if {*map(type, leaves)} != {self.kind} or [*tree] != self.keys or [*map(_DTYPE, leaves)] != self.dtypes:
            return None
        if len({*map(id, leaves)}) < len(leaves):
            return None
        try:
            results = path(leaves)
        except fast_paths.REFUSALS:
            return None
        return None if results is None else dict(zip(self.keys, results, strict=True))
