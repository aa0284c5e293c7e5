"""Hugging Face's transformers: caches of keys and values; results of tokenizers and processors.

The cache of version 5 has layers with tensors as attributes; older ones have lists of tensors.
"""

from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING, Any

from ...backends import registry
from ...backends.nodes import Node, attribute
from ..containers import may_hold, open_plain_data, shallow_copy
from ..containers import opener_of as plain_opener_of
from . import is_a

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["opener_of"]

_CACHES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer")
_ENCODINGS = ("BatchEncoding", "BatchFeature")


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens caches, their layers, and encodings; ``None`` for other types."""
    if is_a(kind, "transformers", *_CACHES):
        return _open_cache
    if is_a(kind, "transformers", *_ENCODINGS) and issubclass(kind, UserDict):
        return _open_encoding
    return None


def _open_cache(x: Any) -> Node:
    """Open a cache or layer as a container of attributes, without counts, flags and the like."""
    held = {name: value for name, value in vars(x).items() if not _is_static(value)}
    static = {attribute(name): value for name, value in vars(x).items() if name not in held}

    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        for name, value in vars(x).items():
            if isinstance(value, (dict, list, set)):
                vars(result)[name] = value.copy()
        vars(result).update(zip(held, values, strict=True))
        _say_where(x, result)
        return result

    return Node([attribute(name) for name in held], list(held.values()), rebuild, static)


def _is_static(value: Any) -> bool:
    """Whether an attribute is a plain value, or a dict of plain values, and so stays as it is."""
    if isinstance(value, dict):
        return not any(
            may_hold(kind) or registry.is_tensor(kind) for kind in set(map(type, value.values()))
        )
    return not (may_hold(type(value)) or registry.is_tensor(type(value)))


def _say_where(x: Any, result: Any) -> None:
    """Set a layer's ``dtype`` and ``device`` to its new keys', if they were its old keys'."""
    before, after = getattr(x, "keys", None), getattr(result, "keys", None)
    for name in ("dtype", "device"):
        if name in vars(x) and type(getattr(after, name, None)) is type(
            getattr(before, name, None)
        ) is type(vars(x)[name]):
            vars(result)[name] = getattr(after, name)


def _open_encoding(x: Any) -> Node:
    def stack(values: Sequence[Any], _: int) -> Any:
        result = node.rebuild(values)
        # The tokenizer's notes about one text are wrong for a batch.
        vars(result).update({name: None for name in ("_encodings",) if name in vars(x)})
        return result

    node: Node
    data = x.data
    if type(data) is dict:
        node = open_plain_data(x, data.copy(), {}, stack)
    else:
        opener: Any = plain_opener_of(UserDict)
        node = opener(x)._replace(static={}, stack=stack)
    return node
