"""The command line: ``tensorferry doctor``, ``tensorferry explain``, ``tensorferry tour``.

Data goes to stdout, messages to stderr. Exit codes: 0, it held; 1, something did not hold or the
conversion is impossible; 2, the command was not understood. Nothing here is imported by
``import tensorferry``: Typer and Rich come with the extra ``tensorferry[cli]``.
"""

from __future__ import annotations

import importlib
import io
import os
import sys

__all__ = ["main"]

_MISSING = """\
tensorferry: the command line needs Typer and Rich, and {name} is not installed.

Hint: pip install 'tensorferry[cli]'
"""


def main() -> None:
    """Run the command line; the console script ``tensorferry``.

    Raises:
        SystemExit: Always, with the exit code.
    """
    try:
        for needed in ("typer", "rich"):
            importlib.import_module(needed)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in {"typer", "rich"}:
            raise
        sys.stderr.write(_MISSING.format(name=name))
        raise SystemExit(1) from None
    _mend_streams()
    from .app import app

    app(prog_name="tensorferry")


def _mend_streams() -> None:
    """Give closed streams somewhere to go, and let no character stop the output."""
    while True:  # the lowest free descriptors are those of the streams that are closed
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115, PTH123 - for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
