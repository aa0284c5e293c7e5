"""`remote_plan`: what a load asks of servers, before it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..ranges.runs import ByteRuns
from .files import RemoteFile
from .reading import groups, planned
from .tensors import RemoteTensor
from .transport import MOST_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..base.stored import Stored

__all__ = ["RemotePlan", "remote_plan"]


class RemotePlan(NamedTuple):
    """What a load asks of servers.

    Args:
        fetched: The requests, those for headers first.
        read: For each tensor, how many bytes of how many requests are for it; ``None`` for one that
            is made of others.
        in_flight: How many bytes of answers are in memory beside the results.
        unpinned: Files of which only the size is told.
    """

    fetched: tuple[ByteRuns, ...]
    read: list[tuple[int, int] | None]
    in_flight: int
    unpinned: tuple[str, ...]


def remote_plan(
    paths: Iterable[str], wanted: Sequence[Sequence[Stored]], most: int | None
) -> RemotePlan:
    """What a load asks of servers.

    Args:
        paths: The files.
        wanted: For each tensor, its parts.
        most: How many bytes may be read before they are used.
    """
    parts = [part for own_parts in wanted for part in own_parts]
    requests: list[ByteRuns] = []
    of_part: dict[int, list[int]] = {}
    largest: list[int] = []
    before = 0
    for group in groups(parts, most):
        numbers = [before + at for at, stored in enumerate(group) if stored.is_remote]
        for file, requests_of_file in planned([parts[number] for number in numbers]):
            for request in requests_of_file:
                if file.held(request.start, request.nbytes) is None:
                    requests.append(ByteRuns(file, request.start, request.nbytes))
                    largest.append(request.nbytes)
                for part_number in {part.number for part in request.parts}:
                    counted = of_part.setdefault(numbers[part_number], [0, 0])
                    counted[1] += 1
                for piece in request.parts:
                    of_part[numbers[piece.number]][0] += piece.stop - piece.offset
        before += len(group)
    for stored in parts:
        if not stored.is_remote:
            requests += [run for inner in _inner(stored) for run in _whole(inner)]
    files = [path for path in paths if isinstance(path, RemoteFile)]
    headers = [ByteRuns(path, start, stop - start) for path in files for start, stop in path.asked]
    unpinned = tuple(path.place.address.shown for path in files if not path.is_pinned)
    read: list[tuple[int, int] | None] = []
    at = 0
    for own in wanted:
        found_of = [of_part.get(at + n) for n in range(len(own))]
        at += len(own)
        known = [pair for pair in found_of if pair is not None]
        if known or not own:
            read.append((sum(pair[0] for pair in known), sum(pair[1] for pair in known)))
        else:
            read.append(None)
    in_flight = sum(sorted(largest)[-MOST_AT_ONCE:])
    return RemotePlan((*headers, *requests), read, in_flight, unpinned)


def _inner(stored: Stored) -> list[RemoteTensor]:
    """The tensors on servers that another one is made of, each of which is read as a whole."""
    by_key: dict[Any, RemoteTensor] = {}
    for origin, _ in stored.origins():
        source = getattr(origin, "source", origin)
        if isinstance(source, RemoteTensor):
            by_key.setdefault(source.key, source)
    return list(by_key.values())


def _whole(stored: RemoteTensor) -> list[ByteRuns]:
    return [
        ByteRuns(file, request.start, request.nbytes)
        for file, requests in planned([stored])
        for request in requests
    ]
