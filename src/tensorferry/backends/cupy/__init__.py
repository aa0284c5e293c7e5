"""CuPy: writable arrays in the memory of CUDA devices; there is none on the host."""

from __future__ import annotations

from .tensors import CupyBackend

__all__ = ["BACKEND"]

BACKEND = CupyBackend()
