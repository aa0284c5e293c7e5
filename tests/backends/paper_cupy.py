"""A stand-in for CuPy in host memory: the names that the backend uses, with the meaning that CuPy documents.

Its two devices are places in the process; what is queued is done at once. It shows that the
backend's verbs fit together and that each runs on the right device; that CuPy means the same by
them is for `tests/gpu`.
"""

from __future__ import annotations

import ctypes
import sys
import types
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from tensorferry.backends import fast_paths, registry
from tensorferry.backends.cupy.tensors import CupyBackend
from tensorferry.core.layout import compact_strides, packed_strides
from tensorferry.host import memory

__all__ = ["installed", "module"]

current = [0]
"""The current device."""
before = []
"""Those that were current before."""


class Device:
    def __init__(self, index=None):
        self.id = current[0] if index is None else index

    def __enter__(self):
        before.append(current[0])
        current[0] = self.id
        return self

    def __exit__(self, *_):
        current[0] = before.pop()

    def __repr__(self):
        return f"<CUDA Device {self.id}>"


class Stream:
    entered: ClassVar = []

    def __init__(self, non_blocking=False):
        self.device_id = current[0]

    def __enter__(self):
        Stream.entered.append(self)
        return self

    def __exit__(self, *_):
        Stream.entered.pop()

    def synchronize(self):
        pass


def get_current_stream():
    here = [stream for stream in Stream.entered if stream.device_id == current[0]]
    return here[-1] if here else Stream()


class Memory:
    """A block of the pool, or the memory of an array of the host, from its first element on."""

    def __init__(self, block):
        self.block, self.ptr, self.device_id = block, block.ctypes.data, current[0]


class UnownedMemory:
    """Memory of another object."""

    def __init__(self, ptr, size, owner, device_id=-1):
        assert ptr, "CuPy would look at address 0 for the device"
        self.ptr, self.size, self.device_id = ptr, size, current[0] if device_id < 0 else device_id
        self._owner = owner


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.offset, self.device_id = mem, offset, mem.device_id

    @property
    def ptr(self):
        return self.mem.ptr + self.offset

    def __add__(self, offset):
        return MemoryPointer(self.mem, self.offset + offset)

    def copy_to_host_async(self, mem, size, stream=None):
        assert stream.device_id == self.device_id == current[0], "queued on another device's stream"
        ctypes.memmove(mem.value, self.ptr, size)

    def copy_from_host_async(self, mem, size, stream=None):
        assert stream.device_id == self.device_id == current[0], "queued on another device's stream"
        ctypes.memmove(self.ptr, mem.value, size)

    def copy_from_device_async(self, src, size, stream=None):
        assert stream.device_id == self.device_id == current[0], "queued on another device's stream"
        ctypes.memmove(self.ptr, src.ptr, size)


def alloc(size):
    block = np.full(size + 64, 0xA5, np.uint8)
    return MemoryPointer(Memory(block), -block.ctypes.data % 64)


class ndarray:  # noqa: N801 - CuPy's own name
    """`cupy.ndarray` over a pointer."""

    def __init__(self, shape, dtype, memptr=None, strides=None):
        dtype = np.dtype(dtype)
        self.data = memptr if memptr is not None else alloc(int(np.prod(shape)) * dtype.itemsize)
        steps = compact_strides(tuple(shape), dtype.itemsize) if strides is None else tuple(strides)
        self.array = memory.over_address(
            self.data.ptr, tuple(shape), steps, dtype, read_only=False, owner=self.data.mem
        )
        self.device = Device(self.data.device_id)

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    strides = property(lambda self: self.array.strides)
    itemsize = property(lambda self: self.array.itemsize)
    nbytes = property(lambda self: self.array.nbytes)
    size = property(lambda self: self.array.size)
    ndim = property(lambda self: self.array.ndim)
    flags = property(lambda self: self.array.flags)

    def view(self, dtype):
        return ndarray(self.shape, dtype, self.data, self.strides)

    def reshape(self, shape):
        assert self.array.flags.c_contiguous
        return ndarray(shape, self.dtype, self.data)

    def get(self):
        assert self.array.flags.c_contiguous or is_numpys(self.dtype), "CuPy has no kernel for this"
        return self.array.copy()

    def set(self, arr):
        assert arr.dtype == self.dtype
        assert self.array.flags.c_contiguous
        self.array[...] = arr

    def copy(self):
        assert is_numpys(self.dtype), "CuPy has no kernel for this"
        return ours(np.ascontiguousarray(self.array))

    def __setitem__(self, key, value):
        assert value.dtype.type.__module__ == self.dtype.type.__module__ == "numpy", (
            "CuPy is not to cast this"
        )
        self.array[key] = value.array

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, max_version=None, copy=None):
        assert current[0] == self.data.device_id, "exported while another device is current"
        assert self.dtype.type.__module__ == "numpy"
        return self.array.__dlpack__(max_version=max_version)


ndarray.__module__ = "cupy"


def ours(array):
    """New memory on the current device with an array's values, without gaps; the order of its axes is kept."""
    steps = packed_strides(array.shape, array.strides, array.itemsize)
    result = ndarray(array.shape, array.dtype, alloc(max(array.nbytes, 1)), steps)
    result.array[...] = array
    return result


def over(array):
    """An array over the memory of one of the host, which it keeps."""
    return ndarray(array.shape, array.dtype, MemoryPointer(Memory(array), 0), array.strides)


def is_numpys(dtype):
    return dtype.type.__module__ == "numpy"


def asarray(x):
    if hasattr(x, "__cuda_array_interface__"):
        told = dict(x.__cuda_array_interface__)
        wrapped = type("Wrapped", (), {"__array_interface__": told})()
        array = np.asarray(wrapped)
        found = over(array)
        found.keeps = x
        return found
    array = x if isinstance(x, np.ndarray) else x.array
    assert is_numpys(array.dtype), "CuPy has no kernel for this"
    return ours(array)


def ascontiguousarray(x):
    return x if x.array.flags.c_contiguous else ours(np.ascontiguousarray(x.array))


def zeros(shape, dtype):
    return ours(np.zeros(shape, dtype))


def concatenate(arrays):
    return ours(np.concatenate([x.array for x in arrays]))


class _OnHost:
    """What NumPy takes of an object that says that its memory is a GPU's."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **asked):
        return self.x.__dlpack__(**asked)

    def __dlpack_device__(self):
        return 1, 0


def from_dlpack(x):
    array = np.from_dlpack(_OnHost(x))
    assert array.dtype.type.__module__ == "numpy"
    return over(array)


def module():
    """A module with these names."""
    made = types.ModuleType("cupy")
    made.ndarray, made.ascontiguousarray, made.from_dlpack = ndarray, ascontiguousarray, from_dlpack
    made.zeros, made.concatenate, made.asarray = zeros, concatenate, asarray
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2, CUDARuntimeError=RuntimeError)
    made.cuda = types.SimpleNamespace(
        Device=Device,
        MemoryPointer=MemoryPointer,
        Stream=Stream,
        UnownedMemory=UnownedMemory,
        alloc=alloc,
        get_current_stream=get_current_stream,
        runtime=runtime,
    )
    return made


@contextmanager
def installed():
    """The stand-in imported, and a backend that has loaded it; the real ones afterwards."""
    registry.backends()
    own, backend = registry.backend_named("cupy"), CupyBackend()
    real = sys.modules.get("cupy")
    sys.modules["cupy"] = module()
    registry.register(backend)
    try:
        yield backend
    finally:
        del sys.modules["cupy"]
        if real is not None:
            sys.modules["cupy"] = real
        fast_paths._by_backend.pop("cupy", None)
        registry.register(own)
