"""How commands are called: their help, wrong usage, and options that contradict each other."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from . import console
from .console import err, line_width, out, printable, report_width, styled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

__all__ = [
    "CONTRADICTIONS",
    "Command",
    "CommandGroup",
    "StorageOption",
    "files_or_urls",
    "path_or_url",
]

CONTRADICTIONS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "convert": [
        ("--ragged", "--pad", "one keeps the lengths of rows, and the other makes them equal")
    ],
    "explain": [
        ("--copy", "--no-copy", "one asks for a copy, and the other refuses it"),
        ("--pinned", "--memory-map", "memory that is page-locked is not that of a mapped file"),
    ],
}
"""Pairs of options of a command that contradict each other, and why."""

_WIDEST = 100
"""Help is prose, and hard to read in longer lines."""
_UsageError: Any = typer.BadParameter.__base__
_ClickError: Any = _UsageError.__base__


StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="For URLs: an option of fsspec's file system, such as anon=true; VALUE is JSON or a string.",
    ),
]


def path_or_url(given: str) -> Path:
    """An argument as it was typed: what may be a URL stays a string, and is not asked for yet."""
    return given if "://" in given else Path(given)  # type: ignore[return-value]


def files_or_urls(
    given: Sequence[Path], words: Iterable[str] | None, *targets: Path
) -> tuple[list[Path], dict[str, Any]]:
    """The files that arguments name, which may be on servers, and the options for those.

    What is refused becomes a file that cannot be read: the command that opens it tells why.

    Args:
        given: The arguments.
        words: The options, as they are typed.
        targets: Further arguments that options may be for.

    Raises:
        typer.BadParameter: An option is typed in another way, or is for nothing.
    """
    from ..files.remote.addresses import takes_options

    options = _storage_options(words)
    takes = [takes_options(each) for each in given]
    if options and not any([*takes, *map(takes_options, targets)]):
        raise typer.BadParameter(
            "it is for URLs such as s3://bucket/model.safetensors, and there is none",
            param_hint="--storage-option",
        )
    places = [_place(each, options if may else {}) for each, may in zip(given, takes, strict=True)]
    return places, options


def _place(given: object, options: dict[str, Any]) -> Path:
    from ..errors import ConversionError
    from ..files.base.urls import url_told
    from ..files.opening.paths import place_of

    try:
        return place_of(given, "", options)
    except (ConversionError, OSError) as error:
        if isinstance(given, Path):
            return given
        from ..files.remote.files import RemoteFile
        from ..files.remote.pins import RefusedPlace

        return RemoteFile(RefusedPlace(url_told(str(given)), error))  # type: ignore[return-value]


def _storage_options(words: Iterable[str] | None) -> dict[str, Any]:
    """Options of file systems as they are typed: ``anon=true``; no message has a value.

    Raises:
        typer.BadParameter: One is typed in another way.
    """
    import json

    options: dict[str, Any] = {}
    for word in words or ():
        name, mark, text = word.partition("=")
        if not mark or not name:
            raise typer.BadParameter("it is not like anon=true", param_hint="--storage-option")
        if name in options:
            raise typer.BadParameter(f"{name!r} is there twice", param_hint="--storage-option")
        try:
            options[name] = json.loads(text)
        except (ValueError, RecursionError):
            options[name] = text
    return options


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options, as its usage shows them."""
        return _untyped(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(_help(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. If only one path is given for ``IN...

        OUT``, OUT is the missing one.
        """
        typed = [word for word in args if not word.startswith("-")]
        words = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            missing: Any = error
            arguments = [param for param in self.params if param.param_type_name == "argument"]
            if typed and type(error) is not typer.BadParameter and missing.param in arguments[:-1]:
                missing.param = arguments[-1]
            raise
        self._refuse_contradictions(ctx, words)
        return rest

    def _refuse_contradictions(self, ctx: Any, args: list[str]) -> None:
        if ctx.resilient_parsing:
            return  # the shell asks for completions
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        options: list[Any] = [param for param in order if param.param_type_name == "option"]
        for param in options:
            if options.count(param) > 1 and not param.multiple and not param.is_flag:
                raise _UsageError(f"{param.opts[0]} is there twice, and takes one value.", ctx)
        used = {param.opts[0] for param in options}
        used |= {word for param in options for word in param.secondary_opts if word in args}
        used -= {
            param.opts[0] for param in options if param.secondary_opts and param.opts[0] not in args
        }
        for option, other, why in CONTRADICTIONS.get(str(self.name), ()):
            if {option, other} <= used:
                raise _UsageError(
                    f"{option} and {other} contradict each other: {why}. Give one of them.", ctx
                )


class CommandGroup(TyperGroup):
    """The command that has the others."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, as its usage shows them."""
        return _untyped(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(_help(self, ctx))

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command that was typed, and end the process with its exit code."""
        extra["standalone_mode"] = False
        if not standalone_mode:
            return super().main(*args, **extra)
        try:
            code = super().main(*args, **extra)
        except _ClickError as error:
            _show_usage(error)
            code = error.exit_code
        except typer.Abort:
            code = 1
        except SystemExit as ended:
            # Typer takes the place of stdout if its reader stops early, which is no error.
            if type(sys.stdout).__name__ == "PacifyFlushWrapper":
                code = 0
            else:
                code = ended.code
        raise SystemExit(code or 0)


def _untyped(params: Iterable[Any]) -> list[Any]:
    """Parameters without the types that Typer shows after flags and arguments."""
    shown = list(params)
    for param in shown:
        if param.param_type_name == "argument":
            param.display_type_rich = _nothing
        elif param.is_flag and param.metavar is None:
            param.metavar = ""
    return shown


def _nothing(ctx: Any) -> str:
    """A function for Typer that needs the name of this argument."""
    del ctx
    return ""


def _help(command: Any, ctx: Any) -> str:
    """The help of a command, as wide as the terminal, with colours if it has them."""
    page: Console = out()
    page.file = text = io.StringIO()
    width = min(report_width(), _WIDEST)
    for line in _help_lines(command, ctx, width):
        page.print(line, soft_wrap=True)
    return text.getvalue()


def _help_lines(command: Any, ctx: Any, width: int) -> Iterator[Any]:
    from rich.text import Text

    yield from console.wrapped(_usage(command, ctx), width)
    for paragraph in (command.help or "").strip().split("\n\n"):
        yield ""
        yield from console.wrapped(" ".join(paragraph.split()), width)
    for title, entries in _panels(command, ctx).items():
        yield ""
        yield Text(f"{title}:", "title")
        # On a narrow terminal, what is said about a word stands below it.
        widest = max(console.cell_width(word) for word, _ in entries)
        beside = widest <= width // 2
        for word, about in entries:
            typed = Text(word, "code")
            if beside:
                lines = console.fact_lines([(typed, about)], width, label=widest)
                yield from (Text.assemble(*(piece for piece, _ in line)) for line in lines)
                continue
            yield from (Text.assemble("  ", piece) for piece in console.wrapped(typed, width - 2))
            yield from (f"      {piece}" for piece in console.wrapped(about, width - 6))
    if command.epilog:
        yield ""
        yield from console.wrapped(command.epilog, width)


def _usage(command: Any, ctx: Any) -> str:
    return f"Usage: {ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}"


def _panels(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Arguments, options and commands with what is said about them, by their group's title."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if not getattr(param, "hidden", False):
            if param.param_type_name == "argument":
                usual = "Arguments"
            else:
                usual = "Options"
            title = getattr(param, "rich_help_panel", None) or usual
            panels.setdefault(title, []).append((_written(param), _about(param)))
    for name, subcommand in getattr(command, "commands", {}).items():
        title = getattr(subcommand, "rich_help_panel", None) or "Commands"
        panels.setdefault(title, []).append((name, " ".join((subcommand.help or "").split())))
    return {title: panels[title] for title in sorted(panels, key=lambda title: title == "Options")}


def _written(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"{param.metavar}{' …' if param.nargs == -1 else ''}"
    words = ", ".join([*param.opts, *param.secondary_opts])
    if param.is_flag or not param.metavar:
        return words
    return f"{words} {param.metavar}"


def _about(param: Any) -> str:
    marks = []
    if param.required:
        marks.append("[required]")
    elif (
        param.param_type_name == "option"
        and isinstance(param.default, (str, int))
        and not param.is_flag
    ):
        marks.append(f"[default: {param.default}]")
    return " ".join([" ".join((param.help or "").split()), *marks])


def _show_usage(error: Any) -> None:
    """Print what is wrong with the words that were typed, on stderr."""
    from rich.text import Text

    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(
            _help(error.ctx.command, error.ctx) if not styled() else error.format_message()
        )
        return
    width = line_width(sys.stderr)
    lines: list[Any] = []
    if error.ctx is not None:
        path = error.ctx.command_path
        lines += console.wrapped(_usage(error.ctx.command, error.ctx), width)
        lines += console.wrapped(f"Try '{console.solid(path + ' --help')}' for help.", width)
        lines.append("")
    lines += console.wrapped(
        Text.assemble(("Error", "bad"), f": {printable(error.format_message())}"), width
    )
    terminal = err()
    for line in lines:
        shown = Text.assemble(line)
        shown.plain = shown.plain.replace(console.SOLID, " ")
        terminal.print(shown, soft_wrap=True)
