"""The extension that reads Python numbers: bit for bit what NumPy and the careful path give, errors and all.

No framework is needed here, so that `make sanitize` can run it under the sanitizers.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import math
import random
import struct
import sys
import threading
from decimal import Decimal
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples, few_are_many, peak_of, survives

import tensorferry as ferry
from tensorferry.backends import fast_paths, lists
from tensorferry.execution import recipes
from tensorferry.host import casts
from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.sequences import columns, numbers

extension = pytest.mark.skipif(
    not numbers.HAS_EXTENSION,
    reason="the extension was not built, or TENSORFERRY_NO_EXTENSION is set",
)


@contextlib.contextmanager
def by_numpy():
    """As where there is no extension."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "_extension", None)
        patch.setattr(numbers, "read_part", numbers._read_by_numpy)
        patch.setattr(numbers, "look", numbers._look_by_numpy)
        recipes.forget_recipes()
        before = fast_paths.open_all(False)
        yield
        fast_paths.open_all(before)
    recipes.forget_recipes()


# -- random nestings ------------------------------------------------------------------------------


class Fraction(float):
    """Somebody's own float."""


class Count(int):
    """Somebody's own int."""


class Rows(list):
    """Somebody's own list."""


INTEGERS = [
    0,
    1,
    -1,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    *(s * (2**53 + d) for s in (1, -1) for d in (-1, 0, 1)),
]
INTEGERS += [2**30, 2**30 - 1, -(2**30), 2**60 - 1, 2**60, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
BEYOND = [2**64, -(2**63) - 1, 10**30, -(10**400)]
FLOATS = [
    0.0,
    -0.0,
    5e-324,
    -(2.0**-149),
    2.0**-1074,
    3.4028234663852886e38,
    3.4028235677973366e38,
    1e39,
    -1e300,
]
FLOATS += [math.inf, -math.inf, math.nan, 2.0**53, 0.1, 65504.0, 65520.0, 1 + 2.0**-11 + 2.0**-30]
ODD = [
    None,
    "1",
    b"1",
    Decimal(1),
    Fraction(1.5),
    Count(7),
    np.float64(0.5),
    np.float32(2),
    np.int8(3),
    np.bool_(1),
]
ODD += [
    ml_dtypes.bfloat16(1.5),
    np.array(2.0),
    np.array([1.0, 2.0]),
    object(),
    {},
    range(2),
    Rows([1.0]),
    [],
    *BEYOND,
]


def atom(dice, mixed):
    kind = dice.choice("iffbc") if mixed == "all" else mixed
    if kind == "i":
        return dice.choice(
            (dice.choice(INTEGERS), dice.randrange(-9, 9), dice.getrandbits(dice.randrange(1, 63)))
        )
    if kind == "f":
        bits = struct.unpack("d", dice.getrandbits(64).to_bytes(8, "little"))[0]
        return dice.choice((dice.choice(FLOATS), bits, dice.uniform(-9, 9)))
    if kind == "c":
        return complex(atom(dice, "f"), atom(dice, "f"))
    return dice.random() < 0.5


def nesting(dice):
    """Lists and tuples of numbers of a shape; some are odd, some ragged, some hold a row twice."""
    mixed, depth = (
        dice.choice(("i", "f", "f", "b", "c", "all", "all")),
        dice.choice((1, 1, 2, 2, 3, 4)),
    )
    lengths = [dice.choice((0, 1, 2, 3, 5, 40) if depth < 3 else (1, 2, 3)) for _ in range(depth)]
    odd = dice.random() < 0.3

    def row(level):
        if level == depth:
            return dice.choice(ODD) if odd and dice.random() < 0.05 else atom(dice, mixed)
        length = lengths[level] + (odd and dice.random() < 0.03)
        rows = [row(level + 1) for _ in range(length)]
        if rows and dice.random() < 0.1:
            rows = [rows[0]] * length
        return tuple(rows) if dice.random() < 0.2 else rows

    return row(0)


def outcome(x, dtype, casting):
    """The bits that a list is read to, or the error in its words."""
    try:
        result = ferry.to_numpy(x, dtype=dtype, casting=casting)
    except ferry.ConversionError as error:
        return type(error), str(error)
    return str(result.dtype), result.shape, result.tobytes()


DTYPES = (
    None,
    None,
    "default",
    "fit",
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "complex64",
)
DTYPES += ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool", "int4")


def compared(seed, count):
    """A number of random nestings with and without the extension, as few numbers and as many."""
    dice = random.Random(seed)  # noqa: S311 - the same each time
    cases = [
        (nesting(dice), dice.choice(DTYPES), dice.choice((None, None, "unsafe", "same_value")))
        for _ in range(count)
    ]
    expected = None
    for without in (contextlib.nullcontext, by_numpy):
        for many in (contextlib.nullcontext, few_are_many):
            with without(), many():
                found = [outcome(*case) for case in cases]
            expected = found if expected is None else expected
            for case, one, other in zip(cases, expected, found, strict=True):
                assert one == other, case


@extension
@pytest.mark.parametrize("seed", range(4))
def test_random_nestings_come_the_same_with_and_without(seed):
    """2,000 of them: bits, dtypes and errors."""
    compared(seed, 500)


@extension
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_random_nestings_come_the_same_with_and_without(seed):
    """100,000 of them, of which each seed is a part."""
    compared(seed, 2000)


# -- what is found, and bits ----------------------------------------------------------------------

ELEMENTS = st.one_of(
    st.floats(), st.integers(-(2**63), 2**64 - 1), st.booleans(), st.complex_numbers()
)


LAST = {
    "bool": False,
    "int": -3,
    "wide": 2**40,
    "large": 2**60 + 1,
    "unsigned": 2**63,
    "float": 0.1,
    "complex": 1 - 0.1j,
}


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("first", LAST)
@pytest.mark.parametrize("length", [31, 32, 33, 300, 5000])
def test_the_first_numbers_promise_nothing(first, last, length):
    """What many numbers are expected to be is read off the first; what comes after them counts as much."""
    x = [LAST[first]] * length + [LAST[last]] * 2
    kinds = set(map(type, x))
    kind = next(each for each in (complex, float, int, bool) if each in kinds)
    integers = [each for each in x if isinstance(each, int)]
    if kind is int:
        fits = min(integers) >= 0 or max(integers) < 2**63
    else:
        fits = all(int(float(each)) == each for each in integers)
    for rows in (x, [x, x[::-1]]):
        if fits:
            got = ferry.to_numpy(rows)
            assert got.tolist() == rows
            assert set(map(type, got.ravel().tolist())) == {kind}
        else:
            with pytest.raises(ferry.LossyCastError):
                ferry.to_numpy(rows)


@extension
@settings(max_examples=examples(300))
@given(st.lists(ELEMENTS, min_size=1, max_size=8))
def test_what_is_found_is_what_is_there(row):
    """Each flag, by the numbers themselves."""
    types = set(map(type, row))
    whole = [x for x in row if type(x) is int]
    parts = [
        part
        for x in row
        if type(x) in (float, complex)
        for part in (complex(x).real, complex(x).imag)
    ]
    expected = {
        numbers.BOOL: bool in types,
        numbers.INT: int in types,
        numbers.FLOAT: float in types,
        numbers.COMPLEX: complex in types,
        numbers.WIDE: any(not -(2**31) <= x < 2**31 for x in whole),
        numbers.LARGE: any(abs(x) > 2**53 for x in whole),
        numbers.UNSIGNED: any(x >= 2**63 for x in whole),
        numbers.NEGATIVE: any(x < 0 for x in whole),
        numbers.BEYOND: any(math.isfinite(x) and abs(x) > 3.4028234663852886e38 for x in parts),
        numbers.SPECIAL: any(not math.isfinite(x) for x in parts),
    }
    found = sum(flag for flag, is_there in expected.items() if is_there)
    assert numbers.look(row) == numbers.look(tuple(row)) == found
    # NumPy, which cannot tell whether a large float was an int, may leave more to the careful path.
    assert numbers.exact_dtype(numbers._look_by_numpy(row)) in (None, numbers.exact_dtype(found))


@extension
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_kind_of_float_keeps_its_bits(dtype):
    """Payloads of NaN, signs of zero, subnormals: to float32 as the one cast of this package rounds them."""
    dice = random.Random(5)  # noqa: S311 - the same each time
    patterns = [dice.getrandbits(64) for _ in range(3000)]
    patterns += [
        0x7FF0000000000001,
        0xFFF8DEADBEEF0001,
        0x7FF7FFFFFFFFFFFF,
        1,
        1 << 63,
        0x36A0000000000000,
    ]
    floats = [struct.unpack("<d", bits.to_bytes(8, "little"))[0] for bits in patterns]
    result = np.empty(len(floats), dtype)
    assert numbers.fill(result, "float64", "", floats, (len(floats),)) >= 0
    exactly = np.frombuffer(struct.pack(f"={len(floats)}d", *floats))
    assert result.tobytes() == casts.cast(exactly, dtype).tobytes()


def need_filled(dtype):
    """Skip where a cast makes other floats of 16 bits than the extension: it is not asked for them there."""
    if not numbers.is_filled("float64", dtype, ""):
        pytest.skip(
            f"this NumPy or ml_dtypes rounds {dtype} otherwise, or keeps something else of NaN"
        )


def between(dtype):
    """Every float of 16 bits, each middle between two of them, and what lies beside: float64."""
    with np.errstate(invalid="ignore"):  # of NaN that signals
        every = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(dtype)).astype(np.float64)
    finite = np.sort(every[np.isfinite(every)])
    middle = (finite[1:] + finite[:-1]) / 2
    beside = [middle * (1 + sign * 2.0**-bits) for sign in (1, -1) for bits in (52, 40, 25)]
    return np.concatenate([every[~np.isnan(every)], middle, *beside])


@extension
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 500])
def test_floats_of_16_bits_are_those_of_a_cast(dtype, rows):
    """In long lists, of which blocks are read, and in short ones; NaN with any payload beside numbers."""
    need_filled(dtype)
    tried = between(dtype)
    dice = np.random.default_rng(5)
    payloads = dice.integers(1, 1 << 52, 3000, np.uint64) >> dice.integers(0, 52, 3000, np.uint64)
    signs = dice.integers(0, 2, 3000, np.uint64) << np.uint64(63)
    nans = (np.uint64(0x7FF << 52) | signs | np.maximum(payloads, 1)).view(np.float64)
    tried = np.concatenate([tried, dice.permutation(np.concatenate([nans, tried]))])
    for part in dice.permutation(tried)[:10_000].reshape(500, 20) if rows > 1 else [tried]:
        result = np.empty(len(part), numpy_dtype(dtype))
        found = numbers.fill(result, "float64", "", part.tolist(), part.shape)
        assert found & ~numbers.SPECIAL == numbers.FLOAT
        assert result.tobytes() == casts.cast(part, dtype).tobytes()


@extension
@pytest.mark.parametrize(
    ("dtype", "largest", "beyond"),
    [
        ("float16", 65519.99999999999, 65520.0),
        ("bfloat16", 3.39617e38, 3.39618e38),
    ],
)
def test_a_float_that_becomes_infinite_is_a_misfit(dtype, largest, beyond):
    """In any place; a number that rounds down does not count, nor does an infinity."""
    need_filled(dtype)
    for odd, misfits in (
        (largest, False),
        (-largest, False),
        (beyond, True),
        (-beyond, True),
        (math.inf, False),
    ):
        for place in (0, 31, 32, 99):
            row = [1.0] * 100
            row[place] = odd
            found = numbers.fill(
                np.empty(100, numpy_dtype(dtype)), "float64", "finite", row, (100,)
            )
            assert bool(found & numbers.MISFIT) == misfits
            # The cast of what was asked for takes it, and casting="same_value" says where it
            # stands.
            assert np.isinf(ferry.to_numpy(row, dtype=dtype)[place]) == (misfits or math.isinf(odd))
            if misfits:
                with pytest.raises(ferry.LossyCastError, match=rf"\[{place}\]"):
                    ferry.to_numpy(row, dtype=dtype, casting="same_value")


@extension
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_where_a_cast_rounds_otherwise_the_extension_is_not_asked(dtype, monkeypatch):
    """As another version of NumPy or ml_dtypes may: then it is the cast that counts."""

    class Otherwise:
        @staticmethod
        def fill(memory, *rest):
            found = extension_of_today.fill(memory, *rest)
            memory.view(np.uint16)[2] ^= 1
            return found

    need_filled(dtype)
    extension_of_today = numbers._extension
    monkeypatch.setattr(numbers, "_extension", Otherwise)
    numbers._are_cast_alike.cache_clear()
    try:
        assert not numbers.is_filled("float64", dtype, "")
    finally:
        numbers._are_cast_alike.cache_clear()


@extension
def test_integers_of_every_length_are_read():
    """Around each power of two, in either sign: ints of any number of digits."""
    whole = [sign * (2**bits + by) for bits in range(64) for by in range(-2, 3) for sign in (1, -1)]
    whole = [x for x in whole if -(2**63) <= x < 2**63]
    result = np.empty(len(whole), np.int64)
    assert numbers.fill(result, "int64", "", whole, (len(whole),)) >= 0
    assert result.tolist() == whole


@extension
@pytest.mark.parametrize("name", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"])
def test_an_integer_that_does_not_fit_is_a_misfit(name):
    """Both ends fit, and what is one beyond does not, wherever it stands."""
    ends = np.iinfo(name)
    low, high = int(ends.min), min(int(ends.max), 2**63 - 1)
    result = np.empty(100, name)
    assert not numbers.fill(result, "int64", "value", [low, high] * 50, (100,)) & numbers.MISFIT
    assert result.tolist() == [low, high] * 50
    for odd in (low - 1, high + 1 if name != "uint64" else -7):
        for place in (0, 31, 32, 99):
            row = [1] * 100
            row[place] = odd
            assert numbers.fill(result, "int64", "value", row, (100,)) & numbers.MISFIT


@extension
@pytest.mark.parametrize(
    "dtype",
    [
        None,
        "bfloat16",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("float32", "float8_e5m2", "int32")
        ),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_long_list_takes_its_result_and_a_mebibyte(dtype, nested):
    """In one pass, into what is wanted of it; where that is a cast, a chunk at a time."""
    x = list(range(1 << 20)) if dtype == "int32" else [float(number) for number in range(1 << 20)]
    x = [x[start : start + 1024] for start in range(0, len(x), 1024)] if nested else x
    ferry.to_numpy(x, dtype=dtype)
    peak, result = peak_of(lambda: ferry.to_numpy(x, dtype=dtype))
    assert peak < result.nbytes + (1 << 20)


# -- what is not read -----------------------------------------------------------------------------


def itself(length):
    x = [1.0] * length
    x.append(x)
    return x


def deep(levels):
    x = 1.0
    for _ in range(levels):
        x = [x]
    return x


@pytest.mark.parametrize(
    "x",
    [
        itself(2),
        itself(0),
        deep(65),
        [[0.0] * 300] + [[]] * 300,
        [[0.0]] * 70_000 + [0.0],
        [[0.0] * 70_000, [0.0]],
        [[1.0] * 1_000_000] + [[]] * 1_000_000,
        [1.0, [2.0]],
        [[1.0], 2.0],
        [1.0] * 70_000 + [None],
        [1.0] * 70_000 + [2**53 + 1],
        [1] * 70_000 + [2**64],
        [-1] * 70_000 + [2**63],
    ],
    ids=lambda x: f"{len(x)}",
)
def test_what_is_no_tensor_is_refused_in_words(x):
    """The careful path says what is wrong, however long the list is, and no memory is taken for what is not there."""
    with pytest.raises(ferry.ConversionError):
        ferry.to_numpy(x)
    with pytest.raises(ferry.ConversionError):
        ferry.to_numpy(x, dtype="float32")


def test_as_deep_as_numpy_goes():
    """64 levels are read, and 65 are refused."""
    assert ferry.to_numpy(deep(64)).shape == (1,) * 64


@extension
def test_the_extension_leaves_alone_what_is_no_exact_number():
    """A subclass, a scalar with a dtype, a range, another container: doubted, wherever it stands."""
    for odd in (*ODD, [1.0]):
        for place in (0, 31, 32, 39):
            row = [1.0] * 40
            row[place] = odd
            assert numbers.look(row) == numbers.DOUBT
            assert numbers.read_part(row, (40,), "float64", 0, 40)[1] == numbers.DOUBT
    for rows in (Rows([1.0]), range(3), {1: 2}, "12", np.ones(2), None, 1.0):
        assert numbers.look(rows) == numbers.DOUBT
        assert numbers.read_part([rows], (1, 2), "float64", 0, 1)[1] == numbers.DOUBT


@extension
def test_a_part_of_the_first_axis():
    """It is read from the whole, whose length is looked at each time."""
    rows = [[float(3 * row + column) for column in range(3)] for row in range(7)]
    array, found = numbers.read_part(rows, (7, 3), "float64", 2, 5)
    assert found == numbers.FLOAT
    assert array.tolist() == rows[2:5]
    for length in (6, 8):
        assert numbers.read_part(rows, (length, 3), "float64", 2, 5)[1] == numbers.DOUBT


@extension
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (bytes(8), "d", [1.0]),
        (np.ones(2), "d", [1.0], (1,)),
        (np.ones(1), "x", [1.0]),
        (np.ones(1), "dd", [1.0]),
        (np.ones(1), "é", [1.0]),
        (np.ones(1), 7, [1.0]),
        (np.ones(1), "d", [1.0], ()),
        (np.ones(1), "d", [1.0], (1,) * 65),
        (np.ones(1), "d", [1.0], [1]),
        (np.ones(1), "d", [1.0], (-1,)),
        (np.ones(1), "d", [1.0], (2**70,)),
        (np.ones(1), "d", [1.0], (2**62, 2**62, 2**62)),
        (np.ones(1), "d", [1.0], (1,), 0, 2),
        (np.ones(1), "d", [1.0], (1,), -1, 1),
        (np.ones(1), "d", [1.0], (1,), 1, 0),
        (np.ones(4)[::2], "d", [1.0, 2.0]),
        (np.ones(3, np.uint8), "d", []),
    ],
    ids=repr,
)
def test_no_memory_is_written_that_is_not_there(arguments):
    """Room, shape and part are compared before anything is read."""
    with pytest.raises((TypeError, ValueError, BufferError, OverflowError, SystemError)):
        numbers._extension.fill(*arguments)


# -- samples in columns ----------------------------------------------------------------------------

VALUES = st.one_of(st.integers(), st.text(max_size=1), st.none())
ALIKE = st.sampled_from(["a", "b", "c", 1, True, 1.0, (1,), None])


@settings(max_examples=examples(300))
@given(
    samples=st.lists(
        st.one_of(
            st.dictionaries(ALIKE, VALUES, max_size=3),
            st.lists(VALUES, max_size=2),
            st.lists(VALUES, max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=4,
    ),
    alike=st.booleans(),
)
def test_columns_are_the_same_with_the_extension_and_without(samples, alike):
    """And they are the values by key or place, or nothing."""
    first = samples[0]
    if alike:
        samples = [type(first)(first) for _ in samples]
    with_it, without = numbers.apart(samples), numbers._apart_in_python(samples)
    assert with_it == without
    found = columns.columns_apart(samples)
    if with_it is not None:
        assert found == with_it
    if found is not None:
        keys = list(first) if isinstance(first, dict) else range(len(first))
        assert found == [[each[key] for each in samples] for key in keys]
        assert {len(each) for each in samples} == {len(first)}
    elif alike:
        assert isinstance(first, dict)
        assert any(type(key) not in (str, int) for key in first)


def test_keys_of_classes_are_the_same_objects_or_not_the_same():
    """Nothing is compared by code of theirs."""

    class Key:
        def __eq__(self, other):
            raise AssertionError("compared")

        __hash__ = object.__hash__

    key = Key()
    assert columns.columns_apart([{key: 1, "a": 2}, {key: 3, "a": 4}]) == [[1, 3], [2, 4]]
    assert columns.columns_apart([{key: 1}, {Key(): 3}]) is None
    text, equal = "a" * 3, "".join(["a"] * 3)
    assert columns.columns_apart([{text: 1}, {equal: 2}]) == [[1, 2]]


@extension
def test_samples_in_columns_are_kept_as_often_as_they_stand_there():
    """Also where a later sample differs, so that nothing comes of it."""
    elements = [object() for _ in range(4)]
    one, other = dict(zip("abcd", elements, strict=True)), dict(zip("abce", elements, strict=True))
    samples, odd, rows = [one] * 5, [one, one, other, one], [tuple(elements)] * 5
    watched = [*elements, one, other, samples, odd, rows, rows[0], *one]
    before = list(map(sys.getrefcount, watched))
    for _ in range(1000):
        for x in (samples, odd, rows, [*rows, (1,)], [one, rows], [], None, [{}], [1]):
            numbers._extension.apart(x)
    assert list(map(sys.getrefcount, watched)) == before
    found = numbers._extension.apart(samples)
    assert [list(map(id, column)) for column in found] == [[id(x)] * 5 for x in elements]


@extension
def test_an_ordered_dict_is_left_alone_if_its_order_is_another():
    """Than that in which its keys came."""
    one = collections.OrderedDict(a=1, b=2)
    one.move_to_end("a")
    assert numbers._extension.apart([one, one]) is None


# -- what others do meanwhile ---------------------------------------------------------------------


@extension
def test_nothing_is_kept_and_nothing_is_given_away():
    """10,000 calls, some with errors at different places, leave the counts of references as they were."""
    elements = [
        float("1.25e10"),
        int("12345678901234567890"),
        int("98765432101"),
        complex("1+2j"),
        Decimal(3),
    ]
    rows = [[*elements[:4]] * 10, [*elements[:4]] * 10]
    odd = [[*elements[:4]] * 10, [*elements, *elements[:3]] * 5]
    flat, memory = [elements[0], elements[2]] * 20, np.empty((2, 40), np.complex128)
    watched = [*elements, *rows, *odd, rows, odd, flat, memory]
    before = list(map(sys.getrefcount, watched))
    for _ in range(1000):
        for x in (rows, odd, flat, [flat, flat], None):
            numbers._extension.look(x)
            numbers._extension.fill(memory, "D", x, (2, 40))
    with contextlib.suppress(ValueError):
        numbers._extension.fill(memory, "D", rows, (3, 40))
    assert list(map(sys.getrefcount, watched)) == before


@extension
@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="what a process has of memory is read from /proc"
)
def test_memory_does_not_grow():
    """Nor does that of a process, in which every second call ends in an error."""
    survives(
        """
        import gc
        import tensorferry as ferry

        good, odd, huge = [[0.5] * 100] * 50, [[0.5] * 100] * 49 + [[0.5] * 99 + [None]], [2**64] * 10

        def rounds(count):
            for _ in range(count):
                ferry.to_numpy(good, dtype="float32")
                for x in (odd, huge):
                    try:
                        ferry.to_numpy(x)
                    except ferry.ConversionError:
                        pass
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        before = rounds(1000)
        after = rounds(10_000)
        assert after - before < 2 << 20, (before, after)
        """
    )


@pytest.mark.unwatched  # a hint that is pasted meanwhile meets another list each time
@pytest.mark.parametrize("length", [40, 100_000])
def test_a_list_that_another_thread_changes(length):
    """What comes is an error, or numbers that were there at some time; the process goes on."""
    x, stop = [1.5] * length, threading.Event()

    def change():
        while not stop.is_set():
            x[length // 2] = None
            x.append(2.5)
            x[length // 2] = 2.5
            x.pop()
            x[3:5] = []
            x.extend((1.5, 1.5))
            x[length // 2] = 1.5

    thread, before = threading.Thread(target=change), sys.getswitchinterval()
    sys.setswitchinterval(
        1e-6
    )  # seconds: the other thread gets its turn between one look and the next
    thread.start()
    try:
        for target in ("numpy", "python") * max(10, 8_000 // length):
            for dtype in (None, "float32", "bfloat16"):
                with contextlib.suppress(ferry.ConversionError):
                    assert set(ferry.to_list(ferry.convert(x, target, dtype=dtype))) <= {1.5, 2.5}
    finally:
        sys.setswitchinterval(before)
        stop.set()
        thread.join()


class Wiper:
    """Empties a list when it is collected."""

    def __init__(self, x):
        self.x, self.itself = x, self

    def __del__(self):
        self.x.clear()


@extension
def test_a_list_that_is_emptied_by_a_collection_while_it_is_read():
    """The error that Python makes of an int that is too long may start one: what comes after it is not touched."""
    before = gc.get_threshold()
    for place in (0, 5, 31, 32):
        x = [number + 0.5 for number in range(100)]
        x[place] = 10**30
        gc.disable()
        Wiper(x)
        gc.set_threshold(1, 1, 1)
        gc.enable()
        try:
            assert numbers.look(x) == numbers.DOUBT
        finally:
            gc.set_threshold(*before)
        gc.collect()
        assert x == []


class Sly:
    """Changes the list that it stands in when it is looked at."""

    def __init__(self, x):
        self.x = x

    def _change(self):
        self.x.clear()
        return 1

    __float__ = __index__ = __int__ = __complex__ = __len__ = _change

    def __radd__(self, other):
        return other + self._change()

    def __array__(self, dtype=None, copy=None):
        return np.array(self._change(), dtype)


@pytest.mark.parametrize("length", [10, 1000])
@pytest.mark.parametrize("head", [1, 1.0])
def test_a_list_that_one_of_its_elements_changes(length, head):
    """It is no number: refused, or what it says that it is; nothing is read that is not there any more."""
    for dtype in (None, "float32"):
        x = [head] * length
        x[length // 2] = Sly(x)
        with contextlib.suppress(ferry.ConversionError):
            assert ferry.to_numpy(x, dtype=dtype).shape in ((0,), (length,))


# -- which is in use ------------------------------------------------------------------------------


def test_the_extension_can_be_left_aside():
    """By a variable of the environment, when the package is imported; the numbers are the same."""
    words = survives(
        """
        import tensorferry as ferry
        from tensorferry.sequences import numbers

        assert not numbers.HAS_EXTENSION
        assert ferry.to_numpy([[1, 2.5], [True, 2]], dtype="float32").tolist() == [[1, 2.5], [1, 2]]
        print(ferry.to_list(range(3)))
        """,
        TENSORFERRY_NO_EXTENSION="1",
    )
    assert words == "[0, 1, 2]\n"


@extension
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_scalars_of_numpys_keep_their_dtype(kind):
    """They are typed, and no Python numbers."""
    assert ferry.to_numpy([kind(1), kind(2)]).dtype == kind
    assert lists.read([kind(1)], kind(1))[1] is None


@pytest.mark.parametrize("wanted", [None, "int8", "int32", "uint64", "float32"])
@pytest.mark.parametrize(
    "x", [[128], [2**31], [-1], [-(2**63)], [1, True, 2**63], [2**64 - 1, False]]
)
def test_few_ints_are_refused_alike_without_the_extension(wanted, x):
    """The first call makes the plan that the second one takes."""

    def outcomes():
        return [said(lambda: ferry.to_numpy(x, dtype=wanted)) for _ in range(2)]

    with by_numpy():
        ferry.to_numpy([1], dtype=wanted)
        without = outcomes()
    ferry.to_numpy([1], dtype=wanted)
    assert outcomes() == without


def said(call):
    try:
        result = call()
    except ferry.ConversionError as error:
        return type(error), str(error)
    return result.dtype, result.tobytes()


def test_a_list_is_read_as_it_was_looked_at_without_the_extension():
    """What another thread puts into it meanwhile would be cast in silence."""
    x = [1, 2]

    def look(row):
        found = numbers._look_by_numpy(row)
        x[:] = [2.5, 2.5, 2.5]
        return found

    with by_numpy(), pytest.MonkeyPatch.context() as patch:
        read = numbers.list_reader({int: "int64"})
        patch.setattr(numbers, "look", look)
        assert read(x).tolist() == [1, 2]


@pytest.mark.parametrize("x", [[128], [-129], [2**31], [2, True, 2**64 - 1]])
def test_few_ints_that_do_not_fit_are_left_to_the_plan_without_the_extension(x):
    with by_numpy():
        assert numbers.list_reader({int: "int8"})(x) is None
        assert numbers.list_reader({int: "int64"})(x) is None or max(x) < 2**63
