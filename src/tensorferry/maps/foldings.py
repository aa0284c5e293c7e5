"""Tensors with an axis of which not each line can have a sum: looked at with the axes of others.

A flattened tensor has one axis, and a sum of each of its lines takes more memory than the tensor. With
the axes of the tensor that it may have been, it has as many sums as any other.
"""

from __future__ import annotations

from itertools import islice, permutations, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from .forms import Piece, RawMoves, Taken
from .line_sums import MOST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    from .forms import Form

    Part = TypeVar("Part")

__all__ = ["Folding", "foldings", "is_long"]

_MOST_TRIED = 24
_MOST_AXES = 6


class Folding(NamedTuple):
    """A shape of which some axes are taken as several.

    Args:
        shape: The lengths.
        counts: How many of them each axis is.
    """

    shape: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape itself."""
        lengths = iter(self.shape)
        return tuple([prod(next(lengths) for _ in range(count)) for count in self.counts])

    @property
    def is_folded(self) -> bool:
        """Whether an axis is several."""
        return any(count > 1 for count in self.counts)

    def target(self, form: Form | None) -> Form | None:
        """The form of a tensor of the shape itself; ``None`` if it has none."""
        if form is None or not self.is_folded:
            return form
        if isinstance(form, RawMoves):
            return form._replace(shape=self.whole)
        if not isinstance(form, Piece):
            return None
        return form._replace(right=self._merged(form.right))

    def source(self, form: Form, first: int | None = None) -> Form | None:
        """The form out of a tensor of the shape itself; ``None`` if it has none.

        Args:
            form: The form.
            first: Where the shape begins in a tensor of one axis, of which it is a part.
        """
        if not self.is_folded and first is None:
            return form
        if isinstance(form, RawMoves) and first is None:
            return form
        if not isinstance(form, Piece) or form.slices:
            return None
        taken: tuple[Taken, ...] = ()
        if first is not None:
            taken = (Taken(first or None, first + prod(self.shape), None),)
        return form._replace(slices=taken, left=self._merged(form.left))

    def _merged(self, axes: Sequence[tuple[Part, ...]]) -> tuple[tuple[Part, ...], ...]:
        axis_parts = iter(axes)
        return tuple([sum([next(axis_parts) for _ in range(count)], ()) for count in self.counts])


def is_long(shape: Sequence[int]) -> bool:
    """Whether an axis has lines of which not each can have a sum."""
    return any(length > MOST_LINE for length in shape)


def foldings(
    shape: tuple[int, ...], other: Sequence[int], longest: int = MOST_LINE
) -> Iterator[Folding]:
    """Yield ways to take a shape's long axes as those of another; only the shape if it has none.

    Args:
        shape: The shape.
        other: That of the tensor with the same elements.
        longest: The longest axis that stays.
    """
    lengths = [length for length in other if length > 1]
    ways = [_ways(length, lengths, longest) for length in shape]
    for some in islice(product(*ways), _MOST_TRIED):
        yield Folding(
            tuple([axis_length for way in some for axis_length in way]), tuple(map(len, some))
        )


def _ways(length: int, lengths: list[int], longest: int) -> list[tuple[int, ...]]:
    """The lengths, in some order, whose product is one length."""
    if length <= longest:
        return [(length,)]
    ways = [
        order
        for count in range(2, min(len(lengths), _MOST_AXES) + 1)
        for order in permutations(lengths, count)
        if prod(order) == length
    ]
    # As they are before any other order.
    return [*dict.fromkeys(ways)] or [(length,)]
