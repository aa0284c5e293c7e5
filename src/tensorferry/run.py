"""The only place where tensors are touched: walk a plan's steps, and in verifying mode look at what came out."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from . import memory, registry
from .backend import EXCHANGE
from .devices import HOST, same_place
from .errors import PlanViolation, UnsupportedTypeError
from .info import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .backend import Backend
    from .capabilities import Capabilities
    from .plan import Plan, Step
    from .request import Request

__all__ = [
    "Prepared",
    "Program",
    "carry",
    "check",
    "foresee",
    "here",
    "is_verifying",
    "plan_described",
    "plan_for",
    "prepare",
    "run",
    "verifying",
]

Program = tuple["Callable[..., Any]", ...]

_verifying = False


@lru_cache(maxsize=4096)
def _planned(
    info: TensorInfo, request: Request, source: Backend, target: Backend, _capabilities: Capabilities
) -> tuple[Plan, Program]:
    from .planner import make_plan  # a third of what importing tensorferry would cost besides

    plan = make_plan(info, request, source, target, registry.backend_named(EXCHANGE))
    return plan, tuple(map(_bound, plan.steps))


def _bound(step: Step) -> Callable[..., Any]:
    """A step as a function of the value alone, or of the value and `out`."""
    verb: Callable[..., Any] = getattr(registry.backend_named(step.backend), step.verb)
    return (lambda value: verb(value, *step.arguments)) if step.arguments else verb


def plan_for(info: TensorInfo, request: Request, source: Backend, target: Backend) -> tuple[Plan, Program]:
    """The plan, and its steps as bound methods; made once for each (info, request, capabilities)."""
    return _planned(info, request, source, target, target.capabilities)


def plan_described(info: TensorInfo, request: Request, source: Backend, target: Backend) -> tuple[Plan, Program]:
    """The same for a description of a tensor that need not exist.

    Raises:
        ConversionError: There can be no such tensor, or no such conversion.
    """
    from .preconditions import refuse_place

    refuse_place(info, source)
    return plan_for(info, request, source, target)


def run(program: Program, value: Any, out: Any = None) -> Any:
    """Walk the steps from `value`; nothing is decided here."""
    if out is None:
        for do in program:
            value = do(value)
        return value
    *before, write = program
    for do in before:
        value = do(value)
    write(value, out)
    return out


def here(request: Request, info: TensorInfo, target: Backend) -> Request:
    """The request as it is on this machine: the target's devices matter only where an accelerator is involved."""
    if info.device == HOST and request.device in (None, HOST) and HOST in target.capabilities.devices.kinds:
        return request
    return request._replace(present=target.devices())


class Prepared(NamedTuple):
    """A conversion that is planned and not run yet: what it starts from, and each side's backend."""

    source: Backend
    target: Backend
    info: TensorInfo
    handle: Any
    plan: Plan
    program: Program


def prepare(
    x: Any, target: Backend, request: Request, decide: Callable[[TensorInfo], Request] | None = None
) -> Prepared:
    """Describe `x` and plan; `carry` without the run.

    Args:
        x: What comes in.
        target: The backend of what is to come out.
        request: What was asked for.
        decide: Gives the request instead, where it depends on what `x` is.
    """
    opened = registry.backend_of(x).open(x, target, request if decide is None else None)
    return _prepared(opened, target, request, decide)


def foresee(
    x: Any, target: Backend, request: Request, decide: Callable[[TensorInfo], Request] | None = None
) -> Prepared:
    """The same without what it starts from, where that would have to be made: nothing is read."""
    opened = registry.backend_of(x).preview(x, target, request if decide is None else None)
    return _prepared(opened, target, request, decide)


def _prepared(
    opened: tuple[Backend, TensorInfo, Any],
    target: Backend,
    request: Request,
    decide: Callable[[TensorInfo], Request] | None,
) -> Prepared:
    source, info, handle = opened
    request = request if decide is None else decide(info)
    return Prepared(source, target, info, handle, *plan_for(info, here(request, info, target), source, target))


def is_verifying() -> bool:
    """Whether each result is to be compared with its plan."""
    return _verifying


def carry(x: Any, target: Backend, request: Request, out: Any = None) -> Any:
    """Describe `x`, plan, and run: the general path of every conversion."""
    if out is not None and isinstance(out, TensorInfo):
        raise UnsupportedTypeError(
            "A TensorInfo describes a tensor, and has no memory to write to.", "explain(x, to, out=out), or a tensor"
        )
    source, info, handle = registry.backend_of(x).open(x, target, request)
    capabilities = target.capabilities
    # `here` and `run` written out: a call of each is a tenth of what a small conversion costs.
    if info.device != HOST or request.device is not None or HOST not in capabilities.devices.kinds:
        request = here(request, info, target)
    plan, program = _planned(info, request, source, target, capabilities)
    if out is None:
        result = handle
        for do in program:
            result = do(result)
    else:
        result = run(program, handle, out)
    if _verifying:
        check(plan, source, target, handle, result)
    return result


# -- verifying mode -----------------------------------------------------------------------------


@contextmanager
def verifying(on: bool = True) -> Iterator[None]:
    """Check every conversion against its plan's claims; fast lanes give way to the planned path.

    Raises:
        PlanViolation: Inside, when what came out is not what the plan claimed.
    """
    global _verifying
    before, lanes = _verifying, registry.open_lanes(not on)
    _verifying = on
    try:
        yield
    finally:
        _verifying = before
        registry.open_lanes(lanes)


def check(plan: Plan, source: Backend, target: Backend, handle: Any, result: Any) -> None:
    """Compare a result with its plan: framework, shape, dtype, device, gradient, writability, memory.

    Raises:
        PlanViolation: They differ; the message names the claim.
    """
    if not target.capabilities.memory.exists or plan.source.abstract is not None:
        return
    seen = target.describe(result)
    for claim in ("framework", "shape", "dtype", "device", "shards", "requires_grad", "writable"):
        planned, observed = getattr(plan.result, claim), getattr(seen, claim)
        if planned != observed and not (claim == "device" and same_place(observed, planned)):
            raise PlanViolation(f"the plan claims {claim} {planned!r}, observed {observed!r}\n\n{plan}")
    if plan.request.out is not None or seen.device != HOST:
        return
    start, end = source.pointer(handle), target.pointer(result)
    if plan.source.device != HOST or start is None or end is None:
        return
    unread = plan.source.kind not in source.capabilities.objects.read_kinds
    shares = unread and memory.overlap(plan.source, start, seen, end)
    if shares != plan.shares_memory:
        raise PlanViolation(f"the plan claims shares_memory {plan.shares_memory}, observed {shares}\n\n{plan}")
