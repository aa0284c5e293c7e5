"""Store trees and ties as strings in the metadata, for formats that have no place for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...errors import FileFormatError, FormatLimitError
from .nesting import leaves
from .wording import named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .contents import Contents
    from .stored import Stored

__all__ = ["TIES", "TREE", "pack", "packed", "unpack", "unpacked"]

TREE = "tensorferry.tree"
"""The key of the string with the tree."""
TIES = "tensorferry.ties"
"""The string that keeps the further names of tensors.

By name: the first name, the place among all names, and 1 if the
metadata has a string of that name."""


def pack(contents: Contents) -> dict[str, str]:
    """The strings to store with tensors: metadata, the tree, and further names of tied tensors.

    Each further name is also a key, with the first name as its string, as in
    ``safetensors.torch.save_model`` (https://huggingface.co/docs/safetensors/torch_shared_tensors).

    Raises:
        FormatLimitError: A value in the tree is neither plain nor a container of plain values; the
            message names it. Or the metadata already has one of these keys.
    """
    packed = dict(contents.metadata)
    taken = [key for key in (TREE, TIES) if key in packed]
    if taken:
        raise FormatLimitError(
            f"The metadata has a string {taken[0]!r}, whose name tensorferry needs."
        )
    ties = contents.ties
    if contents.tree is not None:
        from .tree_json import encode  # here, because most files need it neither way

        packed[TREE] = encode(contents.tree)
    # The record is also written if it is empty but some metadata looks like a further name.
    if ties or _aliases(packed, contents.tensors):
        # This marks metadata whose key is also a further name.
        own = {name: [1] for name in contents.metadata}
        places = {
            name: [ties[name], index, *own.get(name, [])]
            for index, name in enumerate(contents.tensors)
            if name in ties
        }
        packed[TIES] = json.dumps(places, separators=(",", ":"))
        for name, first in ties.items():
            packed.setdefault(name, first)
    return packed


def unpack(contents: Contents) -> Contents:
    """Undo `pack`: make the tree and the further names of tensors from the strings.

    Raises:
        FileFormatError: The strings were not made by `pack`, or do not fit the tensors.
    """
    metadata = dict(contents.metadata)
    ties, tree = metadata.pop(TIES, None), metadata.pop(TREE, None)
    stored = contents.tensors
    if ties is not None:
        tensors, own = _tied(contents, ties)
        aliases = {
            name: metadata[name]
            for name in _aliases(metadata, stored)
            if name in tensors and name not in own
        }
    else:
        aliases = _aliases(metadata, stored)
        tensors = {**stored, **{name: stored[first] for name, first in aliases.items()}}
    if ties is None and tree is None and not aliases:
        return contents
    metadata = {name: value for name, value in metadata.items() if name not in aliases}
    unpacked = contents._replace(tensors=tensors, metadata=metadata)
    if tree is not None:
        from .tree_json import decode

        unpacked.tree = decode(tree, contents.paths)
        _compare(unpacked)
    return unpacked


def packed(contents: Contents, *, ties: bool = True) -> dict[str, str]:
    """As `pack`, without the keys that safetensors.torch uses for ties.

    Args:
        contents: The contents to write.
        ties: Whether to include the ties. Some formats store ties themselves.
    """
    wanted = {TREE, TIES} if ties else {TREE}
    return {
        key: text
        for key, text in pack(contents).items()
        if key in wanted or key in contents.metadata
    }


def unpacked(contents: Contents) -> Contents:
    """As `unpack`, but a string that equals the name of a tensor stays a string."""
    own = {key: text for key, text in contents.metadata.items() if key in (TREE, TIES)}
    rest = {key: text for key, text in contents.metadata.items() if key not in own}
    if own:
        return unpack(contents._replace(metadata=own))._replace(metadata=rest)
    return contents


def _aliases(metadata: Mapping[str, str], stored: Mapping[str, Stored]) -> dict[str, str]:
    """The strings that are further names of tensors, in the convention of ``save_model``."""
    return {
        name: first
        for name, first in metadata.items()
        if first in stored and name not in stored and name != "format"
    }


def _tied(contents: Contents, text: str) -> tuple[dict[str, Stored], set[str]]:
    """All tensors, and the further names that are also keys of metadata."""
    where = f"The string {TIES!r} of {named(contents.paths)}"
    stored = contents.tensors
    try:
        entries = [
            (place, name, first, own) for name, (first, place, *own) in json.loads(text).items()
        ]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{where} cannot be read: {error}.") from error
    for place, name, first, own in entries:
        if (
            type(place) is not int
            or type(first) is not str
            or first not in stored
            or own not in ([], [1])
        ):
            raise FileFormatError(
                f"{where} makes {name!r} another name of {str(first)[:200]!r}, which is not there."
            )
        if name in stored:
            raise FileFormatError(
                f"{where} makes {name!r} another name of {first!r}, but it is stored itself."
            )
    entries.sort()
    tensors: dict[str, Stored] = {}
    position = 0
    for stored_name, tensor in stored.items():
        while position < len(entries) and entries[position][0] <= len(tensors):
            tensors[entries[position][1]] = stored[entries[position][2]]
            position += 1
        tensors[stored_name] = tensor
    tensors.update((name, stored[first]) for _, name, first, _ in entries[position:])
    return tensors, {name for _, name, _, own in entries if own}


def _compare(contents: Contents) -> None:
    mentioned: set[str] = set()
    wrong: dict[str, list[str]] = {"mentions what is not there": [], "mentions twice": []}
    for _, ref in leaves(contents.tree):
        if ref.name not in contents.tensors:
            wrong["mentions what is not there"].append(ref.name)
        elif ref.name in mentioned:
            wrong["mentions twice"].append(ref.name)
        mentioned.add(ref.name)
    wrong["does not mention"] = [name for name in contents.tensors if name not in mentioned]
    for what, names in wrong.items():
        if names:
            raise FileFormatError(
                f"The string {TREE!r} of {named(contents.paths)} {what}: {named(names)}.",
                "another program may have changed the tensors and kept the string: "
                "save them without it",
            )
