"""Draw a plan as inline SVG, with bytes of memory to scale, for notebooks, pages and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..core.devices import HOST, kind_of
from ..core.info import JOINS, NUMBERS
from ..core.sizes import size_text
from .canvas import GUTTER, Canvas, fitted, wide
from .strips import ends, strip, touched
from .words import WORDS

if TYPE_CHECKING:
    from ..core.info import TensorInfo
    from .plan import Plan
    from .words import Words

__all__ = ["memory_kind", "picture"]

_PENCIL = "M0 9.5l.6-2.6L7.3.2l2 2L2.6 8.9zM6.2 1.4l2 2"
_LOCK = "M1.5 4.2h7v5.6h-7zM3 4V2.8a2 2 0 0 1 4 0V4"
_OBJECTS = 12
"""The most objects that are drawn."""
_STEPS = 6
"""The most steps that are drawn."""


def picture(
    plan: Plan,
    *,
    width: Literal[64, 32] = 64,
    written: Literal["source", "result"] | None = None,
    styled: bool = True,
    words: Words = WORDS,
) -> str:
    """The memory of a plan's source and result as an ``<svg>`` element.

    >>> import tensorferry as ferry
    >>> drawn = picture(ferry.explain(ferry.TensorInfo("torch", (2, 3), "float32"), "numpy"))
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
    return canvas.svg(_title(plan, words), told, styled=styled)


# -- in words -----------------------------------------------------------------------------------


def _title(plan: Plan, words: Words) -> str:
    title = words.title_shared if plan.shares_memory else words.title_copied
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
            bytes=words.bytes(touched(source).total), writers=writers
        )
    ways = words.then.join(_ways(plan, words))
    told = words.told_copied if ways else words.told_apart
    sides = {"source": _whereabouts(source, words), "result": _whereabouts(result, words)}
    return told.format(**sides, ways=ways, writers=writers)


def _ways(plan: Plan, words: Words) -> list[str]:
    """For each step that copies: how many bytes, and by which path."""
    return [words.way(step.path, size_text(step.bytes)) for step in plan.steps if step.copies]


def _who_writes(plan: Plan, words: Words) -> str:
    if _is_writable(plan.source):
        return words.both_write if _is_writable(plan.result) else words.source_writes
    return words.result_writes if _is_writable(plan.result) else words.neither_writes


def _whereabouts(info: TensorInfo, words: Words) -> str:
    kind = memory_kind(info)
    memory = {"objects": words.objects, "values": words.values, "none": words.none}.get(kind)
    if memory is None:
        memory = words.bytes(touched(info).total) if kind == "block" else _parts(info, words)
    return words.on.format(memory=memory, device=info.device)


def _parts(info: TensorInfo, words: Words) -> str:
    many = _count(info)
    return words.one_part if many == 1 else words.part_count.format(count=f"{many:,}")


def _sentence_about_write(plan: Plan, side: str, words: Words) -> str:
    """The sentence about a write to one side."""
    info = plan.source if side == "source" else plan.result
    if not info.size:
        return words.source_empty if side == "source" else words.result_empty
    if not _is_writable(info):
        return words.source_closed if side == "source" else words.result_closed
    if plan.shares_memory:
        return words.source_seen if side == "source" else words.result_seen
    return words.source_unseen if side == "source" else words.result_unseen


def _is_writable(info: TensorInfo) -> bool:
    return info.writable is not False and info.abstract is None


def memory_kind(info: TensorInfo) -> str:
    """How the memory of a tensor is drawn: as one block, as separate objects, or as nothing."""
    if info.abstract is not None:
        return "none"
    if info.kind in JOINS or info.shards > 1:
        return "parts"
    if info.framework == "python" or info.kind in NUMBERS:
        return "objects"
    return "values" if info.kind.startswith("copied ") else "block"


def _count(info: TensorInfo) -> int:
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
        self.canvas.lines(_place(self.info, self.canvas.words), "quiet", 10)
        self.canvas.y += 4

    def __exit__(self, *_: object) -> None:
        self.canvas.y += 8
        high, wide = self.canvas.y - self.top, self.canvas.width - 2
        self.canvas.parts.insert(
            self.at,
            f"<rect class='place' x='1' y='{self.top:g}' width='{wide}' height='{high:g}' rx='6'/>",
        )
        self.canvas.y += 1


def _place(info: TensorInfo, words: Words) -> str:
    place = words.on_host if kind_of(info.device) == HOST else words.on_device
    if info.memory_map:
        place = words.on_map
    elif info.pinned:
        place = words.on_pinned
    return place.format(device=info.device)


def _draw_shared(canvas: Canvas, plan: Plan, *, written: bool) -> None:
    """One block of memory between two names."""
    with _Frame(canvas, plan.source):
        _name(canvas, "source", plan.source)
        _bracket(canvas, plan.source, down=True)
        _memory(canvas, plan.source, "shared", written=written)
        _bracket(canvas, plan.source, down=False)
        _name(canvas, "result", plan.result)


def _draw_apart(canvas: Canvas, plan: Plan, written: str | None) -> None:
    """Two blocks of memory, and what is copied from one to the other."""
    source, result = plan.source, plan.result
    if _place(source, canvas.words) == _place(result, canvas.words):
        with _Frame(canvas, source):
            _side(canvas, "source", source, written=written == "source")
            _carried(canvas, plan)
            _side(canvas, "result", result, written=written == "result")
        return
    with _Frame(canvas, source):
        _side(canvas, "source", source, written=written == "source")
    _carried(canvas, plan)
    with _Frame(canvas, result):
        _side(canvas, "result", result, written=written == "result")


def _side(canvas: Canvas, name: str, info: TensorInfo, *, written: bool) -> None:
    _name(canvas, name, info)
    _memory(canvas, info, name, written=written)


def _name(canvas: Canvas, name: str, info: TensorInfo) -> None:
    """Write which side it is, what tensor it is, and whether it can be written to."""
    words = canvas.words
    mark, told = (_PENCIL, words.may_write) if _is_writable(info) else (_LOCK, words.read_only)
    x = canvas.right - max(round(wide(told)), 66)
    side = words.source if name == "source" else words.result
    what = words.side.format(
        side=side, what=f"{info.framework} {info.kind} {info.dtype}{list(info.shape)}"
    )
    for number, line in enumerate(fitted(what, x - GUTTER - 24)):
        canvas.y += 17
        canvas.text(GUTTER, canvas.y - 4, line, "name")
        if not number:
            canvas.add(
                f"<path class='line' d='{mark}' transform='translate({x - 15} {canvas.y - 14:g})'/>"
            )
            canvas.text(x, canvas.y - 4, told)
    details = _details(info, words)
    if details:
        canvas.lines(details, "quiet")


def _details(info: TensorInfo, words: Words) -> str:
    """Which part of a block is touched, if not all, or if it begins at no 64-byte line."""
    if memory_kind(info) != "block" or not info.size:
        return ""
    memory = touched(info)
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


def _memory(canvas: Canvas, info: TensorInfo, colour: str, *, written: bool) -> None:
    """Draw a strip of bytes; or boxes, or a sentence, if the tensor has no block of memory."""
    kind, words = memory_kind(info), canvas.words
    if kind == "objects" and info.size:
        told = (
            words.one_object
            if info.size == 1
            else words.object_count.format(count=f"{info.size:,}")
        )
        _boxes(canvas, info.size, colour, told, written=written)
    elif kind == "parts" and info.size:
        _boxes(canvas, _count(info), colour, _parts(info, words), written=written)
    elif kind == "block" and info.size:
        strip(canvas, info, colour, written=written)
    else:
        why = words.no_memory.format(why=info.abstract) if kind == "none" else words.values
        canvas.y += 30
        across = canvas.right - canvas.left
        canvas.add(
            f"<rect class='none' x='{canvas.left}' y='{canvas.y - 26:g}' width='{across}' "
            "height='24' rx='4'/>"
        )
        canvas.text(canvas.left + 8, canvas.y - 10, why if info.size else words.no_elements)


def _boxes(canvas: Canvas, many: int, colour: str, told: str, *, written: bool) -> None:
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


def _bracket(canvas: Canvas, info: TensorInfo, *, down: bool) -> None:
    """Draw a bracket between a name and its memory."""
    block = memory_kind(info) == "block" and info.size > 0
    left, right = ends(canvas, info) if block else (canvas.left, canvas.right)
    canvas.y += 10
    y, height = canvas.y - (5 if down else 4), 6 if down else -6
    canvas.add(f"<path class='line' d='M{left:g} {y + height:g}v{-height}H{right:g}v{height}'/>")


def _carried(canvas: Canvas, plan: Plan) -> None:
    """Draw an arrow, with the steps that copy and the path of each."""
    ways = _ways(plan, canvas.words)
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
