"""The one road of every conversion: whose tensor it is, its signature, the recipe for that, and the steps.

Here alone tensors are touched. In verifying mode what comes out is compared with the plan that `explain` shows.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import registry
from ..core.devices import HOST, same_place
from ..core.info import TensorInfo
from ..core.request import writing_into
from ..core.signature import signature_of
from ..errors import PlanViolation, UnsupportedTypeError
from ..host import memory
from ..sequences.members import Members
from . import stacks
from .recipes import conversion_of, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..backends.base import Backend
    from ..core.request import Request
    from ..planning.plan import Plan
    from .recipes import Conversion, Recipe

__all__ = [
    "Prepared",
    "convert",
    "convert_prepared",
    "execute",
    "foresee",
    "is_verifying",
    "prepare",
    "prepare_described",
    "recipe_of",
    "recipes_of",
    "verify",
    "verifying",
]

_verifying = False


def execute(program: Sequence[Callable[..., Any]], value: Any, out: Any = None) -> Any:
    """Walk the steps from a value; the last one writes into `out`, where there is one. Nothing is decided here."""
    if out is None:
        for do in program:
            value = do(value)
        return value
    *before, write = program
    for do in before:
        value = do(value)
    write(value, out)
    return out


def convert(x: Any, conversion: Conversion, out: Any = None) -> Any:
    """Convert one tensor.

    Args:
        x: What comes in.
        conversion: The target, and what is asked of it.
        out: What is written into, or ``None``.

    Raises:
        ConversionError: It cannot be done; the message says why.
    """
    target = conversion.target
    if not (conversion.sized or _verifying):
        signature = registry.backend_of(x).signature(x)
        if signature is not None:
            if out is not None:
                written = target.signature(out)
                # An `out` of another shape is refused by the plan, which is not found.
                signature = signature, None if written is None or x.shape != out.shape else written
            recipe = conversion.find((signature, target.environment()))
            if recipe is not None:
                return execute(recipe.program, x, out)
    if isinstance(out, TensorInfo):
        raise UnsupportedTypeError(
            "A TensorInfo describes a tensor, and has no memory to write to.", "explain(x, to, out=out), or a tensor"
        )
    each = prepare(x, conversion, out)
    result = execute(each.recipe.program, each.handle, out)
    if _verifying:
        verify(each, result)
    return result


class Prepared(NamedTuple):
    """A conversion that is planned and not run yet.

    Args:
        source: The backend of what comes in.
        target: The backend of what is to come out.
        info: What comes in.
        handle: The object that the steps start from.
        request: What is asked for, with what `out` is.
        recipe: The steps.
    """

    source: Backend
    target: Backend
    info: TensorInfo
    handle: Any
    request: Request
    recipe: Recipe

    @property
    def plan(self) -> Plan:
        """Its own plan, with its own sizes."""
        request = self.recipe.plan.request._replace(out=self.request.out)
        return self._whole(plan_of(self.info, request, *self.sides))

    @property
    def plan_run(self) -> Plan:
        """The plan of the steps that are run."""
        return self._whole(self.recipe.plan)

    def _whole(self, plan: Plan) -> Plan:
        """A plan with what is done to the members, if they are several."""
        return stacks.composed(plan, self.handle, self.source) if type(self.handle) is Members else plan

    def overlaps(self, result: TensorInfo, address: int) -> bool:
        """Whether a result lies over the memory of what came in."""
        if type(self.handle) is Members:
            return stacks.overlaps(self.handle, result, address)
        start = self.source.pointer(self.handle)
        unread = self.info.kind not in self.source.capabilities.objects.read_kinds
        return unread and start is not None and memory.overlap(self.plan.source, start, result, address)

    @property
    def sides(self) -> tuple[Backend, Backend, Any]:
        """Both backends, and what the target can do as things are now."""
        return self.source, self.target, self.target.capabilities


def prepare(
    x: Any, conversion: Conversion, out: Any = None, decide: Callable[[TensorInfo], Conversion] | None = None
) -> Prepared:
    """Describe a tensor and find its recipe; `convert` without the run.

    Args:
        x: What comes in.
        conversion: The target, and what is asked of it.
        out: What is written into, or ``None``.
        decide: Gives the conversion instead, where it depends on what `x` is.

    Raises:
        ConversionError: There is no such conversion; the message says why.
    """
    source, target, request = registry.backend_of(x), conversion.target, _with_out(conversion.request, out)
    opened = source.open(x, target, request if decide is None else None)
    if conversion.sized or decide is not None:
        return _prepared(opened, None, conversion, request.out, decide)
    signature = source.signature(x)
    if signature is not None and out is not None:
        written = target.signature(out)
        signature = None if written is None else (signature, written)
    return _prepared(opened, signature, conversion, request.out)


def recipes_of(
    leaves: Sequence[Any],
    outs: Sequence[Any] | None,
    conversion: Conversion,
    decide: Callable[[TensorInfo], Conversion] | None,
) -> list[Recipe] | None:
    """The recipe of each of many tensors; ``None`` if one of them has no signature that is read off it.

    Args:
        leaves: The tensors.
        outs: What each of them is written into, or ``None``.
        conversion: The target, and what is asked of it.
        decide: Gives the conversion instead, where it depends on what a tensor is.

    Raises:
        ConversionError: There is no such conversion.
    """
    if conversion.sized:
        return None
    target = conversion.target
    environment = target.environment()
    signatures = _signatures(leaves)
    if outs is not None:
        written = target.signatures(outs)
        if None in written or None in signatures:
            return None
        if any(leaf.shape != out.shape for leaf, out in zip(leaves, outs, strict=True)):
            return None
        signatures = list(zip(signatures, written, strict=True))
    known: dict[Any, Recipe] = {}
    for signature, index in dict(zip(signatures, range(len(leaves)), strict=True)).items():
        leaf, out = leaves[index], None if outs is None else outs[index]
        if signature is None:
            return None
        asked = conversion if decide is None else decide(registry.backend_of(leaf).describe(leaf))
        if asked.sized:
            return None
        known[signature] = asked.find((signature, environment)) or prepare(leaf, asked, out).recipe
    return [known[signature] for signature in signatures]


def _signatures(leaves: Sequence[Any]) -> list[Any]:
    kinds = {type(leaf): leaf for leaf in leaves}
    if len(kinds) == 1:
        return registry.backend_of(leaves[0]).signatures(leaves)
    read = {kind: registry.backend_of(leaf).signature for kind, leaf in kinds.items()}
    return [read[type(leaf)](leaf) for leaf in leaves]


def foresee(
    x: Any, conversion: Conversion, out: Any = None, decide: Callable[[TensorInfo], Conversion] | None = None
) -> Prepared:
    """The same without what it starts from, where that would have to be made: nothing is read."""
    source, request = registry.backend_of(x), _with_out(conversion.request, out)
    opened = source.preview(x, conversion.target, request if decide is None else None)
    return _prepared(opened, None, conversion, request.out, decide)


def prepare_described(info: TensorInfo, conversion: Conversion, out: Any = None) -> Prepared:
    """The same for a description of a tensor that need not exist.

    Raises:
        ConversionError: There can be no such tensor, or no such conversion.
    """
    from ..planning.preconditions import refuse_place

    source = registry.backend_named(info.framework)
    refuse_place(info, source)
    request = _with_out(conversion.request, out)
    # Not kept: it is not looked whether there is such a device here.
    return Prepared(source, conversion.target, info, info, request, conversion.make(info, source, request))


def _with_out(request: Request, out: Any) -> Request:
    return request if out is None else writing_into(request, out)


def _prepared(
    opened: tuple[Backend, TensorInfo, Any],
    signature: Any,
    conversion: Conversion,
    out: TensorInfo | None,
    decide: Callable[[TensorInfo], Conversion] | None = None,
) -> Prepared:
    source, info, handle = opened
    if decide is not None:
        conversion = decide(info)
    if conversion.request.placement is not None:
        conversion = _laid_out(conversion, source, handle)
    request = conversion.request if out is None else conversion.request._replace(out=out)
    if conversion.sized or (out is not None and (out.device != HOST or out.shape != info.shape)):
        signature = info, out
    elif signature is None:
        signature = signature_of(info) if out is None else (signature_of(info), signature_of(out))
    if type(handle) is Members:
        signature = signature, handle.signature
    key = signature, conversion.target.environment()
    recipe = conversion.find(key)
    if recipe is None:
        recipe = conversion.make(info, source, conversion.here(info, request))
        if type(handle) is Members:
            recipe = stacks.with_members(recipe, handle, source)
        conversion.keep(key, recipe)
    return Prepared(source, conversion.target, info, handle, request, recipe)


def _laid_out(conversion: Conversion, source: Backend, handle: Any) -> Conversion:
    """The conversion, with whether what comes in is laid out over devices as it asks."""
    target, placement = conversion.target, conversion.request.placement
    if placement is None or source is not target or handle is None or not target.is_laid_out(handle, placement):
        return conversion
    return conversion_of(target, conversion.request._replace(placement=placement._replace(lies=True)))


# -- verifying mode -----------------------------------------------------------------------------


def is_verifying() -> bool:
    """Whether each result is to be compared with its plan."""
    return _verifying


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


def verify(each: Prepared, result: Any) -> None:
    """Compare a result with its plan: framework, shape, dtype, device, gradient, writability, memory; and the steps.

    Raises:
        PlanViolation: They differ; the message names the claim.
    """
    plan, target = each.plan, each.target
    planned_steps, run_steps = ([step[:3] for step in found.steps] for found in (plan, each.plan_run))
    if planned_steps != run_steps:
        raise PlanViolation(f"the plan has the steps {planned_steps}, what was run are {run_steps}\n\n{plan}")
    if not target.capabilities.memory.exists or plan.source.abstract is not None:
        return
    seen = target.describe(result)
    for claim in ("framework", "shape", "dtype", "device", "shards", "requires_grad", "writable"):
        planned, observed = getattr(plan.result, claim), getattr(seen, claim)
        if planned != observed and not (claim == "device" and same_place(observed, planned)):
            raise PlanViolation(f"the plan claims {claim} {planned!r}, observed {observed!r}\n\n{plan}")
    if plan.request.out is not None or seen.device != HOST:
        return
    end = target.pointer(result)
    if plan.source.device != HOST or end is None:
        return
    shares = each.overlaps(seen, end)
    if shares != plan.shares_memory:
        raise PlanViolation(f"the plan claims shares_memory {plan.shares_memory}, observed {shares}\n\n{plan}")


# -- what is prepared otherwise -------------------------------------------------------------------


def recipe_of(info: TensorInfo, source: Backend, conversion: Conversion) -> Recipe:
    """The recipe for a tensor that has been described.

    Raises:
        ConversionError: There is no such conversion.
    """
    return _prepared((source, info, None), None, conversion, None).recipe


def convert_prepared(each: Prepared) -> Any:
    """Run what is planned, without `out`."""
    result = execute(each.recipe.program, each.handle)
    if _verifying:
        verify(each, result)
    return result
