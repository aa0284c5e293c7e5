"""Run plain ``inspect`` without Typer: its start needs more time and memory than a big header."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["inspect_arguments"]


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
        elif word.startswith("-"):
            return None
        else:
            paths.append(Path(word))
    if words[:1] != ["inspect"] or not paths:
        return None
    given = {"paths": paths, "every": flags["--all"], "values": flags["--values"], "allow": allow}
    return {**given, "as_json": flags["--json"], "in_process": flags["--in-process"]}
