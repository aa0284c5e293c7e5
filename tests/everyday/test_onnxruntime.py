"""Tensors of onnxruntime, which gives its memory away without an owner."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tensorferry as ferry

onnxruntime = pytest.importorskip(
    "onnxruntime", reason="onnxruntime is not installed; `make everyday` installs it"
)
pytest.importorskip("torch")
pytest.importorskip("tensorflow")
pytest.importorskip("jax")

SIZE = 3_000_000
"""So large that the memory goes back to the system when it is freed: to read it then ends the process."""


def of(value, size):
    """An `OrtValue` over the memory of an array that nobody else has."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.full(size, value, np.float32))


@pytest.mark.parametrize("size", [64, SIZE])
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax"])
def test_a_value_that_is_not_kept_is_read_whole(target, size):
    """Its array and its capsule keep onnxruntime's own object, which does not own the memory."""
    result = ferry.convert(of(7, size), target)
    gc.collect()
    other = [np.full(size, 3, np.float32) for _ in range(4)]
    assert (ferry.to_numpy(result) == 7).all()
    del other


def test_views_of_it_keep_it():
    """The memory is the value's own: nothing was copied."""
    value = of(7, 64)
    view = ferry.to_numpy(value, copy=False)
    assert view.ctypes.data == value.data_ptr()
    part = view[1:][1:]
    del view, value
    gc.collect()
    other = [np.full(64, 3, np.float32) for _ in range(64)]
    assert (part == 7).all()
    del other


def test_a_tree_of_outputs():
    """As a session gives them."""
    tree = ferry.convert_tree({"logits": of(7, 64), "hidden": [of(8, SIZE)]}, "numpy")
    gc.collect()
    assert [float(tree["logits"].mean()), float(tree["hidden"][0].mean())] == [7, 8]
