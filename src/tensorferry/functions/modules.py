"""`wrap_module`: a module as a pure function, and a tree of its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from ..backends import registry
from ..errors import UnsupportedTypeError, shown, validate_flags
from ..execution.recipes import conversion_as
from ..execution.run import convert
from .wrap import brings_functions, canonical_keyword, inner_of, validate_dtype, wrap

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["wrap_module"]


@overload
def wrap_module(
    module: Any, /, *, outer: object = ..., state: Literal[False] = ..., dtype: str | None = ...
) -> tuple[Callable[..., Any], dict[str, Any]]: ...
@overload
def wrap_module(
    module: Any, /, *, outer: object = ..., state: Literal[True], dtype: str | None = ...
) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]: ...
@overload
def wrap_module(
    module: Any, /, *, outer: object = ..., state: bool, dtype: str | None = ...
) -> tuple[Any, ...]: ...
def wrap_module(
    module: Any, /, *, outer: object = None, state: bool = False, dtype: str | None = None
) -> tuple[Any, ...]:
    """Make a module's pure function and parameter dict, for another framework and its optimizers.

    >>> import jax, torch, tensorferry as ferry
    >>> apply, params = ferry.wrap_module(torch.nn.Linear(2, 1))
    >>> sorted(params), apply(params, jax.numpy.ones((3, 2))).shape
    (['bias', 'weight'], (3, 1))

    ``apply(params, …)`` depends only on its arguments. It is a function as `wrap` makes them, with
    jit, batches and every derivative. The parameters are copies, and the module itself is never
    changed. Parameters that do not require grad, and all buffers, stay in the module.

    Args:
        module: A ``torch.nn.Module``.
        outer: The framework that calls it; ``None``: JAX.
        state: Whether the buffers are an argument and a result: ``apply, params, state = …``, and
            then ``out, state = apply(params, state, …)``. Without it, a module that changes its
            buffers is an error, such as batch normalization while it trains.
        dtype: ``"fit"``: a dtype that the other framework does not have is replaced, as for `wrap`.

    Returns:
        ``apply``, and a dict of the parameters; with `state`, also a dict of the buffers.

    Raises:
        UnsupportedTypeError: `module` is not a module. When ``apply`` is called: the module changes
            its buffers and `state` is not set, or it uses random numbers, as dropout does while it
            trains.
        ConversionError: A parameter cannot be converted.

    .. versionadded:: 0.1
    """
    validate_flags(state=state)
    validate_dtype(dtype)
    inner = _owner_of_module(module)
    opened = inner_of(inner).module(module, state)
    if opened is None:
        raise _no_module(module)
    function, trees = opened
    if outer is None:
        name = _functional_framework()
    else:
        name = canonical_keyword("outer", outer)
    back = conversion_as(name, copy=True, dtype=dtype)
    copies = [{path: convert(tensor, back) for path, tensor in tree.items()} for tree in trees]
    apply: Callable[..., Any] = wrap(function, inner=inner, outer=name, dtype=dtype)
    return (apply, *copies)


def _functional_framework() -> str:
    """The first framework whose functions take their parameters as arguments."""
    return next(backend.name for backend in registry.known().values() if backend.is_functional)


def _owner_of_module(module: Any) -> str:
    """The framework to which a module belongs."""
    for kind in type(module).__mro__[:-1]:
        top = kind.__module__.partition(".")[0]
        for backend in registry.known().values():
            if top in backend.owns and brings_functions(backend.name):
                return backend.name
    raise _no_module(module)


def _no_module(module: Any) -> UnsupportedTypeError:
    return UnsupportedTypeError(f"A module of a framework's is wrapped, not {shown(module)}.", None)
