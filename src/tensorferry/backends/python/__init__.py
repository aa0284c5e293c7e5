"""Python: numbers, nested sequences of numbers or tensors, and typed buffers."""

from __future__ import annotations

from .tensors import PythonBackend

__all__ = ["BACKEND"]

BACKEND = PythonBackend()
