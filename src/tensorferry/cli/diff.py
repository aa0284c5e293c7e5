"""``tensorferry diff``: compare two files of any formats."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from rich.text import Text

from ..errors import ConversionError
from ..files.base.nesting import named_values
from ..files.base.wording import named
from ..files.opening.paths import open_path
from ..files.reports.diff import Change, Difference, TensorDifference, diff
from ..files.reports.summary import fold
from .console import EXIT_FAILED, paragraph, printable, rows
from .outcome import counted, failed, progress, result, show_note, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ..files.base.contents import Contents

__all__ = ["run"]

_LISTED = 20
"""How many lines of one kind are shown without --all."""
_LONGEST = 60
"""The most characters of a value that are shown."""


def run(
    a: Path,
    b: Path,
    *,
    tolerance: float | None,
    any_dtype: bool,
    tensors_only: bool,
    allow: Sequence[str],
    as_json: bool,
    every: bool = False,
    table: Path | None = None,
    dims: Mapping[str, int] | None = None,
) -> int:
    """Print the differences; gives the exit code."""
    paths = {"a": str(a), "b": str(b), "tolerance": tolerance}
    try:
        one, other = (_with_lists(open_path(path, allow=frozenset(allow))) for path in (a, b))
        if table is not None:
            from ..files.mapped import (
                contents_map,  # here, because most files are compared as they are
            )

            left = [*named_values(one.tree)]
            one = contents_map(table, dims, [str(a), *one.paths]).mapped(one)
            if left:
                show_note(
                    f"not compared, since a table has tensors only: {printable(named(left, 20))}"
                )
        total = sum(stored.nbytes for each in (one, other) for stored in each.tensors.values())
        with progress("comparing", lambda: total) as moved:
            found = diff(
                one,
                other,
                tolerance=tolerance,
                any_dtype=any_dtype,
                tensors_only=tensors_only,
                progress=moved,
            )
    except (ConversionError, OSError) as error:
        return failed("diff", paths, error, as_json=as_json)
    with writing():
        if as_json:
            result("diff", {**paths, **found.to_dict()})
        else:
            rows(_lines(found, one, other, every=every), styles=("warn", "name", "", "quiet"))
            _print_verdict(found, tolerance)
    return 0 if found.equal else EXIT_FAILED


def _with_lists(contents: Contents) -> Contents:
    """The contents, with what the rows of a table tell."""
    if not contents.columns:
        return contents
    from ..files.base.contents import lists_read  # here, because most files have no tables

    return lists_read(contents)


def _print_verdict(found: Difference, tolerance: float | None) -> None:
    accepted = sum(each.accepted for each in found.differing)
    differing = len(found.differing) - accepted
    if tolerance is None:
        within = "equal in value"
    else:
        within = f"within atol={tolerance:g}, rtol=0"
    counts = [f"{counted(found.tensors, 'tensor')} in common"]
    if differing:
        counts.append(f"differing: {differing:,}")
    if accepted:
        how = "accepted" if found.equal else within
        counts.append(f"{how}: {accepted:,}")
    if found.tensors and not found.differing:
        counts.append("all equal, bit for bit")
    words = [", ".join(counts)]
    if found.equal:
        verdict = "equal", "ok"
    else:
        verdict = "different", "bad"
    if found.equal and accepted:
        verdict = (within if tolerance is None else f"equal {within}", "ok")
    for names, what in (
        (found.renamed, "renamed"),
        (found.only_a, "only in A"),
        (found.only_b, "only in B"),
        (found.values, "values"),
        (found.metadata, "metadata"),
        (found.uncompared, "not compared"),
    ):
        if names:
            words.append(f"{what}: {len(names):,}")
    paragraph(Text.assemble(verdict, ": ", "; ".join(words)))


Row = tuple[str, str, str, str]


def _lines(found: Difference, one: Contents, other: Contents, *, every: bool) -> Iterator[Row]:
    """Yield lines: names that differ only in numbers are one, long lists are cut unless `every`."""
    was = {f"{old} -> {new}": one.tensors[old] for old, new in found.renamed}
    only_a = {name: one.tensors[name] for name in found.only_a}
    only_b = {name: other.tensors[name] for name in found.only_b}
    for word, held in (("renamed", was), ("only in A", only_a), ("only in B", only_b)):
        entries = [(name, stored.dtype, stored.shape) for name, stored in held.items()]
        yield from _some(_folded(word, entries, every=every), every=every)
    differing = [
        (_word(each), printable(each.name), _types(each), _distance(each))
        for each in found.differing
    ]
    yield from _some(differing, every=every)
    for word, changes in (("value", found.values), ("metadata", found.metadata)):
        yield from _some(
            [(word, printable(each.place), _sides(each), "") for each in changes], every=every
        )
    why = [
        ("not compared", printable(name), printable(why), "")
        for name, why in found.uncompared.items()
    ]
    yield from _some(why, every=every)


def _folded(
    word: str, entries: list[tuple[str, str, tuple[int, ...]]], *, every: bool
) -> list[Row]:
    if every:
        return [(word, printable(name), "", "") for name, _, _ in entries]
    lines = []
    for each in fold(entries):
        numbers = ", ".join(f"({part})" if "," in part else part for part in each.ranges)
        if each.total > 1:
            count = f"{each.total:,}x  # {numbers}"
        else:
            count = ""
        if word == "renamed":
            kind = ""
        else:
            kind = f"{each.dtype} {list(each.shape)}"
        lines.append((word, printable(each.name), kind, count))
    return lines


def _some(lines: list[Row], *, every: bool) -> Iterator[Row]:
    """Yield the first lines, and how many more there are."""
    if every or len(lines) <= _LISTED + 1:
        yield from lines
        return
    yield from lines[:_LISTED]
    yield lines[0][0], f"and {len(lines) - _LISTED:,} more (--all)", "", ""


def _word(each: TensorDifference) -> str:
    if each.shapes[0] != each.shapes[1]:
        return "shape"
    if each.accepted:
        return "accepted"
    if each.dtypes[0] != each.dtypes[1]:
        return "dtype"
    return "values"


def _types(each: TensorDifference) -> str:
    one, other = (
        f"{dtype} {list(shape)}" for dtype, shape in zip(each.dtypes, each.shapes, strict=True)
    )
    return one if one == other else f"{one} -> {other}"


def _distance(each: TensorDifference) -> str:
    if each.shapes[0] != each.shapes[1]:
        return ""
    words = [f"{each.elements:,} of {prod(each.shapes[0]):,} differ"]
    if each.largest is not None and each.elements:
        words.append(f"largest |a-b| {each.largest:.6g} at {list(each.position or ())}")
    if each.nans:
        words.append(f"{each.nans:,} NaN on one side only")
    return ", ".join(words)


def _sides(change: Change) -> str:
    texts = ["(absent)" if text is None else printable(text) for text in (change.a, change.b)]
    return " -> ".join(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts)
