"""`Ring`: page-locked memory that is used again and again, and the leaves of a batch in one piece of it.

A transfer from page-locked memory overlaps with the device's work, and locking takes longer than copying. So
the leaves of a batch are copied into memory that is locked already, and go from there. A slot is used again only
after the event of the copies that read it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ..api import convert
from ..backends import registry
from ..core.devices import HOST
from ..core.dtypes import find
from ..core.layout import ALIGNMENT
from ..core.names import EXCHANGE
from ..host import packing
from ..host.numpy_dtypes import numpy_dtype
from ..planning.rules import agrees, check_of
from ..trees.leaves import LeafRule
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ..planning.plan import Plan
    from ..trees.plans import LeafPlan
    from .side_streams import Place, PlaceEvent
    from .target import Target

    Bytes = np.ndarray[Any, Any]

__all__ = ["Ring", "Staged", "slot_dtype", "stage"]

_STAGED = "fill"
"""The verb of what crosses the bus in chunks, through slots of its own."""

MANY = 64
"""Leaves from which they go in one packed transfer: starting one of each would take longer than packing them."""


class _Slot:
    """Page-locked bytes, and what still reads them."""

    def __init__(self) -> None:
        self.memory: Bytes | None = None
        self.readers: tuple[PlaceEvent, ...] = ()

    def free(self) -> None:
        """Wait until nothing reads it."""
        for reached in self.readers:
            reached.event.wait()
        self.readers = ()


class Ring:
    """Slots that take turns: while one is read, the next is filled.

    Args:
        place: For whose transfers the memory is locked.
        count: How many slots there are.
    """

    def __init__(self, place: Place, count: int) -> None:
        self._place = place
        self._slots = deque(_Slot() for _ in range(count))
        self.failure = ""
        """Why no memory is locked any more."""
        self._works = True

    @property
    def nbytes(self) -> int:
        """How many bytes are locked."""
        return sum(slot.memory.nbytes for slot in list(self._slots) if slot.memory is not None)

    def take(self, nbytes: int) -> Bytes | None:
        """The next slot's memory, which nothing reads any more; ``None``: none can be locked."""
        if not self._works:
            return None
        self._slots.rotate(-1)
        slot = self._slots[0]
        slot.free()
        if slot.memory is None or slot.memory.nbytes < nbytes:
            # Larger than asked for if it grows, so that batches that grow do not lock each time.
            size = nbytes if slot.memory is None else nbytes + nbytes // 4
            slot.memory = None
            slot.memory = self._lock(size)
        return slot.memory

    def _lock(self, nbytes: int) -> Bytes | None:
        try:
            found = self._place.backend.pinned_memory(nbytes, self._place.device)
        except MemoryError as error:
            found, self.failure = None, str(error) or "no memory can be page-locked"
        if found is None:
            self.close()
        return found

    def read_until(self, events: tuple[PlaceEvent, ...]) -> None:
        """Say what the copies from the slot that was taken last are over with."""
        self._slots[0].readers = events

    def close(self) -> None:
        """Wait for what reads the slots, and give their memory back."""
        self._works = False
        for slot in self._slots:
            slot.free()
            slot.memory = None


class Staged(NamedTuple):
    """A batch whose leaves are in a slot.

    Args:
        batch: The batch, with tensors over the slot's memory in the place of its own.
        target: Where it goes from there.
        complete: Whether all that crosses the bus does so from page-locked memory.
    """

    batch: Any
    target: Target
    complete: bool


def overlaps(plan: Plan) -> bool:
    """Whether a conversion reads page-locked memory without a slot of the ring."""
    return plan.source.pinned or any(step.verb == _STAGED for step in plan.steps)


def slot_dtype(plan: Plan) -> str | None:
    """The dtype as which a leaf lies in a slot, or ``None`` if it does not go through one.

    Casts to as many or fewer bytes are done on the way into the slot, widening ones on the device. What needs
    a look at each value, stays in an autograd graph, is page-locked already or so large that its plan
    has slots of its own is left to that plan. So is what goes to a target that has no tensors on the host.
    """
    source, result = plan.source, plan.result
    backend = registry.backend_named(source.framework)
    if overlaps(plan) or HOST not in registry.backend_named(result.framework).capabilities.devices.kinds:
        return None
    if source.device != HOST or result.device == HOST or source.abstract is not None or not source.size:
        return None
    if source.requires_grad or source.weak_dtype is not None or source.shards > 1:
        return None
    if source.kind in backend.capabilities.objects.read_kinds or check_of(source, plan.request, result.dtype):
        return None
    if find(result.dtype).itemsize <= find(source.dtype).itemsize:
        return result.dtype
    held = registry.backend_named(result.framework).capabilities.dtypes.held
    return source.dtype if agrees(source.dtype, result.dtype) and source.dtype in held else None


def stage(batch: Any, leaves: Sequence[LeafPlan], target: Target, ring: Ring) -> Staged | None:
    """Copy the leaves that go to a device into the next slot; ``None``: none does, or none can.

    Args:
        batch: A tensor or a tree.
        leaves: Its leaves' plans.
        target: Where it goes.
        ring: The slots.

    Raises:
        ConversionError: A leaf cannot be read.
    """
    layout, size = _lay_out(leaves)
    if not layout:
        return None
    found, structure = take_apart(batch, LeafRule(target.leaves).chosen, sharing=True)
    here = dict(zip(structure.paths(), found, strict=True))
    # Two keys of one mapping may look alike: their leaves cannot be told apart by their paths.
    memory = ring.take(size) if len(here) == len(found) else None
    if memory is None:
        return None
    for leaf in leaves:
        if leaf.path in layout:
            here[leaf.path] = _fill(here[leaf.path], leaf.plan, memory, *layout[leaf.path])
        elif leaf.same_as in layout:
            here[leaf.path] = here[leaf.same_as]
    crossing = [leaf for leaf in leaves if leaf.plan.source.device == HOST != leaf.plan.result.device]
    complete = all(leaf.path in layout or leaf.same_as in layout or overlaps(leaf.plan) for leaf in crossing)
    onward = target.as_planned(leaves)
    onward = onward if len(layout) > MANY else onward.one_by_one()
    if callable(target.leaves):
        onward = onward.among({id(here[leaf.path]) for leaf in leaves})
    return Staged(structure.rebuild(list(here.values())), onward, complete)


def _lay_out(leaves: Sequence[LeafPlan]) -> tuple[dict[str, tuple[int, str]], int]:
    """For each leaf that goes through the slot its offset and its dtype, and how many bytes they take in all."""
    dtypes = [(leaf, None if leaf.same_as is not None else slot_dtype(leaf.plan)) for leaf in leaves]
    chosen = [(leaf, dtype) for leaf, dtype in dtypes if dtype is not None]
    sizes = [leaf.plan.source.size * find(dtype).itemsize for leaf, dtype in chosen]
    offsets, size = packing.starts(sizes, [ALIGNMENT] * len(sizes))
    return {leaf.path: (offset, dtype) for (leaf, dtype), offset in zip(chosen, offsets, strict=True)}, size


def _fill(leaf: Any, plan: Plan, memory: Bytes, offset: int, dtype: str) -> Any:
    """A tensor of the target over its part of the slot, with the leaf's values."""
    kind = numpy_dtype(dtype)
    part = memory[offset : offset + plan.source.size * kind.itemsize].view(kind).reshape(plan.source.shape)
    casting: Any = plan.request.casting
    convert(leaf, EXCHANGE, out=part, casting=casting)
    return convert(part, plan.result.framework, copy=False)
