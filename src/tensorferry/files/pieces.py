"""Contents in pieces: one for each file that is written; tied tensors stay together."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError, an
from .base.contents import Ref
from .base.tree_strings import pack
from .base.wording import TENSORS_ONLY, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .base.contents import Contents
    from .base.stored import Stored

__all__ = ["merged_tree", "pieces", "sizes", "split"]


def pieces(contents: Contents, shards: int | None) -> list[Contents]:
    """The contents of each output file; tied tensors stay together.

    Args:
        contents: All of it.
        shards: As for `FileRecipe`.
    """
    if shards is None:
        return [contents]
    return split(contents, shards) if shards else _as_in_source(contents)


def _as_in_source(contents: Contents) -> list[Contents]:
    """As many pieces as the source has files with tensors; as `split` makes them."""
    pack(contents)
    ties = contents.ties
    groups: dict[Any, dict[str, Stored]] = {}
    places: dict[str, dict[str, Stored]] = {}
    for name, stored in contents.tensors.items():
        inner = getattr(stored, "inner", stored)
        group = places[ties[name]] if name in ties else groups.setdefault(getattr(inner, "path", None), {})
        places[name] = group
        group[name] = stored
    return [
        replace(contents, tensors=tensors, tree=None, metadata=dict(contents.metadata)) for tensors in groups.values()
    ]


def split(contents: Contents, nbytes: int) -> list[Contents]:
    """The contents of shards, each of at most so many bytes of tensors, in order.

    Names of one tensor stay together, in the shard of the first; a tensor that is larger has a shard of its own. Each
    shard has the metadata, as readers expect; the tree is left to the index.

    Args:
        contents: All of it.
        nbytes: The most bytes of a shard.

    Raises:
        FormatLimitError: The tree cannot be put into an index.
    """
    pack(contents)
    ties = contents.ties
    groups: list[dict[str, Stored]] = [{}]
    place: dict[str, int] = {}
    filled = 0
    for name, stored in contents.tensors.items():
        if name in ties:
            place[name] = place[ties[name]]
        else:
            if groups[-1] and filled + stored.nbytes > nbytes:
                groups.append({})
                filled = 0
            filled += stored.nbytes
            place[name] = len(groups) - 1
        groups[place[name]][name] = stored
    return [replace(contents, tensors=group, tree=None, metadata=dict(contents.metadata)) for group in groups]


def sizes(piece: Contents) -> tuple[int, int]:
    """The bytes of tensors to read and to write; ties once."""
    ties = piece.ties
    stored = [each for name, each in piece.tensors.items() if name not in ties]
    return sum(getattr(each, "inner", each).nbytes for each in stored), sum(each.nbytes for each in stored)


def merged_tree(opened: Sequence[Contents]) -> dict[Any, Any]:
    """One mapping with the entries of each; as of a state dict that was saved in several files.

    Raises:
        FileFormatError: One is no mapping, or two have an entry of one name.
    """
    merged: dict[Any, Any] = {}
    for contents in opened:
        tree = contents.tree if contents.tree is not None else {name: Ref(name) for name in contents.tensors}
        twice = [key for key in tree if key in merged] if isinstance(tree, dict) else []
        if not isinstance(tree, dict) or twice:
            what = f"two entries are named {named(twice)}" if twice else f"it holds {an(type(tree).__name__)}"
            raise FileFormatError(
                f"{named(contents.paths)} does not go together with the others: {what}.", TENSORS_ONLY
            )
        if isinstance(tree, OrderedDict) and not isinstance(merged, OrderedDict):
            merged = OrderedDict(merged)
        merged.update(tree)
        if getattr(tree, "__dict__", None):
            vars(merged).update({**vars(tree), **vars(merged)})
    return merged
