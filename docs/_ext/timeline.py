"""The directive ``{timeline}``: what crosses the bus while a loop works, in the order in which `prefetch` does it.

Its body is code as in ``{memory}``, whose plan says which ways a batch takes; ``:batches:`` is how
many are drawn. The order is that of `tensorferry.transfers.one_pass`: the thread has leave for
`depth` batches, and for one more with each that the loop takes; a batch goes through host memory,
then over the bus, which transfers one at a time; the loop works on the batches in their order.
"""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import picture_words
from docutils.parsers.rst import directives
from memory import Drawn

import tensorferry as ferry
from tensorferry.core.layout import size_text
from tensorferry.planning.pictures.canvas import Canvas
from tensorferry.planning.pictures.html import both_widths, html_page
from tensorferry.planning.plan import Plan
from tensorferry.planning.step import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

DEPTH: int = inspect.signature(ferry.prefetch).parameters["depth"].default
"""How many batches `prefetch` may be ahead, if nothing is said."""

LOOP = "loop"
"""The lane of the loop's own work."""

_COLOURS = {Path.HOST: "source", Path.BUS: "shared", Path.DEVICE: "source", LOOP: "result"}
_WORK = 2
"""How long the loop works on a batch, where each step of a transfer takes 1: no time is measured here."""


class Piece(NamedTuple):
    """What is done to one batch on one lane.

    Args:
        lane: The path, or `LOOP`.
        batch: Its number.
        start: When it begins.
        stop: When it is over.
    """

    lane: str
    batch: int
    start: int
    stop: int


def in_turn(ways: list[Path], batches: int) -> list[Piece]:
    """One after the other: a conversion in the loop, which waits for it."""
    now, found = 0, []
    for batch in range(batches):
        for lane in [*ways, LOOP]:
            stop = now + (_WORK if lane == LOOP else 1)
            found.append(Piece(lane, batch, now, stop))
            now = stop
    return found


def ahead(ways: list[Path], batches: int, depth: int = DEPTH) -> list[Piece]:
    """As `prefetch` does it: each lane is free for the next batch while the others are at work."""
    found: list[Piece] = []
    free = dict.fromkeys([*ways, LOOP], 0)
    taken: list[int] = []
    for batch in range(batches):
        ready = taken[batch - depth] if batch >= depth else 0
        for lane in [*ways, LOOP]:
            start = max(ready, free[lane])
            ready = free[lane] = start + (_WORK if lane == LOOP else 1)
            found.append(Piece(lane, batch, start, ready))
        taken.append(found[-1].start)
    return found


def timeline(
    plan: Plan, batches: int, width: Any = 64, table: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Both orders, one below the other and in one scale, as an ``<svg>`` element; `table` translates.

    Raises:
        ValueError: Nothing of the plan crosses the bus.
    """
    ways = [step.path for step in plan.steps if step.copies]
    if Path.BUS not in ways:
        raise ValueError("nothing of this plan crosses the bus")
    ways = list(dict.fromkeys(ways))
    nbytes = {way: sum(step.bytes for step in plan.steps if step.path == way) for way in ways}
    words = picture_words.translated(table)
    told = {key: table.get(text, text) for key, text in picture_words.TIMELINE.items()}
    names = {way: told["lane"].format(way=words.way(way, size_text(nbytes[way]))) for way in ways}
    names[LOOP] = told["loop"]
    orders = {
        told["in-turn"]: in_turn(ways, batches),
        told["ahead"].format(depth=DEPTH): ahead(ways, batches),
    }
    canvas = Canvas(width, words)
    longest = max(piece.stop for pieces in orders.values() for piece in pieces)
    unit = (canvas.right - 12) // longest
    for title, pieces in orders.items():
        canvas.y += 6
        canvas.lines(title, "name", 10)
        for lane, name in names.items():
            canvas.lines(name, "quiet", 10)
            _lane(canvas, [piece for piece in pieces if piece.lane == lane], unit)
    canvas.y += 6
    canvas.lines(told["scale"], "quiet", 10)
    canvas.y += 6
    return canvas.svg(told["title"], told["told"].format(batches=batches), styled=False)


def _lane(canvas: Canvas, pieces: list[Piece], unit: int) -> None:
    top = canvas.y + 1
    canvas.y += 22
    last = 12 + max(piece.stop for piece in pieces) * unit
    canvas.add(f"<path class='grid' d='M12 {top + 9:g}H{last}'/>")
    for piece in pieces:
        x, wide = 12 + piece.start * unit, (piece.stop - piece.start) * unit - 2
        canvas.add(
            f"<rect class='{_COLOURS[piece.lane]}' x='{x}' y='{top:g}' width='{wide}' height='18' rx='3'/>"
        )
        number = f"<text x='{x + wide / 2:g}' y='{top + 13:g}'>{piece.batch}</text>"
        canvas.add(f"<g class='number'>{number}</g>")


class Timeline(Drawn):
    """What crosses the bus while a loop works."""

    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {
        **Drawn.option_spec,
        "batches": directives.positive_int,
    }

    def html(self, value: object) -> str:
        """The picture, once for a screen and once for a phone."""
        if not isinstance(value, Plan):
            raise TypeError(f"the last line must be a plan, not {type(value).__name__}")
        batches, table = self.options.get("batches", 4), picture_words.messages_of(self.config)
        return html_page([both_widths(lambda width: timeline(value, batches, width, table))])


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("timeline", Timeline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
