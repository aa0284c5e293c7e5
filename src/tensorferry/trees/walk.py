"""Take a tree apart into its leaves and its structure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import registry
from ..errors import UnsupportedTypeError
from ..host.numpy_dtypes import of_numpy
from ..sequences import numbers
from ..sequences.diagnostics import DEEPEST
from .containers import PLAIN, openings_of
from .structure import Container, Containers, Structure, without_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from .containers import Opening

    Found = tuple[int, Any, Opening, Any, Collection[Any]]


__all__ = ["is_row", "take_apart"]

_DEEPEST = 1000
"""The deepest nesting of containers."""
_LEAVES: set[type] = set(PLAIN)
"""Types that are known not to be containers."""


def is_row(x: list[Any], depth: int = 0) -> bool:
    """Whether a plain list has only numbers, or only such lists; also an empty list.

    Below a key it is one value in a batch.

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


def take_apart(
    tree: Any,
    chosen: Callable[[Any], bool] | None = None,
    *,
    sharing: bool = False,
    rows: bool = False,
    like: tuple[list[Any], Structure] | None = None,
) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and its structure.

    Args:
        tree: Any object. An object that is not a container is the only leaf.
        chosen: Whether an object is a leaf although it may be a container.
        sharing: Whether a container that occurs twice is also rebuilt as one object.
        rows: Whether a plain list of numbers below a key is a leaf.
        like: What this gave for another tree with the same keywords; of such a tree it is known how
            it is opened. Not beside `sharing`.

    Raises:
        UnsupportedTypeError: It contains itself, or is nested too deep.
    """
    if like is not None and chosen is None:
        found = _take_as(tree, *like, rows=rows)
        if found is not None:
            return found
    walk = _Walk(chosen, rows=rows)
    walk.run(tree)
    containers = Containers(walk.containers())
    leaves = [tree] * containers.size
    inside = [tree] * len(containers)
    for container, values in zip(containers, walk.values, strict=True):
        container.put(values, leaves, inside)
    kept = [*map(without_values, walk.kept)]
    return leaves, Structure(containers, kept, [*map(id, walk.objects)] if sharing else ())


def _take_as(
    tree: Any, before: list[Any], structure: Structure, *, rows: bool
) -> tuple[list[Any], Structure] | None:
    """A tree with the containers of another one; ``None`` if it has others."""
    leaves: list[Any] = []
    kept: list[Any] = []
    if not structure.containers.take(tree, leaves, kept, []):
        return None
    kinds = set(map(type, leaves)) - _LEAVES
    if rows and list in kinds:
        kinds.remove(list)
        for leaf, other in zip(leaves, before, strict=True):
            # Only there it is known to be below a key.
            if type(leaf) is list and not (type(other) is list and is_row(leaf)):
                return None
    if any(openings_of(kind, leaves) for kind in kinds):
        return None
    return leaves, Structure(structure.containers, [*map(without_values, kept)])


class _Walk:
    """Finds the containers of a tree. One has a lower number than those inside it.

    Args:
        chosen: Whether an object is a leaf although it may be a container.
        rows: Whether a plain list of numbers below a key is a leaf.
    """

    def __init__(self, chosen: Callable[[Any], bool] | None, *, rows: bool) -> None:
        self._chosen = chosen
        self._rows = rows
        self._known: dict[type, tuple[Opening, ...]] = {}
        self.objects: list[Any] = []
        self.kept: list[Any] = []
        self.values: list[Collection[Any]] = []
        self._openings: list[Opening] = []
        self._inner: list[list[tuple[int, int]]] = []
        self._around: list[int] = []
        """The number of the container around each."""

    def run(self, tree: Any) -> None:
        """Find the containers of a tree.

        Raises:
            UnsupportedTypeError: It contains itself, or is nested too deep.
        """
        met: set[int] = set()
        waiting = [(-1, 0, found) for found in self._inside([tree], None)]
        while waiting:
            around, depth, (at, x, opening, kept, values) = waiting.pop()
            number = len(self.objects)
            if depth == _DEEPEST or (
                id(x) in met and any(x is each for each in self._path(around))
            ):
                raise UnsupportedTypeError(
                    "This tree contains itself, or is nested too deep.", None
                )
            met.add(id(x))
            if around >= 0:
                self._inner[around].append((at, number))
            self.objects.append(x)
            self.kept.append(kept)
            self.values.append(values)
            self._openings.append(opening)
            self._inner.append([])
            self._around.append(around)
            waiting += [(number, depth + 1, found) for found in self._inside(values, x)][::-1]

    def _path(self, number: int) -> Iterator[Any]:
        """A container, and those around it."""
        while number >= 0:
            yield self.objects[number]
            number = self._around[number]

    def _inside(self, values: Collection[Any], around: Any) -> list[Found]:
        """Those of the values of a container that are containers, each opened."""
        chosen = self._chosen
        openings = {
            kind: found
            for kind in set(map(type, values)) - _LEAVES
            if (found := self._openings_of(kind, values))
        }
        if not openings and chosen is None:
            return []
        rows = self._rows and isinstance(around, Mapping)
        result: list[Found] = []
        for at, value in enumerate(values):
            if chosen is not None and chosen(value):
                continue
            kind = type(value)
            if kind not in openings or (rows and kind is list and is_row(value)):
                continue
            for opening in openings[kind]:
                opened = opening.open(value)
                if opened is not None:
                    result.append((at, value, opening, *opened))
                    break
        return result

    def _openings_of(self, kind: type, values: Collection[Any]) -> tuple[Opening, ...]:
        if issubclass(kind, (np.ndarray, np.void)):
            return openings_of(kind, values)  # depends on their dtypes
        found = self._known.get(kind)
        if found is None:
            found = self._known[kind] = openings_of(kind, values)
            if not found and registry.is_known_tensor(kind):
                _LEAVES.add(kind)
        return found

    def containers(self) -> list[Container]:
        """The containers, as they are in every tree of this structure."""
        counts: list[int] = [0] * len(self.objects)
        for number in reversed(range(len(counts))):
            inner = self._inner[number]
            counts[number] = len(self.values[number]) - len(inner)
            counts[number] += sum([counts[each] for _, each in inner])
        starts = [0] * len(counts)
        found = []
        for number, count in enumerate(counts):
            size, start, after = len(self.values[number]), starts[number], 0
            pieces = []
            for at, inner in (*self._inner[number], (size, -1)):
                if at > after:
                    pieces.append((after, at, start, start + at - after))
                start += at - after
                after = at + 1
                if inner >= 0:
                    starts[inner] = start
                    start += counts[inner]
            found.append(
                Container(
                    type(self.objects[number]),
                    self._openings[number],
                    size,
                    tuple(self._inner[number]),
                    starts[number],
                    starts[number] + count,
                    tuple(pieces),
                )
            )
        return found
