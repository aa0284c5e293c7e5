"""Rules that derive a function from one of tensors: gradients, tangents, batches of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["EVERY", "Jvp", "Rule", "Spec", "Vjp", "Vmap", "apply_rules", "of_chosen"]

Spec = tuple[tuple[int, ...], str]
"""The shape and the canonical dtype of a tensor."""
EVERY = "of every order, in reverse and in forward mode"
"""The words for a framework that has all derivatives."""


class Vjp(NamedTuple):
    """Reverse mode: the kept tensors of a call, and cotangents, become gradients.

    Args:
        wrt: The inputs for which gradients are computed.
        outs: The outputs that have cotangents; those of the others are zero.
        kept: How many tensors of the call are kept: the inputs, and the outputs if the inner
            framework needs them.
    """

    wrt: tuple[int, ...]
    outs: tuple[int, ...]
    kept: int


class Jvp(NamedTuple):
    """Forward mode: the kept tensors of a call, and tangents, become tangents of the outputs.

    Args:
        wrt: The inputs that have tangents; those of the others are zero.
        outs: The outputs for which tangents are computed.
        kept: See `Vjp`.
    """

    wrt: tuple[int, ...]
    outs: tuple[int, ...]
    kept: int


class Vmap(NamedTuple):
    """Many calls at once. The outputs are batched along their first axis.

    Args:
        dims: For each input, the axis along which it is batched; ``None`` if it is the same in all
            calls.
        size: The number of calls.
    """

    dims: tuple[int | None, ...]
    size: int


Rule = Vjp | Jvp | Vmap


def apply_rules(
    function: Callable[..., Any], rules: Sequence[Rule], how: Mapping[type, Callable[..., Any]]
) -> Any:
    """Apply rules to a function, one after the other.

    `how` has the framework's function for each type of rule.
    """
    for rule in rules:
        function = how[type(rule)](function, rule)
    return function


def of_chosen(
    function: Callable[..., Sequence[Any]], inputs: Sequence[Any], rule: Vjp | Jvp
) -> Callable[..., Any]:
    """A function that takes only inputs in `rule.wrt`, and gives only outputs in `rule.outs`.

    >>> of_chosen(lambda x, y: (x, x * y), [2, 3], Vjp(wrt=(1,), outs=(1,), kept=2))(10)
    (20,)
    """

    def of_some(*some: Any) -> Any:
        whole = list(inputs)
        for index, x in zip(rule.wrt, some, strict=True):
            whole[index] = x
        results = function(*whole)
        return tuple(results[index] for index in rule.outs)

    return of_some
