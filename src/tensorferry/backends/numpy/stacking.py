"""Many arrays in one memory, aligned so that any target can adopt it: stacked, or filled up to one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import common, find, of_numpy
from ...host import casts, memory

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pad", "stack"]

Array = np.ndarray[Any, Any]


def stack(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Arrays of equal shapes as one of `shape`, of the dtype that holds all their values."""
    names = {of_numpy(dtype) or "" for dtype in {array.dtype for array in arrays}}
    inner = arrays[0].shape
    if len(names) > 1:
        result = memory.compact((len(arrays), *inner), find(common(names)).numpy)
        for index, array in enumerate(arrays):
            casts.copy_into(result[index : index + 1], array[np.newaxis])
        return result.reshape(shape)
    result = memory.compact(shape, find(names.pop()).numpy)
    if inner:
        # Not `np.stack`, which makes a view of each: where arrays are small, as much memory again.
        np.concatenate(arrays, out=result.reshape(len(arrays) * inner[0], *inner[1:]))
    else:
        np.stack(arrays, out=result.reshape(len(arrays)))
    return result


def pad(arrays: Sequence[Array], shape: tuple[int, ...], places: Sequence[Any], value: Array) -> Array:
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
