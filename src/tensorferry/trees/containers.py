"""The containers of Python that optree does not know: how each is opened, and made again with other values.

A container is made again from a shallow copy of itself: no constructor is called again that could check,
count or convert, and everything that is not a value of its own (attributes, fields that are no part of
``__init__``) comes along.
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

from ..backends.nodes import Node, attribute, item
from ..errors import UnsupportedTypeError, an

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

__all__ = ["is_tuple_with_a_constructor", "like", "open_attributes", "open_structured", "opener_of", "rest"]


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """What opens objects of a type, or ``None`` if they are no containers."""
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
            # Not `result[key] = value`: a subclass may refuse it, or do it to what has been through it already.
            put(result, key, value)
        _mirror(x, result)
        return result

    # Not `x.values()`: a subclass may hand out something else there.
    values = [dict.__getitem__(x, key) for key in keys]
    return Node([item(key) for key in keys], values, rebuild, _not_mirrored(x))


def _not_mirrored(x: dict[Any, Any]) -> dict[str, Any]:
    """The attributes of a dict that are not its items over again."""
    return {
        entry: value
        for entry, value in rest(x).items()
        if not (dict.__contains__(x, entry[1:]) and dict.__getitem__(x, entry[1:]) is value)
    }


def _mirror(x: dict[Any, Any], result: dict[Any, Any]) -> None:
    """Let attributes that are the items over again be so in the result too, as in model outputs."""
    attributes = getattr(x, "__dict__", None)
    if attributes is x:
        result.__dict__ = result
    elif attributes:
        for name, value in attributes.items():
            if dict.__contains__(x, name) and dict.__getitem__(x, name) is value:
                result.__dict__[name] = dict.__getitem__(result, name)


def _open_user_dict(x: UserDict[Any, Any]) -> Node:
    data: Any = x.data
    inside = _open_dict(data) if isinstance(data, dict) else _open_mapping(data)

    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        result.data = inside.rebuild(values)
        return result

    return inside._replace(rebuild=rebuild, static=dict(inside.static) | rest(x, ("data",)))


def _open_user_list(x: UserList[Any]) -> Node:
    data: Any = x.data
    inside = _open_list(data) if isinstance(data, list) else _open_tuple(tuple(data))

    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        result.data = inside.rebuild(values)
        return result

    return inside._replace(rebuild=rebuild, static=dict(inside.static) | rest(x, ("data",)))


def _open_mapping(x: Mapping[Any, Any]) -> Node:
    """A mapping that holds its values elsewhere; one that no dict makes (a file's) becomes a dict."""
    keys = list(x)

    def rebuild(values: Sequence[Any]) -> Any:
        plain = dict(zip(keys, values, strict=True))
        try:
            made: Any = type(x)(plain)  # type: ignore[call-arg]
            return made if list(made) == keys and all(made[key] is plain[key] for key in keys) else plain
        except Exception:  # noqa: BLE001 - whatever a class of somebody else's raises
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
            return tuple(values)  # a class of C's that holds numbers alone
        if hasattr(x, "__dict__"):
            result.__dict__.update(x.__dict__)
        return result

    return Node([attribute(name) for name in names] if names else _indices(x), held, rebuild, rest(x))


def _indices(x: Sized) -> list[str]:
    return [item(index) for index in range(len(x))]


def is_tuple_with_a_constructor(kind: type) -> bool:
    """Whether a type is made from a named tuple's: its constructor may do more than to hold what it is given.

    >>> from collections import namedtuple
    >>> point = namedtuple("Point", "x y")
    >>> is_tuple_with_a_constructor(point), is_tuple_with_a_constructor(type("Scaled", (point,), {}))
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
    """An object by some of its attributes; one that is not set yet is left out."""
    present = [name for name in names if hasattr(x, name)]

    def rebuild(values: Sequence[Any]) -> Any:
        result = like(x)
        for name, value in zip(present, values, strict=True):
            # Not `setattr`: a frozen class refuses it, and a converter would run again.
            object.__setattr__(result, name, value)
        return result

    values = [getattr(x, name) for name in present]
    return Node([attribute(name) for name in present], values, rebuild, rest(x, present))


def rest(x: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """What an object's ``__dict__`` holds besides its values, and what was computed of them, by what leads to it."""
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
    """An object of the same class with the same attributes, without asking the class for a copy if that can be.

    Raises:
        UnsupportedTypeError: It can be made neither so nor by `copy.copy`.
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
                getattr(result, "__dict__", {}).pop(name, None)  # of the values before
            elif isinstance(slot, MemberDescriptorType):
                # Through the slot itself: a frozen class refuses its own attributes. Some may not be set.
                with suppress(AttributeError, TypeError):
                    slot.__set__(result, slot.__get__(x))
    return result


def open_structured(x: np.ndarray[Any, Any]) -> Node:
    """A structured array, or one element of it, as a dict of its fields: views of the same memory."""
    names = x.dtype.names or ()

    def rebuild(values: Sequence[Any]) -> Any:
        return dict(zip(names, values, strict=True))

    return Node([item(name) for name in names], [np.asarray(x)[name] for name in names], rebuild)


def _copied(x: Any) -> Any:
    hint = "optree.register_pytree_node says how"
    try:
        result = copy.copy(x)
    except Exception as error:
        raise UnsupportedTypeError(f"{an(type(x).__name__, 'A')} cannot be made again: {error}", hint) from error
    if result is x or type(result) is not type(x):
        # Its class says that a copy of it is itself: it would be written into what came in.
        raise UnsupportedTypeError(
            f"{an(type(x).__name__, 'A')} cannot be made again: copy.copy(x) does not give another one.",
            hint,
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
