"""Recognise files that are a pickle, by their first bytes and their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LEGACY", "PICKLES", "is_pickle"]

LEGACY = re.compile(
    rb"\x80[\2-\5](?:\x95.{8})?\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", re.DOTALL
)
"""The beginning of PyTorch's files before version 1.6: a pickled number (torch/serialization.py, MAGIC_NUMBER)."""
PICKLES = (".pkl", ".pickle", ".p", ".joblib")
_MAY_BE = (*PICKLES, ".pt", ".pth", ".bin", ".ckpt")
_PICKLED = re.compile(rb"\x80[\2-\5]")
_PICKLED_AS_TEXT = re.compile(
    rb"\([dl]p\d+\n|c[\w.]+\n\w+\n|[}\])]q\0|\((?:[FILSV].*\n|[BGJKMNTUX\]}])", re.DOTALL
)
"""The beginning of a container in protocols 0 and 1, which have no mark.

It counts only together with a suffix.
"""


def is_pickle(path: Path, head: bytes) -> bool:
    """Whether a file looks like a pickle, by its first bytes and its name."""
    return bool(
        _PICKLED.match(head)
        or (path.name.lower().endswith(_MAY_BE) and _PICKLED_AS_TEXT.match(head))
    )
