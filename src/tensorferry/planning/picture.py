"""The one renderer of memory: a plan as an inline SVG of bytes to scale, for notebooks, pages and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..core.devices import HOST, kind_of
from ..core.info import JOINS, NUMBERS
from ..core.sizes import size_text
from .canvas import GUTTER, Canvas, fitted
from .step import WAYS
from .strips import ends, strip, touched

if TYPE_CHECKING:
    from ..core.info import TensorInfo
    from .render import Rendered

__all__ = ["drawing", "memory_kind", "picture"]

_PENCIL = "M0 9.5l.6-2.6L7.3.2l2 2L2.6 8.9zM6.2 1.4l2 2"
_LOCK = "M1.5 4.2h7v5.6h-7zM3 4V2.8a2 2 0 0 1 4 0V4"
_OBJECTS = 12
"""Objects that are drawn of many."""
_STEPS = 6
"""Steps that are drawn of many."""


def picture(plan: Rendered, *, width: Literal[64, 32] = 64, written: Literal["source", "result"] | None = None) -> str:
    """The memory of a plan's source and result as an ``<svg>`` element.

    >>> import tensorferry as ferry
    >>> drawn = picture(ferry.explain(ferry.TensorInfo("torch", (2, 3), "float32"), "numpy"))
    >>> drawn[:4], "source and result are the same 24 bytes; both may write" in drawn
    ('<svg', True)

    One strip of bytes with a name above and below it where both are the same memory, else two and what is carried
    between them. It is the same text for the same plan, and takes a few milliseconds for a tensor of any size.

    Args:
        plan: What is drawn.
        width: Bytes in a row: 64, which is one line, or 32, which can be read on a phone.
        written: The side whose first element is written: it is marked, and on the other side too if that is the same
            memory. A side that may not write, or has no element in memory, is told so in words, and nothing is marked.

    Raises:
        ValueError: Another width, or another side.
    """
    return drawing(plan, width, written)


def drawing(
    plan: Rendered,
    width: Literal[64, 32] = 64,
    written: Literal["source", "result"] | None = None,
    *,
    styled: bool = True,
) -> str:
    """A `picture` for a page that has the style already, or not."""
    if width not in (64, 32):
        raise ValueError(f"width must be 64 or 32 bytes, not {width!r}")
    if written not in (None, "source", "result"):
        raise ValueError(f'written must be "source", "result" or None, not {written!r}')
    canvas = Canvas(width)
    marks = written is not None and _is_writable(plan.source if written == "source" else plan.result)
    if plan.shares_memory:
        _draw_shared(canvas, plan, written=marks)
    else:
        _draw_apart(canvas, plan, written if marks else None)
    if written is not None:
        canvas.y += 4
        canvas.lines(_said_of_write(plan, written), "name", 10)
    if any("class='number'" in part for part in canvas.parts):
        canvas.y += 3
        canvas.lines("Numbers: the order of reading.", "quiet", 10)
    canvas.y += 6
    title, told = _title(plan), _told(plan) + ("" if written is None else f" {_said_of_write(plan, written)}")
    return canvas.svg(title, told, styled=styled)


# -- in words -----------------------------------------------------------------------------------


def _title(plan: Rendered) -> str:
    return f"{plan.source.framework} to {plan.result.framework}: {'one memory' if plan.shares_memory else 'a copy'}"


def _told(plan: Rendered) -> str:
    """The picture in words."""
    source, result = plan.source, plan.result
    if not source.size:
        return "There are no elements, so there are no bytes to share or to copy."
    if plan.shares_memory:
        kind = memory_kind(source)
        same = f"the same {_many(touched(source).total, 'byte')}" if kind == "block" else "the same"
        return f"source and result are {same}; {_who_writes(plan)}."
    ways = [f"{size_text(step.bytes)} {WAYS[step.path]}" for step in plan.steps if step.copies]
    copied = f"It is copied: {', then '.join(ways)}." if ways else "Nothing is copied."
    return f"The source is {_whereabouts(source)}. {copied} The result is {_whereabouts(result)}; {_who_writes(plan)}."


def _who_writes(plan: Rendered) -> str:
    sides = [name for name, info in (("source", plan.source), ("result", plan.result)) if _is_writable(info)]
    if len(sides) == 2:
        return "both may write"
    return f"only the {sides[0]} may write" if sides else "neither may write"


def _whereabouts(info: TensorInfo) -> str:
    kind = memory_kind(info)
    if kind == "block":
        return f"{_many(touched(info).total, 'byte')} on {info.device}"
    return _NOT_A_BLOCK[kind].format(many=_many(_count(info), "part")) + f" on {info.device}"


_NOT_A_BLOCK = {
    "objects": "Python objects, each in memory of its own",
    "parts": "{many}, each in memory of its own",
    "values": "values that are read, not one block of memory",
    "none": "no memory",
}


def _said_of_write(plan: Rendered, side: str) -> str:
    """What becomes of a write to a side."""
    info, other = (plan.source, "result") if side == "source" else (plan.result, "source")
    if not info.size:
        return f"The {side} has no element to write."
    if not _is_writable(info):
        return f"The {side} is read-only: nothing is written."
    seen = f"the {other} has changed too" if plan.shares_memory else f"the {other} has not changed"
    return f"The first element of the {side} is written: {seen}."


def _many(number: int, word: str) -> str:
    return f"1 {word}" if number == 1 else f"{number:,} {word}s"


def _is_writable(info: TensorInfo) -> bool:
    return info.writable is not False and info.abstract is None


def memory_kind(info: TensorInfo) -> str:
    """What a tensor's memory is drawn as: one block, or what else it is."""
    if info.abstract is not None:
        return "none"
    if info.kind in JOINS or info.shards > 1:
        return "parts"
    if info.framework == "python" or info.kind in NUMBERS:
        return "objects"
    return "values" if info.kind.startswith("copied ") else "block"


def _count(info: TensorInfo) -> int:
    return info.shards if info.shards > 1 else info.shape[0] if info.shape else 1


# -- drawn --------------------------------------------------------------------------------------


class _Place:
    """A place with its name, drawn behind what is drawn while it is open."""

    def __init__(self, canvas: Canvas, info: TensorInfo) -> None:
        self.canvas, self.info = canvas, info

    def __enter__(self) -> None:
        self.top, self.at = self.canvas.y + 1, len(self.canvas.parts)
        self.canvas.y += 4
        self.canvas.lines(_place(self.info), "quiet", 10)
        self.canvas.y += 4

    def __exit__(self, *_: object) -> None:
        self.canvas.y += 8
        high, wide = self.canvas.y - self.top, self.canvas.width - 2
        self.canvas.parts.insert(
            self.at, f"<rect class='place' x='1' y='{self.top:g}' width='{wide}' height='{high:g}' rx='6'/>"
        )
        self.canvas.y += 1


def _place(info: TensorInfo) -> str:
    if info.memory_map:
        return f"{info.device}: a file that is mapped into memory"
    where = "host memory" if kind_of(info.device) == HOST else "device memory"
    return f"{info.device}: {'page-locked ' if info.pinned else ''}{where}"


def _draw_shared(canvas: Canvas, plan: Rendered, *, written: bool) -> None:
    """One memory between two names."""
    with _Place(canvas, plan.source):
        _name(canvas, "source", plan.source)
        _bracket(canvas, plan.source, down=True)
        _memory(canvas, plan.source, "shared", written=written)
        _bracket(canvas, plan.source, down=False)
        _name(canvas, "result", plan.result)


def _draw_apart(canvas: Canvas, plan: Rendered, written: str | None) -> None:
    """Two memories, and what is carried from one to the other."""
    source, result = plan.source, plan.result
    if _place(source) == _place(result):
        with _Place(canvas, source):
            _side(canvas, "source", source, written=written == "source")
            _carried(canvas, plan)
            _side(canvas, "result", result, written=written == "result")
        return
    with _Place(canvas, source):
        _side(canvas, "source", source, written=written == "source")
    _carried(canvas, plan)
    with _Place(canvas, result):
        _side(canvas, "result", result, written=written == "result")


def _side(canvas: Canvas, name: str, info: TensorInfo, *, written: bool) -> None:
    _name(canvas, name, info)
    _memory(canvas, info, name, written=written)


def _name(canvas: Canvas, name: str, info: TensorInfo) -> None:
    """Which side it is, what it is, and whether it may write."""
    mark, words = (_PENCIL, "may write") if _is_writable(info) else (_LOCK, "read-only")
    room = canvas.right - GUTTER - 90
    what = f"{name}: {info.framework} {info.kind} {info.dtype}{list(info.shape)}"
    for number, line in enumerate(fitted(what, room)):
        canvas.y += 17
        canvas.text(GUTTER, canvas.y - 4, line, "name")
        if not number:
            x = canvas.right - 66
            canvas.add(f"<path class='line' d='{mark}' transform='translate({x - 15} {canvas.y - 14:g})'/>")
            canvas.text(x, canvas.y - 4, words)
    details = _details(info)
    if details:
        canvas.lines(details, "quiet")


def _details(info: TensorInfo) -> str:
    """What of a block is touched, where that is not all of it from a 64-byte line on."""
    if memory_kind(info) != "block" or not info.size:
        return ""
    memory = touched(info)
    told = [size_text(memory.total)]
    if memory.total < memory.span:
        told = [f"{size_text(memory.total)} of {size_text(memory.span)}"]
    start = (info.misalignment + memory.low) % 64
    if start:
        told.append(f"{_many(start, 'byte')} after a 64-byte line")
    if not info.is_compact:
        told.append(f"strides {list(info.strides)}")
    if memory.total < info.nbytes:
        told.append(f"{_many(info.size, 'element')} share them")
    return ", ".join(told)


def _memory(canvas: Canvas, info: TensorInfo, colour: str, *, written: bool) -> None:
    """A strip of bytes, or what there is instead."""
    kind = memory_kind(info)
    if kind == "objects" and info.size:
        _boxes(canvas, info.size, colour, "objects, each in memory of its own", written=written)
    elif kind == "parts" and info.size:
        _boxes(canvas, _count(info), colour, "parts, each in memory of its own", written=written)
    elif kind == "block" and info.size:
        strip(canvas, info, colour, written=written)
    else:
        why = f"no memory: {info.abstract}" if kind == "none" else _NOT_A_BLOCK["values"]
        words = why if info.size else "no elements: no bytes"
        canvas.y += 30
        wide = canvas.right - canvas.left
        canvas.add(f"<rect class='none' x='{canvas.left}' y='{canvas.y - 26:g}' width='{wide}' height='24' rx='4'/>")
        canvas.text(canvas.left + 8, canvas.y - 10, words)


def _boxes(canvas: Canvas, many: int, colour: str, words: str, *, written: bool) -> None:
    """Separate boxes with their numbers, of many the first."""
    pitch = 40 if canvas.columns == 64 else 30
    drawn = min(many, (_OBJECTS if canvas.columns == 64 else _OBJECTS * 2 // 3))
    canvas.y += 30
    top = canvas.y - 26
    for number in range(drawn):
        x = canvas.left + number * pitch + 1
        canvas.add(f"<rect class='{colour}' x='{x}' y='{top:g}' width='{pitch - 10}' height='22' rx='8'/>")
        canvas.add(f"<g class='number'><text x='{x + (pitch - 10) / 2:g}' y='{top + 15:g}'>{number}</text></g>")
    if written:
        canvas.add(f"<rect class='written' x='{canvas.left + 1}' y='{top:g}' width='{pitch - 10}' height='22' rx='8'/>")
    if many > drawn:
        canvas.text(canvas.left + drawn * pitch + 4, top + 15, "…")
    canvas.lines(f"{many:,} {words}" if many > 1 else f"1 {words}".replace("s, each", ", "), "quiet")


def _bracket(canvas: Canvas, info: TensorInfo, *, down: bool) -> None:
    """From a name to the memory under or above it."""
    block = memory_kind(info) == "block" and info.size > 0
    left, right = ends(canvas, info) if block else (canvas.left, canvas.right)
    canvas.y += 10
    y, height = canvas.y - (5 if down else 4), 6 if down else -6
    canvas.add(f"<path class='line' d='M{left:g} {y + height:g}v{-height}H{right:g}v{height}'/>")


def _carried(canvas: Canvas, plan: Rendered) -> None:
    """An arrow with the steps that copy, and the way that each takes."""
    steps = [step for step in plan.steps if step.copies]
    words = [f"{size_text(step.bytes)} {WAYS[step.path]}" for step in steps]
    if len(words) > _STEPS:
        words = [*words[: _STEPS - 1], f"and {len(words) - _STEPS + 1} more steps"]
    canvas.y += 6
    top, x = canvas.y, GUTTER + 12
    for line in words or ["nothing is copied"]:
        canvas.y += 20
        canvas.add(f"<circle class='shape' cx='{x}' cy='{canvas.y - 10:g}' r='3'/>")
        canvas.text(x + 16, canvas.y - 6, line)
    end = canvas.y + 6
    canvas.add(f"<path class='line' d='M{x} {top:g}V{end:g}'/><path class='shape' d='M{x - 5} {end - 2:g}h10l-5 8z'/>")
    canvas.y = end + 8
