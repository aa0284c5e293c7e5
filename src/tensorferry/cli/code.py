"""Print code on a terminal, with lines broken only where Python allows it."""

from __future__ import annotations

import io
import sys
import textwrap
import tokenize
from contextlib import suppress
from typing import TYPE_CHECKING

from .console import line_width
from .layout import wrapped

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["folded", "print_code"]


def print_code(
    console: Console, code: str, margin: str, *, first: str | None = None, is_typed: bool = True
) -> None:
    """Print Python code after a margin: with colours only on a terminal, and in a file as it is.

    In a file, a broken line would count as two.

    Args:
        console: The console.
        code: One or more lines.
        margin: The text before each line.
        first: The text before the first line, if it differs.
        is_typed: Whether people type it, so that a line that Python does not allow to break stays
            whole.
    """
    from rich.text import Text

    width = line_width(sys.stdout)
    if width is not None:
        code = folded(code, width - len(margin))
    lines = [Text(line) for line in code.split("\n")]
    if console.is_terminal:
        from rich.syntax import Syntax

        looks = Syntax("", "python", theme="ansi_dark", background_color="default")
        lines = list(looks.highlight(code).split())
    if width is not None and not is_typed:
        lines = [part for line in lines for part in wrapped(line, width - len(margin))]
    for number, line in enumerate(lines):
        before = margin if number or first is None else first
        console.print(Text.assemble(before, line), soft_wrap=True)


def folded(code: str, width: int) -> str:
    r"""Break code into lines of at most `width`, as far as brackets and comments allow it.

    >>> print(folded("y = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)", 30))
    y = torch.from_numpy(
        x.view(np.int16)
    ).view(torch.bfloat16)
    """
    return "\n".join(part for line in code.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int, indent: str = "") -> list[str]:
    if len(indent + line) <= width:
        return [indent + line]
    if line.startswith("#"):
        return textwrap.wrap(
            line, width, subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
        )
    first, word, second = line.partition(" or ")
    if indent and word and first.count("(") == first.count(")") and not {"'", '"'} & set(first):
        return [*_parts(first, width, indent), *_parts(f"or {second}", width, indent)]
    pairs = [(start, end) for start, end in _brackets(line) if end > start]
    if not pairs:
        return [indent + line]
    fitting = [(start, end) for start, end in pairs if len(indent) + start <= width]
    start, end = max(fitting or pairs[:1], key=lambda pair: pair[1] - pair[0])
    return [
        indent + line[:start],
        *(
            part
            for each in _arguments(line[start:end])
            for part in _parts(each, width, indent + "    ")
        ),
        *_parts(line[end:], width, indent),
    ]


def _brackets(line: str) -> list[tuple[int, int]]:
    """The start and end of the contents of each outermost pair of brackets."""
    pairs: list[tuple[int, int]] = []
    open_at: list[int] = []
    for text, place in _operators(line):
        if text in "([{":
            open_at.append(place + 1)
        elif text in ")]}" and open_at:
            start = open_at.pop()
            if not open_at:
                pairs.append((start, place))
    return pairs


def _arguments(inside: str) -> list[str]:
    """The parts between commas outside of inner brackets, each with its comma."""
    parts, depth, start = [], 0, 0
    for text, place in _operators(inside):
        depth += (text in "([{") - (text in ")]}")
        if text == "," and not depth:
            parts.append(inside[start : place + 1].strip())
            start = place + 1
    return [part for part in (*parts, inside[start:].strip()) if part]


def _operators(line: str) -> list[tuple[str, int]]:
    """The operators of a line, and their positions, without those in strings."""
    found: list[tuple[str, int]] = []
    # A part of a line may open a bracket without closing it, which is an error here.
    with suppress(tokenize.TokenError, SyntaxError):
        found.extend(
            (token.string, token.start[1])
            for token in tokenize.generate_tokens(io.StringIO(line).readline)
            if token.type == tokenize.OP and token.start[0] == 1
        )
    return found
