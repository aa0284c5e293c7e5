"""Take a tree apart into its leaves and its structure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import registry
from ..host.numpy_dtypes import of_numpy
from ..sequences import numbers
from ..sequences.diagnostics import DEEPEST
from .containers import BUILT_IN, PLAIN, is_mapping, may_open, openings_of
from .structure import Container, Structure, too_deep, without_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .containers import Opening


__all__ = ["is_row", "take_apart"]

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
        return depth < DEEPEST and all(is_row(element, depth + 1) for element in x)
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
    first: Callable[[type], tuple[Opening, ...]] | None = None,
) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and its structure.

    Args:
        tree: Any object. An object that is not a container is the only leaf.
        chosen: Whether an object is a leaf although it may be a container.
        sharing: Whether a container that occurs twice is also rebuilt as one object.
        rows: Whether a plain list of numbers below a key is a leaf.
        first: How objects of a type are opened, before what `openings_of` gives is tried.

    Raises:
        UnsupportedTypeError: It contains itself, or is nested too deep.
    """
    walk = _Walk(chosen, first, sharing=sharing, rows=rows, fields=chosen is not None)
    walk.take(tree)
    if not walk.fields and any(may_open(kind, walk.leaves) for kind in walk.arrays):
        walk = _Walk(chosen, first, sharing=sharing, rows=rows, fields=True)
        walk.take(tree)
    return walk.leaves, Structure(walk.root, walk.kept, walk.ids)


class _Walk:
    """Takes a tree apart.

    Args:
        chosen: Whether an object is a leaf although it may be a container.
        first: How objects of a type are opened, before what `openings_of` gives is tried.
        sharing: Whether the `id` of each container is kept in `ids`.
        rows: Whether a plain list of numbers below a key is a leaf.
        fields: Whether arrays are opened that have fields. Most trees have none.
    """

    def __init__(
        self,
        chosen: Callable[[Any], bool] | None,
        first: Callable[[type], tuple[Opening, ...]] | None,
        *,
        sharing: bool,
        rows: bool,
        fields: bool,
    ) -> None:
        self._chosen = chosen
        self._first = first
        self._sharing = sharing
        self._rows = rows
        self.fields = fields
        self.leaves: list[Any] = []
        self.root: Container | None = None
        self.kept: list[Any] = []
        """What each container is made again from. One comes before those inside it."""
        self.ids: list[int] = []
        self.arrays: set[type] = set()
        """Types of leaves that may have fields."""
        self._known = BUILT_IN.copy()
        self._around: set[int] = set()

    def take(self, tree: Any) -> None:
        """Take a tree apart.

        Raises:
            UnsupportedTypeError: It contains itself, or is nested too deep.
        """
        is_leaf = self._chosen is not None and self._chosen(tree)
        opened = None if is_leaf or not self._may_open([tree]) else self._opened(tree)
        if opened is None:
            self.leaves.append(tree)
            return
        try:
            self.root = self._container(tree, *opened)
        except RecursionError:
            raise too_deep() from None

    def _may_open(self, values: Collection[Any]) -> bool:
        """Whether some of the values may be containers."""
        kinds = set(map(type, values))
        if kinds <= _LEAVES:
            return False
        known, may_open = self._known, False
        for kind in kinds:
            if kind not in known:
                known[kind] = self._openings_of(kind)
            may_open = may_open or bool(known[kind])
        return may_open

    def _openings_of(self, kind: type) -> tuple[Opening, ...]:
        if not self.fields and issubclass(kind, (np.ndarray, np.void)):
            self.arrays.add(kind)
            return ()
        openings = openings_of(kind)
        if self._first is not None:
            openings = (*self._first(kind), *openings)
        if not openings and registry.is_known_tensor(kind):
            _LEAVES.add(kind)
        return openings

    def _opened(self, x: Any) -> tuple[Opening, Any, Collection[Any]] | None:
        """How an object is opened, what it is made again from, and its values."""
        for opening in self._known.get(type(x), ()):
            opened = opening.open(x)
            if opened is not None:
                return opening, *opened
        return None

    def _container(self, x: Any, opening: Opening, kept: Any, values: Collection[Any]) -> Container:
        """Take a container apart, and those inside it."""
        leaves, chosen, size = self.leaves, self._chosen, len(values)
        self.kept.append(without_values(kept) if isinstance(kept, dict) else kept)
        if self._sharing:
            self.ids.append(id(x))
        if not self._may_open(values) and chosen is None:
            leaves += values
            return Container(type(x), opening, size, ())
        inner: list[tuple[int, Container]] = []
        rows = self._rows and is_mapping(type(x))
        self._around.add(id(x))
        openings = self._known
        for at, value in enumerate(values):
            is_leaf = chosen(value) if chosen is not None else not openings.get(type(value))
            opened = None if is_leaf or (rows and _is_row(value)) else self._opened(value)
            if opened is None:
                leaves.append(value)
                continue
            if id(value) in self._around:
                raise too_deep()
            inner.append((at, self._container(value, *opened)))
        self._around.discard(id(x))
        return Container(type(x), opening, size, tuple(inner))


def _is_row(x: Any) -> bool:
    return type(x) is list and is_row(x)
