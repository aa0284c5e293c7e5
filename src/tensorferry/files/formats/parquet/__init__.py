"""Parquet, by pyarrow: tables, whose columns are read by the rules for tables in memory."""

from __future__ import annotations

import weakref
from collections import Counter, deque
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ....columns.interface import NUMBERS
from ....core.dtypes import find
from ...base.stored import BLOCK_BYTES
from ...encodings.columns import has_fixed_shape
from ..arrow import Arrow
from ..arrow.table import as_format_error, chunks_of, described, put, type_of
from .pages import Pages

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from ....columns.interface import Chunk, Type
    from ...base.contents import Contents

__all__ = ["FORMAT"]

_MAGIC = b"PAR1"
_MOST_OPEN = 4
_FIXED = "+w:"
_LARGEST_VALUE = 8
"""The bytes of the largest number."""


class Parquet(Arrow):
    """Parquet, https://parquet.apache.org/docs/file-format/."""

    name = "parquet"
    title = "Parquet"
    suffixes = (".parquet",)
    rank = 81

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    def read_table(self, path: str, contents: Contents) -> None:
        from pyarrow import parquet

        table = _Table(path)
        with parquet.ParquetFile(path) as file:
            columns = described(path, file.schema_arrow, contents)
            names = file.schema_arrow.names
            counts = Counter(names)
            ends = [0, *accumulate(_leaves(kind) for _, _, kind in columns)]
            table.pages = Pages(path, ends[-1])
            for column in columns:
                index, name, kind = column
                field = names[index]
                if counts[field] > 1:
                    contents.others[name] = "one of several columns of this name"
                    continue
                pieces = partial(
                    _pieces_of,
                    table,
                    field,
                    _row_bytes(type_of(kind)),
                    range(ends[index], ends[index + 1]),
                )
                whole = partial(_whole_of, table, field)
                code = f"pq.read_table({path!r})"
                put(
                    contents,
                    path,
                    column,
                    file.metadata.num_rows,
                    pieces=pieces,
                    whole=whole,
                    table=code,
                )


_opened: deque[weakref.ref[_Table]] = deque()
"""Those with an open file, the oldest first."""


class _Table:
    """A file that stays open for its next column, because to open it takes longer the more columns it has.

    It is closed when all its columns are forgotten, or when some other files have been opened.
    Args: path: The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.pages = Pages(path, 0)
        self._file: Any = None

    def file(self) -> Any:
        """The open file.

        It can be used by several threads, and is closed only when none uses it.
        """
        from pyarrow import parquet

        found = self._file
        if found is None:
            found = self._file = parquet.ParquetFile(
                self.path, buffer_size=BLOCK_BYTES, pre_buffer=False
            )
            _opened.append(weakref.ref(self))
            while len(_opened) > _MOST_OPEN:
                oldest = _opened.popleft()()
                if oldest is not None:
                    oldest.leave()
        return found

    def leave(self) -> None:
        """Close the file, as soon as nobody reads it."""
        self._file = None


def _pieces_of(
    table: _Table, field: str, row_bytes: int | None, leaves: range
) -> Generator[Sequence[Chunk], None, None]:
    """Read a column some rows at a time.

    Args:
        table: The file.
        field: The name of the column in the table.
        row_bytes: How many bytes a row takes in memory; ``None`` if the pages tell.
        leaves: The numbers of the columns of Parquet that are in it.
    """
    with as_format_error(table.path):
        file = table.file()
        nbytes: int | None = row_bytes
        if nbytes is None:
            declared: int = file.metadata.num_rows
            nbytes = _LARGEST_VALUE * table.pages.values(leaves) // max(declared, 1)
        rows = max(4 * BLOCK_BYTES // max(nbytes, 1), 1)
        for batch in file.iter_batches(batch_size=rows, columns=[field], use_threads=False):
            # The library treats a dot as nesting, and also gives other columns with this prefix.
            yield chunks_of(batch.column(batch.schema.get_field_index(field)))


def _whole_of(table: _Table, field: str) -> Sequence[Chunk]:
    """Read a column at once."""
    with as_format_error(table.path):
        found = table.file().read(columns=[field], use_threads=False)
        chunked = found.column(found.schema.get_field_index(field))
        return [chunk for array in chunked.chunks for chunk in chunks_of(array)]


def _row_bytes(kind: Type) -> int | None:
    """How many bytes a row takes in memory; ``None`` if only its values tell."""
    if not has_fixed_shape(kind):
        return None
    if kind.format.startswith(_FIXED):
        return int(kind.format.removeprefix(_FIXED)) * (_row_bytes(kind.children[0]) or 1)
    return find(NUMBERS[kind.format]).itemsize if kind.format in NUMBERS else _LARGEST_VALUE


def _leaves(kind: Any) -> int:
    """How many columns of Parquet are in a column of the table."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _leaves(kind.value_type)
    return (
        sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))
        if kind.num_fields
        else 1
    )


FORMAT = Parquet()
