"""Streams and events: the work that is queued on a device, and what waits for what.

A stream is a queue of work on a device; each thread has a current one. An event marks a place in a
stream. Another stream can wait for it without the host, and the host without the other streams.
Work on a side stream

1. waits for events of the streams on which its sources are made (`SideStreams.convert`);
2. is queued while the side stream is the current one, and followed by an event;
3. is waited for by the stream on which the result is used (`Landed.result`). The allocator must
   know this stream (`Stream.uses`), because it reuses memory in the order of the stream on which it
   was allocated.

The streams are those of a framework. Nothing here waits for a whole device.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from .. import hints
from ..errors import DeviceError
from ..hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

__all__ = ["Event", "Landed", "PlaceEvent", "SideStreams", "Stream", "StreamPlace", "events_of"]


class Event(Protocol):
    """A mark in the work of a stream."""

    def wait(self) -> None:
        """Make the host wait until the stream has reached it."""


class Stream(Protocol):
    """A queue of work on a device."""

    @property
    def device(self) -> str:
        """The canonical name of its device, with the index."""
        ...

    def __enter__(self) -> object:
        """Make this stream, and its device, the current ones of this thread."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make the stream and the device that were current before the current ones again."""

    def record(self) -> Event:
        """An event after all work that has been queued so far."""
        ...

    def wait_for(self, event: Any) -> None:
        """Make work that is queued from now on wait for an event. The host does not wait."""

    def uses(self, tensor: Any) -> None:
        """Tell the allocator that this stream uses a tensor: its memory is not reused too early."""


class StreamPlace(NamedTuple):
    """A device on which a framework works with streams."""

    backend: Any
    device: str

    @property
    def current(self) -> Stream:
        """The current stream of this thread."""
        return cast("Stream", self.backend.current_stream(self.device))


class PlaceEvent(NamedTuple):
    """An event on the stream of a place."""

    place: StreamPlace
    event: Event


def events_of(places: Iterable[StreamPlace]) -> tuple[PlaceEvent, ...]:
    """Events on the current streams of this thread, after the work that is queued now."""
    return tuple(PlaceEvent(place, place.current.record()) for place in places)


@dataclass(frozen=True)
class Landed:
    """A result that is complete when events have happened.

    Args:
        value: The result.
        parts: For each place: the event after which its tensors are complete, and these tensors.
        process: The process that has the devices.
    """

    value: Any
    parts: tuple[tuple[PlaceEvent, Sequence[Any]], ...] = ()
    process: int = field(default_factory=os.getpid)

    def events_here(self) -> tuple[PlaceEvent, ...]:
        """Events on the current streams of this thread, for the places of the result."""
        here = os.getpid() == self.process
        if here:
            return events_of(place for (place, _), _ in self.parts)
        return ()

    def result(self) -> Any:
        """The result. Work that this thread queues from now on waits until it is complete.

        Raises:
            DeviceError: It is on a device, and this is a forked child process, which cannot use the
                parent's devices.
        """
        if self.parts and os.getpid() != self.process:
            where = ", ".join(place.device for (place, _), _ in self.parts)
            raise DeviceError(
                f"This result is on {where}, which a forked child process cannot reach.",
                Hint(hints.keyword("device", "cpu"), ", for what a forked child reads"),
            )
        for (place, event), tensors in self.parts:
            stream = place.current
            stream.wait_for(event)
            for tensor in tensors:
                stream.uses(tensor)
        return self.value


_spare: dict[StreamPlace, list[Stream]] = defaultdict(list)
"""Free side streams. They are used again, because an allocator keeps memory for each stream."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spare.clear)


class SideStreams:
    """A side stream for each place, made when it is first needed."""

    def __init__(self) -> None:
        self._streams: dict[StreamPlace, Stream] = {}

    def of(self, place: StreamPlace) -> Stream:
        """The side stream of a place."""
        stream = self._streams.get(place)
        if stream is None:
            try:
                stream = _spare[place].pop()
            except IndexError:
                stream = cast("Stream", place.backend.side_stream(place.device))
            self._streams[place] = stream
        return stream

    def give_back(self) -> None:
        """Give the streams back for other uses. Work that is still queued on them is done first."""
        while self._streams:
            place, stream = self._streams.popitem()
            _spare[place].append(stream)

    def convert(
        self, do: Callable[[], Any], places: Sequence[StreamPlace], before: Iterable[PlaceEvent]
    ) -> tuple[Any, tuple[PlaceEvent, ...]]:
        """Convert on side streams.

        Args:
            do: The conversion.
            places: The places that have streams; the device of the last one becomes the current
                one.
            before: The events that the work waits for.

        Returns:
            The result, and the events after which it is complete.
        """
        with ExitStack() as stack:
            for place in places:
                stream = self.of(place)
                for reached in before:
                    if reached.place.backend is place.backend:
                        stream.wait_for(reached.event)
                    else:
                        reached.event.wait()  # frameworks cannot wait for each other's events
                stack.enter_context(stream)
            try:
                value = do()
            except BaseException:
                # Work that was queued before the error may still read the sources.
                for place in places:
                    self.of(place).record().wait()
                raise
            return value, tuple(PlaceEvent(place, self.of(place).record()) for place in places)
