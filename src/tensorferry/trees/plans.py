"""The plans of trees: values, text and HTML."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.layout import size_text
from ..core.named_tuple import NamedTuple
from ..planning.pictures.canvas import GUTTER, Canvas, fitted_lines, xml_text
from ..planning.pictures.html import (
    both_widths,
    code_block,
    html_page,
    html_table,
    source_and_result,
    warnings_of,
)
from ..planning.pictures.memory import blocks_of, draw_bar, memory_kind, touched_bytes
from ..planning.step import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from ..core.info import TensorInfo
    from ..planning.plan import Plan
    from .grouped import Batch


__all__ = ["SHOWN", "KeptLeaf", "LeafPlan", "PlansOfLeaves", "TreePlan", "leaves_page"]


# -- plans -----------------------------------------------------------------------------------------

SHOWN = 12
"""The most leaves, and the most that are kept, in a text."""


class LeafPlan(NamedTuple):
    """What is done to one leaf.

    Args:
        path: Where it is: ``$["encoder"][3].weight``.
        plan: Its plan, as from `explain`.
        same_as: The path of an earlier leaf that is the same, or has the same memory. They are
            converted once.
        view_with: The path of the first leaf that it overlaps. They are copied together.
        batch: The number of the batch in which it crosses the bus.
        bytes_copied: How many bytes are written for it; 0 if the conversion of another leaf gives
            it.
    """

    path: str
    plan: Plan
    same_as: str | None = None
    view_with: str | None = None
    batch: int | None = None
    bytes_copied: int = 0

    @property
    def what(self) -> str:
        """What happens to it, in a few words."""
        if self.same_as is not None:
            return f"the same as {self.same_as}"
        if self.view_with is not None:
            return f"copied as one memory with {self.view_with}"
        if self.batch is not None:
            return f"in batch {self.batch}"
        if self.plan.shares_memory:
            return f"shares memory: {self.plan.reason}"
        return f"copies {size_text(self.plan.bytes_copied)}: {self.plan.reason}"


class KeptLeaf(NamedTuple):
    """A leaf that is not converted.

    Args:
        path: Where it is.
        type: The name of its type; in a batch, that of the first sample.
        why: What becomes of it, and why.
        tensor: The path of a tensor inside it, if it is an unknown object that holds one.
    """

    path: str
    type: str
    why: str = "kept as it is"
    tensor: str | None = None

    def __str__(self) -> str:
        if self.tensor is None:
            inside = ""
        else:
            inside = f" with the tensor at {self.tensor}"
        return f"{self.path}  {self.type}: {self.why}{inside}"


class PlansOfLeaves(ABC):
    """The common base of the plans of trees and of batches."""

    leaves: tuple[Any, ...]
    kept: tuple[KeptLeaf, ...]

    @property
    def plans(self) -> dict[str, Plan]:
        """The plan of each leaf, by its path."""
        return {leaf.path: leaf.plan for leaf in self.leaves}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all plans, once each, with the path of the first leaf."""
        by_text: dict[str, str] = {}
        for leaf in self.leaves:
            for warning in leaf.plan.warnings:
                by_text.setdefault(warning, f"{warning} - at {leaf.path}")
        return tuple(by_text.values())

    @abstractmethod
    def _head(self) -> str:
        """The first line of the text."""

    def _notes(self) -> tuple[object, ...]:
        """What a page says after the leaves."""
        return self.kept

    def _repr_html_(self) -> str:

        return leaves_page(self._head(), self.leaves, self._notes(), self.warnings)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._head()}; print() shows {'it' if len(self.leaves) == 1 else 'them'}>"


@dataclass(frozen=True, repr=False)
class TreePlan(PlansOfLeaves):
    """What `convert_tree` does with each leaf. The conversion runs exactly these plans.

    >>> import numpy as np, tensorferry as ferry
    >>> shared = np.zeros(2)
    >>> plan = ferry.explain_tree({"a": shared, "b": [shared, "text"]}, "numpy")
    >>> len(plan.leaves), plan.bytes_shared, plan.bytes_copied
    (2, 16, 0)
    >>> plan.leaves[1].path, plan.leaves[1].same_as
    ('$["b"][0]', '$["a"]')
    >>> [str(leaf) for leaf in plan.kept]
    ['$["b"][1]  str: kept as it is']

    Args:
        leaves: The leaves that are converted, in the tree's order.
        kept: The other leaves, which stay as they are.
        batches: The leaves that cross the bus together.

    .. versionadded:: 0.1
    """

    leaves: tuple[LeafPlan, ...]
    kept: tuple[KeptLeaf, ...] = ()
    batches: tuple[Batch, ...] = ()

    @property
    def bytes_copied(self) -> int:
        """How many bytes are written, over every path; what is converted once is counted once."""
        return sum(leaf.bytes_copied for leaf in self.leaves)

    @property
    def bytes_shared(self) -> int:
        """How many bytes the results share with the sources; what appears twice is counted once."""
        return sum(
            leaf.plan.source.nbytes
            for leaf in self.leaves
            if leaf.same_as is None and leaf.plan.shares_memory
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        return {
            "leaves": [{**leaf._asdict(), "plan": leaf.plan.to_dict()} for leaf in self.leaves],
            "kept": [kept_leaf._asdict() for kept_leaf in self.kept],
            "batches": [batch._asdict() for batch in self.batches],
            "bytes_copied": self.bytes_copied,
            "bytes_shared": self.bytes_shared,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        rows = [
            (leaf.path, f"{leaf.plan.source} -> {leaf.plan.result}", leaf.what)
            for leaf in self.leaves[:SHOWN]
        ]
        width = max((len(path) for path, _, _ in rows), default=0)
        lines = [
            self._head(),
            *(f"   {path:<{width}}  {change}; {what}" for path, change, what in rows),
        ]
        if len(self.leaves) > SHOWN:
            lines.append(f"   … and {len(self.leaves) - SHOWN} more: see .plans")
        lines += [f"   {batch}" for batch in self.batches]
        # Objects that hold a tensor come first, because they may be a mistake.
        kept = sorted(self.kept, key=lambda kept_leaf: kept_leaf.tensor is None)
        lines += [f"   {kept_leaf}" for kept_leaf in kept[:SHOWN]]
        if len(kept) > SHOWN:
            lines.append(f"   … and {len(kept) - SHOWN} more are kept: see .kept")
        lines += [f"   Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def _head(self) -> str:
        if len(self.leaves) == 1:
            many = "1 leaf"
        else:
            many = f"{len(self.leaves)} leaves"
        if self.kept:
            kept = f", {len(self.kept)} kept as they are"
        else:
            kept = ""
        return f"{many}{kept}: {size_text(self.bytes_copied)} copied, {size_text(self.bytes_shared)} shared"

    def _notes(self) -> tuple[object, ...]:
        return (*self.batches, *self.kept)


# -- plans as HTML ---------------------------------------------------------------------------------

_DRAWN = 12
"""The most blocks of memory that are drawn, and the most names of one block."""
_ROWS = 50
"""The most leaves in the table."""


def leaves_page(
    head: str, leaves: Sequence[Any], notes: Sequence[object], warnings: Iterable[str]
) -> str:
    """A page about the first leaves, and the number of the others.

    Args:
        head: The first line.
        leaves: The leaves, with their paths and plans, and what happens to each; `same_as` and
            `view_with` tell which share memory.
        notes: Other lines.
        warnings: The warnings.
    """
    memories = _memories(leaves)

    def draw(width: Literal[64, 32]) -> str:
        return _picture(memories, width)

    rows = [
        (
            code_block(leaf.path),
            source_and_result(leaf.plan.source, leaf.plan.result),
            xml_text(leaf.what),
        )
        for leaf in leaves[:_ROWS]
    ]
    parts = [f"<p><b>{xml_text(head)}</b></p>", both_widths(draw) if memories else ""]
    parts.append(html_table(("leaf", "what it is", "what happens"), rows) if rows else "")
    if len(leaves) > _ROWS:
        parts.append(f"<p>… and {len(leaves) - _ROWS:,} more leaves: see .plans</p>")
    parts += [f"<p>{xml_text(str(note))}</p>" for note in notes[:_ROWS]]
    if len(notes) > _ROWS:
        parts.append("<p>… and more: print() counts them</p>")
    return html_page([*parts, warnings_of(warnings)])


def _memories(leaves: Sequence[Any]) -> dict[str, list[Any]]:
    """Leaves, grouped by the path of the leaf whose memory they use."""
    by_memory: dict[str, list[Any]] = {}
    for leaf in leaves:
        over = getattr(leaf, "same_as", None) or leaf.path
        by_memory.setdefault(over, []).append(leaf)
    return by_memory


def _picture(memories: dict[str, list[Any]], width: Literal[64, 32]) -> str:
    """Each block of memory with the names of its leaves, all in the same scale."""
    canvas = Canvas(width)
    shown = list(memories.values())[:_DRAWN]
    sides = [info for leaves in shown for info in (leaves[0].plan.source, leaves[0].plan.result)]
    spans = [touched_bytes(info).span for info in sides if _is_block(info)]
    size = blocks_of(max(spans, default=1), width)
    canvas.lines(
        f"Each block is {size_text(size)}." if spans else "There are no bytes.", "quiet", 10
    )
    for leaves in shown:
        _draw(canvas, leaves, size)
    if len(memories) > len(shown):
        canvas.y += 4
        canvas.lines(f"… and {len(memories) - len(shown):,} more memories", "", 10)
    canvas.y += 8
    shared = sum(leaves[0].plan.shares_memory for leaves in memories.values())
    told = f"{shared:,} of {len(memories):,} memories are shared with the source, the others are copied."
    return canvas.svg("the memories of a tree", told, styled=False)


def _draw(canvas: Canvas, leaves: list[Any], size: int) -> None:
    """Draw one block of memory: the leaves that use it, and what becomes of it."""
    plan: Plan = leaves[0].plan
    canvas.y += 6
    canvas.lines(leaves[0].path, "name", 10)
    for leaf in leaves[1:_DRAWN]:
        canvas.lines(f"{leaf.path}: the same memory", "name", 10)
    if len(leaves) > _DRAWN:
        canvas.lines(f"… and {len(leaves) - _DRAWN:,} more over it", "name", 10)
    if plan.shares_memory:
        _side(canvas, plan.source, "shared", size)
        canvas.lines(
            f"source and result, {size_text(plan.source.nbytes)} on {plan.source.device}", "quiet"
        )
        return
    _side(canvas, plan.source, "source", size)
    for line in fitted_lines(_carried(leaves[0]), canvas.right - GUTTER - 24):
        canvas.y += 18
        canvas.text(GUTTER + 24, canvas.y - 5, line)
    x, y = GUTTER + 8, canvas.y - 16
    canvas.add(
        f"<path class='line' d='M{x} {y:g}v8'/><path class='shape' d='M{x - 4} {y + 6:g}h8l-4 7z'/>"
    )
    _side(canvas, plan.result, "result", size)


def _carried(leaf: Any) -> str:
    if getattr(leaf, "view_with", None) is not None:
        return f"copied as one memory with {leaf.view_with}"
    together = getattr(leaf, "bytes_copied", 0)
    if together > leaf.plan.bytes_copied:
        return f"{size_text(together)}, as one memory with the views that overlap it"
    ways = [f"{size_text(step.bytes)} {WAYS[step.path]}" for step in leaf.plan.steps if step.copies]
    return ", then ".join(ways) or "nothing is copied"


def _side(canvas: Canvas, info: TensorInfo, kind: str, size: int) -> None:
    if _is_block(info):
        draw_bar(canvas, info, kind, size)
        return
    many = info.shape[0] if info.shape else 1
    words = {
        "objects": f"{info.size:,} Python objects",
        "parts": f"{many:,} tensors, each in memory of its own",
    }
    canvas.lines(words.get(memory_kind(info), "no memory") if info.size else "no elements", "quiet")


def _is_block(info: TensorInfo) -> bool:
    return memory_kind(info) == "block" and info.size > 0
