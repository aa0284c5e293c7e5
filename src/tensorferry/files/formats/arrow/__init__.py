"""Arrow files, with pyarrow: tables, whose columns are read by the rules for tables in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ....core.dtypes import ORDINARY
from ....errors import ConversionError, FrameworkNotInstalledError, UnsafeFileError
from ...base.contents import Contents, FileFinding, NotTensor
from ...base.format import Format
from ...encodings.columns import validate_column
from .ipc import MAGIC, is_stream, read_ipc
from .table import as_format_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["FORMAT", "Arrow"]


class Arrow(Format):
    """Tables, https://arrow.apache.org/docs/format/Columnar.html, in files and in streams."""

    name = "arrow"
    title = "Arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")
    dtypes = frozenset(name for name in ORDINARY if not name.startswith("complex"))
    module = "pyarrow"
    holds_metadata = True
    writes = False
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC + b"\0\0") or is_stream(head)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        contents = Contents(self.name, (str(path),), columns={})
        with as_format_error(str(path)):
            self.read_table(str(path), contents)
        return contents

    def read_table(self, path: str, contents: Contents) -> None:
        """Read a file into `contents`."""
        read_ipc(path, contents)

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        contents = self.tried(path, allow) if found is None else found
        if isinstance(contents, UnsafeFileError | FrameworkNotInstalledError):
            raise contents
        if isinstance(contents, ConversionError):
            yield FileFinding(str(path), None, None, contents.message)
            return
        columns = contents.columns or {}
        for name, why in contents.others.items():
            if name not in columns and not isinstance(why, NotTensor):
                yield FileFinding(str(path), None, name, f"it is not looked at: {why}", error=False)
        for name, column in columns.items():
            if isinstance(contents.others.get(name), NotTensor):
                continue
            try:
                validate_column(column)
            except ConversionError as error:
                yield FileFinding(str(path), None, name, error.message)


FORMAT = Arrow()
