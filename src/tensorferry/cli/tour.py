"""``tensorferry tour``: run the cases with a classifier of handwritten digits."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import tensorferry as ferry

from .cases import CASES, Case
from .console import EXIT_FAILED, err, out, plain_table, print_json, quiet
from .doctor import framework_table, is_broken, working
from .outcome import counted
from .stage import FAILED, HELD, PLANNED, SKIPPED, Played, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from .digits import Digits
    from .doctor import Status

__all__ = ["CASES", "World", "run", "unknown_cases"]

_NAMES = {"torch": ("torch", "torch"), "tensorflow": ("tf", "tensorflow"), "jax": ("jnp", "jax.numpy")}
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
        err().print(Text.assemble(("tour", "bad"), " needs scikit-learn for its data, and it is not installed."))
        err().print(Text.assemble("\n", ("Hint: ", "title"), ("pip install scikit-learn", "code")))
        return EXIT_FAILED
    with quiet("loading the frameworks, training a classifier …"):
        status = ferry.frameworks(load=True)
        here = working(status)
        world = World(here)
        worlds = _five_worlds(world)
    console = out()
    if not as_json:
        _print_opening(console, status, world, worlds)
        if brief:
            console.print()
    wanted = [CASES[name] for name in sorted(name.upper() for name in ids)] or [CASES[name] for name in sorted(CASES)]
    records = []
    for case in wanted:
        record = Played(case.id, case.title)
        with quiet():
            _play(record, case, world, status)
        records.append(record)
        if not as_json:
            _print_case(console, record, brief=brief)
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
        _print_summary(console, records, count)
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
        names = {**self.names, "images": self.digits.images.copy(), "labels": self.digits.labels.copy()}
        if "torch" in self.here:
            names["scores"] = names["model"](names["torch"].tensor(names["images"]))
        return names


def _play(record: Played, case: Case, world: World, status: Status) -> None:
    missing = [name for name in case.needs if name not in world.here]
    if missing:
        record.status = SKIPPED
        record.reason = "; ".join(
            f"{name} is broken" if is_broken(status[name]) else f"{name} is not installed" for name in missing
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


def _print_opening(console: Console, status: Status, world: World, rows: list[dict[str, Any]]) -> None:
    from . import digits

    console.print(Text("A tour of tensorferry", "title"))
    console.print(
        Text("Every line of code was run just now, unless it says so; errors are in their own words.", "quiet")
    )
    console.print()
    console.print(framework_table(status))
    console.print()
    if not rows:
        console.print(Text("torch is not here, so there is no classifier; the cases that need none follow.", "warn"))
        return
    seen, held_out = len(world.digits.train_images), len(world.digits.images)
    console.print(
        f"A classifier, nn.Linear(64, 10), trained for {digits.STEPS} steps on {seen:,} of "
        f"scikit-learn's handwritten digits. Here are four of the {held_out} that it has not seen:"
    )
    console.print()
    _print_pictures(console, world)
    console.print()
    console.print(
        Text.assemble(
            "Its predictions, ", ("scores = model(images)", "code"), ", in the other frameworks, scored there:"
        )
    )
    console.print()
    table = plain_table("one call", "memory", "accuracy", "every value equal")
    for row in rows:
        style = "copied" if row["memory"] == "copied" else "shared"
        equal = Text("yes", "ok") if row["equal"] else Text("NO", "bad")
        table.add_row(Text(row["call"], "code"), Text(row["memory"], style), f"{row['accuracy']:.1%}", equal)
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_pictures(console: Console, world: World) -> None:
    from .digits import picture

    names = world.fresh()
    guesses = ferry.to_list(names["scores"].argmax(1))
    shown = range(4)
    pictures = [picture(world.digits.images[i]) for i in shown]
    for line in zip(*pictures, strict=True):
        console.print(Text("  " + "   ".join(line)), soft_wrap=True)
    captions = [f"seen as {guesses[i]}, is {world.digits.labels[i]}" for i in shown]
    console.print(Text("  " + "   ".join(f"{caption:<16}" for caption in captions).rstrip(), "quiet"))


def _print_case(console: Console, record: Played, *, brief: bool) -> None:
    style = _STATUS_STYLE[record.status]
    title = f" {record.id}  {record.title} "
    fill = max(console.width - len(title) - len(record.status) - 4, 1)
    if not brief:
        console.print()
    rule = " " if brief else "─"
    console.print(
        Text.assemble((rule * 2, "quiet"), (title, "title"), (rule * fill, "quiet"), " ", (record.status, style)),
        no_wrap=True,
        overflow="ellipsis",
    )
    if not brief:
        console.print(_lines(record))
    if record.reason and (not brief or record.status == FAILED):
        console.print(Padding(Text(record.reason, style), (0, 0, 0, 11)))
    if record.checks and (not brief or record.status == FAILED):
        for line in _packed([_mark(what, held) for what, held in record.checks], console.width - 12):
            console.print(Padding(line, (0, 0, 0, 11)))


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


def _lines(record: Played) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=9, justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for line in record.lines:
        label, style = _LABELS[line.kind]
        table.add_row(Text(label, style), _content(line.kind, line.code, line.words))
    return table


def _content(kind: str, code: str, words: str) -> Text:
    match kind:
        case "note":
            return Text(words, "quiet")
        case "memory":
            return Text.assemble((code, "copied" if code == "copied" else "shared"), ("  " + words, "quiet"))
        case "fails" | "refuses" | "plan":
            return Text.assemble((code, "code"), "\n", (words, _WORDS[kind]))
        case "given" | "then":
            return Text(code, "quiet")
    return Text.assemble((code, "code"), ("  → " + words if words else "", "quiet"))


def _print_summary(console: Console, records: list[Played], count: Counter[str]) -> None:
    parts = [
        Text(f"{count[name]} {name}", _STATUS_STYLE[name] if count[name] else "quiet")
        for name in (HELD, PLANNED, SKIPPED, FAILED)
    ]
    checks = sum(len(record.checks) for record in records)
    console.print()
    console.print(Text(f"{counted(len(records), 'case')}, {counted(checks, 'check')}: ") + Text(", ").join(parts))
