"""Formulas for lengths that differ between models of one architecture, from their ``config.json``."""

from __future__ import annotations

import re
from collections import defaultdict
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Protocol

from .expressions import lengths_in
from .formulas import Formula, NoValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .expressions import Reference
    from .rules import Rule

__all__ = ["SizeFormulas", "SizedModel"]


class SizedModel(Protocol):
    """A model of one size: the numbers of its configuration, and lengths that were given."""

    @property
    def config(self) -> Mapping[str, int]:
        """The numbers of ``config.json``, by keys with dots."""

    @property
    def dims(self) -> Mapping[str, int]:
        """Lengths that were given."""


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


class SizeFormulas:
    """Formulas of keys of ``config.json``, for numbers that differ between sizes.

    A number that several formulas of the same kind give, or whose keys are always in one small
    ratio, gets a name of its own: which formula is meant, these sizes do not tell.

    Args:
        models: The models.
    """

    def __init__(self, models: Sequence[SizedModel]) -> None:
        self.ways: dict[str, tuple[str | int, ...]] = {}
        self.values: dict[str, tuple[int, ...]] = {}
        self.others: dict[str, Formula] = {}
        """Other words for lengths that stand beside themselves."""
        self._unknown: dict[tuple[int | None, ...], str] = {}
        self._keys: dict[str, tuple[int, ...]] = {}
        self._ways: dict[str, tuple[str | int, ...]] = {}
        if len(models) > 1:
            self._read(models)
        self._levels = self._candidates()

    def _read(self, models: Sequence[SizedModel]) -> None:
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
        by_value: dict[tuple[int, ...], set[Formula]] = defaultdict(set)
        count = len(next(iter(self._keys.values()), ()))
        for one_formula in formulas:
            try:
                values = tuple(
                    one_formula.value({name: self._keys[name][at] for name in one_formula.names})
                    for at in range(count)
                )
            except NoValueError:
                continue
            by_value[values].add(one_formula)
        return by_value

    def possible(self, values: tuple[int | None, ...]) -> list[Formula]:
        """The formulas for a number: one, unless it is not known in each model."""
        known = [value for value in values if value is not None]
        if len(set(known)) == 1:
            return [Formula.of(known[0])]
        if None in values:
            fits = [sorted(self._fits(level, values), key=str) for level in self._levels]
            return [one_formula for level in fits for one_formula in level]
        here = tuple([value for value in values if value is not None])
        simple = [*self._levels[0].get(here, ()), *self._levels[1].get(here, ())]
        keys = [one_formula for one_formula in simple if one_formula.name is not None]
        if keys:
            # That a length is also the quotient of others says nothing against its own key.
            simple = [one_formula for one_formula in simple if not _is_quotient(one_formula)]
        levels = [simple, *[[*level.get(here, ())] for level in self._levels[2:]]]
        fits_here = next((level for level in levels if level), [])
        if len(fits_here) == 1 and not self._rhymes(fits_here[0].names):
            return fits_here
        return [Formula.of(self._named(values))]

    def ways_of(
        self, rules: Iterable[Rule], drop: Iterable[Reference] = ()
    ) -> dict[str, tuple[str | int, ...]]:
        """The lengths that rules need, each with the ways to know it."""
        every = [rule.expression for rule in rules if rule.expression is not None]
        used = frozenset().union(*map(lengths_in, [*every, *drop]))
        for name, length in self.others.items():
            if name in used:
                used |= length.names
        ways = {name: way for name, way in self.ways.items() if name in used}
        for name, length in self.others.items():
            if name in used:
                number = length.number
                ways[name] = (str(length) if number is None else number,)
        return ways

    def unknown_in(self, dims: Iterable[str], model: int) -> dict[str, int]:
        """The lengths that nothing tells, as they are in a model."""
        return {name: self.values[name][model] for name in dims if self.ways.get(name) == ()}

    def use(self, formulas: Sequence[Formula]) -> None:
        """Keep the names in formulas, which a table then has."""
        for one_formula in formulas:
            for name in one_formula.names:
                if name in self._keys:
                    self.ways[name] = self._ways[name]
                    self.values[name] = self._keys[name]

    @staticmethod
    def _fits(
        level: dict[tuple[int, ...], set[Formula]], values: tuple[int | None, ...]
    ) -> set[Formula]:
        return {
            one_formula
            for key, formulas in level.items()
            if all(value in (None, number) for number, value in zip(key, values, strict=True))
            for one_formula in formulas
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
