"""A module or folder for each file format.

`tensorferry.files.opening.paths` finds them in this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MODULES", "TABLES", "is_fragile", "is_fragile_folder"]

MODULES = {
    "bin": "pytorch",
    "ckpt": "pytorch",
    "pt": "pytorch",
    "pth": "pytorch",
    "pkl": "pickle",
    "pickle": "pickle",
    "joblib": "pickle",
}
"""The usual module for a suffix, if it has another name.

It is tried before the others are imported.
"""
TABLES = ("arrow", "parquet")
"""Those in the folder `tables`, which stands above this one."""


def is_fragile(name: str, head: bytes) -> bool:
    """Whether a damaged file may end the process: its library (HDF5) does not notice damage.

    Args:
        name: The file's name.
        head: Its first bytes.
    """
    if head.startswith(b"\x89HDF"):
        return True
    # Archives of Keras, by the name of their first member.
    inner = name.lower().endswith(".keras") or head[30:].startswith(
        (b"metadata.json", b"config.json")
    )
    return inner and head.startswith(b"PK\3\4")


def is_fragile_folder(path: Path) -> bool:
    """Whether a damaged folder may end the process: tensorstore reads a database in it.

    A database is in the folder itself, or in an item of a step.
    """
    name = "manifest.ocdbt"
    return (path / name).is_file() or (
        (path / "_CHECKPOINT_METADATA").is_file() and any(path.glob(f"*/{name}"))
    )
