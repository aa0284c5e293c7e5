"""Containers that are registered with `torch.utils._pytree`: model outputs, caches, tensordicts.

`register_pytree_node` is what torch.export asks libraries to call for their classes.
(https://docs.pytorch.org/docs/stable/export.html)
"""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from ..nodes import Node, entry_of, item

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_registered", "open_registered"]


def _pytree() -> Any:
    """The module of the registry, if it has been imported. Before that, nothing is registered."""
    return sys.modules.get("torch.utils._pytree")


def is_registered(kind: type) -> bool:
    """Whether a type is registered as a container. `torch.Size` does not count, because it would become a tuple."""
    pytree = _pytree()
    return pytree is not None and kind in pytree.SUPPORTED_NODES and kind is not sys.modules["torch"].Size


def open_registered(x: Any) -> Node:
    """Open a registered container, one level deep."""
    pytree = _pytree()

    visits = count()
    # Everything except the first visited object is a leaf, even if an object contains itself.
    values, spec = pytree.tree_flatten(x, is_leaf=lambda _: next(visits) > 0)
    entries = None
    if not any(value is x for value in values):
        # A registration may lack the names of the values.
        with suppress(ValueError, IndexError):
            paths = [path for path, _ in pytree.tree_flatten_with_path(x, is_leaf=lambda y: y is not x)[0]]
            entries = [entry_of(path[0], pytree.GetAttrKey) for path in paths]
    if entries is None:
        entries = [item(index) for index in range(len(values))]

    def rebuild(others: Sequence[Any]) -> Any:
        return pytree.tree_unflatten(list(others), spec)

    return Node(entries, values, rebuild, registered=spec)
