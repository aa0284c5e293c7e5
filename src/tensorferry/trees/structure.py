"""`Structure`: a tree without its leaves, which makes trees from other leaves.

A `Container` is what trees of one structure have in common: a program finds it in the next tree.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress
from functools import cache
from itertools import chain, cycle, islice
from operator import is_
from typing import TYPE_CHECKING, Any

from ..backends.fast_paths import NOT_ACCEPTED
from ..backends.nodes import Node, dotted
from ..errors import ConversionError, LossyCastError, TreeError, UnsupportedTypeError
from .containers import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .containers import Opening

    Placed = tuple["Container", Any, int]

__all__ = [
    "Container",
    "Structure",
    "are_alike",
    "are_different",
    "are_plain",
    "at_path",
    "equal",
    "have_equal_labels",
    "labels_of",
    "recurring",
    "too_deep",
    "without_values",
]

_ALIKE = (dict, OrderedDict, defaultdict, list, tuple)
"""Containers without attributes: the types of these may differ between samples."""


class Container:
    """A container, with those inside it: no tree, and nothing that is in one.

    Args:
        kind: Its type.
        opening: How it is opened and made again.
        size: The number of its values.
        inner: Those values that are containers, by position.
    """

    __slots__ = ("count", "entries", "inner", "kind", "make", "opened", "size", "way")

    def __init__(
        self, kind: type, opening: Opening, size: int, inner: tuple[tuple[int, Container], ...]
    ) -> None:
        self.kind = kind
        self.opened, self.make, self.entries, self.way = opening
        self.size = size
        self.inner = inner
        self.count: int = (
            size + sum([container.count - 1 for _, container in inner]) if inner else size
        )
        """The number of leaves inside it."""

    def take(self, x: Any, leaves: list[Any], kept: list[Any], met: list[int]) -> bool:
        """Take an object apart. Whether it is such a container; with other keys, it still is.

        Args:
            x: The object.
            leaves: Its leaves are added here.
            kept: What it and each container inside are made again from is added here.
            met: The `id` of each of them is added here, as `recurring` takes them.
        """
        if type(x) is not self.kind:
            return False
        opened = self.opened(x)
        if opened is None:
            return False
        whole, values = opened
        kept.append(whole)
        met.append(id(x))
        if not self.inner:
            before = len(leaves)
            leaves += values
            if len(leaves) - before != self.size:
                return False
        else:
            values = [*values]
            if len(values) != self.size:
                return False
            start = 0
            for at, inner in self.inner:
                if start < at:
                    leaves += values[start:at]
                if not inner.take(values[at], leaves, kept, met):
                    return False
                start = at + 1
            leaves += values[start:]
        return True

    def rebuild(self, kept: Iterator[Any], leaves: Iterator[Any]) -> Any:
        """Make the container again.

        Args:
            kept: What `take` kept of it and of those inside.
            leaves: Other leaves.

        Raises:
            NotMadeError: It, or one inside it, cannot be made of these values.
        """
        whole, start, failed = next(kept), 0, self
        try:
            if not self.inner:
                return self.make(whole, islice(leaves, self.size))
            values: list[Any] = []
            for at, inner in self.inner:
                if start < at:
                    values += islice(leaves, at - start)
                start = at + 1
                if inner.inner:
                    values.append(inner.rebuild(kept, leaves))
                else:  # not by a call of its own, because most are such
                    failed = inner
                    values.append(inner.make(next(kept), islice(leaves, inner.size)))
            failed = self
            values += islice(leaves, self.size - start)
            return self.make(whole, values)
        except NotMadeError:
            raise
        except Exception as error:  # noqa: BLE001 - what the class of the container raises
            raise NotMadeError(failed, error) from None

    def put(self, values: Sequence[Any], start: int, leaves: list[Any]) -> list[Placed]:
        """Put what there is for each of its values that is a leaf where it belongs.

        Args:
            values: What there is for each of its values.
            start: The index of the first leaf inside it.
            leaves: What there is for each leaf of the tree.

        Returns:
            For each container inside, from the last to the first: itself, what there is for it, and
            the index of its first leaf.
        """
        placed: list[Placed] = []
        after = 0
        for at, inner in self.inner:
            leaves[start : start + at - after] = values[after:at]
            start += at - after
            placed.append((inner, values[at], start))
            start += inner.count
            after = at + 1
        leaves[start : start + self.size - after] = values[after:]
        return placed[::-1]

    def rows(self) -> list[tuple[Any, ...]]:
        """This container and those inside it as plain data, as ``_walks.c`` takes them."""
        places = tuple([at for at, _ in self.inner])
        own = self.kind, self.way, self.size, places, self.opened, self.make, self
        return [own, *chain.from_iterable([container.rows() for _, container in self.inner])]

    def is_like(self, other: Container) -> bool:
        """Whether another one is of the same type and size, and so are those inside it."""
        return self is other or (
            self.kind is other.kind
            and self.size == other.size
            and [at for at, _ in self.inner] == [at for at, _ in other.inner]
            and all(
                mine.is_like(others)
                for (_, mine), (_, others) in zip(self.inner, other.inner, strict=True)
            )
        )


class NotMadeError(RuntimeError):
    """A container that cannot be made again, and why."""

    def __init__(self, container: Container, why: Exception) -> None:
        super().__init__(container, why)
        self.container = container
        self.why = why


def too_deep() -> ConversionError:
    """The error for a tree without end, or almost."""
    return UnsupportedTypeError("This tree contains itself, or is nested too deep.", None)


class Structure:
    """A tree without its leaves.

    Args:
        root: The outermost container; ``None`` if the tree is one leaf.
        kept: What each container is made again from. One comes before those inside it.
        ids: For each, the `id` of the object that it was, if those that recur are made once.
    """

    __slots__ = (
        "_kinds",
        "_names",
        "_paths",
        "_recurring",
        "_walk",
        "kept",
        "recurs",
        "root",
        "size",
        "twins",
    )

    def __init__(
        self, root: Container | None, kept: Sequence[Any], ids: Sequence[int] = ()
    ) -> None:
        self.root = root
        self.kept = kept
        self.size = 1 if root is None else root.count
        """The number of leaves."""
        self._paths: list[str] | None = None
        self._names: list[str] | None = None
        self._kinds: list[type] | None = None
        self._walk: Any = None
        """What takes the next such tree apart in C; ``None`` without the extension."""
        self._recurring: dict[int, tuple[Any, slice, int]] = {}
        """By number, for each container that recurs: what makes it, its leaves, and the number of
        its first occurrence."""
        self.twins: dict[int, int] = {}
        """For each leaf of a recurring container: the leaf's index at its first occurrence."""
        self.recurs = recurring(ids)
        """For each container, the number of its first occurrence; ``None`` if none recurs."""
        if self.recurs is not None:
            self._find_twins(self.recurs)

    def _find_twins(self, recurs: list[int]) -> None:
        placed, occurrences = self.containers(), Counter(recurs)
        for number, (container, start) in enumerate(placed):
            before = recurs[number]
            if occurrences[before] == 1:
                continue
            leaves = slice(start, start + container.count)
            self._recurring[number] = container.make, leaves, before
            container.make = _make_once
            there = placed[before][1]
            for index in range(container.count if before != number else 0):
                twin = self.twins.get(there + index, there + index)
                self.twins.setdefault(start + index, twin)

    def without_kept(self, kinds: list[type]) -> Structure:
        """The structure without what is in one tree only: see `taken` and `again`.

        Args:
            kinds: The type of each leaf.
        """
        structure = Structure(self.root, ())
        structure._recurring, structure.twins = self._recurring, self.twins
        structure.recurs, structure._kinds = self.recurs, kinds
        walks = _walks()
        if walks is not None:
            rows = () if self.root is None else tuple(self.root.rows())
            structure._walk = walks.Walk(rows, tuple(kinds), NotMadeError)
        return structure

    # -- the next tree ----------------------------------------------------------------------------

    def taken(self, tree: Any) -> tuple[list[Any], list[Any]] | None:
        """The leaves of a tree, and what its containers are made again from.

        ``None`` if it has another structure, or leaves of other types; with other keys, it still
        has this one.

        Args:
            tree: The tree.
        """
        if self._walk is not None:
            taken = self._walk.take(tree)
        else:
            taken = self._taken(tree)
        if taken is None:
            return None
        leaves, kept, met = taken
        recurs = None if met is None else recurring(met)
        return (leaves, kept) if recurs == self.recurs else None

    def converted(
        self,
        tree: Any,
        paths: dict[type, Callable[[Any], Any]],
        places: list[int] | None,
        dtypes: dict[Any, Any] | None = None,
    ) -> tuple[list[Any], list[Any], Any] | None:
        """The same, and the tree made again of what functions give for its leaves.

        In its place ``None``, if one of these leaves is twice in it or has no function, if a function
        gives ``None``, gives another dtype or raises one of `fast_paths.NOT_ACCEPTED`, or if a
        container cannot be made.

        Args:
            tree: The tree; no container recurs in trees of this structure.
            paths: The functions, by the types of the leaves.
            places: The positions of the leaves that are converted; ``None`` for all.
            dtypes: The dtypes that the results may have; ``None`` for any.
        """
        if self._walk is not None:
            converted = self._walk.convert(tree, paths, places, dtypes, NOT_ACCEPTED)
            if converted is None:
                return None
            leaves, kept, met, made = converted
            return (leaves, kept, made) if met is None else None
        taken = self.taken(tree)
        if taken is None:
            return None
        leaves, kept = taken
        return leaves, kept, self.by_paths(leaves, kept, paths, places, dtypes)

    def by_paths(
        self,
        leaves: list[Any],
        kept: list[Any],
        paths: dict[type, Callable[[Any], Any]],
        places: list[int] | None,
        dtypes: dict[Any, Any] | None,
    ) -> Any:
        """The tree made again as `converted` does, of leaves and containers taken apart before."""
        results = [*leaves]
        if not are_different(leaves, places):
            return None
        try:
            for place in range(len(leaves)) if places is None else places:
                result = results[place] = paths[type(leaves[place])](leaves[place])
                if result is None or (dtypes is not None and result.dtype not in dtypes):
                    return None
            return results[0] if self.root is None else self._make(kept, results)
        except (NotMadeError, *NOT_ACCEPTED):
            return None

    def _taken(self, tree: Any) -> tuple[list[Any], list[Any], Any] | None:
        opened = self.opened(tree)
        return None if opened is None or [*map(type, opened[0])] != self._kinds else opened

    def opened(self, tree: Any) -> tuple[list[Any], list[Any], Any] | None:
        """The same for a tree whose leaves may be of any types, and whose containers may recur.

        The third is the ids of its containers, in which those that recur are looked for.
        """
        if self._walk is not None:
            return self._walk.open(tree)  # type: ignore[no-any-return]
        leaves: list[Any] = []
        kept: list[Any] = []
        met: list[int] = []
        if self.root is None:
            leaves.append(tree)
        elif not self.root.take(tree, leaves, kept, met):
            return None
        return leaves, kept, met

    def containers(self) -> list[tuple[Container, int]]:
        """Each container, and the index of its first leaf. One comes before those inside it."""
        placed = self._visit(None, lambda container, *_: [None] * container.size)[1]
        return [(container, start) for container, _, start in placed]

    def positions(self) -> list[tuple[int, ...]]:
        """The position of each leaf in its container, after those of the containers around."""
        return self._visit(
            (), lambda container, _, own: [(*own, at) for at in range(container.size)]
        )[0]

    def _visit(
        self, root: Any, give: Callable[[Container, Any, Any], Sequence[Any]]
    ) -> tuple[list[Any], list[Placed]]:
        """Go through the containers, and give something to each, and to each leaf.

        Args:
            root: What there is for the whole tree.
            give: Gives what there is for each value of a container: from it, what it is made again
                from, and what there is for it.

        Returns:
            What there is for each leaf; and each container, what there is for it, and the index of
            its first leaf.
        """
        leaves = [root] * self.size
        placed: list[Placed] = []
        waiting = [] if self.root is None else [(self.root, root, 0)]
        for kept in self.kept:
            container, own, start = waiting.pop()
            placed.append((container, own, start))
            waiting += container.put(give(container, kept, own), start, leaves)
        return leaves, placed

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
        paths = self._spelled("$")[0]
        if len(set(paths)) == len(paths):
            return paths
        seen: Counter[str] = Counter()
        numbered = []
        for path in paths:
            seen[path] += 1
            numbered.append(path if seen[path] == 1 else f"{path} ({seen[path]})")
        return numbered

    def names(self) -> list[str]:
        """The dotted name of each leaf: ``encoder.3.weight``.

        If the tree is one leaf, the name is empty.
        """
        return [name.removeprefix(".") for name in self._spelled("", dotted)[0]]

    def path_of(self, wanted: Container | Node) -> str:
        """The path of a container; of the one that was opened as a `Node`."""
        places = zip(self._spelled("$")[1], self.kept, strict=True)
        return next(
            str(path)
            for (container, path, _), kept in places
            if container is wanted or kept is wanted
        )

    def _spelled(
        self, root: str, spell: Callable[[str], str] | None = None
    ) -> tuple[list[str], list[Placed]]:
        """The path of each leaf, and each container with its path.

        Args:
            root: The path of the tree.
            spell: How each step of a path is written, if not as it is.
        """

        def give(container: Container, kept: Any, path: str) -> list[str]:
            steps = container.entries(kept, container.size)
            return [path + step for step in (steps if spell is None else map(spell, steps))]

        return self._visit(root, give)

    # -- comparisons ------------------------------------------------------------------------------

    def nodes(self) -> Iterator[Node]:
        """The node of each container that was opened as one."""
        return (kept for kept in self.kept if isinstance(kept, Node))

    def is_like(self, other: Structure) -> bool:
        """Whether another tree has the same containers and attributes in the same places."""
        return self._has_containers_of(other) and self.has_alike(other.kept)

    def _has_containers_of(self, other: Structure) -> bool:
        if self.root is None or other.root is None:
            return self.root is other.root
        return self.root.is_like(other.root)

    def has_alike(self, kept: Sequence[Any]) -> bool:
        """Whether trees with these containers have their keys and attributes, in the same order.

        Args:
            kept: What the containers of the trees are made again from, of one after the other.
        """
        return all(map(are_alike, cycle(self.kept), kept))

    def statics(self) -> dict[str, tuple[type, Any]]:
        """For each container, by its path: its type, and its attributes that are not values."""
        statics = {}
        for (container, path, _), kept in zip(self._spelled("$")[1], self.kept, strict=True):
            if isinstance(kept, Node):
                statics[path] = container.kind, (kept.static, kept.registered)
            elif container.kind not in _ALIKE:
                statics[path] = container.kind, kept
        return statics

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
        kept = self.kept if count is None else [_stacking(value, count) for value in self.kept]
        return self.again(kept, leaves)

    def again(self, kept: Sequence[Any], leaves: Sequence[Any]) -> Any:
        """Make another tree with these containers, of other leaves.

        Args:
            kept: What its containers are made again from.
            leaves: The leaves.

        Raises:
            UnsupportedTypeError: A container cannot be rebuilt.
        """
        root, whole = self.root, kept
        if root is None:
            return leaves[0]
        make: Callable[[Any, Any], Any] = self._make
        if self._recurring:
            made: dict[int, list[tuple[Sequence[Any], Any]]] = {}
            once = {
                number: (make, kept[number], leaves[own], made.setdefault(first, []))
                for number, (make, own, first) in self._recurring.items()
            }
            whole = [once.get(number, value) for number, value in enumerate(kept)]
        elif self._walk is not None:
            make = self._walk.make
        try:
            return make(whole, leaves)
        except NotMadeError as failed:
            error, container = failed.why, failed.container
        except RecursionError as failed:
            error, container = failed, root
        if isinstance(error, RecursionError):
            raise too_deep() from None
        path = Structure(root, kept).path_of(container)
        if isinstance(error, ConversionError):
            raise at_path(error, path) from error
        kind = container.kind.__name__
        _note(error, f"raised when the {kind} at {path} was made again of its new values")
        raise error

    def _make(self, kept: Sequence[Any], leaves: Sequence[Any]) -> Any:
        root: Any = self.root
        return root.rebuild(iter(kept), iter(leaves))


@cache
def _walks() -> Any:
    """The extension that takes trees of a known structure apart; ``None`` if there is none."""
    from ..host.extensions import c_extension  # here, because many processes have no trees

    return c_extension("trees._walks")


def are_different(objects: list[Any], places: list[int] | None) -> bool:
    """Whether no object of a list stands at two of some positions; ``None`` for all positions."""
    some = objects if places is None else [objects[place] for place in places]
    if len(some) < 2:
        return True
    walks = _walks()
    if walks is not None:
        return walks.are_different(some)  # type: ignore[no-any-return]
    return len({*map(id, some)}) == len(some)


def are_plain(values: Iterable[Any], levels: int = 4) -> bool:
    """Whether there is certainly no tensor in values: only plain ones, in plain containers."""
    walks = _walks()
    if walks is not None:
        return walks.are_plain(values, _PLAIN, OrderedDict, levels)  # type: ignore[no-any-return]
    held: Iterable[Any] = values
    for _ in range(levels):
        held = list(held)
        kinds = set(map(type, held))
        if kinds == {dict}:
            held = chain.from_iterable(map(dict.values, held))
            continue
        kinds -= PLAIN
        if not kinds:
            return True
        if not kinds <= _SEARCHED:
            return False
        if OrderedDict in kinds and any(vars(x) for x in held if type(x) is OrderedDict):
            return False
        held = chain.from_iterable(
            x.values() if isinstance(x, dict) else x for x in held if type(x) in kinds
        )
    return False


_SEARCHED = frozenset({dict, OrderedDict, list, tuple})
_PLAIN = tuple(PLAIN)


def recurring(ids: Sequence[int]) -> list[int] | None:
    """For each container, the number of its first occurrence; ``None`` if none recurs.

    Args:
        ids: The `id` of each.
    """
    if len({*ids}) == len(ids):
        return None
    first: dict[int, int] = {}
    firsts = [first.setdefault(identity, number) for number, identity in enumerate(ids)]
    # Python has only one empty tuple, so its occurrences do not count.
    if _EMPTY in first:
        firsts = [at if ids[at] != _EMPTY else number for number, at in enumerate(firsts)]
    return firsts if len({*firsts}) < len(firsts) else None


_EMPTY = id(())


def _stacking(kept: Any, count: int) -> Any:
    """What a container is made again from, if its values are a batch of so many samples."""
    stack = kept.stack if isinstance(kept, Node) else None
    return kept if stack is None else kept._replace(rebuild=lambda values: stack(values, count))


def _make_once(kept: Any, values: Iterable[Any]) -> Any:
    """Make a container that recurs, unless it was made before.

    With other targets for each place its leaves may differ: then there are several of it.
    """
    make, whole, own, made = kept
    values = [*values]  # taken from the leaves in any case: those of what follows come after them
    for others, result in made:
        if all(map(is_, own, others)):
            return result
    result = make(whole, values)
    made.append((own, result))
    return result


# -- what is compared ------------------------------------------------------------------------------


def are_alike(mine: Any, other: Any) -> bool:
    """Whether two containers of one type have the same keys and attributes, in the same order.

    Args:
        mine: What the one is made again from.
        other: What the other one is made again from.
    """
    return mine is other or equal(_told(mine), _told(other))


def _told(kept: Any) -> Any:
    """What is equal for containers of one type that are alike, beside their values."""
    if isinstance(kept, Node):
        return [*kept.entries], kept.static, kept.registered
    if isinstance(kept, (dict, list)):  # the keys of a dict
        return getattr(kept, "default_factory", None), [*kept]
    return kept


def labels_of(kept: Iterable[Any]) -> list[Any]:
    """The keys of containers with their types, or their entries: ``1`` and ``True`` are equal.

    A key of another class, whose comparison may do anything, is told by its `id`.
    """
    return [*map(_labels, kept)]


def have_equal_labels(kept: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the containers of two trees have the same labels: see `labels_of`."""
    return all(map(_have_equal_labels, kept, others))


def _have_equal_labels(kept: Any, other: Any) -> bool:
    if type(kept) is type(other) is dict and {*map(type, kept), *map(type, other)} <= {str}:
        return [*kept] == [*other]
    if isinstance(kept, Node) and isinstance(other, Node):
        mine, theirs = kept.entries, other.entries
        return mine == theirs or [*mine] == [*theirs]
    return _labels(kept) == _labels(other)


def _labels(kept: Any) -> list[Any] | None:
    if isinstance(kept, Node):
        return [*kept.entries]
    if isinstance(kept, (dict, list)):
        return [(type(key), key if type(key) in PLAIN else id(key)) for key in kept]
    return None


def without_values(kept: dict[Any, Any]) -> Any:
    """What a dict is made again from, without the values, which are not to be kept alive."""
    if isinstance(kept, defaultdict):
        return defaultdict(kept.default_factory, dict.fromkeys(kept))
    return [*kept]


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
