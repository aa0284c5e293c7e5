"""`Kind`: which object of its framework a tensor is, and, if its values are copied, why.

A value with named fields. Its text is what people read in descriptions, plans and errors, and what
they may write in `TensorInfo(kind=…)`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "APART",
    "BIT_PACKED",
    "DECIMALS",
    "JOINING_VERBS",
    "OBJECTS",
    "PLAIN",
    "RESERVED",
    "WITH_INDEX",
    "Kind",
    "Reason",
    "kind_named",
    "kind_of_text",
    "kind_with",
]

_READ_AS, _ENCODED = " read as ", "encoded "


class Reason(NamedTuple):
    """Why an array is made of an object, and not over its memory.

    Args:
        text: The reason, for people.
        names_dtype: When code that reads the values so names their dtype. It is ``"if asked"`` if
            they may be read in another way when a dtype is asked for.
    """

    text: str
    names_dtype: Literal["never", "if asked", "always"] = "never"

    def __str__(self) -> str:
        return self.text

    @classmethod
    def read_as(cls, before: str, after: str) -> Reason:
        """They are read in another dtype than they were given in."""
        return cls(f"{before}{_READ_AS}{after}", "always")

    @classmethod
    def encoded(cls, how: str) -> Reason:
        """They are encoded, such as by a dictionary."""
        return cls(f"{_ENCODED}{how}", "if asked")


APART = Reason("each column has its own memory", "if asked")
"""The reason for the copy of a table."""
BIT_PACKED = Reason("bit-packed")
"""The reason for the copy of a column of bools, eight in a byte."""
DECIMALS = Reason("decimals", "if asked")
OBJECTS = Reason("Python objects", "if asked")

_KNOWN = {kind.text: kind for kind in (APART, BIT_PACKED, DECIMALS, OBJECTS)}

_NUMBERS = frozenset({"numbers", "objects"})
_JOINS: Mapping[str, str] = {"rows": "stack", "stack": "stack", "padded": "pad"}

JOINING_VERBS = frozenset(_JOINS.values())
"""The verbs that make one tensor of several."""

RESERVED = _NUMBERS | _JOINS.keys() | {"Variable", "buffer", "new", "object", "scalar", "traced"}
"""The names that mean something for the planner, so that a class of this name gets a longer one."""


class Kind(NamedTuple):  # noqa: PLW1641 - it has the hash of a tuple
    """Which object of its framework a tensor is. An ordinary tensor's kind is empty, and false.

    >>> kind = Kind("Series", copied=True, counts="days", has_index=True, reasons=(BIT_PACKED,))
    >>> str(kind), kind.reason
    ('copied Series counting days with an index: bit-packed', 'bit-packed')
    >>> bool(kind), bool(Kind())
    (True, False)
    >>> Kind("Parameter") == "Parameter", Kind("Parameter") == Kind("Parameter")
    (True, True)

    Args:
        name: The name of its class, or a word of its framework (``"numbers"``, ``"rows"``).
        copied: Whether an array is made of it that may not share its memory.
        by_dlpack: Whether it gives its memory by the method ``__dlpack__``.
        of_palette: Whether its numbers are indices into a table of colours.
        counts: What the numbers count (days); empty if they count nothing.
        has_index: Whether its rows have labels, which are not values.
        of_rows: Whether it is a column whose values are rows.
        is_column: Whether it is known by Arrow's interfaces, or its nulls were replaced.
        filled: The value that replaces its nulls, as text; empty if there is none.
        padded: The value that pads its rows, as text; empty if there is none.
        reasons: Why an array is made of it.
    """

    name: str = ""
    copied: bool = False
    by_dlpack: bool = False
    of_palette: bool = False
    counts: str = ""
    has_index: bool = False
    of_rows: bool = False
    is_column: bool = False
    filled: str = ""
    padded: str = ""
    reasons: tuple[Reason, ...] = ()

    # As NumPy's dtypes do, it equals its text, but is not found by it as a key.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self is not PLAIN and tuple.__ne__(self, PLAIN)

    def __repr__(self) -> str:
        fields = zip(self._fields, self, PLAIN, strict=True)
        told = [f"{name}={value!r}" for name, value, usual in fields if value != usual]
        return f"{type(self).__name__}({', '.join(told)})"

    def __str__(self) -> str:
        text = self.subject
        if self.copied:
            text = f"copied {text}"
        if self.reasons:
            text = f"{text}: {self.reason}"
        return text

    @property
    def subject(self) -> str:
        """Its text, without that it is copied, and why."""
        told = [
            words
            for words, holds in (
                (self._named(), self.name),
                (f"counting {self.counts}", self.counts),
                ("with an index", self.has_index),
                ("of rows", self.of_rows),
                ("column", self.is_column),
                (f"with nulls as {self.filled}", self.filled),
                (f"padded with {self.padded}", self.padded),
            )
            if holds
        ]
        return " ".join(told)

    def _named(self) -> str:
        protocol = ".__dlpack__" if self.by_dlpack else ""
        numbers = " of palette indices" if self.of_palette else ""
        return f"{self.name}{protocol}{numbers}"

    @property
    def reason(self) -> str:
        """Why an array is made of it, for people; empty if nothing says it."""
        return ", ".join([reason.text for reason in self.reasons])

    @property
    def is_numbers(self) -> bool:
        """Whether it is objects that are read number by number."""
        return self.name in _NUMBERS and not self.copied

    @property
    def joined_by(self) -> str:
        """The verb that makes one tensor of it, if it is several; otherwise empty."""
        return "" if self.copied else _JOINS.get(self.name, "")


PLAIN = Kind()
"""The kind of a framework's ordinary tensors."""
WITH_INDEX = Kind(has_index=True)


@lru_cache(maxsize=1024)
def kind_named(name: str) -> Kind:
    """The kind of a class, or of a word of a framework, that is nothing but its name."""
    return Kind(name)


@lru_cache(maxsize=1024)
def kind_with(kind: Kind, **changes: Any) -> Kind:
    """The kind with other values in some fields: as `_replace`, which takes three times as long."""
    return kind._replace(**changes)


@lru_cache(maxsize=1024)
def kind_of_text(text: str) -> Kind:
    """The kind of which this is the text: what a person wrote, or a description printed.

    A text that is no other kind's is taken as a name.

    >>> kind_of_text("Parameter")
    Kind(name='Parameter')
    >>> kind_of_text("copied Series: several chunks").reason
    'several chunks'
    """
    if not text or (text.isidentifier() and text != "column"):
        return Kind(text)
    match = re.fullmatch(_PATTERN, f" {text}", re.DOTALL)
    if match is None:
        return Kind(text)
    fields: dict[str, Any] = {name: value or "" for name, value in match.groupdict().items()}
    fields |= {name: bool(fields[name]) for name in _FLAGS}
    reasons = [_reason_of_text(text) for text in fields["reasons"].split(", ") if text]
    kind = Kind(**{**fields, "reasons": tuple(reasons)})
    if str(kind) == text and (kind.copied or not reasons):
        return kind
    return Kind(text)


_FLAGS = ("copied", "by_dlpack", "of_palette", "has_index", "of_rows", "is_column")
_PATTERN = (
    r"(?P<copied> copied)?"
    r"(?: (?P<name>.+?)(?P<by_dlpack>\.__dlpack__)?(?P<of_palette> of palette indices)?)??"
    r"(?: counting (?P<counts>.+?))?"
    r"(?P<has_index> with an index)?"
    r"(?P<of_rows> of rows)?"
    r"(?P<is_column> column)?"
    r"(?: with nulls as (?P<filled>[^ :]+))?"
    r"(?: padded with (?P<padded>[^ :]+))?"
    r"(?:: (?P<reasons>.+))?"
)


def _reason_of_text(text: str) -> Reason:
    if text in _KNOWN:
        return _KNOWN[text]
    if _READ_AS in text:
        return Reason(text, "always")
    if text.startswith(_ENCODED):
        return Reason(text, "if asked")
    return Reason(text)
