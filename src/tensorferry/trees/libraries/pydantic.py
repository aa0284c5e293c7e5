"""Models of pydantic: their fields, extra values and private attributes.

A model is rebuilt without validation, because a validator may require another type.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...backends.nodes import Node, attribute
from ..containers import shallow_copy
from . import is_a

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["opener_of"]

_SETS = ("__pydantic_fields_set__", "__fields_set__")
"""The name since version 2, and the name before."""
_DICTS = ("__pydantic_extra__", "__pydantic_private__")


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens models; ``None`` for other types."""
    if is_a(kind, "pydantic", "BaseModel"):
        return _open
    return None


def _open(x: Any) -> Node:
    fields = [
        name for name in vars(x) if not isinstance(getattr(type(x), name, None), cached_property)
    ]
    more = {where: dict(extra) for where in _DICTS if (extra := getattr(x, where, None))}
    names = [*fields, *(name for extra in more.values() for name in extra)]

    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        given = next(where for where in _SETS if hasattr(x, where))
        object.__setattr__(result, given, copy(getattr(x, given)))
        left = iter(values)
        vars(result).update(zip(fields, left))  # noqa: B905 - what follows takes the others
        for where, extra in more.items():
            object.__setattr__(result, where, {name: next(left) for name in extra})
        return result

    held = [
        *(vars(x)[name] for name in fields),
        *(value for extra in more.values() for value in extra.values()),
    ]
    return Node([attribute(name) for name in names], held, rebuild)
