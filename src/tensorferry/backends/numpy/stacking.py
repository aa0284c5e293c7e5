"""Many arrays in one memory, aligned so that any target can adopt it: stacked, or filled up to one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import common
from ...host import casts, memory
from ...host.numpy_dtypes import numpy_dtype, of_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pad", "stack"]

Array = np.ndarray[Any, Any]


def stack(tensors: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Arrays of equal shapes as one of `shape`, of the dtype that holds all their values."""
    names = {of_numpy(dtype) or "" for dtype in {array.dtype for array in tensors}}
    inner = tensors[0].shape
    if len(names) > 1:
        result = memory.compact((len(tensors), *inner), numpy_dtype(common(names)))
        for index, array in enumerate(tensors):
            casts.copy_into(result[index : index + 1], array[np.newaxis])
        return result.reshape(shape)
    result = memory.compact(shape, numpy_dtype(names.pop()))
    if inner:
        # Not `np.stack`, which makes a view of each: where arrays are small, as much memory again.
        np.concatenate(tensors, out=result.reshape(len(tensors) * inner[0], *inner[1:]))
    else:
        np.stack(tensors, out=result.reshape(len(tensors)))
    return result


def pad(arrays: Any, shape: tuple[int, ...], places: Any, value: Array) -> Array:
    """Arrays of one dtype in one of `shape`, each in its place, and a value elsewhere.

    Args:
        arrays: Those; or one in which they are, one after the other.
        shape: The shape of the whole.
        places: Where each lies; or a mask of where they lie.
        value: What is elsewhere.
    """
    result = memory.compact(shape, value.dtype)
    result[...] = value
    if isinstance(places, np.ndarray):
        result[places] = arrays if isinstance(arrays, np.ndarray) else np.concatenate(arrays)
        return result
    for row, place, array in zip(result, places, arrays, strict=True):
        row[place] = array
    return result
