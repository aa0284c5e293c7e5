"""Where an object that is no container holds a tensor: looked for without running any of its code.

What is looked through are the attributes that an object has in ``__dict__`` or in ``__slots__``, lists, tuples, sets
and dicts in them, and the attributes of objects in them, three levels deep; so is what a `functools.partial` and a
slice hold. Functions, classes and modules are not: what they refer to is no data of theirs. Nor are iterators, which
looking uses up.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..backends.nodes import attribute, item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PLAIN", "is_used_up", "may_hold", "tensor_inside"]

PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, range})
_DICTS: tuple[dict[Any, Any], ...] = ({}, OrderedDict())
_VIEWS = tuple(type(view) for made in _DICTS for view in (made.keys(), made.values(), made.items()))
_ROWS = (list, tuple, set, frozenset, deque, *_VIEWS)
_CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
_WITH_MEMBERS = (partial, slice)
"""Types of C's that hold what they were given as a class with ``__slots__`` does."""
_OF_PYTHON = frozenset({"builtins", "_collections", "itertools"})
_OF_PLAIN = frozenset({itertools.count, *(type(iter(x)) for x in (range(0), range(2**64), "", "é", b"", bytearray()))})
"""Iterators whose elements are certainly no tensors."""
_Attributes = tuple[GetSetDescriptorType | None, tuple[tuple[str, MemberDescriptorType], ...]]
_known: WeakKeyDictionary[type, _Attributes] = WeakKeyDictionary()
_LEVELS = 4
"""The attributes, and three levels in them."""


def may_hold(kind: type) -> bool:
    """Whether objects of a type can hold anything.

    >>> may_hold(object), may_hold(Exception)
    (False, True)
    """
    if kind in PLAIN or issubclass(kind, _CODE):
        return False
    if is_used_up(kind):
        return True
    found, slots = _attributes_of(kind)
    return found is not None or bool(slots) or issubclass(kind, (dict, *_ROWS))


def is_used_up(kind: type) -> bool:
    """Whether objects of a type of Python's may give tensors, each once: nobody can look without using them up.

    >>> is_used_up(map), is_used_up(type(iter([]))), is_used_up(type(iter("text"))), is_used_up(list)
    (True, True, False, False)
    """
    return kind not in _OF_PLAIN and any(
        "__next__" in vars(base) and base.__module__ in _OF_PYTHON for base in kind.__mro__
    )


def tensor_inside(x: Any, is_tensor: Callable[[Any], bool], goes_on: Callable[[type], bool]) -> str | None:
    """What leads to the first tensor that an object holds; ``None``: it holds none.

    Args:
        x: The object; it is no tensor itself.
        is_tensor: Whether another object is one.
        goes_on: Whether to look as deep again inside objects of a type.
    """
    return _inside(x, is_tensor, goes_on, _LEVELS, {})


def _inside(
    x: Any, is_tensor: Callable[[Any], bool], goes_on: Callable[[type], bool], levels: int, seen: dict[int, int]
) -> str | None:
    for key, value, entry in _held(x):
        kind = type(value)
        if kind in PLAIN:
            continue
        if is_tensor(value):
            return entry(key)
        left = _LEVELS if goes_on(kind) else levels - 1
        # As deep as it has been looked at, there is nothing new.
        if left and seen.get(id(value), 0) < left and may_hold(kind):
            seen[id(value)] = left
            found = _inside(value, is_tensor, goes_on, left, seen)
            if found is not None:
                return entry(key) + found
    return None


def _held(x: Any) -> Iterator[tuple[Any, Any, Callable[[Any], str]]]:
    """Each thing that an object holds: its key, itself, and what a key's place is called."""
    # Of the type: `isinstance` asks an object for its class too, which can be code.
    kind = type(x)
    if issubclass(kind, dict):
        if not PLAIN.issuperset(map(type, dict.values(x))):
            yield from ((key, value, _item) for key, value in list(dict.items(x)))
    elif issubclass(kind, _ROWS):
        # As its base class iterates: a subclass may do anything.
        base: Any = next(base for base in _ROWS if issubclass(kind, base))
        rows = list(base.__iter__(x))
        if not PLAIN.issuperset(map(type, rows)):
            yield from ((index, value, _item) for index, value in enumerate(rows))
    attributes, slots = _attributes_of(kind)
    if attributes is not None:
        yield from ((name, value, attribute) for name, value in list(attributes.__get__(x).items()))
    for name, slot in slots:
        try:
            yield name, slot.__get__(x), attribute
        except AttributeError:
            continue  # not set


def _item(key: Any) -> str:
    plain = type(key) in PLAIN or (type(key) is tuple and PLAIN.issuperset(map(type, key)))
    return item(key) if plain else f"[a {type(key).__name__}]"


def _attributes_of(kind: type) -> _Attributes:
    """What gives the ``__dict__`` of a type's objects, and what gives each of their slots."""
    known = _known.get(kind)
    if known is not None:
        return known
    held = next((vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base)), None)
    slots = [
        (name, slot)
        for base in kind.__mro__
        if "__slots__" in vars(base) or base in _WITH_MEMBERS
        for name, slot in vars(base).items()
        if isinstance(slot, MemberDescriptorType)
    ]
    # A property of that name is code.
    found = held if isinstance(held, GetSetDescriptorType) else None, tuple(slots)
    _known[kind] = found
    return found
