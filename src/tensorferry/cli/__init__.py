"""The command line: ``tensorferry doctor``, and so on.

``inspect``, ``check``, ``convert`` and ``diff`` are for files.

Data goes to stdout, messages to stderr. Exit codes:

- 0: fine, or equal
- 1: something differs, a check failed, a case did not hold, a conversion in memory is impossible
- 2: the command was not understood, or a file cannot be read or written as asked
- 3: a file is refused for safety: it asks for code to be run
- 4: what was written did not read back the same; nothing was published
- 5: interrupted; ``--resume`` continues
- 130: Ctrl-C; 129 and 143: the signals SIGHUP and SIGTERM; unfinished output is cleaned up

Nothing here is imported by ``import tensorferry``: Typer and Rich come with the extra
``tensorferry[cli]``; ``--version`` and ``-V`` need neither.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .process import end_with

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["inspect_arguments", "main"]

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


def _run(words: list[str]) -> int:
    """Run the command line, and give the exit code."""
    if words in (["--version"], ["-V"]):
        from .. import __version__

        sys.stdout.write(f"tensorferry {__version__}\n")
        return 0
    # Without Typer, whose start takes more time and memory than a big header.
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
        from .process import run

        return run("inspect", quick["paths"], **quick)
    from .app import app

    if os.environ.get("_TENSORFERRY_COMPLETE") == "complete_bash":
        from .completion import bash_words

        bash_words(os.environ)
    app(prog_name="tensorferry")
    return 0


def inspect_arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of a plain ``inspect`` for its `run`; ``None`` for all that is left to Typer.

    >>> inspect_arguments(["inspect", "a.pt", "--all"])
    {'paths': [PosixPath('a.pt')], 'every': True, 'values': False, 'allow': [],
    'as_json': False, 'in_process': False}
    >>> inspect_arguments(["inspect", "--help"])

    Args:
        words: The words of the command line, after the name of the program.
    """
    paths: list[Path] = []
    allow: list[str] = []
    flags = {"--all": False, "--values": False, "--json": False, "--in-process": False}
    left = iter(words[1:])
    for word in left:
        if word in flags:
            flags[word] = True
        elif word == "--allow":
            name = next(left, "-")
            if name.startswith("-"):
                return None
            allow.append(name)
        elif word.startswith("-") or "://" in word:
            return None
        else:
            paths.append(Path(word))
    if words[:1] != ["inspect"] or not paths:
        return None
    arguments = {
        "paths": paths,
        "every": flags["--all"],
        "values": flags["--values"],
        "allow": allow,
    }
    return {**arguments, "as_json": flags["--json"], "in_process": flags["--in-process"]}
