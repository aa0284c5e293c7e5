"""`Worker`: a thread that reads a source, and converts batches ahead of the consumer.

The consumer and the thread have two queues. The first one has permissions to convert a batch:
`depth` at the start, and another for each batch that the consumer takes. A permission has events
for the work that the consumer has queued on the devices. After these events, the memory of earlier
batches can be used again. So at most ``depth + 2`` batches are on a device, even if the consumer
does not wait for it. The second queue has the converted batches.

The thread does not refer to the `Prefetch`, so that it ends when the `Prefetch` is deleted.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from contextlib import ExitStack, suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..core.named_tuple import NamedTuple
from ..devices.streams import Landed, SideStreams, events_of
from ..errors import ConversionError
from .places import landed, places_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..devices.streams import PlaceEvent, Stream, StreamPlace
    from ..planning.plan import Plan
    from .target import Target

__all__ = ["PATIENCE", "BatchResult", "Converter", "Worker"]

PATIENCE = 1.0
"""How many seconds `close` waits for a thread whose source does not answer."""


class Converter:
    """Converts batches, one after the other, on one side stream for each place.

    Args:
        target: The target.
        before: The events that the first batch waits for.
    """

    def __init__(self, target: Target, before: tuple[PlaceEvent, ...]) -> None:
        self._target, self._before = target, before
        self._streams = SideStreams()

    def convert(self, batch: Any) -> Landed:
        """Convert a batch. A device may still be working on the result."""
        pending = self._target.prepare(batch)
        sources, places = places_of(pending.plans)
        value, after = self._streams.convert(
            pending.run, places, (*self._before, *events_of(sources))
        )
        self._before = ()
        self._let_source_wait(batch, pending.plans, sources, after)
        return landed(value, after)

    def _let_source_wait(
        self,
        batch: Any,
        plans: Sequence[Plan],
        sources: Sequence[StreamPlace],
        after: Sequence[PlaceEvent],
    ) -> None:
        """Make later work of the source wait until this batch has been read."""
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
        """Give the side streams back."""
        self._streams.give_back()


class BatchResult(NamedTuple):
    """The result for one batch.

    Args:
        batch: The converted batch; ``None`` if it is left out, or if there are no more.
        read: The time at which the source gave it.
        skipped: The error of a batch that is left out.
        error: The error that ended the iteration, from the source or from a conversion.
    """

    batch: Landed | None = None
    read: float = float("inf")
    skipped: str = ""
    error: BaseException | None = None


class Worker:
    """The thread, and the queues that it shares with the consumer.

    Args:
        converter: Converts the batches.
        depth: How many batches may be read ahead.
        skips: Whether a batch that cannot be converted is left out.
    """

    def __init__(self, converter: Converter, depth: int, *, skips: bool) -> None:
        self._converter, self._skips = converter, skips
        self._leave: SimpleQueue[tuple[PlaceEvent, ...]] = SimpleQueue()
        self._results: SimpleQueue[BatchResult] = SimpleQueue()
        self._process, self._closed = os.getpid(), threading.Event()
        self._thread: threading.Thread | None = None
        for _ in range(depth):
            self._leave.put(())

    def begin(self, read: list[Any], source: Iterator[Any], streams: Sequence[Stream]) -> None:
        """Start the thread.

        Args:
            read: Batches that have already been read from the source.
            source: The source.
            streams: The streams of the consumer, on which the source's work is queued.
        """
        self._thread = threading.Thread(
            target=copy_context().run,
            args=(self._work, read, source, streams),
            name="tensorferry prefetch",
            daemon=True,
        )
        _working.add(self)
        self._thread.start()

    def runs(self) -> bool:
        """Whether the thread is running."""
        return self._thread is not None and self._thread.is_alive()

    def take(self) -> BatchResult:
        """Wait for the next batch.

        Raises:
            RuntimeError: This is a forked child process, which does not have the thread.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "The thread of this prefetch is not in this process; make another prefetch here."
            )
        found = self._results.get()
        if found.batch is not None:
            self._leave.put(found.batch.events_here())
        elif not found.skipped:
            self._results.put(BatchResult())  # for later calls
        return found

    def close(self, patience: float = 0.0) -> None:
        """End the thread, and drop converted batches.

        Args:
            patience: How many seconds to wait at most.
        """
        self._closed.set()
        self._leave.put(())
        self._forget()
        if patience and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience)

    def _forget(self) -> None:
        with suppress(Empty):
            while True:
                self._results.get_nowait()
        self._results.put(BatchResult())

    # -- in the thread ----------------------------------------------------------------------------

    def _give(self, result: BatchResult) -> None:
        self._results.put(result)
        if self._closed.is_set():
            self._forget()

    def _work(self, read: list[Any], source: Iterator[Any], streams: Sequence[Stream]) -> None:
        error: BaseException | None = None
        try:
            with ExitStack() as stack:
                for stream in streams:
                    stack.enter_context(stream)
                self._convert_each(read, source)
        except BaseException as raised:  # noqa: BLE001 - the consumer gets it in its place
            error = raised
        try:
            self._converter.close()
        except BaseException as raised:  # noqa: BLE001 - likewise
            error = error or raised
        self._give(BatchResult(error=error))
        del error  # to break a cycle: it refers to this frame

    def _convert_each(self, read: list[Any], source: Iterator[Any]) -> None:
        """Convert batches until the source ends, or the worker is closed."""
        taken, skipped = self._leave.get(), False
        while not self._closed.is_set():
            try:
                batch = read.pop() if read else next(source)
            except StopIteration:
                return
            if self._closed.is_set():  # while the source was read
                return
            at = perf_counter()
            for reached in () if skipped else taken:
                reached.event.wait()
            try:
                found = BatchResult(self._converter.convert(batch), at)
            except ConversionError as error:
                if not self._skips:
                    raise
                found = BatchResult(read=at, skipped=str(error))
            except StopIteration as error:
                # It would look like the source's end.
                raise RuntimeError("a conversion raised StopIteration") from error
            skipped = found.batch is None
            self._give(found)
            del batch, found
            if not skipped:
                taken = self._leave.get()


_working: weakref.WeakSet[Worker] = weakref.WeakSet()
"""The workers that have a thread."""


@atexit.register
def _end_all() -> None:
    """End the threads before the interpreter exits, which would stop daemon threads anywhere."""
    working, deadline = list(_working), perf_counter() + PATIENCE
    for worker in working:
        worker.close()
    for worker in working:
        worker.close(max(deadline - perf_counter(), 0.0))
