"""A device's memory on its way to another framework: who is asked for what, on which stream, on which device.

What needs no GPU of it is tried on the frameworks' host memory, which they exchange by the same
protocol.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from inspect import signature

import numpy as np
import pytest
from tests.support import bits, dtype_name, memory_at

from tensorferry.backends import registry
from tensorferry.host import dlpack
from tensorferry.host.dlpack import DlpackExport

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
tf = pytest.importorskip("tensorflow")

has_versions = pytest.mark.skipif(
    "max_version" not in signature(torch.Tensor.__dlpack__).parameters,
    reason=f"torch {torch.__version__} makes capsules without a version only",
)
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


def backend(name):
    return registry.load(registry.backend_named(name))


def tensor_of(framework, dtype, count=64):
    """Random bits as a tensor of a framework, in host memory that all of them take as it is."""
    kind = np.dtype(dtype) if dtype not in NARROW else __import__("ml_dtypes").__dict__[dtype]
    array = memory_at((count,), kind)
    array.view(np.uint8)[...] = np.random.default_rng(2).integers(0, 100, array.nbytes)
    return backend(framework).adopt(array)


def test_every_framework_waits_for_its_own(monkeypatch):
    """For who names no stream; TensorFlow, which has no word for one tensor, waits for all devices."""
    waited = []
    monkeypatch.setattr(tf.test.experimental, "sync_devices", lambda: waited.append(True))
    for framework in ("jax", "tensorflow"):  # torch asks the tensor's device, and the host has none
        x = tensor_of(framework, "float32")
        assert backend(framework).wait(x) is x
    assert waited == [True]


class Producer:
    """A tensor on a GPU, on paper: it writes down how it is asked for its memory, and on which device."""

    def __init__(self, array, current):
        self.array = array
        self.current = current
        self.asked = []

    def __dlpack__(self, **keywords):
        self.asked.append((self.current[0], keywords))
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float32", "int16", *NARROW])
@pytest.mark.parametrize("source", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow"])
def test_the_same_memory_under_the_same_dtype(source, target, dtype):
    """Every pair gives the same bits at the same address; TensorFlow's exporter knows no float8, and is not asked."""
    if "tensorflow" in (source, target) and dtype.startswith("float8"):
        assert dtype in backend("tensorflow").capabilities.dtypes.unexported
        return
    x = tensor_of(source, dtype)
    consumer = backend(target)
    if target == "tensorflow":
        # Its way in names CUDA's default stream, which memory of the host has not.
        y = consumer.from_dlpack(backend(source).export_dlpack(x).as_named().__dlpack__())
    else:
        y = consumer.import_dlpack(x, source)
    assert dtype_name(y) == dtype
    assert bits(y) == bits(x)
    assert consumer.pointer(y) == backend(source).pointer(x)


def test_the_consumers_stream_reaches_the_producer():
    """What the consumer says is passed on; asked while the producer's own device is the current one."""
    current = ["cuda:0"]

    @contextmanager
    def around():
        before, current[0] = current[0], "cuda:1"
        yield
        current[0] = before

    x = Producer(np.zeros(4, np.float32), current)
    exported = DlpackExport(x, "float32", around)
    exported.__dlpack__(stream=7, max_version=(1, 0))
    assert x.asked == [("cuda:1", {"stream": 7, "max_version": (1, 0)})]
    assert current == ["cuda:0"]


def test_unified_memory_is_exported_as_memory_of_the_gpu():
    """DLPack has a device of its own for it, which most consumers refuse."""
    exported = DlpackExport(
        Producer(np.zeros(4, np.float32), ["cuda:0"]), "float32", nullcontext, unified=True
    )
    assert exported.__dlpack_device__() == (2, 0)
    assert dlpack._managed_by(exported.__dlpack__()).tensor.device_type == 2


def test_the_current_device_comes_back_after_an_error():
    """A producer's own error comes out as it is."""
    current = ["cuda:0"]

    class Broken(Producer):
        def __dlpack__(self, **keywords):
            raise TypeError("no such export")

    @contextmanager
    def around():
        current[0] = "cuda:1"
        try:
            yield
        finally:
            current[0] = "cuda:0"

    with pytest.raises(TypeError, match="no such export"):
        DlpackExport(Broken(np.zeros(4), current), "float64", around).__dlpack__(stream=1)
    assert current == ["cuda:0"]


def test_a_producer_that_takes_no_stream_is_asked_without():
    """TensorFlow refuses one, and has finished when it exports."""
    x = Producer(np.zeros(4, np.float32), [""])
    DlpackExport(x, "float32", nullcontext, streams=False).__dlpack__(stream=7, max_version=(1, 0))
    assert x.asked == [("", {})]
    exported = backend("tensorflow").export_dlpack(tf.constant([1.0, 2.0]))
    assert not exported.streams
    with pytest.raises(RuntimeError, match="non-None stream"):
        exported.x.__dlpack__(stream=7)
    assert torch.from_dlpack(exported).tolist() == [1.0, 2.0]


def test_pytorch_exports_on_the_tensors_own_device(monkeypatch):
    """The device that is current during the export is the tensor's."""
    entered = []

    @contextmanager
    def device(of):
        entered.append(str(of))
        yield

    monkeypatch.setattr(torch.cuda, "device", device)

    class OnPaper:
        dtype, device, is_cuda = torch.float32, torch.device("cuda:1"), True

        def detach(self):
            return self

        def __dlpack__(self, **keywords):
            return torch.zeros(2).__dlpack__()

    backend("torch").export_dlpack(OnPaper()).__dlpack__(stream=1)
    assert entered == ["cuda:1"]


def test_a_capsule_that_nobody_takes_is_freed_by_its_producer():
    """Renaming the dtype in it changes nothing about whose it is."""
    import gc
    import weakref

    x = torch.zeros(1 << 20, dtype=torch.bfloat16)
    alive = weakref.ref(x)
    capsule = backend("torch").export_dlpack(x).as_named().__dlpack__()
    assert "dltensor" in repr(capsule)
    del capsule, x
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("versioned", [False, pytest.param(True, marks=has_versions)])
def test_the_code_in_a_capsule(versioned):
    """Named and as integers, in capsules with and without a version."""
    from tensorferry.host import dlpack

    x = torch.zeros(4, dtype=torch.bfloat16)
    asked = {"max_version": (1, 0)} if versioned else {}
    exported = backend("torch").export_dlpack(x)
    assert dlpack._managed_by(exported.as_named().__dlpack__(**asked)).tensor.code == 4
    assert dlpack._managed_by(exported.as_integers().__dlpack__(**asked)).tensor.code == 1
    assert ("versioned" in repr(exported.as_named().__dlpack__(**asked))) == versioned
