"""The simulated device for the tests of this folder; where it is not there, they say why and are skipped."""

from __future__ import annotations

import os

import pytest
from tests.device.build import BuildError, built


def _why_not():
    """Why these tests cannot run here, or ``None``."""
    if os.environ.get("FERRY_TEST_DEVICE") != "1":
        # PyTorch keeps a device for the rest of the process, in which other tests are about a machine without any.
        return "needs the simulated device in a process of its own: make test-device"
    try:
        built()
    except BuildError as error:
        return f"needs the simulated device, which cannot be built: {error}"
    return None


@pytest.fixture(scope="session")
def _device():
    why_not = _why_not()
    if why_not is not None:
        pytest.skip(why_not)
    from tests.device import sim

    return sim


@pytest.fixture(autouse=True)
def sim(_device):
    """The simulated device, as fast as it can be, with nothing of an earlier test's."""
    _device.set_delays()
    _device.set_pinned_limit()
    yield _device
    _device.set_delays()
    _device.set_pinned_limit()
    for index in range(_device.device_count()):
        _device.synchronize(index)
