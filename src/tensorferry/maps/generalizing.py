"""From the forms of single outputs to rules: over the numbers in names, and over the sizes of models."""

from __future__ import annotations

import re
from collections import defaultdict
from fractions import Fraction
from itertools import islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .expressions import (
    AxisSlice,
    Cast,
    Concatenation,
    Fill,
    Moves,
    Reference,
    Stack,
    WrittenMove,
    parts_of,
)
from .fitting import Filled, Joined, Piece
from .formulas import Formula, NoValueError
from .lowering import lower
from .moves import box_of
from .names import NameTemplate
from .patterns import Atom, Pattern
from .table import Rule, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .expressions import Expression
    from .fitting import Form, RawMoves, Taken
    from .lowering import Header, MadeTensor

__all__ = [
    "Model",
    "NumberedName",
    "Output",
    "exact_rule",
    "expression_of",
    "generalized",
    "numbered",
]

_LETTERS = "abcdfgpqrstuvwxyz"
_VARIABLES = ("i", "j", "k", "m", "n", "o")
_STACKED = "e"
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


class Output(NamedTuple):
    """A tensor that a converter gives.

    Args:
        name: Its name.
        header: Its shape and dtype.
        form: What it is made of; ``None`` if that is not known.
        reason: Why it is not.
        constants: The numbers of what is filled in it.
        dtype: The dtype before it is cast; its own if it is not.
        assumed: Whether it is guessed.
    """

    name: str
    header: Header
    form: Form | None
    reason: str | None = None
    constants: tuple[float, ...] = ()
    dtype: str = ""
    assumed: bool = False


class Model(NamedTuple):
    """What a converter made of a model of one size.

    Args:
        source: The tensors of the source.
        outputs: The tensors that came out.
        config: The numbers of ``config.json``, by keys with dots.
        dims: Lengths that were given.
    """

    source: Mapping[str, Header]
    outputs: Sequence[Output]
    config: Mapping[str, int]
    dims: Mapping[str, int]


# -- a form as an expression -------------------------------------------------------------------------


class _Spelling:
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
        found = source if isinstance(source, NumberedName) else numbered(source)
        return found.template()

    def other(self, length: Formula) -> Formula:
        """Another word for a length that stands beside it already."""
        name = f"n{re.sub(r'[^A-Za-z0-9]', '_', str(length))}"
        self.dims[name] = length
        return Formula.of(name)

    def letters(self) -> Iterator[Formula]:
        """Names for lengths that shapes tell."""
        for count in range(1, 4):
            for each in product(_LETTERS, repeat=count):
                if "".join(each) not in self.reserved:
                    yield Formula.of("".join(each))


def expression_of(
    form: Form,
    spelling: _Spelling | None = None,
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
    return _Speller(spelling or _Spelling(), constants, dtype).expression(form)


class _Speller:
    def __init__(self, spelling: _Spelling, constants: Sequence[float], dtype: str) -> None:
        self._as = spelling
        self._constants = constants
        self._dtype = dtype

    def expression(self, form: Form) -> Expression:
        """The expression that a form is."""
        if isinstance(form, Piece):
            slices = tuple([self._slice(each) for each in form.slices])
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
            None if each is None else self._as.number(each) for each in (taken.start, taken.stop)
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
            for each in placed:
                if each.key not in kept:
                    kept[each.key] = self._unlike(each.length, set(kept.values()))
                atoms.append(Atom(kept[each.key], each.is_reversed))
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
        found = Atom(length, taken=AxisSlice(start, end, None))
        if found.kept is not None and found.kept in used:
            name = self._as.other(found.kept)
            start = start or Formula.of(0)
            found = Atom(length, taken=AxisSlice(start, start.plus(name), None))
        return found

    def _unlike(self, value: int, used: set[Formula]) -> Formula:
        """A length that is none of others, which parts are told by."""
        found = self._as.number(value)
        return self._as.other(found) if found in used else found

    def _moves(self, form: RawMoves) -> Expression:
        moves = [
            WrittenMove(self._as.name(source), sizes, target, of)
            for source, sizes, target, of in form.moves
        ]
        return Moves(tuple(moves), form.shape)


_ONE = Atom(Formula.of(1))


# -- rules -------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """An output, with the numbers in names apart.

    Args:
        model: Of which model.
        output: The output.
        target: Its name.
        form: What it is made of, with names that have their numbers apart.
        numbers: The lengths and places in it.
        columns: The numbers in its name, in those of its sources, and its indices.
        is_other: Whether it has another form than the others, which may be the same where a length
            is 1.
    """

    model: int
    output: Output
    target: NumberedName
    form: Form
    numbers: tuple[int, ...]
    columns: tuple[int, ...]
    is_other: bool = False


class _Reading(_Spelling):
    """Reads what is in a form, in the order in which it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.columns: list[int] = []

    def number(self, value: int) -> Formula:
        self.numbers.append(value)
        return Formula.of(f"_{len(self.numbers)}")

    def index(self, value: int) -> Formula:
        self.columns.append(value)
        return Formula.of(f"_index{len(self.columns)}")

    def name(self, source: Any) -> NameTemplate:
        known: NumberedName = source
        formulas: list[Formula | None] = []
        for number in known.numbers:
            if isinstance(number, int):
                self.columns.append(number)
            formulas.append(Formula.of("_number"))
        return known.template(formulas)


class _Writing(_Spelling):
    """Writes a form with formulas for numbers and for numbers in names."""

    def __init__(
        self, numbers: Sequence[Formula], columns: Sequence[Formula], reserved: frozenset[str]
    ) -> None:
        super().__init__(reserved)
        self._numbers = iter(numbers)
        self._columns = iter(columns)

    def number(self, value: int) -> Formula:
        del value
        return next(self._numbers)

    def index(self, value: int) -> Formula:
        del value
        return next(self._columns)

    def name(self, source: Any) -> NameTemplate:
        known: NumberedName = source
        formulas = [
            next(self._columns) if isinstance(number, int) else None for number in known.numbers
        ]
        return known.template(formulas)


def generalized(
    models: Sequence[Model],
) -> tuple[list[Rule], dict[str, tuple[str | int, ...]], dict[str, tuple[int, ...]]]:
    """The rules for the outputs of all models, and the lengths that they need.

    Each rule makes exactly the outputs that it was made from, by the same moves.

    Args:
        models: The models, of one architecture.

    Returns:
        The rules; the lengths with the ways to know them; and those that nothing tells, with what
        they are in each model.
    """
    formulas = SizeFormulas(models)
    rules, more = _Generalizing(models, formulas).all()
    used = frozenset().union(*[lengths_in(rule.expression) for rule in rules if rule.expression])
    used |= frozenset().union(*[length.names for name, length in more.items() if name in used])
    every: dict[str, tuple[str | int, ...]] = dict(formulas.ways)
    for name, length in more.items():
        number = length.number
        every[name] = (str(length) if number is None else number,)
    ways = {name: way for name, way in every.items() if name in used}
    unknown = {name: formulas.values[name] for name, way in ways.items() if not way}
    return rules, ways, unknown


def lengths_in(expression: Expression) -> frozenset[str]:
    """The names of lengths in an expression."""
    found: set[str] = set()
    pattern = getattr(expression, "pattern", None)
    if pattern is not None:
        found |= pattern.names
    if isinstance(expression, Reference):
        places = [place for each in expression.slices for place in each[:3]]
        found |= frozenset().union(*[place.names for place in places if place is not None])
    if isinstance(expression, Fill):
        found |= frozenset().union(*[length.names for length in expression.shape])
    return frozenset(found).union(*map(lengths_in, parts_of(expression)))


def exact_rule(
    output: Output, reserved: frozenset[str] = frozenset()
) -> tuple[Rule, dict[str, tuple[int]]]:
    """A rule for one name as it is, and the lengths that have names in it.

    Args:
        output: The output.
        reserved: Names that lengths do not get.
    """
    spelling = _Spelling(reserved)
    form = _with_numbers(output.form or Filled(0, output.header.shape))
    expression = expression_of(form, spelling, constants=output.constants, dtype=output.dtype)
    if output.dtype != output.header.dtype:
        expression = Cast(output.header.dtype, expression)
    rule = Rule(NameTemplate((output.name,), ()), expression, output.assumed)
    return rule, {name: (length.number or 0,) for name, length in spelling.dims.items()}


class _Generalizing:
    def __init__(self, models: Sequence[Model], number: SizeFormulas) -> None:
        self._models = models
        self._number = number
        self._names = number.names | {*_VARIABLES, _STACKED}
        self._dims: dict[str, Formula] = {}
        self._made: dict[tuple[int, str], MadeTensor] = {}

    def all(self) -> tuple[list[Rule], dict[str, Formula]]:
        """The rules, and the other words for lengths in them."""
        order: dict[str, int] = {}
        groups: dict[object, list[_Row]] = defaultdict(list)
        found: list[tuple[int, Rule]] = []
        for place, model in enumerate(self._models):
            for output in model.outputs:
                rank = order.setdefault(output.name, len(order))
                if output.form is None:
                    if all(str(rule.target) != output.name for _, rule in found):
                        exact = NameTemplate((output.name,), ())
                        found.append((rank, Rule(exact, None, reason=output.reason)))
                    continue
                row, key = self._row(place, output)
                groups[key].append(row)
        # Those that are in the most models first: others may be the same where a length is 1.
        count = len(self._models)
        rows_of: dict[tuple[str, ...], list[_Row]] = defaultdict(list)
        for rows in groups.values():
            for row in rows:
                rows_of[row.target.texts].append(row)
        done: set[tuple[int, str]] = set()
        for rows in sorted(groups.values(), key=lambda each: -len({row.model for row in each})):
            left = [row for row in rows if (row.model, row.output.name) not in done]
            there = {row.model for row in left}
            if left and len(there) < count:
                left += [
                    row._replace(is_other=True)
                    for row in rows_of[left[0].target.texts]
                    if row.model not in there and (row.model, row.output.name) not in done
                ]
            for cluster in self._clusters(left) if left else ():
                for rule, made in self._rules(cluster):
                    found.append((min(order[row.output.name] for row in made), rule))
                    done.update((row.model, row.output.name) for row in made)
                    if rule.expression is None:
                        done.update((at, str(rule.target)) for at in range(count))
        found.sort(key=lambda each: each[0])
        return [rule for _, rule in found], self._dims

    def _row(self, model: int, output: Output) -> tuple[_Row, object]:
        form = _folded(_with_numbers(output.form or Filled(0, output.header.shape)))
        reading = _Reading()
        text = expression_of(form, reading, constants=output.constants, dtype=output.dtype)
        target = numbered(output.name)
        columns = (*[int(each) for each in target.numbers], *reading.columns)
        row = _Row(model, output, target, form, tuple(reading.numbers), columns)
        numbers = row.numbers if len(self._models) == 1 else len(row.numbers)
        return row, (target.texts, text, numbers, output.header.dtype, output.dtype)

    def _clusters(self, rows: list[_Row]) -> Iterator[list[_Row]]:
        """Rows apart if they have other numbers in one model."""
        by_name: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
        for row in rows:
            if not row.is_other:
                by_name[row.output.name][row.model] = row.numbers
        most = max(map(len, by_name.values()))
        kinds: list[dict[int, tuple[int, ...]]] = []
        for each in by_name.values():
            if len(each) == most and each not in kinds:
                kinds.append(each)
        clusters: dict[object, list[_Row]] = defaultdict(list)
        for row in rows:
            own = by_name[row.output.name]
            key: object = next(
                (
                    place
                    for place, kind in enumerate(kinds)
                    if all(kind.get(at, numbers) == numbers for at, numbers in own.items())
                ),
                (row.model, row.numbers),
            )
            clusters[key].append(row)
        yield from clusters.values()

    # -- one rule ------------------------------------------------------------------------------------

    def _rules(self, rows: list[_Row]) -> Iterator[tuple[Rule, list[_Row]]]:
        """Yield rules that make these outputs, as few as there can be, with what each makes."""
        for rule in self._possible(rows):
            if self._makes(rule, rows):
                yield rule, rows
                return
        if len({row.output.name for row in rows}) > 1:
            for part in self._apart(rows):
                yield from self._rules(part)
            return
        exact = self._exact(rows)
        if len(self._models) > 1 and not self._makes(exact, rows):
            exact = exact._replace(expression=None, reason="differs between sizes")
        yield exact, rows

    def _apart(self, rows: list[_Row]) -> Iterator[list[_Row]]:
        """Yield the rows by the number in a column that has the fewest."""
        # Those of another form have other columns besides those of the name.
        shared = min(len(row.columns) for row in rows)
        if any(row.is_other for row in rows):
            shared = len(rows[0].target.numbers)
        columns = np.array([row.columns[:shared] for row in rows], np.int64)
        columns = columns.reshape(len(rows), shared)
        counts = {at: len(set(columns[:, at].tolist())) for at in range(columns.shape[1])}
        several = {at: count for at, count in counts.items() if count > 1}
        if not several:
            for row in rows:
                yield [row]
            return
        best = min(several, key=lambda at: (several[at], at))
        parts: dict[int, list[_Row]] = defaultdict(list)
        for row in rows:
            parts[row.columns[best]].append(row)
        yield from parts.values()

    def _possible(self, rows: list[_Row]) -> Iterator[Rule]:
        """Yield rules that may make these outputs."""
        own = [row for row in rows if not row.is_other]
        if not own:
            return
        first = own[0]
        formulas = _columns(own, len(first.target.numbers))
        if formulas is None:
            return
        count = len(first.target.numbers)
        output = first.output
        for numbers in self._numbers(own):
            writing = _Writing(numbers, formulas[count:], self._names)
            expression = expression_of(
                first.form, writing, constants=output.constants, dtype=output.dtype
            )
            self._add_dims(writing.dims)
            if output.dtype != output.header.dtype:
                expression = Cast(output.header.dtype, expression)
            yield Rule(first.target.template(formulas[:count]), expression, output.assumed)

    def _add_dims(self, dims: Mapping[str, Formula]) -> None:
        self._dims.update(dims)

    def _numbers(self, rows: list[_Row]) -> Iterator[list[Formula]]:
        """Yield formulas of the lengths and places: several only if not all models tell them."""
        if len(self._models) == 1:
            yield [Formula.of(number) for number in rows[0].numbers]
            return
        by_model = {row.model: row.numbers for row in rows}
        slots = [
            tuple(
                by_model[model][at] if model in by_model else None
                for model in range(len(self._models))
            )
            for at in range(len(rows[0].numbers))
        ]
        kinds = list(dict.fromkeys(slots))
        ways = [self._number.possible(kind) for kind in kinds]
        for chosen in islice(product(*ways), _MOST_TRIED):
            known = dict(zip(kinds, chosen, strict=True))
            formulas = [known[slot] for slot in slots]
            self._number.use(formulas)
            yield formulas

    def _exact(self, rows: list[_Row]) -> Rule:
        """A rule for one name as it is, from what was fitted without any other."""
        rule, dims = exact_rule(rows[0].output, self._names)
        self._add_dims({name: Formula.of(value) for name, (value,) in dims.items()})
        return rule

    def _makes(self, rule: Rule, rows: list[_Row]) -> bool:
        """Whether a rule makes just these outputs in each model, by the moves that were found."""
        return all(self._makes_in(rule, rows, model) for model in range(len(self._models)))

    def _makes_in(self, rule: Rule, rows: list[_Row], at: int) -> bool:
        mine = {row.output.name: row for row in rows if row.model == at}
        model = self._models[at]
        if not mine and not rule.target.names:
            return True
        table = Table((rule,), (), self._dims_in(at))
        lowered = lower(table, model.source, config=model.config)
        if lowered.tensors.keys() != mine.keys() or (mine and lowered.findings):
            return False
        return all(
            _same(lowered.tensors[name], self._moves_of(at, row)) for name, row in mine.items()
        )

    def _dims_in(self, at: int) -> dict[str, tuple[str | int, ...]]:
        """The lengths with names, in a model."""
        found = {name: values[at] for name, values in self._number.values.items()}
        found |= {name: length.value(found) for name, length in self._dims.items()}
        return {name: (value,) for name, value in found.items()}

    def _moves_of(self, at: int, row: _Row) -> MadeTensor | None:
        """What an output is, as it was found, without other outputs."""
        key = at, row.output.name
        if key not in self._made:
            rule = self._exact([row])
            every = self._models[at].source
            used = {name: every[name] for name in rule.sources}
            lowered = lower(Table((rule,), (), self._dims_in(at)), used)
            if row.output.name not in lowered.tensors:
                return None
            self._made[key] = lowered.tensors[row.output.name]
        return self._made[key]


def _same(one: MadeTensor, other: MadeTensor | None) -> bool:
    if other is None or one.header != other.header or one.changes != other.changes:
        return False
    if sorted(map(repr, one.moves)) == sorted(map(repr, other.moves)):
        return True
    return _by_boxes(one) == _by_boxes(other)


def _by_boxes(made: MadeTensor) -> list[str]:
    """The moves, in an order of their own."""
    return sorted(f"{move!r} {box_of(move)!r}" for move in made.moves)


def _with_numbers(form: Form) -> Form:
    """A form whose names have their numbers apart."""
    if isinstance(form, Piece):
        if isinstance(form.source, NumberedName):
            return form
        return form._replace(source=numbered(form.source))
    if isinstance(form, Joined):
        return form._replace(parts=tuple(map(_with_numbers, form.parts)))
    if isinstance(form, Filled):
        return form
    return form._replace(moves=tuple([(numbered(move[0]), *move[1:]) for move in form.moves]))


# -- stacks ------------------------------------------------------------------------------------------


def _folded(form: Form) -> Form:
    """A form in which parts that differ in a number from 0 on are one part."""
    if not isinstance(form, Joined):
        return form
    form = form._replace(parts=tuple(map(_folded, form.parts)))
    if len(form.parts) < 2 or form.is_merged:
        return form
    readings = [_read(part) for part in form.parts]
    if len({text for text, _, _ in readings}) > 1 or len({each for _, each, _ in readings}) > 1:
        return form
    columns = np.array([columns for _, _, columns in readings], np.int64)
    columns = columns.reshape(len(readings), -1)
    count = np.arange(len(readings))
    varying = [at for at in range(columns.shape[1]) if len(set(columns[:, at].tolist())) > 1]
    if not varying or not all(bool((columns[:, at] == count).all()) for at in varying):
        return form
    part = _with_index(form.parts[0], iter(range(columns.shape[1])), set(varying))
    if part is None or form.number is not None:
        return form
    return form._replace(parts=(part,), number=_STACKED)


def _read(form: Form) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    reading = _Reading()
    text = repr(expression_of(form, reading))
    return text, tuple(reading.numbers), tuple(reading.columns)


def _with_index(form: Form, places: Iterator[int], which: set[int]) -> Form | None:
    """A form in which some numbers of names are the one of a stack."""
    if isinstance(form, Piece):
        for taken in form.slices:
            if taken.is_index and next(places) in which:
                return None
        name: NumberedName = form.source
        numbers = [
            _STACKED if isinstance(each, int) and next(places) in which else each
            for each in name.numbers
        ]
        return form._replace(source=name._replace(numbers=tuple(numbers)))
    if isinstance(form, Joined):
        if form.number is not None:
            return None
        parts = [_with_index(part, places, which) for part in form.parts]
        if any(part is None for part in parts):
            return None
        return form._replace(parts=tuple(part for part in parts if part is not None))
    return form if isinstance(form, Filled) else None


# -- numbers in names --------------------------------------------------------------------------------


def _columns(rows: Sequence[_Row], of_target: int) -> list[Formula] | None:
    """A formula for each number in a name, of a few names of numbers; ``None`` if there is none."""
    table = np.array([row.columns for row in rows], np.int64).reshape(len(rows), -1)
    varying = [at for at in range(table.shape[1]) if len(set(table[:, at].tolist())) > 1]
    if not varying:
        return [Formula.of(int(each)) for each in table[0]]
    ours = [at for at in varying if at < of_target]
    theirs = [at for at in varying if at >= of_target]
    for chosen in (ours, theirs):
        free = _independent(table, chosen)
        if not free or len(free) > len(_VARIABLES):
            continue
        found = [_affine(table, at, free) for at in range(table.shape[1])]
        if all(each is not None for each in found):
            return [each for each in found if each is not None]
    return None


def _independent(table: np.ndarray[Any, Any], columns: Sequence[int]) -> list[int]:
    """The columns that are no sums of those before."""
    free: list[int] = []
    for at in columns:
        if _affine(table, at, free) is None:
            free.append(at)
    return free


def _affine(table: np.ndarray[Any, Any], at: int, free: Sequence[int]) -> Formula | None:
    """A column as a sum of whole multiples of others and a number."""
    column = table[:, at]
    if at in free:
        return Formula.of(_VARIABLES[free.index(at)])
    base = np.column_stack([table[:, each] for each in free] + [np.ones(len(column))])
    solved, *_ = np.linalg.lstsq(base.astype(float), column.astype(float), rcond=None)
    factors = np.rint(solved).astype(np.int64)
    if not bool((base.astype(np.int64) @ factors == column).all()) or (factors[:-1] < 0).any():
        return None
    found = Formula.of(int(factors[-1]))
    for name, factor in zip(_VARIABLES, factors[:-1].tolist(), strict=False):
        found = found.plus(Formula.of(name), factor)
    return found


# -- numbers of sizes --------------------------------------------------------------------------------

_SHORT = {
    "num_attention_heads": "h",
    "n_head": "h",
    "n_heads": "h",
    "num_heads": "h",
    "num_key_value_heads": "kv",
    "n_kv_heads": "kv",
    "head_dim": "hd",
    "hidden_size": "dim",
    "n_embd": "dim",
    "d_model": "dim",
    "intermediate_size": "ff",
    "ffn_dim": "ff",
    "vocab_size": "vocab",
}
_MOST_RATIO = 8
_MOST_TRIED = 64


class SizeFormulas:
    """Formulas of keys of ``config.json``, for numbers that differ between sizes.

    A number that several formulas of the same kind give, or whose keys are always in one small
    ratio, gets a name of its own: which formula is meant, these sizes do not tell.

    Args:
        models: The models.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self.ways: dict[str, tuple[str | int, ...]] = {}
        self.values: dict[str, tuple[int, ...]] = {}
        self._unknown: dict[tuple[int | None, ...], str] = {}
        self._keys: dict[str, tuple[int, ...]] = {}
        self._ways: dict[str, tuple[str | int, ...]] = {}
        if len(models) > 1:
            self._read(models)
        self._levels = self._candidates()

    def _read(self, models: Sequence[Model]) -> None:
        common = dict.fromkeys(models[0].config)
        for key in common:
            if all(key in model.config for model in models):
                self._add(key, tuple(model.config[key] for model in models), (key,))
        for name in models[0].dims:
            if all(name in model.dims for model in models):
                self._keys[name] = tuple(model.dims[name] for model in models)
                self._ways[name] = ()

    def _add(self, key: str, values: tuple[int, ...], ways: tuple[str | int, ...]) -> None:
        if len(set(values)) == 1 or min(values) < 1:
            return
        last = key.rpartition(".")[2]
        name = _SHORT.get(last, re.sub(r"\W", "_", last))
        if name in self._keys or not name.isidentifier():
            name = re.sub(r"\W", "_", key)
        self._keys[name] = values
        self._ways[name] = ways

    @property
    def names(self) -> frozenset[str]:
        """The names that formulas may have."""
        return frozenset(self._keys)

    def _rhymes(self, names: frozenset[str]) -> bool:
        """Whether one of these keys is always in a small ratio to another key."""
        for name in names:
            for other, values in self._keys.items():
                if other == name:
                    continue
                pairs = zip(self._keys[name], values, strict=True)
                ratios = {Fraction(one, two) for one, two in pairs}
                if len(ratios) == 1:
                    (ratio,) = ratios
                    if max(ratio.numerator, ratio.denominator) <= _MOST_RATIO:
                        return True
        return False

    def _candidates(self) -> list[dict[tuple[int, ...], set[Formula]]]:
        """Formulas by what they give in each model, the simple ones first."""
        names = list(self._keys)
        one = {name: Formula.of(name) for name in names}
        pairs = [(a, b) for place, a in enumerate(names) for b in names[place:]]
        levels: list[list[Formula]] = [list(one.values()), [], [], []]
        for name in names:
            levels[1] += [one[name].over(Formula.of(2)), one[name].times(Formula.of(2))]
            for number in (3, 4, 6, 8):
                levels[2] += [one[name].times(Formula.of(number))]
            levels[2] += [one[name].over(Formula.of(4))]
        for a, b in pairs:
            times = one[a].times(one[b])
            levels[1].append(times)
            levels[2] += [times.over(Formula.of(2)), times.times(Formula.of(2))]
            levels[3] += [times.times(Formula.of(number)) for number in (3, 4, 6)]
            if a != b:
                levels[2].append(one[a].plus(one[b]))
                for two, three in ((a, b), (b, a)):
                    ratio = one[two].over(one[three])
                    levels[1].append(ratio)
                    levels[2] += [ratio.over(Formula.of(2))]
        for a, b in product(names, names):
            for factor in (1, 2):
                if a == b or (factor == 1 and a > b):
                    continue
                total = one[a].plus(one[b], factor)
                levels[3].append(total)
                levels[3] += [total.times(one[c]) for c in names if c not in (a, b)]
        return [self._by_value(level) for level in levels]

    def _by_value(self, formulas: Sequence[Formula]) -> dict[tuple[int, ...], set[Formula]]:
        found: dict[tuple[int, ...], set[Formula]] = defaultdict(set)
        count = len(next(iter(self._keys.values()), ()))
        for each in formulas:
            try:
                values = tuple(
                    each.value({name: self._keys[name][at] for name in each.names})
                    for at in range(count)
                )
            except NoValueError:
                continue
            found[values].add(each)
        return found

    def possible(self, values: tuple[int | None, ...]) -> list[Formula]:
        """The formulas for a number: one, unless it is not known in each model."""
        known = [value for value in values if value is not None]
        if len(set(known)) == 1:
            return [Formula.of(known[0])]
        if None in values:
            fits = [sorted(self._fits(level, values), key=str) for level in self._levels]
            return [each for level in fits for each in level]
        here = tuple([value for value in values if value is not None])
        simple = [*self._levels[0].get(here, ()), *self._levels[1].get(here, ())]
        keys = [each for each in simple if each.name is not None]
        if keys:
            # That a length is also the quotient of others says nothing against its own key.
            simple = [each for each in simple if not _is_quotient(each)]
        levels = [simple, *[[*level.get(here, ())] for level in self._levels[2:]]]
        fits_here = next((level for level in levels if level), [])
        if len(fits_here) == 1 and not self._rhymes(fits_here[0].names):
            return fits_here
        return [Formula.of(self._named(values))]

    def use(self, formulas: Sequence[Formula]) -> None:
        """Keep the names in formulas, which a table then has."""
        for each in formulas:
            for name in each.names:
                if name in self._keys:
                    self.ways[name] = self._ways[name]
                    self.values[name] = self._keys[name]

    @staticmethod
    def _fits(
        level: dict[tuple[int, ...], set[Formula]], values: tuple[int | None, ...]
    ) -> set[Formula]:
        return {
            each
            for key, formulas in level.items()
            if all(value in (None, number) for number, value in zip(key, values, strict=True))
            for each in formulas
        }

    def _named(self, values: tuple[int | None, ...]) -> str:
        """A name for a number that nothing tells."""
        if values not in self._unknown:
            name = f"length_{len(self._unknown) + 1}"
            self._unknown[values] = name
            self.ways[name] = ()
            self.values[name] = tuple(value or 0 for value in values)
        return self._unknown[values]


def _is_quotient(formula: Formula) -> bool:
    """Whether names are divided by names."""
    return any(
        isinstance(factor, tuple) and factor[1].number is None
        for factors, _ in formula.terms
        for factor in factors
    )
