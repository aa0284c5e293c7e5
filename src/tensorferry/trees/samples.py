"""Take samples of the same structure apart into columns; samples of another structure are refused."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..backends.no_tensor import UNCALLED
from ..errors import UnsupportedTypeError, an
from ..hints import code_at
from .openers import openers_of
from .rows import is_row, read_rows
from .structure import Structure, equal, placed
from .unknown import PLAIN
from .walk import Walk, take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .leaves import LeafRule

__all__ = ["columns_of"]

_ONE_LEAF = take_apart(None)[1]


def columns_of(samples: Sequence[Any], rule: LeafRule) -> tuple[list[Any], Structure]:
    """The columns of samples, and the structure of the first sample.

    A plain list of numbers below a key is a leaf, if numbers are tensors and there is no user's
    callable. A column of such lists may be `RowsRead`.

    Raises:
        UnsupportedTypeError: A sample has another structure than the first, or cannot be stacked.
    """
    if isinstance(samples[0], UNCALLED):
        rule.check(_ONE_LEAF, samples[:1])
    chosen, rows = rule.chosen, rule.takes_rows
    alike = _columns_alike(samples, chosen, rows=rows)
    if alike is not None:
        return alike
    first, structure = take_apart(samples[0], chosen, rows=rows)
    rule.check(structure, first)
    for node in structure.nodes():
        if node.no_batch is not None:
            path = structure.path_of(node)
            why, hint = node.no_batch
            raise placed(UnsupportedTypeError(why, code_at(hint, f"sample{path[1:]}")), path)
    columns = [[leaf] for leaf in first]
    for number, sample in enumerate(samples[1:], 1):
        found, other = take_apart(sample, chosen, rows=rows)
        rule.check(other, found)
        if not structure.is_like(other):
            found = _in_order_of(structure, found, other, number)
        for column, leaf in zip(columns, found, strict=True):
            column.append(leaf)
    return columns, structure


def _in_order_of(
    structure: Structure, found: list[Any], other: Structure, number: int
) -> list[Any]:
    """The leaves of a sample, in the order of the first sample.

    Raises:
        UnsupportedTypeError: It has another structure.
    """
    paths = structure.paths()
    by_path = dict(zip(other.paths(), found, strict=True))
    odd = [path for path in paths if path not in by_path] or [
        path for path in by_path if path not in set(paths)
    ]
    if odd:
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees: only one of them has the leaf - at {odd[0]}",
            "leaves=lambda x: isinstance(x, (list, tuple)), if a list of numbers is one leaf"
            if odd[0].endswith("]") and not odd[0].endswith('"]')
            else None,
        )
    _compare(structure.statics(), other.statics(), number)
    return [by_path[path] for path in paths]


def _compare(
    first: dict[str, tuple[type, Any]], other: dict[str, tuple[type, Any]], number: int
) -> None:
    """Raise for samples whose containers differ in attributes that are not stacked.

    Raises:
        UnsupportedTypeError: They differ.
    """
    for path in {**first, **other}:
        here, there = first.get(path), other.get(path)
        kinds = ["plain container" if each is None else each[0].__name__ for each in (here, there)]
        if here is None or there is None or here[0] is not there[0]:
            what = f"is {an(kinds[0])} in one and {an(kinds[1])} in the other"
        elif not equal(here[1], there[1]):
            what = f"is {an(kinds[0])} with other static fields{_names(here[1], there[1])}"
        else:
            continue
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees, which do not stack: what is here {what} - at {path}"
        )


def _names(x: Any, y: Any) -> str:
    """The names of static fields that differ, if they have names."""
    if not isinstance(x, tuple) or not isinstance(y, tuple):
        return ""
    found = [entry for entry in {**x[0], **y[0]} if not equal(x[0].get(entry), y[0].get(entry))]
    return ": " + ", ".join(found) if found else ""


def _columns_alike(
    trees: Sequence[Any], chosen: Callable[[Any], bool] | None, *, rows: bool
) -> tuple[list[Any], Structure] | None:
    """`columns_of` for samples of one structure; ``None`` if structures differ, or optree does not know a container."""
    if chosen is None:
        kinds = set(map(type, trees))
        if len(kinds) == 1 and _are_leaves(kinds.pop(), trees):
            return [trees], _ONE_LEAF
        columns = _columns_of_dicts(trees, rows=rows)
        if columns is not None:
            return columns, take_apart(trees[0], rows=rows)[1]
    leaves, structure = Walk(chosen, rows=rows).take_values(trees)
    one = structure.one_of_many()
    return None if one is None else ([leaves[index :: one.size] for index in range(one.size)], one)


def _columns_of_dicts(trees: Sequence[Any], *, rows: bool) -> list[Any] | None:
    """`columns_of` for plain dicts of leaves, four times as fast; ``None`` if there may be other containers."""
    first = trees[0]
    if set(map(type, trees)) != {dict}:
        return None
    keys = first.keys()
    # A faster check for the usual case that all have the same order of keys.
    if len(set(map(tuple, trees))) > 1 and any(tree.keys() != keys for tree in trees):
        return None
    columns: list[Any] = []
    for key in first:
        column: Any = list(map(itemgetter(key), trees))
        kinds = set(map(type, column))
        read = read_rows(column) if rows and kinds == {list} else None
        if read is None and not all(
            all(type(each) is not list or is_row(each) for each in column)
            if kind is list and rows
            else _are_leaves(kind, column)
            for kind in kinds
        ):
            return None
        columns.append(column if read is None else read)
    return columns


def _are_leaves(kind: type, column: Sequence[Any]) -> bool:
    """Whether objects of a type are leaves."""
    if kind in PLAIN:
        return True
    return (registry.is_known_tensor(kind) or registry.is_tensor(kind)) and not openers_of(
        kind, column
    )
