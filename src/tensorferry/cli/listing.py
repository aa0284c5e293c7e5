"""Print lines in aligned columns, also a hundred thousand of them, without folding."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .console import facts_table, out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["MOST_STYLED", "facts", "heading", "rows", "styled"]

_WIDEST = 60
"""The widest column. A wider cell shifts only its own line."""
MOST_STYLED = 1000
"""The most lines with styles. More are written plainly, because Rich takes a tenth of a millisecond for each."""


def heading(text: str) -> None:
    """A title on a line of its own."""
    if styled():
        from rich.text import Text

        out().print(Text(text, "title"), soft_wrap=True)
    else:
        sys.stdout.write(f"{text}\n")


def facts(lines: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts in two columns, which are folded on a wide terminal."""
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
    """Print lines in columns, without folding, so that they can be searched and copied.

    Args:
        lines: The cells of each line, without characters that a terminal could obey.
        styles: The style of each column.
        right: The columns that are aligned to the right.
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
    """Whether output has styles."""
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
