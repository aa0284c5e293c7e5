"""`Prefetch`: an iterator over converted batches that is a little ahead of whoever reads it."""

from __future__ import annotations

import threading
import warnings
import weakref
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backend import EXCHANGE
from ..devices import HOST
from ..errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from ..plan import Plan
    from .ahead import Ahead, Converter
    from .goal import Goal

__all__ = ["Prefetch", "PrefetchStats"]

SLOTS = 2
"""Slots of page-locked memory: while one is read, the other is filled."""


class PrefetchStats(NamedTuple):
    """What a `prefetch` has done so far, and for what its consumer has waited.

    Args:
        batches: How many batches it has handed out.
        data_seconds: How long the consumer waited for a batch because the source had not given it.
        copy_seconds: How long it waited because the batch was being converted or copied. What a device's stream
            waits for a copy is not in it: the host does not see that.
        pinned_bytes: How much page-locked memory is held for copies.
        threaded: Whether batches are converted ahead, or as they are asked for.
    """

    batches: int
    data_seconds: float
    copy_seconds: float
    pinned_bytes: int
    threaded: bool


class Prefetch:
    """Converted batches, in the source's order; what `prefetch` gives.

    >>> import numpy as np, tensorferry as ferry
    >>> with ferry.prefetch((np.full(2, i) for i in range(3)), "torch") as batches:
    ...     for batch in batches:
    ...         print(batch)
    tensor([0, 0])
    tensor([1, 1])
    tensor([2, 2])

    It can be iterated over once. Leaving a ``with``, `close`, and dropping it end its thread.
    """

    def __init__(self, iterable: Iterable[Any], goal: Goal, depth: int) -> None:
        self._iterable: Any = iterable
        self._source: Iterator[Any] | None = None
        self._goal = goal
        self._depth = depth
        self._ahead: Ahead | None = None
        self._converter: Converter | None = None
        self._lock = threading.RLock()
        self._passes = False
        self._batches = 0
        self._waited = {"data": 0.0, "copy": 0.0}
        self._ended = False
        self._closed = False
        self._warned = False

    # -- iterating --------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        self._refuse_closed()
        if self._ended:
            raise RuntimeError(
                "This prefetch has been read to its end; make another for another pass: prefetch(loader, …)."
            )
        return self

    def __next__(self) -> Any:
        self._refuse_closed()
        if self._ended:
            raise StopIteration
        try:
            return self._next()
        except BaseException as error:
            if isinstance(error, ConversionError):
                error.said_of("prefetch", self._goal.to or EXCHANGE)
            # An interrupt while waiting leaves everything as it is.
            if not isinstance(error, KeyboardInterrupt) or self._is_over():
                self._end()
            raise

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ValueError("This prefetch is closed; make another: prefetch(loader, …).")

    def _next(self) -> Any:
        with self._lock:
            if self._ahead is None:
                found = self._begin()
                if self._ahead is None:
                    self._batches += 1
                    return found
            ahead = self._ahead
        try:
            landed = ahead.take()
        except StopIteration:
            self._refuse_closed()
            raise
        self._warn()
        with self._lock:
            self._batches += 1
        return landed.hand_out()

    def _begin(self) -> Any:
        """The next batch, or a thread for it and all others if there is something to do beside the consumer."""
        if self._source is None:
            # Here and not in the thread: the iterators of some loaders start processes.
            self._source, self._iterable = iter(self._iterable), None
        start = perf_counter()
        batch = next(self._source)
        read = perf_counter()
        self._waited["data"] += read - start
        try:
            if not self._passes:
                plans = [leaf.plan for leaf in self._goal.explain(batch)]
                if any(info.device != HOST for plan in plans for info in (plan.source, plan.result)):
                    self._set_going(batch, plans)
                    return None
                self._passes = bool(plans)
            found = self._goal.convert(batch)
        except StopIteration as error:
            # It would look like the source's end.
            raise RuntimeError("a conversion raised StopIteration") from error
        self._waited["copy"] += perf_counter() - read
        return found

    def _set_going(self, batch: Any, plans: Sequence[Plan]) -> None:
        """Convert this batch and the following ones ahead from now on."""
        from .ahead import Ahead, Converter
        from .sides import moments, places_of

        sources, targets = places_of(plans)
        places = (*(place for place in sources if place not in targets), *targets)
        # What the source may hold already has been queued by this thread.
        self._converter = Converter(self._goal, moments(sources), min(self._depth, SLOTS))
        ahead = Ahead(self._depth)
        weakref.finalize(self, ahead.close).atexit = False
        ahead.begin([batch], self._source, self._converter, [place.current for place in places])
        self._ahead, self._source = ahead, None
        if self._closed:
            ahead.close()

    def _warn(self) -> None:
        ring = None if self._converter is None else self._converter.ring
        if ring is not None and ring.failure and not self._warned:
            self._warned = True
            warnings.warn(
                f"Copies go on from pageable memory, and may not overlap with the device's work: {ring.failure}.",
                RuntimeWarning,
                stacklevel=4,
            )

    # -- ending -----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._ahead is None or self._ahead.exhausted

    def _end(self) -> None:
        self._ended = True
        self._source = self._iterable = None
        if self._ahead is not None:
            self._ahead.close()

    def close(self) -> None:
        """End the thread, and forget what has been converted; more than once does no harm.

        >>> import numpy as np, tensorferry as ferry
        >>> batches = ferry.prefetch([np.zeros(2)], "torch")
        >>> batches.close()

        It returns within a second. A source that does not answer keeps its thread, a daemon, until it does.
        """
        self._closed = True
        self._source = self._iterable = None
        if self._ahead is not None:
            from .ahead import PATIENCE

            self._ahead.close(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- looking ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._ended:
            state = "at its end"
        else:
            begun = self._batches or self._source is not None or self._ahead is not None
            state = f"up to {self._depth} ahead" if begun else "not begun"
        batches = "1 batch" if self._batches == 1 else f"{self._batches} batches"
        return f"<Prefetch to {self._goal}: {batches} handed out, {state}>"

    def stats(self) -> PrefetchStats:
        """What has been done so far, and how many seconds the consumer waited for data and for copies.

        >>> import numpy as np, tensorferry as ferry
        >>> batches = ferry.prefetch([np.zeros(2)] * 3, "torch")
        >>> len(list(batches)), batches.stats().batches, batches.stats().threaded
        (3, 3, False)
        """
        waited = self._waited if self._ahead is None else self._ahead.waited
        ring = None if self._converter is None else self._converter.ring
        first = self._waited["data"] if self._ahead is not None else 0.0
        return PrefetchStats(
            batches=self._batches,
            data_seconds=waited["data"] + first,
            copy_seconds=waited["copy"],
            pinned_bytes=0 if ring is None else ring.nbytes,
            threaded=self._ahead is not None,
        )
