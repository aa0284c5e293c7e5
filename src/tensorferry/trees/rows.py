"""Which lists of a sample are one tensor: plain lists of numbers directly below a key of a mapping."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optree

from ..host.numpy_dtypes import of_numpy
from ..sequences import flags, numbers
from ..sequences.diagnostics import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["RowFinder", "RowsRead", "is_row", "read_rows"]

Array = np.ndarray[Any, Any]


def is_row(x: list[Any], depth: int = 0) -> bool:
    """Whether a plain list holds numbers, or plain lists of them, and nothing else; an empty one does.

    >>> is_row([1, 2.5]), is_row([[1], [2]]), is_row([(1, 2)]), is_row(["a"])
    (True, True, False, False)
    """
    kinds = set(map(type, x))
    if kinds == {list}:
        return depth < DEEPEST and all(is_row(each, depth + 1) for each in x)
    return all(map(_is_number, kinds))


@lru_cache(maxsize=256)
def _is_number(kind: type) -> bool:
    return kind in numbers.PYTHON_NUMBERS or (issubclass(kind, np.generic) and of_numpy(np.dtype(kind)) is not None)


class RowsRead(NamedTuple):
    """A column of rows whose numbers were read while they were looked at: all floats, or all integers of 64 bits.

    Args:
        numbers: Those of all rows, one after the other.
        lengths: How many each row has.
    """

    numbers: Array
    lengths: list[int]


def read_rows(column: Sequence[list[Any]]) -> RowsRead | None:
    """The numbers of rows in one pass; ``None``: they are not all of one of the two types."""
    flat = list(chain.from_iterable(column))
    read = numbers.read(flat, flat[0], (len(flat),)) if flat else None
    alike = flags.alike(numbers.with_types(read[1], flat, 1)) if read else None
    if read is None or alike is None or alike.dtype not in ("float64", "int64"):
        return None
    return RowsRead(read[0], list(map(len, column)))


class RowFinder:
    """Tells optree which lists of a tree are leaves while it takes the tree apart.

    optree asks of an object alone, not of where it stands: a list is noted when the mapping is met that holds it.
    """

    def __init__(self) -> None:
        self._found: dict[int, list[Any]] = {}
        self._due = 0

    def note(self, values: Iterable[Any]) -> None:
        """The values of a mapping."""
        for value in values:
            if type(value) is list and is_row(value):
                self._found[id(value)] = value
                self._due += 1

    def is_leaf(self, x: Any) -> bool:
        """Whether a list, which optree would open, is a row; a mapping's lists are noted."""
        kind = type(x)
        if kind is list:
            found = id(x) in self._found
            self._due -= found
            return found
        # Not `x.values()`: a subclass may hand out something else there.
        if issubclass(kind, dict):
            self.note(dict.values(x))
        return False

    def misplaced(self, leaves: Sequence[Any], spec: optree.PyTreeSpec, *, below_keys: bool) -> set[int]:
        """The leaves that are rows at one place and stand at another that is below no key.

        Args:
            leaves: What the tree was taken apart into.
            spec: What is left of it.
            below_keys: Whether it was the values of a mapping.
        """
        # Each list was met as often as mappings hold it: it stands nowhere else.
        if not self._due:
            return set()
        lists = [index for index, leaf in enumerate(leaves) if type(leaf) is list]
        accessors = spec.accessors() if lists else []
        return {index for index in lists if not _is_below_key(accessors[index], below_keys=below_keys)}


def _is_below_key(accessor: optree.PyTreeAccessor, *, below_keys: bool) -> bool:
    return (below_keys and len(accessor) == 1) or (bool(accessor) and isinstance(accessor[-1], optree.MappingEntry))
