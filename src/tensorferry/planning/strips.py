"""Memory as a drawing: bytes to scale in rows, with their 64-byte lines, and which of them a tensor touches."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from ..core.dtypes import find
from ..core.layout import ALIGNMENT
from ..core.sizes import size_text
from ..core.touched import Touched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.info import TensorInfo

__all__ = ["GUTTER", "Canvas", "clean", "ends", "fitted", "strip", "touched"]

GUTTER = 34
"""Room at the left of a row for the number of its first byte."""
_BYTE = {64: 10, 32: 9}
"""How wide a byte is, by how many of them are in a row."""
_ROW, _PITCH = 20, 26
_EXACT_LINES = 4
"""Lines of 64 bytes up to which each element is drawn."""
_BLOCKS = 128
"""Blocks that larger memory is drawn as."""
_LETTER, _DIGIT = 6.9, 6.2
"""How wide a letter of a label and a digit in an element are taken to be: no usual font has wider ones."""


def clean(text: str) -> str:
    """A text for XML, which has no control characters and no halves of a pair."""
    return escape(
        "".join("\N{REPLACEMENT CHARACTER}" if category(letter) in ("Cc", "Cs") else letter for letter in text)
    )


def _wide(text: str) -> float:
    return sum(_LETTER * (1.9 if east_asian_width(letter) in "WF" else 1) for letter in text)


def fitted(text: str, width: float, lines: int = 3) -> list[str]:
    """A text in lines that are no wider than there is room; what is too long for all of them ends in an ellipsis."""
    found = [""]
    for word in text.split():
        whole = f"{found[-1]} {word}".lstrip()
        if _wide(whole) <= width:
            found[-1] = whole
            continue
        found.append(word)
        while _wide(found[-1]) > width:
            cut = max(int(len(found[-1]) * width / _wide(found[-1])), 1)
            found[-1:] = [found[-1][:cut], found[-1][cut:]]
    found = [line for line in found if line]
    if len(found) > lines:
        found[lines - 1 :] = [found[lines - 1][: max(int(width / _LETTER / 1.9) - 1, 1)] + "…"]
    return found


class Canvas:
    """What has been drawn so far, from the top down.

    Args:
        columns: Bytes in a row.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.byte = _BYTE[columns]
        self.left = GUTTER
        self.right = GUTTER + columns * self.byte
        self.width = self.right + 10
        self.y = 0.0
        self.parts: list[str] = []

    def add(self, part: str) -> None:
        """Draw something."""
        self.parts.append(part)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Write something."""
        marked = f" class='{kind}'" if kind else ""
        self.add(f"<text x='{x:g}' y='{y:g}'{marked}>{clean(words)}</text>")

    def lines(self, words: str, kind: str = "", left: float = GUTTER) -> None:
        """Write something in as many lines as it takes, and go below it."""
        for line in fitted(words, self.right - left):
            self.y += 16
            self.text(left, self.y - 4, line, kind)


def touched(info: TensorInfo) -> Touched:
    """The bytes that a tensor with elements touches."""
    return Touched(info.shape, info.strides, find(info.dtype).itemsize)


def ends(canvas: Canvas, info: TensorInfo) -> tuple[float, float]:
    """From where to where the memory of a tensor goes in the rows of its strip."""
    memory = touched(info)
    base = (info.misalignment + memory.low) % ALIGNMENT
    first, last = divmod(base, canvas.columns), divmod(base + memory.span - 1, canvas.columns)
    if first[0] != last[0]:
        return canvas.left, canvas.right
    return canvas.left + first[1] * canvas.byte, canvas.left + (last[1] + 1) * canvas.byte


def strip(canvas: Canvas, info: TensorInfo, kind: str, *, written: bool) -> None:
    """Draw the memory of a tensor.

    Up to four 64-byte lines are drawn element by element; of more, the line of the first element is, and below it
    all of it in equal blocks, each as full as the part of its bytes that is touched.

    Args:
        canvas: Where it is drawn.
        info: The tensor, which has elements.
        kind: The class of what is touched, which has the colour.
        written: Whether the first element is marked as written.
    """
    memory = touched(info)
    base = (info.misalignment + memory.low) % ALIGNMENT
    lines = -(-(base + memory.span) // ALIGNMENT)
    if lines <= _EXACT_LINES:
        _ruler(canvas, range(0, canvas.columns + 1, 8), "byte")
        _elements(canvas, memory, (0, base + memory.span), base, kind, written=written)
    else:
        line = (base + memory.first) // ALIGNMENT
        window = line * ALIGNMENT, min((line + 1) * ALIGNMENT, base + memory.span)
        canvas.lines(f"line {line + 1:,} of {lines:,}, of its first element", "quiet")
        _ruler(canvas, range(0, canvas.columns + 1, 8), "byte")
        _elements(canvas, memory, window, base, kind, written=written)
        canvas.y += 2
        _overview(canvas, memory, base, kind, written=written)


def _ruler(canvas: Canvas, ticks: Iterable[int], unit: str) -> None:
    """Numbers above a row, with the unit in front."""
    canvas.y += 13
    canvas.text(GUTTER - 6, canvas.y - 3, unit, "end ruler")
    for tick in ticks:
        canvas.text(canvas.left + tick * canvas.byte, canvas.y - 3, str(tick), "mid ruler")


def _rows(canvas: Canvas, first: int, last: int, marks: Mapping[int, str]) -> dict[int, float]:
    """Empty rows from one byte or block to another, and at which height each is."""
    tops, ticks = {}, []
    for row in range(first // canvas.columns, -(-last // canvas.columns)):
        top = canvas.y + 2
        tops[row] = top
        canvas.y += _PITCH
        canvas.add(
            f"<rect class='row' x='{canvas.left}' y='{top:g}' width='{canvas.right - canvas.left}' height='{_ROW}'/>"
        )
        ticks += [f"M{canvas.left + tick * canvas.byte} {top:g}v{_ROW}" for tick in range(1, canvas.columns)]
        if row in marks:
            canvas.text(GUTTER - 6, top + 14, marks[row], "end ruler")
    canvas.add(f"<path class='grid' d='{''.join(ticks)}'/>")
    return tops


def _elements(canvas: Canvas, memory: Touched, window: tuple[int, int], base: int, kind: str, *, written: bool) -> None:
    """Rows of bytes with the elements that touch them, numbered in the order in which they are read."""
    columns, first = canvas.columns, window[0] // ALIGNMENT * ALIGNMENT
    last = -(-window[1] // ALIGNMENT) * ALIGNMENT if columns < ALIGNMENT else window[1]
    rows = range(first // columns, -(-last // columns))
    tops = _rows(canvas, first, last, {row: f"+{(row - rows[0]) * columns}" for row in rows})
    _lines_of_64(canvas, tops)
    found = memory.elements(window[0] - base, window[1] - base)
    starts = sorted(found or ())
    apart = all(after - before >= memory.itemsize for before, after in pairwise(starts))
    if found is None or not apart:
        cells = [(at, at + 1) for at in range(window[0] - base, window[1] - base) if memory.count(at, at + 1)]
        _cells(canvas, cells, base, window, tops, kind)
    else:
        _cells(canvas, [(at, at + memory.itemsize) for at in starts], base, window, tops, kind)
        _numbers(canvas, memory, found, base, window, tops)
    if written:
        _cells(canvas, [(memory.first, memory.first + memory.itemsize)], base, window, tops, "written")


def _pieces(
    canvas: Canvas, start: int, stop: int, window: tuple[int, int], tops: Mapping[int, float]
) -> list[tuple[float, float, float]]:
    """Where bytes are on the canvas, row by row: left, top and width."""
    start, stop = max(start, window[0]), min(stop, window[1])
    found: list[tuple[float, float, float]] = []
    while start < stop:
        row, column = divmod(start, canvas.columns)
        end = min(stop, (row + 1) * canvas.columns)
        found.append((canvas.left + column * canvas.byte, tops[row], (end - start) * canvas.byte))
        start = end
    return found


def _cells(
    canvas: Canvas,
    cells: Iterable[tuple[int, int]],
    base: int,
    window: tuple[int, int],
    tops: Mapping[int, float],
    kind: str,
) -> None:
    drawn = [
        f"M{x + 0.5:g} {y + 1:g}h{wide - 1:g}v{_ROW - 2}h{1 - wide:g}z"
        for start, stop in cells
        for x, y, wide in _pieces(canvas, base + start, base + stop, window, tops)
    ]
    if drawn:
        canvas.add(f"<path class='{kind}' d='{''.join(drawn)}'/>")


def _numbers(
    canvas: Canvas,
    memory: Touched,
    found: Mapping[int, tuple[int, int]],
    base: int,
    window: tuple[int, int],
    tops: Mapping[int, float],
) -> None:
    """The number of each element in the order of reading, or of every second, fourth …, as there is room."""
    room = memory.itemsize * canvas.byte
    labels = {
        at: f"{index}" if many == 1 else f"{index} \N{MULTIPLICATION SIGN}{many:,}"
        for at, (index, many) in found.items()
    }
    if any(len(label) * _DIGIT > room - 2 for label in labels.values()):
        labels = {at: str(index) for at, (index, _) in found.items()}
    longest = max(map(len, labels.values()), default=0) * _DIGIT
    pace = next((pace for pace in (1, 2, 4, 8, 16) if longest <= room * pace - 2), 0)
    if not pace or (pace > 1 and memory.total < memory.span):
        labels = {at: label for at, label in labels.items() if len(label) * _DIGIT <= room - 2}
        pace = 1
    canvas.add("<g class='number'>")
    for at, label in labels.items():
        if found[at][0] % pace == 0:
            x, y, wide = max(
                _pieces(canvas, base + at, base + at + memory.itemsize, window, tops), key=lambda it: it[2]
            )
            if wide == room or len(label) * _DIGIT <= wide - 2:
                canvas.text(x + wide / 2, y + 14, label)
    canvas.add("</g>")


def _lines_of_64(canvas: Canvas, tops: Mapping[int, float]) -> None:
    """Thick marks where one 64-byte line ends and the next begins."""
    rows = ALIGNMENT // canvas.columns
    marks = [f"M{canvas.left} {top - 2:g}v{_ROW + 4}" for row, top in tops.items() if row % rows == 0]
    marks += [f"M{canvas.right} {top - 2:g}v{_ROW + 4}" for row, top in tops.items() if row % rows == rows - 1]
    canvas.add(f"<path class='edge' d='{''.join(marks)}'/>")


def _short(nbytes: float) -> str:
    """A number of bytes in the room that there is before a row."""
    for unit in ("", "K", "M", "G", "T", "P"):
        if nbytes < 1024 and (nbytes < 1000 or unit):
            return f"{nbytes:.3g}{unit}" if nbytes < 1000 else f"{nbytes:.0f}{unit}"
        nbytes /= 1024
    return "…"


def _overview(canvas: Canvas, memory: Touched, base: int, kind: str, *, written: bool) -> None:
    """All of the memory in equal blocks, each as full as the part of it that is touched."""
    whole, size = base + memory.span, ALIGNMENT
    while -(-whole // size) > _BLOCKS:
        size *= 2
    blocks = -(-whole // size)
    canvas.lines(f"all of it, {size_text(size)} in each block", "quiet")
    columns = canvas.columns
    tops = _rows(canvas, 0, blocks, {row: _short(row * columns * size) for row in range(-(-blocks // columns))})
    drawn = []
    for block in range(blocks):
        share = memory.count(block * size - base, (block + 1) * size - base) / size
        if share:
            row, column = divmod(block, columns)
            high = max(round(share * (_ROW - 2), 1), 1)
            x = canvas.left + column * canvas.byte
            drawn.append(f"M{x + 0.5:g} {tops[row] + _ROW - 1:g}v{-high:g}h{canvas.byte - 1}v{high:g}z")
    canvas.add(f"<path class='{kind}' d='{''.join(drawn)}'/>")
    if written:
        block = (base + memory.first) // size
        _cells(canvas, [(block, block + 1)], 0, (0, blocks), tops, "written")
