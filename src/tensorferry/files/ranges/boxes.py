"""Boxes of tensors: the index that asks for one, one in another, one in chunks."""

from __future__ import annotations

from itertools import product
from math import prod
from operator import index as as_integer
from typing import TYPE_CHECKING, Any

from ... import hints
from ...errors import ShapeError, UnsupportedTypeError, shown
from ...hints import Hint
from ..base.box import Box

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Box",
    "box_of",
    "chunk_counts",
    "chunk_elements",
    "chunks_of",
    "in_chunks",
    "index_text",
    "inside",
    "rank",
    "whole_box",
]

_AFTERWARDS = Hint(
    hints.without("slices"),
    ", or with slices that contain what you need, and then index the result",
)


def whole_box(shape: Sequence[int]) -> Box:
    """All elements of a tensor of this shape."""
    axes = len(shape)
    return Box((0,) * axes, tuple(shape), (1,) * axes)


def box_of(index: Any, shape: Sequence[int], name: str) -> Box:
    """The elements that an index gives of a tensor: integers, slices with steps from 1 on, ``...``.

    Args:
        index: The index, as NumPy writes it.
        shape: Lengths of the tensor's axes.
        name: The name of the tensor, for messages.

    Raises:
        UnsupportedTypeError: It has a list, a mask, ``None`` or another object.
        ShapeError: A step is negative or 0.
        IndexError: There are more indexes than axes, or an integer is outside of its axis.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    for part in parts:
        _validate(part, name)
    gaps = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(gaps) > 1:
        raise IndexError(f"slices= of {name!r}: an index has only one ..., not {len(gaps)}.")
    given = len(parts) - len(gaps)
    if given > len(shape):
        raise IndexError(
            f"slices= of {name!r}: an index of {given} parts is too many for its "
            f"{len(shape)} axes, {list(shape)}."
        )
    place = gaps[0] if gaps else len(parts)
    filler = [slice(None)] * (len(shape) - given)
    parts = [*parts[:place], *filler, *parts[place + 1 :]]
    starts, counts, steps = [], [], []
    dropped = set()
    for axis, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            start, stop, step = part.indices(length)
            count = len(range(start, stop, step))
        else:
            start, count, step = _position(as_integer(part), length, axis, name), 1, 1
            dropped.add(axis)
        starts.append(start if count else 0)
        counts.append(count)
        steps.append(step if count > 1 else 1)
    return Box(tuple(starts), tuple(counts), tuple(steps), frozenset(dropped))


def _position(at: int, length: int, axis: int, name: str) -> int:
    """An integer of an index, counted from the start.

    Raises:
        IndexError: It is outside of the axis.
    """
    if not -length <= at < length:
        raise IndexError(
            f"slices= of {name!r}: index {at} is outside of axis {axis}, which has {length} "
            "elements."
        )
    return at % length


def _validate(part: Any, name: str) -> None:
    """Raise for what no part of an index may be.

    Raises:
        UnsupportedTypeError: It is neither an integer nor a slice of integers nor ``...``.
        ShapeError: It is a slice with a step below 1.
    """
    if part is Ellipsis:
        return
    if isinstance(part, slice):
        for bound in (part.start, part.stop, part.step):
            if bound is not None and not _is_integer(bound):
                raise UnsupportedTypeError(
                    f"slices= of {name!r}: the bounds and steps of a slice are integers, not "
                    f"{shown(bound)}.",
                    _AFTERWARDS,
                )
        if part.step is not None and as_integer(part.step) < 1:
            raise ShapeError(
                f"slices= of {name!r}: a step is at least 1, not {part.step}.",
                _AFTERWARDS,
            )
        return
    if not _is_integer(part):
        raise UnsupportedTypeError(
            f"slices= of {name!r}: an index is an integer, a slice or ..., or a tuple of these, "
            f"not {shown(part)}.",
            _AFTERWARDS,
        )


def _is_integer(value: Any) -> bool:
    """Whether it is an integer of Python or NumPy; not a truth value, which would be a mask."""
    if isinstance(value, bool):
        return False
    try:
        as_integer(value)
    except TypeError:
        return False
    # An array of one element says that it is an integer; as an index it is a list.
    return not getattr(value, "shape", ())


def inside(outer: Box, inner: Box) -> Box:
    """The elements of a tensor that an inner box gives of what an outer box gives."""
    starts, counts, steps = list(outer.starts), list(outer.counts), list(outer.steps)
    dropped = set(outer.dropped)
    axes = [axis for axis in range(len(starts)) if axis not in outer.dropped]
    for at, axis in enumerate(axes):
        starts[axis] += inner.starts[at] * outer.steps[axis]
        steps[axis] *= inner.steps[at]
        counts[axis] = inner.counts[at]
        if at in inner.dropped:
            dropped.add(axis)
    return Box(tuple(starts), tuple(counts), tuple(steps), frozenset(dropped))


def rank(box: Box, shape: Sequence[int], position: int) -> int:
    """How many elements of a box are before a position in a tensor's row-major order."""
    if position >= prod(shape):
        return box.size
    before, per, rest = 0, box.size, position
    inner = prod(shape)
    for length, start, count, step in zip(shape, box.starts, box.counts, box.steps, strict=True):
        if not per:
            return before
        inner //= length
        per //= count
        at, rest = divmod(rest, inner)
        before += min(max(-(-(at - start) // step), 0), count) * per
        is_in_box = at >= start and not (at - start) % step and (at - start) // step < count
        if not is_in_box:
            return before
    return before


def in_chunks(box: Box, chunk: Sequence[int], most: int) -> Iterator[Box]:
    """A box in boxes that end where chunks end, each of at most so many elements, or of one chunk.

    Args:
        box: The box.
        chunk: The lengths of a chunk.
        most: The number of elements.
    """
    return _in_chunks(box, chunk, most, 0)


def _in_chunks(box: Box, chunk: Sequence[int], most: int, axis: int) -> Iterator[Box]:
    if box.size <= most or axis == len(box.counts):
        yield box
        return
    start, count, step = box.starts[axis], box.counts[axis], box.steps[axis]
    length = chunk[axis]
    rows = max(most * count // box.size, 1)
    done = 0
    while done < count:
        # As many rows as may be, and then as many chunks as these fill.
        at = start + done * step
        end = max((at + rows * step) // length, at // length + 1) * length
        here = min(-(-(end - at) // step), count - done)
        part = box._replace(
            starts=(*box.starts[:axis], at, *box.starts[axis + 1 :]),
            counts=(*box.counts[:axis], here, *box.counts[axis + 1 :]),
        )
        yield from _in_chunks(part, chunk, most, axis + 1)
        done += here


def chunk_counts(box: Box, chunk: Sequence[int]) -> tuple[int, ...]:
    """In how many chunks a box is, along each axis."""
    counts = []
    for start, count, step, length in zip(box.starts, box.counts, box.steps, chunk, strict=True):
        if step >= length:
            counts.append(count)
        else:
            last = start + max(count - 1, 0) * step
            counts.append(last // length - start // length + 1 if count else 0)
    return tuple(counts)


def chunks_of(box: Box, chunk: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The place in the grid of each chunk in which a box is."""
    axes = []
    for start, count, step, length in zip(box.starts, box.counts, box.steps, chunk, strict=True):
        last = start + (count - 1) * step
        if step >= length:
            axes.append(range(start, start + count * step, step))
        else:
            axes.append(range(start - start % length, last + 1, length))
    for at in product(*axes):
        yield tuple(place // length for place, length in zip(at, chunk, strict=True))


def chunk_elements(box: Box, chunk: Sequence[int], shape: Sequence[int]) -> int:
    """How many elements of a tensor the chunks have in which a box is."""
    elements = 1
    for start, count, step, number, length, whole in zip(
        *box[:3], chunk_counts(box, chunk), chunk, shape, strict=True
    ):
        last = start + max(count - 1, 0) * step
        # The last chunk of an axis may be cut off.
        beyond = (last // length + 1) * length - whole
        elements *= number * length - max(beyond, 0) if number else 0
    return elements


def index_text(box: Box, shape: Sequence[int]) -> str:
    """The index that gives a box, as Python writes it."""
    parts = []
    for axis, (start, count, step) in enumerate(
        zip(box.starts, box.counts, box.steps, strict=True)
    ):
        if axis in box.dropped:
            parts.append(f"{start}")
        elif not start and count == shape[axis]:
            parts.append(":")
        else:
            stop = start + (count - 1) * step + 1 if count else start
            parts.append(f"{start}:{stop}" + (f":{step}" if step > 1 else ""))
    return f"[{', '.join(parts)}]"
