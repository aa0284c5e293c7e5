"""Arrow files, with pyarrow: tables, each of whose columns of numbers is a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...base.contents import Contents
from ...base.format import Format
from .ipc import MAGIC, is_stream, read_ipc
from .table import NATIVE, as_format_error

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FORMAT", "Arrow"]


class Arrow(Format):
    """Tables, of files and of streams: https://arrow.apache.org/docs/format/Columnar.html."""

    name = "arrow"
    title = "Arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")
    dtypes = frozenset(NATIVE.values())
    module = "pyarrow"
    holds_metadata = True
    writes = False
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC + b"\0\0") or is_stream(head)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        contents = Contents(self.name, (str(path),))
        with as_format_error(str(path)):
            self.read_table(str(path), contents)
        return contents

    def read_table(self, path: str, contents: Contents) -> None:
        """Read a file into `contents`."""
        read_ipc(path, contents)


FORMAT = Arrow()
