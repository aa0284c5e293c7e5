"""Objects of other libraries on a device: by ``__dlpack__`` and CUDA's array interface, with a stand-in for CuPy."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
from tests.backends import paper_cupy

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.host import dlpack

torch = pytest.importorskip("torch")


class Dlpack:
    """A library's tensor on a GPU."""

    def __init__(self, array, device=(2, 0)):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **asked):
        return self.array.__dlpack__(max_version=asked.get("max_version"))


class Interface:
    """One with CUDA's array interface, which gives a copy on the host too."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__array_interface__, "version": 3, "stream": None}

    def __array__(self, dtype=None, copy=None):
        return self.array.copy()


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in, as the only framework that takes memory of a device: the real PyTorch has no GPU here."""
    with paper_cupy.installed() as backend:
        monkeypatch.setattr(registry.backend_named("torch"), "is_imported", lambda: False)
        yield registry.load(backend)


KINDS = {"__dlpack__": Dlpack, "__cuda_array_interface__": Interface}


@pytest.mark.parametrize("protocol", KINDS)
def test_it_is_a_tensor_on_its_device(cupy, protocol):
    """To CuPy it is the same memory; to the host it crosses the bus once, as planned."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = KINDS[protocol](array)
    info = ferry.describe(x)
    assert (info.framework, info.device, info.dtype, info.shape, info.kind.name) == (
        "cupy",
        "cuda:0",
        "float32",
        (2, 3),
        protocol,
    )
    shared = ferry.convert(x, "cupy")
    assert isinstance(shared, paper_cupy.ndarray)
    assert shared.data.ptr == array.__array_interface__["data"][0]
    plan = ferry.explain(x, "numpy")
    assert [(step.verb, step.path) for step in plan.steps] == [("take", "none"), ("fetch", "bus")]
    host = ferry.to_numpy(x)
    assert host.tolist() == array.tolist()
    assert not np.shares_memory(host, array)
    assert ferry.to_list(x) == array.tolist()


@pytest.mark.parametrize(
    ("protocol", "code"),
    [("__dlpack__", "cupy.from_dlpack(x)"), ("__cuda_array_interface__", "cupy.asarray(x)")],
)
def test_the_code_takes_it(cupy, protocol, code):
    """The framework's own function comes first, and the reason is that memory is shared."""
    x = KINDS[protocol](np.arange(3.0))
    plan = ferry.explain(x, "cupy")
    assert plan.code.endswith(f"y = {code}")
    assert (plan.shares_memory, plan.reason) == (True, "the same memory")
    assert ferry.explain(x, "numpy").code.endswith(f"y = {code}.get()")


@pytest.mark.parametrize("protocol", KINDS)
def test_it_is_copied_if_that_is_asked(cupy, protocol):
    """On its device; and copy=False refuses the way to the host."""
    array = np.arange(3.0)
    copied = ferry.convert(KINDS[protocol](array), "cupy", copy=True)
    array[...] = 9
    assert copied.get().tolist() == [0, 1, 2]
    with pytest.raises(ferry.CopyRequiredError, match="cuda:0"):
        ferry.to_numpy(KINDS[protocol](array), copy=False)


def test_it_is_a_leaf_like_others(cupy):
    """Twice in a tree it is one tensor."""
    x = Dlpack(np.arange(3.0))
    tree = ferry.convert_tree({"a": x, "b": [x, Dlpack(np.ones(2))]}, "numpy")
    assert tree["a"] is tree["b"][0]
    assert [tree["a"].tolist(), tree["b"][1].tolist()] == [[0, 1, 2], [1, 1]]


def test_memory_that_must_not_be_written_is_refused(cupy):
    """A framework on a device has no read-only tensors."""
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.raises(ferry.DeviceError, match="must not be written") as caught:
        ferry.convert(Dlpack(array), "cupy")
    assert caught.value.hint


def test_the_structure_is_read_while_its_capsule_is_alive(monkeypatch):
    """It is freed with its capsule, so that a flag read later is anything."""
    array, read, managed_by = np.arange(3.0), [], dlpack._managed_by
    x = Dlpack(array)
    before = sys.getrefcount(array)

    class Watched(dlpack._Versioned):
        @property
        def flags(self):
            read.append(sys.getrefcount(array) > before)
            return 0

    monkeypatch.setattr(
        dlpack, "_managed_by", lambda x: Watched.from_address(ctypes.addressof(managed_by(x)))
    )
    assert not dlpack.is_read_only(x)
    assert read == [True]


@pytest.mark.parametrize("target", ["numpy", "torch", "python"])
def test_without_a_framework_there_the_way_is_said(monkeypatch, target):
    """The hint is what to import."""
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(registry.backend_named("torch"), "is_imported", lambda: False)
    with pytest.raises(
        ferry.DeviceError, match="on a device, and no framework is imported"
    ) as caught:
        ferry.convert(Dlpack(np.arange(3.0)), target)
    assert caught.value.hint == "import torch"
    # It gives a copy on the host too, which serves if nobody takes its memory.
    assert ferry.convert(Interface(np.arange(3.0)), "numpy").tolist() == [0, 1, 2]


def test_a_library_that_fails_says_why(cupy):
    """Its own error is the cause of ours."""

    class Broken(Dlpack):
        def __dlpack__(self, **asked):
            raise RuntimeError("the driver is gone")

    with pytest.raises(ferry.UnsupportedTypeError, match="the driver is gone"):
        ferry.to_numpy(Broken(np.arange(3.0)))
