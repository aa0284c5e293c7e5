"""Where each element of a tensor is in others, without a number for each: sums of numbers along axes.

An index array takes eight bytes for each element. If the lines of a tensor are found in another, its
positions are sums of one number for each line, and any part of them can be made when it is needed.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..typing import Array

__all__ = ["IndexBox", "IndexLines", "IndexPart", "index_of_part", "index_of_parts"]


class IndexLines(NamedTuple):
    """What a group of neighbouring axes adds to positions.

    Args:
        first: The first axis.
        last: The axis after the last.
        numbers: What is added for each index along them.
    """

    first: int
    last: int
    numbers: Array


class IndexPart(NamedTuple):
    """Positions that are sums along axes.

    Args:
        start: What is added to all.
        lines: What is added along groups of axes; nothing along all others.
    """

    start: int
    lines: tuple[IndexLines, ...]

    def at(self, coordinates: Sequence[Any]) -> Any:
        """The positions at coordinates along each axis, which are broadcast."""
        index: Any = np.int64(self.start)
        for first, last, numbers in self.lines:
            index = index + numbers[tuple(coordinates[first:last])]
        return index


class _Whole(NamedTuple):
    """A tensor that is made of parts, side by side along an axis.

    Args:
        axis: The axis, which is rows of a period.
        period: The length of a row.
        firsts: Where each part begins in a row.
        parts: The parts, which have an axis for the rows and one for what is theirs of a row.
    """

    axis: int
    period: int
    firsts: Array
    parts: tuple[IndexPart, ...]

    def at(self, coordinates: Sequence[Any]) -> Any:
        """The positions at coordinates along each axis of the tensor, which are broadcast."""
        rows, within = np.divmod(coordinates[self.axis], self.period)
        number = np.searchsorted(self.firsts, within, "right") - 1
        numbers = self.numbers_at(coordinates[self.axis])
        apart = [*coordinates[: self.axis], rows, within, *coordinates[self.axis + 1 :]]
        if numbers.size == 1:
            return self._of_part(int(numbers[0]), apart)
        shape = np.broadcast_shapes(*(np.shape(part_number) for part_number in apart))
        indices = np.empty(shape, np.int64)
        long = [axis for axis, length in enumerate(np.shape(number)) if length > 1]
        for part_number in numbers.tolist():
            if len(long) == 1:
                # Lines of one axis of the box are of this part, whatever the others are.
                (axis,) = long
                places = np.flatnonzero(np.reshape(number, -1) == part_number)
                some = [_taken(one, axis, places) for one in apart]
                here: Any = (*[slice(None)] * axis, places)
                indices[here] = self._of_part(part_number, some)
            else:
                is_here = np.broadcast_to(number == part_number, shape)
                some = [np.broadcast_to(one, shape)[is_here] for one in apart]
                indices[is_here] = self._of_part(part_number, some)
        return indices

    def numbers_at(self, coordinates: Any) -> Array:
        """The numbers of the parts that have coordinates along the axis, each once."""
        within = np.remainder(coordinates, self.period)
        return np.unique(np.searchsorted(self.firsts, within, "right") - 1)

    def _of_part(self, number: int, apart: Sequence[Any]) -> Any:
        within = apart[self.axis + 1] - self.firsts[number]
        own = [*apart[: self.axis + 1], within, *apart[self.axis + 2 :]]
        return self.parts[number].at(own)


def _taken(coordinates: Any, axis: int, places: Array) -> Any:
    """Some of an axis, if there is more than one."""
    has_several = np.ndim(coordinates) > axis and np.shape(coordinates)[axis] > 1
    return np.take(coordinates, places, axis) if has_several else coordinates


class _Axis(NamedTuple):
    """An axis of a box: of which axis of the tensor it is, its length, and its step there."""

    axis: int
    length: int
    step: int


class IndexBox:
    """A box of the positions of a tensor's elements, of which any part is made when it is needed.

    It has of an array what `fitting` uses: lengths, boxes and lines in it, axes that are split.

    Args:
        whole: The positions.
        starts: Where it begins along each axis of the tensor.
        axes: Its axes.
    """

    def __init__(
        self, whole: IndexPart | _Whole, starts: tuple[int, ...], axes: tuple[_Axis, ...]
    ) -> None:
        self._whole = whole
        self._starts = starts
        self._axes = axes
        self.shape = tuple([axis.length for axis in axes])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._axes)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def reshape(self, shape: tuple[int, ...]) -> IndexBox:
        """The same box with some axes split."""
        axes: list[_Axis] = []
        left = iter(shape)
        for axis, length, step in self._axes:
            own = _until(left, length)
            inner = [prod(own[at + 1 :]) for at in range(len(own))]
            axes += [
                _Axis(axis, axis_length, step * by)
                for axis_length, by in zip(own, inner, strict=True)
            ]
        # What is left has one element.
        axes += [_Axis(0, length, 0) for length in left]
        return IndexBox(self._whole, self._starts, tuple(axes))

    def __getitem__(self, key: Any) -> Any:
        """A smaller box; an array of at most one axis; or the positions at arrays of places."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(isinstance(axis_key, np.ndarray) for axis_key in keys):
            return self._whole.at(self._coordinates(keys))
        starts, axes = [*self._starts], []
        keys += [slice(None)] * (len(self._axes) - len(keys))
        for axis_key, own in zip(keys, self._axes, strict=True):
            if isinstance(axis_key, slice):
                begin, end, _ = axis_key.indices(own.length)
                axes.append(own._replace(length=end - begin))
            else:
                begin = range(own.length)[axis_key]
            if self._starts:
                starts[own.axis] += begin * own.step
        box = IndexBox(self._whole, tuple(starts), tuple(axes))
        return box if len(axes) > 1 else np.asarray(box)[()]

    def separate_axes(self) -> list[list[int]]:
        """Groups of axes that add to positions whatever the index along all others is."""
        groups: list[set[int]] = []
        for together in self._together():
            axes = {at for at, own in enumerate(self._axes) if own.axis in together}
            for group in [group for group in groups if group & axes]:
                groups.remove(group)
                axes |= group
            groups.append(axes)
        rest = {*range(len(self._axes))}.difference(*groups)
        return [sorted(axes) for axes in (*groups, *[{axis} for axis in rest]) if axes]

    def _together(self) -> Iterator[set[int]]:
        """Yield axes of the tensor that say together what is added."""
        whole = self._whole
        if isinstance(whole, IndexPart):
            for first, last, _ in whole.lines:
                yield {*range(first, last)}
            return
        grid = np.ogrid[tuple([slice(length) for length in self.shape])]
        along = self._coordinates(grid)[whole.axis]
        number = whole.numbers_at(along)
        if number.size > 1:
            yield {*range(len(self._starts))}
            return
        for first, last, _ in whole.parts[int(number[0])].lines:
            # The axis is two in a part: the rows, and what is in a row.
            yield {axis - (axis > whole.axis) for axis in range(first, last)}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        del copy  # it is new memory anyway
        grid = np.ogrid[tuple([slice(length) for length in self.shape])] if self.shape else ()
        indices: Array = np.broadcast_to(self._whole.at(self._coordinates(grid)), self.shape)
        return indices if dtype is None else indices.astype(dtype)

    def _coordinates(self, places: Sequence[Any]) -> list[Any]:
        """The coordinates of places in the box along each axis of the tensor."""
        coordinates: list[Any] = [np.int64(start) for start in self._starts]
        for place, own in zip(places, self._axes, strict=True):
            if coordinates:
                coordinates[own.axis] = coordinates[own.axis] + place * own.step
        return coordinates


def _until(lengths: Iterator[int], product: int) -> list[int]:
    """The next lengths, whose product is given."""
    taken: list[int] = []
    size = 1
    while size < product or not taken:
        taken.append(next(lengths))
        size *= taken[-1]
    return taken


def _axes_of(shape: Sequence[int]) -> tuple[_Axis, ...]:
    return tuple([_Axis(axis, length, 1) for axis, length in enumerate(shape)])


def index_of_part(shape: Sequence[int], part: IndexPart) -> IndexBox:
    """The positions of a tensor that is one part."""
    return IndexBox(part, (0,) * len(shape), _axes_of(shape))


def index_of_parts(
    shape: Sequence[int], axis: int, period: int, counts: Sequence[int], parts: Sequence[IndexPart]
) -> IndexBox:
    """The positions of a tensor that is made of parts, side by side.

    Args:
        shape: The shape.
        axis: Along which axis they are side by side, in rows of a period.
        period: The length of a row.
        counts: How much of a row each part has.
        parts: The parts, with an axis for the rows and one for what is theirs of a row.
    """
    firsts = np.array([0, *accumulate(counts)][:-1], np.int64)
    whole = _Whole(axis, period, firsts, tuple(parts))
    return IndexBox(whole, (0,) * len(shape), _axes_of(shape))
