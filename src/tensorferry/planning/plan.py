"""`Plan`: the steps of one conversion as plain data, and the claims that are checked after it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .render import Rendered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.info import TensorInfo
    from ..core.request import Request
    from .step import Step

__all__ = ["Plan"]


@dataclass(frozen=True, repr=False)
class Plan(Rendered):
    """What a conversion does, step by step, and why. The conversion runs exactly this plan.

    >>> import numpy as np, tensorferry as ferry
    >>> plan = ferry.explain(np.zeros((2, 3), np.float32)[:, ::-1], "python")
    >>> plan.shares_memory, plan.bytes_copied, plan.code
    (False, 24, 'y = x.tolist()')

    Args:
        source: The description of the source.
        result: The description of the result.
        request: What was asked for.
        steps: The steps, in order.
        shares_memory: Whether the result uses the source's memory.
        reason: Why memory is shared, or why not.
        warnings: What can go wrong afterwards, if anything.
        modules: For each framework, the import line of each module name that its code may use.

    .. versionadded:: 0.1
    """

    source: TensorInfo
    result: TensorInfo
    request: Request
    steps: tuple[Step, ...]
    shares_memory: bool
    reason: str
    warnings: tuple[str, ...] = ()
    modules: tuple[Mapping[str, str], ...] = field(default=(), compare=False)

    @property
    def written(self) -> str | None:
        """The dtype of the array that the last step takes, as it was read or cast before; ``None``: it takes parts."""
        before: str | None = self.source.dtype
        for step in self.steps[:-1]:
            if step.verb == "look":
                before = None
            elif step.verb in ("cast", "read") and step.arguments:
                before = step.arguments[0]
        return before
