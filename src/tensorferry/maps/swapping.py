"""The moves of a table read backwards, for one source: what `inverting` knows of shapes, and what has no other form."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from .checking import findings
from .expressions import Fill, Moves, Reference, Same, WrittenMove, names_in
from .formulas import Formula, NoValueError
from .lowering import Lowering, lower
from .moves import box_of, covers_once
from .names import NameTemplate
from .rules import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..typing import Array
    from .expressions import Expression
    from .lowering import Header, MadeTensor
    from .moves import Box, Move
    from .table import Table

__all__ = ["LoweredSource", "NotSwappedError"]

_MOST_COPIES = 64
_MOST_COUNTED = 1 << 28
"""Of how many elements each is looked at, to see which parts overlap."""
_Moves = list[tuple[NameTemplate, "Move"]]
"""Moves with the names of what they are of."""


class NotSwappedError(Exception):
    """Moves that cannot be read backwards."""


class LoweredSource:
    """A table for the tensors of its source, to be turned around.

    Args:
        table: The table.
        source: The tensors of the source, by name.
        config: Numbers of ``config.json``.
        dims: Lengths that are given.
    """

    def __init__(
        self,
        table: Table,
        source: Mapping[str, Header],
        config: Mapping[str, int],
        dims: Mapping[str, int],
    ) -> None:
        self._table = table
        self._headers = source
        self._config = config
        self._lowering = Lowering(table, source, config, dims)
        self._lowered = self._lowering.all()
        self.findings = findings(self._lowered, source)
        """What is wrong between the table and the source."""
        self.dropped = tuple(self._lowered.dropped)
        """The names of what is dropped."""
        self._values: dict[int, list[dict[str, int]]] = {}
        self._rules: dict[str, Rule] = {}
        for rule in table.rules:
            for values in self._values_of(rule):
                self._rules.setdefault(rule.target.fill(values), rule)
        self._uses: dict[str, list[tuple[MadeTensor, Sequence[Move]]]] | None = None

    # -- shapes ----------------------------------------------------------------------------------------

    def _values_of(self, rule: Rule) -> list[dict[str, int]]:
        values = self._values.get(id(rule))
        if values is None:
            values = self._values[id(rule)] = self._lowering.values_of(rule)
        return values

    def headers_of(
        self, rule: Rule, expression: Expression, over: Sequence[str] = ()
    ) -> list[Header]:
        """The shapes and dtypes of a part of a rule, for all its numbers.

        Args:
            rule: The rule.
            expression: The part.
            over: Names of which a stack takes all: the first is as good as any.
        """
        first = dict.fromkeys(over, 0)
        headers = [
            self._lowering.header_of(expression, {**first, **values})
            for values in self._values_of(rule)
        ]
        return [header for header in headers if header is not None]

    def dims_of(
        self, dims: Mapping[str, tuple[str | int, ...]]
    ) -> dict[str, tuple[str | int, ...]]:
        """The lengths of the table, each with its number at the end, in case the target tells it not."""
        lengths: dict[str, tuple[str | int, ...]] = {}
        for name, ways in dims.items():
            number = self._lowered.dims.get(name)
            kept = tuple([way for way in ways if way != "" or number is None])
            lengths[name] = kept if number is None or number in kept else (*kept, number)
        return lengths

    # -- moves ---------------------------------------------------------------------------------------

    def filled_in(self, rule: Rule) -> Iterator[Reference]:
        """Yield the tensors of a rule that are made of no source."""
        for values in self._values_of(rule):
            made = self._lowered.tensors.get(rule.target.fill(values))
            if made is not None and made.moves and not made.sources:
                yield Reference(NameTemplate.exactly(made.name))

    def moved_back(self, name: NameTemplate) -> list[Rule]:
        """The rules that make the tensors of this name, of moves.

        Raises:
            NotSwappedError: There are none.
        """
        by_expression: dict[Expression, list[tuple[str, dict[str, int]]]] = defaultdict(list)
        every = self._lowering.names.matching(name)
        assumed = False
        for target_name, values in every:
            for made, _ in self._uses_of(target_name):
                assumed = assumed or made.assumed
            by_expression[self._expression(target_name, values)].append((target_name, values))
        rules = []
        for expression, tensors in by_expression.items():
            if len(by_expression) == 1 and self._has_all(name, expression):
                return [Rule(name, expression, assumed)]
            for target_name, values in tensors:
                rules.append(
                    Rule(NameTemplate.exactly(target_name), _filled(expression, values), assumed)
                )
        return rules

    def _has_all(self, name: NameTemplate, expression: Expression) -> bool:
        """Whether each number in a name is in the names of an expression too."""
        names = frozenset().union(*[template.names for template, _ in names_in(expression)])
        return name.names <= names

    def _uses_of(self, name: str) -> list[tuple[MadeTensor, Sequence[Move]]]:
        if self._uses is None:
            self._uses = defaultdict(list)
            for made in self._lowered.tensors.values():
                for moves in (made.moves, *made.equal):
                    for source in dict.fromkeys(move.source for move in moves):
                        if isinstance(source, str):
                            own = [move for move in moves if move.source == source]
                            self._uses[source].append((made, own))
        return self._uses.get(name, [])

    def _expression(self, name: str, values: Mapping[str, int]) -> Expression:
        """What a tensor is made of."""
        header = self._headers[name]
        if not header.size:
            shape = tuple([Formula.of(length) for length in header.shape])
            return Fill(0, shape, header.dtype)
        uses: list[_Moves] = []
        for made, moves in self._uses_of(name):
            if made.changes:
                raise NotSwappedError("it is cast or viewed besides")
            target = self._template(made.name, values)
            uses += [[(target, move.swapped(None)) for move in some] for some in _copies_of(moves)]
        wholes = _wholes(uses, header.size)
        forms: list[Expression] = [
            Moves(tuple([_written(target, move) for target, move in moves_of_one]), header.shape)
            for moves_of_one in wholes
        ]
        return forms[0] if len(forms) == 1 else Same(tuple(forms))

    def _template(self, name: str, values: Mapping[str, int]) -> NameTemplate:
        """The name of a target, with the numbers of a source where they tell it."""
        target = self._rules[name].target
        try:
            if target.fill(values) == name:
                return target
        except NoValueError:
            pass
        return NameTemplate.exactly(name)

    def not_made_by(self, table: Table) -> dict[str, str]:
        """Which tensors of the source a table does not make of those of the target, and why."""
        headers = {name: made.header for name, made in self._lowered.tensors.items()}
        back = lower(table, headers, config=self._config)
        return {
            finding.tensor: finding.message for finding in findings(back, headers, self._headers)
        }


def _filled(expression: Expression, values: Mapping[str, int]) -> Expression:
    """Moves with names as they are."""
    if isinstance(expression, Same):
        return Same(tuple([_filled(part, values) for part in expression.parts]))
    if not isinstance(expression, Moves):
        return expression
    moves = [
        part._replace(source=NameTemplate.exactly(part.source.fill(values)))
        for part in expression.moves
    ]
    return expression._replace(moves=tuple(moves))


def _written(target: NameTemplate, move: Move) -> WrittenMove:
    sides = [(move.target_start, *move.target_steps), (move.source_start, *move.source_steps)]
    return WrittenMove(target, move.sizes, sides[0], sides[1])


def _copies_of(moves: Sequence[Move]) -> list[list[Move]]:
    """Moves that repeat elements, as moves that do not: a list for each copy."""
    axes = [[axis for axis, step in enumerate(move.source_steps) if not step] for move in moves]
    counts = [[move.sizes[axis] for axis in some] for move, some in zip(moves, axes, strict=True)]
    count = max(map(prod, counts), default=1)
    if count > _MOST_COPIES:
        raise NotSwappedError(f"it is repeated {count} times")
    copies: list[list[Move]] = [[] for _ in range(count)]
    for move, some, sizes in zip(moves, axes, counts, strict=True):
        kept = [axis for axis in range(len(move.sizes)) if axis not in some]
        for place, index in enumerate(product(*map(range, sizes))):
            start = sum(at * move.target_steps[axis] for at, axis in zip(index, some, strict=True))
            copies[place].append(
                move._replace(
                    sizes=tuple([move.sizes[axis] for axis in kept]),
                    target_start=move.target_start + start,
                    target_steps=tuple([move.target_steps[axis] for axis in kept]),
                    source_steps=tuple([move.source_steps[axis] for axis in kept]),
                )
            )
    return copies


def _wholes(uses: list[_Moves], size: int) -> list[_Moves]:
    """Moves that each make all elements once, so that each use is in one of them.

    Raises:
        NotSwappedError: There are none.
    """
    every = [move for moves in uses for move in moves]
    if _are_all(every, size):
        return [every]
    if size > _MOST_COUNTED:
        raise NotSwappedError("its parts overlap, and it is too large to look where")
    wholes: list[_Moves] = []
    open_ones: list[tuple[_Moves, Array]] = []
    for moves in uses:
        if _are_all(moves, size):
            wholes.append(moves)
            continue
        boxes = [box_of(move) for _, move in moves]
        place = next(
            (use for use in open_ones if not any(at.any() for at in _views(boxes, use[1]))), None
        )
        if place is None:
            place = [], np.zeros(size, bool)
            open_ones.append(place)
        place[0].extend(moves)
        for view in _views(boxes, place[1]):
            view[...] = True
    wholes += [moves for moves, there in open_ones if there.all()]
    for moves, there in open_ones:
        if there.all():
            continue
        # What is used more often than the rest: the rest is as in another.
        rest = [
            use
            for use in (wholes[0] if wholes else ())
            if not any(view.any() for view in _views([box_of(use[1])], there))
        ]
        if not _are_all([*moves, *rest], size):
            raise NotSwappedError("its parts are not all used, or overlap")
        wholes.append([*moves, *rest])
    return wholes


def _views(boxes: Iterable[Box], elements: Array) -> Iterator[Array]:
    """Yield the elements of an array in boxes."""
    for start, axes in boxes:
        sizes, steps = [size for size, _ in axes], [step for _, step in axes]
        yield np.lib.stride_tricks.as_strided(elements[start:], sizes, steps)


def _are_all(moves: _Moves, size: int) -> bool:
    """Whether moves make each element once."""
    return covers_once([box_of(move) for _, move in moves], size)
