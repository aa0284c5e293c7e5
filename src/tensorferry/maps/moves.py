"""`Move`: elements of one tensor that become elements of another, as a box with steps on both sides.

``target[target_start + sum(target_steps * i)] = source[source_start + sum(source_steps * i)]`` for
each index ``i`` of the box. Whatever rearranges a tensor is a list of moves: a permutation, a slice,
a concatenation, a repetition. Both sides have row-major positions, so a reshape changes nothing.
"""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from ..typing import Array

__all__ = [
    "Box",
    "Move",
    "NotMovedError",
    "box_of",
    "clipped",
    "copy_moves",
    "counts",
    "covers_once",
    "ends",
    "of_part",
    "reach",
    "restrided",
    "simplified",
    "steps_of",
]

_MOST_PIECES = 1 << 14
"""Into how many moves one may fall apart."""
_EDGES = 32, 512
"""How many elements of a target's row, and of a source's, are copied at a time if their order
differs: three times as fast as with larger or square tiles."""
_SHORT = 8
"""Along axes of fewer elements, one is copied at a time."""
_PASSED = 8 << 20
"""After how many bytes of a source its pages are released."""


class NotMovedError(Exception):
    """A rearrangement that takes too many moves."""


class Move(NamedTuple):
    """Elements of a source that become elements of a target.

    Args:
        source: Which source it is: a name, or anything that can be a key.
        sizes: The lengths of the box.
        target_start: The row-major position of the first in the target.
        target_steps: How far it is to the next, for each axis of the box.
        source_start: The position of the first in the source.
        source_steps: How far it is to the next there; 0 repeats it.
    """

    source: Hashable
    sizes: tuple[int, ...]
    target_start: int
    target_steps: tuple[int, ...]
    source_start: int
    source_steps: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many elements of the target are written."""
        return prod(self.sizes)

    @property
    def is_whole(self) -> bool:
        """Whether both sides are the same run from the beginning, if it is simplified."""
        return (
            not self.target_start
            and not self.source_start
            and self.target_steps == self.source_steps
            and self.target_steps in ((), (1,))
        )

    def swapped(self, source: Hashable) -> Move:
        """The move back, from a tensor that is named."""
        return Move(
            source,
            self.sizes,
            self.source_start,
            self.source_steps,
            self.target_start,
            self.target_steps,
        )


Box = tuple[int, tuple[tuple[int, int], ...]]
"""Positions: the first, and for each axis how many there are and the step."""


def steps_of(shape: Sequence[int]) -> tuple[int, ...]:
    """The row-major steps of a shape, in elements."""
    steps, step = [], 1
    for length in reversed(shape):
        steps.append(step)
        step *= length
    return tuple(reversed(steps))


def simplified(move: Move) -> Move:
    """The same move with the fewest axes, those of the target from the largest step down."""
    start_to, start_from = move.target_start, move.source_start
    axes = []
    for size, to, of in zip(move.sizes, move.target_steps, move.source_steps, strict=True):
        if size == 1:
            continue
        if to < 0:
            # From its end on.
            start_to += (size - 1) * to
            start_from += (size - 1) * of
            axes.append((size, -to, -of))
        else:
            axes.append((size, to, of))
    axes.sort(key=lambda axis: (-axis[1], -axis[0]))
    kept: list[tuple[int, int, int]] = []
    for size, to, of in axes:
        if kept:
            outer = kept[-1]
            if outer[1] == size * to and outer[2] == size * of:
                kept[-1] = outer[0] * size, to, of
                continue
        kept.append((size, to, of))
    sizes, tos, ofs = zip(*kept, strict=True) if kept else ((), (), ())
    return Move(move.source, sizes, start_to, tos, start_from, ofs)


# -- rearrange -------------------------------------------------------------------------------------


def restrided(
    move: Move, shape: Sequence[int], steps: Sequence[int], start: int = 0
) -> Iterator[Move]:
    """Yield the moves into a tensor in which each axis of a shape has another step.

    Args:
        move: A move into a tensor of this shape.
        shape: The shape.
        steps: The new step of each axis.
        start: The new position of the first element.

    Raises:
        NotMovedError: It takes too many moves.
    """
    own = steps_of(shape)

    def take(piece: Move) -> Move | list[Move]:
        along_axes = _along_axes(piece, shape, own)
        if isinstance(along_axes, list):
            return along_axes
        first, axes = along_axes
        return simplified(
            Move(
                piece.source,
                tuple([size for _, size, _, _ in axes]),
                start + sum(at * step for at, step in zip(first, steps, strict=True)),
                tuple([times * steps[axis] for axis, _, times, _ in axes]),
                piece.source_start,
                tuple([of for _, _, _, of in axes]),
            )
        )

    yield from _taken_apart(move, take)


def _taken_apart(move: Move, take: Callable[[Move], Move | list[Move] | None]) -> Iterator[Move]:
    """Yield what a function gives for a move; for those of a list that it gives, likewise.

    Raises:
        NotMovedError: It takes too many moves.
    """
    waiting, made = [move], 0
    while waiting:
        made += 1
        if made > _MOST_PIECES:
            raise NotMovedError
        taken = take(waiting.pop())
        if isinstance(taken, list):
            waiting += taken
        elif taken is not None:
            yield taken


_Axes = list[tuple[int, int, int, int]]
"""For each axis of a box: the axis of the shape, the length, the step in it, the step of the source."""


def _along_axes(
    move: Move, shape: Sequence[int], own: Sequence[int]
) -> tuple[list[int], _Axes] | list[Move]:
    """The first index of a move and its axes along those of a shape; or the moves it falls into."""
    first = [int(at) for at in np.unravel_index(move.target_start, shape)] if shape else []
    axes: _Axes = []
    reached = [*first]
    boxes = sorted(
        zip(move.sizes, move.target_steps, move.source_steps, strict=True), key=lambda box: -box[1]
    )
    for place, (size, to, of) in enumerate(boxes):
        if size == 1:
            continue
        axis = next(
            (k for k, step in enumerate(own) if step <= to and shape[k] > 1), len(shape) - 1
        )
        times, odd = divmod(to, own[axis])
        if to <= 0 or odd:
            return _apart(move, boxes, place)
        if reached[axis] + times * (size - 1) < shape[axis]:
            axes.append((axis, size, times, of))
            reached[axis] += times * (size - 1)
            continue
        if shape[axis] % times or first[axis] != reached[axis]:
            return _apart(move, boxes, place)
        per, done = shape[axis] // times, first[axis] // times
        if done:
            return _cut(move, boxes, place, min(per - done, size))
        if size % per:
            return _cut(move, boxes, place, size - size % per)
        split = [(size // per, to * per, of * per), (per, to, of)]
        return [_with_boxes(move, [*boxes[:place], *split, *boxes[place + 1 :]])]
    return first, axes


def _with_boxes(
    move: Move, boxes: Sequence[tuple[int, int, int]], at: tuple[int, int] = (0, 0)
) -> Move:
    kept = [box for box in boxes if box[0] > 1]
    sizes, tos, ofs = zip(*kept, strict=True) if kept else ((), (), ())
    return Move(move.source, sizes, move.target_start + at[0], tos, move.source_start + at[1], ofs)


def _cut(move: Move, boxes: list[tuple[int, int, int]], place: int, first: int) -> list[Move]:
    """A move in two: the first few along an axis, and the rest."""
    size, to, of = boxes[place]
    one = [*boxes[:place], (first, to, of), *boxes[place + 1 :]]
    two = [*boxes[:place], (size - first, to, of), *boxes[place + 1 :]]
    return [_with_boxes(move, one), _with_boxes(move, two, (first * to, first * of))]


def _apart(move: Move, boxes: list[tuple[int, int, int]], place: int) -> list[Move]:
    """A move for each index along an axis, because its steps do not fit."""
    size, to, of = boxes[place]
    if size > _MOST_PIECES:
        raise NotMovedError
    rest = [*boxes[:place], *boxes[place + 1 :]]
    return [_with_boxes(move, rest, (index * to, index * of)) for index in range(size)]


def of_part(
    move: Move,
    shape: Sequence[int],
    starts: Sequence[int],
    counts: Sequence[int],
    steps: Sequence[int],
) -> Iterator[Move]:
    """Yield the moves into a part of a tensor, with positions in the part.

    Args:
        move: A move into the tensor.
        shape: Its shape.
        starts: The first index of the part along each axis.
        counts: How many indexes there are; at least 1.
        steps: How far they are apart.

    Raises:
        NotMovedError: It takes too many moves.
    """
    own = steps_of(shape)

    def take(piece: Move) -> Move | list[Move] | None:
        # Far from the part, a move need not be taken apart along the axes.
        if not _meets(piece, own, starts, counts, steps):
            return None
        along_axes = _along_axes(piece, shape, own)
        if isinstance(along_axes, list):
            return along_axes
        return _of_box(piece, along_axes, (starts, counts, steps), own)

    yield from _taken_apart(move, take)


def _meets(
    move: Move,
    own: Sequence[int],
    starts: Sequence[int],
    counts: Sequence[int],
    steps: Sequence[int],
) -> bool:
    """Whether a move writes between the first position of a part and the last."""
    low, high = ends(move)
    first = sum(start * by for start, by in zip(starts, own, strict=True))
    last = first + sum(
        (count - 1) * step * by for count, step, by in zip(counts, steps, own, strict=True)
    )
    return low <= last and first <= high


def _of_box(
    move: Move,
    along: tuple[list[int], _Axes],
    box: tuple[Sequence[int], Sequence[int], Sequence[int]],
    own: Sequence[int],
) -> Move | list[Move] | None:
    """What of a move along axes is in a part; a list of moves that it falls into, if they are several."""
    first, axes = along
    by_axis: dict[int, list[tuple[int, int, int, int]]] = {}
    for one in axes:
        by_axis.setdefault(one[0], []).append(one)
    inner = steps_of(box[1])
    sizes, tos, ofs = [], [], []
    to, of = 0, move.source_start
    for axis, (start, count, step) in enumerate(zip(*box, strict=True)):
        held = by_axis.get(axis, [])
        if len(held) > 1:
            boxes = sorted(
                zip(move.sizes, move.target_steps, move.source_steps, strict=True),
                key=lambda sized: -sized[1],
            )
            outer = held[0][1], held[0][2] * own[axis], held[0][3]
            return _apart(move, boxes, boxes.index(outer))
        size, times, by = held[0][1:] if held else (1, 1, 0)
        met = _progressions(first[axis], size, times, start, count, step)
        if met is None:
            return None
        at, into, number, every, apart = met
        sizes.append(number)
        of += at * by
        ofs.append(every * by)
        to += into * inner[axis]
        tos.append(apart * inner[axis])
    return simplified(Move(move.source, tuple(sizes), to, tuple(tos), of, tuple(ofs)))


def _progressions(
    first: int, size: int, times: int, start: int, count: int, step: int
) -> tuple[int, int, int, int, int] | None:
    """Where ``first + i * times`` for i < size and ``start + j * step`` for j < count are the same.

    Returns:
        The first i and j, how many there are, and how far they are apart in i and in j.
    """
    common = gcd(times, step)
    if (start - first) % common:
        return None
    every, apart = step // common, times // common
    # i * times = start - first, modulo the step.
    at = (start - first) // common * pow(apart, -1, every) % every if every > 1 else 0
    # From the first index of the part on.
    below = start - first - at * times
    at += max(-(-below // (every * times)), 0) * every
    into = (first + at * times - start) // step
    number = min(-(-(size - at) // every), -(-(count - into) // apart))
    return (at, into, number, every, apart) if number > 0 else None


# -- which elements --------------------------------------------------------------------------------

_PRIME = (1 << 127) - 1
_POINT = 2 + int.from_bytes(os.urandom(15), "big")
"""Where polynomials are compared. It is another in each process, so that nobody can write a table whose
gaps do not show there: memory that nobody has written would be read."""


def box_of(move: Move, *, source: bool = False) -> Box:
    """The positions that a move writes; or with `source` those that it reads, each once."""
    start = move.source_start if source else move.target_start
    steps = move.source_steps if source else move.target_steps
    axes = []
    for size, step in zip(move.sizes, steps, strict=True):
        if not step and source:
            continue  # a repetition
        if step < 0:
            start += (size - 1) * step
        if size > 1:
            axes.append((size, abs(step)))
    return start, tuple(_merged(axes))


def _merged(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for size, step in sorted(axes, key=lambda axis: (-axis[1], -axis[0])):
        if kept and kept[-1][1] == size * step:
            kept[-1] = kept[-1][0] * size, step
        else:
            kept.append((size, step))
    return kept


def reach(box: Box) -> tuple[int, int]:
    """The first and the last position of a box whose steps are not negative."""
    start, axes = box
    return start, start + sum((size - 1) * step for size, step in axes)


def ends(move: Move, *, source: bool = False) -> tuple[int, int]:
    """The first and the last position that a move writes; or with `source` that it reads."""
    first = last = move.source_start if source else move.target_start
    steps = move.source_steps if source else move.target_steps
    for size, step in zip(move.sizes, steps, strict=True):
        if size > 1 and step > 0:
            last += (size - 1) * step
        elif size > 1:
            first += (size - 1) * step
    return first, last


def covers_once(boxes: Iterable[Box], count: int) -> bool:
    """Whether boxes have each position below a count, and each once.

    As polynomials: a box is the sum of ``x ** position``, which is a product over its axes, and all
    positions are ``(x ** count - 1) / (x - 1)``. Two different polynomials of a degree below 2**62
    agree at a point of this field with a probability of 2**-65. It costs the same whatever the sizes.
    """
    all_boxes = list(boxes)
    if not count:
        return not all_boxes or all(not prod(size for size, _ in axes) for _, axes in all_boxes)
    if len(all_boxes) == 1 and all_boxes[0] in (
        (0, ((count, 1),)),
        (0, ()) if count == 1 else None,
    ):
        return True
    return sum(map(_sum_of_powers, all_boxes)) % _PRIME == _sum_of_powers((0, ((count, 1),)))


@lru_cache(maxsize=1 << 14)
def _sum_of_powers(box: Box) -> int:
    start, axes = box
    total = pow(_POINT, start, _PRIME)
    for size, step in axes:
        if not size:
            return 0
        if not step:
            total = total * size % _PRIME
            continue
        by = pow(_POINT, step, _PRIME)
        if by == 1:
            total = total * size % _PRIME
        else:
            above = (pow(by, size, _PRIME) - 1) * pow(by - 1, -1, _PRIME)
            total = total * above % _PRIME
    return total


def counts(boxes: Iterable[Box], count: int) -> Array:
    """How often each position is in boxes, up to 255 times."""
    written: Array = np.zeros(count, np.uint8)
    for start, axes in boxes:
        shape = tuple(size for size, _ in axes)
        steps = tuple(step for _, step in axes)
        if all(steps):
            view = np.lib.stride_tricks.as_strided(written[start:], shape, steps)
            # Through an index, because the elements of one box may be the same.
            np.add(view, 1, out=view, where=view < 255)
        else:
            written[start] = 255
    return written


# -- copy ------------------------------------------------------------------------------------------


def clipped(move: Move, start: int, stop: int) -> Iterator[Move]:
    """Yield the parts of a simplified move that write positions from `start` to before `stop`."""
    low, high = ends(move)
    if high < start or low >= stop or not move.size:
        return
    if low >= start and high < stop:
        yield move
        return
    # The outermost axis has the largest step, so the others mostly lie within one step of it.
    size, to, of = move.sizes[0], move.target_steps[0], move.source_steps[0]
    inner = Move(
        move.source,
        move.sizes[1:],
        move.target_start,
        move.target_steps[1:],
        move.source_start,
        move.source_steps[1:],
    )
    span = high - low - (size - 1) * to
    first = max(-(-(start - low) // to), 0)
    last = min((stop - 1 - span - low) // to, size - 1)
    if first <= last:
        yield Move(
            move.source,
            (last - first + 1, *move.sizes[1:]),
            move.target_start + first * to,
            move.target_steps,
            move.source_start + first * of,
            move.source_steps,
        )
        cut = [*range(max((start - span - low) // to, 0), first)]
        cut += range(last + 1, min((stop - 1 - low) // to, size - 1) + 1)
    else:
        cut = [
            *range(max((start - span - low) // to, 0), min((stop - 1 - low) // to, size - 1) + 1)
        ]
    for index in cut:
        part = inner._replace(
            target_start=inner.target_start + index * to,
            source_start=inner.source_start + index * of,
        )
        if part.sizes:
            yield from clipped(part, start, stop)
        elif start <= part.target_start < stop:
            yield part


def copy_moves(
    moves: Iterable[Move],
    sources: Mapping[Any, Array],
    target: Array,
    start: int = 0,
    release: Callable[[], None] | None = None,
) -> None:
    """Carry out moves.

    Args:
        moves: The moves, simplified. They must lie within both sides.
        sources: For each source, all its elements in row-major order, as an array of one axis.
        target: A part of the target, as an array of one axis without gaps.
        start: The position of its first element.
        release: Called whenever some MiB of a source have been passed over, whose pages can go.
    """
    for move in moves:
        source = sources[move.source]
        to: Array = np.ndarray(
            move.sizes,
            target.dtype,
            target,
            (move.target_start - start) * target.itemsize,
            [step * target.itemsize for step in move.target_steps],
        )
        of = _elements(source, move)
        _copy(of, to, release)


def _elements(source: Array, move: Move) -> Array:
    """The elements of a source that a move reads."""
    step = source.strides[0]
    sizes, steps, at = move.sizes, move.source_steps, move.source_start
    if step == source.itemsize:
        by = [source_step * step for source_step in steps]
        array: Array = np.ndarray(sizes, source.dtype, source, at * step, by)
        return array
    # From the lowest address on: a view must begin within the memory.
    flipped = [size > 1 and source_step < 0 for size, source_step in zip(sizes, steps, strict=True)]
    for size, source_step, is_flipped in zip(sizes, steps, flipped, strict=True):
        if is_flipped:
            at += (size - 1) * source_step
    elements = np.lib.stride_tricks.as_strided(
        source[at:], sizes, [abs(source_step) * step for source_step in steps], writeable=False
    )
    if any(flipped):
        elements = elements[
            tuple(slice(None, None, -1 if source_step else 1) for source_step in flipped)
        ]
    return elements


def _copy(of: Array, to: Array, release: Callable[[], None] | None) -> None:
    """Copy an array, in tiles if the inner axes of both differ, so that both stay in the cache."""
    other, one = _inner_axis(of), to.ndim - 1
    if other is None or other == one or of.ndim < 2 or of.size <= prod(_EDGES):
        to[...] = of
        return
    sizes = _tile(of, one, other)
    # A loop over few elements takes longer than these.
    is_short = of.shape[one] < _SHORT
    # From the beginning of the source to its end, so that each of its pages is needed once.
    order = sorted(range(of.ndim), key=lambda axis: -abs(of.strides[axis]))
    steps = [range(0, of.shape[axis], sizes[axis]) for axis in order]
    outer = order[0]
    reach = abs(of.strides[outer]) * sizes[outer]
    at, passed = 0, 0
    for corner in product(*steps):
        if corner[0] != at:
            at = corner[0]
            passed += reach
            if release is not None and passed >= _PASSED:
                release()
                passed = 0
        starts = dict(zip(order, corner, strict=True))
        cut = tuple([slice(starts[axis], starts[axis] + sizes[axis]) for axis in range(of.ndim)])
        if is_short:
            for index in range(of.shape[one]):
                to[cut][..., index] = of[cut][..., index]
        else:
            to[cut] = of[cut]


def _tile(of: Array, one: int, other: int) -> list[int]:
    """How much of each axis is copied at a time.

    Args:
        of: The elements.
        one: The inner axis of the target.
        other: That of the source.
    """
    most = prod(_EDGES)
    sizes = [1] * of.ndim
    sizes[one] = min(of.shape[one], _EDGES[0])
    sizes[other] = min(of.shape[other], most // sizes[one])
    sizes[one] = min(of.shape[one], most // sizes[other])
    for axis in sorted(range(of.ndim), key=lambda axis: abs(of.strides[axis])):
        if axis not in (one, other):
            sizes[axis] = min(of.shape[axis], max(most // prod(sizes), 1))
    return sizes


def _inner_axis(array: Array) -> int | None:
    """The axis with the smallest step; ``None`` if there is none longer than 1."""
    axes = [
        (abs(step), axis)
        for axis, (step, size) in enumerate(zip(array.strides, array.shape, strict=True))
        if size > 1 and step
    ]
    return min(axes)[1] if axes else None
