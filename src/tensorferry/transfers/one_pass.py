"""One pass of `prefetch` over a source: a thread converts batches ahead of the consumer."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.devices import HOST
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..devices.streams import Landed, SideStreams, events_of
from ..errors import ConversionError, frames_of_ours
from .target import landed_result, places_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Self

    from ..devices.streams import PlaceEvent, Stream, StreamPlace
    from ..planning.plan import Plan
    from .target import Target


__all__ = ["PATIENCE", "BatchResult", "Converter", "OnePass", "Tally", "Worker"]


# -- the thread that converts ----------------------------------------------------------------------
#
# The consumer and the thread have two queues. The first one has permissions to convert a batch:
# `depth` at the start, and another for each batch that the consumer takes. A permission has events
# for the work that the consumer has queued on the devices. After these events, the memory of
# earlier batches can be used again. So at most ``depth + 2`` batches are on a device, even if the
# consumer does not wait for it. The second queue has the converted batches.
#
# The thread does not refer to the `Prefetch`, so that it ends when the `Prefetch` is deleted.

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
        return landed_result(value, after)

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
        for reached, tensors in landed_result(batch, after).parts if sources else ():
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
        result = self._results.get()
        if result.batch is not None:
            self._leave.put(result.batch.events_here())
        elif not result.skipped:
            self._results.put(BatchResult())  # for later calls
        return result

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
                result = BatchResult(self._converter.convert(batch), at)
            except ConversionError as error:
                if not self._skips:
                    raise
                result = BatchResult(read=at, skipped=str(error))
            except StopIteration as error:
                # It would look like the source's end.
                raise RuntimeError("a conversion raised StopIteration") from error
            skipped = result.batch is None
            self._give(result)
            del batch, result
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


# -- one pass over a source ------------------------------------------------------------------------

_NOTHING: Any = object()


@dataclass
class Tally:
    """Counts and times of all passes over one source.

    Args:
        batches: How many batches the consumer got.
        skipped: How many batches could not be converted, and were left out.
        data_seconds: How long the consumer waited for the source.
        copy_seconds: How long the consumer waited for conversions and copies.
    """

    batches: int = 0
    skipped: int = 0
    data_seconds: float = 0.0
    copy_seconds: float = 0.0

    def wait(self, start: float, read: float) -> None:
        """Add the time since `start`: until `read` to the time for data, the rest to copies."""
        now = perf_counter()
        copy = max(0.0, now - max(start, read))
        self.copy_seconds += copy
        self.data_seconds += now - start - copy

    def skip(self, why: str) -> None:
        """Count a batch that is left out.

        The first one gives a warning at the line of the consumer.
        """
        self.skipped += 1
        if self.skipped == 1:
            why = why.partition("\n")[0]
            text = f"A batch is skipped, as on_error says; all are counted in .skipped. {why}"
            warnings.warn(text, RuntimeWarning, stacklevel=frames_of_ours())


class OnePass:
    """An iterator over the converted batches of one pass.

    Args:
        iterable: The source of the batches.
        target: The target.
        depth: How many batches may be read ahead.
        skips: Whether a batch that cannot be converted is left out.
        tally: The counts and times, which are updated.
    """

    def __init__(
        self, iterable: Iterable[Any], target: Target, depth: int, *, skips: bool, tally: Tally
    ) -> None:
        self._iterable: Any = iterable
        self._source: Iterator[Any] | None = None
        self._read: Any = _NOTHING
        self._target = target
        self._depth = depth
        self._skips = skips
        self._tally = tally
        self._worker: Worker | None = None
        self._lock = threading.RLock()
        self._passes = False
        self._ended = False
        self._closed = ""
        self.is_only = False
        """Whether the source can be read only once, because it is its own iterator."""

    @property
    def begun(self) -> bool:
        """Whether a batch has been requested."""
        return self._iterable is None

    @property
    def ended(self) -> bool:
        """Whether there are no more batches."""
        return self._ended or bool(self._closed)

    @property
    def threaded(self) -> bool:
        """Whether batches are converted ahead."""
        return self._worker is not None

    # -- iterating --------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._refuse_closed()
        if self._ended:
            raise StopIteration
        try:
            return self._next()
        except BaseException as error:
            if isinstance(error, ConversionError):
                error.complete_hint(registry.caller("prefetch", self._target.to or EXCHANGE))
            # After an interrupt the iteration can continue.
            if not isinstance(error, KeyboardInterrupt):
                self._end()
            raise

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ValueError(self._closed)

    def _next(self) -> Any:
        with self._lock:
            if self._worker is None:
                batch = self._here()
                if self._worker is None:
                    self._tally.batches += 1
                    return batch
            worker = self._worker
        while True:
            start = perf_counter()
            result = worker.take()
            with self._lock:
                self._tally.wait(start, result.read)
                if result.skipped:
                    self._tally.skip(result.skipped)
                    continue
                self._tally.batches += result.batch is not None
            if result.batch is not None:
                return result.batch.result()
            self._refuse_closed()
            self._end()
            try:
                raise StopIteration if result.error is None else result.error
            finally:
                del result  # to break a cycle: the error refers to this frame

    def _here(self) -> Any:
        """The next batch, converted here; with a device, start the thread that converts all."""
        source: Any = self._source
        if source is None:
            iterable = self._iterable
            if iterable is None:
                # Another thread came to the end, or closed it, while this one waited for its turn.
                self._refuse_closed()
                raise StopIteration
            # Not in the thread, because the iterators of some loaders start processes.
            source = self._source = iter(iterable)
            self.is_only = source is iterable
            self._iterable = None
            del iterable
        while True:
            start = perf_counter()
            if self._read is _NOTHING:
                self._read = next(source)
            read = perf_counter()
            try:
                batch = self._convert(self._read)
            except ConversionError as error:
                self._read = _NOTHING
                if not self._skips:
                    raise
                self._tally.skip(str(error))
                continue
            except StopIteration as error:
                # It would look like the source's end.
                raise RuntimeError("a conversion raised StopIteration") from error
            self._read = _NOTHING
            self._tally.wait(start, read)
            return batch

    def _convert(self, batch: Any) -> Any:
        if self._passes:
            return self._target.convert(batch)
        pending = self._target.prepare(batch)
        if any(
            info.device != HOST for plan in pending.plans for info in (plan.source, plan.result)
        ):
            self._set_going(batch, pending.plans)
            return None
        self._passes = bool(pending.plans)
        return pending.run()

    def _set_going(self, batch: Any, plans: Sequence[Plan]) -> None:
        """Start the thread that converts this batch and the following ones."""
        from ..devices.streams import events_of
        from .target import places_of

        sources, places = places_of(plans)
        # The source may hold batches whose work this thread has queued.
        worker = Worker(
            Converter(self._target.overlapping(), events_of(sources)),
            self._depth,
            skips=self._skips,
        )
        weakref.finalize(self, worker.close).atexit = False
        self._worker = worker
        source: Any = self._source
        try:
            worker.begin([batch], source, [place.current for place in places])
        except BaseException:
            if not worker.runs():
                self._worker = None
            raise
        self._source = None
        if self._closed:
            worker.close()

    # -- ending -----------------------------------------------------------------------------------

    def _end(self) -> None:
        self._ended = True
        self._let_go(0.0)

    def close(self, why: str) -> None:
        """End the thread, and drop converted batches.

        After that, `next` raises an error with the text `why`.
        """
        self._closed = self._closed or why
        self._let_go(PATIENCE)

    def _let_go(self, patience: float) -> None:
        self._iterable, self._source, self._read = None, None, _NOTHING
        if self._worker is not None:
            self._worker.close(patience)
