"""`Node`: an opened container, for backends that know a framework's containers, and for `trees`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..hints import Hint

__all__ = ["Entries", "Node", "as_dict", "attribute", "dotted", "entry_of", "item"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Entries(Sequence[str]):
    """The parts of paths for many keys, which are spelled when they are looked at.

    >>> list(Entries(["a", 1], item))
    ['["a"]', '[1]']

    Args:
        keys: The keys.
        spell: Gives the part for a key.
    """

    __slots__ = ("_keys", "_spell")

    def __init__(self, keys: Sequence[Any], spell: Callable[[Any], str]) -> None:
        self._keys = keys
        self._spell = spell

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._spell(key) for key in self._keys[index]]
        return self._spell(self._keys[index])

    def __iter__(self) -> Iterator[str]:
        return map(self._spell, self._keys)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Entries) and self._spell is other._spell:
            mine, theirs = [*self._keys], [*other._keys]
            if {*map(type, mine), *map(type, theirs)} <= {str}:
                return mine == theirs  # which need not be spelled to be compared
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]


class Node(NamedTuple):
    """An opened container.

    Args:
        entries: The part of the path for each value: ``.weight``, ``["weight"]``, ``[3]``.
        values: Its values, in order.
        rebuild: Makes the container again from as many other values.
        static: Its attributes that are not values, by their paths. The rebuilt container has the
            same.
        registered: The static data that its registration with a framework defines.
        stack: Makes one container for so many samples from stacked values; ``None``: as `rebuild`
            does.
        no_batch: Why it cannot be stacked, and a hint; ``None`` if it can.
        held: Gives the values of each of some objects of its type by key, in one pass; ``None`` if
            one may be otherwise than it.
    """

    entries: Sequence[str]
    values: Sequence[Any]
    rebuild: Callable[[Sequence[Any]], Any]
    static: Mapping[str, Any] = _NOTHING
    registered: Any = None
    stack: Callable[[Sequence[Any], int], Any] | None = None
    no_batch: tuple[str, str | Hint] | None = None
    held: Callable[[Sequence[Any]], list[dict[Any, Any]] | None] | None = None


def as_dict(held: Mapping[Any, Any]) -> Node:
    """Named values as a container, which is rebuilt as a dict."""
    return Node(
        [item(key) for key in held],
        list(held.values()),
        lambda values: dict(zip(held, values, strict=True)),
    )


def item(key: object) -> str:
    """The part of a path for a key or an index.

    >>> item("encoder"), item(3)
    ('["encoder"]', '[3]')
    """
    return f"[{_quoted()(key) if isinstance(key, str) else repr(key)}]"


@cache
def _quoted() -> Callable[[str], str]:
    """The function that quotes text as JSON does."""
    from json.encoder import encode_basestring  # only paths need it, which are for people

    return encode_basestring


def attribute(name: str) -> str:
    """The part of a path for an attribute.

    >>> attribute("weight")
    '.weight'
    """
    return f".{name}"


def entry_of(key: Any, of_attributes: Any) -> str:
    """A path's part for a framework's own key: of a class for attributes, or an index or a key."""
    if isinstance(key, of_attributes):
        return attribute(key.name)
    if hasattr(key, "idx"):
        return item(key.idx)
    # A key of an unknown class only has a text.
    return item(key.key) if hasattr(key, "key") else str(key)


def dotted(step: str) -> str:
    """A part of a path, as a part of a dotted name.

    >>> dotted('["encoder"]') + dotted("[3]") + dotted(".weight")
    '.encoder.3.weight'
    """
    if step[:2] == '["':
        import json

        return f".{json.loads(step[1:-1])}"
    if step[:1] == "[":
        return f".{step[1:-1]}"
    return f".{step.removeprefix('.')}"
