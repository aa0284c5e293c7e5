"""Split contents into pieces, one for each output file. Tied tensors stay together."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError, FormatLimitError, an
from ..base.contents import Ref, Special
from ..base.file_hints import FileHint, Leaving
from ..base.repeated import Repeated
from ..base.tree_strings import pack
from ..base.wording import named

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from ..base.contents import Contents
    from ..base.format import Format
    from ..base.stored import Stored

__all__ = ["TIES", "merged_tree", "pieces", "repeated", "sizes", "untied"]

TIES = ("copy", "alias")
"""What a format that has no convention for it does with further names of a tensor."""


def untied(contents: Contents, format: Format, ties: str) -> Contents:  # noqa: A002 - the term
    """Contents in which each further name is a tensor of its own, unless the format says that they are one.

    Args:
        contents: All contents.
        format: The format to write.
        ties: ``"copy"`` or ``"alias"``; a format with a convention of its own follows that.

    Raises:
        FormatLimitError: The format has neither a convention nor a place for a record of the
            further names.
    """
    if format.ties == "own" or (ties == "alias" and format.ties != "copy"):
        return contents
    if ties == "alias":
        raise FormatLimitError(
            f"{format.title or format.name} has no way to say that two names are one tensor, and no place for a "
            "record of it.",
            'ties="copy", which writes the values for each name',
        )
    further = contents.ties
    if not further:
        return contents
    tensors = {
        name: Repeated(stored, name) if name in further else stored
        for name, stored in contents.tensors.items()
    }
    return replace(contents, tensors=tensors)


def repeated(contents: Contents) -> dict[str, str]:
    """For each name whose values are written again, the first name of the tensor."""
    found = {
        name: stored.inner.key
        for name, stored in contents.tensors.items()
        if isinstance(stored, Repeated)
    }
    again = set(found.values())
    first: dict[Hashable, str] = {}
    for name, stored in contents.tensors.items() if found else ():
        if name not in found and stored.key in again:
            first.setdefault(stored.key, name)
    return {name: first[key] for name, key in found.items()}


def pieces(contents: Contents, shards: int | None, format: Format | None = None) -> list[Contents]:  # noqa: A002 - the term
    """The contents of each output file. All names of a tensor are in the file of the first.

    Each piece has the metadata, and those of its format, as readers expect. The tree is in the
    index.

    Args:
        contents: All contents.
        shards: See `FileRecipe`.
        format: The format of the files; ``None`` if the pieces are not for a format.

    Raises:
        FormatLimitError: The tree cannot be put into an index.
    """
    metadata = contents.metadata if format is None else format.metadata_of(contents)
    if shards is None:
        whole = replace(contents, metadata=dict(metadata))
        return [whole if format is None else format.as_held(whole)]
    pack(contents)
    ties = contents.ties
    own = {name: stored for name, stored in contents.tensors.items() if name not in ties}
    group_of = _by_size(own, shards) if shards else _by_file(own)
    groups: dict[Hashable, dict[str, Stored]] = {}
    for name, stored in contents.tensors.items():
        groups.setdefault(group_of[ties.get(name, name)], {})[name] = stored
    parts: Iterable[dict[str, Stored]] = groups.values() or [{}]
    return [replace(contents, tensors=group, tree=None, metadata=dict(metadata)) for group in parts]


def _by_file(tensors: Mapping[str, Stored]) -> dict[str, Hashable]:
    """The source file of each tensor."""
    return {
        name: getattr(getattr(stored, "inner", stored), "path", None)
        for name, stored in tensors.items()
    }


def _by_size(tensors: Mapping[str, Stored], nbytes: int) -> dict[str, Hashable]:
    """The number of the shard for each tensor.

    A tensor larger than `nbytes` has a shard of its own.
    """
    numbers: dict[str, Hashable] = {}
    number = filled = 0
    for name, stored in tensors.items():
        if numbers and filled + stored.nbytes > nbytes:
            number, filled = number + 1, 0
        filled += stored.nbytes
        numbers[name] = number
    return numbers


def sizes(piece: Contents) -> tuple[int, int]:
    """How many bytes of tensors are read and written.

    Tied tensors count once, unless they are written repeatedly.
    """
    ties = piece.ties
    stored = [each for name, each in piece.tensors.items() if name not in ties]
    own = [each for each in stored if not isinstance(each, Repeated)]
    return sum(getattr(each, "inner", each).nbytes for each in own), sum(
        each.nbytes for each in stored
    )


def merged_tree(opened: Sequence[Contents]) -> dict[Any, Any]:
    """One mapping with the entries of all files, such as a state dict that was saved in several files.

    Raises:
        FileFormatError: One is not a mapping, or two have the same entry.
    """
    merged: dict[Any, Any] = {}
    for contents in opened:
        tree = (
            contents.tree
            if contents.tree is not None
            else {name: Ref(name) for name in contents.tensors}
        )
        twice = [key for key in tree if key in merged] if isinstance(tree, dict) else []
        if not isinstance(tree, dict) or twice:
            kind = tree.kind if isinstance(tree, Special) else type(tree).__name__
            what = f"two entries are named {named(twice)}" if twice else f"it holds {an(kind)}"
            raise FileFormatError(
                f"{named(contents.paths)} does not go together with the others: {what}.",
                FileHint(Leaving()),
            )
        if isinstance(tree, OrderedDict) and not isinstance(merged, OrderedDict):
            merged = OrderedDict(merged)
        merged.update(tree)
        if getattr(tree, "__dict__", None):
            vars(merged).update({**vars(tree), **vars(merged)})
    return merged
