"""Complete descriptions: what is left out is as in the framework's ordinary case.

A description that a person made has no object. What `explain` says of it must be true of the object
that it describes, so it gets what the backend would tell of that object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dtypes import exact, find
from ..core.info import APART, BIT_PACKED, COPIED
from ..core.layout import compact_strides
from ..core.names import EXCHANGE_NUMBERS

if TYPE_CHECKING:
    from ..core.capabilities import Memory
    from ..core.declaration import Declaration
    from ..core.info import TensorInfo
    from ..core.request import Request

__all__ = ["as_of_object", "completed"]

_TABLE = 2
"""The number of axes of a table."""


def completed(info: TensorInfo, source: Declaration) -> TensorInfo:
    """A description in which the kind, and who may write, are told."""
    caps, writable = source.capabilities, info.writable
    ordinary = caps.objects.ordinary_kind
    if ordinary and not info.kind:
        weak = info.dtype if ordinary in caps.objects.read_kinds else None
        info = info._replace(kind=ordinary, weak_dtype=info.weak_dtype or weak)
        if weak is not None:
            # What is named is what the numbers need. They are read as the widest dtype of their
            # kind.
            info = info._replace(dtype=_as_read(info.dtype))
    writable = caps.memory.writable if writable is None else writable
    return info._replace(
        writable=writable, mutable=writable if info.mutable is None else info.mutable
    )


def _as_read(dtype: str) -> str:
    kind = find(dtype).kind
    candidates = EXCHANGE_NUMBERS["int" if kind == "uint" else kind]
    return next((name for name in candidates if exact(dtype, name)), dtype)


def as_of_object(
    info: TensorInfo, request: Request, source: Declaration, target: Declaration
) -> TensorInfo:
    """A description, as `Backend.open` would give it of a column or a table, for this target.

    Args:
        info: A description that was made without an object, or for no target.
        request: What is asked for.
        source: What the framework of the tensor declares.
        target: What the target's framework declares.
    """
    objects = source.capabilities.objects
    if not info.kind and info.size and info.abstract is None:
        kind = objects.kinds_by_axes.get(len(info.shape)) or objects.kinds_by_dtype.get(info.dtype)
        if kind is not None:
            gathered = info.dtype not in source.capabilities.dtypes.unshared
            info = info._replace(
                kind=kind, misalignment=objects.gathers_at if gathered else info.misalignment
            )
    if _is_the_result(info, request, source, target):
        class_and_words, _, _ = info.kind.removeprefix(COPIED).partition(": ")
        mutable = source.capabilities.memory.writable or source.capabilities.memory.shows_writes
        return info._replace(kind=class_and_words.partition(" ")[2], mutable=mutable)
    if info.kind.startswith(COPIED) and info.kind.endswith(APART) and len(info.shape) == _TABLE:
        return info._replace(strides=_read_order(info, target.capabilities.memory))
    return info


def _is_the_result(
    info: TensorInfo, request: Request, source: Declaration, target: Declaration
) -> bool:
    """Whether a column or a table is returned as it is, though it has no memory that can be shared as an array."""
    if source is not target or not info.kind.startswith(COPIED) or not request.asks_nothing_else:
        return False
    by_columns = info.kind.endswith(APART) and source.capabilities.memory.axes == _TABLE
    return by_columns or info.kind.endswith(f": {BIT_PACKED}")


def _read_order(info: TensorInfo, memory: Memory) -> tuple[int, ...]:
    """The strides of the array that is made of a table: in row order, if the target needs that."""
    itemsize = find(info.dtype).itemsize
    if memory.strides == "compact" or not memory.exists:
        return compact_strides(info.shape, itemsize)
    return (itemsize, itemsize * max(info.shape[0], 1))
