"""``tensorferry check``: find what is wrong with files and their values."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..errors import ConversionError
from ..files.opening.paths import open_path
from ..files.reports.check import check_path
from .console import EXIT_FAILED, MOST_STYLED, line_width, paragraph, printable, styled, wrapped
from .outcome import (
    code_of,
    counted,
    error_data,
    progress,
    result,
    show_error,
    waiting,
    without_collecting,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..files.base.contents import FileFinding

__all__ = ["run"]


def run(paths: Sequence[Path], *, values: bool, allow: Sequence[str], as_json: bool) -> int:
    """Print what is wrong with each file; gives the worst exit code."""
    code = 0
    reports: list[dict[str, Any]] = []
    for path in paths:
        findings: list[FileFinding] = []
        error: Exception | None = None
        names = frozenset(allow)
        try:
            if values:
                shown = progress("checking", partial(_total, path, names))
            else:
                shown = waiting("checking")
            with without_collecting(), shown as moved:
                findings.extend(check_path(path, values=values, allow=names, progress=moved))
        except (ConversionError, OSError) as caught:
            error = caught
        errors = sum(finding.error for finding in findings)
        if error is not None:
            code = max(code, code_of(error))
        elif errors:
            code = max(code, EXIT_FAILED)
        if as_json:
            reports.append(
                {
                    "path": str(path),
                    "ok": error is None and not errors,
                    "findings": [finding._asdict() for finding in findings],
                    "error": None if error is None else error_data(error, "check"),
                }
            )
            continue
        with writing():
            _print(path, findings, errors, error)
        if error is not None:
            show_error(error, "check")
    if as_json:
        with writing():
            result("check", {"ok": code == 0, "files": reports})
    return code


def _total(path: Path, allow: frozenset[str]) -> int:
    try:
        return sum(stored.nbytes for stored in open_path(path, allow=allow).tensors.values())
    except (ConversionError, OSError):
        return 0


def _print(
    path: Path, findings: Sequence[FileFinding], errors: int, error: Exception | None
) -> None:
    is_plain = not styled() or len(findings) > MOST_STYLED
    for finding in findings:
        place = printable(finding.path) + ("" if finding.offset is None else f":{finding.offset}")
        if finding.error:
            word = "error", "bad"
        else:
            word = "note", "warn"
        if finding.tensor is None:
            about = ""
        else:
            about = f"{printable(finding.tensor)}: "
        if is_plain:
            line = f"{place}: {word[0]}: {about}{printable(finding.message)}"
            sys.stdout.writelines(f"{part}\n" for part in wrapped(line, line_width(sys.stdout)))
        else:
            paragraph(Text.assemble(f"{place}: ", word, f": {about}{printable(finding.message)}"))
    if error is not None:
        return
    notes = len(findings) - errors
    words = [counted(errors, "error")] if errors else []
    words += [counted(notes, "note")] if notes else []
    verdict = ("failed", "bad") if errors else ("ok", "ok")
    paragraph(
        Text.assemble(f"{printable(str(path))}: ", verdict, "".join(f", {word}" for word in words))
    )
