"""Zip files of ``torch.save``: state dicts, checkpoints, single tensors.

https://docs.pytorch.org/docs/stable/notes/serialization.html describes the archive: ``data.pkl`` is a pickle whose
persistent ids name the storages ``data/0``, ``data/1``, …; ``byteorder`` says how their elements stand.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ..dtypes import by_numpy, find
from ..errors import ConversionError, FileFormatError
from ..files.contents import Contents, Finding
from ..files.format import Format
from ..files.stored import InMemory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..encodings.zip_archive import Archive
    from ..encodings.zip_tensors import ZipExtent, ZipView
    from ..files.pump import Pump
    from ..files.stored import Stored
    from ..pickles.standins import TensorOf

_MOST_PICKLE = 128 << 20
_LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
"""The pickled magic number of files from before PyTorch 1.6 (torch/serialization.py, MAGIC_NUMBER)."""
_METADATA = "tensorferry.metadata.json"
"""Strings by name, in a member that ``torch.load`` does not look at."""


class PyTorch(Format):
    """Zip files of ``torch.save``: https://docs.pytorch.org/docs/stable/notes/serialization.html."""

    name = "pytorch"
    title = "PyTorch"
    suffixes = (".pt", ".pth", ".bin", ".ckpt")
    dtypes = frozenset(
        [
            "bool",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "complex64",
            "complex128",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e5m2",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
        ]
    )
    holds_tree = True
    holds_metadata = True
    shard_stem = "pytorch_model"
    index_suffix = ".index.json"
    rank = 2
    first_class = True

    def recognises(self, path: Path, head: bytes) -> bool:
        if head.startswith(_LEGACY[:-1]):
            return True
        if head.startswith(b"PK\3\4"):
            return _first_member(path).endswith("/data.pkl") or (self._is_named(path) and not _is_other_zip(path))
        return self._is_named(path) and head[:1] == b"\x80" and head[1:2] <= b"\5"

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        from ..encodings.zip_archive import Archive
        from ..pickles.reader import unpickle

        self._refuse_legacy(path)
        archive = Archive.open(path)
        stem = _stem(archive)
        where = os.fspath(path)
        found = unpickle(archive.read_bytes(archive[f"{stem}/data.pkl"], _MOST_PICKLE), where, allow)
        resolve = _Resolver(archive, stem)
        # In the same dict, so that there are never both kinds of so many tensors.
        tensors: dict[str, Any] = found.leaves
        others = {}
        for name, leaf in tensors.items():
            resolved = tensors[name] = resolve(name, leaf)
            if isinstance(resolved, str):
                others[name] = resolved
        for name in others:
            del tensors[name]
        contents = Contents(self.name, (where,), tensors, tree=found.tree, others=others, asks_for=found.asks_for)
        if f"{stem}/{_METADATA}" in archive:
            contents.metadata.update(_metadata(archive, f"{stem}/{_METADATA}"))
        return contents

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..encodings.zip_archive import Archive
        from ..pickles.reader import globals_of

        self._refuse_legacy(path)
        archive = Archive.open(path)
        data = archive.read_bytes(archive[f"{_stem(archive)}/data.pkl"], _MOST_PICKLE)
        return globals_of(data, os.fspath(path))

    def refuse(self, contents: Contents) -> None:
        from ..pickles.torch_writer import refuse_values

        super().refuse(contents)
        refuse_values(contents)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        from ..encodings.zip_writer import ArchiveWriter
        from ..pickles.torch_writer import pickled

        data, storages = pickled(contents, pump)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            writer = ArchiveWriter(descriptor)
            writer.add("archive/data.pkl", data)
            writer.add("archive/.format_version", b"1")
            writer.add("archive/.storage_alignment", b"64")
            writer.add("archive/byteorder", b"little")
            for place, stored in enumerate(storages):
                writer.add(f"archive/data/{place}", stored=stored, pump=pump)
            if contents.metadata:
                writer.add(f"archive/{_METADATA}", json.dumps(contents.metadata).encode())
            writer.add("archive/version", b"3\n")
            serial = int.from_bytes(writer.digest, "little") % 10**40
            writer.add("archive/.data/serialization_id", f"{serial:040}".encode())
            writer.finish()
        finally:
            os.close(descriptor)

    def check(self, path: Path) -> Iterator[Finding]:
        from ..encodings.zip_archive import Archive

        where = os.fspath(path)
        tensors: dict[str, str] = {}
        try:
            for name, stored in self.read(path).tensors.items():
                region = getattr(stored, "region", None)
                if region is not None:
                    tensors.setdefault(region.archive.member(region.index).name, name)
        except ConversionError as error:
            yield Finding(where, None, None, error.message)
        try:
            archive = Archive(where, tolerant=True)
        except ConversionError:
            return  # The same error as above, of the archive's own directory.
        yield from archive.findings(tensors.get)

    def _is_named(self, path: Path) -> bool:
        return path.name.lower().endswith(self.suffixes)

    @staticmethod
    def _refuse_legacy(path: Path) -> None:
        with path.open("rb") as file:
            head = file.read(64)
        if head.startswith(b"PK"):
            return
        what = "is of the form that PyTorch wrote before 1.6" if head.startswith(_LEGACY[:-1]) else "is a bare pickle"
        raise FileFormatError(
            f"{path} {what}: it cannot be read without running it.",
            "where it can be trusted: torch.save(torch.load(path, weights_only=True), path), with PyTorch 1.6 or newer",
        )


def _first_member(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(30)
        return file.read(int.from_bytes(head[26:28], "little")).decode(errors="replace")


def _is_other_zip(path: Path) -> bool:
    return not _first_member(path).partition("/")[2]


def _stem(archive: Archive) -> str:
    stems = [name.removesuffix("/data.pkl") for name in archive if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(stems) != 1:
        raise FileFormatError(f"{archive.path} is a zip archive, but has no data.pkl as torch.save writes it.")
    code = f"{stems[0]}/code/"
    if f"{stems[0]}/constants.pkl" in archive or any(name.startswith(code) for name in archive):
        raise FileFormatError(
            f"{archive.path} is a TorchScript archive: it holds a program, and its weights belong to that.",
            "where it can be trusted: torch.save(torch.jit.load(path).state_dict(), 'weights.pt')",
        )
    return stems[0]


def _metadata(archive: Archive, name: str) -> dict[str, str]:
    try:
        found: Any = json.loads(archive.read_bytes(archive[name], _MOST_PICKLE))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{archive.path}: {name} is no JSON ({error}).") from None
    if type(found) is not dict or not all(type(value) is str for value in found.values()):
        raise FileFormatError(f"{archive.path}: {name} holds no strings by name.")
    return found


class _Resolver:
    """From a pickle's stand-ins to places in the archive."""

    def __init__(self, archive: Archive, stem: str) -> None:
        from ..encodings.zip_tensors import Region, ZipExtent, ZipTurned, ZipView
        from ..pickles.standins import ArrayOf, OtherOf, StorageOf

        self.archive = archive
        self.prefix = f"{stem}/data/"
        self.regions: dict[str, Region] = {}
        self.make = (Region, ZipExtent, ZipView, ZipTurned)
        self.array, self.storage, self.other = ArrayOf, StorageOf, OtherOf
        self.layouts: dict[Any, tuple[tuple[int, ...], int, tuple[int, ...] | None]] = {}
        self.swapped = False
        byteorder = f"{stem}/byteorder"
        if byteorder in archive:
            order = archive.read_bytes(archive[byteorder], 16)
            if order not in (b"little", b"big"):
                raise FileFormatError(f"{archive.path}: its byteorder is {order!r}, neither little nor big.")
            self.swapped = order == b"big"

    def __call__(self, name: str, leaf: Any) -> Stored | str:
        kind = type(leaf)
        if kind is self.other:
            return str(leaf.reason)
        if kind is self.array:
            if leaf.values is None:
                if leaf.reason is None:
                    raise FileFormatError(
                        f"{self.archive.path}: its pickle has an array of NumPy, {name}, without values."
                    )
                return str(leaf.reason)
            return InMemory(leaf.values, by_numpy()[leaf.values.dtype], (self.archive.path, "pickle", id(leaf)))
        if kind is self.storage:
            if leaf.dtype is None:
                return "it is quantised"
            return self.make[1](leaf.dtype, (leaf.size,), self.region(name, leaf), 0, swapped=self.swapped)
        return self.tensor(name, leaf)

    def region(self, name: str, storage: Any) -> Any:
        region = self.regions.get(storage.key)
        if region is None:
            index = self.archive.place(self.prefix + storage.key)
            if index is None:
                raise FileFormatError(f"{self.archive.path}: the bytes of {name}, data/{storage.key}, are not there.")
            if self.archive.size(index) != storage.size * find(storage.dtype).itemsize:
                member = self.archive.member(index)
                raise FileFormatError(
                    f"{self.archive.path}: the bytes of {name}, data/{storage.key} (at byte {member.header}), are "
                    f"{member.size:,}; its pickle says {storage.size:,} elements of {storage.dtype}."
                )
            if self.archive.is_deflated(index):
                raise FileFormatError(
                    f"{self.archive.path}: the bytes of {name}, data/{storage.key}, are compressed.",
                    "load it with torch, and save it again",
                )
            region = self.regions[storage.key] = self.make[0](self.archive, index)
        return region

    def layout(self, leaf: TensorOf) -> tuple[tuple[int, ...], int, tuple[int, ...] | None]:
        key = (leaf.shape, leaf.strides, leaf.dtype)
        found = self.layouts.get(key)
        if found is None:
            itemsize = find(leaf.dtype).itemsize
            packed = _is_packed(leaf.shape, leaf.strides)
            strides = None if packed else tuple(step * itemsize for step in leaf.strides)
            found = self.layouts[key] = (leaf.shape, itemsize, strides)
        return found

    def tensor(self, name: str, leaf: TensorOf) -> Stored:
        region = self.region(name, leaf.storage)
        _, extent, view, turned = self.make
        shape, itemsize, strides = self.layout(leaf)
        start = leaf.offset * itemsize
        swapped = self.swapped and itemsize > 1
        stored: ZipExtent | ZipView
        if strides is None:
            stored = extent(leaf.dtype, shape, region, start, swapped=swapped)
        else:
            stored = view(leaf.dtype, shape, region, start, strides, swapped=swapped)
        return turned(stored, conj=leaf.conj, neg=leaf.neg) if leaf.conj or leaf.neg else stored


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length == 0:
            return True
        if length != 1:
            if stride != step:
                return False
            step *= length
    return True


FORMAT = PyTorch()
