"""The one road of every conversion: whose tensor it is, its signature, the recipe for that, and the steps.

Here alone tensors are touched. In verifying mode what comes out is compared with the plan that `explain` shows.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import fast_paths, registry
from ..core.devices import HOST, same_place
from ..core.info import JOINS, TensorInfo
from ..core.signature import signature_of
from ..errors import PlanViolation, UnsupportedTypeError
from ..host import memory
from .recipes import conversion_of, plan_of
from .target import writing_into

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ..backends.base import Backend
    from ..core.request import Request
    from ..planning.plan import Plan
    from .recipes import Conversion, Recipe

__all__ = [
    "Prepared",
    "complete",
    "convert",
    "execute",
    "foresee",
    "is_verifying",
    "prepare",
    "prepare_described",
    "recipe_of",
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
    for do in program[:-1]:
        value = do(value)
    program[-1](value, out)
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
    key: tuple[Any, Hashable] | None = None
    read = None if _verifying else conversion.readers.get(type(x)) or conversion.reader(type(x))
    if read is not None and (signature := read(x)) is not None:
        target = conversion.target
        if out is not None:
            # An `out` that is none, or of another shape, is refused by the plan, which is not found.
            written = target.signature(out) if target.capabilities.memory.out else None
            if written is not None and registry.BY_TYPE[type(x)].lengths(x) != target.lengths(out):
                written = None
            signature = signature, written
        key = signature, target.environment()
        recipe = conversion.recent.get(key) or conversion.find(key)
        if recipe is not None:
            return execute(recipe.program, x, out)
    if isinstance(out, TensorInfo):
        raise UnsupportedTypeError(
            "A TensorInfo describes a tensor, and has no memory to write to.", "explain(x, to, out=out), or a tensor"
        )
    each = prepare(x, conversion, out)
    if key is not None and (out is None or key[0][1] is not None):
        conversion.keep(key, each.recipe)
    return complete(each, out)


def complete(each: Prepared, out: Any = None) -> Any:
    """Run what has been prepared, with the same `out`.

    Raises:
        ConversionError: What the values show.
    """
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
        if not _are_several(self.info, self.handle):
            return plan
        from .stacks import composed

        return composed(plan, self.handle, self.source)

    def overlaps(self, result: TensorInfo, address: int) -> bool:
        """Whether a result lies over the memory of what came in."""
        if _are_several(self.info, self.handle):
            from .stacks import overlaps

            return overlaps(self.handle, result, address)
        start = self.source.pointer(self.handle)
        unread = self.info.kind not in self.source.capabilities.objects.read_kinds
        return unread and start is not None and memory.overlap(self.plan.source, start, result, address)

    @property
    def sides(self) -> tuple[Backend, Backend, Any]:
        """Both backends, and what the target can do as things are now."""
        return self.source, self.target, self.target.capabilities


def prepare(
    x: Any,
    conversion: Conversion,
    out: Any = None,
    decide: Callable[[TensorInfo], Conversion] | None = None,
    known: dict[int, Prepared] | None = None,
) -> Prepared:
    """Describe a tensor and find its recipe; `convert` without the run.

    Args:
        x: What comes in.
        conversion: The target, and what is asked of it.
        out: What is written into, or ``None``.
        decide: Gives the conversion instead, where it depends on what `x` is.
        known: Where what is found out is kept, for others of the same description that are to become the same; not
            beside `out` or `decide`.

    Raises:
        ConversionError: There is no such conversion; the message says why.
    """
    source, target, request = registry.backend_of(x), conversion.target, _with_out(conversion.request, out)
    opened = _opened(source.open, x, source, target, request, decide)
    if conversion.sized or decide is not None:
        return _prepared(opened, None, conversion, request.out, decide, known)
    signature = source.signature(x)
    if signature is not None and out is not None:
        written = target.signature(out)
        signature = None if written is None else (signature, written)
    return _prepared(opened, signature, conversion, request.out, None, known)


def foresee(
    x: Any,
    conversion: Conversion,
    out: Any = None,
    decide: Callable[[TensorInfo], Conversion] | None = None,
    known: dict[int, Prepared] | None = None,
) -> Prepared:
    """The same without what it starts from, where that would have to be made: nothing is read."""
    source, request = registry.backend_of(x), _with_out(conversion.request, out)
    opened = _opened(source.preview, x, source, conversion.target, request, decide)
    return _prepared(opened, None, conversion, request.out, decide, known)


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


def _opened(
    do: Callable[..., Any],
    x: Any,
    source: Backend,
    target: Backend,
    request: Request,
    decide: Callable[[TensorInfo], Conversion] | None,
) -> Any:
    """What `x` is; where it depends on that what is asked, nothing is, unless there is no number without it."""
    if decide is None:
        return do(x, target, request)
    try:
        return do(x, target, None)
    except UnsupportedTypeError:
        if not source.reads_as_asked:
            raise
    return do(x, target, decide(TensorInfo(source.name, (), "float64")).request)


def _with_out(request: Request, out: Any) -> Request:
    return request if out is None else writing_into(request, out)


def _prepared(
    opened: tuple[Backend, TensorInfo, Any],
    signature: Any,
    conversion: Conversion,
    out: TensorInfo | None,
    decide: Callable[[TensorInfo], Conversion] | None,
    known: dict[int, Prepared] | None,
) -> Prepared:
    source, info, handle = opened
    several = _are_several(info, handle)
    if several:
        # What is done depends on each of them as well.
        known = None
    like = None if known is None else known.get(id(info))
    if like is not None and like.info is info and like.source is source and like.request is conversion.request:
        return Prepared(source, like.target, info, handle, like.request, like.recipe)
    if decide is not None:
        conversion = decide(info)
    if conversion.request.placement is not None:
        conversion = _laid_out(conversion, source, handle)
    request = conversion.request if out is None else conversion.request._replace(out=out)
    if request.placement is not None or (out is not None and out.shape != info.shape):
        signature = info, out
    elif signature is None:
        signature = signature_of(info) if out is None else (signature_of(info), signature_of(out))
    if several:
        signature = signature, handle.signature
    key = signature, conversion.target.environment()
    recipe = conversion.find(key)
    if recipe is None:
        recipe = conversion.make(info, source, conversion.here(info, request))
        if several:
            from .stacks import with_members

            recipe = with_members(recipe, handle, source)
        conversion.keep(key, recipe)
    found = Prepared(source, conversion.target, info, handle, request, recipe)
    if known is not None and conversion.request.placement is None:
        known[id(info)] = found
    return found


def _are_several(info: TensorInfo, handle: Any) -> bool:
    """Whether what comes in are several tensors, the `Members` of one, and not only described."""
    return info.kind in JOINS and handle is not None and handle is not info


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
    """Check every conversion against its plan's claims; fast paths give way to the planned path.

    Raises:
        PlanViolation: Inside, when what came out is not what the plan claimed.
    """
    global _verifying
    before, paths = _verifying, fast_paths.open_all(not on)
    _verifying = on
    try:
        yield
    finally:
        _verifying = before
        fast_paths.open_all(paths)


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
    return _prepared((source, info, None), None, conversion, None, None, None).recipe
