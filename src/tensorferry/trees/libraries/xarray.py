"""xarray: datasets become dicts of variables and coordinates; trees of them, dicts of dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...backends.nodes import as_dict
from . import is_a

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...backends.nodes import Node

__all__ = ["opener_of"]


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens datasets and trees of datasets; ``None`` for other types."""
    if is_a(kind, "xarray", "DataTree"):
        return _open_tree
    if is_a(kind, "xarray", "Dataset"):
        return _open_dataset
    return None


# As mappings they would lose their coordinates.


def _open_dataset(x: Any) -> Node:
    return as_dict(dict(x.variables))


def _open_tree(x: Any) -> Node:
    return as_dict({**x.to_dataset().variables, **x.children})
