"""``tensorferry doctor``: what is installed, and what conversions do here, by measurement."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from rich.text import Text

import tensorferry as ferry

from ..backends.registry import backends, outside
from ..files.opening import paths as file_formats
from ..sequences.numbers import HAS_EXTENSION
from . import console, measure
from .console import (
    EXIT_FAILED,
    print_json,
    printable,
    prose,
    quiet,
    report_width,
    show_lines,
    solid,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..host.plugins import Plugin
    from .console import Cell

    Status = dict[str, ferry.FrameworkStatus]

__all__ = ["is_broken", "plugins", "print_frameworks", "run", "working"]


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
                    {
                        "layout": name,
                        "target": target,
                        "reason": outcome.reason,
                        "shares": outcome.seen is not None,
                    }
                    for name, row in layouts
                    for target, outcome in row.items()
                ],
                "dtypes": {
                    row.target: {
                        "exact": list(row.exact),
                        "refused": row.refused,
                        "wrong": list(row.wrong),
                    }
                    for row in dtypes
                },
                "held": held,
            }
        )
    else:
        _print(status, brought, pairs, layouts, dtypes, held=held)
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


def print_frameworks(status: Status) -> None:
    """Print the table of frameworks: version, devices, and errors."""
    held: list[list[Cell]] = [["framework", "version", "devices", ""]]
    for name, found in status.items():
        if found.installed and found.error is None:
            state = Text("ok", "ok")
        elif is_broken(found):
            state = Text.assemble(
                ("broken: ", "bad"),
                _one_line(found.error or ""),
                "\n",
                (solid(found.install), "code"),
            )
        else:
            state = Text.assemble(("not installed: ", "warn"), (solid(found.install), "code"))
        held.append([Text(name, "name"), found.version or "", ", ".join(found.devices), state])
    _print_table(held)


def _print(
    status: Status,
    brought: list[Plugin],
    pairs: list[measure.Pair],
    layouts: list[tuple[str, dict[str, measure.Outcome]]],
    dtypes: list[measure.RoundTrips],
    *,
    held: bool,
) -> None:
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    prose(Text.assemble((f"tensorferry {ferry.__version__}", "title"), f" · {system}"))
    by = (
        "by the extension"
        if HAS_EXTENSION
        else "by NumPy: the extension was not built, or TENSORFERRY_NO_EXTENSION is set"
    )
    prose(f"Python numbers are read {by}")
    prose()
    print_frameworks(status)
    if brought:
        _heading("What other packages bring", "by entry points; what is broken is left aside")
        _print_plugins(brought)
    _heading("What a conversion does", "each was run just now, and its memory looked at")
    _print_pairs(pairs)
    # Without a framework there is no table of sharing.
    if any(row for _, row in layouts):
        _heading("Which ndarrays copy=False can share", "with each framework")
        _print_layouts(layouts)
    _heading("Dtypes, there and back", "bit for bit or refused, never changed in silence")
    _print_dtypes(dtypes)
    prose()
    for pair in pairs:
        if not measure.as_planned(pair):
            words = f"{pair.source} to {_label(pair.target)} did not do what its plan said."
            prose(Text(words, "bad"))
    good = Text("Everything that was measured is as planned.", "ok")
    prose(good if held else Text("Something did not hold.", "bad"))


def _print_plugins(brought: list[Plugin]) -> None:
    held: list[list[Cell]] = [["group", "name", "package", ""]]
    for group, name, package, error in brought:
        state = (
            Text("ok", "ok")
            if error is None
            else Text.assemble(("broken: ", "bad"), printable(error))
        )
        held.append([group, Text(printable(name), "name"), printable(package), state])
    _print_table(held)


def _print_pairs(pairs: list[measure.Pair]) -> None:
    """Print the table of pairs, and the reason for each number."""
    noted = [pair.default.reason for pair in pairs if pair.word != "shares"]
    numbers = _numbered(noted)
    targets = list(dict.fromkeys(pair.target for pair in pairs))
    held: list[list[Cell]] = []
    for source in dict.fromkeys(pair.source for pair in pairs):
        cells = [_pair_cell(pair, numbers) for pair in pairs if pair.source == source]
        held.append([Text(source, "name"), *cells])
    _print_matrix(["from \\ to", *map(_label, targets)], held)
    notes: list[tuple[Cell, Cell]] = []
    if any(pair.word == "copies" and pair.can_share for pair in pairs):
        notes.append(
            ("*", f"copy=False shares; `{solid('tensorferry explain')}` says what to be careful of")
        )
    if any(pair.word.endswith("(read-only)") for pair in pairs):
        notes.append(("ro", "read-only"))
    _print_notes(notes, numbers)


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


def _numbered(reasons: Iterable[str]) -> dict[str, int]:
    """A number for each reason, which stands once below its table."""
    return {reason: number for number, reason in enumerate(dict.fromkeys(reasons), 1)}


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _print_layouts(layouts: list[tuple[str, dict[str, measure.Outcome]]]) -> None:
    """Print which layouts are shared, and the reason for each number."""
    targets = list(dict.fromkeys(target for _, row in layouts for target in row))
    numbers = _numbered(
        _core(outcome.reason)
        for _, row in layouts
        for outcome in row.values()
        if outcome.held and outcome.seen is None
    )
    held: list[list[Cell]] = [
        [Text(name, "name"), *(_layout_cell(row[target], numbers) for target in targets)]
        for name, row in layouts
    ]
    _print_matrix(["", *targets], held)
    _print_notes([], numbers)


def _layout_cell(outcome: measure.Outcome, numbers: dict[str, int]) -> Text:
    if not outcome.held:
        return Text("NOT AS PLANNED", "bad")
    if outcome.seen is not None:
        return Text("yes", "shared")
    return Text("no", "copied").append(_raised(numbers[_core(outcome.reason)]), "quiet")


def _core(reason: str) -> str:
    """The reason in a message `numpy to torch cannot share this memory: …`."""
    return (
        _one_line(reason).partition("cannot share this memory: ")[2] or _one_line(reason)
    ).rstrip(".")


def _print_dtypes(dtypes: list[measure.RoundTrips]) -> None:
    held: list[list[Cell]] = [["to", "exact", "refused"]]
    for row in dtypes:
        refused = Text(", ".join(row.refused) or "none", "quiet")
        if row.wrong:
            refused.append(f"\nCHANGED: {', '.join(row.wrong)}", "bad")
        total = len(row.exact) + len(row.refused) + len(row.wrong)
        held.append([Text(_label(row.target), "name"), f"{len(row.exact)} of {total}", refused])
    _print_table(held)


def _print_table(held: list[list[Cell]]) -> None:
    """Print a table whose first row has headings."""
    held[0] = [Text(str(word), "quiet") for word in held[0]]
    show_lines(
        list(console.table(held, report_width(), margin=0, headed=True)), [""] * len(held[0])
    )


def _print_matrix(heads: list[str], held: list[list[Cell]]) -> None:
    """Print a table of many narrow columns, below each other if too many for the terminal."""
    for number, block in enumerate(console.blocks(heads, held, report_width())):
        if number:
            prose()
        _print_table(block)


def _print_notes(notes: list[tuple[Cell, Cell]], numbers: dict[str, int]) -> None:
    notes += [(_raised(number), _one_line(reason)) for reason, number in numbers.items()]
    if notes:
        prose()
        show_lines(list(console.fact_lines(notes, report_width(), right=True)), ["quiet", "quiet"])


def _heading(title: str, note: str) -> None:
    prose()
    prose(Text.assemble((title, "title"), "  ", (note, "quiet")))


def _label(target: str) -> str:
    return "list" if target == "python" else target


def _one_line(text: str) -> str:
    return " ".join(text.split())
