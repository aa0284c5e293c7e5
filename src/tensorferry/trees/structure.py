"""`Structure`: a tree without its leaves, which makes trees from other leaves.

`Containers` are what trees of one structure have in common: a program finds them in the next tree.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import MutableMapping
from contextlib import suppress
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Any

from ..backends.nodes import Node, dotted
from ..core.named_tuple import NamedTuple
from ..errors import ConversionError, LossyCastError, TreeError
from .containers import PLAIN, make_node, openings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .containers import Opening

    Piece = tuple[int, int, int, int]
    Made = list[tuple[list[Any], Any]]

__all__ = [
    "Container",
    "Containers",
    "Structure",
    "at_path",
    "equal",
    "labels_of",
    "values_of",
    "without_values",
]

_ALIKE = (dict, OrderedDict, defaultdict, list, tuple)
"""Containers without attributes: the types of these may differ between samples."""


class Container(NamedTuple):
    """One container of a structure.

    Args:
        kind: Its type.
        opening: How it is opened and made again.
        size: The number of its values.
        inner: Those values that are containers: the position of each, and its number.
        start: The index of the first leaf inside it.
        stop: The index after the last one.
        pieces: Where its other values are, if some are containers: the first of each run of them
            and the one after the last, and the indices of these as leaves.
    """

    kind: type
    opening: Opening
    size: int
    inner: tuple[tuple[int, int], ...]
    start: int
    stop: int
    pieces: tuple[Piece, ...]

    def put(self, values: Any, into: list[Any], inside: list[Any]) -> None:
        """Put its values where they belong: leaves by their indices, containers by their numbers.

        Args:
            values: The values.
            into: The place of each leaf of the tree.
            inside: The place of each container.
        """
        if not self.inner:
            into[self.start : self.stop] = values
            return
        if type(values) is not list:
            values = [*values]
        for first, after, start, stop in self.pieces:
            into[start:stop] = values[first:after]
        for at, number in self.inner:
            inside[number] = values[at]

    def values(self, leaves: Sequence[Any], inside: Sequence[Any]) -> list[Any]:
        """Its values, from where `put` has put them."""
        if not self.inner:
            return leaves[self.start : self.stop]  # type: ignore[return-value]
        found: list[Any] = [None] * self.size
        for first, after, start, stop in self.pieces:
            found[first:after] = leaves[start:stop]
        for at, number in self.inner:
            found[at] = inside[number]
        return found


class Containers:
    """The containers of trees of one structure: no tree, and nothing that is in one.

    A container has a lower number than those inside it.

    Args:
        found: Each container, by its number; none if the tree is one leaf.
    """

    __slots__ = ("_found", "_order", "nodes", "size")

    def __init__(self, found: Sequence[Container]) -> None:
        self._found = found
        self.size = found[0].stop if found else 1
        """The number of leaves."""
        self.nodes = [number for number, each in enumerate(found) if each.opening.make is make_node]
        """The numbers of the containers that are opened as a `Node`."""
        order: list[int] = []
        waiting = [0] if found else []
        while waiting:
            order.append(waiting.pop())
            waiting += [number for _, number in found[order[-1]].inner]
        # Each after those inside it, and otherwise in the order of the tree.
        self._order = [(number, found[number]) for number in reversed(order)]

    def __iter__(self) -> Iterator[Container]:
        return iter(self._found)

    def __getitem__(self, number: int) -> Container:
        return self._found[number]

    def __len__(self) -> int:
        return len(self._found)

    def __eq__(self, other: object) -> bool:
        return other is self or (
            isinstance(other, Containers)
            and [(each.kind, each.size, each.inner) for each in self]
            == [(each.kind, each.size, each.inner) for each in other]
        )

    __hash__ = None  # type: ignore[assignment]

    def take(self, x: Any, leaves: list[Any], kept: list[Any], met: list[int]) -> bool:
        """Take a tree apart. Whether it has these containers; with other keys, it still has.

        Args:
            x: The tree.
            leaves: Its leaves are added here.
            kept: What each container is made again from is added here.
            met: The `id` of each container is added here.
        """
        if not self._found:
            leaves.append(x)
            return True
        objects = [x] * len(self._found)
        found: list[Any] = [None] * self.size
        for number, container in enumerate(self._found):
            x = objects[number]
            if type(x) is not container.kind:
                return False
            opened = container.opening.open(x)
            if opened is None or len(opened[1]) != container.size:
                return False
            kept.append(opened[0])
            container.put(opened[1], found, objects)
            if container.size or container.kind is not tuple:  # there is only one empty tuple
                met.append(id(x))
        leaves += found
        return len(found) == self.size  # no other thread has changed a list

    def rebuild(self, kept: Iterable[Any], leaves: Iterable[Any]) -> Any:
        """Make a tree again.

        Args:
            kept: What `take` kept of its containers.
            leaves: Other leaves; of an iterator, those of one tree are taken.

        Raises:
            NotMadeError: A container cannot be made of these values.
        """
        if type(leaves) is not list:
            leaves = [*islice(leaves, self.size)]
        if not self._found:
            return leaves[0]
        made = [*islice(kept, len(self._found))]
        for number, container in self._order:
            values = container.values(leaves, made)
            try:
                made[number] = container.opening.make(made[number], values)
            except Exception as error:  # noqa: BLE001 - what the class of the container raises
                raise NotMadeError(number, error) from None
        return made[0]


class NotMadeError(RuntimeError):
    """A container that cannot be made again, by its number, and why."""

    def __init__(self, number: int, why: Exception) -> None:
        super().__init__(number, why)
        self.number = number
        self.why = why


class Structure:
    """A tree without its leaves.

    Args:
        containers: Its containers.
        kept: What each is made again from.
        ids: For each, the `id` of the object that it was, if those that recur are made once.
    """

    __slots__ = ("_names", "_paths", "_recurring", "containers", "kept", "size", "twins")

    def __init__(
        self, containers: Containers, kept: Sequence[Any], ids: Sequence[int] = ()
    ) -> None:
        self.containers = containers
        self.kept = kept
        self.size = containers.size
        """The number of leaves."""
        self._paths: list[str] | None = None
        self._names: list[str] | None = None
        self._recurring: dict[int, tuple[int, Any]] = {}
        """For each container that recurs: the number of its first occurrence, and what makes it."""
        self.twins: dict[int, int] = {}
        """For each leaf of a recurring container: the leaf's index at its first occurrence."""
        if len(set(ids)) < len(ids):
            self._find_twins(ids)

    def _find_twins(self, ids: Sequence[int]) -> None:
        found = [*self.containers]
        occurrences = Counter(ids)
        first: dict[int, int] = {}
        for number, (each, container) in enumerate(zip(ids, found, strict=True)):
            # Python has only one empty tuple, so its occurrences do not count.
            if occurrences[each] == 1 or (container.kind is tuple and not container.size):
                continue
            before = first.setdefault(each, number)
            self._recurring[number] = before, container.opening.make
            opening = container.opening._replace(make=_make_once)
            found[number] = container._replace(opening=opening)
            if before == number:
                continue
            for index in range(container.start, container.stop):
                there = found[before].start + index - container.start
                self.twins.setdefault(index, self.twins.get(there, there))
        self.containers = Containers(found)

    # -- names ------------------------------------------------------------------------------------

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
        found = self._spelled("$")[0]
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
        return [name.removeprefix(".") for name in self._spelled("", dotted)[0]]

    def path_of(self, node: Node) -> str:
        """The path of a container that was opened as a `Node`."""
        return next(
            path
            for path, kept in zip(self._spelled("$")[1], self.kept, strict=True)
            if kept is node
        )

    def _spelled(self, root: str, spell: Callable[[str], str] = str) -> tuple[list[str], list[str]]:
        """The path of each leaf, and of each container.

        Args:
            root: The path of the tree.
            spell: How each step of a path is written.
        """
        leaves, inside = [root] * self.size, [root] * len(self.containers)
        for number, container in enumerate(self.containers):
            root = inside[number]
            steps = container.opening.entries(self.kept[number], container.size)
            container.put([root + spell(step) for step in steps], leaves, inside)
        return leaves, inside

    def keys(self, tree: Any) -> list[tuple[Any, str] | None]:
        """For each leaf, the mapping that holds it in a tree of this structure, and its key there.

        ``None``: it is below no key that is a str, or the mapping takes no other.
        """
        found: list[Any] = [None] * self.size
        objects, none = [tree] * len(self.containers), [None] * len(self.containers)
        for number, container in enumerate(self.containers):
            x = objects[number]
            if isinstance(x, MutableMapping) and len(x) == container.size:
                held = [(x, key) if isinstance(key, str) else None for key in x]
                container.put(held, found, [*none])
            if container.inner:
                container.put(values_of(x), [*none], objects)
        return found

    # -- comparisons ------------------------------------------------------------------------------

    def nodes(self) -> Iterator[Node]:
        """The node of each container that was opened as one."""
        return (kept for kept in self.kept if isinstance(kept, Node))

    def is_like(self, other: Structure) -> bool:
        """Whether another tree has the same containers and attributes in the same places."""
        return self.containers == other.containers and all(
            mine is others or equal(_told(mine), _told(others))
            for mine, others in zip(self.kept, other.kept, strict=True)
        )

    def is_in_order_of(self, other: Structure) -> bool:
        """Whether another tree surely has its leaves in the same order, by a quick check."""
        return self.containers == other.containers and labels_of(self.kept) == labels_of(other.kept)

    def statics(self) -> dict[str, tuple[type, Any]]:
        """For each container, by its path: its type, and its attributes that are not values."""
        found = {}
        for path, container, kept in zip(
            self._spelled("$")[1], self.containers, self.kept, strict=True
        ):
            if isinstance(kept, Node):
                found[path] = container.kind, (kept.static, kept.registered)
            elif container.kind not in _ALIKE:
                found[path] = container.kind, kept
        return found

    # -- make again -------------------------------------------------------------------------------

    def rebuild(self, leaves: Sequence[Any], count: int | None = None) -> Any:
        """Make the tree again, with other leaves.

        Args:
            leaves: The leaves, `size` of them.
            count: The number of samples in each leaf, if they are a batch; otherwise ``None``.

        Raises:
            ValueError: There are more leaves, or fewer.
            UnsupportedTypeError: A container cannot be rebuilt.
        """
        if len(leaves) != self.size:
            raise ValueError(f"{len(leaves)} leaves for a tree of {self.size}")
        kept = [*self.kept] if count is None else [_stacking(each, count) for each in self.kept]
        made: dict[int, Made] = {}
        for number, (first, make) in self._recurring.items():
            container = self.containers[number]
            own = leaves[container.start : container.stop]
            kept[number] = make, kept[number], own, made.setdefault(first, [])
        try:
            return self.containers.rebuild(kept, leaves)
        except NotMadeError as failed:
            error, path = failed.why, self._spelled("$")[1][failed.number]
            kind = self.containers[failed.number].kind
        if isinstance(error, ConversionError):
            raise at_path(error, path) from error
        _note(error, f"raised when the {kind.__name__} at {path} was made again of its new values")
        raise error


def _stacking(kept: Any, count: int) -> Any:
    """What a container is made again from, if its values are a batch of so many samples."""
    stack = kept.stack if isinstance(kept, Node) else None
    return kept if stack is None else kept._replace(rebuild=lambda values: stack(values, count))


def _make_once(kept: Any, values: list[Any]) -> Any:
    """Make a container that recurs, unless it was made before.

    With other targets for each place its leaves may differ: then there are several of it.
    """
    make, whole, own, made = kept
    for others, result in made:
        if all(map(is_, own, others)):
            return result
    result = make(whole, values)
    made.append((own, result))
    return result


# -- what is compared ------------------------------------------------------------------------------


def _told(kept: Any) -> Any:
    """What is equal for containers of one type that are alike, beside their values."""
    if isinstance(kept, Node):
        return [*kept.entries], kept.static, kept.registered
    if isinstance(kept, dict):
        return getattr(kept, "default_factory", None), list(kept)
    return kept


def labels_of(kept: Iterable[Any]) -> list[Any]:
    """The keys of containers with their types, or their entries: ``1`` and ``True`` are equal.

    A key of another class, whose comparison may do anything, is told by its `id`.
    """
    return [*map(_labels, kept)]


def _labels(kept: Any) -> list[Any] | None:
    if isinstance(kept, Node):
        return [*kept.entries]
    if isinstance(kept, dict):
        return [(type(key), key if type(key) in PLAIN else id(key)) for key in kept]
    return None


def values_of(x: Any) -> list[Any]:
    """The values of a container; none of a leaf."""
    for opening in openings_of(type(x), [x]):
        opened = opening.open(x)
        if opened is not None:
            return [*opened[1]]
    return []


def without_values(kept: Any) -> Any:
    """The same without the values of a tree, of which nothing is kept alive."""
    if isinstance(kept, defaultdict):
        return defaultdict(kept.default_factory, dict.fromkeys(kept))
    if isinstance(kept, dict):
        return dict.fromkeys(kept)
    return kept


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


def _note(error: Exception, text: str) -> None:
    """Add a note to an exception, whose type stays the same."""
    with suppress(AttributeError, TypeError):  # an exception may refuse attributes
        error.__notes__ = [*getattr(error, "__notes__", ()), text]  # type: ignore[attr-defined]
