"""Whether `prefetch` hides the copy: a loop's step against the longer of the copy and the computation alone."""

from __future__ import annotations

import statistics
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

import tensorferry as ferry

from .case import Case, Measured, Section, Target, Unmeasured
from .gpu import accelerator, no_gpu
from .small import modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SECTIONS"]

STEPS = 40
ROUNDS = 5
COPY = 0.02
"""Seconds that the simulated device takes for a copy."""
TARGET = Target(ratio=1.05)


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))


def _loop(batches: Any, compute: Callable[[Any], Any], finish: Callable[[], None]) -> float:
    """Seconds for one step of a loop that never waits on the host but at its end."""
    start = perf_counter()
    count = 0
    for batch in batches:
        compute(batch)
        count += 1
    finish()
    return (perf_counter() - start) / count


class _Simulated:
    title = "Prefetch, simulated device (copies and computation are sleeps)"

    def rows(self) -> Iterator[Measured]:
        from tests import simulated

        # Sleeps that are long beside what a shared machine's clock is uneven by.
        with simulated.installed(delay=lambda nbytes: COPY if nbytes else 0.0) as device:
            for name, seconds in (
                ("as long", COPY),
                ("twice as long", 2 * COPY),
                ("half as long", COPY / 2),
            ):
                step, alone = self._measure(device, seconds)
                yield Measured(
                    f"step / max(copy, compute), computation {name} as the copy",
                    step,
                    alone,
                    TARGET,
                )

    def _measure(self, device: Any, seconds: float) -> tuple[float, float]:
        array = np.zeros(1 << 16, np.float32)

        def copy(_: Any) -> None:
            ferry.convert(array, "simulated", device="sim:0")

        def compute(_: Any) -> None:
            device.current_stream("sim:0").queue(lambda: sleep(seconds))

        def together() -> float:
            with ferry.prefetch([array] * STEPS, "simulated", device="sim:0") as batches:
                return _loop(batches, compute, device.synchronize)

        alone = [
            _median(lambda do=do: _loop(range(STEPS), do, device.synchronize))
            for do in (copy, compute)
        ]
        return _median(together), max(alone)


class _Gpu:
    title = "GPU: prefetch"
    sizes = (("16 MB", 1 << 22), ("256 MB", 1 << 26))

    def rows(self) -> Iterator[Measured | Unmeasured]:
        import torch

        for name, length in self.sizes:
            row = f"step / max(copy, compute), {name} batches"
            why_not = no_gpu()
            if why_not is None:
                yield Measured(row, *self._measure(torch, length), TARGET)
            else:
                yield Unmeasured(row, TARGET, why_not)

    def _measure(self, torch: Any, length: int) -> tuple[float, float]:
        arrays = [np.full(length, n, np.float32) for n in range(4)]
        gpu = accelerator()
        matrix = torch.randn(4096, 4096, device=gpu)
        finish = torch.accelerator.synchronize

        def batches() -> Iterator[Any]:
            return (arrays[step % 4] for step in range(STEPS))

        def copy_alone() -> float:
            return _loop(batches(), lambda array: ferry.to_torch(array, device=gpu), finish)

        def once(_: Any = None) -> None:
            torch.mm(matrix, matrix, out=result)

        result = torch.empty_like(matrix)
        copy_alone()
        _loop(range(STEPS), once, finish)
        copy, product = _median(copy_alone), _median(lambda: _loop(range(STEPS), once, finish))
        repeats = max(round(copy / product), 1)

        def compute(_: Any) -> None:
            for _ in range(repeats):
                once()

        def together() -> float:
            with ferry.prefetch(batches(), "torch", device=gpu) as ahead:
                return _loop(ahead, compute, finish)

        together()
        return _median(together), max(copy, _median(lambda: _loop(range(STEPS), compute, finish)))


def _batches() -> dict[str, Any]:
    import torch

    names = modules()
    leaves = ("image", "tokens", "mask")
    return {
        **names,
        "arrays": [{name: np.ones(16, np.float32) for name in leaves} for _ in range(100)],
        "tensors": [{name: torch.ones(16) for name in leaves} for _ in range(100)],
        "tracked": [
            {name: torch.ones(16, requires_grad=True) for name in leaves} for _ in range(100)
        ],
    }


FIVE_TIMES = Target(ratio=5.0)

_HOST = (
    Case(
        'list(ferry.prefetch(arrays, "torch"))',
        "[{name: torch.from_numpy(a) for name, a in batch.items()} for batch in arrays]",
        FIVE_TIMES,
    ),
    Case(
        'list(ferry.prefetch(tensors, "numpy"))',
        "[{name: t.numpy() for name, t in batch.items()} for batch in tensors]",
        FIVE_TIMES,
    ),
    Case(
        'list(ferry.prefetch(tracked, "numpy"))',
        "[{name: g.detach().numpy() for name, g in batch.items()} for batch in tracked]",
        FIVE_TIMES,
    ),
)

SECTIONS = (
    Section("Prefetch on the host, 100 batches of 3 leaves", _batches, _HOST),
    _Simulated(),
    _Gpu(),
)
