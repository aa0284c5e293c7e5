"""dask: arrays are computed when they are read; tables have to be computed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedTypeError, an
from .chunked import is_text, open_later
from .libraries import KnownClass
from .protocols import from_array

if TYPE_CHECKING:
    from .libraries import Opened

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """What is known of a class of dask's, or of one that is derived from it."""
    names = {base.__name__ for base in kind.__mro__}
    if "Array" in names:
        return KnownClass(_open, is_text)
    return KnownClass(_refuse) if names & {"DataFrame", "Series", "Index"} else None


def _open(x: Any, target: Any, request: Any) -> Opened:
    # Its `__array__` drops a mask.
    return open_later(x, target, request, lambda x: from_array(x.compute(), "x.compute()"))


def _refuse(x: Any, _target: Any, _request: Any) -> Opened:
    raise UnsupportedTypeError(f"{an(type(x).__name__, 'A')} of dask is a computation that has not run.", "x.compute()")
