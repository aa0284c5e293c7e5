"""Scalars of frameworks among Python numbers (H02, H04): what they are is kept, however short the list is."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.support import dtype_name

import tensorferry as ferry

jnp = pytest.importorskip("jax.numpy")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")

SCALARS = {
    **{
        f"torch {name}": lambda name=name: torch.tensor(1, dtype=getattr(torch, name))
        for name in ("uint8", "int32")
    },
    **{
        f"torch {name}": lambda name=name: torch.tensor(1, dtype=getattr(torch, name))
        for name in ("uint16", "uint32")
    },
    **{
        f"tensorflow {name}": lambda name=name: tf.constant(1, name)
        for name in ("uint8", "int8", "uint32", "int32")
    },
    **{f"jax {name}": lambda name=name: jnp.array(1, name) for name in ("int8", "int32", "uint32")},
    **{f"numpy {name}": lambda name=name: np.array(1, name) for name in ("int8", "uint32")},
    **{
        name: lambda name=name: getattr(ml_dtypes, name)(1)
        for name in ("int4", "uint4", "int2", "uint2")
    },
    "tensorflow bool": lambda: tf.constant(True),
}


class Number:
    """What only __array__ tells."""

    def __array__(self, dtype=None, copy=None):
        return np.array(2.0, dtype)


def outcome(numbers, target):
    """The dtype and the values, or the class of the error."""
    try:
        result = ferry.convert(numbers, target)
    except ferry.ConversionError as error:
        return type(error)
    return (dtype_name(result) if target != "python" else ""), ferry.to_list(result)[:2]


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax", "python"])
@pytest.mark.parametrize("scalar", SCALARS)
def test_integers_beside_a_scalar_never_wrap(scalar, target):
    """The same values as without it, in the dtype that holds them, or an error; in a long list as in a short one."""
    for number in (1, -1, 2**31, 2**40, -(2**40)):
        short = [number, SCALARS[scalar]()]
        expected = outcome([number, 1], target)
        assert outcome(short, target) == expected
        assert outcome([*short, *[0] * 300], target) == expected


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax", "python"])
def test_floats_beside_a_scalar(target):
    """No error of the scalar's own comes through, and its value arrives."""
    for scalar, value in (
        (tf.constant(3, tf.int8), 3.0),
        (torch.tensor(3, dtype=torch.uint16), 3.0),
        (Number(), 2.0),
    ):
        assert ferry.to_list(ferry.convert([0.5, scalar], target)) == [0.5, value]
