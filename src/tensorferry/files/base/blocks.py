"""Tensors in quantised blocks: stored as bytes, with a string in the metadata that names the kind of blocks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from .contents import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .contents import Contents

__all__ = ["Blocks", "blocks_of", "noted"]


class Blocks(NamedTuple):
    """A kind of quantised blocks.

    Args:
        kind: The format of such blocks, and its name for them: ``"gguf.Q8_0"``.
        length: How many numbers a block has, along the last axis.
        nbytes: How many bytes a block has.
    """

    kind: str
    length: int
    nbytes: int

    def shape(self, held: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the numbers, from that of the bytes."""
        return (*held[:-1], held[-1] // self.nbytes * self.length)


def blocks_of(contents: Contents) -> dict[str, Blocks]:
    """The tensors in blocks, by name. Entries for tensors that cannot be blocks are ignored."""
    text = contents.metadata.get(BLOCKS)
    if text is None or not _is_short(text, contents.tensors):
        return {}
    try:
        found = {
            name: Blocks(kind, length, nbytes)
            for name, (kind, length, nbytes) in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {
        name: found[name]
        for name, stored in contents.tensors.items()
        if name in found
        and [*map(type, found[name])] == [str, int, int]
        and 0 < found[name].length < 1 << 16 > found[name].nbytes > 0
        and stored.dtype == "uint8"
        and stored.shape
        and not stored.shape[-1] % found[name].nbytes
    }


def _is_short(text: str, names: Iterable[str]) -> bool:
    """Whether the text is not longer than these tensors need.

    JSON takes twenty times its length in memory.
    """
    most = sum(8 + len(name) for name in names)
    return sum(map(text.count, "[{,")) <= most + 8


def noted(metadata: Mapping[str, str], blocks: Mapping[str, Blocks]) -> dict[str, str]:
    """Metadata with the kinds of blocks of exactly these tensors."""
    kept = {key: text for key, text in metadata.items() if key != BLOCKS}
    return {**kept, BLOCKS: json.dumps(blocks, separators=(",", ":"))} if blocks else kept
