"""`begin`: plan a conversion, do at once what takes no time, and the rest on a thread and on side streams."""

from __future__ import annotations

from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ..core.devices import HOST
from ..devices.streams import Landed, SideStreams, events_of
from .places import landed, places_of, tensors_in
from .transfer import Transfer
from .work_queue import queue_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..devices.streams import Place, PlaceEvent
    from ..planning.plan import Plan
    from .target import Pending, Target

__all__ = ["begin"]


def begin(x: Any, target: Target) -> Transfer:
    """Plan a conversion, and begin it.

    Raises:
        ConversionError: There is no such plan.
    """
    pending = target.without_waiting().prepare(x)
    plans = pending.plans
    future: Future[Landed] = Future()
    if not any(map(_takes_long, plans)):
        _settle(future, lambda: Landed(pending.run()))
        return Transfer(future)
    sources, places = places_of(plans)
    before = events_of(sources)
    context = copy_context()

    def work(streams: SideStreams) -> None:
        _settle(future, lambda: context.run(_run, pending, streams, places, before))

    queue_of(*_end_of(plans)).do(work)
    return Transfer(future)


def _takes_long(plan: Plan) -> bool:
    """Whether a plan crosses the bus or waits for a device; what a device does by itself is only queued."""
    return any(step.path == "bus" or step.verb == "wait" for step in plan.steps)


def _end_of(plans: Sequence[Plan]) -> tuple[str, str]:
    """The framework and the device whose transfers these join: the accelerator at either end."""
    plan = next(filter(_takes_long, plans))
    end = plan.result if plan.result.device != HOST else plan.source
    return end.framework, end.device


def _run(pending: Pending, streams: SideStreams, places: Sequence[Place], before: Sequence[PlaceEvent]) -> Landed:
    value, after = streams.convert(pending.run, places, before)
    for reached in after:
        reached.event.wait()
    found = landed(value, after)
    if not places:
        _finish(value)
    return found


def _finish(value: Any) -> None:
    """Wait for what a framework without streams has only promised."""
    for backend, tensor in tensors_in(value):
        finish = getattr(backend, "wait", None)
        if finish is not None and backend.describe(tensor).device != HOST:
            finish(tensor)


def _settle(future: Future[Landed], do: Callable[[], Landed]) -> None:
    """Let a future have what comes of it, an error too."""
    try:
        found = do()
    except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
        future.set_exception(error)
    else:
        future.set_result(found)
    finally:
        del future, do  # the error holds this frame, and the future holds the error
