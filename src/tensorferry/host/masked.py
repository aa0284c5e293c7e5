"""Masked arrays: whether an array is one, and whether anything in it is masked."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["has_masked", "is_masked_array"]


def is_masked_array(x: object) -> bool:
    """Whether it is a `numpy.ma.MaskedArray`.

    NumPy loads `numpy.ma`, 10 ms, where its name is first used; until then there is none of its arrays.
    """
    return type(x) is not np.ndarray and "numpy.ma" in sys.modules and isinstance(x, np.ma.MaskedArray)


def has_masked(x: Any) -> bool:
    """Whether an element of it, or a field of one, is masked."""
    return is_masked_array(x) and _any(np.ma.getmask(x))


def _any(mask: Any) -> bool:
    if mask.dtype.names is None:
        return bool(mask.any())
    return any(_any(mask[name]) for name in mask.dtype.names)
