"""What `explain` prints for a device gives the values of the conversion: casts that NumPy does, and DLPack's dtypes."""

from __future__ import annotations


import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.host.numpy_dtypes import numpy_dtype

torch = pytest.importorskip("torch")

NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
ON_HOST = {"torch": ("cuda:0", "cpu"), "jax": ('"gpu"', '"cpu"'), "tensorflow": ("device:GPU", "device:CPU")}
"""What to replace in code for a GPU, by framework, so that it runs on the host."""


def random_bits(name, shape=(16, 24)):
    kind = numpy_dtype(name)
    raw = np.random.default_rng(3).integers(0, 256, int(np.prod(shape)) * kind.itemsize, dtype=np.uint8)
    return (raw % 2 if name == "bool" else raw).view(kind).reshape(shape)


def run(plan, x, framework="torch", **names):
    """What the code of a plan makes of `x`, on the host."""
    names["x"] = x
    with np.errstate(all="ignore"):
        exec(plan.code.replace(*ON_HOST[framework]), names)  # noqa: S102 - that is what the code is for
    return names["y"]


def test_one_element_with_a_negative_stride():
    """NumPy's `as_strided` does not know float8."""
    for name in (*NARROW, "float32"):
        x = random_bits(name, (3, 4))[::-1, ::-3][:1, :1]
        y = run(ferry.explain(x, "torch"), x)
        assert ferry.to_numpy(y).tobytes() == x.tobytes()


@pytest.mark.parametrize("before", ["float16", "float32", "float64"])
@pytest.mark.parametrize("after", ["int32", "uint8", "int64"])
def test_minus_zero_is_the_integer_zero(before, after):
    """NumPy 2.4 refuses it with casting="same_value", from float16."""
    x = np.array([-0.0, 3.0], before)
    plan = ferry.explain(x, "numpy", dtype=after, casting="same_value")
    assert run(plan, x).tolist() == ferry.to_list(ferry.to_numpy(x, dtype=after, casting="same_value")) == [0, 3]
