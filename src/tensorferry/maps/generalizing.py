"""From the forms of single outputs to rules: over the numbers in names, and over the sizes of models."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .expressions import Arithmetic, Cast, View
from .forms import Filled, Joined, Piece
from .formulas import Formula
from .lowering import lower
from .moves import box_of
from .names import NameTemplate
from .rules import Rule
from .sizing import SizeFormulas
from .spelling import Spelling, expression_of, numbered
from .table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .expressions import Expression
    from .forms import Form
    from .lowering import Header, MadeTensor
    from .spelling import NumberedName

__all__ = ["Model", "Output", "exact_rule", "generalized"]

_MOST_TRIED = 64
_VARIABLES = ("i", "j", "k", "m", "n", "o")
_STACKED = "e"


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
        is_view: Whether it is the bytes of that dtype, and no cast.
    """

    name: str
    header: Header
    form: Form | None
    reason: str | None = None
    constants: tuple[float, ...] = ()
    dtype: str = ""
    assumed: bool = False
    is_view: bool = False

    def changed(self, expression: Expression) -> Expression:
        """The output, from what it is before it is cast or viewed."""
        if self.is_view:
            return View(self.header.dtype, expression, self.dtype)
        if self.dtype != self.header.dtype:
            return Cast(self.header.dtype, expression)
        return expression


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


class _Reading(Spelling):
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


class _Writing(Spelling):
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


def generalized(models: Sequence[Model]) -> tuple[list[Rule], SizeFormulas]:
    """The rules for the outputs of all models, and the formulas of lengths in them.

    Each rule makes exactly the outputs that it was made from, by the same moves.

    Args:
        models: The models, of one architecture.
    """
    formulas = SizeFormulas(models)
    rules, formulas.others = _Generalizing(models, formulas).all()
    return rules, formulas


def exact_rule(
    output: Output, reserved: frozenset[str] = frozenset()
) -> tuple[Rule, dict[str, tuple[int]]]:
    """A rule for one name as it is, and the lengths that have names in it.

    Args:
        output: The output.
        reserved: Names that lengths do not get.
    """
    spelling = Spelling(reserved)
    form = _with_numbers(output.form or Filled(0, output.header.shape))
    expression = expression_of(form, spelling, constants=output.constants, dtype=output.dtype)
    rule = Rule(NameTemplate((output.name,), ()), output.changed(expression), output.assumed)
    return rule, {name: (length.number or 0,) for name, length in spelling.dims.items()}


class _Generalizing:
    def __init__(self, models: Sequence[Model], number: SizeFormulas) -> None:
        self._models = models
        self._number = number
        self._names = number.names | {*_VARIABLES, _STACKED}
        self._dims: dict[str, Formula] = {}
        self._made: dict[tuple[int, str], MadeTensor] = {}
        self._alike: dict[tuple[int, tuple[str, ...]], list[str]] = defaultdict(list)
        for place, model in enumerate(models):
            for output in model.outputs:
                self._alike[place, numbered(output.name).texts].append(output.name)

    def all(self) -> tuple[list[Rule], dict[str, Formula]]:
        """The rules, and the other words for lengths in them."""
        order: dict[str, int] = {}
        groups: dict[object, list[_Row]] = defaultdict(list)
        ranked_rules: list[tuple[int, Rule]] = []
        for place, model in enumerate(self._models):
            for output in model.outputs:
                rank = order.setdefault(output.name, len(order))
                if output.form is None:
                    if all(str(rule.target) != output.name for _, rule in ranked_rules):
                        exact = NameTemplate((output.name,), ())
                        ranked_rules.append((rank, Rule(exact, None, reason=output.reason)))
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
        for rows in sorted(groups.values(), key=lambda ranked: -len({row.model for row in ranked})):
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
                    ranked_rules.append((min(order[row.output.name] for row in made), rule))
                    done.update((row.model, row.output.name) for row in made)
                    if rule.expression is None:
                        done.update((at, str(rule.target)) for at in range(count))
        ranked_rules.sort(key=lambda ranked: ranked[0])
        return [rule for _, rule in ranked_rules], self._dims

    def _row(self, model: int, output: Output) -> tuple[_Row, object]:
        form = _folded(_with_numbers(output.form or Filled(0, output.header.shape)))
        reading = _Reading()
        text = expression_of(form, reading, constants=output.constants, dtype=output.dtype)
        target = numbered(output.name)
        columns = (*[int(number) for number in target.numbers], *reading.columns)
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
        for cluster in by_name.values():
            if len(cluster) == most and cluster not in kinds:
                kinds.append(cluster)
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
            reason = "differs between sizes"
            if any(row.is_other for row in rows):
                # An axis of one element is in no form, so a form with it cannot be told from others.
                reason += ": try others, in which no length is 1"
            exact = exact._replace(expression=None, reason=reason)
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
            changed = output.changed(expression)
            yield Rule(first.target.template(formulas[:count]), changed, output.assumed)

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
        # Read backwards, a rule is for each target that its name is for.
        texts = rows[0].target.texts
        if any(
            rule.target.match(name) is not None and name not in mine
            for name in self._alike.get((at, texts), ())
        ):
            return False
        table = Table((rule,), (), self._dims_in(at))
        lowered = lower(table, model.source, config=model.config)
        if lowered.tensors.keys() != mine.keys() or (mine and lowered.findings):
            return False
        return all(
            _same(lowered.tensors[name], self._moves_of(at, row)) for name, row in mine.items()
        )

    def _dims_in(self, at: int) -> dict[str, tuple[str | int, ...]]:
        """The lengths with names, in a model."""
        lengths = {name: values[at] for name, values in self._number.values.items()}
        lengths |= {name: length.value(lengths) for name, length in self._dims.items()}
        return {name: (value,) for name, value in lengths.items()}

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
    if other is None or one.header != other.header:
        return False
    # `of` has the names, which differ.
    changes, others = [[_without_names(change) for change in made.changes] for made in (one, other)]
    if changes != others:
        return False
    if sorted(map(repr, one.moves)) == sorted(map(repr, other.moves)):
        return True
    return _by_boxes(one) == _by_boxes(other)


def _without_names(change: Cast | View | Arithmetic) -> tuple[object, ...]:
    """A change, without what it is a change of."""
    if isinstance(change, Arithmetic):
        return change.verb, change.number
    return type(change).__name__, change.dtype, change.before


def _by_boxes(made: MadeTensor) -> list[str]:
    """The moves, in an order of their own."""
    return sorted(f"{move!r} {box_of(move)!r}" for move in made.moves)


def _with_numbers(form: Form) -> Form:
    """A form whose names have their numbers apart."""
    if isinstance(form, Piece):
        if not isinstance(form.source, str):
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
    if len({text for text, _, _ in readings}) > 1 or len({shape for _, shape, _ in readings}) > 1:
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
            _STACKED if isinstance(number, int) and next(places) in which else number
            for number in name.numbers
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
        return [Formula.of(int(number)) for number in table[0]]
    ours = [at for at in varying if at < of_target]
    theirs = [at for at in varying if at >= of_target]
    for chosen in (ours, theirs):
        free = _independent(table, chosen)
        if not free or len(free) > len(_VARIABLES):
            continue
        formulas = [_affine(table, at, free) for at in range(table.shape[1])]
        if all(formula is not None for formula in formulas):
            return [formula for formula in formulas if formula is not None]
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
    base = np.column_stack(
        [table[:, column_number] for column_number in free] + [np.ones(len(column))]
    )
    solved, *_ = np.linalg.lstsq(base.astype(float), column.astype(float), rcond=None)
    factors = np.rint(solved).astype(np.int64)
    if not bool((base.astype(np.int64) @ factors == column).all()) or (factors[:-1] < 0).any():
        return None
    affine = Formula.of(int(factors[-1]))
    for name, factor in zip(_VARIABLES, factors[:-1].tolist(), strict=False):
        affine = affine.plus(Formula.of(name), factor)
    return affine
