"""Pickles that stand alone in a file, as `pickle.dump` writes them: they are recognised, and not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...errors import FileFormatError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bare_pickle", "is_pickle"]


def bare_pickle(path: Path) -> FileFormatError:
    """The error for what `pickle.dump`, or joblib, wrote."""
    with path.open("rb") as file:
        is_joblib = path.name.lower().endswith(_JOBLIB) or b"joblib" in file.read(1 << 16)
    what, module, loaded = "a bare pickle, as pickle.dump writes it", "pathlib, pickle", "pickle.loads({}.read_bytes())"
    if is_joblib:
        what, module, loaded = "a pickle of joblib's", "joblib, pathlib", "joblib.load({})"
    loaded = loaded.format(f"pathlib.Path({str(path)!r})")
    return FileFormatError(
        f"{path} is {what}: it cannot be read without running it.",
        f"where it can be trusted, in Python: import {module}; import tensorferry as ferry; "
        f"ferry.save({loaded}, {str(path.with_suffix('.safetensors'))!r})",
    )


_JOBLIB = (".joblib", ".joblib.gz", ".joblib.z", ".joblib.bz2", ".joblib.xz", ".joblib.lzma", ".joblib.lz4")
_PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth", ".bin", ".ckpt")
_PICKLED = re.compile(rb"\x80[\2-\5]")
_PICKLED_AS_TEXT = re.compile(rb"\([dl]p\d+\n|c[\w.]+\n\w+\n|[}\])]q\0|\((?:[FILSV].*\n|[BGJKMNTUX\]}])", re.DOTALL)
"""Protocols 0 and 1 have no mark: how a container begins in them, which is not enough without a suffix."""


def is_pickle(path: Path, head: bytes) -> bool:
    """Whether a file that no format knows looks like such a pickle, by its first bytes and its name."""
    named = path.name.lower().endswith(_PICKLES)
    pickled = _PICKLED.match(head) or (named and _PICKLED_AS_TEXT.match(head))
    return bool(pickled) or path.name.lower().endswith(_JOBLIB)
