"""`read_remote`: tensors of files on servers, by the requests that `planned` tells, several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.dtypes import find
from ..base.stored import new_array
from ..ranges.requests import Elements, Request, requests_for
from ..ranges.runs import ByteRuns
from .transport import run_all

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from ...typing import Array
    from ..base.stored import Stored
    from .files import RemoteFile

__all__ = ["Fetched", "groups", "hold_headers", "planned", "read_remote"]


class Fetched(NamedTuple):
    """Requests to one file.

    Args:
        file: The file.
        requests: The requests.
    """

    file: RemoteFile
    requests: tuple[Request, ...]

    @property
    def runs(self) -> tuple[ByteRuns, ...]:
        """The requests as runs of bytes."""
        return tuple(
            ByteRuns(self.file, request.start, request.nbytes) for request in self.requests
        )


def planned(parts: Sequence[Stored]) -> list[Fetched]:
    """The requests for tensors, those of different files side by side; what is held is not asked for.

    Args:
        parts: The tensors, all in files on servers.
    """
    hold_headers(parts)
    wanted: dict[RemoteFile, list[Elements]] = {}
    for number, stored in enumerate(parts):
        place = stored.place()
        if place is None or not stored.size:
            continue
        file: RemoteFile = place.path  # type: ignore[assignment]
        itemsize = find(stored.dtype).itemsize
        axes = (0,) * len(stored.shape)
        elements = Elements(place.offset, stored.shape, place.strides, itemsize, number, axes)
        if elements.stop > file.size:
            raise file.refuse(f"ends at byte {file.size}, in the middle of a tensor")
        wanted.setdefault(file, []).append(elements)
    return [Fetched(file, tuple(requests_for(elements))) for file, elements in wanted.items()]


def hold_headers(parts: Sequence[Stored]) -> None:
    """Read what says where members of archives begin, for all of them at once."""
    spans: dict[RemoteFile, list[tuple[int, int]]] = {}
    for stored in parts:
        find_span = getattr(stored, "header_span", None)
        span = None if find_span is None else find_span()
        if span is not None:
            spans.setdefault(span[0], []).append(span[1:])
    for file, wanted in spans.items():
        elements = [
            Elements(start, (stop - start,), (1,), 1, number, (0,))
            for number, (start, stop) in enumerate(wanted)
        ]
        file.hold([(request.start, request.stop) for request in requests_for(elements)])


def read_remote(
    tensors: Sequence[Stored], most: int | None = None
) -> Generator[Array | None, None, None]:
    """Yield tensors in memory of their own, in order; ``None`` for those that are not on servers.

    Args:
        tensors: The tensors.
        most: How many bytes may be read before they are used; ``None``: all of them.

    Raises:
        FileFormatError: A file has changed; or as for `RemotePlace.fetch`.
        OSError: As for `RemotePlace.fetch`.
    """
    for group in groups(tensors, most):
        parts = [stored for stored in group if stored.is_remote]
        arrays = iter(_read(parts, planned(parts)))
        yield from (next(arrays) if stored.is_remote else None for stored in group)


def groups(tensors: Sequence[Stored], most: int | None) -> Iterator[list[Stored]]:
    """Yield the tensors that are read by one plan: all, or about as many bytes as are allowed."""
    group: list[Stored] = []
    held = 0
    for stored in tensors:
        if group and most is not None and held + stored.nbytes > most:
            yield group
            group, held = [], 0
        group.append(stored)
        held += stored.nbytes
    if group:
        yield group


def _read(parts: Sequence[Stored], plan: Sequence[Fetched]) -> list[Array]:
    results = [new_array(stored.shape, stored.dtype) for stored in parts]
    jobs = [_Job(file, request, results).run for file, requests in plan for request in requests]
    run_all(jobs)
    for stored, result in zip(parts, results, strict=True):
        place = stored.place()
        if place is not None and place.swapped:
            result.byteswap(inplace=True)
    return results


class _Job(NamedTuple):
    """A request, and the tensors that its answer is for.

    Args:
        file: The file.
        request: The request.
        results: The memory of all tensors.
    """

    file: RemoteFile
    request: Request
    results: Sequence[Array]

    def run(self) -> None:
        """Make the request, and put what comes where it belongs."""
        start, stop, _ = self.request
        held = self.file.held(start, stop - start)
        if held is not None:
            self._share_out(memoryview(held))
            return
        views = self._views()
        if views is not None:
            self.file.place.fetch(start, views)
            return
        answer = memoryview(bytearray(stop - start))
        self.file.place.fetch(start, [answer])
        self._share_out(answer)

    def _share_out(self, answer: memoryview) -> None:
        for part in self.request.parts:
            part.copy(answer, self.request.start, self.results[part.number])

    def _views(self) -> list[memoryview] | None:
        """The memory of tensors that takes the bytes as they come; ``None`` if they must be sorted."""
        at = self.request.start
        views = []
        for part in self.request.parts:
            there = part.within(self.results[part.number])
            if part.offset < at or not part.is_run or not there.flags.c_contiguous:
                return None
            if part.offset > at:
                views.append(memoryview(bytearray(part.offset - at)))
            views.append(there.reshape(-1).view(np.uint8).data)
            at = part.stop
        return views
