"""The CuPy backend on a stand-in: every verb, dtype and direction; and what is said where CuPy is not installed."""

from __future__ import annotations

import gc
import importlib.util
import weakref

import numpy as np
import pytest
from tests.backends import paper_cupy

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends import registry
from tensorferry.backends.cupy import tensors as backend_module
from tensorferry.backends.cupy.tensors import CupyBackend
from tensorferry.devices import staging
from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.planning import device_steps as transport
from tensorferry.transfers import side_streams

torch = pytest.importorskip("torch")

NAMES = sorted(CupyBackend().capabilities.dtypes.held)


@pytest.fixture
def cupy():
    """The backend, over the stand-in."""
    staging.release()
    with paper_cupy.installed() as backend:
        yield registry.load(backend)
    staging.release()


def random_bits(name, shape=(6, 10)):
    kind = numpy_dtype(name)
    raw = np.random.default_rng(4).integers(0, 256, int(np.prod(shape)) * kind.itemsize, dtype=np.uint8)
    return (raw % 2 if name == "bool" else raw).view(kind).reshape(shape)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_up_and_down(cupy, name, large, monkeypatch):
    """Bit for bit, in one call and through slots, to the second device too."""
    if large:
        monkeypatch.setattr(transport, "STAGED", 1)
        monkeypatch.setattr(transport, "CHUNK", 64)
    array = random_bits(name)
    for device in ("cuda:0", "cuda:1"):
        x = ferry.convert(array, "cupy", device=device)
        info = ferry.describe(x)
        assert (info.dtype, info.device, info.shape) == (name, device, (6, 10))
        assert ferry.to_numpy(x).tobytes() == array.tobytes()
        assert paper_cupy.current == [0]
    plan = ferry.explain(x, "numpy")
    assert [step.verb for step in plan.steps] == (["stage", "unload"] if large else ["fetch"])


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "complex64"])
@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed", "0-d", "empty"])
def test_layouts(cupy, name, layout):
    """What the array holds, whatever lies where."""
    x = ferry.convert(random_bits(name), "cupy", device="cuda:1")
    base = x.array
    view = {
        "transposed": base.T,
        "strided": base[:, ::3],
        "reversed": base[::-1],
        "0-d": base[2, 3, ...],
        "empty": base[:0],
    }[layout]
    start = x.data + (view.ctypes.data - base.ctypes.data if view.size else 0)
    y = paper_cupy.ndarray(view.shape, view.dtype, start, view.strides)
    assert ferry.to_numpy(y).tobytes() == np.ascontiguousarray(view).tobytes()


def test_between_two_devices(cupy):
    """One copy, behind both devices' streams; the current device is what it was."""
    array = random_bits("float32")
    x = ferry.convert(array, "cupy", device="cuda:0")
    y = ferry.convert(x, "cupy", device="cuda:1")
    assert ferry.describe(y).device == "cuda:1"
    assert ferry.to_numpy(y).tobytes() == array.tobytes()
    assert paper_cupy.current == [0]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2", "bool"])
def test_handed_over_and_back(cupy, name):
    """The same memory as another framework's tensor; narrow floats as integers of the same width."""
    array = random_bits(name)
    x = ferry.convert(array, "cupy")
    there = torch_backend().hand_over(x, "cupy")
    assert str(there.dtype) == f"torch.{name}"
    assert there.data_ptr() == x.data.ptr
    back = cupy.hand_over(there, "torch")
    assert ferry.describe(back).dtype == name
    assert back.data.ptr == x.data.ptr


def torch_backend():
    return registry.load(registry.backend_named("torch"))


def test_casts_copies_and_out(cupy):
    """The host's bits, other memory, and memory that is given."""
    array = np.arange(60, dtype=np.float32).reshape(6, 10)
    x = ferry.convert(array, "cupy")
    assert ferry.convert(x, "cupy") is x
    copied = ferry.convert(x, "cupy", copy=True)
    assert not ferry.shares_memory(copied, x)
    for dtype in ("float16", "bfloat16", "float8_e4m3fn", "int32"):
        y = ferry.convert(x, "cupy", dtype=dtype)
        assert ferry.to_numpy(y).tobytes() == ferry.to_numpy(array, dtype=dtype).tobytes()
    for dtype in ("float32", "bfloat16"):
        out = ferry.convert(np.zeros((6, 10), np.float32), "cupy", dtype=dtype)
        assert ferry.convert(array, "cupy", out=out) is out
        assert ferry.to_list(out) == array.tolist()
    with pytest.raises(ferry.LossyCastError):
        ferry.convert(array / 7, "cupy", dtype="int32")


def test_streams(cupy):
    """Entered on its device, and left again; what it works on is kept until it has come past."""
    with cupy.side_stream("cuda:1") as side:
        assert side.device == "cuda:1"
        assert paper_cupy.current == [1]
        event = side.record()
        side.wait_for(event)
        assert event.done()
        event.wait()
    assert paper_cupy.current == [0]
    assert cupy.current_stream("cuda").device == "cuda:0"
    side.uses(theirs := paper_cupy.ours(np.zeros(3)))
    assert side._used == [theirs]
    side.record()
    assert not side._used
    side.record()
    assert not side._held


def test_memory_waits_for_the_streams_that_have_used_it(cupy, monkeypatch):
    """Not given back before the consumer's stream has come past: through views, copies and casts, once."""
    come_past = []
    monkeypatch.setattr(paper_cupy.Event, "done", property(lambda self: self in come_past))
    array = np.arange(60, dtype=np.float32)
    for make in (
        lambda: ferry.convert(array, "cupy"),
        lambda: ferry.convert(ferry.convert(array, "cupy"), "cupy", copy=True),
        lambda: ferry.convert(ferry.convert(array, "cupy"), "cupy", dtype="float64"),
    ):
        x = make()
        place = side_streams.Place(cupy, "cuda:0")
        side_streams.Landed(x, ((side_streams.PlaceEvent(place, place.current.record()), (x,)),)).hand_out()
        block = weakref.ref(x.data.mem._owner.memory.mem)
        y = paper_cupy.ndarray((3,), x.dtype, x.data + 8)
        del x
        gc.collect()
        assert not backend_module._dropped
        del y
        gc.collect()
        ((events, kept),) = backend_module._dropped
        assert len(events) == 1
        del kept
        ferry.convert(array, "cupy")
        assert block() is not None
        come_past += [event.event for event in events]
        ferry.convert(array, "cupy")
        assert not backend_module._dropped
        assert block() is None


def test_memory_stays_where_the_driver_does_not_say_whether_it_is_read(cupy, monkeypatch):
    """Neither an event that cannot be recorded nor one that cannot be asked lets it go, or breaks what comes next."""

    def fails(*_):
        raise RuntimeError("the driver")

    array = np.arange(4.0)
    for broken in ("record", "done"):
        y = ferry.convert(array, "cupy")
        stream = cupy.current_stream("cuda:0")
        stream.uses(y)
        with monkeypatch.context() as patch:
            kind = backend_module.CupyStream if broken == "record" else backend_module.CupyEvent
            patch.setattr(kind, broken, fails)
            del y
            gc.collect()
            ferry.convert(array, "cupy")
            held = backend_module._kept if broken == "record" else backend_module._dropped
            assert len(held) == 1
        held.clear()


def test_what_is_sparse_is_refused(cupy):
    """With what to type instead."""
    kind = type("csr_matrix", (), {"__module__": "cupyx.scipy.sparse._csr"})
    with pytest.raises(ferry.UnsupportedTypeError, match="sparse") as caught:
        ferry.to_numpy(kind())
    assert caught.value.hint == "x.toarray()"


def test_a_device_that_is_not_here(cupy):
    """Those that are, are listed."""
    with pytest.raises(ferry.DeviceError, match="There is no cuda:7 here: cupy sees cuda:0, cuda:1"):
        ferry.convert(np.ones(2), "cupy", device="cuda:7")


def test_where_there_is_no_device(cupy, monkeypatch):
    """No driver: said before anything is tried."""
    monkeypatch.setattr(CupyBackend, "devices", lambda self: ())
    with pytest.raises(ferry.DeviceError, match="There is no cuda here: cupy sees no device"):
        ferry.convert(np.ones(2), "cupy")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_plans_need_no_cupy():
    """From and to it; a conversion says what to install."""
    plan = ferry.explain(TensorInfo("cupy", (4,), device="cuda:0"), "torch")
    assert plan.shares_memory
    assert plan.code == "import torch\ny = torch.from_dlpack(x)"
    assert ferry.explain(TensorInfo("numpy", (4,)), "cupy").code == "import cupy\ny = cupy.asarray(x)"
    with pytest.raises(ferry.FrameworkNotInstalledError, match="cupy is not installed") as caught:
        ferry.convert(np.ones(2), "cupy")
    assert caught.value.hint == "pip install cupy-cuda12x"


def test_a_tree_crosses_packed_each_way(cupy, monkeypatch):
    """One transfer up and one down, whatever the dtypes and layouts; each leaf is a view of the packed memory."""
    tree = {name: random_bits(name, (3, 5)) for name in NAMES}
    tree["transposed"] = random_bits("float64", (4, 3)).T
    tree["scalar"] = np.array(3, "int16")
    calls = []
    for verb in ("place", "fetch"):
        kept = getattr(cupy, verb)
        monkeypatch.setattr(cupy, verb, lambda *given, verb=verb, kept=kept: calls.append(verb) or kept(*given))
    assert [batch.leaves for batch in ferry.explain_tree(tree, "cupy", device="cuda:1").batches] == [len(tree)]
    there = ferry.convert_tree(tree, "cupy", device="cuda:1")
    assert {ferry.describe(x).device for x in there.values()} == {"cuda:1"}
    assert ferry.describe(there["transposed"]).strides == ferry.describe(tree["transposed"]).strides
    (batch,) = ferry.explain_tree(there, "numpy").batches
    assert (batch.leaves, batch.transfers) == (len(tree), 1)
    back = ferry.convert_tree(there, "numpy")
    for key, array in tree.items():
        assert back[key].dtype == array.dtype
        assert back[key].tobytes() == array.tobytes()
    copied = ferry.snapshot(there)
    assert all(ferry.to_numpy(copied[key]).tobytes() == tree[key].tobytes() for key in tree)
    assert calls[:2] == ["place", "fetch"]
