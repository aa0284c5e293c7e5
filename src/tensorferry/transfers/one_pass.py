"""`OnePass`: one pass over a source of batches, which are converted ahead of the consumer."""

from __future__ import annotations

import threading
import warnings
import weakref
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..core.devices import HOST
from ..core.names import EXCHANGE
from ..errors import ConversionError, frames_of_ours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Self

    from ..planning.plan import Plan
    from .target import Target
    from .worker import Worker

__all__ = ["OnePass", "Tally"]

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
        """Add the time since `start`: until `read` to the time for data, and the rest to the time for copies."""
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
                error.complete_hint("prefetch", self._target.to or EXCHANGE)
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
                found = self._here()
                if self._worker is None:
                    self._tally.batches += 1
                    return found
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
        """The next batch, converted here; if a device is involved, start the thread that converts all batches."""
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
                found = self._convert(self._read)
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
            return found

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
        from .places import places_of
        from .worker import Converter, Worker

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
        from .worker import PATIENCE

        self._closed = self._closed or why
        self._let_go(PATIENCE)

    def _let_go(self, patience: float) -> None:
        self._iterable, self._source, self._read = None, None, _NOTHING
        if self._worker is not None:
            self._worker.close(patience)
