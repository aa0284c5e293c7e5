"""`RemoteFile`: a file on a server, which the readers of formats take as they take a path of this machine."""

from __future__ import annotations

import io
import stat
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import FileFormatError
from ..base.urls import download_hint
from .transport import run_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

    from .pins import RemotePlace

__all__ = ["WINDOW_BYTES", "RemoteFile"]

WINDOW_BYTES = 64 << 10
"""How many bytes of a file are asked for first; most headers are not longer."""
_MOST_KEPT = 1 << 20
"""The most bytes of a header that are kept after the file was opened."""


class _Status(NamedTuple):
    """What of `os.stat_result` is used."""

    st_size: int
    st_mode: int = stat.S_IFREG


class RemoteFile(str):  # noqa: SLOT000 - it holds what was read
    """A file on a server: as a string, its URL as messages show it, which has no secrets.

    It is what the first answer says that it is: a later answer of another file is an error, also
    after it was pickled. What was read of its header is kept until it has been opened.

    Args:
        place: Where it is, and what is known of it.
    """

    def __new__(cls, place: RemotePlace) -> Self:
        """See the class."""
        made = super().__new__(cls, place.address.shown)
        made.place = place
        made.asked = []
        made._held = []
        return made

    place: RemotePlace
    asked: list[tuple[int, int]]
    """What was asked of the server to read the header."""
    _held: list[tuple[int, bytes]]

    def __str__(self) -> str:
        """Itself: what is told of a path goes on to be the path of tensors."""
        return self

    def __reduce__(self) -> Any:
        return RemoteFile, (self.place,)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same URL, with what no message shows."""
        if not isinstance(other, RemoteFile):
            return NotImplemented if not isinstance(other, str) else False
        return bool(self.place.address == other.place.address)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.place.address)

    # -- as a path ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the file."""
        name: str = self.place.address.name
        return name

    @property
    def suffix(self) -> str:
        """The suffix of the name."""
        stem, dot, last = self.name.rpartition(".")
        return f"{dot}{last}" if stem else ""

    def is_dir(self) -> bool:
        """A server lists no folders."""
        return False

    def is_file(self) -> bool:
        """Whether it can be read is seen when it is."""
        return True

    def stat(self) -> _Status:
        """Its size."""
        return _Status(self.size)

    def sibling(self, name: str) -> RemoteFile:
        """Another file in the same folder.

        Raises:
            UnsafeFileError: The name could lead out of it.
        """
        return RemoteFile(self.place.sibling(name))

    def read_bytes(self) -> bytes:
        """All of it."""
        return self.read_at(0, self.size)

    def open(self, _mode: str = "rb", buffering: int = -1) -> _Reader:
        """It as an open file, of which only what is read is asked for."""
        del buffering
        return _Reader(self)

    # -- its bytes ---------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many bytes it has.

        Raises:
            OSError: As for `RemotePlace.fetch`.
            ConversionError: As for `RemotePlace.fetch`.
        """
        if self.place.pin is None:
            self.begin()
        return self.place.pin.nbytes  # type: ignore[union-attr]

    @property
    def is_pinned(self) -> bool:
        """Whether more than its size tells a change; what the hub has of a commit never changes."""
        pin = self.place.pin
        return getattr(self.place.address, "is_of_hub", False) or pin is None or pin.is_exact

    @property
    def facts(self) -> tuple[int, int]:
        """Its size, and a number that is another one after a change."""
        size = self.size
        return size, self.place.pin.number  # type: ignore[union-attr]

    def begin(self) -> None:
        """Read the first window, by which the size is known, and whether it has changed."""
        if self.held(0, 1) is not None:
            return
        window = memoryview(bytearray(WINDOW_BYTES))
        count = self.place.fetch(0, [window], is_first=True)
        self.asked.append((0, count))
        self._held.insert(0, (0, bytes(window[:count])))

    def read_at(self, offset: int, nbytes: int, ahead: int = WINDOW_BYTES) -> bytes:
        """Bytes of it, which are asked for if they are not held.

        Args:
            offset: The first.
            nbytes: How many.
            ahead: How many are asked for at least, because the next ones are used soon.

        Raises:
            FileFormatError: It is shorter.
            OSError: As for `RemotePlace.fetch`.
            ConversionError: As for `RemotePlace.fetch`.
        """
        if offset + nbytes > self.size:
            raise FileFormatError(f"{self} ends at byte {self.size}, in the middle of a tensor.")
        held = self.held(offset, nbytes)
        if held is not None:
            return held
        self.hold([(offset, offset + max(nbytes, ahead))])
        return self.held(offset, nbytes) or b""

    def held(self, offset: int, nbytes: int) -> bytes | None:
        """Bytes that have been read; ``None`` if they have not."""
        for start, data in self._held:
            if start <= offset and offset + nbytes <= start + len(data):
                return data[offset - start : offset - start + nbytes]
        return None

    def hold(self, spans: Iterable[tuple[int, int]]) -> None:
        """Read bytes and keep them, without what is kept already.

        Args:
            spans: The first byte and the end of each run.
        """
        missing: list[tuple[int, bytearray]] = []
        for first, last in spans:
            start, stop = self._beyond(first, min(last, self.size))
            if stop > start:
                missing.append((start, bytearray(stop - start)))
        self.asked += [(start, start + len(data)) for start, data in missing]
        run_all([partial(self.place.fetch, start, [memoryview(data)]) for start, data in missing])
        for start, data in missing:
            self._keep(start, bytes(data))

    def _beyond(self, start: int, stop: int) -> tuple[int, int]:
        """What of a run is not kept, if its begin or all of it is."""
        for first, data in self._held:
            if first <= start < first + len(data):
                start = min(first + len(data), stop)
        return start, stop

    def _keep(self, start: int, data: bytes) -> None:
        for place, (first, before) in enumerate(self._held):
            if first + len(before) == start:
                self._held[place] = (first, before + data)
                return
        self._held.append((start, data))

    def opened(self) -> None:
        """Forget what was read of a long header, once it is understood."""
        if sum(len(data) for _, data in self._held) > _MOST_KEPT:
            self._held = [(start, data[:WINDOW_BYTES]) for start, data in self._held[:1]]

    def refuse(self, why: str) -> FileFormatError:
        """The error for a file of which no ranges can be used; its hint downloads it."""
        return FileFormatError(f"{self} {why}.", download_hint(self.place.address.source))


class _Reader(io.RawIOBase):
    """A file on a server as an open file.

    Args:
        file: The file.
    """

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read at any place."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position."""
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def tell(self) -> int:
        """The position."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read at the position; the window that is asked for is twice as long each time."""
        view = memoryview(buffer).cast("B")
        count = max(min(view.nbytes, self._file.size - self._at), 0)
        if count and self._file.held(self._at, count) is None:
            ahead = max(count, self._at, WINDOW_BYTES)
            self._file.hold([(self._at, self._at + ahead)])
        view[:count] = self._file.read_at(self._at, count)
        self._at += count
        return count
