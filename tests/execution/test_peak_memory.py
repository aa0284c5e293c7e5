"""Peak memory: never more than the source and the result, counted in processes of their own."""

from __future__ import annotations

import pytest
from tests.support import PEAK, lives

pytest.importorskip("torch")
pytest.importorskip("tensorflow")
pytest.importorskip("jax")

MEASURE = (
    PEAK
    + """
import numpy as np, tensorferry as ferry

MB = 1 << 20

def expect(limit, call, what):
    grown, result = peak_of(call)
    assert grown < limit + 3 * MB, f"{what}: {grown / MB:.0f} MB for a result of {limit / MB:.0f} MB"
    del result
"""
)


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax"])
def test_a_large_copy_or_cast_needs_the_result_and_no_more(framework):
    """16 MB of float32, copied, packed, swapped and cast for one target: no second temporary."""
    lives(
        MEASURE
        + f"target = {framework!r}\n"
        + """
ferry.convert(np.ones((300, 300), np.float32)[:, ::-1], target, dtype="float16")  # everything is loaded
ferry.convert(np.ones((300, 300), np.float32), target, copy=True)
ferry.convert(np.ones(1 << 18, np.float32), target, dtype="int32")
x = np.ones((2048, 2048), np.float32)
expect(16 * MB, lambda: ferry.convert(x, target, copy=True), "copy")
expect(16 * MB, lambda: ferry.convert(x[::-1], target, copy=True), "reversed")
expect(16 * MB, lambda: ferry.convert(x.T, target, copy=True), "transposed")
expect(8 * MB, lambda: ferry.convert(x, target, dtype="float16"), "narrowed")
expect(8 * MB, lambda: ferry.convert(x.T, target, dtype="bfloat16"), "transposed and narrowed")
expect(16 * MB, lambda: ferry.convert(x, target, dtype="int32"), "cast and compared")
expect(4 * MB, lambda: ferry.convert(x, target, dtype="float8_e4m3fn"), "float8")
swapped = x.astype(">f4")
expect(16 * MB, lambda: ferry.convert(swapped, target), "swapped")
del swapped
half = np.ones((2048, 2048), np.float16)
expect(16 * MB, lambda: ferry.convert(half, target, dtype="float32"), "widened")
rows = [x[index] for index in range(len(x))]
expect(16 * MB, lambda: ferry.convert(rows, target), "stacked")
"""
    )


def test_large_sharing_conversions_need_nothing():
    """Where memory is shared, none is taken."""
    lives(
        MEASURE
        + """
import torch
block = np.ones(64 * MB // 4 + 32, np.float32)
start = (-block.ctypes.data % 64) // 4
x = block[start : start + 64 * MB // 4]
for target in ("torch", "tensorflow", "jax", "numpy"):
    warm = ferry.convert(x[:64], target, copy=False)
    grown, result = peak_of(lambda: ferry.convert(x, target, copy=False))
    assert grown < 4 * MB, (target, grown)
    grown, back = peak_of(lambda: ferry.to_numpy(result))
    assert grown < 4 * MB, (target, grown)
    assert ferry.shares_memory(back, x)
"""
    )


def test_a_long_list_needs_the_result_and_no_more():
    """Millions of Python numbers, flat and nested: read in parts as what the target takes, never first as 64 bits."""
    lives(
        MEASURE
        + """
import torch, tensorflow, jax
count = 1 << 20
floats = [float(index) for index in range(count)]
some_missing = [*floats[:-1], float("nan")]
rows = [floats[start : start + 1024] for start in range(0, count, 1024)]
wide = [floats[: count // 2], floats[count // 2 :]]
ints = [int(number) for number in floats]
late = [*ints[:-1], 1 << 40]
for target in ("numpy", "torch", "tensorflow", "jax", "python"):
    ferry.convert(floats[: 1 << 17], target)
    ferry.convert(ints[: 1 << 17], target)
expect(8 * MB, lambda: ferry.convert(floats, "numpy"), "as they are read")
expect(8 * MB, lambda: ferry.convert(late, "tensorflow"), "the last one is wide")
for target in ("torch", "tensorflow", "jax"):
    for name in ("floats", "some_missing", "rows", "wide"):
        expect(4 * MB, lambda: ferry.convert(globals()[name], target), f"{name} to {target}")
    expect(4 * MB, lambda: ferry.convert(ints, target, dtype="int32"), f"ints to {target}")
    expect(2 * MB, lambda: ferry.convert(floats, target, dtype="bfloat16"), f"bfloat16 to {target}")
expect(4 * MB, lambda: ferry.convert(ints, "jax"), "ints as int32")
expect(2 * MB, lambda: ferry.convert(floats, "numpy", dtype="float16"), "float16")
"""
    )


def test_a_long_list_becomes_a_list_without_an_array_of_it():
    """The result is pointers to the same numbers, or new numbers where the dtype is another: no array besides."""
    lives(
        MEASURE
        + """
count = 1 << 19
pointers, numbers = 8 * count, 32 * count  # a float of 24 bytes lies at a multiple of 16
floats = [float(index) for index in range(count)]
rows = [floats[start : start + 1024] for start in range(0, count, 1024)]
wide = [floats[: count // 2], floats[count // 2 :]]
ints = [int(number) for number in floats]
mixed = [*ints[: count // 2], *floats[count // 2 :]]
ferry.to_list(mixed, dtype="float16")
for name in ("floats", "rows", "wide", "ints"):
    expect(pointers, lambda: ferry.to_list(globals()[name]), name)
expect(pointers + numbers // 2, lambda: ferry.to_list(mixed), "ints and floats")
expect(pointers + numbers, lambda: ferry.to_list(floats, dtype="float32"), "as float32")
"""
    )


def test_a_long_list_is_written_into_out_with_no_array_beside_it():
    """Into every dtype of an array and of a tensor that is given, strided ones as well, nothing else is taken."""
    lives(
        MEASURE
        + """
import torch
count = 1 << 19
floats = [float(index % 100) for index in range(count)]
rows = [floats[start : start + 1024] for start in range(0, count, 1024)]
mixed = [*map(int, floats[: count // 2]), *floats[count // 2 :]]
for target in ("numpy", "torch"):
    for dtype in ("float64", "float32", "int8"):
        out = ferry.convert(np.ones(2 * count), target, dtype=dtype)
        ferry.convert(floats[: 1 << 17], target, out=out[: 1 << 17])
        for x in (floats, mixed):
            expect(0, lambda: ferry.convert(x, target, out=out[::2]), f"{target} {dtype}")
        expect(0, lambda: ferry.convert(rows, target, out=out[:count].reshape(-1, 1024)), f"rows, {target} {dtype}")
        assert ferry.to_list(out[:7], dtype="int64") == [0, 1, 2, 3, 4, 5, 6]
"""
    )


def test_ints_that_turn_out_to_be_among_floats_are_held_once():
    """Ints that turn out to be among floats, which the last part tells: one array at a time, of 64 bits."""
    lives(
        MEASURE
        + """
import torch
count = 1 << 20
mixed = [*range(count - 1), 0.5]
ferry.to_torch(mixed[: 1 << 17])
ferry.to_torch(mixed[-(1 << 17) :], dtype="float16")
expect(8 * MB, lambda: ferry.to_torch(mixed), "float32 of ints, and then of floats")
expect(8 * MB, lambda: ferry.to_numpy(mixed), "float64")
"""
    )


def test_stacking_small_arrays_makes_no_view_of_each():
    """100,000 arrays of four numbers: the pile of views that np.stack makes would be ten times the result."""
    lives(
        MEASURE
        + """
import torch
arrays = list(np.ones((200_000, 4), np.float32))
ferry.to_torch(arrays[:1000])
grown, result = peak_of(lambda: ferry.to_torch(arrays))
assert grown < 3.2 * MB + 12 * MB, grown / MB
"""
    )


def test_small_copies_and_casts_take_no_second_buffer():
    """No list, no wider temporary: the result, and what a few blocks take."""
    lives(
        MEASURE
        + """
import torch
x = np.ones((2048, 1024), np.float32)
calls = {
    "copy": (lambda: ferry.to_torch(x, copy=True), x.nbytes),
    "transposed": (lambda: ferry.to_numpy(x.T, copy=True), x.nbytes),
    "narrow": (lambda: ferry.to_torch(x, dtype="float16"), x.nbytes // 2),
    "bfloat16": (lambda: ferry.to_numpy(x, dtype="bfloat16"), x.nbytes // 2),
    "wide": (lambda: ferry.to_numpy(x, dtype="float64"), x.nbytes * 2),
    "checked": (lambda: ferry.to_numpy(x, dtype="int16"), x.nbytes // 2),
    "complex": (lambda: ferry.to_numpy(x, dtype="complex64"), x.nbytes * 2),
}
for name, (call, size) in calls.items():
    call()
    peak, result = peak_of(call)
    assert peak < size + 3 * MB, f"{name}: {peak / size:.2f} times the result"
"""
    )
