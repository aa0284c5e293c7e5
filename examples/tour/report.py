"""Run the cases with a classifier of handwritten digits, and print what they show."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

import tensorferry as ferry
from tensorferry.cli import console
from tensorferry.cli.console import (
    EXIT_FAILED,
    print_json,
    prose,
    quiet,
    report_width,
    show_lines,
    solid,
)
from tensorferry.cli.doctor import is_broken, print_frameworks, working
from tensorferry.cli.explain import folded
from tensorferry.cli.outcome import counted, show_message

from .cases import CASES, Case
from .stage import FAILED, HELD, PLANNED, SKIPPED, Played, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorferry.cli.console import Cell
    from tensorferry.cli.doctor import Status

    from .digits import Digits

__all__ = ["CASES", "World", "run", "unknown_cases"]

_NAMES = {
    "torch": ("torch", "torch"),
    "tensorflow": ("tf", "tensorflow"),
    "jax": ("jnp", "jax.numpy"),
}
_STATUS_STYLE = {HELD: "ok", PLANNED: "warn", SKIPPED: "quiet", FAILED: "bad"}
_LABELS = {
    "given": ("given", "quiet"),
    "then": ("then", "quiet"),
    "today": ("today", "quiet"),
    "fails": ("fails", "words"),
    "now": ("one call", "title"),
    "refuses": ("refused", "title"),
    "plan": ("plan", "title"),
    "memory": ("memory", "quiet"),
    "note": ("", "quiet"),
}
"""The text before each kind of line, and its style."""


def unknown_cases(ids: Sequence[str]) -> list[str]:
    """The ids that do not exist."""
    return [name for name in ids if name.upper() not in CASES]


def run(ids: Sequence[str], *, brief: bool, as_json: bool) -> int:
    """Run the cases, and print the results; gives the exit code."""
    try:
        importlib.import_module("sklearn")
    except ImportError:
        missing = "scikit-learn, which has its data, is not installed."
        show_message("tour", missing, "pip install scikit-learn")
        return EXIT_FAILED
    with quiet("loading the frameworks, training a classifier …"):
        status = ferry.frameworks(load=True)
        here = working(status)
        world = World(here)
        worlds = _five_worlds(world)
    if not as_json:
        _print_opening(status, world, worlds)
        if brief:
            prose()
    wanted = [CASES[name] for name in sorted(name.upper() for name in ids)] or [
        CASES[name] for name in sorted(CASES)
    ]
    records = []
    for case in wanted:
        record = Played(case.id, case.title)
        with quiet():
            _play(record, case, world, status)
        records.append(record)
        if not as_json:
            _print_case(record, brief=brief)
    count = Counter(record.status for record in records)
    failed = count[FAILED] > 0 or not all(row["equal"] for row in worlds)
    if as_json:
        print_json(
            {
                "predictions": worlds,
                "cases": [record.to_dict() for record in records],
                "summary": {name: count[name] for name in (HELD, PLANNED, SKIPPED, FAILED)},
            }
        )
    else:
        _print_summary(records, count)
    return EXIT_FAILED if failed else 0


class World:
    """The libraries that work here, the digits, and the trained model."""

    def __init__(self, here: frozenset[str]) -> None:
        from . import digits

        self.here = here
        self.digits: Digits = digits.load()
        self.names: dict[str, Any] = {"np": np, "ferry": ferry}
        for framework, (name, module) in _NAMES.items():
            if framework in here:
                self.names[name] = importlib.import_module(module)
        if "torch" in here:
            self.names["model"] = digits.classifier(self.digits)

    def fresh(self) -> dict[str, Any]:
        """New names for a case, so that its writes do not affect other cases."""
        names = {
            **self.names,
            "images": self.digits.images.copy(),
            "labels": self.digits.labels.copy(),
        }
        if "torch" in self.here:
            names["scores"] = names["model"](names["torch"].tensor(names["images"]))
        return names


def _play(record: Played, case: Case, world: World, status: Status) -> None:
    missing = [name for name in case.needs if name not in world.here]
    if missing:
        record.status = SKIPPED
        record.reason = "; ".join(
            f"{name} is broken" if is_broken(status[name]) else f"{name} is not installed"
            for name in missing
        )
        return
    stage = Stage(record, world.fresh(), world.here)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.play(stage)
    except Exception as error:  # noqa: BLE001 - a tour goes on, and says what broke
        record.status = FAILED
        record.reason = f"{type(error).__name__}: {error}"


def _five_worlds(world: World) -> list[dict[str, Any]]:
    """The same predictions in every framework: how they were converted, and their score."""
    from sklearn.metrics import accuracy_score

    from .observe import observe

    if "torch" not in world.here:
        return []
    names = world.fresh()
    scores, labels = names["scores"], names["labels"]
    expected = scores.detach().cpu().numpy()
    rows = []
    for target, call in (
        ("numpy", "ferry.to_numpy(scores)"),
        ("tensorflow", "ferry.to_tensorflow(scores)"),
        ("jax", "ferry.to_jax(scores)"),
        ("python", "ferry.to_list(scores)"),
    ):
        if target not in world.here:
            continue
        result = eval(call, names)  # noqa: S307 - one of the four lines above
        seen = observe(scores, result)
        values = np.asarray(result, np.float32)
        rows.append(
            {
                "target": target,
                "call": call,
                "memory": seen.word,
                "accuracy": float(accuracy_score(labels, values.argmax(1))),
                "equal": bool(np.array_equal(values, expected)),
            }
        )
    return rows


# -- printing -------------------------------------------------------------------------------------


def _print_opening(status: Status, world: World, rows: list[dict[str, Any]]) -> None:
    from . import digits

    prose("A tour of tensorferry", "title")
    prose(
        "Every line of code was run just now, unless it says so; errors are in their own words.",
        "quiet",
    )
    prose()
    print_frameworks(status)
    prose()
    if not rows:
        prose(
            "torch is not here, so there is no classifier; the cases that need none follow.", "warn"
        )
        return
    seen, held_out = len(world.digits.train_images), len(world.digits.images)
    prose(
        f"A classifier, nn.Linear(64, 10), trained for {digits.STEPS} steps on {seen:,} of "
        f"scikit-learn's handwritten digits. Here are four of the {held_out} that it has not seen:"
    )
    prose()
    _print_pictures(world)
    prose()
    code = (solid("scores = model(images)"), "code")
    prose(Text.assemble("Its predictions, ", code, ", in the other frameworks, scored there:"))
    prose()
    held: list[list[Cell]] = [["one call", "memory", "accuracy", "every value equal"]]
    for row in rows:
        style = "copied" if row["memory"] == "copied" else "shared"
        equal = Text("yes", "ok") if row["equal"] else Text("NO", "bad")
        call = Text(solid(row["call"]), "code")
        held.append([call, Text(row["memory"], style), f"{row['accuracy']:.1%}", equal])
    show_lines(list(console.table(held, report_width(), headed=True)), [""] * 4)


_PICTURE = 16
"""The width of a picture of a digit."""


def _print_pictures(world: World) -> None:
    """Print four pictures side by side, as many in a line as fit."""
    from .digits import picture

    names = world.fresh()
    guesses = ferry.to_list(names["scores"].argmax(1))
    fitting = max((report_width() - 2 + 3) // (_PICTURE + 3), 1)
    shown = list(range(4))
    for first in range(0, len(shown), fitting):
        if first:
            prose()
        some = shown[first : first + fitting]
        for line in zip(*(picture(world.digits.images[i]) for i in some), strict=True):
            prose("  " + "   ".join(line))
        captions = [f"seen as {guesses[i]}, is {world.digits.labels[i]}" for i in some]
        prose("  " + "   ".join(f"{caption:<{_PICTURE}}" for caption in captions).rstrip(), "quiet")


_MARGIN = 11
"""The width of the labels of a case, with the spaces after them."""


def _print_case(record: Played, *, brief: bool) -> None:
    style = _STATUS_STYLE[record.status]
    title = f" {record.id}  {record.title} "
    fill = report_width() - len(title) - len(record.status) - 3
    if not brief:
        prose()
    rule = " " if brief else "─"
    if fill > 0:
        prose(
            Text.assemble(
                (rule * 2, "quiet"),
                (title, "title"),
                (rule * fill, "quiet"),
                " ",
                (record.status, style),
            )
        )
    else:
        prose(
            Text.assemble((f"{record.id}  {record.title}", "title"), "  ", (record.status, style))
        )
    if not brief:
        _print_lines(record)
    if record.reason and (not brief or record.status == FAILED):
        _print_beside(record.reason, style)
    if record.checks and (not brief or record.status == FAILED):
        for line in _packed([_mark(what, held) for what, held in record.checks], _room()):
            _print_beside(line)


def _room() -> int:
    return report_width() - _MARGIN


def _print_beside(text: Cell, style: str = "") -> None:
    """Print text where the lines of a case stand."""
    show_lines(
        [[(" " * _MARGIN, 0), (line, 0)] for line in console.wrapped(text, _room())], [style]
    )


def _mark(what: str, held: bool) -> Text:
    return Text.assemble(("✓ ", "ok") if held else ("✗ ", "bad"), (what, "" if held else "bad"))


def _packed(items: Sequence[Text], width: int) -> list[Text]:
    """Items side by side, as many in a line as fit. No item is broken."""
    lines = [items[0]]
    for item in items[1:]:
        wider = lines[-1] + Text("   ") + item
        if wider.cell_len <= width:
            lines[-1] = wider
        else:
            lines.append(item)
    return lines


_WORDS = {"fails": "words", "refuses": "warn", "plan": "quiet"}


def _print_lines(record: Played) -> None:
    widest = max(
        (console.cell_width(line.code) for line in record.lines if line.kind == "row"), default=0
    )
    for line in record.lines:
        if line.kind == "row":
            row = [(Text(line.code, "name"), Text(line.words))]
            parts = console.fact_lines(row, _room(), margin=0, label=widest)
            show_lines([[(" " * _MARGIN, 0), *part] for part in parts], ["", ""])
            continue
        label, style = _LABELS[line.kind]
        before = Text(f"{label:>{_MARGIN - 2}}  ", style)
        for piece in console.wrapped(_content(line.kind, line.code, line.words), _room()):
            show_lines([[(before, 0), (piece, 0)]], [""])
            before = Text(" " * _MARGIN)


def _content(kind: str, code: str, words: str) -> Text:
    if kind == "note":
        return Text(words, "quiet")
    if kind == "memory":
        return Text.assemble(
            (code, "copied" if code == "copied" else "shared"), ("  " + words, "quiet")
        )
    # Code that is broken is still code; a line that is too wide for that is broken as text.
    typed = folded(code, _room())
    if kind in ("given", "then"):
        return Text(typed, "quiet")
    if kind in ("fails", "refuses", "plan"):
        return Text.assemble((typed, "code"), "\n", (words, _WORDS[kind]))
    return Text.assemble((typed, "code"), ("  → " + words if words else "", "quiet"))


def _print_summary(records: list[Played], count: Counter[str]) -> None:
    parts = [
        Text(f"{count[name]} {name}", _STATUS_STYLE[name] if count[name] else "quiet")
        for name in (HELD, PLANNED, SKIPPED, FAILED)
    ]
    checks = sum(len(record.checks) for record in records)
    prose()
    prose(
        Text(f"{counted(len(records), 'case')}, {counted(checks, 'check')}: ")
        + Text(", ").join(parts)
    )
