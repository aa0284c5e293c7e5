"""PyTorch: writable tensors with an autograd graph, on the host and on accelerators."""

from __future__ import annotations

from .tensors import TorchBackend

__all__ = ["BACKEND"]

BACKEND = TorchBackend()
