"""Watch the command line while tests run it, in this process and in others, and type the hints that it prints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests import support
from tests.hints.pasting import SECONDS, STEPS, Excused, Failed, new_folder

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
"""What runs ``tensorferry`` with other words, as it was run: in the same folder and environment."""

_IN_TERMINAL = re.compile(r"Hint: (.+?)(?=\n\n|\n?\Z|\n\w+Error: )", re.DOTALL)


_FIRST = "first tensorferry convert IN OUT with "
_REPORT = frozenset({"check", "diff", "explain"})
"""Commands that end with 1 if they say that something is not so, which is no error."""


class Command(NamedTuple):
    """What was typed after ``tensorferry``, and the hint of the error that it printed."""

    words: tuple[str, ...]
    hint: str
    message: str
    folder: str
    again: Run


@contextlib.contextmanager
def watching(look: Callable[[Command], None]) -> Iterator[None]:
    """Watch each run of the command line whose output is read."""
    with contextlib.ExitStack() as patches:

        def patch(owner: Any, name: str, made: Any) -> None:
            patches.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, made)

        patch(subprocess, "run", _started(subprocess.run, look))
        patch(support, "forked_command", _forked(support.forked_command, look))
        usage = sys.modules.get("tensorferry.cli.usage")
        if usage is not None:  # else nothing in this process runs a command
            patch(usage.CommandGroup, "main", _called(usage, usage.CommandGroup.main, look))
        yield


def _started(run: Any, look: Callable[[Command], None]) -> Any:
    """``subprocess.run``, which looks at what a process printed if it is the command line."""

    def started(words: Any, *args: Any, **keywords: Any) -> Any:
        done = run(words, *args, **keywords)
        count = 0 if isinstance(words, (str, bytes)) else _of_program([str(word) for word in words])
        if count:
            program, typed = words[:count], [str(word) for word in words[count:]]
            options = {"cwd": keywords.get("cwd"), "env": keywords.get("env"), "timeout": 60}

            def again(other: Sequence[str]) -> Any:
                whole = [*program, *other]
                return run(whole, **options, capture_output=True, text=True, check=False)

            folder = os.fspath(keywords.get("cwd") or ".")
            for hint, message in hints_in(_text(done.stdout), _text(done.stderr)):
                look(Command(tuple(typed), hint, message, str(Path(folder).absolute()), again))
        return done

    return started


def _of_program(words: Sequence[str]) -> int:
    """How many words name the program; 0 if it is not the command line."""
    if words and Path(words[0]).name == "tensorferry":
        return 1
    return 3 if words[1:3] == ["-m", "tensorferry"] else 0


def _forked(run: Any, look: Callable[[Command], None]) -> Any:
    """`support.forked_command`, which looks at what a command printed."""

    def forked(modules: Any, words: Any, **keywords: Any) -> Any:
        done = run(modules, words, **keywords)
        for hint, message in hints_in(done.stdout, done.stderr):
            typed = tuple(map(str, words))
            again = lambda other: run(modules, other, **keywords)  # noqa: E731
            look(Command(typed, hint, message, str(Path.cwd()), again))
        return done

    return forked


def _called(usage: Any, main: Any, look: Callable[[Command], None]) -> Any:
    """The group of commands, which looks at the errors that one shows."""
    from tensorferry.cli import outcome

    def called(group: Any, args: Any = None, **extra: Any) -> Any:
        found: list[tuple[str, str]] = []
        words_of, show_usage = outcome._words, usage._show_usage

        def words(error: Exception, command: str) -> Any:
            message, hint = words_of(error, command)
            found.extend([(hint, message)] if hint else [])
            return message, hint

        def show(error: Any) -> None:
            found.extend(hints_in("", error.format_message()))
            show_usage(error)

        outcome._words, usage._show_usage = words, show
        try:
            return main(group, args, **extra)
        finally:
            outcome._words, usage._show_usage = words_of, show_usage
            folder = str(Path.cwd())
            for hint, message in dict.fromkeys(found):
                typed = tuple(sys.argv[1:] if args is None else args)
                look(Command(typed, hint, message, folder, _in_child(folder)))

    return called


def _in_child(folder: str) -> Run:
    return lambda words: support.forked_command(support.COMMAND_LINE, words, folder=folder)


def hints_in(out: str, err: str) -> list[tuple[str, str]]:
    """The hints that a command printed, each with the message of its error."""
    found = []
    with contextlib.suppress(ValueError):
        found += _in_data(json.loads(out))
    for shown in _IN_TERMINAL.finditer(err):
        found.append((" ".join(shown[1].split()), err[: shown.start()].strip()[-300:]))
    return list(dict.fromkeys(found))


def _in_data(data: Any) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        error = data.get("error")
        if isinstance(error, dict) and error.get("hint"):
            yield error["hint"], error["message"]
        for each in data.values():
            yield from _in_data(each)
    elif isinstance(data, list):
        for each in data:
            yield from _in_data(each)


def _text(told: Any) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else told or ""


# -- typing ----------------------------------------------------------------------------------------


class Options(NamedTuple):
    """One way that a hint shows: options that are given, each with its value, and options that are left out."""

    given: tuple[tuple[str, str | None], ...] = ()
    without: tuple[tuple[str, str | None], ...] = ()
    conditional: bool = False
    """Whether the hint says when this way is the right one."""

    def __str__(self) -> str:
        words = [word for pair in self.given for word in pair if word is not None]
        left = [f"without {name}" for name, _ in self.without]
        return " ".join([shlex.join(words), *left])


class Line(NamedTuple):
    """The words after ``tensorferry``, by their kinds."""

    name: str
    places: tuple[str, ...]
    options: tuple[tuple[str, str | None], ...]

    def words(self) -> list[str]:
        """As they are typed."""
        given = [word for pair in self.options for word in pair if word is not None]
        return [self.name, *given, "--", *self.places]


@cache
def _flags() -> dict[str, dict[str, bool]]:
    """For each command, its options, and whether one takes no value."""
    import typer

    from tensorferry.cli.app import app

    return {
        name: {
            option: bool(getattr(each, "is_flag", False))
            for each in command.params
            for option in (*each.opts, *each.secondary_opts)
        }
        for name, command in typer.main.get_command(app).commands.items()
    }


def line_of(words: Sequence[str]) -> Line:
    """The words of a command, by their kinds.

    Raises:
        Failed: They name no command.
    """
    name, *rest = words or ("",)
    if name not in _flags():
        raise Failed(f"{name} is no command")
    flags, places, options = _flags()[name], [], []
    while rest:
        word = rest.pop(0)
        if word == "--":
            places += rest
            break
        option, mark, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            places.append(word)
        elif mark:
            options.append((option, value))
        else:
            options.append((word, None if flags.get(word, True) or not rest else rest.pop(0)))
    return Line(name, tuple(places), tuple(options))


_OPTION = re.compile(r"(?<![\w-])(?:(leaving|without) )?(--[a-z][a-z-]*)")
_VALUE = re.compile(r" ((?:'[^']*'|\"'\"|[^\s'])+)")


def ways_typed(hint: str, name: str) -> list[Options]:
    """The ways of a hint in options of a command, in its order. Options with a space between them belong together."""
    ways: list[Options] = []
    before = -1
    flags = _flags()["convert" if hint.startswith(_FIRST) else name]
    at = 0
    while (found := _OPTION.search(hint, at)) is not None:
        at = found.end()
        value, option = None, found[2]
        typed = None if flags.get(option, True) else _VALUE.match(hint, at)
        if typed is not None:
            text = typed[1] if typed[1].endswith("'") else typed[1].rstrip(",;)")
            value, at = shlex.split(text)[0], typed.start(1) + len(text)
        way = Options(
            ((option, value),) if not found[1] else (),
            ((option, value),) if found[1] else (),
            re.match(r",? if | \(if |, for |, where ", hint[at:]) is not None,
        )
        between = hint[before : found.start()] if before >= 0 else ""
        if ways and (between == " " or (between == ", " and way.without)):
            last = ways.pop()
            way = Options(last.given + way.given, last.without + way.without, way.conditional)
        ways.append(way)
        before = at
    return ways


def _changed(line: Line, way: Options) -> Line:
    """The same command with the options of a way; one that the way has is not given as before."""
    gone = {name for name, _ in way.given} | {name.replace("--no-", "--") for name, _ in way.given}
    gone |= {name.replace("--", "--no-", 1) for name in gone}
    gone |= {name for name, value in way.without if value is None}
    kept = [pair for pair in line.options if pair[0] not in gone and pair not in way.without]
    return line._replace(options=(*kept, *way.given))


def _elsewhere(command: Command, line: Line, folder: Path) -> Line:
    """The same command, whose output goes into another folder, where what is at its path is, too."""
    options = tuple(
        (name, str(folder / "page.html") if name == "--html" else value)
        for name, value in line.options
    )
    places = line.places
    if line.name == "convert" and len(places) > 1:
        path = Path(command.folder, places[-1])
        for each in (path, path.with_name(f".{path.name}.partial")):
            if each.is_dir():
                shutil.copytree(each, folder / each.name, symlinks=True)
            elif each.is_file():
                shutil.copy(each, folder / each.name)
        places = (*places[:-1], str(folder / path.name))
    return line._replace(places=places, options=options)


def type_ways(command: Command, seen: tuple[str, ...], excused: Excused) -> None:
    """Type each way of a hint, and those of the hints that it leads to.

    Args:
        command: The command, and its hint.
        seen: What was followed to there.
        excused: Whether a hint that this leads to need not be tried.

    Raises:
        Failed: A way does not work, or goes in a circle, or there is nothing to type in the hint.
    """
    key = f"{shlex.join(command.words)}: {command.hint}"
    if key in seen:
        raise Failed(f"a circle: {' -> '.join(seen)}")
    if len(seen) > STEPS:
        raise Failed(f"no end: {' -> '.join(seen)}")
    if command.hint.startswith(("python3 -c ", "tensorferry ")):
        _in_shell(command)
        return
    ways = ways_typed(command.hint, line_of(command.words).name)
    if not ways:
        raise Failed("nothing to type")
    failures, worked = [], 0
    for way in ways:
        try:
            _type(command, way, (*seen, key), excused)
            worked += 1
        except Failed as error:
            failures.append((way, str(error)))
    wrong = [why for way, why in failures if not (way.conditional and worked)]
    if wrong:
        raise Failed("; ".join(wrong))


def _in_shell(command: Command) -> None:
    words = shlex.split(command.hint)
    if words[:3] == ["tensorferry", "convert", "IN"]:
        # What it makes lies elsewhere.
        sources = line_of(command.words).places[:-1]
        done = command.again(["convert", *sources, str(Path(new_folder(), Path(words[3]).name))])
    elif words[0] == "tensorferry":
        done = command.again(words[1:])
    else:
        options = {"cwd": new_folder(), "timeout": SECONDS, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *words[1:]], **options, check=False)
    if done.returncode:
        raise Failed(f"{command.hint} ends with {done.returncode}: {_text(done.stderr)[-300:]}")


def _type(command: Command, way: Options, seen: tuple[str, ...], excused: Excused) -> None:
    folder = Path(new_folder())
    line = _elsewhere(command, line_of(command.words), folder)
    if command.hint.startswith(_FIRST):
        made = str(folder / f"made-{Path(line.places[0]).name}")
        done = command.again(Line("convert", (line.places[0], made), way.given).words())
        if done.returncode:
            raise Failed(f"convert {way} ends with {done.returncode}: {_text(done.stderr)[-300:]}")
        line = line._replace(places=(made, *line.places[1:]))
    else:
        line = _changed(line, way)
    done = command.again(line.words())
    out, err = _text(done.stdout), _text(done.stderr)
    later = hints_in(out, err)
    if done.returncode == 0 or (done.returncode == 1 and line.name in _REPORT and not later):
        return
    if not later:
        raise Failed(f"{way} ends with {done.returncode}: {err[-300:] or out[-300:]}")
    for hint, message in later:
        if not excused(hint):
            shown = Command(tuple(line.words()), hint, message, command.folder, command.again)
            type_ways(shown, (*seen, str(way)), excused)
