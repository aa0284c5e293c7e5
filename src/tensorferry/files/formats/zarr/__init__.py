"""Zarr, with zarr-python: a folder with an array for each tensor."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.dtypes import DTYPES, ORDINARY
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import Contents
from ...base.file_hints import FileHint, Metadataless
from ...base.format import Format, owned
from ...base.tree_strings import packed, unpacked
from ...base.wording import is_unicode
from ...encodings.paths import NAMES, placed, refuse_links_out, restore_names
from ...encodings.slabs import filled, lengths, slabs
from .nodes import JSON, description_of, is_array, is_own
from .reader import CHUNK_BYTES, DTYPE, ArrayCollector

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.pump import Pump
    from ...base.stored import Stored

__all__ = ["FORMAT"]


class Zarr(Format):
    """Zarr, https://zarr-specs.readthedocs.io: versions 2 and 3 are read, 3 is written.

    Dtypes that zarr-python does not have (bfloat16, float8, int4) are written as unsigned integers
    of the same size, with an attribute that names the dtype.
    """

    name = "zarr"
    title = "Zarr"
    suffixes = (".zarr",)
    dtypes = frozenset(DTYPES)
    module = "zarr"
    is_folder = True
    holds_tree = True
    holds_metadata = True
    rank = 70

    def recognises(self, path: Path, head: bytes) -> bool:
        return not head and description_of(path) is not None

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        description = description_of(path) or JSON
        refuse_links_out(path, description)
        contents = Contents(self.name, (str(path),))
        ArrayCollector(path, contents).node(str(path), description, "", 0)
        contents.tensors = dict(sorted(contents.tensors.items()))
        restore_names(contents)
        return unpacked(contents)

    def own_entries(self, folder: Path) -> list[str]:
        arrays: dict[str, bool | None] = {}

        def at(inner: str) -> bool | None:
            if inner not in arrays:
                arrays[inner] = is_array(folder / inner)
            return arrays[inner]

        def fits(inner: str) -> bool:
            node, _, rest = "", "", inner
            while at(node) is False and "/" in rest:
                name, _, rest = rest.partition("/")
                node = f"{node}/{name}" if node else name
            return at(node) is not None and is_own(rest, in_array=bool(at(node)))

        return owned(folder, fits)

    def refuse(self, contents: Contents) -> None:
        texts = [
            key
            for key, text in contents.metadata.items()
            if not (is_unicode(key) and is_unicode(text))
        ]
        texts += [NAMES] if NAMES in contents.metadata else []
        hint = FileHint(Metadataless(tuple(texts)))
        self.refuse_any(map(repr, texts), "has no place for the metadata", hint)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        self.ensure_loaded()
        import zarr

        ties = contents.ties
        paths = placed((name for name in contents.tensors if name not in ties), _is_path)
        own: dict[str, dict[str, str]] = {place: {} for place in paths.values()}
        root = {NAMES: json.dumps([[name, place] for name, place in paths.items()])}
        for key, text in packed(contents).items():
            place, _, attribute = key.rpartition("@")
            if place in own and attribute not in ("", DTYPE):
                own[place][attribute] = text
            else:
                root[key] = text
        group = zarr.create_group(str(path), zarr_format=3, attributes=root)
        for name, place in paths.items():
            self._write(group, place, contents.tensors[name], own[place], pump)

    def _write(
        self, group: Any, place: str, stored: Stored, attributes: dict[str, Any], pump: Pump
    ) -> None:
        own = dtype = numpy_dtype(stored.dtype)
        if stored.dtype not in ORDINARY:
            dtype = np.dtype(f"uint{8 * own.itemsize}")
            attributes = {**attributes, DTYPE: stored.dtype}
        boxes = list(slabs(stored.shape, own.itemsize, nbytes=CHUNK_BYTES))
        array = group.create_array(
            place,
            shape=stored.shape,
            chunks=lengths(boxes[0]) if boxes else tuple(max(each, 1) for each in stored.shape),
            dtype=dtype,
            compressors=None,
            filters=None,
            fill_value=0,
            attributes=attributes,
            # Otherwise a chunk of negative zeros would count as empty.
            config={"write_empty_chunks": True},
        )
        pieces = filled(pump.blocks(stored), (prod(lengths(box)) for box in boxes), own)
        for box, piece in zip(boxes, pieces, strict=True):
            array[box] = piece.view(dtype).reshape(lengths(box))


def _is_path(name: str) -> bool:
    parts = name.split("/")
    fits = is_unicode(name) and not {"\\", "\0"} & set(name) and len(name.encode()) < 1000
    return fits and all(
        part not in ("", ".", "..", JSON) and not part.startswith("__") and len(part.encode()) < 200
        for part in parts
    )


FORMAT = Zarr()
