"""Stacks: several tensors, the members, become one.

Each is converted, all are joined, then the result is converted.

These are steps of a plan too: `explain` shows them, and `run.execute` runs them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ..backends import registry, together
from ..core.declaration import VALUE, Code, Snippet
from ..core.devices import HOST, same_place
from ..core.dtypes import find
from ..core.kinds import JOINING_VERBS
from ..core.layout import compact_strides
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import ConversionError
from ..host import memory
from ..planning.step import Path
from ..sequences.diagnostics import at_member
from . import run
from .recipes import Recipe, conversion_of, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backends.base import Backend
    from ..backends.lists import Members
    from ..core.info import TensorInfo
    from ..planning.plan import Plan
    from ..planning.step import Step
    from .recipes import Conversion

__all__ = ["composed_plan", "overlaps_members", "with_members"]


def with_members(recipe: Recipe, members: Members, source: Backend) -> Recipe:
    """The recipe of a stack, in which each member is converted first.

    Args:
        recipe: The recipe of the stack as one tensor.
        members: Members with this signature.
        source: The backend of the stack.

    Raises:
        ConversionError: A member cannot be converted; the message names its position.
    """
    place = _place_of_join(recipe.plan)
    join, after = recipe.program[place], recipe.program[place + 1 :]
    steps = _steps_of(members, source)
    # A recipe keeps no tensor, and nothing as large.
    alike = members._replace(tensors=(), joined=None, places=None, value=None)
    # The only step before the join is that which leaves an autograd graph.
    own = _Join(join, steps, alike, place > 0, not source.capabilities.gradients.graph)
    return Recipe((own.run, *after), recipe.plan)


class _Join(NamedTuple):
    """The members of a stack are converted and joined: one step of its recipe.

    Args:
        join: The verb that joins them.
        steps: For each kind of member, its conversion before the join, and the recipe of that;
            ``None`` if it needs none.
        alike: The members for which the recipe was made, without the tensors.
        detaches: Whether they leave their autograd graphs first.
        by_numpy: Whether they become arrays and are joined by NumPy.
    """

    join: Callable[..., Any]
    steps: Sequence[tuple[Conversion, Recipe] | None]
    alike: Members
    detaches: bool
    by_numpy: bool

    def run(self, x: Any) -> Any:
        """Join members, or a list of tensors with the signature for which the recipe was made."""
        members = x if type(x) is type(self.alike) else self._opened(x)
        if members.joined is not None:
            return members.joined
        if self.by_numpy and (whole := _joined_at_once(members)) is not None:
            return whole.reshape(members.shape)
        if self.detaches:
            members = members.detached()
        tensors = _converted_members(members, self.steps)
        if members.places is None:
            return self.join(tensors, members.shape)
        return self.join(tensors, members.shape, members.places, members.value)

    def _opened(self, x: Any) -> Members:
        """The members of a list with the signature for which the recipe was made."""
        which = None if self.alike.which is None else [0] * len(x)
        return self.alike._replace(tensors=x, which=which, shape=together.shape_of(x))


def _joined_at_once(members: Members) -> Any:
    """Members that only become arrays, as one new array; ``None`` if they are taken one by one.

    In verifying mode, each is compared with its plan.
    """
    if members.places is not None or members.asked is not None or len(members.infos) > 1:
        return None
    return None if run.is_verifying() else members.sources[0].quick.join(members.tensors)


def composed_plan(plan: Plan, members: Members, source: Backend) -> Plan:
    """The plan of a stack, with the steps of its members."""
    plans = [
        _plan_of_members(members, index, member)
        for index, member in enumerate(_steps_of(members, source))
    ]
    first = _place_of_join(plan)
    before, join, after = plan.steps[:first], plan.steps[first], plan.steps[first + 1 :]
    own: tuple[Step, ...] = ()
    modules = plan.modules
    if plan.source.kind.name == "stack" and source.capabilities.gradients.graph:
        # The steps of one kind of member leave the other kinds unchanged, so the steps of all can
        # be listed.
        own = tuple(_of_each(step) for plan in plans if plan is not None for step in plan.steps)
    elif plan.source.kind.name == "stack" and plans[0] is not None:
        own = tuple(map(_of_each, plans[0].steps))
        modules = (*plans[0].modules, *modules)
    else:
        steps = [step for plan in plans if plan is not None for step in plan.steps]
        crossing = sum(step.bytes for step in steps if step.path is Path.BUS)
        code = members.code
        join = join._replace(
            bytes=join.bytes + sum(step.bytes for step in steps) - crossing,
            snippet=join.snippet if code is None else Snippet(lambda: code),
        )
        if crossing:
            why = "each of them from its device"
            own = (
                join._replace(
                    verb="fetch",
                    snippet=Snippet(lambda: Code(VALUE)),
                    why=why,
                    bytes=crossing,
                    path=Path.BUS,
                    copies=True,
                ),
            )
    return plan._replace(steps=(*before, *own, join, *after), modules=modules)


def overlaps_members(members: Members, result: TensorInfo, address: int) -> bool:
    """Whether the result, which begins at `address`, shares memory with a member."""
    if members.joined is not None:
        return False
    for member in members.tensors:
        source = registry.backend_of(member)
        info = run.described(member)
        if (
            info.device == HOST
            and info.abstract is None
            and not source.capabilities.objects.reads(info.kind)
        ):
            start = source.pointer(member)
            if start is not None and memory.share_a_byte(info, start, result, address):
                return True
    return False


def _place_of_join(plan: Plan) -> int:
    """The position of the step that joins the members."""
    return next(index for index, step in enumerate(plan.steps) if step.verb in JOINING_VERBS)


def _steps_of(members: Members, source: Backend) -> list[tuple[Conversion, Recipe] | None]:
    """For each kind of member, conversion before the join, and its recipe; ``None`` if not needed.

    Raises:
        ConversionError: A member cannot be converted; the message names its position.
    """
    if members.joined is not None:
        return [None]
    # A framework with an autograd graph stacks its own tensors. The members of all others become
    # arrays.
    stays = source.capabilities.gradients.graph
    steps: list[tuple[Conversion, Recipe] | None] = []
    for place, (info, owner) in enumerate(zip(members.infos, members.sources, strict=True)):
        asked, target = members.asked, EXCHANGE
        if stays:
            target = source.name
            if owner is source and (asked is None or _is_as_asked(info, asked)):
                steps.append(None)
                continue
        if asked is None:
            request = Request(target)
        else:
            request = asked._replace(target=target)
        conversion = conversion_of(registry.backend_named(target), request)
        try:
            steps.append(
                (conversion, run.recipe_of(info if stays else _as_member(info), owner, conversion))
            )
        except ConversionError as error:
            if members.which is None:
                index = 0
            else:
                index = members.which.index(place)
            raise at_member(error, members.path(index)) from error
    return steps


def _is_as_asked(info: TensorInfo, asked: Request) -> bool:
    """Whether a member needs no conversion before the join."""
    return asked.dtype == info.dtype and same_place(info.device, asked.device or info.device)


def _as_member(info: TensorInfo) -> TensorInfo:
    """A member's description when converted: it has left its graph, its strides do not matter."""
    strides = compact_strides(info.shape, find(info.dtype).itemsize)
    return info._replace(strides=strides, misalignment=0, requires_grad=False)


def _converted_members(
    members: Members, steps: Sequence[tuple[Conversion, Recipe] | None]
) -> Sequence[Any]:
    """The members, converted."""
    tensors, which, alike = members.tensors, members.which, steps[0]
    if which is not None:
        return _converted_apart(members, [steps[place] for place in which])
    if alike is None or not len(alike[1].program):
        return tensors
    conversion, recipe = alike
    if isinstance(members.places, memory.RowLengths):
        whole = members.sources[0].quick.join_alike(tensors)
        if whole is not None:
            return run.convert(whole, conversion)  # type: ignore[no-any-return]
    if run.is_verifying():
        return _converted_apart(members, [alike] * len(tensors))
    try:
        return [run.execute(recipe.program, tensor) for tensor in tensors]
    except ConversionError:
        # Again, since its message names the position.
        return _converted_apart(members, [alike] * len(tensors))


def _converted_apart(
    members: Members, steps: Sequence[tuple[Conversion, Recipe] | None]
) -> Sequence[Any]:
    """The members, converted one by one.

    Raises:
        ConversionError: A member cannot be converted; the message names its position.
    """
    done: list[Any] = []
    try:
        for tensor, step in zip(members.tensors, steps, strict=True):
            done.append(tensor if step is None else run.convert(tensor, step[0]))
    except ConversionError as error:
        raise at_member(error, members.path(len(done))) from error
    return done


def _plan_of_members(
    members: Members, place: int, step: tuple[Conversion, Recipe] | None
) -> Plan | None:
    """The plan of all members of one kind, as if they were one tensor."""
    if step is None:
        return None
    info, source, conversion = _as_member(members.infos[place]), members.sources[place], step[0]
    if members.which is None:
        size = sum(map(prod, members.shapes))
    else:
        size = info.size * members.which.count(place)
    whole = info._replace(shape=(size,), strides=(find(info.dtype).itemsize,))
    request = conversion.here(whole, conversion.request)
    return plan_of(whole, request, source, conversion.target, conversion.target.capabilities)


def _of_each(step: Step) -> Step:
    """A step of one member, written as a list comprehension over all."""
    return step._replace(snippet=step.snippet.changed(Code.for_each))
