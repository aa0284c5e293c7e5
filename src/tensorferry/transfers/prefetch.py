"""`Prefetch`: an iterable of converted batches, which are converted ahead of the consumer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

from ..core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Self

    from .one_pass import OnePass
    from .target import Target

__all__ = ["Prefetch", "PrefetchStats"]

_CLOSED = "This prefetch is closed; make another: prefetch(loader, …)."


class PrefetchStats(NamedTuple):
    """What a `prefetch` has done so far, and how long its consumer has waited.

    Args:
        batches: How many batches it has given.
        data_seconds: How long the consumer waited for a batch because the source had not given it.
        copy_seconds: How long it waited because the batch was being converted or copied. What a
            device's stream waits for a copy is not in it: the host does not see that.
        threaded: Whether batches are converted ahead, or as they are asked for.

    .. versionadded:: 0.1
    """

    batches: int
    data_seconds: float
    copy_seconds: float
    threaded: bool


class Prefetch:
    """Converted batches, in the source's order; what `prefetch` gives.

    >>> import numpy as np, tensorferry as ferry
    >>> with ferry.prefetch([np.full(2, i) for i in range(3)], "torch") as batches:
    ...     for epoch in range(2):
    ...         print([batch.tolist() for batch in batches])
    [[0, 0], [1, 1], [2, 2]]
    [[0, 0], [1, 1], [2, 2]]

    If the source can be read again, as a list or a ``DataLoader`` can, each ``for`` loop starts
    from the beginning, and an earlier loop is over. A generator can be read once: a loop after a
    ``break`` continues with it, and a loop after its end is an error, not an empty loop. ``next``
    continues the latest loop. Its thread ends at the end of the ``with`` block, after `close`, and
    when the object is deleted.

    .. versionadded:: 0.1
    """

    def __init__(
        self, iterable: Iterable[Any], target: Target, depth: int, *, skips: bool = False
    ) -> None:
        from .one_pass import Tally

        self._iterable: Any = iterable
        self._target = target
        self._depth = depth
        self._skips = skips
        self._tally = Tally()
        self._lock = threading.Lock()
        self._pass: OnePass | None = None
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A prefetch has a thread and cannot be copied or pickled; "
            "make another where it is read."
        )

    # -- iterating --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        self._refuse_closed()
        with self._lock:
            current = self._pass
            if current is not None and current.begun:
                if not current.is_only:
                    current.close(
                        "This loop is over: another one over the same prefetch has begun."
                    )
                    current = None
                elif current.ended:
                    raise RuntimeError(
                        "This prefetch has been read to its end, and its source can be read once; "
                        "make another for another pass: prefetch(loader, …)."
                    )
            self._pass = current or self._begin()
            return self._pass

    def __next__(self) -> Any:
        self._refuse_closed()
        with self._lock:
            if self._pass is None:
                self._pass = self._begin()
            current = self._pass
        return next(current)

    def _begin(self) -> OnePass:
        from .one_pass import OnePass

        return OnePass(
            self._iterable, self._target, self._depth, skips=self._skips, tally=self._tally
        )

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ValueError(_CLOSED)

    def __len__(self) -> int:
        self._refuse_closed()
        return len(self._iterable)

    def __bool__(self) -> bool:
        try:
            return len(self) > 0
        except (TypeError, ValueError):
            return True

    # -- ending -----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the thread, and forget what has been converted; more than once does no harm.

        >>> import numpy as np, tensorferry as ferry
        >>> batches = ferry.prefetch([np.zeros(2)], "torch")
        >>> batches.close()

        It returns within a second. A source that does not answer keeps its thread, a daemon, until
        it does.
        """
        self._closed = True
        self._iterable = None
        if self._pass is not None:
            self._pass.close(_CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- looking ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        current = self._pass
        if self._closed:
            state = "closed"
        elif current is None or not current.begun:
            state = "not begun"
        elif current.ended:
            state = "at its end"
        else:
            state = f"up to {self._depth} ahead"
        count = self._tally.batches
        if count == 1:
            batches = "1 batch"
        else:
            batches = f"{count} batches"
        return f"<Prefetch to {self._target}: {batches} given, {state}>"

    @property
    def skipped(self) -> int:
        """How many batches could not be converted and were left out, with ``on_error="skip"``.

        >>> import numpy as np, tensorferry as ferry
        >>> ferry.prefetch([np.zeros(2)], "torch", on_error="skip").skipped
        0
        """
        return self._tally.skipped

    def stats(self) -> PrefetchStats:
        """What has been done in all passes, and how long the consumer waited for data and copies.

        >>> import numpy as np, tensorferry as ferry
        >>> batches = ferry.prefetch([np.zeros(2)] * 3, "torch")
        >>> len(list(batches)), batches.stats().batches, batches.stats().threaded
        (3, 3, False)
        """
        return PrefetchStats(
            batches=self._tally.batches,
            data_seconds=self._tally.data_seconds,
            copy_seconds=self._tally.copy_seconds,
            threaded=self._pass is not None and self._pass.threaded,
        )
