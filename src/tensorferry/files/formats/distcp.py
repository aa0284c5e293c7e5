"""Read folders of ``torch.distributed.checkpoint``, without it, as one tree of whole tensors.

``.metadata`` is a pickle that tells which file has which region of which tensor. Each region, and
each other value, is a file of ``torch.save`` inside these files
(torch/distributed/checkpoint/filesystem.py).

This module has the name of the files' suffix, so that it is tried before the format of
``torch.save``.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.dtypes import DTYPES
from ...errors import ConversionError, FileFormatError, UnsafeFileError
from ..base.contents import MOST_TENSORS, Contents, Ref, Special
from ..base.format import Format
from ..base.nesting import DEEPEST, names, relabel
from ..base.raw import mapped, read_pages
from ..base.stored import Stored
from ..base.urls import path_hint
from ..base.wording import named
from ..encodings.array_parts import is_too_large
from ..encodings.paths import is_entry, refuse_links_out

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

    import numpy as np

    from ..base.stored import FilePlace, Piece, Record
    from ..pickles.standins import InstanceOf

_METADATA = ".metadata"
_MOST_METADATA = 1 << 28
_MOST_VALUES = 1 << 28
_FEW_METADATA = 1 << 19
"""The size of the metadata for about 5,000 pieces, in bytes."""
_LEAST_RATIO = 16
"""The least ratio of data to metadata.

A piece takes about 100 bytes of metadata, and 1,500 of data without values.
"""


class TorchDistributed(Format):
    """Checkpoints of several processes.

    See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html.
    """

    name = "torch_distributed"
    title = "PyTorch, distributed"
    suffixes = (".distcp",)
    dtypes = frozenset(DTYPES)
    is_folder = True
    holds_tree = True
    writes = False
    rank = 5

    def recognises(self, path: Path, head: bytes) -> bool:
        if head:
            return self.claims(path.name)
        return (path / _METADATA).is_file()

    def claims(self, name: str) -> bool:
        return name == _METADATA or name.endswith(self.suffixes)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        from ..pickles.reader import root_of
        from ..pickles.torch_distributed import DistributedNames

        folder = _folder(path)
        refuse_links_out(folder, _METADATA)
        where = folder / _METADATA
        _refuse_fragments(folder, where)
        vocabulary = DistributedNames(os.fspath(where), allow)
        root = root_of(lambda: _pages(where), vocabulary)
        return _DistributedCheckpoint(folder, root, vocabulary.asked, allow).contents()

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..pickles.reader import globals_of
        from ..pickles.torch_distributed import DistributedNames

        where = _folder(path) / _METADATA
        _refuse_fragments(where.parent, where)
        return globals_of(lambda: _pages(where), DistributedNames(os.fspath(where), frozenset()))


def _folder(path: Path) -> Path:
    """The folder at a path; or, for the path of its metadata, the folder around it."""
    if path.is_dir():
        return path
    if path.name != _METADATA:
        raise FileFormatError(
            f"{path} is what one of several processes saved, of a checkpoint.",
            path_hint(path.parent.absolute()),
        )
    return path.parent


def _refuse_fragments(folder: Path, where: Path) -> None:
    """Raise for tens of thousands of pieces with almost no data, because each must be opened."""
    described = where.stat().st_size
    if described <= _FEW_METADATA:
        return
    with os.scandir(folder) as entries:
        held = sum(
            entry.stat().st_size for entry in entries if entry.name != _METADATA and entry.is_file()
        )
    if held < _LEAST_RATIO * described:
        raise UnsafeFileError(
            f"{where} has {described:,} bytes that say where pieces are, and those are no more "
            f"than {held:,}: out of "
            "all proportion.",
            "python -m torch.distributed.checkpoint.format_utils "
            f"dcp_to_torch {folder} OUT.pt, if you trust it",
        )


def _pages(path: Path) -> mmap.mmap:
    size = path.stat().st_size
    if size > _MOST_METADATA:
        raise UnsafeFileError(
            f"{path} is larger than {_MOST_METADATA:,} bytes, out of all proportion."
        )
    return read_pages(os.fspath(path), 0, size)


class _Item(NamedTuple):
    """The place of an item: a file, a position, and a number of bytes."""

    path: str
    offset: int
    nbytes: int


class _SavedRegion(Stored):
    """A region, whose file of ``torch.save`` is opened when it is read."""

    __slots__ = ("_inner", "_item", "_name", "dtype", "shape")

    def __init__(self, dtype: str, shape: tuple[int, ...], item: _Item, name: str) -> None:
        self.dtype = dtype
        self.shape = shape
        self._item = item
        self._name = name
        self._inner: Stored | None = None

    @property
    def inner(self) -> Stored:
        """The tensor in the file.

        Raises:
            FileFormatError: There is none, or not the one in the metadata.
            UnsafeFileError: It asks for something that is not data.
        """
        if self._inner is None:
            unpickled = _opened(self._item, frozenset())[0]
            stored = next(iter(unpickled.leaves.values()), None)
            if len(unpickled.leaves) != 1 or (
                getattr(stored, "dtype", None),
                getattr(stored, "shape", None),
            ) != (
                self.dtype,
                self.shape,
            ):
                raise FileFormatError(
                    f"{self._item.path}: at byte {self._item.offset} there is {stored!r}, where "
                    "the metadata has "
                    f"{self.dtype}{list(self.shape)} of {self._name[:200]}."
                )
            self._inner = stored
        return self._inner  # type: ignore[return-value]

    @property
    def record(self) -> Record | None:
        """The region with a checksum that contains it."""
        return getattr(self.inner, "record", None)

    @property
    def key(self) -> Hashable:
        return self._item

    def where(self, element: int) -> tuple[str | None, int | None]:
        try:
            return self.inner.where(element)
        except ConversionError:
            return self._item.path, self._item.offset

    def place(self) -> FilePlace | None:
        return self.inner.place()

    def blocks(self) -> Iterator[np.ndarray[Any, Any]]:
        return self.inner.blocks()

    def array(self, map_of: Callable[[str], mmap.mmap] = mapped) -> np.ndarray[Any, Any]:
        return self.inner.array(map_of)

    def begin(self) -> tuple[np.ndarray[Any, Any], Piece] | None:
        return self.inner.begin()

    def decoded(self) -> np.ndarray[Any, Any]:
        return self.inner.decoded()


def _opened(item: _Item, allow: frozenset[str], wrap: Any = None) -> Any:
    """The contents of a file of ``torch.save`` inside another file."""
    from ..encodings.zip_archive import Archive
    from ..pickles.torch import Names
    from ..pickles.torch_files import stem_of, unpickled_in

    archive = Archive(item.path, may_lack_sums=True, within=(item.offset, item.nbytes))
    return unpickled_in(archive, stem_of(archive), Names(item.path, allow), wrap=wrap)


class _DistributedCheckpoint:
    """A folder, by its metadata."""

    def __init__(
        self, folder: Path, root: Any, asked: dict[str, None], allow: frozenset[str]
    ) -> None:
        from ..pickles.torch_distributed import fields

        self._folder = folder
        self._where = os.fspath(folder / _METADATA)
        self._asked = dict(asked)
        self._allow = allow
        self._fields = fields
        metadata = fields(root, ".Metadata")
        self._described: Any = metadata.get("state_dict_metadata")
        places = metadata.get("storage_data")
        self._paths: Any = metadata.get("planner_data") or {}
        if (
            type(self._described) is not dict
            or type(places) is not dict
            or type(self._paths) is not dict
        ):
            raise FileFormatError(f"{self._where} does not say which tensors there are, or where.")
        if len(self._described) > MOST_TENSORS:
            raise UnsafeFileError(
                f"{self._where} has more than {MOST_TENSORS:,} tensors, out of all proportion."
            )
        self._items = self._validated(places)
        self._values_left = _MOST_VALUES

    def _validated(self, places: dict[Any, Any]) -> dict[tuple[Any, Any], _Item]:
        """The place of each region, after a check that files exist and regions do not overlap."""
        from ..pickles.torch_distributed import lengths

        validated: dict[tuple[Any, Any], _Item] = {}
        sizes: dict[str, int | None] = {}
        for index, info in places.items():
            asked, at = self._fields(index, ".MetadataIndex"), self._fields(info, "._StorageInfo")
            name, file, offset, nbytes = (
                asked.get("fqn"),
                at.get("relative_path"),
                at.get("offset"),
                at.get("length"),
            )
            if (
                type(name) is not str
                or type(file) is not str
                or type(offset) is not int
                or type(nbytes) is not int
            ):
                raise FileFormatError(
                    f"{self._where}: a place in it has no name, file, offset or length."
                )
            if at.get("transform_descriptors"):
                raise FileFormatError(
                    f"{self._where}: {name[:200]} was put through "
                    f"{at['transform_descriptors']!s:.100}, as extensions "
                    "of torch.distributed.checkpoint do; they are not known.",
                    "a checkpoint that was saved without extensions",
                )
            if not is_entry(file):
                raise UnsafeFileError(
                    f"{self._where} names the file {file[:200]!r}, which leads out of its folder."
                )
            path = os.fspath(self._folder / file)
            if file not in sizes:
                sizes[file] = os.stat(path).st_size if os.path.isfile(path) else None  # noqa: PTH116, PTH113 - plain strings
            size = sizes[file]
            if size is not None and not 0 <= offset <= offset + nbytes <= size:
                raise FileFormatError(
                    f"{path} is {size:,} bytes long; {name[:200]} should be at {offset:,}, and is "
                    f"{nbytes:,} bytes."
                )
            place = lengths(asked.get("offset"))
            item = _Item(path, offset, nbytes)
            # Several processes may tell of the same region, but it lies in one place.
            if validated.setdefault((name, place), item) != item:
                raise FileFormatError(f"{self._where} has {name[:200]} twice at {place}.")
        missing = [file for file, size in sizes.items() if size is None]
        if missing:
            raise FileFormatError(
                f"{self._where} names files that are missing: {named(missing)}.", "get them too"
            )
        self._files = tuple(os.fspath(self._folder / file) for file in sizes)
        ordered = sorted((item, name) for (name, _), item in validated.items())
        for (before, first), (after, second) in pairwise(ordered):
            if before.path == after.path and before.offset + before.nbytes > after.offset:
                raise UnsafeFileError(
                    f"{before.path}: {second[:200]} overlaps {first[:200]} at byte {after.offset}."
                )
        return validated

    def contents(self) -> Contents:
        """The contents: the tree of all tensors and values."""
        others: dict[str, str] = {}
        root: dict[Any, Any] = {}
        flat = True
        for name, described in self._described.items():
            keys = self._paths.get(name, (name,))
            if type(name) is not str or type(keys) is not tuple or not 0 < len(keys) < DEEPEST:
                raise FileFormatError(
                    f"{self._where} has no name, or place in a tree, of {str(name)[:100]}."
                )
            is_tensor = bool(self._fields(described, ".TensorStorageMetadata"))
            flat = flat and is_tensor and keys == (name,)
            if is_tensor:
                value, reason = self._tensor(name, described)
            else:
                value, reason = self._value(name)
            if reason:
                others[name] = reason
            else:
                self._put(root, keys, value)
        tree = self._listed(root)
        own = iter(names(tree, Stored))
        tensors: dict[str, Stored] = {}

        def label(stored: Stored) -> Ref:
            name = next(own)
            tensors[name] = stored
            return Ref(name)

        tree = relabel(tree, label, Stored)
        paths = (*self._files, self._where)
        return Contents(
            "torch_distributed",
            paths,
            tensors,
            {},
            None if flat else tree,
            others,
            tuple(self._asked),
        )

    def _tensor(self, name: str, described: InstanceOf) -> tuple[Any, str]:
        from ..encodings.array_parts import Region, joined
        from ..pickles.torch_distributed import lengths

        about = self._fields(described, ".TensorStorageMetadata")
        properties, shape, chunks = (
            about.get("properties"),
            lengths(about.get("size")),
            about.get("chunks"),
        )
        state = getattr(properties, "state", None)
        if type(state) is tuple and state:
            dtype = state[0]
        else:
            dtype = self._fields(properties, "").get("dtype")
        if (
            type(dtype) is not Special
            or dtype.kind != "dtype"
            or shape is None
            or type(chunks) is not list
        ):
            raise FileFormatError(
                f"{self._where} does not say of what dtype and shape {name[:200]} is."
            )
        own = str(dtype.value)
        if own not in DTYPES:
            return None, f"its dtype is torch.{own}, which has no counterpart"
        if is_too_large(shape, DTYPES[own].itemsize):
            return None, f"its shape {list(shape[:64])} is larger than that of any array"
        regions = []
        for chunk in chunks:
            inside = self._fields(chunk, ".ChunkStorageMetadata")
            start, sizes = lengths(inside.get("offsets")), lengths(inside.get("sizes"))
            if start is None or sizes is None or len(start) != len(sizes):
                raise FileFormatError(
                    f"{self._where} has a piece of {name[:200]} without a place or size."
                )
            item = self._items.get((name, start)) or (
                self._items.get((name, None)) if len(chunks) == 1 else None
            )
            if item is None:
                raise FileFormatError(
                    f"{self._where} does not say where the piece of "
                    f"{name[:200]} at {list(start)} is."
                )
            regions.append(Region(start, sizes, _SavedRegion(own, sizes, item, name)))
        return joined(self._where, name, own, shape, regions), ""

    def _value(self, name: str) -> tuple[Any, str]:
        item = self._items.get((name, None))
        if item is None:
            raise FileFormatError(f"{self._where} does not say where the value {name[:200]} is.")
        self._values_left -= item.nbytes
        if self._values_left < 0:
            raise UnsafeFileError(
                f"{self._where} has more than {_MOST_VALUES:,} bytes of values, "
                "out of all proportion."
            )
        # In a list, so that it is not taken for a mapping of only tensors.
        unpickled, others = _opened(item, self._allow, lambda root: [root])
        self._asked |= dict.fromkeys(unpickled.asks_for)
        if others:
            return None, f"it holds what cannot be converted: {next(iter(others.values()))}"
        return relabel(unpickled.tree, lambda ref: unpickled.leaves[ref.name])[0], ""

    def _put(self, root: dict[Any, Any], keys: tuple[Any, ...], value: Any) -> None:
        node: Any = root
        for key in keys[:-1]:
            if type(key) in (str, int):
                node = node.setdefault(key, _UnfinishedContainer())
            else:
                node = None
            if type(node) is not _UnfinishedContainer:
                raise FileFormatError(
                    f"{self._where} has both a value and more at {'.'.join(map(str, keys))[:200]}."
                )
        if type(keys[-1]) not in (str, int) or keys[-1] in node:
            raise FileFormatError(
                f"{self._where} has two values at {'.'.join(map(str, keys))[:200]}."
            )
        node[keys[-1]] = value

    def _listed(self, node: Any) -> Any:
        """The original containers: those with indices as keys are lists."""
        made = {
            key: self._listed(child) if type(child) is _UnfinishedContainer else child
            for key, child in node.items()
        }
        numbered = [key for key in made if type(key) is int]
        if not numbered:
            return made
        if len(numbered) != len(made) or sorted(numbered) != list(range(len(made))):
            raise FileFormatError(f"{self._where} has a list with places {named(made)}.")
        return [made[index] for index in range(len(made))]


class _UnfinishedContainer(dict[Any, Any]):
    """A container, while the tree is built."""


FORMAT = TorchDistributed()
