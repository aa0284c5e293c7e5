"""Many leaves in one go: each step of a recipe is done for all that it is for, if nothing binds them together."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.places import places_by
from ..execution import run
from ..execution.groups import recipes_of
from ..host import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..core.info import TensorInfo
    from ..execution.groups import Grouped
    from ..execution.recipes import Conversion, Recipe

    Places = Sequence[int]

__all__ = ["convert_each"]


def convert_each(
    leaves: list[Any],
    outs: list[Any] | None,
    conversion: Conversion,
    decide: Callable[[TensorInfo], Conversion] | None,
) -> list[Any] | None:
    """The results; ``None``: a leaf has to be described, or two have memory in common that is copied or written.

    Args:
        leaves: The leaves, each an object of its own.
        outs: What each of them is written into, or ``None``; nothing is unless all values are there.
        conversion: The target, and what is asked of it.
        decide: Gives the conversion instead, where it depends on what a leaf is.

    Raises:
        ConversionError: A leaf cannot be converted.
    """
    grouped = recipes_of(leaves, outs, conversion, decide)
    if grouped is None or not _share_no_byte(leaves, outs, grouped):
        return None
    recipes = grouped.recipes
    steps = slice(None) if outs is None else slice(-1)
    values = [
        _whole([run.execute(recipe.bulk[steps], part) for part in _parts(_some(leaves, places))])
        for recipe, places in recipes
    ]
    if outs is None:
        results = _in_order(values, recipes, len(leaves))
    else:
        for (recipe, places), some in zip(recipes, values, strict=True):
            run.execute(recipe.bulk[-1:], some, _some(outs, places))
        results = outs
    for index, leaf in enumerate(leaves) if run.is_verifying() else ():
        run.verify(run.prepare(leaf, conversion, None if outs is None else outs[index], decide), results[index])
    return results


_AT_ONCE = 4096
"""Leaves for which a step is done before the next: what is made between two steps stays in the processor's cache."""


def _parts(leaves: list[Any]) -> Iterable[list[Any]]:
    starts = range(0, len(leaves), _AT_ONCE)
    return [leaves] if len(starts) == 1 else (leaves[start : start + _AT_ONCE] for start in starts)


def _whole(parts: list[list[Any]]) -> list[Any]:
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


def _some(leaves: list[Any], places: Places) -> list[Any]:
    """Those that stand at some places, in their order."""
    return leaves if len(places) == len(leaves) and isinstance(places, range) else [leaves[place] for place in places]


def _in_order(values: list[list[Any]], recipes: list[tuple[Recipe, Places]], count: int) -> list[Any]:
    """What came of each recipe, at the places that it is for."""
    if len(values) == 1 and isinstance(recipes[0][1], range):
        return values[0]
    results: list[Any] = [None] * count
    for some, (_, places) in zip(values, recipes, strict=True):
        for place, value in zip(places, some, strict=True):
            results[place] = value
    return results


def _share_no_byte(leaves: list[Any], outs: list[Any] | None, grouped: Grouped) -> bool:
    """Whether no memory that is copied from, or written into, has a byte in common with another of these."""
    copied = leaves
    if grouped.apart:
        return True
    if outs is None:
        copies = [places for recipe, places in grouped.recipes if recipe.copies]
        if not copies:
            return True
        copied = _some(leaves, copies[0] if len(copies) == 1 else [*chain.from_iterable(copies)])
    of_kinds = [
        _some(each, places) for each in (copied, outs or []) for places in places_by(list(map(type, each))).values()
    ]
    owners = [registry.backend_of(some[0]) for some in of_kinds]
    starts: list[int] = []
    ends: list[int] = []
    for owner, some in zip(owners, of_kinds, strict=True):
        reached = owner.extents(some, compact=grouped.compact)
        if reached is None:
            return False
        starts += reached[0]
        ends += reached[1]
    return not memory.share_a_byte(starts, ends)
