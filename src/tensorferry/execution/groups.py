"""Find the recipes of many tensors at once: those with the same signature share a recipe."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.named_tuple import NamedTuple
from ..core.places import one_of_each, places_by
from ..core.signature import COMPACT
from .recipes import call_of
from .run import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..core.info import TensorInfo
    from .recipes import Conversion, Recipe

__all__ = ["AT_ONCE", "Grouped", "grouped", "recipes_of"]

AT_ONCE = 4096
"""How many tensors are handled at a time, to stay in the processor's cache between steps."""


class Grouped(NamedTuple):
    """Many tensors, grouped by their recipes.

    Args:
        recipes: Each recipe, and the positions of its tensors.
        compact: Whether the tensors, and the `out` tensors if there are any, have no gaps in
            memory.
        apart: Whether it is known that each tensor owns its memory, and there are no `out` tensors.
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
    """Recipes of many tensors; ``None`` if one must be described: its signature is not enough.

    Args:
        leaves: The tensors.
        outs: For each tensor, the one that the result is written into; or ``None``.
        conversion: The target and the request.
        decide: Chooses the conversion by the description of a tensor, instead of `conversion`.
        kinds: One tensor of each type.

    Raises:
        ConversionError: A tensor cannot be converted.
    """
    target = conversion.target
    if target.capabilities.options.labels and any(
        registry.BY_TYPE.get(kind) is target for kind in kinds
    ):
        return None  # they have labels of their own
    environment = conversion.environment()
    if conversion.described:
        signatures = None
    else:
        signatures = grouped(leaves, kinds, target.capabilities.memory.alignment)
    if signatures is None:
        return None
    compact = all(map(_is_compact, signatures))
    if not compact and not conversion.is_for_host:
        return None  # the transfer of a tensor with gaps depends on more than its signature
    apart = outs is None and all(
        registry.backend_of(leaves[at[0]]).quick.owns_memory(s) for s, at in signatures.items()
    )
    if outs is not None:
        theirs = one_of_each(outs)
        strange = any(registry.BY_TYPE.get(kind) is not target for kind in theirs)
        written = None if strange else grouped(outs, theirs, 0)
        if written is None or _shapes(leaves, kinds) != list(map(_SHAPE, outs)):
            return None
        compact = compact and all(map(_is_compact, written))
        signatures = _pairs(signatures, written, len(leaves))
    found: dict[Any, tuple[Recipe, Sequence[int]]] = {}
    for signature, places in signatures.items():
        leaf, out = leaves[places[0]], None if outs is None else outs[places[0]]
        if decide is None:
            asked = conversion
        else:
            asked = decide(registry.backend_of(leaf).describe(leaf))
        if asked.described or (not compact and not asked.is_for_host):
            return None
        recipe = asked.find((signature, environment))
        if recipe is None:
            made = prepare(leaf, asked, out)
            recipe, own = made.recipe, _of_leaf(signature, outs)
            again = grouped([leaf], {type(leaf): leaf}, target.capabilities.memory.alignment)
            if made.info.abstract is None and own in (again or ()):
                # Otherwise another thread has changed the leaf meanwhile.
                asked.keep((signature, environment), recipe)
        # Tensors that differ only in address or strides mostly take the same steps, and so share a
        # recipe.
        plan = recipe.plan
        alike = plan.source._replace(shape=(), strides=(), misalignment=0), plan.source.is_compact
        into = plan.request.out
        if into is None:
            filled = None
        else:
            filled = into.dtype, into.is_compact
        steps = recipe.copies, alike, filled, *map(call_of, plan.steps)
        before = found.get(steps)
        found[steps] = recipe, places if before is None else [*before[1], *places]
    if len(found) == 1:
        return Grouped(
            [(recipe, range(len(leaves))) for recipe, _ in found.values()], compact, apart
        )
    return Grouped(list(found.values()), compact, apart)


_SHAPE = attrgetter("shape")


def _shapes(leaves: Sequence[Any], kinds: Mapping[type, Any]) -> list[tuple[int, ...]]:
    """The shapes of tensors, which may be of several frameworks."""
    lengths = {kind: registry.backend_of(leaf).quick.lengths for kind, leaf in kinds.items()}
    return [lengths[type(leaf)](leaf) for leaf in leaves]


def _is_compact(signature: Hashable) -> bool:
    return isinstance(signature, tuple) and COMPACT in signature


def grouped(
    leaves: Sequence[Any], kinds: Mapping[type, Any], alignment: int
) -> Mapping[Any, Sequence[int]] | None:
    """Positions of tensors by signatures; ``None`` if one has no signature and must be described.

    Args:
        leaves: The tensors, which may be of several frameworks.
        kinds: One tensor of each type.
        alignment: See `Quick.grouped`.
    """
    if len(kinds) == 1 and len(leaves) <= AT_ONCE:
        return registry.backend_of(leaves[0]).quick.grouped(leaves, alignment)
    found: dict[Hashable, list[int]] = {}
    for kind, places in places_by(list(map(type, leaves))).items():
        quick = registry.backend_of(kinds[kind]).quick
        for start in range(0, len(places), AT_ONCE):
            part = places[start : start + AT_ONCE]
            some = (
                [leaves[place] for place in part]
                if len(kinds) > 1
                else leaves[start : start + AT_ONCE]
            )
            inside = quick.grouped(some, alignment)
            if inside is None:
                return None
            for signature, those in inside.items():
                all_of_them = len(those) == len(part)
                found.setdefault(signature, []).extend(
                    part if all_of_them else [part[at] for at in those]
                )
    return found


def _of_leaf(signature: Any, outs: object) -> Any:
    """A leaf's own signature: that of the leaf, if it has one for each of `_pairs`."""
    if outs is None:
        return signature
    own, _of_out = signature
    return own


def _pairs(
    signatures: Mapping[Hashable, Sequence[int]],
    written: Mapping[Hashable, Sequence[int]],
    count: int,
) -> Mapping[Any, Sequence[int]]:
    """The positions of tensors by two signatures: their own, and that of the `out` tensor."""
    if len(signatures) == len(written) == 1:
        return {(next(iter(signatures)), next(iter(written))): range(count)}
    both: list[list[Hashable]] = [[None] * count, [None] * count]
    for each, groups in zip(both, (signatures, written), strict=True):
        for signature, places in groups.items():
            for place in places:
                each[place] = signature
    return places_by(list(zip(*both, strict=True)))
