"""Objects of other libraries: by the protocols that they offer, or by what is known of their library."""

from __future__ import annotations

from .objects import ArrayLikeBackend

__all__ = ["BACKEND"]

BACKEND = ArrayLikeBackend()
