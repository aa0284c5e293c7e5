"""One module for each file format; `tensorferry.files.registry` finds them by looking into this folder."""

from __future__ import annotations

__all__ = ["MODULES"]

MODULES = {"bin": "pytorch", "ckpt": "pytorch", "pt": "pytorch", "pth": "pytorch"}
"""The module that most often reads a suffix, where it is not named so: it is asked before the others are imported."""
