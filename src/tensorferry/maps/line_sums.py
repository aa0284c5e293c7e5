"""The sums of a tensor's hashes: of all its elements, and of those of each line along its axes.

Each element has a hash of 64 bits by its bits. Sums of these do not depend on the order of elements,
so equal sums are the same elements, wherever they lie.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..host.casts import cast
from .applying import words_of
from .index_boxes import IndexLines, IndexPart
from .moves import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..typing import Array

    class Weights(Protocol):
        """A tensor, in a file or in memory."""

        @property
        def dtype(self) -> str:
            """The canonical name of its dtype."""
            ...  # for pyright, which otherwise takes it for a function that returns None

        @property
        def shape(self) -> tuple[int, ...]:
            """Lengths of the axes."""
            ...  # for pyright

        def array(self) -> Array:
            """All of it, over a map of the file if that can be."""
            ...  # for pyright

        def release(self) -> None:
            """Free the pages of the map, which come back when they are read."""
            ...  # for pyright


__all__ = [
    "MOST_LINE",
    "RANGE",
    "LineOrder",
    "LineSums",
    "TensorView",
    "Window",
    "boxes",
    "view_as",
    "whole_view",
]

RANGE = 1 << 64
"""The range of sums."""
_BLOCK = 1 << 15
"""How many elements are looked at at a time, so that their hashes stay in the cache."""
_PASSED = 4 << 20
"""After how many bytes the pages of a file are freed."""
MOST_LINE = 1 << 22
"""The most lines of which each has a sum."""


# -- hashes ----------------------------------------------------------------------------------------

_ONE = np.uint64(0x9E3779B97F4A7C15)
_TWO = np.uint64(0xBF58476D1CE4E5B9)
_THREE = np.uint64(0x94D049BB133111EB)


class _Hashing:
    """Makes a number of 64 bits for each element, by its bits, for one block after the other.

    The numbers of a block are in the memory of those before: new memory for each takes as long again.

    Args:
        most: How many elements a block has at most.
    """

    def __init__(self, most: int) -> None:
        self._found: Array = np.empty(most, np.uint64)
        self._shifted: Array = np.empty(most, np.uint64)

    def __call__(self, array: Array) -> Array:
        """The numbers, which the next call writes over."""
        words: Array = words_of(np.ascontiguousarray(array))
        hashes: Array = self._found[: words.size].reshape(words.shape)
        shifted: Array = self._shifted[: words.size].reshape(words.shape)
        width = words.dtype.itemsize
        if words.dtype.kind == "V":
            halves = words.view("u8").reshape(*words.shape, -1)
            hashes[...] = 0
            for number in range(halves.shape[-1]):
                hashes *= _THREE
                hashes += halves[..., number]
                _mix(hashes, hashes, shifted)
        elif width <= 2:
            # Every number is in the table. Any other mode looks for that, or copies first.
            np.take(_table(width), words, out=hashes, mode="wrap")
        else:
            _mix(words, hashes, shifted)
        return hashes


def _mix(words: Array, mixed: Array, shifted: Array) -> None:
    """Put a number that looks random for each word where it is to be.

    Args:
        words: The words.
        mixed: Where the numbers are put.
        shifted: Memory for steps between.
    """
    np.add(words, _ONE, out=mixed, dtype=np.uint64)
    mixed ^= np.right_shift(mixed, np.uint64(30), out=shifted)
    mixed *= _TWO
    mixed ^= np.right_shift(mixed, np.uint64(27), out=shifted)
    mixed *= _THREE
    mixed ^= np.right_shift(mixed, np.uint64(31), out=shifted)


_tables: dict[int, Array] = {}


def _table(width: int) -> Array:
    """The hashes of all numbers of one or two bytes."""
    if width not in _tables:
        table: Array = np.arange(1 << 8 * width, dtype=np.uint64)
        _mix(table, table, np.empty_like(table))
        _tables[width] = table
    return _tables[width]


class LineSums:
    """The sums of a tensor's hashes.

    Args:
        name: Its name.
        weights: The tensor.
        dtype: The dtype in which its elements are compared.
    """

    def __init__(self, name: str, weights: Weights, dtype: str) -> None:
        self.name = name
        self.weights = weights
        self.dtype = dtype
        self.shape = tuple(weights.shape)
        self.size = prod(self.shape)
        self._sums: dict[tuple[int, int], Array] = {}
        self._total: int | None = None
        self.constant: Any = None
        """Its only number, as an array of one element; ``None`` if there are several."""

    @property
    def total(self) -> int:
        """The sum over all elements."""
        if self._total is None:
            self._look()
        return self._total or 0

    def _look(self) -> None:
        """One pass: the total, the sums along each axis, and whether all is one number."""
        sums = {
            (axis, axis + 1): np.zeros(length, np.uint64)
            for axis, length in enumerate(self.shape)
            if length <= MOST_LINE
        }
        total, first, is_constant = 0, None, True
        for place, hashes in self._blocks():
            if first is None:
                first = hashes.reshape(-1)[0]
            is_constant = is_constant and bool((hashes == first).all())
            rows = {}
            for axis in range(hashes.ndim):
                others = tuple(other for other in range(hashes.ndim) if other != axis)
                rows[axis] = hashes.sum(axis=others, dtype=np.uint64) if others else hashes
            if not rows:
                total += int(hashes.sum(dtype=np.uint64))
            else:
                total += int(rows[0].sum(dtype=np.uint64))
            for axis, row in rows.items():
                if (axis, axis + 1) in sums:
                    sums[axis, axis + 1][place[axis]] += row
        self._sums |= sums
        self._total = total % RANGE
        if is_constant and self.size:
            self.constant = self.weights.array().reshape(-1)[:1]

    def _blocks(self) -> Iterator[tuple[tuple[slice, ...], Array]]:
        """Yield hashes of parts, each with its place; the next ones are in the same memory."""
        if not self.size:
            return
        array = self.weights.array().reshape(self.shape)
        hashes = _Hashing(min(_BLOCK, self.size))
        passed = 0
        for place in boxes(self.shape, _BLOCK):
            part = array[place]
            passed += part.nbytes
            if self.dtype != self.weights.dtype:
                part = cast(np.ascontiguousarray(part), self.dtype)
            yield place, hashes(part)
            if passed >= _PASSED:
                self.weights.release()
                passed = 0
        self.weights.release()

    def sums(self, first: int, last: int) -> Array | None:
        """The sums along axes `first` to before `last` as one; ``None`` if they are too long."""
        if self._total is None:
            # The same pass gives those along each axis.
            self._look()
        sums = self._sums.get((first, last))
        if sums is not None:
            return sums
        shape = self.shape[first:last]
        if prod(shape) > MOST_LINE:
            return None
        made = np.zeros(shape, np.uint64)
        for place, hashes in self._blocks():
            others = (*range(first), *range(last, hashes.ndim))
            made[place[first:last]] += hashes.sum(axis=others, dtype=np.uint64)
        sums = self._sums[first, last] = made.reshape(-1)
        return sums


def boxes(
    shape: tuple[int, ...], most: int, edge: int | None = None
) -> Iterator[tuple[slice, ...]]:
    """Yield the places of parts that make up a shape.

    Args:
        shape: The shape.
        most: How many elements a part has at most.
        edge: How many of them along each axis; without it, a part is a run.
    """
    sizes, left = [], most
    for length in reversed(shape):
        size = max(min(length, left, edge or length), 1)
        left //= size
        sizes.append(size)
    starts = [range(0, length, size) for length, size in zip(shape, reversed(sizes), strict=True)]
    for corner in product(*starts):
        yield tuple(
            [
                slice(at, min(at + steps.step, steps.stop))
                for at, steps in zip(corner, starts, strict=True)
            ]
        )


# -- parts -----------------------------------------------------------------------------------------


LineOrder = tuple[tuple[int, int], tuple[int, int], "Array"]
"""Neighbouring axes of a target, those of a source with the same lines, and the order of these."""


class TensorView(NamedTuple):
    """A part of a tensor, as a box of its axes, with the sums along these.

    Args:
        marks: The tensor.
        shape: The lengths of the box.
        start: The row-major position of its first element.
        steps: The step of each axis.
        sums: Gives the sums along axes from one to before another, as one.
    """

    marks: LineSums
    shape: tuple[int, ...]
    start: int
    steps: tuple[int, ...]
    sums: Callable[[int, int], Array | None]

    def array(self) -> Array:
        """Its elements, over the memory of the whole."""
        weights = self.marks.weights
        part = _PartOfWeights(weights, weights.dtype, self.shape, self.start, self.steps)
        return part.array()

    def part(self, target: tuple[int, ...], lines: Sequence[LineOrder]) -> IndexPart:
        """The positions of a target's elements, by the order of lines along groups of axes."""
        index_lines = []
        for (first, last), (begin, end), order in lines:
            along = positions_along(self.shape[begin:end], self.steps[begin:end])
            index_lines.append(IndexLines(first, last, along[order].reshape(target[first:last])))
        return IndexPart(self.start, tuple(index_lines))


def positions_along(shape: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """The positions of a box's elements, in row-major order, from 0."""
    positions: Array = np.zeros(1, np.int64)
    for length, step in zip(shape, steps, strict=True):
        positions = (positions[:, None] + np.arange(length, dtype=np.int64) * step).reshape(-1)
    return positions


def whole_view(marks: LineSums) -> TensorView:
    """All of a tensor."""
    return TensorView(marks, marks.shape, 0, steps_of(marks.shape), marks.sums)


def view_as(marks: LineSums, shape: tuple[int, ...], start: int = 0) -> TensorView:
    """A run of a tensor from a position on, with axes of its own."""
    if shape == marks.shape:
        return whole_view(marks)
    steps = steps_of(shape)
    return TensorView(marks, shape, start, steps, _part_of(marks, shape, start, steps).sums)


class Window(NamedTuple):
    """Lines of an axis, which is taken as rows of a period.

    Args:
        axis: The axis.
        period: The length of a row; that of the axis if there is one row.
        first: The first of each row.
        length: How many of each row.
    """

    axis: int
    period: int
    first: int
    length: int

    def view(self, marks: LineSums) -> TensorView:
        """The part of a tensor, with an axis for the rows, if there are several."""
        length, steps = marks.shape[self.axis], steps_of(marks.shape)
        rows = length // self.period
        step = steps[self.axis]
        shape = (*marks.shape[: self.axis], rows, self.length, *marks.shape[self.axis + 1 :])
        by = (*steps[: self.axis], step * self.period, step, *steps[self.axis + 1 :])
        start = self.first * step

        return TensorView(marks, shape, start, by, _part_of(marks, shape, start, by).sums)


class _PartOfWeights(NamedTuple):
    """A box of a tensor, as a tensor."""

    weights: Weights
    dtype: str
    shape: tuple[int, ...]
    start: int
    steps: tuple[int, ...]

    def array(self) -> Array:
        """Its elements, over the memory of the whole."""
        flat = self.weights.array().reshape(-1)
        return np.lib.stride_tricks.as_strided(
            flat[self.start :],
            self.shape,
            [step * flat.itemsize for step in self.steps],
            writeable=False,
        )

    def release(self) -> None:
        """As for the whole."""
        self.weights.release()


def _part_of(
    marks: LineSums, shape: tuple[int, ...], start: int, steps: tuple[int, ...]
) -> LineSums:
    """The marks of a part of a tensor."""
    part = _PartOfWeights(marks.weights, marks.weights.dtype, shape, start, steps)
    return LineSums(marks.name, part, marks.dtype)
