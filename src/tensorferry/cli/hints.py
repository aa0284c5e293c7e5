"""Translate hints of the Python functions into options of the command line."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from .layout import solid

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "as_options", "unbroken"]

_CONVERT = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "to", "dtype", "overflow", "include", "exclude", "rename", "metadata", "tensors_only", "ties",
        "dequantize", "nulls", "ragged", "pad", "allow", "shard", "overwrite", "verify",
        "dry_run", "resume", "jobs", "engine", "part",
    )
}  # fmt: skip

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "inspect": {"allow": "--allow"},
    "check": {"allow": "--allow"},
    "diff": {"allow": "--allow", "any_dtype": "--any-dtype", "tensors_only": "--tensors-only"},
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

_KEYWORD = re.compile(
    r"""
    (?P<call>[\w.]+\()                  # what stands in the brackets of a call is Python's
    | (?<![\w.])(?P<keyword>[a-z_]+)=(?!=)
      (?P<value>True|False|None|"[^"]*"|'[^']*'|(?=[\[{])|\w+(?:\.\w+)*)?
    """,
    re.VERBOSE,
)


def as_options(hint: str, command: str) -> str:
    """A hint in the words of the command line, for use after ``tensorferry COMMAND``.

    >>> as_options(
    ...     'rename=["s/a/b/"], or tensors_only=True, or to="npz", or another to=', "convert"
    ... )
    '--rename s/a/b/, or --tensors-only, or --to npz, or another --to'
    >>> as_options('copy=None (the default) shares; or dtype="fit"', "explain")
    'leaving --no-copy out (the default) shares; or --to-dtype fit'

    If a command on files does not have an option, the hint says to use `convert` first.

    >>> as_options("tensors_only=True, which leaves it out", "roundtrip")
    'first tensorferry convert IN OUT with --tensors-only, which leaves it out'

    Args:
        hint: The hint of an error of the library.
        command: The key in `OPTIONS`. For other commands, the hint does not change.
    """
    own = OPTIONS.get(command, {})
    others = _CONVERT if "allow" in own else {}
    hint = _for_shell(hint, command)
    before = ""
    parts: list[str] = []
    place = 0
    text = ""
    while (found := _KEYWORD.search(hint, place)) is not None:
        between = hint[place : found.start()]
        place = _closing(hint, found.end() - 1) if found["call"] else found.end()
        name, value = found["keyword"], found["value"]
        if value == "":
            place = _closing(hint, found.end())
            value = hint[found.end() : place]
        last, text = text, hint[found.start() : place]
        if name in own:
            text = _typed(name, own[name], value)
        elif name in others:
            before = "first tensorferry convert IN OUT with "
            text = _typed(name, others[name], value)
        # In a call a comma stands between keywords, in a shell nothing does between options.
        are_options = last.startswith("--") and text.startswith("--") and between in (", ", " and ")
        parts += [" " if are_options else between, text]
    return "".join([before, *parts, hint[place:]])


def _for_shell(hint: str, command: str) -> str:
    """A hint without what only Python can do with the keywords of a call, if there are other ways."""
    if command == "explain --from":
        return _FIELDS.sub(r"\1", hint)
    if hint.startswith(_IN_PYTHON):
        import shlex  # here, because only an error needs it

        return f"python3 -c {shlex.quote(hint.removeprefix(_IN_PYTHON))}"
    ways = _FILES.sub(_converted, hint).split("; or ")
    return "; or ".join(way for way in ways if not _CALL.match(way)) or "; or ".join(ways)


def _converted(found: re.Match[str]) -> str:
    import shlex  # here, because only an error needs it

    return f"tensorferry convert IN {shlex.quote(ast.literal_eval(found[1]))}"


_FILES = re.compile(r"""convert_files\(source, ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)""")
"""A call with another output, and no keywords."""
_FIELDS = re.compile(r"x\._replace\(([^()]*)\)")
"""The fields of a description, which are options."""
_IN_PYTHON = "in Python: "
_CALL = re.compile(r"(?:convert|convert_tree|load)\(")


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
    r"""A hint whose code is not broken over lines, so that it can be copied: its spaces are `layout.SOLID`.

    >>> unbroken("pip install h5py, or another format").split(" ")
    ['pip\xa0install\xa0h5py,', 'or', 'another', 'format']
    """
    return _TYPED.sub(lambda found: solid(found[0]), hint)


def _closing(text: str, place: int) -> int:
    """The position after the bracket that closes the one at `place`. In quotes there are none."""
    depth, quote = 0, ""
    while place < len(text):
        sign = text[place]
        place += 1
        if quote:
            place += sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        else:
            depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and not quote:
            break
    return place


def _typed(name: str, option: str, value: str | None) -> str:
    if name in ("nulls", "pad") and value is not None:
        # They take values, of which True and False are two.
        return f"{option} {value.strip(chr(34))}"
    if value in (None, "True"):
        return option
    if value in ("None", "False"):
        # A keyword with three values is written with two options.
        if name == "copy":
            return "--no-copy" if value == "False" else "leaving --no-copy out"
        return f"leaving {option} out"
    return " ".join(f"{option} {each}" for each in _words(value or ""))


def _words(value: str) -> list[str]:
    """A Python value as words for a shell, one for each use of the option."""
    import shlex  # here, because only an error needs it

    if "…" in value:
        return ["…"]
    try:
        plain: Any = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        plain = value
    if isinstance(plain, dict):
        plain = [f"{key}={each}" for key, each in plain.items()]
    return [
        shlex.quote(str(each)) for each in (plain if isinstance(plain, (list, tuple)) else [plain])
    ]
