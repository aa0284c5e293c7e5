"""Stack or pad many arrays into a new one, aligned so that any target can adopt it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import common
from ...host import casts, memory
from ...host.numpy_dtypes import numpy_dtype, of_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...typing import Array

__all__ = ["pad", "stack"]


def stack(tensors: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Stack arrays of equal shapes into one of `shape`, in the dtype that has all their values."""
    names = {of_numpy(dtype) or "" for dtype in {array.dtype for array in tensors}}
    inner = tensors[0].shape
    if len(names) > 1:
        result = memory.compact((len(tensors), *inner), numpy_dtype(common(names)))
        for index, array in enumerate(tensors):
            casts.copy_into(result[index : index + 1], array[np.newaxis])
        return result.reshape(shape)
    result = memory.compact(shape, numpy_dtype(names.pop()))
    if inner:
        # Not `np.stack`, which makes a view of each array. For small arrays, that doubles the
        # memory.
        np.concatenate(tensors, out=result.reshape(len(tensors) * inner[0], *inner[1:]))
    else:
        np.stack(tensors, out=result.reshape(len(tensors)))
    return result


def pad(arrays: Any, shape: tuple[int, ...], places: Any, value: Array) -> Array:
    """Put arrays of one dtype into a new array of `shape`, with a value in all other places.

    Args:
        arrays: The arrays; or one array with the elements of all, one after the other.
        shape: The shape of the result.
        places: The index of each array; or a mask that is true for their elements.
        value: The value for all other elements.
    """
    result = memory.compact(shape, value.dtype)
    result[...] = value
    if isinstance(places, np.ndarray):
        result[places] = arrays if isinstance(arrays, np.ndarray) else np.concatenate(arrays)
        return result
    # Lists of tensors may be nested, and then several axes count the arrays.
    inner = shape[len(shape) - np.ndim(arrays[0]) :] or (1,)
    rows = result.reshape(len(places), *inner)
    for row, place, array in zip(rows, places, arrays, strict=True):
        row[place] = array
    return result
