"""NumPy: host arrays, the common currency, and the only place where host memory is packed and cast."""

from __future__ import annotations

from .tensors import NumpyBackend

__all__ = ["BACKEND"]

BACKEND = NumpyBackend()
