"""A cast gives the nearest value, the same bits for every target, and names the first value it cannot keep."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache
from math import copysign, inf, isfinite, isinf, isnan, nan, prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import registry
from tensorferry.core import dtypes
from tensorferry.host import casts
from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.testing import bits
from tensorferry.testing import strategies as these
from tensorferry.testing.bits import FORMATS

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")
NARROW_FLOATS = [name for name, row in FORMATS.items() if row.kind == "float" and row.bits <= 16]
SMALL = [name for name, row in FORMATS.items() if row.kind != "complex" and row.bits <= 16]


# -- exact: against every value -----------------------------------------------------------------


@cache
def values(dtype):
    """Every value of a dtype, as keys that tell -0.0 from 0.0 and know one NaN."""
    return frozenset(
        key(bits.numbers(dtype, pattern)) for pattern in range(1 << FORMATS[dtype].bits)
    )


def key(value):
    if isinstance(value, float):
        return "nan" if isnan(value) else "-0" if value == 0 and copysign(1, value) < 0 else value
    return value


def holds(dtype, found):
    """Whether a dtype has a value, wide ones by arithmetic."""
    row = FORMATS[dtype]
    if row.bits <= 16 and row.kind != "complex":
        return found in values(dtype)
    if row.kind in ("int", "uint"):
        low, high = (
            (-(1 << row.bits - 1), 1 << row.bits - 1) if row.kind == "int" else (0, 1 << row.bits)
        )
        return (
            not isinstance(found, str)
            and isfinite(found)
            and found == int(found)
            and low <= found < high
        )
    # float32 and float64, alone or as a part: every value of at most 16 bits that fits the
    # exponent.
    if isinstance(found, str) or isinf(found):
        return True
    digits = 24 if row.bits == 32 else 53
    lowest, highest = (-149, 127) if row.bits == 32 else (-1074, 1023)
    exact = Fraction(found)
    if not exact:
        return True
    scale = (exact.denominator & -exact.denominator).bit_length() - 1
    odd = abs(exact.numerator)
    trailing = (odd & -odd).bit_length() - 1
    length, exponent = (odd >> trailing).bit_length(), trailing - scale
    return length <= digits and lowest <= exponent and exponent + length - 1 <= highest


@pytest.mark.parametrize("source", SMALL)
def test_exact_agrees_with_every_value(source):
    """exact(a, b): each value of a is one of b, its sign of zero, infinities and NaN included."""
    order = ("bool", "uint", "int", "float", "complex")
    for target in FORMATS:
        upward = order.index(FORMATS[source].kind) <= order.index(FORMATS[target].kind)
        expected = upward and all(holds(target, found) for found in values(source))
        assert dtypes.holds_exactly(source, target) == expected, (source, target)


@pytest.mark.parametrize("source", SMALL)
def test_an_exact_cast_keeps_every_value(source):
    """What exact() promises, the cast keeps: all patterns of the dtype, to each dtype that it is exact for."""
    row = FORMATS[source]
    content = b"".join(
        pattern.to_bytes(row.itemsize, "little")
        for pattern in range(1 << (1 if row.kind == "bool" else row.bits))
    )
    array = testing.witness_for("numpy").build(content, source, (len(content) // row.itemsize,))
    before = [key(value) for value in bits.decode(source, content)]
    for target in FORMATS:
        if dtypes.holds_exactly(source, target):
            result = casts.cast(array, target, "")
            after = bits.decode(target, result.tobytes())
            after = [value.real if FORMATS[target].kind == "complex" else value for value in after]
            assert [key(value) for value in after] == before, target


# -- rounding -----------------------------------------------------------------------------------


@cache
def grid(dtype):
    """The finite magnitudes of a narrow float in order, with the pattern of each."""
    found = [(bits.numbers(dtype, pattern), pattern) for pattern in range(1 << FORMATS[dtype].bits)]
    return sorted(
        (value, pattern) for value, pattern in found if isfinite(value) and copysign(1, value) > 0
    )


@pytest.mark.parametrize("target", [name for name in NARROW_FLOATS if name != "float8_e8m0fnu"])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_a_rounded_float_is_the_nearest_one(target, data):
    """float32 to a narrower float: the nearest value, the even pattern of two that are equally near."""
    table = grid(target)
    top = table[-1][0]
    index = data.draw(st.integers(0, len(table) - 2))
    low, high = table[index][0], table[index + 1][0]
    between = data.draw(st.sampled_from([0.0, 0.5, 0.25, 0.75]) | st.floats(0, 1))
    number = float(np.float32(low + (high - low) * between))
    assume(number <= top)
    at = bisect_left(table, (number, -1))
    near = table[max(at - 1, 0) : at + 2]
    best = min(abs(Fraction(value) - Fraction(number)) for value, _ in near)
    nearest = [
        (value, pattern)
        for value, pattern in near
        if abs(Fraction(value) - Fraction(number)) == best
    ]
    expected = next((value for value, pattern in nearest if pattern % 2 == 0), nearest[0][0])
    for sign in (1.0, -1.0):
        result = casts.cast(np.array([sign * number], np.float32), target, "")
        assert bits.decode(target, result.tobytes())[0] == sign * expected


@pytest.mark.parametrize("target", FRAMEWORKS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_every_target_gets_the_same_bits(target, data):
    """A cast on the way gives the bits that NumPy gets, whichever framework asks and whichever is asked."""
    source = data.draw(st.sampled_from(FRAMEWORKS))
    dtype = data.draw(these.dtypes(source))
    wanted = data.draw(these.dtypes(target))
    content = data.draw(these.contents(dtype, 6))
    x = testing.witness_for(source).build(content, dtype, (2, 3))
    keywords = {
        "dtype": wanted,
        "casting": data.draw(st.sampled_from([None, "unsafe", "same_value"])),
    }
    plain = testing.witness_for("numpy").build(content, dtype, (2, 3))
    try:
        expected = ferry.to_numpy(plain, **keywords)
    except ferry.LossyCastError as error:
        refusal = error.message
    else:
        refusal = None
    if refusal is not None:
        with pytest.raises(ferry.LossyCastError) as raised:
            ferry.convert(x, target, **keywords)
        assert raised.value.message == refusal
        return
    result = ferry.convert(x, target, **keywords)
    looks = testing.witness_for(target)
    assert looks.dtype(result) == wanted
    assert looks.content(result) == expected.tobytes()


# -- what is not kept ---------------------------------------------------------------------------


@settings(max_examples=examples(150))
@given(data=st.data())
def test_the_first_value_that_is_not_kept_is_named(data):
    """In blocks of any size and any shape: the first position in C order, however many there are."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    bad = sorted(data.draw(st.sets(st.integers(0, prod(shape) - 1), min_size=1, max_size=4)))
    wide, narrow, wrong = data.draw(
        st.sampled_from(
            [
                ("int64", "int8", 200),
                ("int16", "uint8", -1),
                ("float64", "int32", 0.5),
                ("float32", "int8", np.nan),
                ("uint64", "int64", 2**63),
                ("int64", "float32", 2**24 + 1),
                ("int64", "float64", 2**63 - 1),
                ("complex64", "float32", 1j),
                ("float64", "uint8", -1.0),
                ("float32", "uint64", 2.0**64),
                ("float64", "bool", 2.0),
            ]
        )
    )
    array = np.ones(shape, wide)
    array.reshape(-1)[bad] = wrong
    if data.draw(st.booleans()):
        array = np.asfortranarray(array)
    position = [int(part) for part in np.unravel_index(bad[0], shape)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(casts, "BLOCK", data.draw(st.integers(1, 20)))
        with pytest.raises(ferry.LossyCastError) as raised:
            ferry.to_numpy(array, dtype=narrow)
        assert f"the value at {position} " in raised.value.message
        array[...] = 1
        assert (ferry.to_numpy(array, dtype=narrow) == 1).all()


@pytest.mark.parametrize(
    "index", [0, casts.BLOCK - 1, casts.BLOCK, casts.BLOCK + 1, 2 * casts.BLOCK + 2]
)
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
def test_a_value_at_the_edge_of_a_block_is_seen(target, index):
    """The first and the last element of a real block, and of the array, are compared like any other."""
    array = np.ones(2 * casts.BLOCK + 3, np.int64)
    array[index] = 2**40
    with pytest.raises(ferry.LossyCastError, match=rf"\[{index}\]"):
        ferry.convert(array, target, dtype="int32")


@settings(max_examples=examples(100))
@given(data=st.data())
def test_blocks_do_not_show(data):
    """Cast in blocks of any size, an array is what it is cast at once."""
    dtype, wanted = data.draw(these.dtypes("numpy")), data.draw(these.dtypes("numpy"))
    array = testing.witness_for("numpy").lay(data.draw(these.images(dtype)), dtype)
    once = casts.cast(array, wanted, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(casts, "BLOCK", data.draw(st.integers(1, 8)))
        try:
            parts = casts.cast(array, wanted, "value")
        except ferry.LossyCastError:
            return
    assert parts.tobytes() == once.tobytes()
    assert parts.shape == array.shape


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_zero_is_no_nan_where_there_is_none(dtype):
    """A dtype without NaN takes one for zero on the way back: that does not show that the value was kept."""
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy(
            ferry.to_numpy([0, 1], dtype=dtype), dtype="float8_e8m0fnu", casting="same_value"
        )


@settings(max_examples=examples(200))
@given(data=st.data())
def test_a_value_is_kept_or_refused(data):
    """casting="same_value" gives equal numbers, or raises where one is not a value of the dtype."""
    dtype = data.draw(
        st.sampled_from([name for name in FORMATS if FORMATS[name].kind != "complex"])
    )
    wanted = data.draw(
        st.sampled_from([name for name in FORMATS if FORMATS[name].kind != "complex"])
    )
    content = data.draw(these.contents(dtype, 1))
    (number,) = bits.decode(dtype, content)
    array = testing.witness_for("numpy").build(content, dtype, (1,))
    try:
        result = ferry.to_numpy(array, dtype=wanted, casting="same_value")
    except ferry.LossyCastError:
        assert FORMATS[wanted].bits > 16 or not is_value(wanted, number)
        return
    (after,) = bits.decode(wanted, result.tobytes())
    assert (isnan(number) and isnan(after)) or after == number


def is_value(dtype, number):
    return any(found == number for found in values(dtype) if not isinstance(found, str)) or (
        key(number) == "nan" and "nan" in values(dtype)
    )


@pytest.mark.parametrize("wanted", ["complex64", "float64", "float32", "int32", "bool"])
def test_what_a_refused_cast_says_to_type_works(wanted):
    """The hint names no dtype that the target lacks or that `out` rules out: typed in, it converts."""
    calls = [
        lambda **more: ferry.to_numpy(
            np.array([complex(np.nan, 5 + 2**-40)]),
            dtype=wanted,
            **{"casting": "same_value", **more},
        ),
        lambda **more: ferry.to_numpy([1.5, 2], out=np.zeros(2, np.int32), **more),
        lambda **more: ferry.to_jax([1e300], **more),
        lambda **more: ferry.to_jax(np.array([2**40]), dtype="default", **more),
    ]
    for call in calls:
        with pytest.raises(ferry.LossyCastError) as caught:
            call()
        first = (
            "to_numpy(x).real in its place"
            if "an imaginary part" in caught.value.message
            else 'casting="unsafe"'
        )
        assert caught.value.hint.startswith(first)
        assert len(call(casting="unsafe")) in (1, 2)


@pytest.mark.parametrize("wanted", ["complex64", "float64", "float32", "int32", "bool"])
def test_a_nan_in_one_part_of_a_complex_number_hides_nothing_of_the_other(wanted):
    """Each part is kept or refused for itself, and what a real dtype has no place for is refused."""
    lost = (
        [complex(np.nan, 5.0)]
        if wanted != "complex64"
        else [complex(np.nan, 1 + 2**-40), complex(1 + 2**-40, np.nan)]
    )
    for number in lost:
        with pytest.raises(ferry.LossyCastError, match=r"does not fit|has an imaginary part"):
            ferry.to_numpy(np.array([number]), dtype=wanted, casting="same_value")
    kept = ferry.to_numpy(np.array([complex(np.nan, 0.5)]), dtype="complex64", casting="same_value")
    assert np.isnan(kept.real[0])
    assert kept.imag[0] == 0.5
    assert np.isnan(ferry.to_numpy(np.array([complex(np.nan, 0.0)]), dtype="float32")).all()
    for number in (complex(np.nan, 1e300), complex(1e300, np.nan)):
        with pytest.raises(ferry.LossyCastError, match="does not fit"):
            ferry.to_torch([number])


@pytest.mark.parametrize("narrow", ["int8", "uint16", "int32", "uint64"])
def test_integers_are_compared_alike_by_numpy_and_in_blocks(narrow, monkeypatch):
    """NumPy's own comparison, where it has one, refuses what ours refuses: either side of every power of two."""
    edges = [
        sign * 2**power + more for power in range(64) for sign in (1, -1) for more in (-1, 0, 1)
    ]
    for wide in ("int16", "int32", "int64", "uint32", "uint64"):
        row = np.iinfo(wide)
        for number in (edge for edge in edges if row.min <= edge <= row.max):
            array, outcomes = np.array([0, number], wide), set()
            for compares in {casts._COMPARES, False}:
                monkeypatch.setattr(casts, "_COMPARES", compares)
                try:
                    outcomes.add(casts.cast(array, narrow, "value").tobytes())
                except ferry.LossyCastError as error:
                    outcomes.add(error.message)
            assert len(outcomes) == 1


def test_values_in_the_other_byte_order_are_kept_or_refused_alike():
    """The order of a float64's bytes changes nothing of what is compared."""
    for number, dtype in (
        (1.1, "float32"),
        (1e300, "float32"),
        (0.1, "bfloat16"),
        (2.0**-140, "float16"),
    ):
        for order in "<>":
            with pytest.raises(ferry.LossyCastError):
                ferry.to_numpy(np.array([number], f"{order}f8"), dtype=dtype, casting="same_value")
    for order in "<>":
        near = np.array([np.nextafter(7.0, 0.0)], f"{order}f8")
        assert ferry.to_numpy(near, dtype="float4_e2m1fn").astype(np.float32) == [6.0]


@pytest.mark.parametrize("name", [name for name in NARROW_FLOATS if FORMATS[name].bits <= 8])
def test_a_value_between_narrow_floats_is_kept_or_refused(name):
    """Every pattern to every other float of at most 8 bits: where one saturates, the way back hides what was lost."""
    patterns = range(1 << FORMATS[name].bits)
    for other in (each for each in NARROW_FLOATS if FORMATS[each].bits <= 8 and each != name):
        for pattern in patterns:
            array = np.array([pattern], np.uint8).view(numpy_dtype(name))
            try:
                found = ferry.to_numpy(array, dtype=other, casting="same_value").view(np.uint8)
            except ferry.LossyCastError:
                continue
            before, after = (
                bits.numbers(each, at) for each, at in ((name, pattern), (other, int(found[0])))
            )
            assert before == after or (isnan(before) and isnan(after)), (other, pattern)


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_lists_of_every_narrow_value_raise_no_flag(name):
    """Python scalars of every bit pattern, signalling NaNs too, even where NumPy raises at the least flag."""
    row = FORMATS[name]
    patterns = np.arange(1 << row.bits, dtype=f"uint{8 * dtypes.find(name).itemsize}")
    with np.errstate(all="raise"):
        found = ferry.to_list(patterns.view(numpy_dtype(name)))
    assert [key(number) for number in found] == [
        key(bits.numbers(name, int(pattern))) for pattern in patterns
    ]


def test_a_float_that_python_gave_never_becomes_infinite():
    """Finite Python floats beyond float32 raise for targets whose own float is float32."""
    for target in ("torch", "tensorflow", "jax"):
        with pytest.raises(ferry.LossyCastError, match=r"\[1\]"):
            ferry.convert([inf, 1e39], target)
        assert ferry.to_list(ferry.convert([inf, -inf], target)) == [inf, -inf]
    assert registry.ready("numpy").capabilities.dtypes.default("float") == "float64"


# -- floats without NaN, a sign or zero -----------------------------------------------------------

LACKING = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e8m0fnu")
WIDER = ("float8_e5m2", "float16", "bfloat16", "float32", "float64")


def rounds(target, number):
    """Whether a number, or NaN, only rounds in one of them: by the list of its values alone."""
    held = values(target)
    if isnan(number):
        return "nan" in held
    table = grid(target)
    (below, _), (top, _) = table[-2:]
    if "nan" not in held:
        return abs(number) < top + (top - below) / 2
    return table[0][0] <= number <= top


@pytest.mark.parametrize("target", LACKING)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_what_a_float_has_no_place_for_raises(target, data):
    """NaN, an infinity, too large, 0 or a sign that it lacks: the position is named; everything else rounds."""
    source = data.draw(st.sampled_from(WIDER))
    content = data.draw(these.contents(source, 1))
    (number,) = bits.decode(source, content)
    top = grid(target)[-1][0]
    # Above the largest power of two, and below the smallest, the nearest is a matter of the
    # library's.
    assume("nan" not in values(target) or not (0 < number < 2.0**-126 or top < number < 2 * top))
    array = testing.witness_for("numpy").build(content, source, (1,))
    array = np.concatenate([np.ones(2, array.dtype), array])
    if rounds(target, number):
        assert isnan(number) or isfinite(ferry.to_numpy(array, dtype=target).astype(np.float64)[2])
        return
    with pytest.raises(ferry.LossyCastError, match=r"the value at \[2\] does not fit") as raised:
        ferry.to_numpy(array, dtype=target)
    assert 'casting="unsafe"' in raised.value.hint
    assert ferry.to_numpy(array, dtype=target, casting="unsafe").shape == (3,)


@pytest.mark.parametrize("target", LACKING)
def test_the_edges_of_such_a_float(target):
    """Halfway to what would be the next number raises, the float below it does not; NaN, 0 and -1 as they are held."""
    (below, _), (top, _) = grid(target)[-2:]
    signs = [1.0] if target == "float8_e8m0fnu" else [1.0, -1.0]
    half = top + (top - below) / 2
    wrong = [
        inf,
        -inf,
        *((0.0, -0.0, -1.0) if len(signs) == 1 else (nan, *(sign * half for sign in signs))),
    ]
    right = [sign * number for sign in signs for number in (top, 1.0)] + (
        [nan] if len(signs) == 1 else [0.0, -0.0]
    )
    if len(signs) == 2:
        right += [sign * float(np.nextafter(half, 0)) for sign in signs]
    for source in ("float64", "float32"):
        for number in wrong:
            for x in (np.array([number], source), [number], np.array(number, source)):
                with pytest.raises(ferry.LossyCastError):
                    ferry.to_numpy(x, dtype=target)
            out = np.ones(1, numpy_dtype(target))
            with pytest.raises(ferry.LossyCastError):
                ferry.to_numpy(np.array([number], source), out=out)
            assert out.astype(np.float32) == 1
    assert ferry.to_numpy(right, dtype=target).astype(np.float64).shape == (len(right),)


@pytest.mark.parametrize("target", [name for name in NARROW_FLOATS if name not in LACKING])
def test_the_usual_floats_are_not_looked_at(target):
    """What has a sign, zero and NaN takes every float: no value is compared, so none can raise."""
    assert dtypes.casting_scale("float64", target, None).check == ""
    numbers = np.array([nan, inf, -inf, 1e300, -1e300, 0.0, -0.0, 5e-324])
    assert isnan(ferry.to_numpy(numbers, dtype=target).astype(np.float64)[0])


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_a_backends_own_cast_looks_at_values(framework):
    """What is cast where it lies, as on a device, is compared and rounded as on the host."""
    backend = registry.ready(framework)
    x = ferry.convert(np.array([1, 300], np.int32), framework)
    with pytest.raises(ferry.LossyCastError, match=r"\[1\]"):
        backend.cast(x, "int8", "value")
    assert ferry.to_list(backend.cast(x, "int8")) == [1, 44]
    numbers = np.array([500.0, 1e6, -448.0, 2**-9], np.float32)
    there = backend.cast(ferry.convert(numbers, framework), "float8_e4m3fn")
    assert (
        ferry.to_numpy(there).tobytes() == ferry.to_numpy(numbers, dtype="float8_e4m3fn").tobytes()
    )
