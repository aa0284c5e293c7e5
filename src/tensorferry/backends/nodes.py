"""One opened container of a tree: what both a backend that knows a framework's containers and `trees` speak of."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Node", "attribute", "dotted", "item"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Node(NamedTuple):
    """An opened container.

    Args:
        entries: What leads to each value: ``.weight``, ``["weight"]``, ``[3]``.
        values: Its values, in order.
        rebuild: Makes the container again from as many other values.
        static: What it has beside its values, by what leads to it; the same in the container that is made again.
        registered: What its registration keeps of it beside its values.
        stack: Makes one container for so many samples from stacked values; ``None``: as `rebuild` does.
        no_batch: Why it cannot be stacked, and what to do; ``None``: it can.
    """

    entries: Sequence[str]
    values: Sequence[Any]
    rebuild: Callable[[Sequence[Any]], Any]
    static: Mapping[str, Any] = _NOTHING
    registered: Any = None
    stack: Callable[[Sequence[Any], int], Any] | None = None
    no_batch: tuple[str, str] | None = None


def item(key: object) -> str:
    """What leads to the value under a key or an index.

    >>> item("encoder"), item(3)
    ('["encoder"]', '[3]')
    """
    return f"[{_quoted()(key) if isinstance(key, str) else repr(key)}]"


@cache
def _quoted() -> Callable[[str], str]:
    """What puts text between quotes, as JSON does."""
    from json.encoder import encode_basestring  # only paths need it, which are for people

    return encode_basestring


def attribute(name: str) -> str:
    """What leads to an attribute.

    >>> attribute("weight")
    '.weight'
    """
    return f".{name}"


def dotted(step: str) -> str:
    """What leads to a value, as a part of a dotted name.

    >>> dotted('["encoder"]') + dotted("[3]") + dotted(".weight")
    '.encoder.3.weight'
    """
    if step[:2] == '["':
        import json

        return f".{json.loads(step[1:-1])}"
    return f".{step[1:-1]}" if step[:1] == "[" else f".{step.removeprefix('.')}"
