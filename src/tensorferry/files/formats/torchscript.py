"""TorchScript archives by `torch.jit.save`: the tensors and constants of a module.

Its program is ignored.

https://github.com/pytorch/pytorch/blob/main/torch/csrc/jit/docs/serialization.md describes the
archive: ``data.pkl`` has the module, ``constants.pkl`` the tensors that the code in ``code/`` uses;
each has a folder of storages.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...core.dtypes import DTYPES
from ...errors import FileFormatError
from ..base.contents import Contents
from ..base.format import Format
from .pytorch import check_archive, is_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...errors import ConversionError
    from ..base.contents import FileFinding
    from ..encodings.zip_archive import Archive

_CONSTANTS = "CONSTANTS"
"""The name of the constants in the code, whose attributes are ``c0``, ``c1``, …"""


class TorchScript(Format):
    """TorchScript: parameters, buffers, attributes and constants, by their paths of attributes."""

    name = "torchscript"
    title = "TorchScript"
    suffixes = (".torchscript", ".ptl")
    dtypes = frozenset(DTYPES)
    holds_tree = True
    writes = False
    rank = 3

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(b"PK\3\4") and is_script(path)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        from ..pickles.torch_files import ScriptNames, unpickled_in

        archive, stem = _opened(path)
        where = os.fspath(path)
        unpickled, others = unpickled_in(archive, stem, ScriptNames(where, allow))
        tree = unpickled.tree if unpickled.tree is not None else {}
        made = Contents(self.name, (where,), unpickled.leaves, {}, tree, others, unpickled.asks_for)

        def named(root: Any) -> Any:
            if type(root) is not tuple or type(tree) is not dict:
                raise FileFormatError(
                    f"{where}: its constants are no tuple, or its module is no object."
                )
            if root and _CONSTANTS in tree:
                raise FileFormatError(
                    f"{where}: its module has an attribute {_CONSTANTS}, and there are constants."
                )
            if root:
                return {_CONSTANTS: {f"c{index}": value for index, value in enumerate(root)}}
            return {}

        constants, besides = unpickled_in(
            archive, stem, ScriptNames(where, allow), "constants", wrap=named
        )
        made.tensors |= constants.leaves
        made.tree = {**tree, **(constants.tree or {})}
        made.others |= besides
        made.asks_for = tuple(dict.fromkeys((*made.asks_for, *constants.asks_for)))
        return made

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..pickles.torch_files import ScriptNames, asked_in

        archive, stem = _opened(path)
        asked = (
            asked_in(archive, stem, ScriptNames(os.fspath(path), frozenset()), folder)
            for folder in ("data", "constants")
        )
        return tuple(dict.fromkeys(name for names in asked for name in names))

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        return check_archive(path, self.tried(path, allow) if found is None else found)


def _opened(path: Path) -> tuple[Archive, str]:
    from ..encodings.zip_archive import Archive
    from ..pickles.torch_files import stem_of

    archive = Archive(path, may_lack_sums=True)
    stem = stem_of(archive)
    if f"{stem}/constants.pkl" not in archive:
        raise FileFormatError(
            f"{path}: there is no {stem}/constants.pkl in it, as TorchScript has it."
        )
    return archive, stem


FORMAT = TorchScript()
