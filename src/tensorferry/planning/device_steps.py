"""What a plan decides about devices: where a cast is done, hand over on a device, and cross the bus.

A device's memory goes to another framework where it lies; between two devices of a kind its own framework
moves it first. Over the bus, a small tensor goes in one call of its framework's, a large one through
page-locked slots (`staging`), where its framework has streams for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import dtypes
from ..core.devices import HOST, kind_of, same_place
from ..core.layout import compact_strides
from ..errors import DeviceError, LossyCastError
from . import rules
from .builder import Draft

if TYPE_CHECKING:
    from ..backends.base import Backend

__all__ = ["CHUNK", "PINNED_REASON", "STAGED", "Transport"]

STAGED = 16 << 20
"""Bytes from which a tensor crosses the bus through page-locked slots; estimated, not yet measured."""

CHUNK = 4 << 20
"""Bytes that one of the slots holds."""

PINNED_REASON = "pinned=True asks for page-locked memory"


class Transport(Draft):
    """The decisions about devices, and about casts, whose place depends on them."""

    device: str
    check: str

    # -- casts ------------------------------------------------------------------------------------

    def in_graph(self) -> bool:
        """Whether the dtype that is asked for can require grad."""
        return dtypes.find(self.dtype).kind in ("float", "complex")

    def agrees(self) -> bool:
        """Whether every framework rounds this cast to the same bits, so that the source's device may do it."""
        able = not {self.now.dtype, self.dtype} & self.source.capabilities.dtypes.uncast
        return able and rules.agrees(self.now.dtype, self.dtype) and not self.check

    def is_narrower(self) -> bool:
        """Whether the dtype that is asked for has fewer bytes."""
        return dtypes.find(self.dtype).itemsize < dtypes.find(self.now.dtype).itemsize

    def source_has(self, dtype: str) -> bool:
        """Whether the source's framework has a dtype that something else was asked for."""
        return dtype in self.source.capabilities.dtypes.held

    def casts_first(self) -> bool:
        """Whether the cast comes before the bus: a narrowing one, or one that a device may not do."""
        narrower = dtypes.find(self.dtype).itemsize <= dtypes.find(self.now.dtype).itemsize
        if self.now.device == HOST:
            return narrower or not self.agrees()
        return self.now.abstract is not None or same_place(self.now.device, self.device) or (narrower and self.agrees())

    def cast_inside(self, by: Backend, why: str = "") -> None:
        """Cast with a framework's own operation, where the value lies."""
        why = why or rules.cast_reason(self.source_info, self.request, self.target)
        kept = self.now.requires_grad and self.in_graph() and by.capabilities.gradients.records
        unseen = by.capabilities.objects.tracer and f"{by.capabilities.objects.tracer} records no look at values"
        if self.now.abstract is not None:
            unseen = by.capabilities.objects.abstract[self.now.abstract][0]
        if unseen and self.check:
            raise LossyCastError(
                f"{self.now.dtype} to {self.dtype} has to look at each value: {unseen}.",
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
            strides=self.packed(by, self.dtype),
            misalignment=0,
            kind="",
        )
        self.fresh = True

    # -- memory of one's own ------------------------------------------------------------------------

    def c_order(self) -> tuple[int, ...]:
        """The strides of the value in C order."""
        return compact_strides(self.now.shape, dtypes.find(self.now.dtype).itemsize)

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
                strides=self.packed(self.source),
            )
            self.fresh = True
            self.reason = why

    def duplicate(self, why: str) -> None:
        """Copy where the value is, with the order of the axes kept."""
        changes: dict[str, Any] = {"strides": self.packed(self.source), "misalignment": 0, "kind": ""}
        changes["requires_grad"] = self.stays_recorded()
        self.add(self.source, "copy", (), why, copies=self.path(), **changes)
        self.fresh = True
        self.reason = why

    def stays_recorded(self) -> bool:
        """Whether what the source's own framework makes of the value is in its graph."""
        return self.now.requires_grad and self.source.capabilities.gradients.records

    def straighten(self, why: str) -> None:
        """Copy on the device, into memory that every framework takes."""
        if self.now.is_compact or kind_of(self.now.device) not in self.source.capabilities.devices.stages:
            self.duplicate(why)
            return
        self.add(self.source, "compact", (), why, copies=self.path(), strides=self.c_order(), misalignment=0)
        self.fresh = True
        self.reason = why

    def own(self) -> None:
        """What the value becomes once its memory is nobody else's."""
        self.now = self.now._replace(writable=True, mutable=True, memory_map=False, weak_dtype=None, pinned=False)
        self.fresh = True

    # -- from device to device ------------------------------------------------------------------------

    def hand_over(self) -> bool:
        """Give a device's memory to the target where it lies, or where its own framework moves it to."""
        now = self.now
        if HOST in (now.device, self.device) or self.source is self.target or self.request.out is not None:
            return False
        if kind_of(now.device) != kind_of(self.device) or (self.dtype != now.dtype and not self.agrees()):
            return False
        sides = (self.source, self.target)
        if any(self.dtype not in each.capabilities.dtypes.held for each in sides):
            return False
        unnamed = [each.name for each in sides if self.dtype in each.capabilities.dtypes.unhanded]
        if unnamed:
            self.reason = f"{' and '.join(unnamed)} cannot name {self.dtype} to another framework on a device"
            return False
        self.resolve()
        narrower = self.is_narrower()
        if narrower:
            self.cast_inside(self.source)
        self.move_to_peer()
        if self.dtype != self.now.dtype:
            self.cast_inside(self.source)
        if self.dtype != self.source_info.dtype:
            self.reason = self.reason or f"the dtype changes from {self.source_info.dtype} to {self.dtype}"
        obstacles = rules.layout_obstacles(self.now, self.target)
        if obstacles:
            self.refuse_copy(obstacles)
            self.straighten(obstacles[0])
        share, reason, warnings = rules.sharing(self.source_info, self.target, self.request)
        self.reason = self.reason or reason
        self.refuse_to_share([], share, reason)
        if not share and not self.fresh:
            self.duplicate(reason)
        if self.fresh:
            self.refuse_copy([self.reason])
        else:
            self.warnings = warnings
        if self.target.capabilities.devices.waits:
            self.add(self.source, "wait", (), f"{self.target.name} cannot say on which stream it reads")
        self.add(self.target, "hand_over", (self.source.name,), "the same device: no bytes move", **self.as_own())
        self.present_read_only()
        return True

    def move_to_peer(self) -> None:
        """Let the source's own framework bring its tensor to the device of the result."""
        now = self.now
        if same_place(now.device, self.device) and now.shards == 1:
            return
        if now.shards > 1:
            self.refuse_copy([f"its {now.shards} shards have to be gathered"])
            why = f"gathered from {now.shards} shards on {now.device}"
        else:
            why = f"the source is on {now.device}, the result on {self.device}"
            self.refuse_copy([why])
        self.reason = why
        step = f"{why}: one copy between the devices" if now.shards > 1 else "one copy between the devices"
        self.add(
            self.source,
            "move",
            (self.device, False),
            step,
            copies="bus",
            device=self.device,
            strides=self.packed(self.source) if not now.is_compact else now.strides,
            misalignment=0,
            shards=1,
        )
        self.fresh = True

    # -- to the host ----------------------------------------------------------------------------------

    def to_host(self) -> None:
        """Cross the bus to the host, narrower first where a device may narrow."""
        now = self.now
        if now.device == HOST:
            return
        gathered = [f"its {now.shards} shards have to be gathered"] if now.shards > 1 else []
        self.refuse_copy([*gathered, self.reason or f"the source is on {now.device}, the result on {self.device}"])
        if self.is_narrower() and self.agrees() and self.request.out is None and self.source_has(self.dtype):
            self.cast_inside(self.source, "narrower before the bus: fewer bytes cross")
        if not self.come_down(self.source) and not self.source.capabilities.devices.fetches:
            self.move(self.source, HOST)
            self.reason = self.reason or f"the source is on {now.device}, the result on {self.device}"

    def come_down(self, by: Backend) -> bool:
        """Bring a tensor to the host as an array, by page-locked memory, if that is worth it or asked for."""
        now = self.now
        able = kind_of(now.device) in by.capabilities.devices.stages and now.size > 0 and now.shards == 1
        lands = self.wants_pinned()
        if not able or (not lands and now.nbytes < STAGED):
            return False
        self.resolve()
        if not self.now.is_packed:
            why = "the bus takes packed memory only"
            self.add(by, "compact", (), why, copies="device", strides=self.c_order(), misalignment=0)
        changes: dict[str, Any] = {"device": HOST, "framework": self.exchange.name, "kind": "", "misalignment": 0}
        if lands:
            why = f"from {now.device} straight into page-locked memory, which was asked for"
            self.add(by, "land", (), why, copies="bus", pinned=True, **changes)
        else:
            why = f"from {now.device} into page-locked slots, which the bus fills at its own speed"
            self.add(by, "stage", (CHUNK,), why, copies="bus", pinned=True)
            why = "several threads empty each slot while the next ones fill"
            self.add(by, "unload", (), why, copies="host", **{**changes, "pinned": False})
        self.now = self.now._replace(writable=True, mutable=True)
        self.fresh = True
        self.reason = self.reason or f"the source is on {now.device}, the result on {self.device}"
        return True

    def fetch(self) -> None:
        """Bring the values into host memory in one call of the source's own."""
        now = self.now
        where = f"from {now.device}" if now.shards == 1 else f"gathered from {now.shards} shards on {now.device}"
        self.refuse_copy(
            [f"it has to be brought {where}" if now.shards == 1 else f"its {now.shards} shards have to be gathered"]
        )
        copies = "host" if now.device == HOST else "bus"
        own: dict[str, Any] = {"device": HOST, "shards": 1, "writable": True, "mutable": True}
        self.add(self.source, "fetch", (), where, copies=copies, strides=self.c_order(), **own)
        self.fresh, self.reason = True, self.reason or where

    # -- to a device ----------------------------------------------------------------------------------

    def go_up(self, by: Backend) -> bool:
        """Bring an array to the target's device through page-locked slots, if that is worth it."""
        now = self.now
        if not self.is_staged_up(by):
            return False
        if not now.is_packed:
            self.pack_array("the bus takes packed memory only")
        why = f"by several threads into page-locked slots, from where the bus takes it to {self.device}"
        if now.memory_map:
            why = "into page-locked slots: a device never reads a memory map"
        self.add(by, "fill", (self.device, CHUNK), why, copies="host", pinned=True)
        own = {**self.as_own(), "writable": by.capabilities.memory.writable, "mutable": by.capabilities.memory.writable}
        changes = {**own, "memory_map": False, "pinned": False, "device": self.device, "misalignment": 0}
        self.add(by, "send", (self.device,), f"from {now.device} to {self.device}", copies="bus", **changes)
        self.fresh = True
        return True

    def pack_array(self, why: str) -> None:
        """Copy in host memory so that no element lies apart."""
        steps = self.c_order()
        self.add(self.exchange, "copy", (True,), why, copies="host", strides=steps, misalignment=0, swapped=False)
        self.own()

    def to_device(self) -> None:
        """Cross the bus to the target's device, wider afterwards."""
        if self.request.out is not None:
            return
        if not same_place(self.now.device, self.device):
            self.move(self.target, self.device)
        if self.now.dtype != self.dtype:
            self.cast_inside(self.target, "wider after the bus: fewer bytes cross")

    def place(self) -> None:
        """Bring an array to a device of a target that cannot live on the host, in one call."""
        if self.now.swapped or not self.now.is_packed:
            self.pack_array("the bus takes packed memory only")
        where = f"from {self.now.device} to {self.device}"
        changes = {**self.as_own(), "device": self.device, "pinned": False, "memory_map": False, "misalignment": 0}
        self.add(self.target, "place", (self.device,), where, copies="bus", **changes)
        self.fresh = True

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
            strides=self.packed(by) if not self.now.is_compact else self.now.strides,
            misalignment=0,
            shards=1,
            requires_grad=self.now.requires_grad and by.capabilities.gradients.records,
        )
        self.fresh = True

    # -- inside one framework -------------------------------------------------------------------------

    def move_inside(self, own: Backend) -> None:
        """Change the device of a framework's own tensor."""
        if not self.now.requires_grad and self.now.abstract is None:
            if self.device == HOST and self.come_down(own):
                self.add(own, "adopt", (), rules.ADOPT_REASONS[True], framework=own.name)
                return
            if self.now.device == HOST and self.is_staged_up(own):
                self.resolve()
                self.add(own, "export", (), rules.EXPORT_REASON)
                self.go_up(own)
                return
        self.move(own, self.device)

    def is_staged_up(self, by: Backend) -> bool:
        """Whether `go_up` would stage this value."""
        now = self.now
        able = kind_of(self.device) in by.capabilities.devices.stages and now.size > 0
        return able and not now.pinned and (now.nbytes >= STAGED or now.memory_map)

    # -- page-locked results --------------------------------------------------------------------------

    def wants_pinned(self) -> bool:
        """Whether the result is to lie in page-locked memory."""
        return rules.PINNED in self.request.options

    def refuse_pinned(self) -> None:
        """Raise if page-locked memory is asked for where there is none.

        Raises:
            DeviceError: The result is not on the host, or nobody can lock memory.
        """
        if not self.wants_pinned() or self.now.abstract is not None:
            return
        if self.device != HOST:
            raise DeviceError(
                f"pinned=True asks for page-locked memory of the host, and the result is on {self.device}.",
                'device="cpu", or leave pinned= out',
            )
        if self.pinner() is None and not self.now.pinned:
            sides = dict.fromkeys([self.source.name, self.target.name])
            who = f"Neither {' nor '.join(sides)} can" if len(sides) == 2 else f"{self.source.name} cannot"
            raise DeviceError(
                f"{who} lock memory.",
                "leave pinned= out, or go over a framework that can",
            )

    def pinner(self) -> Backend | None:
        """Who locks memory: the source, or else the target."""
        return next((each for each in (self.source, self.target) if each.capabilities.devices.stages), None)

    def locks(self) -> bool:
        """Whether the value has to be copied into page-locked memory yet."""
        return self.wants_pinned() and not self.now.pinned and self.now.size > 0

    def lock(self) -> None:
        """Copy an array into page-locked memory, if that was asked for and it is not there yet."""
        by = self.pinner()
        if by is None or not self.locks():
            return
        why = PINNED_REASON
        self.refuse_copy([why])
        kind = min(by.capabilities.devices.stages)
        self.add(by, "pin_array", (kind,), why, copies="host", strides=self.c_order(), misalignment=0, swapped=False)
        self.own()
        self.now = self.now._replace(pinned=True)
        self.reason = self.reason or why
