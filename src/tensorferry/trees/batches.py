"""Many small leaves in one transfer: packed where they are, moved as one, views of one memory where they arrive.

A leaf's own plan stays what it is; the step that takes it over the bus is done for the whole batch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import registry, run
from ..devices import HOST
from .plans import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..plan import Plan
    from ..run import Prepared

__all__ = ["LARGEST", "Shipment", "ship", "shipments"]

LARGEST = 1 << 20
"""Bytes of a leaf from which it goes alone: its transfer takes longer than what starting it costs."""


class Shipment(NamedTuple):
    """A batch, its leaves by index, and for each the number of the step that is done for all."""

    batch: Batch
    members: tuple[int, ...]
    steps: tuple[int, ...]


def shipments(prepared: Mapping[int, Prepared], skipped: Iterable[int]) -> list[Shipment]:
    """The batches in which a tree's leaves cross the bus, one for each pair of devices.

    Args:
        prepared: The conversion of each leaf that has one.
        skipped: Leaves that are an earlier one over again.
    """
    out = set(skipped)
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    # Alike leaves have one plan.
    transfers: dict[int, int | None] = {}
    for index, each in prepared.items():
        if index in out:
            continue
        plan = id(each.plan)
        if plan not in transfers:
            transfers[plan] = _transfer(each.plan)
        step = transfers[plan]
        if step is not None:
            found = each.plan.steps[step]
            groups[found.backend, found.verb, each.plan.source.device, found.arguments].append((index, step))
    return [_shipment(prepared, key, members) for key, members in groups.items() if len(members) > 1]


def _shipment(prepared: Mapping[int, Prepared], key: Any, members: list[tuple[int, int]]) -> Shipment:
    _, verb, source, arguments = key
    nbytes = sum(prepared[index].plan.steps[step].bytes for index, step in members)
    packed = verb == "move"
    target = arguments[0] if packed else HOST
    batch = Batch(source, target, len(members), nbytes, 1 if packed else len(members))
    return Shipment(batch, tuple(index for index, _ in members), tuple(step for _, step in members))


def _transfer(plan: Plan) -> int | None:
    """The number of a plan's only transfer, if it is one that can be made, or started, for many at once."""
    found = [number for number, step in enumerate(plan.steps) if step.path == "bus"]
    if len(found) != 1 or plan.result.requires_grad:
        return None
    step = plan.steps[found[0]]
    abilities = registry.backend_named(step.backend).capabilities
    can = (step.verb == "move" and abilities.packs) or (step.verb == "fetch" and abilities.fetches_ahead)
    return found[0] if can and 0 < step.bytes <= LARGEST else None


def ship(shipment: Shipment, prepared: Mapping[int, Prepared]) -> dict[int, Any]:
    """The values of a batch's leaves after the transfer and all that follows it, `out` aside."""
    if shipment.batch.transfers > 1:
        return _fetch_together(shipment, prepared)
    first = prepared[shipment.members[0]]
    move = first.plan.steps[shipment.steps[0]]
    backend = registry.backend_named(move.backend)
    values, alignment = [], 1
    for index, step in zip(shipment.members, shipment.steps, strict=True):
        each = prepared[index]
        values.append(run.run(each.program[:step], each.handle))
        alignment = max(alignment, each.target.capabilities.alignment)
    parcel, layout = backend.pack(values, alignment)
    del values
    parts = backend.unpack(backend.move(parcel, *move.arguments), layout)  # type: ignore[attr-defined]
    results = {}
    for index, step, part in zip(shipment.members, shipment.steps, parts, strict=True):
        each = prepared[index]
        rest = each.program[step + 1 :]
        results[index] = run.run(rest[:-1] if each.plan.request.out is not None else rest, part)
    return results


def _fetch_together(shipment: Shipment, prepared: Mapping[int, Prepared]) -> dict[int, Any]:
    """Start the transfer of each leaf, then wait for one after the other."""
    values = {}
    for index, step in zip(shipment.members, shipment.steps, strict=True):
        each = prepared[index]
        values[index] = run.run(each.program[:step], each.handle)
        registry.backend_named(each.plan.steps[step].backend).start_fetch(values[index])
    results = {}
    for index, step in zip(shipment.members, shipment.steps, strict=True):
        rest = prepared[index].program[step:]
        results[index] = run.run(rest[:-1] if prepared[index].plan.request.out is not None else rest, values[index])
    return results
