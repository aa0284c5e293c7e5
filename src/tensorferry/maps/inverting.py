"""The table back: from what a table makes to what it is made of."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ConversionError, FormatLimitError, TreeError
from .expressions import (
    Arithmetic,
    AxisSlice,
    Cast,
    Concatenation,
    Fill,
    Moves,
    Reference,
    Same,
    Stack,
)
from .formulas import Formula
from .patterns import Atom, Pattern
from .table import Rule, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .expressions import Expression
    from .names import NameTemplate

__all__ = ["inverted"]

_WHOLE = AxisSlice(None, None, None)
_ZERO = Formula.of(0)


class _Use(NamedTuple):
    """A source in a rule: what is taken of it, and what that is in terms of the target."""

    slices: tuple[AxisSlice, ...]
    back: Reference
    over: str | None


class _NoInverseError(Exception):
    """A rule that has no inverse."""


def inverted(table: Table) -> Table:
    """The table back.

    Raises:
        FormatLimitError: Something cannot be inverted.
        TreeError: Several things cannot.
    """
    errors: list[ConversionError] = []
    if table.drop:
        names = ", ".join(table.dropped)
        errors.append(FormatLimitError(f"{names} is dropped, so nothing can make it again."))
    uses: dict[NameTemplate, list[_Use]] = defaultdict(list)
    drop: list[Reference] = []
    assumed: set[NameTemplate] = set()
    for rule in table.rules:
        try:
            for name, use in _uses_of(rule, drop):
                uses[name].append(use)
                if rule.assumed:
                    assumed.add(name)
        except _NoInverseError as error:
            errors.append(FormatLimitError(f"{rule.target} cannot be inverted: {error}."))
    rules = []
    for name, found in uses.items():
        try:
            rules.append(Rule(name, _joined(found), name in assumed))
        except _NoInverseError as error:
            errors.append(FormatLimitError(f"{name} cannot be made again: {error}."))
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise TreeError(f"{len(errors)} parts of the table cannot be inverted:", errors)
    return Table(tuple(rules), tuple(drop), table.dims, table.about)


# -- what becomes of each source -------------------------------------------------------------------


def _uses_of(rule: Rule, drop: list[Reference]) -> Iterator[tuple[NameTemplate, _Use]]:
    """Yield each source of a rule with the use of it; what is filled is added to `drop`."""
    if rule.expression is None:
        raise _NoInverseError(f"it is not known what it is ({rule.reason})")
    yield from _back(rule.expression, Reference(rule.target), None, drop)


def _back(
    expression: Expression, part: Reference, over: str | None, drop: list[Reference]
) -> Iterator[tuple[NameTemplate, _Use]]:
    """Yield the sources of an expression, if what it makes is a part of the target."""
    if isinstance(expression, (Cast, Arithmetic)):
        verb = "cast" if isinstance(expression, Cast) else expression.verb
        raise _NoInverseError(f"{verb} goes one way only")
    if isinstance(expression, Moves):
        raise _NoInverseError("moves do not say the shapes of their sources")
    if isinstance(expression, Fill):
        drop.append(part)
        return
    if isinstance(expression, Reference):
        back = part
        if expression.pattern is not None:
            inverse = expression.pattern.inverse()
            if inverse is None:
                raise _NoInverseError(f"{expression.pattern} repeats")
            back = part._replace(pattern=inverse)
        yield expression.name, _Use(expression.slices, back, over)
        return
    if isinstance(expression, Same):
        for each in expression.parts:
            yield from _back(each, part, over, drop)
        return
    if isinstance(expression, Stack) and expression.pattern == _interleaving(
        expression.axis - 1, len(expression.parts)
    ):
        step = Formula.of(len(expression.parts))
        for number, each in enumerate(expression.parts):
            taken = AxisSlice(Formula.of(number), None, step)
            yield from _back(each, _taken(part, expression.axis - 1, taken), over, drop)
        return
    if expression.pattern is not None:
        raise _NoInverseError("the pattern stands outside of what is joined")
    if isinstance(expression, Stack):
        yield from _back_of_stack(expression, part, over, drop)
        return
    for each, taken in zip(expression.parts, _places(expression), strict=True):
        yield from _back(each, _taken(part, expression.axis, taken), over, drop)


def _back_of_stack(
    expression: Stack, part: Reference, over: str | None, drop: list[Reference]
) -> Iterator[tuple[NameTemplate, _Use]]:
    if expression.over is not None:
        if over is not None:
            raise _NoInverseError("a stack stands in a stack")
        (each,) = expression.parts
        taken = AxisSlice(Formula.of(expression.over), None, None, is_index=True)
        yield from _back(each, _taken(part, expression.axis, taken), expression.over, drop)
        return
    for number, each in enumerate(expression.parts):
        taken = AxisSlice(Formula.of(number), None, None, is_index=True)
        yield from _back(each, _taken(part, expression.axis, taken), over, drop)


def _taken(part: Reference, axis: int, taken: AxisSlice) -> Reference:
    """A part of a part, along an axis of it."""
    if axis < 0:
        raise _NoInverseError("an axis that is counted from the end is not known in a part")
    slices = [*part.slices]
    # An axis of which one index is taken is gone.
    left = axis
    for place, each in enumerate(slices):
        if each.is_index:
            continue
        if not left:
            if each != _WHOLE:
                raise _NoInverseError("an axis is joined twice")
            slices[place] = taken
            return part._replace(slices=tuple(slices))
        left -= 1
    slices += [_WHOLE] * left
    return part._replace(slices=(*slices, taken))


def _places(expression: Concatenation) -> list[AxisSlice]:
    """The place of each part along the axis of a concatenation."""
    lengths = [_extent(part, expression.axis) for part in expression.parts]
    unknown = [place for place, length in enumerate(lengths) if length is None]
    if len(unknown) > 1:
        raise _NoInverseError(
            f"the lengths of {len(unknown)} parts along axis {expression.axis} are not in the table: "
            "a pattern says them"
        )
    found, start = [], _ZERO
    for place, length in enumerate(lengths):
        is_last = place == len(lengths) - 1
        first = None if start == _ZERO else start
        if length is None:
            rest = _ZERO
            for after in lengths[place + 1 :]:
                rest = rest.plus(after or _ZERO)
            found.append(AxisSlice(first, None if is_last else _ZERO.plus(rest, -1), None))
            start = _ZERO.plus(rest, -1)
            continue
        stop = start.plus(length)
        found.append(AxisSlice(first, None if is_last else stop, None))
        start = stop
    return found


def _extent(expression: Expression, axis: int) -> Formula | None:
    """The length of an axis, if the table says it."""
    if isinstance(expression, Fill):
        return expression.shape[axis] if axis < len(expression.shape) else None
    if isinstance(expression, Same):
        known = [_extent(part, axis) for part in expression.parts]
        return next((each for each in known if each is not None), None)
    pattern = getattr(expression, "pattern", None)
    if pattern is not None:
        return _extent_of(pattern, axis)
    if isinstance(expression, Concatenation):
        lengths = [_extent(part, axis) for part in expression.parts]
        if axis != expression.axis:
            return next((each for each in lengths if each is not None), None)
        total = _ZERO
        for length in lengths:
            if length is None:
                return None
            total = total.plus(length)
        return total
    if isinstance(expression, Reference):
        kept = [each for each in expression.slices if not each.is_index]
        if len(kept) < len(expression.slices) or axis >= len(kept):
            return None
        taken = kept[axis]
        if taken.stop is None or taken.step is not None:
            return None
        return taken.stop.plus(taken.start or _ZERO, -1)
    return None


def _extent_of(pattern: Pattern, axis: int) -> Formula | None:
    found = Formula.of(1)
    for group in pattern.right[: axis + 1]:
        if any(atom.length is None for atom in group):
            return None
    if axis >= len(pattern.right):
        return None
    for atom in pattern.right[axis]:
        found = found.times(atom.length or Formula.of(1))
    return found


# -- what each source is made of -------------------------------------------------------------------


def _joined(uses: list[_Use]) -> Expression:
    """A source, from all uses of it."""
    whole = [use for use in uses if all(each == _WHOLE for each in use.slices)]
    if whole:
        if len(whole) < len(uses):
            raise _NoInverseError("it is used whole and in parts")
        if len(whole) == 1:
            return whole[0].back
        return Same(tuple([use.back for use in whole]))
    axes = {axis for use in uses for axis, each in enumerate(use.slices) if each != _WHOLE}
    if len(axes) > 1:
        raise _NoInverseError("it is taken apart along several axes")
    (axis,) = axes
    taken = [use.slices[axis] for use in uses]
    backs = [use.back for use in uses]
    if all(each.is_index for each in taken):
        return _stacked(uses, taken, axis)
    if any(each.is_index for each in taken):
        raise _NoInverseError("indices and slices are taken of one axis")
    if any(each.step is not None for each in taken):
        return _interleaved(taken, backs, axis)
    lengths = [
        None if each.stop is None else each.stop.plus(each.start or _ZERO, -1) for each in taken
    ]
    backs = [_with_length(back, length, axis) for back, length in zip(backs, lengths, strict=True)]
    return Concatenation(tuple(_in_order(taken, backs)), axis)


def _stacked(uses: list[_Use], taken: list[AxisSlice], axis: int) -> Expression:
    numbers = [each.start.number if each.start is not None else None for each in taken]
    name = taken[0].start.name if taken[0].start is not None else None
    if len(uses) == 1 and name is not None:
        return Stack((uses[0].back,), axis, name)
    if None in numbers or sorted(number or 0 for number in numbers) != list(range(len(uses))):
        raise _NoInverseError("the indices that are taken are not all from 0")
    ordered = sorted(zip(numbers, uses, strict=True), key=lambda pair: pair[0] or 0)
    return Stack(tuple([use.back for _, use in ordered]), axis)


def _interleaved(taken: list[AxisSlice], backs: list[Reference], axis: int) -> Expression:
    """Every n-th row of each part."""
    count = len(taken)
    starts = [(each.start or _ZERO).number for each in taken]
    steps = {each.step.number if each.step is not None else 1 for each in taken}
    if steps != {count} or sorted(-1 if each is None else each for each in starts) != list(
        range(count)
    ):
        raise _NoInverseError("the steps of its parts do not fit together")
    if any(each.stop is not None for each in taken):
        raise _NoInverseError("the steps of its parts end early")
    ordered = [
        back for _, back in sorted(zip(starts, backs, strict=True), key=lambda pair: pair[0] or 0)
    ]
    return Stack(tuple(ordered), axis + 1, None, _interleaving(axis, count))


def _interleaving(axis: int, count: int) -> Pattern:
    """The pattern that joins an axis and that of a stack right behind it."""
    before = tuple([(Atom(Formula.of(f"axis{number}")),) for number in range(axis)])
    length, parts, rest = Atom(Formula.of("length")), Atom(Formula.of(count)), Atom(None)
    return Pattern((*before, (length,), (parts,), (rest,)), (*before, (length, parts), (rest,)))


def _with_length(back: Reference, length: Formula | None, axis: int) -> Reference:
    """A part whose text says its length, so that it can be taken apart again."""
    if length is None or back.pattern is not None or back.slices:
        return back
    before = tuple([(Atom(Formula.of(f"axis{number}")),) for number in range(axis)])
    groups = (*before, (Atom(length),), (Atom(None),))
    return back._replace(pattern=Pattern(groups, groups))


def _in_order(taken: list[AxisSlice], backs: list[Reference]) -> Iterator[Reference]:
    """Yield parts that are one behind the other, from the beginning."""
    left = list(zip(taken, backs, strict=True))
    at: Formula | None = _ZERO
    while left:
        place = next(
            (
                place
                for place, (each, _) in enumerate(left)
                if at is not None and (each.start or _ZERO) == at
            ),
            None,
        )
        if place is None:
            raise _NoInverseError("its parts do not follow one another")
        each, back = left.pop(place)
        at = each.stop
        yield back
    if at is not None:
        # It ends before the end, as far as the table says. `check` finds what is left.
        return
