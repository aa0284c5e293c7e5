"""A plan as a picture of memory: rows of bytes to scale, and what is in the picture."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from ...core.devices import HOST, kind_of
from ...core.dtypes import find
from ...core.layout import ALIGNMENT, size_text
from .canvas import GUTTER, WORDS, Canvas, fitted_lines, text_width, xml_text
from .touched import Touched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...core.info import TensorInfo
    from ..plan import Plan
    from .canvas import Words


__all__ = [
    "blocks_of",
    "draw_bar",
    "draw_strip",
    "ends_on_canvas",
    "memory_kind",
    "memory_picture",
    "touched_bytes",
]


# -- rows of bytes ---------------------------------------------------------------------------------

_ROW, _PITCH, _BAR = 20, 26, 12
_EXACT_LINES = 4
"""The most lines of 64 bytes for which each element is drawn."""
_BLOCKS = 128
"""The number of blocks in the drawing of larger memory."""
_DIGIT = 6.2
"""The assumed width of a digit."""


def touched_bytes(info: TensorInfo) -> Touched:
    """The bytes that a tensor with elements touches."""
    return Touched(info.shape, info.strides, find(info.dtype).itemsize)


def ends_on_canvas(canvas: Canvas, info: TensorInfo) -> tuple[float, float]:
    """Where the memory of a tensor begins and ends on the canvas."""
    memory = touched_bytes(info)
    base = (info.misalignment + memory.low) % ALIGNMENT
    first, last = divmod(base, canvas.columns), divmod(base + memory.span - 1, canvas.columns)
    if first[0] != last[0]:
        return canvas.left, canvas.right
    return canvas.left + first[1] * canvas.byte, canvas.left + (last[1] + 1) * canvas.byte


def draw_strip(canvas: Canvas, info: TensorInfo, kind: str, *, written: bool) -> None:
    """Draw the memory of a tensor.

    Up to four 64-byte lines are drawn element by element. For more, the first line is, and below
    it all memory in equal blocks, each filled by the share of its bytes that is touched.

    Args:
        canvas: Where it is drawn.
        info: The tensor, which has elements.
        kind: The class of what is touched, which has the colour.
        written: Whether the first element is marked as written.
    """
    memory = touched_bytes(info)
    base = (info.misalignment + memory.low) % ALIGNMENT
    lines = -(-(base + memory.span) // ALIGNMENT)
    window = 0, base + memory.span
    if lines > _EXACT_LINES:
        line = (base + memory.first) // ALIGNMENT
        window = line * ALIGNMENT, min((line + 1) * ALIGNMENT, base + memory.span)
        told = canvas.words.first_line.format(number=f"{line + 1:,}", count=f"{lines:,}")
        canvas.lines(told, "quiet")
    _draw_ruler(canvas)
    _draw_elements(canvas, memory, window, base, kind, written=written)
    if lines > _EXACT_LINES:
        canvas.y += 2
        _draw_overview(canvas, memory, base, kind, written=written)


def _draw_ruler(canvas: Canvas) -> None:
    """Numbers above a row, with the unit in front."""
    canvas.y += 13
    unit, room = canvas.words.ruler, GUTTER - 6
    if text_width(unit) < room:
        canvas.text(room, canvas.y - 3, unit, "end ruler")
    else:
        squeezed = f"textLength='{room - 3}' lengthAdjust='spacingAndGlyphs'"
        canvas.add(
            f"<text x='{room}' y='{canvas.y - 3:g}' class='end ruler' "
            f"{squeezed}>{xml_text(unit)}</text>"
        )
    for tick in range(0, canvas.columns + 1, 8):
        canvas.text(canvas.left + tick * canvas.byte, canvas.y - 3, str(tick), "mid ruler")


def _draw_rows(canvas: Canvas, first: int, last: int, marks: Mapping[int, str]) -> dict[int, float]:
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


def _draw_elements(
    canvas: Canvas, memory: Touched, window: tuple[int, int], base: int, kind: str, *, written: bool
) -> None:
    """Rows of bytes with the elements that touch them, numbered in the order of reading."""
    columns, first = canvas.columns, window[0] // ALIGNMENT * ALIGNMENT
    if columns < ALIGNMENT:
        last = -(-window[1] // ALIGNMENT) * ALIGNMENT
    else:
        last = window[1]
    rows = range(first // columns, -(-last // columns))
    tops = _draw_rows(canvas, first, last, {row: f"+{(row - rows[0]) * columns}" for row in rows})
    _lines_of_64(canvas, tops)
    elements = memory.elements(window[0] - base, window[1] - base)
    starts = sorted(elements or ())
    apart = all(after - before >= memory.itemsize for before, after in pairwise(starts))
    if elements is None or not apart:
        cells = [
            (at, at + 1)
            for at in range(window[0] - base, window[1] - base)
            if memory.count(at, at + 1)
        ]
        _draw_cells(canvas, cells, base, window, tops, kind)
    else:
        _draw_cells(canvas, [(at, at + memory.itemsize) for at in starts], base, window, tops, kind)
        _draw_numbers(canvas, memory, elements, base, window, tops)
    if written:
        _draw_cells(
            canvas, [(memory.first, memory.first + memory.itemsize)], base, window, tops, "written"
        )


def _pieces_by_row(
    canvas: Canvas, start: int, stop: int, window: tuple[int, int], tops: Mapping[int, float]
) -> list[tuple[float, float, float]]:
    """Where bytes are on the canvas, row by row: left, top and width."""
    start, stop = max(start, window[0]), min(stop, window[1])
    pieces: list[tuple[float, float, float]] = []
    while start < stop:
        row, column = divmod(start, canvas.columns)
        end = min(stop, (row + 1) * canvas.columns)
        pieces.append((canvas.left + column * canvas.byte, tops[row], (end - start) * canvas.byte))
        start = end
    return pieces


def _draw_cells(
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
        for x, y, wide in _pieces_by_row(canvas, base + start, base + stop, window, tops)
    ]
    if drawn:
        canvas.add(f"<path class='{kind}' d='{''.join(drawn)}'/>")


def _draw_numbers(
    canvas: Canvas,
    memory: Touched,
    elements: Mapping[int, tuple[int, int]],
    base: int,
    window: tuple[int, int],
    tops: Mapping[int, float],
) -> None:
    """Element numbers in reading order: all, or every second, fourth …, if there is less room."""
    room = memory.itemsize * canvas.byte
    labels = {
        at: f"{index}" if many == 1 else f"{index} \N{MULTIPLICATION SIGN}{many:,}"
        for at, (index, many) in elements.items()
    }
    if any(len(label) * _DIGIT > room - 2 for label in labels.values()):
        labels = {at: str(index) for at, (index, _) in elements.items()}
    longest = max(map(len, labels.values()), default=0) * _DIGIT
    pace = next((pace for pace in (1, 2, 4, 8, 16) if longest <= room * pace - 2), 0)
    if not pace or (pace > 1 and memory.total < memory.span):
        labels = {at: label for at, label in labels.items() if len(label) * _DIGIT <= room - 2}
        pace = 1
    canvas.add("<g class='number'>")
    for at, label in labels.items():
        if elements[at][0] % pace == 0:
            x, y, wide = max(
                _pieces_by_row(canvas, base + at, base + at + memory.itemsize, window, tops),
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


def _short_size(nbytes: float) -> str:
    """A number of bytes, short enough for the room before a row."""
    for unit in ("", "K", "M", "G", "T", "P"):
        if nbytes < 1024 and (nbytes < 1000 or unit):
            if nbytes < 1000:
                return f"{nbytes:.3g}{unit}"
            return f"{nbytes:.0f}{unit}"
        nbytes /= 1024
    return "…"


def blocks_of(nbytes: int, most: int, least: int = 1) -> int:
    """Equal blocks' size, a power of two: `nbytes` bytes take at most `most` blocks."""
    size = least
    while -(-nbytes // size) > most:
        size *= 2
    return size


def draw_bar(canvas: Canvas, info: TensorInfo, kind: str, size: int) -> None:
    """Draw a tensor's memory as one row of equal blocks, filled by their share of touched bytes."""
    memory = touched_bytes(info)
    blocks = -(-memory.span // size)
    top = canvas.y + 2
    canvas.y += _BAR + 4
    canvas.add(
        f"<rect class='row' x='{canvas.left}' y='{top:g}' width='{blocks * canvas.byte}' "
        f"height='{_BAR}'/>"
    )
    _fill_blocks(canvas, memory, 0, range(blocks), size, {0: top}, _BAR, kind)


def _draw_overview(canvas: Canvas, memory: Touched, base: int, kind: str, *, written: bool) -> None:
    """Draw all memory in equal blocks, each filled by the share of its bytes that is touched."""
    size = blocks_of(base + memory.span, _BLOCKS, ALIGNMENT)
    blocks = -(-(base + memory.span) // size)
    if memory.total == memory.span:
        told = canvas.words.blocks
    else:
        told = canvas.words.blocks_partly
    canvas.lines(told.format(size=size_text(size)), "quiet")
    columns = canvas.columns
    tops = _draw_rows(
        canvas,
        0,
        blocks,
        {row: _short_size(row * columns * size) for row in range(-(-blocks // columns))},
    )
    _fill_blocks(canvas, memory, base, range(blocks), size, tops, _ROW, kind)
    if written:
        block = (base + memory.first) // size
        _draw_cells(canvas, [(block, block + 1)], 0, (0, blocks), tops, "written")


def _fill_blocks(
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


# -- the picture -----------------------------------------------------------------------------------

_PENCIL = "M0 9.5l.6-2.6L7.3.2l2 2L2.6 8.9zM6.2 1.4l2 2"
_LOCK = "M1.5 4.2h7v5.6h-7zM3 4V2.8a2 2 0 0 1 4 0V4"
_OBJECTS = 12
"""The most objects that are drawn."""
_STEPS = 6
"""The most steps that are drawn."""


def memory_picture(
    plan: Plan,
    *,
    width: Literal[64, 32] = 64,
    written: Literal["source", "result"] | None = None,
    styled: bool = True,
    words: Words = WORDS,
) -> str:
    """The memory of a plan's source and result as an ``<svg>`` element.

    >>> import tensorferry as ferry
    >>> drawn = memory_picture(ferry.explain(ferry.TensorInfo("torch", (2, 3), "float32"), "numpy"))
    >>> drawn[:4], "source and result are the same 24 bytes; both may write" in drawn
    ('<svg', True)

    If both are the same memory, it is one strip of bytes, with a name above and below; if not, two
    strips and what is copied between them. The same plan gives the same text, in a few milliseconds
    for a tensor of any size.

    Args:
        plan: What is drawn.
        width: Bytes in a row: 64, which is one line, or 32, which can be read on a phone.
        written: The side whose first element is written. The element is marked, on both sides if
            they share memory. If the side cannot be written to, or has no elements, the picture
            says so and marks nothing.
        styled: Whether the element has its style sheet.
        words: The words, for a picture in another language.

    Raises:
        ValueError: Another width, or another side.
    """
    if width not in (64, 32):
        raise ValueError(f"width must be 64 or 32 bytes, not {width!r}")
    if written not in (None, "source", "result"):
        raise ValueError(f'written must be "source", "result" or None, not {written!r}')
    canvas = Canvas(width, words)
    marks = written is not None and _is_writable(
        plan.source if written == "source" else plan.result
    )
    if plan.shares_memory:
        _draw_shared(canvas, plan, written=marks)
    else:
        _draw_apart(canvas, plan, written if marks else None)
    if written is not None:
        canvas.y += 4
        canvas.lines(_sentence_about_write(plan, written, words), "name", 10)
    if any("class='number'" in part for part in canvas.parts):
        canvas.y += 3
        canvas.lines(words.order, "quiet", 10)
    canvas.y += 6
    told = _in_words(plan, words) + (
        "" if written is None else f" {_sentence_about_write(plan, written, words)}"
    )
    return canvas.svg(_picture_title(plan, words), told, styled=styled)


# -- in words -----------------------------------------------------------------------------------


def _picture_title(plan: Plan, words: Words) -> str:
    if plan.shares_memory:
        title = words.title_shared
    else:
        title = words.title_copied
    return title.format(source=plan.source.framework, result=plan.result.framework)


def _in_words(plan: Plan, words: Words) -> str:
    """The picture in words."""
    source, result, writers = plan.source, plan.result, _who_writes(plan, words)
    if not source.size:
        return words.told_empty
    if plan.shares_memory:
        if memory_kind(source) != "block":
            return words.told_same.format(writers=writers)
        return words.told_same_bytes.format(
            bytes=words.bytes(touched_bytes(source).total), writers=writers
        )
    ways = words.then.join(_ways_of_steps(plan, words))
    told = words.told_copied if ways else words.told_apart
    sides = {"source": _memory_and_place(source, words), "result": _memory_and_place(result, words)}
    return told.format(**sides, ways=ways, writers=writers)


def _ways_of_steps(plan: Plan, words: Words) -> list[str]:
    """For each step that copies: how many bytes, and by which path."""
    return [words.way(step.path, size_text(step.bytes)) for step in plan.steps if step.copies]


def _who_writes(plan: Plan, words: Words) -> str:
    if _is_writable(plan.source):
        if _is_writable(plan.result):
            return words.both_write
        return words.source_writes
    if _is_writable(plan.result):
        return words.result_writes
    return words.neither_writes


def _memory_and_place(info: TensorInfo, words: Words) -> str:
    kind = memory_kind(info)
    memory = {"objects": words.objects, "values": words.values, "none": words.none}.get(kind)
    if memory is None:
        if kind == "block":
            memory = words.bytes(touched_bytes(info).total)
        else:
            memory = _words_for_parts(info, words)
    return words.on.format(memory=memory, device=info.device)


def _words_for_parts(info: TensorInfo, words: Words) -> str:
    many = _part_count(info)
    if many == 1:
        return words.one_part
    return words.part_count.format(count=f"{many:,}")


def _sentence_about_write(plan: Plan, side: str, words: Words) -> str:
    """The sentence about a write to one side."""
    info = plan.source if side == "source" else plan.result
    if not info.size:
        if side == "source":
            return words.source_empty
        return words.result_empty
    if not _is_writable(info):
        if side == "source":
            return words.source_closed
        return words.result_closed
    if plan.shares_memory:
        if side == "source":
            return words.source_seen
        return words.result_seen
    if side == "source":
        return words.source_unseen
    return words.result_unseen


def _is_writable(info: TensorInfo) -> bool:
    return info.writable is not False and info.abstract is None


def memory_kind(info: TensorInfo) -> str:
    """How the memory of a tensor is drawn: as one block, as separate objects, or as nothing."""
    if info.abstract is not None:
        return "none"
    if info.kind.joined_by or info.shards > 1:
        return "parts"
    if info.framework == "python" or info.kind.is_numbers:
        return "objects"
    if info.kind.copied:
        return "values"
    return "block"


def _part_count(info: TensorInfo) -> int:
    """How many parts a tensor is drawn as: its shards, or the elements of its first axis."""
    if info.shards > 1:
        return info.shards
    return info.shape[0] if info.shape else 1


# -- drawn --------------------------------------------------------------------------------------


class _Frame:
    """A frame with a device's name around everything that is drawn in the ``with`` block."""

    def __init__(self, canvas: Canvas, info: TensorInfo) -> None:
        self.canvas, self.info = canvas, info

    def __enter__(self) -> None:
        self.top, self.at = self.canvas.y + 1, len(self.canvas.parts)
        self.canvas.y += 4
        self.canvas.lines(_words_for_place(self.info, self.canvas.words), "quiet", 10)
        self.canvas.y += 4

    def __exit__(self, *_: object) -> None:
        self.canvas.y += 8
        high, wide = self.canvas.y - self.top, self.canvas.width - 2
        self.canvas.parts.insert(
            self.at,
            f"<rect class='place' x='1' y='{self.top:g}' width='{wide}' height='{high:g}' rx='6'/>",
        )
        self.canvas.y += 1


def _words_for_place(info: TensorInfo, words: Words) -> str:
    if kind_of(info.device) == HOST:
        place = words.on_host
    else:
        place = words.on_device
    if info.memory_map:
        place = words.on_map
    elif info.pinned:
        place = words.on_pinned
    return place.format(device=info.device)


def _draw_shared(canvas: Canvas, plan: Plan, *, written: bool) -> None:
    """One block of memory between two names."""
    with _Frame(canvas, plan.source):
        _write_name(canvas, "source", plan.source)
        _draw_bracket(canvas, plan.source, down=True)
        _draw_memory(canvas, plan.source, "shared", written=written)
        _draw_bracket(canvas, plan.source, down=False)
        _write_name(canvas, "result", plan.result)


def _draw_apart(canvas: Canvas, plan: Plan, written: str | None) -> None:
    """Two blocks of memory, and what is copied from one to the other."""
    source, result = plan.source, plan.result
    if _words_for_place(source, canvas.words) == _words_for_place(result, canvas.words):
        with _Frame(canvas, source):
            _draw_side(canvas, "source", source, written=written == "source")
            _draw_steps(canvas, plan)
            _draw_side(canvas, "result", result, written=written == "result")
        return
    with _Frame(canvas, source):
        _draw_side(canvas, "source", source, written=written == "source")
    _draw_steps(canvas, plan)
    with _Frame(canvas, result):
        _draw_side(canvas, "result", result, written=written == "result")


def _draw_side(canvas: Canvas, name: str, info: TensorInfo, *, written: bool) -> None:
    _write_name(canvas, name, info)
    _draw_memory(canvas, info, name, written=written)


def _write_name(canvas: Canvas, name: str, info: TensorInfo) -> None:
    """Write which side it is, what tensor it is, and whether it can be written to."""
    words = canvas.words
    if _is_writable(info):
        mark, told = _PENCIL, words.may_write
    else:
        mark, told = _LOCK, words.read_only
    x = canvas.right - max(round(text_width(told)), 66)
    side = words.source if name == "source" else words.result
    what = words.side.format(
        side=side, what=f"{info.framework} {info.kind} {info.dtype}{list(info.shape)}"
    )
    for number, line in enumerate(fitted_lines(what, x - GUTTER - 24)):
        canvas.y += 17
        canvas.text(GUTTER, canvas.y - 4, line, "name")
        if not number:
            canvas.add(
                f"<path class='line' d='{mark}' transform='translate({x - 15} {canvas.y - 14:g})'/>"
            )
            canvas.text(x, canvas.y - 4, told)
    details = _block_details(info, words)
    if details:
        canvas.lines(details, "quiet")


def _block_details(info: TensorInfo, words: Words) -> str:
    """Which part of a block is touched, if not all, or if it begins at no 64-byte line."""
    if memory_kind(info) != "block" or not info.size:
        return ""
    memory = touched_bytes(info)
    told = [size_text(memory.total)]
    if memory.total < memory.span:
        told = [words.part_of.format(part=told[0], whole=size_text(memory.span))]
    start = (info.misalignment + memory.low) % 64
    if start:
        told.append(words.after_line.format(bytes=words.bytes(start)))
    if not info.is_compact:
        told.append(words.strides.format(strides=list(info.strides)))
    if memory.total < info.nbytes:
        told.append(words.elements_share.format(count=f"{info.size:,}"))
    return words.comma.join(told)


def _draw_memory(canvas: Canvas, info: TensorInfo, colour: str, *, written: bool) -> None:
    """Draw a strip of bytes; or boxes, or a sentence, if the tensor has no block of memory."""
    kind, words = memory_kind(info), canvas.words
    if kind == "objects" and info.size:
        if info.size == 1:
            told = words.one_object
        else:
            told = words.object_count.format(count=f"{info.size:,}")
        _draw_boxes(canvas, info.size, colour, told, written=written)
    elif kind == "parts" and info.size:
        _draw_boxes(
            canvas, _part_count(info), colour, _words_for_parts(info, words), written=written
        )
    elif kind == "block" and info.size:
        draw_strip(canvas, info, colour, written=written)
    else:
        if kind == "none":
            why = words.no_memory.format(why=info.abstract)
        else:
            why = words.values
        canvas.y += 30
        across = canvas.right - canvas.left
        canvas.add(
            f"<rect class='none' x='{canvas.left}' y='{canvas.y - 26:g}' width='{across}' "
            "height='24' rx='4'/>"
        )
        canvas.text(canvas.left + 8, canvas.y - 10, why if info.size else words.no_elements)


def _draw_boxes(canvas: Canvas, many: int, colour: str, told: str, *, written: bool) -> None:
    """Draw separate boxes with their numbers; if there are many, only the first ones."""
    pitch = 40 if canvas.columns == 64 else 30
    drawn = min(many, (_OBJECTS if canvas.columns == 64 else _OBJECTS * 2 // 3))
    canvas.y += 30
    top = canvas.y - 26
    for number in range(drawn):
        x = canvas.left + number * pitch + 1
        canvas.add(
            f"<rect class='{colour}' x='{x}' y='{top:g}' width='{pitch - 10}' height='22' rx='8'/>"
        )
        canvas.add(
            f"<g class='number'><text x='{x + (pitch - 10) / 2:g}' "
            f"y='{top + 15:g}'>{number}</text></g>"
        )
    if written:
        canvas.add(
            f"<rect class='written' x='{canvas.left + 1}' y='{top:g}' width='{pitch - 10}' "
            "height='22' rx='8'/>"
        )
    if many > drawn:
        canvas.text(canvas.left + drawn * pitch + 4, top + 15, "…")
    canvas.lines(told, "quiet")


def _draw_bracket(canvas: Canvas, info: TensorInfo, *, down: bool) -> None:
    """Draw a bracket between a name and its memory."""
    block = memory_kind(info) == "block" and info.size > 0
    if block:
        left, right = ends_on_canvas(canvas, info)
    else:
        left, right = canvas.left, canvas.right
    canvas.y += 10
    y, height = canvas.y - (5 if down else 4), 6 if down else -6
    canvas.add(f"<path class='line' d='M{left:g} {y + height:g}v{-height}H{right:g}v{height}'/>")


def _draw_steps(canvas: Canvas, plan: Plan) -> None:
    """Draw an arrow, with the steps that copy and the path of each."""
    ways = _ways_of_steps(plan, canvas.words)
    if len(ways) > _STEPS:
        ways = [*ways[: _STEPS - 1], canvas.words.more_steps.format(count=len(ways) - _STEPS + 1)]
    canvas.y += 6
    top, x = canvas.y, GUTTER + 12
    for line in ways or [canvas.words.nothing]:
        canvas.y += 20
        canvas.add(f"<circle class='shape' cx='{x}' cy='{canvas.y - 10:g}' r='3'/>")
        canvas.text(x + 16, canvas.y - 6, line)
    end = canvas.y + 6
    canvas.add(
        f"<path class='line' d='M{x} {top:g}V{end:g}'/><path class='shape' d='M{x - 5} "
        f"{end - 2:g}h10l-5 8z'/>"
    )
    canvas.y = end + 8
