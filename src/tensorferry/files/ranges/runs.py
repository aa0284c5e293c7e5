"""`ByteRuns`: the bytes of a file that a tensor or a part of it takes, as runs at equal distances."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...core.layout import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..base.stored import FilePlace, Stored

__all__ = ["ByteRuns", "runs_of"]


class ByteRuns(NamedTuple):
    """Runs of bytes in a file, at equal distances along each of some axes: four numbers say where a million are.

    >>> runs = ByteRuns("model.safetensors", 64, 8, (2, 2), (100, 16))
    >>> runs.number, runs.nbytes, list(runs.positions())
    (4, 32, [(64, 72), (80, 88), (164, 172), (180, 188)])

    Args:
        path: The file.
        offset: The position of the first byte.
        length: How many bytes each run has.
        counts: How many runs there are along each axis, from the outermost; empty for one run.
        strides: How many bytes they are apart along each axis.

    .. versionadded:: 0.1
    """

    path: str
    offset: int
    length: int
    counts: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        """How many runs there are."""
        return prod(self.counts)

    @property
    def nbytes(self) -> int:
        """How many bytes they have together."""
        return self.length * self.number

    def positions(self) -> Iterator[tuple[int, int]]:
        """The first byte and the end of each run, in order."""
        for at in product(*map(range, self.counts)):
            start = self.offset + sum(
                place * stride for place, stride in zip(at, self.strides, strict=True)
            )
            yield start, start + self.length

    def __str__(self) -> str:
        """As ``512 runs of 2.0 KiB, gaps of 14 KiB``."""
        if self.number == 1:
            return "1 run"
        gap = self.strides[-1] - self.length
        apart = f", gaps of {size_text(gap)}" if gap > 0 else ""
        return f"{self.number:,} runs of {size_text(self.length)}{apart}"


def runs_of(stored: Stored) -> list[ByteRuns] | None:
    """The bytes that a tensor in a file takes; ``None`` if it must be decoded."""
    elements = stored.elements()
    if elements is not None:
        return [_family(*family) for family in elements if prod(family.shape)]
    pieces = stored.pieces()
    if pieces is None:
        return None
    all_runs: list[ByteRuns] = []
    for _, piece in pieces:
        runs = runs_of(piece)
        if runs is None:
            return None
        all_runs += runs
    return all_runs


def _family(place: FilePlace, shape: Sequence[int], itemsize: int) -> ByteRuns:
    """The bytes of elements at these strides, with what lies without gaps as one run."""
    axes = sorted(
        (
            (stride, count)
            for stride, count in zip(place.strides, shape, strict=True)
            if count > 1 and stride
        ),
        reverse=True,
    )
    length = itemsize
    while axes and axes[-1][0] == length:
        length *= axes.pop()[1]
    strides = tuple(stride for stride, _ in axes)
    counts = tuple(count for _, count in axes)
    return ByteRuns(place.path, place.offset, length, counts, strides)
