"""zarr: arrays are read from their store at each access."""

from __future__ import annotations

from .chunked import is_text, open_later
from .libraries import KnownClass

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """How to open a class of zarr, or a subclass; ``None`` for others."""
    import zarr

    return KnownClass(open_later, is_text) if issubclass(kind, zarr.Array) else None
