"""`wrap_module`: an object with parameters, as a pure function and its parameters as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..errors import UnsupportedTypeError, shown, validate_flags
from ..execution.recipes import conversion_as
from ..execution.run import convert
from .wrap import brings, canonical, inner_of, validate_dtype, wrap

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["wrap_module"]


def wrap_module(
    module: Any, /, *, outer: object = None, state: bool = False, dtype: str | None = None
) -> tuple[Any, ...]:
    """A module as a pure function and its parameters as a tree, for another framework and its optimizers.

    >>> import jax, torch, tensorferry as ferry
    >>> apply, params = ferry.wrap_module(torch.nn.Linear(2, 1))
    >>> sorted(params), apply(params, jax.numpy.ones((3, 2))).shape
    (['bias', 'weight'], (3, 1))

    ``apply(params, …)`` is a function of its arguments alone, as `wrap` makes it: jit, batches and every derivative
    hold. The parameters are copies; the module itself is never changed. A parameter that does not require grad, and
    every buffer, stays with the module as it is.

    Args:
        module: A ``torch.nn.Module``.
        outer: The framework that calls it; ``None``: the one whose functions are given their parameters, JAX.
        state: Whether the buffers are an argument and a result: ``apply, params, state = …``, and then
            ``out, state = apply(params, state, …)``. Modules that change their buffers, such as batch normalization
            while it trains, are refused without.
        dtype: ``"fit"`` lets numbers be narrowed for a framework without their dtype, as for `wrap`.

    Returns:
        ``apply`` and the parameters by their names; with `state`, the buffers by theirs too.

    Raises:
        UnsupportedTypeError: `module` is no module. When ``apply`` is called: the module changes its buffers and
            `state` was not asked for, or draws random numbers, as dropout does while it trains.
        ConversionError: A parameter cannot cross.

    .. versionadded:: 0.1
    """
    validate_flags(state=state)
    validate_dtype(dtype)
    inner = _owner(module)
    opened = inner_of(inner).module(module, state)
    if opened is None:
        raise _no_module(module)
    function, trees = opened
    name = _functional() if outer is None else canonical("outer", outer)
    back = conversion_as(name, copy=True, dtype=dtype)
    copies = [{path: convert(tensor, back) for path, tensor in tree.items()} for tree in trees]
    apply: Callable[..., Any] = wrap(function, inner=inner, outer=name, dtype=dtype)
    return (apply, *copies)


def _functional() -> str:
    """The first framework whose functions are given their parameters."""
    return next(backend.name for backend in registry.known().values() if backend.is_functional)


def _owner(module: Any) -> str:
    """The framework whose module an object is."""
    for kind in type(module).__mro__[:-1]:
        top = kind.__module__.partition(".")[0]
        for backend in registry.known().values():
            if top in backend.owns and brings(backend.name, "inner"):
                return backend.name
    raise _no_module(module)


def _no_module(module: Any) -> UnsupportedTypeError:
    return UnsupportedTypeError(f"A module of a framework's is wrapped, not {shown(module)}.", None)
