"""The command line: ``tensorferry doctor``, and so on; ``inspect``, ``check``, ``convert`` and ``diff`` are for files.

Data goes to stdout, messages to stderr. Exit codes:

- 0: fine, or equal
- 1: something differs, a check failed, a case did not hold, a conversion in memory is impossible
- 2: the command was not understood, or a file cannot be read or written as asked
- 3: a file is refused for safety: it asks for code to be run
- 4: what was written did not read back the same; nothing was published
- 5: interrupted; ``--resume`` continues
- 130: Ctrl-C; 129 and 143: the signals SIGHUP and SIGTERM; unfinished output is cleaned up

Nothing here is imported by ``import tensorferry``: Typer and Rich come with the extra ``tensorferry[cli]``;
``--version`` needs neither.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["end_with", "main"]

_MISSING = """\
tensorferry: the command line needs Typer and Rich, and {name} is not installed.

Hint: pip install typer rich
"""


def main() -> None:
    """Run the command line; the console script ``tensorferry``.

    Raises:
        SystemExit: Always, with the exit code.
    """
    end_with(lambda: _run(sys.argv[1:]))


def end_with(call: Callable[[], int]) -> None:
    """Run a call, and end the process with the exit code that it gives, or with the one for an exception.

    Raises:
        SystemExit: Always.
    """
    from .console import EXIT_INTERRUPTED, EXIT_USAGE

    _fix_streams()
    received = _interrupt_on_signals()
    code: Any = 0
    try:
        try:
            code = call()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except OSError as error:
        if error.filename is not None:
            raise
        # Python would try to write the rest of the output again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        # It is not an error if the reader of a pipe stops early.
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"tensorferry: the output cannot be written: {error.strerror}\n")
            code = EXIT_USAGE
    raise SystemExit(128 + received[0] if received and code == EXIT_INTERRUPTED else code)


def _interrupt_on_signals() -> list[int]:
    """Treat SIGHUP and SIGTERM like Ctrl-C. The list gets the number of the signal."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        # Only once, so that the clean-up is not interrupted.
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    for name in ("SIGHUP", "SIGTERM"):
        number = getattr(signal, name, None)
        # A signal that is ignored (nohup) stays ignored. Only the main thread can set handlers.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            with contextlib.suppress(ValueError):
                signal.signal(number, interrupt)
    return received


def _run(words: list[str]) -> int:
    """Run the command line, and give the exit code."""
    if words == ["--version"]:
        from tensorferry import __version__

        sys.stdout.write(f"tensorferry {__version__}\n")
        return 0
    from .quick import inspect_arguments

    quick = inspect_arguments(words)
    try:
        for needed in ("typer", "rich") if quick is None else ("rich",):
            importlib.import_module(needed)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in {"typer", "rich"}:
            raise
        sys.stderr.write(_MISSING.format(name=name))
        return 1
    if quick is not None:
        from .child import run

        return run("inspect", quick["paths"], **quick)
    from .app import app

    app(prog_name="tensorferry")
    return 0


def _fix_streams() -> None:
    """Open closed streams to the null device, and make all characters writable."""
    while True:  # the lowest free descriptors belong to the closed streams
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115, PTH123 - for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
