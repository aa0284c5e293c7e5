"""What a plan does on devices: cast and copy there, give memory to another framework where it lies, cross the bus.

A device's memory goes to another framework where it lies; between two devices of a kind its own framework
moves it first. Over the bus, a small tensor goes in one call of its framework's, a large one through
page-locked slots (`staging`), where its framework has streams for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import dtypes
from ..core.devices import HOST, kind_of, same_place
from ..errors import DeviceError, LossyCastError
from . import host_steps, rules
from .step import Path

if TYPE_CHECKING:
    from ..core.declaration import Declaration
    from .builder import PlanBuilder

__all__ = [
    "CHUNK",
    "STAGED",
    "cast_inside",
    "casts_first",
    "duplicate",
    "fetch",
    "hand_over",
    "in_graph",
    "is_staged_up",
    "move_inside",
    "place",
    "refuse_pinned",
    "resolve",
    "stage_up",
    "to_device",
    "to_host",
]

STAGED = 16 << 20
"""Bytes from which a tensor crosses the bus through page-locked slots; estimated, not yet measured."""

CHUNK = 4 << 20
"""Bytes that one of the slots holds."""


# -- casts --------------------------------------------------------------------------------------


def in_graph(plan: PlanBuilder) -> bool:
    """Whether the dtype that is asked for can require grad."""
    return dtypes.find(plan.dtype).kind in ("float", "complex")


def _agrees(plan: PlanBuilder) -> bool:
    """Whether every framework rounds this cast to the same bits, so that the source's device may do it."""
    able = not {plan.now.dtype, plan.dtype} & plan.source.capabilities.dtypes.uncast
    return able and rules.agrees(plan.now.dtype, plan.dtype) and not plan.check


def _bytes_more(plan: PlanBuilder) -> int:
    """How many bytes more an element of the dtype that is asked for has."""
    return dtypes.find(plan.dtype).itemsize - dtypes.find(plan.now.dtype).itemsize


def casts_first(plan: PlanBuilder) -> bool:
    """Whether the cast comes before the bus: a narrowing one, or one that a device may not do."""
    fits = _bytes_more(plan) <= 0
    if plan.now.device == HOST:
        return fits or not _agrees(plan)
    return plan.now.abstract is not None or same_place(plan.now.device, plan.device) or (fits and _agrees(plan))


def cast_inside(plan: PlanBuilder, by: Declaration, why: str = "") -> None:
    """Cast with a framework's own operation, where the value lies."""
    why = why or rules.cast_reason(plan.source_info, plan.request, plan.target)
    kept = plan.now.requires_grad and in_graph(plan) and by.capabilities.gradients.records
    objects = by.capabilities.objects
    unseen = objects.tracer and f"{objects.tracer} records no look at values"
    if plan.now.abstract is not None:
        unseen = objects.abstract[plan.now.abstract][0]
    if unseen and plan.check:
        raise LossyCastError(
            f"{plan.now.dtype} to {plan.dtype} has to look at each value: {unseen}.",
            f'dtype="{plan.dtype}", casting="unsafe"',
        )
    plan.add(
        by,
        "cast",
        (plan.dtype, plan.check),
        "the cast stays in the graph" if kept else why,
        copies=plan.path,
        dtype=plan.dtype,
        requires_grad=kept,
        conjugate=False,
        negative=False,
        strides=plan.packed(by, plan.dtype),
        misalignment=0,
        kind="",
    )


# -- newly allocated memory ---------------------------------------------------------------------


def resolve(plan: PlanBuilder) -> None:
    """Apply lazy bits."""
    now = plan.now
    bits = [word for word, is_set in (("conjugate", now.conjugate), ("negative", now.negative)) if is_set]
    if bits:
        why = f"memory holds the values before the {' and '.join(bits)} bit is applied"
        plan.refuse_copy([why])
        changes: dict[str, Any] = {"conjugate": False, "negative": False, "strides": plan.packed(plan.source)}
        plan.add(plan.source, "resolve", (), why, copies=plan.path, **changes)
        plan.reason = why


def duplicate(plan: PlanBuilder, why: str) -> None:
    """Copy where the value is, with the order of the axes kept."""
    changes: dict[str, Any] = {"strides": plan.packed(plan.source), "misalignment": 0, "kind": ""}
    changes["requires_grad"] = plan.now.requires_grad and plan.source.capabilities.gradients.records
    plan.add(plan.source, "copy", (), why, copies=plan.path, **changes)
    plan.reason = why


def _straighten(plan: PlanBuilder, why: str) -> None:
    """Copy on the device, into memory that every framework takes."""
    if plan.now.is_compact or kind_of(plan.now.device) not in plan.source.capabilities.devices.stages:
        duplicate(plan, why)
        return
    _compact(plan, plan.source, why)
    plan.reason = why


def _compact(plan: PlanBuilder, by: Declaration, why: str) -> None:
    plan.add(by, "compact", (), why, copies=Path.DEVICE, strides=plan.c_order, misalignment=0)


# -- from device to device ----------------------------------------------------------------------


def hand_over(plan: PlanBuilder) -> bool:
    """Give a device's memory to the target where it lies, or where its own framework moves it to."""
    now, source, target = plan.now, plan.source, plan.target
    if HOST in (now.device, plan.device) or source is target or plan.request.out is not None:
        return False
    if kind_of(now.device) != kind_of(plan.device) or (plan.dtype != now.dtype and not _agrees(plan)):
        return False
    sides = (source, target)
    if any(plan.dtype not in each.capabilities.dtypes.held for each in sides):
        return False
    unnamed = [each.name for each in sides if plan.dtype in each.capabilities.dtypes.unhanded]
    if unnamed:
        plan.reason = f"{' and '.join(unnamed)} cannot name {plan.dtype} to another framework on a device"
        return False
    resolve(plan)
    if _bytes_more(plan) < 0:
        cast_inside(plan, source)
    _move_to_peer(plan)
    if plan.dtype != plan.now.dtype:
        cast_inside(plan, source)
    if plan.dtype != plan.source_info.dtype:
        plan.reason = plan.reason or plan.changes_dtype
    obstacles = rules.layout_obstacles(plan.now, target)
    if obstacles:
        plan.refuse_copy(obstacles)
        _straighten(plan, obstacles[0])
    share, reason, warnings = rules.sharing(plan.source_info, target, plan.request)
    plan.reason = plan.reason or reason
    host_steps.refuse_to_share(plan, [], share, reason)
    if not share and not plan.allocated:
        duplicate(plan, reason)
    if plan.allocated:
        plan.refuse_copy([plan.reason])
    else:
        plan.warnings = warnings
    if target.capabilities.devices.waits:
        plan.add(source, "wait", (), f"{target.name} cannot say on which stream it reads")
    plan.add(target, "hand_over", (source.name,), "the same device: no bytes move", **plan.as_targets())
    host_steps.present_read_only(plan)
    return True


def _move_to_peer(plan: PlanBuilder) -> None:
    """Let the source's own framework bring its tensor to the device of the result."""
    now = plan.now
    if same_place(now.device, plan.device) and now.shards == 1:
        return
    where = f"gathered from {now.shards} shards on {now.device}" if now.shards > 1 else plan.changes_device
    plan.refuse_copy([f"its {now.shards} shards have to be gathered" if now.shards > 1 else where])
    plan.reason = where
    gathers = f"{where}: " if now.shards > 1 else ""
    _one_transfer(plan, plan.source, (plan.device, False), f"{gathers}one copy between the devices")


# -- to the host --------------------------------------------------------------------------------


def to_host(plan: PlanBuilder) -> None:
    """Cross the bus to the host, narrower first where a device may narrow."""
    now, source = plan.now, plan.source
    if now.device == HOST:
        return
    gathered = [f"its {now.shards} shards have to be gathered"] if now.shards > 1 else []
    why = plan.changes_device
    plan.refuse_copy([*gathered, plan.reason or why])
    able = plan.request.out is None and plan.dtype in source.capabilities.dtypes.held
    if _bytes_more(plan) < 0 and _agrees(plan) and able:
        cast_inside(plan, source, "narrower before the bus: fewer bytes cross")
    if not _stage_down(plan, source) and not source.capabilities.devices.fetches:
        _move(plan, source, HOST)
        plan.reason = plan.reason or why


def _stage_down(plan: PlanBuilder, by: Declaration) -> bool:
    """Bring a tensor to the host as an array, by page-locked memory, if that is worth it or asked for."""
    now, why_not = plan.now, plan.changes_device
    able = kind_of(now.device) in by.capabilities.devices.stages and now.size > 0 and now.shards == 1
    lands = host_steps.wants_pinned(plan)
    if not able or (not lands and now.nbytes < STAGED):
        return False
    resolve(plan)
    if not plan.now.is_packed:
        _compact(plan, by, "the bus takes packed memory only")
    changes: dict[str, Any] = {"device": HOST, "framework": plan.exchange.name, "kind": "", "misalignment": 0}
    if lands:
        why = f"from {now.device} straight into page-locked memory, which was asked for"
        plan.add(by, "land", (), why, copies=Path.BUS, pinned=True, **changes)
    else:
        why = f"from {now.device} into page-locked slots, which the bus fills at its own speed"
        plan.add(by, "stage", (CHUNK,), why, copies=Path.BUS, pinned=True)
        why = "several threads empty each slot while the next ones fill"
        plan.add(by, "unload", (), why, copies=Path.HOST, pinned=False, **changes)
    plan.become(writable=True, mutable=True)
    plan.reason = plan.reason or why_not
    return True


def fetch(plan: PlanBuilder) -> None:
    """Bring the values into host memory in one call of the source's own."""
    now = plan.now
    gathers = now.shards > 1
    where = f"gathered from {now.shards} shards on {now.device}" if gathers else f"from {now.device}"
    plan.refuse_copy([f"its {now.shards} shards have to be gathered" if gathers else f"it has to be brought {where}"])
    copies = Path.HOST if now.device == HOST else Path.BUS
    own: dict[str, Any] = {"device": HOST, "shards": 1, "writable": True, "mutable": True}
    plan.add(plan.source, "fetch", (), where, copies=copies, strides=plan.c_order, **own)
    plan.reason = plan.reason or where


# -- to a device --------------------------------------------------------------------------------


def stage_up(plan: PlanBuilder, by: Declaration) -> bool:
    """Bring an array to the target's device through page-locked slots, if that is worth it."""
    now = plan.now
    if not is_staged_up(plan, by):
        return False
    if not now.is_packed:
        host_steps.pack_array(plan, "the bus takes packed memory only")
    why = f"by several threads into page-locked slots, from where the bus takes it to {plan.device}"
    if now.memory_map:
        why = "into page-locked slots: a device never reads a memory map"
    plan.add(by, "fill", (plan.device, CHUNK), why, copies=Path.HOST, pinned=True)
    writable = by.capabilities.memory.writable
    changes = {**plan.as_targets(), "writable": writable, "mutable": writable, **_arrived(plan)}
    plan.add(by, "send", (plan.device,), f"from {now.device} to {plan.device}", copies=Path.BUS, **changes)
    return True


def _arrived(plan: PlanBuilder) -> dict[str, Any]:
    """What a value becomes on the target's device."""
    return {"memory_map": False, "pinned": False, "device": plan.device, "misalignment": 0}


def is_staged_up(plan: PlanBuilder, by: Declaration) -> bool:
    """Whether `stage_up` would stage this value."""
    now = plan.now
    able = kind_of(plan.device) in by.capabilities.devices.stages and now.size > 0
    return able and not now.pinned and (now.nbytes >= STAGED or now.memory_map)


def to_device(plan: PlanBuilder) -> None:
    """Cross the bus to the target's device, wider afterwards."""
    if plan.request.out is not None:
        return
    if not same_place(plan.now.device, plan.device):
        _move(plan, plan.target, plan.device)
    if plan.now.dtype != plan.dtype:
        cast_inside(plan, plan.target, "wider after the bus: fewer bytes cross")


def place(plan: PlanBuilder) -> None:
    """Bring an array to a device of a target that cannot live on the host, in one call."""
    if plan.now.swapped or not plan.now.is_packed:
        host_steps.pack_array(plan, "the bus takes packed memory only")
    where = f"from {plan.now.device} to {plan.device}"
    changes = {**plan.as_targets(), **_arrived(plan)}
    plan.add(plan.target, "place", (plan.device,), where, copies=Path.BUS, **changes)


def _move(plan: PlanBuilder, by: Declaration, device: str) -> None:
    """One transfer."""
    overlaps = "non_blocking" in plan.request.options and device != HOST
    if overlaps and plan.now.pinned and not plan.allocated:
        plan.warnings.append("the transfer may still be reading the pinned source: do not write it yet")
    if overlaps and not plan.now.pinned:
        plan.add(by, "pin", (), "a transfer that overlaps reads page-locked memory", copies=Path.HOST, pinned=True)
    _one_transfer(plan, by, (device, overlaps), f"from {plan.now.device} to {device}")


def _one_transfer(plan: PlanBuilder, by: Declaration, arguments: tuple[str, bool], why: str) -> None:
    plan.add(
        by,
        "move",
        arguments,
        why,
        copies=Path.BUS,
        device=arguments[0],
        pinned=False,
        strides=plan.now.strides if plan.now.is_compact else plan.packed(by),
        misalignment=0,
        shards=1,
        requires_grad=plan.now.requires_grad and by.capabilities.gradients.records,
    )


# -- inside one framework -----------------------------------------------------------------------


def move_inside(plan: PlanBuilder, own: Declaration) -> None:
    """Change the device of a framework's own tensor."""
    if not plan.now.requires_grad and plan.now.abstract is None:
        if plan.device == HOST and _stage_down(plan, own):
            plan.add(own, "adopt", (), rules.ADOPT_REASONS[True], framework=own.name)
            return
        if plan.now.device == HOST and is_staged_up(plan, own):
            resolve(plan)
            plan.add(own, "export", (), rules.EXPORT_REASON)
            stage_up(plan, own)
            return
    _move(plan, own, plan.device)


# -- page-locked results ------------------------------------------------------------------------


def refuse_pinned(plan: PlanBuilder) -> None:
    """Raise if page-locked memory is asked for where there is none.

    Raises:
        DeviceError: The result is not on the host, or nobody can lock memory.
    """
    if not host_steps.wants_pinned(plan) or plan.now.abstract is not None:
        return
    if plan.device != HOST:
        raise DeviceError(
            f"pinned=True asks for page-locked memory of the host, and the result is on {plan.device}.",
            'device="cpu", or leave pinned= out',
        )
    if host_steps.pinner(plan) is None and not plan.now.pinned:
        sides = dict.fromkeys([plan.source.name, plan.target.name])
        who = f"Neither {' nor '.join(sides)} can" if len(sides) == 2 else f"{plan.source.name} cannot"
        raise DeviceError(f"{who} lock memory.", "leave pinned= out, or go over a framework that can")
