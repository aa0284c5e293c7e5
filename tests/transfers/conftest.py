"""What the tests of transfers share: a simulated accelerator, and that no thread is left behind."""

from __future__ import annotations

import gc
import threading
import time

import pytest
from tests import simulated


def ours():
    """The threads that tensorferry has started and that are still there."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("tensorferry")]


def until(holds, seconds=simulated.PATIENCE):
    """Wait until something holds; whether it does, before it is taken for a deadlock."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    """After each test the threads that it started are gone."""
    yield
    if not until(lambda: not ours(), 0.2):
        gc.collect()  # an error that the test has caught may hold an iterator
    assert until(lambda: not ours()), ours()


@pytest.fixture
def device():
    """A simulated accelerator whose copies begin up to two milliseconds late."""
    with simulated.installed(delay=(0.0, 0.002)) as backend:
        yield backend
