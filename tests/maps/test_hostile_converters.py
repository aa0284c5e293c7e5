"""Converters that change few bits, choose by values or by chance, or give what is no dict of tensors."""

from __future__ import annotations

import numpy as np
import pytest
from tests.maps import converters
from tests.maps.test_tracing import (
    PLAIN,
    assert_same,
    carried_out,
    given_by,
    headers,
    said,
    traced,
    weights,
)

from tensorferry.errors import ConversionError

pytest.importorskip("torch")

PAIR = headers(q=(24, 24), q2=(24, 24), b=(24,))


def test_what_is_chosen_by_chance_is_not_said_to_be_dropped():
    """It is from the source, though nobody knows from where."""
    table = traced("rows_in_an_order_of_chance", PLAIN)
    assert said(table) == {"w": '{ reason = "depends on chance" }', "b": '"b"'}
    assert table.dropped == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("with_zero_added", "w"),
        ("with_one_nan", "w"),
        ("without_subnormals", "w"),
        ("without_signs", "w"),
        ("without_fractions", "w"),
        ("rounded", "w"),
        ("remainders", "w"),
        ("softmaxed", "w"),
        ("larger_of_two", "w"),
        ("through_wide", "w"),
        ("in_eight_bits", "q scale"),
    ],
)
def test_what_keeps_most_numbers_is_arithmetic(name, outputs):
    """A zero without its sign, a NaN of other bits: what is beside it still has its rule."""
    table = traced(name, PAIR if name == "larger_of_two" else PLAIN)
    wanted = dict.fromkeys(outputs.split(), '{ reason = "arithmetic" }')
    assert said(table) == {**wanted, "b": '"b"'}
    assert table.dropped == ()


@pytest.mark.slow
def test_a_branch_that_only_nan_takes_depends_on_values():
    """No number of those that trace has a NaN; random bits have."""
    table = traced("turned_if_nan", PLAIN)
    assert said(table) == {"w": '{ reason = "depends on values" }', "b": '"b"'}


@pytest.mark.slow
def test_a_branch_that_real_weights_take_depends_on_values():
    """Where nothing else takes it."""
    real = {
        "w": np.nextafter(np.full((24, 24), 0.5, np.float32), np.arange(24, dtype=np.float32)),
        "b": np.zeros(24, np.float32),
    }
    name = "turned_by_the_sizes_of_values"
    assert said(traced(name, PLAIN))["w"] == '"w"'
    table = traced(name, PLAIN, verify_with=real)
    assert said(table)["w"] == '{ reason = "depends on values" }'


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["rows_in_a_seeded_order", "rows_by_a_table", "upper_part", "through_pairs"]
)
def test_what_only_looks_like_arithmetic_is_exact(name):
    """An order without a formula, rows that are there twice, a triangle, complex numbers."""
    table = traced(name, PLAIN)
    assert table.complete
    arrays = weights(PLAIN)
    ours, theirs = carried_out(table, arrays), given_by(getattr(converters, name), arrays)
    assert ours.keys() == theirs.keys()
    for each, array in ours.items():
        assert_same(array, theirs[each])


@pytest.mark.slow
def test_the_bits_of_a_narrower_dtype_are_a_view():
    """Twice as many columns."""
    table = traced("as_bits_of_half", PLAIN)
    assert said(table)["w"] == '{ view = "float16", from = "float32", of = "w" }'


@pytest.mark.slow
def test_numbers_as_keys_are_names():
    """As they are written."""
    assert said(traced("with_numbers_for_names", PLAIN)) == {"0": '"w"', "1": '"b"'}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("for_one_size_only", "wanted 4096 rows, got 24"),
        ("recursive", "nested too deeply"),
    ],
)
def test_what_cannot_be_traced_is_an_error_that_says_why(name, words):
    """With what the converter says itself, and what to try."""
    with pytest.raises(ConversionError, match=words):
        traced(name, PLAIN)
