"""`explain_wrap`: what a wrapped function's call converts, and its derivatives and modes."""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any

from ..core.info import TensorInfo
from ..core.layout import size_text
from ..errors import ConversionError, CopyRequiredError, UnsupportedTypeError, shown
from ..execution.recipes import conversion_as
from ..execution.run import described, prepare_described, prepare_unread
from .wrap import WRAPPED, SameFramework

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..planning.plan import Plan
    from .flat import TensorFunction
    from .wrap import Call, Wrapped

__all__ = ["WrapPlan", "explain_wrap"]


@dataclass(frozen=True)
class WrapPlan:
    """What a call of a wrapped function does.

    Args:
        name: The function's name.
        inner: The framework that it is written for.
        outer: The framework that calls it.
        inputs: The path of each tensor among the arguments, and its plan to the inner framework;
            ``None`` for a tensor that has no values yet.
        outputs: The path of each tensor in the result, and its plan to the outer framework;
            ``None`` if the result is known only after the call.
        derivatives: Which derivatives there are.
        modes: The functions of the outer framework inside of which the function can be used.
        notes: Remarks.

    .. versionadded:: 0.1
    """

    name: str
    inner: str
    outer: str
    inputs: tuple[tuple[str, Plan | None], ...]
    outputs: tuple[tuple[str, Plan], ...] | None
    derivatives: str
    modes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def bytes_copied(self) -> int:
        """The bytes that one call copies between the frameworks, there and back."""
        plans = [plan for _, plan in (*self.inputs, *(self.outputs or ()))]
        return sum(plan.bytes_copied for plan in plans if plan is not None)

    def __str__(self) -> str:
        if self.inner == self.outer:
            return f"{self.name}: {self.inner}'s own function, called as it is"
        lines = [f"{self.name}: a function of {self.inner}'s, called from {self.outer}"]
        for path, plan in self.inputs:
            lines.append(
                f"  {path}: "
                f"{'traced, so it crosses when the compiled code runs' if plan is None else _line_of_plan(plan)}"
            )
        if self.outputs is None:
            lines.append("  result: known when it is called")
        else:
            lines += [f"  {path}: {_line_of_plan(plan)}" for path, plan in self.outputs]
        lines.append(f"  derivatives: {self.derivatives}")
        if self.modes:
            lines.append(f"  works in: {', '.join(self.modes)}")
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


_LENT = (
    "a jitted function keeps nothing: arguments are lent to it for the time of the call, and large "
    "results that nobody "
    "else has are given away with their memory, without the copy"
)


def _line_of_plan(plan: Plan) -> str:
    what = f"{plan.source.framework} {plan.source.dtype}{list(plan.source.shape)} -> {plan.result.framework}"
    if plan.shares_memory:
        way = "shares memory"
    else:
        way = f"copies {size_text(plan.bytes_copied)}"
    return f"{what}, {way}: {plan.reason}"


def explain_wrap(function: Callable[..., Any], /, *args: Any, **keywords: Any) -> WrapPlan:
    """What a call of a wrapped function would convert and copy, and which derivatives there are.

    >>> import numpy as np, torch, tensorferry as ferry
    >>> double = ferry.wrap(
    ...     lambda x: 2 * x, inner="numpy", vjp=lambda primals, outputs, cts: (2 * cts[0],)
    ... )
    >>> plan = ferry.explain_wrap(double, torch.ones(3))
    >>> plan.bytes_copied, plan.derivatives
    (0, 'of the first order in reverse mode')

    Nothing is computed. The function is traced if the inner framework can do that.

    Args:
        function: A function that `wrap` has made.
        *args: The arguments of the call.
        **keywords: The keyword arguments of the call.

    Raises:
        TypeError: `function` was not made by `wrap`.
        ConversionError: The call would raise it.

    .. versionadded:: 0.1
    """
    wrapped: Wrapped | None = getattr(function, "__dict__", {}).get(WRAPPED)
    if wrapped is None:
        raise TypeError(f"a function that ferry.wrap gave is explained, not {shown(function)}")
    if isinstance(function, MethodType):
        args = (function.__self__, *args)
    call = wrapped.ready(args, keywords)
    if isinstance(call, SameFramework):
        return WrapPlan(
            wrapped.source.name, wrapped.inner, wrapped.inner, (), (), "its own", (), ()
        )
    flat, outer = call.function.flat, call.outer
    inputs = tuple(
        (flat.path(index), _plan_in(flat, tensor)) for index, tensor in enumerate(call.tensors)
    )
    outputs, notes = _plans_out(call)
    return WrapPlan(
        flat.source.name,
        flat.inner.name,
        outer.name,
        inputs,
        outputs,
        flat.inner.derivatives(flat) if outer.differentiates else "none: there is no graph",
        outer.modes,
        (
            *notes,
            *((_LENT,) if flat.shares_for_the_call else ()),
            *flat.inner.remarks(flat),
            *outer.remarks(),
        ),
    )


def _plan_in(flat: TensorFunction, tensor: Any) -> Plan | None:
    if described(tensor).abstract == "traced":
        return None
    try:
        return prepare_unread(tensor, flat.lent_to).plan
    except CopyRequiredError:
        return prepare_unread(tensor, flat.into).plan


def _plans_out(call: Call) -> tuple[tuple[tuple[str, Plan], ...] | None, tuple[str, ...]]:
    flat = call.function.flat
    back = conversion_as(call.outer.name, dtype=flat.source.dtype, copy=flat.source.copy)
    if flat.source.shapes is None and flat.inner.keeps_outputs:
        return None, ()
    try:
        outputs = flat.output_specs(call.specs())
    except UnsupportedTypeError as error:
        if error.__cause__ is None:
            raise
        return None, (f"{error.message} It holds outside of jit.",)
    try:
        infos = [TensorInfo(flat.inner.name, shape, name) for shape, name in outputs.specs]
        plans = [prepare_described(info, back).plan for info in infos]
        return tuple((outputs.tree.path(index), plan) for index, plan in enumerate(plans)), ()
    except ConversionError as error:
        return None, (error.message,)
