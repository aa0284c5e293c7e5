"""Print lines in columns that fit the terminal, also a hundred thousand of them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from . import layout
from .console import line_width, out, report_width

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from .layout import Cell, Line

__all__ = ["MOST_STYLED", "facts", "heading", "paragraph", "prose", "rows", "show_lines", "styled"]

MOST_STYLED = 1000
"""The most lines with styles.

More are written plainly, because Rich takes a tenth of a millisecond for each.
"""


def heading(text: str) -> None:
    """A title on lines of its own."""
    paragraph(text, "title")


def paragraph(text: Cell, style: str = "") -> None:
    """Text that is broken between words where a terminal ends."""
    lines: list[Line] = [[(piece, 0)] for piece in layout.wrapped(text, line_width(sys.stdout))]
    show_lines(lines, [style])


def prose(text: Cell = "", style: str = "") -> None:
    """Text of a report, which is for people, and is broken between words in a pipe too."""
    lines: list[Line] = [[(piece, 0)] for piece in layout.wrapped(text, report_width())]
    show_lines(lines, [style])


def facts(lines: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts in two columns."""
    show_lines(list(layout.facts(lines, line_width(sys.stdout))), ["quiet", ""])


def rows(
    lines: Iterable[Sequence[Cell]],
    styles: Sequence[str],
    right: Collection[int] = (),
    *,
    headed: bool = False,
) -> None:
    """Print lines in columns: on a terminal as `layout.table` fits them, in a file one line for each.

    Args:
        lines: The cells of each line, without characters that a terminal could obey.
        styles: The style of each column.
        right: The columns that are aligned to the right.
        headed: Whether the first line has headings.
    """
    held = list(lines)
    show = _shower(styles if len(held) <= MOST_STYLED else None)
    for line in layout.table(held, line_width(sys.stdout), right=right, headed=headed):
        show(line)


def show_lines(lines: Sequence[Line], styles: Sequence[str]) -> None:
    """Print lines of `layout`, each part in the style of its column."""
    show = _shower(styles if len(lines) <= MOST_STYLED else None)
    for line in lines:
        show(line)


def styled() -> bool:
    """Whether output has styles."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _shower(styles: Sequence[str] | None) -> Callable[[Line], None]:
    """A function that prints a line: plainly, if there are no styles, or nobody sees them."""
    if styles is None or not styled():
        return _plainly
    from rich.text import Text

    console = out()

    def show(line: Line) -> None:
        words = Text()
        for piece, column in line:
            part = Text(piece) if isinstance(piece, str) else piece.copy()
            if styles[column]:
                part.stylize_before(styles[column])
            words.append_text(part)
        words.plain = words.plain.replace(layout.SOLID, " ").rstrip()
        console.print(words, soft_wrap=True)

    return show


def _plainly(line: Line) -> None:
    text = "".join(str(piece) for piece, _ in line).replace(layout.SOLID, " ")
    sys.stdout.write(text.rstrip() + "\n")
