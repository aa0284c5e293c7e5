"""A plan as code, as text and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.sizes import size_text
from .step import WAYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.info import TensorInfo
    from .step import Step

__all__ = ["Rendered"]


class Rendered:
    """The properties of a plan, and its texts for people and for JSON."""

    source: TensorInfo
    result: TensorInfo
    steps: tuple[Step, ...]
    shares_memory: bool
    reason: str
    warnings: tuple[str, ...]
    modules: tuple[Mapping[str, str], ...]

    @property
    def imports(self) -> tuple[str, ...]:
        """The import lines that `code` needs."""
        known = {name: line for each in self.modules for name, line in each.items()}
        used = [name for name in known if any(f"{name}." in step.template for step in self.steps)]
        return tuple(dict.fromkeys(known[name] for name in used))

    @property
    def bytes_copied(self) -> int:
        """How many bytes all steps write together."""
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
        return _code(self)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        return _to_dict(self)

    def __repr__(self) -> str:
        return _to_line(self)

    def __str__(self) -> str:
        return _to_text(self)

    def _repr_html_(self) -> str:
        from .page import plan_page

        return plan_page(self, _summary(self))


def _code(plan: Rendered) -> str:
    """The conversion as code that a person could paste: ``x`` becomes ``y``."""
    lines = list(plan.imports)
    expression = "x"
    for step in plan.steps:
        remark, _, template = step.template.rpartition("\n")
        if remark:
            lines.append(remark)
        if "{y}" in template:
            if expression != "y" and "{x}" not in template:
                lines.append(f"y = {expression}")
            lines.extend(part.replace("{x}", expression).replace("{y}", "y") for part in template.split("; "))
            expression = "y"
            continue
        if template.count("{x}") > 1 and expression not in ("x", "y"):
            lines.append(f"y = {expression}")
            expression = "y"
        expression = template.replace("{x}", expression)
    if expression != "y":
        lines.append(f"y = {expression}")
    return "\n".join(lines)


def _summary(plan: Rendered) -> str:
    """Whether memory is shared or copied, in one line."""
    if plan.shares_memory:
        mode = "writable" if plan.result.writable else "read-only"
        return f"shares memory ({mode}), copies nothing: {plan.reason}"
    copied = size_text(plan.bytes_copied) if plan.bytes_copied else "nothing"
    return f"copies {copied}: {plan.reason}"


def _to_line(plan: Rendered) -> str:
    """The plan in one line, for the Python prompt: source, result, and whether it copies."""
    steps = "1 step" if len(plan.steps) == 1 else f"{len(plan.steps)} steps"
    warned = ", with a warning" if plan.warnings else ""
    return f"<Plan: {plan.source} -> {plan.result}\n  {_summary(plan)}\n  print() shows the {steps}{warned}>"


def _to_text(plan: Rendered) -> str:
    """The plan for people."""
    lines = [f"{plan.source}", f"-> {plan.result}", f"   {_summary(plan)}", ""]
    if not plan.steps:
        lines.append("   nothing to do: x is returned as it is")
    width = max((len(step.code) for step in plan.steps), default=0)
    for number, step in enumerate(plan.steps, 1):
        cost = f"  [{size_text(step.bytes)} {WAYS[step.path]}]" if step.copies else ""
        lines.append(f"{number:2}. {step.code:<{width}}  # {step.why}{cost}")
    lines += ["", f"   dtype {_kept(plan.keeps_dtype, plan.source.dtype, plan.result.dtype)}"]
    if plan.source.requires_grad:
        lines[-1] += f", gradient {'kept' if plan.keeps_gradient else 'left behind'}"
    lines += [f"   Warning: {text}" for text in plan.warnings]
    return "\n".join(lines)


def _kept(kept: bool, before: str, after: str) -> str:
    return f"{before} kept" if kept else f"{before} becomes {after}"


def _to_dict(plan: Rendered) -> dict[str, Any]:
    """The plan as plain data for JSON."""
    return {
        "source": plan.source.to_dict(),
        "result": plan.result.to_dict(),
        "steps": [
            {
                "verb": step.verb,
                "backend": step.backend,
                "code": step.code,
                "why": step.why,
                "copies": step.copies,
                "bytes": step.bytes,
                "path": step.path,
            }
            for step in plan.steps
        ],
        "shares_memory": plan.shares_memory,
        "bytes_copied": plan.bytes_copied,
        "keeps_dtype": plan.keeps_dtype,
        "keeps_gradient": plan.keeps_gradient,
        "reason": plan.reason,
        "warnings": list(plan.warnings),
        "code": plan.code,
    }
