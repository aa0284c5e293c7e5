"""`Transfer`: a conversion that is under way."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Generator
    from concurrent.futures import Future

    from ..devices.streams import Landed

__all__ = ["Transfer"]


class Transfer:
    """A conversion that `start` has begun. Its result cannot be read before it is complete.

    >>> import numpy as np, tensorferry as ferry
    >>> transfer = ferry.start(np.arange(3), "torch")
    >>> transfer.result()
    tensor([0, 1, 2])

    You can ``await`` it. You can also drop it: the memory of the sources and of the result stays
    until the copy is done.

    .. versionadded:: 0.1
    """

    __slots__ = ("__weakref__", "_future", "_process")

    def __init__(self, future: Future[Landed]) -> None:
        self._future = future
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A transfer has a thread and cannot be copied or pickled; its result() can."
        )

    def _refuse_lost(self) -> None:
        """Raise in a forked process, which lacks the thread that would complete the transfer."""
        if not self._future.done() and os.getpid() != self._process:
            raise RuntimeError(
                "The thread of this transfer is not in this process; start another one here."
            )

    def done(self) -> bool:
        """Whether `result` would return, or raise, without waiting.

        >>> import numpy as np, tensorferry as ferry
        >>> ferry.start(np.arange(3), "torch").done()
        True
        """
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """The converted tensor or tree, complete; the same object each time.

        >>> import numpy as np, tensorferry as ferry
        >>> ferry.start({"x": np.arange(3)}, "torch").result(timeout=10.0)
        {'x': tensor([0, 1, 2])}

        It waits for an event after the last copy, never for a whole device.

        Args:
            timeout: How many seconds to wait at most; ``None`` to wait until it is complete.

        Raises:
            TimeoutError: It is not complete in time. It continues, and you can call `result` again.
            ConversionError: An error that depends on values; all others are raised by `start`.
            RuntimeError: This is a forked process, and the transfer was not complete before the
                fork.
            DeviceError: The result is on a device, which a forked process cannot use.
        """
        from concurrent.futures import wait

        self._refuse_lost()
        wait([self._future], timeout)
        if not self._future.done():
            raise TimeoutError(f"The transfer is not complete after {timeout} s; it goes on.")
        return self._future.result().result()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in an event loop of asyncio, without blocking it."""
        import asyncio

        self._refuse_lost()
        if not self._future.done():
            loop = asyncio.get_running_loop()
            complete = loop.create_future()
            self._future.add_done_callback(lambda _: _wake_task(loop, complete))
            yield from complete.__await__()
        return self.result()

    def __repr__(self) -> str:
        if not self.done():
            return "<Transfer: going on>"
        error = self._future.exception()
        if error is None:
            return "<Transfer: complete>"
        return f"<Transfer: failed with {type(error).__name__}>"


def _wake_task(loop: Any, complete: Any) -> None:
    """Wake the awaiting task, unless its loop is closed or it was cancelled."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: complete.done() or complete.set_result(None))
