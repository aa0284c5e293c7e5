"""Count the values in columns of Parquet by the headers of their pages, before any is decoded.

A page of a few bytes may have billions of values in one list, and the library would make all of
them. It also ends the process if it is asked for the number of values of a column whose statistics
are damaged.

(https://parquet.apache.org/docs/file-format/metadata/)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ....errors import FileFormatError, UnsafeFileError
from ...encodings.shapes import is_bomb
from ...encodings.thrift import ThriftReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...encodings.thrift import Wanted

__all__ = ["Pages"]

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
                                f"{self._path} is out of all proportion: a column has more than {total - 1} values "
                                f"in {pages} pages, and the file {size} bytes."
                            )
        return total

    def _groups_in(self, descriptor: int, size: int) -> list[list[dict[int, int]]]:
        tail = os.pread(descriptor, _ENDING, max(size - _ENDING, 0))
        length = int.from_bytes(tail[:4], "little")
        if len(tail) < _ENDING or length > size - _ENDING:
            raise FileFormatError(f"{self._path} is cut off: its metadata are longer than it.")
        data = os.pread(descriptor, length, size - _ENDING - length)
        found = ThriftReader(data, f"The metadata of {self._path}").struct(_CHUNKS)
        groups = [
            [chunk.get(_META_DATA, {}) for chunk in group.get(_COLUMNS, [])]
            for group in found.get(_ROW_GROUPS, [])
        ]
        if any(len(group) != self._count for group in groups):
            raise FileFormatError(
                f"{self._path} has a group of rows with other columns than its schema."
            )
        return groups

    def _pages(
        self, descriptor: int, size: int, chunk: dict[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield how many values each page of a column in a group of rows has, and its bytes without compression."""
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
