"""`Plan`: the steps of one conversion as plain data, the claims that are checked after it ran, and its texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import names
from ..core.layout import size_text
from ..core.named_tuple import NamedTuple, fields_but
from .step import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.declaration import Code
    from ..core.info import TensorInfo
    from ..core.request import Request
    from .step import Step

__all__ = ["Plan", "code_lines"]


def code_lines(codes: Iterable[Code]) -> list[str]:
    """The lines that make `y` of `x`, with one code after the other.

    Expressions go into each other. A value gets a name only where an expression cannot hold it.
    """
    lines: list[str] = []
    value = "x"
    for code in codes:
        lines.extend(f"# {remark}" for remark in code.remarks)
        if code.uses > 1 and value not in ("x", "y"):
            lines.append(f"y = {value}")
            value = "y"
        value = code.of(value).expression
        if code.then:
            if value != "y":
                lines.append(f"y = {value}")
            lines.extend(code.then)
            value = "y"
    if value != "y":
        lines.append(f"y = {value}")
    return lines


class Plan(NamedTuple):
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
    modules: tuple[Mapping[str, str], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and _compared(self) == _compared(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_compared(self))

    @property
    def written(self) -> str | None:
        """The dtype of the last step's array, as read or cast before; ``None``: it takes parts."""
        before: str | None = self.source.dtype
        for step in self.steps[:-1]:
            if step.verb == "look":
                before = None
            elif step.verb in ("cast", "read") and step.arguments:
                before = step.arguments[0]
        return before

    # -- its texts, for people and for JSON --------------------------------------------------------

    @property
    def imports(self) -> tuple[str, ...]:
        """The import lines that `code` needs."""
        known = {name: line for module in self.modules for name, line in module.items()}
        used = [
            name for name in known if any(step.snippet.code.mentions(name) for step in self.steps)
        ]
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
        return "\n".join([*self.imports, *code_lines(step.snippet.code for step in self.steps)])

    def _summary(self) -> str:
        """Whether memory is shared or copied, in one line."""
        if self.shares_memory:
            return f"shares memory ({self._mode()}), copies nothing: {self.reason}"
        if self.bytes_copied:
            copied = size_text(self.bytes_copied)
        else:
            copied = "nothing"
        return f"copies {copied}: {self.reason}"

    def _mode(self) -> str:
        """Whether a sharing result can be written; if not, how to get one that can, if possible."""
        if self.result.writable:
            return "writable"
        memory = names.named(self.result.framework).capabilities.memory
        can_be_written = memory.writable or memory.shows_writes
        if can_be_written:
            return "read-only; writable with copy=True"
        return "read-only"

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        return {
            "source": self.source.to_dict(),
            "result": self.result.to_dict(),
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
                for step in self.steps
            ],
            "shares_memory": self.shares_memory,
            "bytes_copied": self.bytes_copied,
            "keeps_dtype": self.keeps_dtype,
            "keeps_gradient": self.keeps_gradient,
            "reason": self.reason,
            "warnings": list(self.warnings),
            "code": self.code,
        }

    def __repr__(self) -> str:
        if len(self.steps) == 1:
            steps = "1 step"
        else:
            steps = f"{len(self.steps)} steps"
        warned = ", with a warning" if self.warnings else ""
        return f"<Plan: {self.source} -> {self.result}\n  {self._summary()}\n  print() shows the {steps}{warned}>"

    def __str__(self) -> str:
        lines = [f"{self.source}", f"-> {self.result}", f"   {self._summary()}", ""]
        if not self.steps:
            lines.append("   nothing to do: x is returned as it is")
        codes = [step.code for step in self.steps]
        width = max(map(len, codes), default=0)
        for number, (step, code) in enumerate(zip(self.steps, codes, strict=True), 1):
            if step.copies:
                cost = f"  [{size_text(step.bytes)} {WAYS[step.path]}]"
            else:
                cost = ""
            lines.append(f"{number:2}. {code:<{width}}  # {step.why}{cost}")
        if self.keeps_dtype:
            kept = "kept"
        else:
            kept = f"becomes {self.result.dtype}"
        lines += ["", f"   dtype {self.source.dtype} {kept}"]
        if self.source.requires_grad:
            lines[-1] += f", gradient {'kept' if self.keeps_gradient else 'left behind'}"
        lines += [f"   Warning: {text}" for text in self.warnings]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from .pictures.html import plan_page

        return plan_page(self, self._summary())


_compared = fields_but(Plan, "modules")
"""What two plans are compared by. The modules follow from the frameworks, and cannot be hashed."""
