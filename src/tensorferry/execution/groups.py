"""Many tensors by what is done to them: one look at all, and a recipe for those that are alike."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import registry
from ..core.places import one_of_each, places_by
from ..core.signature import COMPACT
from .run import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..core.info import TensorInfo
    from .recipes import Conversion, Recipe

__all__ = ["AT_ONCE", "Grouped", "grouped", "recipes_of"]

AT_ONCE = 4096
"""Tensors that are looked at, or for which a step is done, before the next: they stay in the processor's cache."""


class Grouped(NamedTuple):
    """Many tensors by what is done to them.

    Args:
        recipes: Each recipe, and the places of those that it is for.
        compact: Whether all of them, and all that they are written into, lie without gaps.
        apart: Whether each is seen to own its memory, and none is written into.
    """

    recipes: list[tuple[Recipe, Sequence[int]]]
    compact: bool
    apart: bool


def recipes_of(
    leaves: Sequence[Any],
    outs: Sequence[Any] | None,
    conversion: Conversion,
    decide: Callable[[TensorInfo], Conversion] | None,
    kinds: Mapping[type, Any],
) -> Grouped | None:
    """The recipes of many tensors; ``None``: one of them has to be described.

    Args:
        leaves: The tensors.
        outs: What each of them is written into, or ``None``.
        conversion: The target, and what is asked of it.
        decide: Gives the conversion instead, where it depends on what a tensor is.
        kinds: One tensor of each of their types.

    Raises:
        ConversionError: There is no such conversion.
    """
    target = conversion.target
    environment = target.environment()
    signatures = None if conversion.sized else grouped(leaves, kinds, target.capabilities.memory.alignment)
    if signatures is None:
        return None
    compact = all(map(_says_compact, signatures))
    apart = outs is None and all(registry.backend_of(leaves[at[0]]).owns_memory(s) for s, at in signatures.items())
    if outs is not None:
        theirs = one_of_each(outs)
        strange = any(registry.BY_TYPE.get(kind) is not target for kind in theirs)
        written = None if strange else grouped(outs, theirs, 0)
        if written is None or _shapes(leaves, kinds) != list(map(_SHAPE, outs)):
            return None
        compact = compact and all(map(_says_compact, written))
        signatures = _pairs(signatures, written, len(leaves))
    found: dict[Any, tuple[Recipe, Sequence[int]]] = {}
    for signature, places in signatures.items():
        leaf, out = leaves[places[0]], None if outs is None else outs[places[0]]
        asked = conversion if decide is None else decide(registry.backend_of(leaf).describe(leaf))
        if asked.sized:
            return None
        recipe = asked.find((signature, environment))
        if recipe is None:
            recipe = prepare(leaf, asked, out).recipe
            asked.keep((signature, environment), recipe)
        # What lies at other addresses, or has other strides, mostly takes the same steps.
        plan = recipe.plan
        alike = plan.source._replace(shape=(), strides=(), misalignment=0), plan.source.is_compact
        into = plan.request.out
        filled = None if into is None else (into.dtype, into.is_compact)
        steps = recipe.copies, alike, filled, *(step[:3] for step in plan.steps)
        before = found.get(steps)
        found[steps] = recipe, places if before is None else [*before[1], *places]
    if len(found) == 1:
        return Grouped([(recipe, range(len(leaves))) for recipe, _ in found.values()], compact, apart)
    return Grouped(list(found.values()), compact, apart)


_SHAPE = attrgetter("shape")


def _shapes(leaves: Sequence[Any], kinds: Mapping[type, Any]) -> list[tuple[int, ...]]:
    """The shapes of tensors of any frameworks."""
    owners = {kind: registry.backend_of(leaf) for kind, leaf in kinds.items()}
    return [owners[type(leaf)].lengths(leaf) for leaf in leaves]


def _says_compact(signature: Hashable) -> bool:
    return isinstance(signature, tuple) and COMPACT in signature


def grouped(leaves: Sequence[Any], kinds: Mapping[type, Any], alignment: int) -> Mapping[Any, Sequence[int]] | None:
    """The places of tensors by their signatures; ``None``: one has to be described.

    Args:
        leaves: The tensors, of any frameworks.
        kinds: One tensor of each of their types.
        alignment: As `Backend.grouped` takes it.
    """
    if len(kinds) == 1 and len(leaves) <= AT_ONCE:
        return registry.backend_of(leaves[0]).grouped(leaves, alignment)
    found: dict[Hashable, list[int]] = {}
    for kind, places in places_by(list(map(type, leaves))).items():
        owner = registry.backend_of(kinds[kind])
        for start in range(0, len(places), AT_ONCE):
            part = places[start : start + AT_ONCE]
            some = [leaves[place] for place in part] if len(kinds) > 1 else leaves[start : start + AT_ONCE]
            inside = owner.grouped(some, alignment)
            if inside is None:
                return None
            for signature, those in inside.items():
                all_of_them = len(those) == len(part)
                found.setdefault(signature, []).extend(part if all_of_them else [part[at] for at in those])
    return found


def _pairs(
    signatures: Mapping[Hashable, Sequence[int]], written: Mapping[Hashable, Sequence[int]], count: int
) -> Mapping[Any, Sequence[int]]:
    """The places of pairs, by both signatures."""
    if len(signatures) == len(written) == 1:
        return {(next(iter(signatures)), next(iter(written))): range(count)}
    both: list[list[Hashable]] = [[None] * count, [None] * count]
    for each, groups in zip(both, (signatures, written), strict=True):
        for signature, places in groups.items():
            for place in places:
                each[place] = signature
    return places_by(list(zip(*both, strict=True)))
