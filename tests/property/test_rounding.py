"""H101 and H106: every cast rounds the exact value once, and what an unsafe cast makes an integer of is arithmetic.

The oracles are exact rational numbers and Python's own integers. What a dtype's bits mean is told
by the definitions of the formats (`tensorferry.testing.bits`), which use neither NumPy nor
ml_dtypes.
"""

from __future__ import annotations

import itertools
import random
import threading
from fractions import Fraction
from functools import cache
from math import inf, isinf, isnan, nan, nextafter

import numpy as np
import pytest
from tests.support import examples

import tensorferry as ferry
from tensorferry.host.extensions import c_extension
from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.testing.bits import FORMATS, numbers

torch = pytest.importorskip("torch")

NARROW = [name for name, row in FORMATS.items() if row.kind == "float" and row.bits <= 16]
HAVE_ZERO = [name for name in NARROW if name != "float8_e8m0fnu"]


# -- the nearest value, ties to even --------------------------------------------------------------


@cache
def ladder(dtype):
    """All finite values that are not negative, in order, with the bits of each."""
    row = FORMATS[dtype]
    top = 1 << (row.bits - 1) if row.specials != "scale" else 1 << row.bits
    pairs = [(numbers(dtype, pattern), pattern) for pattern in range(top)]
    return sorted(
        (value, pattern) for value, pattern in pairs if not (isnan(value) or isinf(value))
    )


@cache
def halfway_points(dtype):
    """The points in the middle between two neighbours, and the value to which each is rounded: that of even bits.

    After the last there is none, but for a dtype with an infinity, where the next step would be.
    All values of float8_e8m0fnu have one digit, which is odd: then the larger one is taken (IEEE
    754-2019, 4.3.1).
    """
    values = ladder(dtype)
    points = []
    for (low, bits), (high, more) in itertools.pairwise(values):
        is_low = bits % 2 == 0 and FORMATS[dtype].specials != "scale"
        points.append(((Fraction(low) + Fraction(high)) / 2, low, high, low if is_low else high))
        assert bits + 1 == more
    if FORMATS[dtype].specials == "ieee":
        (before, _), (last, bits) = values[-2:]
        points.append(
            (
                Fraction(last) + (Fraction(last) - Fraction(before)) / 2,
                last,
                inf,
                inf if bits % 2 else last,
            )
        )
    return points


def around(point):
    """The point as a float64, if it is one, and its neighbours; and floats that float32 takes for the point."""
    middle = float(point)
    assert Fraction(middle) == point
    for value in (
        middle,
        nextafter(middle, 0),
        nextafter(middle, inf),
        middle * (1 - 2**-40),
        middle * (1 + 2**-40),
    ):
        yield value
        yield -value


def nearest(value, point, low, high, even):
    exact = abs(Fraction(value))
    found = even if exact == point else low if exact < point else high
    return found if value > 0 else -found


@cache
def cases(dtype):
    """Float64 values around every halfway point of a dtype, and what they must become."""
    signs = FORMATS[dtype].specials != "scale"
    pairs = [
        (value, nearest(value, *point))
        for point in halfway_points(dtype)
        for value in around(point[0])
        if signs or value > 0
    ]
    return np.array([value for value, _ in pairs]), [result for _, result in pairs]


def numbers_of(array, dtype):
    bits = np.ascontiguousarray(array).view(np.uint16 if FORMATS[dtype].bits == 16 else np.uint8)
    return [numbers(dtype, int(pattern)) for pattern in bits.reshape(-1)]


def wrong(found, expected, values):
    pairs = [*zip(found, expected, values, strict=True)]
    return [(value, one, other) for one, other, value in pairs if one != other][:5]


def in_lists(x, length, dtype):
    parts = [x[k : k + length].tolist() for k in range(0, len(x), length)]
    return np.concatenate([ferry.to_numpy(part, dtype=dtype) for part in parts])


ROADS = {
    "numpy": lambda x, dtype: ferry.to_numpy(x, dtype=dtype),
    "strided": lambda x, dtype: ferry.to_numpy(np.repeat(x, 2)[::2], dtype=dtype),
    "backwards": lambda x, dtype: ferry.to_numpy(x[::-1], dtype=dtype)[::-1],
    "two axes": lambda x, dtype: ferry.to_numpy(np.stack([x, x]).T, dtype=dtype)[:, 1],
    "the other order": lambda x, dtype: ferry.to_numpy(
        x.astype(x.dtype.newbyteorder("S")), dtype=dtype
    ),
    "complex": lambda x, dtype: ferry.to_numpy(x + 1j, dtype=dtype, casting="unsafe"),
    "safe": lambda x, dtype: ferry.to_numpy(x, dtype=dtype, casting="same_kind"),
    "out": lambda x, dtype: ferry.to_numpy(x, out=np.empty(x.shape, numpy_dtype(dtype))),
    "list": lambda x, dtype: ferry.to_numpy(x.tolist(), dtype=dtype),
    "short lists": lambda x, dtype: in_lists(x, 9, dtype),
    "lists": lambda x, dtype: in_lists(x, 50, dtype),
    "rows": lambda x, dtype: ferry.to_numpy([x.tolist()], dtype=dtype)[0],
    "torch": lambda x, dtype: ferry.to_numpy(torch.from_numpy(x), dtype=dtype),
    "graph": lambda x, dtype: ferry.to_numpy(torch.from_numpy(x).requires_grad_(), dtype=dtype),
    "tree": lambda x, dtype: ferry.convert_tree({"a": x, "b": x + 0}, "numpy", dtype=dtype)["b"],
    "batch": lambda x, dtype: ferry.collate([{"x": x}, {"x": x}], "numpy", dtype=dtype)["x"][1],
    "column": lambda x, dtype: ferry.to_numpy(pytest.importorskip("pandas").Series(x), dtype=dtype),
    "printed": lambda x, dtype: run(ferry.explain(x, "numpy", dtype=dtype), x),
}
LISTS = ("short lists", "lists", "list", "rows", "printed")
ALL = {"float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"}


def run(plan, x):
    names = {"x": x}
    exec(plan.code, names)  # noqa: S102 - that is what the code is for
    return names["y"]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("dtype", HAVE_ZERO)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_H101_a_float64_is_rounded_once(dtype, road):
    """Around all points halfway between two values: exact rational numbers say which is nearer, or even."""
    values, expected = cases(dtype)
    if len(values) > 5_000 and (road in LISTS or (road != "numpy" and examples(7) < 7)):
        # Other roads take all of them in `make slow`; they meet the same casts in blocks.
        values, expected = values[::7], expected[::7]
    found = ROADS[road](values, dtype)
    assert found.dtype == numpy_dtype(dtype)
    assert not wrong(numbers_of(found, dtype), expected, values)


@pytest.mark.parametrize("dtype", sorted(ALL))
@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow"])
def test_H101_so_it_is_in_other_frameworks(dtype, target):
    """And within one of them, where the framework itself would round twice."""
    pytest.importorskip(target)
    values, expected = cases(dtype)
    there = ferry.convert(values, target, dtype=dtype)
    assert not wrong(numbers_of(ferry.to_numpy(there), dtype), expected, values)
    if target != "jax":
        own = ferry.convert(ferry.convert(values, target), target, dtype=dtype)
        assert not wrong(numbers_of(ferry.to_numpy(own), dtype), expected, values)


def test_H101_powers_of_two():
    """float8_e8m0fnu has neither zero nor a sign."""
    values, expected = cases("float8_e8m0fnu")
    assert not wrong(
        numbers_of(ferry.to_numpy(values, dtype="float8_e8m0fnu"), "float8_e8m0fnu"),
        expected,
        values,
    )


@pytest.mark.parametrize("source", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", NARROW)
def test_H101_a_narrower_float_is_rounded_once(dtype, source):
    """The values of the source that are nearest to each halfway point."""
    middles = np.array([float(point[0]) for point in halfway_points(dtype)])
    with np.errstate(all="ignore"):
        near = middles.astype(numpy_dtype(source))
    bits = near.view(np.int32 if source == "float32" else np.int16)
    expected, values = [], []
    for array in (near, (bits - 1).view(near.dtype), (bits + 1).view(near.dtype)):
        with np.errstate(all="ignore"):
            exact = array.astype(np.float64).tolist()
        for value, point in zip(exact, halfway_points(dtype), strict=True):
            if 0 < value < inf and point[1] <= value <= point[2]:
                values.append(value)
                expected.append(nearest(value, *point))
    assert values
    array = np.array(values).astype(numpy_dtype(source))
    rounded = ferry.to_numpy(array, dtype=dtype, casting="unsafe")
    assert not wrong(numbers_of(rounded, dtype), expected, values)


INTEGERS = ["int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("dtype", [*NARROW, "float32", "float64"])
def test_H101_an_integer_is_rounded_once(source, dtype):
    """Around points halfway between two values of each width, up to the ends of the range."""
    bits = np.iinfo(source).bits - (source[0] == "i")
    precision = FORMATS[dtype].mantissa + 1
    points = [*range(8), (1 << precision) + 1]
    for length in range(precision + 1, bits + 1):
        half = 1 << (length - precision - 1)
        for odd in (1, 3, (1 << precision) - 1):
            point = (1 << (length - 1)) + odd * half
            points += [point - 1, point, point + 1, point + (half >> 1), point - (half >> 1)]
    values = sorted(
        {point for point in points if point < 1 << bits and (point or dtype != "float8_e8m0fnu")}
    )
    if source[0] == "i" and dtype != "float8_e8m0fnu":
        values += [-value for value in values] + [-(1 << bits)]
    array = np.array(values, source)
    found = ferry.to_numpy(array, dtype=dtype, casting="same_kind").astype(np.float64)
    expected = [rounded(value, dtype) for value in values]
    kept = [k for k, each in enumerate(expected) if each is not None]
    assert len(kept) > 3
    assert not wrong(found[kept].tolist(), [expected[k] for k in kept], [values[k] for k in kept])
    if source == "int64":
        read = ferry.to_numpy(values, dtype=dtype, casting="same_kind").astype(np.float64)
        assert not wrong(
            read[kept].tolist(), [expected[k] for k in kept], [values[k] for k in kept]
        )


def rounded(value, dtype):
    """An integer, rounded to the bits of a dtype; ``None`` if it is out of range, or below its smallest step."""
    precision = FORMATS[dtype].mantissa + 1
    size = abs(value)
    drop = max(size.bit_length() - precision, 0)
    whole, rest = size >> drop, size & ((1 << drop) - 1)
    is_even = whole & 1 == 0
    whole += rest * 2 > 1 << drop or (drop > 0 and rest * 2 == 1 << drop and not is_even)
    result = whole << drop
    largest = {"float32": 2**128, "float64": 2**1024}.get(dtype) or Fraction(ladder(dtype)[-1][0])
    return None if result > largest else float(result if value > 0 else -result)


def test_H101_a_random_float64_around_halfway_points_of_float32():
    """To float32, through NumPy and from lists, also below its smallest normal number."""
    source = random.Random(7)  # noqa: S311 - it is not for cryptography
    values, expected = [], []
    for _ in range(20_000):
        exponent, low = source.randrange(-149, 104), source.randrange(1 << 23, 1 << 24)
        low = low >> source.randrange(24) if exponent == -149 else low
        point = (Fraction(2 * low + 1) / 2) * Fraction(2) ** exponent
        if point >= Fraction(2) ** 128:
            continue
        even = low + low % 2
        steps = point, *(Fraction(each) * Fraction(2) ** exponent for each in (low, low + 1, even))
        middle = float(point)
        for value in (middle, nextafter(middle, 0), nextafter(middle, inf)):
            values.append(value)
            expected.append(float(nearest(value, *steps)))
    array = np.array(values)
    assert not wrong(
        ferry.to_numpy(array, dtype="float32").astype(float).tolist(), expected, values
    )
    assert not wrong(
        ferry.to_numpy(values, dtype="float32").astype(float).tolist(), expected, values
    )
    assert not wrong(
        ferry.to_torch(torch.from_numpy(array), dtype="float32").double().tolist(), expected, values
    )


@pytest.mark.parametrize("dtype", HAVE_ZERO)
@pytest.mark.parametrize("source", ["float64", "float32"])
def test_H101_what_is_no_number_stays_so(dtype, source):
    """NaN with its sign, infinities, zeros with their signs, and the smallest numbers."""
    specials = FORMATS[dtype].specials
    values = np.array([nan, -nan, inf, -inf, 0.0, -0.0, 5e-324, -5e-324, 1e-40], source)
    found = numbers_of(ferry.to_numpy(values, dtype=dtype, casting="unsafe"), dtype)
    through = numbers_of(
        ferry.to_numpy(values.astype("float32"), dtype=dtype, casting="unsafe"), dtype
    )
    assert str(found) == str(through)
    if specials != "finite":
        assert isnan(found[0])
        assert isnan(found[1])
    if specials == "ieee":
        assert found[2:4] == [inf, -inf]
    assert found[4:8] == [0, 0, 0, 0]


# -- floats that become integers ------------------------------------------------------------------

WHOLE = [name for name, row in FORMATS.items() if row.kind in ("int", "uint")]
FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e5m2", "complex128", "complex64"]
EDGES = [
    *(
        sign * (2.0**power + step)
        for power in range(70)
        for step in (-1, -0.5, 0, 0.5, 1)
        for sign in (1, -1)
    ),
    *(
        0.0,
        -0.0,
        300.0,
        -1.5,
        1e10,
        -1e10,
        2.0**63 + 2**11,
        -(2.0**63) - 2**11,
        1.5e19,
        2.0**100,
        -4.2e214,
        1.7e308,
    ),
    *(inf, -inf, nan),
]


def cut_off(value, dtype):
    """The fraction is cut off, and what is left counts modulo 2**bits; what is no number becomes 0."""
    row = FORMATS[dtype]
    if isnan(value) or isinf(value):
        return 0
    rest = int(value) % (1 << row.bits)
    return rest - (1 << row.bits) if row.kind == "int" and rest >> (row.bits - 1) else rest


def as_ints(array):
    wide = np.int64 if array.dtype != np.uint64 else np.uint64
    return array.astype(wide).reshape(-1).tolist()


def on_a_thread_that_flushes(do):
    results = []

    def work():
        torch.set_flush_denormal(True)
        results.append(do())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results[0]


LAYOUTS = {
    "compact": lambda x: x,
    "strided": lambda x: np.repeat(x, 2)[::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "misaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype),
    "the other order": lambda x: (
        x.astype(x.dtype.newbyteorder("S")) if x.dtype.isbuiltin == 1 else x
    ),
    "columns": lambda x: np.asfortranarray(np.stack([x, x]))[1],
    "long": lambda x: np.tile(x, 70_000 // len(x) + 1)[-len(x) :].copy(),
}


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_H106_an_unsafe_cast_to_integers_is_arithmetic(dtype, source):
    """The same for every layout, size, framework and thread."""
    with np.errstate(all="ignore"):
        array = np.array(EDGES).astype(numpy_dtype(source))
    exact = array.real.astype(np.float64)
    expected = [cut_off(value, dtype) for value in exact.tolist()]
    for name, layout in LAYOUTS.items():
        assert as_ints(ferry.to_numpy(layout(array), dtype=dtype, casting="unsafe")) == expected, (
            name
        )
    for at, value in enumerate(expected):
        assert as_ints(ferry.to_numpy(array[at : at + 1], dtype=dtype, casting="unsafe")) == [
            value
        ], exact[at]
        assert as_ints(ferry.to_numpy(array[at], dtype=dtype, casting="unsafe")) == [value], exact[
            at
        ]
    long = np.resize(array, 100_000).reshape(20, 50, 100)
    for each in (long, np.asfortranarray(long)):
        found = as_ints(
            ferry.to_numpy(ferry.to_numpy(each, dtype=dtype, casting="unsafe").copy(order="C"))
        )
        assert found == (expected * (100_000 // len(expected) + 1))[:100_000]
    out = np.empty(array.shape, numpy_dtype(dtype))
    ferry.to_numpy(array, out=out, casting="unsafe")
    assert as_ints(out) == expected
    batch = ferry.collate(
        [{"x": array}, {"x": array}], "numpy", dtype={"x": dtype}, casting="unsafe"
    )
    assert as_ints(batch["x"][1]) == expected
    assert (
        on_a_thread_that_flushes(
            lambda: as_ints(ferry.to_numpy(array, dtype=dtype, casting="unsafe"))
        )
        == expected
    )
    assert (
        as_ints(run(ferry.explain(array, "numpy", dtype=dtype, casting="unsafe"), array))
        == expected
    )
    if source == "float64":
        assert as_ints(ferry.to_numpy(array.tolist(), dtype=dtype, casting="unsafe")) == expected
        for value, each in zip(array.tolist(), expected, strict=True):
            assert as_ints(ferry.to_numpy([value], dtype=dtype, casting="unsafe")) == [each]
            assert as_ints(ferry.to_numpy(value, dtype=dtype, casting="unsafe")) == [each]
    if dtype in ("int8", "uint8", "int16", "int32", "int64", "uint32", "uint64"):
        x = ferry.to_torch(array)
        for found in (
            ferry.to_torch(x, dtype=dtype, casting="unsafe"),
            ferry.to_torch(ferry.to_tensorflow(array), dtype=dtype, casting="unsafe"),
            ferry.convert(array, "torch", dtype=dtype, casting="unsafe"),
            ferry.to_tensorflow(x, dtype=dtype, casting="unsafe"),
            ferry.convert(
                array,
                "torch",
                out=torch.empty(len(array), dtype=getattr(torch, dtype)),
                casting="unsafe",
            ),
        ):
            assert as_ints(ferry.to_numpy(found)) == expected
        plan = ferry.explain(x, "torch", dtype=dtype, casting="unsafe")
        assert as_ints(ferry.to_numpy(run(plan, x))) == expected


def test_H106_integers_and_fractions_wrap_around_alike():
    """So the same number gives the same, whichever dtype it comes in."""
    for dtype in WHOLE:
        whole = np.arange(-70_000, 70_000, 77)
        found = ferry.to_numpy(whole, dtype=dtype, casting="unsafe")
        assert as_ints(found) == as_ints(ferry.to_numpy(whole + 0.0, dtype=dtype, casting="unsafe"))
        assert as_ints(found) == [cut_off(value, dtype) for value in whole.tolist()]


# -- what is in C -------------------------------------------------------------------------------

_casts = c_extension("host._casts")
in_c = pytest.mark.skipif(
    _casts is None, reason="the extension was not built, or TENSORFERRY_NO_EXTENSION is set"
)


@in_c
@pytest.mark.parametrize(
    "arguments",
    [
        (np.zeros(3), "d", 43, np.zeros(2, "f")),
        (np.zeros(3, "f"), "d", 43, np.zeros(3, "f")),
        (np.zeros(3), "x", 43, np.zeros(3, "f")),
        (np.zeros(3), "dd", 28, np.zeros(3, "f")),
        (np.zeros(3), "d", 53, np.zeros(3, "f")),
        (np.zeros(3), "d", 2**70, np.zeros(3, "f")),
        (np.zeros(6)[::2], "d", 43, np.zeros(3, "f")),
        (np.zeros(3), "d", 43, np.zeros(6, "f")[::2]),
        (np.zeros(3), "d", 43, memoryview(bytes(12))),
        (np.zeros(3), 3, 43, np.zeros(3, "f")),
        (np.zeros(3), "", 43, np.zeros(3, "f")),
        (None, "d", 43, np.zeros(3, "f")),
        (np.zeros(3), "d", 43),
    ],
)
def test_rounding_in_c_refuses_memory_that_does_not_fit(arguments):
    """Nothing is read or written where there is no number."""
    with pytest.raises((ValueError, TypeError, BufferError, OverflowError, IndexError)):
        _casts.round_to_odd(*arguments)


@in_c
@pytest.mark.parametrize(
    "arguments",
    [
        (np.zeros(3), "d", 64, True, np.zeros(2, "q")),
        (np.zeros(3), "d", 64, True, np.zeros(3, "i")),
        (np.zeros(3), "f", 8, True, np.zeros(3, "b")),
        (np.zeros(3), "d", 0, True, np.zeros(3, "b")),
        (np.zeros(3), "d", 9, True, np.zeros(3, "h")),
        (np.zeros(3), "d", 65, True, np.zeros(3, "q")),
        (np.zeros(3), "d", -1, True, np.zeros(3, "q")),
        (np.zeros(3), "q", 64, True, np.zeros(3, "q")),
        (np.zeros(6)[::2], "d", 64, True, np.zeros(3, "q")),
        (np.zeros(3), "d", 64, True, memoryview(bytes(24))),
        (np.zeros(3), "d", 64, True),
    ],
)
def test_cutting_off_in_c_refuses_memory_that_does_not_fit(arguments):
    """Nothing is read or written where there is no number."""
    with pytest.raises((ValueError, TypeError, BufferError, OverflowError, IndexError)):
        _casts.cut_off(*arguments)
