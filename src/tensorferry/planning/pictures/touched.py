"""Find the bytes of memory that a tensor's elements touch, without a loop over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from ...core.layout import byte_span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


__all__ = ["Touched"]

_MASKED = 1 << 16
"""Up to this many bytes, an integer with a bit for each is used, exact for all strides."""
_VISITS = 1 << 12
"""The most elements, and nodes above them, that are visited to number the elements of a window."""


@dataclass(frozen=True)
class Touched:
    """The bytes that the elements of a tensor touch, counted from the lowest of them.

    >>> every_second = Touched((4,), (8,), 4)
    >>> every_second.span, every_second.total, every_second.count(0, 8), every_second.count(4, 8)
    (28, 16, 4, 0)
    >>> Touched((3,), (-4,), 4).elements(0, 8)
    {4: (1, 1), 0: (2, 1)}

    A large tensor takes no longer than a small one. If elements overlap in more than 64 KiB, and
    are neither windows nor repetitions, `count` can be too large; then `exact` is false.

    Args:
        shape: Lengths of the axes, none of them 0.
        strides: Bytes from one element to the next along each axis.
        itemsize: Bytes of an element.
    """

    shape: Sequence[int]
    strides: Sequence[int]
    itemsize: int
    low: int = field(init=False)
    """The lowest byte's offset from the first element: 0, or negative if a stride is negative."""
    span: int = field(init=False)
    """The number of bytes from the lowest touched byte to the highest."""

    def __post_init__(self) -> None:
        low, high = byte_span(self.shape, self.strides, self.itemsize)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "span", high - low)

    @property
    def first(self) -> int:
        """The offset of the first element."""
        return -self.low

    @cached_property
    def total(self) -> int:
        """How many bytes are touched."""
        return self.count(0, self.span)

    @property
    def exact(self) -> bool:
        """Whether `count` is exact."""
        return self.span <= _MASKED or self._merged[2]

    def count(self, start: int, stop: int) -> int:
        """How many of the bytes from `start` to before `stop` are touched."""
        start, stop = max(start, 0), min(stop, self.span)
        if stop <= start:
            return 0
        if self.span <= _MASKED:
            return (self._mask >> start & ((1 << stop - start) - 1)).bit_count()
        run, axes, _ = self._merged
        return min(_count_before(run, axes, stop) - _count_before(run, axes, start), stop - start)

    def elements(self, start: int, stop: int) -> dict[int, tuple[int, int]] | None:
        """Offsets of elements that touch a window; for each, its first C-order index, and a count.

        ``None`` if too many elements would have to be visited.
        """
        moving = [
            (abs(step), axis)
            for axis, step in enumerate(self.strides)
            if step and self.shape[axis] > 1
        ]
        order = [axis for _, axis in sorted(moving, reverse=True)]
        repeats = prod(
            length for length, step in zip(self.shape, self.strides, strict=True) if not step
        )
        by_address: dict[int, tuple[int, int]] = {}
        for visits, (at, index) in enumerate(self._walk(order, start, stop), 1):
            if visits > _VISITS:
                return None
            if index >= 0 and start - self.itemsize < at < stop:
                before, many = by_address.get(at, (index, 0))
                by_address[at] = (min(before, index), many + repeats)
        return dict(sorted(by_address.items(), key=lambda item: item[1]))

    def _walk(self, order: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the offset and index of elements; the index is -1 for a node above them."""
        lengths, steps = (
            [self.shape[axis] for axis in order],
            [self.strides[axis] for axis in order],
        )
        within = [(length - 1) * abs(step) for length, step in zip(lengths, steps, strict=True)]
        reach = [*accumulate(reversed(within), initial=self.itemsize)][::-1]
        pending = [(0, 0, 0)]
        while pending:
            depth, at, index = pending.pop()
            if depth == len(order):
                yield at, index
                continue
            yield at, -1
            step, length = abs(steps[depth]), lengths[depth]
            weight = prod(self.shape[order[depth] + 1 :])
            least = max(-((reach[depth + 1] - 1 + at - start) // step), 0)
            most = min((stop - 1 - at) // step, length - 1)
            for number in range(least, min(most, least + _VISITS) + 1):
                if steps[depth] > 0:
                    forward = number
                else:
                    forward = length - 1 - number
                pending.append((depth + 1, at + number * step, index + forward * weight))

    @cached_property
    def _axes(self) -> list[tuple[int, int]]:
        """The strides and lengths of the axes with a stride, from the shortest stride on."""
        lengths = zip(self.shape, self.strides, strict=True)
        return sorted((abs(step), length) for length, step in lengths if step and length > 1)

    @cached_property
    def _mask(self) -> int:
        """An integer whose bits are the touched bytes."""
        mask = (1 << self.itemsize) - 1
        for step, length in self._axes:
            done = 1
            while done < length:
                more = min(done, length - done)
                mask |= mask << step * more
                done += more
        return mask

    @cached_property
    def _merged(self) -> tuple[int, tuple[tuple[int, int], ...], bool]:
        """A run's length, the strides and lengths it repeats by, and whether runs never overlap."""
        run, axes, apart = self.itemsize, list[tuple[int, int]](), True
        for step, length in self._axes:
            inner, inside = axes[-1] if axes else (0, 0)
            if not axes and step <= run:
                run += (length - 1) * step
            elif axes and step % inner == 0 and step <= inner * inside:
                axes[-1] = (inner, (length - 1) * (step // inner) + inside)
            else:
                apart = apart and step >= _reach_of_axes(run, axes)
                axes.append((step, length))
        return run, tuple(axes), apart


def _reach_of_axes(run: int, axes: Sequence[tuple[int, int]]) -> int:
    return run + sum((length - 1) * step for step, length in axes)


def _count_before(run: int, axes: Sequence[tuple[int, int]], stop: int) -> int:
    """How many bytes before `stop` are touched by runs that do not overlap."""
    if stop <= 0:
        return 0
    if not axes:
        return min(run, stop)
    step, length = axes[-1]
    whole = max(min((stop - _reach_of_axes(run, axes[:-1])) // step + 1, length), 0)
    count = whole * run * prod(inside for _, inside in axes[:-1])
    return count + (_count_before(run, axes[:-1], stop - whole * step) if whole < length else 0)
