"""Two lines of code against each other: in turns, many times, without the garbage collector."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from time import perf_counter
from timeit import Timer
from typing import TYPE_CHECKING, Any

from tensorferry.backends import fast_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Pace

__all__ = ["paths_open", "race"]

FEWEST = 5
"""Rounds that there are, however long they take."""


@contextmanager
def paths_open(on: bool) -> Iterator[None]:
    """Open or close the fast paths, and put them back as they were."""
    before = fast_paths.open_all(on)
    try:
        yield
    finally:
        fast_paths.open_all(before)


def race(
    ours: str, theirs: str, names: dict[str, Any], pace: Pace
) -> tuple[list[float], list[float]]:
    """Seconds that each of two expressions takes, round by round.

    Both are run as `timeit` runs them: compiled, in a loop, with the collector off (`Timer.timeit`
    switches it off). A result is dropped before the next is made, so what is allocated is fresh,
    and giving it back is part of the time, on both sides.

    Args:
        ours: The one expression.
        theirs: The other.
        names: The names that they use.
        pace: How often.
    """
    for code in (ours, theirs):
        # The first call of all loads a backend; no loop is compiled around it.
        Timer(code, globals=names).timeit(2 if pace.batch else 1)
    sides = [Timer(code, globals=names) for code in (ours, theirs)]
    counts = [_repeats(side, pace.batch) if pace.batch else 1 for side in sides]
    times: tuple[list[float], list[float]] = ([], [])
    if not pace.batch:
        gc.collect()  # results are large; beside a small call it would take most of the time
    end = perf_counter() + pace.limit
    for turn in range(pace.rounds):
        if turn >= FEWEST and perf_counter() > end:
            break
        for side in ((0, 1), (1, 0))[turn % 2]:
            times[side].append(sides[side].timeit(counts[side]) / counts[side])
    return times


def _repeats(side: Timer, batch: float) -> int:
    """How often a line has to be run to last so long; finding out also warms it up."""
    count = 1
    while (taken := side.timeit(count)) < batch:
        count = max(count * 2, int(count * batch / max(taken, 1e-9)))
    return count
