"""The CuPy backend on a stand-in: every verb, dtype and direction; and what is said where CuPy is not installed."""

from __future__ import annotations

import importlib.util
import itertools

import numpy as np
import pytest
from tests.backends import paper_cupy

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends import registry
from tensorferry.backends.cupy.tensors import CupyBackend
from tensorferry.core.layout import byte_span
from tensorferry.host.numpy_dtypes import numpy_dtype

torch = pytest.importorskip("torch")

NAMES = sorted(CupyBackend().capabilities.dtypes.held)


@pytest.fixture
def cupy():
    """The backend, over the stand-in."""
    with paper_cupy.installed() as backend:
        yield registry.load(backend)


def random_bits(name, shape=(6, 10)):
    kind = numpy_dtype(name)
    raw = np.random.default_rng(4).integers(
        0, 256, int(np.prod(shape)) * kind.itemsize, dtype=np.uint8
    )
    return (raw % 2 if name == "bool" else raw).view(kind).reshape(shape)


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_up_and_down(cupy, name):
    """Bit for bit, in one call, to the second device too."""
    array = random_bits(name)
    for device in ("cuda:0", "cuda:1"):
        x = ferry.convert(array, "cupy", device=device)
        info = ferry.describe(x)
        assert (info.dtype, info.device, info.shape) == (name, device, (6, 10))
        assert ferry.to_numpy(x).tobytes() == array.tobytes()
        assert paper_cupy.current == [0]
    plan = ferry.explain(x, "numpy")
    assert [step.verb for step in plan.steps] == ["fetch"]


@pytest.mark.parametrize(
    "keywords", [{}, {"copy": True}, {"dtype": "float16"}, {"device": "cuda:1"}]
)
def test_to_cupy_is_convert_to_cupy(cupy, keywords):
    """The same array, on the same device; what it takes as `out` is the result."""
    import cupy as module  # the stand-in

    values = np.arange(6, dtype="float32").reshape(2, 3)
    for source in (values, torch.from_numpy(values), values.tolist(), 2.5):
        found, other = ferry.to_cupy(source, **keywords), ferry.convert(source, "cupy", **keywords)
        assert type(found) is type(other) is module.ndarray
        assert ferry.describe(found)._replace(misalignment=0) == ferry.describe(other)._replace(
            misalignment=0
        )
        assert np.array_equal(found.array, np.asarray(source).astype(found.dtype))
        assert found.device.id == (1 if "device" in keywords else 0)
    out = ferry.to_cupy(np.zeros((2, 3), "float32"))
    assert ferry.to_cupy(values, out=out) is out
    assert np.array_equal(out.array, values)


def test_to_cupy_without_cupy_says_what_to_install():
    """As `convert` does."""
    if importlib.util.find_spec("cupy") is not None:
        pytest.skip("CuPy is installed here")
    with pytest.raises(ferry.FrameworkNotInstalledError, match="cupy is not installed") as caught:
        ferry.to_cupy([1.0])
    assert caught.value.hint.startswith("pip install cupy")


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


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
@pytest.mark.parametrize("steps", [(1, 1), (2, 1), (1, 3), (-1, 1), (3, -2)])
def test_the_stand_in_keeps_to_its_memory(axes, steps):
    """A copy has no gaps, so that nothing is written outside of it; what is shared is where it was."""
    base = np.arange(60, dtype=np.float32).reshape(6, 10)
    view = base[:: steps[0], :: steps[1]].transpose(axes)
    for copied in (paper_cupy.asarray(view), paper_cupy.ours(view), paper_cupy.over(view).copy()):
        _, reach = byte_span(copied.shape, copied.strides, copied.itemsize)
        assert (min(copied.strides) > 0, reach) == (True, copied.nbytes)
        assert copied.array.tolist() == view.tolist()
        assert not np.shares_memory(copied.array, base)
    shared = paper_cupy.from_dlpack(view)
    assert (shared.data.ptr, shared.array.tolist()) == (view.ctypes.data, view.tolist())


def test_between_two_devices(cupy):
    """One copy, behind both devices' streams; the current device is what it was."""
    array = random_bits("float32")
    x = ferry.convert(array, "cupy", device="cuda:0")
    y = ferry.convert(x, "cupy", device="cuda:1")
    assert ferry.describe(y).device == "cuda:1"
    assert ferry.to_numpy(y).tobytes() == array.tobytes()
    assert paper_cupy.current == [0]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2", "bool"])
def test_exported_and_back(cupy, name):
    """The same memory as another framework's tensor; narrow floats as integers of the same width."""
    array = random_bits(name)
    x = ferry.convert(array, "cupy")
    there = torch_backend().import_dlpack(x, "cupy")
    assert str(there.dtype) == f"torch.{name}"
    assert there.data_ptr() == x.data.ptr
    back = cupy.import_dlpack(there, "torch")
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


def test_out_on_a_device_is_written_there(cupy, monkeypatch):
    """From the same device and from the other one, nothing comes to the host."""
    array = random_bits("float32")
    out = ferry.convert(np.zeros((6, 10), np.float32), "cupy", device="cuda:1")
    monkeypatch.setattr(cupy, "fetch", None)
    for device in ("cuda:0", "cuda:1"):
        x = ferry.convert(array, "cupy", device=device)
        assert ferry.convert(x, "cupy", out=out) is out
        assert out.array.tobytes() == array.tobytes()
        out.array[...] = 0


def test_casts_of_the_host_are_planned_there(cupy):
    """Down as it is, up as what it becomes."""
    x = ferry.convert(np.arange(6.0), "cupy", device="cuda:1")
    plan = ferry.explain(x, "cupy", dtype="int8")
    assert [(step.verb, step.path, step.bytes) for step in plan.steps if step.copies] == [
        ("fetch", "bus", 48),
        ("cast", "host", 6),
        ("place", "bus", 6),
    ]
    result = ferry.convert(x, "cupy", dtype="int8")
    assert (ferry.describe(result).device, ferry.to_list(result)) == ("cuda:1", list(range(6)))


FLUSHED = [
    ("float32", "float64"),
    ("float32", "complex128"),
    ("float64", "float32"),
    ("complex64", "complex128"),
    ("complex128", "complex64"),
]
"""Casts in which CuPy's kernels turn subnormal float32 into zero."""


@pytest.mark.parametrize(("before", "after"), FLUSHED)
def test_casts_that_flush_subnormals_are_the_hosts(cupy, monkeypatch, before, after):
    """In the plan and in the verb: CuPy is asked for no such cast, on no way in or out, and subnormals stay."""
    x = TensorInfo("cupy", (4,), before, device="cuda:0")
    for target in ("cupy", "numpy", "torch"):
        plan = ferry.explain(x, target, dtype=after, casting="same_kind")
        assert ("cast", "cupy") not in [(step.verb, step.backend) for step in plan.steps]
    up = ferry.explain(TensorInfo("numpy", (4,), before), "cupy", dtype=after, casting="same_kind")
    assert [(step.verb, step.backend) for step in up.steps] == [
        ("cast", "numpy"),
        ("place", "cupy"),
    ]
    into = ferry.explain(
        x, "cupy", out=TensorInfo("cupy", (4,), after, device="cuda:0"), casting="same_kind"
    )
    assert [(step.verb, step.backend) for step in into.steps] == [
        ("fetch", "cupy"),
        ("write", "cupy"),
    ]

    array = np.array([2.0**-140, -(2.0**-149), 2.0**-127, 1.0]).astype(before)
    y = ferry.convert(array, "cupy", device="cuda:1")
    out = ferry.convert(np.zeros(4, after), "cupy", device="cuda:1")

    def assign(self, key, value):
        assert value.dtype == self.dtype, "CuPy is not to cast this"
        self.array[key] = value.array

    monkeypatch.setattr(paper_cupy.ndarray, "__setitem__", assign)
    for result in (
        cupy.cast(y, after),
        ferry.convert(y, "cupy", dtype=after, casting="same_kind"),
        ferry.convert(y, "cupy", out=out, casting="same_kind"),
    ):
        assert result.array.tobytes() == array.astype(after).tobytes()
        assert result.data.device_id == 1


def test_other_casts_that_all_agree_about_stay_on_the_device(cupy, monkeypatch):
    """Neither the plan nor the verb goes over the host."""
    x = ferry.convert(np.arange(6, dtype=np.float32), "cupy")
    monkeypatch.setattr(cupy, "fetch", None)
    for dtype in ("float16", "complex64"):
        assert [step.path for step in ferry.explain(x, "cupy", dtype=dtype).steps] == ["device"]
        assert ferry.describe(ferry.convert(x, "cupy", dtype=dtype)).dtype == dtype


def test_what_is_written_on_a_device_has_its_dtype_before():
    """No assignment of CuPy casts: whatever is written into out= on a device has been cast by a step before."""
    for before, after in itertools.product(
        ["int32", "float16", "float32", "float64", "complex64", "bfloat16"], repeat=2
    ):
        for device in ("cuda:0", "cuda:1"):
            out = TensorInfo("cupy", (4,), after, device="cuda:0")
            x = TensorInfo("cupy", (4,), before, device=device)
            verbs = [
                step.verb for step in ferry.explain(x, "cupy", out=out, casting="unsafe").steps
            ]
            assert before == after or "cast" in verbs or verbs == ["fetch", "write"], (
                before,
                after,
                verbs,
            )


def test_what_is_sparse_is_refused(cupy):
    """With what to type instead."""
    members = {"__module__": "cupyx.scipy.sparse._csr", "toarray": lambda _: np.ones((2, 2))}
    kind = type("csr_matrix", (), members)
    with pytest.raises(ferry.UnsupportedTypeError, match="sparse") as caught:
        ferry.to_numpy(kind())
    assert caught.value.hint == "x.toarray()"


def test_a_device_that_is_not_here(cupy):
    """Those that are, are listed."""
    with pytest.raises(
        ferry.DeviceError, match="There is no cuda:7 here: cupy sees cuda:0, cuda:1"
    ):
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
    assert (
        ferry.explain(TensorInfo("numpy", (4,)), "cupy").code == "import cupy\ny = cupy.asarray(x)"
    )
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
        monkeypatch.setattr(
            cupy, verb, lambda *given, verb=verb, kept=kept: calls.append(verb) or kept(*given)
        )
    assert [
        batch.leaves for batch in ferry.explain_tree(tree, "cupy", device="cuda:1").batches
    ] == [len(tree)]
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
