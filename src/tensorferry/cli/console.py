"""What commands print: styles of the terminal, lines that fit its width, tables and headings."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.text import Text

    Cell = str | Text
    Line = list[tuple[Cell, int]]

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_REFUSED",
    "EXIT_RESUMABLE",
    "EXIT_UNVERIFIED",
    "EXIT_USAGE",
    "MOST_STYLED",
    "SOLID",
    "blocks",
    "cell_width",
    "fact_lines",
    "facts",
    "heading",
    "longest_word",
    "paragraph",
    "prose",
    "rows",
    "show_lines",
    "solid",
    "styled",
    "table",
    "wrapped",
]


# -- terminals -------------------------------------------------------------------------------------

__all__ += ["err", "line_width", "out", "print_json", "printable", "quiet", "report_width"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNVERIFIED = 4
EXIT_RESUMABLE = 5
EXIT_INTERRUPTED = 130

_STYLES = {
    "title": "bold",
    "name": "bold",
    "code": "cyan",
    "ok": "green",
    "bad": "bold red",
    "warn": "yellow",
    "shared": "bold green",
    "copied": "yellow",
    "same": "dim",
    "quiet": "dim",
    "words": "red",
}


class _Trimmed(io.TextIOBase):
    """Writes text to stdout without trailing spaces."""

    def write(self, text: str) -> int:
        sys.stdout.write(_PADDING.sub("", text))
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


_PADDING = re.compile(r" +(?=\n|$)")


def out() -> Console:
    """The console for data. It is made at each call, so that it follows a redirected stdout."""
    console = _console()
    if console.is_terminal:
        return console
    return _console(file=cast("TextIO", _Trimmed()))


def err() -> Console:
    """The console for messages."""
    return _console(stderr=True)


def line_width(stream: TextIO) -> int | None:
    """How wide a line may be: as COLUMNS says, or the terminal; ``None`` for a file or a pipe.

    There each line is whole, so that it can be searched and copied.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and 0 < len(columns.lstrip("0")) <= _DIGITS:
        return max(int(columns), _LEAST)
    if not stream.isatty():
        return None
    width = 0
    with contextlib.suppress(OSError, ValueError):
        width = os.get_terminal_size(stream.fileno()).columns
    return max(width or _USUAL, _LEAST)


def report_width() -> int:
    """How wide a report for people is: in a pipe too, as the terminal where it is likely read."""
    if line_width(sys.stdout) is None:
        return max(out().width, _LEAST)
    return line_width(sys.stdout) or _USUAL


_DIGITS = 5
_USUAL = 80
_LEAST = 20
"""For a narrower terminal, nothing is laid out."""


def _console(**options: Any) -> Console:
    # Imported here, because plain lines do not need Rich.
    from rich.console import Console
    from rich.theme import Theme

    class Passing(Console):
        def on_broken_pipe(self) -> None:  # otherwise Rich would end the process with an error
            raise BrokenPipeError

    return Passing(theme=Theme(_STYLES), highlight=False, **options)


def print_json(data: Any) -> None:
    """Write plain data to stdout as JSON, without colours and folding."""
    # Characters that stdout cannot encode are escaped in JSON.
    unable = (sys.stdout.encoding or "utf-8").lower().replace("-", "").replace("_", "") != "utf8"
    text = json.dumps(data, indent=2, ensure_ascii=unable, allow_nan=False)
    sys.stdout.write(_UNPRINTABLE.sub(_as_json, text) + "\n")


# Control characters and marks for the direction of text, which a terminal could obey; and lone
# surrogates, which cannot be encoded. Line feeds belong to the JSON.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def _as_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def printable(text: str) -> str:
    r"""A file's text for a terminal: what it could obey, or not show, is escaped as in Python.

    >>> print(printable("layer.\x1b[2J\n"))
    layer.\x1b[2J\n
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


@contextlib.contextmanager
def quiet(message: str = "") -> Iterator[None]:
    """A context that drops what frameworks write to stderr at start (C++ logs, notes of plugins).

    TensorFlow and XLA log from C++ straight to file descriptor 2, so the descriptor itself is
    redirected. Warnings are dropped too, because they are for programmers, not for a person who
    runs a command.

    Args:
        message: The message that is shown on a terminal meanwhile.
    """
    import tempfile  # here, because it takes more memory than to inspect a file

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # stderr is closed
        yield
        return
    with (
        os.fdopen(saved, "w", encoding="utf-8", errors="replace") as stderr,
        tempfile.TemporaryFile() as sink,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        os.dup2(sink.fileno(), 2)
        waiting = message and stderr.isatty()
        try:
            with _console(file=stderr).status(message) if waiting else contextlib.nullcontext():
                yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)


# -- lines that fit a width ------------------------------------------------------------------------
#
# A cell is a string, or a Text of Rich, which keeps its styles. A line is a list of parts: each is
# a piece of a cell, or spaces, with the number of its column.

AnyCell = TypeVar("AnyCell", bound="str | Text")

SOLID = "\u00a0"
"""The space that no line is broken at."""
_GAP = 2
_HANGING = 4
_FEW = 3
"""Rows of more cells may take two lines each."""
_WIDEST = 60
"""Without a width, the widest column. A wider cell shifts only its own line."""
_WORD = re.compile(r"[^ \n]+")
_PART = re.compile(r"[^./_,:=\-]*[./_,:=\-]+|[^./_,:=\-]+")
"""A part of a word wider than a line: a name is broken after its dots, a path after its slashes."""


def solid(text: str) -> str:
    """Text that is not broken at its spaces, because it is typed as it is."""
    return text.replace(" ", SOLID)


def cell_width(cell: Cell) -> int:
    """How many columns of a terminal a text without line feeds takes.

    >>> cell_width("layer"), cell_width("層")
    (5, 2)
    """
    text = str(cell)
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # here, because most names have only ASCII

    return cell_len(text)


def longest_word(cell: Cell) -> int:
    """The width of the longest word."""
    return max((cell_width(word[0]) for word in _WORD.finditer(str(cell))), default=0)


def wrapped(cell: AnyCell, width: int | None, *, fold: bool = True) -> list[AnyCell]:
    """Text as lines: at line feeds, and between words where a line would be wider than `width`.

    >>> wrapped("shares, read-only", 10)
    ['shares,', 'read-only']
    >>> wrapped("encoder.layers.0.weight", 10)
    ['encoder.', 'layers.0.', 'weight']

    Args:
        cell: The text.
        width: The most columns; ``None`` breaks only at line feeds.
        fold: Whether a word that is wider than a line is broken: after punctuation if it has any.
    """
    text = str(cell)
    lines: list[Any] = []
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        whole = width is None or cell_width(line) <= width
        spans = [(start, end)] if whole else _spans(text, start, end, width or 1, fold=fold)
        lines += [cell[first:last] for first, last in spans]
        start = end + 1
    return lines


def _spans(text: str, start: int, end: int, width: int, *, fold: bool) -> Iterator[tuple[int, int]]:
    """The places of the lines of a text without line feeds. The first keeps its indentation."""
    first = last = start
    for place, after in _pieces(text, start, end, width, fold=fold):
        if cell_width(text[first:after]) > width:
            if last > first:
                yield first, last
            first = place
        last = after
    yield first, last


def _pieces(
    text: str, start: int, end: int, width: int, *, fold: bool
) -> Iterator[tuple[int, int]]:
    """The places of words, and of the parts of those that are too wide."""
    for word in _WORD.finditer(text, start, end):
        if not fold or cell_width(word[0]) <= width:
            yield word.span()
            continue
        for part in _PART.finditer(text, *word.span()):
            yield from _cut(text, *part.span(), width)


def _cut(text: str, start: int, end: int, width: int) -> Iterator[tuple[int, int]]:
    """The places of pieces of at most `width` columns, and of at least one character."""
    while cell_width(text[start:end]) > width:
        place = min(start + width, end)
        while place > start + 1 and cell_width(text[start:place]) > width:
            place -= 1
        yield start, place
        start = place
    yield start, end


def table(
    held: Sequence[Sequence[Cell]],
    width: int | None,
    *,
    margin: int = 2,
    right: Collection[int] = (),
    headed: bool = False,
) -> Iterator[Line]:
    """Cells in columns.

    In columns if they fit, with cells of several lines if not; and if a column would be narrower
    than a word of it, one cell after the other.

    Args:
        held: The cells of each row.
        width: The most columns of a line; ``None`` gives each row one line.
        margin: Spaces before each line.
        right: The columns that are aligned to the right.
        headed: Whether the first row has headings.
    """
    count = max(map(len, held), default=0)
    widths = [_natural(held, column, width) for column in range(count)]
    room = 0 if width is None else width - margin
    gaps = [_GAP if column else 0 for column in range(count)]
    tight = [min(gap, 1) if column in right else gap for column, gap in enumerate(gaps)]
    tight = [gap if taken else 0 for gap, taken in zip(tight, widths, strict=True)]
    if width is None or _fits(widths, gaps, room):
        yield from _rows(held, widths, gaps, margin, right, breaks=width is not None)
        return
    least = [
        max((longest_word(row[n]) for row in held if n < len(row)), default=0) for n in range(count)
    ]
    if _fits(widths, tight, room):
        yield from _rows(held, widths, tight, margin, right, breaks=True)
    elif count > _FEW and _fits(widths[1:], gaps[1:], room - _HANGING):
        yield from _doubled(held, widths, gaps, width, margin, right)
    elif _fits(least, gaps, room):
        yield from _rows(
            held, _narrowed(widths, least, gaps, room), gaps, margin, right, breaks=True
        )
    else:
        yield from _stacked(held, width, margin, headed=headed)


def _natural(held: Sequence[Sequence[Cell]], column: int, width: int | None) -> int:
    line_widths = (
        cell_width(line)
        for row in held
        if column < len(row)
        for line in str(row[column]).split("\n")
    )
    return max(
        (
            line_width_there
            for line_width_there in line_widths
            if width is not None or line_width_there <= _WIDEST
        ),
        default=0,
    )


def _fits(widths: Sequence[int], gaps: Sequence[int], room: int) -> bool:
    return sum(widths) + sum(gaps) <= room


def _narrowed(
    widths: Sequence[int], least: Sequence[int], gaps: Sequence[int], room: int
) -> list[int]:
    """Widths that fit: the widest columns become narrower."""
    narrowed = [max(min(width, room), lowest) for width, lowest in zip(widths, least, strict=True)]
    while not _fits(narrowed, gaps, room):
        slack = [n for n, width in enumerate(narrowed) if width > least[n]]
        narrowed[max(slack, key=lambda n: narrowed[n])] -= 1
    return narrowed


def _rows(
    held: Sequence[Sequence[Cell]],
    widths: Sequence[int],
    gaps: Sequence[int],
    margin: int,
    right: Collection[int],
    *,
    breaks: bool,
) -> Iterator[Line]:
    """Rows in columns, from the first column or from a later one."""
    for row in held:
        cells = [
            wrapped(cell, width if breaks else None)
            for cell, width in zip(row, widths, strict=False)
        ]
        for number in range(max(map(len, cells), default=0)):
            pieces = [lines[number] if number < len(lines) else "" for lines in cells]
            yield _line(pieces, widths, gaps, margin, right)


def _line(
    pieces: Sequence[Cell],
    widths: Sequence[int],
    gaps: Sequence[int],
    margin: int,
    right: Collection[int],
) -> Line:
    """One line of a row. Spaces are written only where something follows."""
    line: Line = []
    owed = margin
    for column, piece in enumerate(pieces):
        space = max(widths[column] - cell_width(piece), 0)
        owed += gaps[column]
        if not len(piece):
            owed += space
            continue
        before = space if column in right else 0
        line += [(" " * (owed + before), column), (piece, column)]
        owed = space - before
    return line


def _doubled(
    held: Sequence[Sequence[Cell]],
    widths: Sequence[int],
    gaps: Sequence[int],
    width: int,
    margin: int,
    right: Collection[int],
) -> Iterator[Line]:
    """Rows of two lines: the first cell, then the others in columns."""
    for row in held:
        if len(row[0]):
            for piece in wrapped(row[0], width - margin):
                yield [(" " * margin, 0), (piece, 0)]
        rest: list[Cell] = ["", *row[1:]]
        if any(map(len, rest)):
            yield from _rows(
                [rest], [0, *widths[1:]], [0, 0, *gaps[2:]], margin + _HANGING, right, breaks=True
            )


def _stacked(
    held: Sequence[Sequence[Cell]], width: int, margin: int, *, headed: bool
) -> Iterator[Line]:
    """Rows whose cells stand one after the other, with the heading before each.

    The lines hang under the first.
    """
    heads = list(map(str, held[0])) if headed else []
    for row in held[1 if headed else 0 :]:
        line: Line = []
        used = 0
        for column, cell in enumerate(row):
            if not len(cell):
                continue
            if column < len(heads) and column:
                word = heads[column]
            else:
                word = ""
            indent = margin + (_HANGING if line or used else 0)
            taken = cell_width(word) + bool(word) + cell_width(str(cell))
            if line and used + _GAP + taken <= width and "\n" not in str(cell):
                line += [(" " * _GAP, column), (f"{word} " if word else "", column), (cell, column)]
                used += _GAP + taken
                continue
            if line:
                yield line
            line, used = [], taken
            lead = f"{word} " if word else ""
            for number, piece in enumerate(wrapped(cell, max(width - indent - len(lead), 1))):
                if number:
                    yield line
                line = [
                    (" " * indent, column),
                    (lead if not number else " " * len(lead), column),
                    (piece, column),
                ]
                used = indent + len(lead) + cell_width(piece)
        if line:
            yield line


def blocks(
    heads: Sequence[Cell], held: Sequence[Sequence[Cell]], width: int
) -> list[list[list[Cell]]]:
    """A wide table as several tables of fewer columns, each with the first column and the headings.

    Args:
        heads: The headings.
        held: The cells of each row.
        width: The most columns of a line.
    """
    whole = [list(heads), *map(list, held)]
    widths = [_natural(whole, column, width) for column in range(len(heads))]
    lowest = max(longest_word(row[0]) for row in whole)
    label = max(lowest, min(widths[0], width // 3))
    gap = [_GAP] * len(heads)
    groups: list[list[int]] = []
    for column in range(1, len(heads)):
        if not groups or not _fits(
            [label, *(widths[n] for n in groups[-1]), widths[column]],
            gap[: len(groups[-1]) + 1],
            width,
        ):
            groups.append([])
        groups[-1].append(column)
    return [[[row[0], *(row[n] for n in columns)] for row in whole] for columns in groups]


def fact_lines(
    lines: Iterable[tuple[Cell, Cell]],
    width: int | None,
    *,
    margin: int = 2,
    right: bool = False,
    label: int = 0,
) -> Iterator[Line]:
    """Labels, and texts beside them; a text with too wide a word for that stands under its label.

    Args:
        lines: Labels and texts.
        width: The most columns of a line; ``None`` breaks only at line feeds.
        margin: Spaces before each line.
        right: Whether labels are aligned to the right.
        label: The least width of the labels.
    """
    held = list(lines)
    widest = max([label, *(cell_width(word) for word, _ in held)])
    beside = margin + widest + _GAP
    for word, text in held:
        space = " " * (widest - cell_width(word))
        before, after = (space, "") if right else ("", space)
        below = width is not None and longest_word(text) > width - beside
        start = margin + _HANGING if below else beside
        if below and len(word):
            yield [(" " * margin + before, 0), (word, 0)]
        pieces = wrapped(text, None if width is None else max(width - start, 1))
        first: Line = [(" " * margin + before, 0), (word, 0), (after + " " * _GAP, 0)]
        if below or not len(word):
            first = [(" " * start, 1)]
        for number, piece in enumerate(pieces):
            if number:
                lead: Line = [(" " * start, 1)]
            else:
                lead = first
            yield [*lead, (piece, 1)]


# -- tables and headings ---------------------------------------------------------------------------

MOST_STYLED = 1000
"""The most lines with styles.

More are written plainly, because Rich takes a tenth of a millisecond for each.
"""


def heading(text: str) -> None:
    """A title on lines of its own."""
    paragraph(text, "title")


def paragraph(text: Cell, style: str = "") -> None:
    """Text that is broken between words where a terminal ends."""
    lines: list[Line] = [[(piece, 0)] for piece in wrapped(text, line_width(sys.stdout))]
    show_lines(lines, [style])


def prose(text: Cell = "", style: str = "") -> None:
    """Text of a report, which is for people, and is broken between words in a pipe too."""
    lines: list[Line] = [[(piece, 0)] for piece in wrapped(text, report_width())]
    show_lines(lines, [style])


def facts(lines: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts in two columns."""
    show_lines(list(fact_lines(lines, line_width(sys.stdout))), ["quiet", ""])


def rows(
    lines: Iterable[Sequence[Cell]],
    styles: Sequence[str],
    right: Collection[int] = (),
    *,
    headed: bool = False,
) -> None:
    """Print lines in columns: on a terminal as `layout.table` fits them, in a file one line each.

    Args:
        lines: The cells of each line, without characters that a terminal could obey.
        styles: The style of each column.
        right: The columns that are aligned to the right.
        headed: Whether the first line has headings.
    """
    held = list(lines)
    show = _shower(styles if len(held) <= MOST_STYLED else None)
    for line in table(held, line_width(sys.stdout), right=right, headed=headed):
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
            if isinstance(piece, str):
                part = Text(piece)
            else:
                part = piece.copy()
            if styles[column]:
                part.stylize_before(styles[column])
            words.append_text(part)
        words.plain = words.plain.replace(SOLID, " ").rstrip()
        console.print(words, soft_wrap=True)

    return show


def _plainly(line: Line) -> None:
    text = "".join(str(piece) for piece, _ in line).replace(SOLID, " ")
    sys.stdout.write(text.rstrip() + "\n")
