"""`requests_for`: the few requests that bring many runs of bytes, and where each answer's bytes belong."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...typing import Array

__all__ = ["GAP_BYTES", "MOST_REQUESTS", "REQUEST_BYTES", "Elements", "Request", "requests_for"]

GAP_BYTES = 64 << 10
"""Up to this number of bytes, what is between two runs is read too: a request costs as much as that."""
REQUEST_BYTES = 8 << 20
"""The most bytes of one request."""
MOST_REQUESTS = 1000
"""If parts of tensors are in more runs of one file than this, larger gaps are read too."""


class Elements(NamedTuple):
    """Elements in a file, at equal distances along each axis.

    Args:
        offset: The byte of the first.
        shape: How many there are along each axis.
        strides: How many bytes they are apart; not negative.
        itemsize: How many bytes one has.
        number: Which of the wanted tensors they are of.
        starts: Where they begin in that tensor, along each axis.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    number: int
    starts: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The end of the last element."""
        reach = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        return self.offset + reach + self.itemsize

    @property
    def nbytes(self) -> int:
        """How many bytes the elements have, without gaps."""
        return prod(self.shape) * self.itemsize

    @property
    def is_run(self) -> bool:
        """Whether they are one run of bytes in row-major order."""
        step = self.itemsize
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n > 1 and stride != step:
                return False
            step *= n
        return True

    def part(self, axis: int, first: int, count: int) -> Elements:
        """Those from a position on along an axis."""
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        starts = (*self.starts[:axis], self.starts[axis] + first, *self.starts[axis + 1 :])
        offset = self.offset + first * self.strides[axis]
        return self._replace(offset=offset, shape=shape, starts=starts)

    def copy(self, answer: memoryview, start: int, result: Array) -> None:
        """Copy them out of bytes of the file, which begin at `start`, into their tensor."""
        there: Array = np.ndarray(
            self.shape, result.dtype, answer, self.offset - start, self.strides
        )
        self.within(result)[...] = there

    def within(self, result: Array) -> Array:
        """Their place in their tensor."""
        cut: Any = tuple(
            slice(first, first + count)
            for first, count in zip(self.starts, self.shape, strict=True)
        )
        part: Array = result[cut + (...,)]  # noqa: RUF005 - a star here is not of Python 3.10
        return part


class Request(NamedTuple):
    """Bytes of a file that are asked for at once.

    Args:
        start: The first byte.
        stop: The end.
        parts: What they are for, in the order of the file.
    """

    start: int
    stop: int
    parts: tuple[Elements, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes they are."""
        return self.stop - self.start


def requests_for(
    wanted: Sequence[Elements],
    *,
    gap: int = GAP_BYTES,
    size: int = REQUEST_BYTES,
    most: int = MOST_REQUESTS,
) -> list[Request]:
    """The requests to one file for elements of tensors, in the order of the file.

    >>> every_fourth = Elements(0, (1000,), (4096,), 1024, 0, (0,))
    >>> [(each.start, each.stop) for each in requests_for([every_fourth], size=3 << 20)]
    [(0, 3142656), (3145728, 4092928)]

    Args:
        wanted: The elements.
        gap: Up to this number of bytes, what is between two runs is read too.
        size: The most bytes of one request.
        most: If parts of tensors are in more runs than this, larger gaps are read too, until they
            are no more.
    """
    wanted = [elements for elements in wanted if elements.nbytes]
    end = max((elements.stop for elements in wanted), default=0)
    # A tensor in one run is one request at most; parts of tensors may be in a million runs.
    split = [elements for elements in wanted if _regions(elements, gap) > 1]
    while gap < end and sum(_regions(elements, gap) for elements in split) > most:
        gap *= 2
    parts = [part for elements in wanted for part in _cut(elements, gap, size)]
    return list(_together(parts, gap, size))


def _axes(elements: Elements) -> list[tuple[int, int]]:
    """The strides and numbers of the axes along which there are several elements, from the largest."""
    return sorted(
        (
            (step, axis)
            for axis, (n, step) in enumerate(zip(elements.shape, elements.strides, strict=True))
            if n > 1
        ),
        key=lambda pair: (-pair[0], pair[1]),
    )


def _regions(elements: Elements, gap: int) -> int:
    """How many regions without a larger gap elements are in."""
    span, count = elements.itemsize, 1
    for step, axis in reversed(_axes(elements)):
        n = elements.shape[axis]
        if step - span > gap:
            count *= n
        span += (n - 1) * step
    return count


def _cut(elements: Elements, gap: int, size: int) -> Iterator[Elements]:
    """Yield the same elements in parts that span at most `size`, without a larger gap."""
    axes = _axes(elements)
    span = elements.stop - elements.offset
    if not axes or (span <= size and _regions(elements, gap) == 1):
        yield elements
        return
    step, axis = axes[0]
    n = elements.shape[axis]
    inner = span - (n - 1) * step
    rows = 1
    if step - inner <= gap and inner <= size:
        rows = (size - inner) // max(step, 1) + 1
    for first in range(0, n, rows):
        yield from _cut(elements.part(axis, first, min(rows, n - first)), gap, size)


def _together(parts: list[Elements], gap: int, size: int) -> Iterator[Request]:
    """Yield requests for parts, neighbours together."""
    parts.sort(key=lambda placed: (placed.offset, placed.number, placed.starts))
    held: list[Elements] = []
    start = stop = 0
    for part in parts:
        end = max(stop, part.stop)
        if held and (part.offset - stop > gap or end - start > size):
            yield Request(start, stop, tuple(held))
            held = []
        if not held:
            start, end = part.offset, part.stop
        held.append(part)
        stop = end
    if held:
        yield Request(start, stop, tuple(held))
