"""Lines of several columns, which may be a hundred thousand: in line, and each of them whole."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .console import facts_table, out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["MOST_STYLED", "facts", "heading", "rows", "styled"]

_WIDEST = 60
"""A cell that is wider pushes its own line only."""
MOST_STYLED = 1000
"""Lines beyond that are written as they are: Rich takes a tenth of a millisecond for each."""


def heading(text: str) -> None:
    """A title on a line of its own."""
    if styled():
        from rich.text import Text

        out().print(Text(text, "title"), soft_wrap=True)
    else:
        sys.stdout.write(f"{text}\n")


def facts(lines: Sequence[tuple[str, str]]) -> None:
    """Words and what is to be said to each, in two columns; folded on a terminal that is wide enough for that."""
    console = out() if styled() else None
    if console is None or console.width < 40:
        rows(lines, styles=("quiet", ""))
        return
    from rich.padding import Padding
    from rich.text import Text

    table = facts_table()
    for word, text in lines:
        table.add_row(word, Text(text))
    console.print(Padding(table, (0, 0, 0, 2)))


def rows(lines: Iterable[Sequence[str]], styles: Sequence[str], right: frozenset[int] = frozenset()) -> None:
    """Lines in columns, two spaces from the left; none is folded, so that each can be searched and copied.

    Args:
        lines: Their cells, nothing in them that a terminal could obey.
        styles: Of each column.
        right: The columns that end in line instead of beginning so.
    """
    held = list(lines)
    widths = [
        max((len(line[column]) for line in held if len(line[column]) <= _WIDEST), default=0)
        for column in range(len(styles))
    ]
    show = _styler(styles) if styled() and len(held) <= MOST_STYLED else _plainly
    for line in held:
        used = max((column + 1 for column, text in enumerate(line) if text), default=0)
        cells = [
            text.rjust(widths[column]) if column in right else text.ljust(widths[column] if column + 1 < used else 0)
            for column, text in enumerate(line[:used])
        ]
        show(cells)


def styled() -> bool:
    """Whether Rich has anything to do with what is written; a hundred thousand lines are written without."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _plainly(cells: list[str]) -> None:
    sys.stdout.write("  " + "  ".join(cells) + "\n")


def _styler(styles: Sequence[str]) -> Callable[[list[str]], None]:
    from rich.text import Text

    console = out()

    def show(cells: list[str]) -> None:
        words = [part for cell, style in zip(cells, styles, strict=False) for part in ("  ", (cell, style))]
        console.print(Text.assemble(*words), soft_wrap=True)

    return show
