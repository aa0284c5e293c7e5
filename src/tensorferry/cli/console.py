"""The consoles: data go to stdout, messages to stderr, and the logs of frameworks are dropped."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_REFUSED",
    "EXIT_RESUMABLE",
    "EXIT_UNVERIFIED",
    "EXIT_USAGE",
]
__all__ += ["err", "line_width", "out", "print_json", "printable", "quiet", "report_width"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNVERIFIED = 4
EXIT_RESUMABLE = 5
EXIT_INTERRUPTED = 130

_STYLES = {
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


class _Trimmed(io.TextIOBase):
    """Writes text to stdout without trailing spaces."""

    def write(self, text: str) -> int:
        sys.stdout.write(_PADDING.sub("", text))
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


_PADDING = re.compile(r" +(?=\n|$)")


def out() -> Console:
    """The console for data. It is made at each call, so that it follows a redirected stdout."""
    console = _console()
    return console if console.is_terminal else _console(file=cast("TextIO", _Trimmed()))


def err() -> Console:
    """The console for messages."""
    return _console(stderr=True)


def line_width(stream: TextIO) -> int | None:
    """How wide a line may be: as COLUMNS says, or as the terminal is; ``None`` if the stream is a file or a pipe.

    There each line is whole, so that it can be searched and copied.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and 0 < len(given.lstrip("0")) <= _DIGITS:
        return max(int(given), _LEAST)
    if not stream.isatty():
        return None
    width = 0
    with contextlib.suppress(OSError, ValueError):
        width = os.get_terminal_size(stream.fileno()).columns
    return max(width or _USUAL, _LEAST)


def report_width() -> int:
    """How wide a report is, which is for people: also in a pipe, as the terminal is where it is probably read."""
    if line_width(sys.stdout) is None:
        return max(out().width, _LEAST)
    return line_width(sys.stdout) or _USUAL


_DIGITS = 5
_USUAL = 80
_LEAST = 20
"""For a narrower terminal, nothing is laid out."""


def _console(**options: Any) -> Console:
    # Imported here, because plain lines do not need Rich.
    from rich.console import Console
    from rich.theme import Theme

    class Passing(Console):
        def on_broken_pipe(self) -> None:  # otherwise Rich would end the process with an error
            raise BrokenPipeError

    return Passing(theme=Theme(_STYLES), highlight=False, **options)


def print_json(data: Any) -> None:
    """Write plain data to stdout as JSON, without colours and folding."""
    # Characters that stdout cannot encode are escaped in JSON.
    unable = (sys.stdout.encoding or "utf-8").lower().replace("-", "").replace("_", "") != "utf8"
    text = json.dumps(data, indent=2, ensure_ascii=unable, allow_nan=False)
    sys.stdout.write(_UNPRINTABLE.sub(_as_json, text) + "\n")


# Control characters and marks for the direction of text, which a terminal could obey; and lone
# surrogates, which cannot be encoded. Line feeds belong to the JSON.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def _as_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def printable(text: str) -> str:
    r"""Text from a file for a terminal: characters that it could obey, or not show, are escaped as in Python.

    >>> print(printable("layer.\x1b[2J\n"))
    layer.\x1b[2J\n
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


@contextlib.contextmanager
def quiet(message: str = "") -> Iterator[None]:
    """A context that drops what frameworks write to stderr while they start (C++ logs, notes of plugins).

    TensorFlow and XLA log from C++ straight to file descriptor 2, so the descriptor itself is
    redirected. Warnings are dropped too, because they are for programmers, not for a person who
    runs a command.

    Args:
        message: The message that is shown on a terminal meanwhile.
    """
    import tempfile  # here, because it takes more memory than to inspect a file

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # stderr is closed
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
            with _console(file=stderr).status(message) if waiting else contextlib.nullcontext():
                yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
