"""Containers: which objects are, what each opens to, and objects that nobody knows."""

from __future__ import annotations

import copy
import itertools
import sys
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from itertools import repeat
from operator import attrgetter
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ..backends import registry
from ..backends.base import Backend
from ..backends.nodes import Entries, Node, as_dict, attribute, item
from ..core.info import TensorInfo
from ..core.named_tuple import NamedTuple
from ..errors import UnsupportedTypeError, an
from ..host.masked import has_masked
from . import libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized

    Opener = Callable[[Any], Node | None]
    Opened = tuple[Any, Collection[Any]]

__all__ = [
    "BUILT_IN",
    "PLAIN",
    "Opening",
    "is_mapping",
    "is_opened",
    "is_tuple_with_a_constructor",
    "is_used_up",
    "make_node",
    "may_hold",
    "may_open",
    "open_attributes",
    "open_plain_data",
    "opener_of",
    "openers_of",
    "openings_of",
    "other_attributes",
    "shallow_copy",
    "tensor_inside",
]


# -- containers ------------------------------------------------------------------------------------
#
# A container is rebuilt from a shallow copy of itself. So no constructor runs again, which could
# check, count or convert, and attributes that are not values of the container are kept.


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens objects of a type; ``None`` if they are not containers."""
    for base in kind.__mro__:
        if base in _OPENERS:
            return _OPENERS[base]
    if is_mapping(kind):
        return _open_mapping
    argparse: Any = sys.modules.get("argparse")
    if argparse is not None and issubclass(kind, argparse.Namespace):
        return _open_namespace
    names = _names_of_fields(kind)
    return None if names is None else partial(open_attributes, names=names)


def is_mapping(kind: type) -> bool:
    """Whether objects of a type are mappings.

    >>> is_mapping(dict), is_mapping(list), is_mapping(object)
    (True, False, False)
    """
    # `Mapping` asks all its subclasses about each new class, which takes 20 us.
    return hasattr(kind, "__getitem__") and issubclass(kind, Mapping)


def _names_of_fields(kind: type) -> tuple[str, ...] | None:
    """The names of the fields of a dataclass, or of a class of attrs; ``None`` for others."""
    if is_dataclass(kind):
        fields_found: Any = fields(kind)
    else:
        fields_found = getattr(kind, "__attrs_attrs__", None)
    return None if fields_found is None else tuple([field.name for field in fields_found])


def _open_dict(x: dict[Any, Any]) -> Node:
    keys = list(x)
    if isinstance(x, OrderedDict):
        put = OrderedDict.__setitem__
    else:
        put = dict.__setitem__

    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        # Not `result[key] = value`, because a subclass may refuse or convert values.
        for _ in map(put, repeat(result), keys, values):
            pass
        _mirror(x, result)
        return result

    # Not `x.values()`, which a subclass may have changed.
    values = list(map(dict.__getitem__, repeat(x), keys))
    return Node(Entries(keys, item), values, rebuild, _not_mirrored(x))


def _not_mirrored(x: dict[Any, Any]) -> dict[str, Any]:
    """The attributes of a dict that are not also its items."""
    return {
        entry: value
        for entry, value in other_attributes(x).items()
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


def _open_data(x: UserDict[Any, Any] | UserList[Any]) -> Node:
    """Open an object that keeps its values in a container, its attribute ``data``."""
    data: Any = x.data
    if type(data) is dict:
        return open_plain_data(x, data.copy(), other_attributes(x, ("data",)))
    opener: Any = opener_of(type(data))
    inside: Node = opener(data)

    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        result.data = inside.rebuild(values)
        return result

    return inside._replace(
        rebuild=rebuild, static=dict(inside.static) | other_attributes(x, ("data",))
    )


def open_plain_data(
    x: Any,
    data: dict[Any, Any],
    static: Mapping[str, Any],
    stack: Callable[[Sequence[Any], int], Any] | None = None,
) -> Node:
    """Open an object whose attribute ``data`` is a plain dict.

    Args:
        x: The object.
        data: A copy of the dict.
        static: Its other attributes, by their paths.
        stack: See `Node`.
    """

    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        result.data = dict(zip(data, values, strict=True))
        return result

    return Node(Entries([*data], item), [*data.values()], rebuild, static, stack=stack)


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

    return Node(Entries(keys, item), [x[key] for key in keys], rebuild)


def _open_list(x: list[Any]) -> Node:
    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        list.__setitem__(result, slice(None), values)
        return result

    return Node(_indices(x), list(list.__iter__(x)), rebuild, other_attributes(x))


def _open_deque(x: deque[Any]) -> Node:
    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        deque.__init__(result, values, x.maxlen)
        return result

    return Node(_indices(x), list(deque.__iter__(x)), rebuild, other_attributes(x))


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
        [attribute(name) for name in names] if names else _indices(x),
        held,
        rebuild,
        other_attributes(x),
    )


def _indices(x: Sized) -> Entries:
    return Entries(range(len(x)), item)


def is_tuple_with_a_constructor(kind: type) -> bool:
    """Whether a type is a named tuple's subclass: its constructor may do more than keep arguments.

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


def open_attributes(x: Any, names: Sequence[str]) -> Node:
    """Open an object as a container of some of its attributes, without those that are not set."""
    present = [name for name in names if hasattr(x, name)]

    def rebuild(values: Sequence[Any]) -> Any:
        result = shallow_copy(x)
        for name, value in zip(present, values, strict=True):
            # Not `setattr`, which a frozen class refuses, and which would run converters again.
            object.__setattr__(result, name, value)
        return result

    values = [getattr(x, name) for name in present]
    return Node(Entries(present, attribute), values, rebuild, other_attributes(x, present))


def other_attributes(x: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """An object's ``__dict__`` entries that are neither its values nor cached results, by path."""
    attributes = getattr(x, "__dict__", None)
    if not attributes or attributes is x or attributes.keys() <= set(names):
        return {}
    kind = type(x)
    return {
        attribute(name): value
        for name, value in attributes.items()
        if name not in names and not isinstance(getattr(kind, name, None), cached_property)
    }


def shallow_copy(x: Any) -> Any:
    """An object of the same class and attributes, if possible without the class's copy method.

    Raises:
        UnsupportedTypeError: It can be made neither in this way nor by `copy.copy`.
    """
    kind = type(x)
    members = _attributes_of(kind)
    try:
        result: Any = members.base.__new__(kind)
    except TypeError:
        return _copied(x)
    attributes = getattr(x, "__dict__", None)
    if attributes and attributes is not x:
        result.__dict__.update(attributes)
    for name in members.cached:
        getattr(result, "__dict__", {}).pop(name, None)  # a cached result of the old values
    for slot in members.every_slot:
        # Through the slot, because a frozen class refuses attributes. Some slots may not be set.
        with suppress(AttributeError, TypeError):
            slot.__set__(result, slot.__get__(x))
    return result


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
            f"{an(type(x).__name__, 'A')} cannot be made again: "
            f"copy.copy(x) does not give another one ({how})."
        )
    return result


_OPENERS: dict[type, Callable[[Any], Node]] = {
    dict: _open_dict,
    UserDict: _open_data,
    MappingProxyType: _open_mapping,
    list: _open_list,
    UserList: _open_data,
    deque: _open_deque,
    tuple: _open_tuple,
    SimpleNamespace: _open_namespace,
}


# -- objects that nobody knows: is there a tensor in one, without running any code -----------------
#
# The search goes through the attributes in ``__dict__`` and ``__slots__``, through lists, tuples,
# sets and dicts in them, and through the attributes of objects in them, three levels deep; also
# through a `functools.partial` and a slice. It does not go through functions, classes and modules,
# whose references are not data, nor through iterators, which it would exhaust.

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


class _Attributes(NamedTuple):
    """What a type's objects have.

    Args:
        held: What gives the ``__dict__``, if there is one.
        slots: What gives the attributes that are not in it, by name.
        every_slot: The same, and those of classes in C.
        cached: The names of cached properties.
        base: The class in C that makes them: of containers, or an `object`.
    """

    held: GetSetDescriptorType | None
    slots: list[tuple[str, MemberDescriptorType]]
    every_slot: list[MemberDescriptorType]
    cached: list[str]
    base: Any


_MADE_BY: tuple[type, ...] = (dict, list, deque, object)
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
    attributes, slots, *_ = _attributes_of(kind)
    return attributes is not None or bool(slots) or issubclass(kind, (dict, *_ROWS))


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
            path_inside = _inside(value, is_tensor, goes_on, left, seen)
            if path_inside is not None:
                return entry(key) + path_inside
    return None


def _held(x: Any) -> Iterator[tuple[Any, Any, Callable[[Any], str]]]:
    """Yield each object in an object: its key, itself, and what spells the key as a path."""
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
    attributes, slots, *_ = _attributes_of(kind)
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
    """What gives the ``__dict__`` and the slots of a type's objects; and its cached properties."""
    known = _known.get(kind)
    if known is not None:
        return known
    bases = kind.__mro__[:-1]  # an `object` has none of these
    members = [(base, *member) for base in bases for member in vars(base).items()]
    held = next((member for _, name, member in members if name == "__dict__"), None)
    slots = [member for member in members if isinstance(member[2], MemberDescriptorType)]
    attributes = _known[kind] = _Attributes(
        # A property with this name would run code.
        held if isinstance(held, GetSetDescriptorType) else None,
        [
            (n, slot)
            for base, n, slot in slots
            if "__slots__" in vars(base) or base in _WITH_MEMBERS
        ],
        [slot for *_, slot in slots],
        [name for _, name, member in members if isinstance(member, cached_property)],
        next(base for base in _MADE_BY if issubclass(kind, base)),
    )
    return attributes


# -- the functions that open a type as a container -------------------------------------------------

_DTYPE = attrgetter("dtype")


def openers_of(kind: type, leaves: Collection[Any]) -> tuple[Opener, ...]:
    """The functions that may open a type's objects, in order; none if they are surely leaves."""
    of_class, may_be_registered = _of_class(kind)
    if of_class is _FIELDS:
        if set(map(type, leaves)) == {kind}:
            arrays = leaves
        else:
            arrays = [leaf for leaf in leaves if type(leaf) is kind]
        names = any(dtype.names for dtype in set(map(_DTYPE, arrays)))
        return of_class if names else ()
    return (*_registered(kind), *of_class) if may_be_registered else of_class


def _open_fields(x: Any) -> Node | None:
    """Open a structured array, or one element of it, as a dict of its fields, which are views."""
    # A masked array stays a leaf, and is refused with the message for masked arrays.
    if x.dtype.names is None or has_masked(x):
        return None
    return as_dict({name: np.asarray(x)[name] for name in x.dtype.names})


_FIELDS: tuple[Opener, ...] = (_open_fields,)
_classes: dict[tuple[type, int], tuple[tuple[Opener, ...], bool]] = {}
_MOST = 4096
"""The most types that are remembered, in case a program makes new ones all the time."""


def _of_class(kind: type) -> tuple[tuple[Opener, ...], bool]:
    """What opens a class, and whether a registration of it, with whatever library, comes first."""
    key = kind, registry.revision
    openers = _classes.get(key)
    if openers is None:
        if len(_classes) >= _MOST:
            _classes.clear()
        openers = _classes[key] = _look_for_openers(kind)
    return openers


def _look_for_openers(kind: type) -> tuple[tuple[Opener, ...], bool]:
    if kind in PLAIN or issubclass(kind, TensorInfo):
        return (), False
    if issubclass(kind, (np.ndarray, np.void)):
        return _FIELDS, False
    if registry.is_known_tensor(kind):
        return (), False  # before others are asked, which are loaded for it
    known = _of_frameworks(kind) or libraries.opener_of(kind)
    if known is not None:
        return (known,), False
    if registry.is_tensor(kind):
        return (), False
    # Registrations with frameworks lose the same attributes as those with optree.
    may_be_registered = not (kind is OrderedDict or is_tuple_with_a_constructor(kind))
    own = opener_of(kind)
    if own is None:
        return (), may_be_registered
    if is_mapping(kind) and registry.backend_that_knows(kind) is not None:
        return (), False
    return (own,), may_be_registered


def _of_frameworks(kind: type) -> Opener | None:
    """The function that opens an imported framework's container; ``None`` if it is not one."""
    opener = None
    for backend in _imported_with("opener_of"):
        with registry.outside.guard(backend.name):
            opener = opener or backend.opener_of(kind)
    return opener


def _registered(kind: type) -> list[Opener]:
    """The functions that open a type registered as a container with an imported framework."""
    openers: list[Opener] = []
    for backend in _imported_with("has_node"):
        with registry.outside.guard(backend.name):
            if backend.has_node(kind):
                openers.append(registry.outside.guarded(backend.name, backend.open_node))
    return openers


def _imported_with(verb: str) -> list[Backend]:
    """The backends that have something to say about containers, and whose frameworks are imported."""
    default = getattr(Backend, verb)
    return [
        backend for backend in registry.imported() if getattr(type(backend), verb) is not default
    ]


# -- how objects of a type are opened, and made again ----------------------------------------------


_BY_FUNCTIONS, _AS_DICT, _AS_LIST, _AS_TUPLE, _AS_NAMED = range(5)
"""Ways of `Opening`, as ``_walks.c`` numbers them."""


class Opening(NamedTuple):
    """How objects of a type are opened, and made again.

    Args:
        open: Gives what an object is made again from, and its values, in order; ``None`` if this
            one is not opened so.
        make: Makes an object from what `open` gave, and other values.
        entries: The part of the path for each value, from what `open` gave, and how many there are.
        way: What `open` and `make` do, for the extension, which does it without them.
    """

    open: Callable[[Any], Opened | None]
    make: Callable[[Any, Iterable[Any]], Any]
    entries: Callable[[Any, int], Sequence[str]]
    way: int = _BY_FUNCTIONS


def openings_of(kind: type) -> tuple[Opening, ...]:
    """How objects of a type may be opened, in order; nothing if they are surely leaves."""
    openings = BUILT_IN.get(kind)
    if openings is not None:
        return openings
    openers, may_be_registered = _of_class(kind)
    is_tensor = not may_be_registered and (not openers or openers is _FIELDS)
    if not is_tensor and not is_tuple_with_a_constructor(kind):
        if _is_registered_with_optree(kind):
            return (_opening_by(_open_registered),)
        if issubclass(kind, tuple):
            openings = _openings_of_tuple(kind)
    if not openings and may_be_registered:
        openers = (*_registered(kind), *openers)
    return openings or tuple(map(_opening_by, openers))


def is_opened(x: Any) -> bool:
    """Whether an object is a container."""
    return any(opening.open(x) is not None for opening in openings_of(type(x)))


def may_open(kind: type, objects: Collection[Any]) -> bool:
    """Whether objects of a type may be containers. Arrays are, if they have fields."""
    if _of_class(kind)[0] is _FIELDS:
        return bool(openers_of(kind, objects))
    return bool(openings_of(kind))


def _opening_by(opener: Opener) -> Opening:
    def opened(x: Any) -> Opened | None:
        node = opener(x)
        return None if node is None else (node, node.values)

    return Opening(opened, make_node, _entries_of_node)


def make_node(node: Node, values: Iterable[Any]) -> Any:
    """Make a container again that was opened as a `Node`."""
    return node.rebuild(list(values))


def _entries_of_node(node: Node, _: int) -> Sequence[str]:
    return node.entries


def _open_itself(x: Any) -> Opened:
    return None, x


def _open_copy(x: dict[Any, Any]) -> Opened:
    # Another thread may put other keys into it before it is made again.
    held = x.copy()
    return held, held.values()


def _open_ordered(x: OrderedDict[Any, Any]) -> Opened | None:
    if x.__dict__:
        return None  # with attributes it is opened as a container of a class of its own
    held = dict(x.items())
    return held, held.values()


def _open_bounded(x: deque[Any]) -> Opened:
    return x.maxlen, x


def _make_dict(x: dict[Any, Any], values: Iterable[Any]) -> Any:
    return dict(zip(x, values, strict=True))


def _make_ordered(x: dict[Any, Any], values: Iterable[Any]) -> Any:
    return OrderedDict(zip(x, values, strict=True))


def _make_default(x: defaultdict[Any, Any], values: Iterable[Any]) -> Any:
    return defaultdict(x.default_factory, zip(x, values, strict=True))


def _entries_of_dict(x: dict[Any, Any], _: int) -> Sequence[str]:
    return Entries(list(x), item)


def _entries_of_list(_: object, count: int) -> Sequence[str]:
    return Entries(range(count), item)


BUILT_IN: dict[type, tuple[Opening, ...]] = {
    dict: (Opening(_open_copy, _make_dict, _entries_of_dict, _AS_DICT),),
    OrderedDict: (
        Opening(_open_ordered, _make_ordered, _entries_of_dict),
        _opening_by(_open_dict),
    ),
    defaultdict: (Opening(_open_copy, _make_default, _entries_of_dict),),
    list: (Opening(_open_itself, lambda _, values: list(values), _entries_of_list, _AS_LIST),),
    tuple: (Opening(_open_itself, lambda _, values: tuple(values), _entries_of_list, _AS_TUPLE),),
    deque: (Opening(_open_bounded, lambda most, values: deque(values, most), _entries_of_list),),
}


def _openings_of_tuple(kind: type) -> tuple[Opening, ...]:
    """How a named tuple is opened, or a result type in C; nothing for other classes of tuples."""
    names: Any = getattr(kind, "_fields", None)
    is_read_in_order = getattr(kind, "__iter__", None) is tuple.__iter__
    if isinstance(names, tuple) and hasattr(kind, "_make") and hasattr(kind, "_asdict"):
        return (
            Opening(
                _open_itself,
                lambda _, values: kind(*values),
                lambda _, count: Entries(names[:count], attribute),
                _AS_NAMED if is_read_in_order else _BY_FUNCTIONS,
            ),
        )
    if tuple in kind.__bases__ and hasattr(kind, "n_sequence_fields"):
        named: Any = getattr(kind, "__match_args__", ())
        return (
            Opening(
                _open_itself,
                lambda _, values: kind(values),
                lambda _, count: [
                    *map(attribute, named[:count]),
                    *map(item, range(len(named), count)),
                ],
            ),
        )
    return ()


# -- classes that are registered with optree -------------------------------------------------------

_NAMESPACE = "tensorferry"


def _is_registered_with_optree(kind: type) -> bool:
    optree = sys.modules.get("optree")  # before it has been imported, nothing is registered
    if optree is None:
        return False
    handler = optree.register_pytree_node.get(kind, namespace=_NAMESPACE)
    return handler is not None and handler.type is kind


def _open_registered(x: Any) -> Node:
    """Open an object of a class that is registered with optree, one level deep."""
    optree: Any = sys.modules["optree"]
    values, spec = optree.tree_flatten(
        x, lambda y: y is not x, none_is_leaf=True, namespace=_NAMESPACE
    )

    def entry(index: int) -> str:
        step = spec.accessors()[index][0]
        return item(step.entry) if isinstance(step, optree.MappingEntry) else step.codify("")

    return Node(
        Entries(range(len(values)), entry),
        values,
        lambda others: optree.tree_unflatten(spec, others),
        registered=spec,
    )
