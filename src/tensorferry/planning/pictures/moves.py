"""Which element of which tensor becomes which: tensors as grids of cells, as SVG."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...core.named_tuple import NamedTuple
from .canvas import GUTTER, WORDS, Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from .canvas import Words

__all__ = ["MOST_CELLS", "Cell", "Grid", "draw_grids"]

MOST_CELLS = 512
"""The most elements that are drawn."""
_CELL = 26
_ROW = 18
_GAP = 6
_COLOURS = ("shared", "source", "result")


class Cell(NamedTuple):
    """An element.

    Args:
        group: Its colour: that of its source, or of a part of it; ``None`` if it is in no source.
        text: What stands in it.
    """

    group: int | None
    text: str


class Grid(NamedTuple):
    """A tensor.

    Args:
        name: Its name.
        shape: Lengths of the axes. The last is drawn to the right, all others down.
        cells: The elements, row by row.
    """

    name: str
    shape: tuple[int, ...]
    cells: tuple[Cell, ...]

    @property
    def text(self) -> str:
        """The name and the shape."""
        return f"{self.name} {list(self.shape)}"


def draw_grids(
    sources: Sequence[Grid],
    results: Sequence[Grid],
    *,
    width: Literal[64, 32] = 64,
    styled: bool = True,
    words: Words = WORDS,
) -> str:
    """Tensors, and those that are made of them, as ``<svg>``.

    Args:
        sources: What there is.
        results: What is made of it, with the texts and colours of what is there.
        width: How wide it is, as for a picture of memory.
        styled: Whether the style is in it.
        words: The words.
    """
    canvas = Canvas(width, words)
    for side, some in ((words.source, sources), (words.result, results)):
        for grid in some:
            canvas.lines(words.side.format(side=side, what=grid.text), "name")
            _draw_grid(canvas, grid)
            canvas.y += _GAP
    of, to = [words.comma.join(grid.text for grid in some) for some in (sources, results)]
    told = "; ".join(
        f"{grid.name}: {' '.join(cell.text for cell in grid.cells)}" for grid in results
    )
    return canvas.svg(
        words.title_moves.format(source=of, result=to),
        words.told_moves.format(elements=told),
        styled=styled,
    )


def _draw_grid(canvas: Canvas, grid: Grid) -> None:
    """Add the cells of a tensor; rows that are too long go on below."""
    length = grid.shape[-1] if grid.shape else 1
    rows = prod(grid.shape[:-1])
    fit = max((canvas.right - GUTTER) // _CELL, 1)
    for row in range(rows):
        # A gap where an outer axis begins again.
        canvas.y += _room_above(grid.shape, row)
        for start in range(0, length, fit):
            for column in range(start, min(start + fit, length)):
                cell = grid.cells[row * length + column]
                x = GUTTER + (column - start) * _CELL
                kind = "none" if cell.group is None else _COLOURS[cell.group % len(_COLOURS)]
                box = f"x='{x}' y='{canvas.y:g}' width='{_CELL - 2}' height='{_ROW - 2}'"
                canvas.add(f"<rect {box} rx='2' class='{kind}'/>")
                place = x + (_CELL - 2) / 2, canvas.y + _ROW - 6
                if cell.group is None:
                    canvas.text(*place, cell.text, "mid")
                else:
                    canvas.add("<g class='number'>")
                    canvas.text(*place, cell.text)
                    canvas.add("</g>")
            canvas.y += _ROW


def _room_above(shape: tuple[int, ...], row: int) -> int:
    """The room above a row: more where more axes begin again."""
    gap, size = 0, 1
    for length in reversed(shape[1:-1]):
        size *= length
        gap += _GAP if row and not row % size else 0
    return gap
