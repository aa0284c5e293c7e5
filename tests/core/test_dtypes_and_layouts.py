"""The values below the planner: the rows of the dtype table, how elements lie in memory."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends.numpy.declared import cast_code
from tensorferry.core.dtype_names import name_of
from tensorferry.core.dtypes import DTYPES, ORDINARY
from tensorferry.core.layout import overlaps_itself
from tensorferry.host.memory import share_a_byte
from tensorferry.host.numpy_dtypes import numpy_dtype, of_numpy

# -- the table of dtypes --------------------------------------------------------------------------


@pytest.mark.parametrize("row", DTYPES.values(), ids=lambda row: row.name)
def test_a_row_is_what_numpy_and_ml_dtypes_say(row):
    """Each number of the table, asked of the libraries that it was taken from."""
    dtype = numpy_dtype(row.name)
    assert dtype.name == row.name
    assert of_numpy(dtype) == name_of(dtype) == name_of(dtype.type) == row.name
    assert (dtype.itemsize, dtype.alignment) == (row.itemsize, row.alignment)
    assert (row.name in ORDINARY) == (dtype.isbuiltin == 1)
    if row.kind in ("int", "uint"):
        limits = ml_dtypes.iinfo(dtype)
        assert (limits.min, limits.max) == (
            -(2**row.precision) if row.kind == "int" else 0,
            2**row.precision - 1,
        )
        assert (row.lowest, row.highest, row.specials) == (0, row.precision, frozenset())
    elif row.kind == "bool":
        assert (row.precision, row.lowest, row.highest, row.specials) == (1, 0, 1, frozenset())
    else:
        part = np.dtype({"complex64": "float32", "complex128": "float64"}.get(row.name, dtype))
        limits = ml_dtypes.finfo(part)
        assert row.precision == limits.nmant + 1
        assert float(limits.smallest_subnormal) == 2.0**row.lowest
        assert 2.0 ** (row.highest - 1) <= float(limits.max)
        assert row.highest == 1024 or float(limits.max) < 2.0**row.highest
        assert row.specials == specials(part)


def specials(dtype):
    """What a float can be besides the ordinary numbers, tried out."""
    kept = {
        word: np.array(value, np.float32).astype(dtype).astype(np.float64)
        for word, value in TRIED.items()
    }
    return {word for word, value in kept.items() if IS[word](value)}


TRIED = {"inf": np.inf, "nan": np.nan, "negative": -1, "zero": 0, "-0": -0.0}
IS = {
    "inf": np.isinf,
    "nan": np.isnan,
    "negative": lambda value: value == -1,
    "zero": lambda value: value == 0,
    "-0": lambda value: value == 0 and np.signbit(value),
}


def test_the_table_has_every_dtype_of_ml_dtypes():
    """A dtype that the library brings is in the table, or was left out on purpose."""
    brought = {name for name in dir(ml_dtypes) if isinstance(getattr(ml_dtypes, name), type)} - {
        "finfo",
        "iinfo",
    }
    # What no framework has.
    assert brought - set(DTYPES) <= {"int1", "uint1", "bcomplex32", "complex32"}


def test_code_casts_directly_only_where_numpy_can():
    """What is shown for a cast goes by way of float32 where ml_dtypes has no cast between two of its own."""
    for source, target in itertools.product(DTYPES, repeat=2):
        code = cast_code("x", TensorInfo("numpy", (3,), source), target).expression
        if ".real" not in code:
            direct = code.count("astype") == 1
            able = np.can_cast(numpy_dtype(source), numpy_dtype(target), "unsafe")
            assert direct <= able, (source, target, code)


def test_classes_that_mean_a_dtype():
    """Python's types, NumPy's scalars, whatever NumPy makes a dtype of; others are refused."""
    import ctypes

    for kind, name in ((bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex128")):
        assert name_of(kind) == name == np.dtype(kind).name
    assert name_of(ctypes.c_int16) == "int16"
    assert name_of(np.longlong) == "int64"
    for kind in (str, object, list, np.longdouble, np.void):
        with pytest.raises(TypeError, match="is not a dtype"):
            name_of(kind)


@pytest.mark.parametrize("code", ["f4", "i8", "c16", "u1", "b1"])
def test_signs_for_the_order_of_bytes(code):
    """The machine's own is no order that is asked for, nor is one of a single byte."""
    for sign in "<>=|":
        dtype = np.dtype(sign + code)
        if dtype.isnative:
            assert name_of(sign + code) == dtype.name
        else:
            with pytest.raises(TypeError, match="bytes in the other order"):
                name_of(sign + code)


# -- how elements lie in memory -------------------------------------------------------------------


@given(
    axes=st.lists(st.tuples(st.integers(0, 5), st.integers(-24, 24)), max_size=4),
    itemsize=st.sampled_from([1, 2, 4, 8]),
)
def test_overlaps_itself_where_a_byte_is_in_two_elements(axes, itemsize):
    """Against every byte of every element."""
    shape, strides = [length for length, _ in axes], [step for _, step in axes]
    starts = [
        sum(index * step for index, step in zip(place, strides, strict=True))
        for place in itertools.product(*map(range, shape))
    ]
    taken = [start + byte for start in starts for byte in range(itemsize)]
    assert overlaps_itself(shape, strides, itemsize) == (len(set(taken)) < len(taken))


def test_what_takes_too_long_counts_as_an_overlap():
    """Many axes whose steps almost meet are given up, and so are refused as `out`; one look at others is enough."""
    assert overlaps_itself((60,) * 9, [7919 * 2**power + power for power in range(9)], 1)
    assert not overlaps_itself((10**6, 3), (12, 10**6), 4)
    assert overlaps_itself((10**6, 10**6), (4, 4), 4)


def test_memory_at_one_address_of_two_devices_is_two():
    """Addresses of different devices mean nothing to each other."""
    info = TensorInfo("torch", (4,))
    assert share_a_byte(info, 1 << 30, info, 1 << 30)
    assert not share_a_byte(info, 1 << 30, TensorInfo("torch", (4,), device="cuda:0"), 1 << 30)
    away = TensorInfo("torch", (4,), device="cuda:1")
    assert share_a_byte(away, 1 << 30, away, (1 << 30) + 15)
    assert not share_a_byte(away, 1 << 30, away, (1 << 30) + 16)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_nothing_is_shared_without_elements(shape):
    """An empty tensor has an address, and no byte there."""
    empty, whole = TensorInfo("numpy", shape), TensorInfo("numpy", (64,))
    for at in range(-64, 64, 4):
        assert not share_a_byte(empty, (1 << 30) + at, whole, 1 << 30)
        assert not share_a_byte(whole, 1 << 30, empty, (1 << 30) + at)


def test_a_tensor_shares_memory_with_itself_if_it_has_elements():
    """Also one that tells no address; the same array twice, without elements, has no byte in common."""
    jax = pytest.importorskip("jax")
    packed = jax.numpy.ones(4, "int4")
    assert ferry.shares_memory(packed, packed)
    assert not ferry.shares_memory(packed, jax.numpy.ones(4, "int4"))
    for empty in (np.ones(0), np.ones((3, 0))[::-1], jax.numpy.ones(0)):
        assert not ferry.shares_memory(empty, empty)
    assert not ferry.shares_memory(np.float32(1), np.float32(1))
