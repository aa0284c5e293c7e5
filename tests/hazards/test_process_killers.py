"""Calls that end the process today: in a process of its own tensorferry is given the same thing, and lives."""

from __future__ import annotations

import pytest
from tests.support import lives

pytest.importorskip("torch")
pytest.importorskip("tensorflow")
pytest.importorskip("jax")

PRELUDE = """
import warnings
import numpy as np, torch, tensorflow as tf, jax, jax.numpy as jnp, tensorferry as ferry

def refused(call, *words):
    try:
        call()
    except ferry.ConversionError as error:
        assert all(word in str(error) for word in words), str(error)
        return
    raise SystemExit(f"not refused: {words}")

def at(offset, count=1024, dtype=np.float32):
    block = np.zeros(count * np.dtype(dtype).itemsize + 128, np.uint8)
    start = -block.ctypes.data % 64 + offset
    return block[start : start + count * np.dtype(dtype).itemsize].view(dtype)
"""


def test_negative_strides():
    """torch.from_dlpack(a[::-1]) aborts: here it is a copy, or an error that says why."""
    lives(
        PRELUDE
        + """
for name in (np.float32, np.int8, np.complex64, ferry.to_numpy([0], dtype="bfloat16").dtype):
    base = np.arange(24).reshape(4, 6).astype(name)
    for view in (base[::-1], base[:, ::-1], base[::-1, ::-2], base.T[::-1], base[2::-1, 1:]):
        for call in (ferry.to_torch, ferry.to_tensorflow, ferry.to_jax):
            for copy in (None, True):
                assert ferry.to_numpy(call(view, copy=copy)).tobytes() == view.tobytes()
            refused(lambda: call(view, copy=False), "negative stride on axis")
        assert ferry.shares_memory(ferry.to_numpy(view), base)
    class Foreign:
        def __init__(self, array): self.array = array
        def __dlpack__(self, **keywords): return self.array.__dlpack__(**keywords)
        def __dlpack_device__(self): return (1, 0)
    if name is np.float32:
        assert ferry.to_torch(Foreign(base[::-1])).tolist() == base[::-1].tolist()
"""
    )


def test_misaligned_memory_in_tensorflow_and_jax():
    """Vector instructions on memory that is not 64-byte aligned end the process in some later operation."""
    lives(
        PRELUDE
        + """
for offset in (1, 2, 4, 8, 16, 32, 60):
    x = at(offset).reshape(32, 32)
    x[...] = 1
    sources = [x, torch.from_numpy(x)] if offset % 4 == 0 else [x]
    for source in sources:
        for copy in (None, True):
            y = ferry.to_tensorflow(source, copy=copy)
            assert float(tf.reduce_sum(tf.linalg.matmul(y, y) + tf.nn.relu(y) * tf.exp(y - 1))) == 32.0**3 + 32**2
            z = ferry.to_jax(source, copy=copy)
            assert float((z @ z).sum()) == 32.0**3
        for call in (ferry.to_tensorflow, ferry.to_jax):
            refused(lambda: call(source, copy=False), "address %")
"""
    )


def test_strings_resources_and_variants_of_tensorflow():
    """Their export over DLPack aborts: they are refused before it."""
    lives(
        PRELUDE
        + """
things = [
    tf.constant(["a", "b"]), tf.constant("a"), tf.Variable(["a"]), tf.Variable(1.0).handle,
    tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=1, element_dtype=tf.float32),
    tf.io.serialize_tensor(tf.ones(2)),
]
for thing in things:
    for target in ("numpy", "torch", "jax", "python", "tensorflow"):
        for copy in (None, True, False):
            refused(lambda: ferry.convert(thing, target, copy=copy))
        refused(lambda: ferry.explain(thing, target))
    refused(lambda: ferry.describe(thing))
    refused(lambda: ferry.to_numpy([thing, thing]))
"""
    )


def test_tensors_around_tensors():
    """DTensor, FakeTensor, MaskedTensor and functorch wrappers export garbage or end the process."""
    lives(
        PRELUDE
        + """
warnings.simplefilter("ignore")
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.masked import masked_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor
with FakeTensorMode():
    fake = torch.ones(3)
things = [
    distribute_tensor(torch.ones(4), DeviceMesh("cpu", [0]), [Shard(0)]), fake,
    masked_tensor(torch.ones(3), torch.tensor([True, False, True])),
    torch.ones(3, device="meta"), torch._efficientzerotensor((3,)), torch.eye(3).to_sparse(),
]
def inside(x):
    for target in ("numpy", "tensorflow", "jax", "python"):
        refused(lambda: ferry.convert(x, target))
    return x
for thing in things:
    for target in ("numpy", "tensorflow", "jax", "python"):
        for copy in (None, True, False):
            refused(lambda: ferry.convert(thing, target, copy=copy))
        refused(lambda: ferry.convert([thing, thing], target))
torch.vmap(inside)(torch.ones(3, 2))
"""
    )


def test_writing_over_a_read_only_map(tmp_path):
    """A write to a tensor over a read-only map is a segmentation fault: by default there is no such tensor."""
    path = tmp_path / "numbers.bin"
    path.write_bytes(bytes(4096))
    lives(
        PRELUDE
        + """
import mmap, sys
mapped = np.memmap(sys.argv[1], np.float32, mode="r")
file = open(sys.argv[1], "rb")
raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
for source in (mapped, mapped[::3], memoryview(raw), np.frombuffer(raw, np.int16), [mapped, mapped]):
    ferry.to_torch(source).fill_(1)
    ferry.to_torch(source, dtype="float64").fill_(1)
    ferry.to_numpy(source, copy=True).fill(1)
    ferry.to_torch(ferry.to_numpy(source)).fill_(1)
    ferry.to_torch(ferry.to_tensorflow(source)).fill_(1)
    ferry.to_torch(ferry.to_jax(source)).fill_(1)
    if not isinstance(source, list):
        try:
            ferry.to_numpy(source)[...] = 1
        except ValueError:
            pass
        else:
            raise SystemExit("wrote to a read-only map")
file.close()
""",
        path,
    )
    assert path.read_bytes() == bytes(4096)


def test_memory_that_is_gone():
    """Deleted and donated arrays of JAX, released memoryviews, resized buffers: an error, never a stale read."""
    lives(
        PRELUDE
        + """
import array
x = jnp.arange(1024.0)
view = ferry.to_numpy(x)
x.delete()
refused(lambda: ferry.to_numpy(x), "deleted")
refused(lambda: ferry.to_torch(x), "deleted")
assert view.sum() == 1024 * 1023 / 2
held = memoryview(bytearray(16))
held.release()
for target in ("numpy", "torch", "tensorflow", "jax", "python"):
    try:
        ferry.convert(held, target)
    except (ferry.ConversionError, ValueError):
        continue
    raise SystemExit("converted a released memoryview")
growing = bytearray(64)
shared = ferry.to_torch(growing)
try:
    growing.extend(bytes(1 << 20))
except BufferError:
    pass
else:
    raise SystemExit("the buffer moved under a tensor")
shared.fill_(1)
numbers = array.array("f", [1.0] * 64)
lasting = ferry.to_numpy(numbers)
try:
    numbers.append(1.0)
except BufferError:
    pass
else:
    raise SystemExit("the array moved under a view")
assert lasting.sum() == 64
"""
    )


def test_enormous_and_odd_geometry():
    """Strides of zero, lengths of one with wild strides, 64 axes: what comes out is what went in, or an error."""
    lives(
        PRELUDE
        + """
one = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (1, 8), (3, 4))
wide = np.broadcast_to(np.float32(3), (4, 5, 6))
deep = np.zeros((1,) * 40, np.float32)
huge = np.broadcast_to(np.zeros(1, np.int8), (1 << 40,))
for call in (ferry.to_torch, ferry.to_numpy, ferry.to_jax, ferry.to_tensorflow):
    for source in (one, wide):
        assert np.array_equal(ferry.to_numpy(call(source)), source)
    for source in (deep, np.zeros((1,) * 64, np.float32)):
        try:
            assert tuple(call(source).shape) == source.shape
        except Exception as error:
            assert not isinstance(error, AssertionError), error
assert ferry.to_numpy(huge).shape == huge.shape
assert ferry.to_torch(huge, copy=False).shape == huge.shape
assert ferry.describe(huge).nbytes == 1 << 40
nested = []
for _ in range(5000):
    nested = [nested]
refused(lambda: ferry.to_numpy(nested))
itself = []
itself.append(itself)
refused(lambda: ferry.to_numpy(itself))
"""
    )


def test_tensorflow_works_on_what_a_variable_was_written():
    """It ends the process over memory that is not aligned, which NumPy's own mostly is not."""
    lives(
        PRELUDE
        + """
kept = []
for length in range(1, 120):
    for dtype in ("float32", "float64", "int64"):
        variable = tf.Variable(tf.zeros(length))
        for _ in range(2):
            ferry.to_tensorflow(np.full(length, 2, dtype), out=variable)
            ferry.to_tensorflow([2.0] * length, out=variable)
        variable.assign_add(tf.ones(length))
        numbers = ferry.to_tensorflow([2.0] * length) + variable
        assert numbers.numpy().tolist() == [5.0] * length
        kept += [variable, numbers]
"""
    )
