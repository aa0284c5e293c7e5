"""`WorkQueue`: transfers of one device, one after the other, on a thread that is there while there is work."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from ..devices.streams import SideStreams

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WorkQueue", "queue_of"]


class WorkQueue:
    """A queue of work, and at most one thread that does it.

    The thread ends when the queue is empty, so none is left behind; Python waits for it when it ends.

    Args:
        name: For the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._work: deque[Callable[[SideStreams], None]] = deque()
        self._running = False

    def do(self, work: Callable[[SideStreams], None]) -> None:
        """Queue work, which raises nothing; it is given side streams.

        Raises:
            RuntimeError: No thread can be started: the interpreter is ending.
        """
        with self._lock:
            if not self._running:
                threading.Thread(target=self._run, name=f"tensorferry transfers {self._name}", daemon=False).start()
                self._running = True
            self._work.append(work)

    def _run(self) -> None:
        streams = SideStreams()
        while (work := self._next()) is not None:
            work(streams)
            del work  # it keeps tensors alive
        streams.give_back()

    def _next(self) -> Callable[[SideStreams], None] | None:
        with self._lock:
            if self._work:
                return self._work.popleft()
            self._running = False
            return None


_queues: dict[tuple[str, str], WorkQueue] = {}
# A child process has none of its parent's threads.
os.register_at_fork(after_in_child=_queues.clear)


def queue_of(framework: str, device: str) -> WorkQueue:
    """The queue of a device."""
    key = framework, device
    return _queues.get(key) or _queues.setdefault(key, WorkQueue(" ".join(key)))
