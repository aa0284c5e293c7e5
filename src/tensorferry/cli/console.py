"""Where output goes: data to stdout, messages to stderr, framework chatter nowhere."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.theme import Theme

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EXIT_FAILED", "EXIT_USAGE", "err", "out", "print_json", "quiet"]

EXIT_FAILED = 1
EXIT_USAGE = 2

_THEME = Theme(
    {
        "title": "bold",
        "name": "bold",
        "code": "cyan",
        "ok": "green",
        "bad": "bold red",
        "warn": "yellow",
        "shared": "bold green",
        "copied": "yellow",
        "same": "dim",
        "quiet": "dim",
        "words": "red",
    }
)


class _Trimmed(io.TextIOBase):
    """Passes text on to stdout without the spaces that pad a table's lines."""

    def write(self, text: str) -> int:
        sys.stdout.write(_PADDING.sub("", text))
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


_PADDING = re.compile(r" +(?=\n|$)")


def out() -> Console:
    """The console for data. Made anew on every call, so that it follows a redirected stdout."""
    console = Console(theme=_THEME, highlight=False)
    if console.is_terminal:
        return console
    return Console(theme=_THEME, highlight=False, file=cast("TextIO", _Trimmed()))


def err() -> Console:
    """The console for messages."""
    return Console(theme=_THEME, highlight=False, stderr=True)


def print_json(data: Any) -> None:
    """Write plain data to stdout as JSON, without colours or folding whatever stdout is."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def quiet(message: str = "") -> Iterator[None]:
    """Keep what frameworks write to stderr while they start (C++ logs, plugin notes) away.

    TensorFlow and XLA log from C++ straight to file descriptor 2, before any Python logging
    exists, so the descriptor itself is pointed elsewhere for the while. Warnings are for the
    authors of frameworks' callers, not for a person who runs a command.

    Args:
        message: What to say on a terminal meanwhile.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # stderr is closed: there is nothing to keep quiet
        yield
        return
    with (
        os.fdopen(saved, "w", encoding="utf-8", errors="replace") as stderr,
        tempfile.TemporaryFile() as sink,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        os.dup2(sink.fileno(), 2)
        waiting = message and stderr.isatty()
        try:
            with Console(file=stderr).status(message) if waiting else contextlib.nullcontext():
                yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
