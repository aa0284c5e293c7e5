"""What PyTorch's accelerator has: streams, events, page-locked memory. It is asked, whichever it is.

(https://docs.pytorch.org/docs/stable/torch.html#accelerators)
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.capabilities import DeviceFacts
from ...core.devices import HOST, device_name, kind_of, meant
from ...devices import pinned

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Accelerators", "TorchEvent", "TorchStream"]

_PARTS = {"complex64": "float32", "complex128": "float64"}


class TorchEvent:
    """`torch.Event`."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def wait(self) -> None:
        self.event.synchronize()


class TorchStream:
    """`torch.Stream`."""

    def __init__(self, torch: Any, stream: Any) -> None:
        self.torch, self.stream = torch, stream
        self._before: list[tuple[Any, Any]] = []

    @property
    def device(self) -> str:
        return device_name(self.stream.device)

    def __enter__(self) -> Self:
        current = self.torch.accelerator.current_stream
        self._before.append((current(self.stream.device), current()))
        self.torch.accelerator.set_stream(self.stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The last one's device becomes the current one.
        for stream in self._before.pop():
            self.torch.accelerator.set_stream(stream)

    def record(self) -> TorchEvent:
        # A thread that waits for it sleeps instead of asking again and again.
        event = self.torch.Event(self.stream.device, blocking=True)
        event.record(self.stream)
        return TorchEvent(event)

    def wait_for(self, event: Any) -> None:
        self.stream.wait_event(event.event)

    def uses(self, tensor: Any) -> None:
        if tensor.device.type == self.stream.device.type:
            tensor.record_stream(self.stream)


class Accelerators:
    """What PyTorch has on each kind of device, asked once.

    Args:
        torch: PyTorch.
        dtypes: Its dtypes by their canonical names.
    """

    def __init__(self, torch: Any, dtypes: dict[str, Any]) -> None:
        self.torch, self.dtypes = torch, dtypes
        self._facts: dict[str, DeviceFacts] = {}

    def module(self, kind: str) -> Any:
        """The module of a kind of device, or ``None``: PyTorch has none here."""
        try:
            return self.torch.get_device_module(kind)
        except RuntimeError:
            return None

    def is_one(self, kind: str) -> bool:
        """Whether a kind of device is what PyTorch calls the accelerator here."""
        found = self.torch.accelerator.current_accelerator()
        return found is not None and found.type == kind

    def names(self) -> list[str]:
        """The devices of the accelerator."""
        found = self.torch.accelerator.current_accelerator(check_available=True)
        if found is None:
            return []
        return [f"{found.type}:{index}" for index in range(self.torch.accelerator.device_count())]

    def facts(self, kind: str) -> DeviceFacts:
        """See `Declaration.device_facts`."""
        found = self._facts.get(kind)
        if found is None:
            module = None if kind == HOST else self.module(kind)
            count = module.device_count() if module is not None and module.is_available() else 0
            if not count:
                return DeviceFacts(meant=self._meant(kind))
            works, own = self._works, self.is_one(kind)
            streams = own and works("Stream", device=kind) and works("Event", kind)
            # No bytes are locked: whether any can be is found out when they are asked for.
            pins = own and works("empty", 0, device=HOST, pin_memory=True)
            lacking = {name for name, dtype in self.dtypes.items() if not works("empty", 0, dtype=dtype, device=kind)}
            absent = lacking | {name for name, part in _PARTS.items() if part in lacking}
            found = self._facts[kind] = DeviceFacts(count, streams, pins, frozenset(absent))
        return found

    def _meant(self, kind: str) -> str:
        """The kind that was meant by one that PyTorch does not know, or that has no memory; else nothing."""
        try:
            self.torch.device(kind)
        except RuntimeError as error:
            known = re.search("one of ([a-z, ]+) device", str(error))
            return meant(kind, known[1].split(", ") if known is not None else (HOST,))
        named = kind != HOST and self.module(kind) is None and self._works("empty", 0, device=kind)
        return HOST if named and self.torch.empty(0, device=kind).is_meta else ""

    def _works(self, function: str, *arguments: Any, **keywords: Any) -> bool:
        try:
            getattr(self.torch, function)(*arguments, **keywords)
        except Exception:  # noqa: BLE001 - each kind of device has its own software, which says what it likes
            return False
        return True

    def is_pinned(self, x: Any) -> bool:
        """Whether a host tensor lies in page-locked memory: of an accelerator in use, which may be asked only then."""
        kind = self.torch.accelerator.current_accelerator()
        if kind is None:
            return False
        module = self.torch.get_device_module(kind)
        in_use = getattr(module, "is_initialized", module.is_available)
        return bool(in_use() and x.is_pinned())

    # -- streams ----------------------------------------------------------------------------------

    def _has_streams(self, device: str) -> bool:
        facts = self.facts(kind_of(device))
        return facts.present > 0 and facts.streams

    def current_stream(self, device: str) -> TorchStream | None:
        """The stream on which this thread's work for a device is queued; without an index, the current device's."""
        if not self._has_streams(device):
            return None
        _, _, index = device.partition(":")
        return TorchStream(self.torch, self.torch.accelerator.current_stream(int(index) if index else None))

    def side_stream(self, device: str) -> TorchStream | None:
        """Another stream of a device's, from PyTorch's pool."""
        if not self._has_streams(device):
            return None
        return TorchStream(self.torch, self.torch.Stream(device=self.torch.device(device)))

    def wait(self, device: Any) -> None:
        """Let the host wait for what is queued on the current stream; a device without streams has one queue."""
        stream = self.current_stream(device_name(device))
        if stream is not None:
            stream.record().wait()
        else:
            getattr(self.module(device.type), "synchronize", lambda: None)()

    def entered(self, device: Any) -> Any:
        """A device as the current one."""
        context = getattr(self.module(device.type), "device", None)
        return nullcontext() if context is None else context(device)

    # -- page-locked memory -----------------------------------------------------------------------

    def lock(self, x: Any, required: bool) -> Any:
        """See `pinned.lock`."""
        return pinned.lock(x, self._allocator(x), required=required)

    def land(self, x: Any, required: bool) -> Any:
        """See `pinned.land`."""
        found = pinned.land(x, self._allocator(x), self.current_stream(device_name(x.device)), required=required)
        return x.to(HOST) if found is None else found

    def _allocator(self, x: Any) -> Any:
        # The device is named because a default device would be taken otherwise.
        return partial(self.torch.empty_like, x, device=HOST, pin_memory=True, requires_grad=False)
