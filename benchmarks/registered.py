"""Every section, in the order of the table."""

from __future__ import annotations

from . import (
    file_memory,
    files,
    footprint,
    functions,
    gpu,
    large,
    large_files,
    pairs,
    sequences,
    small,
    start,
    tables,
    transfers,
    trees,
    unseen,
)

__all__ = ["SECTIONS"]

SECTIONS = (
    *small.SECTIONS,
    *pairs.SECTIONS,
    *unseen.SECTIONS,
    *large.SECTIONS,
    *footprint.SECTIONS,
    *sequences.SECTIONS,
    *trees.SECTIONS,
    *tables.SECTIONS,
    *start.SECTIONS,
    *files.SECTIONS,
    *file_memory.SECTIONS,
    *large_files.SECTIONS,
    *transfers.SECTIONS,
    *functions.SECTIONS,
    *gpu.SECTIONS,
)
