"""`Box`: some elements of a tensor, at equal distances along each axis."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Box"]


class Box(NamedTuple):
    """Elements of a tensor at equal distances along each of its axes.

    Args:
        starts: For each axis, the position of the first.
        counts: How many there are.
        steps: How far they are apart; at least 1.
        dropped: The axes that the result does not have, because an integer is their index.
    """

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    dropped: frozenset[int] = frozenset()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.kept(self.counts)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.counts)

    def kept(self, values: Sequence[int]) -> tuple[int, ...]:
        """Of values for each axis, those of the axes that the result has."""
        return tuple(value for axis, value in enumerate(values) if axis not in self.dropped)

    def is_whole(self, shape: Sequence[int]) -> bool:
        """Whether it is all of a tensor of this shape, as it is."""
        is_every = not any(self.starts) and self.counts == tuple(shape)
        ones = all(
            step == 1 or count <= 1 for step, count in zip(self.steps, self.counts, strict=True)
        )
        return is_every and ones and not self.dropped
