"""Every section, in the order of the table, and the page of the documentation that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import (
    file_memory,
    files,
    footprint,
    functions,
    gpu,
    large,
    large_files,
    library_loops,
    loops,
    maps,
    pairs,
    sequences,
    small,
    start,
    structures,
    tables,
    transfers,
    trees,
    unseen,
)

if TYPE_CHECKING:
    from .case import Runnable

__all__ = ["GROUPS", "SECTIONS", "Group"]


@dataclass(frozen=True)
class Group:
    """Sections that have a page together.

    Args:
        name: The page's file, without its suffix.
        title: The page's title.
        sections: What is measured.
    """

    name: str
    title: str
    sections: tuple[Runnable, ...]


GROUPS = (
    Group("small", "Small tensors", small.SECTIONS),
    Group("pairs", "Every pair of frameworks", pairs.SECTIONS),
    Group("first-calls", "Shapes and kinds for the first time", unseen.SECTIONS),
    Group("large", "Large tensors, and memory", (*large.SECTIONS, *footprint.SECTIONS)),
    Group("sequences", "Python numbers and lists", sequences.SECTIONS),
    Group("trees", "Trees and batches", trees.SECTIONS),
    Group("loops", "Loops", (*loops.SECTIONS, *library_loops.SECTIONS, *structures.SECTIONS)),
    Group("tables", "Tables", tables.SECTIONS),
    Group(
        "files",
        "Import, and files",
        (*start.SECTIONS, *files.SECTIONS, *file_memory.SECTIONS, *large_files.SECTIONS),
    ),
    Group("maps", "Weight maps", maps.SECTIONS),
    Group("transfers", "Prefetch, and functions", (*transfers.SECTIONS, *functions.SECTIONS)),
    Group("gpu", "Single tensors on a GPU", gpu.SECTIONS),
)

SECTIONS = tuple(section for group in GROUPS for section in group.sections)
