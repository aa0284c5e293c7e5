"""Every pair of lines under pytest-benchmark: both give the same, and each is timed.

``python -m pytest benchmarks --benchmark-group-by=group`` shows each pair side by side;
``--benchmark-save`` and ``--benchmark-compare`` follow one line from version to version.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

import numpy as np
import pytest

from tensorferry import to_numpy

from .case import Section
from .registered import SECTIONS
from .timing import paths_open

TIMED = [section for section in SECTIONS if isinstance(section, Section)]
PAIRS = [
    pytest.param(section, case, id=f"{section.title}: {case.name}")
    for section in TIMED
    for case in section.cases
]

OTHERS = re.compile("4KB|alike]")
"""In lines that are measured with other tensors than ours."""


@lru_cache(maxsize=1)
def _names(section):
    return section.world()


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize(("section", "case"), PAIRS)
def test_speed(benchmark, section, case, side):
    """Times one side of a pair, after both have given the same numbers."""
    why = section.absent()
    if why is not None:
        pytest.skip(why)
    names = _names(section)
    with warnings.catch_warnings(), paths_open(section.paths):
        warnings.filterwarnings("ignore", message="Creating a tensor from a list of numpy.ndarrays")
        # Of 4 KB there is less, one structure is not eight, and what is bounded by a time of its own
        # has no counterpart.
        if section.checks:
            section.check(case, names)
        elif side == "ours" and not OTHERS.search(case.theirs) and case.target.total is None:
            ours, theirs = (eval(code, names) for code in (case.ours, case.theirs))  # noqa: S307
            assert _same(ours, theirs)
            del ours, theirs
        benchmark.group = f"{section.title}: {case.name}"
        benchmark.extra_info["target"] = case.target.text("s")
        line = eval(f"lambda: {getattr(case, side)}", names)  # noqa: S307
        if section.pace.batch:
            benchmark(line)
        else:
            benchmark.pedantic(line, rounds=min(section.pace.rounds, 5))


def _same(ours, theirs):
    """Whether both gave the same numbers: in trees leaf by leaf, of tuples the first."""
    if isinstance(theirs, tuple):
        return _same(ours[0] if isinstance(ours, tuple) else ours, theirs[0])
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list) and isinstance(theirs[0], dict):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return (
        ours == theirs
        if isinstance(theirs, str)
        else np.array_equal(to_numpy(ours), to_numpy(theirs))
    )
