"""`take_apart` and `Structure`: a tree as its leaves, and what is left of it without them.

Built on optree, which knows dict, OrderedDict, defaultdict, list, tuple, namedtuple, deque, the result
types of C, and what its users register. What it takes for a leaf is opened here if Python or a
framework knows it as a container, or one of `libraries`, and so on inside.
(https://optree.readthedocs.io/en/latest/typing.html)
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, MutableMapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import optree

from .. import registry
from ..errors import ConversionError, UnsupportedTypeError
from ..nodes import Node, dotted, item
from .containers import is_tuple_with_a_constructor
from .openers import PLAIN, openers_of
from .rows import RowFinder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Structure", "Walk", "equal", "placed", "take_apart"]

_NAMESPACE = "tensorferry"
# For good, and in this namespace alone: leaves come in the order in which a person wrote them.
_ORDERED = optree.dict_insertion_ordered(True, namespace=_NAMESPACE)
_ORDERED.__enter__()

_DEEPEST = 200
"""Containers of our own inside each other; optree has a limit of its own for its."""
_ALIKE = (dict, OrderedDict, defaultdict, list, tuple)
"""Containers that have nothing but their values: where samples have the same, their types may differ."""


class _Inner(NamedTuple):
    """An opened container in the place of a leaf."""

    node: Node
    structure: Structure
    kind: type
    shared: int | None
    """The same for each place at which one container stands; ``None``: it stands at one."""

    def keys(self, x: Any) -> Iterator[tuple[Any, str] | None]:
        """As for `Structure`, within a container that is like this one."""
        if self.node is _ITSELF:
            return self.structure.keys(x)
        node = next(node for opener in openers_of(type(x), [x]) if (node := opener(x)) is not None)
        return self.structure.keys_within(list(node.values), x if isinstance(x, Mapping) else None)


class Structure:
    """A tree without its leaves."""

    __slots__ = ("_inner", "_spec", "size", "twins")

    def __init__(self, spec: optree.PyTreeSpec, inner: dict[int, _Inner], size: int) -> None:
        self._spec = spec
        self._inner = inner
        self.size = size
        """How many leaves it has."""
        self.twins: dict[int, int] = {}
        """For each leaf of a container that has been met before: that leaf of it where it was met first."""

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

    def names(self) -> list[str]:
        """The dotted name of each leaf: ``encoder.3.weight``; of a tree that is one leaf, the empty one."""
        return [name.removeprefix(".") for name, node in self.places("", spell=dotted) if node is None]

    def places(
        self, root: str, entries: Sequence[str] | None = None, spell: Callable[[str], str] = str
    ) -> Iterator[tuple[str, Node | None]]:
        """The path of each leaf, with ``None``, and of each container that was opened here, with what opened it.

        Args:
            root: The path of the tree.
            entries: What leads to each of its values, where it is the list of an opened container's.
            spell: How each step of a path is written.
        """
        for index, accessor in enumerate(self._spec.accessors()):
            first = () if entries is None else accessor[:1]
            path = root + "".join(spell(entries[int(each.entry)]) for each in first if entries is not None)
            path += "".join(spell(_entry(each)) for each in accessor[len(first) :])
            inner = self._inner.get(index)
            yield path, None if inner is None else inner.node
            if inner is not None:
                yield from inner.structure.places(path, None if inner.node is _ITSELF else inner.node.entries, spell)

    def keys(self, tree: Any) -> Iterator[tuple[Any, str] | None]:
        """For each leaf, the mapping that holds it in a tree of this structure, and its key there.

        ``None``: it is below no key that is a str, or the mapping takes no other.
        """
        yield from self.keys_within(tree, None)

    def keys_within(self, tree: Any, mapping: Any) -> Iterator[tuple[Any, str] | None]:
        """The same where the tree may be the list of a mapping's values."""
        for index, accessor in enumerate(self._spec.accessors()):
            inner, parent = self._inner.get(index), tree
            last: Any = accessor[-1] if accessor else None
            for entry in accessor[:-1]:
                parent = entry(parent)
            if inner is not None:
                yield from inner.keys(parent if last is None else last(parent))
            elif mapping is not None and len(accessor) == 1:
                yield _keyed(mapping, list(mapping)[last.entry])
            else:
                yield _keyed(parent, last.entry) if isinstance(last, optree.MappingEntry) else None

    def nodes(self) -> Iterator[Node]:
        """What opened each container that was opened here."""
        for inner in self._inner.values():
            yield inner.node
            yield from inner.structure.nodes()

    def path_of(self, node: Node) -> str:
        """The path of a container that was opened here."""
        return next(path for path, found in self.places("$") if found is node)

    def is_like(self, other: Structure) -> bool:
        """Whether another tree has the same containers in the same places, and those the same besides their values."""
        if self._inner.keys() != other._inner.keys() or not equal(self._spec, other._spec):
            return False
        for index, inner in self._inner.items():
            mine, others = inner.node, other._inner[index].node
            if inner.kind is not other._inner[index].kind or mine.entries != others.entries:
                return False
            if not (equal(mine.static, others.static) and equal(mine.registered, others.registered)):
                return False
            if not inner.structure.is_like(other._inner[index].structure):
                return False
        return True

    def statics(self) -> dict[str, tuple[type, Any]]:
        """What each container is besides its values, by its path: its type, and what is the same for all it holds."""
        return dict(self.statics_under("$", None))

    def statics_under(self, path: str, entries: Sequence[str] | None) -> Iterator[tuple[str, tuple[type, Any]]]:
        """The same, as pairs; the arguments are those of `places`."""
        return self._statics(self._spec, path, entries, 0)

    def _statics(
        self, spec: optree.PyTreeSpec, path: str, entries: Sequence[str] | None, first: int
    ) -> Iterator[tuple[str, tuple[type, Any]]]:
        if spec.is_leaf():
            inner = self._inner.get(first)
            if inner is not None:
                node = inner.node
                yield path, (inner.kind, (node.static, node.registered))
                yield from inner.structure.statics_under(path, node.entries)
            return
        if entries is None and spec.type is not None and spec.type not in _ALIKE:
            yield path, (spec.type, spec.one_level())
        steps = entries
        if steps is None:
            outermost: Any = spec.one_level()
            steps = [_entry(accessor[0]) for accessor in outermost.accessors()]
        for step, child in zip(steps, spec.children(), strict=True):
            yield from self._statics(child, path + step, None, first)
            first += child.num_leaves

    def rebuild(self, leaves: Sequence[Any], count: int | None = None) -> Any:
        """The tree with these leaves in the place of those that it had.

        Args:
            leaves: As many as it has.
            count: How many samples each of them stacks; ``None``: they are no batch.

        Raises:
            UnsupportedTypeError: A container cannot be made again.
        """
        if not self._inner:
            return optree.tree_unflatten(self._spec, leaves)
        try:
            return self.rebuild_from(iter(leaves), count, {})
        except _NotMadeError as failed:
            raise placed(failed.why, self.path_of(failed.node)) from failed.why

    def rebuild_from(self, leaves: Iterator[Any], count: int | None, made: dict[int, list[_Made]]) -> Any:
        """The tree with as many of these leaves as it has.

        Args:
            leaves: They are taken from.
            count: As for `rebuild`.
            made: What has been made of each container that stands at several places.
        """
        values = [self._leaf(index, leaves, count, made) for index in range(self._spec.num_leaves)]
        return optree.tree_unflatten(self._spec, values)

    def _leaf(self, index: int, leaves: Iterator[Any], count: int | None, made: dict[int, list[_Made]]) -> Any:
        inner = self._inner.get(index)
        if inner is None:
            return next(leaves)
        if inner.shared is None:
            return self._make(inner, leaves, count, made)
        own = list(islice(leaves, inner.structure.size))
        before = made.setdefault(inner.shared, [])
        for known, result in before:
            # Not where another target for each place makes others of the same leaves.
            if all(new is old for new, old in zip(own, known, strict=True)):
                return result
        result = self._make(inner, iter(own), count, made)
        before.append((own, result))
        return result

    def _make(self, inner: _Inner, leaves: Iterator[Any], count: int | None, made: dict[int, list[_Made]]) -> Any:
        values = inner.structure.rebuild_from(leaves, count, made)
        node = inner.node
        try:
            return node.rebuild(values) if count is None or node.stack is None else node.stack(values, count)
        except ConversionError as error:
            raise _NotMadeError(node, error) from None


_Made = tuple[list[Any], Any]


def equal(x: Any, y: Any) -> bool:
    """Whether two values are the same, as far as they say."""
    if x is y:
        return True
    try:
        return bool(x == y)
    except Exception:  # noqa: BLE001 - arrays have no one answer, and others any
        return False


def placed(error: ConversionError, path: str) -> ConversionError:
    """The same error, with where it happened."""
    result = type(error)(f"{error.message} - at {path}{error.inside}", error.hint)
    result.__cause__ = error
    return result


class _NotMadeError(Exception):
    """A container that cannot be made again."""

    def __init__(self, node: Node, why: ConversionError) -> None:
        super().__init__(node, why)
        self.node = node
        self.why = why


def _keyed(mapping: Any, key: Any) -> tuple[Any, str] | None:
    return (mapping, key) if isinstance(mapping, MutableMapping) and isinstance(key, str) else None


def _entry(entry: optree.PyTreeEntry) -> str:
    return item(entry.entry) if isinstance(entry, optree.MappingEntry) else entry.codify("")


def take_apart(
    tree: Any, chosen: Callable[[Any], bool] | None = None, *, sharing: bool = False, rows: bool = False
) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and what is left of it.

    Args:
        tree: Any object; one that is no container is its own only leaf.
        chosen: Whether an object is a leaf although it may be a container.
        sharing: Whether one container that stands at two places is one again when the tree is rebuilt.
        rows: Whether a plain list of numbers below a key is a leaf; not beside `chosen` or `sharing`.

    Raises:
        UnsupportedTypeError: It contains itself, or is nested too deep.
    """
    walk = Walk(chosen, visits=sharing, rows=rows)
    leaves, structure = walk.take(tree)
    shared = {number: x for number, x in walk.again.items() if _is_container(x)} if walk.again else None
    if shared:
        walk = Walk(chosen, shared=shared)
        leaves, structure = walk.take(tree)
        structure.twins = walk.twins
    return leaves, structure


class Walk:
    """Takes a tree apart.

    Args:
        chosen: Whether an object is a leaf although it may be a container.
        visits: Whether what is met more than once is noted in `again`.
        shared: Containers that stand at several places, by their number.
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
        # With the object: the number of one that is gone would be another's.
        self._seen: dict[int, Any] | None = {} if visits else None
        self.again: dict[int, Any] = {}
        self._opened: set[int] = set()
        self._first: dict[int, int] = {}
        self.twins: dict[int, int] = {}

    def take(
        self, tree: Any, own: Any = None, around: tuple[int, ...] = (), start: int = 0, *, below_keys: bool = False
    ) -> tuple[list[Any], Structure]:
        """The leaves of a tree, and what is left of it.

        Args:
            tree: The tree.
            own: A container that is opened whatever is said of it.
            around: What it is in.
            start: How many leaves come before it.
            below_keys: Whether it is the values of a mapping.
        """
        finder = RowFinder() if self._rows else None
        if finder is not None and below_keys:
            finder.note(tree)
        is_leaf = self._is_leaf(own) if finder is None else _is_leaf_or_row(own, finder)
        try:
            leaves, spec = optree.tree_flatten(tree, is_leaf, none_is_leaf=True, namespace=_NAMESPACE)
        except RecursionError:
            raise _too_deep() from None
        misplaced = set() if finder is None else finder.misplaced(leaves, spec, below_keys=below_keys)
        kinds = set(map(type, leaves))
        if finder is not None:
            kinds.discard(list)
        _LEAVES.update(kind for kind in kinds - _LEAVES if registry.is_known_tensor(kind))
        openers = {kind: found for kind in kinds if (found := openers_of(kind, leaves))}
        if not openers and not self._shared and not misplaced:
            return leaves, Structure(spec, {}, len(leaves))
        parts: list[Any] = []
        inner: dict[int, _Inner] = {}
        for index, leaf in enumerate(leaves):
            opened = self._open(
                leaf, openers.get(type(leaf), ()), around, start + len(parts), itself=index in misplaced
            )
            if opened is None:
                parts.append(leaf)
            else:
                inside, inner[index] = opened
                parts += inside
        return parts, Structure(spec, inner, len(parts))

    def take_values(
        self, values: Sequence[Any], around: tuple[int, ...] = (), start: int = 0, *, below_keys: bool = False
    ) -> tuple[list[Any], Structure]:
        """The same for values as a tree of their own; the list around them is nobody's choice."""
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
    ) -> tuple[list[Any], _Inner] | None:
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
            node = _ITSELF
            parts, structure = self.take(leaf, leaf, inside, start)
        else:
            parts, structure = self.take_values(node.values, inside, start, below_keys=isinstance(leaf, Mapping))
        if shared:
            first = self._first.setdefault(id(leaf), start)
            for index in range(len(parts) if first != start else 0):
                self.twins.setdefault(start + index, self.twins.get(first + index, first + index))
        return parts, _Inner(node, structure, type(leaf), id(leaf) if shared else None)

    def _is_leaf(self, own: Any) -> Callable[[Any], bool]:
        """Whether optree is to take an object for a leaf."""
        chosen, shared, seen, again = self._chosen, self._shared, self._seen, self.again
        if chosen is None and seen is None and not shared:
            return _is_ours

        leaves = _LEAVES
        met: dict[int, Any] = {} if seen is None else seen

        def visit(x: Any) -> bool:
            kind = type(x)
            # There is one empty tuple, wherever it stands.
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
    leaves, is_row_met = _LEAVES, finder.is_leaf

    def ask(x: Any) -> bool:
        if x is own or type(x) in leaves:
            return False
        # What is opened here tells of its rows itself.
        return _is_ours(x) or is_row_met(x)

    return ask


_ITSELF = Node((), (), lambda tree: tree)
"""Opens a container of optree's that stands at several places, or is a leaf at another."""
_LEAVES: set[type] = set(PLAIN)
"""Types that are no containers, as far as they have been met."""


def _is_container(x: Any) -> bool:
    if any(opener(x) is not None for opener in openers_of(type(x), [x])):
        return True
    spec = optree.tree_structure(x, lambda y: y is not x, none_is_leaf=True, namespace=_NAMESPACE)
    return not spec.is_leaf()


def _is_ours(x: Any) -> bool:
    """Whether optree would open an object, and lose what it does and has beside its values."""
    if type(x) is OrderedDict:
        return bool(x.__dict__)
    return isinstance(x, tuple) and is_tuple_with_a_constructor(type(x))


def _too_deep() -> ConversionError:
    return UnsupportedTypeError("This tree contains itself, or is nested too deep.", None)
