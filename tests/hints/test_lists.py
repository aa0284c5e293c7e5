"""The hints for lists of what is no number lead on, whatever stands beside it: pasted, they go in no circle."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hints.pasting import Called, clean, error_text, hint_of, paste

import tensorferry as ferry

TARGETS = ("to_numpy", "to_torch", "to_jax", "to_list")
BEYOND = 2**70
NO_FLOAT = 2**1100
NONE_AMONG = [
    [Fraction(1, 2), None, Fraction(1, 3), Fraction(2, 3)],
    [None, BEYOND, BEYOND, -BEYOND],
    [Decimal(1), Decimal("1.5"), None, Decimal("NaN")],
    [[Decimal(1), None], [Decimal("1.5"), Decimal("0.1")]],
    [[], [[Fraction(1, 3), 0.5], []]],
    [[None, None], np.ones(2)],
    [[[None]], None],
]
MIXED = [
    [Fraction(1, 2), date(2020, 1, 3), date(2020, 1, 4), Fraction(1, 3), date(2020, 1, 7)],
    [[Decimal(1), timedelta(2), Fraction(3)], [timedelta(1), date(2020, 1, 1), 2.5]],
    [date(2020, 1, 1), datetime.fromisoformat("2020-01-01T05:00"), date(2020, 1, 2)],
    [np.datetime64("2020-01-01"), np.datetime64("NaT", "D"), np.datetime64("2020-01-02")],
    [np.datetime64("2020-01-01"), np.timedelta64(1, "s"), np.timedelta64(1, "D"), 1],
    [NO_FLOAT, Decimal(1), NO_FLOAT],
    [np.ones(()), NO_FLOAT, BEYOND],
    [np.ones(()), np.datetime64("NaT", "D")],
    [np.ones(2), [], [BEYOND]],
    [[NO_FLOAT, 1], [2]],
    [[], ["a"]],
    [["a", "b"], ["c"]],
]
WITH_KEYWORDS = [
    ([[0.5], [None, 0.5]], {"nulls": 0}),
    ([[None, None], [None]], {"nulls": 0, "dtype": "int64"}),
    ([[None], [None, None]], {"nulls": "mask"}),
    ([[None, 0.5, False], [None]], {"pad": 0}),
    ([[timedelta(5), None], [False]], {"pad": 0}),
    ([[None, None, 0.5], [None, 0.5]], {"ragged": "rows"}),
    ([[1 + 2j, Decimal(1)], [Fraction(3)], [2]], {"ragged": "rows"}),
    ([[[1e300], [None, None]], [[2.0]]], {"ragged": "rows"}),
    ([[Fraction(1)], [Fraction(7, 3)], [None]], {"nulls": 0}),
    ([Decimal(1), None], {"nulls": "mask"}),
    ([None, 2**53 + 1, BEYOND], {"nulls": "nan"}),
    ([None, 0, 2**53 + 1], {"nulls": "nan"}),
    ([[None, None], [[None]]], {"pad": 0}),
    ([np.datetime64("2020-01-01"), np.datetime64("NaT", "D")], {"nulls": "mask"}),
]


def follow(target, x, keywords):
    """Paste the hint of the error, if the call raises one, and the hints of what that leads to."""
    function = getattr(ferry, target)
    try:
        function(x, **keywords)
    except ferry.ConversionError as error:
        call = Called(target, function, (x,), dict(keywords), hint_of(error), error_text(error))
    else:
        return False
    try:
        paste(call)
    finally:
        clean()
    return True


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("x", [*NONE_AMONG, *MIXED], ids=repr)
def test_a_hint_for_a_list_leads_to_a_result(target, x):
    assert follow(target, x, {})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("x", "keywords"), WITH_KEYWORDS, ids=repr)
def test_a_hint_for_a_list_keeps_the_keywords_of_the_call(target, x, keywords):
    assert follow(target, x, keywords)


def test_an_error_of_a_row_is_about_its_place_in_the_list():
    with pytest.raises(
        ferry.LossyCastError, match=r"The integer at x\[1\]\[1\] stands among floats"
    ):
        ferry.to_numpy([[1, 2], [0.5, 2**53 + 1], [1]], ragged="rows")


def test_all_of_a_kind_are_converted_at_once():
    """Not one by one, which takes as many pastes as there are elements."""
    for x, code in (
        (
            [Fraction(1, 2), None] * 50,
            "[None if number is None else float(number) for number in x]",
        ),
        (
            [date(2020, 1, 1), datetime.fromisoformat("2020-01-01T00:00")],
            'np.array(x, dtype="datetime64").astype("int64")',
        ),
        ([np.datetime64("NaT", "D")] * 50, 'np.array(x).astype("int64")'),
        ([Fraction(1, 2), date(2020, 1, 1)] * 50, 'convert_tree(x, "numpy")'),
    ):
        with pytest.raises(ferry.ConversionError) as raised:
            ferry.to_numpy(x)
        assert raised.value.hint.startswith(code)


LEAVES = [
    st.none(),
    st.sampled_from([Fraction(1, 3), Fraction(BEYOND, 7)]),
    st.sampled_from([Decimal("1.5"), Decimal("1e400"), Decimal("NaN")]),
    st.sampled_from([BEYOND, -(2**65), NO_FLOAT, 2**63]),
    st.sampled_from(["a", "1", ""]),
    st.sampled_from([date(2020, 1, 2), datetime.fromisoformat("2020-01-01T07:00")]),
    st.just(timedelta(3)),
    st.booleans(),
    st.sampled_from([0, -1, 2**53 + 1]),
    st.sampled_from([0.5, float("nan"), float("inf")]),
    st.sampled_from([np.datetime64("2020-01-01"), np.datetime64("NaT", "D")]),
    st.sampled_from([np.float32(1.5), np.int64(2**62)]),
]
KEYWORDS = (
    *({}, {}, {"nulls": "nan"}, {"nulls": 0}, {"nulls": "mask"}, {"pad": 0}),
    *({"pad": 0, "nulls": "nan"}, {"ragged": "rows"}),
)


@st.composite
def lists(draw):
    """Nested lists of two or three kinds, regular or not."""
    kinds = draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=3))
    row = st.lists(st.one_of(kinds), max_size=4)
    return draw(
        st.one_of(row, st.lists(row, max_size=3), st.lists(st.lists(row, max_size=2), max_size=2))
    )


@given(x=lists(), target=st.sampled_from(TARGETS), keywords=st.sampled_from(KEYWORDS))
@settings(max_examples=150)
def test_the_hints_for_any_list_lead_on(x, target, keywords):
    follow(target, x, keywords)
