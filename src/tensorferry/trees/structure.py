"""`Structure`: a tree without its leaves, which makes trees from other leaves."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import optree

from ..backends.nodes import Node, dotted, item
from ..core.named_tuple import NamedTuple
from ..errors import ConversionError, LossyCastError, TreeError
from .containers import openers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["ITSELF", "NAMESPACE", "InnerContainer", "Structure", "at_path", "equal"]

NAMESPACE = "tensorferry"
# Permanently, but only in this namespace, so that leaves come in the order in which they were
# written.
_ORDERED = optree.dict_insertion_ordered(True, namespace=NAMESPACE)
_ORDERED.__enter__()

ITSELF = Node((), (), lambda tree: tree)
"""The node of a container optree knows that occurs several times, or is a leaf elsewhere."""
_ALIKE = (dict, OrderedDict, defaultdict, list, tuple)
"""Containers without attributes: the types of these may differ between samples."""


class InnerContainer(NamedTuple):
    """A container in the place of a leaf of the optree structure."""

    node: Node
    structure: Structure
    kind: type
    shared: int | None
    """A number that all occurrences of one container have; ``None`` if it occurs once."""

    def keys(self, x: Any) -> Iterator[tuple[Any, str] | None]:
        """See `Structure`, for a container of the same structure."""
        if self.node is ITSELF:
            return self.structure.keys(x)
        node = next(node for opener in openers_of(type(x), [x]) if (node := opener(x)) is not None)
        return self.structure.keys(list(node.values), x if isinstance(x, Mapping) else None)


class Structure:
    """A tree without its leaves."""

    __slots__ = ("_inner", "_names", "_paths", "_spec", "size", "twins")

    def __init__(
        self, spec: optree.PyTreeSpec, inner: dict[int, InnerContainer], size: int
    ) -> None:
        self._spec = spec
        self._inner = inner
        self.size = size
        """The number of leaves."""
        self.twins: dict[int, int] = {}
        """For each leaf of a recurring container: the leaf's index at its first occurrence."""
        self._paths: list[str] | None = None
        self._names: list[str] | None = None

    @property
    def flat_keys(self) -> list[Any] | None:
        """The keys, if the tree is a dict that contains only leaves; otherwise ``None``."""
        return None

    def one_of_many(self) -> Structure | None:
        """For a list of trees of the same structure: their structure; otherwise ``None``."""
        if self._inner:
            return None
        one = self._spec.child(0)
        many = optree.treespec_list(
            [one] * self._spec.num_children, none_is_leaf=True, namespace=NAMESPACE
        )
        if equal(many, self._spec):
            return Structure(one, {}, one.num_leaves)
        return None

    def path(self, index: int) -> str:
        """The path of a leaf. All are made at the first call."""
        if self._paths is None:
            self._paths = self.paths()
        return self._paths[index]

    def name(self, index: int) -> str:
        """The dotted name of a leaf. All are made at the first call."""
        if self._names is None:
            self._names = self.names()
        return self._names[index]

    def paths(self) -> list[str]:
        """The path of each leaf: ``$["encoder"][3].weight``.

        Leaves with equal paths get numbers.
        """
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
        """The dotted name of each leaf: ``encoder.3.weight``.

        If the tree is one leaf, the name is empty.
        """
        return [
            name.removeprefix(".") for name, node in self.places("", spell=dotted) if node is None
        ]

    def places(
        self, root: str, entries: Sequence[str] | None = None, spell: Callable[[str], str] = str
    ) -> Iterator[tuple[str, Node | None]]:
        """The path of each leaf, with ``None``, and of each container opened here, with its opener.

        Args:
            root: The path of the tree.
            entries: What leads to each of its values, where it is the list of an opened
                container's.
            spell: How each step of a path is written.
        """
        for index, accessor in enumerate(self._spec.accessors()):
            first = () if entries is None else accessor[:1]
            path = root + "".join(
                spell(entries[int(each.entry)]) for each in first if entries is not None
            )
            path += "".join(spell(_entry(each)) for each in accessor[len(first) :])
            inner = self._inner.get(index)
            yield path, None if inner is None else inner.node
            if inner is not None:
                yield from inner.structure.places(
                    path, None if inner.node is ITSELF else inner.node.entries, spell
                )

    def keys(self, tree: Any, mapping: Any = None) -> Iterator[tuple[Any, str] | None]:
        """For each leaf, the mapping that holds it in a tree of this structure, and its key there.

        ``None``: it is below no key that is a str, or the mapping takes no other. The tree may be
        the list of the values of `mapping`.
        """
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
        """The node of each container that was opened here."""
        for inner in self._inner.values():
            yield inner.node
            yield from inner.structure.nodes()

    def path_of(self, node: Node) -> str:
        """The path of a container that was opened here."""
        return next(path for path, found in self.places("$") if found is node)

    def is_like(self, other: Structure) -> bool:
        """Whether another tree has the same containers and attributes in the same places."""
        if self._inner.keys() != other._inner.keys() or not equal(self._spec, other._spec):
            return False
        for index, inner in self._inner.items():
            mine, others = inner.node, other._inner[index].node
            if inner.kind is not other._inner[index].kind or mine.entries != others.entries:
                return False
            if not (
                equal(mine.static, others.static) and equal(mine.registered, others.registered)
            ):
                return False
            if not inner.structure.is_like(other._inner[index].structure):
                return False
        return True

    def is_in_order_of(self, other: Structure) -> bool:
        """Whether another tree surely has its leaves in the same order, by a quick check."""
        return not self._inner and not other._inner and self._spec.paths() == other._spec.paths()

    def statics(self) -> dict[str, tuple[type, Any]]:
        """For each container, by its path: its type, and its attributes that are not values."""
        return dict(self.statics_under("$", None))

    def statics_under(
        self, path: str, entries: Sequence[str] | None
    ) -> Iterator[tuple[str, tuple[type, Any]]]:
        """Yield the items of `statics`; the arguments are those of `places`."""
        return self._statics(self._spec, path, entries, 0)

    def _statics(
        self, spec: optree.PyTreeSpec, path: str, entries: Sequence[str] | None, first: int
    ) -> Iterator[tuple[str, tuple[type, Any]]]:
        if spec.is_leaf():
            inner = self._inner.get(first)
            if inner is not None and inner.node is ITSELF:
                yield from inner.structure.statics_under(path, None)
            elif inner is not None:
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
        """Make the tree again, with other leaves.

        Args:
            leaves: The leaves, `size` of them.
            count: The number of samples in each leaf, if they are a batch; otherwise ``None``.

        Raises:
            UnsupportedTypeError: A container cannot be rebuilt.
        """
        if not self._inner:
            return optree.tree_unflatten(self._spec, leaves)
        try:
            return self.rebuild_from(iter(leaves), count, {})
        except _NotMadeError as failed:
            error, path = failed.why, self.path_of(failed.inner.node)
            if isinstance(error, ConversionError):
                raise at_path(error, path) from error
            _note(
                error,
                f"raised when the {failed.inner.kind.__name__} at {path} "
                "was made again of its new values",
            )
        raise error

    def rebuild_from(
        self, leaves: Iterator[Any], count: int | None, made: dict[int, list[_Made]]
    ) -> Any:
        """Make the tree again, with the next `size` leaves of an iterator.

        Args:
            leaves: The iterator.
            count: See `rebuild`.
            made: The results so far for each container that occurs several times.
        """
        values = [self._leaf(index, leaves, count, made) for index in range(self._spec.num_leaves)]
        return optree.tree_unflatten(self._spec, values)

    def _leaf(
        self, index: int, leaves: Iterator[Any], count: int | None, made: dict[int, list[_Made]]
    ) -> Any:
        inner = self._inner.get(index)
        if inner is None:
            return next(leaves)
        if inner.shared is None:
            return self._make(inner, leaves, count, made)
        own = list(islice(leaves, inner.structure.size))
        before = made.setdefault(inner.shared, [])
        for known, result in before:
            # Only if the leaves are the same: with other targets for each place, they may differ.
            if all(new is old for new, old in zip(own, known, strict=True)):
                return result
        result = self._make(inner, iter(own), count, made)
        before.append((own, result))
        return result

    def _make(
        self,
        inner: InnerContainer,
        leaves: Iterator[Any],
        count: int | None,
        made: dict[int, list[_Made]],
    ) -> Any:
        values = inner.structure.rebuild_from(leaves, count, made)
        node = inner.node
        try:
            if count is None or node.stack is None:
                return node.rebuild(values)
            return node.stack(values, count)
        except Exception as error:  # noqa: BLE001 - what the class of the container raises
            raise _NotMadeError(inner, error) from None


_Made = tuple[list[Any], Any]


def equal(x: Any, y: Any) -> bool:
    """Whether two values are equal; no if their comparison fails."""
    if x is y:
        return True
    try:
        return bool(x == y)
    except Exception:  # noqa: BLE001 - arrays have no one answer, and others any
        return False


_WITHIN = re.compile(r" - at x((?:\[\d+\])+)$")
"""The place of an element of a list, at the end of the message about it."""


def at_path(error: ConversionError, path: str) -> ConversionError:
    """The error, with the path of the leaf."""
    if isinstance(error, TreeError):
        told: Any = error.exceptions
    else:
        told = error.advice
    message, inside = error.message, error.inside
    within = _WITHIN.search(message)
    if within is not None:
        message, inside = message[: within.start()], within[1]
    result = type(error)(f"{message} - at {path}{inside}", told)
    result.__cause__ = error
    if isinstance(error, LossyCastError) and isinstance(result, LossyCastError):
        result.instead = error.instead
    return result


class _NotMadeError(Exception):
    """A container that cannot be rebuilt."""

    def __init__(self, inner: InnerContainer, why: Exception) -> None:
        super().__init__(inner, why)
        self.inner = inner
        self.why = why


def _note(error: Exception, text: str) -> None:
    """Add a note to an exception, whose type stays the same."""
    with suppress(AttributeError, TypeError):  # an exception may refuse attributes
        error.__notes__ = [*getattr(error, "__notes__", ()), text]  # type: ignore[attr-defined]


def _keyed(mapping: Any, key: Any) -> tuple[Any, str] | None:
    if isinstance(mapping, MutableMapping) and isinstance(key, str):
        return mapping, key
    return None


def _entry(entry: optree.PyTreeEntry) -> str:
    if isinstance(entry, optree.MappingEntry):
        return item(entry.entry)
    return entry.codify("")
