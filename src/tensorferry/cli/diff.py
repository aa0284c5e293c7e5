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
        first, other = (_with_lists(open_path(path, allow=frozenset(allow))) for path in (a, b))
        if table is not None:
            # Here, because most files are compared as they are.
            from ..files.mapped import contents_map

            left = [*named_values(first.tree)]
            first = contents_map(table, dims, [str(a), *first.paths]).mapped(first)
            if left:
                show_note(
                    f"not compared, since a table has tensors only: {printable(named(left, 20))}"
                )
        total = sum(
            stored.nbytes for contents in (first, other) for stored in contents.tensors.values()
        )
        with progress("comparing", lambda: total) as moved:
            difference = diff(
                first,
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
            result("diff", {**paths, **difference.to_dict()})
        else:
            rows(
                _lines(difference, first, other, every=every), styles=("warn", "name", "", "quiet")
            )
            _print_verdict(difference, tolerance)
    return 0 if difference.equal else EXIT_FAILED


def _with_lists(contents: Contents) -> Contents:
    """The contents, with what the rows of a table tell."""
    if not contents.columns:
        return contents
    from ..files.base.contents import lists_read  # here, because most files have no tables

    return lists_read(contents)


def _print_verdict(difference: Difference, tolerance: float | None) -> None:
    accepted = sum(tensor_difference.accepted for tensor_difference in difference.differing)
    differing = len(difference.differing) - accepted
    if tolerance is None:
        within = "equal in value"
    else:
        within = f"within atol={tolerance:g}, rtol=0"
    counts = [f"{counted(difference.tensors, 'tensor')} in common"]
    if differing:
        counts.append(f"differing: {differing:,}")
    if accepted:
        how = "accepted" if difference.equal else within
        counts.append(f"{how}: {accepted:,}")
    if difference.tensors and not difference.differing:
        counts.append("all equal, bit for bit")
    words = [", ".join(counts)]
    if difference.equal:
        verdict = "equal", "ok"
    else:
        verdict = "different", "bad"
    if difference.equal and accepted:
        verdict = (within if tolerance is None else f"equal {within}", "ok")
    for names, what in (
        (difference.renamed, "renamed"),
        (difference.only_a, "only in A"),
        (difference.only_b, "only in B"),
        (difference.values, "values"),
        (difference.metadata, "metadata"),
        (difference.uncompared, "not compared"),
    ):
        if names:
            words.append(f"{what}: {len(names):,}")
    paragraph(Text.assemble(verdict, ": ", "; ".join(words)))


Row = tuple[str, str, str, str]


def _lines(
    difference: Difference, first: Contents, other: Contents, *, every: bool
) -> Iterator[Row]:
    """Yield lines: names that differ only in numbers are one, long lists are cut unless `every`."""
    was = {f"{old} -> {new}": first.tensors[old] for old, new in difference.renamed}
    only_a = {name: first.tensors[name] for name in difference.only_a}
    only_b = {name: other.tensors[name] for name in difference.only_b}
    for word, held in (("renamed", was), ("only in A", only_a), ("only in B", only_b)):
        entries = [(name, stored.dtype, stored.shape) for name, stored in held.items()]
        yield from _some(_folded(word, entries, every=every), every=every)
    differing = [
        (
            _word(tensor_difference),
            printable(tensor_difference.name),
            _types(tensor_difference),
            _distance(tensor_difference),
        )
        for tensor_difference in difference.differing
    ]
    yield from _some(differing, every=every)
    for word, changes in (("value", difference.values), ("metadata", difference.metadata)):
        yield from _some(
            [(word, printable(change.place), _sides(change), "") for change in changes], every=every
        )
    why = [
        ("not compared", printable(name), printable(why), "")
        for name, why in difference.uncompared.items()
    ]
    yield from _some(why, every=every)


def _folded(
    word: str, entries: list[tuple[str, str, tuple[int, ...]]], *, every: bool
) -> list[Row]:
    if every:
        return [(word, printable(name), "", "") for name, _, _ in entries]
    lines = []
    for folded in fold(entries):
        numbers = ", ".join(f"({part})" if "," in part else part for part in folded.ranges)
        if folded.total > 1:
            count = f"{folded.total:,}x  # {numbers}"
        else:
            count = ""
        if word == "renamed":
            kind = ""
        else:
            kind = f"{folded.dtype} {list(folded.shape)}"
        lines.append((word, printable(folded.name), kind, count))
    return lines


def _some(lines: list[Row], *, every: bool) -> Iterator[Row]:
    """Yield the first lines, and how many more there are."""
    if every or len(lines) <= _LISTED + 1:
        yield from lines
        return
    yield from lines[:_LISTED]
    yield lines[0][0], f"and {len(lines) - _LISTED:,} more (--all)", "", ""


def _word(tensor: TensorDifference) -> str:
    if tensor.shapes[0] != tensor.shapes[1]:
        return "shape"
    if tensor.accepted:
        return "accepted"
    if tensor.dtypes[0] != tensor.dtypes[1]:
        return "dtype"
    return "values"


def _types(tensor: TensorDifference) -> str:
    first, other = (
        f"{dtype} {list(shape)}" for dtype, shape in zip(tensor.dtypes, tensor.shapes, strict=True)
    )
    return first if first == other else f"{first} -> {other}"


def _distance(tensor: TensorDifference) -> str:
    if tensor.shapes[0] != tensor.shapes[1]:
        return ""
    words = [f"{tensor.elements:,} of {prod(tensor.shapes[0]):,} differ"]
    if tensor.largest is not None and tensor.elements:
        words.append(f"largest |a-b| {tensor.largest:.6g} at {list(tensor.position or ())}")
    if tensor.nans:
        words.append(f"{tensor.nans:,} NaN on one side only")
    return ", ".join(words)


def _sides(change: Change) -> str:
    texts = ["(absent)" if text is None else printable(text) for text in (change.a, change.b)]
    return " -> ".join(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts)
