"""Decimals: integers where they have no fraction, floats where one is named; each against Python's fractions."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")

KINDS = {
    32: (pa.decimal32, 9),
    64: (pa.decimal64, 18),
    128: (pa.decimal128, 38),
    256: (pa.decimal256, 76),
}
GARBAGE = -(2**31) + 1
"""What stands where a decimal is missing: it is nobody's value."""


@st.composite
def decimals(draw, scales=None):
    """(fractions or None, the same as an array of Arrow's, sliced)."""
    make, most = KINDS[draw(st.sampled_from([*KINDS]))]
    scale = draw(st.integers(-3, most) if scales is None else scales)
    near = st.builds(lambda power, more: 2**power + more, st.integers(0, 64), st.integers(-2, 2))
    any_of_them = st.integers(-(10**most) + 1, 10**most - 1)
    number = st.one_of(any_of_them, near.filter(lambda each: each < 10**most), st.none())
    numbers = draw(st.lists(number, max_size=5))
    kind = make(most, scale)
    data = b"".join(
        (GARBAGE if n is None else n).to_bytes(kind.byte_width, "little", signed=True)
        for n in numbers
    )
    valid = np.packbits(
        np.array([n is not None for n in numbers], bool), bitorder="little"
    ).tobytes()
    array = pa.Array.from_buffers(kind, len(numbers), [pa.py_buffer(valid), pa.py_buffer(data)])
    start = draw(st.integers(0, len(numbers)))
    return [
        None if n is None else Fraction(n) / Fraction(10) ** scale for n in numbers[start:]
    ], array[start:]


@settings(max_examples=examples(300), deadline=None)
@given(decimals())
def test_a_decimal_is_rounded_once_to_the_float_that_is_named(drawn):
    """To the nearest; float32 and float16 too, not by way of float64."""
    exact, array = drawn
    for dtype, bits in (("float64", "int64"), ("float32", "int32"), ("float16", "int16")):
        with np.errstate(over="ignore"):
            found = ferry.to_numpy(array, dtype=dtype, nulls="nan")
        assert found.dtype == dtype
        for number, fraction in zip(found, exact, strict=True):
            if fraction is None:
                assert np.isnan(number)
            elif np.isfinite(number):
                error = abs(Fraction(float(number)) - fraction)
                for other in (
                    np.nextafter(number, np.array(way, dtype)) for way in (np.inf, -np.inf)
                ):
                    apart = (
                        abs(Fraction(float(other)) - fraction) if np.isfinite(other) else error + 1
                    )
                    assert error < apart or (error == apart and number.view(bits) & 1 == 0)
            else:
                assert abs(fraction) > Fraction(float(np.finfo(dtype).max))


@settings(max_examples=examples(200), deadline=None)
@given(decimals(st.integers(-3, 0)))
def test_decimals_without_a_fraction_are_integers(drawn):
    """int64, or what is named, if each fits; else the error says so."""
    exact, array = drawn
    expected = [7 if each is None else int(each) for each in exact]
    for said, dtype in (
        ({}, "int64"),
        ({"dtype": "uint64"}, "uint64"),
        ({"dtype": "int8"}, "int8"),
    ):
        limits = np.iinfo(dtype)
        if all(limits.min <= each <= limits.max for each in expected):
            found = ferry.to_numpy(array, nulls=7, **said)
            assert found.dtype == dtype
            assert found.tolist() == expected
        else:
            with pytest.raises(ferry.LossyCastError, match="does not fit"):
                ferry.to_numpy(array, nulls=7, **said)


def test_a_number_between_two_of_float32_is_not_rounded_twice():
    """A decimal a hair beside the middle: by way of float64 it would be the middle, and go to the even one."""
    kind = pa.decimal128(38, 33)
    middle = Decimal(1 + 2**-24)
    hair = Decimal(1).scaleb(-33)
    upwards = float(np.nextafter(np.float32(1), np.float32(2)))
    with localcontext() as context:
        context.prec = 50
        x = pa.array([middle, middle + hair, middle - hair], kind)
    assert (
        ferry.to_list(x, dtype="float32")
        == ferry.to_torch(x, dtype="float32").tolist()
        == [1, upwards, 1]
    )


def test_decimals_with_a_fraction_are_refused_without_a_float():
    """With the line that works, alone, in a table and in a tree; and where nothing may be rounded."""
    pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
    pl = pytest.importorskip("polars", reason="polars is not in this environment")
    array = pa.array([Decimal("1.10"), Decimal("-3.25")])
    for x in (array, pl.from_arrow(array), pd.Series(array, dtype=pd.ArrowDtype(array.type))):
        with pytest.raises(ferry.UnsupportedTypeError, match="decimals with a fraction") as caught:
            ferry.to_torch(x)
        assert caught.value.hint == 'to_torch(x, dtype="float64"), which rounds'
        for said in ({"dtype": "int64"}, {"dtype": "float64", "casting": "same_value"}):
            with pytest.raises(ferry.UnsupportedTypeError, match="decimals with a fraction"):
                ferry.to_torch(x, **said)
        with pytest.raises(ferry.UnsupportedTypeError, match="decimals") as caught:
            ferry.convert_tree({"p": x}, "torch")
        assert caught.value.hint == 'convert_tree(x, "torch", dtype={"p": "float64"}), which rounds'
        for said in (
            {"dtype": "float64"},
            {"dtype": {"p": "float64"}},
            {"dtype": "float64", "nulls": "mask"},
        ):
            assert ferry.convert_tree({"p": x}, "torch", **said)["p"].tolist() == [1.1, -3.25]
        with pytest.raises(ferry.CopyRequiredError, match="decimals"):
            ferry.to_numpy(x, dtype="float64", copy=False)
    table = pa.table({"a": [1.5, 2.5], "p": array})
    with pytest.raises(ferry.UnsupportedTypeError, match="Column 'p'") as caught:
        ferry.to_torch(table)
    assert caught.value.hint == 'to_torch(x, dtype="float64"), which rounds'
    assert (
        ferry.to_torch(table, dtype="float32").tolist()
        == torch.tensor([[1.5, 1.1], [2.5, -3.25]]).tolist()
    )


def test_integers_stay_integers_where_floats_are_asked_for_in_a_tree():
    """A sum of DuckDB's is a decimal without a fraction; one that is too large is refused by its row."""
    table = pa.table(
        {
            "n": pa.array([1, 2]).cast(pa.decimal128(38)),
            "p": pa.array([Decimal("0.5"), Decimal("1.5")]),
        }
    )
    found = ferry.convert_tree(table, "torch", dtype="float32")
    assert (found["n"].dtype, found["p"].dtype) == (torch.int64, torch.float32)
    large = pa.chunked_array(
        [pa.array([Decimal(1)], pa.decimal128(38)), pa.array([Decimal(2**70)], pa.decimal128(38))]
    )
    with pytest.raises(ferry.LossyCastError, match=r"to int64: the value at row 1 does not fit"):
        ferry.to_torch(large)
    assert ferry.to_torch(large, dtype="float64").tolist() == [1, 2.0**70]


def test_decimals_in_lists_and_dictionaries():
    """As other numbers."""
    x = pa.array([[Decimal("1.5"), None], [Decimal("2.5"), Decimal("0.5")]])
    assert ferry.to_list(x, dtype="float64", nulls=0) == [[1.5, 0], [2.5, 0.5]]
    encoded = pa.array([Decimal("1.5"), None, Decimal("1.5")]).dictionary_encode()
    assert ferry.to_list(encoded, dtype="float64", nulls=0) == [1.5, 0, 1.5]
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 1") as caught:
        ferry.to_torch(encoded.dictionary_decode(), dtype="float64")
    assert caught.value.hint.startswith('to_torch(x, dtype="float64", nulls="nan")')


def test_an_error_about_a_decimal_names_its_row():
    """Not its place in a dictionary, in runs, or among the elements of lists; values without a row do not matter."""
    values = pa.array([Decimal(2**70), Decimal(5)], pa.decimal128(38, 0))
    codes = pa.DictionaryArray.from_arrays(pa.array([1, None, 1, 0]), values)
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([3, 4], "int32"), values.take(pa.array([1, 0]))
    )
    lists = pa.array([[5], [5, 5, 5], [], [2**70]], pa.list_(values.type))
    for x, keywords in (
        (codes, {"nulls": 0}),
        (runs, {}),
        (lists, {"pad": 0}),
        (lists, {"ragged": "rows"}),
    ):
        with pytest.raises(ferry.LossyCastError, match="at row 3 does not fit"):
            ferry.to_numpy(x, **keywords)
    assert ferry.to_list(codes[:3], nulls=0) == [5, 0, 5]
    assert ferry.to_list(runs[:2]) == [5, 5]
    assert ferry.to_list(codes, dtype="float64", nulls="nan")[2:] == [5.0, 2.0**70]
    named = ferry.convert_tree({"d": codes}, "numpy", dtype={"d": "float32"}, nulls=0)["d"]
    assert (named.dtype, named.tolist()) == ("float32", [5, 0, 5, 2**70])


@settings(max_examples=examples(100), deadline=None)
@given(decimals())
def test_decimals_of_python_in_pandas_are_read_as_those_of_arrow(drawn):
    """What a query of a database gives: the same numbers, the same errors, and NaN or None for what is missing."""
    pd = pytest.importorskip("pandas")
    exact, array = drawn
    if all(each is None for each in exact):
        return
    x = pd.Series(array.to_pylist(), dtype=object)
    for dtype in ("float64", "float32", "float16"):
        with np.errstate(over="ignore"):
            expected = ferry.to_numpy(array, dtype=dtype, nulls="nan")
            assert np.array_equal(
                ferry.to_numpy(x, dtype=dtype, nulls="nan"), expected, equal_nan=True
            )
    if all(each is None or (each.denominator == 1 and abs(each) < 2**63) for each in exact):
        whole = pd.Series(
            [None if each is None else Decimal(int(each)) for each in exact], dtype=object
        )
        assert ferry.to_numpy(whole, nulls=0).tolist() == [
            0 if each is None else int(each) for each in exact
        ]


def test_decimals_of_python_with_a_fraction_name_the_dtype():
    """In a column, a frame and a tree; what is no number has an error of its own."""
    pd = pytest.importorskip("pandas")
    x = pd.Series([Decimal("1.10"), None, np.nan, Decimal("-2.5")], dtype=object)
    with pytest.raises(ferry.UnsupportedTypeError, match="decimals with a fraction") as caught:
        ferry.to_numpy(x)
    assert caught.value.hint.startswith('to_numpy(x, dtype="float64", nulls="nan")')
    values, mask = ferry.to_numpy(x, dtype="float64", nulls="mask")
    assert (values.tolist(), mask.tolist()) == ([1.1, 0.0, 0.0, -2.5], [True, False, False, True])
    tree = ferry.convert_tree(
        pd.DataFrame({"p": x[[0, 3]], "n": [1, 2]}), "numpy", dtype={"p": "float32"}
    )
    assert tree["p"].tolist() == np.float32([1.1, -2.5]).tolist()
    for odd in ("NaN", "Infinity"):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=f"a decimal that is no number, {odd} at row 1"
        ):
            ferry.to_numpy(pd.Series([Decimal(1), Decimal(odd)]), dtype="float64")
