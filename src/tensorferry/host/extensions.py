"""Find the modules that are written in C.

Each is optional: without it the same is done in Python, more slowly.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["c_extension"]


def c_extension(name: str) -> ModuleType | None:
    """A module in C; ``None`` if it was not built, or if ``TENSORFERRY_NO_EXTENSION`` is set.

    Args:
        name: Its name within tensorferry.
    """
    if os.environ.get("TENSORFERRY_NO_EXTENSION", "0") not in ("", "0"):
        return None
    try:
        return import_module(f"tensorferry.{name}")
    except ImportError:
        return None
