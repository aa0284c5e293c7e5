"""Peak memory of one conversion, in a process of its own: never more than source and result."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from .case import Measured, Target, Unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SECTIONS"]

SLACK = Target(ratio=1.02)
"""Allocators round up, and a thread's stack or a table is touched for the first time."""

_IMPORTS = {
    "np.": "import numpy as np",
    "torch": "import torch",
    "tensorflow": "import tensorflow as tf",
    "j": "import jax.numpy as jnp",
}

# VmHWM is the high-water mark of resident memory since "5" was written to clear_refs (man 5 proc).
_SCRIPT = """
import gc
import tensorferry as ferry
{imports}

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

def source(count):
    return {source}

def convert(x):
    return {convert}

for _ in range(2):
    warm = convert(source(1000))
del warm
gc.collect()
before = status("VmRSS")
x = source({count})
between = status("VmRSS")
with open("/proc/self/clear_refs", "w") as marks:
    marks.write("5")
y = convert(x)
print(status("VmHWM") - before, between - before)
"""


class _Footprint(NamedTuple):
    """A conversion, the source that it starts from, and the bytes of its result."""

    convert: str
    source: str
    count: int
    result: int
    target: Target = SLACK

    @property
    def name(self) -> str:
        return f"{self.convert.replace('ferry.', '')}, x = {self.source.replace('count', f'{self.count:_}')}"


_FLOATS = "[float(i) for i in range(count)]"

_CASES = (
    _Footprint("ferry.to_numpy(x)", "torch.ones(count)", 100_000_000, 0),
    _Footprint(
        "ferry.to_numpy(x, copy=True)", 'np.ones(count, "float32")', 100_000_000, 400_000_000
    ),
    _Footprint(
        "ferry.to_torch(x, copy=True)", 'np.ones(count, "float32")', 100_000_000, 400_000_000
    ),
    _Footprint("ferry.to_tensorflow(x)", 'np.ones(count, "float32")', 100_000_000, 400_000_000),
    _Footprint("ferry.to_jax(x)", 'np.ones(count, "float32")', 100_000_000, 400_000_000),
    _Footprint("ferry.to_torch(x)", "jnp.ones(count)", 100_000_000, 400_000_000),
    _Footprint(
        "ferry.to_tensorflow(x)",
        'np.ones((count // 1000, 1000), "float32").T',
        100_000_000,
        400_000_000,
    ),
    _Footprint(
        "ferry.to_jax(x)", 'np.ones((count // 1000, 1000), "float32").T', 100_000_000, 400_000_000
    ),
    _Footprint('ferry.to_jax(x, dtype="float32")', "np.ones(count)", 50_000_000, 200_000_000),
    _Footprint(
        'ferry.to_torch(x, dtype="int32")', 'np.ones(count, "int64")', 50_000_000, 200_000_000
    ),
    _Footprint(
        'ferry.to_torch(x, dtype="bfloat16")', "torch.ones(count)", 100_000_000, 200_000_000
    ),
    _Footprint(
        "ferry.to_torch(x)",
        "list(np.ones((count // 1000, 1000), 'float32'))",
        100_000_000,
        400_000_000,
    ),
    _Footprint("ferry.to_jax(x[::-1])", 'np.ones(count, "float32")', 100_000_000, 400_000_000),
    _Footprint(
        "ferry.to_numpy(x, copy=True)",
        'np.ones((count // 1000, 1000), "float32").T',
        100_000_000,
        400_000_000,
    ),
    _Footprint("ferry.to_tensorflow(x)", 'np.ones(count, ">f4")', 100_000_000, 400_000_000),
    _Footprint(
        'ferry.to_jax(x, dtype="float32")', 'np.ones(count, "float16")', 100_000_000, 400_000_000
    ),
    _Footprint(
        'ferry.to_tensorflow(x, dtype="int32")',
        'np.ones(count, "float32")',
        100_000_000,
        400_000_000,
    ),
    _Footprint(
        'ferry.to_jax(x, dtype="bfloat16")',
        'np.ones((count // 1000, 1000), "float32").T',
        100_000_000,
        200_000_000,
    ),
    _Footprint(
        'ferry.to_tensorflow(x, dtype="float8_e4m3fn")',
        'np.ones(count, "float32")',
        100_000_000,
        100_000_000,
    ),
    # A view of each would be ten times the result; a look at each takes some bytes.
    _Footprint(
        "ferry.to_torch(x)",
        'list(np.ones((count, 4), "float32"))',
        200_000,
        3_200_000,
        Target(extra=12 * 2**20),
    ),
    _Footprint("ferry.to_numpy(x)", _FLOATS, 10_000_000, 80_000_000),
    _Footprint("ferry.to_torch(x)", _FLOATS, 10_000_000, 40_000_000),
    _Footprint("ferry.to_tensorflow(x)", _FLOATS, 10_000_000, 40_000_000),
    _Footprint("ferry.to_jax(x)", _FLOATS, 10_000_000, 40_000_000),
    # Pointers to the same numbers; to new ones, of 32 bytes each in their places, where the dtype
    # is another.
    _Footprint("ferry.to_list(x)", _FLOATS, 5_000_000, 40_000_000),
    _Footprint(
        "ferry.to_list(x)",
        "[list(range(count // 2)), [0.5] * (count // 2)]",
        5_000_000,
        120_000_000,
    ),
    _Footprint('ferry.to_list(x, dtype="float32")', _FLOATS, 5_000_000, 200_000_000),
    # What is given counts as source: the result is there before it is written.
    _Footprint(
        "ferry.to_numpy(x[0], out=x[1])", f'({_FLOATS}, np.ones(count, "float32"))', 10_000_000, 0
    ),
    _Footprint("ferry.to_torch(x[0], out=x[1])", f"({_FLOATS}, torch.ones(count))", 10_000_000, 0),
)


class _Peak:
    title = "Peak memory of a process, over source + result (theirs)"

    def rows(self) -> Iterator[Measured | Unmeasured]:
        for case in _CASES:
            if sys.platform != "linux":
                yield Unmeasured(case.name, case.target, "reads /proc, which only Linux has", "B")
                continue
            yield _measure(case)


def _measure(case: _Footprint) -> Measured | Unmeasured:
    code = case.convert + case.source
    needed = {line for word, line in _IMPORTS.items() if word in code}
    script = _SCRIPT.format(
        imports="\n".join(sorted(needed)),
        source=case.source,
        convert=case.convert,
        count=case.count,
    )
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    if ran.returncode:
        return Unmeasured(case.name, case.target, ran.stderr.strip().rpartition("\n")[2], "B")
    peak, source = map(int, ran.stdout.split())
    return Measured(case.name, peak, source + case.result, case.target, "B")


_KEPT = """
import gc
import numpy as np, torch, tensorflow as tf, jax.numpy as jnp, tensorferry as ferry
from concurrent.futures import ThreadPoolExecutor

def resident():
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * 4096

array = np.ones(1 << 14, np.float32)
sources = [array, torch.ones(1 << 14), tf.constant(array), jnp.array(array)]
targets = ("numpy", "torch", "tensorflow", "jax")

def worker(offset):
    for index in range(10_000 // 8):
        ferry.convert(sources[(index + offset) % 4], targets[index % 4], **{keywords})

def all_at_once():
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(worker, range(8)))
    gc.collect()
    return resident()

before = all_at_once()
print(all_at_once() - before)
"""


class _Kept:
    title = "What 10,000 conversions of 64 KiB from eight threads leave in a process (theirs: one result in a hundred)"
    target = Target(total=4 * 2**20)

    def rows(self) -> Iterator[Measured | Unmeasured]:
        for keywords in (
            {},
            {"copy": True},
            {"casting": "unsafe"},
            {"casting": "unsafe", "copy": True},
        ):
            name = f"convert(x, target, {', '.join(f'{key}={value!r}' for key, value in keywords.items()) or '…'})"
            if sys.platform != "linux":
                yield Unmeasured(name, self.target, "reads /proc, which only Linux has", "B")
                continue
            ran = subprocess.run(  # noqa: S603
                [sys.executable, "-c", _KEPT.format(keywords=keywords)],
                check=False,
                capture_output=True,
                text=True,
            )
            if ran.returncode:
                yield Unmeasured(name, self.target, ran.stderr.strip().rpartition("\n")[2], "B")
                continue
            yield Measured(name, max(int(ran.stdout), 1000), 100 * 2**16, self.target, "B")


SECTIONS = (_Peak(), _Kept())
