"""One opened container of a tree: what both a backend that knows a framework's containers and `trees` speak of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Node", "attribute", "item"]


class Node(NamedTuple):
    """An opened container.

    Args:
        entries: What leads to each value: ``.weight``, ``["weight"]``, ``[3]``.
        values: Its values, in order.
        rebuild: Makes the container again from as many other values.
    """

    entries: Sequence[str]
    values: Sequence[Any]
    rebuild: Callable[[Sequence[Any]], Any]


def item(key: object) -> str:
    """What leads to the value under a key or an index.

    >>> item("encoder"), item(3)
    ('["encoder"]', '[3]')
    """
    return f"[{json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)}]"


def attribute(name: str) -> str:
    """What leads to an attribute.

    >>> attribute("weight")
    '.weight'
    """
    return f".{name}"
