"""The worker of a `Prefetch`: reads the source, converts ahead, and stops where it is told to.

Nothing here knows the `Prefetch`: so the worker does not keep it alive, and ends when nobody holds it any more.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from contextlib import ExitStack
from contextvars import copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..devices.streams import Landed, SideStreams, events_of
from ..errors import ConversionError
from .places import landed, places_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..devices.streams import Place, PlaceEvent, Stream
    from ..planning.plan import Plan
    from .target import Target

__all__ = ["PATIENCE", "Ahead", "Converter", "work"]

PATIENCE = 1.0
"""Seconds that closing waits for a worker whose source does not answer."""


class Converter:
    """Converts one batch after the other on one side stream for each place.

    Args:
        target: Where batches go.
        before: What the first of them waits for.
    """

    def __init__(self, target: Target, before: tuple[PlaceEvent, ...]) -> None:
        self._target, self._before = target, before
        self._streams = SideStreams()

    def convert(self, batch: Any) -> Landed:
        """A batch's conversion, which a device may still be working on."""
        pending = self._target.prepare(batch)
        sources, places = places_of(pending.plans)
        value, after = self._streams.convert(pending.run, places, (*self._before, *events_of(sources)))
        self._before = ()
        self._let_source_wait(batch, pending.plans, sources, after)
        return landed(value, after)

    def _let_source_wait(
        self, batch: Any, plans: Sequence[Plan], sources: Sequence[Place], after: Sequence[PlaceEvent]
    ) -> None:
        """See to it that what the source does next comes after what still reads this batch."""
        if any(plan.source.pinned for plan in plans):
            for reached in after:
                reached.event.wait()
            return
        for reached in after:
            if reached.place in sources:
                reached.place.current.wait_for(reached.event)
        for reached, tensors in landed(batch, after).parts if sources else ():
            for tensor in tensors:
                self._streams.of(reached.place).uses(tensor)

    def close(self) -> None:
        """Give the streams back."""
        self._streams.give_back()


class Ahead:
    """What the worker and the consumer share.

    Args:
        depth: How many batches may be read from the source and not yet handed out.
        skips: Whether a batch that cannot be converted is left out.
        waited: Where the seconds are added that the consumer waits; ``None``: somewhere of its own.
    """

    def __init__(self, depth: int, *, skips: bool = False, waited: dict[str, float] | None = None) -> None:
        self._depth = depth
        self.skips = skips
        self._skipped, self._why_skipped = 0, ""
        self._change = threading.Condition()
        self._ready: deque[Landed] = deque()
        self._admitted = self._converted = self._taken = 0
        self._behind: deque[tuple[int, tuple[PlaceEvent, ...]]] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self.closed = False
        self.thread: threading.Thread | None = None
        self._phase = "data"
        self._waiting_since: float | None = None
        self.waited = {"data": 0.0, "copy": 0.0} if waited is None else waited

    def begin(self, *arguments: Any) -> None:
        """Start the thread that does `work` with these arguments."""
        self.thread = threading.Thread(
            target=copy_context().run, args=(work, self, *arguments), name="tensorferry prefetch", daemon=True
        )
        _working.add(self)
        self.thread.start()

    def runs(self) -> bool:
        """Whether its thread is there, in this process."""
        return self.thread is not None and self.thread.is_alive()

    # -- the worker's side ------------------------------------------------------------------------

    def admit(self) -> bool:
        """Wait until there is room for another batch; whether one is still wanted."""
        with self._change:
            self._enter("data")
            self._change.wait_for(lambda: self.closed or self._admitted < self._depth)
            self._admitted += 1
            return not self.closed

    def enter(self, phase: str) -> None:
        """Say what the worker does from now on."""
        with self._change:
            self._enter(phase)

    def _enter(self, phase: str) -> None:
        self._credit()
        self._phase = phase

    def _credit(self) -> None:
        """Put the time that the consumer has waited down to what the worker does."""
        if self._waiting_since is not None:
            now = perf_counter()
            self.waited[self._phase] += now - self._waiting_since
            self._waiting_since = now

    def wait_for_consumer(self) -> None:
        """Wait until the device is past what the consumer had queued when it took the batch `depth` before.

        The memory of the batches before that one can be used again then: no more than ``depth + 2`` batches lie on a
        device, however far the consumer is ahead of it.
        """
        while self._behind and self._behind[0][0] <= self._converted - self._depth:
            for reached in self._behind.popleft()[1]:
                reached.event.wait()

    def put(self, batch: Landed) -> None:
        """Let the consumer have a batch."""
        with self._change:
            self._converted += 1
            if not self.closed:
                self._ready.append(batch)
                self._change.notify_all()

    def skip(self, why: str) -> None:
        """Leave the batch out that was admitted last."""
        with self._change:
            self._admitted -= 1
            self._skipped += 1
            self._why_skipped = self._why_skipped or why

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing comes after what is ready, but perhaps an error."""
        with self._change:
            self._error, self._ended = error, True
            self._change.notify_all()

    # -- the consumer's side ----------------------------------------------------------------------

    def take(self) -> Landed:
        """The next batch.

        Raises:
            StopIteration: There is none.
            RuntimeError: This is a child process of the one that reads ahead.
            BaseException: What the source, or the conversion, raised in its place.
        """
        with self._change:
            self._waiting_since = perf_counter()
            try:
                self._change.wait_for(self._has_news)
            finally:
                self._credit()
                self._waiting_since = None
            if self._ready and not self.closed:
                batch = self._ready.popleft()
                self._behind.append((self._taken, batch.events_here()))
                self._taken += 1
                self._admitted -= 1
                self._change.notify_all()
                return batch
            error, self._error = self._error, None
        if error is None:
            if not (self._ended or self.closed):
                raise RuntimeError("The thread of this prefetch is not in this process; make another prefetch here.")
            raise StopIteration
        try:
            raise error
        finally:
            del error  # it holds this frame

    def _has_news(self) -> bool:
        # In a child process there is no worker.
        return bool(self._ready) or self._ended or self.closed or not self.runs()

    def take_skipped(self) -> tuple[int, str]:
        """How many batches have been left out since this was asked last, and why the first of them was."""
        with self._change:
            found = self._skipped, self._why_skipped
            self._skipped, self._why_skipped = 0, ""
            return found

    @property
    def exhausted(self) -> bool:
        """Whether everything has been handed out."""
        return self._ended and not self._ready and self._error is None

    def close(self, patience: float = 0.0) -> None:
        """Let the worker end, and forget what is ready.

        Args:
            patience: How many seconds to wait for that at most.
        """
        with self._change:
            self.closed = True
            self._ready.clear()
            self._change.notify_all()
        thread = self.thread
        if patience and thread is not None and thread is not threading.current_thread():
            thread.join(patience)


_working: weakref.WeakSet[Ahead] = weakref.WeakSet()
"""Those that have a thread."""


@atexit.register
def _end_all() -> None:
    """End the workers before the interpreter does: it stops daemon threads wherever they are."""
    working, deadline = list(_working), perf_counter() + PATIENCE
    for ahead in working:
        ahead.close()
    for ahead in working:
        ahead.close(max(deadline - perf_counter(), 0.0))


def work(ahead: Ahead, read: list[Any], source: Iterator[Any], converter: Converter, streams: Sequence[Stream]) -> None:
    """Convert ahead until the source ends, or nobody wants more.

    Args:
        ahead: What is shared with the consumer.
        read: Batches that have been read from the source already.
        source: The source.
        converter: What converts.
        streams: The consumer's streams: the source's work is queued on them, as if the consumer read it.
    """
    error: BaseException | None = None
    try:
        with ExitStack() as stack:
            for stream in streams:
                stack.enter_context(stream)
            _work(ahead, read, source, converter)
    except BaseException as raised:  # noqa: BLE001 - the consumer gets it in its place
        error = raised
    try:
        converter.close()
    except BaseException as raised:  # noqa: BLE001 - likewise
        error = error or raised
    ahead.end(error)
    del error  # it holds this frame


def _work(ahead: Ahead, read: list[Any], source: Iterator[Any], converter: Converter) -> None:
    while ahead.admit():
        try:
            batch = read.pop() if read else next(source)
        except StopIteration:
            return
        if ahead.closed:  # while the source was at it
            return
        ahead.enter("copy")
        ahead.wait_for_consumer()
        try:
            found = _convert(converter, batch)
        except ConversionError as error:
            if not ahead.skips:
                raise
            ahead.skip(str(error))
            continue
        finally:
            del batch
        ahead.put(found)
        del found


def _convert(converter: Converter, batch: Any) -> Landed:
    try:
        return converter.convert(batch)
    except StopIteration as error:
        # It would look like the source's end.
        raise RuntimeError("a conversion raised StopIteration") from error
