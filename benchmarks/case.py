"""What is measured: two lines of code and a target, in sections that share their tensors."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Case", "Measured", "Pace", "Section", "Target", "Unmeasured"]


@dataclass(frozen=True)
class Target:
    """A bound on ours: a multiple of theirs, or theirs and so many units more, or so many units."""

    ratio: float | None = None
    extra: float | None = None
    total: float | None = None

    def met(self, ours: float, theirs: float) -> bool:
        """Whether a measurement keeps within the bound."""
        if self.ratio is not None:
            return ours <= self.ratio * theirs
        if self.extra is not None:
            return ours <= theirs + self.extra
        return self.total is None or ours <= self.total

    def text(self, unit: str) -> str:
        """The bound as the table shows it; the unit is seconds (``"s"``) or bytes (``"B"``)."""
        if self.ratio is not None:
            return f"<= {self.ratio:.3g}x"
        if self.extra is not None:
            return f"<= +{amount(self.extra, unit)}"
        return "" if self.total is None else f"<= {amount(self.total, unit)}"


def amount(value: float, unit: str) -> str:
    """Seconds or bytes with three digits and the prefix that fits.

    >>> amount(0.00000512, "s"), amount(0.0153, "s"), amount(400e6, "B")
    ('5.12 us', '15.3 ms', '400 MB')
    """
    scales = (
        ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (0.0, "ns"))
        if unit == "s"
        else ((1e6, "MB"), (0.0, "kB"))
    )
    for scale, name in scales:
        if abs(value) >= scale:
            shown = value / (scale or {"ns": 1e-9, "kB": 1e3}[name])
            return f"{shown:.0f} {name}" if shown >= 99.95 else f"{shown:.3g} {name}"
    raise AssertionError(value)


@dataclass(frozen=True)
class Measured:
    """One row of the table: what both sides took, in seconds or in bytes.

    Args:
        name: The row's first cell.
        ours: What ours took.
        theirs: What theirs took.
        target: The bound on ours.
        unit: Seconds (``"s"``) or bytes (``"B"``).
        medians: What both took in the median, where the fastest round is what is shown; the target
            holds for both.
    """

    name: str
    ours: float
    theirs: float
    target: Target
    unit: str = "s"
    medians: tuple[float, float] | None = None

    @classmethod
    def of(
        cls, name: str, times: tuple[list[float], list[float]], target: Target, *, best: bool = True
    ) -> Measured:
        """The row of two sides that took turns."""
        medians = statistics.median(times[0]), statistics.median(times[1])
        if best:
            return cls(name, min(times[0]), min(times[1]), target, medians=medians)
        return cls(name, *medians, target)

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.target == Target():
            return ""
        if not self.target.met(self.ours, self.theirs):
            return "MISS"
        return (
            "ok" if self.medians is None or self.target.met(*self.medians) else "MISS in the median"
        )

    def cells(self) -> tuple[str, ...]:
        """The row as text: case, ours, theirs, ratio, the medians' ratio, target, verdict."""
        return (
            self.name,
            amount(self.ours, self.unit),
            amount(self.theirs, self.unit),
            self._against(self.ours, self.theirs),
            "" if self.medians is None else self._against(*self.medians),
            self.target.text(self.unit),
            self.verdict,
        )

    def _against(self, ours: float, theirs: float) -> str:
        """Ours beside theirs, as the target has it: so much more, or so many times as much."""
        if self.target.extra is not None:
            return f"{'+' if ours >= theirs else '-'}{amount(abs(ours - theirs), self.unit)}"
        return f"{ours / theirs:.2f}x" if theirs else ""


@dataclass(frozen=True)
class Unmeasured:
    """A row for what cannot be measured here, and why."""

    name: str
    target: Target
    why: str
    unit: str = "s"

    def cells(self) -> tuple[str, ...]:
        """The row as text; the verdict says that nothing was measured."""
        return self.name, "", "", "", "", self.target.text(self.unit), f"not measured: {self.why}"


@dataclass(frozen=True)
class Case:
    """Two expressions over the section's names that give the same, and how far apart they may be."""

    ours: str
    theirs: str
    target: Target

    @property
    def name(self) -> str:
        """The row's first cell."""
        return f"{self.ours} / {self.theirs}".replace("ferry.", "")


@dataclass(frozen=True)
class Pace:
    """How often a pair of lines is run.

    Args:
        rounds: How often each side is measured; the sides take turns, and turns at going first.
        batch: The seconds that one measurement lasts at least, by repeating the line; 0: it is run
            once.
        best: Whether the fastest round is shown with the median one beside it (interrupted small
            calls only ever look slower), or the median one alone (what the allocator and the kernel
            do is part of a large copy).
        limit: After so many seconds no further round begins, but five there are.
    """

    rounds: int
    batch: float
    best: bool
    limit: float = 60.0


SMALL = Pace(rounds=200, batch=1e-3, best=True)
LARGE = Pace(rounds=11, batch=0.0, best=False)


class Runnable(Protocol):
    """A section that measures in its own way."""

    title: str

    def rows(self) -> Iterable[Measured | Unmeasured]:
        """Measure, one row after the other."""
        ...


@dataclass(frozen=True)
class Section:
    """Cases over the same tensors.

    Args:
        title: The heading of its rows.
        world: Makes the names that the lines use; they live as long as the section is measured.
        cases: What is measured.
        pace: How often.
        paths: Whether the fast paths are open; if not, every call goes the general planned path.
        absent: Says why the section cannot be measured here, or ``None`` if it can.
        checks: Whether each pair has to give the same before it is timed, leaf by leaf.
    """

    title: str
    world: Callable[[], dict[str, Any]]
    cases: tuple[Case, ...]
    pace: Pace = field(default=SMALL)
    paths: bool = True
    absent: Callable[[], str | None] = lambda: None
    checks: bool = False

    def rows(self) -> Iterable[Measured | Unmeasured]:
        """Measure, one row after the other.

        Raises:
            DifferentValuesError: Both sides have to give the same, and do not.
        """
        from .timing import paths_open, race

        why = self.absent()
        if why is not None:
            yield from (Unmeasured(case.name, case.target, why) for case in self.cases)
            return
        names = self.world()
        with paths_open(self.paths):
            for case in self.cases:
                if self.checks:
                    self.check(case, names)
                times = race(case.ours, case.theirs, names, self.pace)
                yield Measured.of(case.name, times, case.target, best=self.pace.best)

    @staticmethod
    def check(case: Case, names: dict[str, Any]) -> None:
        """Run both sides of a pair once, and compare what they give.

        Raises:
            DifferentValuesError: They do not give the same.
        """
        from .same import demand_same

        demand_same(*(eval(code, names) for code in (case.ours, case.theirs)))  # noqa: S307
