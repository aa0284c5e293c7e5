"""What the conformance suite says of the frameworks that work here, in tables.

The suite makes and judges each conversion (`tensorferry.testing.outcomes`). Here it is decided only
which of its cases are made, and how their outcomes are put together.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import testing
from ..backends.registry import backend_named, known
from ..core.names import EXCHANGE
from ..testing import Group
from ..testing.bits import FORMATS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ..testing import Finding, Outcome, Witness

__all__ = ["DtypeRow", "Examination", "LayoutRow", "Pair", "examine", "pairs"]

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
    found = _pairs(names)
    layouts = _layout_rows(names)
    dtypes = _dtype_outcomes(names)
    outcomes = [
        *(outcome for pair in found for outcome in (pair.default, pair.forced)),
        *(outcome for row in layouts for outcome in row.outcomes.values()),
        *(outcome for row in dtypes.values() for outcome in row),
    ]
    rows = [_dtype_row(name, row) for name, row in dtypes.items()]
    # A case that is in two tables is one conversion.
    judged = list({outcome.cell: outcome for outcome in outcomes}.values())
    held = {(pair.source, pair.target) for pair in found if pair.held}
    instead = {(pair.source, pair.target): _instead(pair, held) for pair in found if not pair.held}
    return Examination(found, layouts, rows, unjudged, judged, instead)


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
            found = default if outcome.cell.group.paths else forced
            found[outcome.cell.group._replace(paths=False)] = outcome
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
    found: dict[str, list[Outcome]] = {name: [] for name in names}
    for outcome in testing.outcomes(*groups, copies=[None]):
        found[groups[outcome.cell.group]].append(outcome)
    return found


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
        tuple(each for each in names if each not in wrong and each not in refused),
        {each: refused[each] for each in names if each in refused and each not in wrong},
        tuple(each for each in names if each in wrong),
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
