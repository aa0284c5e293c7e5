"""`summarise`: the contents of a file in a few lines."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ...core.dtypes import find
from ..base.blocks import blocks_of, noted
from ..base.contents import NOTHING
from ..base.nesting import named_values
from ..base.objects import objects_in
from ..encodings.paths import size_of
from .folded_names import fold
from .overview import modules, quantisation, shards

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..base.contents import Contents
    from .folded_names import Fold
    from .overview import Shards

__all__ = ["Summary", "disk_bytes", "summarise", "values_of"]


@dataclass(frozen=True)
class Summary:
    """The contents of a file, from its header.

    Args:
        path: The path that the user gave.
        format: The name of the format.
        files: The files that belong to it.
        nbytes: Their size on disk.
        memory: The bytes of the tensors. Tied weights count once.
        tensors: The number of names of tensors.
        parameters: The number of elements by dtype, or by the type of quantised blocks. Tied
            weights count once.
        modules: The number of parameters of each module.
        quantised: How many tensors are quantised, by the kind of quantisation.
        shards: If the checkpoint is in shards: how many, and which are missing.
        tied: For each further name of a tensor, its first name.
        folds: The tensors, folded.
        values: The values in the tree that are not tensors, by their paths.
        objects: What objects of a pickle were that are told as values; see `objects_in`.
        metadata: Strings by name.
        others: Names of things that cannot be loaded, and why.
        asks_for: The globals that a pickle asks for.
        refuses: Those of them, and other demands, that make it unsafe to open.
    """

    path: str
    format: str
    files: tuple[str, ...]
    nbytes: int
    memory: int
    tensors: int
    parameters: dict[str, int]
    modules: dict[str, int]
    quantised: dict[str, int]
    shards: Shards | None
    tied: dict[str, str]
    folds: list[Fold]
    values: dict[str, Any]
    objects: dict[str, str]
    metadata: dict[str, str]
    others: dict[str, str]
    asks_for: tuple[str, ...]
    refuses: tuple[str, ...]

    @property
    def safe(self) -> bool:
        """Whether nothing in it asks for code to be run."""
        return not self.refuses


def summarise(path: Path, contents: Contents) -> Summary:
    """The contents of a file, in a few lines."""
    tensors = contents.tensors
    tied = contents.ties
    blocks = blocks_of(contents)
    held = contents.parameters(tied)
    values = values_of(contents)
    shown = (
        (name, stored.dtype, stored.shape)
        if name not in blocks
        else (name, blocks[name].kind, blocks[name].shape(stored.shape))
        for name, stored in tensors.items()
    )
    folds = fold(shown)
    once = folds
    if tied:
        once = fold(
            (name, each.dtype, each.shape)
            for each in folds
            for name in each.unfold()
            if name not in tied
        )
    parameters = dict(held)
    for name, each in blocks.items():
        if name not in tied:
            parameters["uint8"] -= tensors[name].size
            parameters[each.kind] = parameters.get(each.kind, 0) + prod(
                each.shape(tensors[name].shape)
            )
    return Summary(
        path=str(path),
        format=contents.format,
        files=tuple(contents.paths),
        nbytes=disk_bytes(contents.paths),
        memory=sum(count * find(dtype).itemsize for dtype, count in held.items()),
        tensors=len(tensors),
        parameters={dtype: count for dtype, count in parameters.items() if count or not blocks},
        modules=modules(once),
        quantised=quantisation(folds, blocks, values),
        shards=shards(contents.paths),
        tied=tied,
        folds=folds,
        values=values,
        objects=objects_in(contents.tree) if contents.asks_for else {},
        metadata=noted(contents.metadata, {}),
        others=contents.others,
        asks_for=contents.asks_for,
        refuses=contents.refuses,
    )


def disk_bytes(paths: Iterable[str]) -> int:
    """The size of files, and of all files in folders, in bytes."""
    # As plain strings, because there may be thousands of shards.
    return sum(size_of(path) if os.path.isdir(path) else os.stat(path).st_size for path in paths)  # noqa: PTH112, PTH116


def values_of(contents: Contents) -> dict[str, Any]:
    """The values in a tree that are not tensors, by their paths: ``epoch``, ``optimizer.param_groups.0.lr``.

    An empty container counts as a value. If two have the same path, because a key contains a dot,
    one gets a suffix.
    """
    found = named_values(contents.tree)
    return {**found, "": None} if found.get("") == NOTHING else found
