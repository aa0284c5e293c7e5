"""What the commands on files have in common: their exit codes, their errors, the head of their JSON."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from tensorferry.core.sizes import size_text
from tensorferry.errors import ConversionError, ResumableError, UnsafeFileError, VerificationError, nearest

from .console import EXIT_REFUSED, EXIT_RESUMABLE, EXIT_UNVERIFIED, EXIT_USAGE, err, print_json, printable
from .hints import as_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["SCHEMA", "code_of", "counted", "failed", "none_of", "plain", "progress", "result", "show_error", "told"]
__all__ += ["waiting", "without_collecting", "writing"]

SCHEMA = "tensorferry.files/1"
"""The version of the JSON of all commands on files; docs/reference/files-schema.json describes it."""


def code_of(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, UnsafeFileError):
        return EXIT_REFUSED
    if isinstance(error, VerificationError):
        return EXIT_UNVERIFIED
    return EXIT_RESUMABLE if isinstance(error, ResumableError) else EXIT_USAGE


def told(error: Exception, command: str) -> dict[str, Any]:
    """An error as plain data for JSON, its hint for those who typed this command."""
    message, hint = _words(error, command)
    return {"type": type(error).__name__, "message": message, "hint": hint}


def show_error(error: Exception, command: str) -> None:
    """An error on stderr: what and why, then what to type after this command."""
    from rich.text import Text

    message, hint = _words(error, command)
    console = err()
    # Words are kept whole where a person reads them; code is never broken, nor is anything in a file.
    text = Text.assemble((type(error).__name__, "bad"), ": ", printable(message))
    console.print(text, soft_wrap=not console.is_terminal)
    if hint:
        console.print()
        console.print(Text.assemble(("Hint: ", "title"), (printable(hint), "code")), soft_wrap=True)


def result(command: str, data: dict[str, Any], error: Exception | None = None) -> None:
    """Print the JSON of a command."""
    print_json({"schema": SCHEMA, "command": command, **data, "error": None if error is None else told(error, command)})


def failed(command: str, data: dict[str, Any], error: Exception, *, as_json: bool) -> int:
    """Tell why a command could not do its work; the exit code."""
    if as_json:
        with writing():
            result(command, data, error)
    else:
        show_error(error, command)
    return code_of(error)


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
            show_error(error, "")
            raise SystemExit(EXIT_USAGE) from None


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """For headers, which become a great many objects that live until the end, and no cycles."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


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
        bars.TextColumn("{task.fields[sizes]}"),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=err(), transient=True) as shown:
        whole = total()
        task = shown.add_task(words, total=whole, sizes="", rate="")

        def moved(count: int) -> None:
            done, speed = shown.tasks[0].completed + count, shown.tasks[0].speed
            sizes = f"{size_text(int(done))} of {size_text(whole)}"
            shown.update(task, advance=count, sizes=sizes, rate=f"{size_text(int(speed))}/s" if speed else "")

        yield moved


def plain(value: Any) -> Any:
    """A value from a file's tree for JSON: itself if JSON has it, else as Python writes it."""
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return repr(value)


def counted(number: int, one: str) -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{number:,} {one if number == 1 else one + 's'}"


def none_of(word: str, words: Iterable[str]) -> str:
    """What to say to a word that is none of those that are known.

    >>> none_of("saefe", ["safe", "unsafe"])
    "'saefe' is none of safe, unsafe. Did you mean 'safe'?"
    """
    known = list(words)
    meant = nearest(word, known)
    return f"{word!r} is none of {', '.join(known)}" + (f". Did you mean {meant!r}?" if meant else "")


def _words(error: Exception, command: str) -> tuple[str, str | None]:
    if isinstance(error, ConversionError):
        return error.message, error.hint and as_options(error.hint, command)
    if isinstance(error, OSError) and error.strerror:
        names = [os.fspath(name) for name in (error.filename, error.filename2) if isinstance(name, (str, os.PathLike))]
        return ": ".join([*map(str, names), error.strerror]), None
    return str(error), None
