"""`Table`: what each tensor of a target is made of, as data."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from .rules import refuse_words, rules_of_each_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .expressions import Reference
    from .rules import Rule

__all__ = ["Table"]


class Table:
    """Weights under another name, as data: see `tensorferry.WeightMap`.

    Args:
        rules: The rules, in the order of the target's tensors.
        drop: What of the source is in no tensor of the target: names, in which ``*`` is any text,
            or parts.
        dims: The names of lengths, each with the ways to know it, of which the first that can be
            taken is: a number, or a formula of keys of ``config.json``.
        about: What the table is for.
        words: The names of words, each with the words that stand for it in names of the target,
            and with the word of the source for each.
    """

    def __init__(
        self,
        rules: tuple[Rule, ...],
        drop: tuple[Reference, ...] = (),
        dims: Mapping[str, tuple[str | int, ...]] | None = None,
        about: str = "",
        words: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.rules = rules
        self.drop = drop
        self.dims = dict(dims or {})
        self.about = about
        self.words = {name: dict(pairs) for name, pairs in (words or {}).items()}

    @property
    def dropped(self) -> tuple[str, ...]:
        """What of the source is in no tensor of the target."""
        return tuple(map(str, self.drop))

    @property
    def complete(self) -> bool:
        """Whether it is known for each tensor what it is made of."""
        return all(rule.expression is not None for rule in self.rules)

    @cached_property
    def expanded(self) -> tuple[tuple[Rule, tuple[Rule, ...]], ...]:
        """Each rule, with those for which it stands: itself, or one for each word in its names."""
        refuse_words(self.rules, self.drop, self.words)
        return tuple([(rule, tuple(rules_of_each_word(rule, self.words))) for rule in self.rules])

    @cached_property
    def text(self) -> str:
        """The table as TOML."""
        from .language import written_table  # here, because it reads tables too

        return written_table(self)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)
