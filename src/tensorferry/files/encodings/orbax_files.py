"""Which files of a folder are an Orbax checkpoint's, by their names.

The layout: https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_own"]

_DATABASE = r"manifest\.ocdbt|d/[0-9a-f]+"
_TREE = re.compile(
    r"_METADATA|_CHECKPOINT_METADATA|_strings\.json|_sharding|commit_success\.txt|array_metadatas/process_\d+"
    rf"|{_DATABASE}|ocdbt\.process_\d+/(?:{_DATABASE})"
)
_ARRAY = re.compile(r"\.zarray|\.zattrs|zarr\.json|c|(?:c[/.])?\d+(?:[/.]\d+)*")


def is_own(folder: Path, inner: str) -> bool:
    """Whether a file is of the checkpoint: of its tree, or of the tree in an item of a step.

    Args:
        folder: The checkpoint.
        inner: The file's path from there.
    """
    item, _, below = inner.partition("/")
    if below and (folder / item / "_METADATA").is_file():
        return _is_of_tree(folder / item, below)
    return _is_of_tree(folder, inner)


def _is_of_tree(folder: Path, inner: str) -> bool:
    array, _, below = inner.partition("/")
    is_array = any((folder / array / name).is_file() for name in (".zarray", "zarr.json"))
    return bool(_TREE.fullmatch(inner) or (is_array and _ARRAY.fullmatch(below)))
