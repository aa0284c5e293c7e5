"""Many leaves at once: by groups with the same steps, together over a bus."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.devices import HOST
from ..core.dtypes import find
from ..core.layout import size_text
from ..core.named_tuple import NamedTuple
from ..core.request import Request
from ..execution import run
from ..execution.groups import AT_ONCE, some_of
from ..execution.recipes import conversion_of
from ..host import packing
from .shared_memory import converted_together

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..execution.groups import Arrangement, LeafGroup
    from ..execution.recipes import Recipe
    from ..planning.plan import Plan
    from ..planning.step import Step
    from .shared_memory import Bindings

    Indices = Sequence[int]

__all__ = [
    "Batch",
    "BusGroup",
    "RecipeLeaves",
    "alone",
    "bus_groups",
    "convert_groups",
    "part_of",
    "written",
]

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


class RecipeLeaves(NamedTuple):
    """Leaves with the same recipe.

    Args:
        recipe: The recipe.
        leaves: What its first step takes of each.
        sizes: The number of elements of each; ``None`` if they are tensors with a signature, whose
            steps are run for all of them at once.
    """

    recipe: Recipe
    leaves: list[Any]
    sizes: list[int] | None = None

    def run(self, steps: slice, values: list[Any]) -> list[Any]:
        """The results of some steps, for the values of these leaves, or of some of them."""
        recipe = self.recipe
        if self.sizes is not None:
            return [run.execute(recipe.program[steps], value) for value in values]
        return _run_together(recipe, steps, values)

    def nbytes(self, step: int) -> list[int]:
        """How many bytes of each leaf a step transfers.

        The plan in the recipe has the sizes of another leaf.
        """
        sizes = self.sizes
        if sizes is None:
            lengths = registry.backend_of(self.leaves[0]).quick.lengths
            sizes = list(map(prod, map(lengths, self.leaves)))
        whole, count = self.recipe.steps[step].bytes, max(self.recipe.plan.source.size, 1)
        return [whole * size // count for size in sizes]


def _run_together(recipe: Recipe, steps: slice, values: list[Any]) -> list[Any]:
    """The results of some steps, for tensors that take the same."""
    if len(values) <= AT_ONCE:
        return run.execute(recipe.bulk[steps], values)  # type: ignore[no-any-return]
    results: list[Any] = []
    for start in range(0, len(values), AT_ONCE):
        results += run.execute(recipe.bulk[steps], values[start : start + AT_ONCE])
    return results


def part_of(group: LeafGroup, leaves: Sequence[Any]) -> RecipeLeaves:
    """The leaves of a group."""
    if not group.prepared:
        return RecipeLeaves(group.recipe, some_of(leaves, group.indices))
    return RecipeLeaves(
        group.recipe,
        [one.handle for one in group.prepared],
        [one.info.size for one in group.prepared],
    )


def convert_groups(
    arrangement: Arrangement,
    leaves: list[Any],
    outs: list[Any] | None,
    bindings: Bindings | None = None,
    *,
    coalesce: bool,
    original: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """The leaves, with results by their steps: each step is done for all leaves of one group.

    Args:
        arrangement: The leaves by their steps.
        leaves: The leaves; those in no group stay.
        outs: For each leaf, the tensor that the result is written into; or ``None``.
        bindings: What the leaves have in common; ``None`` if nothing.
        coalesce: Whether small leaves cross the bus together.
        original: Gives the column that an array is over.

    Raises:
        ConversionError: A leaf cannot be converted. Nothing has been written then.
    """
    groups = arrangement.groups
    end = None if outs is None else -1
    results = [*leaves]
    if bindings is not None:
        groups = alone(groups, bindings)
        for cluster in bindings.together:
            for index, value in converted_together(cluster, bindings.prepared).items():
                results[index] = value
    crossed: dict[int, list[Any]] = {}
    if coalesce and arrangement.crosses:
        parts = [part_of(group, leaves) for group in groups]
        for crossing in bus_groups(parts):
            crossed.update(crossing.converted(parts, end))
    for number, group in enumerate(groups):
        recipe, indices, _, prepared = group
        if number in crossed:
            _put(results, indices, crossed[number])
        elif prepared:
            part = part_of(group, leaves)
            _put(results, indices, part.run(slice(end), part.leaves))
        elif len(indices) == 1:
            (index,) = indices
            results[index] = run.execute(recipe.program[:end], leaves[index])
        else:
            _put(results, indices, _run_together(recipe, slice(end), some_of(leaves, indices)))
    if bindings is not None:
        for index, first in bindings.same.items():
            results[index] = results[first]
    if outs is not None:
        _write(groups, results, outs, () if bindings is None else bindings.overwritten)
    if run.is_verifying():
        _verify(arrangement.groups, leaves, results, outs, original)
    return results


def written(arrangement: Arrangement, leaves: list[Any], outs: list[Any]) -> list[Any]:
    """All leaves, with the tensors of ``out=`` in place of those that are converted."""
    results = [*leaves]
    for group in arrangement.groups:
        _put(results, group.indices, some_of(outs, group.indices))
    return results


def alone(groups: Sequence[LeafGroup], bindings: Bindings) -> list[LeafGroup]:
    """Groups without the leaves that are converted with others."""
    others = {
        *bindings.same,
        *chain.from_iterable(members.members for members in bindings.together),
    }
    left = [group.without(others) for group in groups] if others else groups
    return [group for group in left if group.indices]


def _write(
    groups: Sequence[LeafGroup], results: list[Any], outs: list[Any], overwritten: Collection[int]
) -> None:
    """Write each result into its `out`, and replace it by that.

    Args:
        groups: The leaves by their steps, the last of which writes.
        results: The values before that step.
        outs: The tensors that they are written into.
        overwritten: Leaves that share memory with the `out` of another: they are copied first.
    """
    for index in sorted(overwritten):
        backend = registry.backend_of(results[index])
        own = conversion_of(backend, Request(backend.name, copy=True))
        results[index] = run.convert(results[index], own)
    for group in groups:
        some, into = some_of(results, group.indices), some_of(outs, group.indices)
        if group.prepared or len(some) == 1:
            for value, out in zip(some, into, strict=True):
                run.execute(group.recipe.program[-1:], value, out)
        else:
            run.execute(group.recipe.bulk[-1:], some, into)
        _put(results, group.indices, into)


def _verify(
    groups: Sequence[LeafGroup],
    leaves: Sequence[Any],
    results: Sequence[Any],
    outs: Sequence[Any] | None,
    original: Callable[[Any], Any] | None,
) -> None:
    """Compare each result with the plan of its leaf."""
    for group in groups:
        for at, index in enumerate(group.indices):
            if group.prepared:
                prepared = group.prepared[at]
            else:
                conversion: Any = group.conversion
                x = leaves[index] if original is None else original(leaves[index])
                prepared = run.prepare(x, conversion, None if outs is None else outs[index])
            run.verify_result(prepared, results[index])


def _put(results: list[Any], indices: Indices, values: list[Any]) -> None:
    """Put values where they belong."""
    if type(indices) is range and len(indices) == len(results):
        results[:] = values
        return
    for index, value in zip(indices, values, strict=True):
        results[index] = value


# -- what crosses a bus together -------------------------------------------------------------------
#
# The plan of each leaf stays the same. Only the step over the bus is done once for the whole batch.


class _Member(NamedTuple):
    """Leaves of a part that cross together: the part's number, that of the step, and which."""

    part: int
    step: int
    indices: Indices


class BusGroup(NamedTuple):
    """Leaves that cross the bus together, because one backend transfers them in the same way.

    Args:
        is_packed: Whether they are packed and cross as one; or else all are started before the
            first is waited for.
        members: The leaves, by parts.
    """

    is_packed: bool
    members: list[_Member]

    def batch(self, parts: Sequence[RecipeLeaves]) -> Batch:
        """What `explain` says of it."""
        sizes: list[int] = []
        widths: list[int] = []
        for number, step, indices in self.members:
            nbytes = parts[number].nbytes(step)
            sizes += [nbytes[index] for index in indices]
            widths += [_itemsize(parts[number].recipe, step)] * len(indices)
        if self.is_packed:
            whole = packing.packed_offsets(sizes, widths, self._alignment(parts))[1]
        else:
            whole = sum(sizes)
        first, step, _ = self.members[0]
        plan, transfer = parts[first].recipe.plan, parts[first].recipe.steps[step]
        target = HOST if transfer.verb in ("fetch", "land") else transfer.arguments[0]
        transfers = 1 if self.is_packed else len(sizes)
        return Batch(plan.source.device, target, len(sizes), whole, transfers)

    def converted(self, parts: Sequence[RecipeLeaves], end: int | None) -> dict[int, list[Any]]:
        """The results of the parts that have leaves in it, by the number of the part."""
        values: list[Any] = []
        for number, step, indices in self.members:
            part = parts[number]
            before = step - 1 if self.is_packed and _locks_first(part.recipe, step) else step
            values += part.run(slice(before), some_of(part.leaves, indices))
        crossed = iter(self._crossed(parts, values))
        arrivals = {}
        for number, step, indices in self.members:
            part = parts[number]
            done = step + 1 if self.is_packed else step
            arrived = part.run(slice(done, end), list(islice(crossed, len(indices))))
            if len(indices) < len(part.leaves):
                results = dict(zip(indices, arrived, strict=True))
                alone = [index for index in range(len(part.leaves)) if index not in results]
                large = part.run(slice(end), [part.leaves[index] for index in alone])
                results.update(zip(alone, large, strict=True))
                arrived = [results[index] for index in range(len(part.leaves))]
            arrivals[number] = arrived
        return arrivals

    def _crossed(self, parts: Sequence[RecipeLeaves], values: list[Any]) -> list[Any]:
        """Values after their transfer, as views of one buffer; or with their transfers started."""
        first, number, _ = self.members[0]
        recipe = parts[first].recipe
        step = recipe.steps[number]
        backend: Any = registry.backend_named(step.backend)  # it `packs`, or `fetches_ahead`
        if not self.is_packed:
            for value in values:
                backend.start_fetch(value)
            return values
        lock = {"lock": True} if _locks_first(recipe, number) else {}
        # ``place`` takes arrays of the host, and ``fetch`` gives them.
        pack = packing.pack if step.verb == "place" else backend.pack
        unpack = packing.unpack if step.verb == "fetch" else backend.unpack
        packed, layout = pack(values, self._alignment(parts), **lock)
        return unpack(run.execute(recipe.program[number : number + 1], packed), layout)

    def _alignment(self, parts: Sequence[RecipeLeaves]) -> int:
        """The alignment of each leaf in a packed buffer, besides the size of its elements."""
        names = {parts[member.part].recipe.plan.result.framework for member in self.members}
        memories = [registry.backend_named(name).capabilities.memory for name in names]
        return max(1, *(memory.alignment for memory in memories))


def bus_groups(parts: Sequence[RecipeLeaves]) -> list[BusGroup]:
    """How leaves cross the bus: one for each pair of devices.

    Args:
        parts: The leaves. Those that are the same as another are not among them.
    """
    by_transfer: dict[Any, list[_Member]] = defaultdict(list)
    for number, part in enumerate(parts):
        step = _transfer(part.recipe)
        if step is None:
            continue
        nbytes = part.nbytes(step)
        if min(nbytes) > 0 and max(nbytes) <= packing.LARGEST:
            indices: Indices = range(len(nbytes))
        else:
            indices = [
                index
                for index, leaf_bytes in enumerate(nbytes)
                if 0 < leaf_bytes <= packing.LARGEST
            ]
        if indices:
            plan, transfer = part.recipe.plan, part.recipe.steps[step]
            by_transfer[_transfer_key(transfer, plan)].append(_Member(number, step, indices))
    return [
        BusGroup(registry.backend_named(key[0]).capabilities.devices.packs, members)
        for key, members in by_transfer.items()
        if len(members) > 1 or len(members[0].indices) > 1
    ]


def _transfer(recipe: Recipe) -> int | None:
    """The number of the only transfer, if many leaves' can be made or started at once."""
    if len(recipe.transfers) != 1 or recipe.plan.result.requires_grad:
        return None
    step = recipe.steps[recipe.transfers[0]]
    devices = registry.backend_named(step.backend).capabilities.devices
    packs = devices.packs and step.verb in _PACKED
    if packs or (devices.fetches_ahead and step.verb == "fetch"):
        return recipe.transfers[0]
    return None


def _transfer_key(step: Step, plan: Plan) -> Any:
    """What is equal for leaves that cross together: who transfers, how, from where and to where."""
    return step.backend, step.verb, plan.source.device, step.arguments


def _itemsize(recipe: Recipe, step: int) -> int:
    """The size of the elements that cross the bus in a step."""
    casts = [
        step_done.arguments[0] for step_done in recipe.steps[:step] if step_done.verb == "cast"
    ]
    return find([recipe.plan.source.dtype, *casts][-1]).itemsize


def _locks_first(recipe: Recipe, step: int) -> bool:
    """Whether a step before the transfer copies to page-locked memory: packing does it for all."""
    return step > 0 and recipe.steps[step - 1].verb == "pin"
