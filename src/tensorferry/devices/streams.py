"""What a device's queues are to the core: a stream, and an event that says how far one has come.

A backend whose devices work asynchronously gives both; nothing here waits for a whole device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Event", "Stream"]


class Event(Protocol):
    """A place in a stream's work."""

    def done(self) -> bool:
        """Whether the stream has come past it; never waits."""
        ...

    def wait(self) -> None:
        """Let the host wait until the stream has come past it."""


class Stream(Protocol):
    """A queue of a device's work."""

    @property
    def device(self) -> str:
        """The canonical name of its device, with the index."""
        ...

    def __enter__(self) -> object:
        """Become the current stream of this thread."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the place back to the stream that was current before."""

    def record(self) -> Event:
        """An event after all that has been queued so far."""
        ...

    def wait_for(self, event: Event) -> None:
        """Let what is queued from now on wait for an event; the host does not wait."""

    def uses(self, tensor: Any) -> None:
        """Tell the allocator that this stream works on a tensor, so that its memory is not given away too early."""
