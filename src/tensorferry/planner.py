"""`make_plan`: from what a tensor is and what was asked for to the steps that do it, or the reason why not.

A pure function of a `TensorInfo`, a `Request` and two backends' declared capabilities. It imports no
framework and touches no tensor, so a plan for a GPU can be made where there is none. Steps are
ordered by cost: leave the autograd graph before anything that it would record, narrow before a
transfer over the bus, widen after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dtypes, rules
from .devices import HOST, kind_of, same_place
from .draft import Draft
from .errors import GradientError, LossyCastError

if TYPE_CHECKING:
    from .backend import Backend
    from .info import TensorInfo
    from .plan import Plan
    from .request import Request

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


class _Route(Draft):
    """The decisions, in the order in which they are made."""

    # -- the order of things ----------------------------------------------------------------------

    def plan_all(self) -> None:
        """Make every decision."""
        rules.refuse_abstract(self.now, self.source, self.target)
        self.dtype = rules.target_dtype(self.now, self.request, self.target)
        self.device = rules.target_device(self.now, self.request, self.target, self.dtype)
        rules.refuse_move(self.now, self.source, self.device)
        self.check = rules.check_of(self.now, self.request, self.dtype)
        rules.refuse_out(self.now, self.request, self.target)
        if self.source is self.target and self.target.capabilities.memory and self.stays_inside():
            self.inside()
            return
        if not self.target.capabilities.memory:
            self.refuse_copy([f"{self.target.name} values have no memory to share"])
        self.leave_graph()
        if not self.hand_over():
            self.to_host()
            self.across()
            self.to_device()
            self.warn_of_tape()
        for option in self.request.options:
            if option in self.target.capabilities.finishers:
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
        tape = self.source.capabilities.tape
        if tape and self.source is self.target and self.fresh and dtypes.find(self.dtype).kind in ("float", "complex"):
            self.warnings.append(f"a {tape} does not record what is done here: no gradient flows through the result")

    # -- inside one framework ---------------------------------------------------------------------

    def stays_inside(self) -> bool:
        """Whether the framework's own operations do it: nothing to do, a graph to stay in, a device."""
        now = self.now
        if now.abstract is not None:
            return True
        caps = self.source.capabilities
        if self.request.options and now.device == HOST == kind_of(self.device):
            return False
        if self.request.out is not None or now.swapped:
            return False
        if now.kind in caps.read_kinds and not now.requires_grad and now.device == HOST:
            return False
        if self.dtype == now.dtype and same_place(now.device, self.device):
            return self.request.copy is not True or now.requires_grad or now.device != HOST
        leaves_graph = now.requires_grad and not self.in_graph()
        return (now.device != HOST or self.device != HOST or now.requires_grad) and not leaves_graph

    def in_graph(self) -> bool:
        """Whether the dtype that is asked for can require grad."""
        return dtypes.find(self.dtype).kind in ("float", "complex")

    def inside(self) -> None:
        """Do it with the framework's own operations."""
        now, own = self.now, self.source
        if now.kind in own.capabilities.value_kinds:
            self.add(own, "value", (), f"a {now.kind}'s value", kind="")
        if now.kind in own.capabilities.read_kinds:
            self.read()
        if self.dtype != now.dtype and self.casts_first():
            self.cast_inside(own)
        if not same_place(self.now.device, self.device):
            self.move(own, self.device)
        if self.dtype != self.now.dtype:
            self.cast_inside(own)
        if self.request.copy is True and not self.fresh:
            self.duplicate("copy=True asks for independent memory")
        if self.fresh:
            self.refuse_copy(["a dtype or a device cannot change in place"])
            self.reason = self.reason or "the dtype or the device changes"
            self.now = self.now._replace(writable=own.capabilities.writable, mutable=own.capabilities.writable)
        elif now.kind and own.capabilities.host_array:
            self.add(own, "export", (), "the plain array under the subclass", kind="")
            self.reason = "the same memory"
        else:
            self.reason = self.reason or "the same object: there is nothing to do"

    def casts_first(self) -> bool:
        """Whether the cast comes before the bus: a narrowing one, or one that a device may not do."""
        narrower = dtypes.find(self.dtype).itemsize <= dtypes.find(self.now.dtype).itemsize
        if self.now.device == HOST:
            return narrower or not self.agrees()
        return self.now.abstract is not None or same_place(self.now.device, self.device) or (narrower and self.agrees())

    def cast_inside(self, by: Backend, why: str = "the dtype that was asked for") -> None:
        kept = self.now.requires_grad and self.in_graph()
        if self.now.abstract is not None and self.check:
            raise LossyCastError(
                f"{self.now.dtype} to {self.dtype} has to look at each value: "
                f"{by.capabilities.abstract[self.now.abstract][0]}.",
                f'dtype="{self.dtype}", casting="unsafe"',
            )
        self.add(
            by,
            "cast",
            (self.dtype, self.check),
            "the cast stays in the graph" if kept else why,
            copies=self.path(),
            dtype=self.dtype,
            requires_grad=kept,
            conjugate=False,
            negative=False,
            strides=self.packed(),
            misalignment=0,
            kind="",
        )
        self.fresh = True

    def agrees(self) -> bool:
        """Whether every framework rounds this cast to the same bits, so that a device may do it."""
        return rules.agrees(self.now.dtype, self.dtype) and not self.check

    # -- between frameworks -----------------------------------------------------------------------

    def leave_graph(self) -> None:
        """Detach, or refuse to."""
        now = self.now
        if not now.requires_grad:
            return
        if self.request.grad == "error":
            raise GradientError(
                f"This tensor requires grad, and {self.target.name} would leave its autograd graph.",
                f'grad="detach" (the default), or {self.source.snippet("detach", (), now).format(x="x")} first',
            )
        self.add(self.source, "detach", (), "gradients do not cross", requires_grad=False)

    def hand_over(self) -> bool:
        """Give a device's memory to the target where it lies, if both can live there."""
        now = self.now
        if now.device == HOST or not same_place(now.device, self.device) or self.source is self.target:
            return False
        if self.request.out is not None or (self.dtype != now.dtype and not self.agrees()):
            return False
        self.resolve()
        if self.dtype != now.dtype:
            self.cast_inside(self.source)
        elif not self.now.is_compact:
            self.duplicate("the target takes compact memory only")
        share, self.reason, self.warnings = rules.sharing(self.source_info, self.target, self.request)
        if not share and not self.fresh:
            self.duplicate(self.reason)
        if self.fresh:
            self.refuse_copy([self.reason or "the dtype changes"])
        if self.target.capabilities.waits:
            self.add(self.source, "wait", (), f"{self.target.name} cannot say on which stream it reads")
        self.add(self.target, "hand_over", (), "the same device: no bytes move", **self.as_own())
        return True

    def duplicate(self, why: str) -> None:
        """Copy on the device."""
        self.add(self.source, "copy", (), why, copies=self.path(), strides=self.packed(), misalignment=0)
        self.fresh = True
        self.reason = why

    def to_host(self) -> None:
        """Cross the bus to the host, narrower first where a device may narrow."""
        now = self.now
        if now.device == HOST:
            return
        self.refuse_copy([f"the source is on {now.device}, the result on {self.device}"])
        narrower = dtypes.find(self.dtype).itemsize < dtypes.find(now.dtype).itemsize
        if narrower and self.agrees() and self.request.out is None:
            self.cast_inside(self.source, "narrower before the bus: fewer bytes cross")
        if not self.source.capabilities.fetches:
            self.move(self.source, HOST)
            self.reason = self.reason or f"the source is on {now.device}, the result on {self.device}"

    def resolve(self) -> None:
        """Apply lazy bits."""
        bits = [word for word, is_set in (("conjugate", self.now.conjugate), ("negative", self.now.negative)) if is_set]
        if bits:
            why = f"memory holds the values before the {' and '.join(bits)} bit is applied"
            self.refuse_copy([why])
            self.add(
                self.source,
                "resolve",
                (),
                why,
                copies=self.path(),
                conjugate=False,
                negative=False,
                strides=self.packed(),
            )
            self.fresh = True
            self.reason = why

    def across(self) -> None:
        """From host memory of the source to host memory of the target, through an ndarray."""
        self.resolve()
        self.to_array()
        share, reason, warnings = rules.sharing(self.source_info, self.target, self.request)
        obstacles = self.obstacles()
        if obstacles:
            self.refuse_copy(obstacles)
        if self.device != HOST and self.target.capabilities.writable and not self.fresh:
            # The transfer is the copy, and it has read the source when it returns.
            self.fresh, self.reason = True, obstacles[0]
        if self.request.out is not None:
            self.write_out(self.request.out)
            return
        if self.dtype != self.now.dtype and not self.widens_later():
            self.cast_array()
        elif not share and not self.fresh and self.target.capabilities.memory:
            self.copy_array(reason)
        elif obstacles and not self.fresh and self.target.capabilities.memory:
            self.copy_array(obstacles[0])
        elif (self.fresh and self.must_align()) or (self.now.size == 0 and not self.target.capabilities.host_array):
            self.copy_array(self.must_align() or self.reason or "there are no elements")
        elif not self.fresh:
            self.reason, self.warnings = reason, warnings
        self.to_target()

    def to_array(self) -> None:
        """Get at an array over the source's memory."""
        caps, now = self.source.capabilities, self.now
        if now.kind in caps.value_kinds:
            self.add(self.source, "value", (), f"a {now.kind}'s value", kind="")
        if now.device != HOST or (now.shards > 1 and not self.fresh):
            self.fetch()
        elif now.kind in caps.read_kinds:
            self.read()
        elif now.dtype in caps.unshared_dtypes:
            why = f"{self.source.name} stores {now.dtype} in another form"
            if now.size:
                self.refuse_copy([why])
            self.add(self.source, "export", (), why, copies="host")
            self.fresh, self.reason = True, why
        elif not caps.host_array or now.kind:
            self.add(self.source, "export", (), rules.EXPORT_REASON)

    def fetch(self) -> None:
        """Bring the values into host memory in one call of the source's own."""
        now = self.now
        where = f"from {now.device}" if now.shards == 1 else f"gathered from {now.shards} shards on {now.device}"
        self.refuse_copy(
            [f"it has to be brought {where}" if now.shards == 1 else f"its {now.shards} shards have to be gathered"]
        )
        copies = "host" if now.device == HOST else "bus"
        self.add(self.source, "fetch", (), where, copies=copies, device=HOST, shards=1, writable=True, mutable=True)
        self.fresh, self.reason = True, where

    def read(self) -> None:
        """Take the values of something that owns no memory to share."""
        kind = self.now.kind
        why = rules.READ_REASONS.get(kind, f"a {kind} has no memory of its own to share")
        self.refuse_copy([why])
        arguments: tuple[Any, ...] = ()
        changes: dict[str, Any] = {}
        if kind == "numbers" and self.reads_as_asked():
            arguments = (self.dtype, self.check, self.target.capabilities.strides == "compact")
            changes = {"dtype": self.dtype, "strides": self.packed(), "misalignment": 0, "weak_dtype": None}
        self.add(
            self.source, "read", arguments, why, copies=self.path(), writable=True, mutable=True, kind="", **changes
        )
        self.fresh, self.reason = True, why

    def reads_as_asked(self) -> bool:
        """Whether Python numbers are read as what the target is to have, and not first as what they are."""
        as_it_is = rules.reads_as_it_is(self.now, self.target, self.dtype)
        return not as_it_is and self.request.out is None and not self.widens_later()

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
        """Whether the cast waits until the value is on its device: fewer bytes cross the bus."""
        wider = dtypes.find(self.dtype).itemsize > dtypes.find(self.now.dtype).itemsize
        return wider and self.device != HOST and self.agrees() and self.now.dtype in self.target.capabilities.dtypes

    def must_align(self) -> str:
        """Why fresh memory has to be copied once more before the target adopts it, if it has."""
        if self.request.out is not None or not self.target.capabilities.memory:
            return ""
        return next(iter(rules.layout_obstacles(self.now, self.target)), "")

    def cast_array(self) -> None:
        """Cast in host memory, into memory of one's own."""
        why = {
            "": "the dtype that was asked for",
            "value": "the dtype that was asked for; each value is compared",
            "finite": f"Python numbers take {self.target.name}'s own dtype",
        }[self.check]
        compact = self.target.capabilities.strides == "compact"
        changes: dict[str, Any] = {"strides": self.packed(), "misalignment": 0, "swapped": False}
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
            (self.target.capabilities.strides == "compact",),
            why,
            copies="host",
            strides=self.packed(),
            misalignment=0,
            swapped=False,
        )
        self.own()
        self.reason = why

    def own(self) -> None:
        """What the value becomes once its memory is nobody else's."""
        self.now = self.now._replace(writable=True, mutable=True, memory_map=False, weak_dtype=None)
        self.fresh = True

    def to_target(self) -> None:
        """Make the array a tensor of the target."""
        target, caps = self.target, self.target.capabilities
        kept = {"writable": False, "mutable": self.source_info.mutable}
        read_only = caps.read_only and not self.fresh and not self.source_info.writable
        if not caps.host_array or not caps.memory:
            copies = "host" if not caps.memory or self.now.dtype in caps.unshared_dtypes else "none"
            self.add(
                target,
                "adopt",
                (),
                rules.ADOPT_REASONS[caps.memory],
                copies=copies,
                **self.as_own(),
            )
        elif self.source_info.requires_grad and not self.fresh:
            self.add(target, "read_only", (), rules.READ_ONLY_REASON, **{**self.as_own(), **kept})
        elif self.fresh and not self.now.writable:
            self.copy_array("a result of one's own is writable")
            self.now = self.now._replace(**self.as_own())
        else:
            self.now = self.now._replace(**{**self.as_own(), **(kept if read_only else {})})

    def write_out(self, out: TensorInfo) -> None:
        """Write into the memory that was given."""
        if self.check:
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
            dtype=self.dtype,
        )
        self.now = out
        self.reason = "out= is written into"
        self.fresh = True

    # -- devices ----------------------------------------------------------------------------------

    def to_device(self) -> None:
        """Cross the bus to the target's device, wider afterwards."""
        if self.request.out is not None or same_place(self.now.device, self.device):
            return
        self.move(self.target, self.device)
        if self.now.dtype != self.dtype:
            self.cast_inside(self.target, "wider after the bus: fewer bytes cross")

    def move(self, by: Backend, device: str) -> None:
        """One transfer."""
        overlaps = "non_blocking" in self.request.options and device != HOST
        if overlaps and self.now.pinned and not self.fresh:
            self.warnings.append("the transfer may still be reading the pinned source: do not write it yet")
        if overlaps and not self.now.pinned:
            self.add(
                by,
                "pin",
                (),
                "a transfer that overlaps reads page-locked memory",
                copies="host",
                pinned=True,
            )
        self.add(
            by,
            "move",
            (device, overlaps),
            f"from {self.now.device} to {device}",
            copies="bus",
            device=device,
            pinned=False,
            strides=self.packed() if not self.now.is_compact else self.now.strides,
            misalignment=0,
            shards=1,
        )
        self.fresh = True
