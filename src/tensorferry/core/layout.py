"""The layout of elements in memory: strides, the bytes they reach, overlaps; numbers of bytes."""

from __future__ import annotations

from itertools import count
from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ALIGNMENT",
    "AXES",
    "are_apart",
    "byte_span",
    "compact_strides",
    "is_compact",
    "overlaps_itself",
    "packed_strides",
    "size_text",
]

ALIGNMENT = 64
"""Alignment in bytes of CPU allocators of TensorFlow and XLA, which need it to adopt memory."""
AXES = 64
"""The most axes of an ndarray. (https://numpy.org/doc/stable/release/2.0.0-notes.html)"""


def compact_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides, in bytes, of C-contiguous memory."""
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def is_compact(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether memory is C-contiguous.

    Axes of length 1 do not count; a tensor without elements is contiguous.
    """
    if 0 in shape:
        return True
    step = itemsize
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def packed_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    """Strides, in bytes, of memory without gaps whose axes are in the same order as `strides`."""
    order = sorted(range(len(shape)), key=lambda axis: (-abs(strides[axis]), axis))
    packed = [0] * len(shape)
    step = itemsize
    for axis in reversed(order):
        packed[axis] = step
        step *= max(shape[axis], 1)
    return tuple(packed)


def byte_span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """How many bytes a tensor with elements reaches before, and from, its first element."""
    reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    low = sum(step for step in reach if step < 0)
    return low, sum(reach) - low + itemsize


def are_apart(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether, from the shortest on, each stride goes beyond what the shorter ones reach."""
    reach = itemsize
    for length, step in zip(shape[::-1], strides[::-1], strict=True):
        if length > 1:
            if step < reach:
                break
            reach += (length - 1) * step
    else:
        return True
    # This condition is sufficient, but not necessary, for elements that do not overlap.
    reach = itemsize
    for step, length in sorted(
        (abs(step), length) for length, step in zip(shape, strides, strict=True) if length > 1
    ):
        if step < reach:
            return False
        reach += (length - 1) * step
    return True


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether two elements share a byte.

    >>> (
    ...     overlaps_itself((3, 2), (4, 4), 4),
    ...     overlaps_itself((2, 3), (12, 8), 4),
    ...     overlaps_itself((2, 3), (10, 4), 2),
    ... )
    (True, False, False)

    If it would take too long to find out, the answer is yes.
    """
    if 0 in shape or are_apart(shape, strides, itemsize):
        return False
    axes = sorted(
        ((abs(step), length - 1) for length, step in zip(shape, strides, strict=True) if length > 1)
    )[::-1]
    if not axes[-1][0]:
        return True
    # Two such elements differ by so many steps along each axis that they end less than an element
    # apart; the first such axis can be taken forward, as either of the two is the first.
    reaches, commons = [0], [0]
    for step, most in reversed(axes):
        reaches.append(reaches[-1] + step * most)
        commons.append(gcd(commons[-1], step))
    tries = count()

    def meets(axis: int, apart: int, differ: bool) -> bool:
        """Whether steps from this axis on lead to less than an element from where two are apart."""
        if axis == len(axes) or next(tries) > _TRIES:
            return differ
        step, most = axes[axis]
        rest = len(axes) - axis
        if min(apart % commons[rest], -apart % commons[rest]) >= itemsize:
            return False
        room = reaches[rest - 1] + itemsize - 1
        low, high = (
            max(-((room + apart) // step), -most if differ else 0),
            min((room - apart) // step, most),
        )
        return any(
            meets(axis + 1, apart + step * steps, differ or steps != 0)
            for steps in range(low, high + 1)
        )

    return meets(0, 0, False)


_TRIES = 1 << 16
"""The most differences that are tried, which takes some tens of milliseconds."""


def size_text(nbytes: int) -> str:
    """A number of bytes for people: ``24 B``, ``1.5 KiB``, ``400 MiB``.

    >>> size_text(24), size_text(1536), size_text(400 << 20)
    ('24 B', '1.5 KiB', '400 MiB')
    """
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            if size < 1000:
                return f"{size:.3g} {unit}"
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:,.0f} EiB"
