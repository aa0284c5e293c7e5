"""What an output is made of, as numbers and names that can be compared with those of others."""

from __future__ import annotations

from typing import Any, NamedTuple, Union

__all__ = ["Filled", "Form", "Joined", "Piece", "Placed", "RawMoves", "Stretch", "Taken"]


class Stretch(NamedTuple):
    """A part of an axis of a source.

    Args:
        key: What it is on the right; ``None`` if one index is taken.
        length: How long it is.
        first: The first index that is taken.
        size: How many are taken.
    """

    key: int | None
    length: int
    first: int
    size: int

    @property
    def is_full(self) -> bool:
        """Whether all of it is taken."""
        return self.key is not None and self.size == self.length


class Taken(NamedTuple):
    """What is taken of an axis of a source: numbers, ``None`` where nothing is written.

    Args:
        start: The first index.
        stop: The index after the last.
        step: The step.
        is_index: Whether it is one index, and the axis goes.
    """

    start: int | None
    stop: int | None
    step: int | None
    is_index: bool = False


class Placed(NamedTuple):
    """A part of an axis of an output.

    Args:
        key: The part of the source that it is; another number if it is repeated.
        length: How long it is.
        is_reversed: Whether it is from the end.
    """

    key: int
    length: int
    is_reversed: bool


class Piece(NamedTuple):
    """A part of one source, rearranged.

    Args:
        source: The name of the source, or what stands for it.
        slices: What is taken of its axes.
        left: The parts of the axes that stay.
        right: The parts of the axes of the output.
    """

    source: Any
    slices: tuple[Taken, ...]
    left: tuple[tuple[Stretch, ...], ...]
    right: tuple[tuple[Placed, ...], ...]

    @property
    def is_plain(self) -> bool:
        """Whether the axes that stay are those of the output, in this order."""
        if len(self.left) != len(self.right):
            return False
        for left, right in zip(self.left, self.right, strict=True):
            if not left and not right:
                continue
            if len(left) != 1 or len(right) != 1 or not left[0].is_full:
                return False
            if left[0].key != right[0].key or right[0].is_reversed:
                return False
        return True


class Filled(NamedTuple):
    """A part that is in no source.

    Args:
        code: Which constant.
        shape: Its shape.
    """

    code: int
    shape: tuple[int, ...]


class Joined(NamedTuple):
    """Parts behind each other.

    Args:
        parts: The parts; one for all numbers, if there is a `number`.
        axis: The axis; a new one if they are stacked.
        is_stack: Whether they are stacked.
        axes: How many axes there are then.
        is_merged: Whether the axis and the one before it are then one.
        number: The name of the number in names of which all are taken.
    """

    parts: tuple[Form, ...]
    axis: int
    is_stack: bool
    axes: int
    is_merged: bool = False
    number: str | None = None


class RawMoves(NamedTuple):
    """Moves of numbers, for what has no other form.

    Args:
        moves: For each: the source, the lengths, and each side's start and steps.
        shape: The shape of the output.
    """

    moves: tuple[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]
    shape: tuple[int, ...]


Form = Union[Piece, Filled, Joined, RawMoves]  # noqa: UP007 - also where Python 3.10 evaluates it
