"""Arrays are compared and joined in C, or left to NumPy; nothing that is no plain array is read.

No framework is needed here, so that `make sanitize` can run it under the sanitizers.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support import examples

import tensorferry as ferry
from tensorferry.host import memory

extension = pytest.mark.skipif(
    memory._joins_extension() is None,
    reason="the extension was not built, or TENSORFERRY_NO_EXTENSION is set",
)


class Owned(np.ndarray):
    """Somebody's own arrays."""


DTYPES = [
    "f4",
    "f8",
    ">f8",
    "u1",
    "bool",
    "c16",
    "m8[s]",
    "O",
    "U3",
    "i4,f4",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e5m2,
]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
LAYOUTS = [
    np.asarray,
    np.asarray,
    np.asfortranarray,
    lambda x: np.stack([x, x], -1)[..., 0],
    lambda x: x[::-1] if x.ndim else x,
    lambda x: x.view(Owned),
    np.ma.masked_array,
    lambda x: np.broadcast_to(x, x.shape),
]


@st.composite
def lists_of_arrays(draw):
    """A few arrays, most of them of one dtype and shape, with numbers that NumPy makes of bytes."""
    kinds = st.tuples(st.sampled_from(DTYPES), SHAPES)
    likely = draw(st.lists(kinds, min_size=1, max_size=2))
    found = []
    for dtype, shape in draw(st.lists(st.sampled_from(likely), min_size=1, max_size=5)):
        first = draw(st.integers(0, 100))
        count = np.prod(shape, dtype=int)
        numbers = np.arange(first, first + count).reshape(shape)
        found.append(draw(st.sampled_from(LAYOUTS))(numbers.astype(dtype)))
    return found


@settings(max_examples=examples(900), deadline=None)
@given(lists_of_arrays())
def test_what_is_joined_is_what_numpy_stacks(several):
    """In new, aligned, writable memory; all else gives nothing."""
    first, made = several[0], memory.joined_array(several)
    alike = {(type(x), x.dtype, x.shape) for x in several} == {
        (np.ndarray, first.dtype, first.shape)
    }
    assert memory.are_alike(several) is alike
    takes = alike and first.dtype.isnative and not first.dtype.hasobject and first.size > 0
    if made is None:
        # Dates, text and records have dtypes that are equal, but not the same object.
        usual = takes and first.dtype.kind not in "mUV"
        compact = all(x.flags.c_contiguous for x in several)
        assert memory._joins_extension() is None or not (usual and compact)
        return
    assert takes
    assert made.tobytes() == np.stack(several).tobytes()
    assert (made.dtype, made.shape) == (first.dtype, (len(several), *first.shape))
    assert made.flags.carray
    assert made.ctypes.data % 64 == 0
    assert not any(np.shares_memory(made, x) for x in several)


@settings(max_examples=examples(600), deadline=None)
@given(
    dtype=st.sampled_from([each for each in DTYPES if each != "O"]),
    layout=st.sampled_from(LAYOUTS[:5]),
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    more=st.integers(0, 3),
    inner=arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    left=st.booleans(),
    fills=st.sampled_from([0, 1, 77]),
    swapped=st.booleans(),
)
def test_rows_are_padded_as_by_hand(dtype, layout, lengths, more, inner, left, fills, swapped):
    """Each row at its end of a longer one, and the value everywhere else, in new memory."""
    count, longest = sum(lengths), max(lengths) + more
    numbers = np.arange(3, 3 + count * np.prod(inner, dtype=int)).reshape(count, *inner)
    values = layout(numbers.astype(dtype))
    value = np.array(fills).astype(dtype)
    if swapped and value.dtype.kind in "fiu":
        value = value.astype(value.dtype.newbyteorder())
    made = memory.padded_array(
        values, memory.RowLengths(lengths, left), (len(lengths), longest, *inner), value
    )
    assert (made.dtype, made.flags.carray) == (value.dtype, True)
    assert not np.shares_memory(made, values)
    start = 0
    for row, length in zip(made, lengths, strict=True):
        at = longest - length if left else 0
        own, rest = row[at : at + length], (row[:at], row[at + length :])
        assert own.tobytes() == values[start : start + length].astype(value.dtype).tobytes()
        assert all(each.tobytes() == value.tobytes() * each.size for each in rest)
        start += length


def test_rows_may_be_counted_by_several_axes():
    """As the tensors of nested lists are."""
    rows, shape = memory.RowLengths([1, 2, 0, 3], left=False), (2, 2, 3)
    made = memory.padded_array(np.arange(1, 7), rows, shape, np.array(0))
    assert made.tolist() == [[[1, 0, 0], [2, 3, 0]], [[0, 0, 0], [4, 5, 6]]]


@extension
def test_rows_that_do_not_fit_are_not_padded():
    """Nothing is written, before or behind the memory either."""
    pad, values, zero = memory._joins_extension().pad, np.arange(1, 7), np.zeros((), int)
    whole = np.full((5, 4), 9)
    target = whole[1:4]
    for lengths, element in (
        ([7], zero),
        ([6, 0, 0], zero),
        ([-1, 7, 0], zero),
        ([2**62, 2**62, 6], zero),
        ([1, 1, 5], zero),
        ([0, 0, 0], zero),
        ([2, 2, 1], zero),
        ([], zero),
        ([2, 2, 2], np.zeros(3, "u1")),
        ([2, 2, 2], b""),
    ):
        with pytest.raises(ValueError, match="another size than the rows"):
            pad(values, lengths, target, element, False)
    for wrong, error in (
        ((values, ["a", 1, 5], target, zero, False), TypeError),
        ((values, [2**70, 1, 5], target, zero, False), OverflowError),
        ((values, 6, target, zero, False), TypeError),
        ((values[::2], [1, 1, 1], target, zero, False), (BufferError, ValueError)),
        ((values, [2, 2, 2], bytes(96), zero, False), (BufferError, TypeError)),
        ((values, [2, 2, 2], target), TypeError),
    ):
        with pytest.raises(error):
            pad(*wrong)
    assert (whole == 9).all()
    pad(values, [1, 3, 2], target, zero, True)
    assert whole.tolist() == [
        [9, 9, 9, 9],
        [0, 0, 0, 1],
        [0, 2, 3, 4],
        [0, 0, 5, 6],
        [9, 9, 9, 9],
    ]


@extension
def test_nothing_is_kept():
    """References to arrays and dtypes are given back, and to lists."""
    rows = [np.ones(3), np.zeros(3)]
    odd = [*rows, np.ones(3, "f4")]
    lengths, target, value = [300, 301], np.empty((2, 400)), np.zeros(())
    joined = np.ones(601)
    objects = [rows, odd, *rows, np.ndarray, rows[0].dtype, lengths, target, value, joined]

    def all_of_it():
        memory.joined_array(rows)
        memory.are_alike(rows)
        memory._joins_extension().are_alike(odd, np.ndarray)
        memory.joined_array(odd)
        memory._joins_extension().seen(rows[0])
        memory._joins_extension().pad(joined, lengths, target, value, False)
        with contextlib.suppress(ValueError):
            memory._joins_extension().pad(joined[1:], lengths, target, value, False)

    all_of_it()
    gc.collect()
    before = list(map(sys.getrefcount, objects))
    for _ in range(50):
        all_of_it()
    gc.collect()
    assert [b - a < 20 for a, b in zip(before, map(sys.getrefcount, objects), strict=True)] == [
        True
    ] * len(objects)


@extension
def test_the_extension_takes_nothing_but_plain_arrays_that_fit():
    """Whatever is in doubt is left alone, and the target with it."""
    rows = [np.ones(3), np.zeros(3)]
    out = np.full((2, 3), 9.0)
    read_only = np.full((2, 3), 9.0)
    read_only.setflags(write=False)
    join = memory._joins_extension().join
    for odd in (
        [rows[0]],
        [*rows, rows[0]],
        [rows[0], np.ones(4)],
        [rows[0], np.ones((1, 3))],
        [rows[0], np.ones(3, "f4")],
        [rows[0], np.ones(3, ">f8")],
        [rows[0], np.ones(6)[::2]],
        [rows[0], np.ones(3).view(Owned)],
        [rows[0], [1.0, 1.0, 1.0]],
        [],
    ):
        assert join(odd, out, np.ndarray) is False
        assert (out == 9).all()
    assert join(rows, out, np.ndarray) is True
    assert out.tolist() == [[1, 1, 1], [0, 0, 0]]
    for wrong, error in (
        ((rows, bytearray(48), np.ndarray), TypeError),
        ((rows, out), TypeError),
        ((rows, read_only, np.ndarray), ValueError),
        ((7, out, np.ndarray), TypeError),
    ):
        with pytest.raises(error):
            join(*wrong)
    are_alike = memory._joins_extension().are_alike
    assert are_alike(rows, np.ndarray) is are_alike(tuple(rows), np.ndarray) is True
    for odd in (
        [],
        [*rows, np.ones(4)],
        [*rows, np.ones(3, "f4")],
        [*rows, np.ones(6)[::2]],
        [rows],
    ):
        assert are_alike(odd, np.ndarray) is False
    with pytest.raises(TypeError):
        memory._joins_extension().are_alike(rows, "ndarray")


@extension
def test_lists_that_change_meanwhile_do_no_harm():
    """Another thread puts other arrays in, while the list is joined."""
    x = [np.full(1 << 12, 1.0) for _ in range(300)]
    done = threading.Event()

    def change():
        while not done.is_set():
            x[7] = np.full(1 << 12, 2.0)
            x[7] = np.full(3, 2.0)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            with contextlib.suppress(ferry.ConversionError, ValueError):
                made = ferry.to_numpy(x)
                assert made.shape == (300, 1 << 12)
                assert set(np.unique(made)) <= {1.0, 2.0}
    finally:
        done.set()
        thread.join()


# -- what arrays are -------------------------------------------------------------------------------


@extension
@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_facts_are_what_the_attributes_say(data):
    """Of each array by itself: dtype, axes, flags, size, and where it lies."""
    count = data.draw(st.integers(0, 40))
    kinds = data.draw(
        st.lists(
            st.tuples(st.sampled_from(DTYPES[:7]).map(np.dtype), SHAPES), min_size=1, max_size=4
        )
    )
    made = []
    for _ in range(count):
        dtype, shape = data.draw(st.sampled_from(kinds))
        array = np.zeros(shape, dtype)
        made.append(data.draw(st.sampled_from([array, array.T, array[...], array.copy("F")])))
    found, extents = memory.array_facts(made), memory.array_extents(made)
    assert [*map(len, extents)] == [count, count]
    assert len(found.firsts) == len(set(found.groups.tolist()))
    for index, array in enumerate(made):
        first = made[found.firsts[found.groups[index]]]
        assert (first.dtype, first.ndim, first.flags.num) == (
            array.dtype,
            array.ndim,
            array.flags.num,
        )
        start = array.__array_interface__["data"][0]
        assert (extents[0][index], extents[1][index]) == (start, start + array.nbytes)
        assert found.sizes[index] == array.size


@extension
def test_what_is_no_plain_array_has_no_facts():
    """A subclass, a scalar, or anything else; nor have arrays of very many kinds."""
    plain = np.ones(2)
    for odd in (plain.view(Owned), np.ma.masked_array([1.0]), np.float32(1), 1.0, None, "x"):
        for asked in (
            memory.array_facts,
            memory.array_extents,
            lambda arrays: memory.array_signatures(arrays, 1),
        ):
            assert asked([plain, odd]) is None
            assert asked([odd]) is None
            assert asked([np.zeros((1,) * rank, "u1") for rank in range(40)]) is None
    assert len(memory.array_facts([np.zeros((1,) * rank, "u1") for rank in range(32)]).firsts) == 32


@extension
@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), modulo=st.sampled_from([1, 2, 16, 64]))
def test_signatures_of_several_are_equal_as_their_attributes_are(data, modulo):
    """Equal for as many arrays of the same dtypes, axes, flags and addresses in the same order."""
    block = np.zeros(200, "u1")
    some = [
        np.ones(3),
        np.zeros((2, 2)),
        np.zeros((2, 2), order="F"),
        np.ones(5, "i4"),
        np.ones(5, ">i4"),
        np.ones((), "f4"),
        np.ones(6)[::2],
        *(block[at : at + 8].view("f8") for at in range(9)),
        *(block[at:] for at in (1, 2, 16, 64)),
    ]
    some[0].flags.writeable = False
    first, second = (data.draw(st.lists(st.sampled_from(some), max_size=4)) for _ in range(2))

    def told(arrays):
        return [
            (x.dtype, x.ndim, x.flags.num, x.__array_interface__["data"][0] % modulo)
            for x in arrays
        ]

    found = memory.array_signatures(first, modulo), memory.array_signatures(second, modulo)
    assert (found[0] == found[1]) is (told(first) == told(second))
    assert memory.array_signatures([*first, np.ones(0)], modulo) is None


@extension
def test_facts_keep_nothing():
    """Neither the arrays nor their dtypes."""
    made = [np.ones(3) for _ in range(20)]
    before = sys.getrefcount(made[0]), sys.getrefcount(made[0].dtype)
    for _ in range(100):
        memory.array_facts(made)
        memory.array_extents(made)
        memory.array_signatures(made, 64)
    with contextlib.suppress(TypeError):
        memory.array_facts(5)
    with contextlib.suppress(TypeError):
        memory.array_signatures(5, 1)
    with contextlib.suppress(TypeError):
        memory.array_extents(5)
    assert (sys.getrefcount(made[0]), sys.getrefcount(made[0].dtype)) == before


@extension
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 6)), max_size=40))
def test_runs_of_bytes_are_told_apart(runs):
    """Lists and buffers of starts and ends; a run without bytes counts as a byte."""
    starts, ends = [start for start, _ in runs], [start + length for start, length in runs]
    taken = [
        each
        for start, end in zip(starts, ends, strict=True)
        for each in range(start, max(end, start + 1))
    ]
    apart, numbers = (
        memory._joins_extension().are_apart,
        np.array([starts, ends], np.uint64).reshape(2, -1),
    )
    assert apart(starts, ends) is (len(set(taken)) == len(taken))
    for cut in range(0, len(starts), 7):
        parts = starts[:cut], ends[:cut], numbers[0, cut:], numbers[1, cut:]
        assert apart(*parts) is apart(starts, ends)
        assert memory.sharing_runs(*parts) == memory.sharing_runs(starts, ends)
    assert apart(*numbers) is apart(starts, memoryview(numbers[1])) is apart(starts, ends)


@extension
def test_what_is_no_run_of_bytes_is_refused():
    """Other starts than ends, and numbers that are no addresses."""
    apart, largest = memory._joins_extension().are_apart, 2**64 - 2
    assert apart([largest, 0], [largest + 1, 1])
    for starts, ends in (([1], []), ([1, 2], [3]), (np.zeros(2, "u8"), np.zeros(1, "u8"))):
        with pytest.raises(ValueError, match="other starts than ends"):
            apart(starts, ends)
    for odd in ([-1], [2**64], ["x"], np.zeros((4, 2))[:, 0]):
        with pytest.raises((TypeError, ValueError, OverflowError, BufferError)):
            apart(odd, odd)
    for odd in (([1],), ([1], [2], [3]), ()):
        with pytest.raises(TypeError):
            apart(*odd)
    with pytest.raises(ValueError, match="other starts than ends"):
        apart([1], [2], [3], [])
