"""Read the signatures and extents of arrays, and who may write to their memory."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.layout import spans
from ...core.places import places_by
from ...core.signature import COMPACT, layout_of
from ...errors import UnsupportedTypeError
from ...host import memory
from .. import registry
from ..base import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.request import Request
    from ...typing import Array

__all__ = ["extents", "grouped", "owns_memory", "signature", "signature_reader", "who_writes"]

_DTYPE, _RANK, _SIZE, _FLAGS = map(attrgetter, ("dtype", "ndim", "size", "flags"))
_address = memory.address
_C_ORDER, _ALIGNED, _WRITEABLE = 0x0001, 0x0100, 0x0400
_FITS = _C_ORDER | _ALIGNED
_OPENED = "mM"
"""Kinds of dates and durations.

The first step takes the counts in them, so that each has to be opened.
"""
_OWN = frozenset({0x0505, 0x0507})
"""``array.flags.num`` of a writable array that owns its memory and is in C order (with one axis, also in F order)."""


def signature(_backend: Backend, x: Any) -> Hashable | None:
    """See `Backend.signature`."""
    if type(x) is not np.ndarray:
        return None
    dtype = x.dtype
    if dtype.hasobject or dtype.kind in _OPENED:
        return None
    # One number that tells whether it is in C order and writable.
    flags, base = x.flags.num, x.base
    # It owns its memory, or is a writable view of an array that does, so it is not over a file.
    own = base is None or (flags & _WRITEABLE and type(base) is np.ndarray and base.base is None)
    if own and flags & _C_ORDER and x.size:
        return dtype, x.ndim, COMPACT, _address(x) & 63, flags
    layout = layout_of(x.shape, x.strides, x.itemsize)
    facts = None if own else who_writes(x, x.flags.writeable)
    return dtype, x.ndim, layout, _address(x) & 63, flags, facts


def signature_reader(
    backend: Backend,
    kind: type,
    target: Backend,
    request: Request,  # noqa: ARG001 - a method's arguments
) -> Callable[[Any], Hashable | None]:
    """See `Backend.signature_reader`."""
    addressed = backend.signature

    def unaddressed(x: Any) -> Hashable | None:
        # To read the address takes a third of the time, and the flags say whether it fits the
        # element.
        flags, base, dtype = x.flags.num, x.base, x.dtype
        own = base is None or (
            flags & _WRITEABLE and type(base) is np.ndarray and base.base is None
        )
        if (
            own
            and flags & _FITS == _FITS
            and x.size
            and not dtype.hasobject
            and dtype.kind not in _OPENED
        ):
            return dtype, x.ndim, COMPACT, 0, flags
        return addressed(x)

    return (
        addressed
        if kind is not np.ndarray or target.capabilities.memory.alignment > 1
        else unaddressed
    )


def grouped(
    backend: Backend, tensors: Sequence[Any], alignment: int
) -> Mapping[Hashable, Sequence[int]] | None:
    """See `Backend.grouped`."""
    if type(tensors[0]) is not np.ndarray:
        return Backend.grouped(backend, tensors, alignment)
    first, flags = tensors[0].flags, list(map(_FLAGS, tensors))
    # To compare the flags objects is faster than to read the number of each.
    alike = first.num in _OWN and flags.count(first) == len(flags)
    dtypes, ranks = set(map(_DTYPE, tensors)), set(map(_RANK, tensors))
    if not (alike and len(dtypes) == len(ranks) == 1 and all(map(_SIZE, tensors))):
        return Backend.grouped(backend, tensors, alignment)
    (dtype,), (rank,) = dtypes, ranks
    if dtype.hasobject or dtype.kind in _OPENED:
        return None
    at: Mapping[int, Sequence[int]] = {0: range(len(tensors))}
    if alignment > dtype.alignment:  # the flags say that each is aligned to its elements
        at = places_by([address & (alignment - 1) for address in memory.addresses(tensors)])
    return {(dtype, rank, COMPACT, each, first.num): some for each, some in at.items()}


def extents(
    _backend: Backend, tensors: Sequence[Any], *, compact: bool
) -> tuple[Sequence[int], Sequence[int]]:
    """See `Backend.extents`."""
    starts = memory.addresses(tensors)
    if compact:
        return starts, [at + x.nbytes for x, at in zip(tensors, starts, strict=True)]
    starts, ends = [], []
    for x, at in zip(tensors, memory.addresses(tensors), strict=True):
        low, high = (0, x.nbytes) if x.flags.forc else spans(x.shape, x.strides, x.itemsize)
        starts.append(at + low)
        ends.append(at + high)
    return starts, ends


def owns_memory(_backend: Backend, signature: Any) -> bool:
    """See `Backend.owns_memory`."""
    return signature[4] in _OWN


def who_writes(x: Array, writable: bool) -> tuple[bool, bool, bool]:
    """Whether an array is writable, whether its memory can be written at all, and whether it is over a file."""
    if writable and x.base is None:
        return True, True, False
    return writable, writable or _is_mutable(x), memory.is_mapped(x)


def _is_mutable(x: Array) -> bool:
    """Whether the memory of a read-only array can be written through another object.

    If unknown, yes.
    """
    found = memory.writable_somewhere(x)
    if isinstance(found, bool):
        return found
    if type(found).__name__ == "PyCapsule":
        # It may have been exported by an object that can write it, such as a writable array.
        return not _immutable_holds(found)
    try:
        return registry.backend_of(found).capabilities.memory.writable
    except UnsupportedTypeError:
        return True


def _immutable_holds(owner: object) -> bool:
    """Whether an object that owns an array's memory belongs to an immutable tensor of a known framework."""
    for backend in registry.imported():
        with registry.outside.guard(backend.name):
            if not backend.capabilities.memory.writable and backend.holds(owner):
                return True
    return False
