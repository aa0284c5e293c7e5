"""Parquet, with pyarrow: tables, as in `arrow`."""

from __future__ import annotations

import os
import weakref
from collections import Counter, deque
from math import prod
from typing import TYPE_CHECKING, Any

from ...core.dtypes import find
from ...errors import UnsafeFileError
from ..base.stored import BLOCK_BYTES, Decoded
from ..encodings.shapes import is_bomb
from .arrow import Arrow
from .arrow.table import as_format_error, described, numbers, refuse_nulls, shape_of, table_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np

    from ..base.contents import Contents
    from .arrow.table import ColumnType

__all__ = ["FORMAT"]

_MAGIC = b"PAR1"
_MOST_OPEN = 4
_ROWS = 1 << 16
"""How many rows are read before it is seen how many bytes they take."""


class Parquet(Arrow):
    """Parquet, which is read in groups of rows: https://parquet.apache.org/docs/file-format/."""

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
            schema, rows = file.schema_arrow, file.metadata.num_rows
            columns = described(path, schema, contents)
            names = schema.names
            counts = Counter(names)
            found = {}
            for index, name, column in columns:
                field = names[index]
                if counts[field] > 1:
                    contents.others[name] = "one of several columns of this name"
                    continue
                whole = _whole(table, field)
                found[name] = table_column(path, schema.field(index).type, index, rows, whole)
                if column is None:
                    continue
                shape = shape_of(path, name, column, rows)
                read = _rows_of(table, field, column, name)
                contents.tensors[name] = Decoded(column.dtype, shape, read, (path, index))
            contents.columns = found


_opened: deque[weakref.ref[_Table]] = deque()
"""Those with an open file, the oldest first."""


class _Table:
    """A file that stays open for its next column, because to open it takes longer the more columns it has.

    It is closed when all its columns are forgotten, or when some other files have been opened. Args: path: The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: Any = None

    def file(self) -> Any:
        """The open file. It can be used by several threads, and is closed only when none uses it."""
        from pyarrow import parquet

        found = self._file
        if found is None:
            found = self._file = parquet.ParquetFile(self.path, buffer_size=BLOCK_BYTES, pre_buffer=False)
            _opened.append(weakref.ref(self))
            while len(_opened) > _MOST_OPEN:
                oldest = _opened.popleft()()
                if oldest is not None:
                    oldest.leave()
        return found

    def leave(self) -> None:
        """Close the file, as soon as nobody reads it."""
        self._file = None


def _rows_of(table: _Table, field: str, column: ColumnType, name: str) -> Callable[[], Iterator[np.ndarray[Any, Any]]]:
    def read() -> Iterator[np.ndarray[Any, Any]]:
        rows = max(4 * BLOCK_BYTES // max(prod(column.shape) * find(column.dtype).itemsize, 1), 1)
        with as_format_error(table.path):
            for batch in table.file().iter_batches(batch_size=rows, columns=[field], use_threads=False):
                # The library treats a dot as nesting, and also gives other columns with this prefix.
                values = numbers(batch.column(batch.schema.get_field_index(field)), column)
                if values is None:
                    refuse_nulls(_whole(table, field)(), name)
                    return
                yield values

    return read


def _whole(table: _Table, field: str) -> Callable[[], Any]:
    def read() -> Any:
        import pyarrow as pa

        size = os.stat(table.path).st_size  # noqa: PTH116 - a plain string
        with as_format_error(table.path):
            file, held, chunks = table.file(), 0, []
            # What the file says of the number of elements is not asked: over damaged counts the library ends the
            # process.
            for batch in file.iter_batches(batch_size=_ROWS, columns=[field], use_threads=False):
                chunk = batch.column(batch.schema.get_field_index(field))
                chunk.validate()
                chunks.append(chunk)
                held += chunk.nbytes
                if is_bomb(held, size):
                    raise UnsafeFileError(
                        f"{table.path} is out of all proportion: {field!r} has {held} bytes and more; it has {size}."
                    )
            kind = file.schema_arrow.field(field).type
            return pa.chunked_array(chunks, type=chunks[0].type if chunks else kind)

    return read


FORMAT = Parquet()
