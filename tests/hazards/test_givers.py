"""An object that gave memory by a protocol lives as long as what was made of it: it alone may own the memory.

`OrtValue` of onnxruntime is such an object: neither its array nor its capsule keeps it alive. Here
the memory is freed by `weakref.finalize` of the object, so that it can be seen when that happens.
"""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
from tests.backends import paper_cupy
from tests.support import bits, memory_at

import tensorferry as ferry
from tensorferry.backends import registry

jnp = pytest.importorskip("jax.numpy")
pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")

TARGETS = ("numpy", "torch", "tensorflow", "jax")
SIZE = 1 << 10
EXPECTED = np.arange(SIZE, dtype=np.float32)
_keeps_memory = []
"""The memory itself is never freed: one that is read too late is full of NaN instead, and the process goes on."""


class Interface:
    """Only an address."""

    def __init__(self, start):
        self.__array_interface__ = {
            "version": 3,
            "shape": (SIZE,),
            "typestr": "<f4",
            "data": (start, False),
        }


class Owner:
    """Its memory, which is full of NaN when it is gone; `view` is an array over it that does not keep it."""

    def __init__(self):
        block = memory_at((SIZE,), "float32")
        block[...] = EXPECTED
        _keeps_memory.append(block)
        self.view = np.asarray(Interface(block.ctypes.data))
        weakref.finalize(self, block.fill, np.nan).atexit = False


class Dlpack(Owner):
    def __dlpack__(self, **asked):
        return self.view.__dlpack__(max_version=asked.get("max_version"))

    def __dlpack_device__(self):
        return self.view.__dlpack_device__()


class OldDlpack(Owner):
    def __dlpack__(self, stream=None):
        return self.view.__dlpack__()

    def __dlpack_device__(self):
        return self.view.__dlpack_device__()


class Array(Owner):
    def __array__(self, dtype=None, copy=None):
        return self.view


class ArrayInterface(Owner):
    @property
    def __array_interface__(self):
        return self.view.__array_interface__


class ArrayStruct(Owner):
    @property
    def __array_struct__(self):
        return self.view.__array_struct__


class Shared(ArrayInterface):
    """Its interface names the object whose buffer is used, and that does not keep it."""

    @property
    def __array_interface__(self):
        return {"version": 3, "shape": (SIZE,), "typestr": "<f4", "data": memoryview(self.view)}


def buffer():
    """A class of C whose objects own nothing: memory of another one."""
    owner = Owner()
    start = owner.view.ctypes.data
    kind = type("Buffer", (ctypes.c_float * SIZE,), {})
    found = kind.from_address(start)
    found.owner = owner
    return found


def in_arrow(view):
    """An array of pyarrow that does not keep what the memory belongs to."""
    memory = pa.foreign_buffer(view.ctypes.data, view.nbytes)
    return pa.Array.from_buffers(pa.float32(), SIZE, [None, memory])


class ArrowArray(Owner):
    def __arrow_c_array__(self, requested_schema=None):
        return in_arrow(self.view).__arrow_c_array__(requested_schema)


class ArrowStream(Owner):
    def __len__(self):
        return SIZE

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.chunked_array([in_arrow(self.view)]).__arrow_c_stream__(requested_schema)


class ArrowOnce(Owner):
    """A stream that is used up when it has been read."""

    def __init__(self):
        super().__init__()
        self.given = False

    def __arrow_c_stream__(self, requested_schema=None):
        chunks = [] if self.given else [in_arrow(self.view)]
        self.given = True
        return pa.chunked_array(chunks, pa.float32()).__arrow_c_stream__(requested_schema)


class ArrowTable(Owner):
    def __arrow_c_array__(self, requested_schema=None):
        both = pa.RecordBatch.from_arrays([in_arrow(self.view), in_arrow(self.view)], ["a", "b"])
        return both.__arrow_c_array__(requested_schema)


GIVERS = {
    "__dlpack__": Dlpack,
    "__dlpack__ without a version": OldDlpack,
    "__array__": Array,
    "__array_interface__": ArrayInterface,
    "__array_interface__ over a buffer": Shared,
    "__array_struct__": ArrayStruct,
    "a buffer": buffer,
    "__arrow_c_array__": ArrowArray,
    "__arrow_c_stream__": ArrowStream,
    "__arrow_c_stream__ once": ArrowOnce,
}
CALLS = {
    "alone": lambda x, target: ferry.convert(x, target, copy=False),
    "in a tree": lambda x, target: ferry.convert_tree({"x": [x]}, target, copy=False)["x"][0],
    "through NumPy": lambda x, target: ferry.convert(
        ferry.to_numpy(x, copy=False), target, copy=False
    ),
    "started": lambda x, target: ferry.start(x, target, copy=False).result(),
    "in a loop": lambda x, target: next(iter(ferry.prefetch([x], target, copy=False))),
}


@pytest.fixture(autouse=True)
def _forget():
    yield
    _keeps_memory.clear()


def is_gone(reference):
    """Whether an object is let go; JAX does that on its own threads."""
    for _ in range(100):
        gc.collect()
        if reference() is None:
            return True
        jnp.zeros(3).block_until_ready()
    return False


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("giver", GIVERS)
def test_H120_it_lives_as_long_as_the_result(giver, call, target):
    """And no longer."""
    x = GIVERS[giver]()
    gone, start = weakref.ref(x), (x.owner if giver == "a buffer" else x).view.ctypes.data
    result = CALLS[call](x, target)
    assert ferry.to_numpy(result, copy=False).ctypes.data == start
    del x
    gc.collect()
    assert gone() is not None
    assert bits(result) == EXPECTED.tobytes()
    del result
    assert is_gone(gone)


@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("giver", GIVERS)
def test_H120_it_lives_as_long_as_a_view_of_a_view(giver, target):
    result = ferry.convert(GIVERS[giver](), target, copy=False)
    part = result[100:200][10:20]
    del result
    gc.collect()
    assert bits(part) == EXPECTED[110:120].tobytes()


@pytest.mark.parametrize("target", TARGETS)
def test_H120_a_table_lives_as_long_as_one_of_its_columns(target):
    tree = ferry.convert_tree(ArrowTable(), target, copy=False)
    column = tree.pop("b")
    del tree
    gc.collect()
    assert bits(column) == EXPECTED.tobytes()


@pytest.mark.parametrize("giver", GIVERS)
def test_H120_a_copy_does_not_hold_it(giver):
    x = GIVERS[giver]()
    gone = weakref.ref(x)
    result = ferry.to_numpy(x, copy=True)
    del x
    assert is_gone(gone)
    assert bits(result) == EXPECTED.tobytes()


# -- on a device ----------------------------------------------------------------------------------


class OnDevice(Dlpack):
    """Its memory counts as a GPU's."""

    def __dlpack_device__(self):
        return 2, 0


class Cuda(Owner):
    @property
    def __cuda_array_interface__(self):
        return {**self.view.__array_interface__, "version": 3, "stream": None}


@pytest.mark.parametrize("giver", [OnDevice, Cuda])
def test_H120_it_lives_as_long_as_an_array_of_cupy(giver, monkeypatch):
    """With a stand-in for CuPy, which keeps what CuPy keeps: the capsule; or the object, for CUDA's interface."""
    with paper_cupy.installed():
        monkeypatch.setattr(registry.backend_named("torch"), "is_imported", lambda: False)
        x = giver()
        gone = weakref.ref(x)
        result = ferry.convert(x, "cupy")
        part = result.reshape((2, SIZE // 2))
        del x, result
        gc.collect()
        assert part.get().tobytes() == EXPECTED.tobytes()
        del part
        assert is_gone(gone)


def test_H120_it_lives_as_long_as_a_tensor_of_pytorch():
    """The step by which PyTorch takes memory of a GPU, here with memory of the host; and what PyTorch itself keeps."""
    take = registry.load(registry.backend_named("torch")).take
    x = Dlpack()
    gone = weakref.ref(x)
    part = take(x)[1:][1:].detach()
    del x
    gc.collect()
    assert bits(part) == EXPECTED[2:].tobytes()
    x = part.requires_grad_()
    product = (x * x).sum()
    del x, part
    gc.collect()
    assert gone() is not None
    product.backward()
    del product
    assert is_gone(gone)
