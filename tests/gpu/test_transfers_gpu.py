"""`start` and `prefetch` on a real CUDA device. Skipped elsewhere, with the reason shown."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from tests.support import survives

import tensorferry as ferry
from tensorferry.backends import registry

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

MB = 1 << 20


def busy(rounds=200):
    """Work that keeps the current stream occupied for some tens of milliseconds."""
    a = torch.randn(2048, 2048, device="cuda")
    for _ in range(rounds):
        a = (a @ a) / 2048
    return a


def reused(count, size):
    """One pageable memory, filled again for each batch."""
    array = np.zeros(size, np.float32)
    for number in range(count):
        array[...] = number
        yield {"x": array, "y": torch.from_numpy(array)[: size // 2], "n": number}


# -- start ----------------------------------------------------------------------------------------


def test_up_and_down_are_complete_without_synchronising():
    """Both ways, while the caller's stream is busy."""
    array = np.arange(16 * MB, dtype=np.float32)
    kept = busy()
    up = ferry.start({"x": array}, "torch", device="cuda")
    there = up.result()["x"]
    assert there.device == torch.device("cuda", torch.cuda.current_device())
    down = ferry.start(there, "numpy")
    assert np.array_equal(down.result(), array)
    assert kept.is_cuda


def test_a_transfer_does_not_wait_for_the_callers_work():
    """Host to device is complete while the caller's stream still works."""
    array = np.ones(MB, np.float32)
    ferry.start(array, "torch", device="cuda").result()
    torch.cuda.synchronize()
    busy(2000)
    mark = torch.cuda.Event()
    mark.record()
    ferry.start(array, "torch", device="cuda").result()
    assert not mark.query()
    torch.cuda.synchronize()


def test_a_transfer_waits_for_what_computes_its_source():
    """Device to host brings what the caller's stream is still computing."""
    x = torch.zeros(MB, device="cuda")
    for turn in range(20):
        busy(20)
        x += 1
        assert (ferry.start(x, "numpy").result() == turn + 1).all()


def test_dropped_transfers_do_no_harm():
    """Memory stays until the copies are finished; later ones are right."""
    for _ in range(50):
        ferry.start(np.ones(MB, np.float32), "torch", device="cuda")
        ferry.start(torch.ones(MB, device="cuda"), "numpy")
    gc.collect()
    assert (
        (ferry.start(np.full(MB, 7, np.float32), "torch", device="cuda").result() == 7).all().item()
    )


# -- prefetch -------------------------------------------------------------------------------------


def test_never_garbage_over_a_thousand_batches():
    """As the consumer's stream sees it, with results dropped at once and the host never waiting."""
    consumer = torch.cuda.Stream()
    bad = torch.zeros((), device="cuda", dtype=torch.int64)
    torch.cuda.synchronize()
    with (
        torch.cuda.stream(consumer),
        ferry.prefetch(reused(1000, MB // 4), "torch", device="cuda") as batches,
    ):
        for batch in batches:
            busy(2)
            bad += (batch["x"] != batch["n"]).sum() + (batch["y"] != batch["n"]).sum()
        stats = batches.stats()
    consumer.synchronize()
    assert bad.item() == 0
    assert stats.batches == 1000
    assert stats.threaded


def test_a_loop_that_never_synchronises_holds_a_bounded_number_of_batches():
    """However far it is ahead of the device: ``depth + 2``, each with the two tensors of a batch."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    weights = torch.randn(4096, 4096, device="cuda")
    room = torch.cuda.memory_allocated() - before
    with ferry.prefetch(reused(30, 16 * MB), "torch", device="cuda", depth=2) as batches:
        for batch in batches:
            for _ in range(20):
                weights = weights @ weights / 4096
            del batch
    torch.cuda.synchronize()
    batch_bytes = 6 * 16 * MB
    assert torch.cuda.max_memory_allocated() - before <= 4 * batch_bytes + 4 * room


def test_batches_go_to_the_consumers_current_device():
    """A name without an index means the device that is current where the batches are asked for."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    with torch.cuda.device(1):
        assert {
            batch["x"].get_device()
            for batch in ferry.prefetch(reused(5, MB), "torch", device="cuda")
        } == {1}


def test_from_the_device_to_the_host():
    """Batches that a source computes on the device arrive complete."""
    there = (torch.full((MB,), float(n), device="cuda") * 2 for n in range(30))
    assert [(x == 2 * n).all() for n, x in enumerate(ferry.prefetch(there, "numpy"))] == [True] * 30


def test_a_loader_that_pins_already():
    """Its page-locked batches go as they are."""
    data = torch.utils.data.TensorDataset(torch.arange(1024.0).reshape(256, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True)
    found = torch.cat([batch for (batch,) in ferry.prefetch(loader, "torch", device="cuda")])
    assert torch.equal(found.cpu(), data.tensors[0])


def test_pinning_that_fails_is_said():
    """More than any machine has, of which nothing is allocated."""
    x = torch.empty(1, device="cuda").expand(1 << 44)
    with pytest.raises(ferry.DeviceError, match="cannot be page-locked"):
        registry.ready("torch").land(x, True)
    assert ferry.to_numpy(ferry.to_torch(np.ones(3), device="cuda")).tolist() == [1, 1, 1]


def test_closing_in_the_middle_leaves_no_thread():
    """And the device is as good as before."""
    with ferry.prefetch(reused(100, MB), "torch", device="cuda") as batches:
        next(batches)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tensorferry")]
    assert torch.ones(2, device="cuda").sum().item() == 2


def test_the_interpreter_ends_cleanly():
    """In the middle of a loop, and with a transfer on its way."""
    survives(
        """
        import itertools, numpy as np, torch, tensorferry as ferry
        batches = ferry.prefetch((np.ones(1 << 20, np.float32) for _ in itertools.count()), "torch", device="cuda")
        next(batches)
        ferry.start(np.ones(1 << 24, np.float32), "torch", device="cuda")
        """
    )
