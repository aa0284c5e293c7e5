"""Containers of Python that optree does not know: how to open them, and to rebuild them with other values.

A container is rebuilt from a shallow copy of itself. So no constructor runs again, which could
check, count or convert, and attributes that are not values of the container are kept.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import MappingProxyType, MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.nodes import Node, as_dict, attribute, item
from ..errors import UnsupportedTypeError, an

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

__all__ = [
    "is_tuple_with_a_constructor",
    "like",
    "open_attributes",
    "open_structured",
    "opener_of",
    "rest",
]


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens objects of a type; ``None`` if they are not containers."""
    for base, opener in _OPENERS:
        if issubclass(kind, base):
            return opener
    argparse: Any = sys.modules.get("argparse")
    if argparse is not None and issubclass(kind, argparse.Namespace):
        return _open_namespace
    if is_dataclass(kind):
        return _open_dataclass
    return _open_attrs if hasattr(kind, "__attrs_attrs__") else None


def _open_dict(x: dict[Any, Any]) -> Node:
    keys = list(x)
    put = OrderedDict.__setitem__ if isinstance(x, OrderedDict) else dict.__setitem__

    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        for key, value in zip(keys, values, strict=True):
            # Not `result[key] = value`, because a subclass may refuse or convert values.
            put(result, key, value)
        _mirror(x, result)
        return result

    # Not `x.values()`, which a subclass may have changed.
    values = [dict.__getitem__(x, key) for key in keys]
    return Node([item(key) for key in keys], values, rebuild, _not_mirrored(x))


def _not_mirrored(x: dict[Any, Any]) -> dict[str, Any]:
    """The attributes of a dict that are not also its items."""
    return {
        entry: value
        for entry, value in rest(x).items()
        if not (dict.__contains__(x, entry[1:]) and dict.__getitem__(x, entry[1:]) is value)
    }


def _mirror(x: dict[Any, Any], result: dict[Any, Any]) -> None:
    """Set attributes that are also items (as in model outputs) to the new items."""
    attributes = getattr(x, "__dict__", None)
    if attributes is x:
        result.__dict__ = result
    elif attributes:
        for name, value in attributes.items():
            if dict.__contains__(x, name) and dict.__getitem__(x, name) is value:
                result.__dict__[name] = dict.__getitem__(result, name)


def _open_user_dict(x: UserDict[Any, Any]) -> Node:
    data: Any = x.data
    return _open_data(x, _open_dict(data) if isinstance(data, dict) else _open_mapping(data))


def _open_user_list(x: UserList[Any]) -> Node:
    data: Any = x.data
    return _open_data(x, _open_list(data) if isinstance(data, list) else _open_tuple(tuple(data)))


def _open_data(x: Any, inside: Node) -> Node:
    """Open an object that keeps its values in a container, its attribute ``data``."""

    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        result.data = inside.rebuild(values)
        return result

    return inside._replace(rebuild=rebuild, static=dict(inside.static) | rest(x, ("data",)))


def _open_mapping(x: Mapping[Any, Any]) -> Node:
    """A mapping of any class.

    It becomes a dict if its class cannot be made from one (the mapping of a file).
    """
    keys = list(x)

    def rebuild(values: Sequence[Any]) -> Any:
        plain = dict(zip(keys, values, strict=True))
        try:
            made: Any = type(x)(plain)  # type: ignore[call-arg]
            return (
                made
                if list(made) == keys and all(made[key] is plain[key] for key in keys)
                else plain
            )
        except Exception:  # noqa: BLE001 - what a class of another library raises
            return plain

    return Node([item(key) for key in keys], [x[key] for key in keys], rebuild)


def _open_list(x: list[Any]) -> Node:
    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        list.__setitem__(result, slice(None), values)
        return result

    return Node(_indices(x), list(list.__iter__(x)), rebuild, rest(x))


def _open_deque(x: deque[Any]) -> Node:
    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        deque.__init__(result, values, x.maxlen)
        return result

    return Node(_indices(x), list(deque.__iter__(x)), rebuild, rest(x))


def _open_tuple(x: tuple[Any, ...]) -> Node:
    held = list(tuple.__iter__(x))
    names = getattr(x, "_fields", None)

    def rebuild(values: Sequence[Any]) -> Any:
        if all(value is before for value, before in zip(values, held, strict=True)):
            return x
        try:
            result: Any = tuple.__new__(type(x), values)
        except TypeError:
            return tuple(values)  # a class in C that takes only numbers
        if hasattr(x, "__dict__"):
            result.__dict__.update(x.__dict__)
        return result

    return Node(
        [attribute(name) for name in names] if names else _indices(x), held, rebuild, rest(x)
    )


def _indices(x: Sized) -> list[str]:
    return [item(index) for index in range(len(x))]


def is_tuple_with_a_constructor(kind: type) -> bool:
    """Whether a type is a subclass of a named tuple, with a constructor that may do more than keep its arguments.

    >>> from collections import namedtuple
    >>> point = namedtuple("Point", "x y")
    >>> (
    ...     is_tuple_with_a_constructor(point),
    ...     is_tuple_with_a_constructor(type("Scaled", (point,), {})),
    ... )
    (False, True)
    """
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and tuple not in kind.__bases__


def _open_namespace(x: Any) -> Node:
    return open_attributes(x, list(vars(x)))


def _open_dataclass(x: Any) -> Node:
    return open_attributes(x, [field.name for field in fields(x)])


def _open_attrs(x: Any) -> Node:
    return open_attributes(x, [field.name for field in type(x).__attrs_attrs__])


def open_attributes(x: Any, names: Sequence[str]) -> Node:
    """Open an object as a container of some of its attributes, without those that are not set."""
    present = [name for name in names if hasattr(x, name)]

    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        for name, value in zip(present, values, strict=True):
            # Not `setattr`, which a frozen class refuses, and which would run converters again.
            object.__setattr__(result, name, value)
        return result

    values = [getattr(x, name) for name in present]
    return Node([attribute(name) for name in present], values, rebuild, rest(x, present))


def rest(x: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """The entries of an object's ``__dict__`` that are neither its values nor cached results, by their paths."""
    attributes = getattr(x, "__dict__", None)
    if not attributes or attributes is x or attributes.keys() <= set(names):
        return {}
    kind = type(x)
    return {
        attribute(name): value
        for name, value in attributes.items()
        if name not in names and not isinstance(getattr(kind, name, None), cached_property)
    }


def like(x: Any) -> Any:
    """An object of the same class with the same attributes, if possible without the class's own copy method.

    Raises:
        UnsupportedTypeError: It can be made neither in this way nor by `copy.copy`.
    """
    kind = type(x)
    base = next((base for base in (dict, list, deque, object) if isinstance(x, base)), object)
    try:
        result: Any = base.__new__(kind)
    except TypeError:
        return _copied(x)
    attributes = getattr(x, "__dict__", None)
    if attributes and attributes is not x:
        result.__dict__.update(attributes)
    for each in kind.__mro__:
        for name, slot in vars(each).items():
            if isinstance(slot, cached_property):
                getattr(result, "__dict__", {}).pop(name, None)  # a cached result of the old values
            elif isinstance(slot, MemberDescriptorType):
                # Through the slot, because a frozen class refuses attributes. Some slots may not be
                # set.
                with suppress(AttributeError, TypeError):
                    slot.__set__(result, slot.__get__(x))
    return result


def open_structured(x: np.ndarray[Any, Any]) -> Node:
    """Open a structured array, or one element of it, as a dict of its fields, which are views."""
    return as_dict({name: np.asarray(x)[name] for name in x.dtype.names or ()})


def _copied(x: Any) -> Any:
    how = "optree.register_pytree_node can say how"
    try:
        result = copy.copy(x)
    except Exception as error:
        raise UnsupportedTypeError(
            f"{an(type(x).__name__, 'A')} cannot be made again: {error} ({how})"
        ) from error
    if result is x or type(result) is not type(x):
        # `copy.copy` gives the object itself, so the result would be written into the source.
        raise UnsupportedTypeError(
            f"{an(type(x).__name__, 'A')} cannot be made again: copy.copy(x) does not give another one ({how})."
        )
    return result


_OPENERS: tuple[tuple[Any, Callable[[Any], Node]], ...] = (
    (dict, _open_dict),
    (UserDict, _open_user_dict),
    (MappingProxyType, _open_mapping),
    (Mapping, _open_mapping),
    (list, _open_list),
    (UserList, _open_user_list),
    (deque, _open_deque),
    (tuple, _open_tuple),
    (SimpleNamespace, _open_namespace),
)
