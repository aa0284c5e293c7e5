"""Arrow files, with pyarrow: a table with a column for each tensor."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, ClassVar

from ....core.dtypes import DTYPES
from ...base.contents import Contents
from ...base.format import Format
from ...base.tree_strings import packed, unpacked
from ...base.wording import METADATA_LESS, FileHint
from .ipc import MAGIC, is_stream, read_ipc, write_ipc
from .table import COMPLEX, LAYOUT, as_format_error, is_reserved, is_table

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.pump import Pump

__all__ = ["FORMAT", "Arrow"]

_MOST_LIST = (1 << 31) - 1


class Arrow(Format):
    """Tables of tensors, https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor.

    Tensors whose first axes have equal lengths are columns, with a row for each index of that axis. Other tensors are
    in a single row. Dtypes without an Arrow type are written as unsigned integers (bfloat16, float8, int4; also bool,
    which Arrow packs into bits) or as pairs of floats (complex), with the dtype in the column's metadata. Streams can
    be read, but are not written.
    """

    name = "arrow"
    title = "Arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")
    dtypes = frozenset(DTYPES)
    module = "pyarrow"
    holds_tree = True
    holds_metadata = True
    unicode_only = True
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC + b"\0\0") or is_stream(head)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        contents = Contents(self.name, (str(path),))
        with as_format_error(str(path)):
            self.read_table(str(path), contents)
        contents.metadata.pop(LAYOUT, None)
        return unpacked(contents)

    def refuse(self, contents: Contents) -> None:
        super().refuse(contents)
        taken = [repr(key) for key in contents.metadata if is_reserved(key)]
        self.refuse_any(taken, "cannot hold metadata under these names", METADATA_LESS)
        start = 1 if is_table(contents) else 0
        long = [
            name
            for name, stored in contents.tensors.items()
            if prod(stored.shape[start:]) * (1 + (stored.dtype in COMPLEX)) > _MOST_LIST
        ]
        what = f"holds no more than {_MOST_LIST} numbers in a row, and these have more"
        self.refuse_any(long, what, FileHint("another to=, or exclude=[…]", "another to=, or x without them"))

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        self.ensure_loaded()
        self.write_table(contents, packed(contents), path, pump)

    def read_table(self, path: str, contents: Contents) -> None:
        """Read a file into `contents`."""
        read_ipc(path, contents)

    def write_table(self, contents: Contents, metadata: dict[str, str], path: Path, pump: Pump) -> None:
        """Write a new file."""
        write_ipc(contents, metadata, path, pump)


FORMAT = Arrow()
