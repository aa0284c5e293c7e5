"""NumPy's dtypes for the rows of the table of dtypes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..core.dtypes import DTYPES, ORDINARY

__all__ = ["NAMES", "by_numpy", "has_dates", "numpy_dtype", "of_numpy", "wide_float"]


class _Made(dict[str, np.dtype[Any]]):
    """NumPy's dtypes by canonical name."""

    def __missing__(self, name: str) -> np.dtype[Any]:
        # ml_dtypes is imported only when it is needed: it would make a first call a fifth slower.
        if DTYPES[name].name not in ORDINARY:
            _add_ml_dtypes()
        return self[name]


class _Names(dict[Any, str]):
    """The canonical names of NumPy's dtypes."""

    def __missing__(self, dtype: np.dtype[Any]) -> str:
        if len(self) > len(ORDINARY):
            raise KeyError(dtype)
        _add_ml_dtypes()
        return self[dtype]


_MADE = _Made({name: np.dtype(name) for name in ORDINARY})
numpy_dtype = _MADE.__getitem__
"""NumPy's dtype for a canonical name."""

NAMES = _Names({dtype: name for name, dtype in _MADE.items()})
"""The canonical name of each NumPy dtype in the machine's byte order.

Those of ml_dtypes are added when one is first looked up, except with `get`.
"""


def _add_ml_dtypes() -> None:
    import ml_dtypes

    for name in DTYPES:
        if name not in ORDINARY:
            _MADE[name] = np.dtype(getattr(ml_dtypes, name))
            NAMES[_MADE[name]] = name


def by_numpy() -> dict[Any, str]:
    """`NAMES` with those of ml_dtypes, which is imported."""
    numpy_dtype("bfloat16")
    return NAMES


def of_numpy(dtype: np.dtype[Any]) -> str | None:
    """The canonical name of a NumPy dtype in either byte order; ``None`` if it is not supported."""
    name = NAMES.get(dtype)
    if name is None and "ml_dtypes" in sys.modules and len(NAMES) == len(ORDINARY):
        _add_ml_dtypes()
        name = NAMES.get(dtype)
    if name is None and not dtype.isnative:
        name = NAMES.get(dtype.newbyteorder("="))
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
