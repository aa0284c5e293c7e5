"""What ``import tensorferry``, and the first call, add to the frameworks' imports, each time in a fresh interpreter."""

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
            # As for an installed package, the bytecode is there: the first, uncounted, run writes
            # it.
            environment = {
                **os.environ,
                "PYTHONPYCACHEPREFIX": folder,
                "PYTHONDONTWRITEBYTECODE": "",
            }
            times = [_once(environment) for _ in range(ROUNDS + 1)][1:]
        ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
        yield Measured(
            "import tensorferry, after import numpy / import numpy",
            ours,
            theirs,
            Target(total=15e-3),
        )


_FIRST = """
import time
import numpy as np, torch
import gc
t, a = torch.ones(3), np.ones(3)
gc.disable()  # a collection is due after the import of PyTorch, and would fall at random
start = time.perf_counter()
import tensorferry as ferry
str(ferry.{call})
print(time.perf_counter() - start)
"""
_NINE = """
import gc, time
gc.disable()
start = time.perf_counter()
import asyncio, unittest, http.client, email.mime.text, xml.etree.ElementTree
import sqlite3, decimal, argparse, logging.config
print(time.perf_counter() - start)
"""
"""Modules of the standard library, whose import is a measure of the machine."""
_FILE = "import torch; from safetensors.torch import save_file; save_file({'w': torch.ones(3)}, 'a.safetensors')"
_ONE, _MANY = 0.32, 0.48
_CALLS = {
    "to_numpy(t)": _ONE,
    "to_torch(a)": _ONE,
    "to_torch([1.0, 2.0])": _ONE,
    'convert(t, "numpy", dtype="float16")': _ONE,
    'explain(t, "numpy")': _ONE,
    'convert_tree({"a": t}, "numpy")': _MANY,
    'collate([{"a": t, "y": 1}] * 2, "torch")': _MANY,
    'load("a.safetensors", to="torch")': _MANY,
}


class _FirstCall:
    title = f"Import and first call, after import numpy and torch, best of {ROUNDS} interpreters"

    def rows(self) -> Iterator[Measured]:
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                **os.environ,
                "PYTHONPYCACHEPREFIX": folder,
                "PYTHONDONTWRITEBYTECODE": "",
            }
            _ran(_FILE, environment, folder)
            for call, limit in _CALLS.items():
                pair = _FIRST.format(call=call), _NINE
                # One after the other, so that both meet the same machine. The first, uncounted,
                # writes the bytecode.
                times = [
                    [float(_ran(each, environment, folder)) for each in pair]
                    for _ in range(ROUNDS + 1)
                ][1:]
                ours, theirs = map(list, zip(*times, strict=True))
                yield Measured.of(
                    f"first {call} / import of nine modules", (ours, theirs), Target(ratio=limit)
                )


def _ran(script: str, environment: dict[str, str], folder: str) -> str:
    """What a script prints, in a new interpreter."""
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    return ran.stdout


def _once(environment: dict[str, str]) -> tuple[float, float]:
    ours, theirs = _ran(_SCRIPT, environment, tempfile.gettempdir()).split()
    return float(ours), float(theirs)


SECTIONS = (_Import(), _FirstCall())
