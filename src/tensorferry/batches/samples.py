"""Samples are taken apart into columns, which each have the same leaf of all of them.

`take_columns` does it at once, for samples that are alike; `columns_of` one by one if they may not
be. What differs between samples is told by the errors here.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends.no_tensor import UNCALLED
from ..backends.nodes import Node
from ..errors import UnsupportedTypeError, an
from ..hints import Hint
from ..sequences.columns import columns_apart
from ..sequences.numbers import types_in
from ..trees.containers import PLAIN, may_open, openings_of
from ..trees.structure import Structure, are_alike, at_path, equal
from ..trees.walk import is_row, take_apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..trees.leaves import LeafRule
    from ..trees.structure import Container


__all__ = ["columns_of", "hide_containers", "place_of", "take_columns"]

_ONE_LEAF = take_apart(None)[1]
_LISTS_ARE_LEAVES = "lambda x: isinstance(x, (list, tuple))"


# -- at once ---------------------------------------------------------------------------------------


def take_columns(
    root: Container | None, samples: list[Any], met: list[Any] | None = None
) -> tuple[list[list[Any]], list[Any]] | None:
    """The columns of samples, and what the first of each container is made again from.

    ``None`` if they are not such containers, all with the same keys, or change meanwhile.

    Args:
        root: The outermost container; ``None`` if each sample is one leaf.
        samples: The samples.
        met: The containers of all but the first sample are added here.
    """
    columns: list[list[Any]] = []
    wholes: list[Any] = []
    if root is None:
        return [samples], wholes
    try:
        are_taken = _take(root, samples, columns, wholes, met)
    except Exception:  # noqa: BLE001 - the class of a container, or of a key, may raise any
        return None
    return (columns, wholes) if are_taken and len(columns) == root.count else None


def _take(
    container: Container,
    samples: list[Any],
    columns: list[list[Any]],
    wholes: list[Any],
    met: list[Any] | None,
) -> bool:
    if met is not None:
        met += samples[1:]
    whole_and_values = _in_columns(container, samples)
    if whole_and_values is None or len(whole_and_values[1]) != container.size:
        return False
    whole, values = whole_and_values
    wholes.append(whole)
    start = 0
    for at, inner in container.inner:
        columns += values[start:at]
        if not _take(inner, values[at], columns, wholes, met):
            return False
        start = at + 1
    columns += values[start:]
    return True


def _in_columns(container: Container, samples: list[Any]) -> tuple[Any, list[list[Any]]] | None:
    """What the first of some containers is made again from, and the columns of all."""
    kind = container.kind
    first = container.opened(samples[0]) if type(samples[0]) is kind else None
    if first is None:
        return None
    whole, values = first
    held: Any = None
    if type(whole) is kind:
        held = [whole, *samples[1:]]
    elif values is samples[0] and issubclass(kind, (list, tuple)):
        held = samples
    elif types_in(samples) != {kind}:
        return None  # `columns_apart` looks at the types of the others
    elif isinstance(whole, Node) and whole.held is not None:
        held = whole.held(samples)
    if held is None:
        others = list(map(container.opened, samples[1:]))
        if not all(other is not None and _are_alike(whole, other[0]) for other in others):
            return None
        held = [tuple(values) for _, values in (first, *others)]  # type: ignore[misc]
    columns = columns_apart(held)
    return None if columns is None else (whole, columns)


def _are_alike(whole: Any, other: Any) -> bool:
    """Whether containers have the same keys and attributes, and one stands in a batch."""
    if not (isinstance(whole, Node) and isinstance(other, Node)):
        return are_alike(whole, other)
    parts = (whole.entries, other.entries), (whole.static, other.static)
    are_equal = all(equal(*pair) for pair in (*parts, (whole.registered, other.registered)))
    return are_equal and other.no_batch is None


def hide_containers(column: list[Any], types: set[type], *, rows: bool) -> bool:
    """Whether some objects of a column are containers, which `take_columns` does not open.

    Args:
        column: The objects.
        types: Their types, and perhaps others.
        rows: Whether a plain list of numbers below a key is a leaf.
    """
    kinds = types - PLAIN
    if rows and type(column[0]) is list and all(is_row(x) for x in column if type(x) is list):
        kinds.discard(list)  # elsewhere it is not known to be below a key
    return any(
        opening.open(x) is not None
        for kind in kinds
        if may_open(kind, column)
        for opening in openings_of(kind)
        for x in column
        if type(x) is kind
    )


def place_of(tree: Any, position: Sequence[int]) -> tuple[MutableMapping[Any, Any], str] | None:
    """The mapping that holds a leaf, and its key there; ``None`` if it is below no str key of one.

    Args:
        tree: A sample, or the batch.
        position: The position of the leaf in its container, after those of the containers around.
    """
    for at in position[:-1]:
        opened = (opening.open(tree) for opening in openings_of(type(tree)))
        _, values = next(node for node in opened if node is not None)
        tree = [*values][at]
    if not position or not isinstance(tree, MutableMapping):
        return None
    key = [*tree][position[-1]]
    return (tree, key) if isinstance(key, str) else None


# -- one by one ------------------------------------------------------------------------------------


def columns_of(samples: list[Any], rule: LeafRule) -> tuple[list[list[Any]], Structure, bool]:
    """The columns of samples, the structure of the first one, and whether they were taken at once.

    A plain list of numbers below a key is a leaf, if numbers are tensors and there is no user's
    callable.

    Raises:
        UnsupportedTypeError: A sample has another structure than the first, or cannot be stacked.
    """
    if isinstance(samples[0], UNCALLED):
        rule.check(_ONE_LEAF, samples[:1])
    chosen, rows = rule.chosen, rule.takes_rows
    first, structure = take_apart(samples[0], chosen, rows=rows)
    rule.check(structure, first)
    for node in structure.nodes():
        if node.no_batch is not None:
            path = structure.path_of(node)
            why, hint = node.no_batch
            placed_hint = Hint.of(hint).at(f"sample{path[1:]}")
            raise at_path(UnsupportedTypeError(why, placed_hint), path)
    met: list[Any] = []
    taken = take_columns(structure.root, samples, met)
    if taken is not None and _are_surely_alike(structure, taken[0], met, rule):
        for column, leaf in zip(taken[0], first, strict=True):
            column[0] = leaf  # the very object that a callable was asked for
        return taken[0], structure, True
    columns = [[leaf] for leaf in first]
    for number, sample in enumerate(samples[1:], 1):
        leaves, other = take_apart(sample, chosen, rows=rows)
        rule.check(other, leaves)
        if not structure.is_like(other):
            leaves = _in_order_of(structure, leaves, other, number)
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    return columns, structure, False


def _are_surely_alike(
    structure: Structure, columns: list[list[Any]], met: list[Any], rule: LeafRule
) -> bool:
    """Whether samples that were taken apart as the first one have no other containers.

    Args:
        structure: The structure of the first one.
        columns: The columns.
        met: The containers of the others.
        rule: The rule for which leaves are stacked. A user's callable is asked for each value of
            the others, as it has been for those of the first one.
    """
    chosen, rows, mixed = rule.chosen, rule.takes_rows, []
    for place, column in enumerate(columns):
        types, left = types_in(column), column
        if chosen is not None:
            left = [x for x in column[1:] if not chosen(x)]
        if left and hide_containers(left, types, rows=rows):
            return False
        if len(types) > 1:
            mixed.append(place)
    if chosen is not None and any(map(chosen, met)):
        return False
    # Where the list of one sample has other types, that of another one may be a leaf.
    lists = [
        range(first, first + container.count)
        for container, first in structure.containers()
        if container.kind is list
    ]
    return not (rows and any(place in kinds for place in mixed for kinds in lists))


def _in_order_of(
    structure: Structure, leaves: list[Any], other: Structure, number: int
) -> list[Any]:
    """The leaves of a sample, in the order of the first sample.

    Raises:
        UnsupportedTypeError: It has another structure.
    """
    paths = structure.paths()
    by_path = dict(zip(other.paths(), leaves, strict=True))
    odd = [path for path in paths if path not in by_path] or [
        path for path in by_path if path not in set(paths)
    ]
    if odd:
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees: "
            f"only one of them has the leaf - at {odd[0]}",
            Hint(
                hints.keyword("leaves", hints.Code(_LISTS_ARE_LEAVES, stays=True)),
                ", if a list of numbers is one leaf",
            )
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
        kinds = ["plain container" if side is None else side[0].__name__ for side in (here, there)]
        if here is None or there is None or here[0] is not there[0]:
            what = f"is {an(kinds[0])} in one and {an(kinds[1])} in the other"
        elif not equal(here[1], there[1]):
            what = f"is {an(kinds[0])} with other static fields{_names(here[1], there[1])}"
        else:
            continue
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees, which do not stack: "
            f"what is here {what} - at {path}"
        )


def _names(x: Any, y: Any) -> str:
    """The names of static fields that differ, if they have names."""
    if not isinstance(x, tuple) or not isinstance(y, tuple):
        return ""
    differing = [entry for entry in {**x[0], **y[0]} if not equal(x[0].get(entry), y[0].get(entry))]
    return ": " + ", ".join(differing) if differing else ""
