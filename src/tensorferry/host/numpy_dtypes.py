"""NumPy's dtypes for the rows of the table of dtypes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..core.dtypes import DTYPES, ORDINARY

__all__ = ["by_numpy", "has_dates", "numpy_dtype", "of_numpy", "wide_float"]


class _Made(dict[str, np.dtype[Any]]):
    """NumPy's dtypes by canonical name."""

    def __missing__(self, name: str) -> np.dtype[Any]:
        # ml_dtypes is imported only when it is needed: it would make ``import tensorferry`` a third slower.
        if DTYPES[name].name in ORDINARY:
            return self.setdefault(name, np.dtype(name))
        import ml_dtypes

        return self.setdefault(name, np.dtype(getattr(ml_dtypes, name)))


numpy_dtype = _Made().__getitem__
"""NumPy's dtype for a canonical name."""


@cache
def by_numpy() -> dict[Any, str]:
    """The canonical name of each NumPy dtype in the machine's byte order."""
    return {numpy_dtype(name): name for name in DTYPES}


def of_numpy(dtype: np.dtype[Any]) -> str | None:
    """The canonical name of a NumPy dtype in either byte order; ``None`` if it is not supported."""
    name = by_numpy().get(dtype)
    if name is None and not dtype.isnative:
        name = by_numpy().get(dtype.newbyteorder("="))
    return name


def has_dates(x: object) -> bool:
    """Whether an object holds dates or durations, by its dtype."""
    try:
        dtype = getattr(x, "dtype", None)
    except Exception:  # noqa: BLE001 - what a class of another library raises
        return False
    return isinstance(dtype, np.dtype) and dtype.kind in "mM"


def wide_float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of NumPy that has all values of a float dtype."""
    return np.dtype(np.float64 if dtype.type is np.float64 else np.float32)
