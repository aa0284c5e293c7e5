"""`take_apart` and `Structure`: a tree as its leaves, and what is left of it without them.

Built on optree, which knows dict, OrderedDict, defaultdict, list, tuple, namedtuple, deque, the result
types of C, and what its users register. What it takes for a leaf is opened here if Python or a
framework knows it as a container, and so on inside.
(https://optree.readthedocs.io/en/latest/typing.html)
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optree

from .. import registry
from ..errors import ConversionError, UnsupportedTypeError
from ..nodes import Node, item
from .containers import is_tuple_with_a_constructor, open_structured, opener_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Structure", "placed", "take_apart", "take_apart_alike"]

_NAMESPACE = "tensorferry"
# For good, and in this namespace alone: leaves come in the order in which a person wrote them.
_ORDERED = optree.dict_insertion_ordered(True, namespace=_NAMESPACE)
_ORDERED.__enter__()

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, range})
_DEEPEST = 200
"""Containers of our own inside each other; optree has a limit of its own for its."""


class _Inner(NamedTuple):
    """An opened container in the place of a leaf."""

    node: Node
    structure: Structure


class Structure:
    """A tree without its leaves."""

    __slots__ = ("_inner", "_spec", "size")

    def __init__(self, spec: optree.PyTreeSpec, inner: dict[int, _Inner], size: int) -> None:
        self._spec = spec
        self._inner = inner
        self.size = size
        """How many leaves it has."""

    def one_of_many(self) -> Structure | None:
        """If this is a list of trees that are all alike: what one of them is without its leaves."""
        if self._inner:
            return None
        one = self._spec.child(0)
        many = optree.treespec_list([one] * self._spec.num_children, none_is_leaf=True, namespace=_NAMESPACE)
        return Structure(one, {}, one.num_leaves) if many == self._spec else None

    def paths(self) -> list[str]:
        """The path of each leaf: ``$["encoder"][3].weight``; of leaves whose paths are alike, each has a number."""
        found = [path for path, node in self.places("$") if node is None]
        if len(set(found)) == len(found):
            return found
        seen: Counter[str] = Counter()
        numbered = []
        for path in found:
            seen[path] += 1
            numbered.append(path if seen[path] == 1 else f"{path} ({seen[path]})")
        return numbered

    def places(self, root: str, entries: Sequence[str] | None = None) -> Iterator[tuple[str, Node | None]]:
        """The path of each leaf, with ``None``, and of each container that was opened here, with what opened it.

        Args:
            root: The path of the tree.
            entries: What leads to each of its values, where it is the list of an opened container's.
        """
        for index, accessor in enumerate(self._spec.accessors()):
            first = () if entries is None else accessor[:1]
            path = root + "".join(entries[int(each.entry)] for each in first if entries is not None)
            path += "".join(map(_entry, accessor[len(first) :]))
            inner = self._inner.get(index)
            yield path, None if inner is None else inner.node
            if inner is not None:
                yield from inner.structure.places(path, inner.node.entries)

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves in the place of those that it had.

        Raises:
            UnsupportedTypeError: A container cannot be made again.
        """
        if not self._inner:
            return optree.tree_unflatten(self._spec, leaves)
        try:
            return self.rebuild_from(iter(leaves))
        except _NotMadeError as failed:
            path = next(path for path, node in self.places("$") if node is failed.node)
            raise placed(failed.why, path) from failed.why

    def rebuild_from(self, leaves: Iterator[Any]) -> Any:
        """The tree with as many of these leaves as it has."""
        return optree.tree_unflatten(self._spec, [self._leaf(index, leaves) for index in range(self._spec.num_leaves)])

    def _leaf(self, index: int, leaves: Iterator[Any]) -> Any:
        inner = self._inner.get(index)
        if inner is None:
            return next(leaves)
        values = inner.structure.rebuild_from(leaves)
        try:
            return inner.node.rebuild(values)
        except ConversionError as error:
            raise _NotMadeError(inner.node, error) from None


def placed(error: ConversionError, path: str) -> ConversionError:
    """The same error, with where it happened."""
    result = type(error)(f"{error.message} - at {path}", error.hint)
    result.__cause__ = error
    return result


class _NotMadeError(Exception):
    """A container that cannot be made again."""

    def __init__(self, node: Node, why: ConversionError) -> None:
        super().__init__(node, why)
        self.node = node
        self.why = why


def _entry(entry: optree.PyTreeEntry) -> str:
    return item(entry.entry) if isinstance(entry, optree.MappingEntry) else entry.codify("")


def take_apart(tree: Any, chosen: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and what is left of it.

    Args:
        tree: Any object; one that is no container is its own only leaf.
        chosen: Whether an object is a leaf although it may be a container.

    Raises:
        UnsupportedTypeError: It contains itself, or is nested too deep.
    """
    return _take_apart(tree, chosen, ())


def take_apart_alike(
    trees: Sequence[Any], chosen: Callable[[Any], bool] | None = None
) -> tuple[list[list[Any]], Structure] | None:
    """For each leaf of many trees that are alike, that leaf of all of them; and what is left of the first.

    ``None`` if they are not all alike, or have containers that optree does not know.

    Args:
        trees: At least one tree.
        chosen: As for `take_apart`.

    Raises:
        UnsupportedTypeError: As for `take_apart`.
    """
    columns = _columns_of_dicts(trees) if chosen is None else None
    if columns is not None:
        return columns, take_apart(trees[0])[1]
    leaves, structure = _take_apart(*_values(trees, chosen), ())
    one = structure.one_of_many()
    return None if one is None else ([leaves[index :: one.size] for index in range(one.size)], one)


def _columns_of_dicts(trees: Sequence[Any]) -> list[list[Any]] | None:
    """The same for plain dicts of leaves, in a fourth of the time; ``None``: something else may be among them."""
    first = trees[0]
    if set(map(type, trees)) != {dict} or any(tree.keys() != first.keys() for tree in trees):
        return None
    columns = [[tree[key] for tree in trees] for key in first]
    for column in columns:
        for kind in set(map(type, column)):
            if kind not in _PLAIN and (not registry.is_known_tensor(kind) or _openers(kind, column)):
                return None
    return columns


def _take_apart(
    tree: Any, chosen: Callable[[Any], bool] | None, around: tuple[int, ...]
) -> tuple[list[Any], Structure]:
    is_leaf = _is_ours if chosen is None else lambda x: _is_ours(x) or chosen(x)
    try:
        leaves, spec = optree.tree_flatten(tree, is_leaf, none_is_leaf=True, namespace=_NAMESPACE)
    except RecursionError:
        raise _too_deep() from None
    openers = {kind: found for kind in set(map(type, leaves)) if (found := _openers(kind, leaves))}
    if not openers:
        return leaves, Structure(spec, {}, len(leaves))
    parts: list[Any] = []
    inner: dict[int, _Inner] = {}
    for index, leaf in enumerate(leaves):
        node = None
        if type(leaf) in openers and not (chosen is not None and chosen(leaf)):
            node = next((node for opener in openers[type(leaf)] if (node := opener(leaf)) is not None), None)
        if node is None:
            parts.append(leaf)
            continue
        if id(leaf) in around or len(around) > _DEEPEST:
            raise _too_deep()
        inside, structure = _take_apart(*_values(node.values, chosen), (*around, id(leaf)))
        inner[index] = _Inner(node, structure)
        parts += inside
    return parts, Structure(spec, inner, len(parts))


def _is_ours(x: Any) -> bool:
    """Whether optree would open an object, and lose what it does and has beside its values."""
    if type(x) is OrderedDict:
        return bool(x.__dict__)
    return isinstance(x, tuple) and is_tuple_with_a_constructor(type(x))


def _is_lossy(kind: type) -> bool:
    return kind is OrderedDict or is_tuple_with_a_constructor(kind)


def _values(
    found: Sequence[Any], chosen: Callable[[Any], bool] | None
) -> tuple[list[Any], Callable[[Any], bool] | None]:
    """Values as a tree of their own; the list around them is nobody's choice."""
    values = list(found)
    return values, None if chosen is None else lambda x: x is not values and chosen(x)


def _too_deep() -> ConversionError:
    return UnsupportedTypeError("This tree contains itself, or is nested too deep.", None)


def _openers(kind: type, leaves: Sequence[Any]) -> tuple[Callable[[Any], Node | None], ...]:
    """What may open the leaves of a type, in the order in which they are asked; none: they are certainly leaves."""
    if kind in _PLAIN:
        return ()
    if issubclass(kind, (np.ndarray, np.void)):
        names = any(dtype.names for dtype in {leaf.dtype for leaf in leaves if type(leaf) is kind})
        return (_open_fields,) if names else ()
    if registry.is_known_tensor(kind):
        return ()
    # Frameworks know what optree knows, and lose the same.
    openers = [] if _is_lossy(kind) else registry.node_openers(kind)
    own = opener_of(kind)
    if (openers or own is not None) and registry.is_tensor(kind):
        return ()
    return (*openers, *(() if own is None else (own,)))


def _open_fields(x: Any) -> Node | None:
    # What is masked is no dict of its fields: as a leaf it is refused in the words for all that is masked.
    return open_structured(x) if x.dtype.names is not None and not isinstance(x, np.ma.MaskedArray) else None
