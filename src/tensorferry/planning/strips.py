"""Draw memory: rows of bytes to scale, 64-byte lines, and which bytes a tensor touches."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ..core.dtypes import find
from ..core.layout import ALIGNMENT
from ..core.sizes import size_text
from ..core.touched import Touched
from .canvas import GUTTER, clean, wide

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.info import TensorInfo
    from .canvas import Canvas

__all__ = ["bar", "blocks_of", "ends", "strip", "touched"]

_ROW, _PITCH, _BAR = 20, 26, 12
_EXACT_LINES = 4
"""The most lines of 64 bytes for which each element is drawn."""
_BLOCKS = 128
"""The number of blocks in the drawing of larger memory."""
_DIGIT = 6.2
"""The assumed width of a digit."""


def touched(info: TensorInfo) -> Touched:
    """The bytes that a tensor with elements touches."""
    return Touched(info.shape, info.strides, find(info.dtype).itemsize)


def ends(canvas: Canvas, info: TensorInfo) -> tuple[float, float]:
    """Where the memory of a tensor begins and ends on the canvas."""
    memory = touched(info)
    base = (info.misalignment + memory.low) % ALIGNMENT
    first, last = divmod(base, canvas.columns), divmod(base + memory.span - 1, canvas.columns)
    if first[0] != last[0]:
        return canvas.left, canvas.right
    return canvas.left + first[1] * canvas.byte, canvas.left + (last[1] + 1) * canvas.byte


def strip(canvas: Canvas, info: TensorInfo, kind: str, *, written: bool) -> None:
    """Draw the memory of a tensor.

    Up to four 64-byte lines are drawn element by element. For more, the first line is, and below
    it all memory in equal blocks, each filled by the share of its bytes that is touched.

    Args:
        canvas: Where it is drawn.
        info: The tensor, which has elements.
        kind: The class of what is touched, which has the colour.
        written: Whether the first element is marked as written.
    """
    memory = touched(info)
    base = (info.misalignment + memory.low) % ALIGNMENT
    lines = -(-(base + memory.span) // ALIGNMENT)
    window = 0, base + memory.span
    if lines > _EXACT_LINES:
        line = (base + memory.first) // ALIGNMENT
        window = line * ALIGNMENT, min((line + 1) * ALIGNMENT, base + memory.span)
        told = canvas.words.first_line.format(number=f"{line + 1:,}", count=f"{lines:,}")
        canvas.lines(told, "quiet")
    _ruler(canvas)
    _elements(canvas, memory, window, base, kind, written=written)
    if lines > _EXACT_LINES:
        canvas.y += 2
        _overview(canvas, memory, base, kind, written=written)


def _ruler(canvas: Canvas) -> None:
    """Numbers above a row, with the unit in front."""
    canvas.y += 13
    unit, room = canvas.words.ruler, GUTTER - 6
    if wide(unit) < room:
        canvas.text(room, canvas.y - 3, unit, "end ruler")
    else:
        squeezed = f"textLength='{room - 3}' lengthAdjust='spacingAndGlyphs'"
        canvas.add(
            f"<text x='{room}' y='{canvas.y - 3:g}' class='end ruler' "
            f"{squeezed}>{clean(unit)}</text>"
        )
    for tick in range(0, canvas.columns + 1, 8):
        canvas.text(canvas.left + tick * canvas.byte, canvas.y - 3, str(tick), "mid ruler")


def _rows(canvas: Canvas, first: int, last: int, marks: Mapping[int, str]) -> dict[int, float]:
    """Draw empty rows; gives the height of each."""
    tops, ticks = {}, []
    for row in range(first // canvas.columns, -(-last // canvas.columns)):
        top = canvas.y + 2
        tops[row] = top
        canvas.y += _PITCH
        canvas.add(
            f"<rect class='row' x='{canvas.left}' y='{top:g}' width='{canvas.right - canvas.left}' "
            f"height='{_ROW}'/>"
        )
        ticks += [
            f"M{canvas.left + tick * canvas.byte} {top:g}v{_ROW}"
            for tick in range(1, canvas.columns)
        ]
        if row in marks:
            canvas.text(GUTTER - 6, top + 14, marks[row], "end ruler")
    canvas.add(f"<path class='grid' d='{''.join(ticks)}'/>")
    return tops


def _elements(
    canvas: Canvas, memory: Touched, window: tuple[int, int], base: int, kind: str, *, written: bool
) -> None:
    """Rows of bytes with the elements that touch them, numbered in the order of reading."""
    columns, first = canvas.columns, window[0] // ALIGNMENT * ALIGNMENT
    last = -(-window[1] // ALIGNMENT) * ALIGNMENT if columns < ALIGNMENT else window[1]
    rows = range(first // columns, -(-last // columns))
    tops = _rows(canvas, first, last, {row: f"+{(row - rows[0]) * columns}" for row in rows})
    _lines_of_64(canvas, tops)
    found = memory.elements(window[0] - base, window[1] - base)
    starts = sorted(found or ())
    apart = all(after - before >= memory.itemsize for before, after in pairwise(starts))
    if found is None or not apart:
        cells = [
            (at, at + 1)
            for at in range(window[0] - base, window[1] - base)
            if memory.count(at, at + 1)
        ]
        _cells(canvas, cells, base, window, tops, kind)
    else:
        _cells(canvas, [(at, at + memory.itemsize) for at in starts], base, window, tops, kind)
        _numbers(canvas, memory, found, base, window, tops)
    if written:
        _cells(
            canvas, [(memory.first, memory.first + memory.itemsize)], base, window, tops, "written"
        )


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
    """Element numbers in reading order: all, or every second, fourth …, if there is less room."""
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
                _pieces(canvas, base + at, base + at + memory.itemsize, window, tops),
                key=lambda it: it[2],
            )
            if wide == room or len(label) * _DIGIT <= wide - 2:
                canvas.text(x + wide / 2, y + 14, label)
    canvas.add("</g>")


def _lines_of_64(canvas: Canvas, tops: Mapping[int, float]) -> None:
    """Thick marks where one 64-byte line ends and the next begins."""
    rows = ALIGNMENT // canvas.columns
    marks = [
        f"M{canvas.left} {top - 2:g}v{_ROW + 4}" for row, top in tops.items() if row % rows == 0
    ]
    marks += [
        f"M{canvas.right} {top - 2:g}v{_ROW + 4}"
        for row, top in tops.items()
        if row % rows == rows - 1
    ]
    canvas.add(f"<path class='edge' d='{''.join(marks)}'/>")


def _short(nbytes: float) -> str:
    """A number of bytes, short enough for the room before a row."""
    for unit in ("", "K", "M", "G", "T", "P"):
        if nbytes < 1024 and (nbytes < 1000 or unit):
            return f"{nbytes:.3g}{unit}" if nbytes < 1000 else f"{nbytes:.0f}{unit}"
        nbytes /= 1024
    return "…"


def blocks_of(nbytes: int, most: int, least: int = 1) -> int:
    """Equal blocks' size, a power of two: `nbytes` bytes take at most `most` blocks."""
    size = least
    while -(-nbytes // size) > most:
        size *= 2
    return size


def bar(canvas: Canvas, info: TensorInfo, kind: str, size: int) -> None:
    """Draw a tensor's memory as one row of equal blocks, filled by their share of touched bytes."""
    memory = touched(info)
    blocks = -(-memory.span // size)
    top = canvas.y + 2
    canvas.y += _BAR + 4
    canvas.add(
        f"<rect class='row' x='{canvas.left}' y='{top:g}' width='{blocks * canvas.byte}' "
        f"height='{_BAR}'/>"
    )
    _fill(canvas, memory, 0, range(blocks), size, {0: top}, _BAR, kind)


def _overview(canvas: Canvas, memory: Touched, base: int, kind: str, *, written: bool) -> None:
    """Draw all memory in equal blocks, each filled by the share of its bytes that is touched."""
    size = blocks_of(base + memory.span, _BLOCKS, ALIGNMENT)
    blocks = -(-(base + memory.span) // size)
    told = canvas.words.blocks if memory.total == memory.span else canvas.words.blocks_partly
    canvas.lines(told.format(size=size_text(size)), "quiet")
    columns = canvas.columns
    tops = _rows(
        canvas,
        0,
        blocks,
        {row: _short(row * columns * size) for row in range(-(-blocks // columns))},
    )
    _fill(canvas, memory, base, range(blocks), size, tops, _ROW, kind)
    if written:
        block = (base + memory.first) // size
        _cells(canvas, [(block, block + 1)], 0, (0, blocks), tops, "written")


def _fill(
    canvas: Canvas,
    memory: Touched,
    base: int,
    blocks: range,
    size: int,
    tops: Mapping[int, float],
    height: int,
    kind: str,
) -> None:
    """Blocks in their rows, filled from below."""
    drawn = []
    for block in blocks:
        share = memory.count(block * size - base, (block + 1) * size - base) / size
        if share:
            row, column = divmod(block, canvas.columns)
            high = max(round(share * (height - 2), 1), 1)
            x = canvas.left + column * canvas.byte
            drawn.append(
                f"M{x + 0.5:g} {tops[row] + height - 1:g}v{-high:g}h{canvas.byte - 1}v{high:g}z"
            )
    canvas.add(f"<path class='{kind}' d='{''.join(drawn)}'/>")
