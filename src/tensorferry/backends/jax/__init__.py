"""JAX: immutable arrays, 64-bit dtypes only when they are switched on."""

from __future__ import annotations

from .tensors import JaxBackend

__all__ = ["BACKEND"]

BACKEND = JaxBackend()
