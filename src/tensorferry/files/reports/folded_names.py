"""`fold`: show names that differ only in numbers as one line.

The names in a model follow a few templates, ``layers.0.weight``, ``layers.1.weight`` and so on.
`fold` finds the
templates: it splits each name at its numbers, groups names whose other parts, dtype and shape are
equal, and divides each group into products of ranges. The result stands for exactly the given
names.
"""

from __future__ import annotations

import re
from array import array
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Fold", "fold"]

Ranges = tuple[tuple[str, str], ...]

# Not inside a word, and not more than 18 digits, which are hashes.
_NUMBER = re.compile(r"(?<![0-9])([0-9]{1,18})(?![0-9A-Za-z])")

_MOST_WORDS = 1 << 12
"""The most words (between dots) that are cached while folding."""


class Fold(NamedTuple):
    """Tensors of one dtype and shape whose names differ only in numbers.

    Args:
        literals: The text before, between and after the numbers.
        numbers: For each number its ranges, as pairs of the first and the last; or an integer, if
            it always equals the number at that position.
        dtype: The canonical name of the dtype.
        shape: Lengths of the axes.
        total: The number of tensors.
    """

    literals: tuple[str, ...]
    numbers: tuple[Ranges | int, ...]
    dtype: str
    shape: tuple[int, ...]
    total: int

    @property
    def name(self) -> str:
        """The name, with ``#`` in place of each number that varies.

        Then, a ``#`` in the name is written ``##``.
        """
        if not self.numbers:
            return self.literals[0]
        return "#".join(literal.replace("#", "##") for literal in self.literals)

    @property
    def ranges(self) -> tuple[str, ...]:
        """For each ``#``, the numbers: ``"0..31"``, ``"0, 2, 4..7"``, or ``"#1"`` for the same as the first."""
        return tuple(
            f"#{numbers + 1}"
            if isinstance(numbers, int)
            else ", ".join(
                first if first == last else f"{first}..{last}" for first, last in numbers
            )
            for numbers in self.numbers
        )

    def unfold(self) -> Iterator[str]:
        """Yield all names."""
        own = [numbers for numbers in self.numbers if not isinstance(numbers, int)]
        for chosen in product(*(list(_spelled(ranges)) for ranges in own)):
            left = iter(chosen)
            row: list[str] = []
            for numbers in self.numbers:
                row.append(row[numbers] if isinstance(numbers, int) else next(left))
            yield self.literals[0] + "".join(
                number + literal for number, literal in zip(row, self.literals[1:], strict=True)
            )


def fold(entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> list[Fold]:
    """Fold names into as few lines as possible, in the order of their first names.

    >>> names = ["embed", *(f"layers.{n}.weight" for n in range(32)), "layers.32.bias"]
    >>> [
    ...     (each.name, each.ranges, each.total)
    ...     for each in fold((name, "bfloat16", (8, 8)) for name in names)
    ... ]
    [('embed', (), 1), ('layers.#.weight', ('0..31',), 32), ('layers.32.bias', (), 1)]

    Args:
        entries: Name, dtype and shape of each tensor; no name comes twice.
    """
    kinds: dict[tuple[str, tuple[int, ...]], int] = {}
    groups: dict[tuple[str, int], str | _Family] = {}
    words: dict[str, tuple[str, list[str]]] = {}
    for name, dtype, shape in entries:
        template, numbers = _template(name, words)
        key = (template, kinds.setdefault((dtype, shape), len(kinds)))
        found = groups.setdefault(key, name)
        if found is name:
            continue
        if isinstance(found, str):
            found = groups[key] = _Family(_template(found, words)[1])
        found.add(numbers)
    shapes = list(kinds)
    return [
        each
        for (template, kind), found in groups.items()
        for each in (
            (Fold((found,), (), *shapes[kind], 1),)
            if isinstance(found, str)
            else _folds(_NUMBER.split(template)[::2], found, *shapes[kind])
        )
    ]


def _template(name: str, words: dict[str, tuple[str, list[str]]]) -> tuple[str, list[str]]:
    """A name with 0 in place of each number, and the numbers."""
    template, numbers = [], []
    # Most words of a name have occurred before.
    for word in name.split("."):
        found = words.get(word)
        if found is None:
            if len(word) < 19 and word.isascii() and word.isdecimal():
                found = ("0", [word])
            else:
                pieces = _NUMBER.split(word)
                found = ("0".join(pieces[::2]), pieces[1::2])
            if len(words) < _MOST_WORDS:
                words[word] = found
        template.append(found[0])
        numbers += found[1]
    return ".".join(template), numbers


class _Numbers:
    """Numbers as they are spelled. Those without leading zeros take eight bytes each."""

    __slots__ = ("plain", "spelled")

    def __init__(self) -> None:
        self.plain = array("q")
        self.spelled: list[str] = []

    def append(self, text: str) -> None:
        """Add a number."""
        if len(text) < 19 and (text[0] != "0" or text == "0"):
            self.plain.append(int(text))
        else:
            self.spelled.append(text)

    def ranges(self) -> Ranges:
        """The numbers, sorted, as ranges."""
        if self.spelled:
            return _ranges([*map(str, self.plain), *self.spelled])
        ordered = np.sort(np.frombuffer(self.plain, np.int64))
        breaks = np.flatnonzero(np.diff(ordered) != 1)
        firsts, lasts = ordered[[0, *(breaks + 1)]], ordered[[*breaks, -1]]
        return tuple(zip(map(str, firsts.tolist()), map(str, lasts.tolist()), strict=True))


class _Family:
    """The numbers of names with one template: a tree with a level for each number, and `_Numbers` as leaves."""

    __slots__ = ("same", "tree")

    def __init__(self, row: list[str]) -> None:
        self.tree: Any = _Numbers() if len(row) == 1 else {}
        self.same = {j: row.index(number) for j, number in enumerate(row) if row.index(number) < j}
        """Levels whose number has always been equal to that of an earlier level."""
        self.add(row)

    def add(self, row: list[str]) -> None:
        """Add the numbers of a name."""
        if self.same:
            self.same = {j: i for j, i in self.same.items() if row[j] == row[i]}
        node = self.tree
        for number in row[:-2]:
            node = node.setdefault(number, {})
        if len(row) > 1:
            node = node.get(row[-2]) or node.setdefault(row[-2], _Numbers())
        node.append(row[-1])


def _folds(
    literals: list[str], group: _Family, dtype: str, shape: tuple[int, ...]
) -> Iterator[Fold]:
    """The folds of a group. Numbers that do not vary are written out."""
    for box in _boxes(group.tree, group.same, 0):
        words, numbers, total = [literals[0]], list[Ranges | int](), 1
        place: dict[int, int] = {}
        for level, literal in enumerate(literals[1:]):
            twin = group.same.get(level)
            ranges = box[level if twin is None else twin]
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                words[-1] += ranges[0][0] + literal
                continue
            place[level] = len(numbers)
            numbers.append(ranges if twin is None else place[twin])
            if twin is None:
                total *= sum(int(last) - int(first) + 1 for first, last in ranges)
            words.append(literal)
        yield Fold(tuple(words), tuple(numbers), dtype, shape, total)


def _boxes(node: Any, same: dict[int, int], level: int) -> tuple[tuple[Ranges, ...], ...]:
    """A tree of numbers as products of ranges, which contain each path exactly once, and no other path.

    A level that repeats an earlier one has no ranges of its own.
    """
    if isinstance(node, _Numbers):
        return (((),),) if level in same else ((node.ranges(),),)
    if level in same:
        (child,) = node.values()
        return tuple(((), *box) for box in _boxes(child, same, level + 1))
    alike: dict[Any, list[str]] = {}
    for number, child in node.items():
        alike.setdefault(_boxes(child, same, level + 1), []).append(number)
    return tuple((_ranges(numbers), *box) for boxes, numbers in alike.items() for box in boxes)


def _ranges(values: list[str]) -> Ranges:
    """Numbers, sorted, as ranges. ``01`` and ``1`` are different."""
    padded = {len(value) for value in values if value[0] == "0" and value != "0"}
    found: list[tuple[str, str]] = []
    before: tuple[bool, int] | None = None
    for value in sorted(
        values, key=lambda value: (len(value) if len(value) in padded else 0, int(value))
    ):
        here = (len(value) in padded, int(value))
        if (
            before is not None
            and here == (before[0], before[1] + 1)
            and _steps(found[-1][1], value)
        ):
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
        before = here
    return tuple(found)


def _steps(one: str, following: str) -> bool:
    """Whether the other number is the next one, in the same spelling."""
    return str(int(one) + 1).zfill(len(one)) == following


def _spelled(ranges: Ranges) -> Iterator[str]:
    for first, last in ranges:
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
