"""What is derived from a function of tensors: gradients, tangents, batches of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["EVERY", "Jvp", "Rule", "Spec", "Vjp", "Vmap", "chosen", "derived"]

Spec = tuple[tuple[int, ...], str]
"""The shape and the canonical dtype of a tensor."""
EVERY = "of every order, in reverse and in forward mode"
"""Which derivatives a framework has that has all."""


class Vjp(NamedTuple):
    """Reverse mode: from what is kept of a call, and cotangents, to gradients.

    Args:
        wrt: Which inputs the gradients are of.
        outs: Which outputs the cotangents are of; those of the others are zero.
        kept: How many tensors are kept of the call: the inputs, and the outputs where the inner
            framework asks for them.
    """

    wrt: tuple[int, ...]
    outs: tuple[int, ...]
    kept: int


class Jvp(NamedTuple):
    """Forward mode: from what is kept of a call, and tangents, to tangents of outputs.

    Args:
        wrt: Which inputs the tangents are of; those of the others are zero.
        outs: Which outputs' tangents are asked for.
        kept: As for `Vjp`.
    """

    wrt: tuple[int, ...]
    outs: tuple[int, ...]
    kept: int


class Vmap(NamedTuple):
    """Many calls at once; what comes out is batched along its first axis.

    Args:
        dims: The axis along which each input is batched; ``None``: it is the same in all calls.
        size: How many calls.
    """

    dims: tuple[int | None, ...]
    size: int


Rule = Vjp | Jvp | Vmap


def derived(function: Callable[..., Any], rules: Sequence[Rule], how: Mapping[type, Callable[..., Any]]) -> Any:
    """What is derived from a function by each rule in turn, by what does it for that kind of rule."""
    for rule in rules:
        function = how[type(rule)](function, rule)
    return function


def chosen(function: Callable[..., Sequence[Any]], inputs: Sequence[Any], rule: Vjp | Jvp) -> Callable[..., Any]:
    """A function of those inputs alone that are differentiated, which gives those outputs alone that are.

    >>> chosen(lambda x, y: (x, x * y), [2, 3], Vjp(wrt=(1,), outs=(1,), kept=2))(10)
    (20,)
    """

    def of_some(*some: Any) -> Any:
        whole = list(inputs)
        for index, x in zip(rule.wrt, some, strict=True):
            whole[index] = x
        results = function(*whole)
        return tuple(results[index] for index in rule.outs)

    return of_some
