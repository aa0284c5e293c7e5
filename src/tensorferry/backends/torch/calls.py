"""Call a function of PyTorch, and watch what it must not do: draw random numbers, use tensors that require grad."""

from __future__ import annotations

import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import GradientError, UnsupportedTypeError
from .. import registry
from .autograd_use import AutogradUse, foreign_leaves
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..functions import Flat

__all__ = ["Watch", "called_again", "closed_over", "forward", "steers", "with_autograd"]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]
_UNLIKELY_SEED = 0x7E6A5EED5EED5EED
_CLOSED_OVER = (
    "pass them as arguments; the parameters of a module: apply, params = wrap_module(module), or "
    "module.requires_grad_(False) if they are constants"
)
_RANDOM = "without generator=, they differ at each call, also when its gradient is computed"


def steers(flat: Flat) -> bool:
    """Whether a function uses autograd itself, or may: the transformations of `torch.func` are not for it."""
    return flat.steers_autograd or flat.careful


def forward(flat: Flat, *tensors: Any) -> Sequence[Any]:
    """Call a function for its values.

    Raises:
        GradientError: It uses tensors that require grad and are not among its arguments.
        UnsupportedTypeError: It uses random numbers.
    """
    if steers(flat):
        with torch.inference_mode(False), torch.enable_grad():
            mine = [x.clone() if x.is_inference() else x for x in tensors]
            results = with_autograd(flat, mine, plain=True)
        return [y.detach() if isinstance(y, torch.Tensor) else y for y in results]
    results = flat.plain(*tensors)
    for y in results:
        if isinstance(y, torch.Tensor) and y.requires_grad:
            raise closed_over(flat)
    return results


def with_autograd(flat: Flat, tensors: Sequence[Any], *, plain: bool = False) -> Sequence[Any]:
    """Call a function that may use autograd itself.

    Args:
        flat: The function.
        tensors: Its arguments, which are only for this call.
        plain: Whether numbers of Python's stay what they are.

    Raises:
        GradientError: It uses tensors that require grad and are not among its arguments.
        UnsupportedTypeError: It uses random numbers.
    """
    before = [x for x in tensors if x.requires_grad]
    for x in before:
        # So that `backward` fills ``x.grad``, as for a leaf.
        x.retain_grad()
    with AutogradUse(keeps_graphs=bool(before)) as use:
        call = partial(_watched, flat) if flat.careful else _call
        results = call(flat.plain if plain else flat, tensors)
    if not flat.makes_leaves and not before and foreign_leaves(results, [*tensors, *use.made]):
        raise closed_over(flat)
    for x in tensors:
        # A gradient with a graph refers to the tensor that has it.
        x.grad = None
    return results


def _watched(
    flat: Flat, function: Callable[..., Sequence[Any]], tensors: Sequence[Any]
) -> Sequence[Any]:
    with Watch(flat) as watch:
        results = function(*tensors)
    watch.refuse()
    return results


def called_again(flat: Flat, tensors: Sequence[Any]) -> Sequence[Any]:
    """Call the function again, for its derivative. It must give the same results.

    Raises:
        GradientError: It uses random numbers.
    """
    call = partial(with_autograd if steers(flat) else _call, flat)
    if not flat.generators:
        return call(tensors)
    known = (reference() for reference in flat.generators)
    before = {generator: generator.get_state() for generator in known if generator is not None}
    try:
        seeded = {
            generator: generator.manual_seed(_UNLIKELY_SEED).get_state() for generator in before
        }
        results = call(tensors)
        if any(
            generator.initial_seed() == _UNLIKELY_SEED
            and not torch.equal(generator.get_state(), state)
            for generator, state in seeded.items()
        ):
            raise GradientError(
                f"{flat.source.name} draws random numbers from a generator without setting its seed, and would draw "
                "others for its derivative.",
                "generator.manual_seed(int(seed)) in the function, with the seed as an argument",
            )
    finally:
        for generator, state in before.items():
            generator.set_state(state)
    return results


def _call(function: Callable[..., Sequence[Any]], tensors: Sequence[Any]) -> Sequence[Any]:
    return function(*tensors)


def closed_over(flat: Flat) -> GradientError:
    """The error for a function that uses tensors that require grad and are not among its arguments."""
    return GradientError(
        f"{flat.source.name} uses tensors that require grad and are not among its arguments: no gradient would "
        "reach them.",
        _CLOSED_OVER,
    )


class _Reference:
    """Stands for a weak reference to a generator: it gives the generator as long as something else has it too.

    Args:
        generator: The generator.
    """

    __slots__ = ("_generator", "_identity")

    def __init__(self, generator: Any) -> None:
        self._generator: Any = generator
        self._identity = id(generator)

    def __call__(self) -> Any:
        # One of the two is the argument of `getrefcount`.
        if self._generator is not None and sys.getrefcount(self._generator) <= 2:
            self._generator = None
        return self._generator

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Reference)
            and self._generator is not None
            and self._generator is other._generator
        )

    def __hash__(self) -> int:
        return self._identity


# Generators of PyTorch 2.11 take no weak references.
_reference: Any = weakref.ref if torch.Generator.__weakrefoffset__ else _Reference


class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Finds out whether the default random generators are used."""

    def __init__(self, flat: Flat) -> None:
        super().__init__()
        self._flat = flat
        self._random_operator = ""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        arguments = (*args, *(kwargs or {}).values())
        if torch.Tag.nondeterministic_seeded in function.tags:
            generators = {each for each in arguments if isinstance(each, torch.Generator)}
            alive = {each for each in self._flat.generators if each() is not None}
            self._flat.generators = frozenset(alive.union(map(_reference, generators)))
            self._random_operator = self._random_operator or ("" if generators else str(function))
        return function(*args, **(kwargs or {}))

    def refuse(self) -> None:
        """Raise if one was used."""
        if self._random_operator:
            raise UnsupportedTypeError(
                f"{self._flat.source.name} draws random numbers ({self._random_operator}): {_RANDOM}.",
                "draw them outside and pass them as an argument; module.eval() switches dropout off",
            )
