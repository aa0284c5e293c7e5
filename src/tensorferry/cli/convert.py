"""``tensorferry convert``: convert files of one format to another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..core.layout import size_text
from ..errors import ConversionError
from ..files.conversion.convert import convert_files
from .console import EXIT_INTERRUPTED, paragraph, printable
from .outcome import counted, failed, progress, result, show_note, writing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..files.conversion.convert import Report

__all__ = ["run"]


def run(sources: Sequence[Path], target: Path, options: dict[str, Any], *, as_json: bool) -> int:
    """Convert, and print what was written; gives the exit code."""
    options = dict(options)
    table, dims = options.pop("map", None), options.pop("dims", None)
    try:
        if table is not None:
            from ..files.mapped import mapping_of  # here, because most files keep their names

            options["mapping_of"] = mapping_of(table, dims)
        if options["verify"]:
            words = "converting, then verifying"
        else:
            words = "converting"
        with progress(words, lambda: _total(sources, target, options)) as moved:
            report = convert_files(list(sources), target, **options, progress=moved)
    except (ConversionError, OSError) as error:
        return failed("convert", {"report": None}, error, as_json=as_json)
    except KeyboardInterrupt:
        words = "interrupted; the target is as it was"
        show_note(words if options["shard"] is None else f"{words}, and --resume goes on")
        return EXIT_INTERRUPTED
    with writing():
        if as_json:
            result("convert", {"report": report.to_dict()})
        else:
            _print(report, options["part"])
    return 0


def _total(sources: Sequence[Path], target: Path, options: dict[str, Any]) -> int:
    passes = 2 if options["verify"] else 1
    return (
        passes * convert_files(list(sources), target, **{**options, "dry_run": True}).bytes_written
    )


def _print(report: Report, part: tuple[int, int] | None) -> None:
    for warning in report.warnings:
        show_note(printable(warning), "careful: ")
    words = [counted(report.tensors, "tensor"), size_text(report.bytes_written), report.format]
    if len(report.written) > 1 or report.skipped:
        words.append(counted(len(report.written), "file"))
    if report.skipped:
        words.append(f"{len(report.skipped):,} finished before")
    if report.verified:
        words.append("verified")
    if part is not None:
        words.append(f"part {part[0]} of {part[1]}")
    if report.dry_run:
        words.append("nothing written (--dry-run)")
    else:
        # For smaller files, the rate would mostly show the time to start.
        measured = report.seconds > 0 and report.bytes_read >= 1 << 24
        if measured:
            rate = f", {size_text(int(report.bytes_read / report.seconds))}/s"
        else:
            rate = ""
        words.append(f"{report.seconds:.1f} s{rate}")
        if part is not None and not os.path.lexists(report.target):
            words.append("the output appears when all parts are done")
    paragraph(Text.assemble((printable(report.target), "name"), ": ", ", ".join(words)))
