"""One module for each file format; `tensorferry.files.registry` finds them by looking into this folder."""

from __future__ import annotations

__all__ = ["MODULES", "is_fragile"]

MODULES = {
    "bin": "pytorch",
    "ckpt": "pytorch",
    "pt": "pytorch",
    "pth": "pytorch",
    "pkl": "pickle",
    "pickle": "pickle",
    "joblib": "pickle",
}
"""The module that most often reads a suffix, where it is not named so: it is asked before the others are imported."""


def is_fragile(name: str, head: bytes) -> bool:
    """Whether the library that reads a file, HDF5's, may end the process over damage that it does not see.

    Args:
        name: The file's name.
        head: Its first bytes.
    """
    if head.startswith(b"\x89HDF"):
        return True
    # Keras's archives, whose first member is named so.
    inner = name.lower().endswith(".keras") or head[30:].startswith((b"metadata.json", b"config.json"))
    return inner and head.startswith(b"PK\3\4")
