"""Statistics of tensors: those that NumPy has of the same values, in every dtype, in one pass and little memory."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.files.support import awkward

from tensorferry.core.dtypes import DTYPES
from tensorferry.files.base.stored import Decoded, InMemory
from tensorferry.files.reports.statistics import statistics


def wanted(array):
    """NumPy's own, of all values at once."""
    values = np.abs(array) if array.dtype.kind == "c" else array
    values = values.astype(np.float64)
    finite = values[np.isfinite(values)]
    counts = (int(np.isnan(values).sum()), int(np.isinf(values).sum()))
    if not finite.size:
        return (None, None, 0, *counts)
    return (finite.min(), finite.max(), int((finite == 0).sum()), *counts)


def told(found):
    return (found.smallest, found.largest, found.zeros, found.nans, found.infinite)


@pytest.mark.parametrize(
    "values", [[1.7e308] * 3, [-1.7e308] * 9 + [5e-324], [1e-300] * 4 + [1.7e308] * 4]
)
def test_the_mean_of_large_numbers_is_finite(values):
    """Their sum is beyond any float; one by one, so that blocks of other sizes come after each other."""
    array = np.array(values)
    found = statistics(Decoded("float64", array.shape, lambda: iter(array.reshape(-1, 1)), 0))
    exact = sum(map(Fraction, values)) / len(values)
    assert found.mean == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_has_the_statistics_of_its_values(dtype):
    """All awkward bits: NaN with payloads, infinities, subnormals, both zeros, the ends of the integers."""
    array = awkward(dtype)
    with np.errstate(all="ignore"):
        found, expected = statistics(InMemory(array, dtype, 0)), wanted(array)
    assert told(found) == expected
    assert sum(found.histogram) == array.size - found.nans - found.infinite


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        arrays.arrays(
            "f8", st.integers(0, 40), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
        ),
        max_size=5,
    )
)
def test_any_blocks_have_the_statistics_of_the_whole(blocks):
    """However the values are cut, and however far later ones reach: bins are joined, none is lost."""
    whole = np.concatenate([np.zeros(0), *blocks])
    found = statistics(Decoded("float64", whole.shape, lambda: iter(blocks), 0))
    assert told(found) == wanted(whole)
    assert sum(found.histogram) == whole.size
    if whole.size:
        assert found.mean == pytest.approx(whole.mean(), rel=1e-9, abs=1e-9)


def test_the_spread_is_that_of_the_values():
    """A histogram of ten parts from the smallest to the largest, to within the width of a bin."""
    values = np.random.default_rng(0).standard_normal(100_000)
    found = statistics(Decoded("float64", values.shape, lambda: iter(np.split(values, 10)), 0))
    exact, _ = np.histogram(values, 10)
    assert np.abs(np.array(found.histogram) - exact).max() < 400
    assert statistics(InMemory(np.full(7, 3.0), "float64", 0)).histogram == (7, *[0] * 9)


def test_later_values_may_reach_a_thousand_powers_of_two_further():
    """From the smallest number to the largest, block by block."""
    steps = [np.array([2.0**power]) for power in (-1074, -500, 0, 700, 1023)]
    found = statistics(Decoded("float64", (5,), lambda: iter(steps), 0))
    assert (found.smallest, found.largest, sum(found.histogram)) == (2.0**-1074, 2.0**1023, 5)
