"""``tensorferry diff``: compare two files of any formats."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from rich.text import Text

from tensorferry.errors import ConversionError
from tensorferry.files.opening.shards import open_path
from tensorferry.files.reports.diff import Change, Difference, TensorDifference, diff

from .console import EXIT_FAILED, out, printable
from .listing import rows
from .outcome import counted, failed, progress, result, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tensorferry.files.base.contents import Contents

__all__ = ["run"]

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
) -> int:
    """Print the differences; gives the exit code."""
    paths = {"a": str(a), "b": str(b), "tolerance": tolerance}
    try:
        one, other = (_with_lists(open_path(path, allow=frozenset(allow))) for path in (a, b))
        total = sum(stored.nbytes for each in (one, other) for stored in each.tensors.values())
        with progress("comparing", lambda: total) as moved:
            found = diff(
                one, other, tolerance=tolerance, any_dtype=any_dtype, tensors_only=tensors_only, progress=moved
            )
    except (ConversionError, OSError) as error:
        return failed("diff", paths, error, as_json=as_json)
    with writing():
        if as_json:
            result("diff", {**paths, **found.to_dict()})
        else:
            _print(found, tolerance)
    return 0 if found.equal else EXIT_FAILED


def _with_lists(contents: Contents) -> Contents:
    """The contents, with what the rows of a table tell."""
    if not contents.columns:
        return contents
    from tensorferry.files.opening.table_columns import lists_read  # here, because most files have no tables

    return lists_read(contents)


def _print(found: Difference, tolerance: float | None) -> None:
    rows(_lines(found), styles=("warn", "name", "", ""))
    accepted = sum(each.accepted for each in found.differing)
    differing = len(found.differing) - accepted
    within = "equal in value" if tolerance is None else f"within atol={tolerance:g}, rtol=0"
    counts = [f"differing: {differing:,}"] if differing else []
    counts += [f"{'accepted' if found.equal else within}: {accepted:,}"] if accepted else []
    counts = counts or (["all equal, bit for bit"] if found.tensors else [])
    words = [", ".join([f"{counted(found.tensors, 'tensor')} in common", *counts])]
    verdict = ("equal", "ok") if found.equal else ("different", "bad")
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
    out().print(Text.assemble(verdict, ": ", "; ".join(words)), soft_wrap=True)


def _lines(found: Difference) -> Iterator[tuple[str, str, str, str]]:
    for old, new in found.renamed:
        yield "renamed", f"{printable(old)} -> {printable(new)}", "", ""
    for word, names in (("only in A", found.only_a), ("only in B", found.only_b)):
        for name in names:
            yield word, printable(name), "", ""
    for each in found.differing:
        yield _word(each), printable(each.name), _types(each), _distance(each)
    for word, changes in (("value", found.values), ("metadata", found.metadata)):
        for change in changes:
            yield word, printable(change.place), _sides(change), ""
    for name, why in found.uncompared.items():
        yield "not compared", printable(name), printable(why), ""


def _word(each: TensorDifference) -> str:
    if each.shapes[0] != each.shapes[1]:
        return "shape"
    if each.accepted:
        return "accepted"
    return "dtype" if each.dtypes[0] != each.dtypes[1] else "values"


def _types(each: TensorDifference) -> str:
    one, other = (f"{dtype} {list(shape)}" for dtype, shape in zip(each.dtypes, each.shapes, strict=True))
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
