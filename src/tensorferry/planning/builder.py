"""`Draft`: a plan in the making, the steps so far and what the value is after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import dtypes
from ..core.devices import HOST
from ..core.layout import compact_strides, packed_strides
from ..errors import CopyRequiredError
from . import rules
from .plan import Plan, Step

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..core.info import TensorInfo
    from ..core.request import Request

__all__ = ["Draft"]


class Draft:
    """A plan in the making: the steps so far, and what the value is after them."""

    def __init__(
        self,
        info: TensorInfo,
        request: Request,
        source: Backend,
        target: Backend,
        exchange: Backend,
    ) -> None:
        ordinary = source.capabilities.objects.ordinary_kind
        if ordinary and not info.kind:
            weak = info.dtype if ordinary in source.capabilities.objects.read_kinds else None
            info = info._replace(kind=ordinary, weak_dtype=info.weak_dtype or weak)
        usual = source.capabilities.memory.writable
        writable = usual if info.writable is None else info.writable
        mutable = writable if info.mutable is None else info.mutable
        self.source_info = info._replace(writable=writable, mutable=mutable)
        self.now = self.source_info
        self.request = request
        self.source = source
        self.target = target
        self.exchange = exchange
        self.steps: list[Step] = []
        self.dtype = info.dtype
        self.fresh = False
        self.reason = ""
        self.warnings: list[str] = []

    def path(self) -> str:
        """Over what a copy of the value goes where it is."""
        return "host" if self.now.device == HOST else "device"

    def packed(self, owner: Backend, dtype: str | None = None) -> tuple[int, ...]:
        """The strides of a packed copy, as a framework lays one out: in C order, or with the order of the axes kept.

        Args:
            owner: Whose copy it is; one in host memory is laid out as the target takes it.
            dtype: What its elements are, if no longer what they were.
        """
        itemsize = dtypes.find(dtype or self.now.dtype).itemsize
        if owner.capabilities.memory.strides == "compact":
            return compact_strides(self.now.shape, itemsize)
        return packed_strides(self.now.shape, self.now.strides, itemsize)

    def as_own(self) -> dict[str, Any]:
        """What a value becomes when it is the target framework's."""
        caps = self.target.capabilities
        changes: dict[str, Any] = {
            "framework": self.target.name,
            "kind": "",
            "weak_dtype": None,
            "writable": caps.memory.writable,
            "mutable": caps.memory.writable or bool(self.now.mutable and not self.fresh),
        }
        if caps.memory.strides == "compact":
            changes["strides"] = compact_strides(self.now.shape, dtypes.find(self.now.dtype).itemsize)
        return changes

    def refuse_copy(self, reasons: list[str], hint: str = "") -> None:
        """Raise if ``copy=False`` was asked for; memory would have to be copied for these reasons."""
        if self.request.copy is False:
            raise CopyRequiredError(
                f"{self.source.name} to {self.target.name} cannot share this memory: {'; '.join(reasons)}.",
                hint or "copy=None (the default) shares where it can and copies where it must",
            )

    def refuse_to_share(self, obstacles: list[str], share: bool, reason: str) -> None:
        """Raise if ``copy=False`` was asked for where there are obstacles, or no consent: out of a graph."""
        if obstacles:
            self.refuse_copy(obstacles)
        elif not share and not self.fresh and self.request.copy is False:
            detached = self.source.snippet("detach", ("by hand",), self.source_info).format(x="x")
            self.refuse_copy([reason], f'convert({detached}, "{self.target.name}", copy=False), whose writes show in x')

    def present_read_only(self) -> None:
        """Let the target's tensor over the source's memory be one that nobody can write through, where it has that."""
        info = self.source_info
        why = rules.why_read_only(info, self.target)
        if why and self.target.capabilities.memory.writable and not self.fresh:
            self.add(self.target, "read_only", (), why, writable=False, mutable=info.mutable)

    def add(
        self,
        backend: Backend,
        verb: str,
        arguments: tuple[Any, ...],
        why: str,
        *,
        copies: str = "none",
        told: tuple[Any, ...] | None = None,
        **changes: Any,
    ) -> None:
        """Append a step; what the value is afterwards are `changes` to what it was.

        Its code is asked for with what is `told`, where that is more than the verb's own arguments.
        """
        template = backend.snippet(verb, arguments if told is None else told, self.now)
        self.now = self.now._replace(**changes)
        moved = self.now.nbytes if copies != "none" else 0
        self.steps.append(Step(verb, backend.name, arguments, template, why, copies != "none", moved, copies))

    def finish(self) -> Plan:
        """The plan that the steps make."""
        shares = not self.fresh and self.target.capabilities.memory.exists and self.now.size > 0
        if self.now.size == 0 and not self.fresh:
            self.reason = "there are no elements"
        if shares and self.source_info.memory_map and self.now.writable:
            self.warnings.append("writes reach the file that is mapped, unless it is mapped copy-on-write")
        remark = self.source.remark(self.source_info)
        if remark:
            self.warnings.append(remark)
        known = {**self.source.imports, **self.target.imports, **self.exchange.imports}
        imports = {
            line: None for name, line in known.items() if any(f"{name}." in step.template for step in self.steps)
        }
        return Plan(
            source=self.source_info,
            result=self.now,
            request=self.request,
            steps=tuple(self.steps),
            shares_memory=shares,
            reason=self.reason,
            warnings=tuple(self.warnings),
            imports=tuple(imports),
        )
