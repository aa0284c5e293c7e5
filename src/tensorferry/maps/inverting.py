"""The table back: from what a table makes to what it is made of."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..core.dtypes import find, holds_exactly
from ..errors import ConversionError, FormatLimitError, TreeError
from .checking import findings, refuse
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
    View,
    lengths_in,
    names_in,
    references_in,
)
from .formulas import Formula
from .lowering import Lowering
from .patterns import Atom, Pattern
from .rules import Rule, drop_of_each_word, swapped_words
from .swapping import LoweredSource, NotSwappedError
from .table import Table
from .word_rules import folded_again

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .expressions import Expression
    from .lowering import Header
    from .names import NameTemplate
    from .patterns import Groups

__all__ = ["inverted"]

_WHOLE = AxisSlice(None, None, None)
_ZERO = Formula.of(0)
_ONE = Formula.of(1)
_MOST_COPIES = 16


class _Use(NamedTuple):
    """A source in a rule: what is taken of it, and what that is in terms of the target.

    Args:
        slices: What is taken of its axes.
        back: The part of the target.
        changes: Casts and views that make it what the source was, in order.
        left: The parts of the axes, if something is taken of a part.
        is_assumed: Whether the rule was guessed.
    """

    slices: tuple[AxisSlice, ...]
    back: Expression
    changes: tuple[Cast | View, ...] = ()
    left: Groups | None = None
    is_assumed: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the source."""
        return self.left is None and all(cut == _WHOLE for cut in self.slices)


class _MadePart(NamedTuple):
    """A part of the target that an expression makes.

    Args:
        reference: The part.
        changes: Casts and views back.
        is_viewed: Whether a view changed the length of the last axis.
    """

    reference: Reference
    changes: tuple[Cast | View, ...] = ()
    is_viewed: bool = False


class _NoInverseError(Exception):
    """A rule that has no inverse.

    Args:
        why: The reason.
        ever: Whether it has none even if the shapes of the source are known.
    """

    def __init__(self, why: str, *, ever: bool = False) -> None:
        super().__init__(why)
        self.ever = ever


def inverted(
    table: Table,
    source: Mapping[str, Header] | None = None,
    *,
    config: Mapping[str, int] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Table:
    """The table back.

    Args:
        table: The table.
        source: The tensors of the source, by name: for what only their shapes tell.
        config: Numbers of ``config.json``.
        dims: Lengths that are given.

    Raises:
        FormatLimitError: Something cannot be inverted.
        TreeError: Several things cannot.
    """
    if source is None:
        return _inverted_with_words(table)
    if not table.words:
        return _Inverting(table, LoweredSource(table, source, config or {}, dims or {})).table()
    lowering = Lowering(table, source, config or {}, dims or {})
    refuse(findings(lowering.all(), source))
    # The words that are there, each in a rule of its own.
    rules = [
        rule._replace(words=())
        for _, every in table.expanded
        for rule in every
        if rule.expression is None or lowering.values_of(rule)
    ]
    drop = [reference for reference, _ in drop_of_each_word(table.drop, table.words)]
    plain = Table(tuple(rules), tuple(drop), table.dims, table.about)
    inverse = _Inverting(plain, LoweredSource(plain, source, config or {}, dims or {})).table()
    return folded_again(inverse, swapped_words(table.words))


def _inverted_with_words(table: Table) -> Table:
    """The table back, with words where each is in the names of all sources of a rule."""
    words = swapped_words(table.words)
    if not words:
        return _Inverting(table, None).table()
    rules = [rule._replace(words=()) for _, every in table.expanded for rule in every]
    plain = Table(tuple(rules), table.drop, table.dims, table.about)
    return folded_again(_Inverting(plain, None).table(), words)


class _Inverting:
    def __init__(self, table: Table, source: LoweredSource | None) -> None:
        self._table = table
        self._source = source
        self._errors: list[FormatLimitError] = []
        self._drop: list[Reference] = []
        self._dims = dict(table.dims) if source is None else source.dims_of(table.dims)
        self._words = {*self._dims}
        self._rule: Rule
        self._over: tuple[str, ...] = ()
        for rule in table.rules:
            if rule.expression is not None:
                self._words |= lengths_in(rule.expression) | rule.target.names
                self._words |= {
                    index for name, _ in names_in(rule.expression) for index in name.names
                }

    def table(self) -> Table:
        """The table back."""
        source = self._source
        if self._table.drop and (source is None or source.dropped):
            names = ", ".join(self._table.dropped if source is None else source.dropped)
            self._errors.append(
                FormatLimitError(f"{names} is dropped, so nothing can make it again.")
            )
        rules: dict[NameTemplate, Rule] = {}
        by_moves: dict[NameTemplate, str] = {}
        for name, uses in self._uses(by_moves).items():
            if name in by_moves:
                continue
            try:
                rules[name] = Rule(name, _assembled(uses), any(use.is_assumed for use in uses))
            except _NoInverseError as error:
                if source is None or error.ever:
                    self._refuse(f"{name} cannot be made again: {error}", ever=error.ever)
                else:
                    by_moves[name] = str(error)
        self._raise()
        if source is None:
            return self._with(list(rules.values()))
        refuse(source.findings)
        return self._completed(source, rules, by_moves)

    def _with(self, rules: list[Rule]) -> Table:
        return Table(tuple(rules), tuple(self._drop), self._dims, self._table.about)

    def _completed(
        self,
        source: LoweredSource,
        rules: dict[NameTemplate, Rule],
        by_moves: dict[NameTemplate, str],
    ) -> Table:
        """The table with moves for what has no other form, compared with the source."""
        while True:
            moved: list[Rule] = []
            kept = [rule for name, rule in rules.items() if name not in by_moves]
            for name, why in by_moves.items():
                try:
                    moved += source.moved_back(name)
                except NotSwappedError as error:
                    self._refuse(f"{name} cannot be made again: {why}; {error}", ever=True)
            self._raise()
            table = self._with([*kept, *moved])
            odd = source.not_made_by(table)
            wrong = [
                name
                for name in rules
                if name not in by_moves and any(name.match(output) is not None for output in odd)
            ]
            if not wrong:
                for output, why in odd.items():
                    self._refuse(f"{output} cannot be made again: {why}", ever=True)
                self._raise()
                return table
            by_moves |= dict.fromkeys(wrong, "its shape is not told by the target")

    def _refuse(self, message: str, *, ever: bool) -> None:
        # With the source, its shapes tell more.
        hint = (
            None
            if ever
            else "inverse(source), or map invert TABLE SOURCE: the shapes of what the table is for tell it"
        )
        self._errors.append(FormatLimitError(f"{message}.", hint))

    def _raise(self) -> None:
        errors: list[ConversionError] = [*self._errors]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise TreeError(f"{len(errors)} parts of the table cannot be inverted:", errors)

    # -- what becomes of each source ----------------------------------------------------------------

    def _uses(self, by_moves: dict[NameTemplate, str]) -> dict[NameTemplate, list[_Use]]:
        """All uses of each source; what is filled is added to what is dropped."""
        uses_of_names: dict[NameTemplate, list[_Use]] = defaultdict(list)
        for rule in self._table.rules:
            self._rule, self._over = rule, ()
            filled = len(self._drop)
            if rule.expression is None:
                why = f"it is not known what it is ({rule.reason})"
                self._refuse(f"{rule.target} cannot be inverted: {why}", ever=True)
                continue
            try:
                uses = list(self._back(rule.expression, _MadePart(Reference(rule.target))))
            except _NoInverseError as error:
                if self._source is None or error.ever:
                    self._refuse(f"{rule.target} cannot be inverted: {error}", ever=error.ever)
                    continue
                # A part of it may be filled, which is dropped as moves are.
                del self._drop[filled:]
                self._drop += self._source.filled_in(rule)
                for name, _ in names_in(rule.expression):
                    by_moves[name] = str(error)
                    uses_of_names.setdefault(name, [])
                continue
            for name, use in uses:
                uses_of_names[name].append(use._replace(is_assumed=rule.assumed))
        return uses_of_names

    def _back(self, expression: Expression, part: _MadePart) -> Iterator[tuple[NameTemplate, _Use]]:
        """Yield the sources of an expression, if what it makes is a part of the target."""
        if isinstance(expression, (Cast, View)):
            yield from self._back(expression.of, self._unchanged(expression, part))
        elif isinstance(expression, Arithmetic):
            raise _NoInverseError(f"{expression.verb} goes one way only", ever=True)
        elif isinstance(expression, Moves):
            raise _NoInverseError("moves do not say the shapes of their sources")
        elif isinstance(expression, Fill):
            if part.reference.pattern is not None:
                raise _NoInverseError("what is filled is in a pattern")
            self._drop.append(part.reference)
        elif isinstance(expression, Reference):
            yield from self._back_of_reference(expression, part)
        elif isinstance(expression, Same):
            for inner in expression.parts:
                yield from self._back(inner, part)
        elif part.reference.pattern is not None:
            raise _NoInverseError("a pattern stands outside of what is joined twice")
        elif isinstance(expression, Stack):
            yield from self._back_of_stack(expression, part)
        else:
            yield from self._back_of_concatenation(expression, part)

    def _unchanged(self, expression: Cast | View, part: _MadePart) -> _MadePart:
        """A part of the target before a cast or a view."""
        verb = "cast" if isinstance(expression, Cast) else "view"
        before = expression.before or self._dtype(expression.of)
        if isinstance(expression, Cast):
            if before is None:
                raise _NoInverseError(
                    f'cast goes one way only, unless from = "…" says a dtype of which {expression.dtype} '
                    "holds every value"
                )
            if not holds_exactly(before, expression.dtype):
                raise _NoInverseError(
                    f"cast to {expression.dtype} loses values of {before}, so it goes one way only",
                    ever=True,
                )
            back: Cast | View = Cast(before, expression.of, expression.dtype)
            return part._replace(changes=(*part.changes, back))
        if before is None:
            raise _NoInverseError(f'{verb} does not say the dtype that was viewed: from = "…" does')
        is_wider = find(before).itemsize != find(expression.dtype).itemsize
        back = View(before, expression.of, expression.dtype)
        return part._replace(changes=(*part.changes, back), is_viewed=part.is_viewed or is_wider)

    def _back_of_reference(
        self, reference: Reference, part: _MadePart
    ) -> Iterator[tuple[NameTemplate, _Use]]:
        pattern, back = reference.pattern, part.reference
        if part.is_viewed and any(not cut.is_index and cut != _WHOLE for cut in reference.slices):
            raise _NoInverseError("a part is viewed as another dtype")
        if pattern is None:
            yield reference.name, _Use(reference.slices, back, part.changes)
            return
        if part.is_viewed:
            pattern = _in_other_units(pattern, part.changes, self._dims)
        left, flat = pattern.left, None
        if pattern.takes:
            left = tuple(
                [
                    (Atom(atom.kept, atom.is_reversed),)
                    for group in pattern.left
                    for atom in group
                    if not atom.goes
                ]
            )
            flat = pattern.left
        for right in _copies_in(pattern):
            if back.pattern is None:
                back_again = back._replace(pattern=Pattern(right, left))
            elif back.pattern.right == pattern.right and right == pattern.right:
                back_again = back._replace(pattern=Pattern(back.pattern.left, left))
            else:
                raise _NoInverseError(
                    "a pattern stands outside of what is joined, and another inside"
                )
            yield reference.name, _Use(reference.slices, back_again, part.changes, flat)

    def _back_of_stack(self, stack: Stack, part: _MadePart) -> Iterator[tuple[NameTemplate, _Use]]:
        axis = self._axis(stack, stack.axis)
        count = len(stack.parts)
        if stack.over is None and count > 1 and stack.pattern == _interleaving(axis - 1, count):
            step = Formula.of(count)
            for number, inner in enumerate(stack.parts):
                taken = AxisSlice(Formula.of(number), None, step)
                yield from self._back(inner, _taken(part, axis - 1, taken, None))
            return
        if stack.over is not None:
            (inner,) = stack.parts
            if self._over or stack.pattern is not None:
                raise _NoInverseError("a stack of all numbers stands in a stack or a pattern")
            taken = AxisSlice(Formula.of(stack.over), None, None, is_index=True)
            self._over = (stack.over,)
            yield from self._back(inner, _taken(part, axis, taken, None))
            self._over = ()
            return
        for number, inner in enumerate(stack.parts):
            taken = AxisSlice(Formula.of(number), None, None, is_index=True)
            yield from self._back(inner, _taken(part, axis, taken, stack.pattern, count))

    def _back_of_concatenation(
        self, joined: Concatenation, part: _MadePart
    ) -> Iterator[tuple[NameTemplate, _Use]]:
        axis = self._axis(joined, joined.axis)
        if part.is_viewed:
            rank = self._rank(joined)
            if rank is None or axis >= rank - 1:
                raise _NoInverseError("what is joined along the last axis is viewed")
        for inner, taken in zip(joined.parts, self._places(joined, axis), strict=True):
            yield from self._back(inner, _taken(part, axis, taken, joined.pattern))

    # -- lengths -------------------------------------------------------------------------------------

    def _axis(self, expression: Concatenation | Stack, axis: int) -> int:
        """An axis, counted from the first."""
        if axis >= 0:
            return axis
        ranks = [self._rank(part) for part in expression.parts]
        rank = next((known_rank for known_rank in ranks if known_rank is not None), None)
        if rank is None:
            raise _NoInverseError("an axis is counted from the end, and the table says no shape")
        return axis + rank + isinstance(expression, Stack)

    def _rank(self, expression: Expression) -> int | None:
        """The number of axes, if it is known."""
        pattern = getattr(expression, "pattern", None)
        if pattern is not None and (Atom(None),) not in pattern.right:
            return len(pattern.right)
        if isinstance(expression, Fill):
            return len(expression.shape)
        shape = self._shape(expression)
        return None if shape is None else len(shape)

    def _shape(self, expression: Expression) -> tuple[int | None, ...] | None:
        """The lengths of the axes, as far as the source tells them, and the same for all numbers."""
        if self._source is None:
            return None
        shapes = [
            header.shape for header in self._source.headers_of(self._rule, expression, self._over)
        ]
        if not shapes or len({*map(len, shapes)}) > 1:
            return None
        return tuple(
            [sizes[0] if len({*sizes}) == 1 else None for sizes in zip(*shapes, strict=True)]
        )

    def _dtype(self, expression: Expression) -> str | None:
        if self._source is None:
            return None
        headers = self._source.headers_of(self._rule, expression, self._over)
        dtypes = {header.dtype for header in headers}
        return dtypes.pop() if len(dtypes) == 1 else None

    def _places(self, joined: Concatenation, axis: int) -> list[AxisSlice]:
        """The place of each part along the axis of a concatenation."""
        lengths = [_extent(part, axis) for part in joined.parts]
        if self._source is not None:
            # Names that a shape tells stand for another number in another rule.
            lengths = [size if size and size.names <= {*self._dims} else None for size in lengths]
        unknown = [place for place, length in enumerate(lengths) if length is None]
        # One of them is what the others leave.
        for place in unknown[:-1]:
            lengths[place] = self._named(joined, place, axis)
        places, start = [], _ZERO
        for place, length in enumerate(lengths):
            is_last = place == len(lengths) - 1
            first = None if start == _ZERO else start
            if length is None:
                rest = _ZERO
                for after in lengths[place + 1 :]:
                    rest = rest.plus(after or _ZERO)
                places.append(AxisSlice(first, None if is_last else _ZERO.plus(rest, -1), None))
                start = _ZERO.plus(rest, -1)
                continue
            stop = start.plus(length)
            # After a part without a length, places count from the end.
            is_end = is_last or stop == _ZERO
            places.append(AxisSlice(first, None if is_end else stop, None))
            start = stop
        return places

    def _named(self, joined: Concatenation, place: int, axis: int) -> Formula:
        """A name for a length that is in no table: of the part, unlike those of the others."""
        part = joined.parts[place]
        length = None
        if self._source is not None:
            shape = self._shape(part)
            length = shape[axis] if shape is not None and axis < len(shape) else None
            if length is None:
                raise _NoInverseError("what is joined has other lengths for other numbers")
        words = [_words_of(inner) for inner in joined.parts]
        others = {word for at, some in enumerate(words) if at != place for word in some}
        own = [word for word in words[place] if word not in others] or words[place][-1:]
        name = f"{'_'.join(own) or 'part'}_length"
        number = 2
        while name in self._words:
            name = f"{name.rstrip('0123456789').removesuffix('_')}_{number}"
            number += 1
        self._words.add(name)
        self._dims[name] = ("",) if length is None else (length,)
        return Formula.of(name)


def _words_of(expression: Expression) -> list[str]:
    """The words in the names of an expression."""
    texts = [text for reference in references_in(expression) for text in reference.name.texts]
    return [word for text in texts for word in re.findall(r"[A-Za-z_][A-Za-z_0-9]*", text)]


def _taken(
    part: _MadePart, axis: int, taken: AxisSlice, pattern: Pattern | None, count: int | None = None
) -> _MadePart:
    """A part of a part, along an axis of it, or of what it was before a pattern.

    Args:
        part: The part.
        axis: The axis.
        taken: What is taken of it.
        pattern: The pattern.
        count: How long the axis is, if that is known.
    """
    reference = part.reference
    if pattern is not None:
        return part._replace(reference=_taken_inside(reference, axis, taken, pattern, count))
    slices = [*reference.slices]
    # An axis of which one index is taken is gone.
    left = axis
    for place, cut in enumerate(slices):
        if cut.is_index:
            continue
        if not left:
            if cut != _WHOLE:
                raise _NoInverseError("an axis is joined twice")
            slices[place] = taken
            return part._replace(reference=reference._replace(slices=tuple(slices)))
        left -= 1
    slices += [_WHOLE] * left
    return part._replace(reference=reference._replace(slices=(*slices, taken)))


def _taken_inside(
    reference: Reference, axis: int, taken: AxisSlice, pattern: Pattern, count: int | None
) -> Reference:
    """A part of what is rearranged by a pattern: a part of a part of an axis."""
    before = pattern.left[: axis + 1]
    is_alone = len(before) == axis + 1 and len(before[-1]) == 1
    if pattern.takes or pattern.repeats or not is_alone or (Atom(None),) in before:
        raise _NoInverseError("the pattern takes apart what is joined")
    (joined,) = before[-1]
    picked = Atom(joined.length if count is None else Formula.of(count), taken=taken)
    if sum(atom == joined for group in pattern.right for atom in group) != 1:
        raise _NoInverseError("the pattern reverses what is joined")
    left = tuple(
        [tuple([picked if atom == joined else atom for atom in group]) for group in pattern.right]
    )
    inner = () if taken.is_index else ((Atom(picked.kept),),)
    kept = (*pattern.left[:axis], *inner, *pattern.left[axis + 1 :])
    return reference._replace(pattern=Pattern(left, kept))


def _copies_in(pattern: Pattern) -> Iterator[Groups]:
    """Yield the right side of a pattern, for each copy that it makes."""
    repeats = [*dict.fromkeys(pattern.repeats)]
    numbers = [atom.length.number if atom.length is not None else None for atom in repeats]
    if (
        any(number is None for number in numbers)
        or prod(map(int, filter(None, numbers))) > _MOST_COPIES
    ):
        raise _NoInverseError(f"{pattern} repeats, and does not say how often, or often")
    for indices in product(*[range(number or 0) for number in numbers]):
        taken = {
            atom: Atom(atom.length, taken=AxisSlice(Formula.of(index), None, None, is_index=True))
            for atom, index in zip(repeats, indices, strict=True)
        }
        yield tuple([tuple([taken.get(atom, atom) for atom in group]) for group in pattern.right])


def _in_other_units(
    pattern: Pattern, changes: tuple[Cast | View, ...], known: Mapping[str, object]
) -> Pattern:
    """A pattern of elements, for those as which their bytes are viewed.

    Args:
        pattern: The pattern.
        changes: What is done to those, to make these.
        known: The lengths that are the same everywhere.
    """
    inner, other = [side[-1][-1] if side and side[-1] else None for side in pattern]
    if inner is None or inner != other or inner.length is None or inner != Atom(inner.length):
        raise _NoInverseError("what is viewed is in another order", ever=True)
    views = [view for view in changes if isinstance(view, View)]
    size = (inner.length.number or 0) * prod([find(view.dtype).itemsize for view in views])
    length, odd = divmod(size, prod([find(view.before or "").itemsize for view in views]))
    name = inner.length.name
    if name is None and (odd or not length):
        raise _NoInverseError("what is viewed has a length that is not told", ever=True)
    if name is not None and (name in known or str(pattern).count(name) > 2):
        raise _NoInverseError(f"the length {name} would be another before the view", ever=True)
    # A name stands for whatever the shape tells.
    atom = inner if name is not None else Atom(Formula.of(length))
    left, right = [(*side[:-1], (*side[-1][:-1], atom)) for side in pattern]
    return Pattern(left, right)


def _extent(expression: Expression, axis: int) -> Formula | None:
    """The length of an axis, if the table says it."""
    if isinstance(expression, Fill):
        return expression.shape[axis] if axis < len(expression.shape) else None
    if isinstance(expression, Same):
        known = [_extent(part, axis) for part in expression.parts]
        return next((extent for extent in known if extent is not None), None)
    pattern = getattr(expression, "pattern", None)
    if pattern is not None:
        return _extent_of(pattern, axis)
    if isinstance(expression, Concatenation):
        lengths = [_extent(part, axis) for part in expression.parts]
        if axis != expression.axis:
            return next((extent for extent in lengths if extent is not None), None)
        total = _ZERO
        for length in lengths:
            if length is None:
                return None
            total = total.plus(length)
        return total
    if isinstance(expression, Reference):
        kept = [extent for extent in expression.slices if not extent.is_index]
        if len(kept) < len(expression.slices) or axis >= len(kept):
            return None
        return _length_of(kept[axis])
    return None


def _length_of(taken: AxisSlice) -> Formula | None:
    """How many a slice takes, if it says it: places from the end are told by the axis only."""
    start, stop = taken.start or _ZERO, taken.stop
    if stop is None or taken.step is not None or _is_from_end(start) != _is_from_end(stop):
        return None
    return stop.plus(start, -1)


def _is_from_end(place: Formula) -> bool:
    return bool(place.terms) and all(count < 0 for _, count in place.terms)


def _extent_of(pattern: Pattern, axis: int) -> Formula | None:
    """The length of an axis that a pattern makes."""
    for group in pattern.right[: axis + 1]:
        if any(atom.length is None for atom in group):
            return None
    if axis >= len(pattern.right):
        return None
    extent = _ONE
    for atom in pattern.right[axis]:
        extent = extent.times(atom.length or _ONE)
    return extent


# -- what each source is made of -------------------------------------------------------------------


def _assembled(uses: list[_Use]) -> Expression:
    """A source, from all uses of it."""
    changes = uses[0].changes
    kinds = {tuple([(type(made), made.dtype, made.before) for made in use.changes]) for use in uses}
    if len(kinds) > 1:
        raise _NoInverseError("it is cast or viewed in one place, and not in another")
    assembled = _joined(uses)
    for change in changes:
        assembled = change._replace(of=assembled)
    return assembled


def _joined(uses: list[_Use]) -> Expression:
    """A source, from all uses of it, before casts and views."""
    wholes = [use.back for use in uses if use.is_whole]
    parts = [use for use in uses if not use.is_whole]
    if parts:
        wholes.append(_of_parts(parts))
    return wholes[0] if len(wholes) == 1 else Same(tuple(wholes))


def _of_parts(uses: list[_Use]) -> Expression:
    """A source of which each use takes a part."""
    if all(use.left is None for use in uses):
        return _along_axes(uses)
    left = uses[0].left or ()
    flat = [Atom(atom.length, atom.is_reversed) for group in left for atom in group]
    lengths = [atom.length for atom in flat if atom.length != _ONE]
    flattened = []
    for use in uses:
        own = [atom for group in use.left or () for atom in group]
        alike = [Atom(atom.length, atom.is_reversed) for atom in own] == flat
        groups = [len(group) for group in use.left or ()]
        if not alike or groups != [*map(len, left)] or any(cut != _WHOLE for cut in use.slices):
            raise _NoInverseError("its parts are taken in different ways")
        flattened.append(
            use._replace(slices=tuple([atom.taken or _WHOLE for atom in own]), left=None)
        )
    if len(set(lengths)) < len(lengths):
        raise _NoInverseError("two parts of its axes have one length")
    assembled = _along_axes(flattened)
    if not isinstance(assembled, (Concatenation, Stack)) or assembled.pattern is not None:
        raise _NoInverseError("its parts are not one behind the other")
    before = tuple([(Atom(atom.length),) for atom in flat])
    after = tuple([tuple([Atom(atom.length) for atom in group]) for group in left])
    if not any(len(group) > 1 for group in after):
        return assembled
    return assembled._replace(pattern=Pattern(before, after))


def _along_axes(uses: list[_Use]) -> Expression:
    """Parts that are joined along one axis, and those of them along others."""
    if all(use.is_whole for use in uses):
        return uses[0].back if len(uses) == 1 else Same(tuple([use.back for use in uses]))
    width = max(len(use.slices) for use in uses)
    padded = [
        use._replace(slices=(*use.slices, *[_WHOLE] * (width - len(use.slices)))) for use in uses
    ]
    why = "it is taken apart along several axes"
    for axis in range(width):
        groups: dict[AxisSlice, list[_Use]] = defaultdict(list)
        for use in padded:
            taken = use.slices[axis]
            # An axis of which one index is taken is gone.
            kept = () if taken.is_index else (_WHOLE,)
            slices = (*use.slices[:axis], *kept, *use.slices[axis + 1 :])
            groups[taken].append(use._replace(slices=slices))
        if _WHOLE in groups:
            continue
        try:
            return _along(axis, groups)
        except _NoInverseError as error:
            why = str(error)
    raise _NoInverseError(why)


def _along(axis: int, groups: dict[AxisSlice, list[_Use]]) -> Expression:
    """Parts that are joined along an axis."""
    taken = [*groups]
    backs = [_along_axes(group) for group in groups.values()]
    if all(cut.is_index for cut in taken):
        return _stacked(taken, backs, axis)
    if any(cut.is_index for cut in taken):
        raise _NoInverseError("indices and slices are taken of one axis")
    if any(cut.step is not None for cut in taken):
        return _interleaved(taken, backs, axis)
    sized = [
        _with_length(back, _length_of(cut), axis) for back, cut in zip(backs, taken, strict=True)
    ]
    return Concatenation(tuple(_in_order(taken, sized)), axis)


def _stacked(taken: list[AxisSlice], backs: list[Expression], axis: int) -> Expression:
    numbers = [cut.start.number if cut.start is not None else None for cut in taken]
    name = taken[0].start.name if taken[0].start is not None else None
    if len(backs) == 1 and name is not None:
        return Stack((backs[0],), axis, name)
    if None in numbers or sorted(number or 0 for number in numbers) != list(range(len(backs))):
        raise _NoInverseError("the indices that are taken are not all from 0")
    ordered = sorted(zip(numbers, backs, strict=True), key=lambda pair: pair[0] or 0)
    return Stack(tuple([back for _, back in ordered]), axis)


def _interleaved(taken: list[AxisSlice], backs: list[Expression], axis: int) -> Expression:
    """Every n-th row of each part."""
    count = len(taken)
    starts = [(cut.start or _ZERO).number for cut in taken]
    steps = {cut.step.number if cut.step is not None else 1 for cut in taken}
    if steps != {count} or sorted(-1 if cut is None else cut for cut in starts) != list(
        range(count)
    ):
        raise _NoInverseError("the steps of its parts do not fit together")
    if any(cut.stop is not None for cut in taken):
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


def _with_length(back: Expression, length: Formula | None, axis: int) -> Expression:
    """A part whose text says its length, so that it can be taken apart again."""
    if length is None or not isinstance(back, Reference) or back.pattern is not None or back.slices:
        return back
    before = tuple([(Atom(Formula.of(f"axis{number}")),) for number in range(axis)])
    groups = (*before, (Atom(length),), (Atom(None),))
    return back._replace(pattern=Pattern(groups, groups))


def _in_order(taken: list[AxisSlice], backs: list[Expression]) -> Iterator[Expression]:
    """Yield parts that are one behind the other, from the beginning.

    Where the last ends is compared with the axis by `check`.
    """
    left = list(zip(taken, backs, strict=True))
    at: Formula | None = _ZERO
    while left:
        place = next(
            (
                place
                for place, (cut, _) in enumerate(left)
                if at is not None and (cut.start or _ZERO) == at
            ),
            None,
        )
        if place is None:
            raise _NoInverseError("its parts do not follow one another")
        cut, back = left.pop(place)
        at = cut.stop
        yield back
