"""PyTorch's streams, events and page-locked memory as the core knows them.

The modules ``torch.cuda`` and ``torch.xpu`` have the same names for them; a device whose module has none
works as if it had one queue. (https://docs.pytorch.org/docs/stable/accelerator.html)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.devices import HOST, device_name, kind_of

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    from typing_extensions import Self

__all__ = ["TorchEvent", "TorchStream", "current_stream", "pinned_memory", "side_stream"]


class TorchEvent:
    """``torch.cuda.Event`` and its like."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def done(self) -> bool:
        found: bool = self.event.query()
        return found

    def wait(self) -> None:
        self.event.synchronize()


class TorchStream:
    """``torch.cuda.Stream`` and its like."""

    def __init__(self, module: Any, stream: Any) -> None:
        self.module = module
        self.stream = stream
        self._entered: list[Any] = []

    @property
    def device(self) -> str:
        return device_name(self.stream.device)

    def __enter__(self) -> Self:
        context = self.module.stream(self.stream)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(kind, error, trace)

    def record(self) -> TorchEvent:
        # A thread that waits for it sleeps instead of asking again and again.
        event = self.module.Event(blocking=True) if self.module.__name__.endswith("cuda") else self.module.Event()
        self.stream.record_event(event)
        return TorchEvent(event)

    def wait_for(self, event: Any) -> None:
        self.stream.wait_event(event.event)

    def uses(self, tensor: Any) -> None:
        if tensor.device.type == self.stream.device.type:
            tensor.record_stream(self.stream)


def _module(torch: Any, device: str) -> Any:
    """The module of a device that has streams, or ``None``."""
    module: Any = None if device == HOST else getattr(torch, kind_of(device), None)
    return module if hasattr(module, "Stream") and module.is_available() else None


def current_stream(torch: Any, device: str) -> TorchStream | None:
    """The stream on which this thread's work for a device is queued; without an index, the current device's."""
    module = _module(torch, device)
    return None if module is None else TorchStream(module, module.current_stream(_index(device)))


def side_stream(torch: Any, device: str) -> TorchStream | None:
    """Another stream of a device's, from PyTorch's pool."""
    module = _module(torch, device)
    return None if module is None else TorchStream(module, module.Stream(device=_index(device)))


def _index(device: str) -> int | None:
    _, _, index = device.partition(":")
    return int(index) if index else None


def pinned_memory(torch: Any, nbytes: int, device: str) -> np.ndarray[Any, Any] | None:
    """Bytes from PyTorch's caching host allocator.

    Raises:
        MemoryError: The driver could not lock so much.
    """
    if _module(torch, device) is None:
        return None
    try:
        # The device is named because a default device would be taken otherwise.
        block: np.ndarray[Any, Any] = torch.empty(nbytes, dtype=torch.uint8, device=HOST, pin_memory=True).numpy()
    except RuntimeError as error:
        raise MemoryError(f"{nbytes} bytes cannot be page-locked: {str(error).splitlines()[0]}") from error
    return block
