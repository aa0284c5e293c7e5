"""`RemotePlace`: a file that is not on this machine, and what it was when it was opened."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ...errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

__all__ = ["Pin", "RefusedPlace", "RemotePlace"]


class Pin(NamedTuple):
    """What is told of a file, by which a change is seen.

    Args:
        nbytes: Its size.
        etag: Its entity tag, or another name of its version; empty if it has none.
        modified: When it was changed; empty if that is not known.
    """

    nbytes: int
    etag: str
    modified: str

    @property
    def is_exact(self) -> bool:
        """Whether more than the size tells a change."""
        return bool(self.etag or self.modified)

    def is_same(self, other: Pin) -> bool:
        """Whether a file has not changed, as far as it is told."""
        if self.nbytes != other.nbytes:
            return False
        if self.etag and other.etag:
            return self.etag.removeprefix("W/") == other.etag.removeprefix("W/")
        return not (self.modified and other.modified) or self.modified == other.modified

    @property
    def number(self) -> int:
        """A number that is another one after a change."""
        text = f"{self.etag or self.modified}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


class RemotePlace(ABC):
    """A file that is not on this machine: where it is, and what it was when it was opened.

    Args:
        address: Its address, by which two files are told apart: ``shown`` is the URL as messages show
            it, ``source`` that of which a hint downloads it, ``name`` the name of the file, and
            ``sibling(name)`` the address of another one in the same folder.
        pin: What it was; ``None`` before the first answer.
    """

    def __init__(self, address: Any, pin: Pin | None = None) -> None:
        self.address: Any = address
        self.pin = pin

    def __reduce__(self) -> Any:
        return type(self), (self.address, self.pin)

    @abstractmethod
    def fetch(self, start: int, views: Sequence[memoryview], *, is_first: bool = False) -> int:
        """Bytes of the file into pieces of memory, one after the other.

        Args:
            start: The first byte.
            views: The memory, whose bytes together are as many as are asked for.
            is_first: Whether the file may be shorter, because its size is not known yet.

        Returns:
            How many bytes there were.

        Raises:
            FileFormatError: The file has changed; or what comes is not what was asked for.
            FileNotFoundError: There is no such file.
            PermissionError: It is not given without other credentials.
            OSError: There is no answer.
        """

    def sibling(self, name: str) -> Self:
        """Another file in the same folder.

        Raises:
            UnsafeFileError: The name could lead out of it.
        """
        return type(self)(self.address.sibling(name))

    def check(self, answered: Pin) -> None:
        """Compare an answer with the first one.

        Raises:
            FileFormatError: The file has changed.
        """
        if self.pin is None:
            self.pin = answered
        elif not self.pin.is_same(answered):
            self.refuse_changed()

    def refuse_changed(self) -> NoReturn:
        """Raise, because the file has changed."""
        raise FileFormatError(
            f"{self.address.shown} has changed since it was opened.", "open or load it again"
        )


class RefusedPlace(RemotePlace):
    """A URL that is refused, in the place of a file: whoever reads it gets the error.

    Args:
        shown: The URL as messages show it.
        error: Why.
    """

    def __init__(self, shown: str, error: Exception) -> None:
        super().__init__(_Refused(shown))
        self._error = error

    def __reduce__(self) -> Any:
        return RefusedPlace, (self.address.shown, self._error)

    def fetch(self, start: int, views: Sequence[memoryview], *, is_first: bool = False) -> int:
        """See `RemotePlace.fetch`.

        Raises:
            Exception: Always.
        """
        del start, views, is_first
        raise self._error


class _Refused(NamedTuple):
    """The address of a URL that is refused.

    Args:
        shown: The URL as messages show it.
    """

    shown: str

    @property
    def source(self) -> str:
        """The URL, without what messages do not show."""
        return self.shown

    @property
    def name(self) -> str:
        """The end of it."""
        return self.shown.rpartition("/")[2]
