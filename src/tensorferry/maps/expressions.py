"""What a tensor of a table is made of: a reference to another, in a pattern, joined, cast, filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Union

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .formulas import Formula
    from .names import NameTemplate
    from .patterns import Pattern

__all__ = [
    "Arithmetic",
    "AxisSlice",
    "Cast",
    "Concatenation",
    "Expression",
    "Fill",
    "Moves",
    "Reference",
    "Same",
    "Stack",
    "View",
    "WrittenMove",
    "lengths_in",
    "names_in",
    "parts_of",
    "positions_in",
    "references_in",
    "stacked_in",
    "with_names",
]


class AxisSlice(NamedTuple):
    """What is taken of an axis.

    Args:
        start: The first index; ``None`` for the beginning.
        stop: The index after the last; ``None`` for the end.
        step: The step; ``None`` for 1.
        is_index: Whether it is the one index `start`, and the axis goes.
    """

    start: Formula | None
    stop: Formula | None
    step: Formula | None
    is_index: bool = False

    def __str__(self) -> str:
        start, stop, step = ["" if place is None else str(place) for place in self[:3]]
        if self.is_index:
            return start
        return f"{start}:{stop}" if self.step is None else f"{start}:{stop}:{step}"


class Reference(NamedTuple):
    """A tensor of the source, or a part of it.

    Args:
        name: Its name.
        slices: What is taken of its first axes.
        pattern: How its axes are rearranged then; ``None`` if they are not.
    """

    name: NameTemplate
    slices: tuple[AxisSlice, ...] = ()
    pattern: Pattern | None = None

    def __str__(self) -> str:
        slices = f"[{', '.join(map(str, self.slices))}]" if self.slices else ""
        pattern = "" if self.pattern is None else f" : {self.pattern}"
        return f"{self.name}{slices}{pattern}"


class Concatenation(NamedTuple):
    """Tensors behind each other along an axis that they have."""

    parts: tuple[Expression, ...]
    axis: int
    pattern: Pattern | None = None


class Stack(NamedTuple):
    """Tensors along a new axis.

    Args:
        parts: The tensors; one for all numbers of `over`, if there is one.
        axis: The new axis.
        over: The name of a number in the names, of which all are taken, from 0.
        pattern: How the axes are rearranged then.
    """

    parts: tuple[Expression, ...]
    axis: int
    over: str | None = None
    pattern: Pattern | None = None


class Same(NamedTuple):
    """Tensors that must be equal, bit for bit, of which the first is taken."""

    parts: tuple[Expression, ...]


class Cast(NamedTuple):
    """A tensor in another dtype.

    Args:
        dtype: The dtype.
        of: The tensor.
        before: The dtype that the tensor has to have; ``None`` for any. It makes a way back.
    """

    dtype: str
    of: Expression
    before: str | None = None


class View(NamedTuple):
    """The bytes of a tensor as elements of another dtype; the last axis is longer or shorter then.

    Args:
        dtype: The dtype.
        of: The tensor.
        before: The dtype that the tensor has to have; ``None`` for any. It makes a way back.
    """

    dtype: str
    of: Expression
    before: str | None = None


class Arithmetic(NamedTuple):
    """A tensor with a number added to each element, or with each multiplied by it: one way only."""

    verb: str
    number: float
    of: Expression


class Fill(NamedTuple):
    """A tensor of one number that is in no source."""

    number: float
    shape: tuple[Formula, ...]
    dtype: str


class WrittenMove(NamedTuple):
    """A move of numbers: the source, the lengths, and each side's start and steps."""

    source: NameTemplate
    sizes: tuple[int, ...]
    target: tuple[int, ...]
    of: tuple[int, ...]


class Moves(NamedTuple):
    """What has no other form."""

    moves: tuple[WrittenMove, ...]
    shape: tuple[int, ...]


Expression = Union[  # noqa: UP007 - also where Python 3.10 evaluates it
    Reference, Concatenation, Stack, Same, Cast, View, Arithmetic, Fill, Moves
]


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions right inside one."""
    if isinstance(expression, (Concatenation, Stack, Same)):
        return expression.parts
    if isinstance(expression, (Cast, View, Arithmetic)):
        return (expression.of,)
    return ()


def references_in(expression: Expression) -> Iterator[Reference]:
    """Yield the references in an expression."""
    if isinstance(expression, Reference):
        yield expression
    for part in parts_of(expression):
        yield from references_in(part)


def names_in(
    expression: Expression, bound: frozenset[str] = frozenset()
) -> Iterator[tuple[NameTemplate, frozenset[str]]]:
    """Yield the names of sources, with the numbers that a stack takes all of."""
    if isinstance(expression, Reference):
        yield expression.name, bound & expression.name.names
    if isinstance(expression, Moves):
        for move in expression.moves:
            yield move.source, bound
    if isinstance(expression, Stack) and expression.over is not None:
        bound = bound | {expression.over}
    for part in parts_of(expression):
        yield from names_in(part, bound)


def lengths_in(expression: Expression) -> frozenset[str]:
    """The names of lengths in an expression."""
    names: set[str] = set()
    pattern = getattr(expression, "pattern", None)
    if pattern is not None:
        names |= pattern.names
    if isinstance(expression, Reference):
        places = [place for axis_slice in expression.slices for place in axis_slice[:3]]
        names |= frozenset().union(*[place.names for place in places if place is not None])
    if isinstance(expression, Fill):
        names |= frozenset().union(*[length.names for length in expression.shape])
    return frozenset(names).union(*map(lengths_in, parts_of(expression)))


def with_names(
    expression: Expression, change: Callable[[NameTemplate], NameTemplate]
) -> Expression:
    """An expression with other names of sources."""
    if isinstance(expression, Reference):
        return expression._replace(name=change(expression.name))
    if isinstance(expression, Moves):
        moves = [move._replace(source=change(move.source)) for move in expression.moves]
        return expression._replace(moves=tuple(moves))
    if isinstance(expression, (Concatenation, Stack, Same)):
        parts = [with_names(part, change) for part in expression.parts]
        return expression._replace(parts=tuple(parts))
    if isinstance(expression, (Cast, View, Arithmetic)):
        return expression._replace(of=with_names(expression.of, change))
    return expression


def stacked_in(expression: Expression) -> frozenset[str]:
    """The names of numbers of which stacks take all."""
    indices: frozenset[str] = frozenset()
    if isinstance(expression, Stack) and expression.over is not None:
        indices = indices | {expression.over}
    return indices.union(*map(stacked_in, parts_of(expression)))


def positions_in(expression: Expression) -> frozenset[str]:
    """The names of numbers that are an index of an axis, and in no name of a source."""
    positions = {
        axis_slice.start.name
        for reference in references_in(expression)
        for axis_slice in reference.slices
        if axis_slice.is_index
        and axis_slice.start is not None
        and axis_slice.start.name is not None
    }
    named = frozenset().union(*[name.names for name, _ in names_in(expression)])
    return frozenset(positions) - named
