"""The signature of a tensor: all that a decision about it can depend on, and none of the numbers that it cannot.

Tensors of one signature are converted by the same steps, whatever their shapes and addresses are; so what is worked
out for one is kept for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dtypes import find
from .info import is_many
from .layout import are_apart, compact_strides, is_compact, packed_strides

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from .info import TensorInfo

__all__ = ["COMPACT", "EMPTY", "SPREAD", "layout_of", "signature_of"]

EMPTY, COMPACT, SPREAD = "empty", "compact", "spread"
"""Layouts of memory: without elements; in C order without gaps; else each element apart from the others, a whole
number of elements forward along each axis."""


def layout_of(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Hashable:
    """How a tensor lies in memory, in one word; the numbers themselves where there is none for it.

    >>> layout_of((2, 3), (12, 4), 4), layout_of((2, 3), (4, 8), 4), layout_of((2,), (0,), 4)
    ('compact', 'spread', ((2,), (0,)))

    Args:
        shape: Lengths of the axes.
        strides: Bytes from one element to the next along each axis.
        itemsize: Bytes of an element.
    """
    if 0 in shape:
        return EMPTY
    if is_compact(tuple(shape), tuple(strides), itemsize):
        return COMPACT
    steps = [step for length, step in zip(shape, strides, strict=True) if length > 1]
    forward = all(step > 0 and not step % itemsize for step in steps)
    return SPREAD if forward and are_apart(shape, strides, itemsize) else (tuple(shape), tuple(strides))


def signature_of(info: TensorInfo) -> Hashable:
    """The signature of a tensor that has been described.

    >>> from tensorferry import TensorInfo
    >>> signature_of(TensorInfo("numpy", (2, 3))) == signature_of(TensorInfo("numpy", (40, 50)))
    True

    The sizes count of what has no memory, or lies in several shards.
    """
    if info.abstract is not None or info.shards > 1:
        return info
    itemsize = find(info.dtype).itemsize
    layout = layout_of(info.shape, info.strides, itemsize)
    order: tuple[bool, ...] = ()
    if layout == SPREAD:
        # Whether the bus takes it as it is, and whether what arrives is in C order.
        packed = packed_strides(info.shape, info.strides, itemsize)
        order = info.is_packed, packed == compact_strides(info.shape, itemsize)
    # The fields after the strides, which are the fifth.
    return (info.framework, len(info.shape), info.dtype, layout, is_many(info), *info[5:], info.device, *order)
