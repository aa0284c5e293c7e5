"""`Rule`: what a tensor of a target is made of; with words in its name, one rule for each word."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from ..errors import FileFormatError, shown
from .expressions import lengths_in, names_in, stacked_in, with_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .expressions import Expression, Reference
    from .names import NameTemplate

__all__ = [
    "Rule",
    "drop_of_each_word",
    "refuse_words",
    "rules_of_each_word",
    "swapped_words",
    "unseen_words",
    "words_in",
]

_MOST_RULES = 150_000
"""For how many rules those of a table may stand."""
_MOST_CHARACTERS = 64 << 20
"""How many characters the names of all these may have."""

Words = dict[str, dict[str, str]]


class Rule(NamedTuple):
    """What a tensor of the target, or one for each number in its name, is made of.

    Args:
        target: The name of the tensor.
        expression: What it is made of; ``None`` if that is not known.
        assumed: Whether it was guessed, because a constant tensor tells nothing.
        reason: Why it is not known: ``"affine 1*x+1"``, ``"arithmetic"`` …
        words: The words in its name, by their names, if it is one of those for which a rule with
            words stands.
    """

    target: NameTemplate
    expression: Expression | None
    assumed: bool = False
    reason: str | None = None
    words: tuple[tuple[str, str], ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the tensors that it is made of."""
        if self.expression is None:
            return ()
        return tuple(dict.fromkeys([str(name) for name, _ in names_in(self.expression)]))


def words_in(rule: Rule, words: Mapping[str, object]) -> tuple[str, ...]:
    """The names of words that are in the names of a rule, in the order of the target's."""
    every = [rule.target]
    if rule.expression is not None:
        every += [name for name, _ in names_in(rule.expression)]
    return _words_of(every, words)


def _words_of(every: list[NameTemplate], words: Mapping[str, object]) -> tuple[str, ...]:
    fields = [field.name for name in every for field in name.fields]
    return tuple(
        dict.fromkeys(
            [own_field for own_field in fields if own_field is not None and own_field in words]
        )
    )


def rules_of_each_word(rule: Rule, words: Words) -> Iterator[Rule]:
    """Yield the rules for which a rule stands: itself, if there are no words in it."""
    names = words_in(rule, words)
    if not names:
        yield rule
        return
    for chosen in product(*[words[name].items() for name in names]):
        pairs = list(zip(names, chosen, strict=True))
        ours = {name: target for name, (target, _) in pairs}
        theirs = {name: source for name, (_, source) in pairs}
        expression = rule.expression
        if expression is not None:
            expression = with_names(expression, lambda name: name.with_words(theirs))  # noqa: B023
        yield rule._replace(
            target=rule.target.with_words(ours),
            expression=expression,
            words=tuple(ours.items()),
        )


def drop_of_each_word(
    drop: Sequence[Reference], words: Words
) -> Iterator[tuple[Reference, dict[str, str]]]:
    """Yield what is dropped, one for each word in its name, with the words as in names of targets."""
    for reference in drop:
        names = _words_of([reference.name], words)
        for chosen in product(*[words[name].items() for name in names]):
            pairs = list(zip(names, chosen, strict=True))
            theirs = {name: source for name, (_, source) in pairs}
            ours = {name: target for name, (target, _) in pairs}
            yield reference._replace(name=reference.name.with_words(theirs)), ours


def refuse_words(rules: tuple[Rule, ...], drop: tuple[Reference, ...], words: Words) -> None:
    """Refuse words that stand where a number has to, and rules that stand for too many.

    Raises:
        FileFormatError: There are some.
    """
    if not words:
        return
    count, characters = len(rules), 0
    for rule in rules:
        try:
            times, longest = _counted(rule, words)
        except FileFormatError as error:
            raise FileFormatError(f"{shown(str(rule.target))}: {error.message}") from None
        count += times - 1
        characters += times * longest if times > 1 else 0
    for reference in drop:
        _refuse_formulas([reference.name], words)
        if lengths_in(reference) & words.keys():
            raise FileFormatError(f"drop: {shown(str(reference))} has a word where a number is.")
        times = 1
        for name in _words_of([reference.name], words):
            times *= len(words[name])
        count += times - 1
        characters += times * len(str(reference))
    if count > _MOST_RULES or characters > _MOST_CHARACTERS:
        raise FileFormatError(
            f"The words stand for {count:,} rules of {characters:,} characters, and a table has at "
            f"most {_MOST_RULES:,} of {_MOST_CHARACTERS:,}."
        )


def _counted(rule: Rule, words: Words) -> tuple[int, int]:
    """For how many rules a rule stands, and how many characters the names of each have."""
    every = [rule.target]
    if rule.expression is not None:
        every += [name for name, _ in names_in(rule.expression)]
        odd = (lengths_in(rule.expression) | stacked_in(rule.expression)) & words.keys()
        if odd:
            raise FileFormatError(f"{min(odd)} is a word of [words], and no number.")
    _refuse_formulas(every, words)
    times, longest = 1, sum(len(text) for name in every for text in name.texts)
    for name in _words_of(every, words):
        times *= len(words[name])
        most = max(len(word) for pair in words[name].items() for word in pair)
        longest += len(every) * most
    return times, longest


def _refuse_formulas(every: list[NameTemplate], words: Mapping[str, object]) -> None:
    for name in every:
        for field in name.fields:
            odd = field.names & words.keys()
            if odd and field.name is None:
                raise FileFormatError(
                    f"{{{field}}} counts with {min(odd)}, which is a word of [words], and no number."
                )


def swapped_words(words: Words) -> Words:
    """The words of the target for each of the source, where no two have the same."""
    swapped = {}
    for name, pairs in words.items():
        back = {theirs: ours for ours, theirs in pairs.items()}
        if len(back) == len(pairs):
            swapped[name] = back
    return swapped


def unseen_words(words: Words, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what is wrong with words that are in no name: one may be misspelt."""
    for name, pairs in words.items():
        for ours, theirs in pairs.items():
            if (name, ours) not in seen:
                what = f"{theirs!r}" if ours == theirs else f"{theirs!r} (for {ours!r})"
                yield f"no rule finds the word {what} of {name} in the source"
