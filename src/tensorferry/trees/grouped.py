"""Many leaves at once: packed to cross a bus together, and each step for all of them."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.devices import HOST
from ..core.dtypes import find
from ..core.named_tuple import NamedTuple
from ..core.sizes import size_text
from ..execution import run
from ..host import packing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..backends.base import Backend
    from ..execution.recipes import Recipe
    from ..execution.run import Prepared
    from ..planning.plan import Plan
    from ..planning.step import Step

    Places = Sequence[int]

__all__ = [
    "Batch",
    "Shipment",
    "arrive",
    "cross",
    "depart",
    "sent_together",
    "shipments",
]


# -- what crosses a bus together -------------------------------------------------------------------
#
# The plan of each leaf stays the same. Only the step over the bus is done once for the whole batch.

_PACKED = ("move", "land", "fetch", "place")
"""The transfers that can be made for a packed buffer."""


class Batch(NamedTuple):
    """Leaves that cross the bus together.

    Args:
        source: The device of the sources.
        target: The device of the results.
        leaves: The number of leaves.
        bytes: How many bytes cross the bus: those of the leaves, and of the gaps between them if
            the target wants each to be aligned.
        transfers: The number of transfers: 1, or one for each leaf, which run at the same time.
    """

    source: str
    target: str
    leaves: int
    bytes: int
    transfers: int

    def __str__(self) -> str:
        way = f"from {self.source} to {self.target}"
        size = size_text(self.bytes)
        if self.transfers == 1:
            return f"One transfer {way}: {self.leaves} leaves, {size}, packed, moved as one and unpacked as views"
        return f"{self.transfers} transfers {way}, {size}: all are started before the first is waited for"


class Shipment(NamedTuple):
    """A batch of leaves; for each, by index, the number of the step done for the whole batch."""

    batch: Batch
    steps: dict[int, int]


def shipments(prepared: Mapping[int, Prepared], skipped: Iterable[int]) -> list[Shipment]:
    """The batches in which the leaves of a tree cross the bus: one for each pair of devices.

    Args:
        prepared: The conversion of each leaf that has one.
        skipped: Leaves that are the same as an earlier one.
    """
    out = set(skipped)
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    # Leaves with the same signature have the same recipe.
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
            groups[_transfer_key(found, plan)].append((index, step))
    return [
        _shipment(prepared, key, members) for key, members in groups.items() if len(members) > 1
    ]


def _shipment(
    prepared: Mapping[int, Prepared], key: Any, members: list[tuple[int, int]]
) -> Shipment:
    name, verb, source, arguments = key
    sizes = [_nbytes(prepared[index], step) for index, step in members]
    packed = registry.backend_named(name).capabilities.devices.packs
    nbytes = sum(sizes)
    if packed:
        widths = [_itemsize(prepared[index].recipe.plan, step) for index, step in members]
        nbytes = packing.places(sizes, widths, _alignment(prepared, dict(members)))[1]
    if verb in ("fetch", "land"):
        target = HOST
    else:
        target = arguments[0]
    batch = Batch(source, target, len(members), nbytes, 1 if packed else len(members))
    return Shipment(batch, dict(members))


def _transfer(plan: Plan) -> int | None:
    """The number of the plan's only transfer, if many leaves' can be made or started at once."""
    found = [number for number, step in enumerate(plan.steps) if step.path == "bus"]
    if len(found) != 1 or plan.result.requires_grad:
        return None
    step = plan.steps[found[0]]
    abilities = registry.backend_named(step.backend).capabilities
    packs = step.verb in _PACKED and abilities.devices.packs
    can = packs or (step.verb == "fetch" and abilities.devices.fetches_ahead)
    return found[0] if can else None


def _transfer_key(step: Step, plan: Plan) -> Any:
    """What is equal for leaves that cross together: who transfers, how, from where and to where."""
    return step.backend, step.verb, plan.source.device, step.arguments


def _nbytes(each: Prepared, step: int) -> int:
    """How many bytes of a leaf cross the bus.

    The plan in the recipe has the sizes of another leaf.
    """
    plan = each.recipe.plan
    return plan.steps[step].bytes * each.info.size // max(plan.source.size, 1)


def _itemsize(plan: Plan, step: int) -> int:
    """The size of the elements that cross the bus in a step."""
    dtypes = [
        plan.source.dtype,
        *(each.arguments[0] for each in plan.steps[:step] if each.verb == "cast"),
    ]
    return find(dtypes[-1]).itemsize


def _alignment(prepared: Mapping[int, Prepared], indices: Iterable[int]) -> int:
    """The alignment of each leaf in a packed buffer, besides the size of its elements."""
    return max(1, *(prepared[index].target.capabilities.memory.alignment for index in indices))


def _locks_first(plan: Plan, step: int) -> bool:
    """Whether a step before the transfer copies to page-locked memory: packing does it for all."""
    return step > 0 and plan.steps[step - 1].verb == "pin"


def depart(shipment: Shipment, prepared: Mapping[int, Prepared], index: int) -> Any:
    """Run the steps of one leaf that come before the transfer, and before packing."""
    each, step = prepared[index], shipment.steps[index]
    return run.execute(
        each.recipe.program[: step - _locks_first(each.recipe.plan, step)], each.handle
    )


def cross(
    shipment: Shipment, prepared: Mapping[int, Prepared], values: Mapping[int, Any]
) -> dict[int, Any]:
    """Transfer leaves of a batch, or start the transfer of each; gives their values."""
    first = next(iter(values))
    recipe, step = prepared[first].recipe, shipment.steps[first]
    transfer = recipe.plan.steps[step]
    backend: Any = registry.backend_named(transfer.backend)  # it `packs`, or `fetches_ahead`
    if shipment.batch.transfers > 1:
        for value in values.values():
            backend.start_fetch(value)
        return dict(values)
    if _locks_first(recipe.plan, step):
        lock = {"lock": True}
    else:
        lock = {}
    parts = _packed(
        recipe, step, transfer, list(values.values()), _alignment(prepared, values), **lock
    )
    return dict(zip(values, parts, strict=True))


def _packed(
    recipe: Recipe, number: int, transfer: Step, values: list[Any], alignment: int, **lock: bool
) -> list[Any]:
    """Transfer values in one packed buffer, by a recipe's step; gives views of what arrived."""
    backend: Any = registry.backend_named(transfer.backend)
    # ``place`` takes arrays of the host, and ``fetch`` gives them.
    if transfer.verb == "place":
        pack = packing.pack
    else:
        pack = backend.pack
    if transfer.verb == "fetch":
        unpack = packing.unpack
    else:
        unpack = backend.unpack
    packed, layout = pack(values, alignment, **lock)
    return unpack(run.execute(recipe.program[number : number + 1], packed), layout)


# -- leaves that are not described one by one -----------------------------------------------------


def sent_together(
    parts: Sequence[tuple[Recipe, list[Any]]], target: Backend
) -> list[list[Any]] | None:
    """The results of many leaves, of which small ones cross the bus as `shipments` says.

    Args:
        parts: Recipes, and the leaves of each, which have signatures and do not share memory.
        target: The target of all.

    Returns:
        The results, as lists like those in `parts`. ``None``: some cannot be transferred in this
        way.
    """
    looked_at = [_packable(recipe) for recipe, _ in parts]
    numbers = [number for number in looked_at if number is not None]
    if len(numbers) < len(looked_at):
        return None
    found = [
        list(run.execute(recipe.bulk[:number], leaves))
        for (recipe, leaves), number in zip(parts, numbers, strict=True)
    ]
    together: dict[Any, list[tuple[int, Sequence[int]]]] = defaultdict(list)
    for which, ((recipe, leaves), number) in enumerate(zip(parts, numbers, strict=True)):
        if number < len(recipe.steps):
            small = _send_large(recipe, number, leaves, found[which])
            step = recipe.steps[number]
            together[_transfer_key(step, recipe.plan)].append((which, small))
    alignment = max(1, target.capabilities.memory.alignment)
    for members in together.values():
        recipe, number = parts[members[0][0]][0], numbers[members[0][0]]
        values = [found[which][place] for which, places in members for place in places]
        if len(values) > 1:
            values = _packed(recipe, number, recipe.steps[number], values, alignment)
        else:
            values = [run.execute(recipe.program[number : number + 1], value) for value in values]
        arrived = iter(values)
        for which, places in members:
            for place in places:
                found[which][place] = next(arrived)
    return [
        run.execute(recipe.bulk[number + 1 :], values)
        for (recipe, _), number, values in zip(parts, numbers, found, strict=True)
    ]


def _send_large(recipe: Recipe, number: int, leaves: list[Any], values: list[Any]) -> Sequence[int]:
    """Transfer each large leaf alone, in place of its value; gives the small ones' positions."""
    lengths = registry.backend_of(leaves[0]).quick.lengths
    most = packing.LARGEST * recipe.plan.source.size // recipe.steps[number].bytes
    sizes = list(map(prod, map(lengths, leaves)))
    if max(sizes) <= most:
        return range(len(leaves))
    for place, size in enumerate(sizes):
        if size > most:
            values[place] = run.execute(recipe.program[number : number + 1], values[place])
    return [place for place, size in enumerate(sizes) if size <= most]


def _packable(recipe: Recipe) -> int | None:
    """The number of a recipe's one transfer, or else its end; ``None`` if it cannot be packed."""
    if not recipe.transfers:
        return len(recipe.steps)
    number = recipe.transfers[0]
    step = recipe.steps[number]
    packs = registry.backend_named(step.backend).capabilities.devices.packs
    alone = len(recipe.transfers) == 1 and not recipe.plan.result.requires_grad
    if alone and packs and step.verb in _PACKED:
        return number
    return None


def arrive(shipment: Shipment, prepared: Mapping[int, Prepared], index: int, value: Any) -> Any:
    """Run one leaf's steps that come after the transfer, except the one that writes into `out`."""
    each = prepared[index]
    # A transfer that was only started must still be waited for.
    done = shipment.steps[index] + (1 if shipment.batch.transfers == 1 else 0)
    end = len(each.recipe.program) - (1 if each.request.out is not None else 0)
    return run.execute(each.recipe.program[done:end], value)
