"""Containers of libraries that are no frameworks: one file for each library, named as its top-level module.

Each has an ``opener_of(kind)``, as a backend has, and may have a ``refusal(kind)`` like a backend's. They are asked
only when the library has been imported by somebody else, import nothing of it, and register nothing with it.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from ...backends import registry
from ...errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...backends.nodes import Node

__all__ = ["is_a", "opener_of", "refusal_of", "same_framework"]

_MANY = 4096
_Known = tuple["Callable[[Any], Node] | None", "tuple[str, str] | None"]
_known: dict[type, _Known] = {}


@cache
def _names() -> tuple[str, ...]:
    import pkgutil

    return tuple(module.name for module in pkgutil.iter_modules(__path__))


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """What opens objects of a type that is a library's container; ``None``: it is none of one that is known here."""
    return _look(kind)[0]


def refusal_of(kind: type) -> UnsupportedTypeError | None:
    """Why objects of a library's type are no containers, and what is one; ``None``: it has no words for that."""
    words = _look(kind)[1]
    return None if words is None else UnsupportedTypeError(*words)


def _look(kind: type) -> _Known:
    try:
        return _known[kind]
    except KeyError:
        pass
    opener, words = None, None
    for name in _names():
        if name in sys.modules:
            library: Any = importlib.import_module(f".{name}", __name__)
            opener = opener or library.opener_of(kind)
            words = words or (library.refusal(kind) if hasattr(library, "refusal") else None)
    if len(_known) >= _MANY:
        _known.clear()
    _known[kind] = opener, words
    return opener, words


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
