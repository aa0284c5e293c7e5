"""`Recipe`: the steps for every tensor of one signature, as functions.

`Conversion`: keeps the recipes of a target.
"""

from __future__ import annotations

import os
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..backends.quick import unchanged
from ..core.devices import HOST
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..core.request import make_request
from ..core.signature import COMPACT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.base import Backend
    from ..backends.quick import Quick
    from ..core.capabilities import Capabilities
    from ..core.info import TensorInfo
    from ..core.labels import Labels
    from ..core.request import Request
    from ..planning.plan import Plan
    from ..planning.step import Step

    Together = Callable[..., Hashable | None]
__all__ = [
    "Conversion",
    "Recipe",
    "call_of",
    "conversion_as",
    "conversion_of",
    "forget_recipes",
    "one_by_one",
    "plan_of",
]

call_of: Callable[[Step], tuple[str, str, tuple[Any, ...]]] = attrgetter(
    "verb", "backend", "arguments"
)
"""What a step calls: the verb, the backend, and the arguments besides the value."""

MOST = 256
"""How many recently used recipes a conversion keeps. It keeps as many older ones too."""


class _Fields(NamedTuple):
    program: tuple[Callable[..., Any], ...]
    plan: Plan
    steps: Sequence[Step] = ()


class Recipe(_Fields):
    """The steps for every tensor of one signature.

    Args:
        program: The steps, as functions of one value. With `out`, the last step takes the value and
            `out`.
        plan: The plan of the first tensor with this signature. The steps are the same for all; the
            sizes are not.
        steps: The plan's steps that these functions do. Without them, many values are converted one
            by one.
    """

    @cached_property
    def bulk(self) -> tuple[Callable[..., Any], ...]:
        """The same steps, as functions of a list of values.

        With `out`, the last step takes two lists.
        """
        return tuple(
            map(_bound_for_many, self.steps, self.program)
            if self.steps
            else map(one_by_one, self.program)
        )

    @property
    def copies(self) -> bool:
        """Whether the result has memory of its own."""
        return bool(self.program) and not self.plan.shares_memory

    @cached_property
    def transfers(self) -> tuple[int, ...]:
        """The numbers of the steps that are transfers over the bus."""
        return tuple([number for number, step in enumerate(self.steps) if step.path == "bus"])


class Conversion:
    """A target and a request, with the recipes that have been made for them.

    Args:
        target: The backend of the target.
        request: The request, without `out`, which each call gives anew.
    """

    __slots__ = (
        "_earlier",
        "described",
        "environment",
        "is_for_host",
        "quick",
        "readers",
        "recent",
        "request",
        "takes_out",
        "target",
        "together",
    )

    def __init__(self, target: Backend, request: Request) -> None:
        self.target = target
        self.request = request
        self.is_for_host = request.is_for_host(target)
        """Whether the result of a tensor in host memory is in host memory."""
        self.described = request.needs_description
        """Whether each tensor must be described first: a signature has not all the plan needs."""
        devices = target.capabilities.devices
        # Whether the devices of the target may come and go.
        is_unsteady = not target.keeps_devices and (devices.others or devices.kinds != (HOST,))
        self.quick = target.quick
        self.takes_out = target.capabilities.memory.out
        """Whether results can be written into memory of the target."""
        if is_unsteady:
            self.environment = _with_devices(target)
        else:
            self.environment = target.quick.environment
        """The target's settings, and its devices if they may change: if equal, recipes hold."""
        self.readers: dict[type, Callable[[Any], Hashable | None]] = {}
        """The functions that read signatures, by the type of the tensor: see `reader`."""
        self.together: dict[type, Together | None] = {}
        """Those that read the signatures of many at once, if there are any: see `Quick`."""
        self.recent: dict[Hashable, Recipe] = {}
        """The recently used recipes. It is faster to look here before `find` is called."""
        self._earlier: dict[Hashable, Recipe] = {}

    @property
    def kept(self) -> int:
        """The number of recipes that are kept."""
        return len({**self.recent, **self._earlier})

    @property
    def returns_plain(self) -> bool:
        """Whether a plain column of the target's own is the result itself."""
        return (
            self.request.asks_nothing_else
            and self.request.like is None
            and self.request.labels is None
        )

    def reader(self, kind: type) -> Callable[[Any], Hashable | None] | None:
        """The function that reads a type's signatures; ``None`` if each must be described."""
        if self.described:
            owner = None
        else:
            owner = registry.BY_TYPE.get(kind)
        if owner is None:
            return None
        if owner is self.target and owner.capabilities.options.labels and not self.returns_plain:
            return None  # its own labels, which a signature has not, belong to the result
        reader = owner.quick.signature_reader(kind, self.target, self.request)
        together: Together | None = owner.quick.signatures
        if not self.is_for_host:
            memory = owner.capabilities.memory
            if memory.exists and memory.strides != "compact":
                reader, together = _of_compact(reader), None
        self.together[kind] = together
        self.readers[kind] = reader
        return reader

    def find(self, key: Hashable) -> Recipe | None:
        """The recipe for a signature and the target's settings, or ``None`` if none was kept."""
        recipe = self.recent.get(key)
        if recipe is None:
            recipe = self._earlier.get(key)
            if recipe is not None:
                self.keep(key, recipe)
        return recipe

    def keep(self, key: Hashable, recipe: Recipe) -> None:
        """Keep a recipe. Recipes that have not been used for long are dropped."""
        if len(self.recent) >= MOST:
            # Between the two assignments another thread may miss a recipe, which is then made
            # again. That is harmless.
            self._earlier, self.recent = self.recent, {}
        self.recent[key] = recipe

    def asked_by(self, info: TensorInfo) -> Conversion:
        """The conversion of a tensor so described, ``like=`` decided: see `Request.asked_by`."""
        request = self.request.asked_by(info)
        if request is self.request:
            return self
        return conversion_of(self.target, request)

    def labelled(self, **labels: Labels | None) -> Conversion:
        """The conversion with labels for its result, by where they come from: see `Wanted`."""
        named = {origin: label for origin, label in labels.items() if label is not None}
        if not named:
            return self
        from ..core.labels import Wanted  # here, because most calls do not need it

        wanted = (self.request.labels or Wanted())._replace(**named)
        return conversion_of(self.target, self.request._replace(labels=wanted))

    def make(self, info: TensorInfo, source: Backend, request: Request) -> Recipe:
        """Plan a conversion, and bind its steps.

        Args:
            info: The description of the tensor.
            source: Its backend.
            request: The request, with the description of `out`. If it is to be run on this machine,
                see `here`.

        Raises:
            ConversionError: The tensor cannot be converted; the message says why.
        """
        plan = plan_of(info, request, source, self.target, self.target.capabilities)
        bound = [
            (step, run) for step in plan.steps if (run := _bound_step(step, plan)) is not unchanged
        ]
        return Recipe(tuple([run for _, run in bound]), plan, [step for step, _ in bound])

    def here(self, info: TensorInfo, request: Request) -> Request:
        """The request, with the devices of this machine if the plan depends on them."""
        if info.device == HOST and self.is_for_host and not self.described:
            return request
        return request._replace(present=self.target.devices())


def _with_devices(target: Backend) -> Callable[[], Hashable]:
    """A function that gives a target's settings, and its devices."""
    environment = target.quick.environment
    return lambda: (environment(), target.devices())


def _of_compact(read: Callable[[Any], Any]) -> Callable[[Any], Hashable | None]:
    """A reader that skips tensors with gaps: their transfers depend on more than signatures."""

    def of_compact(x: Any) -> Hashable | None:
        signature = read(x)
        return signature if signature is not None and COMPACT in signature else None

    return of_compact


def _bound_step(step: Step, plan: Plan) -> Callable[..., Any]:
    """A step as a function of one value, or of one value and `out`."""
    backend, arguments = registry.backend_named(step.backend), step.arguments
    if step.backend == EXCHANGE:
        # It may never be asked for, and still casts between two tensors of another framework.
        registry.load_imported(backend)
    # `explain` must not load a framework, and a verb that was replaced on the backend (by a test)
    # must be called.
    if backend.loaded and step.verb not in vars(backend):
        run = backend.quick.specialised(step, plan)
        if run is not None:
            return run
    verb: Callable[..., Any] = getattr(backend, step.verb)
    if not arguments:
        return verb
    if step.verb == "write":
        return lambda value, out: verb(value, out, *arguments)
    if len(arguments) == 1:
        (only,) = arguments
        return lambda value: verb(value, only)
    return lambda value: verb(value, *arguments)


def _bound_for_many(step: Step, run: Callable[..., Any]) -> Callable[..., Any]:
    """A step as a function of a list of values, or of a list of values and a list of `out`."""
    if hasattr(run, "for_many"):
        return run.for_many  # type: ignore[no-any-return]
    verb, arguments = (
        registry.backend_named(step.backend).quick.for_many().get(step.verb),
        step.arguments,
    )
    if verb is None:
        return one_by_one(run)
    if arguments:
        return lambda values: verb(values, *arguments)
    return verb


def one_by_one(step: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Make a function of one value (and `out`) one of a list of values (and a list of `out`)."""
    return lambda *lists: list(map(step, *lists))


def conversion_of(target: Backend, request: Request) -> Conversion:
    """The conversion of a target and a request, always the same object unless it has labels."""
    # What is kept would keep the labels, too, which can take as much memory as the result.
    if request.labels is not None:
        return Conversion(target, request)
    return _conversion_of(target, request, target.quick)


@lru_cache(maxsize=1024)
def _conversion_of(target: Backend, request: Request, _quick: Quick[Any]) -> Conversion:
    """A conversion; another one when the target is loaded, and has its own `Backend.quick`."""
    return Conversion(target, request)


def plan_of(
    info: TensorInfo, request: Request, source: Backend, target: Backend, capabilities: Capabilities
) -> Plan:
    """One tensor's plan, with its own sizes: `explain` shows it, verifying mode compares with it.

    Raises:
        ConversionError: The tensor cannot be converted.
    """
    make = _plan_of if request.labels is None else _plan_of.__wrapped__
    return make(info, request, source, target, capabilities)


@lru_cache(maxsize=1024)
def _plan_of(
    info: TensorInfo,
    request: Request,
    source: Backend,
    target: Backend,
    _capabilities: Capabilities,
) -> Plan:
    # Here, because it would make `import tensorferry` a third slower.
    from ..planning.planner import make_plan

    return make_plan(info, request, source, target, registry.backend_named(EXCHANGE))


@lru_cache(maxsize=1024, typed=True)
def conversion_as(
    name: str,
    like: str | None = None,
    /,
    *,
    copy: bool | None = None,
    dtype: object = None,
    casting: str | None = None,
    device: object = None,
    grad: str = "detach",
    **options: object,
) -> Conversion:
    """The conversion for the keywords of a call, the same object each time.

    Args:
        name: The canonical name of the target, whose framework is imported.
        like: The dtype of the tensor in ``like=``.
        copy: This and the other keywords are those of `tensorferry.convert`.
        dtype: See there.
        casting: See there.
        device: See there.
        grad: See there.
        options: Keywords of one framework.

    Raises:
        TypeError, ValueError: A keyword has a value that it does not take, or the target has no
            such option.
        ConversionError: The framework is not installed; there is no such dtype or device.
    """
    target = registry.ready(name)
    request = make_request(target, copy, dtype, casting, device, grad, tuple(options.items()), like)
    return conversion_of(target, request)


on_forget: list[Callable[[], object]] = []
"""Functions to call when recipes are forgotten, because something else has kept some."""


def forget_recipes() -> None:
    """Forget all recipes and plans: a backend was registered or its declaration has changed."""
    conversion_as.cache_clear()
    _conversion_of.cache_clear()
    _plan_of.cache_clear()
    for forget_too in on_forget:
        forget_too()


registry.on_change.append(forget_recipes)
if hasattr(os, "register_at_fork"):
    # A recipe is for the devices that were there when it was made, and a forked process has none.
    os.register_at_fork(after_in_child=forget_recipes)
