"""Containers of libraries that are no frameworks: one file for each library, named as its top-level module.

Each has an ``opener_of(kind)``, as a backend has. It is asked only when its library has been imported by somebody
else, imports nothing of it, and registers nothing with it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from ... import registry
from ...errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...nodes import Node

__all__ = ["is_a", "opener_of", "same_framework"]

_MANY = 4096
_known: dict[type, Callable[[Any], Node] | None] = {}


@cache
def _names() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(__path__))


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """What opens objects of a type that is a library's container; ``None``: it is none of one that is known here."""
    try:
        return _known[kind]
    except KeyError:
        pass
    found = None
    for name in _names():
        if name in sys.modules and found is None:
            found = importlib.import_module(f".{name}", __name__).opener_of(kind)
    if len(_known) >= _MANY:
        _known.clear()
    _known[kind] = found
    return found


def is_a(kind: type, library: str, *names: str) -> bool:
    """Whether a type is, or is made from, a class of one of these names of a library.

    >>> from fractions import Fraction
    >>> is_a(Fraction, "numbers", "Rational"), is_a(Fraction, "numbers", "Integral")
    (True, False)
    """
    return any(base.__name__ in names and base.__module__.partition(".")[0] == library for base in kind.__mro__)


def same_framework(before: Any, after: Any) -> bool:
    """Whether a value is a tensor of the same framework as the one whose place it takes, or the same object."""
    if after is before or type(after) is type(before):
        return True
    try:
        return registry.backend_of(before) is registry.backend_of(after)
    except UnsupportedTypeError:
        return False
