"""How a command ends: the error, with its hint as words for the shell, and the code."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from ..core.layout import size_text
from ..errors import (
    ConversionError,
    ResumableError,
    TreeError,
    UnsafeFileError,
    VerificationError,
    nearest,
)
from ..files.base.objects import Kept, Placeholder
from ..hints import NAME_ALONE, SOME, Code, Hint, Written
from ..hints.rendering import Renderer, value_in_code
from .console import (
    EXIT_REFUSED,
    EXIT_RESUMABLE,
    EXIT_UNVERIFIED,
    EXIT_USAGE,
    SOLID,
    err,
    line_width,
    print_json,
    printable,
    solid,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.text import Text

    from ..hints import Caller, Described, InPython, OtherOutput, Pairs, Spoken, Way


__all__ = [
    "OPTIONS",
    "SCHEMA",
    "as_options",
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
    "unbroken",
]


# -- hints for the shell ---------------------------------------------------------------------------

_CONVERT = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "to", "dtype", "overflow", "include", "exclude", "rename", "map", "metadata", "tensors_only", "ties",
        "dequantize", "nulls", "ragged", "pad", "allow", "shard", "overwrite", "verify",
        "dry_run", "resume", "jobs", "engine", "part",
    )
}  # fmt: skip

_CONVERT["dims"] = "--dim"
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "inspect": {"allow": "--allow"},
    "check": {"allow": "--allow"},
    "map check": {"dims": "--dim"},
    "map invert": {"overwrite": "--overwrite"},
    "map infer": {"overwrite": "--overwrite"},
    "map trace": {"overwrite": "--overwrite"},
    "map explain": {"dims": "--dim"},
    "diff": {
        "allow": "--allow",
        "dims": "--dim",
        "any_dtype": "--any-dtype",
        "tensors_only": "--tensors-only",
    },
    "convert": _CONVERT,
    "roundtrip": {"allow": "--allow"},
    "explain": {
        "copy": "--copy",
        "dtype": "--to-dtype",
        "casting": "--casting",
        "device": "--to-device",
        "grad": "--grad",
        "pinned": "--option pinned",
        "non_blocking": "--option non_blocking",
        "variable": "--option variable",
    },
    "explain --from": {
        "dtype": "--dtype",
        "device": "--device",
        "requires_grad": "--requires-grad",
        "conjugate": "--conjugate",
        "negative": "--negative",
        "swapped": "--swapped",
        "pinned": "--pinned",
        "memory_map": "--memory-map",
    },
}
"""The options for Python's keywords, for each command.

`explain` has some for the call, and some for its tensor.
"""


def as_options(hint: Hint, command: str) -> str:
    """A hint in the words of the command line, for use after ``tensorferry COMMAND``.

    >>> from tensorferry import hints
    >>> as_options(
    ...     Hint(hints.keyword("rename", ["s/a/b/"]), ", or ", hints.keyword("to")), "convert"
    ... )
    '--rename s/a/b/, or --to'
    >>> as_options(Hint(hints.keyword("copy", None), " shares; or ", hints.again()), "explain")
    'leaving --no-copy out shares; or to_numpy(x)'

    If a command on files does not have an option, the hint says to use `convert` first.

    >>> as_options(Hint(hints.keyword("tensors_only", True), ", which leaves it out"), "roundtrip")
    'first tensorferry convert IN OUT with --tensors-only, which leaves it out'

    Args:
        hint: The hint of an error of the library.
        command: The key in `OPTIONS`. For other commands, keywords stay as in Python.
    """
    return _AsOptions(hint.caller, command).text(hint.ways)


class _AsOptions(Renderer):
    """Writes hints for one command."""

    def __init__(self, caller: Caller, command: str) -> None:
        super().__init__(caller)
        self._command = command
        self._own = OPTIONS.get(command, {})
        self._of_convert = _CONVERT if "allow" in self._own else {}
        self._needs_convert = False
        """Whether an option is one of `convert`, which has to come first."""

    def text(self, ways: Iterable[Way]) -> str:
        """The hint, without calls in Python if there are other ways."""
        ways = list(ways)
        if self._command != "explain --from":
            ways = [way for way in ways if not self._is_call(way)] or ways
        text = super().text(ways)
        return f"{_FIRST}{text}" if self._needs_convert else text

    def _is_call(self, way: Way) -> bool:
        """Whether a way begins with a call in Python."""
        return Renderer(self.caller).way(way[:1]).startswith(_CALLS)

    def way(self, way: Way) -> str:
        """One way. A comma or a word that joins keywords in Python is a space between options."""
        texts = [self.piece(piece) for piece in way]
        for index in range(1, len(way) - 1):
            around = texts[index - 1], texts[index + 1]
            if way[index] in (", ", " and ") and all(text.startswith("--") for text in around):
                texts[index] = " "
        return "".join(texts)

    def keywords(self, pairs: Pairs) -> str:
        """Keywords as options; as in Python, if there is no such option."""
        text = last = ""
        for pair in pairs:
            new = self._option(*pair)
            if last:
                both = last.startswith("--") and new.startswith("--")
                text += " " if both else ", "
            text, last = text + new, new
        return text

    def _option(self, name: str, value: object) -> str:
        if name in self._own:
            return _typed(name, self._own[name], value)
        if name in self._of_convert:
            self._needs_convert = True
            return _typed(name, self._of_convert[name], value)
        return super().keywords(((name, value),))

    def described(self, piece: Described) -> str:
        """The fields of a description, which are options."""
        if self._command == "explain --from":
            return self.keywords(piece.pairs)
        return super().described(piece)

    def in_python(self, piece: InPython) -> str:
        """A script as a command."""
        import shlex  # here, because only an error needs it

        return f"python3 -c {shlex.quote(piece.script)}"

    def other_output(self, piece: OtherOutput) -> str:
        """The command with another output."""
        import shlex  # here, because only an error needs it

        return f"tensorferry convert IN {shlex.quote(piece.path)}"

    def spoken(self, piece: Spoken) -> str:
        """What people type."""
        return piece.shell


_FIRST = "first tensorferry convert IN OUT with "
_CALLS = ("convert(", "convert_tree(", "load(")


def _typed(name: str, option: str, value: object) -> str:
    if isinstance(value, Written):
        value = value.value
    if name in ("nulls", "pad") and value != NAME_ALONE:
        # They take values, of which True and False are two.
        return f"{option} {value if isinstance(value, str) else value_in_code(value)}"
    if value is True or value == NAME_ALONE:
        return option
    if value is None or value is False:
        # A keyword with three values is written with two options.
        if name == "copy":
            return "--no-copy" if value is False else "leaving --no-copy out"
        return f"leaving {option} out"
    return " ".join(f"{option} {shell_word}" for shell_word in _shell_words(value))


def _shell_words(value: object) -> list[str]:
    """A value as words for a shell, one for each use of the option."""
    import shlex  # here, because only an error needs it

    if value == SOME:
        return ["…"]
    if isinstance(value, Code):
        return [shlex.quote(value.text)]
    if isinstance(value, dict):
        value = [f"{key}={value_of_key}" for key, value_of_key in value.items()]
    words = value if isinstance(value, (list, tuple)) else [value]
    return [shlex.quote(str(word)) for word in words]


_TYPED = re.compile(
    r"""
    "[^"]*" | (?<!\w)'[^']*' | `[^`]*`
    | [\w.\])]+\( [^()]* (?: \( [^()]* (?: \( [^()]* \) [^()]* )* \) [^()]* )* \)
    | \w*=?[\[{] [^\[\]{}]* [\]}]
    | --[a-z-]+\ \S+
    | (?<![\w./-])(?:apt-get|aws|curl|gcloud|hf|make|pip|python3?|tensorferry)\ [^,;]*
    """,
    re.VERBOSE,
)


def unbroken(hint: str) -> str:
    r"""A hint whose code is not broken over lines, to be copied: its spaces are `layout.SOLID`.

    >>> unbroken("pip install h5py, or another format").split(" ")
    ['pip\xa0install\xa0h5py,', 'or', 'another', 'format']
    """
    return _TYPED.sub(lambda match: solid(match[0]), hint)


# -- what a command ends with ----------------------------------------------------------------------

__all__ += ["unknown_word", "waiting", "without_collecting", "writing"]

SCHEMA = "tensorferry.files/1"
"""The JSON version of all commands on files; docs/reference/files-schema.json describes it."""


def code_of(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, UnsafeFileError):
        return EXIT_REFUSED
    if isinstance(error, VerificationError):
        return EXIT_UNVERIFIED
    if isinstance(error, ResumableError):
        return EXIT_RESUMABLE
    return EXIT_USAGE


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
    for detail in details:
        lines += wrapped(Text(printable(f"  {detail}")), width)
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
    """A value of a file's tree for JSON: as it is if JSON supports it, else as Python code."""
    if (
        value is None
        or isinstance(value, (bool, int, str))
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, Kept):
        return value.text
    if isinstance(value, Placeholder):
        return value.name
    return repr(value)


def counted(number: int, singular: str) -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{number:,} {singular if number == 1 else singular + 's'}"


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
    if isinstance(error, TreeError):
        several = error.exceptions
    else:
        several = ()
    return [f"{type(error).__name__}: {error.message}" for error in several]


def _words(error: Exception, command: str) -> tuple[str, str | None]:
    if isinstance(error, ConversionError):
        hint = error.advice
        return error.message, None if hint is None else as_options(hint, command) or None
    if isinstance(error, OSError) and error.strerror:
        names = [
            os.fspath(name)
            for name in (error.filename, error.filename2)
            if isinstance(name, (str, os.PathLike))
        ]
        return ": ".join([*map(str, names), error.strerror]), None
    return str(error), None
