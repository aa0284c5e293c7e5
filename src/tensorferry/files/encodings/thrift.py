"""Read structs of Thrift's compact protocol, with all bounds checked.

(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError, UnsafeFileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Wanted: TypeAlias = Mapping[int, "Wanted | None"]

__all__ = ["ThriftReader"]

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
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            if number in wanted:
                found[number] = self._value(kind, wanted[number], depth + 1)
            else:
                self._skip(kind, depth + 1)
        return found

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
                number = number + (head >> 4) if head >> 4 else self._integer()
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
