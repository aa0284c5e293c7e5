"""Take a tree apart into its leaves and its structure.

optree opens dict, OrderedDict, defaultdict, list, tuple, namedtuple, deque, the result types in C,
and registered types. Its leaves that are containers of Python, of a framework or of one of
`libraries` are opened here, and so on inside them.
(https://optree.readthedocs.io/en/latest/typing.html)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from ..backends import registry
from ..backends.nodes import Node, item
from ..errors import ConversionError, UnsupportedTypeError
from ..host.numpy_dtypes import of_numpy
from ..sequences import numbers
from ..sequences.diagnostics import DEEPEST
from .containers import PLAIN, is_tuple_with_a_constructor, openers_of
from .structure import ITSELF, NAMESPACE, InnerContainer, Structure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


__all__ = ["RowFinder", "Walk", "is_row", "take_apart"]


# -- plain lists of numbers below a key, which are one value in a batch ----------------------------


def is_row(x: list[Any], depth: int = 0) -> bool:
    """Whether a plain list has only numbers, or only such lists; also an empty list.

    >>> is_row([1, 2.5]), is_row([[1], [2]]), is_row([(1, 2)]), is_row(["a"])
    (True, True, False, False)
    """
    kinds = set(map(type, x))
    if kinds == {list}:
        return depth < DEEPEST and all(is_row(each, depth + 1) for each in x)
    return all(map(_is_number, kinds))


@lru_cache(maxsize=256)
def _is_number(kind: type) -> bool:
    return kind in numbers.PYTHON_NUMBERS or (
        issubclass(kind, np.generic) and of_numpy(np.dtype(kind)) is not None
    )


class RowFinder:
    """Tells optree which lists are leaves, while it takes a tree apart.

    optree asks about an object, but not about its position. So the lists in a mapping are noted
    when optree asks about the mapping.
    """

    def __init__(self) -> None:
        self._found: dict[int, list[Any]] = {}
        self._due = 0

    def note(self, values: Iterable[Any]) -> None:
        """Note the lists among the values of a mapping."""
        for value in values:
            if type(value) is list and is_row(value):
                self._found[id(value)] = value
                self._due += 1

    def is_leaf(self, x: Any) -> bool:
        """Whether a list is a row, and therefore a leaf. For a mapping, its lists are noted."""
        kind = type(x)
        if kind is list:
            found = id(x) in self._found
            self._due -= found
            return found
        # Not `x.values()`, which a subclass may have changed.
        if issubclass(kind, dict):
            self.note(dict.values(x))
        return False

    def misplaced(
        self, leaves: Sequence[Any], spec: optree.PyTreeSpec, *, below_keys: bool
    ) -> set[int]:
        """The indices of leaves that are rows in one place, but elsewhere are not below a key.

        Args:
            leaves: The leaves of the tree.
            spec: The structure of the tree.
            below_keys: Whether the tree is the list of values of a mapping.
        """
        # Each list was met as often as it occurs in mappings, so it occurs nowhere else.
        if not self._due:
            return set()
        lists = [index for index, leaf in enumerate(leaves) if type(leaf) is list]
        accessors = spec.accessors() if lists else []
        return {
            index for index in lists if not _is_below_key(accessors[index], below_keys=below_keys)
        }


def _is_below_key(accessor: optree.PyTreeAccessor, *, below_keys: bool) -> bool:
    return (below_keys and len(accessor) == 1) or (
        bool(accessor) and isinstance(accessor[-1], optree.MappingEntry)
    )


# -- the walk --------------------------------------------------------------------------------------
#
# optree opens dict, OrderedDict, defaultdict, list, tuple, namedtuple, deque, the result types in C,
# and registered types. Its leaves that are containers of Python, of a framework or of one of
# `libraries` are opened here, and so on inside them.
# (https://optree.readthedocs.io/en/latest/typing.html)

_DEEPEST = 200
"""The deepest nesting of containers that are opened here. optree has a limit of its own."""


def take_apart(
    tree: Any,
    chosen: Callable[[Any], bool] | None = None,
    *,
    sharing: bool = False,
    rows: bool = False,
) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and its structure.

    Args:
        tree: Any object. An object that is not a container is the only leaf.
        chosen: Whether an object is a leaf although it may be a container.
        sharing: Whether a container that occurs twice is also rebuilt as one object.
        rows: Whether a plain list of numbers below a key is a leaf; not beside `chosen` or
            `sharing`.

    Raises:
        UnsupportedTypeError: It contains itself, or is nested too deep.
    """
    if rows or chosen is not None:
        flat = None
    else:
        flat = _take_flat(tree)
    if flat is not None:
        return flat
    walk = Walk(chosen, visits=sharing, rows=rows)
    leaves, structure = walk.take(tree)
    if walk.again:
        shared = {number: x for number, x in walk.again.items() if _is_container(x)}
    else:
        shared = None
    if shared:
        walk = Walk(chosen, shared=shared)
        leaves, structure = walk.take(tree)
        structure.twins = walk.twins
    return leaves, structure


def _take_flat(tree: Any) -> tuple[list[Any], Structure] | None:
    """Take apart a dict of only leaves, such as a state dict; ``None`` if it may contain others."""
    if type(tree) is not dict:
        return None
    leaves = list(tree.values())
    for kind in set(map(type, leaves)):
        if kind not in _LEAVES and not registry.is_known_tensor(kind):
            return None
        if kind not in PLAIN and openers_of(kind, leaves):
            return None
    return leaves, _FlatDict(list(tree))


class _FlatDict(Structure):
    """The structure of a dict that contains only leaves.

    The structure of optree is made only when it is needed.
    """

    __slots__ = ("_keys", "_made")

    def __init__(self, keys: list[Any]) -> None:
        self._keys = keys
        self._made: optree.PyTreeSpec | None = None
        self._inner = {}
        self.size = len(keys)
        self.twins = {}
        self._paths = self._names = None

    @property
    def flat_keys(self) -> list[Any]:
        return self._keys

    @property
    def _spec(self) -> optree.PyTreeSpec:  # type: ignore[override]
        if self._made is None:
            tree: Any = dict.fromkeys(self._keys, 0)
            self._made = optree.tree_structure(tree, none_is_leaf=True, namespace=NAMESPACE)
        return self._made

    def paths(self) -> list[str]:
        paths = ["$" + item(key) for key in self._keys]
        if len(set(paths)) == len(paths):
            return paths
        return super().paths()

    def is_in_order_of(self, other: Structure) -> bool:
        if isinstance(other, _FlatDict):
            return self._keys == other.flat_keys
        return super().is_in_order_of(other)

    def rebuild(self, leaves: Sequence[Any], count: int | None = None) -> Any:
        return dict(zip(self._keys, leaves, strict=True))


class Walk:
    """Takes a tree apart.

    Args:
        chosen: Whether an object is a leaf although it may be a container.
        visits: Whether objects that occur more than once are noted in `again`.
        shared: Containers that occur several times, by their ids.
        rows: Whether a plain list of numbers below a key is a leaf.
    """

    def __init__(
        self,
        chosen: Callable[[Any], bool] | None,
        *,
        visits: bool = False,
        shared: dict[int, Any] | None = None,
        rows: bool = False,
    ) -> None:
        self._chosen = chosen
        self._rows = rows
        self._shared = shared or {}
        # With the object itself, so that its id stays unique.
        self._seen: dict[int, Any] | None = {} if visits else None
        self.again: dict[int, Any] = {}
        self._opened: set[int] = set()
        self._first: dict[int, int] = {}
        self.twins: dict[int, int] = {}

    def take(
        self,
        tree: Any,
        own: Any = None,
        around: tuple[int, ...] = (),
        start: int = 0,
        *,
        below_keys: bool = False,
    ) -> tuple[list[Any], Structure]:
        """The leaves of a tree, and what is left of it.

        Args:
            tree: The tree.
            own: A container that is opened even if `chosen` says that it is a leaf.
            around: The ids of the containers around the tree.
            start: The number of leaves before the tree.
            below_keys: Whether the tree is the list of values of a mapping.
        """
        finder = RowFinder() if self._rows else None
        if finder is not None and below_keys:
            finder.note(tree)
        if finder is None:
            is_leaf = self._is_leaf(own)
        else:
            is_leaf = _is_leaf_or_row(own, finder)
        try:
            leaves, spec = optree.tree_flatten(
                tree, is_leaf, none_is_leaf=True, namespace=NAMESPACE
            )
        except RecursionError:
            raise _too_deep() from None
        if finder is None:
            misplaced = set()
        else:
            misplaced = finder.misplaced(leaves, spec, below_keys=below_keys)
        kinds = set(map(type, leaves))
        if finder is not None:
            kinds.discard(list)
        _LEAVES.update(kind for kind in kinds - _LEAVES if registry.is_known_tensor(kind))
        openers = {kind: found for kind in kinds if (found := openers_of(kind, leaves))}
        if not openers and not self._shared and not misplaced:
            return leaves, Structure(spec, {}, len(leaves))
        parts: list[Any] = []
        inner: dict[int, InnerContainer] = {}
        for index, leaf in enumerate(leaves):
            opened = self._open(
                leaf,
                openers.get(type(leaf), ()),
                around,
                start + len(parts),
                itself=index in misplaced,
            )
            if opened is None:
                parts.append(leaf)
            else:
                inside, inner[index] = opened
                parts += inside
        return parts, Structure(spec, inner, len(parts))

    def take_values(
        self,
        values: Sequence[Any],
        around: tuple[int, ...] = (),
        start: int = 0,
        *,
        below_keys: bool = False,
    ) -> tuple[list[Any], Structure]:
        """Take values apart, as a tree; the list around them is never a leaf."""
        own = list(values)
        return self.take(own, own, around, start, below_keys=below_keys)

    def _open(
        self,
        leaf: Any,
        openers: Sequence[Callable[[Any], Node | None]],
        around: tuple[int, ...],
        start: int,
        *,
        itself: bool,
    ) -> tuple[list[Any], InnerContainer] | None:
        shared = id(leaf) in self._shared
        if not (openers or shared or itself) or (self._chosen is not None and self._chosen(leaf)):
            return None
        if self._seen is not None:
            if id(leaf) in self._opened:
                return None
            self._opened.add(id(leaf))
        node = next((node for opener in openers if (node := opener(leaf)) is not None), None)
        if node is None and not (shared or itself):
            return None
        if id(leaf) in around or len(around) > _DEEPEST:
            raise _too_deep()
        inside = (*around, id(leaf))
        if node is None:
            node = ITSELF
            parts, structure = self.take(leaf, leaf, inside, start)
        else:
            parts, structure = self.take_values(
                node.values, inside, start, below_keys=isinstance(leaf, Mapping)
            )
        if shared:
            first = self._first.setdefault(id(leaf), start)
            for index in range(len(parts) if first != start else 0):
                self.twins.setdefault(start + index, self.twins.get(first + index, first + index))
        return parts, InnerContainer(node, structure, type(leaf), id(leaf) if shared else None)

    def _is_leaf(self, own: Any) -> Callable[[Any], bool]:
        """A function that tells optree whether an object is a leaf."""
        chosen, shared, seen, again = self._chosen, self._shared, self._seen, self.again
        if chosen is None and seen is None and not shared:
            return _is_ours

        leaves = _LEAVES
        met: dict[int, Any] = {} if seen is None else seen

        def visit(x: Any) -> bool:
            kind = type(x)
            # Python has only one empty tuple, so its occurrences do not count.
            if kind in leaves or x is own or (kind is tuple and not x):
                return False
            number = id(x)
            if number in met:
                again[number] = x
                return True
            met[number] = x
            return kind is not dict and kind is not list and _is_ours(x)

        def ask(x: Any) -> bool:
            if x is own:
                return False
            if chosen is not None and chosen(x):
                return True
            return id(x) in shared or (_is_ours(x) if seen is None else visit(x))

        return visit if chosen is None and not shared else ask


def _is_leaf_or_row(own: Any, finder: RowFinder) -> Callable[[Any], bool]:
    leaves, is_row = _LEAVES, finder.is_leaf

    def ask(x: Any) -> bool:
        if x is own or type(x) in leaves:
            return False
        # Containers that are opened here note their rows themselves.
        return _is_ours(x) or is_row(x)

    return ask


_LEAVES: set[type] = set(PLAIN)
"""Types that are known not to be containers."""


def _is_container(x: Any) -> bool:
    if any(opener(x) is not None for opener in openers_of(type(x), [x])):
        return True
    if _is_ours(x):
        return False
    spec = optree.tree_structure(x, lambda y: y is not x, none_is_leaf=True, namespace=NAMESPACE)
    return not spec.is_leaf()


def _is_ours(x: Any) -> bool:
    """Whether optree would open an object and lose its attributes, so that it is opened here."""
    if type(x) is OrderedDict:
        return bool(x.__dict__)
    return isinstance(x, tuple) and is_tuple_with_a_constructor(type(x))


def _too_deep() -> ConversionError:
    return UnsupportedTypeError("This tree contains itself, or is nested too deep.", None)
