"""NumPy's scalars as tensors, for formats that have no other place for their dtypes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...host.numpy_dtypes import of_numpy
from .contents import Ref
from .nesting import leaves, name_at, relabel
from .stored import InMemory

if TYPE_CHECKING:
    from .contents import Contents
    from .stored import Stored

__all__ = ["with_scalars"]

_LEAVES = (Ref, np.generic)


def with_scalars(contents: Contents) -> Contents:
    """Contents with NumPy's scalars as tensors, under the names that follow from their paths.

    Args:
        contents: The contents. Times and texts of NumPy stay values.
    """
    found = [] if contents.tree is None else list(leaves(contents.tree, _LEAVES))
    dtypes = [of_numpy(leaf.dtype) if isinstance(leaf, np.generic) else None for _, leaf in found]
    if not any(dtypes):
        return contents
    tensors: dict[str, Stored] = {}
    counts: dict[str, int] = {}
    now: list[Any] = []
    for (keys, leaf), dtype in zip(found, dtypes, strict=True):
        if dtype is None and not isinstance(leaf, Ref):
            now.append(leaf)
            continue
        name = name_at(keys, tensors, counts)
        if dtype is None:
            now.append(leaf._replace(name=name))
            tensors[name] = contents.tensors[leaf.name]
        else:
            now.append(Ref(name, "scalar"))
            tensors[name] = InMemory(np.asarray(leaf), dtype, ("scalar", name))
    again = iter(now)
    return replace(
        contents, tensors=tensors, tree=relabel(contents.tree, lambda _: next(again), _LEAVES)
    )
