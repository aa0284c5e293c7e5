"""PyTorch's part in staging that needs no GPU: plain bytes of every dtype, in whatever order of the axes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.support import bits

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.devices import staging

torch = pytest.importorskip("torch")


def torch_backend():
    return registry.load(registry.backend_named("torch"))


@pytest.mark.parametrize("name", sorted(torch_backend().capabilities.dtypes.held))
@pytest.mark.parametrize("strides", [(24, 8, 2), (2, 6, 18)])
def test_every_dtype_as_bytes(name, strides):
    """What is put up in two pieces is what the tensor holds, and comes down again."""
    backend = torch_backend()
    itemsize = torch.empty(0, dtype=getattr(torch, name)).element_size()
    steps = tuple(step // 2 * itemsize for step in strides)
    shape = (2, 3, 4) if strides[0] == 24 else (3, 3, 2)
    tensor = backend.room(shape, steps, name, "cpu")
    assert tensor.dtype == getattr(torch, name)
    assert tuple(step * itemsize for step in tensor.stride()) == steps
    flat = backend.flat(tensor)
    count = tensor.numel() * itemsize
    assert flat.numel() == count
    content = np.random.default_rng(3).integers(0, 2, count, dtype=np.uint8)
    backend.put_up(flat, 0, content[:5])
    backend.put_up(flat, 5, content[5:])
    order = np.argsort([-step for step in steps])
    assert bits(tensor.permute(*order)) == content.tobytes()
    down = np.zeros(count, np.uint8)
    backend.take_down(flat, 0, down[:7])
    backend.take_down(flat, 7, down[7:])
    assert down.tobytes() == content.tobytes()


def test_a_part_of_a_larger_tensor():
    """Bytes begin where the tensor does, not where its storage does."""
    backend = torch_backend()
    whole = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    down = np.zeros(16, np.uint8)
    backend.take_down(backend.flat(whole[1]), 0, down)
    assert down.view(np.int32).tolist() == [4, 5, 6, 7]


def test_an_axis_of_length_one_may_have_any_stride(monkeypatch):
    """A reversed axis of one element is no reason to copy, and PyTorch is not asked for its stride."""
    asked = []
    backend = torch_backend()

    def room(shape, strides, dtype, device):
        asked.append(strides)
        raise RuntimeError("there is no GPU here")

    monkeypatch.setattr(backend, "room", room)
    array = np.zeros((1, 8), np.float32)[::-1]
    assert array.strides == (-32, 4)
    with pytest.raises(RuntimeError, match="no GPU"):
        backend.fill(array, "cuda", 64)
    assert asked == [(32, 4)]


def test_pinning_that_fails(monkeypatch):
    """For an overlapping transfer it goes on with one message; a result that was asked for is an error."""
    monkeypatch.setattr(staging, "_said", set())

    def nothing(*arguments, **keywords):
        raise RuntimeError("cannot lock")

    monkeypatch.setattr(torch, "empty_like", nothing)
    x = torch.ones(4)
    with pytest.warns(RuntimeWarning, match="cannot lock"):
        assert torch_backend().pin(x) is x
    assert torch_backend().pin(x) is x
    with pytest.raises(ferry.DeviceError, match="cannot lock"):
        torch_backend().pin(x, True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine where nothing can be page-locked")
@pytest.mark.parametrize("convert", [ferry.to_torch, ferry.to_numpy])
@pytest.mark.parametrize("grad", [False, True])
def test_pinned_without_a_gpu_is_an_error(convert, grad):
    """Memory is locked for a device: where there is none, that is said."""
    x = torch.ones(4, requires_grad=grad)
    with pytest.raises(ferry.DeviceError, match="page-lock"):
        convert(x, pinned=True)
    with pytest.raises(ferry.DeviceError, match="numpy cannot lock memory"):
        ferry.to_numpy(np.ones(4), pinned=True)


@pytest.mark.parametrize("forked", [False, True])
def test_the_driver_is_not_asked_in_a_forked_child(forked, monkeypatch):
    """Whether memory is page-locked only the driver knows, which refuses to answer the child of its process."""

    def is_pinned(self):
        if forked:
            raise RuntimeError("CUDA error: initialization error")
        return True

    cuda = SimpleNamespace(_initialized=True, is_initialized=lambda: not forked)
    monkeypatch.setattr(torch_backend(), "cuda", cuda)
    monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
    assert ferry.describe(torch.ones(3)).pinned is not forked
