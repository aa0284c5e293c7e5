"""`summarise`: the contents of a file in a few lines."""

from __future__ import annotations

import os
import re
from array import array
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ..base.contents import NOTHING, blocks_of, with_block_kinds
from ..base.nesting import named_values
from ..base.objects import objects_in
from ..base.raw import bytes_of, is_on_server
from ..encodings.paths import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..base.contents import Blocks, Contents

__all__ = [
    "Fold",
    "Shards",
    "Summary",
    "disk_bytes",
    "fold",
    "modules",
    "quantisation",
    "shards",
    "summarise",
    "values_of",
]

Ranges = tuple[tuple[str, str], ...]

# Not inside a word, and not more than 18 digits, which are hashes.
_NUMBER = re.compile(r"(?<![0-9])([0-9]{1,18})(?![0-9A-Za-z])")

_MOST_WORDS = 1 << 12
"""The most words (between dots) that are cached while folding."""


def _shown_ranges(numbers: Ranges | int) -> str:
    """One of `Fold.numbers`, as `Fold.ranges` shows it."""
    if isinstance(numbers, int):
        return f"#{numbers + 1}"
    return ", ".join(first if first == last else f"{first}..{last}" for first, last in numbers)


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
        """For each ``#``, the numbers: ``"0..31"``, ``"0, 2, 4..7"``, or ``"#1"``: as the first."""
        return tuple(map(_shown_ranges, self.numbers))

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
        family = groups.setdefault(key, name)
        if family is name:
            continue
        if isinstance(family, str):
            family = groups[key] = _Family(_template(family, words)[1])
        family.add(numbers)
    shapes = list(kinds)
    return [
        folded
        for (template, kind), family in groups.items()
        for folded in (
            (Fold((family,), (), *shapes[kind], 1),)
            if isinstance(family, str)
            else _folds(_NUMBER.split(template)[::2], family, *shapes[kind])
        )
    ]


def _template(name: str, words: dict[str, tuple[str, list[str]]]) -> tuple[str, list[str]]:
    """A name with 0 in place of each number, and the numbers."""
    template, numbers = [], []
    # Most words of a name have occurred before.
    for word in name.split("."):
        known = words.get(word)
        if known is None:
            if len(word) < 19 and word.isascii() and word.isdecimal():
                known = ("0", [word])
            else:
                pieces = _NUMBER.split(word)
                known = ("0".join(pieces[::2]), pieces[1::2])
            if len(words) < _MOST_WORDS:
                words[word] = known
        template.append(known[0])
        numbers += known[1]
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
    """Numbers of names with one template: a tree, a level for each number, `_Numbers` as leaves."""

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
    """A tree of numbers as products of ranges: they contain each path exactly once, and no other.

    A level that repeats an earlier one has no ranges of its own.
    """
    if isinstance(node, _Numbers):
        if level in same:
            return (((),),)
        return ((node.ranges(),),)
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
    ranges: list[tuple[str, str]] = []
    before: tuple[bool, int] | None = None
    for value in sorted(
        values, key=lambda value: (len(value) if len(value) in padded else 0, int(value))
    ):
        here = (len(value) in padded, int(value))
        if (
            before is not None
            and here == (before[0], before[1] + 1)
            and _steps(ranges[-1][1], value)
        ):
            ranges[-1] = (ranges[-1][0], value)
        else:
            ranges.append((value, value))
        before = here
    return tuple(ranges)


def _steps(one: str, following: str) -> bool:
    """Whether the other number is the next one, in the same spelling."""
    return str(int(one) + 1).zfill(len(one)) == following


def _spelled(ranges: Ranges) -> Iterator[str]:
    for first, last in ranges:
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


_SHARD = re.compile(r"(.*-)(\d{5})-of-(\d{5})(\.[\w.]+)")
_PACKED = re.compile(
    r"(.*[./])?(qweight|qzeros|scales|g_idx|SCB|weight|absmax|bitsandbytes__(?:nf4|fp4))"
)
_MOST_SHARDS = 10_000
_MOST_PARTS = 12
_MOST_UNFOLDED = 4096


class Shards(NamedTuple):
    """The shards of a checkpoint, by the names of its files.

    Args:
        total: The number of tensors.
        missing: The names of shards that are not in the folder.
    """

    total: int
    missing: tuple[str, ...]


def modules(folds: Sequence[Fold]) -> dict[str, int]:
    """The number of parameters of each module of a model.

    A module with most of the parameters is divided further.

    Args:
        folds: The tensors, each counted once.

    Returns:
        Empty if there are no modules, only tensors.
    """
    entries = [
        (re.split("[./]", folded.name), folded.total * prod(folded.shape), folded)
        for folded in folds
    ]
    groups: dict[tuple[str, ...], list[_Entry]] = {(): entries}
    while len(groups) < _MOST_PARTS:
        largest = max(groups, key=lambda group: sum(size for _, size, _ in groups[group]))
        depth = len(largest) + 1
        size = sum(size for _, size, _ in groups[largest])
        if not any(len(path) > depth for path, _, _ in groups[largest]) or (
            len(groups) > 1 and 4 * size < 3 * sum(size for _, size, _ in entries)
        ):
            break
        groups |= _apart(largest, groups.pop(largest))
    sizes = {
        ".".join(group): sum(size for _, size, _ in inside) for group, inside in groups.items()
    }
    if 1 < len(sizes) < sum(folded.total for folded in folds):
        return sizes
    return {}


def _apart(name: tuple[str, ...], inside: list[_Entry]) -> dict[tuple[str, ...], list[_Entry]]:
    """The parts of a module.

    Parts that differ only in a number are listed one by one if they are few.
    """
    depth = len(name)
    heads = {path[depth] for path, _, _ in inside if len(path) > depth}
    if any(
        "#" in head and other != head and _without(other) == head
        for head in heads
        for other in heads
    ):
        # A fold has tensors of one shape. Layers of other sizes are in other folds.
        few = sum(fold.total for _, _, fold in inside) <= _MOST_UNFOLDED
        if few:
            several = [unfolded for entry in inside for unfolded in _unfolded(entry, depth)]
        else:
            several = []
        if several and len({tuple(path[: depth + 1]) for path, _, _ in several}) <= _MOST_PARTS:
            inside = several
        else:
            inside = [(_numberless(path, depth), size, fold) for path, size, fold in inside]
    apart: dict[tuple[str, ...], list[_Entry]] = {}
    for entry in inside:
        apart.setdefault((*entry[0][: depth + 1],), []).append(entry)
    return apart


def _numberless(path: list[str], depth: int) -> list[str]:
    return [*path[:depth], *map(_without, path[depth : depth + 1]), *path[depth + 1 :]]


def _without(head: str) -> str:
    return re.sub(r"\d+", "#", head)


def _unfolded(entry: _Entry, depth: int) -> Iterator[_Entry]:
    path, size, fold = entry
    if fold.total == 1:
        yield entry
        return
    for name in fold.unfold():
        yield [*path[:depth], *re.split("[./]", name)[depth:]], size // fold.total, fold


def quantisation(
    folds: Iterable[Fold], blocks: Mapping[str, Blocks], values: Mapping[str, object]
) -> dict[str, int]:
    """How many tensors are quantised in which way.

    Known are the blocks of GGUF, PyTorch's quantised tensors, and the layouts of GPTQ, AWQ and
    bitsandbytes: packed integers with scales beside them, under certain names.
    """
    counts: dict[str, int] = {}
    for noted in blocks.values():
        kind = noted.kind.replace("gguf.", "", 1)
        counts[kind] = counts.get(kind, 0) + 1
    for place in [key for key in values if key.endswith("scheme")]:
        value, above = values[place], place[: -len("scheme")]
        if str(value).startswith("per_") and str(values.get(f"{above}dtype"))[:1] == "q":
            kind = f"{values[f'{above}dtype']} {value}"
            counts[kind] = counts.get(kind, 0) + 1
    packed: dict[str, dict[str, list[Fold]]] = {}
    for fold in folds:
        name = _PACKED.fullmatch(fold.name)
        if name is not None:
            # Layers of other sizes are in other folds.
            above = re.sub(r"\d+", "#", name[1] or "")
            packed.setdefault(above, {}).setdefault(name[2], []).append(fold)
    for above, parts in packed.items():
        for kind, fold in _layouts(above, parts):
            counts[kind] = counts.get(kind, 0) + fold.total
    return counts


def _layouts(above: str, parts: Mapping[str, list[Fold]]) -> Iterator[tuple[str, Fold]]:
    """The quantisation of one name's tensors (GPTQ, AWQ, bitsandbytes), and the folds concerned."""
    inputs = parts.get("g_idx", [])
    for weight, scales in zip(parts.get("qweight", []), parts.get("scales", []), strict=False):
        if (
            weight.dtype == "int32"
            and len(weight.shape) == len(scales.shape) == 2
            and all((*weight.shape, *scales.shape))
        ):
            # GPTQ packs the inputs of a layer, AWQ its outputs.
            if weight.shape[1] != scales.shape[1]:
                method, wide = "AWQ", weight.shape[0]
                bits = 32 * weight.shape[1] / scales.shape[1]
            else:
                method, wide = "GPTQ", prod(inputs[0].shape) if inputs else 0
                bits = 32 * weight.shape[0] / max(wide, 1)
            if wide:
                known = f", {bits:g} bits in groups of {wide // scales.shape[0]}"
            else:
                known = ""
            yield f"{method}{known}", weight
    for weight, scale in zip(parts.get("weight", []), parts.get("SCB", []), strict=False):
        if weight.dtype == "int8":
            yield "bitsandbytes, 8 bits", scale
    if not above.endswith("quant_state."):
        return
    for form in ("nf4", "fp4"):
        for state in parts.get(f"bitsandbytes__{form}", []):
            yield f"bitsandbytes, 4 bits ({form})", state


def shards(paths: Sequence[str]) -> Shards | None:
    """The shards of the checkpoint to which these files belong; ``None`` if it has no shards."""
    for path in paths:
        folder, name = os.path.split(path)
        match = _SHARD.fullmatch(name)
        if match is not None and 0 < int(match[2]) <= int(match[3]) <= _MOST_SHARDS:
            if is_on_server(path):
                return None  # a server lists no folders
            there = set(os.listdir(folder or "."))  # noqa: PTH208 - names only
            wanted = (
                f"{match[1]}{number:05d}-of-{match[3]}{match[4]}"
                for number in range(1, int(match[3]) + 1)
            )
            return Shards(
                int(match[3]),
                tuple(wanted_name for wanted_name in wanted if wanted_name not in there),
            )
    return None


if TYPE_CHECKING:
    _Entry = tuple[list[str], int, Fold]


@dataclass(frozen=True)
class Summary:
    """The contents of a file, from its header.

    Args:
        path: The path that the user gave.
        format: The name of the format.
        files: The files that belong to it.
        nbytes: Their size on disk.
        memory: The bytes of the tensors. Tied weights count once.
        tensors: The number of names of tensors.
        parameters: The number of elements by dtype, or by the type of quantised blocks. Tied
            weights count once.
        modules: The number of parameters of each module.
        quantised: How many tensors are quantised, by the kind of quantisation.
        shards: If the checkpoint is in shards: how many, and which are missing.
        tied: For each further name of a tensor, its first name.
        folds: The tensors, folded.
        values: The values in the tree that are not tensors, by their paths.
        objects: What objects of a pickle were that are told as values; see `objects_in`.
        metadata: Strings by name.
        others: Names of things that cannot be loaded, and why.
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
    objects: dict[str, str]
    metadata: dict[str, str]
    others: dict[str, str]
    asks_for: tuple[str, ...]
    refuses: tuple[str, ...]

    @property
    def safe(self) -> bool:
        """Whether nothing in it asks for code to be run."""
        return not self.refuses


def summarise(path: Path, contents: Contents) -> Summary:
    """The contents of a file, in a few lines."""
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
        once = fold(
            (name, folded.dtype, folded.shape)
            for folded in folds
            for name in folded.unfold()
            if name not in tied
        )
    parameters = dict(held)
    for name, noted in blocks.items():
        if name not in tied:
            parameters["uint8"] -= tensors[name].size
            parameters[noted.kind] = parameters.get(noted.kind, 0) + prod(
                noted.shape(tensors[name].shape)
            )
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
        objects=objects_in(contents.tree) if contents.asks_for else {},
        metadata=with_block_kinds(contents.metadata, {}),
        others=contents.others,
        asks_for=contents.asks_for,
        refuses=contents.refuses,
    )


def disk_bytes(paths: Iterable[str]) -> int:
    """The size of files, and of all files in folders, in bytes."""
    # As plain strings, because there may be thousands of shards.
    return sum(size_of(path) if os.path.isdir(path) else bytes_of(path) for path in paths)  # noqa: PTH112


def values_of(contents: Contents) -> dict[str, Any]:
    """A tree's values that are not tensors, by path: ``epoch``, ``optimizer.param_groups.0.lr``.

    An empty container counts as a value. If two have the same path, because a key contains a dot,
    one gets a suffix.
    """
    named = named_values(contents.tree)
    if named.get("") == NOTHING:
        return {**named, "": None}
    return named
