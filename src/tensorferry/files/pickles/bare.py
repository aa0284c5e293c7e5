"""Pickles that stand alone in a file, as `pickle.dump` writes them: they are recognised, and not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...errors import FileFormatError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bare_pickle", "is_pickle"]


def bare_pickle(path: Path) -> FileFormatError:
    """The error for what `pickle.dump` wrote."""
    return FileFormatError(
        f"{path} is a bare pickle, as pickle.dump writes it: it cannot be read without running it.",
        "where it can be trusted, in Python: import pathlib, pickle; import tensorferry as ferry; "
        f"ferry.save(pickle.loads(pathlib.Path({str(path)!r}).read_bytes()), "
        f"{str(path.with_suffix('.safetensors'))!r})",
    )


_PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth", ".bin", ".ckpt")
_PICKLED = re.compile(rb"\x80[\2-\5]")
_PICKLED_AS_TEXT = re.compile(rb"\([dl]p\d+\n|c[\w.]+\n\w+\n|[}\])]q\0|\((?:[FILSV].*\n|[BGJKMNTUX\]}])", re.DOTALL)
"""Protocols 0 and 1 have no mark: how a container begins in them, which is not enough without a suffix."""


def is_pickle(path: Path, head: bytes) -> bool:
    """Whether a file that no format knows looks like such a pickle, by its first bytes and its name."""
    named = path.name.lower().endswith(_PICKLES)
    return bool(_PICKLED.match(head) or (named and _PICKLED_AS_TEXT.match(head)))
