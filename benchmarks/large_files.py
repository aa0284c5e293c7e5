"""Files of 1, 4 and 16 GiB, each conversion in a process of its own: what it takes beside what it had."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .case import Measured, Unmeasured
from .files import FERRY, MEMORY, PT_TO_SAFETENSORS, VERIFIED, Line, measure, why_not, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SECTIONS"]

_FORMATS = {"pt": "pytorch", "safetensors": "safetensors", "npz": "npz"}
_WAYS = {
    "as it is": "",
    "with a cast": ', dtype="bfloat16", overflow="saturate"',
    "verified": ", verify=True",
}
_ALL = "FERRY_BENCH_LARGE_FILES"
_WHY = f"takes half an hour and 36 GB of disk: {_ALL}=1"


class _Peaks:
    def __init__(self, gib: int) -> None:
        self.gib = gib
        self.title = (
            f"Files of {gib} GiB among .pt, .safetensors and .npz: the most a conversion takes"
        )

    def rows(self) -> Iterator[Measured | Unmeasured]:
        why = why_not() or (_WHY if self.gib > 1 and not os.environ.get(_ALL) else None)
        names = [f"{self.gib} GiB, {way}: the most of nine, extra resident" for way in _WAYS]
        if why is not None:
            yield from (Unmeasured(name, MEMORY, why, "B") for name in names)
            return
        peaks: dict[str, list[int]] = {way: [] for way in _WAYS}
        with workplace() as folder:
            for source in _FORMATS:
                Line(_made(self.gib, source), "import numpy as np").run(folder)
                os.sync()
                for way, keywords in _WAYS.items():
                    for target in _FORMATS:
                        peaks[way].append(_peak(folder, source, target, keywords))
                if source == "pt" and self.gib == 4:
                    for pair in (PT_TO_SAFETENSORS, VERIFIED):
                        yield from measure(pair._replace(name=f"4 GiB: {pair.name}"), folder)
                (folder / f"model.{source}").unlink()
        for name, way in zip(names, _WAYS, strict=True):
            yield Measured(name, max(*peaks[way], 1000), 0, MEMORY, "B")


def _made(gib: int, suffix: str) -> str:
    """A file of so many bytes of random float32, in tensors of several sizes, written without all of it in memory."""
    lengths = [gib << 26] * 2 + [1 << 20] * (gib << 7)
    return f"""
lengths = {lengths!r}
import tensorferry as ferry, tempfile, os, mmap
spare = open("spare", "w+b")
spare.truncate(4 * sum(lengths))
block = np.random.default_rng(0).standard_normal(1 << 22, dtype=np.float32).tobytes()
for _ in range(4 * sum(lengths) // len(block)):
    spare.write(block)
spare.flush()
whole = np.memmap("spare", np.float32, "r")
ends = np.cumsum([0, *lengths])
ferry.save({{f"layer.{{i}}": whole[ends[i] : ends[i + 1]] for i in range(len(lengths))}}, "model.{suffix}")
os.unlink("spare")
"""


def _peak(folder: Path, source: str, target: str, keywords: str) -> int:
    (folder / "out").unlink(missing_ok=True)
    line = Line(
        f'ferry.convert_files("model.{source}", "out", to="{_FORMATS[target]}"{keywords})', FERRY
    )
    return line.run(folder).resident


SECTIONS = (_Peaks(1), _Peaks(4), _Peaks(16))
