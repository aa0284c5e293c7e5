"""Steps on the device of a value: cast, apply lazy bits, copy; and when page-locked memory is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import dtypes
from ..core.devices import HOST
from ..errors import DeviceError, LossyCastError
from . import host_steps, rules

if TYPE_CHECKING:
    from ..core.declaration import Declaration
    from .builder import PlanBuilder

__all__ = [
    "agrees",
    "bytes_more",
    "cast_inside",
    "duplicate",
    "in_graph",
    "is_cast_by_host",
    "refuse_pinned",
    "resolve",
]


# -- casts --------------------------------------------------------------------------------------


def in_graph(plan: PlanBuilder) -> bool:
    """Whether the dtype of the result can require grad."""
    return dtypes.find(plan.dtype).kind in ("float", "complex")


def agrees(plan: PlanBuilder, by: Declaration | None = None) -> bool:
    """Whether all frameworks give the same bits for this cast, so that one, the source's, may do it on its device."""
    able = (by or plan.source).capabilities.dtypes.casts_on_device(plan.now.dtype, plan.dtype)
    return able and rules.agrees(plan.now.dtype, plan.dtype) and not plan.check


def is_cast_alike(plan: PlanBuilder) -> bool:
    """Whether the framework itself casts a plain tensor on the host as NumPy does."""
    now, caps = plan.now, plan.source.capabilities
    alike = (now.dtype, plan.dtype) in caps.dtypes.cast_alike and not plan.check
    # The method of a subclass could do anything, and its result would be of that class.
    plain = now.kind in ("", caps.gradients.parameter) and not (
        now.conjugate or now.negative or now.requires_grad
    )
    return alike and plain and now.is_compact


def bytes_more(plan: PlanBuilder) -> int:
    """How many bytes an element gets larger; negative if it gets smaller."""
    return dtypes.find(plan.dtype).itemsize - dtypes.find(plan.now.dtype).itemsize


def is_cast_by_host(plan: PlanBuilder) -> bool:
    """Whether a value on a device must come to the host to be cast, because the device could give other bits."""
    now = plan.now
    there = (
        plan.dtype != now.dtype and now.device != HOST and now.abstract is None and now.shards == 1
    )
    return there and not agrees(plan)


def cast_inside(plan: PlanBuilder, by: Declaration, why: str = "") -> None:
    """Cast with the framework's own operation, on the device of the value."""
    why = why or rules.cast_reason(plan.source_info, plan.request, plan.target)
    kept = plan.now.requires_grad and in_graph(plan) and by.capabilities.gradients.records
    objects = by.capabilities.objects
    unseen = objects.tracer and f"{objects.tracer} records no look at values"
    if plan.now.abstract is not None:
        unseen = objects.abstract[plan.now.abstract][0]
    if unseen and plan.check:
        raise LossyCastError(
            f"{plan.now.dtype} to {plan.dtype} has to look at each value: {unseen}.",
            f'dtype="{plan.dtype}", casting="unsafe"',
        )
    caster = "" if unseen or agrees(plan, by) else "graph" if kept else "host"
    if caster == "host" and not plan.check:
        why += rules.why_on_host(plan.source_info, plan.dtype)
    plan.add(
        by,
        "cast",
        (plan.dtype, plan.check),
        "the cast stays in the graph" if kept else why,
        copies=plan.path,
        snippet_arguments=(plan.dtype, plan.check, caster),
        dtype=plan.dtype,
        requires_grad=kept,
        conjugate=False,
        negative=False,
        strides=plan.packed(by, plan.dtype),
        misalignment=0,
        kind="",
        pinned=False,
    )


# -- newly allocated memory ---------------------------------------------------------------------


def resolve(plan: PlanBuilder) -> None:
    """Apply PyTorch's lazy bits (conjugation, negation) to the values."""
    now = plan.now
    if not (now.conjugate or now.negative):
        return
    bits = [
        word
        for word, is_set in (("conjugate", now.conjugate), ("negative", now.negative))
        if is_set
    ]
    why = f"memory holds the values before the {' and '.join(bits)} bit is applied"
    plan.refuse_copy([why])
    changes: dict[str, Any] = {"conjugate": False, "negative": False, "pinned": False}
    changes["strides"] = plan.packed(plan.source)
    plan.add(plan.source, "resolve", (), why, copies=plan.path, **changes)
    plan.reason = why


def duplicate(plan: PlanBuilder, why: str) -> None:
    """Copy on the device of the value, with the order of the axes in memory kept."""
    changes: dict[str, Any] = {
        "strides": plan.packed(plan.source),
        "misalignment": 0,
        "kind": "",
        "pinned": False,
    }
    changes["requires_grad"] = plan.now.requires_grad and plan.source.capabilities.gradients.records
    plan.add(plan.source, "copy", (), why, copies=plan.path, **changes)
    plan.reason = why


# -- page-locked results ------------------------------------------------------------------------


def refuse_pinned(plan: PlanBuilder) -> None:
    """Raise for ``pinned=True`` if there is no page-locked memory.

    Raises:
        DeviceError: The result is not on the host, or neither framework can lock memory.
    """
    if not host_steps.wants_pinned(plan) or plan.now.abstract is not None:
        return
    if plan.device != HOST:
        raise DeviceError(
            f"pinned=True asks for page-locked memory of the host, and the result is on {plan.device}.",
            'device="cpu", or without pinned=',
        )
    if host_steps.pinner(plan) is None and not plan.now.pinned:
        sides = dict.fromkeys([plan.source.name, plan.target.name])
        who = (
            f"Neither {' nor '.join(sides)} can"
            if len(sides) == 2
            else f"{plan.source.name} cannot"
        )
        raise DeviceError(f"{who} lock memory.", "without pinned=, or go over a framework that can")
