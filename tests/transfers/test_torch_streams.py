"""PyTorch's streams behind the core's protocol, on a stand-in for ``torch.cuda`` that writes down what is called."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tensorferry.backends import registry
from tensorferry.backends.torch import streams


class Recorder:
    """Whatever is called on it is written down."""

    def __init__(self, calls, name, **attributes):
        self.__dict__.update(attributes)
        self._calls = calls
        self._name = name

    def __getattr__(self, name):
        def call(*arguments):
            self._calls.append((self._name, name, *arguments))
            return True

        return call

    def __enter__(self):
        self._calls.append((self._name, "enter"))

    def __exit__(self, *_):
        self._calls.append((self._name, "exit"))


@pytest.fixture
def cuda():
    """A torch with one CUDA device, as far as streams go."""
    calls = []

    class Device:
        type = "cuda"

        def __str__(self):
            return "cuda:0"

    there = Device()
    event = Recorder(calls, "event")
    module = SimpleNamespace(
        __name__="torch.cuda",
        is_available=lambda: True,
        Stream=lambda device: Recorder(calls, f"side {device}", device=there),
        current_stream=lambda device: Recorder(calls, f"current {device}", device=there),
        stream=lambda stream: Recorder(calls, f"context of {stream._name}"),
        Event=lambda blocking: calls.append(("Event", blocking)) or event,
    )
    return SimpleNamespace(cuda=module, calls=calls, there=there, event=event)


def test_streams_and_events_are_those_of_the_devices_module(cuda):
    """Each word of the protocol is one call, and no call waits for a device."""
    side, current = streams.side_stream(cuda, "cuda:0"), streams.current_stream(cuda, "cuda")
    assert side.device == current.device == "cuda:0"
    with side:
        event = side.record()
    current.wait_for(event)
    assert event.done() is True
    event.wait()
    assert cuda.calls == [
        ("context of side 0", "enter"),
        ("Event", True),
        ("side 0", "record_event", cuda.event),
        ("context of side 0", "exit"),
        ("current None", "wait_event", cuda.event),
        ("event", "query"),
        ("event", "synchronize"),
    ]


def test_only_tensors_of_the_device_are_recorded(cuda):
    """A tensor of the host has no allocator that would have to know."""
    stream = streams.current_stream(cuda, "cuda:0")
    for kind in ("cuda", "cpu"):
        stream.uses(Recorder(cuda.calls, kind, device=SimpleNamespace(type=kind)))
    assert cuda.calls == [("cuda", "record_stream", stream.stream)]


@pytest.mark.parametrize("device", ["cpu", "meta", "mps", "cuda:0"])
def test_where_there_are_no_streams_there_is_none(device):
    """The host, devices whose module has none, and devices that are not there."""
    torch = pytest.importorskip("torch")
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here; tests/gpu looks at its streams")
    backend = registry.ready("torch")
    assert backend.current_stream(device) is None
    assert backend.side_stream(device) is None
    assert backend.pinned_memory(16, device) is None


def test_memory_that_cannot_be_locked_is_a_memory_error(cuda):
    """The driver's words are kept, in one line."""

    def empty(*_, **__):
        raise RuntimeError("CUDA error: out of memory\nCompile with …")

    cuda.uint8, cuda.empty = None, empty
    with pytest.raises(MemoryError, match=r"^16 bytes cannot be page-locked: CUDA error: out of memory$"):
        streams.pinned_memory(cuda, 16, "cuda:0")
    cuda.empty = lambda nbytes, **keywords: (
        cuda.calls.append(keywords) or SimpleNamespace(numpy=lambda: np.zeros(nbytes, np.uint8))
    )
    assert streams.pinned_memory(cuda, 16, "cuda:0").nbytes == 16
    assert cuda.calls == [{"dtype": None, "device": "cpu", "pin_memory": True}]
