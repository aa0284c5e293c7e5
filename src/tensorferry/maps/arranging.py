"""How the elements of one tensor lie in another, by the sums of lines along axes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..typing import Array
    from .index_boxes import IndexPart
    from .line_sums import LineOrder, TensorView

__all__ = ["Arranged", "arranged"]


class Arranged(NamedTuple):
    """Where the elements of one part are in another.

    Args:
        part: The positions of the one's elements in the other tensor.
        is_sure: Whether no two lines were equal.
    """

    part: IndexPart
    is_sure: bool


def arranged(target: TensorView, source: TensorView, *, merges: bool = True) -> Iterator[Arranged]:
    """Yield ways in which a target's elements may lie in a source, by the sums of lines.

    Args:
        target: The target, or a part of it.
        source: The source, or a part of it.
        merges: Whether several axes of the one may be one of the other.
    """
    for lines, is_sure in _matches(target, source, 0, frozenset(), merges):
        yield Arranged(source.part(target.shape, lines), is_sure)


def _matches(
    target: TensorView, source: TensorView, axis: int, used: frozenset[int], merges: bool
) -> Iterator[tuple[list[LineOrder], bool]]:
    """Yield matches of groups of axes from one on, and whether no two lines were equal."""
    if axis == len(target.shape):
        left = [at for at, length in enumerate(source.shape) if length > 1 and at not in used]
        if not left:
            yield [], True
        return
    if target.shape[axis] == 1:
        yield from _matches(target, source, axis + 1, used, merges)
        return
    for last in range(axis + 1, len(target.shape) + 1 if merges else axis + 2):
        length = prod(target.shape[axis:last])
        for first, end in _groups(source.shape, length, used):
            if not merges and end - first > 1:
                continue
            order, is_sure = _order(target.sums(axis, last), source.sums(first, end))
            if order is None:
                continue
            taken = used | frozenset(range(first, end))
            for rest, rest_sure in _matches(target, source, last, taken, merges):
                yield [((axis, last), (first, end), order), *rest], is_sure and rest_sure


def _groups(shape: tuple[int, ...], length: int, used: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Yield groups of neighbouring axes of a length, none of which is used."""
    for first in range(len(shape)):
        if shape[first] == 1 or first in used:
            continue
        size = 1
        for last in range(first, len(shape)):
            if last in used:
                break
            size *= shape[last]
            if size == length and shape[last] > 1:
                yield first, last + 1
            if size > length:
                break


def _order(target: Array | None, source: Array | None) -> tuple[Array | None, bool]:
    """Which line of a source each line of a target is, and whether no two are equal."""
    if target is None or source is None or target.size != source.size:
        return None, False
    if np.array_equal(target, source):
        return np.arange(target.size), np.unique(target).size == target.size
    to, of = np.argsort(target, kind="stable"), np.argsort(source, kind="stable")
    ordered = target[to]
    if not np.array_equal(ordered, source[of]):
        return None, False
    order = np.empty(target.size, np.int64)
    order[to] = of
    return order, not bool((ordered[1:] == ordered[:-1]).any())
