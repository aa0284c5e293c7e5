"""Read the signatures and extents of PyTorch tensors, which is faster than to describe them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.layout import spans
from ...core.signature import COMPACT, layout_of
from ...host import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...typing import Array
    from .tensors import TorchBackend

__all__ = [
    "environment_reader",
    "extents",
    "grouped",
    "likeness_reader",
    "reach",
    "signature_reader",
]


LARGEST = 16
"""The alignment of the largest element in bytes."""
_NBYTES = attrgetter("nbytes")


def signature_reader(backend: TorchBackend) -> Callable[[Any], Hashable | None]:
    """See `Backend.signature`: reads tensors that the reader in C leaves to Python, or all if there is none."""
    # Complex tensors, which may have lazy bits, are described; so are dual tensors, tensors without
    # elements, and pinned ones if that matters.
    dtypes, memories = (
        frozenset(dtype for dtype in backend.names if not dtype.is_complex),
        backend.memories,
    )
    forward, modes, tracing, lowest = backend.forward, backend.modes, backend.tracing, memory.LOWEST

    def signature(x: Any) -> Hashable | None:
        kind = type(x)
        if kind not in memories or x.dtype not in dtypes or forward._current_level >= 0:
            return None
        try:
            pointer, rank = x.data_ptr(), x.dim()
        except RuntimeError:
            return None
        if pointer < lowest or x.is_nested or x.is_neg() or modes():
            return None
        on_host = x.is_cpu
        layout: Hashable = COMPACT
        if not x.is_contiguous():
            # A transfer depends on more than the layout; and the tracer's lengths are symbols.
            if not on_host or tracing() is not None:
                return None
            itemsize = x.itemsize
            layout = layout_of(x.shape, [step * itemsize for step in x.stride()], itemsize)
        found = kind, x.dtype, rank, layout, pointer & 63, x.requires_grad
        return found if on_host else (*found, x.device)

    return signature


def likeness_reader(backend: TorchBackend) -> Callable[[Any], Hashable | None]:
    """See `Backend.likeness`."""
    memories, modes, lowest = backend.memories, backend.modes, memory.LOWEST

    def likeness(x: Any) -> Hashable | None:
        if type(x) not in memories or not x.is_cpu or x.is_nested or modes():
            return None
        try:
            # Nothing is cached for a dtype that is not supported.
            return x.dtype if x.data_ptr() >= lowest else None
        except RuntimeError:
            return None

    return likeness


def environment_reader(backend: TorchBackend) -> Callable[[], Hashable]:
    """See `Backend.environment`."""
    default_dtype, is_recording, is_tracing = (
        backend.default_dtype,
        backend.is_recording,
        backend.is_tracing,
    )
    return lambda: (default_dtype(), is_recording(), is_tracing())


def grouped(
    backend: TorchBackend, tensors: Sequence[Any], alignment: int
) -> Mapping[Hashable, Sequence[int]] | None:
    """See `Backend.grouped`."""
    if backend.reader is None:
        return super(type(backend), backend).grouped(tensors, alignment)
    found: dict[Hashable, Sequence[int]] | None = backend.reader.grouped(
        tensors, alignment or LARGEST
    )
    if found is not None and len(found) == 1:
        return dict.fromkeys(found, range(len(tensors)))
    return found


def extents(tensors: Sequence[Any], *, compact: bool) -> tuple[Array, Array]:
    """See `Backend.extents`."""
    starts = np.fromiter(map(type(tensors[0]).data_ptr, tensors), np.uint64, len(tensors))
    return starts, starts + np.fromiter(
        map(_NBYTES if compact else reach, tensors), np.uint64, len(tensors)
    )


def reach(x: Any) -> int:
    """The number of bytes from a tensor's first element to the end of its last."""
    if x.is_contiguous():
        return x.nbytes  # type: ignore[no-any-return]
    itemsize = x.itemsize
    return spans(x.shape, [step * itemsize for step in x.stride()], itemsize)[1]
