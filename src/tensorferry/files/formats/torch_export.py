"""Archives of `torch.export.save`: the weights and constants of a program.

The program itself is ignored.

Since PyTorch 2.8 they have a member for each storage, and JSON that describes the tensors
(torch/export/pt2_archive). Before, the weights were in a file of ``torch.save`` inside,
``serialized_state_dict.pt``.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ...core.dtypes import DTYPES
from ...errors import FileFormatError
from ..base.contents import Contents, NotTensor, Special
from ..base.format import Format
from .pytorch import check_archive, first_member

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...errors import ConversionError
    from ..base.contents import FileFinding
    from ..encodings.zip_archive import Archive
    from ..pickles.torch import Names

_MOST_JSON = 64 << 20
_INSIDE = ("serialized_state_dict.pt", "serialized_constants.pt")
_FIRST = ("version", "archive_format", *_INSIDE, "serialized_exported_program.json")
_FOLDERS = {"data/weights": "_weights_config.json", "data/constants": "_constants_config.json"}
"""The folders of storages, and the ends of their descriptions' names, after the model's name."""
_STRIDED = 7
_KINDS = {
    **dict(
        enumerate(
            (
                "uint8",
                "int8",
                "int16",
                "int32",
                "int64",
                "float16",
                "float32",
                "float64",
                "complex32",
            ),
            1,
        )
    ),
    **dict(enumerate(("complex64", "complex128", "bool", "bfloat16"), 10)),
    **dict(
        enumerate(
            ("uint16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 28
        )
    ),
    **dict(enumerate(("float8_e8m0fnu", "uint32", "uint64"), 33)),
}
"""``ScalarType`` in torch/_export/serde/schema.py."""


class TorchExport(Format):
    """Programs of `torch.export`.

    See https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export/pt2_archive.html.
    """

    name = "torch_export"
    title = "torch.export"
    suffixes = (".pt2",)
    dtypes = frozenset(DTYPES)
    holds_tree = True
    writes = False
    rank = 4

    def recognises(self, path: Path, head: bytes) -> bool:
        if not head.startswith(b"PK\3\4"):
            return False
        first = first_member(path)
        inner = first.partition("/")[2]
        return (
            first in _FIRST
            or self.claims(path.name)
            or inner.startswith((*_FOLDERS, "archive_format"))
        )

    def claims(self, name: str) -> bool:
        return name.endswith(self.suffixes)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        from ..encodings.zip_archive import Archive

        archive = Archive(path, may_lack_sums=True)
        if archive.names:
            stem = archive.names[0].partition("/")[0]
        else:
            stem = ""
        contents = Contents(self.name, (os.fspath(path),))
        if f"{stem}/archive_format" in archive:
            _read_members(archive, stem, contents)
        elif _INSIDE[0] in archive:
            for name in _INSIDE:
                if name in archive:
                    _read_inside(archive, name, contents, allow)
        else:
            raise FileFormatError(
                f"{path} is a zip archive, but has no weights as torch.export.save writes them."
            )
        return contents

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        return check_archive(path, self.tried(path, allow) if found is None else found)


def _read_inside(archive: Archive, name: str, contents: Contents, allow: frozenset[str]) -> None:
    """A file of ``torch.save`` that is a member."""
    from ..encodings.zip_archive import Archive
    from ..pickles.torch import Names
    from ..pickles.torch_files import stem_of, unpickled_in

    record = archive.record(archive[name])
    inner = Archive(archive.path, may_lack_sums=True, within=(record.offset, record.nbytes))
    unpickled, others = unpickled_in(inner, stem_of(inner), Names(archive.path, allow))
    contents.asks_for = tuple(dict.fromkeys((*contents.asks_for, *unpickled.asks_for)))
    _add(contents, archive, unpickled.leaves, others)


def _add(
    contents: Contents, archive: Archive, tensors: dict[str, Any], others: dict[str, str]
) -> None:
    twice = (contents.tensors.keys() | contents.others.keys()) & (tensors.keys() | others.keys())
    if twice:
        raise FileFormatError(f"{archive.path} has two tensors named {min(twice)}.")
    contents.tensors |= tensors
    contents.others |= others


def _read_members(archive: Archive, stem: str, contents: Contents) -> None:
    """Each storage as a member, described in JSON."""
    from ..pickles.torch_files import ArchiveResolver

    configs: list[tuple[str, str, str]] = []
    for folder, ending in _FOLDERS.items():
        prefix = f"{stem}/{folder}/"
        configs += [
            (folder, name, name[len(prefix) : -len(ending)])
            for name in archive.names
            if name.startswith(prefix) and name.endswith(ending)
        ]
    several = len({model for _, _, model in configs}) > 1
    names = _config_names(archive.path)
    resolvers = {folder: ArchiveResolver(archive, stem, folder) for folder in _FOLDERS}
    for folder, member, model in configs:
        tensors: dict[str, Any] = {}
        for name, described in _entries(archive, member):
            place = f"{stem}/{folder}/{described.get('path_name')}"
            meta = described.get("tensor_meta")
            if described.get("use_pickle") is not False or type(meta) is not dict:
                leaf: Any = "it is pickled there, as an object of a class is"
            elif place not in archive:
                raise FileFormatError(
                    f"{archive.path}: the bytes of {name[:100]}, {place[:200]}, are not there."
                )
            else:
                leaf = _leaf(names, described["path_name"], archive[place].size, meta)
            tensors[f"{model}.{name}" if several else name] = leaf
        others = {}
        for name, leaf in tensors.items():
            resolved = leaf if type(leaf) is str else resolvers[folder](name, leaf)
            if isinstance(resolved, str):
                others[name] = (
                    NotTensor(resolved)
                    if folder == "data/constants" and type(leaf) is str
                    else resolved
                )
            tensors[name] = resolved
        _add(
            contents,
            archive,
            {name: resolved for name, resolved in tensors.items() if name not in others},
            others,
        )


def _entries(archive: Archive, member: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        config: Any = json.loads(archive.read_bytes(archive[member], _MOST_JSON))["config"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"{archive.path}: {member} is no JSON with a config ({type(error).__name__})."
        ) from None
    for name, described in config.items() if type(config) is dict else [("", None)]:
        if type(described) is not dict or type(described.get("path_name")) is not str:
            raise FileFormatError(f"{archive.path}: {member} does not say where {name[:100]!r} is.")
        yield name, described


def _config_names(where: str) -> Names:
    from ..pickles.torch import Names

    class Described(Names):
        def wrong(self, what: str) -> FileFormatError:
            return FileFormatError(f"{self.where}: its JSON {what}.")

    return Described(where, frozenset())


def _leaf(names: Names, key: str, nbytes: int, meta: dict[str, Any]) -> Any:
    from ..pickles.standins import OtherOf, StorageOf

    if meta.get("layout") != _STRIDED:
        return OtherOf("it is sparse")
    kind = meta.get("dtype")
    if type(kind) is not int or kind not in _KINDS:
        raise names.wrong(f"describes a tensor of an unknown dtype, {str(kind)[:50]}")
    sizes, strides = (
        tuple(map(_whole, told)) if type(told) is list else None
        for told in (meta.get("sizes"), meta.get("strides"))
    )
    storage = StorageOf(key, "uint8", nbytes, "storage")
    offset = _whole(meta.get("storage_offset"))
    return names.tensor_v3(
        storage, offset, sizes, strides, False, (), Special("dtype", _KINDS[kind])
    )


def _whole(told: Any) -> Any:
    """A number in the schema, which may be tagged with its kind."""
    return told.get("as_int") if type(told) is dict else told


FORMAT = TorchExport()
