"""TensorFlow: immutable eager tensors, and variables whose value is such a tensor."""

from __future__ import annotations

from .tensors import TensorflowBackend

__all__ = ["BACKEND"]

BACKEND = TensorflowBackend()
