"""`make_plan`: from what a tensor is and what was asked for to the steps that do it, or the reason why not.

A pure function of a `TensorInfo`, a `Request` and two backends' declared capabilities. It imports no
framework and touches no tensor, so a plan for a GPU can be made where there is none. Steps are
ordered by cost: leave the autograd graph before anything that it would record, narrow before a
transfer over the bus, widen after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import dtypes
from ..core.devices import HOST, kind_of, same_place
from ..core.request import LEAVE
from ..errors import GradientError, ShapeError
from . import preconditions, rules
from .device_steps import PINNED_REASON, Transport

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..core.info import TensorInfo
    from ..core.request import Request
    from .plan import Plan

__all__ = ["make_plan"]


def make_plan(info: TensorInfo, request: Request, source: Backend, target: Backend, exchange: Backend) -> Plan:
    """The plan of one conversion.

    Args:
        info: What comes in.
        request: What was asked for.
        source: The backend of what comes in.
        target: The backend of what is to come out.
        exchange: The backend of host memory's common currency.

    Raises:
        ConversionError: There is no such plan; the subclass and the message say why.
    """
    route = _Route(info, request, source, target, exchange)
    route.plan_all()
    return route.finish()


class _Route(Transport):
    """The decisions, in the order in which they are made."""

    # -- the order of things ----------------------------------------------------------------------

    def plan_all(self) -> None:
        """Make every decision."""
        preconditions.refuse_abstract(self.now, self.request, self.source, self.target)
        preconditions.refuse_out(self.now, self.request, self.target)
        self.dtype = rules.target_dtype(self.now, self.request, self.target)
        self.device = rules.target_device(self.now, self.request, self.target, self.dtype)
        preconditions.refuse_move(self.now, self.source, self.device)
        self.check = rules.check_of(self.now, self.request, self.dtype)
        self.refuse_pinned()
        self.refuse_misfit()
        if self.request.grad == LEAVE:
            self.leave_graph()
        if self.source is self.target and self.target.capabilities.memory.exists and self.stays_inside():
            self.inside()
            self.finish_options()
            self.lay_out()
            return
        if not self.target.capabilities.memory.exists:
            self.refuse_copy([f"{self.target.name} values have no memory to share"])
        self.leave_graph()
        if not self.hand_over():
            self.to_host()
            self.across()
            self.to_device()
            self.warn_of_tape()
        self.finish_options()
        self.warn_of_tracer()
        self.lay_out()

    def refuse_misfit(self) -> None:
        """Raise if the layout over devices that is asked for does not take this shape."""
        placement = self.request.placement
        found = None if placement is None else self.target.misfit(placement, self.now.shape)
        if found is not None:
            why, hint = found
            raise ShapeError(f"A tensor of shape {self.now.shape} cannot be laid out as device= says: {why}.", hint)

    def lay_out(self) -> None:
        """Lay the target's tensor out over devices, as the target's own object in ``device=`` says."""
        placement, target = self.request.placement, self.target
        if placement is None or (placement.lies and not self.steps):
            return
        why = "device= lays it out over devices"
        self.refuse_copy([why])
        # What has a place on the host already may be kept there as the one replica, or the only one.
        kept = self.now.device == HOST == placement.device and placement.shards == 1
        if not self.fresh and self.now.abstract is None and (self.request.copy is True or kept):
            self.add(target, "copy", (), "a replica could be the source's own memory", copies=self.path())
        bus = (self.now.device == HOST) != (placement.device == HOST)
        self.add(
            target,
            "place_over",
            (placement,),
            f"over {placement.shards} devices" if placement.shards > 1 else "whole on each device",
            copies="bus" if bus else self.path(),
            device=placement.device,
            shards=placement.shards,
            misalignment=0,
        )
        self.fresh, self.reason = True, why

    def finish_options(self) -> None:
        """What the target makes of its tensor in the end, in memory of its own."""
        for option in self.request.options:
            if option in self.target.capabilities.options.finishers:
                if not self.fresh:
                    why = f"{option}=True has memory of its own"
                    self.refuse_copy([why])
                    self.add(self.target, "copy", (), why, copies=self.path(), misalignment=0)
                    self.reason = why
                self.add(
                    self.target,
                    option,
                    (),
                    f"{option}=True",
                    kind=option.capitalize(),
                )
                self.fresh = True

    def warn_of_tape(self) -> None:
        """Say that a result in the source's own framework is cut off from whatever was recording there."""
        tape = self.source.capabilities.gradients.tape
        if tape and self.source is self.target and self.fresh and dtypes.find(self.dtype).kind in ("float", "complex"):
            self.warnings.append(f"a {tape} does not record what is done here: no gradient flows through the result")

    def warn_of_tracer(self) -> None:
        """Say that a result outside the source's framework is a constant to what records there."""
        tracer = self.source.capabilities.objects.tracer
        if tracer:
            self.warnings.append(f"{tracer} records no conversion: what it makes has this result as a constant")

    # -- inside one framework ---------------------------------------------------------------------

    def stays_inside(self) -> bool:
        """Whether the framework's own operations do it: nothing to do, a graph to stay in, a device."""
        now = self.now
        if now.abstract is not None:
            return True
        caps = self.source.capabilities
        if now.device == HOST == kind_of(self.device) and self.finishes_apart():
            return False
        if self.request.out is not None or now.swapped:
            return False
        if caps.objects.tracer:
            return True
        is_read = now.kind in caps.objects.read_kinds and caps.memory.host_array
        if is_read and not now.requires_grad and now.device == HOST:
            return False
        if self.dtype == now.dtype and same_place(now.device, self.device):
            # Shards stay where they are. A framework with a graph copies its own tensors best, others an array.
            own = caps.gradients.graph and now.is_compact and not (now.kind or now.conjugate or now.negative)
            return self.request.copy is not True or own or now.requires_grad or now.device != HOST or now.shards > 1
        leaves_graph = now.requires_grad and not self.in_graph()
        return (now.device != HOST or self.device != HOST or now.requires_grad) and not leaves_graph

    def finishes_apart(self) -> bool:
        """Whether an option asks for other memory than the framework's own operations give on the host."""
        finishers = self.target.capabilities.options.finishers
        return (self.wants_pinned() and not self.now.requires_grad) or any(
            option in finishers for option in self.request.options
        )

    def inside(self) -> None:
        """Do it with the framework's own operations."""
        now, own = self.now, self.source
        if now.kind in own.capabilities.objects.value_kinds:
            self.add(own, "value", (), f"a {now.kind}'s value", kind="")
        if now.kind in own.capabilities.objects.read_kinds:
            self.read()
        if self.dtype != now.dtype and self.casts_first():
            self.cast_inside(own)
        if not same_place(self.now.device, self.device):
            self.move_inside(own)
        if self.dtype != self.now.dtype:
            self.cast_inside(own)
        if self.request.copy is True and not self.fresh:
            self.duplicate("copy=True asks for independent memory")
        if self.wants_pinned() and not self.now.pinned and self.now.size:
            self.add(own, "pin", (True,), PINNED_REASON, copies="host", pinned=True)
            self.fresh = True
        if self.fresh:
            self.refuse_copy(["a dtype or a device cannot change in place"])
            self.reason = self.reason or "the dtype or the device changes"
            writable = own.capabilities.memory.writable
            self.now = self.now._replace(writable=writable, mutable=writable)
        elif now.kind and own.capabilities.memory.host_array:
            self.add(own, "export", (), "the plain array under the subclass", kind="")
            self.reason = "the same memory"
        else:
            self.reason = self.reason or "the same object: there is nothing to do"

    # -- between frameworks -----------------------------------------------------------------------

    def leave_graph(self) -> None:
        """Detach, or refuse to."""
        now = self.now
        if not now.requires_grad:
            return
        if self.request.grad == "error":
            by_hand = self.source.snippet("detach", ("by hand",), now).format(x="x")
            raise GradientError(
                f"This tensor requires grad, and {self.target.name} would leave its autograd graph.",
                f'grad="detach" (the default), or {by_hand} first',
            )
        self.add(self.source, "detach", (), "gradients do not cross", requires_grad=False)

    def across(self) -> None:
        """From host memory of the source to host memory of the target, through an ndarray."""
        self.resolve()
        if rules.fills_lists(self.now, self.target):
            self.give_back()
            return
        self.to_array()
        share, reason, warnings = rules.sharing(self.source_info, self.target, self.request)
        obstacles = self.obstacles()
        self.refuse_to_share(obstacles, share, reason)
        if self.device != HOST and self.target.capabilities.memory.writable and not self.fresh:
            # The transfer is the copy, and it has read the source when it returns.
            self.fresh, self.reason = True, obstacles[0]
        if self.request.out is not None:
            self.write_out(self.request.out)
            return
        if self.dtype != self.now.dtype and not self.widens_later():
            self.cast_array()
        elif self.locks():
            pass  # which is the copy
        elif self.device != HOST and self.now.memory_map and not self.is_staged_up(self.target):
            self.copy_array("a device never reads a memory map")
        elif not share and not self.fresh and self.target.capabilities.memory.exists:
            self.copy_array(reason)
        elif obstacles and not self.fresh and self.target.capabilities.memory.exists:
            self.copy_array(obstacles[0])
        elif (self.fresh and self.must_align()) or not (self.now.size or self.target.capabilities.memory.host_array):
            self.copy_array(self.must_align() or self.reason or "there are no elements")
        elif not self.fresh:
            self.reason, self.warnings = reason, warnings
        if self.device != HOST and self.go_up(self.target):
            return
        if HOST not in self.target.capabilities.devices.kinds:
            self.place()
            return
        self.lock()
        self.to_target()

    def to_array(self) -> None:
        """Get at an array over the source's memory."""
        caps, now = self.source.capabilities, self.now
        if now.framework != self.source.name:
            return  # it has come down as an array
        preconditions.refuse_axes(now, self.exchange)
        if now.kind in caps.objects.value_kinds:
            self.add(self.source, "value", (), f"a {now.kind}'s value", kind="")
        if now.device != HOST or (now.shards > 1 and not self.fresh):
            self.fetch()
        elif now.kind in caps.objects.read_kinds:
            self.read()
            if not caps.memory.host_array:
                self.add(self.source, "export", (), rules.EXPORT_REASON)
        elif now.dtype in caps.dtypes.unshared:
            why = f"{self.source.name} stores {now.dtype} in another form"
            if now.size:
                self.refuse_copy([why])
            self.add(self.source, "export", (), why, copies="host")
            self.fresh, self.reason = True, why
        elif not caps.memory.host_array or now.kind:
            self.add(self.source, "export", (), rules.EXPORT_REASON)

    def give_back(self) -> None:
        """Make lists of many numbers without an array of them all."""
        why = rules.READ_REASONS["lists"]
        changes = {**self.as_own(), "dtype": self.dtype}
        self.add(self.source, "give_back", (self.dtype, self.check), why, copies="host", **changes)
        self.fresh, self.reason = True, why

    def read(self) -> None:
        """Take the values of something that owns no memory to share."""
        kind = self.now.kind
        why = rules.why_read(kind)
        self.refuse_copy([why])
        if rules.fills_out(self.now, self.request, self.target):
            self.add(self.source, "look", (self.dtype, self.check), rules.READ_REASONS["out"])
            self.check, self.fresh = "", True
            return
        arguments: tuple[Any, ...] = ()
        changes: dict[str, Any] = {}
        if kind in rules.NUMBERS and rules.reads_as_asked(self.now, self.target, self.dtype, self.device, self.check):
            arguments = (self.dtype, self.check, self.target.capabilities.memory.strides == "compact")
            changes = {"dtype": self.dtype, "strides": self.packed(self.target, self.dtype)}
            changes |= {"misalignment": 0, "weak_dtype": None}
        joins = rules.JOINS.get(kind)
        # Python has no memory in which to join them.
        owner = self.exchange if joins and self.source.capabilities.memory.host_array else self.source
        self.add(
            owner, joins or "read", arguments, why, copies=self.path(), writable=True, mutable=True, kind="", **changes
        )
        self.fresh, self.reason = True, why

    def obstacles(self) -> list[str]:
        """Why the target cannot lie over the source's memory; empty where it can."""
        if self.fresh:
            return []
        found = []
        if self.dtype != self.now.dtype:
            found.append(f"the dtype changes from {self.now.dtype} to {self.dtype}")
        if not same_place(self.now.device, self.device):
            found.append(f"the source is on {self.now.device}, the result on {self.device}")
        return found + rules.layout_obstacles(self.now, self.target)

    def widens_later(self) -> bool:
        """Whether the cast waits until the value is on its device."""
        return rules.widens_later(self.now, self.target, self.dtype, self.device, self.check)

    def must_align(self) -> str:
        """Why fresh memory has to be copied once more before the target adopts it, if it has."""
        if self.request.out is not None or not self.target.capabilities.memory.exists:
            return ""
        return next(iter(rules.layout_obstacles(self.now, self.target)), "")

    def cast_array(self) -> None:
        """Cast in host memory, into memory of one's own."""
        asked = rules.cast_reason(self.source_info, self.request, self.target)
        why = {
            "": asked,
            "value": f"{asked}; each value is compared",
            "number": f"{asked}; each value is looked at",
            "finite": f"Python numbers take {self.target.name}'s own dtype",
        }[self.check]
        compact = self.target.capabilities.memory.strides == "compact"
        strides = self.packed(self.target, self.dtype)
        changes: dict[str, Any] = {"strides": strides, "misalignment": 0, "swapped": False}
        self.add(
            self.exchange,
            "cast",
            (self.dtype, self.check, compact),
            why,
            copies="host",
            dtype=self.dtype,
            **changes,
        )
        self.own()
        self.reason = self.reason or f"the dtype changes from {self.source_info.dtype} to {self.dtype}"

    def copy_array(self, why: str) -> None:
        """Copy in host memory, into memory of one's own."""
        self.add(
            self.exchange,
            "copy",
            (self.target.capabilities.memory.strides == "compact",),
            why,
            copies="host",
            strides=self.packed(self.target),
            misalignment=0,
            swapped=False,
        )
        self.own()
        self.reason = why

    def to_target(self) -> None:
        """Make the array a tensor of the target."""
        target, caps = self.target, self.target.capabilities
        if not caps.memory.host_array or not caps.memory.exists:
            copies = "host" if not caps.memory.exists or self.now.dtype in caps.dtypes.unshared else "none"
            offered = self.is_offered() and target.snippet("hand_over", (self.source.name,), self.now)
            self.add(
                target,
                "adopt",
                (),
                rules.ADOPT_REASONS[caps.memory.exists],
                copies=copies,
                told=("fresh",) if self.fresh else (),
                **self.as_own(),
            )
            if offered:
                export, adopt = self.steps[-2:]
                self.steps[-2:] = [export._replace(template="{x}"), adopt._replace(template=offered)]
            self.present_read_only()
        elif self.source_permits_writes() and rules.why_read_only(self.source_info, target) and not self.fresh:
            self.now = self.now._replace(**self.as_own())
            self.present_read_only()
        elif self.fresh and not self.now.writable:
            self.copy_array("a result of one's own is writable")
            self.now = self.now._replace(**self.as_own())
        else:
            read_only = caps.memory.read_only and not self.fresh and not self.source_info.writable
            if read_only and self.ends_with_export():
                template = self.source.snippet("export", ("read-only",), self.now)
                self.steps[-1] = self.steps[-1]._replace(template=template)
            kept = {"writable": False, "mutable": self.source_info.mutable} if read_only else {}
            self.now = self.now._replace(**{**self.as_own(), **kept})

    def source_permits_writes(self) -> bool:
        """Whether the source's own array would let writes through."""
        return bool(self.source_info.writable or self.source_info.requires_grad)

    def ends_with_export(self) -> bool:
        """Whether the last step gave an array over the source's memory."""
        return bool(self.steps) and (self.steps[-1].verb, self.steps[-1].backend) == ("export", self.source.name)

    def is_offered(self) -> bool:
        """Whether code that shares gives the target the source's own tensor, not the array over its memory."""
        source, target = self.source.capabilities, self.target.capabilities
        able = target.devices.takes_offers and self.now.dtype not in source.dtypes.unhanded | target.dtypes.unhanded
        return able and source.devices.offers and not self.fresh and self.ends_with_export()

    def write_out(self, out: TensorInfo) -> None:
        """Write into the memory that was given."""
        if self.check and self.now.dtype != self.dtype:
            self.add(
                self.exchange,
                "check",
                (self.dtype, self.check),
                "each value is compared before the first is written",
            )
        self.add(
            self.target,
            "write",
            (),
            "into the memory that was given",
            copies="bus" if out.device != HOST else "host",
            told=(out,),
            dtype=self.dtype,
        )
        self.now = out
        self.reason = "out= is written into"
        self.fresh = True

    # -- devices ----------------------------------------------------------------------------------
