"""The plan of a tree or of a batch as HTML: a picture of its memory, and a table of its leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.sizes import size_text
from ..planning.canvas import GUTTER, Canvas, clean, fitted
from ..planning.page import both_widths, change, code, page, table, warned
from ..planning.picture import memory_kind
from ..planning.step import WAYS
from ..planning.strips import bar, blocks_of, touched

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from ..core.info import TensorInfo
    from ..planning.plan import Plan

__all__ = ["leaves_page"]

_DRAWN = 12
"""The most blocks of memory that are drawn, and the most names of one block."""
_ROWS = 50
"""The most leaves in the table."""


def leaves_page(
    head: str, leaves: Sequence[Any], notes: Sequence[object], warnings: Iterable[str]
) -> str:
    """A page about the first leaves, and the number of the others.

    Args:
        head: The first line.
        leaves: The leaves, with their paths and plans, and what happens to each; `same_as` and
            `view_with` tell which share memory.
        notes: Other lines.
        warnings: The warnings.
    """
    memories = _memories(leaves)

    def draw(width: Literal[64, 32]) -> str:
        return _picture(memories, width)

    rows = [
        (code(each.path), change(each.plan.source, each.plan.result), clean(each.what))
        for each in leaves[:_ROWS]
    ]
    parts = [f"<p><b>{clean(head)}</b></p>", both_widths(draw) if memories else ""]
    parts.append(table(("leaf", "what it is", "what happens"), rows) if rows else "")
    if len(leaves) > _ROWS:
        parts.append(f"<p>… and {len(leaves) - _ROWS:,} more leaves: see .plans</p>")
    parts += [f"<p>{clean(str(note))}</p>" for note in notes[:_ROWS]]
    if len(notes) > _ROWS:
        parts.append("<p>… and more: print() counts them</p>")
    return page([*parts, warned(warnings)])


def _memories(leaves: Sequence[Any]) -> dict[str, list[Any]]:
    """Leaves, grouped by the path of the leaf whose memory they use."""
    found: dict[str, list[Any]] = {}
    for leaf in leaves:
        over = getattr(leaf, "same_as", None) or leaf.path
        found.setdefault(over, []).append(leaf)
    return found


def _picture(memories: dict[str, list[Any]], width: Literal[64, 32]) -> str:
    """Each block of memory with the names of its leaves, all in the same scale."""
    canvas = Canvas(width)
    shown = list(memories.values())[:_DRAWN]
    sides = [info for leaves in shown for info in (leaves[0].plan.source, leaves[0].plan.result)]
    spans = [touched(info).span for info in sides if _is_block(info)]
    size = blocks_of(max(spans, default=1), width)
    canvas.lines(
        f"Each block is {size_text(size)}." if spans else "There are no bytes.", "quiet", 10
    )
    for leaves in shown:
        _draw(canvas, leaves, size)
    if len(memories) > len(shown):
        canvas.y += 4
        canvas.lines(f"… and {len(memories) - len(shown):,} more memories", "", 10)
    canvas.y += 8
    shared = sum(leaves[0].plan.shares_memory for leaves in memories.values())
    told = f"{shared:,} of {len(memories):,} memories are shared with the source, the others are copied."
    return canvas.svg("the memories of a tree", told, styled=False)


def _draw(canvas: Canvas, leaves: list[Any], size: int) -> None:
    """Draw one block of memory: the leaves that use it, and what becomes of it."""
    plan: Plan = leaves[0].plan
    canvas.y += 6
    canvas.lines(leaves[0].path, "name", 10)
    for leaf in leaves[1:_DRAWN]:
        canvas.lines(f"{leaf.path}: the same memory", "name", 10)
    if len(leaves) > _DRAWN:
        canvas.lines(f"… and {len(leaves) - _DRAWN:,} more over it", "name", 10)
    if plan.shares_memory:
        _side(canvas, plan.source, "shared", size)
        canvas.lines(
            f"source and result, {size_text(plan.source.nbytes)} on {plan.source.device}", "quiet"
        )
        return
    _side(canvas, plan.source, "source", size)
    for line in fitted(_carried(leaves[0]), canvas.right - GUTTER - 24):
        canvas.y += 18
        canvas.text(GUTTER + 24, canvas.y - 5, line)
    x, y = GUTTER + 8, canvas.y - 16
    canvas.add(
        f"<path class='line' d='M{x} {y:g}v8'/><path class='shape' d='M{x - 4} {y + 6:g}h8l-4 7z'/>"
    )
    _side(canvas, plan.result, "result", size)


def _carried(leaf: Any) -> str:
    if getattr(leaf, "view_with", None) is not None:
        return f"copied as one memory with {leaf.view_with}"
    together = getattr(leaf, "bytes_copied", 0)
    if together > leaf.plan.bytes_copied:
        return f"{size_text(together)}, as one memory with the views that overlap it"
    ways = [f"{size_text(step.bytes)} {WAYS[step.path]}" for step in leaf.plan.steps if step.copies]
    return ", then ".join(ways) or "nothing is copied"


def _side(canvas: Canvas, info: TensorInfo, kind: str, size: int) -> None:
    if _is_block(info):
        bar(canvas, info, kind, size)
        return
    many = info.shape[0] if info.shape else 1
    words = {
        "objects": f"{info.size:,} Python objects",
        "parts": f"{many:,} tensors, each in memory of its own",
    }
    canvas.lines(words.get(memory_kind(info), "no memory") if info.size else "no elements", "quiet")


def _is_block(info: TensorInfo) -> bool:
    return memory_kind(info) == "block" and info.size > 0
