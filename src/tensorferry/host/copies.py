"""Copy many arrays into one, with several threads if there is much to copy."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .memory import MAPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..typing import Array

__all__ = ["gather", "processors"]

_MOST = 4
"""The most threads that copy at the same time. A few use all the bandwidth of memory."""


def processors() -> int:
    """The number of processors on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gather(rows: Sequence[Array], out: Array) -> None:
    """Copy arrays of one axis into the rows of another array of the same dtype.

    One thread does not use all the bandwidth of memory, and waits while the system gives new memory
    page by page. So from `memory.MAPPED` bytes on several threads copy, because NumPy releases the
    interpreter's lock.

    >>> import numpy as np
    >>> result = np.empty((2, 3))
    >>> gather([np.ones(3), np.zeros(3)], result)
    >>> result.tolist()
    [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]

    Args:
        rows: The arrays.
        out: The array that is written, C-contiguous, which no other code uses meanwhile.
    """
    threads = min(_MOST, len(rows), processors()) if out.nbytes >= MAPPED else 1
    if threads < 2:
        _copy(rows, out)
        return
    from concurrent.futures import (
        ThreadPoolExecutor,
    )  # here, because it imports logging, which takes long

    ends = [len(rows) * share // threads for share in range(threads + 1)]
    parts = [slice(start, end) for start, end in pairwise(ends)]
    with ThreadPoolExecutor(threads - 1, thread_name_prefix="tensorferry") as others:
        try:
            copies = [others.submit(_copy, rows[part], out[part]) for part in parts[1:]]
        except (
            RuntimeError
        ):  # no thread can be started: the interpreter is ending, or the system has no more
            copies, parts = [], [slice(None)]
        _copy(rows[parts[0]], out[parts[0]])
        for each in copies:
            each.result()


def _copy(rows: Sequence[Array], out: Array) -> None:
    np.concatenate(rows, out=out.reshape(-1))
