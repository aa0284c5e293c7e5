"""zarr: arrays are read from their store each time."""

from __future__ import annotations

from .chunked import is_text, open_later
from .libraries import KnownClass

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """What is known of a class of zarr's, or of one that is derived from it."""
    import zarr

    return KnownClass(open_later, is_text) if issubclass(kind, zarr.Array) else None
