"""Hazards of values and dtypes: each test shows what tensorferry does where something is lost today."""

from __future__ import annotations

import array
import gc
import sys
from collections import UserList, deque
from contextlib import closing
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from tests.support import EVERYWHERE, TARGETS, address, bits, dtype_name, memory_at, of_torch

import tensorferry as ferry
from tensorferry.execution.run import verifying

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")

NARROW = {
    "bfloat16": torch.int16,
    "float8_e4m3fn": torch.uint8,
    "float8_e4m3fnuz": torch.uint8,
    "float8_e5m2": torch.uint8,
    "float8_e5m2fnuz": torch.uint8,
    "float8_e8m0fnu": torch.uint8,
}
WIDE = {"int64": 2**32 + 5, "uint64": 2**63 + 1, "float64": 0.1, "complex128": 0.1 + 0.2j}


@pytest.fixture
def x64():
    """JAX with 64-bit dtypes, for the length of a test."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def every_pattern(name):
    """Every bit pattern of a narrow dtype, as integers of its width and as torch's tensor over them."""
    dtype, as_integer = getattr(torch, name), NARROW[name]
    width = as_integer.itemsize
    patterns = memory_at((256**width,), f"uint{8 * width}")
    patterns[...] = np.arange(256**width, dtype=np.uint32)
    tensor = torch.from_numpy(patterns.view(str(as_integer).removeprefix("torch."))).view(dtype)
    return patterns, tensor


# -- H01: narrow floats across NumPy and torch ----------------------------------------------------


@pytest.mark.parametrize("name", of_torch(*NARROW))
def test_H01_narrow_torch_to_numpy_is_a_bit_exact_shared_view(name):
    """Every bit pattern arrives in ml_dtypes' type, in the same memory."""
    patterns, tensor = every_pattern(name)
    result = ferry.to_numpy(tensor)
    assert result.dtype == np.dtype(getattr(ml_dtypes, name))
    assert result.tobytes() == patterns.tobytes()
    assert address(result) == address(tensor)
    patterns[0] = 7
    assert result.tobytes() == patterns.tobytes()


@pytest.mark.parametrize("name", of_torch(*NARROW))
def test_H01_narrow_numpy_to_torch_is_a_bit_exact_shared_view(name):
    """The way back: torch's own dtype over the array's memory."""
    patterns, _ = every_pattern(name)
    source = patterns.view(getattr(ml_dtypes, name))
    result = ferry.to_torch(source)
    assert result.dtype == getattr(torch, name)
    assert bits(result) == patterns.tobytes()
    assert address(result) == address(source)
    result.view(NARROW[name])[0] = 7
    assert patterns[0] == 7


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("name", of_torch(*NARROW))
def test_H01_no_hop_through_a_wider_float(name, target):
    """No plan for a narrow type holds a cast."""
    for source in ("torch", "numpy"):
        try:
            plan = ferry.explain(ferry.TensorInfo(source, (4,), name), target)
        except ferry.LossyCastError as error:
            assert name in str(error)  # noqa: PT017 - a dtype that the target lacks is refused by its name
            continue
        assert not [step for step in plan.steps if step.verb == "cast"]
        assert plan.keeps_dtype


@pytest.mark.parametrize("target", ["tensorflow", "jax"])
@pytest.mark.parametrize("name", of_torch(*NARROW))
def test_H01_narrow_torch_to_the_immutable_frameworks_is_bit_exact(name, target):
    """Every bit pattern arrives in TensorFlow and JAX, where they have the type."""
    patterns, tensor = every_pattern(name)
    if name == "float8_e8m0fnu" and target == "tensorflow":
        with pytest.raises(ferry.LossyCastError, match=name):
            ferry.convert(tensor, target)
        return
    result = ferry.convert(tensor, target)
    assert dtype_name(result) == name
    assert bits(result) == patterns.tobytes()


# -- H02: JAX without 64-bit dtypes ---------------------------------------------------------------


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow"])
@pytest.mark.parametrize("name", WIDE)
def test_H02_a_wide_dtype_is_refused_not_narrowed(name, framework):
    """JAX with x64 off has no such dtype: that is an error, whatever the values."""
    for value in (WIDE[name], 1):
        source = ferry.convert(np.array([value], name), framework, copy=True)
        with pytest.raises(ferry.LossyCastError, match=name) as caught:
            ferry.to_jax(source)
        assert (
            caught.value.hint == 'dtype="fit", or jax.config.update("jax_enable_x64", True) first'
        )
        with pytest.raises(ferry.LossyCastError, match=name):
            ferry.to_jax(source, dtype=name)


def test_H02_a_narrower_integer_dtype_keeps_each_value_or_raises():
    """With a narrower dtype asked for, values that do not fit raise unless told otherwise."""
    fits, large = np.array([2**31 - 1, -(2**31)]), np.array([1, 2**32 + 5])
    for dtype in ("int32", "default", "fit"):
        result = ferry.to_jax(fits, dtype=dtype)
        assert result.dtype == np.int32
        assert result.tolist() == fits.tolist()
        with pytest.raises(ferry.LossyCastError, match=r"\[1\]"):
            ferry.to_jax(large, dtype=dtype)
    assert ferry.to_jax(large, dtype="int32", casting="unsafe").tolist() == [1, 5]


def test_H02_a_narrower_float_dtype_rounds_when_asked():
    """``dtype="default"`` gives JAX's own float, ``"fit"`` the widest that it has; rounding was asked for."""
    for dtype in ("default", "fit"):
        result = ferry.to_jax(np.array([0.1]), dtype=dtype)
        assert result.dtype == np.float32
        assert result[0] == np.float32(0.1)


def test_H02_with_x64_every_value_arrives(x64):
    """With x64 on, the same calls are exact."""
    for name, value in WIDE.items():
        result = ferry.to_jax(np.array([value], name))
        assert dtype_name(result) == name
        assert bits(result) == np.array([value], name).tobytes()


def test_H02_python_integers_that_need_64_bits_are_refused():
    """A list of large integers is refused too, not wrapped around."""
    with pytest.raises(ferry.LossyCastError, match="int64"):
        ferry.to_jax([2**32 + 5])
    with pytest.raises(ferry.LossyCastError):
        ferry.to_jax(2**40)


# -- H03: nothing passes through float32 ----------------------------------------------------------

FLOATS = [0.1, 16777217.0, 1e-300, -0.0, 1 / 3]


@pytest.mark.parametrize("form", ["list", "tuple", "nested", "scalars"])
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
def test_H03_python_floats_are_exact_in_a_float64_result(target, form):
    """Asked for as float64, a Python float keeps all its bits."""
    source = {
        "list": FLOATS,
        "tuple": tuple(FLOATS),
        "nested": [FLOATS],
        "scalars": [np.float64(value) for value in FLOATS],
    }[form]
    result = ferry.convert(source, target, dtype="float64")
    assert dtype_name(result) == "float64"
    assert bits(result) == np.array(FLOATS, np.float64).tobytes()


def test_H03_python_floats_are_exact_in_jax_with_x64(x64):
    """JAX's own float64 too."""
    assert bits(ferry.to_jax(FLOATS)) == np.array(FLOATS, np.float64).tobytes()


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
def test_H03_integers_pass_through_no_float(target):
    """2**53 + 1 has no float64."""
    numbers = [2**53 + 1, -(2**63), 2**63 - 1]
    result = ferry.convert(numbers, target, dtype="int64")
    assert bits(result) == np.array(numbers, np.int64).tobytes()
    assert ferry.to_list(result) == numbers


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
@pytest.mark.parametrize(
    ("buffer", "name"),
    [
        (array.array("d", FLOATS), "float64"),
        (memoryview(array.array("d", FLOATS)), "float64"),
        (array.array("q", [2**53 + 1, -(2**63)]), "int64"),
        (array.array("f", [0.5, 16777216.0]), "float32"),
        (array.array("h", [1, -2]), "int16"),
        (memoryview(bytearray(b"\x00\xff")), "uint8"),
        (b"\x00\xff", "uint8"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_H03_typed_buffers_keep_their_dtype(target, buffer, name):
    """A typed buffer says what its bytes are, and that is kept."""
    result = ferry.convert(buffer, target)
    assert dtype_name(result) == name
    assert bits(result) == memoryview(buffer).tobytes()


def test_H03_a_typed_buffer_that_jax_cannot_hold_is_refused():
    """A float64 buffer is never narrowed for JAX in silence."""
    with pytest.raises(ferry.LossyCastError, match="float64"):
        ferry.to_jax(array.array("d", FLOATS))


# -- H04: the dtype of Python numbers -------------------------------------------------------------

OWN = {
    "numpy": np.array,
    "torch": torch.tensor,
    "tensorflow": tf.constant,
    "jax": jnp.array,
}
NUMBERS = {"bool": True, "int": 1, "float": 1.5, "complex": 1 + 2j}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("target", TARGETS)
def test_H04_python_numbers_take_the_targets_own_dtype(target, kind):
    """What the target's own constructor gives, in whatever form the numbers come."""
    number = NUMBERS[kind]
    own = dtype_name(OWN[target]([number]))
    forms = [
        [number],
        (number,),
        [[number, number]],
        ((number,), (number,)),
        number,
        [number] * 1000,
    ]
    if kind == "int":
        forms.append(range(3))
    for form in forms:
        with verifying():
            assert dtype_name(ferry.convert(form, target)) == own
        with verifying(on=False):
            assert dtype_name(ferry.convert(form, target)) == own
        assert ferry.explain(form, target).result.dtype == own
    assert dtype_name(ferry.convert([number], target, copy=True)) == own


@pytest.mark.parametrize("target", TARGETS)
def test_H04_integers_that_do_not_fit_widen_or_raise(target):
    """An integer is never wrapped around, nor turned into a float."""
    numbers = (2**31, -(2**31) - 1, 2**62, 2**63, 2**63 + 1, 2**64 - 1, 2**64, -(2**63) - 1)
    for form in (
        *([1, number] for number in numbers),
        [2**63, -1],
        [[2**63], [0]],
        (2**53 + 1, 2**63),
    ):
        try:
            result = ferry.convert(form, target)
        except ferry.LossyCastError:
            continue
        assert ferry.describe(result).dtype in ("int64", "uint64")
        assert ferry.to_list(result) == (list(form) if isinstance(form, tuple) else form)


def test_H04_the_next_wider_integer():
    """TensorFlow goes to int64, NumPy to uint64; torch and JAX say that they cannot."""
    assert ferry.to_tensorflow([2**31]).dtype == tf.int64
    assert ferry.to_numpy([2**63]).dtype == np.uint64
    for target in ("torch", "tensorflow"):
        with pytest.raises(ferry.LossyCastError, match="uint64"):
            ferry.convert([2**63], target)
        assert ferry.to_list(ferry.convert([2**63], target, dtype="uint64")) == [2**63]


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_H04_a_float_beyond_the_targets_default_raises(target):
    """1e300 does not become infinite; what is infinite stays so."""
    for path in (True, False):
        with verifying(on=path), pytest.raises(ferry.LossyCastError, match=r"\[1\]"):
            ferry.convert([1.0, 1e300], target)
    infinite = ferry.to_list(ferry.convert([float("inf"), -float("inf")], target))
    assert infinite == [float("inf"), -float("inf")]


def test_H04_torchs_own_default_is_followed():
    """torch.set_default_dtype is torch's own word for it."""
    torch.set_default_dtype(torch.float64)
    try:
        assert ferry.to_torch([0.1]).dtype == torch.float64 == torch.tensor([0.1]).dtype
        assert ferry.to_torch([0.1])[0].item() == 0.1
        assert ferry.to_torch([1j]).dtype == torch.complex128 == torch.tensor([1j]).dtype
    finally:
        torch.set_default_dtype(torch.float32)
    assert ferry.to_torch([0.1]).dtype == torch.float32


def test_H04_mixed_numbers_take_the_widest_kind():
    """bool among ints is an int, ints among floats are floats, as every constructor has it."""
    for target in TARGETS:
        assert ferry.describe(ferry.convert([True, 2], target)).dtype == dtype_name(
            OWN[target]([1])
        )
        assert ferry.describe(ferry.convert([1, 2.5], target)).dtype == dtype_name(
            OWN[target]([2.5])
        )


def test_H04_casting_is_followed_where_no_dtype_is_named():
    """Python floats that the target's own dtype does not keep raise, or are taken as they come, as is asked."""
    for target in ("torch", "tensorflow", "jax"):
        for casting in ("same_value", "safe"):
            with pytest.raises(ferry.LossyCastError, match="float32"):
                ferry.convert([0.1], target, casting=casting)
        assert ferry.to_list(ferry.convert([0.5], target, casting="same_value")) == [0.5]
        assert ferry.to_list(ferry.convert([1e300], target, casting="unsafe")) == [float("inf")]


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H04_integers_with_a_dtype_of_their_own_never_wrap(target):
    """A negative NumPy integer beside one that only uint64 holds raises, as Python's do."""
    for numbers in (
        [np.uint64(2**64 - 1), np.int64(-1)],
        [2**63, np.int8(-1)],
        [[2**63], [np.int8(-1)]],
    ):
        with pytest.raises(ferry.LossyCastError, match="integers"):
            ferry.convert(numbers, target)


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    ("among", "path"),
    [
        (lambda: [[0.5], np.array([2**53 + 1])], r"x\[1\]\[0\]"),
        (lambda: [0.5, torch.tensor(2**53 + 1)], r"x\[1\]"),
        (lambda: [0.5, np.array(2**53 + 1)], r"x\[1\]"),
        (lambda: [[0.5], [2**53 + 1]], r"x\[1\]\[0\]"),
    ],
)
def test_H04_an_integer_that_stands_among_floats_as_a_tensor_is_not_rounded(target, among, path):
    """It is refused wherever it comes from, and one that float64 holds is taken."""
    with pytest.raises(ferry.LossyCastError, match=f"integer at {path}"):
        ferry.convert(among(), target)
    assert ferry.to_list(ferry.convert([[0.5], np.array([3])], target)) == [[0.5], [3.0]]
    assert ferry.to_list(ferry.convert([0.5, torch.tensor(3)], target)) == [0.5, 3.0]


def test_H04_H103_a_name_that_means_two_widths_is_refused():
    """``torch.float`` is float32 and NumPy's float is float64: without a framework's name neither is guessed."""
    for name, widths in (("float", ("float32", "float64")), ("int", ("int32", "int64"))):
        with pytest.raises(ferry.UnsupportedTypeError, match=name) as caught:
            ferry.to_numpy([1], dtype=name)
        assert all(f'dtype="{width}"' in caught.value.hint for width in widths)
    for name, dtype in (
        ("torch.half", "float16"),
        ("torch.double", "float64"),
        ("np.int32", "int32"),
    ):
        assert ferry.to_numpy([1], dtype=name).dtype == dtype
    assert ferry.to_numpy([1], dtype="torch.float").dtype == np.float32
    assert ferry.to_numpy([1], dtype=float).dtype == np.float64


# -- H05: byte order ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("name", ["int16", "int32", "float32", "float16", "complex64"])
def test_H05_big_endian_is_swapped_and_counted(target, name):
    """Native order comes out, as a copy that the plan counts."""
    native = np.arange(6).reshape(2, 3).astype(name)
    swapped = native.astype(native.dtype.newbyteorder(">"))
    before = swapped.tobytes()
    plan = ferry.explain(swapped, target)
    assert plan.source.swapped
    assert not plan.shares_memory
    assert plan.bytes_copied >= native.nbytes
    result = ferry.convert(swapped, target)
    assert ferry.to_list(result) == native.tolist()
    if target != "python":
        assert dtype_name(result) == name
        assert bits(result) == native.tobytes()
    assert swapped.tobytes() == before
    with pytest.raises(ferry.CopyRequiredError, match="order" if target != "python" else "share"):
        ferry.convert(swapped, target, copy=False)


def test_H05_inside_a_traced_function():
    """Inside tf.function the swapped array arrives with its values too."""
    swapped = np.array([1, 2, 3], ">i4")

    @tf.function
    def doubled():
        return ferry.to_tensorflow(swapped) * 2

    assert doubled().numpy().tolist() == [2, 4, 6]


# -- H06: conjugate and negative bits -------------------------------------------------------------


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("bit", ["conjugate", "negative"])
def test_H06_lazy_bits_are_resolved_and_counted(target, bit):
    """The sign is right, the copy is counted, and the source is as it was."""
    base = torch.tensor([1 + 2j, 3 - 4j, -5 + 0j])
    lazy = base.conj() if bit == "conjugate" else base.conj().imag
    expected = [1 - 2j, 3 + 4j, -5 - 0j] if bit == "conjugate" else [-2.0, 4.0, -0.0]
    assert getattr(ferry.describe(lazy), bit)
    plan = ferry.explain(lazy, target)
    assert not plan.shares_memory or target == "torch"
    result = ferry.convert(lazy, target)
    assert ferry.to_list(result) == expected
    assert base.tolist() == [1 + 2j, 3 - 4j, -5 + 0j]
    assert lazy.is_conj() == (bit == "conjugate")
    if target == "torch":
        return
    assert plan.bytes_copied >= lazy.numel() * lazy.element_size()
    assert any("resolve" in step.code for step in plan.steps)
    with pytest.raises(ferry.CopyRequiredError, match=bit if target != "python" else "share"):
        ferry.convert(lazy, target, copy=False)


# -- H07: casts at the edge -----------------------------------------------------------------------

EDGES = np.array(
    [448.0, 449.0, 464.0, 465.0, 1e6, -1e6, np.nan, np.inf, -np.inf, 0.1, -0.0, 2**-9, 2**-11],
    np.float32,
)


def _sources(values):
    return [ferry.convert(values, framework, copy=True) for framework in TARGETS]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_H07_a_cast_gives_the_same_bits_from_and_to_every_framework(name):
    """NumPy's and ml_dtypes' rule, in every framework."""
    with np.errstate(all="ignore"):
        expected = EDGES.astype(getattr(ml_dtypes, name, None) or name).tobytes()
    for source in _sources(EDGES):
        for target in TARGETS:
            result = ferry.convert(source, target, dtype=name)
            assert dtype_name(result) == name
            assert bits(result) == expected


def test_H07_too_large_for_float8_is_nan_where_there_is_no_infinity():
    """Not saturated: what does not fit is seen."""
    for target in TARGETS:
        seen = ferry.to_list(
            ferry.convert(np.float32([1e6, -1e6, 448]), target, dtype="float8_e4m3fn")
        )
        assert [np.isnan(value) for value in seen] == [True, True, False]
        infinite = ferry.to_list(
            ferry.convert(np.float32([1e6, -1e6]), target, dtype="float8_e5m2")
        )
        assert infinite == [float("inf"), -float("inf")]


@pytest.mark.parametrize("target", TARGETS)
def test_H07_float_to_int_is_never_implicit_and_never_lossy(target):
    """NaN, infinity, a fraction and a value out of range raise, with their position."""
    for source in _sources(np.float32([1, np.nan])):
        with pytest.raises(ferry.LossyCastError, match=r"\[1\]"):
            ferry.convert(source, target, dtype="int32")
    for bad in (np.inf, -np.inf, 0.5, 3e9, -3e9):
        with pytest.raises(ferry.LossyCastError):
            ferry.convert(np.float32([bad]), target, dtype="int32")
    assert ferry.to_list(ferry.convert(np.float32([3, -4, -0.0]), target, dtype="int32")) == [
        3,
        -4,
        0,
    ]


def test_H07_unsafe_float_to_int_is_the_same_everywhere():
    """As the caller says, and still the same bits whichever framework holds them."""
    values = np.float32([0.7, -0.7, 3e9, np.nan, -np.inf])
    expected = np.array([0, 0, 3_000_000_000 - 2**32, 0, 0], np.int32).tobytes()
    for source in _sources(values):
        for target in TARGETS:
            assert bits(ferry.convert(source, target, dtype="int32", casting="unsafe")) == expected


# -- H08: types narrower than a byte --------------------------------------------------------------

SUBBYTE = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("name", SUBBYTE)
def test_H08_subbyte_types_keep_their_name_or_are_refused(name, target):
    """Never int8, never bytes: the name is kept, or said to be missing."""
    numbers = [0, 1, 1, 0] if name == "uint2" else [0, 1, 0, 1]
    source = np.array(numbers).astype(getattr(ml_dtypes, name))
    try:
        result = ferry.convert(source, target)
    except ferry.LossyCastError as error:
        assert name in str(error)  # noqa: PT017 - the refusal is one of the two permitted outcomes
        assert target not in ("numpy", "python")
        return
    assert ferry.to_list(result) == numbers
    if target != "python":
        assert dtype_name(result) == name


def test_H08_int4_crosses_where_both_sides_have_it():
    """NumPy, TensorFlow and JAX have int4 and uint4; torch does not, and says so."""
    for name, numbers in (("int4", [-8, 7, 0]), ("uint4", [0, 15, 8])):
        source = np.array(numbers).astype(getattr(ml_dtypes, name))
        for target in ("tensorflow", "jax"):
            there = ferry.convert(source, target)
            assert dtype_name(there) == name
            back = ferry.to_numpy(there)
            assert back.dtype == source.dtype
            assert back.tolist() == source.tolist()
        with pytest.raises(ferry.LossyCastError, match=f"torch has no {name}"):
            ferry.to_torch(source)


@pytest.mark.parametrize("name", of_torch("float4_e2m1fn_x2"))
@pytest.mark.parametrize("target", EVERYWHERE)
def test_H08_packed_float4_is_refused_by_name(target, name):
    """torch packs two numbers into each byte: that is no float4 of anybody else."""
    packed = torch.zeros(4, dtype=torch.uint8).view(getattr(torch, name))
    with pytest.raises(ferry.UnsupportedTypeError, match="float4_e2m1fn_x2"):
        ferry.convert(packed, target)


# -- H09: identity by name ------------------------------------------------------------------------


def test_H09_every_narrow_type_is_told_apart():
    """Four float8 types read ``V1`` or ``f1`` to NumPy: here each has its name."""
    names = [
        *NARROW,
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float4_e2m1fn",
        "int4",
        "uint4",
    ]
    arrays = [np.zeros(2, getattr(ml_dtypes, name)) for name in names]
    assert [ferry.describe(array).dtype for array in arrays] == names
    assert [ferry.to_numpy(array).dtype.name for array in arrays] == names


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H09_a_void_dtype_is_never_guessed(target):
    """Two bytes without a name may be bfloat16 or not: refused, with the view to take."""
    for void in ("V1", "V2"):
        with pytest.raises(ferry.UnsupportedTypeError, match=r"V[12]") as caught:
            ferry.convert(np.zeros(2, void), target)
        assert "view" in caught.value.hint


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H09_a_void_interface_is_never_guessed(target):
    """``__array_interface__`` of a bfloat16 array says ``<V2``: refused as well."""

    class Producer:
        def __init__(self):
            self.memory = np.zeros(4, ml_dtypes.bfloat16)
            self.__array_interface__ = self.memory.__array_interface__

    with pytest.raises(ferry.UnsupportedTypeError, match="V2"):
        ferry.convert(Producer(), target)


# -- H10: dtypes that nobody else has -------------------------------------------------------------

EXOTIC = {
    "complex32": (lambda: torch.zeros(2, dtype=torch.complex32), "complex32", "complex64"),
    "longdouble": (lambda: np.zeros(2, np.longdouble), np.dtype(np.longdouble).name, "float64"),
    "clongdouble": (
        lambda: np.zeros(2, np.clongdouble),
        np.dtype(np.clongdouble).name,
        "complex128",
    ),
    "structured": (lambda: np.zeros(2, [("a", "f4"), ("b", "i8")]), "structured", "convert_tree(x"),
    "datetime64": (lambda: np.zeros(2, "M8[s]"), "dates or durations", "int64"),
    "timedelta64": (lambda: np.zeros(2, "m8[s]"), "dates or durations", "int64"),
    "text": (lambda: np.array(["a", "b"]), "<U1", "np.unique(x"),
    "bytes": (lambda: np.array([b"a", b"b"]), "S1", "uint8"),
    "tf.string": (lambda: tf.constant(["a"]), "string", "x.numpy()"),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("name", EXOTIC)
def test_H10_exotic_dtypes_are_refused_with_what_would_hold_them(name, target):
    """The error names the dtype and the code to type instead."""
    make, word, hint = EXOTIC[name]
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.convert(make(), target)
    assert word in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H10_object_arrays_of_numbers_convert(target):
    """An object array whose elements are all numbers is those numbers."""
    result = ferry.convert(np.array([[1, 2], [3, 4.5]], dtype=object), target)
    assert ferry.to_list(result) == [[1.0, 2.0], [3.0, 4.5]]
    assert target == "python" or dtype_name(result) == dtype_name(OWN[target]([1.5]))
    assert ferry.to_list(ferry.convert(np.array(7, dtype=object), target)) == 7


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H10_object_arrays_of_other_things_do_not(target):
    """The path of the element that is no number is in the message."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r"str at x\[1\]"):
        ferry.convert(np.array([1, "a"], dtype=object), target)
    with pytest.raises(ferry.UnsupportedTypeError, match=r"None at x\[1\]\[0\]"):
        ferry.convert(np.array([[1, 2], [None, 4]], dtype=object), target)
    places = [
        ([None], 0),
        ([1, None], 1),
        (np.array([None]), 0),
        (np.array([1, None]), 1),
        (np.array(None), "()"),
    ]
    for x, place in places:
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.convert(x, target)
        assert caught.value.message == f"None at x[{place}] is not a number."
        assert "nan" in caught.value.hint or "nulls=0" in caught.value.hint


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (0,), (0, 0)])
def test_H10_object_arrays_without_elements_keep_their_shape(target, shape):
    """The axes after one of length 0 are kept."""
    result = ferry.convert(np.empty(shape, object), target)
    assert ferry.to_list(result) == np.empty(shape).tolist()
    assert target == "python" or tuple(result.shape) == shape


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    ("element", "hint"),
    [
        (np.longdouble(1), "[float(number) for number in x]"),
        (np.clongdouble(1), "[complex(number) for number in x]"),
        (np.timedelta64(1, "s"), 'x[1].astype("int64")'),
        (np.datetime64(1, "s"), 'x[1].astype("int64")'),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("number", [1, 1.0])
def test_H10_an_exotic_scalar_in_a_list_is_named(target, element, hint, number):
    """Its type, its path and the code to type; and the same again, as often as one asks."""
    for x in ([number, element], [number] * 300 + [element]):
        for paths in (True, False, False, False):
            with verifying(on=paths), pytest.raises(ferry.UnsupportedTypeError) as caught:
                ferry.convert(x, target)
            assert f"The {type(element).__name__} at x[{len(x) - 1}]" in caught.value.message
            assert caught.value.hint.startswith(hint.replace("x[1]", f"x[{len(x) - 1}]"))


def test_H10_scalars_of_narrow_types_without_a_common_one_are_named():
    """The message has both types, and what it says to type works."""
    x = [ml_dtypes.bfloat16(1), ml_dtypes.float8_e5m2(2)]
    with pytest.raises(ferry.LossyCastError, match="bfloat16 and float8_e5m2") as caught:
        ferry.to_numpy(x)
    code = caught.value.hint.partition(",")[0]
    assert ferry.to_list(eval(code, {"x": x})) == [1.0, 2.0]  # noqa: S307 - what the hint says to type


# -- H11: things without an order or a memory -----------------------------------------------------

CONTAINERS = {
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1, 2}),
    "dict": lambda: {"a": 1},
    "dict_keys": {1: 2}.keys,
    "dict_values": {1: 2}.values,
    "dict_items": {1: 2}.items,
    "generator": lambda: (number + 1 for number in (1, 2)),
    "map": lambda: map(float, (1, 2)),
    "zip": lambda: zip((1, 2), (3, 4), strict=True),
    "deque": lambda: deque([1, 2]),
    "UserList": lambda: UserList([1, 2]),
    "str": lambda: "1 2",
    "None": lambda: None,
    "object": object,
    "module": lambda: np,
    "class": lambda: np.ndarray,
    "ragged": lambda: tf.ragged.constant([[1], [2, 3]]),
    "rectangular ragged": lambda: tf.ragged.constant([[1, 2], [3, 4]]),
    "tf sparse": lambda: tf.sparse.from_dense([[0, 1], [2, 0]]),
    "torch sparse": lambda: torch.tensor([[0, 1], [2, 0]]).to_sparse(),
    "torch csr": lambda: torch.sparse_csr_tensor(
        [0, 1, 2], [1, 0], [1.0, 2.0], (2, 2), check_invariants=True
    ),
    "torch quantized": lambda: torch._empty_affine_quantized(
        [2], scale=1.0, zero_point=0, dtype=torch.qint8
    ),
    "module of torch": lambda: torch.nn.Linear(2, 2),
    "jax sparse": lambda: jax.experimental.sparse.BCOO.fromdense(jnp.eye(2)),
    "jax shape": lambda: jax.ShapeDtypeStruct((2,), np.float32),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning", "ignore:Sparse invariant:UserWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:.*uantiz.*")
@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("name", CONTAINERS)
def test_H11_what_is_no_tensor_is_refused(name, target):
    """No container that has no order, or that is not one memory, becomes an object array."""
    import jax.experimental.sparse  # noqa: F401 - loads the submodule

    thing = CONTAINERS[name]()
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.convert(thing, target)
    named = thing if isinstance(thing, type) else type(thing)
    assert named.__name__.strip("_") in str(caught.value) or "torch" in name or "None" in name


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning", "ignore:Sparse invariant:UserWarning")
def test_H11_sparse_says_how_to_make_it_dense():
    """The message has the method of the framework that holds it."""
    for name, method in (
        ("torch sparse", "to_dense"),
        ("tf sparse", "to_dense"),
        ("jax sparse", "todense"),
        ("ragged", "to_tensor"),
    ):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.to_numpy(CONTAINERS[name]())
        assert method in caught.value.hint


# -- H12: masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H12_a_mask_is_never_dropped(target):
    """A MaskedArray is refused, naming ``.filled``; so is one inside a list."""
    masked = np.ma.MaskedArray(np.float32([1.0, 2.0]), mask=[True, False])
    for source in (masked, [masked, masked]):
        with pytest.raises(ferry.UnsupportedTypeError, match="MaskedArray") as caught:
            ferry.convert(source, target)
        assert "filled(" in caught.value.hint
    assert ferry.to_list(ferry.convert(masked.filled(0), target)) == [0.0, 2.0]


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    "make",
    [
        lambda row: [[1.0, 2.0], row],
        lambda row: [row, [1.0, 2.0]],
        lambda row: [1.0, np.ma.masked],
        lambda row: [1, np.ma.array(5, mask=True)],
        lambda row: [0.5] * 300 + [np.ma.masked],
        lambda row: [0.5] * 5000 + [np.ma.masked],
        lambda row: np.array([1.0, np.ma.masked], object),
    ],
)
def test_H12_a_mask_among_numbers_is_never_dropped(target, make):
    """A masked row or element of a list of numbers is refused, by path and by plan."""
    x = make(np.ma.array([3.0, 4.0], mask=[0, 1]))
    for paths in (True, False):
        with (
            verifying(on=paths),
            pytest.raises(ferry.UnsupportedTypeError, match="MaskedArray") as caught,
        ):
            ferry.convert(x, target)
        assert "filled(" in caught.value.hint


def test_H11_a_quantized_tensor_is_refused_by_fast_path_and_by_plan():
    """TensorFlow's own array of one is of plain integers, which say nothing of scale and zero point."""
    quantized = tf.quantization.quantize([1.0, 0.0], 0.0, 1.0, tf.qint8).output
    for target in EVERYWHERE:
        for paths in (True, False):
            with verifying(on=paths), pytest.raises(ferry.UnsupportedTypeError, match="quantized"):
                ferry.convert(quantized, target)


# -- H13: elements that are no numbers ------------------------------------------------------------


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    ("element", "name"),
    [
        (Decimal("0.1"), "Decimal"),
        (Fraction(1, 3), "Fraction"),
        (None, "None"),
        ("a", "str"),
        ({1}, "set"),
    ],
)
def test_H13_the_path_of_what_is_no_number(target, element, name):
    """The message has the element's type and its path, wherever it stands."""
    for source, path in (
        ([1, element], r"x\[1\]"),
        ([[1.0, 2.0], [3.0, element]], r"x\[1\]\[1\]"),
        ([element, 1], r"x\[0\]"),
        ([[element]], r"x\[0\]\[0\]"),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match=f"{name} at {path}"):
            ferry.convert(source, target)


# -- H14: subnormals ------------------------------------------------------------------------------

TINY = {"float16": "uint16", "float32": "uint32", "float64": "uint64", "bfloat16": "uint16"}


@pytest.mark.parametrize("name", TINY)
def test_H14_subnormals_survive(name):
    """No arithmetic on the way: the smallest numbers arrive as they were, everywhere."""
    patterns = np.array([1, 2, 3, 0x7F], TINY[name])
    tiny = patterns.view(getattr(ml_dtypes, name, None) or name)
    assert (tiny.astype(np.float64) != 0).all()
    for target in TARGETS if name != "float64" else TARGETS[:3]:
        for copy in (None, True):
            there = ferry.convert(tiny, target, copy=copy)
            assert bits(there) == patterns.tobytes()
            assert ferry.to_numpy(there, copy=True).tobytes() == patterns.tobytes()
            for onward in TARGETS if name != "float64" else TARGETS[:3]:
                assert bits(ferry.convert(there, onward, copy=True)) == patterns.tobytes()


def test_H14_a_cast_rounds_into_subnormals():
    """float64 to a float32 below its normal range is rounded, not flushed, from and to every framework."""
    values = np.array([1e-40, 1e-45, 1.2e-38])
    expected = values.astype(np.float32).tobytes()
    assert np.frombuffer(expected, np.float32).all()
    for source in (values, torch.from_numpy(values), tf.constant(values)):
        for target in TARGETS:
            assert bits(ferry.convert(source, target, dtype="float32")) == expected


# -- H15: one fast pass over lists ----------------------------------------------------------------


def _calls(function, x):
    """How many functions are called, in Python and C.

    The garbage collector waits meanwhile: JAX has it call a function of its own, whenever its turn
    comes.
    """
    calls = []
    function(x)
    gc.collect()
    gc.disable()
    sys.setprofile(lambda *event: calls.append(event[1]))
    try:
        function(x)
    finally:
        sys.setprofile(None)
        gc.enable()
    return len(calls)


@pytest.mark.parametrize("target", TARGETS)
def test_H15_a_list_is_read_once(target):
    """One step reads the numbers; after it there is at most one cast, and no other copy."""
    numbers = [[float(value) for value in range(50)] for _ in range(50)]
    plan = ferry.explain(numbers, target)
    assert plan.steps[0].verb == "read"
    assert sum(step.copies for step in plan.steps) <= 2
    assert plan.result.shape == (50, 50)


@pytest.mark.parametrize("target", TARGETS)
def test_H15_no_function_is_called_for_each_number(target):
    """A hundred times as many numbers take the same calls, where `jnp.asarray` makes 38 for each."""
    few, many = (
        [[float(row * value) for value in range(size)] for row in range(size)] for size in (70, 200)
    )
    with verifying(on=False):
        calls = _calls(lambda x: ferry.convert(x, target), few)
        assert calls == _calls(lambda x: ferry.convert(x, target), many)
    assert _calls(jnp.asarray, few) > len(few) * len(few[0]) > calls


@pytest.mark.quick
@pytest.mark.parametrize("target", TARGETS)
def test_H15_no_function_is_called_for_each_array(target):
    """Lists of arrays are stacked by one call, however many there are and however long they are."""
    few, many = ([np.arange(size, dtype=np.float32) for _ in range(size)] for size in (30, 250))
    with verifying(on=False):
        assert _calls(lambda x: ferry.convert(x, target), few) == _calls(
            lambda x: ferry.convert(x, target), many
        )
        assert ferry.describe(ferry.convert(many, target)).shape == (250, 250)


# -- H16: ragged lists ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2], [3]], ("length 2 at x[0]", "length 1 at x[1]")),
        ([[1], [2], [3, 4, 5]], ("length 1 at x[0]", "length 3 at x[2]")),
        ([[[1, 2], [3, 4]], [[5, 6], [7]]], ("length 2 at x[1][0]", "length 1 at x[1][1]")),
        ([1, [2]], ("a number at x[0]", "length 1 at x[1]")),
        ([[1], 2.0], ("length 1 at x[0]", "a number at x[1]")),
        ([[], [1]], ("length 0 at x[0]", "length 1 at x[1]")),
        (([1, 2], (3, 4, 5)), ("length 2 at x[0]", "length 3 at x[1]")),
        ([[[1]], [[2, 3]]], ("x[0]", "x[1]")),
    ],
)
def test_H16_the_first_ragged_path_and_both_lengths(target, rows, words):
    """One message for every target: where the lengths differ, and how long both are."""
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.convert(rows, target)
    for word in words:
        assert word in caught.value.message
    assert isinstance(caught.value, ValueError)


# -- H17: lists of tensors ------------------------------------------------------------------------

MAKERS = {
    "numpy": lambda values: np.array(values, np.float32),
    "torch": lambda values: torch.tensor(values, dtype=torch.float32),
    "tensorflow": lambda values: tf.constant(values, tf.float32),
    "jax": lambda values: jnp.array(values, jnp.float32),
}


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("source", [*MAKERS, "mixed"])
def test_H17_equal_shapes_stack(source, target):
    """A list of tensors, of one framework or of several, is one tensor."""
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
    makers = list(MAKERS.values()) if source == "mixed" else [MAKERS[source]] * 4
    leaves = [make(row) for make, row in zip(makers, rows, strict=True)]
    for form in (leaves, tuple(leaves)):
        result = ferry.convert(form, target)
        assert ferry.to_list(result) == rows
        assert target == "python" or dtype_name(result) == "float32"
    nested = ferry.convert([leaves[:2], leaves[2:]], target)
    assert ferry.to_list(nested) == [rows[:2], rows[2:]]


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("source", MAKERS)
def test_H17_scalars_of_a_framework_stack(source, target):
    """0-d tensors in a list are the elements of a 1-d one."""
    assert ferry.to_list(ferry.convert([MAKERS[source](1.5), MAKERS[source](2.5)], target)) == [
        1.5,
        2.5,
    ]


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("source", MAKERS)
def test_H17_unequal_shapes_raise_with_path_and_both_shapes(source, target):
    """Neither padded nor an object array."""
    make = MAKERS[source]
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.convert([make([1.0, 2.0]), make([3.0, 4.0]), make([5.0])], target)
    for word in ("(2,) at x[0]", "(1,) at x[2]"):
        assert word in caught.value.message
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.convert([[make([1.0])], [make([2.0]), make([3.0])]], target)
    assert "x[1]" in caught.value.message


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H17_a_leaf_that_is_no_tensor_raises_with_its_path(target):
    """A string or None among tensors is found."""
    for other in ("a", None, {1}):
        with pytest.raises(ferry.UnsupportedTypeError, match=r"x\[1\]"):
            ferry.convert([torch.ones(2), other], target)


def test_H17_leaves_that_need_grad_keep_their_graph_in_torch():
    """The stack's gradient reaches every leaf."""
    leaves = [torch.full((2,), float(number), requires_grad=True) for number in range(3)]
    stacked = ferry.to_torch(leaves)
    assert stacked.requires_grad
    (stacked * torch.tensor([[1.0], [10.0], [100.0]])).sum().backward()
    assert [leaf.grad.tolist() for leaf in leaves] == [[1.0, 1.0], [10.0, 10.0], [100.0, 100.0]]


@pytest.mark.parametrize("target", ["numpy", "tensorflow", "jax", "python"])
def test_H17_leaves_that_need_grad_are_detached_for_the_others(target):
    """Gradients do not cross; with ``grad="error"`` that is said."""
    leaves = [torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)]
    assert ferry.to_list(ferry.convert(leaves, target)) == [[1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(ferry.GradientError):
        ferry.convert(leaves, target, grad="error")


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
def test_H17_typed_buffers_stack_as_what_they_are(target):
    """A list of typed buffers keeps their dtype, as one of them does."""
    for code, name in (("d", "float64"), ("b", "int8"), ("f", "float32")):
        buffers = [array.array(code, [1, 2]), array.array(code, [3, 4])]
        result = ferry.convert(buffers, target)
        assert dtype_name(result) == name
        assert ferry.to_list(result) == [[1, 2], [3, 4]]
    with pytest.raises(ferry.LossyCastError, match="float64"):
        ferry.to_jax([array.array("d", [0.1])])


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H17_a_tensor_among_rows_of_numbers_is_read_or_named(target):
    """Numbers that a tensor can give are taken; else the message says what it is, and where."""
    rows = [[1.0, 2.0], torch.tensor([3.0, 4.0], dtype=torch.bfloat16)]
    assert ferry.to_list(ferry.convert(rows, target)) == [[1.0, 2.0], [3.0, 4.0]]
    graph = [1.0, torch.tensor(2.0, requires_grad=True)]
    made = ferry.convert(graph, target)
    assert ferry.to_list(made) == [1.0, 2.0]
    assert getattr(made, "requires_grad", False) == (target == "torch")
    with pytest.raises(ferry.GradientError, match=r"requires grad.*|x\[1\]") as caught:
        ferry.convert([[1.0, 2.0], torch.ones(2, requires_grad=True)], target)
    assert caught.value.hint == "x[1].detach()"
    with pytest.raises(ferry.UnsupportedTypeError, match=r"sparse.*x\[1\]"):
        ferry.convert([[1.0, 2.0], torch.eye(2).to_sparse()], target)
    assert ferry.to_list(ferry.convert(rows[::-1], target)) == [[3.0, 4.0], [1.0, 2.0]]


def test_H17_unequal_dtypes_take_one_that_holds_both():
    """int32 beside int64 is int64; where nothing holds both, it raises."""
    for target in ("numpy", "torch", "tensorflow"):
        result = ferry.convert([np.int32([1]), torch.tensor([2**40])], target)
        assert ferry.to_list(result) == [[1], [2**40]]
        assert dtype_name(result) == "int64"
        with pytest.raises(ferry.LossyCastError, match="float32"):
            ferry.convert([np.float32([0.5]), torch.tensor([2**60 + 1])], target)


def test_a_cast_that_is_refused_says_what_would_be_lost():
    """A fraction, an imaginary part, or the number itself; the hint does what it says."""
    cases = [
        (np.array([2.0, 1.5]), "int64", "has a fraction", [1]),
        (np.array([2.0, -1.5], "float32"), "int8", "has a fraction", [1]),
        (np.array([1e30]), "int64", "does not fit", [0]),
        (np.array([300]), "int8", "does not fit", [0]),
        (np.array([1 + 0j, 1 + 2j]), "float64", "has an imaginary part", [1]),
    ]
    for x, dtype, why, place in cases:
        with pytest.raises(ferry.LossyCastError) as caught:
            ferry.to_numpy(x, dtype=dtype)
        assert f"the value at {place} {why}" in caught.value.message
        code = (
            caught.value.hint.partition(", which")[0]
            .rpartition("; or ")[2]
            .removesuffix(" in its place")
        )
        if "(x)" in code:
            values = eval(code, {**vars(ferry), "x": x, "np": np})  # noqa: S307 - the code of the hint
            assert ferry.to_numpy(values, dtype=dtype).shape == x.shape


def test_a_date_and_an_iterator_alone_have_hints_of_their_own():
    """One date is a count, as a list of them is; what is read once is a list first."""
    import datetime as dt
    import sqlite3

    for x in (dt.date(1970, 1, 3), np.datetime64(2, "s").item(), dt.timedelta(seconds=2)):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.to_numpy(x)
        made = eval(caught.value.hint.partition(", which")[0], {"np": np, "x": x})  # noqa: S307 - of the hint
        assert int(made) in (2, 2_000_000)
    with closing(sqlite3.connect(":memory:")) as database:
        rows = database.execute("select 1, 2.5")
        with pytest.raises(ferry.UnsupportedTypeError, match="once, one after the other") as caught:
            ferry.to_numpy(rows)
        assert ferry.to_numpy(list(rows)).tolist() == [[1, 2.5]]
    assert caught.value.hint.startswith("to_numpy(list(x))")
