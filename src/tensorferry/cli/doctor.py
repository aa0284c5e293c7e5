"""``tensorferry doctor``: what is installed, and what conversions do on this machine, by measurement."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import tensorferry as ferry
from tensorferry.backends.registry import backends, outside
from tensorferry.files.opening import registry as file_formats
from tensorferry.sequences.numbers import HAS_EXTENSION

from . import measure
from .console import EXIT_FAILED, out, plain_table, print_json, printable, quiet

if TYPE_CHECKING:
    from rich.console import Console

    from tensorferry.backends.plugins import Plugin

    Status = dict[str, ferry.FrameworkStatus]

__all__ = ["framework_table", "is_broken", "plugins", "run", "working"]


def run(*, as_json: bool) -> int:
    """Measure and print; gives the exit code."""
    with quiet("asking the frameworks, measuring every pair …"):
        status = ferry.frameworks(load=True)
        here = working(status)
        pairs = measure.pairs(here)
        layouts = measure.layouts(here)
        dtypes = measure.dtypes(here)
        brought = plugins()
    held = (
        all(map(measure.as_planned, pairs))
        and all(outcome.held for _, row in layouts for outcome in row.values())
        and not any(row.wrong for row in dtypes)
    )
    if as_json:
        print_json(
            {
                "tensorferry": ferry.__version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "extension": HAS_EXTENSION,
                "frameworks": {name: found._asdict() for name, found in status.items()},
                "plugins": [each._asdict() for each in brought],
                "pairs": [pair.to_dict() for pair in pairs],
                "layouts": [
                    {"layout": name, "target": target, "reason": outcome.reason, "shares": outcome.seen is not None}
                    for name, row in layouts
                    for target, outcome in row.items()
                ],
                "dtypes": {
                    row.target: {"exact": list(row.exact), "refused": row.refused, "wrong": list(row.wrong)}
                    for row in dtypes
                },
                "held": held,
            }
        )
    else:
        _print(out(), status, brought, pairs, layouts, dtypes, held=held)
    return 0 if held else EXIT_FAILED


def working(status: Status) -> frozenset[str]:
    """The names of backends that work here. Those without a framework always work."""
    return frozenset(name for name in backends() if name not in status or status[name].installed)


def plugins() -> list[Plugin]:
    """The backends and file formats of outside packages, also broken ones with their errors."""
    file_formats.outside.open_all()
    return [*outside.plugins(), *file_formats.outside.plugins()]


def is_broken(found: ferry.FrameworkStatus) -> bool:
    """Whether a framework is installed, but its import fails."""
    return found.error is not None and not found.error.endswith("is not installed.")


def framework_table(status: Status) -> Table:
    """The table of frameworks: version, devices, and errors."""
    table = plain_table("framework", "version", "devices", "")
    for name, found in status.items():
        if found.installed and found.error is None:
            state = Text("ok", "ok")
        elif is_broken(found):
            state = Text.assemble(("broken: ", "bad"), _one_line(found.error or ""), "\n", (found.install, "code"))
        else:
            state = Text.assemble(("not installed: ", "warn"), (found.install, "code"))
        table.add_row(Text(name, "name"), found.version or "", ", ".join(found.devices), state)
    return table


def _print(
    console: Console,
    status: Status,
    brought: list[Plugin],
    pairs: list[measure.Pair],
    layouts: list[tuple[str, dict[str, measure.Outcome]]],
    dtypes: list[measure.RoundTrips],
    *,
    held: bool,
) -> None:
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    console.print(Text.assemble((f"tensorferry {ferry.__version__}", "title"), f" · {system}"))
    by = (
        "by the extension"
        if HAS_EXTENSION
        else "by NumPy: the extension was not built, or TENSORFERRY_NO_EXTENSION is set"
    )
    console.print(f"Python numbers are read {by}")
    console.print()
    console.print(framework_table(status))
    if brought:
        _heading(console, "What other packages bring", "by entry points; what is broken is left aside")
        console.print(_plugin_table(brought))
    _heading(console, "What a conversion does", "each was run just now, and its memory looked at")
    _print_pairs(console, pairs)
    # Without a framework there is no table of sharing.
    if any(row for _, row in layouts):
        _heading(console, "Which ndarrays copy=False can share", "with each framework")
        console.print(_layout_table(layouts))
    _heading(console, "Dtypes, there and back", "bit for bit or refused, never changed in silence")
    console.print(_dtype_table(dtypes))
    console.print()
    for pair in pairs:
        if not measure.as_planned(pair):
            words = f"{pair.source} to {_label(pair.target)} did not do what its plan said."
            console.print(Text(words, "bad"))
    good = Text("Everything that was measured is as planned.", "ok")
    console.print(good if held else Text("Something did not hold.", "bad"))


def _plugin_table(brought: list[Plugin]) -> Table:
    table = plain_table("group", "name", "package", "")
    for group, name, package, error in brought:
        state = Text("ok", "ok") if error is None else Text.assemble(("broken: ", "bad"), printable(error))
        table.add_row(group, Text(printable(name), "name"), printable(package), state)
    return table


def _print_pairs(console: Console, pairs: list[measure.Pair]) -> None:
    """Print the table of pairs, and the reason for each number."""
    noted = [pair.default.reason for pair in pairs if pair.word != "shares"]
    numbers = {reason: number for number, reason in enumerate(dict.fromkeys(noted), 1)}
    targets = list(dict.fromkeys(pair.target for pair in pairs))
    table = plain_table("from \\ to", *(_label(target) for target in targets))
    for source in dict.fromkeys(pair.source for pair in pairs):
        cells = [_pair_cell(pair, numbers) for pair in pairs if pair.source == source]
        table.add_row(Text(source, "name"), *cells)
    console.print(table)
    console.print()
    notes = Table.grid(padding=(0, 2, 0, 0))
    notes.add_column(justify="right")
    notes.add_column(overflow="fold")
    if any(pair.word == "copies" and pair.can_share for pair in pairs):
        notes.add_row("*", "copy=False shares; `tensorferry explain` says what to be careful of")
    if any(pair.word.endswith("(read-only)") for pair in pairs):
        notes.add_row("ro", "read-only")
    for reason, number in numbers.items():
        notes.add_row(_raised(number), _one_line(reason))
    console.print(Padding(notes, (0, 0, 0, 2)), style="quiet")


def _pair_cell(pair: measure.Pair, numbers: dict[str, int]) -> Text:
    if not measure.as_planned(pair):
        return Text("NOT AS PLANNED", "bad")
    note = _raised(numbers.get(pair.default.reason, 0)) if pair.word != "shares" else ""
    match pair.word:
        case "cannot":
            cell = Text("cannot", "bad")
        case "copies":
            cell = Text("copies*" if pair.can_share else "copies", "copied")
        case "shares":
            cell = Text("shares", "shared")
        case _:
            cell = Text("shares, ro", "shared")
    return cell.append(note, "quiet")


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _layout_table(layouts: list[tuple[str, dict[str, measure.Outcome]]]) -> Table:
    targets = list(dict.fromkeys(target for _, row in layouts for target in row))
    table = plain_table("", *targets, "why not")
    for name, row in layouts:
        refused = (_core(outcome.reason) for outcome in row.values() if outcome.seen is None)
        cells = [_layout_cell(row[target]) for target in targets]
        table.add_row(Text(name, "name"), *cells, Text("\n".join(dict.fromkeys(refused)), "quiet"))
    return table


def _layout_cell(outcome: measure.Outcome) -> Text:
    if not outcome.held:
        return Text("NOT AS PLANNED", "bad")
    return Text("no", "copied") if outcome.seen is None else Text("yes", "shared")


def _core(reason: str) -> str:
    """The reason in a message `numpy to torch cannot share this memory: …`."""
    return _one_line(reason).partition("cannot share this memory: ")[2].rstrip(".") or reason


def _dtype_table(dtypes: list[measure.RoundTrips]) -> Table:
    table = plain_table("to", "exact", "refused")
    for row in dtypes:
        refused = Text(", ".join(row.refused) or "none", "quiet")
        if row.wrong:
            refused.append(f"\nCHANGED: {', '.join(row.wrong)}", "bad")
        total = len(row.exact) + len(row.refused) + len(row.wrong)
        table.add_row(Text(_label(row.target), "name"), f"{len(row.exact)} of {total}", refused)
    return table


def _heading(console: Console, title: str, note: str) -> None:
    console.print()
    console.print(Text.assemble((title, "title"), "  ", (note, "quiet")))


def _label(target: str) -> str:
    return "list" if target == "python" else target


def _one_line(text: str) -> str:
    return " ".join(text.split())
