"""Containers of libraries that are no frameworks: a file for each, named as its top-level module.

Each has an ``opener_of(kind)`` and may have a ``refusal(kind)``, as backends do. They are called
only if the library has been imported. They import nothing from it, and register nothing with it.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ...backends import registry
from ...errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...backends.nodes import Node
    from ...hints import Hint

__all__ = ["is_a", "opener_of", "refusal_of", "same_framework"]

_MANY = 4096
_Known = tuple["Callable[[Any], Node] | None", "tuple[str, Hint] | None"]
_known: dict[type, _Known] = {}


@cache
def _names() -> tuple[str, ...]:
    import pkgutil

    return tuple(module.name for module in pkgutil.iter_modules(__path__))


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens a library type's containers; ``None`` if it is not known here."""
    return _look(kind)[0]


def refusal_of(kind: type) -> UnsupportedTypeError | None:
    """The error for a library type's objects that must not be converted; ``None`` if none."""
    words = _look(kind)[1]
    if words is None:
        return None
    return UnsupportedTypeError(*words)


def _look(kind: type) -> _Known:
    try:
        return _known[kind]
    except KeyError:
        pass
    opener, words = None, None
    for name in _names():
        if sys.modules.get(name) is not None:
            library: Any = importlib.import_module(f".{name}", __name__)
            opener = opener or library.opener_of(kind)
            words = words or (library.refusal(kind) if hasattr(library, "refusal") else None)
    if len(_known) >= _MANY:
        _known.clear()
    _known[kind] = opener, words
    return opener, words


def is_a(kind: type, library: str, *names: str) -> bool:
    """Whether a type is a class of a library with one of these names, or a subclass of it.

    >>> from fractions import Fraction
    >>> is_a(Fraction, "numbers", "Rational"), is_a(Fraction, "numbers", "Integral")
    (True, False)
    """
    return _is_a(kind, library, names)


@lru_cache(maxsize=256)
def _is_a(kind: Hashable, library: str, names: tuple[str, ...]) -> bool:
    bases: Any = kind
    return any(
        base.__name__ in names and base.__module__.partition(".")[0] == library
        for base in bases.__mro__
    )


def same_framework(before: Any, after: Any) -> bool:
    """Whether a new value is the same object as the old one, or a tensor of the same framework."""
    if after is before or type(after) is type(before):
        return True
    try:
        return registry.backend_of(before) is registry.backend_of(after)
    except UnsupportedTypeError:
        return False
