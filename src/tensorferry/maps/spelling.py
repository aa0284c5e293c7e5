"""How a form is written as an expression: names, lengths and places, by whoever spells them."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from .expressions import (
    AxisSlice,
    Concatenation,
    Fill,
    Moves,
    Reference,
    Stack,
    WrittenMove,
)
from .forms import Filled, Joined, Piece
from .formulas import Formula
from .names import NameTemplate
from .patterns import Atom, Pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .expressions import Expression
    from .forms import Form, RawMoves, Taken

__all__ = ["NumberedName", "Spelling", "expression_of", "numbered"]

_LETTERS = "abcdfgpqrstuvwxyz"
_NUMBER = re.compile(r"(?<![A-Za-z0-9])(0|[1-9]\d{0,11})(?![A-Za-z0-9])")
"""A number in a name: ``w1``, ``fc2`` and ``conv1d`` are words."""


class NumberedName(NamedTuple):
    """A name, with the numbers in it apart.

    Args:
        texts: What stands before each number, and after the last.
        numbers: The numbers; the name of one of which a stack takes all.
    """

    texts: tuple[str, ...]
    numbers: tuple[int | str, ...]

    def template(self, formulas: Sequence[Formula | None] | None = None) -> NameTemplate:
        """The name for a table: with these formulas, or with the numbers as they are."""
        texts, fields = [self.texts[0]], []
        for place, (number, text) in enumerate(zip(self.numbers, self.texts[1:], strict=True)):
            formula = formulas[place] if formulas is not None else None
            if isinstance(number, str):
                formula = Formula.of(number)
            if formula is None or formula.number is not None:
                texts[-1] += f"{number if formula is None else formula.number}{text}"
            else:
                fields.append(formula)
                texts.append(text)
        return NameTemplate(tuple(texts), tuple(fields))


def numbered(name: str) -> NumberedName:
    """A name with the numbers in it apart.

    >>> numbered("layers.3.w1.0")
    NumberedName(texts=('layers.', '.w1.', ''), numbers=(3, 0))
    """
    parts = _NUMBER.split(name)
    return NumberedName(tuple(parts[::2]), tuple(map(int, parts[1::2])))


# -- a form as an expression -------------------------------------------------------------------------


class Spelling:
    """How numbers and names of a form are written: here, as they are."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self.reserved = reserved
        self.dims: dict[str, Formula] = {}

    def number(self, value: int) -> Formula:
        """A length, or a place."""
        return Formula.of(value)

    def index(self, value: int) -> Formula:
        """An index along an axis."""
        return Formula.of(value)

    def name(self, source: Any) -> NameTemplate:
        """The name of a source."""
        numbered_name = source if isinstance(source, NumberedName) else numbered(source)
        return numbered_name.template()

    def other(self, length: Formula) -> Formula:
        """Another word for a length that stands beside it already."""
        name = f"n{re.sub(r'[^A-Za-z0-9]', '_', str(length))}"
        self.dims[name] = length
        return Formula.of(name)

    def letters(self) -> Iterator[Formula]:
        """Names for lengths that shapes tell."""
        for count in range(1, 4):
            for letters in product(_LETTERS, repeat=count):
                if "".join(letters) not in self.reserved:
                    yield Formula.of("".join(letters))


def expression_of(
    form: Form,
    spelling: Spelling | None = None,
    *,
    constants: Sequence[float] = (),
    dtype: str = "float32",
) -> Expression:
    """The expression that a form is.

    Args:
        form: The form.
        spelling: How numbers and names are written.
        constants: The constants in it.
        dtype: The dtype of what is constant.
    """
    return _Speller(spelling or Spelling(), constants, dtype).expression(form)


class _Speller:
    def __init__(self, spelling: Spelling, constants: Sequence[float], dtype: str) -> None:
        self._as = spelling
        self._constants = constants
        self._dtype = dtype

    def expression(self, form: Form) -> Expression:
        """The expression that a form is."""
        if isinstance(form, Piece):
            slices = tuple([self._slice(taken) for taken in form.slices])
            return Reference(self._as.name(form.source), slices, self._pattern(form))
        if isinstance(form, Filled):
            shape = tuple([self._as.number(length) for length in form.shape])
            number = self._constants[form.code] if self._constants else 0
            return Fill(number, shape, self._dtype)
        if isinstance(form, Joined):
            return self._joined(form)
        return self._moves(form)

    def _joined(self, form: Joined) -> Expression:
        parts = tuple([self.expression(part) for part in form.parts])
        if form.number is not None and not form.is_stack:
            return Stack(parts, form.axis, form.number, self._merging(form.axes + 1, form.axis))
        pattern = self._merging(form.axes, form.axis - 1) if form.is_merged else None
        if form.is_stack:
            return Stack(parts, form.axis, form.number, pattern)
        return Concatenation(parts, form.axis, pattern)

    def _merging(self, axes: int, first: int) -> Pattern:
        """The pattern that makes one axis of two."""
        letters = self._as.letters()
        every = [(Atom(next(letters)),) for _ in range(axes)]
        merged = every[first] + every[first + 1]
        return Pattern(tuple(every), (*every[:first], merged, *every[first + 2 :]))

    def _slice(self, taken: Taken) -> AxisSlice:
        if taken.is_index:
            return AxisSlice(self._as.index(taken.start or 0), None, None, is_index=True)
        start, stop = [
            None if place is None else self._as.number(place) for place in (taken.start, taken.stop)
        ]
        step = None if taken.step is None else Formula.of(taken.step)
        return AxisSlice(start, stop, step)

    def _pattern(self, form: Piece) -> Pattern | None:
        if form.is_plain:
            return None
        letters = self._as.letters()
        kept: dict[int, Formula] = {}
        left: list[tuple[Atom, ...]] = []
        for group in form.left:
            free = next((part.key for part in group if part.is_full), None)
            atoms = []
            for part in group:
                if part.key is not None and part.key == free:
                    atom = Atom(next(letters))
                else:
                    atom = self._atom(part, set(kept.values()))
                if part.key is not None and atom.kept is not None:
                    kept[part.key] = atom.kept
                atoms.append(atom)
            left.append(tuple(atoms) or (_ONE,))
        right: list[tuple[Atom, ...]] = []
        for placed in form.right:
            atoms = []
            for placed_part in placed:
                if placed_part.key not in kept:
                    kept[placed_part.key] = self._unlike(placed_part.length, set(kept.values()))
                atoms.append(Atom(kept[placed_part.key], placed_part.is_reversed))
            right.append(tuple(atoms) or (_ONE,))
        return Pattern(tuple(left), tuple(right))

    def _atom(self, part: Any, used: set[Formula]) -> Atom:
        if part.is_full:
            return Atom(self._unlike(part.length, used))
        length = self._as.number(part.length)
        if part.key is None:
            return Atom(length, taken=AxisSlice(self._as.number(part.first), None, None, True))
        stop: int | None = part.first + part.size
        if stop == part.length:
            stop = None
        start = self._as.number(part.first) if part.first else None
        end = None if stop is None else self._as.number(stop)
        atom = Atom(length, taken=AxisSlice(start, end, None))
        if atom.kept is not None and atom.kept in used:
            name = self._as.other(atom.kept)
            start = start or Formula.of(0)
            atom = Atom(length, taken=AxisSlice(start, start.plus(name), None))
        return atom

    def _unlike(self, value: int, used: set[Formula]) -> Formula:
        """A length that is none of others, which parts are told by."""
        number = self._as.number(value)
        return self._as.other(number) if number in used else number

    def _moves(self, form: RawMoves) -> Expression:
        moves = [
            WrittenMove(self._as.name(source), sizes, target, of)
            for source, sizes, target, of in form.moves
        ]
        return Moves(tuple(moves), form.shape)


_ONE = Atom(Formula.of(1))
