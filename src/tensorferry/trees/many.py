"""Convert many leaves together: each step of a recipe is done for all its leaves, if no leaf depends on another."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import registry
from ..core.places import places_by
from ..execution import run
from ..execution.groups import AT_ONCE, recipes_of
from ..host import memory
from .batches import sent_together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..core.info import TensorInfo
    from ..execution.groups import Grouped
    from ..execution.recipes import Conversion, Recipe

    Places = Sequence[int]

__all__ = ["convert_each", "may_share_a_byte"]


def convert_each(
    leaves: list[Any],
    outs: list[Any] | None,
    conversion: Conversion,
    decide: Callable[[TensorInfo], Conversion] | None,
    kinds: Mapping[type, Any],
    *,
    coalesce: bool,
) -> list[Any] | None:
    """The results; ``None`` if a leaf must be described, or if leaves share memory that is copied or written.

    Args:
        leaves: Different leaves.
        outs: For each leaf, the tensor that the result is written into; or ``None``. Nothing is
            written before all values have been computed.
        conversion: The target and the request.
        decide: Chooses the conversion by the description of a leaf, instead of `conversion`.
        kinds: One leaf of each type.
        coalesce: Whether small leaves cross the bus together.

    Raises:
        ConversionError: A leaf cannot be converted.
    """
    grouped = recipes_of(leaves, outs, conversion, decide, kinds)
    if grouped is None or not _share_no_byte(leaves, outs, grouped):
        return None
    recipes = grouped.recipes
    steps = slice(None) if outs is None else slice(-1)
    if any(recipe.transfers for recipe, _ in recipes):
        several = [(recipe, _some(leaves, places)) for recipe, places in recipes]
        found = sent_together(several, conversion.target) if outs is None and coalesce else None
        if found is None:
            return None
        values = found
    else:
        values = [
            _whole(
                [run.execute(recipe.bulk[steps], part) for part in _parts(_some(leaves, places))]
            )
            for recipe, places in recipes
        ]
    if outs is None:
        results = _in_order(values, recipes, len(leaves))
    else:
        for (recipe, places), some in zip(recipes, values, strict=True):
            run.execute(recipe.bulk[-1:], some, _some(outs, places))
        results = outs
    for index, leaf in enumerate(leaves) if run.is_verifying() else ():
        run.verify(
            run.prepare(leaf, conversion, None if outs is None else outs[index], decide),
            results[index],
        )
    return results


def _parts(leaves: list[Any]) -> Iterable[list[Any]]:
    starts = range(0, len(leaves), AT_ONCE)
    return [leaves] if len(starts) == 1 else (leaves[start : start + AT_ONCE] for start in starts)


def _whole(parts: list[list[Any]]) -> list[Any]:
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


def _some(leaves: list[Any], places: Places) -> list[Any]:
    """The leaves at some positions."""
    return (
        leaves
        if len(places) == len(leaves) and isinstance(places, range)
        else [leaves[place] for place in places]
    )


def _in_order(
    values: list[list[Any]], recipes: list[tuple[Recipe, Places]], count: int
) -> list[Any]:
    """The results of all recipes, in the order of the leaves."""
    if len(values) == 1 and isinstance(recipes[0][1], range):
        return values[0]
    results: list[Any] = [None] * count
    for some, (_, places) in zip(values, recipes, strict=True):
        for place, value in zip(places, some, strict=True):
            results[place] = value
    return results


def _share_no_byte(leaves: list[Any], outs: list[Any] | None, grouped: Grouped) -> bool:
    """Whether no two tensors that are copied or written share a byte."""
    copied = leaves
    if grouped.apart:
        return True
    if outs is None:
        copies = [places for recipe, places in grouped.recipes if recipe.copies]
        if not copies:
            return True
        copied = _some(leaves, copies[0] if len(copies) == 1 else [*chain.from_iterable(copies)])
    return not may_share_a_byte(
        copied if outs is None else [*copied, *outs], compact=grouped.compact
    )


def may_share_a_byte(tensors: list[Any], *, compact: bool) -> bool:
    """Whether two of many tensors may share a byte.

    The answer is also yes if it would take too long to find out.

    Args:
        tensors: Tensors of any frameworks, each with a signature.
        compact: Whether all signatures are compact.
    """
    if len(tensors) < 2:
        return False
    reached = []
    for places in places_by(list(map(type, tensors))).values():
        some = _some(tensors, places)
        extents = registry.backend_of(some[0]).quick.extents(some, compact=compact)
        if extents is None:
            return True
        reached.append(extents)
    if len(reached) == 1:
        return memory.share_a_byte(*reached[0])
    starts, ends = (
        np.concatenate([np.asarray(part, np.uint64) for part in parts])
        for parts in zip(*reached, strict=True)
    )
    return memory.share_a_byte(starts, ends)
