"""Stacks: tensors that become one. Each member is converted, then they are joined, then the steps of the target.

Like all else that is done to a tensor these are steps of a plan, which `explain` shows and `run.execute` walks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..backends.base import EXCHANGE
from ..core.devices import HOST
from ..core.dtypes import find
from ..core.info import compact_strides
from ..core.request import Request
from ..errors import ConversionError
from ..host import memory
from ..planning.rules import JOINS
from ..sequences.members import at_member
from . import run
from .recipes import Recipe, conversion_of, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.info import TensorInfo
    from ..planning.plan import Plan, Step
    from ..sequences.members import Members
    from .recipes import Conversion

__all__ = ["PreparedStack", "with_members"]


class PreparedStack(run.Prepared):
    """The conversion of tensors that become one, planned and not run yet; its handle is the `Members`."""

    __slots__ = ()

    @property
    def plan(self) -> Plan:
        """Its own plan: what is done to each member, and to all of them together."""
        return _composed(super().plan, self.handle, _stays(self))

    @property
    def plan_run(self) -> Plan:
        """The plan of the steps that are run."""
        return _composed(self.recipe.plan, self.handle, _stays(self))

    def overlaps(self, result: TensorInfo, address: int) -> bool:
        """Whether a result lies over the memory of a member."""
        for member in self.handle.tensors:
            source = registry.backend_of(member)
            info = source.preview(member)[1]
            if info.device == HOST and info.abstract is None and info.kind not in source.capabilities.objects.read_kinds:
                start = source.pointer(member)
                if start is not None and memory.overlap(info, start, result, address):
                    return True
        return False


def with_members(each: run.Prepared) -> PreparedStack:
    """The conversion of a stack, with what is done to its members first.

    Raises:
        ConversionError: There is no conversion of a member; the message says where it is.
    """
    members: Members = each.handle
    plan, program = each.recipe.plan, each.recipe.program
    place = next(index for index, step in enumerate(plan.steps) if step.verb in JOINS.values())
    do = partial(_join, program[place], _steps_of(members, _stays(each)))
    recipe = Recipe((*program[:place], do, *program[place + 1 :]), plan)
    return PreparedStack(*each._replace(recipe=recipe))


def _stays(each: run.Prepared) -> bool:
    """Whether the members' own framework stacks them, in their graph; else they become arrays."""
    return each.source.capabilities.gradients.graph


def _steps_of(members: Members, stays: bool) -> list[tuple[Conversion, Recipe] | None]:
    """What is done to each kind of member before they are joined; ``None``: nothing.

    Raises:
        ConversionError: There is no conversion of one; the message says where it is.
    """
    found: list[tuple[Conversion, Recipe] | None] = []
    for place, (info, source) in enumerate(zip(members.infos, members.sources, strict=True)):
        asked, target = members.asked, EXCHANGE
        if not stays:
            info = _as_member(info)
        if stays:
            if asked is None or asked.dtype == info.dtype:
                found.append(None)
                continue
            target = info.framework
        request = Request(target) if asked is None else asked._replace(target=target)
        conversion = conversion_of(registry.backend_named(target), request)
        try:
            found.append((conversion, run.recipe_of(info, source, conversion)))
        except ConversionError as error:
            index = 0 if members.which is None else members.which.index(place)
            raise at_member(error, members.path(index)) from error
    return found


def _as_member(info: TensorInfo) -> TensorInfo:
    """A member as it is when it is converted: all have left their graphs, and nothing depends on how one lies."""
    strides = compact_strides(info.shape, find(info.dtype).itemsize)
    return info._replace(strides=strides, misalignment=0, requires_grad=False)


def _join(join: Callable[..., Any], steps: Sequence[tuple[Conversion, Recipe] | None], members: Members) -> Any:
    """The step that makes one tensor of many, each of which is converted first."""
    tensors = _converted(members, steps)
    if members.places is None:
        return join(tensors, members.shape)
    return join(tensors, members.shape, members.places, members.value)


def _converted(members: Members, steps: Sequence[tuple[Conversion, Recipe] | None]) -> Sequence[Any]:
    """The members, each after its own steps."""
    tensors, which, alike = members.tensors, members.which, steps[0]
    if which is None and (alike is None or not alike[1].program):
        return tensors
    if which is None and alike is not None and members.places is not None:
        whole = members.joined if members.joined is not None else members.sources[0].join_alike(tensors)
        if whole is not None:
            array = run.convert(whole, alike[0])
            ends = accumulate(members.lengths)
            return [array[end - length : end] for end, length in zip(ends, members.lengths, strict=True)]
    done: list[Any] = []
    try:
        for index, tensor in enumerate(tensors):
            step = alike if which is None else steps[which[index]]
            if step is None:
                done.append(tensor)
            elif which is None and not run.is_verifying():
                done.append(run.execute(step[1].program, tensor))
            else:
                done.append(run.convert(tensor, step[0]))
    except ConversionError as error:
        raise at_member(error, members.path(len(done))) from error
    return done


def _composed(plan: Plan, members: Members, stays: bool) -> Plan:
    """The plan of a stack with the steps of its members."""
    plans = [_plan_of_members(members, place, each) for place, each in enumerate(_steps_of(members, stays))]
    first = next(index for index, step in enumerate(plan.steps) if step.verb in JOINS.values())
    before, join, after = plan.steps[:first], plan.steps[first], plan.steps[first + 1 :]
    own: tuple[Step, ...] = ()
    imports = plan.imports
    if plan.source.kind == "stack" and plans[0] is not None:
        own = tuple(map(_of_each, plans[0].steps))
        imports = tuple(dict.fromkeys((*plans[0].imports, *imports)))
    else:
        nbytes = sum(each.bytes_copied for each in plans if each is not None)
        join = join._replace(bytes=join.bytes + nbytes)
    return replace(plan, steps=(*before, *own, join, *after), imports=imports)


def _plan_of_members(members: Members, place: int, step: tuple[Conversion, Recipe] | None) -> Plan | None:
    """The plan of all members of one kind, as if they lay one after the other."""
    if step is None:
        return None
    info, source, conversion = _as_member(members.infos[place]), members.sources[place], step[0]
    if members.which is None:
        size = sum(map(prod, members.shapes)) if members.joined is None else info.size
    else:
        size = info.size * members.which.count(place)
    whole = info._replace(shape=(size,), strides=(find(info.dtype).itemsize,))
    request = conversion.here(whole, conversion.request)
    return plan_of(whole, request, source, conversion.target, conversion.target.capabilities)


def _of_each(step: Step) -> Step:
    """A step of one member as that of each."""
    remark, line, code = step.template.rpartition("\n")
    return step._replace(template=f"{remark}{line}[{code.replace('{x}', 'row')} for row in {{x}}]")
