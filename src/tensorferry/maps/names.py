"""`NameTemplate`: names of tensors with numbers in them, such as ``layers.{i}.weight``."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from ..errors import FileFormatError, shown
from .formulas import Formula, NoValueError, formula

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["KnownNames", "NameTemplate", "escaped", "template"]

_LONGEST = 1000
_DIGITS = "0123456789"
_MOST_DIGITS = 12
_SPECIAL = "{}[\\"


class NameTemplate(NamedTuple):
    """A name in which formulas stand for numbers.

    A name is compared from left to right, once: a number is as long as its digits go.

    Args:
        texts: What stands before each formula, and after the last.
        fields: The formulas.
    """

    texts: tuple[str, ...]
    fields: tuple[Formula, ...]

    @classmethod
    def exactly(cls, name: str) -> NameTemplate:
        """A name as it is, whatever stands in it."""
        return cls((name,), ())

    @property
    def names(self) -> frozenset[str]:
        """The names of the numbers."""
        return frozenset().union(*[field.names for field in self.fields])

    def fill(self, values: Mapping[str, int]) -> str:
        """The name for these numbers.

        Raises:
            NoValueError: One is not there, or a formula gives no number that can be in a name.
        """
        filled = self.texts[0]
        for field, text in zip(self.fields, self.texts[1:], strict=True):
            number = field.value(values)
            if number < 0:
                raise NoValueError(None, f"{field} is {number}, which is no number in a name")
            filled += f"{number}{text}"
        return filled

    def with_words(self, words: Mapping[str, str]) -> NameTemplate:
        """The name with these words where their names stand alone; other formulas stay."""
        texts, fields = [self.texts[0]], []
        for field, text in zip(self.fields, self.texts[1:], strict=True):
            word = words.get(field.name or "")
            if word is None:
                fields.append(field)
                texts.append(text)
            else:
                texts[-1] += word + text
        return NameTemplate(tuple(texts), tuple(fields))

    def match(self, name: str, known: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The numbers in a name, with those that are known; ``None`` if it is another."""
        numbers = self._numbers(name)
        if numbers is None:
            return None
        return _solved(list(zip(self.fields, numbers, strict=True)), dict(known or {}))

    def matches(self, names: Iterable[str]) -> list[tuple[str, dict[str, int]]]:
        """Those of many names that it has, with their numbers."""
        alone = [field.name for field in self.fields]
        # Nothing is to be solved if each formula is a name of its own.
        are_plain = None not in alone and len(set(alone)) == len(alone)
        matching: list[tuple[str, dict[str, int]]] = []
        last = self.texts[-1]
        for name in names:
            numbers = self._numbers(name) if name.endswith(last) else None
            if numbers is None:
                continue
            if are_plain:
                matching.append((name, dict(zip(cast("list[str]", alone), numbers, strict=True))))
                continue
            values = _solved(list(zip(self.fields, numbers, strict=True)), {})
            if values is not None:
                matching.append((name, values))
        return matching

    def filler(self) -> Callable[[Mapping[str, int]], str]:
        """What fills it as `fill` does, for many numbers."""
        alone = [field.name for field in self.fields]
        if None in alone:
            return self.fill
        first, *others = self.texts
        pairs = list(zip(cast("list[str]", alone), others, strict=True))

        def filled(values: Mapping[str, int]) -> str:
            name_so_far = first
            for name, text in pairs:
                number = values.get(name, -1)
                if number < 0:
                    return self.fill(values)  # which says why
                name_so_far += f"{number}{text}"
            return name_so_far

        return filled

    def _numbers(self, name: str) -> list[int] | None:
        """The numbers that stand in a name where formulas do; ``None`` if it is another."""
        first, *others = self.texts
        if not name.startswith(first):
            return None
        rest = name[len(first) :]
        numbers: list[int] = []
        for text in others:
            after = rest.lstrip(_DIGITS)
            digits = rest[: len(rest) - len(after)]
            if not digits or len(digits) > _MOST_DIGITS or (digits[0] == "0" and digits != "0"):
                return None
            if not after.startswith(text):
                return None
            numbers.append(int(digits))
            rest = after[len(text) :]
        return None if rest else numbers

    def __str__(self) -> str:
        """As it is written in a table."""
        text_so_far = escaped(self.texts[0])
        for field, text in zip(self.fields, self.texts[1:], strict=True):
            text_so_far += f"{{{field}}}{escaped(text)}"
        return text_so_far


class KnownNames:
    """The names of some tensors, to be looked up by templates.

    Args:
        names: The names.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._alike: dict[str, list[str]] = defaultdict(list)
        for name in names:
            self._alike[_without_digits(name)].append(name)
        self._matches: dict[NameTemplate, list[_Match]] = {}
        self._groups: dict[object, dict[tuple[int, ...], list[_Match]]] = {}

    def matching(
        self, name: NameTemplate, values: Mapping[str, int] | None = None
    ) -> list[tuple[str, dict[str, int]]]:
        """The names that a template has, with their numbers.

        Args:
            name: The template.
            values: Numbers that those of the same name in it have to be.
        """
        all_matches = self._matches.get(name)
        if all_matches is None:
            alike = self._alike.get(_without_digits("".join(name.texts)), ())
            all_matches = self._matches[name] = name.matches(alike)
        if not values or not all_matches:
            return all_matches
        # Each layer asks for its own: all are put into groups once, and not looked through again.
        keys = tuple([number_name for number_name in all_matches[0][1] if number_name in values])
        groups = self._groups.get((name, keys))
        if groups is None:
            groups = self._groups[name, keys] = defaultdict(list)
            for match in all_matches:
                groups[tuple([match[1][number_name] for number_name in keys])].append(match)
        return groups.get(tuple([values[number_name] for number_name in keys]), [])


_Match = tuple[str, dict[str, int]]
"""A name, and the numbers in it."""


def _without_digits(name: str) -> str:
    """A name without its digits, so that only names that are alike are compared."""
    return name.translate(_NO_DIGITS)


_NO_DIGITS = dict.fromkeys(map(ord, _DIGITS))


def _solved(fields: list[tuple[Formula, int]], values: dict[str, int]) -> dict[str, int] | None:
    """The numbers of names, from the values of formulas; ``None`` if there are none."""
    # Those with one name first: the others may need it.
    for field, number in sorted(fields, key=lambda pair: len(pair[0].names)):
        alone = field.name
        if alone is not None:
            if values.setdefault(alone, number) != number:
                return None
            continue
        linear = field.linear()
        if linear is None:
            try:
                if field.value(values) != number:
                    return None
            except NoValueError:
                return None
            continue
        rest, steps = number - linear[0], linear[1]
        for name in steps.keys() & values.keys():
            rest -= steps[name] * values[name]
        unknown = {name: step for name, step in steps.items() if name not in values}
        # As digits: each number is smaller than the next step has room for.
        for name, step in sorted(unknown.items(), key=lambda pair: -pair[1]):
            if step <= 0 or rest < 0:
                return None
            values[name], rest = divmod(rest, step)
        if rest:
            return None
    return values


def escaped(text: str) -> str:
    """A part of a name, as it is written in a table."""
    marked = "".join(f"\\{character}" if character in _SPECIAL else character for character in text)
    # A pattern begins after this.
    return marked.replace(" : ", " \\: ")


@lru_cache(maxsize=1 << 14)
def template(text: str) -> NameTemplate:
    r"""Read a name of a table: ``{`` begins a formula, ``\{`` is a brace.

    Raises:
        FileFormatError: It is none.
    """
    if not text or len(text) > _LONGEST:
        raise FileFormatError(f"{shown(text)} is no name: it has {len(text)} characters.")
    texts, fields, at = [""], [], 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            if text[at + 1 : at + 2] not in (*_SPECIAL, ":"):
                raise FileFormatError(f"The name {shown(text)} has a \\ before no bracket.")
            texts[-1] += text[at + 1]
            at += 2
        elif character == "{":
            end = text.find("}", at)
            if end < 0:
                raise FileFormatError(f"The name {shown(text)} has a {{ without a }}.")
            fields.append(formula(text[at + 1 : end]))
            texts.append("")
            at = end + 1
        elif character in "}[":
            raise FileFormatError(
                f"The name {shown(text)} has a {character} without a \\ before it."
            )
        else:
            texts[-1] += character
            at += 1
    _validate(text, texts, fields)
    return NameTemplate(tuple(texts), tuple(fields))


def _validate(text: str, texts: list[str], fields: list[Formula]) -> None:
    for between in texts[1:-1]:
        if not between:
            raise FileFormatError(f"The name {shown(text)} has two numbers without text between.")
    for after in texts[1:]:
        if after[:1].isdigit():
            raise FileFormatError(f"The name {shown(text)} has a digit right after a number.")
    for field in fields:
        if field.number is not None:
            raise FileFormatError(
                f"The name {shown(text)} has a number in braces: write it as it is."
            )
