"""Common parts of the commands on files: exit codes, errors, and the head of their JSON."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from tensorferry.core.sizes import size_text
from tensorferry.errors import (
    ConversionError,
    ResumableError,
    TreeError,
    UnsafeFileError,
    VerificationError,
    nearest,
)
from tensorferry.files.base.objects import Kept, Placeholder

from .console import (
    EXIT_REFUSED,
    EXIT_RESUMABLE,
    EXIT_UNVERIFIED,
    EXIT_USAGE,
    err,
    line_width,
    print_json,
    printable,
)
from .hints import as_options, unbroken
from .layout import SOLID, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.text import Text

__all__ = [
    "SCHEMA",
    "code_of",
    "counted",
    "error_data",
    "failed",
    "plain",
    "progress",
    "result",
    "show_error",
    "show_message",
    "show_note",
]
__all__ += ["unknown_word", "waiting", "without_collecting", "writing"]

SCHEMA = "tensorferry.files/1"
"""The version of the JSON of all commands on files; docs/reference/files-schema.json describes it."""


def code_of(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, UnsafeFileError):
        return EXIT_REFUSED
    if isinstance(error, VerificationError):
        return EXIT_UNVERIFIED
    return EXIT_RESUMABLE if isinstance(error, ResumableError) else EXIT_USAGE


def error_data(error: Exception, command: str) -> dict[str, Any]:
    """An error as plain data for JSON, with the hint in the words of this command."""
    message, hint = _words(error, command)
    message = " ".join([message, "; ".join(_each(error))]).rstrip()
    return {"type": type(error).__name__, "message": message, "hint": hint}


def show_error(error: Exception, command: str) -> None:
    """Print an error on stderr, with the hint in the words of this command."""
    message, hint = _words(error, command)
    show_message(type(error).__name__, message, hint, _each(error))


def show_message(
    title: str, message: str, hint: str | None = None, details: Iterable[str] = ()
) -> None:
    """Print a message on stderr.

    On a terminal, prose is broken between words, and code to type is not broken.

    Args:
        title: The words before the message.
        message: The message.
        hint: The hint that ends it.
        details: What comes below the message, each on lines of its own.
    """
    from rich.text import Text

    width = line_width(sys.stderr)
    lines = wrapped(Text.assemble((title, "bad"), ": ", printable(message)), width)
    for each in details:
        lines += wrapped(Text(printable(f"  {each}")), width)
    if hint:
        code = Text.assemble(("Hint: ", "title"), (unbroken(printable(hint)), "code"))
        lines += [Text(), *wrapped(code, width, fold=False)]
    _show(lines)


def show_note(text: str, title: str = "") -> None:
    """Print a note on stderr, broken between words where a terminal ends."""
    from rich.text import Text

    _show(
        wrapped(
            Text.assemble((title, "warn"), text) if title else Text(text, "warn"),
            line_width(sys.stderr),
        )
    )


def _show(lines: Iterable[Text]) -> None:
    console = err()
    for line in lines:
        line.plain = line.plain.replace(SOLID, " ")
        console.print(line, soft_wrap=True)


def result(command: str, data: dict[str, Any], error: Exception | None = None) -> None:
    """Print the JSON of a command."""
    print_json(
        {
            "schema": SCHEMA,
            "command": command,
            **data,
            "error": None if error is None else error_data(error, command),
        }
    )


def failed(command: str, data: dict[str, Any], error: Exception, *, as_json: bool) -> int:
    """Print the error of a command; gives the exit code."""
    if as_json:
        with writing():
            result(command, data, error)
    else:
        show_error(error, command)
    return code_of(error)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """A context for printing results. It is not an error if the reader of stdout stops early.

    Raises:
        SystemExit: stdout cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer goes to the null device when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            show_error(error, "")
            raise SystemExit(EXIT_USAGE) from None


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """A context without garbage collection, for headers, which make many objects and no cycles."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def waiting(words: str) -> Iterator[None]:
    """A context with a sign on stderr that the command is working, if that is a terminal."""
    with err().status(words) if sys.stderr.isatty() else contextlib.nullcontext():
        yield None


@contextlib.contextmanager
def progress(words: str, total: Callable[[], int]) -> Iterator[Callable[[int], None] | None]:
    """A context with a progress bar on stderr (bytes, rate, time left), if that is a terminal.

    Args:
        words: The label of the bar.
        total: Gives the number of bytes; only called if there is a bar.

    Yields:
        A function to call with numbers of bytes, or ``None``.
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
            shown.update(
                task, advance=count, sizes=sizes, rate=f"{size_text(int(speed))}/s" if speed else ""
            )

        yield moved


def plain(value: Any) -> Any:
    """A value from a file's tree for JSON: as it is if JSON supports it, otherwise as Python code."""
    if (
        value is None
        or isinstance(value, (bool, int, str))
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, Kept):
        return value.text
    return value.name if isinstance(value, Placeholder) else repr(value)


def counted(number: int, one: str) -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{number:,} {one if number == 1 else one + 's'}"


def unknown_word(word: str, words: Iterable[str]) -> str:
    """The message for an unknown word.

    >>> unknown_word("saefe", ["safe", "unsafe"])
    "'saefe' is not one of safe, unsafe. Did you mean 'safe'?"
    """
    known = list(words)
    meant = nearest(word, known)
    return f"{word!r} is not one of {', '.join(known)}" + (
        f". Did you mean {meant!r}?" if meant else ""
    )


def _each(error: Exception) -> list[str]:
    """The words of each of several errors that are raised as one."""
    several = error.exceptions if isinstance(error, TreeError) else ()
    return [f"{type(each).__name__}: {each.message}" for each in several]


def _words(error: Exception, command: str) -> tuple[str, str | None]:
    if isinstance(error, ConversionError):
        hint = getattr(error.hint, "for_shell", error.hint)
        return error.message, hint and as_options(hint, command)
    if isinstance(error, OSError) and error.strerror:
        names = [
            os.fspath(name)
            for name in (error.filename, error.filename2)
            if isinstance(name, (str, os.PathLike))
        ]
        return ": ".join([*map(str, names), error.strerror]), None
    return str(error), None
