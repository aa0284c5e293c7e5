"""Steps on the device of a value, between devices, and over the bus.

Memory of a device is shared on that device. Between two devices of one kind, the source's framework
moves it. The bus is crossed in one call of a framework, and by as few bytes as possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hints
from ..core import dtypes
from ..core.declaration import NO_DETAILS, VALUE, Details, VerbCall, code_of
from ..core.devices import HOST, kind_of, same_place
from ..core.kinds import PLAIN, kind_named
from ..core.layout import byte_span
from ..core.request import OVERLAPS
from ..errors import LossyCastError
from ..hints import Hint
from . import host_steps, rules
from .step import Path

if TYPE_CHECKING:
    from ..core.declaration import Declaration
    from ..core.info import TensorInfo
    from .builder import PlanBuilder

__all__ = [
    "bytes_more",
    "cast_inside",
    "casts_agree",
    "change_inside",
    "duplicate_on_device",
    "fetch_to_host",
    "goes_straight",
    "in_graph",
    "is_cast_by_host",
    "narrow_array",
    "place_on_device",
    "share_on_device",
    "to_device",
    "to_host",
    "writes_there",
]

# -- casts --------------------------------------------------------------------------------------


def in_graph(plan: PlanBuilder) -> bool:
    """Whether the dtype of the result can require grad."""
    return dtypes.find(plan.dtype).kind in ("float", "complex")


def casts_agree(plan: PlanBuilder, by: Declaration | None = None) -> bool:
    """Whether all frameworks cast to the same bits, so the source's may do it on its device."""
    able = (by or plan.source).capabilities.dtypes.casts_on_device(plan.now.dtype, plan.dtype)
    return able and rules.frameworks_agree(plan.now.dtype, plan.dtype) and not plan.check


def is_cast_alike(plan: PlanBuilder) -> bool:
    """Whether the framework itself casts a plain tensor on the host as NumPy does."""
    now, caps = plan.now, plan.source.capabilities
    alike = (now.dtype, plan.dtype) in caps.dtypes.cast_alike and not plan.check
    # The method of a subclass could do anything, and its result would be of that class.
    is_plain = not now.kind or now.kind == kind_named(caps.gradients.parameter)
    plain = is_plain and not (now.conjugate or now.negative or now.requires_grad)
    return alike and plain and now.is_compact


def bytes_more(plan: PlanBuilder) -> int:
    """How many bytes an element gets larger; negative if it gets smaller."""
    return dtypes.find(plan.dtype).itemsize - dtypes.find(plan.now.dtype).itemsize


def is_cast_by_host(plan: PlanBuilder) -> bool:
    """Whether a device's value must come to the host to be cast: other bits are possible there."""
    now = plan.now
    there = (
        plan.dtype != now.dtype and now.device != HOST and now.abstract is None and now.shards == 1
    )
    return there and not casts_agree(plan)


_CAST_BY: dict[str, Details] = {
    "": NO_DETAILS,
    "host": Details(caster="host"),
    "graph": Details(caster="graph"),
}


def cast_inside(plan: PlanBuilder, by: Declaration, why: str = "") -> None:
    """Cast with the framework's own operation, on the device of the value."""
    why = why or rules.cast_reason(plan.source_info, plan.request, plan.target)
    kept = plan.now.requires_grad and in_graph(plan) and by.capabilities.gradients.records
    objects = by.capabilities.objects
    unseen = objects.tracer and f"{objects.tracer} records no look at values"
    if plan.now.abstract is not None:
        unseen = objects.abstract[plan.now.abstract][0]
    if unseen and plan.check:
        raise LossyCastError(
            f"{plan.now.dtype} to {plan.dtype} has to look at each value: {unseen}.",
            Hint(hints.keywords(dtype=plan.dtype, casting="unsafe")),
        )
    caster = ""
    if not unseen and not casts_agree(plan, by):
        caster = "graph" if kept else "host"
    if caster == "host" and not plan.check:
        why += rules.why_on_host(plan.source_info, plan.dtype)
    plan.add(
        by,
        "cast",
        (plan.dtype, plan.check),
        "the cast stays in the graph" if kept else why,
        copies=plan.path,
        details=_CAST_BY[caster],
        dtype=plan.dtype,
        requires_grad=kept,
        conjugate=False,
        negative=False,
        strides=plan.packed(by, plan.dtype),
        misalignment=0,
        kind=PLAIN,
        pinned=False,
    )


# -- newly allocated memory ---------------------------------------------------------------------


def duplicate_on_device(plan: PlanBuilder, why: str) -> None:
    """Copy on the device of the value, with the order of the axes in memory kept."""
    changes: dict[str, Any] = {
        "strides": plan.packed(plan.source),
        "misalignment": 0,
        "kind": PLAIN,
        "pinned": False,
    }
    changes["requires_grad"] = plan.now.requires_grad and plan.source.capabilities.gradients.records
    plan.add(plan.source, "copy", (), why, copies=plan.path, **changes)
    plan.reason = why


# -- from device to device ----------------------------------------------------------------------


def share_on_device(plan: PlanBuilder) -> bool:
    """Share memory of a device with the target, if necessary after a move to another device.

    Returns whether it can.
    """
    now, source, target, out = plan.now, plan.source, plan.target, plan.request.out
    if HOST in (now.device, plan.device) or source is target:
        return False
    if out is not None and not target.capabilities.memory.writes_own:
        return False
    if kind_of(now.device) != kind_of(plan.device) or (
        plan.dtype != now.dtype and not casts_agree(plan)
    ):
        return False
    sides = (source, target)
    if any(plan.dtype not in side.capabilities.dtypes.held for side in sides):
        return False
    if now.pinned:
        plan.reason = f"{source.name} keeps it for the device, but in memory of the host"
        return False
    unnamed = [side.name for side in sides if plan.dtype in side.capabilities.dtypes.unexported]
    if unnamed:
        plan.reason = (
            f"{' and '.join(unnamed)} cannot name {plan.dtype} to another framework on a device"
        )
        return False
    host_steps.resolve_lazy_bits(plan)
    if bytes_more(plan) < 0:
        cast_inside(plan, source)
    _move_to_peer(plan)
    if plan.dtype != plan.now.dtype:
        cast_inside(plan, source)
    if plan.dtype != plan.source_info.dtype:
        plan.reason = plan.reason or plan.changes_dtype
    obstacles = rules.layout_obstacles(plan.now, target)
    if obstacles:
        plan.refuse_copy(obstacles)
        _copy_on_device(plan, obstacles[0])
    if out is None:
        _share_or_copy(plan)
    if target.capabilities.devices.waits:
        plan.add(source, "wait", (), f"{target.name} cannot say on which stream it reads")
    _import_tensor(plan)
    if out is None:
        host_steps.present_read_only(plan)
    else:
        _write_into_out(plan, target)
    return True


def _import_tensor(plan: PlanBuilder) -> None:
    """Make the source's tensor one of the target, over the same memory."""
    before, source, target = plan.now, plan.source, plan.target
    plan.add(
        target,
        "import_dlpack",
        (source.name,),
        "the same device: no bytes move",
        **plan.as_targets(),
    )
    if any(before.dtype in side.capabilities.dtypes.unnamed for side in (source, target)):
        # The verb writes the type code itself; a person has integers of the same width exported.
        integer = f"uint{8 * dtypes.find(before.dtype).itemsize}"
        exported = VerbCall("view", (integer,), before, VALUE)
        named = VerbCall("view", (before.dtype,), plan.now, VALUE)
        snippet = plan.steps[-1].snippet.changed(
            lambda code: code_of(target, named).after(code.after(code_of(source, exported)))
        )
        plan.steps[-1] = plan.steps[-1]._replace(snippet=snippet)


def _share_or_copy(plan: PlanBuilder) -> None:
    """Share or copy on the device, by the sharing rule."""
    share, reason, warnings = rules.sharing_rule(plan.source_info, plan.target, plan.request)
    plan.reason = plan.reason or reason
    host_steps.refuse_to_share(plan, [], share, reason)
    if not share and not plan.allocated:
        duplicate_on_device(plan, reason)
    if plan.allocated:
        plan.refuse_copy([plan.reason])
    else:
        plan.warnings = warnings


def _move_to_peer(plan: PlanBuilder) -> None:
    """Move the tensor to the device of the result with the source's framework."""
    now = plan.now
    if same_place(now.device, plan.device) and now.shards == 1:
        return
    if now.shards > 1:
        where = f"gathered from {now.shards} shards on {now.device}"
    else:
        where = plan.changes_device
    plan.refuse_copy([f"its {now.shards} shards have to be gathered" if now.shards > 1 else where])
    plan.reason = where
    gathers = f"{where}: " if now.shards > 1 else ""
    _narrow_to_shared(plan, plan.source)
    _one_transfer(plan, plan.source, (plan.device, False), f"{gathers}one copy between the devices")
    _spread_again(plan, plan.source)


def _copy_on_device(plan: PlanBuilder, why: str) -> None:
    """Copy on the device, in a layout that every framework takes."""
    if plan.now.is_compact or plan.source.capabilities.memory.strides == "compact":
        duplicate_on_device(plan, why)
        return
    plan.add(
        plan.source, "compact", (), why, copies=Path.DEVICE, strides=plan.c_order, misalignment=0
    )
    plan.reason = why


# -- over the bus -------------------------------------------------------------------------------


def to_host(plan: PlanBuilder) -> None:
    """Cross the bus to the host; cast to a narrower dtype before, if the device may do it."""
    now, source = plan.now, plan.source
    if now.device == HOST:
        return
    if now.shards > 1:
        gathered = [f"its {now.shards} shards have to be gathered"]
    else:
        gathered = []
    if is_cast_by_host(plan) and same_place(now.device, plan.device):
        why = plan.changes_dtype
    else:
        why = plan.changes_device
    plan.refuse_copy([*gathered, plan.reason or why])
    fetches = source.capabilities.devices.fetches
    if not fetches:
        _narrow_to_shared(plan, source)
    able = plan.request.out is None and plan.dtype in source.capabilities.dtypes.held
    if bytes_more(plan) < 0 and casts_agree(plan) and able:
        cast_inside(plan, source, "narrower before the bus: fewer bytes cross")
    if not fetches:
        _add_transfer(plan, source, HOST)
        _spread_again(plan, source)
        plan.reason = plan.reason or why


def to_device(plan: PlanBuilder) -> None:
    """Cross the bus to the target's device, or into `out`; a cast to a wider dtype comes after."""
    out = plan.request.out
    if out is not None and plan.now is out:
        return
    if plan.now.framework == plan.source.name:
        by = plan.source
    else:
        by = plan.target
    if not same_place(plan.now.device, plan.device):
        _narrow_to_shared(plan, by)
    if plan.now.dtype != plan.dtype and bytes_more(plan) <= 0:
        cast_inside(plan, by)
    if not same_place(plan.now.device, plan.device) and (
        out is None or plan.whole or plan.now.dtype != plan.dtype
    ):
        _add_transfer(plan, by, plan.device)
    if plan.now.dtype != plan.dtype:
        cast_inside(plan, by, "wider after the bus: fewer bytes cross")
    _spread_again(plan, by)
    if out is not None:
        _write_into_out(plan, by, _lock_on_the_way(plan, by, out.device))


def _casts_first(plan: PlanBuilder) -> bool:
    """Whether the cast precedes the transfer: it makes fewer bytes, or the device may not do it."""
    if plan.now.abstract is not None or same_place(plan.now.device, plan.device):
        return True
    fits = bytes_more(plan) <= 0
    if plan.now.device == HOST:
        # More bytes cross the bus rather than that a device gives other bits.
        return fits or not casts_agree(plan)
    return fits and casts_agree(plan)


def change_inside(plan: PlanBuilder) -> None:
    """Change dtype and device in one framework: narrower before the transfer, wider after it."""
    own = plan.source
    by_host = is_cast_by_host(plan)
    if by_host or not same_place(plan.now.device, plan.device):
        repeated = _repeated_axes(plan.now, own)
        if repeated and plan.now.requires_grad:
            _cross_in_graph(plan, own, repeated, by_host=by_host)
            return
        _narrow_to_shared(plan, own)
    if by_host:
        _add_transfer(plan, own, HOST)
    if plan.dtype != plan.now.dtype and _casts_first(plan):
        cast_inside(plan, own)
    if not same_place(plan.now.device, plan.device):
        _add_transfer(plan, own, plan.device)
    if plan.dtype != plan.now.dtype:
        cast_inside(plan, own)
    _spread_again(plan, own)


def goes_straight(plan: PlanBuilder) -> bool:
    """Whether the source's framework writes into ``out=`` itself, with no array in host memory."""
    now, out, source = plan.now, plan.request.out, plan.source
    if (
        out is None
        or HOST == now.device == out.device
        or not source.capabilities.memory.writes_own
        or now.swapped
    ):
        return False
    if source is not plan.target:
        array = plan.target.capabilities.memory.host_array and source.capabilities.devices.pins
        if not array or rules.layout_obstacles(out, source):
            return False
    if is_cast_by_host(plan) or (
        now.device == HOST and plan.dtype != now.dtype and _casts_first(plan)
    ):
        return False
    return bytes_more(plan) <= 0 or out.device != HOST


def writes_there(plan: PlanBuilder) -> bool:
    """Whether ``out=`` is on a device, and the target's framework writes into it."""
    out, caps = plan.request.out, plan.target.capabilities
    return (
        out is not None
        and out.device != HOST
        and caps.memory.writes_own
        and caps.devices.include(HOST)
    )


def _write_into_out(plan: PlanBuilder, by: Declaration, overlaps: bool = False) -> None:
    """Write a tensor into `out`."""
    out = plan.request.out
    assert out is not None  # noqa: S101 - who calls this has looked
    if same_place(plan.now.device, out.device):
        copies = plan.path
    else:
        copies = Path.BUS
    arguments = (True,) if overlaps else ()
    plan.add(
        by,
        "write",
        arguments,
        "into the memory that was given",
        copies=copies,
        details=Details(out=out, is_own=True),
    )
    plan.now = out
    plan.reason = "out= is written into"


# -- elements that share their memory -------------------------------------------------------------


def _repeated_axes(now: TensorInfo, by: Declaration) -> tuple[int, ...]:
    """The axes along which elements share memory (stride 0), if the framework can expand them."""
    if now.abstract is not None or not now.size or not by.capabilities.devices.spreads:
        return ()
    lengths = zip(now.shape, now.strides, strict=True)
    return tuple(axis for axis, (length, step) in enumerate(lengths) if length > 1 and not step)


def _narrow_to_shared(plan: PlanBuilder, by: Declaration) -> None:
    """Continue with only the memory elements share, if smaller: fewer bytes are transferred."""
    if plan.now.framework == by.name:
        _narrow_by(plan, by, by)


def narrow_array(plan: PlanBuilder) -> None:
    """Continue with only the memory that elements share, for an array that goes to a device."""
    _narrow_by(plan, plan.exchange, plan.target)


def _narrow_by(plan: PlanBuilder, by: Declaration, spreads: Declaration) -> None:
    now, axes = plan.now, _repeated_axes(plan.now, spreads)
    looks = plan.dtype != now.dtype and bool(plan.check)
    if axes:
        plan.whole = (now.shape,)
        why = "along an axis, all elements share this memory"
        plan.add(by, "narrow", (axes,), why, shape=_one_along(now.shape, axes))
    elif not looks and (length := _window_elements(now, spreads)):
        # Not if values are checked: an error names the position in the tensor, and gaps between
        # elements are no values.
        itemsize = dtypes.find(now.dtype).itemsize
        plan.whole = now.shape, tuple(step // itemsize for step in now.strides)
        plan.add(
            by, "span", (length,), "windows share this memory", shape=(length,), strides=(itemsize,)
        )


def _window_elements(now: TensorInfo, by: Declaration) -> int:
    """The number of elements in overlapping windows' memory; 0 if elements do not share memory."""
    plain = (
        not (now.requires_grad or now.conjugate or now.negative or now.swapped)
        and now.abstract is None
    )
    itemsize = dtypes.find(now.dtype).itemsize
    if not (plain and now.size and by.capabilities.devices.spreads) or any(
        step % itemsize for step in now.strides
    ):
        return 0
    low, high = byte_span(now.shape, now.strides, itemsize)
    return 0 if low or high >= now.nbytes else high // itemsize


def _one_along(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in axes else length for axis, length in enumerate(shape))


def _spread_again(plan: PlanBuilder, by: Declaration) -> None:
    """Expand to the whole shape again, with separate memory for each element."""
    if plan.whole is not None:
        plan.become(shape=plan.whole[0])
        why = "each element in memory of its own: less has crossed the bus"
        changes: dict[str, Any] = {"strides": plan.c_order, "pinned": False, "misalignment": 0}
        plan.add(by, "spread", plan.whole, why, copies=plan.path, **changes)
        plan.whole = None


def _cross_in_graph(
    plan: PlanBuilder, own: Declaration, axes: tuple[int, ...], *, by_host: bool
) -> None:
    """Transfer a tensor in an autograd graph, whose elements share memory.

    The graph sees one operation.
    """
    whole, by_bus = plan.now.shape, [HOST, plan.device] if by_host else [plan.device]
    for stop in dict.fromkeys(by_bus):
        casts = plan.now.dtype != plan.dtype
        first = casts and not by_host and _casts_first(plan)
        crosses = plan.dtype if first else plan.now.dtype
        arguments = (stop, axes, plan.dtype, first)
        why = f"from {plan.now.device} to {stop}: along an axis, all elements share this memory"
        plan.become(shape=_one_along(whole, axes))
        changes: dict[str, Any] = {
            "requires_grad": own.capabilities.gradients.records,
            "pinned": False,
        }
        plan.add(
            own, "cross", arguments, why, copies=Path.BUS, device=stop, dtype=crosses, **changes
        )
        plan.become(dtype=plan.dtype, shape=whole)
        plan.become(
            strides=plan.c_order, misalignment=0, kind=PLAIN, conjugate=False, negative=False
        )


def fetch_to_host(plan: PlanBuilder) -> None:
    """Bring the values into host memory, in one call of the source's framework."""
    now = plan.now
    gathers = now.shards > 1
    if gathers:
        where = f"gathered from {now.shards} shards on {now.device}"
    else:
        where = f"from {now.device}"
    plan.refuse_copy(
        [
            f"its {now.shards} shards have to be gathered"
            if gathers
            else f"it has to be brought {where}"
        ]
    )
    copies = Path.HOST if now.device == HOST else Path.BUS
    own: dict[str, Any] = {
        "device": HOST,
        "shards": 1,
        "writable": True,
        "mutable": True,
        "pinned": False,
    }
    plan.add(plan.source, "fetch", (), where, copies=copies, strides=plan.c_order, **own)
    plan.reason = plan.reason or where


def place_on_device(plan: PlanBuilder) -> None:
    """Bring an array to a device in one call, for a target that has no tensors in host memory."""
    if plan.now.swapped or not plan.now.is_packed:
        host_steps.pack_array(plan, "the bus takes packed memory only")
    where = f"from {plan.now.device} to {plan.device}"
    changes = {
        **plan.as_targets(),
        "memory_map": False,
        "device": plan.device,
        "misalignment": 0,
        "pinned": False,
    }
    plan.add(plan.target, "place", (plan.device,), where, copies=Path.BUS, **changes)


def _add_transfer(plan: PlanBuilder, by: Declaration, device: str) -> None:
    """Add the step of one transfer, with page-locked memory if that was requested."""
    if _lands_in_result(plan, by, device):
        why = f"from {plan.now.device} straight into page-locked memory"
        _one_transfer(plan, by, (host_steps.wants_pinned(plan),), why, "land", HOST)
        return
    overlaps = _lock_on_the_way(plan, by, device)
    _one_transfer(plan, by, (device, overlaps), f"from {plan.now.device} to {device}")


def _has_locked_memory(by: Declaration, device: str) -> bool:
    """Whether a framework has page-locked memory for transfers to and from a device."""
    return device != HOST and by.capabilities.devices.pins and by.device_facts(kind_of(device)).pins


def _lands_in_result(plan: PlanBuilder, by: Declaration, device: str) -> bool:
    """Whether a transfer to the host goes straight into the result, in page-locked memory."""
    now = plan.now
    asked = host_steps.wants_pinned(plan) or OVERLAPS in plan.request.options
    last = HOST == device == plan.device and now.dtype == plan.dtype and now.abstract is None
    return (
        asked and last and now.size > 0 and now.shards == 1 and _has_locked_memory(by, now.device)
    )


def _lock_on_the_way(plan: PlanBuilder, by: Declaration, device: str) -> bool:
    """Copy into page-locked memory before a transfer that runs beside the host's work.

    Whether the transfer does.
    """
    asked = OVERLAPS in plan.request.options and plan.now.abstract is None
    if not asked or plan.now.device != HOST or not _has_locked_memory(by, device):
        return False
    if plan.now.pinned and not plan.allocated:
        plan.warnings.append(
            "the transfer may still be reading the pinned source: do not write it yet"
        )
    if not plan.now.pinned:
        strides = plan.packed(by)
        why = "a transfer that overlaps reads page-locked memory"
        plan.add(by, "pin", (), why, copies=Path.HOST, pinned=True, strides=strides, misalignment=0)
    return True


def _one_transfer(
    plan: PlanBuilder,
    by: Declaration,
    arguments: tuple[Any, ...],
    why: str,
    verb: str = "move",
    device: str = "",
) -> None:
    plan.add(
        by,
        verb,
        arguments,
        why,
        copies=Path.BUS,
        device=device or arguments[0],
        pinned=verb == "land",
        strides=plan.now.strides if plan.now.is_compact else plan.packed(by),
        misalignment=0,
        shards=1,
        requires_grad=plan.now.requires_grad and by.capabilities.gradients.records,
    )
