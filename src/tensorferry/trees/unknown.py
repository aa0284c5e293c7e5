"""Find a tensor inside an object that is not a container, without running any code of the object.

The search goes through the attributes in ``__dict__`` and ``__slots__``, through lists, tuples,
sets and dicts in them, and through the attributes of objects in them, three levels deep; also
through a `functools.partial` and a slice. It does not go through functions, classes and modules,
whose references are not data, nor through iterators, which it would exhaust.
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
"""Types that hold nothing, and are never containers."""
_DICTS: tuple[dict[Any, Any], ...] = ({}, OrderedDict())
_VIEWS = tuple(type(view) for made in _DICTS for view in (made.keys(), made.values(), made.items()))
_ROWS = (list, tuple, set, frozenset, deque, *_VIEWS)
_CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
_WITH_MEMBERS = (partial, slice)
"""Types in C that hold their arguments like a class with ``__slots__``."""
# From Python 3.12 on, the iterator of a deque says that it is of collections.
_OF_PYTHON = frozenset({"builtins", "_collections", "collections", "itertools"})
_OF_PLAIN = frozenset(
    {itertools.count, *(type(iter(x)) for x in (range(0), range(2**64), "", "é", b"", bytearray()))}
)
"""Iterators whose elements are certainly not tensors."""
_Attributes = tuple[GetSetDescriptorType | None, tuple[tuple[str, MemberDescriptorType], ...]]
_known: WeakKeyDictionary[type, _Attributes] = WeakKeyDictionary()
_LEVELS = 4
"""The attributes of the object, and three levels below."""


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
    """Whether objects of a type of Python are iterators that may give tensors.

    To look would exhaust them.

    >>> (
    ...     is_used_up(map),
    ...     is_used_up(type(iter([]))),
    ...     is_used_up(type(iter("text"))),
    ...     is_used_up(list),
    ... )
    (True, True, False, False)
    """
    return kind not in _OF_PLAIN and any(
        "__next__" in vars(base) and base.__module__ in _OF_PYTHON for base in kind.__mro__
    )


def tensor_inside(
    x: Any, is_tensor: Callable[[Any], bool], goes_on: Callable[[type], bool]
) -> str | None:
    """The path to the first tensor inside an object; ``None`` if there is none.

    Args:
        x: The object, which is not a tensor itself.
        is_tensor: Whether an object is a tensor.
        goes_on: Whether objects of a type may be searched to the full depth again.
    """
    return _inside(x, is_tensor, goes_on, _LEVELS, {})


def _inside(
    x: Any,
    is_tensor: Callable[[Any], bool],
    goes_on: Callable[[type], bool],
    levels: int,
    seen: dict[int, int],
) -> str | None:
    for key, value, entry in _held(x):
        kind = type(value)
        if kind in PLAIN:
            continue
        if is_tensor(value):
            return entry(key)
        left = _LEVELS if goes_on(kind) else levels - 1
        # An object that has been searched to this depth already is skipped.
        if left and seen.get(id(value), 0) < left and may_hold(kind):
            seen[id(value)] = left
            found = _inside(value, is_tensor, goes_on, left, seen)
            if found is not None:
                return entry(key) + found
    return None


def _held(x: Any) -> Iterator[tuple[Any, Any, Callable[[Any], str]]]:
    """Yield each object inside an object: its key, the object, and a function that spells the key as a path."""
    # By the type, because `isinstance` may run code: an object can define `__class__`.
    kind = type(x)
    if issubclass(kind, dict):
        if not PLAIN.issuperset(map(type, dict.values(x))):
            yield from ((key, value, _item) for key, value in list(dict.items(x)))
    elif issubclass(kind, _ROWS):
        # With the iterator of the base class, because that of a subclass may run any code.
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
    """The descriptors that give the ``__dict__`` and the slots of a type's objects."""
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
    # A property with this name would run code.
    found = held if isinstance(held, GetSetDescriptorType) else None, tuple(slots)
    _known[kind] = found
    return found
