"""What ``import tensorferry`` adds to ``import numpy``, each time in a fresh interpreter."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from .case import Measured, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SECTIONS"]

ROUNDS = 15

_SCRIPT = """
from time import perf_counter
start = perf_counter()
import numpy
middle = perf_counter()
import tensorferry
end = perf_counter()
print(end - middle, middle - start)
"""


class _Import:
    title = f"Import, median of {ROUNDS} interpreters"

    def rows(self) -> Iterator[Measured]:
        with tempfile.TemporaryDirectory() as folder:
            # As for an installed package, the bytecode is there: the first, uncounted, run writes it.
            environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
            times = [_once(environment) for _ in range(ROUNDS + 1)][1:]
        ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
        yield Measured("import tensorferry, after import numpy / import numpy", ours, theirs, Target(total=15e-3))


def _once(environment: dict[str, str]) -> tuple[float, float]:
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True, env=environment
    )
    ours, theirs = ran.stdout.split()
    return float(ours), float(theirs)


SECTIONS = (_Import(),)
