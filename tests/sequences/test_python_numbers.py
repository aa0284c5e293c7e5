"""Python's own numbers: which dtype each target gives them, and exactly which bytes."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry import testing

TARGETS = ("numpy", "torch", "tensorflow", "jax")
CODES = {
    "bool": "?",
    "int32": "i",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
    "complex64": "ff",
    "complex128": "dd",
}
# What each framework's own constructor gives: np.array, torch.tensor, tf.constant, jnp.asarray.
DTYPES = {
    "bool": {"numpy": "bool", "torch": "bool", "tensorflow": "bool", "jax": "bool"},
    "int": {"numpy": "int64", "torch": "int64", "tensorflow": "int32", "jax": "int32"},
    "float": {"numpy": "float64", "torch": "float32", "tensorflow": "float32", "jax": "float32"},
    "complex": {
        "numpy": "complex128",
        "torch": "complex64",
        "tensorflow": "complex128",
        "jax": "complex64",
    },
}
WIDE = {"jax": {"int": "int64", "float": "float64", "complex": "complex128"}}

SOURCES = {
    "list": ([1.5, -2.0, 0.0], "float", (3,)),
    "tuple": ((1, -2, 3), "int", (3,)),
    "nested": ([[1, 2, 3], [4, 5, 6]], "int", (2, 3)),
    "tuples in a list": ([(0.5, 1.5), (2.5, 3.5)], "float", (2, 2)),
    "one row of one": ([[[7]]], "int", (1, 1, 1)),
    "range": (range(5), "int", (5,)),
    "range backwards": (range(9, 0, -2), "int", (5,)),
    "ranges": ([range(3), range(3, 6)], "int", (2, 3)),
    "bools": ([True, False, True], "bool", (3,)),
    "complex": ([1 + 2j, -0.5j], "complex", (2,)),
    "ints then floats": ([1, 2.5], "float", (2,)),
    "floats then complex": ([1.5, 2j], "complex", (2,)),
    "an int": (7, "int", ()),
    "a float": (-0.0, "float", ()),
    "a bool": (True, "bool", ()),
    "a complex": (1j, "complex", ()),
    "specials": ([float("inf"), float("-inf"), -0.0, 2.0**-149], "float", (4,)),
    "largest int32": ([2**31 - 1, -(2**31)], "int", (2,)),
}


def flat(x):
    return (
        [leaf for part in x for leaf in flat(part)] if isinstance(x, (list, tuple, range)) else [x]
    )


def packed(dtype, numbers):
    """The numbers' bytes, by the struct module alone."""
    found = b""
    for number in numbers:
        parts = (number.real, number.imag) if dtype.startswith("complex") else (number,)
        if dtype.startswith("float"):
            parts = (float(number),)
        found += struct.pack(f"={CODES[dtype]}", *parts)
    return found


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_numbers_come_as_the_targets_own_dtype(name, target, copy):
    """Each target gives Python numbers what its own constructor gives them, exactly."""
    x, kind, shape = SOURCES[name]
    witness, dtype = testing.witness_for(target), DTYPES[kind][target]
    before = repr(x)
    result = ferry.convert(x, target, copy=copy)
    assert witness.dtype(result) == dtype
    assert witness.shape(result) == shape
    assert witness.content(result) == packed(dtype, flat(x))
    assert witness.is_plain(result)
    assert witness.writable(result) == (target in ("numpy", "torch"))
    assert repr(x) == before


@pytest.mark.parametrize("kind", ["int", "float", "complex"])
def test_jax_with_64_bits_gives_64(kind):
    """With 64-bit dtypes switched on, JAX's constructor gives those, and so does the conversion."""
    numbers = {"int": [1, 2**40], "float": [0.1], "complex": [0.1j]}[kind]
    witness, dtype = testing.witness_for("jax"), WIDE["jax"][kind]
    with witness.mode("64 bits"):
        result = ferry.to_jax(numbers)
        assert witness.dtype(result) == dtype
        assert witness.content(result) == packed(dtype, numbers)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_numbers_have_no_memory_to_share(name, target):
    """copy=False of Python numbers raises, whatever the target, and so does its plan."""
    for call in (ferry.convert, ferry.explain):
        with pytest.raises(ferry.CopyRequiredError, match="Hint: "):
            call(SOURCES[name][0], target, copy=False)


@pytest.mark.parametrize("name", SOURCES)
def test_numbers_to_a_list_are_themselves(name):
    """to_list of Python numbers gives equal numbers of the first one's kind, as lists all the way down."""
    x, kind, _ = SOURCES[name]
    as_one = {"bool": bool, "int": int, "float": float, "complex": complex}[kind]

    def lists(part):
        return (
            [lists(each) for each in part]
            if isinstance(part, (list, tuple, range))
            else as_one(part)
        )

    assert repr(ferry.to_list(x)) == repr(lists(x))


@pytest.mark.parametrize(
    ("target", "number", "dtype"),
    [
        ("numpy", 2**63 - 1, "int64"),
        ("numpy", 2**63, "uint64"),
        ("torch", 2**63 - 1, "int64"),
        ("tensorflow", 2**31, "int64"),
        ("tensorflow", -(2**31) - 1, "int64"),
        ("torch", 2**63, ferry.LossyCastError),
        ("tensorflow", 2**63, ferry.LossyCastError),
        ("jax", 2**31, ferry.LossyCastError),
        ("jax", -(2**31) - 1, ferry.LossyCastError),
        ("numpy", 2**64, ferry.LossyCastError),
        ("torch", 1e39, ferry.LossyCastError),
        ("tensorflow", 1e39, ferry.LossyCastError),
        ("jax", -1e39, ferry.LossyCastError),
        ("torch", 1e39j, ferry.LossyCastError),
        ("numpy", 1e308, "float64"),
        ("torch", float("inf"), "float32"),
    ],
)
def test_numbers_that_do_not_fit_take_a_wider_dtype_or_raise(target, number, dtype):
    """An integer takes the target's next wider dtype that holds it; a finite float never becomes infinite."""
    if isinstance(dtype, type):
        for call in (ferry.convert, ferry.convert):
            with pytest.raises(dtype):
                call([0 * number, number], target)
        return
    witness = testing.witness_for(target)
    result = ferry.convert([0, number] if isinstance(number, int) else [0.0, number], target)
    assert witness.dtype(result) == dtype
    assert witness.content(result) == packed(dtype, [0, number])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("x", "shape"), [([], (0,)), ([[], []], (2, 0)), ((), (0,)), (range(0), (0,))]
)
def test_an_empty_sequence_keeps_its_shape(target, x, shape):
    """A sequence without numbers is a tensor of its shape without elements."""
    result = ferry.convert(x, target)
    assert testing.witness_for(target).shape(result) == shape


@pytest.mark.parametrize("target", TARGETS)
def test_numpy_scalars_in_a_list_keep_their_dtype(target):
    """What has a dtype of its own keeps it: a list of NumPy's scalars is not one of Python numbers."""
    import numpy as np

    result = ferry.convert([np.float16(1.5), np.float16(-2)], target)
    witness = testing.witness_for(target)
    assert witness.dtype(result) == "float16"
    assert witness.content(result) == struct.pack("=2e", 1.5, -2)


@pytest.mark.parametrize("beside", [1, np.ones(3), [1, 2]], ids=["a number", "an array", "a list"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_description_among_others_is_named(beside, place):
    """It is a tuple, and is not read as a row."""
    x = [beside, beside]
    x[place] = ferry.TensorInfo("torch", (3,), "int64")
    with pytest.raises(
        ferry.UnsupportedTypeError, match=rf"The TensorInfo at x\[{place}\] describes a tensor"
    ) as caught:
        ferry.to_numpy(x)
    assert caught.value.hint.startswith('explain_tree(x, "numpy")')
