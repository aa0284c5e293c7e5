"""Begin a conversion: what is quick is done at once, the rest by a thread on side streams."""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ..core.devices import HOST
from ..devices.streams import Landed, SideStreams, events_of
from .target import landed_result, places_of, tensors_in
from .transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..devices.streams import PlaceEvent, StreamPlace
    from ..planning.plan import Plan
    from ..trees.program import PreparedTree
    from .target import Target

__all__ = ["begin_transfer"]


def begin_transfer(x: Any, target: Target) -> Transfer:
    """Plan a conversion, and begin it.

    Raises:
        ConversionError: The conversion is impossible.
    """
    pending = target.overlapping().prepare(x)
    future: Future[Landed] = Future()
    long = next(filter(_takes_long, pending.plans), None)
    if long is None:
        _settle_future(future, lambda: Landed(pending.run()))
        return Transfer(future)
    sources, places = places_of(pending.plans)
    before = events_of(sources)
    context = copy_context()

    def work(streams: SideStreams) -> None:
        _settle_future(
            future, lambda: context.run(_run_on_streams, pending, streams, places, before)
        )

    if long.result.device != HOST:
        end = long.result
    else:
        end = long.source
    _queue_of(end.framework, end.device).do(work)
    return Transfer(future)


def _takes_long(plan: Plan) -> bool:
    """Whether a plan crosses the bus or waits for a device.

    Work within a device is only queued, which is quick.
    """
    return any(step.path == "bus" or step.verb == "wait" for step in plan.steps)


def _run_on_streams(
    pending: PreparedTree,
    streams: SideStreams,
    places: Sequence[StreamPlace],
    before: Sequence[PlaceEvent],
) -> Landed:
    value, after = streams.convert(pending.run, places, before)
    for reached in after:
        reached.event.wait()
    for backend, tensor in () if places else tensors_in(value):
        # A framework without streams may still be working on the result.
        finish = getattr(backend, "wait", None)
        if finish is not None and backend.describe(tensor).device != HOST:
            finish(tensor)
    return landed_result(value, after)


def _settle_future(future: Future[Landed], do: Callable[[], Landed]) -> None:
    """Put the result, or the error, into a future."""
    try:
        result = do()
    except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        # To break a cycle: the error refers to this frame, and the future to the error.
        del (
            future,
            do,
        )


class _Queue:
    """The transfers of a device, which one thread does one after the other.

    The thread ends when there are no more transfers. Python waits for it before it exits.

    Args:
        name: The name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = f"tensorferry transfers {name}"
        self._lock = threading.Lock()
        self._work: deque[Callable[[SideStreams], None]] = deque()
        self._running = False

    def do(self, work: Callable[[SideStreams], None]) -> None:
        """Queue a function, which takes side streams and must not raise.

        Raises:
            RuntimeError: No thread can be started: the interpreter is ending.
        """
        with self._lock:
            if not self._running:
                threading.Thread(target=self._run, name=self._name, daemon=False).start()
                self._running = True
            self._work.append(work)

    def _run(self) -> None:
        streams = SideStreams()
        while (work := self._next()) is not None:
            work(streams)
            del work  # because it refers to tensors
        streams.give_back()

    def _next(self) -> Callable[[SideStreams], None] | None:
        with self._lock:
            self._running = bool(self._work)
            return self._work.popleft() if self._work else None


_queues: dict[tuple[str, str], _Queue] = {}
# A child process does not have the threads of its parent.
os.register_at_fork(after_in_child=_queues.clear)


def _queue_of(framework: str, device: str) -> _Queue:
    key = framework, device
    return _queues.get(key) or _queues.setdefault(key, _Queue(" ".join(key)))
