"""Masked arrays: whether an array is one, and whether a value in it is masked."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["has_masked", "is_masked_array"]


def is_masked_array(x: object) -> bool:
    """Whether it is a `numpy.ma.MaskedArray`.

    NumPy imports `numpy.ma` only when it is used, which takes 10 ms. Before that there are no
    masked arrays.
    """
    return (
        type(x) is not np.ndarray and "numpy.ma" in sys.modules and isinstance(x, np.ma.MaskedArray)
    )


def has_masked(x: Any) -> bool:
    """Whether an element, or a field of an element, is masked."""
    return is_masked_array(x) and _has_masked(np.ma.getmask(x))


def _has_masked(mask: Any) -> bool:
    if mask.dtype.names is None:
        return bool(mask.any())
    return any(_has_masked(mask[name]) for name in mask.dtype.names)
