"""Convert one tensor: find its backend, read its signature, find the recipe for it, run the steps.

All conversions go through this module. In verifying mode, each result is compared with the plan
that `explain` shows.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends import fast_paths, registry
from ..backends.base import Opening
from ..core.devices import HOST, kind_of, same_place
from ..core.dtypes import KEYWORDS
from ..core.info import TensorInfo
from ..core.named_tuple import NamedTuple
from ..core.signature import signature_of
from ..errors import ConversionError, LossyCastError, PlanViolation, UnsupportedTypeError, an
from ..hints import Hint
from ..host import memory
from ..host.numpy_dtypes import has_dates
from .recipes import call_of, conversion_of, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ..backends.base import Backend, Opened
    from ..core.labels import Labels
    from ..core.request import Request
    from ..planning.plan import Plan
    from .recipes import Conversion, Recipe

__all__ = [
    "Prepared",
    "complete_conversion",
    "convert",
    "described",
    "execute",
    "is_verifying",
    "opening_for",
    "prepare",
    "prepare_described",
    "prepare_unread",
    "recipe_of",
    "verify_result",
    "verifying",
]

_verifying = False


def execute(program: Sequence[Callable[..., Any]], value: Any, out: Any = None) -> Any:
    """Run the steps of a recipe, one after the other.

    If `out` is given, the last step writes into it.
    """
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
        x: The tensor.
        conversion: The target and the request.
        out: The tensor that the result is written into, or ``None``.

    Raises:
        ConversionError: `x` cannot be converted; the message says why.
    """
    key: tuple[Any, Hashable] | None = None
    seen: Hashable = None
    written: Hashable = None
    read = conversion.readers.get(type(x)) or conversion.reader(type(x))
    if read is not None and (signature := read(x)) is not None:
        seen = signature
        if out is not None:
            # If `out` is not a tensor of the target, or has another shape, no recipe is found; the
            # planner refuses it.
            quick = conversion.quick
            if conversion.takes_out:
                written = quick.signature(out)
            if written is not None:
                lengths = registry.BY_TYPE[type(x)].quick.lengths(x)
                if lengths != quick.lengths(out):
                    written = None
            signature = signature, written
        # By itself: the interpreter speeds up to read a slot, but not to call what is in it.
        environment = conversion.environment
        key = signature, environment()
        recipe = conversion.recent.get(key) or conversion.find(key)
        if recipe is not None:
            try:
                if _verifying:
                    return _execute_verified(recipe, x, conversion, out)
                return execute(recipe.program, x, out)
            except (ConversionError, PlanViolation):
                raise
            except Exception:
                # A mode of the framework may prevent it, which the description shows, but not the
                # signature.
                prepared = prepare(x, conversion, out)
                if prepared.recipe is recipe:
                    raise
                return complete_conversion(prepared, out)
    if isinstance(out, TensorInfo):
        raise UnsupportedTypeError(
            "A TensorInfo describes a tensor, and has no memory to write to.",
            Hint(
                hints.without("out"),
                "; ",
                hints.call("explain", out=hints.code("out")),
                " says what would be done",
            ),
        )
    prepared = prepare(x, conversion, out)
    # If another thread has changed `x` meanwhile, the recipe may be one for another signature.
    # What the description shows, and not the signature, is a mode of the framework.
    usual = prepared.info.abstract is None and read is not None and read(x) == seen
    if usual and key is not None and (out is None or written is not None):
        conversion.keep(key, prepared.recipe)
    return complete_conversion(prepared, out)


def opening_for(target: Backend | None = None, request: Request | None = None) -> Opening:
    """What a tensor is opened for; tensors that stand among numbers in it are converted here."""
    return Opening(target, request, _convert_inner)


def _convert_inner(x: Any, target: Backend, request: Request) -> Any:
    return convert(x, conversion_of(target, request))


_DESCRIBING = opening_for()


def described(x: Any) -> TensorInfo:
    """The description of a tensor. The memory of tensors is not read.

    Raises:
        UnsupportedTypeError: It is not a tensor.
    """
    return registry.backend_of(x).preview(x, _DESCRIBING)[1]


def complete_conversion(prepared: Prepared, out: Any = None) -> Any:
    """Run a prepared conversion. `out` must be the tensor that it was prepared with.

    Raises:
        ConversionError: The values of the tensor do not allow the conversion (for example, one does
            not fit the dtype).
    """
    result = execute(prepared.recipe.program, prepared.handle, out)
    if _verifying:
        verify_result(prepared, result)
    return result


class Prepared(NamedTuple):
    """A conversion that has been planned, but not run yet.

    Args:
        source: The backend of the source.
        target: The backend of the target.
        info: The description of the source.
        handle: The object that the first step takes.
        request: The request, with the description of `out`.
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
        """The plan of this tensor, with its own sizes."""
        request = self.recipe.plan.request._replace(out=self.request.out)
        return self._with_members(
            plan_of(self.info, request, self.source, self.target, self.target.capabilities)
        )

    @property
    def plan_run(self) -> Plan:
        """The recipe's plan, whose sizes may be those of another tensor of the same signature."""
        return self._with_members(self.recipe.plan)

    def _with_members(self, plan: Plan) -> Plan:
        """The plan; if several tensors are stacked, with the steps that convert each of them."""
        if not _are_several(self.info, self.handle):
            return plan
        from .stacks import composed_plan

        return composed_plan(plan, self.handle, self.source)

    def overlaps(self, result: TensorInfo, address: int) -> bool:
        """Whether the result, which begins at `address`, shares memory with the source."""
        if _are_several(self.info, self.handle):
            from .stacks import overlaps_members

            return overlaps_members(self.handle, result, address)
        start = self.source.pointer(self.handle)
        is_read = self.source.capabilities.objects.reads(self.info.kind)
        return (
            not is_read
            and start is not None
            and memory.share_a_byte(self.plan.source, start, result, address)
        )


def prepare(
    x: Any,
    conversion: Conversion,
    out: Any = None,
    decide: Callable[[TensorInfo], Conversion] | None = None,
    known: dict[int, Prepared] | None = None,
) -> Prepared:
    """Describe a tensor and find its recipe, but run nothing.

    Args:
        x: The tensor.
        conversion: The target and the request.
        out: The tensor that the result is written into, or ``None``.
        decide: Chooses the conversion by the description of `x`, instead of `conversion`.
        known: A cache of prepared conversions by the `id` of a description. Not together with `out`
            or `decide`.

    Raises:
        ConversionError: `x` cannot be converted; the message says why.
    """
    source, target, request = (
        registry.backend_of(x),
        conversion.target,
        _with_out(conversion.request, out),
    )
    own = _own_labels(x, source, conversion, decide)
    if decide is not None or request.like is not None:
        opened, conversion = _opened_as_decided(source.open, x, source, conversion, decide)
        return _prepared_tensor(opened, None, conversion.labelled(own=own), request.out, None)
    conversion = conversion.labelled(own=own)
    if conversion.described:
        opened = source.open(x, opening_for(target, request))
        return _prepared_tensor(opened, None, conversion, request.out, known)
    read = conversion.readers.get(type(x)) or conversion.reader(type(x)) or source.quick.signature
    signature = read(x)
    opened = source.open(x, opening_for(target, request))
    if signature != read(x):
        signature = None  # another thread has changed `x` meanwhile
    if signature is not None and out is not None:
        written = target.quick.signature(out)
        if written is None:
            signature = None
        else:
            signature = signature, written
    return _prepared_tensor(opened, signature, conversion, request.out, known)


def prepare_unread(
    x: Any,
    conversion: Conversion,
    out: Any = None,
    decide: Callable[[TensorInfo], Conversion] | None = None,
    known: dict[int, Prepared] | None = None,
) -> Prepared:
    """Prepare a conversion for `explain`: as `prepare`, but read no values, allocate no memory."""
    source, request = registry.backend_of(x), _with_out(conversion.request, out)
    own = _own_labels(x, source, conversion, decide)
    if decide is not None or request.like is not None:
        opened, conversion = _opened_as_decided(source.preview, x, source, conversion, decide)
        return _prepared_tensor(opened, None, conversion.labelled(own=own), request.out, None)
    opened = source.preview(x, opening_for(conversion.target, request))
    return _prepared_tensor(opened, None, conversion.labelled(own=own), request.out, known)


def _own_labels(
    x: Any,
    source: Backend,
    conversion: Conversion,
    decide: Callable[[TensorInfo], Conversion] | None,
) -> Labels | None:
    """The source's labels, if its library is the target's and the result may be another object."""
    target = conversion.target
    if target.capabilities.options.labels:
        labels = source.labels_of(x)
    else:
        labels = None
    if labels is None or labels.library != target.name:
        return None
    is_result = source is target and decide is None and conversion.returns_plain
    if is_result and source.quick.signature(x) is not None:
        return None
    return labels


def prepare_described(info: TensorInfo, conversion: Conversion, out: Any = None) -> Prepared:
    """Prepare the conversion of a tensor that is only described and need not exist.

    Raises:
        ConversionError: There is no such tensor, or it cannot be converted.
    """
    from ..planning.builder import as_of_object
    from ..planning.preconditions import refuse_place

    source = registry.backend_named(info.framework)
    kind = kind_of(info.device)
    if info.abstract is None and kind in source.capabilities.objects.abstract:
        # A kind of device without memory, such as PyTorch's meta.
        info = info._replace(abstract=kind)
    refuse_place(info, source)
    request = _with_out(conversion.request, out)
    info = as_of_object(info, request, source, conversion.target)
    registry.load_imported(conversion.target)  # it says how the user has set it up
    # The recipe is not kept, since the device need not exist on this machine.
    return Prepared(
        source, conversion.target, info, info, request, conversion.make(info, source, request)
    )


def _opened_as_decided(
    do: Callable[..., Any],
    x: Any,
    source: Backend,
    conversion: Conversion,
    decide: Callable[[TensorInfo], Conversion] | None,
) -> tuple[Opened, Conversion]:
    """Backend, description and handle of `x`, from `open` or `preview`; and the decided conversion.

    With `decide`, `x` is opened without a request, which is not known before `x` is described.
    Without it, only whether `x` takes the dtype of ``like=`` is to be decided. If `x` cannot be
    opened because its values have no numbers, or no dtype, without a named dtype (dates, or
    integers and floats), it is decided by the dtype that they would have. If the dtype matters for
    reading (decimals), it is opened again with the request.
    """
    target = conversion.target
    try:
        opened = do(x, opening_for(target, conversion.request if decide is None else None))
    except UnsupportedTypeError:
        if not (source.reads_as_asked or has_dates(x)):
            raise
        dtype = "float64"
    except LossyCastError as error:
        if error.read_as is None:
            raise
        dtype = error.read_as
    else:
        decided, dtype = _decided_conversion(conversion, decide, opened[1]), opened[1].dtype
        if not source.reads_as_asked or decided.request.dtype in (None, dtype, *KEYWORDS):
            return opened, decided
    decided = _decided_conversion(conversion, decide, TensorInfo(source.name, (), dtype))
    return do(x, opening_for(target, decided.request)), decided


def _decided_conversion(
    conversion: Conversion, decide: Callable[[TensorInfo], Conversion] | None, info: TensorInfo
) -> Conversion:
    return (conversion if decide is None else decide(info)).asked_by(info)


def _with_out(request: Request, out: Any) -> Request:
    """The request, with the description of `out`.

    Raises:
        UnsupportedTypeError: `out` is not a tensor, or not one of the target's.
    """
    if out is None:
        return request
    try:
        info = out if isinstance(out, TensorInfo) else described(out)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(
            f"out= has to be a tensor. {error.message}",
            hints.without("out") + ", which makes a new tensor",
        ) from error
    if info.framework != request.target:
        raise UnsupportedTypeError(
            f"out= is {an(info.framework)} tensor, the target is {request.target}.",
            hints.without("out") + f", which makes a new {request.target} tensor",
        )
    return request._replace(out=info)


def _prepared_tensor(
    opened: Opened,
    signature: Any,
    conversion: Conversion,
    out: TensorInfo | None,
    known: dict[int, Prepared] | None,
) -> Prepared:
    source, info, handle = opened
    several = _are_several(info, handle)
    if several:
        # What is done depends on each of them as well.
        known = None
    like = None if known is None else known.get(id(info))
    if (
        like is not None
        and like.info is info
        and like.source is source
        and like.request is conversion.request
    ):
        return Prepared(source, like.target, info, handle, like.request, like.recipe)
    if conversion.request.placement is not None:
        conversion = _laid_out(conversion, source, handle)
    if out is None:
        request = conversion.request
    else:
        request = conversion.request._replace(out=out)
    if request.depends_on_lengths or (out is not None and out.shape != info.shape):
        signature = info, out
    elif signature is None or info.abstract is not None:
        if out is None:
            signature = signature_of(info)
        else:
            signature = signature_of(info), signature_of(out)
    if several:
        signature = signature, handle.signature
    here = conversion.here(info, request)
    environment = conversion.quick.environment()
    key = signature, environment if here.present is None else (environment, here.present)
    recipe = conversion.find(key)
    if recipe is None:
        recipe = conversion.make(info, source, here)
        if several:
            from .stacks import with_members

            recipe = with_members(recipe, handle, source)
        conversion.keep(key, recipe)
    prepared = Prepared(source, conversion.target, info, handle, request, recipe)
    if known is not None and conversion.request.placement is None:
        known[id(info)] = prepared
    return prepared


def _are_several(info: TensorInfo, handle: Any) -> bool:
    """Whether the handle is the `Members` of a stack: several tensors that become one."""
    return bool(info.kind.joined_by) and handle is not None and handle is not info


def _laid_out(conversion: Conversion, source: Backend, handle: Any) -> Conversion:
    """The conversion; its request says if the source already has the layout over devices."""
    target, placement = conversion.target, conversion.request.placement
    if (
        placement is None
        or source is not target
        or handle is None
        or not target.is_laid_out(handle, placement)
    ):
        return conversion
    return conversion_of(
        target, conversion.request._replace(placement=placement._replace(lies=True))
    )


# -- verifying mode -----------------------------------------------------------------------------


def is_verifying() -> bool:
    """Whether each result is to be compared with its plan."""
    return _verifying


@contextmanager
def verifying(on: bool = True) -> Iterator[None]:
    """Compare the result of every conversion with its plan. Fast paths are closed meanwhile.

    Raises:
        PlanViolation: By a conversion whose result is not what its plan claims.
    """
    global _verifying
    before, paths = _verifying, fast_paths.open_all(not on)
    _verifying = on
    try:
        yield
    finally:
        _verifying = before
        fast_paths.open_all(paths)


def verify_result(prepared: Prepared, result: Any) -> None:
    """Compare a result, and the steps that were run, with the plan.

    Compared are framework, shape, dtype, device, gradient, writability, and whether memory is
    shared.

    Raises:
        PlanViolation: They differ; the message says in what.
    """
    plan, target = prepared.plan, prepared.target
    planned_steps, run_steps = (
        list(map(call_of, each_plan.steps)) for each_plan in (plan, prepared.plan_run)
    )
    if planned_steps != run_steps:
        raise PlanViolation(
            f"the plan has the steps {planned_steps}, what was run are {run_steps}\n\n{plan}"
        )
    if not target.capabilities.memory.exists or plan.source.abstract is not None:
        return
    seen = target.describe(result)
    for claim in ("framework", "shape", "dtype", "device", "shards", "requires_grad", "writable"):
        planned, observed = getattr(plan.result, claim), getattr(seen, claim)
        if planned != observed and not (claim == "device" and same_place(observed, planned)):
            raise PlanViolation(
                f"the plan claims {claim} {planned!r}, observed {observed!r}\n\n{plan}"
            )
    if plan.request.out is not None or seen.device != HOST:
        return
    end = target.pointer(result)
    if plan.source.device != HOST or end is None:
        return
    shares = prepared.overlaps(seen, end)
    if shares != plan.shares_memory:
        raise PlanViolation(
            f"the plan claims shares_memory {plan.shares_memory}, observed {shares}\n\n{plan}"
        )


def _execute_verified(recipe: Recipe, x: Any, conversion: Conversion, out: Any) -> Any:
    """Run a recipe that was kept, and compare the result with the plan that `x` has now.

    Raises:
        PlanViolation: They differ, or the recipe has other steps.
    """
    prepared = prepare(x, conversion, out)
    result = execute(recipe.program, x, out)
    verify_result(prepared._replace(recipe=recipe), result)
    return result


def recipe_of(info: TensorInfo, source: Backend, conversion: Conversion) -> Recipe:
    """The recipe for a tensor with this description.

    Raises:
        ConversionError: Such a tensor cannot be converted.
    """
    return _prepared_tensor((source, info, None), None, conversion, None, None).recipe
