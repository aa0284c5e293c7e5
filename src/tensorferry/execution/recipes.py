"""A `Recipe` is a plan without its numbers: the steps for every tensor of one signature, bound and ready to be run.

Whoever converts keeps a `Conversion`, which is a target and what is asked of it, and the recipes that it has needed.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import registry
from ..backends.base import unchanged
from ..core.devices import HOST
from ..core.names import EXCHANGE
from ..core.request import PINNED, make_request

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.base import Backend
    from ..core.capabilities import Capabilities
    from ..core.info import TensorInfo
    from ..core.request import Request
    from ..planning.plan import Plan
    from ..planning.step import Step

__all__ = ["Conversion", "Recipe", "conversion_as", "conversion_of", "forget", "one_by_one", "plan_of"]

MOST = 256
"""Recipes that a conversion keeps, and again as many that have not been asked for since."""


class Recipe(NamedTuple):
    """What is done to every tensor of one signature.

    Args:
        program: The steps as functions of the value, the last one of the value and of `out` if that was asked for.
        plan: The plan of the first such tensor, whose steps and claims are those of all; its sizes are its own.
        bulk: The same steps as functions of the list of many values, and of the list of many `out`.
    """

    program: tuple[Callable[..., Any], ...]
    plan: Plan
    bulk: tuple[Callable[..., Any], ...]

    @property
    def copies(self) -> bool:
        """Whether the result lies in other memory than the source."""
        return bool(self.program) and not self.plan.shares_memory


class Conversion:
    """A target, and what is asked of it.

    Args:
        target: The backend of what is to come out.
        request: What is asked for; without ``out``, which comes with each call.
    """

    __slots__ = ("_earlier", "readers", "recent", "request", "sized", "target")

    def __init__(self, target: Backend, request: Request) -> None:
        self.target = target
        self.request = request
        on_host = request.device in (None, HOST) and HOST in target.capabilities.devices.kinds
        self.sized = not on_host or request.placement is not None or PINNED in request.options
        """Whether a tensor is described first: a device is on the way, page-locked memory, or a layout over several."""
        self.readers: dict[type, Callable[[Any], Hashable | None]] = {}
        """What reads the signatures of objects, by their types: see `reader`."""
        self.recent: dict[Hashable, Recipe] = {}
        """The recipes that have been asked for lately, where to look before `find`."""
        self._earlier: dict[Hashable, Recipe] = {}

    @property
    def kept(self) -> int:
        """How many recipes are kept."""
        return len({**self.recent, **self._earlier})

    def reader(self, kind: type) -> Callable[[Any], Hashable | None] | None:
        """What reads the signatures of a type's objects; ``None``: each is described, as a device is on the way."""
        owner = None if self.sized else registry.BY_TYPE.get(kind)
        if owner is None:
            return None
        found = self.readers[kind] = owner.signature_reader(kind, self.target, self.request)
        return found

    def find(self, key: Hashable) -> Recipe | None:
        """The recipe that is kept for a signature and what else decides; ``None``: there is none."""
        found = self.recent.get(key)
        if found is None:
            found = self._earlier.get(key)
            if found is not None:
                self.keep(key, found)
        return found

    def keep(self, key: Hashable, recipe: Recipe) -> None:
        """Keep a recipe; those that have not been asked for in a long time go."""
        if len(self.recent) >= MOST:
            # Two assignments, between which another thread finds less, and nothing wrong.
            self._earlier, self.recent = self.recent, {}
        self.recent[key] = recipe

    def make(self, info: TensorInfo, source: Backend, request: Request) -> Recipe:
        """The recipe for a tensor that has been described.

        Args:
            info: The tensor.
            source: Its backend.
            request: What is asked for, with ``out``; as `here` has it, if it is to be done here.

        Raises:
            ConversionError: There is none; the message says why.
        """
        plan = plan_of(info, request, source, self.target, self.target.capabilities)
        bound = [(step, found) for step in plan.steps if (found := _bound(step, plan)) is not unchanged]
        many = tuple(_bound_for_many(step, one) for step, one in bound)
        return Recipe(tuple(one for _, one in bound), plan, many)

    def here(self, info: TensorInfo, request: Request) -> Request:
        """The request as it is on this machine: the target's devices matter only where an accelerator is involved."""
        if info.device == HOST and not self.sized:
            return request
        return request._replace(present=self.target.devices())


def _bound(step: Step, plan: Plan) -> Callable[..., Any]:
    """A step as a function of the value alone, or of the value and `out`."""
    backend, arguments = registry.backend_named(step.backend), step.arguments
    # What has been put in the place of a method is meant to be called; to look at a plan loads no framework.
    found = backend.bound(step, plan) if backend.loaded and step.verb not in vars(backend) else None
    if found is not None:
        return found
    verb: Callable[..., Any] = getattr(backend, step.verb)
    if not arguments:
        return verb
    if step.verb == "write":
        return lambda value, out: verb(value, out, *arguments)
    if len(arguments) == 1:
        (only,) = arguments
        return lambda value: verb(value, only)
    return lambda value: verb(value, *arguments)


def _bound_for_many(step: Step, one: Callable[..., Any]) -> Callable[..., Any]:
    """A step as a function of many values alone, or of those and as many `out`."""
    verb, arguments = registry.backend_named(step.backend).for_many().get(step.verb), step.arguments
    if hasattr(one, "for_many"):
        return one.for_many  # type: ignore[no-any-return]
    if verb is None:
        return one_by_one(one)
    return partial(_with_arguments, verb, arguments) if arguments else verb


def one_by_one(step: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A step that is a function of one value as one of many values, or of those and as many `out`."""
    return lambda *lists: list(map(step, *lists))


def _with_arguments(verb: Callable[..., Any], arguments: tuple[Any, ...], values: Sequence[Any]) -> Any:
    return verb(values, *arguments)


@lru_cache(maxsize=1024)
def conversion_of(target: Backend, request: Request) -> Conversion:
    """The conversion of a target and a request, the same one each time."""
    return Conversion(target, request)


@lru_cache(maxsize=1024)
def plan_of(info: TensorInfo, request: Request, source: Backend, target: Backend, _capabilities: Capabilities) -> Plan:
    """The plan of one tensor, with its own sizes: what people are shown, and what verifying mode compares with.

    Raises:
        ConversionError: There is no such plan.
    """
    from ..planning.planner import make_plan  # a third of what importing tensorferry would cost besides

    return make_plan(info, request, source, target, registry.backend_named(EXCHANGE))


@lru_cache(maxsize=1024, typed=True)
def conversion_as(
    name: str,
    /,
    *,
    copy: bool | None = None,
    dtype: object = None,
    casting: str | None = None,
    device: object = None,
    grad: str = "detach",
    **options: object,
) -> Conversion:
    """The conversion that the keywords of a call ask for, the same one each time.

    The target is named canonically, and its framework loaded; the keywords are those of `tensorferry.convert`.

    Raises:
        TypeError: A keyword's value is not one of those that it takes, or the target has no such option.
        ConversionError: The framework is not installed; there is no such dtype or device.
    """
    target = registry.ready(name)
    return conversion_of(target, make_request(target, copy, dtype, casting, device, grad, tuple(options.items())))


def forget() -> None:
    """Forget what has been worked out: a backend has been registered, or declares something else."""
    conversion_as.cache_clear()
    conversion_of.cache_clear()
    plan_of.cache_clear()


registry.on_change.append(forget)
