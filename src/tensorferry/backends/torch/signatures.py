"""What is read off a PyTorch tensor instead of describing it: its signature, and how far it reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.layout import spans
from ...core.signature import COMPACT, layout_of
from ...host import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .tensors import TorchBackend

__all__ = ["environment_reader", "extent", "likeness_reader", "signature_reader"]


def signature_reader(backend: TorchBackend) -> Callable[[Any], Hashable | None]:
    """See `Backend.signature`; what it asks is looked up here, once."""
    memories = backend.memories
    # Conjugate tensors are told apart where they are described; so are pinned ones, dual ones and those of no elements.
    dtypes = frozenset(dtype for dtype in backend.names if not dtype.is_complex)
    forward, cuda, modes, tracing, lowest = backend.forward, backend.cuda, backend.modes, backend.tracing, memory.LOWEST

    def signature(x: Any) -> Hashable | None:
        kind = type(x)
        if kind not in memories:
            return None
        dtype = x.dtype
        if dtype not in dtypes or forward._current_level >= 0 or cuda._initialized:
            return None
        try:
            pointer, rank = x.data_ptr(), x.dim()
        except RuntimeError:
            return None
        if pointer < lowest or not x.is_cpu or x.is_nested or x.is_neg() or modes():
            return None
        layout: Hashable = COMPACT
        if not x.is_contiguous():
            if tracing() is not None:
                return None  # its lengths are traced
            itemsize = x.itemsize
            layout = layout_of(x.shape, [step * itemsize for step in x.stride()], itemsize)
        return kind, dtype, rank, layout, pointer & 63, x.requires_grad

    return signature


def likeness_reader(backend: TorchBackend) -> Callable[[Any], Hashable | None]:
    """See `Backend.likeness`."""
    memories, names, modes, lowest = backend.memories, backend.names, backend.modes, memory.LOWEST

    def likeness(x: Any) -> Hashable | None:
        try:
            reached = type(x) in memories and x.data_ptr() >= lowest
        except RuntimeError:
            return None
        ordinary = reached and x.is_cpu and not x.is_nested and not modes()
        return x.dtype if ordinary and x.dtype in names else None

    return likeness


def environment_reader(backend: TorchBackend) -> Callable[[], Hashable]:
    """See `Backend.environment`."""
    default_dtype, is_recording, tracing = backend.default_dtype, backend.is_recording, backend.tracing
    return lambda: (default_dtype(), is_recording(), tracing() is None)


def extent(x: Any) -> tuple[int, int]:
    """See `Backend.extents`."""
    start = x.data_ptr()
    if x.is_contiguous():
        return start, start + x.nbytes
    itemsize = x.itemsize
    return start, start + spans(x.shape, [step * itemsize for step in x.stride()], itemsize)[1]
