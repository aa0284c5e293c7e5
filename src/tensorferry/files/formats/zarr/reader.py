"""Read folders of Zarr: descriptions are read here, and values by the library."""

from __future__ import annotations

import json
import os
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.dtypes import DTYPES, find
from ....errors import FileFormatError, UnsafeFileError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import NotTensor
from ...base.nesting import DEEPEST
from ...base.stored import Decoded, Extent
from ...encodings.paths import size_of
from ...encodings.shapes import is_bomb
from ...encodings.slabs import slabs
from .nodes import description_of, layout_of, node_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...base.contents import Contents
    from ...base.stored import Stored
    from .nodes import ArrayLayout, ZarrNode

__all__ = ["CHUNK_BYTES", "DTYPE", "ArrayCollector"]

DTYPE = "tensorferry.dtype"
"""The attribute with the dtype, for an array of unsigned integers that stand for it."""
CHUNK_BYTES = 1 << 22
_LONE = "tensor"
_MOST_TEXT = 1 << 26


class ArrayCollector:
    """Collects the arrays of a folder in contents."""

    def __init__(self, root: Path, contents: Contents) -> None:
        self._root = root
        self._contents = contents
        self._text = 0

    def node(self, folder: str, description: str, path: str, depth: int) -> None:
        """Collect an array, or all arrays of a group, by their paths.

        `description` is the name of the file with it.
        """
        if depth > DEEPEST:
            raise UnsafeFileError(f"{self._root} nests deeper than {DEEPEST} groups, at {path!r}.")
        node = node_of(folder, description, self._read)
        attributes = node.attributes
        if node.is_array:
            name = path or _LONE
            found = _array(folder, node)
            if isinstance(found, str):
                self._contents.others[name] = found
            else:
                self._contents.tensors[name] = found
                attributes.pop(DTYPE, None)
            if any(node.described.get("dimension_names") or ()):
                attributes.setdefault("dimension_names", node.described["dimension_names"])
        for key, value in attributes.items():
            text = value if isinstance(value, str) else json.dumps(value)
            self._contents.metadata[f"{path}@{key}" if path else key] = text
        if not node.is_array:
            self._group(folder, path, depth)

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            self._text += os.fstat(file.fileno()).st_size
            if self._text > _MOST_TEXT:
                raise UnsafeFileError(
                    f"{self._root} has more than {_MOST_TEXT} bytes of JSON, at {path}."
                )
            return file.read()

    def _group(self, folder: str, path: str, depth: int) -> None:
        with os.scandir(folder) as entries:
            inner = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for name, is_folder in inner:
            below = f"{path}/{name}" if path else name
            place = os.path.join(folder, name)
            description = description_of(place)
            if description is None:
                continue
            if is_folder:
                self.node(place, description, below, depth + 1)
            else:
                self._contents.others[below] = NotTensor(
                    "a symbolic link to a folder, which is not followed"
                )


def _array(folder: str, node: ZarrNode) -> Stored | str:
    layout = layout_of(node)
    if isinstance(layout, str):
        return layout
    kind, shape = layout.kind, layout.shape
    dtype, itemsize = node.attributes.get(DTYPE, kind), find(kind).itemsize
    fits = isinstance(dtype, str) and dtype in DTYPES and find(dtype).itemsize == itemsize
    if not fits or (dtype != kind and not kind.startswith("uint")):
        raise FileFormatError(
            f"{node.where}: the attribute {DTYPE!r} says {dtype!r:.40}, which is no dtype of {kind}."
        )
    if layout.lone is not None and os.path.isfile(
        lone := os.path.join(folder, *layout.lone.split("/"))
    ):
        stored = Extent(dtype, shape, lone, 0)
        held = os.path.getsize(lone)
        if held != stored.nbytes:
            raise FileFormatError(f"{lone} has {held} bytes; its shape needs {stored.nbytes}.")
        return stored
    declared = max(prod(shape), prod(layout.chunks) if prod(shape) else 0) * itemsize
    # The size of the folder is read only for large arrays.
    if is_bomb(declared, 0) and is_bomb(declared, held := size_of(folder)):
        raise UnsafeFileError(
            f"{folder} is out of all proportion: {declared} bytes are declared in {held}."
        )
    return Decoded(dtype, shape, _reading(Path(folder), layout, dtype), (folder,))


def _reading(folder: Path, layout: ArrayLayout, dtype: str) -> Any:
    itemsize = find(dtype).itemsize

    def read() -> Iterator[np.ndarray[Any, Any]]:
        from zarr import Array, AsyncArray
        from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
        from zarr.storage import LocalStore, StorePath

        from .bounded import bounded

        class Store(LocalStore):  # type: ignore[misc, unused-ignore]  # without zarr it has no types
            async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
                _refuse_long(folder / key, most)
                return await super().get(key, prototype, byte_range)

        try:
            described: Any = (
                ArrayV3Metadata if layout.plain["zarr_format"] == 3 else ArrayV2Metadata
            ).from_dict(dict(layout.plain))
            described, most = bounded(described, prod(layout.chunks) * itemsize, itemsize)
            store = StorePath(Store(str(folder), read_only=True), "")
            array: Any = Array(AsyncArray(metadata=described, store_path=store))
            for box in slabs(layout.shape, itemsize, layout.chunks, 2 * CHUNK_BYTES):
                values = np.asarray(array[box])
                yield values.astype(values.dtype.newbyteorder("="), copy=False).view(
                    numpy_dtype(dtype)
                )
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{folder}: {error}") from error
        except Exception as error:  # each codec has its own exceptions
            raise FileFormatError(
                f"{folder} cannot be read as Zarr: {type(error).__name__}: {error}."
            ) from error

    return read


def _refuse_long(path: Path, most: int) -> None:
    """Raise for a chunk file that is longer than a chunk can be, before it is read."""
    held = path.stat().st_size if path.is_file() else 0
    if held > most:
        raise UnsafeFileError(
            f"{path.name} has {held:,} bytes, where a chunk has {most:,} at most: a bomb."
        )
