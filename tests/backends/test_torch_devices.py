"""PyTorch's part on devices that needs none: what is asked of it, page-locked memory that is not there, shared memory.

The rest runs on a device that is simulated (tests/device) and on a real one (tests/gpu).
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support import bits

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.backends.torch.devices import Accelerators
from tensorferry.core.capabilities import DeviceFacts
from tensorferry.devices import pinned

torch = pytest.importorskip("torch")

alone = pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator here")


def backend():
    return registry.ready("torch")


# -- what is asked --------------------------------------------------------------------------------


@alone
@pytest.mark.parametrize("device", ["cpu", "meta", "mps", "cuda:0", "something"])
def test_where_there_are_no_streams_there_is_none(device):
    """The host, and devices that are not there."""
    assert backend().current_stream(device) is None
    assert backend().side_stream(device) is None


@alone
@pytest.mark.parametrize("kind", ["cuda", "hpu", "privateuseone"])
def test_a_kind_that_is_not_here_has_what_most_have(kind):
    """So a plan for it can be made; and no answer is kept, as it may come to be here."""
    assert backend().device_facts(kind) == DeviceFacts()
    assert kind not in backend().accelerators._facts


@alone
def test_H105_what_a_kind_lacks_is_known_where_it_is_not():
    """As what most have, but for that."""
    assert backend().device_facts("mps") == DeviceFacts(absent=frozenset({"float64", "complex128"}))
    assert "mps" not in backend().accelerators._facts


@alone
@pytest.mark.parametrize(
    ("device", "meant"), [("cdua", "cuda"), ("xpux:1", "xpu"), ("card", "cpu"), ("meta", "cpu")]
)
def test_a_kind_that_pytorch_does_not_know_is_refused(device, meant):
    """Its own words say which it knows; and what has no memory is no place for values."""
    kind = device.partition(":")[0]
    with pytest.raises(
        ferry.DeviceError, match=f"torch has no kind of device {kind} for values"
    ) as caught:
        ferry.explain(ferry.TensorInfo("numpy", (2,)), "torch", device=device)
    assert caught.value.hint == f'device="{meant}"'
    with pytest.raises(ferry.DeviceError, match=f"There is no {device} here: torch sees cpu"):
        ferry.to_torch(np.ones(2), device=device)


def test_a_described_tensor_on_meta_has_no_memory():
    """As a tensor on it, which can only stay in PyTorch."""
    info = ferry.TensorInfo("torch", (2,), device="meta")
    for x in (info, torch.ones(2, device="meta")):
        with pytest.raises(
            ferry.UnsupportedTypeError, match="a meta tensor has a shape and a dtype, but no memory"
        ):
            ferry.explain(x, "jax")
        assert ferry.explain(x, "torch").steps == ()


def test_a_kind_that_is_here_is_asked_once(monkeypatch):
    """How many there are, which dtypes they take, and whether memory can be page-locked for them."""
    asked = []

    def empty(*arguments, **keywords):
        asked.append(keywords)
        if keywords.get("dtype") is torch.float64:
            raise TypeError("the framework doesn't support float64")

    odd = SimpleNamespace(
        device=lambda kind: None,
        get_device_module=lambda kind: SimpleNamespace(
            is_available=lambda: True, device_count=lambda: 3
        ),
        accelerator=SimpleNamespace(
            current_accelerator=lambda check_available=False: SimpleNamespace(type="odd"),
            is_available=lambda: True,
        ),
        empty=empty,
        Stream=empty,
        Event=lambda kind: empty(dtype=torch.float64),
    )
    accelerators = Accelerators(odd, {"float32": torch.float32, "float64": torch.float64})
    for _ in range(2):
        assert accelerators.facts("odd") == DeviceFacts(
            3, False, True, frozenset({"float64", "complex128"})
        )
    assert len(asked) == 5
    assert accelerators.current_stream("odd:0") is accelerators.side_stream("odd") is None
    assert not accelerators.facts("other").pins, "page-locked memory is the accelerator's"


def test_a_pytorch_that_raises_where_there_is_no_accelerator(monkeypatch):
    """PyTorch 2.6 counts the devices to answer, which starts the driver: it is asked only where that is wanted."""

    def raising():
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", raising)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(backend(), "accelerators", Accelerators(torch, backend().dtypes))
    assert ferry.to_numpy(torch.ones(3)).tolist() == [1.0, 1.0, 1.0]
    assert not ferry.describe(torch.ones(3)).pinned
    assert backend().devices() == ("cpu",)
    with pytest.raises(ferry.DeviceError, match="no cuda"):
        ferry.to_torch([1.0], device="cuda")


# -- page-locked memory ---------------------------------------------------------------------------


def test_pinning_that_fails(monkeypatch):
    """For an overlapping transfer it goes on with one message; a result that was asked for is an error."""
    monkeypatch.setattr(pinned, "_warned", set())

    def nothing(*arguments, **keywords):
        raise RuntimeError("cannot lock\nCompile with …")

    monkeypatch.setattr(torch, "empty_like", nothing)
    x = torch.ones(4)
    with pytest.warns(
        RuntimeWarning, match=r"^16 B of host memory cannot be page-locked \(cannot lock\)"
    ) as told:
        assert backend().pin(x) is x
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backend().pin(x) is x
    with pytest.raises(ferry.DeviceError, match="cannot lock") as caught:
        backend().pin(x, True)
    assert caught.value.hint == "without pinned="


@alone
@pytest.mark.parametrize("convert", [ferry.to_torch, ferry.to_numpy])
@pytest.mark.parametrize("grad", [False, True])
def test_pinned_without_a_device_is_an_error(convert, grad):
    """Memory is locked for a device: where there is none, that is said."""
    x = torch.ones(4, requires_grad=grad)
    with pytest.raises(ferry.DeviceError, match="page-lock"):
        convert(x, pinned=True)
    with pytest.raises(ferry.DeviceError, match="numpy cannot lock memory"):
        ferry.to_numpy(np.ones(4), pinned=True)


@alone
def test_what_overlaps_nothing_needs_no_device():
    """On the host there is nothing to go on beside."""
    array = np.ones(4)
    assert ferry.shares_memory(ferry.to_torch(array, non_blocking=True), array)
    assert ferry.to_numpy(array, non_blocking=True) is array


@pytest.mark.parametrize("in_use", [False, True])
def test_the_driver_is_asked_only_once_it_is_in_use(in_use, monkeypatch):
    """Whether memory is page-locked the driver says, which would begin to work for that, and refuses a forked child."""
    module = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: in_use)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch, "get_device_module", lambda kind: module)

    def is_pinned(self):
        if not in_use:
            raise RuntimeError("CUDA error: initialization error")
        return True

    monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
    assert ferry.describe(torch.ones(3)).pinned is in_use


# -- shared memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(backend().capabilities.dtypes.held))
def test_memory_that_elements_share_and_back(name):
    """Every dtype, expanded and as windows: bit for bit what `contiguous` gives."""
    raw = np.random.default_rng(3).integers(0, 2, 24 * 16, dtype=np.uint8)
    base = torch.from_numpy(raw).view(getattr(torch, name))[:24]
    for x in (
        base[:6].expand(5, 6),
        base.as_strided((10, 5), (1, 2)),
        base.as_strided((3, 2, 4), (0, 1, 0), 4),
    ):
        length = 1 + sum(
            (count - 1) * step for count, step in zip(x.shape, x.stride(), strict=True)
        )
        whole = backend().span(x, length)
        assert whole.data_ptr() == x.data_ptr()
        there = backend().spread(whole.clone(), tuple(x.shape), x.stride())
        assert there.is_contiguous()
        assert there.shape == x.shape
        assert bits(there) == bits(x)


def test_copies_of_what_overlaps_overlap_as_it_does():
    """Views of any dtype, in whatever order of the axes; nothing is shared with the sources."""
    base = torch.arange(200, dtype=torch.int16)
    views = [
        base[5:90],
        base[60:120].reshape(6, 10).t(),
        base.view(torch.int32)[20:40],
        base[70:71].expand(3),
    ]
    copies = backend().copy_together(views)
    for view, copy in zip(views, copies, strict=True):
        assert (copy.dtype, copy.shape, copy.stride()) == (view.dtype, view.shape, view.stride())
        assert bits(copy) == bits(view)
        assert copy.data_ptr() - copies[0].data_ptr() == view.data_ptr() - views[0].data_ptr()
        assert not ferry.shares_memory(copy, view)
    copies[0][60] = -1
    assert copies[1][5, 0] == -1


@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool", "complex128"])
def test_packed_and_back(name):
    """Views of one tensor, each with its axes in the order that they have."""
    raw = np.random.default_rng(3).integers(0, 2, 60 * 16, dtype=np.uint8)
    base = torch.from_numpy(raw).view(getattr(torch, name))[:60].reshape(5, 12)
    tensors = [base, base.t(), base[:, ::2], base[0, 0], base[1]]
    packed, layout = backend().pack(tensors, 64)
    for x, part in zip(tensors, backend().unpack(packed, layout), strict=True):
        assert bits(part) == bits(x)
        assert (part.shape, part.dtype) == (x.shape, x.dtype)
        assert (part.data_ptr() - packed.data_ptr()) % 64 == 0
        assert part.stride() == (
            x.stride() if x.is_contiguous() or x is tensors[1] else part.stride()
        )
