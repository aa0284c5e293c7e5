"""Streams, events and page-locked memory of PyTorch's accelerator, whichever it is.

(https://docs.pytorch.org/docs/stable/torch.html#accelerators)
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from ...core.capabilities import DeviceFacts
from ...core.devices import HOST, device_name, kind_of, meant
from .declared import DECLARED

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Accelerators", "TorchEvent", "TorchStream", "accelerator"]

_PARTS = {"complex64": "float32", "complex128": "float64"}


def accelerator(torch: Any) -> Any:
    """PyTorch's accelerator, as a device without an index; ``None`` if there is no such device here."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The device of the last stream becomes the current one.
        for stream in self._before.pop():
            self.torch.accelerator.set_stream(stream)

    def record(self) -> TorchEvent:
        # With `blocking`, a waiting thread sleeps instead of polling.
        event = self.torch.Event(self.stream.device, blocking=True)
        event.record(self.stream)
        return TorchEvent(event)

    def wait_for(self, event: Any) -> None:
        self.stream.wait_event(event.event)

    def uses(self, tensor: Any) -> None:
        if tensor.device.type == self.stream.device.type:
            tensor.record_stream(self.stream)


class Accelerators:
    """What PyTorch can do on each kind of device.

    Args:
        torch: The module.
        dtypes: PyTorch's dtypes by their canonical names.
    """

    def __init__(self, torch: Any, dtypes: dict[str, Any]) -> None:
        self.torch, self.dtypes = torch, dtypes
        self._facts: dict[str, DeviceFacts] = {}
        # PyTorch 2.6 counts the devices to find its accelerator, which starts the driver, and
        # raises without one.
        self._counts = (
            "check_available" not in signature(torch.accelerator.current_accelerator).parameters
        )

    def module(self, kind: str) -> Any:
        """PyTorch's module for a kind of device; ``None`` if there is none."""
        try:
            return self.torch.get_device_module(kind)
        except RuntimeError:
            return None

    def is_one(self, kind: str) -> bool:
        """Whether a kind of device is PyTorch's accelerator on this machine."""
        found = accelerator(self.torch)
        return found is not None and found.type == kind

    def names(self) -> list[str]:
        """The devices of the accelerator."""
        found = accelerator(self.torch)
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
                return DECLARED.device_facts(kind)._replace(meant=self._meant(kind))
            works, own = self._works, self.is_one(kind)
            streams = own and works("Stream", device=kind) and works("Event", kind)
            # Tested with 0 bytes. Whether memory can really be locked shows when it is needed.
            pins = own and works("empty", 0, device=HOST, pin_memory=True)
            lacking = {
                name
                for name, dtype in self.dtypes.items()
                if not works("empty", 0, dtype=dtype, device=kind)
            }
            absent = lacking | {name for name, part in _PARTS.items() if part in lacking}
            found = self._facts[kind] = DeviceFacts(count, streams, pins, frozenset(absent))
        return found

    def _meant(self, kind: str) -> str:
        """The kind that was meant by one that PyTorch does not have, or that has no memory; otherwise empty."""
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
        """Whether a host tensor is in page-locked memory.

        PyTorch is asked only if an accelerator is in use.
        """
        kinds: tuple[str, ...]
        if self._counts:
            kinds = ("cuda", "xpu", self.torch._C._get_privateuse1_backend_name())
        else:
            found = self.torch.accelerator.current_accelerator()
            kinds = () if found is None else (found.type,)
        return any(map(self._is_in_use, kinds)) and bool(x.is_pinned())

    def _is_in_use(self, kind: str) -> bool:
        module = self.module(kind)
        return module is not None and bool(getattr(module, "is_initialized", module.is_available)())

    # -- streams ----------------------------------------------------------------------------------

    def _has_streams(self, device: str) -> bool:
        facts = self.facts(kind_of(device))
        return facts.present > 0 and facts.streams

    def current_stream(self, device: str) -> TorchStream | None:
        """The current stream of this thread for a device; without an index, for the current device."""
        if not self._has_streams(device):
            return None
        _, _, index = device.partition(":")
        return TorchStream(
            self.torch, self.torch.accelerator.current_stream(int(index) if index else None)
        )

    def side_stream(self, device: str) -> TorchStream | None:
        """A stream of a device from PyTorch's pool."""
        if not self._has_streams(device):
            return None
        return TorchStream(self.torch, self.torch.Stream(device=self.torch.device(device)))

    def wait(self, device: Any) -> None:
        """Make the host wait for the work on the current stream, or, without streams, on the device."""
        stream = self.current_stream(device_name(device))
        if stream is not None:
            stream.record().wait()
        else:
            getattr(self.module(device.type), "synchronize", lambda: None)()

    def entered(self, device: Any) -> Any:
        """A context in which a device is the current one."""
        context = getattr(self.module(device.type), "device", None)
        return nullcontext() if context is None else context(device)

    # -- page-locked memory -----------------------------------------------------------------------

    def lock(self, x: Any, required: bool) -> Any:
        """See `pinned.lock`."""
        from ...devices import pinned  # here, because most processes have no device

        return pinned.lock(x, self._allocator(x), required=required)

    def land(self, x: Any, required: bool) -> Any:
        """See `pinned.land`."""
        from ...devices import pinned

        found = pinned.land(
            x, self._allocator(x), self.current_stream(device_name(x.device)), required=required
        )
        return x.to(HOST) if found is None else found

    def _allocator(self, x: Any) -> Any:
        # With the device, because otherwise a default device would be used.
        return partial(self.torch.empty_like, x, device=HOST, pin_memory=True, requires_grad=False)
