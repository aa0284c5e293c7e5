"""shares_memory against the brute force of every single byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry
from tensorferry import testing
from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.testing import strategies as these

BLOCK = bytes(2048)


@settings(max_examples=examples(250))
@given(data=st.data())
def test_two_views_of_one_block_overlap_where_a_byte_is_common(data):
    """Any two views of one block, of any dtypes and strides: shares a byte, or says that it does not."""
    block = np.zeros(len(BLOCK), np.uint8)
    views = []
    for _ in range(2):
        dtype = data.draw(st.sampled_from(["bool", "int16", "bfloat16", "float32", "complex128"]))
        found = data.draw(these.images(dtype, block=BLOCK))
        witness = testing.witness_for("numpy")
        like = witness.lay(found._replace(block=b"\0"), dtype) if not found.content else None
        views.append(
            like
            if like is not None
            else np.ndarray(
                found.shape, numpy_dtype(dtype), block.data, found.offset, found.strides
            )
        )
    looks = testing.witness_for("numpy")
    first, second = (testing.addresses(looks.place(view)) if view.size else set() for view in views)
    assert ferry.shares_memory(*views) == bool(first & second)
    assert ferry.shares_memory(*views[::-1]) == bool(first & second)


@settings(max_examples=examples(100))
@given(data=st.data())
def test_views_of_two_frameworks_overlap_where_a_byte_is_common(data):
    """The same across frameworks: a torch tensor over part of an array."""
    torch = pytest.importorskip("torch")
    block = np.zeros(256, np.float32)
    cuts = st.builds(slice, st.integers(0, 255), st.integers(0, 256), st.integers(1, 5))
    first, second = data.draw(cuts), data.draw(cuts)
    array, tensor = block[first], torch.from_numpy(block)[second]
    expected = bool(set(range(256)[first]) & set(range(256)[second]))
    assert ferry.shares_memory(array, tensor) == expected
    assert ferry.shares_memory(tensor, array) == expected
    assert ferry.shares_memory(tensor, tensor.clone()) is False


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax"])
def test_separate_memory_is_never_shared(framework):
    """Two tensors that are alive at once and were made apart do not overlap; one overlaps with itself."""
    witness = testing.witness_for(framework)
    one, other = (witness.build(bytes(64), "float32", (16,)) for _ in range(2))
    assert not ferry.shares_memory(one, other)
    assert ferry.shares_memory(one, one)
    assert not ferry.shares_memory(one, [1.0, 2.0])
