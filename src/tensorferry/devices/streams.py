"""Streams and events: what a device has queued, and what waits for what.

A stream is a queue of a device's work, and each thread has a current one. An event is a place in a stream: another
stream waits for it without the host, the host without the rest of the device. What goes on on a side stream

1. waits for events of the streams on which its sources are made (`SideStreams.convert`);
2. is queued while the side stream is the current one, and followed by an event;
3. is waited for by the stream on which the result is used (`Landed.hand_out`). The allocator is told of that one
   (`Stream.uses`): it gives memory away in the order of the stream that it was allocated on.

The streams are a framework's own; nothing here waits for a whole device.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from ..errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

__all__ = ["Event", "Landed", "PlaceEvent", "SideStreams", "Stream", "StreamPlace", "events_of"]


class Event(Protocol):
    """A place in a stream's work."""

    def wait(self) -> None:
        """Let the host wait until the stream has come past it."""


class Stream(Protocol):
    """A queue of a device's work."""

    @property
    def device(self) -> str:
        """The canonical name of its device, with the index."""
        ...

    def __enter__(self) -> object:
        """Become the current stream of this thread, and its device the current one."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the place back to the stream and the device that were current before."""

    def record(self) -> Event:
        """An event after all that has been queued so far."""
        ...

    def wait_for(self, event: Any) -> None:
        """Let what is queued from now on wait for an event; the host does not wait."""

    def uses(self, tensor: Any) -> None:
        """Tell the allocator that this stream works on a tensor, so that its memory is not given away too early."""


class StreamPlace(NamedTuple):
    """A device that one framework works on by streams, which its backend gives."""

    backend: Any
    device: str

    @property
    def current(self) -> Stream:
        """This thread's stream."""
        return cast("Stream", self.backend.current_stream(self.device))


class PlaceEvent(NamedTuple):
    """How far a place's stream had come."""

    place: StreamPlace
    event: Event


def events_of(places: Iterable[StreamPlace]) -> tuple[PlaceEvent, ...]:
    """How far this thread's streams have come now."""
    return tuple(PlaceEvent(place, place.current.record()) for place in places)


@dataclass(frozen=True)
class Landed:
    """A result whose values arrive with events.

    Args:
        value: The result.
        parts: For each place where tensors of it lie: when they are there, and the tensors.
        process: Whose devices these are.
    """

    value: Any
    parts: tuple[tuple[PlaceEvent, Sequence[Any]], ...] = ()
    process: int = field(default_factory=os.getpid)

    def events_here(self) -> tuple[PlaceEvent, ...]:
        """How far this thread's streams have come, of the places where the result lies."""
        here = os.getpid() == self.process
        return events_of(place for (place, _), _ in self.parts) if here else ()

    def hand_out(self) -> Any:
        """The result, which what this thread queues from now on may read.

        Raises:
            DeviceError: It lies on a device, and this is a forked child, which has none of its parent's.
        """
        if self.parts and os.getpid() != self.process:
            where = ", ".join(place.device for (place, _), _ in self.parts)
            raise DeviceError(
                f"This result is on {where}, which a forked child process cannot reach.",
                'device="cpu", for what a forked child reads',
            )
        for (place, event), tensors in self.parts:
            stream = place.current
            stream.wait_for(event)
            for tensor in tensors:
                stream.uses(tensor)
        return self.value


_spare: dict[StreamPlace, list[Stream]] = defaultdict(list)
"""Side streams that nobody has now. An allocator keeps memory for each stream, so few are used again and again."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spare.clear)


class SideStreams:
    """One side stream for each place, taken when it is first needed."""

    def __init__(self) -> None:
        self._streams: dict[StreamPlace, Stream] = {}

    def of(self, place: StreamPlace) -> Stream:
        """The side stream of a place."""
        found = self._streams.get(place)
        if found is None:
            try:
                found = _spare[place].pop()
            except IndexError:
                found = cast("Stream", place.backend.side_stream(place.device))
            self._streams[place] = found
        return found

    def give_back(self) -> None:
        """Leave the streams to others; what is still queued on them comes before theirs."""
        while self._streams:
            place, stream = self._streams.popitem()
            _spare[place].append(stream)

    def convert(
        self, do: Callable[[], Any], places: Sequence[StreamPlace], before: Iterable[PlaceEvent]
    ) -> tuple[Any, tuple[PlaceEvent, ...]]:
        """Convert on side streams.

        Args:
            do: What converts.
            places: Where streams are worked on; the last one's device becomes the current one.
            before: What the work waits for.

        Returns:
            The result, and when what was queued is done.
        """
        with ExitStack() as stack:
            for place in places:
                stream = self.of(place)
                for reached in before:
                    if reached.place.backend is place.backend:
                        stream.wait_for(reached.event)
                    else:
                        reached.event.wait()  # frameworks do not know each other's events
                stack.enter_context(stream)
            try:
                value = do()
            except BaseException:
                # What was queued before the error still works on the sources.
                for place in places:
                    self.of(place).record().wait()
                raise
            return value, tuple(PlaceEvent(place, self.of(place).record()) for place in places)
