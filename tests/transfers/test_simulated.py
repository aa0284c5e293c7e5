"""The simulated accelerator punishes what a GPU punishes, so that the other tests here can fail."""

from __future__ import annotations

import numpy as np
import pytest
from tests import simulated

import tensorferry as ferry

POISONED = np.frombuffer(bytes([simulated.POISON] * 8)).item()


@pytest.fixture
def slow():
    """A device whose copies can be held back until they are overtaken."""
    with simulated.installed(delay=(0.0, 0.0)) as backend:
        yield backend


def test_memory_holds_poison_until_the_copy_has_run(slow):
    """Whoever looks before the event sees garbage, and afterwards the values."""
    with slow.held() as go:
        x = ferry.convert(np.ones(3), "simulated", device="sim:0", non_blocking=True)
    assert (slow.values(x) == POISONED).all()
    event = slow.current_stream("sim:0").record()
    assert not event.reached.is_set()
    go()
    event.wait()
    assert (slow.values(x) == 1).all()


def test_a_stream_that_does_not_wait_for_the_event_reads_poison(slow):
    """Two streams are ordered by events alone."""
    side = slow.side_stream("sim:0")
    with side, slow.held() as go:
        x = ferry.convert(np.ones(3), "simulated", device="sim:0", non_blocking=True)
        event = side.record()
    assert (ferry.to_numpy(x) == POISONED).all()
    slow.current_stream("sim:0").wait_for(event)
    go()
    assert (ferry.to_numpy(x) == 1).all()


def test_page_locked_memory_is_read_when_the_copy_runs(slow):
    """Writing a slot too early changes what arrives; pageable memory has been read by then."""
    slot = slow.pinned_memory(24).view(np.float64)
    slot[...] = 1
    pinned, pageable = ferry.convert(slot, "simulated", copy=False), np.ones(3)
    assert ferry.describe(pinned).pinned
    with slow.held() as go:
        first = slow.move(pinned, "sim:0", True)
        second = slow.move(slow.adopt(pageable), "sim:0", True)
    slot[...] = 2
    pageable[...] = 2
    go()
    assert (ferry.to_numpy(first) == 2).all()
    assert (ferry.to_numpy(second) == 1).all()


def test_page_locked_memory_that_is_given_back_too_early_is_poison(slow):
    """The allocator does not wait for the readers of what `pinned_memory` gave."""
    slot = slow.pinned_memory(24).view(np.float64)
    slot[...] = 1
    with slow.held() as go:
        x = slow.move(ferry.convert(slot, "simulated", copy=False), "sim:0", True)
    del slot
    go()
    assert (ferry.to_numpy(x) == POISONED).all()


@pytest.mark.parametrize("recorded", [False, True])
def test_memory_of_a_device_is_given_away_unless_a_stream_is_recorded(slow, recorded):
    """A stream that still reads a tensor that is gone reads poison, unless it was told to the allocator."""
    x = ferry.convert(np.ones(3), "simulated", device="sim:0")
    side = slow.side_stream("sim:0")
    with side, slow.held() as go:
        y = slow.compute(lambda values: values + 1, x)
        if recorded:
            side.uses(x)
        event = side.record()
    del x
    if not recorded:
        slow.current_stream("sim:0").record().wait()  # it is somebody else's by now
    go()
    event.wait()
    assert (slow.values(y) == 2).all() == recorded


def test_no_more_can_be_locked_than_there_is():
    """`RuntimeError`, as from PyTorch's allocator."""
    with simulated.installed(lockable=100) as backend:
        slot = backend.pinned_memory(60)
        with pytest.raises(RuntimeError, match="can be locked"):
            backend.pinned_memory(60)
        del slot
        assert backend.pinned_memory(100).size == 100


def test_an_absent_device_is_refused_like_any_other(slow):
    """`DeviceError` with the devices that are there."""
    with pytest.raises(ferry.DeviceError, match="sim:0, sim:1"):
        ferry.convert(np.ones(3), "simulated", device="sim:7")
