"""to_tensorflow(variable=True) and out=: memory that is written, never adopted."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry import testing
from tensorferry.testing.bits import FORMATS
from tensorferry.testing.memory import image

SOURCES = ("numpy", "torch", "tensorflow", "jax")
# TensorFlow has no kernel that assigns these to a variable.
UNASSIGNED = {
    "int2",
    "uint2",
    "float4_e2m1fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
}


def both_have(source, target):
    witnesses = testing.witness_for(source), testing.witness_for(target)
    declared = [
        ferry.backends.registry.ready(name).capabilities.dtypes.held for name in (source, target)
    ]
    return [
        dtype
        for dtype in FORMATS
        if all(dtype in each for each in declared)
        and all(witness.knows(dtype) for witness in witnesses)
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_a_variable_has_memory_of_its_own(source):
    """variable=True gives a tf.Variable with the source's bits, apart from the source's memory."""
    import tensorflow as tf

    witness, looks = testing.witness_for(source), testing.witness_for("tensorflow")
    for dtype in sorted(set(both_have(source, "tensorflow")) - UNASSIGNED):
        sample = witness.make("aligned", dtype)
        variable = ferry.to_tensorflow(sample.x, variable=True)
        assert isinstance(variable, tf.Variable), dtype
        assert variable.dtype.name == dtype
        assert looks.content(variable) == sample.content, dtype
        if sample.writable:
            witness.poke(sample.x, bytes(byte ^ 1 for byte in sample.content))
            assert looks.content(variable) == sample.content, dtype
        else:
            # TensorFlow's own zeros_like knows no float8.
            variable.assign(np.zeros(variable.shape, variable.dtype.as_numpy_dtype))
            assert witness.content(sample.x) == sample.content, dtype


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("layout", ["aligned", "fortran", "strided", "unaligned"])
def test_out_receives_the_bits_in_place(source, target, layout):
    """out= keeps its own memory and metadata, and then holds what the source holds."""
    makes, keeps = testing.witness_for(source), testing.witness_for(target)
    for dtype in both_have(source, target):
        sample = makes.make("aligned", dtype)
        out = keeps.lay(image(layout, dtype), dtype)
        before = keeps.place(out)
        result = ferry.convert(sample.x, target, out=out)
        assert result is out
        assert keeps.place(out) == before
        assert keeps.content(out) == sample.content, (dtype, layout)
        assert makes.content(sample.x) == sample.content, dtype


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_out_is_untouched_by_a_conversion_that_fails(target):
    """A value that does not fit, late in the source, leaves out as it was: nothing is half written."""
    keeps = testing.witness_for(target)
    out = keeps.build(bytes(range(100, 200)), "int8", (100,))
    before = keeps.content(out)
    source = np.arange(100)
    source[-1] = 1000
    with pytest.raises(ferry.LossyCastError, match=r"\[99\]"):
        ferry.convert(source, target, out=out)
    assert keeps.content(out) == before
    with pytest.raises(ferry.ShapeError):
        ferry.convert(source[:50] % 100, target, out=out)
    assert keeps.content(out) == before


@pytest.mark.parametrize("target", ["jax", "python"])
def test_out_is_refused_where_nothing_can_be_written(target):
    """JAX arrays are immutable and lists have no memory: out= of those is refused."""
    out = (
        testing.witness_for("jax").build(bytes(8), "float32", (2,))
        if target == "jax"
        else [0.0, 0.0]
    )
    with pytest.raises(ferry.UnsupportedTypeError):
        ferry.convert(np.zeros(2, np.float32), target, out=out)
