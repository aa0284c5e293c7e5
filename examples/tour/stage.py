"""`Stage`: run the code of a case of the tour, and record the results.

The printed line is the line that was run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import tensorferry as ferry
from tensorferry.core.layout import size_text

from .observe import observe

__all__ = ["HELD", "PLANNED", "SKIPPED", "Line", "Played", "Stage"]

HELD, PLANNED, SKIPPED, FAILED = "held", "planned", "skipped", "failed"

Kind = Literal["given", "today", "fails", "now", "refuses", "plan", "memory", "note", "row", "then"]


@dataclass(frozen=True)
class Line:
    """One line of a case: the code, and its result in words."""

    kind: Kind
    code: str
    words: str = ""


@dataclass
class Played:
    """The record of a case."""

    id: str
    title: str
    status: str = HELD
    lines: list[Line] = field(default_factory=list)
    checks: list[tuple[str, bool]] = field(default_factory=list)
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data."""
        return {
            "id": self.id,
            "title": self.title,
            "status": self.status,
            "reason": self.reason,
            "lines": [vars(line) for line in self.lines],
            "checks": [{"what": what, "held": held} for what, held in self.checks],
        }


class Stage:
    """Runs lines of code among `names` and records them."""

    def __init__(self, record: Played, names: dict[str, Any], frameworks: frozenset[str]) -> None:
        self.record = record
        self.names = names
        self.frameworks = frameworks

    def has(self, framework: str) -> bool:
        """Whether the framework works here."""
        return framework in self.frameworks

    @property
    def accelerator(self) -> str:
        """PyTorch's name for the kind of its accelerator; empty without one."""
        if not self.has("torch"):
            return ""
        torch = self.names["torch"]
        return (
            str(torch.accelerator.current_accelerator().type)
            if torch.accelerator.is_available()
            else ""
        )

    @property
    def tensorflow_on_host(self) -> bool:
        """Whether TensorFlow puts its tensors into host memory here."""
        return not self.names["tf"].config.list_physical_devices("GPU")

    def given(self, code: str) -> None:
        """Run statements that prepare the case."""
        exec(compile(code, "<tour>", "exec"), self.names)  # noqa: S102 - the lines are this package's own
        self._line("given", code)

    def then(self, code: str) -> None:
        """Run statements after the call, which write to memory."""
        exec(compile(code, "<tour>", "exec"), self.names)  # noqa: S102 - the lines are this package's own
        self._line("then", code)

    def today(self, code: str) -> Any:
        """Run what people type today; its value is `today`."""
        value = self.names["today"] = self._value(code)
        self._line("today", code, _summary(value))
        return value

    def today_elsewhere(self, code: str) -> None:
        """Record what people type today, without running it, because something is missing here."""
        self._line("today", code, "not run: there is no such device")

    def fails(self, code: str) -> None:
        """Run what people type, which the framework refuses, and record its message."""
        self._refusal("fails", code, Exception)

    def now(self, code: str) -> Any:
        """Run the one call; its value is `y`."""
        value = self.names["y"] = self._value(code)
        self._line("now", code, _summary(value))
        return value

    def refuses(self, code: str, error: type[Exception]) -> None:
        """Run a call that must raise this error, and record its message."""
        self._refusal("refuses", code, error)

    def check(self, what: str, expression: str) -> None:
        """Evaluate an expression that must be true."""
        try:
            held = bool(self._value(expression))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the check did not hold
            what, held = f"{what} ({type(error).__name__}: {_first_line(error)})", False
        self._check(what, held)

    def memory(self, source: str, *, shared: bool) -> None:
        """Observe whether `y` shares memory with a source, and compare with the expectation."""
        seen = observe(self._value(source), self.names["y"])
        self._line("memory", seen.word, seen.how)
        if not seen.agrees or seen.shared is not shared:
            self._check(f"memory is {'shared' if shared else 'copied'}", False)

    def plan(self, code: str) -> Any:
        """Make a plan without running it; its value is `plan`."""
        value = self.names["plan"] = self._value(code)
        self._line("plan", code, _plan_words(value))
        return value

    def only_planned(self, why: str) -> None:
        """Record that this case only shows its plan, because it cannot run here."""
        if self.record.status == HELD:
            self.record.status = PLANNED
            self.record.reason = why

    def note(self, words: str) -> None:
        """Record a remark."""
        self._line("note", "", words)

    def row(self, name: str, words: str) -> None:
        """Record a line of a table: a name, and words beside it."""
        self._line("row", name, words)

    def _value(self, code: str) -> Any:
        return eval(compile(code, "<tour>", "eval"), self.names)  # noqa: S307 - the lines are this package's own

    def _refusal(self, kind: Kind, code: str, expected: type[Exception]) -> None:
        try:
            exec(compile(code, "<tour>", "exec"), self.names)  # noqa: S102 - the lines are this package's own
        except expected as error:
            self._line(kind, code, f"{type(error).__name__}: {_words(error)}")
        else:
            self._line(kind, code, "no error")
            self._check(f"{code} is refused", False)

    def _line(self, kind: Kind, code: str, words: str = "") -> None:
        self.record.lines.append(Line(kind, code, words))

    def _check(self, what: str, held: bool) -> None:
        self.record.checks.append((what, held))
        if not held:
            self.record.status = FAILED


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")


def _words(error: BaseException) -> str:
    """The message of an error; for tensorferry's errors with the hint; long ones are cut off."""
    if isinstance(error, ferry.ConversionError) and error.hint:
        return f"{error.message}\nHint: {error.hint}"
    return " ".join(str(error).split("\n\n")[0].split())


def _summary(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return f"{len(value)} of {_summary(value[0])}"
    if isinstance(value, (int, float, list, tuple)):
        text = repr(value)
        return text if len(text) <= 44 else f"{text[:40]}…"
    try:
        info = ferry.describe(value)
    except ferry.ConversionError:
        return type(value).__name__
    return f"{info.framework} {info.kind or ''}".rstrip() + f" {info.dtype}{list(info.shape)}"


def _plan_words(plan: Any) -> str:
    steps = " → ".join(step.code for step in plan.steps) or "x"
    moved = "nothing is copied" if plan.shares_memory else f"copies {size_text(plan.bytes_copied)}"
    return f"{steps}; {moved}"
