"""Objects of PyTorch that are no tensors, and yet can be told in plain values: dtypes, devices, layouts, sizes."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["plain_value", "value_of"]


def plain_value(x: Any) -> tuple[str, str | list[int]] | None:
    """The kind and the value of an object; ``None`` if it is none of these."""
    torch: Any = sys.modules["torch"]
    if isinstance(x, torch.Size):
        return "size", list(x)
    if isinstance(x, torch.device):
        return "device", str(x)
    kind = "dtype" if isinstance(x, torch.dtype) else "layout" if isinstance(x, torch.layout) else None
    return None if kind is None else (kind, str(x).removeprefix("torch."))


def value_of(kind: str, value: object) -> Any:
    """The object with this kind and value; ``None`` if this version of PyTorch has none."""
    torch: Any = sys.modules["torch"]
    if kind == "size" and isinstance(value, list) and all(type(each) is int for each in value):
        return torch.Size(value)
    if not isinstance(value, str):
        return None
    if kind == "device":
        try:
            return torch.device(value)
        except (RuntimeError, ValueError):
            return None
    # Not with `getattr`, by which a name in a file could import a module of PyTorch.
    found = vars(torch).get(value)
    return found if kind in ("dtype", "layout") and isinstance(found, getattr(torch, kind)) else None
