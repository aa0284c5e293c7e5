"""Dates and durations: counts of a unit, which become integers if an integer dtype is named."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns.column import ColumnCode
from .column import Column, Refused
from .layouts import DATES, are_integers
from .pieces import Missing, Piece

if TYPE_CHECKING:
    from ..typing import Array
    from .column import Found

__all__ = ["are_dates", "counts_of", "dates_in", "unit_of"]

_UNITS = {
    "Y": "years",
    "M": "months",
    "W": "weeks",
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "ps": "picoseconds",
    "fs": "femtoseconds",
    "as": "attoseconds",
    "generic": "units that are not named",
}


def are_dates(dtype: object) -> bool:
    """Whether it is a dtype of NumPy for dates or durations."""
    return isinstance(dtype, np.dtype) and dtype.kind in "mM"


def unit_of(dtype: np.dtype[Any]) -> str:
    """What the integers of NumPy's dates and durations count."""
    unit, step = np.datetime_data(dtype)
    if step == 1:
        counted = _UNITS[unit]
    else:
        counted = f"steps of {step} {_UNITS[unit]}"
    if dtype.kind == "M":
        return f"{counted} since 1970"
    return counted


def dates_in(array: Array, asked: str | None) -> Found:
    """What an array of NumPy's dates or durations with one axis or more holds.

    Args:
        array: The array.
        asked: The dtype that is named for it.
    """
    integers = array.view(np.dtype("i8").newbyteorder(array.dtype.byteorder))
    return counts_of(integers, np.isnat(array), unit_of(array.dtype), asked)


def counts_of(counts: Array, missing: Array, unit: str, asked: str | None) -> Found:
    """The counts of dates as a column; or that they are no numbers, if no integer dtype is named.

    Args:
        counts: The counts.
        missing: A mask that is true where a date is missing.
        unit: What they count.
        asked: The dtype that is named for them.
    """
    if not are_integers(asked):
        remark = ColumnCode(remark=f", which counts {unit}")
        return Refused(DATES, remark, stays=True, asked="int64", lacks=bool(missing.any()))
    inner = counts.shape[1:]
    marked = (Missing(missing.reshape(-1), prod(inner)),) if missing.any() else ()
    if len(counts):
        pieces = [Piece(len(counts), counts, marked)]
    else:
        pieces = []
    return Column("int64", inner, pieces, unit=unit, mutable=True)
