"""`PlanBuilder`: a plan in the making, the steps so far and what the value is after them.

It begins with a complete description. What a person left out of one is as in the framework's
ordinary case: there is no object, and what `explain` says must be true of the object that it
describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hints
from ..core import dtypes
from ..core.declaration import NO_DETAILS, VALUE, VerbCall, snippet_of
from ..core.devices import HOST
from ..core.dtypes import find, holds_exactly
from ..core.kinds import APART, BIT_PACKED, PLAIN, kind_named
from ..core.layout import compact_strides, packed_strides
from ..core.names import EXCHANGE_NUMBERS
from ..errors import CopyRequiredError
from ..hints import Hint
from .plan import Plan
from .step import Path, Step

if TYPE_CHECKING:
    from ..core.capabilities import Memory
    from ..core.declaration import Declaration, Details
    from ..core.dtypes import Check
    from ..core.info import TensorInfo
    from ..core.request import Request

__all__ = ["PlanBuilder", "as_of_object", "completed_info"]


_SHARES_WHERE_IT_CAN = Hint(
    hints.keyword("copy", None), " (the default) shares where it can and copies where it must"
)


class PlanBuilder:
    """A plan in the making: what was decided, the steps so far, and what the value is after them.

    Args:
        info: What comes in, with all that its framework's ordinary case leaves out.
        request: What was asked for.
        source: What the framework of what comes in declares.
        target: What that of what is to come out declares.
        exchange: What the framework of arrays in host memory declares.
        dtype: The dtype of the result.
        device: Its device.
        check: What the cast to that dtype looks at each value for.
    """

    def __init__(
        self,
        info: TensorInfo,
        request: Request,
        source: Declaration,
        target: Declaration,
        exchange: Declaration,
        dtype: str,
        device: str,
        check: Check,
    ) -> None:
        self.source_info = self.now = info
        self.request = request
        self.source, self.target, self.exchange = source, target, exchange
        self.dtype, self.device, self.check = dtype, device, check
        self.steps: list[Step] = []
        self.allocated = False
        """Whether the value lies in newly allocated memory."""
        self.whole: tuple[tuple[int, ...], ...] | None = None
        """Its shape, and strides in elements if need be.

        It is set only while the value is just the memory that its elements share.
        """
        self.reason = ""
        self.warnings: list[str] = []

    @property
    def path(self) -> Path:
        """Over what a copy of the value goes where it is."""
        if self.now.device == HOST:
            return Path.HOST
        return Path.DEVICE

    @property
    def c_order(self) -> tuple[int, ...]:
        """The strides of the value in C order."""
        return compact_strides(self.now.shape, dtypes.find(self.now.dtype).itemsize)

    @property
    def changes_dtype(self) -> str:
        """What a reason says of the dtype."""
        return f"the dtype changes from {self.source_info.dtype} to {self.dtype}"

    @property
    def changes_device(self) -> str:
        """What a reason says of the device."""
        return f"the source is on {self.source_info.device}, the result on {self.device}"

    def packed(self, owner: Declaration, dtype: str | None = None) -> tuple[int, ...]:
        """The strides of a packed copy in a framework: in C order, or with the order of axes kept.

        Args:
            owner: Whose copy it is; one in host memory is laid out as the target takes it.
            dtype: What its elements are, if no longer what they were.
        """
        itemsize = dtypes.find(dtype or self.now.dtype).itemsize
        if owner.capabilities.memory.strides == "compact":
            return compact_strides(self.now.shape, itemsize)
        return packed_strides(self.now.shape, self.now.strides, itemsize)

    def as_targets(self) -> dict[str, Any]:
        """What a value becomes when it is the target framework's."""
        memory = self.target.capabilities.memory
        changes: dict[str, Any] = {
            "framework": self.target.name,
            "kind": PLAIN,
            "weak_dtype": None,
            "writable": memory.writable,
            "mutable": memory.writable or bool(self.now.mutable and not self.allocated),
        }
        if memory.strides == "compact":
            changes["strides"] = self.c_order
        return changes

    def become(self, **changes: Any) -> None:
        """Let the value be another, without a step."""
        self.now = self.now._replace(**changes)

    def add(
        self,
        backend: Declaration,
        verb: str,
        arguments: tuple[Any, ...],
        why: str,
        *,
        copies: Path = Path.NONE,
        details: Details = NO_DETAILS,
        **changes: Any,
    ) -> None:
        """Append a step. `changes` are those in the description of the value.

        The verb gets the arguments alone. Its code may depend on the `details`.
        """
        code = snippet_of(backend, VerbCall(verb, arguments, self.now, VALUE, details))
        if changes:
            self.now = self.now._replace(**changes)
        is_copy = copies is not Path.NONE
        moved = self.now.nbytes if is_copy else 0
        self.steps.append(Step(verb, backend.name, arguments, code, why, is_copy, moved, copies))
        # What is copied when it is adopted is the target's own, and is in no memory of ours.
        self.allocated = self.allocated or (is_copy and verb != "adopt")

    def refuse_copy(self, reasons: list[str], hint: Hint | None = None) -> None:
        """Raise if ``copy=False`` was asked for; memory would be copied for these reasons."""
        if self.request.copy is False:
            raise CopyRequiredError(
                f"{self.source.name} to {self.target.name} cannot share this memory: "
                f"{'; '.join(reasons)}.",
                hint or _SHARES_WHERE_IT_CAN,
            )

    def _info_of_remark(self) -> TensorInfo:
        """The source's description; without its index, if that stays with the result."""
        info, labels = self.source_info, self.target.capabilities.options.labels
        if self.source is not self.target or "index" not in labels:
            return info
        return info._replace(kind=info.kind._replace(has_index=False))

    def finish(self) -> Plan:
        """The plan that the steps make."""
        shares = not self.allocated and self.target.capabilities.memory.exists and self.now.size > 0
        if self.now.size == 0 and not self.allocated:
            self.reason = "there are no elements"
        if shares and self.source_info.memory_map and self.now.writable:
            self.warnings.append(
                "writes reach the file that is mapped, unless it is mapped copy-on-write"
            )
        remark = self.source.remark(self._info_of_remark())
        if remark:
            self.warnings.append(remark)
        return Plan(
            source=self.source_info,
            result=self.now,
            request=self.request,
            steps=tuple(self.steps),
            shares_memory=shares,
            reason=self.reason,
            warnings=tuple(self.warnings),
            modules=(self.source.imports, self.target.imports, self.exchange.imports),
        )


_TABLE = 2
"""The number of axes of a table."""


def completed_info(info: TensorInfo, source: Declaration) -> TensorInfo:
    """A description in which the kind, and who may write, are told."""
    caps, writable = source.capabilities, info.writable
    ordinary = caps.objects.ordinary_kind
    if ordinary and not info.kind:
        if caps.objects.reads(kind_named(ordinary)):
            weak = info.dtype
        else:
            weak = None
        info = info._replace(kind=kind_named(ordinary), weak_dtype=info.weak_dtype or weak)
        if weak is not None:
            # What is named is what the numbers need. They are read as the widest dtype of their
            # kind.
            info = info._replace(dtype=_as_read(info.dtype))
    if writable is None:
        writable = caps.memory.writable
    return info._replace(
        writable=writable, mutable=writable if info.mutable is None else info.mutable
    )


def _as_read(dtype: str) -> str:
    kind = find(dtype).kind
    candidates = EXCHANGE_NUMBERS["int" if kind == "uint" else kind]
    return next((name for name in candidates if holds_exactly(dtype, name)), dtype)


def as_of_object(
    info: TensorInfo, request: Request, source: Declaration, target: Declaration
) -> TensorInfo:
    """A description, as `Backend.open` would give it of a column or a table, for this target.

    Args:
        info: A description that was made without an object, or for no target.
        request: What is asked for.
        source: What the framework of the tensor declares.
        target: What the target's framework declares.
    """
    objects = source.capabilities.objects
    if not info.kind and info.size and info.abstract is None:
        kind = objects.kinds_by_axes.get(len(info.shape)) or objects.kinds_by_dtype.get(info.dtype)
        if kind is not None:
            gathered = info.dtype not in source.capabilities.dtypes.unshared
            info = info._replace(
                kind=kind, misalignment=objects.gathers_at if gathered else info.misalignment
            )
    if _is_the_result(info, request, source, target):
        kind = info.kind._replace(name="", copied=False, reasons=())
        mutable = source.capabilities.memory.writable or source.capabilities.memory.shows_writes
        return info._replace(kind=kind, mutable=mutable)
    if info.kind.copied and APART in info.kind.reasons and len(info.shape) == _TABLE:
        return info._replace(strides=_read_order(info, target.capabilities.memory))
    return info


def _is_the_result(
    info: TensorInfo, request: Request, source: Declaration, target: Declaration
) -> bool:
    """Whether a column or table is returned as is, without memory to be shared as an array."""
    if source is not target or not info.kind.copied or not request.asks_nothing_else:
        return False
    by_columns = APART in info.kind.reasons and source.capabilities.memory.axes == _TABLE
    return by_columns or info.kind.reasons == (BIT_PACKED,)


def _read_order(info: TensorInfo, memory: Memory) -> tuple[int, ...]:
    """The strides of the array that is made of a table: in row order, if the target needs that."""
    itemsize = find(info.dtype).itemsize
    if memory.strides == "compact" or not memory.exists:
        return compact_strides(info.shape, itemsize)
    return (itemsize, itemsize * max(info.shape[0], 1))
