"""Zip files of ``torch.save``: state dicts, checkpoints, single tensors.

https://docs.pytorch.org/docs/stable/notes/serialization.html describes the archive: ``data.pkl`` is a pickle whose
persistent ids name the storages ``data/0``, ``data/1``, …; ``byteorder`` says how their elements stand.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, FileFormatError
from ..base.contents import Contents, FileFinding
from ..base.format import Format
from ..pickles.bare import bare_pickle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..base.pump import Pump
    from ..encodings.zip_archive import Archive

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
        {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16"}
        | {"float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"}
        | {"float8_e5m2fnuz", "float8_e8m0fnu"}
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
        from ..pickles.resolver import Resolver

        self._refuse_legacy(path)
        archive = Archive.open(path, may_lack_sums=True)
        stem = _stem(archive)
        where = os.fspath(path)
        pickle = archive[f"{stem}/data.pkl"]
        resolve = Resolver(archive, stem)
        metadata = _metadata(archive, f"{stem}/{_METADATA}")
        archive.forget_names()
        found = unpickle(lambda: archive.read_pages(pickle, _MOST_PICKLE), pickle.size, where, allow)
        # In the same dict, so that there are never both kinds of so many tensors.
        tensors: dict[str, Any] = found.leaves
        others = {}
        for name, leaf in tensors.items():
            resolved = tensors[name] = resolve(name, leaf)
            if isinstance(resolved, str):
                others[name] = resolved
        for name in others:
            del tensors[name]
        others |= {name if name not in tensors else f"{name}@": why for name, why in found.besides.items()}
        return Contents(self.name, (where,), tensors, metadata, found.tree, others, found.asks_for)

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..encodings.zip_archive import Archive
        from ..pickles.reader import globals_of

        self._refuse_legacy(path)
        archive = Archive.open(path, may_lack_sums=True)
        pickle = archive[f"{_stem(archive)}/data.pkl"]
        return globals_of(lambda: archive.read_pages(pickle, _MOST_PICKLE), os.fspath(path))

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

    def check(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Iterator[FileFinding]:
        from ..encodings.zip_archive import Archive

        where = os.fspath(path)
        tensors: dict[str, str] = {}
        try:
            for name, stored in self.read(path, allow=allow).tensors.items():
                region = getattr(stored, "region", None)
                if region is not None:
                    tensors.setdefault(region.archive.member(region.index).name, name)
        except ConversionError as error:
            yield FileFinding(where, None, None, error.message)
        try:
            archive = Archive(where, tolerant=True, may_lack_sums=True)
        except ConversionError:
            return  # The same error as above, of the archive's own directory.
        with archive.held_open():
            yield from archive.findings(tensors.get)

    def _is_named(self, path: Path) -> bool:
        return path.name.lower().endswith(self.suffixes)

    @staticmethod
    def _refuse_legacy(path: Path) -> None:
        with path.open("rb") as file:
            head = file.read(64)
        if head.startswith(b"PK"):
            return
        if not head.startswith(_LEGACY[:-1]):
            raise bare_pickle(path)
        name = str(path)
        raise FileFormatError(
            f"{path} is a bare pickle, as torch.save wrote it before 1.6: it cannot be read without running it.",
            "where it can be trusted, in Python: "
            f"import torch; torch.save(torch.load({name!r}, weights_only=True), {name!r})",
        )


def _first_member(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(30)
        return file.read(int.from_bytes(head[26:28], "little")).decode(errors="replace")


def _is_other_zip(path: Path) -> bool:
    return not _first_member(path).partition("/")[2]


def _stem(archive: Archive) -> str:
    stems = [
        name.removesuffix("/data.pkl") for name in archive.names if name.endswith("/data.pkl") and name.count("/") == 1
    ]
    if len(stems) != 1:
        raise FileFormatError(f"{archive.path} is a zip archive, but has no data.pkl as torch.save writes it.")
    code = f"{stems[0]}/code/"
    if f"{stems[0]}/constants.pkl" in archive or any(name.startswith(code) for name in archive.names):
        raise FileFormatError(
            f"{archive.path} is a TorchScript archive: it holds a program, and its weights belong to that.",
            "where it can be trusted, in Python: import torch; "
            f"torch.save(torch.jit.load({archive.path!r}).state_dict(), 'weights.pt')",
        )
    return stems[0]


def _metadata(archive: Archive, name: str) -> dict[str, str]:
    if name not in archive:
        return {}
    try:
        found: Any = json.loads(archive.read_bytes(archive[name], _MOST_PICKLE))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{archive.path}: {name} is no JSON ({error}).") from None
    if type(found) is not dict or not all(type(value) is str for value in found.values()):
        raise FileFormatError(f"{archive.path}: {name} holds no strings by name.")
    return found


FORMAT = PyTorch()
