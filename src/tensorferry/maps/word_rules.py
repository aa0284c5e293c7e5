"""From rules that differ in a word to one with words: what a person would write instead."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from .expressions import lengths_in, names_in, stacked_in, with_names
from .formulas import Formula
from .names import NameTemplate
from .rules import rules_of_each_word
from .table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .rules import Rule

__all__ = ["folded", "folded_again"]

_LEAST_SPARED = 8
"""How many rules words have to spare, so that a reader has to look them up."""
_LEAST_TIMES_SHORTER = 3
"""How often as long as the words the rules have to be that they spare."""
_MOST_RULES = 1000
_MOST_CUTS = 40
_MOST_TRIED = 64
_MOST_LOOKED_FOR = 1 << 20
_HOLE = "_word"
_EDGES = re.compile(r"(?<=[./])|(?=[./])")
_TAIL = re.compile(r"(?<=[._/])[^._/]+$")

Pair = tuple[str, str]
"""A word in the name of a target, and in those of its sources."""


class _Fold(NamedTuple):
    """Rules that differ in one word.

    Args:
        target: The name of the target, with a hole.
        rule: The first of them, with holes.
        rules: The places of the rules, by their words.
    """

    target: NameTemplate
    rule: Rule
    rules: dict[Pair, int]


def folded(table: Table, sources: Sequence[Iterable[str]]) -> Table:
    """The table with words, where they spare enough rules.

    It makes the same of these sources: a word that a rule has besides is in no name of any of them.

    Args:
        table: The table.
        sources: The names of the tensors of each model that the table is for.
    """
    if not _LEAST_SPARED < len(table.rules) <= _MOST_RULES:
        return table
    names = [name for names_of_one in sources for name in names_of_one]
    folding = _Folding(table.rules, table.words, _reserved(table), _Absent(names))
    while folding.fold_best(_tails, "kind"):
        pass
    while folding.fold_best(_segments, "part"):
        pass
    if not folding.words:
        return table
    return Table(folding.ordered(), table.drop, table.dims, table.about, folding.words)


def folded_again(table: Table, words: Mapping[str, Mapping[str, str]]) -> Table:
    """The table with words that are known, where it has a rule for each of them."""
    folding = _Folding(table.rules, {}, frozenset(), None)
    for name, pairs in words.items():
        # It would only be shorter.
        if len(pairs) * len(table.rules) <= _MOST_LOOKED_FOR:
            folding.fold_known(name, pairs)
    return Table(folding.ordered(), table.drop, table.dims, table.about, folding.words)


def _reserved(table: Table) -> frozenset[str]:
    """Names that words do not get."""
    reserved = {*table.dims, *table.words, _HOLE}
    for rule in table.rules:
        reserved |= rule.target.names
        if rule.expression is not None:
            reserved |= lengths_in(rule.expression) | stacked_in(rule.expression)
            reserved = reserved.union(*[name.names for name, _ in names_in(rule.expression)])
    return frozenset(reserved)


class _Absent:
    """Which names are in no source."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_text: dict[str, list[str]] = defaultdict(list)
        for name in names:
            self._by_text[_literal(name)].append(name)

    def has_none(self, rule: Rule, words: dict[str, dict[str, str]]) -> bool:
        """Whether a rule makes nothing, because no source has any of its names."""
        if rule.expression is None:
            return False
        return not any(
            name.match(source_name) is not None
            for plain in rules_of_each_word(rule, words)
            for name, _ in names_in(plain.expression or rule.expression)
            for source_name in self._by_text.get(_literal("".join(name.texts)), ())
        )


def _literal(text: str) -> str:
    return re.sub(r"\d", "", text)


class _Folding:
    def __init__(
        self,
        rules: Sequence[Rule],
        words: Mapping[str, Mapping[str, str]],
        reserved: frozenset[str],
        absent: _Absent | None,
    ) -> None:
        self._rules: dict[int, Rule] = dict(enumerate(rules))
        self.words = {name: dict(pairs) for name, pairs in words.items()}
        self._reserved = reserved
        self._absent = absent

    def ordered(self) -> tuple[Rule, ...]:
        """The rules, each at the place of the first of those for which it stands."""
        return tuple([self._rules[place] for place in sorted(self._rules)])

    def fold_known(self, name: str, pairs: Mapping[str, str]) -> None:
        """Fold the rules that differ in just these words."""
        every = frozenset([*pairs, *pairs.values()])
        places = self._places(lambda template: _known(template, every), 1)
        self._fold(name, frozenset(pairs.items()), places)

    def fold_best(self, cut: Callable[[NameTemplate], Iterator[Any]], prefix: str) -> bool:
        """Fold the rules that differ in the words that spare most; whether there are any."""
        places = self._places(cut, 2)
        kinds = {frozenset(place.rules) for place in places if len(place.rules) > 1}
        by_pair: dict[Pair, list[_Fold]] = defaultdict(list)
        for place in places:
            for pair in place.rules:
                by_pair[pair].append(place)
        known = {frozenset(pairs.items()): name for name, pairs in self.words.items()}
        best, most = None, 0
        for kind in sorted(kinds, key=_order)[:_MOST_TRIED]:
            length = _length(kind)
            chosen = self._chosen(kind, by_pair)
            spared = sum(len(self._shared(place, kind)) - 1 for place in chosen)
            shorter = sum(self._length_spared(self._shared(place, kind)) for place in chosen)
            is_known = kind in known
            if not is_known and spared < _LEAST_SPARED:
                continue
            if not is_known and shorter < _LEAST_TIMES_SHORTER * length:
                continue
            gain = shorter - (0 if is_known else length)
            if gain > most:
                best, most = (kind, chosen), gain
        if best is None:
            return False
        kind, chosen = best
        name = known.get(kind) or self._named(prefix)
        self._fold(name, kind, chosen)
        return True

    def _length_spared(self, places: Sequence[int]) -> int:
        """How many characters of rules one with a word spares."""
        rules = [self._rules[at] for at in places]
        lengths = [len(f"{rule.target}{rule.sources}") for rule in rules]
        return sum(lengths) - max(lengths)

    def _named(self, prefix: str) -> str:
        number, name = 1, prefix
        while name in self._reserved or name in self.words:
            number += 1
            name = f"{prefix}_{number}"
        return name

    def _shared(self, place: _Fold, kind: frozenset[Pair]) -> list[int]:
        """The rules at a place that have one of these words."""
        return [at for pair, at in place.rules.items() if pair in kind]

    def _chosen(self, kind: frozenset[Pair], by_pair: Mapping[Pair, list[_Fold]]) -> list[_Fold]:
        """The places where these words can stand, of which none has a rule of another."""
        counts: dict[int, int] = defaultdict(int)
        there: dict[int, _Fold] = {}
        for pair in kind:
            for fold in by_pair.get(pair, ()):
                counts[id(fold)] += 1
                there[id(fold)] = fold
        taken: set[int] = set()
        chosen = []
        for key in sorted(there, key=lambda key: (-counts[key], str(there[key].target))):
            fold = there[key]
            own = set(self._shared(fold, kind))
            if len(own) < 2 or own & taken or not self._is_absent(fold, kind):
                continue
            taken |= own
            chosen.append(fold)
        return chosen

    def _is_absent(self, place: _Fold, kind: frozenset[Pair]) -> bool:
        """Whether these words, but for those of the rules at a place, are in no name."""
        more = [pair for pair in kind if pair not in place.rules]
        if not more:
            return True
        if self._absent is None:
            return False
        return all(self._absent.has_none(_filled(place.rule, pair), self.words) for pair in more)

    def _fold(self, name: str, kind: frozenset[Pair], places: Sequence[_Fold]) -> None:
        done: set[int] = set()
        for place in places:
            own = self._shared(place, kind)
            is_whole = len(own) == len(kind) or self._absent is not None
            if not is_whole or done.intersection(own):
                continue
            field = Formula.of(name)
            rule = _with_holes(place.rule, lambda template: _named(template, field))  # noqa: B023
            first = min(own)
            for at in own:
                del self._rules[at]
            self._rules[first] = rule
            done.update(own)
        if done and name not in self.words:
            order = sorted(kind, key=lambda pair: min(self._first(places, pair), default=0))
            self.words[name] = dict(order)

    @staticmethod
    def _first(places: Sequence[_Fold], pair: Pair) -> list[int]:
        return [place.rules[pair] for place in places if pair in place.rules]

    # -- where words stand ---------------------------------------------------------------------------

    def _places(self, cut: Callable[[NameTemplate], Iterator[Any]], least: int) -> list[_Fold]:
        """All rules that differ in one word, in each way in which a name can be cut."""
        targets: dict[NameTemplate, list[tuple[int, str]]] = defaultdict(list)
        sources: dict[int, list[tuple[str, int]]] = {}
        holed: dict[int, Rule] = {}
        numbers: dict[object, int] = {}
        often: dict[int, int] = defaultdict(int)
        for at, rule in self._rules.items():
            if rule.expression is None:
                continue
            for hole, word in cut(rule.target):
                targets[hole].append((at, word))
            sources[at] = []
            for word, rule_with_hole in _of_sources(rule, cut):
                number = numbers.setdefault(
                    (rule_with_hole.expression, rule_with_hole.assumed), len(numbers)
                )
                holed.setdefault(number, rule_with_hole)
                often[number] += 1
                sources[at].append((word, number))
        folds: list[_Fold] = []
        for target, rows in targets.items():
            if len(rows) < least:
                continue
            ways: dict[int, dict[Pair, int]] = defaultdict(dict)
            for at, word in rows:
                for theirs, number in sources[at]:
                    if often[number] >= least:
                        ways[number].setdefault((word, theirs), at)
            for number, by_pair in ways.items():
                words = {ours for ours, _ in by_pair}
                if len(by_pair) >= least and len(words) == len(by_pair):
                    folds.append(_Fold(target, holed[number]._replace(target=target), by_pair))
        return folds


def _length(kind: frozenset[Pair]) -> int:
    return sum(len(ours) + len(theirs) for ours, theirs in kind)


def _order(kind: frozenset[Pair]) -> tuple[int, int, list[Pair]]:
    """The most words first, and the shortest of as many."""
    return -len(kind), _length(kind), sorted(kind)


def _of_sources(
    rule: Rule, cut: Callable[[NameTemplate], Iterator[tuple[NameTemplate, str]]]
) -> Iterator[tuple[str, Rule]]:
    """Yield a rule with a hole in the names of its sources, with the word that was there."""
    if rule.expression is None:
        return
    names = [name for name, _ in names_in(rule.expression)]
    if not names:
        return
    cuts = {name: [*cut(name)] for name in names}
    for first, word in cuts[names[0]]:
        # Where another name has the word twice, the last is the one that is meant.
        holes = {name: hole for name in names for hole, other in cuts[name] if other == word}
        holes[names[0]] = first
        expression = with_names(rule.expression, lambda name: holes.get(name, name))  # noqa: B023
        yield word, rule._replace(expression=expression)


def _tails(template: NameTemplate) -> Iterator[tuple[NameTemplate, str]]:
    """Yield a name without its last word."""
    match = _TAIL.search(template.texts[-1])
    if match is not None:
        yield _holed(template, len(template.texts) - 1, match.start(), match.end()), match[0]


def _segments(template: NameTemplate) -> Iterator[tuple[NameTemplate, str]]:
    """Yield a name without one or more of the words between dots."""
    count = 0
    for at, text in enumerate(template.texts):
        parts = _EDGES.split(text)
        edges = [0]
        for part in parts:
            edges.append(edges[-1] + len(part))
        last = len(template.texts) - 1
        for start in edges[:-1]:
            for stop in edges[1:]:
                word = text[start:stop]
                is_word = word and word[0] not in "./" and word[-1] not in "./"
                is_alone = (start or not at) and (stop < len(text) or at == last)
                if stop <= start or not is_word or not is_alone or count > _MOST_CUTS:
                    continue
                count += 1
                yield _holed(template, at, start, stop), word


def _known(template: NameTemplate, words: frozenset[str]) -> Iterator[tuple[NameTemplate, str]]:
    """Yield a name without one of these words, wherever it stands."""
    last = len(template.texts) - 1
    for at, text in enumerate(template.texts):
        for word in words:
            start = text.find(word)
            while start >= 0:
                stop = start + len(word)
                if (start or not at) and (stop < len(text) or at == last):
                    yield _holed(template, at, start, stop), word
                start = text.find(word, start + 1)


def _holed(template: NameTemplate, at: int, start: int, stop: int) -> NameTemplate:
    text = template.texts[at]
    return NameTemplate(
        (*template.texts[:at], text[:start], text[stop:], *template.texts[at + 1 :]),
        (*template.fields[:at], Formula.of(_HOLE), *template.fields[at:]),
    )


def _named(template: NameTemplate, field: Formula) -> NameTemplate:
    """A name with the name of words in its hole."""
    fields = [
        field if template_field.name == _HOLE else template_field
        for template_field in template.fields
    ]
    return template._replace(fields=tuple(fields))


def _with_holes(rule: Rule, change: Callable[[NameTemplate], NameTemplate]) -> Rule:
    """A rule with other names."""
    expression = rule.expression
    if expression is not None:
        expression = with_names(expression, change)
    return rule._replace(target=change(rule.target), expression=expression)


def _filled(rule: Rule, pair: Pair) -> Rule:
    """A rule with words in its holes."""
    (plain,) = rules_of_each_word(rule, {_HOLE: dict([pair])})
    return plain._replace(words=())
