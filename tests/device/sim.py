"""The simulated device as users of PyTorch see one, ``"sim:0"`` and ``torch.sim.Stream()``, and what tests need.

Importing it registers the device with PyTorch, for the rest of the process.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tests.device.build import built
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

LIKE = os.environ.get("FERRY_DEVICE_LIKE", "cuda")
"""``"cuda"``; ``"plain"``: the device has streams, but no names for them in its module; ``"mps"``: it has none."""


def _load() -> Any:
    spec = spec_from_file_location("_device", built())
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rename_privateuse1_backend("sim")
_device = _load()


# -- what PyTorch's device modules have -----------------------------------------------------------


def _index(device: Any = None) -> int:
    if device is None or (isinstance(device, int) and device < 0):
        return int(_device.current_device())
    index: int | None = device if isinstance(device, int) else torch.device(device).index
    return int(_device.current_device()) if index is None else index


def is_available() -> bool:
    return not _device.is_forked()


def is_initialized() -> bool:
    return is_available()


def _is_in_bad_fork() -> bool:
    return bool(_device.is_forked())


def device_count() -> int:
    return int(_device.device_count())


def current_device() -> int:
    return int(_device.current_device())


def set_device(device: Any) -> None:
    _device.set_device(_index(device))


def synchronize(device: Any = None) -> None:
    _device.synchronize(_index(device))


class device:  # noqa: N801 - as in torch.cuda
    """The current device, while it is entered."""

    def __init__(self, device: Any) -> None:
        self.index = _index(device)
        self.before = 0

    def __enter__(self) -> None:
        self.before = current_device()
        _device.set_device(self.index)

    def __exit__(self, *_: object) -> None:
        _device.set_device(self.before)


if LIKE == "cuda":

    class Stream(torch.Stream):
        """As ``torch.cuda.Stream``."""

        def __new__(cls, device: Any = None, priority: int = 0, **known: Any) -> Self:
            if known:
                return super().__new__(cls, priority=priority, **known)
            return super().__new__(
                cls, device=torch.device("sim", _index(device)), priority=priority
            )

        def record_event(self, event: Any = None) -> Event:
            event = Event() if event is None else event
            event.record(self)
            return event  # type: ignore[no-any-return]

        def wait_stream(self, other: Any) -> None:
            self.wait_event(other.record_event())

    class Event(torch.Event):
        """As ``torch.cuda.Event``."""

        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> Self:
            return super().__new__(cls, torch.device("sim"), enable_timing=enable_timing)

        def record(self, stream: Any = None) -> None:
            super().record(current_stream() if stream is None else stream)

    def current_stream(device: Any = None) -> Stream:
        found = torch.accelerator.current_stream(_index(device))
        return Stream(
            stream_id=found.stream_id,
            device_index=found.device_index,
            device_type=found.device_type,
        )

    class stream:  # noqa: N801 - as in torch.cuda
        """The current stream, and its device, while it is entered."""

        def __init__(self, stream: Stream | None) -> None:
            self.stream = stream
            self.before: Any = None

        def __enter__(self) -> None:
            if self.stream is not None:
                self.before = current_device(), current_stream(self.stream.device)
                torch.accelerator.set_stream(self.stream)

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                index, stream = self.before
                torch.accelerator.set_stream(stream)
                _device.set_device(index)


# -- what tests need ------------------------------------------------------------------------------


def set_delays(copy: float = 0, bandwidth: float = 1e12, kernel: float = 0) -> None:
    """Seconds that each copy over the bus takes, its bytes a second besides, and seconds before each kernel."""
    _device.set_delays(copy, bandwidth, kernel)


def set_pinned_limit(nbytes: float = 1e15) -> None:
    """How much memory can be page-locked, as ``ulimit -l``."""
    _device.set_pinned_limit(nbytes)


@contextmanager
def gate(device: int | None = None, limit: float = 30) -> Iterator[Any]:
    """The current stream of a device comes to a halt, and goes on when this is left; after a while in any case."""
    made = close_gate(device, limit)
    try:
        yield made
    finally:
        made.open()


def close_gate(device: int | None = None, limit: float = 30) -> Any:
    """What bars a stream's way until it is told to ``open``; ``is_open`` tells."""
    return _device.close_gate(_index(device), limit)


class Memory(NamedTuple):
    """How much memory is held.

    Args:
        allocated: Of tensors.
        active: Of tensors, and of those that are gone.
        peak: The most that this was.
        asked: How often memory has been asked for.
    """

    allocated: int
    active: int
    peak: int
    asked: int


def memory(device: int = 0, *, from_now: bool = False) -> Memory:
    """What is allocated on a device, and the peak since this was asked `from_now`."""
    return Memory(*_device.memory(device, from_now))


def pinned() -> Memory:
    """What is page-locked on the host."""
    return Memory(*_device.memory(-1, False))


class Seen(NamedTuple):
    """Something that a device did.

    Args:
        kind: ``"h2d"``, ``"d2h"``, ``"p2p"``: a copy over the bus; ``"kernel"``: work on the
            device; ``"fallback"``: what the CPU did because the device cannot.
        bytes: How much was copied, or is the result.
        pinned: Whether the host's memory is page-locked.
        queued: Whether the host did not wait.
        device: Whose stream it was on.
        stream: Which stream.
        name: The operation.
    """

    kind: str
    bytes: int
    pinned: bool
    queued: bool
    device: int
    stream: int
    name: str


class Trace(list[Seen]):
    """All that devices did while it was made."""

    @property
    def bus(self) -> list[Seen]:
        """The copies over the bus."""
        return [each for each in self if each.kind in ("h2d", "d2h", "p2p")]

    @property
    def bus_bytes(self) -> int:
        return sum(each.bytes for each in self.bus)

    def counts(self) -> dict[str, int]:
        """How many copies of each kind."""
        return dict(Counter(each.kind for each in self.bus))


@contextmanager
def tracing() -> Iterator[Trace]:
    """What devices do inside; complete when it is left."""
    found = Trace()
    _device.look(True)
    try:
        yield found
    finally:
        found.extend(Seen(*each) for each in _device.look(False))


@contextmanager
def nothing_left() -> Iterator[None]:
    """Nothing of what is done inside stays: no device memory, no page-locked memory, no thread."""
    gc.collect()
    before = _held()
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name not in before["threads"]:
            thread.join(20)  # one that has given its result is about to end
    for index in range(device_count()):
        synchronize(index)
    gc.collect()
    assert _held() == before, f"left behind: {_held()}; before: {before}"


def _held() -> dict[str, Any]:
    devices = [memory(index).active for index in range(device_count())]
    threads = sorted(each.name for each in threading.enumerate() if each.is_alive())
    return {"device": devices, "pinned": pinned().active, "threads": threads}


@atexit.register
def _end() -> None:
    # The libraries' own globals go after this: no stream may still work with them.
    if is_available():
        for index in range(device_count()):
            synchronize(index)


torch._register_device_module("sim", sys.modules[__name__])  # type: ignore[no-untyped-call]
generate_methods_for_privateuse1_backend()
