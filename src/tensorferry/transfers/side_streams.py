"""`SideStreams`: the side streams on which conversions go on, and the events that order them with the caller's own."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..backends import registry
from ..core.devices import HOST
from ..errors import UnsupportedTypeError
from ..trees.leaves import LeafRule
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..backends.base import Backend
    from ..core.info import TensorInfo
    from ..devices.streams import Event, Stream
    from ..planning.plan import Plan

__all__ = ["Landed", "Place", "PlaceEvent", "SideStreams", "events_of", "landed", "places_of", "tensors_in"]


class Place(NamedTuple):
    """A device that one framework works on by streams."""

    backend: Backend
    device: str

    @property
    def current(self) -> Stream:
        """This thread's stream."""
        return cast("Stream", self.backend.current_stream(self.device))


class PlaceEvent(NamedTuple):
    """How far a place's stream had come."""

    place: Place
    event: Event


class Landed(NamedTuple):
    """A result whose values arrive with events.

    Args:
        value: The result.
        parts: For each place where tensors of it lie: when they are there, and the tensors.
    """

    value: Any
    parts: tuple[tuple[PlaceEvent, tuple[Any, ...]], ...] = ()

    def hand_out(self) -> Any:
        """The result, which what this thread queues from now on may read."""
        for (place, event), tensors in self.parts:
            stream = place.current
            stream.wait_for(event)
            for tensor in tensors:
                stream.uses(tensor)
        return self.value


def _place(framework: str, device: str) -> Place | None:
    backend = registry.backend_named(framework)
    stream = backend.current_stream(device) if backend.loaded else None
    return None if stream is None else Place(backend, stream.device)


def _places(infos: Iterable[TensorInfo]) -> tuple[Place, ...]:
    names = dict.fromkeys(
        (info.framework, info.device) for info in infos if info.device != HOST and info.abstract is None
    )
    return tuple(dict.fromkeys(place for name in names if (place := _place(*name)) is not None))


def places_of(plans: Sequence[Plan]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """The places that conversions read from, and those that they write to."""
    return _places(plan.source for plan in plans), _places(plan.result for plan in plans)


def events_of(places: Iterable[Place]) -> tuple[PlaceEvent, ...]:
    """How far this thread's streams have come now."""
    return tuple(PlaceEvent(place, place.current.record()) for place in places)


_spare: dict[Place, list[Stream]] = defaultdict(list)
"""Side streams that nobody has now. An allocator keeps memory for each stream, so few are used again and again."""


class SideStreams:
    """One side stream for each place, taken when it is first needed."""

    def __init__(self) -> None:
        self._streams: dict[Place, Stream] = {}

    def of(self, place: Place) -> Stream:
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
        self, do: Callable[[], Any], places: Sequence[Place], before: Sequence[PlaceEvent]
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


def landed(value: Any, after: Sequence[PlaceEvent]) -> Landed:
    """A result with the tensors of each place where there is something to wait for."""
    events = dict(after)
    parts: dict[Place, list[Any]] = defaultdict(list)
    for backend, tensor in tensors_in(value):
        info = backend.describe(tensor)
        place = Place(backend, info.device)
        if place in events and info.abstract is None:
            parts[place].append(tensor)
    return Landed(value, tuple((PlaceEvent(place, events[place]), tuple(found)) for place, found in parts.items()))


def tensors_in(value: Any) -> Iterator[tuple[Backend, Any]]:
    """The tensors of a tree, and their backends."""
    rule = LeafRule("tensors")
    for leaf in take_apart(value)[0]:
        with suppress(UnsupportedTypeError):  # one that cannot be carried was not converted
            if rule.takes(leaf):
                yield registry.backend_of(leaf), leaf
