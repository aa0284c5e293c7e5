"""Read a hint as a person reads it: which code to type, and which of several ways are given."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

__all__ = ["Way", "calls_in", "ways_of"]


class Way(NamedTuple):
    """One way that a hint shows: an expression, or the same call with other keywords."""

    code: str
    """An expression; empty if the same call is made again."""
    changes: dict[str, str]
    """The code of each keyword of the same call that gets a value."""
    without: tuple[str, ...]
    """Keywords that are left out of the same call."""
    conditional: bool
    """Whether the hint says when this way is the right one."""
    script: str = ""
    """Statements, which make something that is read afterwards."""
    command: str = ""
    """A command for a shell, which does so."""
    in_place: bool = False
    """Whether the hint says that the value is to stand in the place of what the code names."""

    def __str__(self) -> str:
        if self.script or self.command:
            return self.script or self.command
        left = [f"without {name}=" for name in self.without]
        return self.code or ", ".join(
            [*(f"{name}={value}" for name, value in self.changes.items()), *left]
        )


_OPEN, _CLOSE = "([{", ")]}"
_CALL = re.compile(
    r"(?<![\w.\"'`])\[?[A-Za-z_][\w.]*\(|(?<![\w.\"'`)\]])\[(?=[\[A-Za-z_])|(?<![^ ])\{"
)
_PLACE = re.compile(r"(?<![\w.\"'`=])(?:x|like|out|samples?)(?=[.\[]\w|\[[\"'])")
_AFTER_CALL = re.compile(r"(?:\.\w+)*(?:\((?:[^()]|\([^()]*\))*\))?|\[[^\[\]]*\]")
_KEYWORD = re.compile(r"(?<![\w.\"'])([a-z_]+)=(?=[\w\[({\"'-])")
_LEFT_OUT = re.compile(r"(?:without |leav(?:e|ing) )([a-z_]+)=(?: and ([a-z_]+)=)?(?: out)?")
_CONDITION = re.compile(r",? if | \(if |, for |, where ")


_SCRIPT = re.compile(r"(?:[^;()]*: )?((?:import|from) [\w.]+.*)", re.DOTALL)
"""Statements, perhaps after some words."""
_COMMAND = re.compile(
    r"((?:gunzip|bunzip2|unxz|zstd|lz4|tar|python|tensorferry) .*?)(?:, if .*)?", re.DOTALL
)


def _end_of_brackets(text: str, at: int) -> int:
    """The position after the bracket that closes the one at `at`; that of the end if none does."""
    closes = 0
    quote = ""
    while at < len(text):
        sign = text[at]
        if quote:
            at += sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in _OPEN:
            closes += 1
        elif sign in _CLOSE:
            closes -= 1
        at += 1
        if closes == 0 and not quote and sign in _CLOSE:
            return at
    return at


def _end_of_code(text: str, at: int) -> int:
    """How far attributes, calls and indices go on from `at`."""
    while at < len(text):
        found = re.compile(r"\.[A-Za-z_]\w*").match(text, at)
        if found is not None:
            at = found.end()
        elif text[at] in "([":
            at = _end_of_brackets(text, at)
        else:
            break
    found = re.compile(r" (?:[*+/@-]|//) (?:\d[\w.]*|\w+(?=[(.\[]))").match(text, at)
    return at if found is None else _end_of_code(text, found.end())


def calls_in(text: str):
    """Each call in a text, as far as its brackets go."""
    at = 0
    while (found := _CALL.search(text, at)) is not None:
        start = found.start()
        first = next(index for index in range(start, len(text)) if text[index] in _OPEN)
        at = _end_of_code(text, _end_of_brackets(text, first))
        yield text[start:at]


def _value_at(text: str, at: int) -> int:
    """Where the value of a keyword ends."""
    if text.startswith("lambda ", at):
        return _end_of_code(
            text,
            text.index(": ", at)
            + 2
            + len(re.compile(r"\w+").match(text, text.index(": ", at) + 2)[0]),
        )
    if text[at] in _OPEN:
        return _end_of_code(text, _end_of_brackets(text, at))
    if text[at] in "\"'":
        return text.index(text[at], at + 1) + 1
    found = re.compile(r"-?[\w]+(?:\.\d+)?").match(text, at)
    return at if found is None else _end_of_code(text, found.end())


class _Piece(NamedTuple):
    start: int
    end: int
    code: str
    changes: dict[str, str]
    without: tuple[str, ...]


def _piece_at(text: str, at: int) -> _Piece | None:
    """The next piece of code from `at`."""
    nearest = None
    for kind in (_CALL, _PLACE, _KEYWORD, _LEFT_OUT):
        found = kind.search(text, at)
        if found is not None and (nearest is None or found.start() < nearest[1].start()):
            nearest = kind, found
    if nearest is None:
        return None
    kind, found = nearest
    start = found.start()
    if kind is _LEFT_OUT:
        return _Piece(start, found.end(), "", {}, tuple(filter(None, found.groups())))
    if kind is _KEYWORD:
        end = _value_at(text, found.end())
        return _Piece(start, end, "", {found[1]: text[found.end() : end]}, ())
    if kind is _PLACE:
        end = _end_of_code(text, found.end())
    else:
        first = next(index for index in range(start, len(text)) if text[index] in _OPEN)
        end = _end_of_code(text, _end_of_brackets(text, first))
    return _Piece(start, end, text[start:end], {}, ())


def ways_of(hint: str) -> list[Way]:
    """The ways that a hint shows, in its order.

    Keywords with only a comma or "and" between them belong together, as does what is left out of
    the same call.
    """
    ways: list[Way] = []
    for kind, pattern in (("script", _SCRIPT), ("command", _COMMAND)):
        found = pattern.fullmatch(hint)
        if found is not None:
            return [Way("", {}, (), False)._replace(**{kind: found[1]})]
    at, before = 0, -1
    while (piece := _piece_at(hint, at)) is not None:
        conditional = _CONDITION.match(hint, piece.end) is not None
        in_place = hint.startswith(" in its place", piece.end)
        way = Way(piece.code, piece.changes, piece.without, conditional, in_place=in_place)
        between = hint[before : piece.start] if before >= 0 else ""
        if (
            ways
            and between in (", ", " and ", ", and ", " ")
            and not piece.code
            and not ways[-1].conditional
        ):
            last = ways.pop()
            if last.code:
                # A call, and what it is called without: the call has neither.
                ways.append(
                    last._replace(without=last.without + way.without, conditional=conditional)
                )
            else:
                changes = {**last.changes, **way.changes}
                ways.append(Way("", changes, last.without + way.without, conditional))
        else:
            ways.append(way)
        at = before = piece.end
    return ways


def names_in(code: str) -> set[str]:
    """The names that code uses."""
    return {
        node.id for node in ast.walk(ast.parse(code, mode="eval")) if isinstance(node, ast.Name)
    }
