"""Files of ``torch.save``: state dicts, checkpoints, single tensors; in the zip and older format.

https://docs.pytorch.org/docs/stable/notes/serialization.html describes the archive: ``data.pkl`` is
a pickle whose persistent ids name the storages ``data/0``, ``data/1``, …; ``byteorder`` is the byte
order of their elements.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, FileFormatError
from ..base.contents import Contents, FileFinding
from ..base.format import Format
from ..base.tree_edits import with_scalars
from .pickle import LEGACY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..base.pump import Pump
    from ..encodings.zip_archive import Archive

_MOST_METADATA = 128 << 20
_TAIL = 1 << 16
_TAR = (b"sys_info", b"storages", b"tensors", b"pickle")
_CONSTANTS = re.compile(rb"PK\x01\x02.{42}[^/]{1,200}/constants\.pkl", re.DOTALL)
"""An entry of the directory that only TorchScript archives have."""
_METADATA = "tensorferry.metadata.json"
"""The member with the metadata, which ``torch.load`` ignores."""


class PyTorch(Format):
    """Files of ``torch.save``: https://docs.pytorch.org/docs/stable/notes/serialization.html."""

    name = "pytorch"
    title = "PyTorch"
    suffixes = (".pt", ".pth", ".bin", ".ckpt")
    other_suffixes = (".pkl",)
    dtypes = frozenset(
        {
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
        }
        | {
            "float32",
            "float64",
            "complex64",
            "complex128",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e5m2",
        }
        | {"float8_e5m2fnuz", "float8_e8m0fnu"}
    )
    holds_tree = True
    holds_metadata = True
    ties = "own"
    shard_stem = "pytorch_model"
    index_suffix = ".index.json"
    rank = 2
    first_class = True

    def recognises(self, path: Path, head: bytes) -> bool:
        if LEGACY.match(head) or _is_tar(head):
            return True
        if not head.startswith(b"PK\3\4"):
            return False
        named = path.name.lower().endswith(self.suffixes) and first_member(path).partition("/")[2]
        return bool(named or first_member(path).endswith("/data.pkl")) and not is_script(path)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=False)

    def read_partly(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=True)

    def _read(self, path: Path, allow: frozenset[str], *, partly: bool) -> Contents:
        from ..encodings.zip_archive import Archive
        from ..pickles.torch import Names
        from ..pickles.torch_files import read_legacy_file, stem_of, unpickled_in

        where = os.fspath(path)
        if _is_legacy(path):
            unpickled, others = read_legacy_file(path, allow, partly=partly)
            return Contents(
                self.name,
                (where,),
                unpickled.leaves,
                {},
                unpickled.tree,
                others,
                unpickled.asks_for,
            )
        archive = Archive(path, may_lack_sums=True)
        stem = stem_of(archive)
        metadata = _metadata(archive, f"{stem}/{_METADATA}")
        vocabulary = Names(where, allow)
        vocabulary.partly = partly
        unpickled, others = unpickled_in(archive, stem, vocabulary)
        return Contents(
            self.name,
            (where,),
            unpickled.leaves,
            metadata,
            unpickled.tree,
            others,
            unpickled.asks_for,
        )

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..encodings.zip_archive import Archive
        from ..pickles.torch import Names
        from ..pickles.torch_files import asked_in, asked_in_legacy, stem_of

        if _is_legacy(path):
            return asked_in_legacy(path)
        archive = Archive(path, may_lack_sums=True)
        return asked_in(archive, stem_of(archive), Names(os.fspath(path), frozenset()))

    def refuse(self, contents: Contents) -> None:
        from ..pickles.writer import refuse_values

        refuse_values(contents)

    def as_held(self, contents: Contents) -> Contents:
        return with_scalars(contents)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        from ..encodings.zip_writer import ArchiveWriter
        from ..pickles.writer import pickled

        data, storages = pickled(contents, pump)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            writer = ArchiveWriter(descriptor)
            writer.add("archive/data.pkl", data)
            writer.add("archive/.format_version", b"1")
            writer.add("archive/.storage_alignment", b"64")
            writer.add("archive/byteorder", b"little")
            for index, stored in enumerate(storages):
                writer.add(f"archive/data/{index}", stored=stored, pump=pump)
            if contents.metadata:
                writer.add(f"archive/{_METADATA}", json.dumps(contents.metadata).encode())
            writer.add("archive/version", b"3\n")
            serial = int.from_bytes(writer.digest, "little") % 10**40
            writer.add("archive/.data/serialization_id", f"{serial:040}".encode())
            writer.finish()
        finally:
            os.close(descriptor)

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        if found is None:
            found = self.tried(path, allow)
        if _is_legacy(path):
            return super().check(path, allow=allow, found=found)
        return check_archive(path, found)


def check_archive(path: Path, contents: Contents | ConversionError) -> Iterator[FileFinding]:
    """Find what is wrong with a zip archive of tensors: the result of reading, and all members."""
    from ..encodings.zip_archive import Archive

    where = os.fspath(path)
    tensors: dict[str, str] = {}
    if isinstance(contents, ConversionError):
        yield FileFinding(where, None, None, contents.message)
    else:
        for name, stored in contents.tensors.items():
            region = getattr(stored, "region", None)
            if region is not None:
                tensors.setdefault(region.archive.member(region.index).name, name)
    try:
        archive = Archive(where, tolerant=True, may_lack_sums=True)
    except ConversionError:
        return  # the same error as above, about the directory of the archive
    with archive.held_open():
        yield from archive.findings(tensors.get)


def is_script(path: Path) -> bool:
    """Whether a zip archive is one of TorchScript, by its constants at the end."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return _CONSTANTS.search(file.read(_TAIL)) is not None


def first_member(path: Path) -> str:
    """The name of the first member of a zip archive."""
    with path.open("rb") as file:
        head = file.read(30)
        return file.read(int.from_bytes(head[26:28], "little")).decode(errors="replace")


def _is_legacy(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(64)
    if _is_tar(head):
        raise FileFormatError(
            f"{path} is a tar archive, as torch.save wrote them before 0.2: it cannot be read "
            "without running it.",
            "where it can be trusted, in Python: "
            f"import torch; torch.save(torch.load({str(path)!r}, "
            f"weights_only=False), {str(path)!r})",
        )
    return LEGACY.match(head) is not None


def _is_tar(head: bytes) -> bool:
    """Whether a file is a tar archive, as PyTorch once wrote."""
    return len(head) >= 64 and head[:64].rstrip(b"\0") in _TAR


def _metadata(archive: Archive, name: str) -> dict[str, str]:
    if name not in archive:
        return {}
    try:
        pairs: Any = json.loads(archive.read_bytes(archive[name], _MOST_METADATA))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{archive.path}: {name} is no JSON ({error}).") from None
    if type(pairs) is not dict or not all(type(value) is str for value in pairs.values()):
        raise FileFormatError(f"{archive.path}: {name} holds no strings by name.")
    return pairs


FORMAT = PyTorch()
