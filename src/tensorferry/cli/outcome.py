"""What the commands on files have in common: their exit codes, their errors, the head of their JSON."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from tensorferry.errors import ConversionError, ResumableError, UnsafeFileError, VerificationError
from tensorferry.render import size_text

from .console import (
    EXIT_REFUSED,
    EXIT_RESUMABLE,
    EXIT_UNVERIFIED,
    EXIT_USAGE,
    err,
    print_json,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "SCHEMA",
    "as_options",
    "code_of",
    "counted",
    "plain",
    "progress",
    "result",
    "show_error",
    "told",
    "waiting",
    "writing",
]

SCHEMA = "tensorferry.files/1"
"""The version of the JSON of all commands on files; docs/files-schema.json describes it."""


def code_of(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, UnsafeFileError):
        return EXIT_REFUSED
    if isinstance(error, VerificationError):
        return EXIT_UNVERIFIED
    return EXIT_RESUMABLE if isinstance(error, ResumableError) else EXIT_USAGE


def told(error: Exception) -> dict[str, Any]:
    """An error as plain data for JSON."""
    message, hint = _words(error)
    return {"type": type(error).__name__, "message": message, "hint": hint}


def show_error(error: Exception) -> None:
    """An error on stderr: what and why, then what to type."""
    from rich.text import Text

    message, hint = _words(error)
    hint = hint and as_options(hint)
    console = err()
    console.print(Text.assemble((type(error).__name__, "bad"), ": ", printable(message)), soft_wrap=True)
    if hint:
        console.print()
        console.print(Text.assemble(("Hint: ", "title"), (printable(hint), "code")), soft_wrap=True)


def result(command: str, data: dict[str, Any], error: Exception | None = None) -> None:
    """Print the JSON of a command."""
    print_json({"schema": SCHEMA, "command": command, **data, "error": None if error is None else told(error)})


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Print what has been found out; a reader of stdout that leaves early is no error.

    Raises:
        SystemExit: stdout cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer goes nowhere, when Python flushes it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            show_error(error)
            raise SystemExit(EXIT_USAGE) from None


@contextlib.contextmanager
def waiting(words: str) -> Iterator[None]:
    """A sign on stderr that something is being done, if that is a terminal."""
    with err().status(words) if sys.stderr.isatty() else contextlib.nullcontext():
        yield None


@contextlib.contextmanager
def progress(words: str, total: Callable[[], int]) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr with bytes, rate and time left, if that is a terminal.

    Args:
        words: What is being done.
        total: Gives the number of bytes; only asked for if there is a bar.

    Yields:
        What is to be told the number of bytes each time, or ``None``.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(binary_units=True),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=err(), transient=True) as shown:
        task = shown.add_task(words, total=total(), rate="")

        def moved(count: int) -> None:
            speed = shown.tasks[0].speed
            shown.update(task, advance=count, rate=f"{size_text(int(speed))}/s" if speed else "")

        yield moved


def plain(value: Any) -> Any:
    """A value from a file's tree for JSON: itself if JSON has it, else as Python writes it."""
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return repr(value)


def counted(number: int, one: str, several: str = "") -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def as_options(hint: str) -> str:
    """A hint of the Python functions as a person types it in a shell.

    >>> as_options('rename=["s/a/b/"], or tensors_only=True, or to="npz", or another to=')
    '--rename s/a/b/, or --tensors-only, or --to npz, or another --to'
    """
    return _KEYWORD.sub(lambda found: _option(found[1], found[2] or ""), hint)


_KEYWORD = re.compile(
    r"\b(to|dtype|overflow|include|exclude|rename|shard|allow|tensors_only|overwrite|resume)="
    r'(True|\[…\]|\["[^"]*"\]|"[^"]*")?'
)


def _option(keyword: str, value: str) -> str:
    import shlex

    option = "--" + keyword.replace("_", "-")
    bare = value.strip('[]"')
    return option if bare in ("", "True") else f"{option} {bare if bare == '…' else shlex.quote(bare)}"


def _words(error: Exception) -> tuple[str, str | None]:
    if isinstance(error, ConversionError):
        return error.message, error.hint
    if isinstance(error, OSError) and error.strerror:
        names = [os.fspath(name) for name in (error.filename, error.filename2) if isinstance(name, (str, os.PathLike))]
        return ": ".join([*map(str, names), error.strerror]), None
    return str(error), None
