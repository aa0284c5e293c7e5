"""The simulated device for the tests of this folder; where it is not there, they say why and are skipped."""

from __future__ import annotations

import os
from functools import cache

import pytest
from tests.device.build import BuildError, built

# Doctests are looked for by importing: that would make the device.
collect_ignore = ["probes.py", "sim.py"]


@cache
def _why_not():
    """Why these tests cannot run here, or ``None``."""
    if os.environ.get("FERRY_TEST_DEVICE") != "1":
        # PyTorch keeps a device for the rest of the process, in which other tests are about a
        # machine without any.
        return "needs the simulated device in a process of its own: make test-device"
    try:
        built()
    except BuildError as error:
        return f"needs the simulated device, which cannot be built: {error}"
    return None


def pytest_runtest_setup(item):
    why_not = _why_not()
    if why_not is not None:
        pytest.skip(why_not)


@pytest.fixture
def sim():
    """The simulated device, as fast as it can be, with nothing left to do."""
    from tests.device import sim

    yield sim
    sim.set_delays()
    sim.set_pinned_limit()
    for index in range(sim.device_count()):
        sim.synchronize(index)
