"""Folders of shards: their index, and contents divided among the files of a new one."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ... import hints
from ...errors import FileFormatError, FormatLimitError, UnsafeFileError, an
from ...hints import Hint
from ..base.contents import NotTensor, Ref, Special
from ..base.limits import FileHint, Leaving
from ..base.objects import Refusal
from ..base.raw import is_on_server
from ..base.stored import Repeated
from ..base.tree_strings import TIES, TREE, pack
from ..base.wording import named
from ..encodings.json_scan import Cut, blank, expect, pairs, string, strings, value
from ..encodings.paths import is_entry

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..base.contents import Contents
    from ..base.format import Format
    from ..base.stored import Stored

__all__ = [
    "WAYS_OF_TIES",
    "ShardIndex",
    "index_name",
    "index_text",
    "merged_tree",
    "pieces",
    "repeated",
    "shard_names",
    "sizes",
    "untied",
]

_LARGEST_INDEX = 1 << 26
_DERIVED = ("total_size", "total_parameters")
"""Counts in the metadata of an index, which are computed again."""
_CLASHING = "tensorferry.metadata"
"""The key for metadata whose names have another meaning in an index."""


def index_name(format: Format) -> str:  # noqa: A002 - the term
    """The usual name of the index of a format's shards."""
    return f"{format.shard_stem}{format.suffixes[0]}{format.index_suffix}"


def shard_names(format: Format, count: int) -> list[str]:  # noqa: A002 - the term
    """The names of `count` shards."""
    return [
        f"{format.shard_stem}-{n:05}-of-{count:05}{format.suffixes[0]}" for n in range(1, count + 1)
    ]


def index_text(contents: Contents, pieces: Mapping[str, Contents]) -> str:
    """The text of an index.

    Args:
        contents: The contents of all shards, with the tree.
        pieces: The contents of each shard, by the name of its file.

    Raises:
        FormatLimitError: The tree cannot be put into an index.
    """
    ties = contents.ties
    packed = pack(contents)
    metadata: dict[str, Any] = {
        "total_size": sum(
            stored.nbytes for name, stored in contents.tensors.items() if name not in ties
        )
    }
    clashing = {key: text for key, text in contents.metadata.items() if key in _DERIVED}
    metadata |= {key: text for key, text in contents.metadata.items() if key not in clashing}
    metadata |= {key: packed[key] for key in (TREE, TIES) if key in packed}
    if clashing:
        metadata[_CLASHING] = json.dumps(clashing)
    where = {name: file for file, piece in pieces.items() for name in piece.tensors}
    weight_map = {name: where[name] for name in contents.tensors if name not in ties}
    return json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2) + "\n"


@dataclass
class ShardIndex:
    """An index: the metadata, and the shard of each tensor."""

    metadata: dict[str, str] = field(default_factory=dict)
    weight_map: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ShardIndex:
        """Read an index, and check that the names of its shards do not lead out of the folder."""
        if path.stat().st_size > _LARGEST_INDEX:
            raise FileFormatError(
                f"{path} has more than {_LARGEST_INDEX} bytes, which no index needs."
            )
        index = cls()
        try:
            index._parse(path.read_bytes())
        except Cut as cut:
            raise FileFormatError(f"{path} is not the index of a folder of shards: {cut}.") from cut
        if is_on_server(path):
            return index  # it refuses such names itself
        for name in index.files():
            if not is_entry(name):
                raise UnsafeFileError(
                    f"{path} names the shard {name[:200]!r}, which leads out of its folder."
                )
        return index

    def _parse(self, text: bytes) -> None:
        position = expect(text, 0, b"{")
        closing, seen = b",", False
        while closing == b",":
            key, position = string(text, position)
            position = expect(text, position, b":")
            if key == "weight_map":
                seen = True
                entries, position = strings(text, position)
                self._fill(self.weight_map, entries)
            elif key == "metadata":
                entries, position = pairs(text, position, _text_of)
                self._fill(self.metadata, [pair for pair in entries if pair[0] not in _DERIVED])
            else:
                other, position = value(text, position)
                self._fill(self.metadata, [(key, _as_text(other))])
            position = blank(text, position) + 1
            closing = text[position - 1 : position]
        if closing != b"}" or blank(text, position) != len(text):
            raise Cut(f"'}}' and the end are due at byte {position}")
        if not seen:
            raise Cut("it has no weight_map")
        clashing, _ = strings(self.metadata.pop(_CLASHING, "{}").encode(), 0)
        self._fill(self.metadata, clashing)

    @staticmethod
    def _fill(into: dict[str, str], pairs: list[tuple[str, str]]) -> None:
        for key, text in pairs:
            if key in into:
                raise Cut(f"{key[:200]!r} stands there twice")
            into[key] = text

    def files(self) -> list[str]:
        """The shards, in the order in which they are mentioned."""
        return list(dict.fromkeys(self.weight_map.values()))

    def of(self, file: str) -> list[str]:
        """The tensors of a shard."""
        return [tensor for tensor, place in self.weight_map.items() if place == file]

    def differences(self, shards: Mapping[str, Contents]) -> Iterator[tuple[str, str]]:
        """Yield the tensors on which the index and the existing shards differ, and how."""
        for tensor, file in self.weight_map.items():
            if (
                file in shards
                and tensor not in shards[file].tensors
                and tensor not in shards[file].others
            ):
                yield tensor, f"it should be in {file}, and is not"
        for file, shard in shards.items():
            ties = shard.ties
            beside = (NotTensor, Refusal)
            tensors = [name for name, why in shard.others.items() if not isinstance(why, beside)]
            for tensor in (*shard.tensors, *tensors):
                listed = self.weight_map.get(tensor)
                if listed is None and tensor not in ties:
                    yield tensor, f"it is in {file}, and not in the index"
                elif listed not in (None, file):
                    yield tensor, f"it is in {file}, and the index says {listed}"


def _text_of(text: bytes, position: int) -> tuple[str, int]:
    """A value as a string: the string itself, or other values as JSON."""
    held, position = value(text, position)
    return _as_text(held), position


def _as_text(held: Any) -> str:
    return held if isinstance(held, str) else json.dumps(held)


WAYS_OF_TIES = ("copy", "alias")
"""What a format that has no convention for it does with further names of a tensor."""


def untied(contents: Contents, format: Format, ties: str) -> Contents:  # noqa: A002 - the term
    """Contents in which each further name is its own tensor, unless the format says they are one.

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
            f"{format.title or format.name} has no way to say that two names are one tensor, and "
            "no place for a "
            "record of it.",
            Hint(hints.keyword("ties", "copy"), ", which writes the values for each name"),
        )
    further = contents.ties
    if not further:
        return contents
    tensors = {
        name: Repeated(stored, name) if name in further else stored
        for name, stored in contents.tensors.items()
    }
    return contents._replace(tensors=tensors)


def repeated(contents: Contents) -> dict[str, str]:
    """For each name whose values are written again, the first name of the tensor."""
    keys = {
        name: stored.inner.key
        for name, stored in contents.tensors.items()
        if isinstance(stored, Repeated)
    }
    again = set(keys.values())
    first: dict[Hashable, str] = {}
    if not keys:
        return {}
    for name, stored in contents.tensors.items():
        if name not in keys and stored.key in again:
            first.setdefault(stored.key, name)
    return {name: first[key] for name, key in keys.items()}


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
    if format is None:
        metadata = contents.metadata
    else:
        metadata = format.metadata_of(contents)
    if shards is None:
        whole = contents._replace(metadata=dict(metadata))
        return [whole if format is None else format.as_held(whole)]
    pack(contents)
    ties = contents.ties
    own = {name: stored for name, stored in contents.tensors.items() if name not in ties}
    if shards:
        group_of = _by_size(own, shards)
    else:
        group_of = _by_file(own)
    groups: dict[Hashable, dict[str, Stored]] = {}
    for name, stored in contents.tensors.items():
        groups.setdefault(group_of[ties.get(name, name)], {})[name] = stored
    parts: Iterable[dict[str, Stored]] = groups.values() or [{}]
    return [contents._replace(tensors=group, tree=None, metadata=dict(metadata)) for group in parts]


def _by_file(tensors: Mapping[str, Stored]) -> dict[str, Hashable]:
    """The source file of each tensor; of one that is made of several, that of the first."""
    by_name: dict[str, Hashable] = {}
    for name, stored in tensors.items():
        origins = stored.origins()
        by_name[name] = getattr(origins[0][0], "path", None) if origins else None
    return by_name


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

    Tied tensors count once, unless they are written repeatedly. What is read several times, because
    several tensors are made of it, counts once.
    """
    ties = piece.ties
    stored = [tensor for name, tensor in piece.tensors.items() if name not in ties]
    needed: dict[Hashable, int] = {}
    for tensor in stored:
        if not isinstance(tensor, Repeated):
            for origin, count in tensor.origins():
                needed[origin.key] = min(needed.get(origin.key, 0) + count, origin.nbytes)
    return sum(needed.values()), sum(tensor.nbytes for tensor in stored)


def merged_tree(opened: Sequence[Contents]) -> dict[Any, Any]:
    """One mapping with all files' entries, such as a state dict that was saved in several files.

    Raises:
        FileFormatError: One is not a mapping, or two have the same entry.
    """
    merged: dict[Any, Any] = {}
    for contents in opened:
        if contents.tree is not None:
            tree = contents.tree
        else:
            tree = {name: Ref(name) for name in contents.tensors}
        if isinstance(tree, dict):
            twice = [key for key in tree if key in merged]
        else:
            twice = []
        if not isinstance(tree, dict) or twice:
            if isinstance(tree, Special):
                kind = tree.kind
            else:
                kind = type(tree).__name__
            if twice:
                what = f"two entries are named {named(twice)}"
            else:
                what = f"it holds {an(kind)}"
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
