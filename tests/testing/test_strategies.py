"""The strategies for hypothesis that users of tensorferry have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorferry as ferry
from tensorferry.testing import strategies as these


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow", "python"])
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_tensors_have_the_shape_that_is_asked_for(framework, data):
    """A function that needs an axis, or two, is tested with tensors that have them."""
    if framework != "python":
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    dtype = "float64" if framework == "python" else "float32"
    x = data.draw(these.tensors(framework, dtype, shape=(3, 4)))
    assert ferry.to_numpy(x, copy=True).shape == (3, 4)
    two = these.shapes(axes=2).filter(lambda shape: len(shape) == 2 and all(shape))
    assert ferry.describe(data.draw(these.tensors(framework, dtype, two))).ndim == 2
