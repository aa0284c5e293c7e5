"""`Plan`: the steps of one conversion as plain data, and the claims that are checked after it ran."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from . import render

if TYPE_CHECKING:
    from ..core.info import TensorInfo
    from ..core.request import Request

__all__ = ["Path", "Plan", "Step"]


class Path(str, Enum):
    """Where the bytes go that a step writes."""

    NONE = "none"
    HOST = "host"
    BUS = "bus"
    DEVICE = "device"

    __str__ = str.__str__
    __format__ = str.__format__


class Step(NamedTuple):
    """One thing that is done on the way.

    Args:
        verb: The backend's method that does it.
        backend: The name of the backend that does it.
        arguments: What the method takes besides the value.
        template: What a person would have typed, with ``{x}`` for the value, after lines of remarks.
        why: Why it is there.
        copies: Whether it writes the elements into other memory.
        bytes: How many bytes it writes.
        path: Where they go: none, or through host memory, over the bus, within a device.
    """

    verb: str
    backend: str
    arguments: tuple[Any, ...]
    template: str
    why: str
    copies: bool = False
    bytes: int = 0
    path: Path = Path.NONE

    @property
    def code(self) -> str:
        """What a person would have typed, with ``x`` for the value."""
        return self.template.rpartition("\n")[2].replace("{x}", "x").replace("{y}", "y")


@dataclass(frozen=True)
class Plan:
    """What a conversion does, step by step, and why; the very plan that is run.

    >>> import numpy as np, tensorferry as ferry
    >>> plan = ferry.explain(np.zeros((2, 3), np.float32)[:, ::-1], "python")
    >>> plan.shares_memory, plan.bytes_copied, plan.code
    (False, 24, 'y = x.tolist()')

    Args:
        source: What comes in.
        result: What will come out.
        request: What was asked for.
        steps: What is done, in order.
        shares_memory: Whether the result lies over the source's memory.
        reason: Why memory is shared, or why not.
        warnings: What can go wrong afterwards, if anything.
        imports: The import lines that `code` needs.
    """

    source: TensorInfo
    result: TensorInfo
    request: Request
    steps: tuple[Step, ...]
    shares_memory: bool
    reason: str
    warnings: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    @property
    def bytes_copied(self) -> int:
        """How many bytes are written in all, over every path."""
        return sum(step.bytes for step in self.steps)

    @property
    def keeps_dtype(self) -> bool:
        """Whether the result has the source's dtype."""
        return self.result.dtype == self.source.dtype

    @property
    def keeps_gradient(self) -> bool:
        """Whether the result is still in the source's autograd graph."""
        return self.source.requires_grad and self.result.requires_grad

    @property
    def code(self) -> str:
        """The whole conversion as code that a person could paste; ``x`` becomes ``y``."""
        return render.code(self)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        return render.to_dict(self)

    def __repr__(self) -> str:
        return render.to_line(self)

    def __str__(self) -> str:
        return render.to_text(self)

    def _repr_html_(self) -> str:
        return render.to_html(self)
