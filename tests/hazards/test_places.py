"""Hazards of places and time: devices, streams, ambient defaults, forks.

What needs a GPU is run in tests/gpu.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests import simulated
from tests.support import ROOT, lives, mps, survives

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends.registry import backends, load

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")

SOURCES = {
    "ndarray": lambda: np.arange(3, dtype=np.float32),
    "reversed": lambda: np.arange(3, dtype=np.float32)[::-1],
    "float64": lambda: np.arange(3.0),
    "bytes": lambda: b"\x01\x02\x03",
    "list": lambda: [1.0, 2.0, 3.0],
    "integers": lambda: [1, 2, 3],
    "scalar": lambda: np.float32(3),
    "list of arrays": lambda: [np.ones(2, np.float32)] * 3,
    "tensorflow": lambda: tf.constant([1.0, 2.0, 3.0]),
    "jax": lambda: jnp.ones(3),
}


# -- H40: transfers that have not arrived ---------------------------------------------------------


@pytest.mark.parametrize("target", ["numpy", "tensorflow", "jax", "python"])
def test_H40_a_transfer_to_the_host_is_never_asynchronous(target):
    """No plan that ends on the host holds a non-blocking transfer to it."""
    for grad in (False, True):
        plan = ferry.explain(
            TensorInfo("torch", (8,), device="cuda:0", requires_grad=grad), target, device="cpu"
        )
        moves = [step for step in plan.steps if step.verb == "move"]
        assert [step.arguments for step in moves] == [("cpu", False)]
        assert "non_blocking" not in plan.code
        assert ".cpu()" in plan.code


def test_H40_what_lands_in_page_locked_memory_is_waited_for():
    """It is asked for, or goes on beside the host's work: what is given is complete all the same."""
    there = TensorInfo("torch", (1 << 24,), device="cuda:0")
    for option in ("pinned", "non_blocking"):
        for target in ("numpy", "torch"):
            plan = ferry.explain(there, target, device="cpu", **{option: True})
            assert [step.verb for step in plan.steps if step.copies] == ["land"]
            assert "non_blocking" not in plan.code


def test_H40_the_verb_waits():
    """The step that runs passes on that it blocks."""
    seen = []

    class Recorder:
        def to(self, device, *, non_blocking):
            seen.append((device, non_blocking))
            return self

    load(backends()["torch"]).move(Recorder(), "cpu")
    assert seen == [("cpu", False)]


# -- H41, H42: streams and current devices --------------------------------------------------------


class Producer:
    """A tensor of another framework that writes down how it is asked for its memory."""

    def __init__(self, array):
        self.array = array
        self.calls = []

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("target", ["torch", "jax"])
def test_H41_the_consumer_asks_the_producer_itself(target):
    """The consuming framework gets the tensor, not a bare capsule, so that it can name its stream."""
    plan = ferry.explain(
        TensorInfo("torch" if target == "jax" else "jax", (64,), device="cuda:0"),
        target,
        copy=False,
    )
    assert [step.verb for step in plan.steps] == ["import_dlpack"]
    assert plan.shares_memory
    assert "to_dlpack" not in plan.code
    assert ".__dlpack__()" not in plan.code
    assert "from_dlpack(x)" in plan.code


def test_H41_tensorflow_which_takes_capsules_only_names_a_stream_or_waits():
    """tf.experimental.dlpack has no stream: the capsule must be asked for with one."""
    array = np.zeros(64, np.float32)
    producer = Producer(array)
    load(backends()["tensorflow"]).import_dlpack(producer)
    assert producer.calls
    assert all("stream" in keywords for keywords in producer.calls)


def test_H42_a_tensor_on_another_gpu_stays_there():
    """cuda:1 is shared where it lies, and moved only when it is asked for."""
    plan = ferry.explain(TensorInfo("torch", (64,), device="cuda:1"), "jax", copy=False)
    assert plan.result.device == "cuda:1"
    assert not plan.bytes_copied
    plan = ferry.explain(TensorInfo("torch", (64,), device="cuda:1"), "torch", device="cuda:0")
    assert plan.result.device == "cuda:0"
    assert plan.bytes_copied == 256


# -- H43: ambient defaults ------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_H43_torchs_default_device_moves_nothing(source):
    """With a default device set, a conversion still goes where its source is."""
    x = SOURCES[source]()
    expected = ferry.to_list(x)
    torch.set_default_device("meta")
    try:
        results = [
            ferry.to_torch(x),
            ferry.to_torch(x, copy=True),
            ferry.to_torch(x, dtype="float16"),
            ferry.to_torch(ferry.to_torch(x), copy=True),
        ]
    finally:
        torch.set_default_device(None)
    for result in results:
        assert result.device.type == "cpu"
        assert result.tolist() == expected


def test_H43_torchs_device_context_moves_nothing():
    """The same inside ``with torch.device(…)``, for stacks and for casts in a graph."""
    leaves = [torch.ones(2, requires_grad=True) for _ in range(2)]
    with torch.device("meta"):
        stacked = ferry.to_torch(leaves)
        cast = ferry.to_torch(leaves[0], dtype="float64")
        ferry.to_torch(np.ones(2, np.float32), out=(out := torch.zeros(2, device="cpu")))
    assert stacked.device.type == cast.device.type == "cpu"
    assert out.tolist() == [1.0, 1.0]
    (stacked.sum() + cast.sum()).backward()
    assert leaves[0].grad.tolist() == [2.0, 2.0]


def test_H43_ambient_devices_of_jax_and_tensorflow_move_nothing():
    """jax.default_device and tf.device change no result's place; every path gives the same one."""
    assert "done" in lives(
        """
        import numpy as np, jax, tensorflow as tf, tensorferry as ferry
        first, second = jax.devices("cpu")[:2]
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
        tf.constant(0)
        block = np.zeros(512, np.uint8)
        aligned = block[-block.ctypes.data % 64 :][:256].view(np.float32)
        sources = [aligned, aligned[::2], np.zeros(4), [1.0, 2.0], [1, 2], b"ab", np.float32(1), [aligned, aligned]]
        for x in sources:
            for keywords in ({}, {"copy": True}, {"dtype": "float16"}):
                with jax.default_device(second):
                    result = ferry.to_jax(x, **keywords) if x is not sources[2] or "dtype" in keywords else None
                if result is not None:
                    assert result.devices() == {first}, (x, keywords, result.devices())
                with tf.device("CPU:1"):
                    result = ferry.to_tensorflow(x, **keywords)
                assert result.device.endswith("CPU:0"), (x, keywords, result.device)
        with jax.default_device(second):
            assert ferry.to_jax(aligned, copy=False).devices() == {first}
        print("done")
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


# -- H44, H45: what a device cannot hold, and where a tensor really is ----------------------------


@pytest.mark.parametrize("name", ["float64", "complex128"])
@pytest.mark.parametrize("source", ["numpy", "torch", "jax", "tensorflow"])
def test_H44_float64_cannot_live_on_mps(source, name):
    """The error says what to ask for; with it, there is a plan.

    Which dtypes it has, PyTorch says.
    """
    with mps():
        _refused_and_fitting(source, name)


def _refused_and_fitting(source, name):
    info = TensorInfo(source, (8,), name)
    with pytest.raises(ferry.LossyCastError, match=f"mps does not support {name}") as caught:
        ferry.explain(info, "torch", device="mps")
    narrower = {"float64": "float32", "complex128": "complex64"}[name]
    assert caught.value.hint == 'dtype="fit", or device="cpu"'
    plan = ferry.explain(info, "torch", device="mps", dtype="fit")
    assert plan.result.device == "mps"
    assert plan.result.dtype == narrower
    [move] = [step for step in plan.steps if step.verb == "move"]
    assert move.bytes == plan.result.nbytes


def test_H44_python_floats_reach_mps():
    """Python floats are float32 to torch, which mps has."""
    numbers = TensorInfo("python", (8,), "float64", weak_dtype="float64", kind="numbers")
    with mps():
        plan = ferry.explain(numbers, "torch", device="mps")
    assert plan.result.dtype == "float32"


def test_H45_the_backing_device_is_told():
    """An int32 tensor "on the GPU" of TensorFlow lies in host memory, and that is what describe says."""
    backend = load(backends()["tensorflow"])

    class OnPaper:
        """What TensorFlow says of such a tensor: all that a real one does, but for its devices."""

        device = "/job:localhost/replica:0/task:0/device:GPU:0"
        backing_device = "/job:localhost/replica:0/task:0/device:CPU:0"
        real = tf.constant([1, 2])

        def __getattr__(self, name):
            return getattr(self.real, name)

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.real)

    before = backend.eager
    backend.eager = OnPaper
    try:
        assert backend.describe(OnPaper()).device == "cpu"
        OnPaper.backing_device = OnPaper.device
        assert backend.describe(OnPaper()).device == "cuda:0"
    finally:
        backend.eager = before


# -- H83, H84, H85: page-locked memory, kinds of device, lists ------------------------------------


@pytest.mark.parametrize("source", ["numpy", "jax", "python", "torch"])
def test_H83_the_allocators_own_tensor_is_what_is_sent_and_given(source):
    """Nothing lies between the step that page-locks and the one that sends: no array, no other tensor over it."""
    info = TensorInfo(source, (8,))
    sent = [
        step.verb for step in ferry.explain(info, "torch", device="cuda", non_blocking=True).steps
    ]
    assert sent[-2:] == ["pin", "move"]
    assert ferry.explain(info, "torch", pinned=True).steps[-1].verb == "pin"


@pytest.mark.parametrize("kind", ["npu", "hpu", "mtia", "anything"])
def test_H84_a_tensor_stays_on_a_device_that_is_known_by_no_name(kind):
    """With its own framework as the target, however often it is asked for."""
    for _ in range(2):
        plan = ferry.explain(TensorInfo("torch", (8,), device=f"{kind}:1"), "torch")
        assert (plan.steps, plan.result.device) == ((), f"{kind}:1")


def test_H85_looking_at_a_list_of_tensors_on_a_device_crosses_nothing():
    """To describe it, to explain it, and the batch that it would be."""
    with simulated.installed() as device:
        x = ferry.convert(np.ones(3, np.float32), "simulated", device="sim:0")
        device.transfers.clear()
        assert ferry.describe([x, x]).shape == (2, 3)
        plan = ferry.explain([x, x], "numpy")
        assert sum(step.bytes for step in plan.steps if step.path == "bus") == 24
        ferry.explain_collate([{"x": x}, {"x": x}], "numpy")
        assert not device.transfers


# -- H46: forks and threads -----------------------------------------------------------------------


def test_H46_importing_starts_no_thread_and_no_backend():
    """After the import, and after looking around, there are the threads that NumPy has started, and no framework."""
    assert "done" in survives(
        """
        import os, sys, threading
        import numpy, ml_dtypes
        count = len(os.listdir("/proc/self/task"))
        import tensorferry as ferry
        ferry.frameworks()
        ferry.describe(numpy.zeros(3))
        ferry.to_numpy([1, 2, 3], dtype="bfloat16")
        ferry.explain(ferry.TensorInfo("torch", (3,), device="cuda:0"), "jax")
        ferry.explain(ferry.TensorInfo("tensorflow", (3,)), "torch", device="cuda")
        assert len(os.listdir("/proc/self/task")) == count
        assert threading.active_count() == 1
        loaded = {"torch", "tensorflow", "jax", "jaxlib"} & set(sys.modules)
        assert not loaded, loaded
        print("done")
        """
    )


def test_H46_a_forked_worker_can_convert():
    """A child forked after the import, and after conversions, converts on its own."""
    assert "done" in lives(
        """
        import os, numpy as np, tensorferry as ferry
        ferry.to_numpy([1, 2, 3])
        for framework in ("torch", "tensorflow", "jax"):
            child = os.fork()
            if child == 0:
                ok = ferry.to_list(ferry.convert(np.ones(3, np.float32), framework)) == [1.0, 1.0, 1.0]
                os._exit(0 if ok else 1)
            assert os.waitpid(child, 0)[1] == 0, framework
        print("done")
        """
    )


def test_H46_a_worker_forked_after_torch_and_numpy_conversions():
    """The ordinary data-loader: torch is loaded and used, then forked."""
    assert "done" in lives(
        """
        import os, numpy as np, torch, tensorferry as ferry
        x = ferry.to_torch(np.ones((64, 64), np.float32))
        child = os.fork()
        if child == 0:
            array = ferry.to_numpy(x, copy=True)
            ok = ferry.to_torch([[1.0]]).item() == 1 and array.sum() == 4096
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        print("done")
        """
    )


# -- H47: another thread writes -------------------------------------------------------------------


def test_H47_torn_tensors_are_documented():
    """The page names the hazard and says to hold a lock."""
    page = ROOT / "docs" / "reference" / "hazards.md"
    assert page.exists()
    text = page.read_text(encoding="utf-8")
    assert "H47" in text
    assert "thread" in text[text.index("H47") :]
