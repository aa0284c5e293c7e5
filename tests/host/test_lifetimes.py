"""Shared memory lives as long as either side: one is deleted and collected, the other is read and compared."""

from __future__ import annotations

import array
import gc
import weakref

import numpy as np
import pytest
from tests.support import TARGETS, bits, counted, frozen

import tensorferry as ferry

jnp = pytest.importorskip("jax.numpy")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")

SIZE = 1 << 12
EXPECTED = np.arange(SIZE, dtype=np.float32)
NOISE = []


@pytest.fixture(autouse=True, scope="module")
def _only_new_garbage():
    """The frameworks' own objects are not looked at in every collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    NOISE.clear()


class Owned(np.ndarray):
    """An array that owns its memory and can be watched."""


def owned():
    """64-byte aligned numbers, and a weak reference to the owner of their memory."""
    block = Owned((4 * SIZE + 64,), np.uint8)
    start = -block.__array_interface__["data"][0] % 64
    x = block[start : start + 4 * SIZE].view(np.float32).view(np.ndarray)
    x[...] = EXPECTED
    return x, weakref.ref(block)


MAKERS = {
    "numpy": lambda: counted((SIZE,)),
    "numpy, read-only": lambda: frozen(EXPECTED),
    "torch": lambda: torch.arange(SIZE, dtype=torch.float32),
    "torch, grad": lambda: torch.arange(SIZE, dtype=torch.float32).requires_grad_(),
    "tensorflow": lambda: tf.range(SIZE, dtype=tf.float32),
    "tf.Variable": lambda: tf.Variable(tf.range(SIZE, dtype=tf.float32)),
    "jax": lambda: jnp.arange(SIZE, dtype=jnp.float32),
    "array.array": lambda: array.array("f", EXPECTED.tolist()),
    "bytearray": lambda: bytearray(EXPECTED.tobytes()),
    "bytes": EXPECTED.tobytes,
    "memoryview": lambda: memoryview(bytearray(EXPECTED.tobytes())).cast("f"),
}


def provoke_reuse():
    """Allocate and fill blocks of the same size in every allocator, so that freed memory is written over."""
    gc.collect()
    for _ in range(8):
        trash = [
            np.full(SIZE, np.nan, np.float32),
            np.full(4 * SIZE + 64, 0xFF, np.uint8),
            torch.full((SIZE,), float("nan")),
            tf.fill([SIZE], float("nan")),
            jnp.full((SIZE,), jnp.nan),
            bytearray(b"\xff" * 4 * SIZE),
        ]
        del trash
    gc.collect()


def shared(source, target):
    """A source and the result that shares its memory; the source is made again until it lies where the target can."""
    for attempt in range(200):
        x = MAKERS[source]()
        try:
            result = ferry.convert(x, target, copy=False)
        except ferry.CopyRequiredError as error:
            assert "address % 64" in str(error)  # noqa: PT017 - the allocators of buffers promise 16 bytes
            NOISE.append((x, bytearray(16 * attempt)))
        else:
            assert ferry.shares_memory(x, result)
            return x, result
    pytest.skip(f"{source} to {target}: none of 200 buffers was 64-byte aligned")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", MAKERS)
def test_the_result_outlives_its_source(source, target):
    """The source is deleted and collected; the result still has every value, and so have its views."""
    x, result = shared(source, target)
    del x
    provoke_reuse()
    assert bits(result) == EXPECTED.tobytes()
    if target in ("numpy", "torch"):
        part = result[100:200]
        del result
        provoke_reuse()
        width = 4 if source not in ("bytes", "bytearray") else 1
        assert bits(part) == EXPECTED.tobytes()[100 * width : 200 * width]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", MAKERS)
def test_the_source_outlives_its_result(source, target):
    """The result is deleted and collected; the source still has every value."""
    x, result = shared(source, target)
    del result
    provoke_reuse()
    if isinstance(x, (bytes, bytearray, memoryview, array.array)):
        assert bytes(memoryview(x)) == EXPECTED.tobytes()
    else:
        assert bits(x.value() if source == "tf.Variable" else x) == EXPECTED.tobytes()


@pytest.mark.parametrize("last", TARGETS)
@pytest.mark.parametrize("middle", TARGETS)
@pytest.mark.parametrize("first", TARGETS)
def test_a_chain_of_sharing_keeps_its_first_link_alive(first, middle, last):
    """Over two frameworks the memory of the first is still there when only the last is left."""
    x, between = shared(first, middle)
    try:
        result = ferry.convert(between, last, copy=False)
    except ferry.CopyRequiredError:
        assert first == "torch"
        assert (
            between.data_ptr() % 64
            if middle == "torch"
            else between.__array_interface__["data"][0] % 64
        )
        result = ferry.convert(between, "numpy", copy=False)
    assert ferry.shares_memory(x, result)
    del x, between
    provoke_reuse()
    assert bits(result) == EXPECTED.tobytes()


def is_freed(gone):
    """Whether the memory is let go; JAX does that on its own threads."""
    for _ in range(100):
        gc.collect()
        if gone() is None:
            return True
        jnp.zeros(3).block_until_ready()
    return False


@pytest.mark.parametrize("target", TARGETS)
def test_memory_is_freed_when_both_are_gone(target):
    """A shared source's memory is held by the result, and by nothing else."""
    x, gone = owned()
    result = ferry.convert(x, target, copy=False)
    del x
    gc.collect()
    assert gone() is not None
    assert bits(result) == EXPECTED.tobytes()
    del result
    assert is_freed(gone)


@pytest.mark.parametrize("target", TARGETS)
def test_a_copy_does_not_hold_its_source(target):
    """A copied source's memory is free at once."""
    x, gone = owned()
    result = ferry.convert(x, target, copy=True)
    del x
    assert is_freed(gone)
    assert bits(result) == EXPECTED.tobytes()
