"""Check the chunks of an array before tensorstore reads them.

For most codecs, tensorstore decodes no more than a chunk has. But it reads the whole file of a
chunk, however long it is, and it expands blosc data to the size that these declare.
"""

from __future__ import annotations

import json
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from ....errors import UnsafeFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["ArrayChunks"]

_OVERHEAD = 1 << 20
_PER_PIECE = 64
"""The bytes of a piece of a shard besides its values: its entry in the index, and headers of codecs."""
_HELD = slice(4, 8)
"""The position of the decompressed size in blosc data: README_CHUNK_FORMAT.rst of c-blosc."""


class ArrayChunks:
    """The chunks of an array.

    Args:
        store: The array, opened by tensorstore.
        itemsize: The size of an element in bytes.
        where: The name of the array in messages.
        folder: The folder with the files of chunks; ``None`` if they are in a database.

    Raises:
        UnsafeFileError: It has blosc data in shards, which no program writes for Orbax.
    """

    def __init__(self, store: Any, itemsize: int, where: str, folder: Path | None) -> None:
        described = store.spec().to_json()["metadata"]
        self._store, self._where, self._folder = store, where, folder
        self._lengths = store.chunk_layout.write_chunk.shape or (1,) * store.rank
        self._nbytes = prod(self._lengths) * itemsize
        pieces = prod(self._lengths) // max(prod(store.chunk_layout.read_chunk.shape or ()), 1)
        self._most = 2 * (self._nbytes + _PER_PIECE * pieces) + _OVERHEAD
        encoding = described.get("chunk_key_encoding", {"name": "v2"})
        apart = "/" if encoding["name"] == "default" else "."
        apart = (
            described.get("dimension_separator")
            or encoding.get("configuration", {}).get("separator")
            or apart
        )
        self._key = ("c", apart) if encoding["name"] == "default" else ("", apart)
        codecs = described.get("codecs") or [
            {"name": (described.get("compressor") or {}).get("id")}
        ]
        self._by_blosc = any(each["name"] == "blosc" for each in codecs)
        if not self._by_blosc and '"blosc"' in json.dumps(codecs):
            raise UnsafeFileError(
                f"{where} has shards of chunks that are compressed by blosc, which are not read."
            )

    def look_at(self, box: Sequence[slice]) -> None:
        """Raise for a box in which a chunk has more bytes than declared.

        Raises:
            UnsafeFileError: A chunk has more bytes.
        """
        if self._folder is None and not self._by_blosc:
            return
        for key in self._keys(box):
            if self._folder is not None:
                file = self._folder / key
                nbytes = file.stat().st_size if file.is_file() else 0
                self._refuse(nbytes, self._most)
            if self._by_blosc:
                found = self._store.kvstore.read(key).result()
                self._refuse(int.from_bytes((found.value or b"")[_HELD], "little"), self._nbytes)

    def _keys(self, box: Sequence[slice]) -> Iterator[str]:
        begin, apart = self._key
        places = (
            range(part.start // length, -(-part.stop // length))
            for part, length in zip(box, self._lengths, strict=True)
        )
        for place in product(*places):
            words = ([begin] if begin else []) + [str(each) for each in place]
            yield apart.join(words) or "0"

    def _refuse(self, nbytes: int, most: int) -> None:
        if nbytes > most:
            raise UnsafeFileError(
                f"{self._where} has a chunk of {nbytes:,} bytes or more, where {most:,} are declared: a bomb."
            )
