"""`BatchPlan`: what `collate` does with each leaf of its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.layout import size_text
from ..core.named_tuple import NamedTuple
from ..trees.plans import SHOWN, PlansOfLeaves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..planning.plan import Plan
    from ..trees.plans import KeptLeaf


__all__ = ["BatchPlan", "StackedLeaf", "why_kept"]


class StackedLeaf(NamedTuple):
    """A leaf of the batch that is one tensor.

    Args:
        path: Its path: ``$["image"]``.
        plan: The plan of that tensor, with the steps for the samples.
        padded_to: The shape to which each sample is padded; ``None`` if they are not padded.
        beside: ``"mask"`` or ``"lengths"`` if it is the mask or the lengths of another leaf;
            otherwise empty.
    """

    path: str
    plan: Plan
    padded_to: tuple[int, ...] | None = None
    beside: str | None = None

    @property
    def what(self) -> str:
        """What is done, in a few words."""
        size = f"copies {size_text(self.plan.bytes_copied)}"
        if self.beside is not None:
            return f"{size}: the samples' {self.beside}"
        many = self.plan.result.shape[0]
        if many == 1:
            samples = "1 sample"
        else:
            samples = f"{many} samples"
        return f"{size}: {samples} {'stacked' if self.padded_to is None else f'padded to {self.padded_to}'}"


@dataclass(frozen=True, repr=False)
class BatchPlan(PlansOfLeaves):
    """What `collate` does with each leaf. `collate` runs exactly these plans.

    >>> import numpy as np, tensorferry as ferry
    >>> plan = ferry.explain_collate(
    ...     [{"x": np.zeros(2), "name": "a"}, {"x": np.ones(2), "name": "b"}], "numpy"
    ... )
    >>> plan.samples, plan.plans['$["x"]'].result.shape, plan.kept[0].path, plan.bytes_copied
    (2, (2, 2), '$["name"]', 32)

    Args:
        samples: How many samples there are.
        leaves: The leaves that become a tensor, in the order of the samples; its mask and lengths
            follow each of them.
        kept: The leaves that stay objects.

    .. versionadded:: 0.1
    """

    samples: int
    leaves: tuple[StackedLeaf, ...]
    kept: tuple[KeptLeaf, ...] = ()

    @property
    def bytes_copied(self) -> int:
        """How many bytes are written in all, over every path."""
        return sum(leaf.plan.bytes_copied for leaf in self.leaves)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        return {
            "samples": self.samples,
            "leaves": [{**leaf._asdict(), "plan": leaf.plan.to_dict()} for leaf in self.leaves],
            "kept": [leaf._asdict() for leaf in self.kept],
            "bytes_copied": self.bytes_copied,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        rows = [
            (leaf.path, f"{leaf.plan.source} -> {leaf.plan.result}; {leaf.what}")
            for leaf in self.leaves[:SHOWN]
        ]
        rows += [(leaf.path, f"{leaf.type}: {leaf.why}") for leaf in self.kept[:SHOWN]]
        width = max((len(path) for path, _ in rows), default=0)
        lines = [self._head(), *(f"   {path:<{width}}  {what}" for path, what in rows)]
        more = max(len(self.leaves) - SHOWN, 0) + max(len(self.kept) - SHOWN, 0)
        if more:
            lines.append(f"   … and {more} more: see .plans and .kept")
        return "\n".join([*lines, *(f"   Warning: {warning}" for warning in self.warnings)])

    def _head(self) -> str:
        if len(self.leaves) == 1:
            many = "1 leaf"
        else:
            many = f"{len(self.leaves)} leaves"
        if self.samples == 1:
            samples = "1 sample"
        else:
            samples = f"{self.samples} samples"
        kept = f", {len(self.kept)} kept" if self.kept else ""
        return f"{many} of {samples}{kept}: {size_text(self.bytes_copied)} copied"


def why_kept(kept: Any, column: Sequence[Any]) -> str:
    """What becomes of a leaf that is not a tensor, and why."""
    if kept is None:
        return "None in all samples: stays None"
    from ..trees.tables import class_name  # here, because most batches have tensors only

    kinds = sorted(set(map(class_name, column)))
    return f"a list of {len(column)}: {' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} no number or tensor"
