"""Positions that are made when they are needed are those of an array of NumPy that has them all."""

from __future__ import annotations

import numpy as np
import pytest

from tensorferry.maps.fitting import fitted
from tensorferry.maps.index_boxes import IndexLines, IndexPart, index_of_part, index_of_parts


def one_part(shape, groups, start=7):
    """The positions of one part with random numbers, and the same as an array."""
    random = np.random.default_rng(0)
    lines, whole = [], np.full(shape, start, np.int64)
    for first, last in groups:
        numbers = random.integers(0, 1000, shape[first:last])
        lines.append(IndexLines(first, last, numbers))
        whole += numbers.reshape((1,) * first + numbers.shape + (1,) * (len(shape) - last))
    return IndexPart(start, tuple(lines)), whole


SHAPES = {
    "one axis": ((12,), [(0, 1)]),
    "two": ((6, 4), [(0, 1), (1, 2)]),
    "two as one": ((6, 4), [(0, 2)]),
    "some as one": ((3, 4, 5, 2), [(0, 1), (1, 3), (3, 4)]),
    "an axis of one": ((3, 1, 5), [(0, 1), (2, 3)]),
    "nothing along one": ((3, 4, 5), [(1, 2)]),
}


def assert_the_same(index, whole):
    """All of it, lines, boxes, elements, and elements at places."""
    assert (index.shape, index.ndim, index.size) == (whole.shape, whole.ndim, whole.size)
    assert np.array_equal(np.asarray(index), whole)
    assert int(index[(0,) * whole.ndim]) == whole[(0,) * whole.ndim]
    random = np.random.default_rng(1)
    for axis, length in enumerate(whole.shape):
        place = [int(random.integers(each)) for each in whole.shape]
        place[axis] = slice(None)
        assert np.array_equal(index[tuple(place)], whole[tuple(place)])
        before = (slice(None),) * axis
        for part in (slice(0, length), slice(length // 2, length), length - 1):
            assert np.array_equal(np.asarray(index[(*before, part)]), whole[(*before, part)])
    places = tuple([random.integers(length, size=20) for length in whole.shape])
    assert np.array_equal(index[places], whole[places])


@pytest.mark.parametrize("name", SHAPES)
def test_one_part(name):
    shape, groups = SHAPES[name]
    part, whole = one_part(shape, groups)
    assert_the_same(index_of_part(shape, part), whole)


def several(shape, axis, period, counts):
    """The positions of parts side by side, and the same as an array."""
    rows = shape[axis] // period
    parts, arrays = [], []
    for number, count in enumerate(counts):
        own = (*shape[:axis], rows, count, *shape[axis + 1 :])
        part, whole = one_part(own, [(at, at + 1) for at in range(len(own))], 10_000 * number)
        parts.append(part)
        arrays.append(whole)
    whole = np.concatenate(arrays, axis + 1).reshape(shape)
    return index_of_parts(shape, axis, period, counts, parts), whole


PARTS = [
    ((6, 4), 0, 6, [2, 3, 1]),
    ((6, 4), 1, 4, [1, 3]),
    ((12, 5), 0, 4, [1, 3]),
    ((3, 12, 2), 1, 6, [2, 2, 2]),
]


@pytest.mark.parametrize(("shape", "axis", "period", "counts"), PARTS)
def test_parts_side_by_side(shape, axis, period, counts):
    index, whole = several(shape, axis, period, counts)
    assert_the_same(index, whole)
    split = (*shape[:axis], shape[axis] // period, period, *shape[axis + 1 :])
    assert_the_same(index.reshape(split), whole.reshape(split))
    halves = (*shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :])
    assert_the_same(index.reshape(halves), whole.reshape(halves))
    cut = (slice(None),) * axis
    part = (*cut, slice(1, shape[axis] - 1))
    assert_the_same(index[part], whole[part])


def assert_separate(index):
    """What one group of axes adds is the same wherever one is along the others."""
    whole = np.asarray(index)
    first = whole[(0,) * whole.ndim]
    total = np.full(whole.shape, first)
    groups = index.separate_axes()
    assert sorted(axis for group in groups for axis in group) == [*range(whole.ndim)]
    for group in groups:
        which = tuple(slice(None) if axis in group else slice(1) for axis in range(whole.ndim))
        total = total + (whole[which] - first)
    assert np.array_equal(total, whole)
    return groups


@pytest.mark.parametrize(("shape", "axis", "period", "counts"), PARTS)
def test_axes_that_are_compared_alone(shape, axis, period, counts):
    """Of several parts none is; within one of them, all are."""
    index, _ = several(shape, axis, period, counts)
    split = (*shape[:axis], shape[axis] // period, period, *shape[axis + 1 :])
    cut = (slice(None),) * (axis + 1)
    for box in (index, index.reshape(split)):
        assert_separate(box)
    within = index.reshape(split)[(*cut, slice(0, counts[0]))]
    assert len(assert_separate(within)) == len(shape)
    halves = within.reshape((*within.shape[:axis], 1, *within.shape[axis:]))
    assert_separate(halves)


def test_groups_of_axes_are_compared_together():
    part, _ = one_part((6, 4, 5), [(0, 2), (2, 3)])
    index = index_of_part((6, 4, 5), part)
    assert sorted(assert_separate(index)) == [[0, 1], [2]]
    assert sorted(assert_separate(index.reshape((2, 3, 4, 5)))) == [[0, 1, 2], [3]]


def test_a_fit_is_the_same_as_of_the_array():
    """A joined tensor with a period, as of heads: cut and split while it is fitted."""
    sources = dict.fromkeys("qkv", (4, 3, 5))
    parts, arrays = [], []
    for number in range(3):
        numbers = np.arange(60).reshape(4, 3, 5) + 60 * number
        arrays.append(numbers)
        lines = [np.arange(4) * 15, np.arange(3) * 5, np.arange(5)]
        groups = [IndexLines(axis, axis + 1, each) for axis, each in enumerate(lines)]
        parts.append(IndexPart(60 * number, tuple(groups)))
    whole = np.concatenate(arrays, 1).reshape(36, 5)
    index = index_of_parts((36, 5), 0, 9, [3, 3, 3], parts)
    assert np.array_equal(np.asarray(index), whole)
    assert fitted(index, (36, 5), sources) == fitted(whole.reshape(-1), (36, 5), sources)
