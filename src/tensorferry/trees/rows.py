"""Find a sample's lists that become a tensor: plain number lists directly below a mapping's key."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from ..host.numpy_dtypes import of_numpy
from ..sequences import numbers
from ..sequences.diagnostics import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["RowFinder", "is_row"]


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
