"""PyTorch's part in transfers: plain bytes over the bus, and memory of a GPU to and from other frameworks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...core.dtypes import find
from ...devices.staging import Staging, say_once
from ...errors import DeviceError
from ...host.dlpack import Offer
from .snippets import CARRIED

if TYPE_CHECKING:
    import numpy as np

    from .tensors import TorchBackend

__all__ = ["TorchStaging", "offer", "pin", "take_over"]


class TorchStaging(Staging):
    """The methods of a staging backend that move plain bytes of a PyTorch tensor."""

    torch: Any
    dtypes: dict[str, Any]

    def compact(self, x: Any) -> Any:
        """C-contiguous memory on the same device."""
        return x.contiguous()

    def flat(self, x: Any) -> Any:
        return x.as_strided((x.numel(),), (1,)).view(self.torch.uint8)

    def room(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: str) -> Any:
        steps = [step // find(dtype).itemsize for step in strides]
        return self.torch.empty_strided(shape, steps, dtype=self.dtypes[dtype], device=device)

    # With non_blocking, page-locked memory is read and written behind the current stream's work
    # (https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers).

    def take_down(self, flat: Any, start: int, block: np.ndarray[Any, Any]) -> None:
        self.torch.from_numpy(block).copy_(flat[start : start + block.size], non_blocking=True)

    def put_up(self, flat: Any, start: int, block: np.ndarray[Any, Any]) -> None:
        flat[start : start + block.size].copy_(self.torch.from_numpy(block), non_blocking=True)


def pin(torch: Any, x: Any, required: bool) -> Any:
    """A copy of a host tensor in page-locked memory, or itself where none can be locked and none has to be.

    Raises:
        DeviceError: It has to be locked, and cannot be.
    """
    try:
        block = torch.empty_like(x, pin_memory=True)
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        if required:
            raise DeviceError(f"PyTorch cannot page-lock this much memory: {why}", "leave pinned= out") from error
        say_once(f"No memory can be page-locked ({why}): transfers go on without, slower.")
        return x
    return block.copy_(x)


def offer(backend: TorchBackend, x: Any) -> Offer:
    """A tensor as other frameworks may ask for it.

    PyTorch exports only from the current device, and names the stream that is current there. Its narrow
    floats are exported as integers, whose codes every version of it knows.
    """
    name = backend.names[x.dtype]
    carrier = CARRIED.get(name)

    def around() -> Any:
        return backend.torch.cuda.device(x.device) if x.is_cuda else nullcontext()

    # Of the tensor itself the memory is gone once somebody calls `x.set_`, `x.resize_` or assigns `x.data`.
    held = x.detach()
    return Offer(held if carrier is None else held.view(getattr(backend.torch, carrier)), name, around)


def take_over(backend: TorchBackend, offered: Any) -> Any:
    """A tensor over the memory that another framework offers, whose stream waits for the producer's."""
    carrier = CARRIED.get(offered.dtype) if isinstance(offered, Offer) else None
    if carrier is None:
        return backend.torch.from_dlpack(offered)
    return backend.torch.from_dlpack(offered.as_integers()).view(backend.dtypes[offered.dtype])
