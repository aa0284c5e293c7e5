"""`Formula`: whole numbers, names and ``+ - * /`` in brackets, as a polynomial: sizes, places, numbers in names.

It is read by a small parser with limits, never by ``eval``, because a table may come from anywhere.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from ..errors import FileFormatError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["IDENTIFIER", "LARGEST", "Formula", "NoValueError", "formula"]

LARGEST = 1 << 62
"""The largest number that a formula may give, and that may stand in one."""
_LONGEST = 200
_DEEPEST = 20
_MOST_TERMS = 64
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_TOKEN = re.compile(r"\s*(?:(\d{1,19})|([A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_0-9]+)*)|([-+*/()]))")


class NoValueError(Exception):
    """A formula has no value.

    Args:
        name: The name without a value; ``None`` if the numbers do not fit.
        why: What is wrong, in a few words.
    """

    def __init__(self, name: str | None, why: str) -> None:
        super().__init__(why)
        self.name = name
        self.why = why


class Formula(NamedTuple):
    """A sum of products.

    Args:
        terms: The products, each with its whole number, in a fixed order, so that formulas that are
            equal as polynomials are equal. A factor is a name, or the two sides of a quotient that
            is no polynomial.
    """

    terms: tuple[tuple[tuple[object, ...], int], ...]

    @classmethod
    def of(cls, value: int | str) -> Formula:
        """A number, or a name."""
        if isinstance(value, str):
            return cls((((value,), 1),))
        return cls((((), value),) if value else ())

    # -- what it says --------------------------------------------------------------------------------

    @property
    def names(self) -> frozenset[str]:
        """The names in it."""
        names: set[str] = set()
        for factors, _ in self.terms:
            for factor in factors:
                if isinstance(factor, str):
                    names.add(factor)
                else:
                    above, below = _sides(factor)
                    names |= above.names | below.names
        return frozenset(names)

    @property
    def number(self) -> int | None:
        """The number, if there are no names in it."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def name(self) -> str | None:
        """The name, if it is nothing else."""
        if len(self.terms) == 1:
            factors, count = self.terms[0]
            if count == 1 and len(factors) == 1 and isinstance(factors[0], str):
                return factors[0]
        return None

    def linear(self) -> tuple[int, dict[str, int]] | None:
        """The number without a name, and that of each name; ``None`` if names are multiplied."""
        constant, steps = 0, {}
        for factors, count in self.terms:
            if not factors:
                constant = count
            elif len(factors) == 1 and isinstance(factors[0], str):
                steps[factors[0]] = count
            else:
                return None
        return constant, steps

    def value(self, names: Mapping[str, int]) -> int:
        """The number for these values of names.

        Raises:
            NoValueError: A name has no value, a quotient is no whole number, or it is too large.
        """
        name = self.name
        if name is not None and name in names:
            return names[name]
        total = 0
        for factors, count in self.terms:
            product = count
            for factor in factors:
                product *= _value_of(factor, names)
                if abs(product) > LARGEST:
                    raise NoValueError(None, f"{self} is too large")
            total += product
        if abs(total) > LARGEST:
            raise NoValueError(None, f"{self} is too large")
        return total

    # -- arithmetic ----------------------------------------------------------------------------------

    def plus(self, other: Formula, times: int = 1) -> Formula:
        """The sum with another, which is multiplied by a number first."""
        counts = dict(self.terms)
        for factors, count in other.terms:
            counts[factors] = counts.get(factors, 0) + times * count
        return _formula_of(counts)

    def times(self, other: Formula) -> Formula:
        """The product with another."""
        counts: dict[tuple[object, ...], int] = {}
        for ours, one in self.terms:
            for theirs, two in other.terms:
                factors = tuple(sorted((*ours, *theirs), key=_order))
                counts[factors] = counts.get(factors, 0) + one * two
        return _formula_of(counts)

    def over(self, other: Formula) -> Formula:
        """The quotient with another."""
        divisor = other.number
        if divisor and all(count % divisor == 0 for _, count in self.terms):
            return _formula_of({factors: count // divisor for factors, count in self.terms})
        if len(other.terms) == 1 and self.terms:
            below, by = other.terms[0]
            counts = {}
            for factors, count in self.terms:
                left = _without(factors, below)
                if left is None or count % by:
                    break
                counts[left] = count // by
            else:
                return _formula_of(counts)
        return Formula(((((self, other),), 1),))

    def __str__(self) -> str:
        """As it is written in a table."""
        if not self.terms:
            return "0"
        text = ""
        for factors, count in sorted(self.terms, key=lambda term: (not term[0], term[1] < 0)):
            word = "*".join(_written(factor) for factor in factors)
            number = abs(count)
            if number != 1 or not word:
                word = f"{number}*{word}" if word else str(number)
            if count < 0:
                text += f"-{word}"
            else:
                text += f"+{word}" if text else word
        return text


def _formula_of(terms: Mapping[tuple[object, ...], int]) -> Formula:
    kept = [(factors, count) for factors, count in terms.items() if count]
    return Formula(tuple(sorted(kept, key=lambda term: tuple(map(_order, term[0])))))


def _sides(factor: object) -> tuple[Formula, Formula]:
    """The sides of a quotient, which a factor is that is no name."""
    above, below = cast("tuple[Formula, Formula]", factor)
    return above, below


def _order(factor: object) -> str:
    return _written(factor)


def _written(factor: object) -> str:
    if isinstance(factor, str):
        return factor
    above, below = _sides(factor)
    return f"{_in_brackets(above)}/{_in_brackets(below)}"


def _in_brackets(part: Formula) -> str:
    text = str(part)
    return text if part.number is not None or part.name is not None else f"({text})"


def _without(factors: tuple[object, ...], below: tuple[object, ...]) -> tuple[object, ...] | None:
    """Factors without those below; ``None`` if one of these is not there."""
    left = [*factors]
    for factor in below:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _value_of(factor: object, names: Mapping[str, int]) -> int:
    if isinstance(factor, str):
        value = names.get(factor)
        if value is None:
            raise NoValueError(factor, f"{factor} is not known")
        return value
    above, below = (side.value(names) for side in _sides(factor))
    if not below or above % below:
        raise NoValueError(None, f"{above} / {below} is no whole number")
    return above // below


# -- read ------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def formula(text: str) -> Formula:
    """Read a formula.

    Raises:
        FileFormatError: It is none, or one that is too long.
    """
    if len(text) > _LONGEST:
        raise FileFormatError(f"A formula of {len(text)} characters is too long: {shown(text)}.")
    tokens = _tokens(text)
    read, rest = _sum(tokens, 0, text)
    if rest != len(tokens):
        raise _no_formula(text)
    return read


def _no_formula(text: str) -> FileFormatError:
    return FileFormatError(
        f"{shown(text)} is no formula: it takes whole numbers, names, + - * / and brackets."
    )


def _tokens(text: str) -> list[str]:
    tokens, at, whole = [], 0, text.rstrip()
    while at < len(whole):
        match = _TOKEN.match(whole, at)
        if match is None:
            raise _no_formula(text)
        tokens.append(match[1] or match[2] or match[3])
        at = match.end()
    if not tokens:
        raise _no_formula(text)
    return tokens


def _sum(tokens: list[str], depth: int, text: str, at: int = 0) -> tuple[Formula, int]:
    """A sum that begins at a word, and the word after it."""
    if depth > _DEEPEST:
        raise _no_formula(text)
    sign = 1
    if at < len(tokens) and tokens[at] == "-":
        sign, at = -1, at + 1
    product, at = _product(tokens, depth, text, at)
    total = Formula(()).plus(product, sign)
    while at < len(tokens) and tokens[at] in "+-":
        sign = 1 if tokens[at] == "+" else -1
        product, at = _product(tokens, depth, text, at + 1)
        total = total.plus(product, sign)
    return total, at


def _product(tokens: list[str], depth: int, text: str, at: int) -> tuple[Formula, int]:
    product, at = _factor(tokens, depth, text, at)
    while at < len(tokens) and tokens[at] in "*/":
        sign = tokens[at]
        factor, at = _factor(tokens, depth, text, at + 1)
        if sign == "/" and factor.number == 0:
            raise _no_formula(text)
        product = product.times(factor) if sign == "*" else product.over(factor)
        if len(product.terms) > _MOST_TERMS:
            raise FileFormatError(f"The formula {shown(text)} has too many terms.")
    return product, at


def _factor(tokens: list[str], depth: int, text: str, at: int) -> tuple[Formula, int]:
    if at >= len(tokens):
        raise _no_formula(text)
    word = tokens[at]
    if word == "(":
        inner, at = _sum(tokens, depth + 1, text, at + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise _no_formula(text)
        return inner, at + 1
    if word.isdigit():
        if int(word) > LARGEST:
            raise FileFormatError(f"A number in the formula {shown(text)} is too large.")
        return Formula.of(int(word)), at + 1
    if word in "+-*/)":
        raise _no_formula(text)
    return Formula.of(word), at + 1
