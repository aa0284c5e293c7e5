"""Parquet, by pyarrow: a table with a column for each tensor, as in `arrow`."""

from __future__ import annotations

import weakref
from collections import Counter, deque
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import find
from ...host.numpy_dtypes import numpy_dtype
from ..base.stored import BLOCK_BYTES, Decoded
from ..encodings.slabs import SLAB_BYTES, cuts, filled
from .arrow import Arrow
from .arrow.table import as_format_error, column_of, described, is_table, numbers, schema_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..base.contents import Contents
    from ..base.pump import Pump
    from ..base.stored import Stored
    from .arrow.table import ColumnType

__all__ = ["FORMAT"]

_MAGIC = b"PAR1"
_MOST_OPEN = 4


class Parquet(Arrow):
    """Parquet, https://parquet.apache.org/docs/file-format/.

    Tables are read and written in groups of rows. If each tensor is a single row, it is written from memory, because
    the library writes only whole rows.
    """

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
            columns, one_row = described(path, file.schema_arrow, contents)
            names = file.schema_arrow.names
            counts = Counter(names)
            for index, name, column in columns:
                field = names[index]
                if counts[field] > 1:
                    contents.others[name] = "one of several columns of this name"
                    continue
                shape = shape_of(path, name, column, file.metadata.num_rows, one_row=one_row)
                read = _rows_of(table, field, column, name)
                contents.tensors[name] = Decoded(column.dtype, shape, read, (path, index))

    def write_table(self, contents: Contents, metadata: dict[str, str], path: Path, pump: Pump) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        schema, rows = schema_of(contents, metadata)
        whole = not is_table(contents)
        held = [contents.tensors[field.name] for field in schema]
        step = max(min(2 * SLAB_BYTES // max(sum(stored.nbytes for stored in held) // max(rows, 1), 1), rows), 1)
        with parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:
            counts = cuts(rows, step)
            sources = [_pieces(pump, stored, rows, counts, whole=whole) for stored in held]
            for count in counts:
                arrays = [
                    column_of(field.type, _buffer(next(source)) if stored.size else None, count)
                    for field, stored, source in zip(schema, held, sources, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema), row_group_size=count)


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
        if column.raw == "null":
            return
        rows = max(4 * BLOCK_BYTES // max(prod(column.shape) * find(column.dtype).itemsize, 1), 1)
        with as_format_error(table.path):
            for batch in table.file().iter_batches(batch_size=rows, columns=[field], use_threads=False):
                # The library treats a dot as nesting, and also gives other columns with this prefix.
                yield numbers(batch.column(batch.schema.get_field_index(field)), column, table.path, name)

    return read


def _pieces(pump: Pump, stored: Stored, rows: int, counts: list[int], *, whole: bool) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the values of each group of rows. A single row has all values."""
    if whole:
        return iter([pump.array(stored).reshape(-1)])
    width = stored.size // rows
    return filled(pump.blocks(stored), (width * count for count in counts), numpy_dtype(stored.dtype))


def _buffer(values: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    return pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))


FORMAT = Parquet()
