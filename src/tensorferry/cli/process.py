"""How a process of the command line begins and ends: its streams, signals and exit code."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from .console import EXIT_INTERRUPTED, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["end_with"]


def end_with(call: Callable[[], int]) -> None:
    """Run a call, and end the process with the exit code that it gives, or with the one for an exception.

    Raises:
        SystemExit: Always.
    """
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
