"""The containers of Python that optree does not know: how each is opened, and made again with other values.

A container is made again from a shallow copy of itself: no constructor is called again that could check,
count or convert, and everything that is not a value of its own (attributes, fields that are no part of
``__init__``) comes along.
"""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import MappingProxyType, MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnsupportedTypeError
from ..nodes import Node, attribute, item

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["open_structured", "opener_of"]


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """What opens objects of a type, or ``None`` if they are no containers."""
    for base, opener in _OPENERS:
        if issubclass(kind, base):
            return opener
    if is_dataclass(kind):
        return _open_dataclass
    return _open_attrs if hasattr(kind, "__attrs_attrs__") else None


def _open_dict(x: dict[Any, Any]) -> Node:
    keys = list(x)

    def rebuild(values: Sequence[Any]) -> Any:
        result = copy.copy(x)
        _must_be_another(result, x)
        for key, value in zip(keys, values, strict=True):
            result[key] = value
        return result

    # Not `x.values()`: a subclass may hand out something else there.
    return Node([item(key) for key in keys], [dict.__getitem__(x, key) for key in keys], rebuild)


def _open_user_dict(x: UserDict[Any, Any]) -> Node:
    keys = list(x.data)

    def rebuild(values: Sequence[Any]) -> Any:
        result = copy.copy(x)
        _must_be_another(result, x)
        result.data = dict(zip(keys, values, strict=True))
        return result

    return Node([item(key) for key in keys], list(x.data.values()), rebuild)


def _open_mapping(x: Mapping[Any, Any]) -> Node:
    """A mapping that holds its values elsewhere; one that no dict makes (a file's) becomes a dict."""
    keys = list(x)

    def rebuild(values: Sequence[Any]) -> Any:
        plain = dict(zip(keys, values, strict=True))
        try:
            made: Any = type(x)(plain)  # type: ignore[call-arg]
            return made if list(made) == keys else plain
        except Exception:  # noqa: BLE001 - whatever a class of somebody else's raises
            return plain

    return Node([item(key) for key in keys], [x[key] for key in keys], rebuild)


def _open_list(x: list[Any]) -> Node:
    def rebuild(values: Sequence[Any]) -> Any:
        result = copy.copy(x)
        _must_be_another(result, x)
        result[:] = values
        return result

    return Node([item(index) for index in range(len(x))], list(x), rebuild)


def _open_tuple(x: tuple[Any, ...]) -> Node:
    def rebuild(values: Sequence[Any]) -> Any:
        result = tuple.__new__(type(x), values)
        if hasattr(x, "__dict__"):
            result.__dict__.update(x.__dict__)
        return result

    return Node([item(index) for index in range(len(x))], list(x), rebuild)


def _open_namespace(x: SimpleNamespace) -> Node:
    names = list(vars(x))
    return _open_object(x, names)


def _open_dataclass(x: Any) -> Node:
    return _open_object(x, [field.name for field in fields(x)])


def _open_attrs(x: Any) -> Node:
    return _open_object(x, [field.name for field in type(x).__attrs_attrs__])


def _open_object(x: Any, names: Sequence[str]) -> Node:
    """An object with attributes; one that is not set yet is left out."""
    present = [name for name in names if hasattr(x, name)]

    def rebuild(values: Sequence[Any]) -> Any:
        result = _like(x)
        for name, value in zip(present, values, strict=True):
            # Not `setattr`: a frozen class refuses it, and a converter would run again.
            object.__setattr__(result, name, value)
        return result

    return Node([attribute(name) for name in present], [getattr(x, name) for name in present], rebuild)


def _like(x: Any) -> Any:
    """An object of the same class with the same attributes, without asking the class for a copy if that can be."""
    kind = type(x)
    try:
        result = object.__new__(kind)
    except TypeError:
        result = copy.copy(x)
        _must_be_another(result, x)
        return result
    if hasattr(x, "__dict__"):
        result.__dict__.update(x.__dict__)
    for base in kind.__mro__:
        for slot in vars(base).values():
            if isinstance(slot, MemberDescriptorType):
                # Through the slot itself: a frozen class refuses its own attributes.
                with suppress(AttributeError):
                    slot.__set__(result, slot.__get__(x))
    return result


def open_structured(x: np.ndarray[Any, Any]) -> Node:
    """A structured array, or one element of it, as a dict of its fields: views of the same memory."""
    names = x.dtype.names or ()

    def rebuild(values: Sequence[Any]) -> Any:
        return dict(zip(names, values, strict=True))

    return Node([item(name) for name in names], [np.asarray(x)[name] for name in names], rebuild)


def _must_be_another(result: Any, x: Any) -> None:
    """Refuse to write into the very object that came in.

    Raises:
        UnsupportedTypeError: Its class says that a copy of it is itself.
    """
    if result is x or type(result) is not type(x):
        raise UnsupportedTypeError(
            f"A {type(x).__name__} cannot be made again: copy.copy(x) does not give another one.",
            "optree.register_pytree_node says how",
        )


_OPENERS: tuple[tuple[Any, Callable[[Any], Node]], ...] = (
    (dict, _open_dict),
    (UserDict, _open_user_dict),
    (MappingProxyType, _open_mapping),
    (Mapping, _open_mapping),
    (list, _open_list),
    (tuple, _open_tuple),
    (SimpleNamespace, _open_namespace),
)
