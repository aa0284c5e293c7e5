"""`make_plan`: from what a tensor is and what was asked for to the steps, or the reason why not.

A pure function of a `TensorInfo`, a `Request` and what two frameworks declare. It imports no
framework and touches no tensor, so a plan for a GPU can be made where there is none. Steps are
ordered by cost: leave the autograd graph before anything that it would record, narrow before a
transfer over the bus, widen after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import hints
from ..core.declaration import with_capabilities_frozen
from ..core.devices import HOST, kind_of, same_place
from ..core.kinds import PLAIN, kind_named
from ..core.request import LEAVE
from ..errors import GradientError, ShapeError
from ..hints import Hint
from . import device_steps, host_steps, preconditions, rules
from .builder import PlanBuilder, completed_info
from .step import Path

if TYPE_CHECKING:
    from ..core.capabilities import Capabilities
    from ..core.declaration import Declaration
    from ..core.info import TensorInfo
    from ..core.request import Request
    from .plan import Plan

__all__ = ["make_plan"]


def make_plan(
    info: TensorInfo,
    request: Request,
    source: Declaration,
    target: Declaration,
    exchange: Declaration,
) -> Plan:
    """The plan of one conversion.

    Args:
        info: What comes in.
        request: What was asked for.
        source: What the framework of what comes in declares; every backend is a `Declaration`.
        target: What that of what is to come out declares.
        exchange: What the framework of arrays in host memory declares.

    Raises:
        ConversionError: There is no such plan; the subclass and the message say why.
    """
    source, target, exchange = with_capabilities_frozen((source, target, exchange))
    info = completed_info(info, source)
    request = request.asked_by(info)
    preconditions.refuse_abstract(info, request, source, target)
    preconditions.refuse_out(info, request, target)
    preconditions.refuse_axes(info, source, target)
    host_steps.refuse_misfit_labels(info, request, target)
    dtype = rules.target_dtype(info, request, target)
    preconditions.refuse_cast(info, dtype, source)
    device = rules.target_device(info, request, target, dtype)
    preconditions.refuse_move(info, source, device)
    check = rules.check_of(info, request, dtype)
    plan = PlanBuilder(info, request, source, target, exchange, dtype, device, check)
    host_steps.refuse_pinned(plan)
    _refuse_misfit(plan)
    _decide_steps(plan)
    host_steps.label_result(plan)
    preconditions.refuse_change(info, plan.steps, source)
    return plan.finish()


def _refuse_misfit(plan: PlanBuilder) -> None:
    """Raise if the layout over devices that is asked for does not take this shape."""
    placement, shape = plan.request.placement, plan.now.shape
    if placement is None:
        misfit = None
    else:
        misfit = plan.target.misfit(placement, shape)
    if misfit is not None:
        why, hint = misfit
        raise ShapeError(
            f"A tensor of shape {shape} cannot be laid out as device= says: {why}.", hint
        )


def _decide_steps(plan: PlanBuilder) -> None:
    """All steps, in the order in which they are decided."""
    source, target, exists = plan.source, plan.target, plan.target.capabilities.memory.exists
    host_steps.take_foreign(plan)
    if plan.request.grad == LEAVE:
        _leave_graph(plan)
    if source is target and exists and _stays_inside(plan):
        _stay_inside(plan)
        _finish_options(plan)
        _lay_out(plan)
        return
    if not exists:
        plan.refuse_copy([f"{target.name} values have no memory to share"])
    _leave_graph(plan)
    if plan.now.device != HOST and source.capabilities.objects.reads(plan.now.kind):
        # A stack: made where its members are, so that one tensor crosses the bus.
        host_steps.read_values(plan)
    if HOST == plan.now.device == plan.device:
        _cross_host(plan)
        _warn_of_tape(plan)
    elif not device_steps.share_on_device(plan):
        if device_steps.goes_straight(plan):
            host_steps.resolve_lazy_bits(plan)
        else:
            device_steps.to_host(plan)
            _cross_host(plan)
        device_steps.to_device(plan)
        _warn_of_tape(plan)
    _finish_options(plan)
    _warn_of_tracer(plan)
    _lay_out(plan)


# -- inside one framework -----------------------------------------------------------------------


def _stays_inside(plan: PlanBuilder) -> bool:
    """Whether the framework's own operations do it: nothing to do, a graph to stay in, a device."""
    now, caps = plan.now, plan.source.capabilities
    if now.abstract is not None:
        return True  # it has no elements that host memory could take
    on_host = now.device == HOST
    if on_host and kind_of(plan.device) == HOST and _finishes_apart(plan):
        return False
    if plan.request.out is not None or now.swapped:
        # What is written into, and what has the other byte order, goes through an array.
        return False
    if caps.objects.tracer:
        return True  # a tracer records only operations of its own framework
    if on_host and _reads_array(now, caps) and caps.objects.reads(now.kind):
        return False  # it is read into an array, which host memory casts
    if plan.dtype == now.dtype and same_place(now.device, plan.device):
        # Shards stay where they are. A framework with a graph copies its own tensors best, others
        # an array.
        own = (
            caps.gradients.graph
            and now.is_compact
            and not (now.kind or now.conjugate or now.negative)
        )
        return (
            plan.request.copy is not True
            or own
            or now.requires_grad
            or not on_host
            or now.shards > 1
        )
    if on_host and plan.device == HOST and device_steps.is_cast_alike(plan):
        return True
    # A dtype without gradients ends the graph. The value may then go as any other does.
    leaves_graph = now.requires_grad and not device_steps.in_graph(plan)
    if not caps.devices.include(HOST) and device_steps.is_cast_by_host(plan):
        return False
    return (not on_host or plan.device != HOST or now.requires_grad) and not leaves_graph


def _reads_array(now: TensorInfo, caps: Capabilities) -> bool:
    """Whether what is read of a kind is an array."""
    return caps.memory.host_array or now.kind.copied


def _finishes_apart(plan: PlanBuilder) -> bool:
    """Whether an option asks for other memory than the framework's operations give on the host."""
    finishers = plan.target.capabilities.options.finishers
    locked = host_steps.wants_pinned(plan) and not plan.target.capabilities.devices.pins
    return locked or bool(finishers.intersection(plan.request.options))


def _stay_inside(plan: PlanBuilder) -> None:
    """Do it with the framework's own operations."""
    own, memory = plan.source, plan.source.capabilities.memory
    before = plan.now
    host_steps.take_value(plan)
    if own.capabilities.objects.reads(before.kind):
        host_steps.read_values(plan)
    device_steps.change_inside(plan)
    copies = plan.request.copy is True and not plan.allocated
    if host_steps.is_to_be_locked(plan) or (copies and host_steps.wants_pinned(plan)):
        host_steps.lock_tensor(plan, own)
    elif copies:
        device_steps.duplicate_on_device(plan, "copy=True asks for independent memory")
    if plan.allocated:
        plan.refuse_copy(["a dtype or a device cannot change in place"])
        if plan.dtype != plan.source_info.dtype:
            changed = plan.changes_dtype
        else:
            changed = plan.changes_device
        plan.reason = plan.reason or changed
        plan.become(writable=memory.writable, mutable=memory.writable)
    elif before.kind and memory.host_array:
        plan.add(own, "export", (), "the plain array under the subclass", kind=PLAIN)
        plan.reason = "the same memory"
    else:
        if plan.steps:
            same = "the same memory"
        else:
            same = "the same object: there is nothing to do"
        plan.reason = plan.reason or same


# -- between frameworks -------------------------------------------------------------------------


def _leave_graph(plan: PlanBuilder) -> None:
    """Detach, or refuse to."""
    if not plan.now.requires_grad:
        return
    if plan.request.grad == "error":
        by_hand = host_steps.detached_in_hint(plan.source, plan.now)
        raise GradientError(
            f"This tensor requires grad, and {plan.target.name} would leave its autograd graph.",
            Hint(
                hints.keyword("grad", "detach"),
                " (the default), or ",
                hints.code(by_hand),
                " first",
            ),
        )
    if plan.now.kind == kind_named(plan.source.capabilities.gradients.parameter):
        kind = PLAIN
    else:
        kind = plan.now.kind
    plan.add(plan.source, "detach", (), "gradients do not cross", requires_grad=False, kind=kind)


def _cross_host(plan: PlanBuilder) -> None:
    """From host memory of the source to host memory of the target, through an ndarray."""
    host_steps.resolve_lazy_bits(plan)
    if rules.fills_lists(plan.now, plan.target):
        host_steps.give_back(plan)
        return
    _to_array(plan)
    share, reason, warnings = rules.sharing_rule(plan.source_info, plan.target, plan.request)
    obstacles = host_steps.obstacles_to_sharing(plan)
    host_steps.refuse_to_share(plan, obstacles, share, reason)
    target, out, memory = plan.target, plan.request.out, plan.target.capabilities.memory
    if plan.device != HOST and memory.writable and not plan.allocated:
        # The transfer is the copy, and it has read the source when it returns.
        plan.allocated, plan.reason = True, obstacles[0]
    if out is not None and not device_steps.writes_there(plan):
        host_steps.write_out(plan, out)
        return
    _cast_or_copy(plan, share, reason, warnings, obstacles)
    if not target.capabilities.devices.include(HOST):
        device_steps.place_on_device(plan)
        return
    by = (
        host_steps.framework_that_pins(plan)
        if plan.device == HOST and host_steps.is_to_be_locked(plan)
        else None
    )
    if by is not None and by is not target:
        host_steps.lock_array(plan, by)
    host_steps.to_target(plan)
    if by is target:
        host_steps.lock_tensor(plan, target)


def _cast_or_copy(
    plan: PlanBuilder, share: bool, reason: str, warnings: list[str], obstacles: list[str]
) -> None:
    """Cast or copy the array, if it cannot become the target's as it is.

    Args:
        plan: The plan.
        share: Whether the sharing rule shares its memory.
        reason: Why, or why not.
        warnings: What can go wrong afterwards if it is shared.
        obstacles: Why the target cannot share it.
    """
    target, memory = plan.target, plan.target.capabilities.memory
    shares = not plan.allocated
    if plan.device != HOST:
        # Elements that share memory cross the bus once, and are spread out behind it.
        device_steps.narrow_array(plan)
    if plan.dtype != plan.now.dtype and not rules.widens_later(
        plan.now, target, plan.dtype, plan.device, plan.check
    ):
        host_steps.cast_array(plan)
    elif host_steps.is_to_be_locked(plan) and not rules.layout_obstacles(
        plan.now, host_steps.framework_that_pins(plan) or target
    ):
        pass  # which is the copy
    elif plan.device != HOST and plan.now.memory_map:
        host_steps.copy_array(plan, "a device never reads a memory map")
    elif not share and shares and memory.exists:
        host_steps.copy_array(plan, reason)
    elif obstacles and shares and memory.exists:
        host_steps.copy_array(plan, obstacles[0])
    elif (plan.allocated and host_steps.must_align(plan)) or not (
        plan.now.size or memory.host_array
    ):
        host_steps.copy_array(
            plan, host_steps.must_align(plan) or plan.reason or "there are no elements"
        )
    elif shares:
        plan.reason, plan.warnings = reason, warnings


def _to_array(plan: PlanBuilder) -> None:
    """Get at an array over the source's memory."""
    source, caps, now = plan.source, plan.source.capabilities, plan.now
    if now.framework != source.name:
        return  # it has come down as an array
    preconditions.refuse_axes(now, source, plan.exchange)
    host_steps.take_value(plan)
    if now.device != HOST or (now.shards > 1 and not plan.allocated):
        device_steps.fetch_to_host(plan)
    elif caps.objects.reads(now.kind):
        host_steps.read_values(plan)
        if not _reads_array(now, caps):
            plan.add(source, "export", (), rules.EXPORT_REASON)
    elif now.dtype in caps.dtypes.unshared:
        why = f"{source.name} stores {now.dtype} in another form"
        if now.size:
            plan.refuse_copy([why])
        plan.add(source, "export", (), why, copies=Path.HOST)
        plan.reason = why
    elif not caps.memory.host_array or now.kind:
        plan.add(source, "export", (), rules.EXPORT_REASON)


# -- in the end ---------------------------------------------------------------------------------


def _finish_options(plan: PlanBuilder) -> None:
    """What the target makes of its tensor in the end, in memory of its own."""
    memory = plan.target.capabilities.memory
    for option in plan.request.options:
        if option in plan.target.capabilities.options.finishers:
            if not plan.allocated:
                why = f"{option}=True has memory of its own"
                plan.refuse_copy([why])
                plan.add(plan.target, "copy", (), why, copies=plan.path, misalignment=0)
                plan.become(writable=memory.writable, mutable=memory.writable)
                plan.reason = why
            kind = kind_named(option.capitalize())
            plan.add(plan.target, option, (), f"{option}=True", kind=kind)


def _lay_out(plan: PlanBuilder) -> None:
    """Lay the target's tensor out over devices, as the target's own object in ``device=`` says."""
    placement, target = plan.request.placement, plan.target
    if placement is None or (placement.lies and not plan.steps):
        return
    why = "device= lays it out over devices"
    plan.refuse_copy([why])
    # What has a place on the host already may be kept there as the one replica, or the only one.
    kept = plan.now.device == HOST == placement.device and placement.shards == 1
    if not plan.allocated and plan.now.abstract is None and (plan.request.copy is True or kept):
        plan.add(target, "copy", (), "a replica could be the source's own memory", copies=plan.path)
    crosses = (plan.now.device == HOST) != (placement.device == HOST)
    plan.add(
        target,
        "place_over",
        (placement,),
        f"over {placement.shards} devices" if placement.shards > 1 else "whole on each device",
        copies=Path.BUS if crosses else plan.path,
        device=placement.device,
        shards=placement.shards,
        misalignment=0,
    )
    plan.reason = why


def _warn_of_tape(plan: PlanBuilder) -> None:
    """Say that a result in the source's framework is cut off from whatever was recording there."""
    tape = plan.source.capabilities.gradients.tape
    if tape and plan.source is plan.target and plan.allocated and device_steps.in_graph(plan):
        plan.warnings.append(
            f"a {tape} does not record what is done here: no gradient flows through the result"
        )


def _warn_of_tracer(plan: PlanBuilder) -> None:
    """Say that a result outside the source's framework is a constant to what records there."""
    tracer = plan.source.capabilities.objects.tracer
    if tracer:
        plan.warnings.append(
            f"{tracer} records no conversion: what it makes has this result as a constant"
        )
