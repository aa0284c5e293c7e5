"""``tensorferry inspect``: show the contents of files, from their headers."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..core.layout import size_text
from ..errors import ConversionError, FileFormatError, UnsafeFileError
from ..files.base.contents import blocks_of
from ..files.opening.paths import asked_for, open_path
from ..files.reports.summary import Summary, disk_bytes, summarise
from .console import EXIT_REFUSED, facts, heading, printable, rows
from .outcome import (
    code_of,
    counted,
    error_data,
    plain,
    progress,
    result,
    show_error,
    without_collecting,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..files.base.contents import Contents
    from ..files.base.stored import Stored
    from ..files.reports.statistics import Statistics
    from ..files.reports.summary import Fold

__all__ = ["run"]

_LISTED = 5
"""How many entries of a long list are shown without --all."""
_LONGEST = 200
_BARS = "_.:-=+*#%@"
"""The characters of a histogram, from no values to the most."""


def run(
    paths: Sequence[Path], *, every: bool, allow: Sequence[str], as_json: bool, values: bool = False
) -> int:
    """Print the contents of each file; gives the worst exit code."""
    with without_collecting():
        reports = [
            _report(
                path, frozenset(allow), every=every, as_json=as_json, values=values, first=not n
            )
            for n, path in enumerate(paths)
        ]
    if as_json:
        with writing():
            result("inspect", {"files": [data for _, data in reports]})
    return max(code for code, _ in reports)


def _report(
    path: Path, allow: frozenset[str], *, every: bool, as_json: bool, values: bool, first: bool
) -> tuple[int, dict[str, Any] | None]:
    """Print the contents of a file, or give them as plain data; with the exit code."""
    lacking: list[FileFormatError] = []
    try:
        contents = open_path(path, allow=allow, lacking=lacking)
        if values and contents.columns:
            from ..files.base.contents import lists_read  # here, because most files have no tables

            contents = lists_read(contents)
        allowed = _allowed(path, contents, allow)
        summary = summarise(path, contents)
        if values and summary.safe:
            statistics = _statistics(contents)
        else:
            statistics = None
    except UnsafeFileError as error:
        return _refused(path, error, as_json=as_json, first=first)
    except (ConversionError, OSError) as error:
        if as_json:
            return code_of(error), {"path": str(path), "error": error_data(error, "inspect")}
        show_error(error, "inspect")
        return code_of(error), None
    if not summary.safe:
        code = EXIT_REFUSED
    else:
        code = max(map(code_of, lacking), default=0)
    if as_json:
        data = _data(summary, contents, allowed, statistics, every=every)
        return code, {**data, "error": error_data(lacking[0], "inspect")} if lacking else data
    with writing():
        _title(summary.path, first=first)
        facts(list(_facts(summary, allowed, every=every)))
        if summary.tensors:
            sys.stdout.write("\n")
        if statistics is not None:
            _print_statistics(statistics)
        elif every:
            _print_tensors(contents)
        else:
            _print_folds(summary.folds)
    for incomplete in lacking:
        show_error(incomplete, "inspect")
    return code, None


def _statistics(contents: Contents) -> dict[str, Statistics | None]:
    """The statistics of each tensor; ``None`` for quantised blocks, whose bytes are not numbers."""
    from ..files.reports.statistics import statistics

    blocks = blocks_of(contents)
    total = sum(stored.nbytes for stored in contents.tensors.values())
    known: dict[Hashable, Statistics | None] = {}
    by_name = {}
    with progress("reading", lambda: total) as moved:
        for name, stored in contents.tensors.items():
            if stored.key not in known:
                if name in blocks:
                    known[stored.key] = None
                else:
                    known[stored.key] = statistics(stored, moved)
            by_name[name] = known[stored.key]
    return by_name


def _allowed(path: Path, contents: Contents, allow: frozenset[str]) -> list[str]:
    """The classes that had to be allowed, because otherwise the file would have been refused."""
    named = [name for name in contents.asks_for if name in allow]
    if not named:
        return []
    try:
        open_path(path, lacking=[])
    except UnsafeFileError:
        return named
    return []


def _refused(
    path: Path, error: UnsafeFileError, *, as_json: bool, first: bool
) -> tuple[int, dict[str, Any] | None]:
    """Print what is known of a refused file, or give it as plain data; with the exit code."""
    data: dict[str, Any] = {"path": str(path), "safe": False}
    # The refusal must be shown, even if another error occurs here.
    with suppress(ConversionError, OSError):
        data["format"], asked = asked_for(path)
        data["asks_for"] = list(asked)
        data["bytes"] = disk_bytes([str(path)])
    if as_json:
        return EXIT_REFUSED, {**data, "error": error_data(error, "inspect")}
    with writing():
        _title(path, first=first)
        if "format" in data:
            lines = [("format", data["format"])]
        else:
            lines = []
        if "bytes" in data:
            lines += [("size", size_text(data["bytes"]))]
        lines.append(("safe", "no, it is not opened"))
        if data.get("asks_for"):
            lines.append(("asks for", ", ".join(map(printable, data["asks_for"]))))
        facts(lines)
    show_error(error, "inspect")
    return EXIT_REFUSED, None


def _data(
    summary: Summary,
    contents: Contents,
    allowed: list[str],
    statistics: dict[str, Statistics | None] | None,
    *,
    every: bool,
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "path": summary.path,
        "format": summary.format,
        "files": list(summary.files),
        "bytes": summary.nbytes,
        "memory": summary.memory,
        "tensors": summary.tensors,
        "parameters": summary.parameters,
        "modules": summary.modules,
        "quantised": summary.quantised,
        "shards": None if summary.shards is None else summary.shards._asdict(),
        "safe": summary.safe and not allowed,
        "allowed": allowed,
        "asks_for": list(summary.asks_for),
        "refuses": list(summary.refuses),
        "tied": summary.tied,
        "metadata": summary.metadata,
        "values": {place: plain(value) for place, value in summary.values.items()},
        "objects": summary.objects,
        "others": summary.others,
        "folded": [
            {
                "name": fold.name,
                "numbers": list(fold.ranges),
                "count": fold.total,
                "dtype": fold.dtype,
                "shape": list(fold.shape),
            }
            for fold in summary.folds
        ],
        "error": None,
    }
    if statistics is not None:
        data["statistics"] = {
            name: None if of_tensor is None else of_tensor._asdict()
            for name, of_tensor in statistics.items()
        }
    if every:
        data["all"] = [
            {
                "name": name,
                "dtype": dtype,
                "shape": shape,
                "bytes": stored.nbytes,
                "file": getattr(stored, "path", None),
                "offset": getattr(stored, "offset", None),
            }
            for name, dtype, shape, stored in _tensors(contents)
        ]
    return data


def _tensors(contents: Contents) -> Iterator[tuple[str, str, list[int], Stored]]:
    """Yield the name, dtype and shape of each tensor, and the tensor.

    For quantised blocks, those of the numbers.
    """
    blocks = blocks_of(contents)
    for name, stored in contents.tensors.items():
        if name in blocks:
            yield name, blocks[name].kind, list(blocks[name].shape(stored.shape)), stored
        else:
            yield name, stored.dtype, list(stored.shape), stored


def _print_statistics(statistics: dict[str, Statistics | None]) -> None:
    """Print a line for each tensor, after a line of headings."""
    lines = [("", "min", "max", "mean", "zeros", "spread", "")]
    for name, of_tensor in statistics.items():
        if of_tensor is None or of_tensor.smallest is None:
            numbers = ["", "", "", "", ""]
        else:
            bars = "".join(
                _BARS[-(-count * (len(_BARS) - 1) // max(of_tensor.histogram))]
                for count in of_tensor.histogram
            )
            numbers = [
                f"{number:.4g}"
                for number in (of_tensor.smallest, of_tensor.largest, of_tensor.mean or 0)
            ]
            numbers += [f"{of_tensor.zeros:,}", bars]
        lines.append((printable(name), *numbers, _remark(of_tensor)))  # type: ignore[arg-type]
    rows(lines, styles=("name", "", "", "", "", "quiet", "warn"), right={1, 2, 3, 4}, headed=True)


def _remark(statistics: Statistics | None) -> str:
    """What the numbers of a tensor do not say."""
    if statistics is None:
        return "quantised blocks"
    counts = ((statistics.nans, "NaN"), (statistics.infinite, "inf"))
    odd = [f"{count:,} {word}" for count, word in counts if count]
    if not odd and statistics.smallest is None:
        return "no values"
    return ", ".join(odd)


def _print_tensors(contents: Contents) -> None:
    """Print a line for each tensor."""
    tensors = _tensors(contents)
    lines = (
        (printable(name), dtype, str(shape), _place(stored))
        for name, dtype, shape, stored in tensors
    )
    rows(lines, styles=("name", "", "", "quiet"))


def _print_folds(folds: Sequence[Fold]) -> None:
    """Print a line for tensors whose names differ only in numbers."""
    rows(
        map(_fold_cells, folds),
        styles=("name", "", "", "", "quiet"),
        right={1},
    )


def _fold_cells(fold: Fold) -> tuple[str, ...]:
    """The cells of the line for a fold."""
    times = f"{fold.total:,}x" if fold.total > 1 else ""
    ranges = [f"({part})" if "," in part else part for part in fold.ranges]
    numbers = "# " + ", ".join(ranges) if ranges else ""
    return printable(fold.name), times, fold.dtype, str(list(fold.shape)), numbers


def _title(path: object, *, first: bool) -> None:
    if not first:
        sys.stdout.write("\n")
    heading(printable(str(path)))


def _facts(summary: Summary, allowed: list[str], *, every: bool) -> Iterator[tuple[str, str]]:
    yield "format", summary.format
    if len(summary.files) > 1:
        files = f" in {counted(len(summary.files), 'file')}"
    else:
        files = ""
    yield "size", f"{size_text(summary.nbytes)}{files}, {size_text(summary.memory)} in memory"
    if summary.shards is not None:
        there = summary.shards.total - len(summary.shards.missing)
        if summary.shards.missing:
            lacking = f"; missing: {_few(summary.shards.missing)}"
        else:
            lacking = ", complete"
        yield "shards", f"{there} of {summary.shards.total}{lacking}"
    yield "tensors", f"{summary.tensors:,}"
    counts = sorted(summary.parameters.items(), key=lambda item: -item[1])
    by_dtype = ", ".join(f"{dtype} {number:,}" for dtype, number in counts)
    total = sum(summary.parameters.values())
    yield (
        "parameters",
        f"{total:,} ({by_dtype})" if len(summary.parameters) > 1 else by_dtype or "0",
    )
    parts = sorted(summary.modules.items(), key=lambda item: -item[1])
    yield from _some(
        "modules",
        [f"{name} {count:,} ({100 * count / max(total, 1):.0f}%)" for name, count in parts],
        every=every,
    )
    kinds = [f"{kind}: {counted(count, 'tensor')}" for kind, count in summary.quantised.items()]
    yield from _some("quantised", kinds, every=every)
    if summary.refuses:
        yield "safe", "no: " + ", ".join(map(printable, summary.refuses))
    elif allowed:
        yield (
            "allowed",
            f"{', '.join(map(printable, allowed))}: read as plain values, not imported (--allow)",
        )
    else:
        yield "safe", "yes"
    if summary.asks_for:
        yield "asks for", ", ".join(map(printable, summary.asks_for))
    yield from _some("tied", _Lines(summary.tied, " is "), every=every)
    yield from _some("metadata", _Lines(summary.metadata), every=every)
    yield from _some("values", _Lines(summary.values, text=_text), every=every)
    yield from _some("objects", _Lines(summary.objects), every=every)
    yield from _some("others", _Lines(summary.others), every=every)
    if len(summary.files) > 1:
        yield from _some("files", list(summary.files), every=every)


class _Lines:
    """Lines of names and values, made only when they are shown: there may be millions."""

    def __init__(
        self, held: Mapping[str, Any], between: str = ": ", text: Callable[[Any], str] = str
    ) -> None:
        self._held, self._between, self._text = held, between, text

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[str]:
        return (f"{name}{self._between}{self._text(value)}" for name, value in self._held.items())


def _some(word: str, lines: Collection[str] | _Lines, *, every: bool) -> Iterator[tuple[str, str]]:
    if every or len(lines) <= _LISTED + 1:
        shown = len(lines)
    else:
        shown = _LISTED
    for line in islice(lines, shown):
        text = printable(line)
        yield (
            word,
            text
            if every or len(text) <= _LONGEST
            else f"{text[:_LONGEST]} … ({len(line):,} characters)",
        )
        word = ""
    if shown < len(lines):
        yield "", f"and {len(lines) - shown:,} more (--all)"


def _few(names: Sequence[str]) -> str:
    return printable(", ".join(names[:_LISTED])) + (
        f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _place(stored: object) -> str:
    offset = getattr(stored, "offset", None)
    return "" if offset is None else f"at {offset:,}"
