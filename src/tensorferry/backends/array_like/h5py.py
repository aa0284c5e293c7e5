"""h5py: datasets are read from their file at each access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...columns.column import TEXT
from ...errors import UnsupportedTypeError
from .chunked import is_text, open_later
from .libraries import KnownClass

if TYPE_CHECKING:
    from .libraries import Opened

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """How to open a class of h5py, or a subclass; ``None`` for others."""
    import h5py

    return KnownClass(_open, _is_text) if issubclass(kind, h5py.Dataset) else None


def _open(x: Any, target: Any, request: Any) -> Opened:
    if _is_text(x):
        raise UnsupportedTypeError(
            f"This Dataset {TEXT}.",
            "np.unique(x.asstr()[()], return_inverse=True)[1], which numbers the words",
        )
    return open_later(x, target, request)


def _is_text(x: Any) -> bool:
    import h5py

    return is_text(x) or h5py.check_string_dtype(x.dtype) is not None
