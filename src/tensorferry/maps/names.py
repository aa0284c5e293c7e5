"""`NameTemplate`: names of tensors with numbers in them, such as ``layers.{i}.weight``."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..errors import FileFormatError, shown
from .formulas import Formula, NoValueError, formula

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NameTemplate", "escaped", "template"]

_LONGEST = 1000
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
        found = self.texts[0]
        for field, text in zip(self.fields, self.texts[1:], strict=True):
            number = field.value(values)
            if number < 0:
                raise NoValueError(None, f"{field} is {number}, which is no number in a name")
            found += f"{number}{text}"
        return found

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
        found = dict(known or {})
        if not name.startswith(self.texts[0]):
            return None
        at = len(self.texts[0])
        waiting: list[tuple[Formula, int]] = []
        for field, text in zip(self.fields, self.texts[1:], strict=True):
            end = at
            while end < len(name) and name[end] in "0123456789":
                end += 1
            digits = name[at:end]
            if not digits or len(digits) > _MOST_DIGITS or (digits[0] == "0" and digits != "0"):
                return None
            if not name.startswith(text, end):
                return None
            waiting.append((field, int(digits)))
            at = end + len(text)
        if at != len(name):
            return None
        return _solved(waiting, found)

    def __str__(self) -> str:
        """As it is written in a table."""
        found = escaped(self.texts[0])
        for field, text in zip(self.fields, self.texts[1:], strict=True):
            found += f"{{{field}}}{escaped(text)}"
        return found


def _solved(fields: list[tuple[Formula, int]], found: dict[str, int]) -> dict[str, int] | None:
    """The numbers of names, from the values of formulas; ``None`` if there are none."""
    # Those with one name first: the others may need it.
    for field, number in sorted(fields, key=lambda each: len(each[0].names)):
        alone = field.name
        if alone is not None:
            if found.setdefault(alone, number) != number:
                return None
            continue
        linear = field.linear()
        if linear is None:
            try:
                if field.value(found) != number:
                    return None
            except NoValueError:
                return None
            continue
        rest, steps = number - linear[0], linear[1]
        for name in steps.keys() & found.keys():
            rest -= steps[name] * found[name]
        unknown = {name: step for name, step in steps.items() if name not in found}
        # As digits: each number is smaller than the next step has room for.
        for name, step in sorted(unknown.items(), key=lambda each: -each[1]):
            if step <= 0 or rest < 0:
                return None
            found[name], rest = divmod(rest, step)
        if rest:
            return None
    return found


def escaped(text: str) -> str:
    """A part of a name, as it is written in a table."""
    found = "".join(f"\\{each}" if each in _SPECIAL else each for each in text)
    # A pattern begins after this.
    return found.replace(" : ", " \\: ")


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
        each = text[at]
        if each == "\\":
            if text[at + 1 : at + 2] not in (*_SPECIAL, ":"):
                raise FileFormatError(f"The name {shown(text)} has a \\ before no bracket.")
            texts[-1] += text[at + 1]
            at += 2
        elif each == "{":
            end = text.find("}", at)
            if end < 0:
                raise FileFormatError(f"The name {shown(text)} has a {{ without a }}.")
            fields.append(formula(text[at + 1 : end]))
            texts.append("")
            at = end + 1
        elif each in "}[":
            raise FileFormatError(f"The name {shown(text)} has a {each} without a \\ before it.")
        else:
            texts[-1] += each
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
