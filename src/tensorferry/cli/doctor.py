"""``tensorferry doctor``: what is installed, and what conversions do here.

The conversions are everyday cases of the conformance suite, which makes and judges them on this
machine.
"""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

import tensorferry as ferry

from .. import testing
from ..backends.registry import backend_named, backends, known, outside
from ..core.devices import HOST, kind_of
from ..core.names import EXCHANGE
from ..files.opening import paths as file_formats
from ..sequences.numbers import HAS_EXTENSION
from ..testing import Group
from ..testing.bits import FORMATS
from ..testing.witness import outside as brought_witnesses
from . import console
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
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ..host.plugins import Plugin
    from ..testing import Finding, Outcome, Witness
    from .console import Cell

    Status = dict[str, ferry.FrameworkStatus]

__all__ = [
    "DtypeRow",
    "Examination",
    "LayoutRow",
    "Pair",
    "examine",
    "is_broken",
    "pairs",
    "plugins",
    "print_frameworks",
    "run",
    "working",
]


# -- cases of the conformance suite, and tables of their outcomes ----------------------------------
#
# The suite makes and judges each conversion (`tensorferry.testing.outcomes`). Here it is decided only
# which of its cases are made, and how their outcomes are put together.

_LAYOUTS = {
    "aligned": "compact, 64-byte aligned",
    "offset": "16 bytes past that",
    "fortran": "transposed",
    "strided": "every second element",
    "negative": "reversed",
    "broadcast": "broadcast",
    "big-endian": "other byte order",
    "unaligned": "unaligned to the element",
}
"""The layouts of ndarrays that the table of sharing has, and words for them."""


class Pair(NamedTuple):
    """The tensor of a framework, and a framework that it is converted to.

    Args:
        source: The framework, and which of its tensors it is.
        group: The suite's group of these conversions.
        default: The outcome of the call that people write, without keywords.
        forced: That with ``copy=False``.
    """

    source: str
    group: Group
    default: Outcome
    forced: Outcome

    @property
    def target(self) -> str:
        """The name of the target's backend."""
        return self.group.target

    @property
    def held(self) -> bool:
        """Whether both conversions did what they had to do."""
        return not self.default.findings and not self.forced.findings

    @property
    def word(self) -> str:
        """What happens by default, in a word."""
        return _word(self.default)

    @property
    def can_share(self) -> bool:
        """Whether ``copy=False`` shares."""
        return _word(self.forced).startswith("shares")

    def to_dict(self) -> dict[str, Any]:
        """The pair as plain data."""
        return {
            "source": self.source,
            "layout": self.group.layout,
            "target": self.target,
            "default": _plain(self.default),
            "copy=False": _plain(self.forced),
            "held": self.held,
        }


class LayoutRow(NamedTuple):
    """A layout of ndarrays, and the outcome of ``copy=False`` for each target with memory."""

    layout: str
    words: str
    outcomes: dict[str, Outcome]

    def to_dicts(self) -> Iterator[dict[str, Any]]:
        """Its outcomes as plain data."""
        for target, outcome in self.outcomes.items():
            yield {
                "layout": self.layout,
                "words": self.words,
                "target": target,
                "shares": _word(outcome).startswith("shares"),
                "reason": outcome.reason,
            }


class DtypeRow(NamedTuple):
    """The dtypes that a framework keeps bit for bit, and why it cannot keep others.

    Args:
        target: The name of its backend.
        exact: Those that arrive from NumPy, and go back if the suite has tensors of them.
        refused: Those that are an error, with the message.
        wrong: Those of which something did not hold.
    """

    target: str
    exact: tuple[str, ...]
    refused: dict[str, str]
    wrong: tuple[str, ...]


class Examination(NamedTuple):
    """What the suite found.

    Args:
        pairs: Each everyday tensor, to each framework.
        layouts: Which ndarrays can be shared.
        dtypes: Which dtypes are kept.
        unjudged: The frameworks that work here and that no witness can look at, and why.
        outcomes: All conversions that were judged.
        instead: For each pair that did not do what it must, by its source and target: code that
            does; empty if none is known.
    """

    pairs: list[Pair]
    layouts: list[LayoutRow]
    dtypes: list[DtypeRow]
    unjudged: dict[str, str]
    outcomes: list[Outcome]
    instead: dict[tuple[str, str], str]

    @property
    def findings(self) -> list[Finding]:
        """Everything that is wrong."""
        return [finding for outcome in self.outcomes for finding in outcome.findings]


def examine(frameworks: frozenset[str]) -> Examination:
    """Run everyday cases of the suite among the frameworks that work here."""
    names, unjudged = _judged(frameworks)
    all_pairs = _pairs(names)
    layouts = _layout_rows(names)
    dtypes = _dtype_outcomes(names)
    outcomes = [
        *(outcome for pair in all_pairs for outcome in (pair.default, pair.forced)),
        *(outcome for row in layouts for outcome in row.outcomes.values()),
        *(outcome for row in dtypes.values() for outcome in row),
    ]
    rows = [_dtype_row(name, row) for name, row in dtypes.items()]
    # A case that is in two tables is one conversion.
    judged = list({outcome.cell: outcome for outcome in outcomes}.values())
    held = {(pair.source, pair.target) for pair in all_pairs if pair.held}
    instead = {
        (pair.source, pair.target): _instead(pair, held) for pair in all_pairs if not pair.held
    }
    return Examination(all_pairs, layouts, rows, unjudged, judged, instead)


def _instead(pair: Pair, held: Collection[tuple[str, str]]) -> str:
    """Code that did what it must, in the place of a pair that did not; empty if none is known.

    Args:
        pair: The pair.
        held: The source and target of each that did.
    """
    dtype = pair.default.cell.dtype
    (copied,) = testing.outcomes(pair.group, dtypes=[dtype], copies=[True])
    if not copied.findings:
        return f'ferry.convert(x, "{pair.target}", copy=True)'
    if {(pair.source, EXCHANGE), (EXCHANGE, pair.target)} <= {*held}:
        return f'ferry.convert(ferry.convert(x, "{EXCHANGE}"), "{pair.target}")'
    return ""


def pairs(frameworks: frozenset[str]) -> list[Pair]:
    """Each everyday tensor of these frameworks, to each of them."""
    return _pairs(_judged(frameworks)[0])


def _judged(frameworks: frozenset[str]) -> tuple[list[str], dict[str, str]]:
    """The frameworks that a witness can look at; and the others, each with the reason."""
    names: list[str] = []
    unjudged: dict[str, str] = {}
    for name, backend in known().items():
        if name in frameworks and backend.is_target:
            try:
                testing.witness_for(name)
            except Exception as error:  # noqa: BLE001 - the doctor goes on, and tells
                unjudged[name] = str(error)
            else:
                names.append(name)
    return names, unjudged


def _pairs(names: Sequence[str]) -> list[Pair]:
    words: dict[Group, str] = {}
    in_dtype: dict[str, list[Group]] = {}
    for source in names:
        witness = testing.witness_for(source)
        for layout, word in witness.everyday.items():
            own = [Group(source, layout, target) for target in names]
            words |= dict.fromkeys(own, ", ".join(filter(None, [source, word])))
            in_dtype.setdefault(_usual_dtype(witness, layout), []).extend(own)
    default: dict[Group, Outcome] = {}
    forced: dict[Group, Outcome] = {}
    for dtype, groups in in_dtype.items():
        calls = [group._replace(paths=True) for group in groups]
        for outcome in testing.outcomes(*groups, *calls, dtypes=[dtype], copies=[False]):
            outcomes_by_group = default if outcome.cell.group.paths else forced
            outcomes_by_group[outcome.cell.group._replace(paths=False)] = outcome
    return [
        Pair(word, group, default[group], forced[group])
        for group, word in words.items()
        if group in default and group in forced
    ]


def _usual_dtype(witness: Witness, layout: str) -> str:
    """The dtype of a pair. Nearly all tensors can have it; the others are in another table."""
    for dtype in ("float32", "float64", *FORMATS):
        with suppress(Exception):  # a broken witness is found out by the suite
            if witness.knows(dtype) and witness.make(layout, dtype) is not None:
                return dtype
    return "float32"


def _layout_rows(names: Sequence[str]) -> list[LayoutRow]:
    groups = [
        Group(EXCHANGE, layout, target)
        for layout in _LAYOUTS
        for target in names
        if target != EXCHANGE and backend_named(target).capabilities.memory.exists
    ]
    rows = [LayoutRow(layout, words, {}) for layout, words in _LAYOUTS.items()]
    by_layout = {row.layout: row.outcomes for row in rows}
    for outcome in testing.outcomes(*groups, dtypes=["float32"], copies=[False]):
        by_layout[outcome.cell.group.layout][outcome.cell.group.target] = outcome
    return rows


def _dtype_outcomes(names: Sequence[str]) -> dict[str, list[Outcome]]:
    """The outcomes of all dtypes from NumPy to each framework, and back."""
    groups = {Group(EXCHANGE, "aligned", name): name for name in names}
    for name in names:
        plain = next(iter(testing.witness_for(name).everyday))
        groups.setdefault(Group(name, plain, EXCHANGE), name)
    outcomes_of_names: dict[str, list[Outcome]] = {name: [] for name in names}
    for outcome in testing.outcomes(*groups, copies=[None]):
        outcomes_of_names[groups[outcome.cell.group]].append(outcome)
    return outcomes_of_names


def _dtype_row(name: str, outcomes: Sequence[Outcome]) -> DtypeRow:
    names = sorted({outcome.cell.dtype for outcome in outcomes}, key=_by_kind)
    wrong = {outcome.cell.dtype for outcome in outcomes if outcome.findings}
    refused = {
        outcome.cell.dtype: outcome.reason
        for outcome in outcomes
        if outcome.verdict.error is not None and outcome.cell.group.target == name
    }
    return DtypeRow(
        name,
        tuple(name for name in names if name not in wrong and name not in refused),
        {name: refused[name] for name in names if name in refused and name not in wrong},
        tuple(name for name in names if name in wrong),
    )


def _by_kind(name: str) -> tuple[str, int, str]:
    """Order dtypes as a person lists them: by kind, then by width."""
    letters, width = re.match(r"([a-z]+)(\d*)", name).groups()  # type: ignore[union-attr]
    return letters, int(width or 0), name


def _word(outcome: Outcome) -> str:
    """What a conversion did, in a word."""
    if outcome.findings:
        return "wrong"
    if outcome.verdict.error is not None:
        return "cannot"
    if not outcome.verdict.shares:
        return "copies"
    constant = not backend_named(outcome.cell.group.target).capabilities.memory.writable
    return "shares" if constant or outcome.verdict.writable else "shares (read-only)"


def _plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    shares, writable = outcome.verdict.shares, outcome.verdict.writable
    if outcome.findings or outcome.verdict.error is not None:
        shares = writable = None
    return {
        "word": _word(outcome),
        "shares": shares,
        "writable": writable,
        "reason": outcome.reason,
        "held": not outcome.findings,
    }


# -- what is printed -------------------------------------------------------------------------------
#
# The conversions are everyday cases of the conformance suite, made and judged on this machine.


def run(*, as_json: bool) -> int:
    """Run the suite's cases and print; gives the exit code."""
    with quiet("asking the frameworks, making conversions between them …"):
        status = ferry.frameworks(load=True)
        examination = examine(working(status))
        brought = plugins()
    if as_json:
        print_json(_as_data(status, brought, examination))
    else:
        _print(status, brought, examination)
    return EXIT_FAILED if examination.findings else 0


def _as_data(status: Status, brought: list[Plugin], examination: Examination) -> dict[str, Any]:
    return {
        "tensorferry": ferry.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "extension": HAS_EXTENSION,
        "frameworks": {name: framework._asdict() for name, framework in status.items()},
        "file_systems": file_systems(),
        "plugins": [plugin._asdict() for plugin in brought],
        "pairs": [pair.to_dict() for pair in examination.pairs],
        "layouts": [layout for row in examination.layouts for layout in row.to_dicts()],
        "dtypes": {
            row.target: {
                "exact": list(row.exact),
                "refused": row.refused,
                "wrong": list(row.wrong),
            }
            for row in examination.dtypes
        },
        "judged": len(examination.outcomes),
        "unjudged": _unjudged(status, examination),
        "findings": [_finding_as_data(finding) for finding in examination.findings],
        "instead": {" to ".join(ends): code for ends, code in examination.instead.items() if code},
        "held": not examination.findings,
    }


def _finding_as_data(finding: Finding) -> dict[str, Any]:
    group, dtype, copy = finding.cell
    return {
        "source": group.source,
        "layout": group.layout,
        "target": group.target,
        "dtype": dtype,
        "copy": copy,
        "without_keywords": group.paths,
        "about": finding.about,
        "text": finding.text,
    }


def _unjudged(status: Status, examination: Examination) -> dict[str, str]:
    """The frameworks and devices of which nothing was judged, and why, for people who use them."""
    told = {
        name: _why_unjudged(status.get(name), why) for name, why in examination.unjudged.items()
    }
    for name, framework in status.items():
        devices = [device for device in framework.devices if kind_of(device) != HOST]
        if devices and name not in told:
            command = f"tensorferry explain --from {name} --device {devices[0]} --to {EXCHANGE}"
            told[f"{name} on {', '.join(devices)}"] = (
                "the conformance suite is about memory of the host. "
                f"`{command}` shows what a conversion does"
            )
    return told


def _why_unjudged(status: ferry.FrameworkStatus | None, why: str) -> str:
    if status is None or status.package is None:
        return "the conformance suite has no witness for it, because it is about memory of the host"
    return f"{why}. Ask the makers of {status.package} for one."


def working(status: Status) -> frozenset[str]:
    """The names of backends that work here. Those without a framework always work."""
    return frozenset(name for name in backends() if name not in status or status[name].installed)


def plugins() -> list[Plugin]:
    """What outside packages bring: backends, file formats, witnesses; also broken ones."""
    groups = outside, file_formats.outside, brought_witnesses
    for group in groups:
        group.open_all()
    return [plugin for group in groups for plugin in group.plugins()]


_FILE_SYSTEMS = {"fsspec": "remote", "s3fs": "s3", "gcsfs": "gcs"}
"""The packages that have file systems for URLs, and the extras that install them."""


def file_systems() -> dict[str, str | None]:
    """The versions of the packages that have file systems for URLs; ``None`` if one is not installed."""
    found: dict[str, str | None] = {}
    for package in _FILE_SYSTEMS:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _file_systems_told() -> str:
    found = file_systems()
    there = [f"{package} {number}" for package, number in found.items() if number is not None]
    absent = [
        f'{package} is not installed: pip install "tensorferry[{_FILE_SYSTEMS[package]}]"'
        for package, number in found.items()
        if number is None
    ]
    return "; ".join([", ".join(there) or "none", *absent])


def is_broken(framework: ferry.FrameworkStatus) -> bool:
    """Whether a framework is installed, but its import fails."""
    return framework.error is not None and not framework.error.endswith("is not installed.")


def print_frameworks(status: Status) -> None:
    """Print the table of frameworks: version, devices, and errors."""
    held: list[list[Cell]] = [["framework", "version", "devices", ""]]
    for name, framework in status.items():
        if framework.installed and framework.error is None:
            state = Text("ok", "ok")
        elif is_broken(framework):
            state = Text.assemble(
                ("broken: ", "bad"),
                _one_line(framework.error or ""),
                "\n",
                (solid(framework.install), "code"),
            )
        else:
            state = Text.assemble(("not installed: ", "warn"), (solid(framework.install), "code"))
        held.append(
            [Text(name, "name"), framework.version or "", ", ".join(framework.devices), state]
        )
    _print_table(held)


def _print(status: Status, brought: list[Plugin], examination: Examination) -> None:
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    prose(Text.assemble((f"tensorferry {ferry.__version__}", "title"), f" · {system}"))
    prose(f"Python numbers are read {_READ_BY[HAS_EXTENSION]}")
    prose()
    print_frameworks(status)
    prose()
    prose(f"URLs of object stores are read by {printable(_file_systems_told())}")
    if brought:
        _heading("What other packages bring", "by entry points; what is broken is left aside")
        _print_plugins(brought)
    _heading("What a conversion does", "each was run just now, its values and memory looked at")
    _print_pairs(examination.pairs)
    # Without a framework there is no table of sharing.
    if any(row.outcomes for row in examination.layouts):
        _heading("Which ndarrays copy=False can share", "with each framework")
        _print_layouts(examination.layouts)
    _heading("Dtypes, there and back", "bit for bit or refused, never changed in silence")
    _print_dtypes(examination.dtypes)
    unjudged = _unjudged(status, examination)
    if unjudged:
        _heading("Not looked at", "nothing is said about conversions from and to these")
        held: list[tuple[Cell, Cell]] = [
            (Text(solid(name), "name"), why) for name, why in unjudged.items()
        ]
        show_lines(list(console.fact_lines(held, report_width())), ["", ""])
    if examination.findings:
        _print_findings(status, examination)
        return
    prose()
    judged = (
        f"The conformance suite judged {len(examination.outcomes):,} conversions: all are right."
    )
    prose(Text(judged, "ok"))


_READ_BY = {
    True: "by the extension",
    False: "by NumPy: the extension was not built, or TENSORFERRY_NO_EXTENSION is set",
}


def _print_findings(status: Status, examination: Examination) -> None:
    """Print what is wrong, framework by framework, and what to do about it."""
    _heading("What does not hold", "do not rely on these conversions here")
    by_ends: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in examination.outcomes:
        if outcome.findings:
            group = outcome.cell.group
            by_ends.setdefault((group.source, group.target), []).append(outcome)
    for (source, target), outcomes in by_ends.items():
        instead: dict[str, list[str]] = {}
        for pair in examination.pairs:
            code = examination.instead.get((pair.source, pair.target), "")
            if code and (pair.group.source, pair.target) == (source, target):
                instead.setdefault(code, []).append(pair.source)
        facts: list[tuple[Cell, Cell]] = [
            (_case_words(outcome), printable(_told(outcome))) for outcome in outcomes[:_MOST_SHOWN]
        ]
        if len(outcomes) > _MOST_SHOWN:
            facts.append(("", f"and {len(outcomes) - _MOST_SHOWN} more conversions"))
        facts += [
            ("instead", f"`{solid(code)}` is right, from {'; '.join(sources)}")
            for code, sources in instead.items()
        ]
        prose()
        prose(Text(f"{source} to {_label(target)}", "bad"))
        show_lines(list(console.fact_lines(facts, report_width())), ["quiet", ""])
    wrong = sum(map(len, by_ends.values()))
    prose()
    prose(
        Text(
            f"{wrong:,} of {len(examination.outcomes):,} conversions did not do what they must.",
            "bad",
        )
    )
    named = {name for ends in by_ends for name in ends}
    brought = {
        framework.package
        for name, framework in status.items()
        if name in named and framework.package
    }
    # Each is a name and a version, unless its metadata cannot be read.
    packages = sorted(package.split()[0] for package in brought if len(package.split()) == 2)
    upgrade = " ".join(["pip install --upgrade tensorferry", *packages])
    prose(
        f"Try `{solid(upgrade)}`. If that does not help, report it, with what "
        f"`{solid('tensorferry doctor --json')}` prints."
    )


_MOST_SHOWN = 5
_LONGEST = 160


def _case_words(outcome: Outcome) -> str:
    """Which of the conversions between two frameworks it was."""
    group, dtype, copy = outcome.cell
    if group.paths:
        return f"{group.layout}, {dtype}"
    return f"{group.layout}, {dtype}, copy={copy}"


def _told(outcome: Outcome) -> str:
    """What is wrong with a conversion: the first finding, and what the others are about."""
    first, *others = outcome.findings
    text = _one_line(f"{first.about}: {first.text}".partition("\n\n")[0])
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} …"
    also = dict.fromkeys(other.about for other in others if other.about != first.about)
    return "; also ".join(filter(None, [text, ", ".join(also)]))


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


def _print_pairs(pairs: list[Pair]) -> None:
    """Print the table of pairs, and the reason for each number."""
    numbers = _numbered(
        pair.default.reason for pair in pairs if pair.held and pair.word != "shares"
    )
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


def _pair_cell(pair: Pair, numbers: dict[str, int]) -> Text:
    if not pair.held:
        return Text("WRONG", "bad")
    match pair.word:
        case "cannot":
            cell = Text("cannot", "bad")
        case "copies":
            cell = Text("copies*" if pair.can_share else "copies", "copied")
        case "shares":
            return Text("shares", "shared")
        case _:
            cell = Text("shares, ro", "shared")
    return cell.append(_raised(numbers[pair.default.reason]), "quiet")


def _numbered(reasons: Iterable[str]) -> dict[str, int]:
    """A number for each reason, which stands once below its table."""
    return {reason: number for number, reason in enumerate(dict.fromkeys(reasons), 1)}


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _print_layouts(layouts: list[LayoutRow]) -> None:
    """Print which layouts are shared, and the reason for each number."""
    targets = list(dict.fromkeys(target for row in layouts for target in row.outcomes))
    numbers = _numbered(
        _core(outcome.reason)
        for row in layouts
        for outcome in row.outcomes.values()
        if outcome.verdict.error is not None and not outcome.findings
    )
    held: list[list[Cell]] = [
        [
            Text(row.words, "name"),
            *(_layout_cell(row.outcomes[target], numbers) for target in targets),
        ]
        for row in layouts
    ]
    _print_matrix(["", *targets], held)
    _print_notes([], numbers)


def _layout_cell(outcome: Outcome, numbers: dict[str, int]) -> Text:
    if outcome.findings:
        return Text("WRONG", "bad")
    if outcome.verdict.error is None:
        return Text("yes", "shared")
    return Text("no", "copied").append(_raised(numbers[_core(outcome.reason)]), "quiet")


def _core(reason: str) -> str:
    """The reason in a message `numpy to torch cannot share this memory: …`."""
    return (
        _one_line(reason).partition("cannot share this memory: ")[2] or _one_line(reason)
    ).rstrip(".")


def _print_dtypes(dtypes: list[DtypeRow]) -> None:
    held: list[list[Cell]] = [["to", "exact", "refused"]]
    for row in dtypes:
        refused = Text(", ".join(row.refused) or "none", "quiet")
        if row.wrong:
            refused.append(f"\nWRONG: {', '.join(row.wrong)}", "bad")
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
