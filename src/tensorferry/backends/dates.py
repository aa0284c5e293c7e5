"""Arrays and scalars of dates and durations, of NumPy and libraries with its dtypes, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import hints
from ..columns.dates import dates_in
from ..errors import UnsupportedTypeError
from ..hints import Hint
from ..host.masked import has_masked
from .opening import TableContents

__all__ = ["dates_of"]


def dates_of(x: Any, asked: str | None) -> TableContents:
    """Dates as a column. They become integers if `asked` is an integer dtype.

    Raises:
        UnsupportedTypeError: It has masked elements.
    """
    array = np.asanyarray(x)
    if has_masked(array):
        raise UnsupportedTypeError(
            f"This {type(x).__name__} is values and a mask, and its mask would be lost.",
            Hint(hints.code("x.filled(0)"), ", or another value"),
        )
    array = np.asarray(array)
    found = dates_in(array.reshape(1) if array.ndim == 0 else array, asked)
    return TableContents(type(x).__name__, None, found, is_one=array.ndim == 0)
