"""Parquet: tables of columns in pages.

The format is described at https://parquet.apache.org/docs/file-format/.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter, deque
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...columns.interface import NUMBERS
from ...core.dtypes import find
from ...errors import FileFormatError, UnsafeFileError
from ..base.stored import BLOCK_BYTES
from ..encodings.array_parts import is_bomb
from .arrow import Arrow, as_format_error, chunks_of, described, put, type_of
from .columns import has_fixed_shape

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from ...columns.interface import Chunk, Type
    from ..base.contents import Contents

__all__ = ["FORMAT", "Pages", "ThriftReader"]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 32
_MOST = 1_000_000
"""The most structs and numbers that are kept."""


class ThriftReader:
    """Reads structs from some bytes.

    Args:
        data: The bytes.
        where: What they are, for messages.
    """

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self._where = data, where
        self.at = 0
        """The position after what was read."""
        self._kept = 0

    def struct(self, wanted: Wanted) -> dict[int, Any]:
        """The struct at this position: some of its fields by number. Everything else is skipped.

        Args:
            wanted: The fields. For each: ``None`` for an integer, otherwise the fields of the
                struct, or of the structs in the list.

        Raises:
            FileFormatError: The bytes are malformed, or end before.
            UnsafeFileError: There is far too much.
        """
        try:
            return self._struct(wanted, 0)
        except IndexError:
            raise FileFormatError(f"{self._where} ends in the middle.") from None

    def _struct(self, wanted: Wanted, depth: int) -> dict[int, Any]:
        self._keep()
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            if head >> 4:
                number = number + (head >> 4)
            else:
                number = self._integer()
            kind = head & 15
            if number in wanted:
                fields[number] = self._value(kind, wanted[number], depth + 1)
            else:
                self._skip(kind, depth + 1)
        return fields

    def _value(self, kind: int, wanted: Wanted | None, depth: int) -> Any:
        if depth > _DEEPEST:
            raise FileFormatError(f"{self._where} nests deeper than {_DEEPEST}.")
        if wanted is None and kind in _INTEGERS:
            return self._integer()
        if wanted is not None and kind == _STRUCT:
            return self._struct(wanted, depth)
        if wanted is not None and kind == _LIST:
            count, inner = self._list()
            return [self._value(inner, wanted, depth + 1) for _ in range(count)]
        raise FileFormatError(f"{self._where} has a field of another type, before byte {self.at}.")

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise FileFormatError(f"{self._where} nests deeper than {_DEEPEST}.")
        if kind in (_TRUE, _FALSE):
            return
        if kind == _BYTE:
            self._move(1)
        elif kind in _INTEGERS:
            self._varint()
        elif kind == _DOUBLE:
            self._move(8)
        elif kind == _BINARY:
            self._move(self._varint())
        elif kind in (_LIST, _SET):
            self._skip_list(depth)
        elif kind == _STRUCT:
            number = 0
            while (head := self._byte()) != 0:
                if head >> 4:
                    number = number + (head >> 4)
                else:
                    number = self._integer()
                self._skip(head & 15, depth + 1)
        elif kind == _MAP:
            self._skip_map(depth)
        else:
            raise FileFormatError(f"{self._where} has a field of no type, before byte {self.at}.")

    def _skip_list(self, depth: int) -> None:
        count, inner = self._list()
        if inner in (_TRUE, _FALSE):
            self._move(count)
            return
        for _ in range(count):
            self._skip(inner, depth + 1)

    def _skip_map(self, depth: int) -> None:
        count = self._varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            for kind in (kinds >> 4, kinds & 15):
                # A boolean in a map takes a byte.
                self._skip(_BYTE if kind in (_TRUE, _FALSE) else kind, depth + 1)

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        return self._varint() if count == 15 else count, head & 15

    def _keep(self) -> None:
        self._kept += 1
        if self._kept > _MOST:
            raise UnsafeFileError(f"{self._where} has more than {_MOST:,} parts.")

    def _move(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise FileFormatError(
                    f"{self._where} has a number that does not end, before byte {self.at}."
                )

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


if TYPE_CHECKING:
    Wanted: TypeAlias = Mapping[int, "Wanted | None"]


_ENDING = 8
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_NUM_VALUES, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 7, 9, 11
_CHUNK: Wanted = {_NUM_VALUES: None, _COMPRESSED: None, _DATA_PAGE: None, _DICTIONARY_PAGE: None}
_CHUNKS: Wanted = {_ROW_GROUPS: {_COLUMNS: {_META_DATA: _CHUNK}}}
_INFLATED, _HELD, _PAGE, _PAGE_V2 = 2, 3, 5, 8
_PAGE_HEADER: Wanted = {_INFLATED: None, _HELD: None, _PAGE: {1: None}, _PAGE_V2: {1: None}}
_HEADER_BYTES = 1 << 12
_MOST_HEADER_BYTES = 1 << 24
_MOST_PAGES = 1_000_000


class Pages:
    """The pages of a file. Its metadata are read at the first question.

    Args:
        path: The file.
        columns: How many columns of Parquet there are.
    """

    def __init__(self, path: str, columns: int) -> None:
        self._path, self._count = path, columns
        self._groups: list[list[dict[int, int]]] | None = None

    def values(self, columns: range) -> int:
        """How many values some columns have.

        Raises:
            FileFormatError: The metadata or a header of a page is malformed.
            UnsafeFileError: There are far more than the size of the file allows, or far too many
                pages.
        """
        total = inflated = pages = 0
        with open(self._path, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            descriptor = file.fileno()
            size = os.fstat(descriptor).st_size
            if self._groups is None:
                self._groups = self._groups_in(descriptor, size)
            for group in self._groups:
                for column in columns:
                    for values, nbytes in self._pages(descriptor, size, group[column]):
                        total, inflated, pages = total + values, inflated + nbytes, pages + 1
                        if is_bomb(max(total, inflated), size) or pages > _MOST_PAGES:
                            raise UnsafeFileError(
                                f"{self._path} is out of all proportion: a column has more than "
                                f"{total - 1} values "
                                f"in {pages} pages, and the file {size} bytes."
                            )
        return total

    def _groups_in(self, descriptor: int, size: int) -> list[list[dict[int, int]]]:
        tail = os.pread(descriptor, _ENDING, max(size - _ENDING, 0))
        length = int.from_bytes(tail[:4], "little")
        if len(tail) < _ENDING or length > size - _ENDING:
            raise FileFormatError(f"{self._path} is cut off: its metadata are longer than it.")
        data = os.pread(descriptor, length, size - _ENDING - length)
        metadata = ThriftReader(data, f"The metadata of {self._path}").struct(_CHUNKS)
        groups = [
            [chunk.get(_META_DATA, {}) for chunk in group.get(_COLUMNS, [])]
            for group in metadata.get(_ROW_GROUPS, [])
        ]
        if any(len(group) != self._count for group in groups):
            raise FileFormatError(
                f"{self._path} has a group of rows with other columns than its schema."
            )
        return groups

    def _pages(
        self, descriptor: int, size: int, chunk: dict[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield each page's number of values and uncompressed bytes, for a row group's column."""
        at = chunk.get(_DATA_PAGE, -1)
        dictionary = chunk.get(_DICTIONARY_PAGE, at)
        at = min(at, dictionary) if dictionary > 0 else at
        end = at + chunk.get(_COMPRESSED, -1)
        if not 0 <= at <= end <= size:
            raise FileFormatError(f"{self._path} has a column that does not lie inside of it.")
        while at < end:
            header, length = self._header(descriptor, at)
            held = header.get(_HELD, -1)
            if held < 0:
                raise FileFormatError(f"{self._path} has a page without a size, at byte {at}.")
            page = header.get(_PAGE) or header.get(_PAGE_V2) or {}
            yield max(page.get(1, 0), 0), max(header.get(_INFLATED, 0), 0)
            at += length + held

    def _header(self, descriptor: int, at: int) -> tuple[dict[int, Any], int]:
        """The header of the page at a position, and its length."""
        nbytes = _HEADER_BYTES
        while True:
            data = os.pread(descriptor, nbytes, at)
            reader = ThriftReader(data, f"The header of a page of {self._path}, at byte {at},")
            try:
                return reader.struct(_PAGE_HEADER), reader.at
            except FileFormatError:
                if len(data) < nbytes or nbytes >= _MOST_HEADER_BYTES:
                    raise
                nbytes *= 64


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
    """A file that stays open for its next column: opening takes longer the more columns there are.

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

        file = self._file
        if file is None:
            file = self._file = parquet.ParquetFile(
                self.path, buffer_size=BLOCK_BYTES, pre_buffer=False
            )
            _opened.append(weakref.ref(self))
            while len(_opened) > _MOST_OPEN:
                oldest = _opened.popleft()()
                if oldest is not None:
                    oldest.leave()
        return file

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
        read = table.file().read(columns=[field], use_threads=False)
        chunked = read.column(read.schema.get_field_index(field))
        return [chunk for array in chunked.chunks for chunk in chunks_of(array)]


def _row_bytes(kind: Type) -> int | None:
    """How many bytes a row takes in memory; ``None`` if only its values tell."""
    if not has_fixed_shape(kind):
        return None
    if kind.format.startswith(_FIXED):
        return int(kind.format.removeprefix(_FIXED)) * (_row_bytes(kind.children[0]) or 1)
    if kind.format in NUMBERS:
        return find(NUMBERS[kind.format]).itemsize
    return _LARGEST_VALUE


def _leaves(kind: Any) -> int:
    """How many columns of Parquet are in a column of the table."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _leaves(kind.value_type)
    if kind.num_fields:
        return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))
    return 1


FORMAT = Parquet()
