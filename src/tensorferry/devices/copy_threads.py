"""`Copiers`: threads that copy memory beside the caller's, for as long as there is something to copy."""

from __future__ import annotations

import os
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

__all__ = ["MOST", "Copiers", "submit"]

MOST = 8
"""Threads that copy at once, where there are as many processors."""

_IDLE = 0.5
"""Seconds without work after which such a thread ends."""


class Copiers:
    """Threads that copy while there is something to copy, and end soon after."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.work: SimpleQueue[tuple[Future[None], Callable[..., object], tuple[Any, ...]]] = SimpleQueue()
        self.lock = threading.Lock()
        self.pending = 0
        self.threads = 0

    def submit(self, function: Callable[..., object], *arguments: Any) -> Future[None]:
        """Let one of the threads do it; this one, if the interpreter is ending and there is none."""
        from concurrent.futures import Future  # which brings logging: not for a small transfer

        future: Future[None] = Future()
        alone = False
        with self.lock:
            if self.pending >= self.threads and self.threads < self.limit:
                self.threads += 1
                try:
                    threading.Thread(target=self._run, name="tensorferry staging", daemon=True).start()
                except RuntimeError:
                    self.threads -= 1
                    alone = not self.threads
            if not alone:
                self.pending += 1
                self.work.put((future, function, arguments))
        if alone:
            _do(future, function, arguments)
        return future

    def _run(self) -> None:
        while True:
            try:
                job = self.work.get(timeout=_IDLE)
            except Empty:
                with self.lock:
                    if not self.pending:
                        self.threads -= 1
                        return
                continue
            _do(*job)
            del job  # it keeps memory alive
            with self.lock:
                self.pending -= 1


def _do(future: Future[None], function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001 - told to whoever asks for the result
        future.set_exception(error)
    else:
        future.set_result(None)


def _processors() -> int:
    found = getattr(os, "sched_getaffinity", None)
    return len(found(0)) if found is not None else os.cpu_count() or 1


_copiers = Copiers(min(MOST, _processors()))


def submit(function: Callable[..., object], *arguments: Any) -> Future[None]:
    """Let another thread do it."""
    return _copiers.submit(function, *arguments)


def _begin_anew() -> None:
    """A forked child has none of its parent's threads."""
    global _copiers
    _copiers = Copiers(_copiers.limit)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
