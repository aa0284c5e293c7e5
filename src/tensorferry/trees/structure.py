"""`Structure`: what is left of a tree without its leaves, and the tree made again from others."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, MutableMapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import optree

from ..backends.nodes import Node, dotted, item
from ..errors import ConversionError, LossyCastError
from .openers import openers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["ITSELF", "NAMESPACE", "Inner", "Structure", "equal", "placed"]

NAMESPACE = "tensorferry"
# For good, and in this namespace alone: leaves come in the order in which a person wrote them.
_ORDERED = optree.dict_insertion_ordered(True, namespace=NAMESPACE)
_ORDERED.__enter__()

ITSELF = Node((), (), lambda tree: tree)
"""Opens a container of optree's that stands at several places, or is a leaf at another."""
_ALIKE = (dict, OrderedDict, defaultdict, list, tuple)
"""Containers that have nothing but their values: where samples have the same, their types may differ."""


class Inner(NamedTuple):
    """An opened container in the place of a leaf."""

    node: Node
    structure: Structure
    kind: type
    shared: int | None
    """The same for each place at which one container stands; ``None``: it stands at one."""

    def keys(self, x: Any) -> Iterator[tuple[Any, str] | None]:
        """As for `Structure`, within a container that is like this one."""
        if self.node is ITSELF:
            return self.structure.keys(x)
        node = next(node for opener in openers_of(type(x), [x]) if (node := opener(x)) is not None)
        return self.structure.keys_within(list(node.values), x if isinstance(x, Mapping) else None)


class Structure:
    """A tree without its leaves."""

    __slots__ = ("_inner", "_spec", "size", "twins")

    def __init__(self, spec: optree.PyTreeSpec, inner: dict[int, Inner], size: int) -> None:
        self._spec = spec
        self._inner = inner
        self.size = size
        """How many leaves it has."""
        self.twins: dict[int, int] = {}
        """For each leaf of a container that has been met before: that leaf of it where it was met first."""

    @property
    def flat_keys(self) -> list[Any] | None:
        """The keys of a dict of nothing but leaves; ``None``: it may be something else."""
        return None

    def one_of_many(self) -> Structure | None:
        """If this is a list of trees that are all alike: what one of them is without its leaves."""
        if self._inner:
            return None
        one = self._spec.child(0)
        many = optree.treespec_list([one] * self._spec.num_children, none_is_leaf=True, namespace=NAMESPACE)
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
                yield from inner.structure.places(path, None if inner.node is ITSELF else inner.node.entries, spell)

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

    def is_in_order_of(self, other: Structure) -> bool:
        """Whether another tree has the same leaves in the same order, as far as that is seen at once."""
        return not self._inner and not other._inner and self._spec.paths() == other._spec.paths()

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

    def _make(self, inner: Inner, leaves: Iterator[Any], count: int | None, made: dict[int, list[_Made]]) -> Any:
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
    if isinstance(error, LossyCastError) and isinstance(result, LossyCastError):
        result.instead = error.instead
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
