"""Many small leaves in one transfer: packed where they are, moved as one, views of one memory where they arrive.

A leaf's own plan stays what it is; the step that takes it over the bus is done for the whole batch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import registry
from ..core.devices import HOST
from ..execution import run
from ..host import packing
from .plans import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..execution.run import Prepared
    from ..planning.plan import Plan

__all__ = ["Shipment", "arrive", "cross", "depart", "shipments"]


class Shipment(NamedTuple):
    """A batch, and for each of its leaves, by index, the number of its step that is done for all."""

    batch: Batch
    steps: dict[int, int]


def shipments(prepared: Mapping[int, Prepared], skipped: Iterable[int]) -> list[Shipment]:
    """The batches in which a tree's leaves cross the bus, one for each pair of devices.

    Args:
        prepared: The conversion of each leaf that has one.
        skipped: Leaves that are an earlier one over again.
    """
    out = set(skipped)
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    # Alike leaves have one recipe.
    transfers: dict[int, int | None] = {}
    for index, each in prepared.items():
        if index in out:
            continue
        plan = each.recipe.plan
        if id(plan) not in transfers:
            transfers[id(plan)] = _transfer(plan)
        step = transfers[id(plan)]
        if step is not None and 0 < _nbytes(each, step) <= packing.LARGEST:
            found = plan.steps[step]
            groups[found.backend, found.verb, plan.source.device, found.arguments].append((index, step))
    return [_shipment(prepared, key, members) for key, members in groups.items() if len(members) > 1]


def _shipment(prepared: Mapping[int, Prepared], key: Any, members: list[tuple[int, int]]) -> Shipment:
    name, verb, source, arguments = key
    nbytes = sum(_nbytes(prepared[index], step) for index, step in members)
    packed = registry.backend_named(name).capabilities.devices.packs
    target = HOST if verb in ("fetch", "land") else arguments[0]
    batch = Batch(source, target, len(members), nbytes, 1 if packed else len(members))
    return Shipment(batch, dict(members))


def _transfer(plan: Plan) -> int | None:
    """The number of a plan's only transfer, if it is one that can be made, or started, for many at once."""
    found = [number for number, step in enumerate(plan.steps) if step.path == "bus"]
    if len(found) != 1 or plan.result.requires_grad:
        return None
    step = plan.steps[found[0]]
    abilities = registry.backend_named(step.backend).capabilities
    packs = step.verb in ("move", "land", "fetch", "place") and abilities.devices.packs
    can = packs or (step.verb == "fetch" and abilities.devices.fetches_ahead)
    return found[0] if can else None


def _nbytes(each: Prepared, step: int) -> int:
    """How many bytes of a leaf cross the bus; its recipe's plan has those of the first leaf that is like it."""
    plan = each.recipe.plan
    return plan.steps[step].bytes * each.info.size // max(plan.source.size, 1)


def _locks_first(plan: Plan, step: int) -> bool:
    """Whether a plan's step before the transfer copies into page-locked memory: for all leaves, packing does."""
    return step > 0 and plan.steps[step - 1].verb == "pin"


def depart(shipment: Shipment, prepared: Mapping[int, Prepared], index: int) -> Any:
    """One leaf's value after all that comes before the transfer, and before the packing."""
    each, step = prepared[index], shipment.steps[index]
    return run.execute(each.recipe.program[: step - _locks_first(each.recipe.plan, step)], each.handle)


def cross(shipment: Shipment, prepared: Mapping[int, Prepared], values: Mapping[int, Any]) -> dict[int, Any]:
    """The values of some of a batch's leaves after the transfer, or after its start if each has its own."""
    first = next(iter(values))
    recipe, step = prepared[first].recipe, shipment.steps[first]
    transfer = recipe.plan.steps[step]
    backend = registry.backend_named(transfer.backend)
    if shipment.batch.transfers > 1:
        for value in values.values():
            backend.start_fetch(value)
        return dict(values)
    alignment = max(1, *(prepared[index].target.capabilities.memory.alignment for index in values))
    # What fetches gives arrays of the host, and what places takes them.
    pack = packing.pack if transfer.verb == "place" else backend.pack
    unpack = packing.unpack if transfer.verb == "fetch" else backend.unpack
    lock = {"lock": True} if _locks_first(recipe.plan, step) else {}
    packed, layout = pack(list(values.values()), alignment, **lock)
    parts = unpack(run.execute(recipe.program[step : step + 1], packed), layout)
    return dict(zip(values, parts, strict=True))


def arrive(shipment: Shipment, prepared: Mapping[int, Prepared], index: int, value: Any) -> Any:
    """One leaf's value after all that comes after the transfer, writing into its `out` aside."""
    each = prepared[index]
    # A transfer of its own has been started, and is still to be waited for.
    done = shipment.steps[index] + (1 if shipment.batch.transfers == 1 else 0)
    end = len(each.recipe.program) - (1 if each.request.out is not None else 0)
    return run.execute(each.recipe.program[done:end], value)
