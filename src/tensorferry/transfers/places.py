"""Find the places (devices with streams) that conversions read and write, and the tensors of a result there."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.devices import HOST
from ..devices.streams import Landed, PlaceEvent, StreamPlace
from ..errors import UnsupportedTypeError
from ..trees.leaves import LeafRule
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..backends.base import Backend
    from ..core.info import TensorInfo
    from ..planning.plan import Plan

__all__ = ["landed", "places_of", "tensors_in"]


def _place(framework: str, device: str) -> StreamPlace | None:
    backend = registry.backend_named(framework)
    stream = backend.current_stream(device) if backend.loaded else None
    return None if stream is None else StreamPlace(backend, stream.device)


def _places(infos: Iterable[TensorInfo]) -> tuple[StreamPlace, ...]:
    names = dict.fromkeys(
        (info.framework, info.device)
        for info in infos
        if info.device != HOST and info.abstract is None
    )
    return tuple(dict.fromkeys(place for name in names if (place := _place(*name)) is not None))


def places_of(plans: Sequence[Plan]) -> tuple[tuple[StreamPlace, ...], tuple[StreamPlace, ...]]:
    """The places that conversions read from; and all places, of which the one that must be the current one is last.

    That is the one that is current now, if a result goes to any device of a kind; or else one that
    is written to.
    """
    sources, targets = (
        _places(plan.source for plan in plans),
        _places(plan.result for plan in plans),
    )
    current = _places(plan.result for plan in plans if ":" not in plan.result.device)
    return sources, tuple(dict.fromkeys(reversed((*sources, *targets, *current))))[::-1]


def landed(value: Any, after: Sequence[PlaceEvent]) -> Landed:
    """A result, with the tensors of each place that has an event to wait for."""
    events = dict(after)
    parts: dict[StreamPlace, list[Any]] = defaultdict(list)
    for backend, tensor in tensors_in(value) if after else ():
        info = backend.describe(tensor)
        place = StreamPlace(backend, info.device)
        if place in events and info.abstract is None:
            parts[place].append(tensor)
    return Landed(
        value, tuple((PlaceEvent(place, events[place]), found) for place, found in parts.items())
    )


def tensors_in(value: Any) -> Iterator[tuple[Backend, Any]]:
    """The tensors of a tree, and their backends."""
    rule = LeafRule("tensors")
    for leaf in take_apart(value)[0]:
        with suppress(UnsupportedTypeError):  # a tensor that cannot be converted was kept
            if rule.takes(leaf):
                yield registry.backend_of(leaf), leaf
