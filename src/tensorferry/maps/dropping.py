"""What of a source is in no tensor that a table makes: the names and parts that stand in `drop`."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .expressions import AxisSlice, Reference
from .formulas import Formula
from .lowering import lower
from .moves import box_of, counts, covers_once
from .spelling import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..typing import Array
    from .generalizing import Model
    from .moves import Box
    from .names import NameTemplate
    from .sizing import SizeFormulas
    from .spelling import NumberedName
    from .table import Table

__all__ = ["dropped"]

_MOST_LOOKED_AT = 1 << 28
_MOST_PARTS = 64

Slices = tuple[tuple[int | None, int | None], ...]
"""From where to where along each axis; nothing for the end of it."""


class _Lost(NamedTuple):
    """A source, or a part of it, that is in no tensor.

    Args:
        model: Of which model.
        name: Its name.
        number: Which of its parts.
        slices: The part.
    """

    model: int
    name: NumberedName
    number: int
    slices: Slices


def dropped(
    table: Table,
    models: Sequence[Model],
    formulas: SizeFormulas,
    touched: Sequence[frozenset[str]],
) -> tuple[Reference, ...]:
    """What of the sources no rule uses.

    Args:
        table: The table.
        models: The models that it was made from.
        formulas: The formulas of lengths in it.
        touched: For each model, sources of outputs whose rule says nothing.
    """
    lost_parts: list[_Lost] = []
    for place, model in enumerate(models):
        given = formulas.unknown_in(table.dims, place)
        used: dict[str, set[Box]] = defaultdict(set)
        lowered = lower(table, model.source, config=model.config, dims=given)
        for made in lowered.tensors.values():
            for move in made.moves:
                if isinstance(move.source, str):
                    used[move.source].add(box_of(move, source=True))
        for name, header in model.source.items():
            if name in touched[place] or not header.size:
                continue
            parts = _parts(used.get(name, set()), header.shape, header.size)
            lost_parts += [
                _Lost(place, numbered(name), at, slices) for at, slices in enumerate(parts)
            ]
    return tuple(_references(lost_parts, models, formulas))


def _parts(boxes: set[Box], shape: tuple[int, ...], size: int) -> Iterator[Slices]:
    """Yield the parts of a source that no box has."""
    if not boxes:
        yield ()
        return
    if covers_once(boxes, size) or (0, ((size, 1),)) in boxes or size > _MOST_LOOKED_AT:
        return
    unused = counts(boxes, size).reshape(shape) == 0
    waiting: list[tuple[Array, Slices]] = [(unused, ())]
    made = 0
    while waiting and made < _MOST_PARTS:
        mask, slices = waiting.pop(0)
        axis = len(slices)
        if not mask.any():
            continue
        if axis == len(shape):
            made += 1
            yield _trimmed(slices)
            continue
        # Along each axis, stretches of the same.
        rows = mask.reshape(mask.shape[0], -1)
        breaks = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
        edges = [0, *breaks.tolist(), len(rows)]
        for start, stop in pairwise(edges):
            part = (start or None, stop if stop < len(rows) else None)
            waiting.append((mask[start], (*slices, part)))


def _trimmed(slices: Slices) -> Slices:
    trimmed = list(slices)
    while trimmed and trimmed[-1] == (None, None):
        trimmed.pop()
    return tuple(trimmed)


def _references(
    lost_parts: Sequence[_Lost], models: Sequence[Model], formulas: SizeFormulas
) -> Iterator[Reference]:
    """Yield what is dropped, for all numbers in names where that is the same."""
    groups: dict[Any, list[_Lost]] = defaultdict(list)
    for part in lost_parts:
        kind = tuple([(start is None, stop is None) for start, stop in part.slices])
        # In one model, other places are another part.
        places = part.slices if len(models) == 1 else None
        groups[part.name.texts, kind, part.number, places].append(part)
    for lost in groups.values():
        slices = _as_slices(lost, models, formulas)
        if slices is None:
            continue
        template = _template(lost[0].name.texts, lost, models)
        if template is not None:
            yield Reference(template, slices)
            continue
        for exact in dict.fromkeys(part.name.template() for part in lost):
            yield Reference(exact, slices)


def _template(
    texts: tuple[str, ...], lost: Sequence[_Lost], models: Sequence[Model]
) -> NameTemplate | None:
    """A name for all that is lost, if no other source has it."""
    rows = {part.name.numbers for part in lost}
    if len(rows) < 2:
        return None
    varying = [at for at in range(len(texts) - 1) if len({row[at] for row in rows}) > 1]
    names = iter(("i", "j", "k", "m", "n", "o"))
    formulas: list[Formula | None] = [None] * (len(texts) - 1)
    for at in varying[:6]:
        formulas[at] = Formula.of(next(names))
    template = lost[0].name.template(formulas)
    there = {(part.model, part.name.numbers) for part in lost}
    for place, model in enumerate(models):
        for name in model.source:
            if template.match(name) is not None and (place, numbered(name).numbers) not in there:
                return None
    return template


def _as_slices(
    lost: Sequence[_Lost], models: Sequence[Model], formulas: SizeFormulas
) -> tuple[AxisSlice, ...] | None:
    """What is taken of the axes; ``None`` if it is not the same wherever a model has it."""
    by_model: dict[int, set[Slices]] = defaultdict(set)
    for part in lost:
        by_model[part.model].add(part.slices)
    if any(len(every) > 1 for every in by_model.values()):
        return None
    known = {model: next(iter(every)) for model, every in by_model.items()}

    def place(axis: int, side: int) -> Formula | None:
        values = [
            known[model][axis][side] if model in known else None for model in range(len(models))
        ]
        if all(value is None for value in values):
            return None
        chosen = next(iter(formulas.possible(tuple(values))), None)
        if chosen is None:
            return None
        formulas.use([chosen])
        return chosen

    axes = range(len(lost[0].slices))
    return tuple([AxisSlice(place(axis, 0), place(axis, 1), None) for axis in axes])
