"""Casting on the way: the bits of `tensorferry.host.casts`, and a word for each number that does not fit."""

from __future__ import annotations

import ast
import re
import zlib

import ml_dtypes
import numpy as np
import pytest

from tensorferry import convert_files, load, save
from tensorferry.core.dtypes import DTYPES, find, holds_exactly
from tensorferry.errors import FileFormatError, LossyCastError
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent, InMemory, Record, View
from tensorferry.files.conversion import select as recast
from tensorferry.files.conversion.select import Recast
from tensorferry.host.casts import cast
from tensorferry.host.numpy_dtypes import numpy_dtype

FLOATS = [row.name for row in DTYPES.values() if row.kind == "float"]


def stored(values, dtype="float32"):
    array = np.asarray(values, numpy_dtype(dtype))
    return InMemory(array, dtype, id(array))


def every(dtype):
    """All patterns of bits of a floating dtype of up to two bytes; for wider ones those around its ends."""
    row = find(dtype)
    if row.itemsize <= 2:
        bits = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}.get(
            dtype, 8 * row.itemsize
        )
        return np.arange(1 << bits).astype(f"u{row.itemsize}").view(numpy_dtype(row.name))
    with np.errstate(all="ignore"):
        around = []
        for other in FLOATS:
            limits = ml_dtypes.finfo(numpy_dtype(other))
            for value in (
                limits.max,
                limits.smallest_normal,
                limits.smallest_subnormal,
                limits.eps,
            ):
                exact_value = np.array(float(value)).astype(numpy_dtype(row.name))
                scales = (0.25, 0.5, 0.99, 1.0, 1.03, 1.06, 1.1, 1.25, 1.5, 2.0, 4.0)
                around.extend(
                    exact_value * np.array(scale, numpy_dtype(row.name)) for scale in scales
                )
        values = np.array([*around, 0, 1, np.inf, np.nan], numpy_dtype(row.name))
        return np.concatenate([values, -values])


def with_doubt(call):
    """The result of a call, or the error that says that a number does not fit."""
    try:
        return call()
    except LossyCastError as error:
        return error


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", FLOATS)
def test_each_number_between_floating_dtypes(source, target):
    """For every pair and every number: what `casts` makes of it, unless it does not fit; then as each mode says."""
    values = every(source)
    plain = cast(values, target)
    specials = find(target).specials
    limits = ml_dtypes.finfo(numpy_dtype(target))
    with np.errstate(all="ignore"):
        wide, after = values.astype(np.float64), plain.astype(np.float64)
    largest = float(limits.max)
    nan, inf = np.isnan(wide), np.isinf(wide)
    finite = ~nan & ~inf
    if "nan" in specials:
        lost = finite & ~np.isfinite(after) | inf & ~np.isinf(after)
    else:
        lost = nan | (np.abs(wide) > largest)
    if holds_exactly(source, target):
        assert not lost.any()

    rng = np.random.default_rng(1)
    chosen = np.unique(
        np.concatenate([np.flatnonzero(lost)[:40], rng.integers(0, len(values), 40)])
    )
    for index in chosen:
        one = Recast(stored(values[index : index + 1], source), target, "raise", "w")
        result = with_doubt(lambda one=one: one.array())
        if lost[index]:
            assert isinstance(result, LossyCastError)
            assert "w" in str(result)
            assert "[0]" in str(result)
        else:
            assert result.tobytes() == plain[index : index + 1].tobytes()

        one = Recast(stored(values[index : index + 1], source), target, "saturate", "w")
        result = with_doubt(lambda one=one: one.array())
        positive_only = "negative" not in specials
        if not lost[index]:
            assert result.tobytes() == plain[index : index + 1].tobytes()
        elif nan[index] or (positive_only and not wide[index] > largest):
            assert isinstance(result, LossyCastError)
        else:
            wanted = np.array([np.copysign(largest, wide[index])]).astype(numpy_dtype(target))
            assert result.tobytes() == wanted.tobytes()

        one = Recast(stored(values[index : index + 1], source), target, "nan", "w")
        result = with_doubt(lambda one=one: one.array())
        if not lost[index]:
            assert result.tobytes() == plain[index : index + 1].tobytes()
        elif "nan" not in specials or (positive_only and not wide[index] > largest):
            assert isinstance(result, LossyCastError)
        else:
            assert np.isnan(result.astype(np.float64)).all()


@pytest.mark.parametrize("target", ["float16", "float8_e5m2", "float8_e4m3fn", "bfloat16"])
def test_only_what_is_too_large_becomes_nan(target):
    """NaN and what fits stay; an infinity stays one if the dtype has infinities."""
    values = np.array([np.nan, np.inf, -np.inf, 1e39, -1e39, 1.0])
    found = Recast(stored(values, "float64"), target, "nan").array().astype(np.float64)
    infinite = np.inf if "inf" in find(target).specials else np.nan
    np.testing.assert_array_equal(found, [np.nan, infinite, -infinite, np.nan, np.nan, 1])


@pytest.mark.parametrize("target", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_a_dtype_without_nan_never_takes_another_number_for_it(target, value):
    """The error names the tensor and the position."""
    with pytest.raises(LossyCastError, match=r"w: float32 to .*: the value at \[1\] does not fit"):
        Recast(stored([1, value]), target, "nan", "w").array()


def test_bfloat16_rounds_to_nearest_even():
    """The reference is arithmetic on the bits: add half, less one if the kept part is even, and cut."""
    bits = np.random.default_rng(3).integers(0, 0x7F7F8000, 1 << 18, np.uint32) | (
        np.random.default_rng(4).integers(0, 2, 1 << 18, np.uint32) << np.uint32(31)
    )
    wanted = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    found = Recast(stored(bits.view(np.float32)), "bfloat16").array()
    assert found.view(np.uint16).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("target", ["bfloat16", "float16", "float64", "float8_e4m3fn"])
def test_large_tensors_go_block_by_block(monkeypatch, ahead, target):
    """The same bits as in one go, in blocks that are small, read ahead or not; errors name the place in the whole."""
    monkeypatch.setattr(recast, "_AHEAD", 0 if ahead else 1 << 40)
    values = np.random.default_rng(5).standard_normal((1000, 1037), np.float32)
    found = []
    for block in Recast(stored(values), target).blocks():
        assert block.ndim == 1
        assert block.nbytes <= 2 << 20
        found.append(block.copy())
    assert np.concatenate(found).tobytes() == cast(values, target).tobytes()
    if target != "float64":
        values[777, 5] = -3e38 if target != "bfloat16" else -3.4e38
        with pytest.raises(
            LossyCastError, match=r"layer\.w: float32 to .*: the value at \[777, 5\]"
        ):
            list(Recast(stored(values), target, "raise", "layer.w").blocks())


def test_a_reader_who_stops_early_leaves_no_thread(monkeypatch):
    """Closing the generator ends what reads ahead."""
    import threading

    monkeypatch.setattr(recast, "_AHEAD", 0)
    before = threading.active_count()
    blocks = Recast(stored(np.zeros(4 << 20, np.float32)), "bfloat16").blocks()
    next(blocks)
    assert threading.active_count() == before + 1
    blocks.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("overflow", ["raise", "saturate", "nan"])
def test_between_other_kinds_each_value_must_survive(overflow):
    """Integers, bools and complex numbers: exact or an error that names the position, in every mode."""
    good = [
        ([1, -2, 255], "int64", "int16"),
        ([0, 1, 2**24], "int32", "float32"),
        ([1.0, -3.0], "float32", "int8"),
        ([True, False], "bool", "uint8"),
        ([0, 1], "int64", "bool"),
        ([1 + 0j, -2], "complex64", "float16"),
    ]
    for values, source, target in good:
        found = Recast(stored(values, source), target, overflow).array()
        assert found.tobytes() == np.real(values).astype(numpy_dtype(target)).tobytes()
    bad = [
        ([1, 2, 70000], "int64", "int16", 2),
        ([0, 2**24 + 1], "int32", "float32", 1),
        ([1.0, 0.5], "float32", "int8", 1),
        ([-1, 1], "int8", "uint8", 0),
        ([0, 2], "int64", "bool", 1),
        ([1, 1j, 2j], "complex64", "float16", 1),
        ([1.0, 2.0, np.nan], "float32", "int32", 2),
    ]
    for values, source, target, position in bad:
        with pytest.raises(LossyCastError, match=rf"\[{position}\]"):
            Recast(stored(values, source), target, overflow).array()


def test_complex_numbers_are_two_floats():
    """Too large in either part: an error at the number, or that part clamped."""
    values = np.array([1 + 1j, 1e300 - 2j, 3 - 1e300j, complex(np.inf, np.nan)])
    with pytest.raises(LossyCastError, match=r"\[1\]"):
        Recast(stored(values, "complex128"), "complex64").array()
    found = Recast(stored(values, "complex128"), "complex64", "saturate").array()
    largest = np.finfo(np.float32).max
    assert found[:3].tolist() == [1 + 1j, complex(largest, -2), complex(3, -largest)]
    assert np.isinf(found[3].real)
    assert np.isnan(found[3].imag)
    found = Recast(stored(values, "complex128"), "complex64", "nan").array()
    np.testing.assert_array_equal(found.real, [1, np.nan, 3, np.inf])
    np.testing.assert_array_equal(found.imag, [1, -2, np.nan, np.nan])
    real = Recast(stored([1.0, -1e300], "float64"), "complex64", "nan").array()
    np.testing.assert_array_equal(real, [1, np.nan])
    real = Recast(stored([1.0, -1e300], "float64"), "complex64", "saturate").array()
    assert real.tolist() == [1, -largest]


def test_scalars_and_empty_tensors():
    """0-d keeps its shape and names no position; empty tensors cast to empty ones."""
    assert Recast(stored(1.5), "float16").array().shape == ()
    with pytest.raises(LossyCastError, match="the value does not fit"):
        Recast(stored(1e30), "float16").array()
    empty = Recast(stored(np.zeros((3, 0))), "float16").array()
    assert (empty.shape, empty.dtype) == ((3, 0), np.float16)


def test_the_source_is_never_written(tmp_path):
    """Clamping happens in the copy."""
    values = np.array([1e30, 1.0], np.float32)
    before = values.tobytes()
    Recast(stored(values), "float16", "saturate").array()
    assert values.tobytes() == before


def test_the_sources_checksum_is_compared(tmp_path):
    """A cast tensor still lies in its record; a strided one likewise."""
    path = tmp_path / "data"
    values = np.arange(6, dtype=np.float32)
    path.write_bytes(values.tobytes())
    for crc, fits in ((zlib.crc32(values.tobytes()), True), (1, False)):
        record = Record(str(path), 0, 24, crc)
        for inner in (
            Extent("float32", (6,), str(path), 0, record),
            View("float32", (3, 2), str(path), 0, (4, 12), record),
        ):
            call = Pump().array if fits else Pump().blocks
            if fits:
                assert (
                    call(Recast(inner, "float16")).tobytes()
                    == inner.array().astype(np.float16).tobytes()
                )
            else:
                with pytest.raises(FileFormatError, match="corrupt"):
                    list(call(Recast(inner, "float16")))


def test_ties_stay_ties():
    """Two casts of one tensor to one dtype have one key; to another dtype they have not."""
    inner = stored([1.0])
    assert Recast(inner, "float16", name="a").key == Recast(inner, "float16", name="b").key
    assert Recast(inner, "float16").key != Recast(inner, "bfloat16").key
    assert Recast(inner, "float16").key != inner.key


@pytest.mark.parametrize("name", ["v", "float", "a.*[0]"])
@pytest.mark.parametrize(
    ("values", "dtype", "overflow"),
    [
        (np.array([1, 300]), "int8", "raise"),
        (np.array([1, 300]), {"int64": "bool"}, "saturate"),
        (np.array([1, 2**53 + 1]), {"int": "float64"}, "nan"),
        (np.array([0.5]), {"float64": "int8"}, "raise"),
        (np.array([1j]), ["complex128=float32"], "raise"),
        (np.array([np.nan]), "float4_e2m1fn", "saturate"),
        (np.array([1e300]), "float16", "raise"),
        (np.array([np.inf]), "float4_e2m1fn", "nan"),
    ],
)
def test_the_hint_of_a_number_that_does_not_fit_works(tmp_path, name, values, dtype, overflow):
    """Each keyword in it converts the file: the tensor keeps its dtype, or becomes what `overflow` says."""
    start, target = tmp_path / "in.npz", tmp_path / "out.npz"
    save({name: values, "other": values[:0]}, start)
    with pytest.raises(LossyCastError) as raised:
        convert_files(start, target, dtype=dtype, overflow=overflow)
    modes = re.findall(r'overflow="(\w+)"', raised.value.hint)
    spared = re.search(r"dtype=({.*?})", raised.value.hint)[1]
    found = load(
        convert_files(start, target, dtype=ast.literal_eval(spared), overflow=overflow).target
    )
    assert found[name].tobytes() == values.tobytes()
    assert found["other"].dtype != values.dtype
    for mode in modes:
        found = load(
            convert_files(start, target, dtype=dtype, overflow=mode, overwrite=True).target
        )
        assert found[name].dtype != values.dtype
    assert bool(modes) == (abs(values[0]) > 1e30)


def test_the_hint_leaves_out_what_the_format_does_not_hold(tmp_path):
    """For dtype="fit" there is no dtype that holds more."""
    start, target = tmp_path / "in.npz", tmp_path / "out.safetensors"
    save({"v": np.array([1e300j]), "w": np.ones(2)}, start)
    with pytest.raises(LossyCastError) as raised:
        convert_files(start, target, dtype="fit")
    assert raised.value.hint.endswith(
        '; or exclude="v", which leaves it out: the format does not hold complex128'
    )
    assert convert_files(start, target, dtype="fit", exclude="v").tensors == 1
