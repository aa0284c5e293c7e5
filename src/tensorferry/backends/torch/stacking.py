"""Tensors that are seen to be alike at a glance, stacked or joined by PyTorch's own call."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...host import memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tensors import TorchBackend

__all__ = ["join_alike", "stack_alike"]

_MAPPED = 1 << 25
"""Bytes from which each allocation is new memory from the system, page by page. (`man mallopt`: M_MMAP_THRESHOLD)"""
_DTYPE = attrgetter("dtype")


def stack_alike(backend: TorchBackend, tensors: Sequence[Any]) -> Any:
    """See `Backend.stack_alike`."""
    try:
        if not _are_alike(backend, tensors):
            return None
        first = tensors[0]
        # NumPy asks for huge pages there, which takes a fraction of the time.
        mapped = first.nbytes * len(tensors) >= _MAPPED and first.is_cpu
        return None if mapped else backend.torch.stack(tensors)
    except (AssertionError, RuntimeError):  # of other shapes, or on other devices
        return None


def join_alike(backend: TorchBackend, tensors: Sequence[Any]) -> Any:
    """See `Backend.join_alike`."""
    try:
        return backend.torch.cat(tensors) if _are_alike(backend, tensors) else None
    except (AssertionError, RuntimeError):
        return None


def _are_alike(backend: TorchBackend, tensors: Sequence[Any]) -> bool:
    """Whether tensors are plain ones, or parameters, of one dtype; PyTorch itself refuses other shapes and devices."""
    if not backend.memories.issuperset(map(type, tensors)) or len(set(map(_DTYPE, tensors))) > 1:
        return False
    if tensors[0].dtype not in backend.names or tensors[0].is_nested:
        return False
    # It reads freed storage too, which ends the process. What has another layout has no address, and raises.
    return min(map(backend.tensor.data_ptr, tensors)) >= memory.LOWEST
