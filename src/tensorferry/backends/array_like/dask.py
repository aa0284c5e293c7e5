"""dask: arrays are computed when they are converted; tables must be computed by the user first."""

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
    """How to open a class of dask, or a subclass; ``None`` for others."""
    names = {base.__name__ for base in kind.__mro__}
    if "Array" in names:
        return KnownClass(_open, is_text)
    return KnownClass(_refuse) if names & {"DataFrame", "Series", "Index"} else None


def _open(x: Any, target: Any, request: Any) -> Opened:
    # Not through `__array__`, which drops a mask.
    return open_later(x, target, request, lambda x: from_array(x.compute(), "x.compute()"))


def _refuse(x: Any, _target: Any, _request: Any) -> Opened:
    raise UnsupportedTypeError(
        f"{an(type(x).__name__, 'A')} of dask is a computation that has not run.", "x.compute()"
    )
