"""The index of a folder of shards: which file has which tensor, and values that are not tensors.

The convention is that of Hugging Face: files named ``<stem>-00001-of-00002<suffix>`` and
``<stem><suffix>.index.json``, for any format that has shards
(https://huggingface.co/docs/transformers/main/en/big_models). A tree and ties are in the
``metadata`` of the index.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError, UnsafeFileError
from ..base.contents import NotTensor
from ..base.objects import Refusal
from ..base.tree_strings import TIES, TREE, pack
from ..encodings.json_scan import Cut, blank, expect, pairs, string, strings, value
from ..encodings.paths import is_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..base.contents import Contents
    from ..base.format import Format

__all__ = ["ShardIndex", "index_name", "index_text", "shard_names"]

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
        found = cls()
        try:
            found._parse(path.read_bytes())
        except Cut as cut:
            raise FileFormatError(f"{path} is not the index of a folder of shards: {cut}.") from cut
        for name in found.files():
            if not is_entry(name):
                raise UnsafeFileError(
                    f"{path} names the shard {name[:200]!r}, which leads out of its folder."
                )
        return found

    def _parse(self, text: bytes) -> None:
        position = expect(text, 0, b"{")
        closing, seen = b",", False
        while closing == b",":
            key, position = string(text, position)
            position = expect(text, position, b":")
            if key == "weight_map":
                seen = True
                found, position = strings(text, position)
                self._fill(self.weight_map, found)
            elif key == "metadata":
                found, position = pairs(text, position, _text_of)
                self._fill(self.metadata, [pair for pair in found if pair[0] not in _DERIVED])
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
