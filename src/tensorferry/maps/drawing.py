"""A lowered table as a picture: which element of the source each element of the target is."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from ..errors import FormatLimitError
from ..planning.pictures.moves import MOST_CELLS, Cell, Grid, draw_grids
from .lowering import Constant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .lowering import Header, Lowered, MadeTensor

__all__ = ["drawn"]


def drawn(
    lowered: Lowered, source: Mapping[str, Header], colours: int | None = None, **style: Any
) -> str:
    """The picture of a table, as ``<svg>``: element numbers of the sources, in the tensors of the target.

    Args:
        lowered: The table for a source.
        source: The tensors of the source.
        colours: In how many parts along its first axis each source has its colours; ``None``: a
            source has one colour if there are several, and each of its rows one if it is alone.
        style: As for `planning.pictures.moves.draw_grids`.

    Raises:
        FormatLimitError: There are too many elements.
    """
    sizes = [header.size for header in source.values()]
    sizes += [made.header.size for made in lowered.tensors.values()]
    if sum(sizes) > MOST_CELLS:
        raise FormatLimitError(
            f"A picture has at most {MOST_CELLS} elements, and these are {sum(sizes):,}.",
            "draw a table for shapes with few elements: its pattern is the same",
        )
    cells = {
        name: _cells(place, header, colours or (1 if len(source) > 1 else header.shape[:1] or 1))
        for place, (name, header) in enumerate(source.items())
    }
    sources = [Grid(name, header.shape, cells[name]) for name, header in source.items()]
    results = [
        Grid(name, made.header.shape, _made(made, cells)) for name, made in lowered.tensors.items()
    ]
    return draw_grids(sources, results, **style)


def _cells(place: int, header: Header, parts: Any) -> tuple[Cell, ...]:
    count = parts if isinstance(parts, int) else parts[0]
    per = -(-header.size // max(count, 1))
    return tuple([Cell(place + at // max(per, 1), str(at)) for at in range(header.size)])


def _made(made: MadeTensor, cells: Mapping[str, tuple[Cell, ...]]) -> tuple[Cell, ...]:
    """The elements of a tensor of the target; views and casts are drawn as what is moved."""
    target_cells = [Cell(None, "")] * made.moved
    for move in made.moves:
        for index in product(*map(range, move.sizes)):
            to = sum(at * step for at, step in zip(index, move.target_steps, strict=True))
            of = sum(at * step for at, step in zip(index, move.source_steps, strict=True))
            if isinstance(move.source, Constant):
                cell = Cell(None, f"{move.source.number:g}")
            else:
                cell = cells[str(move.source)][move.source_start + of]
            target_cells[move.target_start + to] = cell
    return tuple(target_cells)
