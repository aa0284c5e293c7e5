"""`summarise`: what a file holds in a few lines, names that differ only in their numbers folded into one.

A model has its names from a few templates, ``layers.0.weight``, ``layers.1.weight`` and so on. `fold` finds
them: it splits each name at its numbers, puts together those whose other parts, dtype and shape agree, and cuts
each group into products of ranges, so that what it gives stands for exactly the names that it was given.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.dtypes import find
from .base.blocks import blocks_of, noted
from .base.contents import Ref
from .overview import modules, quantisation, shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .base.contents import Contents
    from .overview import Shards

__all__ = ["Fold", "Summary", "disk_bytes", "fold", "summarise", "values_of"]

Ranges = tuple[tuple[str, str], ...]

# Not in the middle of a word, nor a longer run of digits: those are hashes.
_NUMBER = re.compile(r"(?<![0-9])([0-9]{1,18})(?![0-9A-Za-z])")

_MOST_WORDS = 1 << 12
"""Words between dots that are kept while folding."""


class Fold(NamedTuple):
    """Tensors of one dtype and shape whose names differ in nothing but some numbers.

    Args:
        literals: What stands before, between and after the numbers.
        numbers: For each of them its ranges, as pairs of a first and a last; an integer in their place
            says that it is always the number at that position.
        dtype: Canonical name.
        shape: Lengths of the axes.
        total: How many there are.
    """

    literals: tuple[str, ...]
    numbers: tuple[Ranges | int, ...]
    dtype: str
    shape: tuple[int, ...]
    total: int

    @property
    def name(self) -> str:
        """The name, with ``#`` in the place of each number that varies; if some do, ``#`` itself is ``##``."""
        if not self.numbers:
            return self.literals[0]
        return "#".join(literal.replace("#", "##") for literal in self.literals)

    @property
    def ranges(self) -> tuple[str, ...]:
        """For each ``#``, the numbers: ``"0..31"``, ``"0, 2, 4..7"``, or ``"#1"`` for the same as the first."""
        return tuple(
            f"#{numbers + 1}"
            if isinstance(numbers, int)
            else ", ".join(first if first == last else f"{first}..{last}" for first, last in numbers)
            for numbers in self.numbers
        )

    def unfold(self) -> Iterator[str]:
        """Each of the names."""
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
    """Names folded into as few lines as their numbers allow, in the order in which they begin.

    >>> names = ["embed", *(f"layers.{n}.weight" for n in range(32)), "layers.32.bias"]
    >>> [(each.name, each.ranges, each.total) for each in fold((name, "bfloat16", (8, 8)) for name in names)]
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
    """A name with 0 for each number, which splits at the same places; and the numbers."""
    template, numbers = [], []
    # Most words of most names have been met before.
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
    """Numbers as they are spelled, eight bytes for each that has no leading zeros."""

    __slots__ = ("plain", "spelled")

    def __init__(self) -> None:
        self.plain = array("q")
        self.spelled: list[str] = []

    def append(self, text: str) -> None:
        """Take one more."""
        if len(text) < 19 and (text[0] != "0" or text == "0"):
            self.plain.append(int(text))
        else:
            self.spelled.append(text)

    def ranges(self) -> Ranges:
        """All of them in order, consecutive ones put together."""
        if self.spelled:
            return _ranges([*map(str, self.plain), *self.spelled])
        ordered = np.sort(np.frombuffer(self.plain, np.int64))
        breaks = np.flatnonzero(np.diff(ordered) != 1)
        firsts, lasts = ordered[[0, *(breaks + 1)]], ordered[[*breaks, -1]]
        return tuple(zip(map(str, firsts.tolist()), map(str, lasts.tolist()), strict=True))


class _Family:
    """The numbers of names that have one template: a tree with a level for each, `_Numbers` at the bottom."""

    __slots__ = ("same", "tree")

    def __init__(self, row: list[str]) -> None:
        self.tree: Any = _Numbers() if len(row) == 1 else {}
        self.same = {j: row.index(number) for j, number in enumerate(row) if row.index(number) < j}
        """Levels whose number has always been that of an earlier level."""
        self.add(row)

    def add(self, row: list[str]) -> None:
        """Take the numbers of one more name."""
        if self.same:
            self.same = {j: i for j, i in self.same.items() if row[j] == row[i]}
        node = self.tree
        for number in row[:-2]:
            node = node.setdefault(number, {})
        if len(row) > 1:
            node = node.get(row[-2]) or node.setdefault(row[-2], _Numbers())
        node.append(row[-1])


def _folds(literals: list[str], group: _Family, dtype: str, shape: tuple[int, ...]) -> Iterator[Fold]:
    """A group as folds, numbers that do not vary written out."""
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
    """A tree of numbers as products of ranges: each path lies in exactly one, and they hold no other.

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
    """Numbers in order, consecutive ones put together; ``01`` and ``1`` are two."""
    padded = {len(value) for value in values if value[0] == "0" and value != "0"}
    found: list[tuple[str, str]] = []
    before: tuple[bool, int] | None = None
    for value in sorted(values, key=lambda value: (len(value) if len(value) in padded else 0, int(value))):
        here = (len(value) in padded, int(value))
        if before is not None and here == (before[0], before[1] + 1) and _steps(found[-1][1], value):
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
        before = here
    return tuple(found)


def _steps(one: str, following: str) -> bool:
    """Whether counting up from one number spells the other."""
    return str(int(one) + 1).zfill(len(one)) == following


def _spelled(ranges: Ranges) -> Iterator[str]:
    for first, last in ranges:
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


@dataclass(frozen=True)
class Summary:
    """What a file holds, from its header.

    Args:
        path: The file, as it was named.
        format: The format's name.
        files: Those that it consists of.
        nbytes: Their size on disk.
        memory: The bytes of the tensors, tied weights counted once.
        tensors: How many there are, each name counted.
        parameters: Elements by dtype, or by the type of quantised blocks, tied weights counted once.
        modules: The parameters of each part of the model.
        quantised: How many tensors are quantised in which way.
        shards: Whether the checkpoint is in shards, and which are missing.
        tied: For each further name of a tensor, its first.
        folds: The tensors.
        values: What else stands in the tree, by its place.
        metadata: Strings by name.
        others: What is no tensor that can be carried, by name: why not.
        asks_for: The globals that a pickle asks for.
        refuses: Those of them, and other demands, that make it unsafe to open.
    """

    path: str
    format: str
    files: tuple[str, ...]
    nbytes: int
    memory: int
    tensors: int
    parameters: dict[str, int]
    modules: dict[str, int]
    quantised: dict[str, int]
    shards: Shards | None
    tied: dict[str, str]
    folds: list[Fold]
    values: dict[str, Any]
    metadata: dict[str, str]
    others: dict[str, str]
    asks_for: tuple[str, ...]
    refuses: tuple[str, ...]

    @property
    def safe(self) -> bool:
        """Whether nothing in it asks for code to be run."""
        return not self.refuses


def summarise(path: Path, contents: Contents) -> Summary:
    """What a file holds, in a few lines."""
    tensors = contents.tensors
    tied = contents.ties
    blocks = blocks_of(contents)
    held = contents.parameters(tied)
    values = values_of(contents)
    shown = (
        (name, stored.dtype, stored.shape)
        if name not in blocks
        else (name, blocks[name].kind, blocks[name].shape(stored.shape))
        for name, stored in tensors.items()
    )
    folds = fold(shown)
    once = folds
    if tied:
        once = fold((name, each.dtype, each.shape) for each in folds for name in each.unfold() if name not in tied)
    parameters = dict(held)
    for name, each in blocks.items():
        if name not in tied:
            parameters["uint8"] -= tensors[name].size
            parameters[each.kind] = parameters.get(each.kind, 0) + prod(each.shape(tensors[name].shape))
    return Summary(
        path=str(path),
        format=contents.format,
        files=tuple(contents.paths),
        nbytes=disk_bytes(contents.paths),
        memory=sum(count * find(dtype).itemsize for dtype, count in held.items()),
        tensors=len(tensors),
        parameters={dtype: count for dtype, count in parameters.items() if count or not blocks},
        modules=modules(once),
        quantised=quantisation(folds, blocks, values),
        shards=shards(contents.paths),
        tied=tied,
        folds=folds,
        values=values,
        metadata=noted(contents.metadata, {}),
        others=contents.others,
        asks_for=contents.asks_for,
        refuses=contents.refuses,
    )


def disk_bytes(paths: Iterable[str]) -> int:
    """The size of files, and of all files in folders."""
    total = 0
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - plain strings
            for folder, _, names in os.walk(path):
                total += sum(_size(os.path.join(folder, name)) for name in names)  # noqa: PTH118
        else:
            total += os.stat(path).st_size  # noqa: PTH116
    return total


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0  # A link to what is not there takes no room.


def values_of(contents: Contents) -> dict[str, Any]:
    """Everything in a tree that is no tensor, by its place: ``epoch``, ``optimizer.param_groups.0.lr``.

    An empty container counts as a value. Two values at one place, because a key contains a dot, get a suffix.
    """
    found: dict[str, Any] = {}
    counts: dict[str, int] = {}
    left: list[tuple[str, Any]] = [("", contents.tree)]
    while left:
        place, node = left.pop()
        if isinstance(node, Ref) or (node is None and not place):
            continue
        # Marked values (a dtype, a device) are named tuples of plain values.
        children: Any = None
        if isinstance(node, Mapping):
            children = node.items()
        elif isinstance(node, (list, tuple)) and not hasattr(node, "_fields"):
            children = enumerate(node)
        if children is not None and node:
            left.extend(reversed([(f"{place}.{key}" if place else str(key), child) for key, child in children]))
            continue
        if children is not None and not place:
            continue
        name = place
        while name in found:
            counts[place] = counts.get(place, 1) + 1
            name = f"{place}#{counts[place]}"
        found[name] = node
    return found
