"""Which dtype one tensor takes: by name, as it fits, by default."""

from __future__ import annotations

import re
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import mps

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.core.dtype_names import name_of
from tensorferry.core.dtypes import DTYPES, find, fitting_dtype
from tensorferry.host.numpy_dtypes import numpy_dtype

ORDINARY = {
    "bool": ["bool"],
    "int": ["int8", "int16", "int32", "int64"],
    "uint": ["uint8", "uint16", "uint32", "uint64"],
    "float": ["float16", "float32", "float64"],
    "complex": ["complex64", "complex128"],
}
"""The dtypes of each kind, from narrow to wide: each holds every value of those before it."""


# -- dtype="fit" ----------------------------------------------------------------------------------


@given(
    st.sampled_from([(kind, name) for kind, names in ORDINARY.items() for name in names]), st.data()
)
def test_fit_is_its_own_else_the_narrowest_wider_else_the_widest_narrower(leaf, data):
    """The row of the table, read word by word, for what anybody may have."""
    kind, name = leaf
    everything = [other for names in ORDINARY.values() for other in names]
    held = data.draw(st.sets(st.sampled_from(everything)))
    row = [other for other in ORDINARY[kind] if other in held or other == name]
    place = row.index(name)
    narrower, wider = row[:place], row[place + 1 :]
    nearest = [*wider[:1], *narrower[-1:]]
    expected = name if name in held else next(iter(nearest), None)
    assert fitting_dtype(name, held) == expected


def every(name):
    """All values of a dtype of at most a byte, as float64."""
    row = find(name)
    if row.kind == "bool":
        return [0.0, 1.0]
    bits = int("".join(filter(str.isdigit, name.partition("_")[0])))
    if row.kind == "float":
        return np.arange(1 << bits, dtype=np.uint8).view(numpy_dtype(row.name)).astype(float)
    return np.float64(
        range(-(1 << bits - 1), 1 << bits - 1) if row.kind == "int" else range(1 << bits)
    )


def values(name):
    """What tells the values of two dtypes apart: NaNs are one value, and the sign of 0 counts."""
    return {
        "nan" if np.isnan(value) else (float(value), bool(np.signbit(value)))
        for value in every(name)
    }


NARROW = [row.name for row in DTYPES.values() if row.itemsize == 1]


@given(st.sampled_from(NARROW), st.sets(st.sampled_from(NARROW)))
def test_a_narrow_dtype_fits_only_among_those_that_hold_it_or_that_it_holds(name, held):
    """By their values, one by one: nothing that is neither narrower nor wider is ever taken."""
    found = fitting_dtype(name, held)
    kin = [other for other in held if find(other).kind == find(name).kind]
    narrower = [other for other in kin if values(other) <= values(name)]
    wider = [other for other in kin if values(other) >= values(name)]
    if name in held:
        assert found == name
    elif wider:
        assert found in wider
        assert not any(values(found) > values(other) for other in wider)
    elif narrower:
        assert found in narrower
        assert not any(values(found) < values(other) for other in narrower)
    else:
        assert found is None


@pytest.mark.parametrize(
    ("source", "target", "name", "keywords", "expected"),
    [
        ("numpy", "torch", "float64", {}, "float64"),
        ("numpy", "torch", "int4", {}, "int8"),
        ("numpy", "torch", "uint2", {}, "uint8"),
        ("numpy", "tensorflow", "float8_e8m0fnu", {}, "bfloat16"),
        ("numpy", "cupy", "int4", {"device": "cuda"}, "int8"),
        ("numpy", "python", "float64", {}, "float64"),
    ],
)
def test_fit_in_a_plan(source, target, name, keywords, expected):
    """What the target has, on the device where the result will be; one that it has is kept with its bits."""
    plan = ferry.explain(TensorInfo(source, (4,), name), target, dtype="fit", **keywords)
    assert plan.result.dtype == expected
    assert plan.keeps_dtype == (name == expected)
    assert any("has no" in step.why for step in plan.steps if step.verb == "cast") == (
        name != expected
    )


@pytest.mark.parametrize(
    ("target", "name", "default", "fits"),
    [
        ("torch", "int4", "int64", "int8"),
        ("torch", "uint2", "uint64", "uint8"),
        ("jax", "int64", "int32", "int32"),
        ("jax", "complex128", "complex64", "complex64"),
        ("torch", "int16", "int16", "int16"),
        ("torch", "float16", "float32", "float16"),
    ],
)
def test_default_is_the_targets_widest_where_it_lacks_the_dtype(target, name, default, fits):
    """For integers and complex numbers; for floats it is the float of its own constructor."""
    for asked, expected in (("default", default), ("fit", fits)):
        assert (
            ferry.explain(TensorInfo("numpy", (4,), name), target, dtype=asked).result.dtype
            == expected
        )


def test_where_no_dtype_is_needed_fit_changes_nothing():
    """The same steps as of a call that names none, for everything that has such a plan."""
    frameworks = [name for name, backend in _backends().items() if backend.capabilities.dtypes.held]
    for source in frameworks:
        for target in frameworks:
            for name in sorted(_backends()[source].capabilities.dtypes.held):
                info = TensorInfo(source, (4,), name, "cuda:0" if source == "cupy" else "cpu")
                try:
                    plain = ferry.explain(info, target)
                except ferry.LossyCastError:
                    continue
                plan = ferry.explain(info, target, dtype="fit")
                assert (plan.steps, plan.result, plan.shares_memory) == (
                    plain.steps,
                    plain.result,
                    plain.shares_memory,
                )


def _backends():
    from tensorferry.backends.registry import backends

    return backends()


@pytest.mark.parametrize(
    ("numbers", "target", "expected"),
    [
        ([1], "torch", "int64"),
        ([2**63], "torch", "uint64"),
        ([2**40], "tensorflow", "int64"),
        ([1], "jax", "int32"),
    ],
)
def test_python_integers_take_what_holds_them(numbers, target, expected):
    """As without a dtype, and where that has no room for them, what has."""
    pytest.importorskip(target)
    assert ferry.describe(ferry.convert(numbers, target, dtype="fit")).dtype == expected
    assert ferry.to_list(ferry.convert(numbers, target, dtype="fit")) == numbers


def test_python_numbers_that_fit_nowhere_are_refused():
    """Integers are compared, and a finite float does not become infinite; few or many."""
    pytest.importorskip("jax")
    for number in (2**40, 1e300):
        for many in (1, 100_000):
            with pytest.raises(ferry.LossyCastError):
                ferry.to_jax([number] * many, dtype="fit")
    assert ferry.to_jax([0.1], dtype="fit").dtype == np.float32


@pytest.mark.parametrize(
    ("name", "fits"), [("float64", "float32"), ("complex128", "complex64"), ("int64", "int64")]
)
def test_fit_is_what_the_device_has(name, fits):
    """Which dtypes a kind of device lacks is part of what fits there."""
    with mps():
        for source in ("numpy", "torch"):
            plan = ferry.explain(TensorInfo(source, (4,), name), "torch", device="mps", dtype="fit")
            assert plan.result.dtype == fits


def test_casting_has_the_last_word_on_what_fits():
    """safe refuses to round, same_value compares, unsafe takes what comes."""
    info = TensorInfo("numpy", (4,), "float64")
    with mps():
        with pytest.raises(ferry.LossyCastError, match="safe"):
            ferry.explain(info, "torch", device="mps", dtype="fit", casting="safe")
        assert (
            ferry.explain(info, "torch", device="mps", dtype="fit", casting="unsafe").result.dtype
            == "float32"
        )


def test_out_and_fit_say_the_same_or_contradict_each_other():
    """As for every dtype beside out=."""
    out = np.zeros(2)
    assert ferry.to_numpy(np.ones(2), dtype="fit", out=out) is out
    with pytest.raises(ferry.LossyCastError, match="out= is float32"):
        ferry.to_numpy(np.ones(2), dtype="fit", out=np.zeros(2, "float32"))


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        *(
            "f2",
            "f4",
            "f8",
            "c8",
            "c16",
            "b1",
            "?",
            "i1",
            "i2",
            "i4",
            "u1",
            "u2",
            "u4",
            "b",
            "h",
            "i",
            "q",
            "B",
            "H",
        ),
        *("I", "Q", "e", "f", "d", "F", "D", "=f4", "|b1", "|f4", "half", "single", "double"),
        *("short", "ushort", "intc", "uintc", "longlong", "ulonglong", "intp"),
        *(
            "<i8" if sys.byteorder == "little" else ">i8",
            "=u8",
            "uintp",
            "bool_",
            "ubyte",
            "csingle",
            "cdouble",
            "bool",
        ),
    ],
)
def test_a_name_means_what_it_means_to_numpy(word):
    """On this machine too: C's long has another width on others."""
    assert name_of(word) == np.dtype(word).name


@pytest.mark.skipif(
    np.dtype("l").itemsize == 4, reason="C's long is not PyTorch's here: it is refused with both"
)
@pytest.mark.parametrize("word", ["long", "ulong", "l", "L"])
def test_long_is_what_it_is_to_numpy_and_to_pytorch(word):
    """64 bits wide, where C has it so."""
    assert name_of(word) == np.dtype(word).name


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_pythons_types_are_what_numpy_makes_of_them(kind):
    """Not what another framework means by the word."""
    assert name_of(kind) == np.dtype(kind).name
    assert ferry.to_numpy([1], dtype=kind).dtype == np.dtype(kind)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        *(
            ("Float32", "float32"),
            ("FLOAT64", "float64"),
            ("Int64", "int64"),
            ("UInt8", "uint8"),
            ("BF16", "bfloat16"),
        ),
        *(
            ("bf16", "bfloat16"),
            ("fp16", "float16"),
            ("fp32", "float32"),
            ("f32", "float32"),
            ("f64", "float64"),
        ),
        *(("i32", "int32"), ("u16", "uint16"), ("c64", "complex64"), ("Bool", "bool")),
        *(("Float8_E4M3FN", "float8_e4m3fn"), ("torch.long", "int64"), ("torch.half", "float16")),
        *(("fp8_e5m2", "float8_e5m2"), ("F8_E5M2", "float8_e5m2"), ("F8E4M3FN", "float8_e4m3fn")),
        *(("e8m0", "float8_e8m0fnu"), ("fp4", "float4_e2m1fn")),
    ],
)
def test_what_people_write_besides(word, name):
    """In upper and lower case, as pandas, PyTorch, JAX and safetensors write it."""
    assert name_of(word) == name


@pytest.mark.parametrize(
    ("word", "candidates"),
    [
        ("u8", ("uint64", "uint8")),
        ("i8", ("int64", "int8")),
        ("I8", ("int64", "int8")),
        ("f16", ("float16",)),
        ("byte", ("int8", "uint8")),
        *((word, ("float8_e4m3fn", "float8_e5m2")) for word in ("fp8", "FP8", "float8")),
        *((word, ("float8_e4m3fn", "float8_e4m3")) for word in ("e4m3", "fp8_e4m3", "F8_E4M3")),
        *(
            (word, ("float32", "float64"))
            for word in ("float", "Float", "float_", "tf.float", "jnp.float_")
        ),
        *(
            (word, ("complex64", "complex128"))
            for word in ("complex", "cfloat", "complex_", "jnp.complex_")
        ),
        *((word, ("int32", "int64")) for word in ("int", "int_", "jnp.int_", "jax.numpy.int_")),
        *((word, ("uint32", "uint64")) for word in ("uint", "jnp.uint")),
        *([("long", ("int32", "int64"))] if np.dtype("l").itemsize == 4 else []),
        ("np.int", ("int32", "int64")),
    ],
)
def test_a_name_that_means_two_things_is_refused_with_both(word, candidates):
    """Each of the two can be typed; what cannot be converted is no candidate."""
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy([1], dtype=word)
    assert caught.value.hint == " or ".join(f'dtype="{name}"' for name in candidates)
    assert all(name in caught.value.message for name in candidates)


KINDS_OF_NUMPY = {np.character, np.flexible, np.generic, np.number, *np.number.__subclasses__()}
KINDS_OF_NUMPY |= {np.signedinteger, np.unsignedinteger, np.floating, np.complexfloating}


def framework_names():
    """Every dtype under the name that its module has for it, and NumPy's older names, which mean Python's types."""
    for module, prefixes in ((torch, ["torch"]), (tf, ["tf", "tensorflow"]), (np, ["np", "numpy"])):
        for word in dir(module):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = getattr(module, word, None)
            if isinstance(found, torch.dtype):
                name = str(found).removeprefix("torch.")
            elif isinstance(found, tf.DType):
                name = found.name
            elif isinstance(found, type) and issubclass(found, np.generic):
                name = (
                    ""
                    if found in KINDS_OF_NUMPY or np.dtype(found).type is not found
                    else np.dtype(found).name
                )
            else:
                continue
            yield from ((f"{prefix}.{word}", name) for prefix in prefixes if name in DTYPES)
    yield from ((f"np.{kind.__name__}", np.dtype(kind).name) for kind in (bool, float, complex))
    yield from (
        ("np.float_", "float64"),
        ("np.complex_", "complex128"),
        ("np.cfloat", "complex128"),
    )


@pytest.mark.filterwarnings("ignore:Converting:DeprecationWarning")
def test_H103_the_name_in_a_module_is_the_dtype_that_the_module_has_there():
    """In a call for one tensor, in a tree, in a mapping, and in a description."""
    pairs = [*framework_names()]
    assert len(pairs) > 100
    assert {"torch.float", "torch.int", "torch.long", "torch.double", "tf.half", "np.byte"} <= {
        word for word, _ in pairs
    }
    for word, name in pairs:
        assert name_of(word) == name, word
    x = np.ones(1)
    assert ferry.to_torch(x, dtype="torch.float").dtype == torch.float32
    assert ferry.convert_tree([x], "torch", dtype="torch.float")[0].dtype == torch.float32
    assert (
        ferry.convert_tree([x], "torch", dtype={"float64": "torch.float"})[0].dtype == torch.float32
    )
    assert ferry.TensorInfo("torch", (1,), "torch.int").dtype == "int32"


def test_H103_float_is_a_kind_as_a_key_and_no_dtype_as_a_value():
    """Python's own type is what it is to NumPy."""
    x = [np.ones(1, np.float32)]
    assert ferry.convert_tree(x, "torch", dtype={"float": "float16"})[0].dtype == torch.float16
    assert ferry.to_torch(x[0], dtype=float).dtype == torch.float64
    for call in (
        lambda: ferry.to_torch(x[0], dtype="float"),
        lambda: ferry.convert_tree(x, "torch", dtype="float"),
        lambda: ferry.collate(x, "torch", dtype={"float": "float"}),
        lambda: ferry.explain(ferry.TensorInfo("numpy", (1,)), "torch", dtype="float"),
        lambda: ferry.TensorInfo("numpy", (1,), "float"),
        lambda: ferry.load("x.npz", "torch", dtype="float"),
        lambda: ferry.convert_files("x.npz", "y.npz", dtype="float"),
    ):
        with pytest.raises(
            ferry.UnsupportedTypeError, match="'float' means float32 to some and float64"
        ) as caught:
            call()
        assert caught.value.hint == 'dtype="float32" or dtype="float64"'


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        *(
            ("flaot32", "float32"),
            ("float33", "float32"),
            ("bfloat6", "bfloat16"),
            ("boolean", "bool"),
        ),
        *(
            ("defualt", "default"),
            ("Fit", "fit"),
            ("pytorch.float16", "float16"),
            ("unit8", "uint8"),
        ),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(word, nearest):
    """One, and it can be typed; a wrong name is a TypeError, as for NumPy."""
    with pytest.raises(TypeError, match="is not a dtype") as caught:
        ferry.to_numpy([1], dtype=word)
    assert caught.value.hint == f'dtype="{nearest}"'


@pytest.mark.parametrize(
    "wrong", ["", "zzz", "x" * 10_000, 3, True, object, str, np.floating, [], {1}]
)
def test_what_is_like_no_name_gets_no_list_of_thirty(wrong):
    """A line, whatever it is."""
    with pytest.raises(TypeError) as caught:
        ferry.to_numpy([1], dtype=wrong)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "kind", ["number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating"]
)
@pytest.mark.filterwarnings("ignore:Converting:DeprecationWarning")
def test_a_kind_of_numbers_is_not_a_dtype(kind):
    """NumPy before 2.4 makes one of it, and says in a warning that this is not right."""
    with pytest.raises(TypeError, match="is not a dtype"):
        ferry.to_numpy([1], dtype=getattr(np, kind))


@pytest.mark.parametrize("kind", ["f4", "i8", "u2", "c16"])
def test_an_order_of_bytes_is_not_ignored(kind):
    """Results are in the machine's: the other is refused, as a code and as a dtype; as a tensor's own it is read."""
    swapped = np.dtype(kind).newbyteorder("S")
    for asked in (swapped, swapped.str):
        with pytest.raises(ferry.UnsupportedTypeError, match="order") as caught:
            ferry.to_numpy([1], dtype=asked)
        assert caught.value.hint == f'dtype="{np.dtype(kind).name}"'
    assert ferry.to_numpy([1], dtype=swapped.newbyteorder("S")).dtype == np.dtype(kind)
    assert ferry.convert([1], like=np.ones(1, swapped)).dtype == np.dtype(kind)


def test_one_tensor_takes_no_mapping():
    """Every function for one tensor says where mappings go."""
    mapping = {"float": "float32"}
    for call in (
        lambda: ferry.to_numpy([1.5], dtype=mapping),
        lambda: ferry.convert([1.5], "numpy", dtype=mapping),
        lambda: ferry.convert([1.5], like=np.ones(1), dtype=mapping),
        lambda: ferry.explain([1.5], "numpy", dtype=mapping),
        lambda: ferry.to_list([1.5], dtype=mapping),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match="mapping") as caught:
            call()
        assert re.search(
            r"(convert|explain)_tree\(x, .*, dtype=\{\"float\": \"float32\"\}\)", caught.value.hint
        )


def test_the_hint_about_a_mapping_repeats_the_whole_mapping():
    """So that it means the same when it is pasted: here, an integer keeps its dtype."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.tensor([1, 2])
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy(x, dtype={"float": "float16", "x.y": None, "int8": "int32"})
    # The names of leaves come first, because they win.
    assert (
        caught.value.hint
        == 'convert_tree(x, "numpy", dtype={"x.y": None, "float": "float16", "int8": "int32"})'
    )
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy(x, dtype={"float": "float16"})
    pasted = eval(caught.value.hint, {"convert_tree": ferry.convert_tree, "x": x})  # noqa: S307 - that is what a hint is for
    assert pasted.dtype == np.int64


def test_ml_dtypes_and_frameworks_objects_are_dtypes():
    """Their scalar types, and NumPy's own."""
    assert ferry.to_numpy([1], dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert ferry.to_numpy([1], dtype=np.float16).dtype == np.float16
