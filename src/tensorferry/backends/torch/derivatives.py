"""Derivatives and batches of functions of PyTorch: by `torch.func`, or by autograd alone.

The transformations of `torch.func` refuse a function that takes derivatives by `torch.autograd`.
Autograd takes it: a batch is then one call after the other, and forward mode is the gradient of a
gradient.

A result without a graph has zeros as its gradient. That is right if it does not depend on the
arguments. If it does, the graph was lost on the way: PyTorch itself raises an error then, and so
does `derived`.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.derivations import Jvp, Vjp, Vmap, chosen
from ...errors import GradientError
from .. import registry
from .autograd_use import AutogradUse, Flow, leaves_of
from .calls import called_again, steers
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.derivations import Rule
    from ..functions import Flat

    Derived = Callable[..., Sequence[Any]]

__all__ = ["derived"]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]
_here = threading.local()


def derived(flat: Flat, rules: tuple[Rule, ...]) -> Derived:
    """A function of tensors: `flat`, with the rules applied in order."""
    first = next((index for index, rule in enumerate(rules) if not isinstance(rule, Vmap)), None)
    ways = _by_transformations(flat, rules, first), _by_autograd(flat, rules, first)
    forward_mode = any(isinstance(rule, Jvp) for rule in rules)
    transforms = not all(isinstance(rule, Vjp) for rule in rules)

    def call(*tensors: Any) -> Sequence[Any]:
        # Forward mode of PyTorch does not notice that recording is off.
        alone = steers(flat) or (flat.switches_autograd_off and forward_mode)
        before, _here.lost = getattr(_here, "lost", None), None
        try:
            try:
                results = ways[alone](*tensors)
            except RuntimeError:
                if alone or not transforms:
                    raise
                # The transformations also refuse operations and functions without rules for them.
                alone, _here.lost = True, None
                results = ways[alone](*tensors)
                flat.steers_autograd = True
            if _here.lost is not None:
                _refuse_lost(flat, rules, _here.lost, tensors)
        finally:
            _here.lost = before
        return [y.detach() for y in results] if alone else results

    return call


# -- by the transformations of torch.func ----------------------------------------------------------


def _by_transformations(flat: Flat, rules: tuple[Rule, ...], first: int | None) -> Derived:
    """Gradients use autograd, unless a later transformation of `torch.func` needs its own."""
    found: Derived = lambda *tensors: called_again(flat, tensors)  # noqa: E731 - it is replaced in the loop
    last = max((index for index, rule in enumerate(rules) if not isinstance(rule, Vjp)), default=-1)
    for index, rule in enumerate(rules):
        if isinstance(rule, Vmap):
            found = _vmap(found, rule)
        elif isinstance(rule, Jvp):
            found = _jvp(found, rule, index == first)
        elif index > last:
            found = _vjp_by_autograd(found, rule, index == first, lambda: flat.changes_inputs)
        else:
            found = _vjp(found, rule, index == first)
    return found


def _vjp(function: Derived, rule: Vjp, is_first: bool) -> Derived:
    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = tensors[: rule.kept], tensors[rule.kept :]
        watched = _noting(chosen(function, inputs, rule), rule, _has_graph) if is_first else None
        with torch.inference_mode(False), torch.enable_grad():
            differentiated = watched or chosen(function, inputs, rule)
            pulled: Any = torch.func.vjp(differentiated, *(inputs[index] for index in rule.wrt))
            found: Sequence[Any] = pulled[1](tuple(cotangents))
        return found

    return gradients


def _jvp(function: Derived, rule: Jvp, is_first: bool) -> Derived:
    def tangents(*tensors: Any) -> Sequence[Any]:
        inputs, input_tangents = tensors[: rule.kept], tensors[rule.kept :]
        primals = tuple(inputs[index] for index in rule.wrt)
        watched = _noting(chosen(function, inputs, rule), rule, _has_tangent) if is_first else None
        differentiated = watched or chosen(function, inputs, rule)
        found: Any = torch.func.jvp(differentiated, primals, tuple(input_tangents))
        return found[1]  # type: ignore[no-any-return]

    return tangents


def _vmap(function: Derived, rule: Vmap) -> Derived:
    def batch(*tensors: Any) -> Sequence[Any]:
        found: Any = torch.vmap(lambda *each: tuple(function(*each)), in_dims=tuple(rule.dims))(
            *tensors
        )
        return found  # type: ignore[no-any-return]

    return batch


def _noting(
    function: Callable[..., Any], rule: Vjp | Jvp, is_linked: Callable[[Any], bool]
) -> Callable[..., Any]:
    """The function, which notes the results that have no derivative."""

    def noting(*some: Any) -> Any:
        results = function(*some)
        _note_lost([out for out, y in zip(rule.outs, results, strict=True) if not is_linked(y)])
        return results

    return noting


def _has_graph(y: Any) -> bool:
    level = torch._C._functorch.maybe_current_level()
    return torch._C._functorch._unwrap_for_grad(y, level).requires_grad  # type: ignore[no-any-return]


def _has_tangent(y: Any) -> bool:
    return torch.autograd.forward_ad.unpack_dual(y).tangent is not None


# -- by autograd alone -----------------------------------------------------------------------------


def _by_autograd(flat: Flat, rules: tuple[Rule, ...], first: int | None) -> Derived:
    found: Derived = partial(_apart, flat)
    for index, rule in enumerate(rules):
        if isinstance(rule, Vmap):
            found = _one_by_one(found, rule)
        elif isinstance(rule, Jvp):
            found = _jvp_by_autograd(found, rule, index == first)
        else:
            found = _vjp_by_autograd(found, rule, index == first, lambda: False)
    return partial(_recorded, found)


def _recorded(function: Derived, *tensors: Any) -> Sequence[Any]:
    with torch.inference_mode(False), torch.enable_grad():
        return function(*tensors)


def _apart(flat: Flat, *tensors: Any) -> Sequence[Any]:
    """Call a function with copies, because it may write into them, make them require grad, or fill their ``grad``."""
    return called_again(flat, [x.clone() for x in tensors])


def _one_by_one(function: Derived, rule: Vmap) -> Derived:
    def batch(*tensors: Any) -> Sequence[Any]:
        pairs = list(zip(tensors, rule.dims, strict=True))
        each = [
            function(*(x if axis is None else x.select(axis, i) for x, axis in pairs))
            for i in range(rule.size)
        ]
        return [torch.stack(column) for column in zip(*each, strict=True)]

    return batch


class _Started(NamedTuple):
    """A call whose derivative is to be computed.

    Args:
        wrt: The inputs for which it is computed.
        results: The results of the call.
        around: Whether its derivative is differentiated again.
    """

    wrt: list[Any]
    results: Sequence[Any]
    around: bool


def _start(
    function: Derived, tensors: Sequence[Any], rule: Vjp | Jvp, copies: bool = False
) -> _Started:
    inputs = list(tensors[: rule.kept])
    around = any(each.requires_grad for each in tensors)
    for index in rule.wrt:
        x = inputs[index]
        if x.is_inference():
            x = x.clone()
        inputs[index] = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
    wrt = [inputs[index] for index in rule.wrt]
    if copies:
        inputs = [x.clone() if x.requires_grad else x for x in inputs]
    return _Started(wrt, function(*inputs), around)


def _vjp_by_autograd(
    function: Derived, rule: Vjp, is_first: bool, copies: Callable[[], bool]
) -> Derived:
    def gradients(*tensors: Any) -> Sequence[Any]:
        cotangents = tensors[rule.kept :]
        with torch.inference_mode(False), torch.enable_grad():
            wrt, results, around = _start(function, tensors, rule, copies())
            lost = [out for out in rule.outs if not results[out].requires_grad]
            if is_first and lost:
                _note_lost(lost)
            pairs = [
                (results[o], ct)
                for o, ct in zip(rule.outs, cotangents, strict=True)
                if o not in lost
            ]
            if not pairs:
                return [torch.zeros_like(x, requires_grad=False) for x in wrt]
            found: Sequence[Any] = torch.autograd.grad(
                [y for y, _ in pairs],
                wrt,
                [ct for _, ct in pairs],
                create_graph=around,
                allow_unused=True,
            )
            if is_first and any(x is None for x in found):
                _note_detached(rule, found, [y for y, _ in pairs], wrt)
            return [
                torch.zeros_like(x) if y is None else y for x, y in zip(wrt, found, strict=True)
            ]

    return gradients


def _jvp_by_autograd(function: Derived, rule: Jvp, is_first: bool) -> Derived:
    """The gradient is linear in the cotangents, so its own gradient, of a tangent, is a tangent."""

    def tangents(*tensors: Any) -> Sequence[Any]:
        given = tensors[rule.kept :]
        wrt, results, around = _start(function, tensors, rule)
        lost = [out for out in rule.outs if not results[out].requires_grad]
        if is_first and lost:
            _note_lost(lost)
        found = {out: torch.zeros_like(results[out], requires_grad=False) for out in rule.outs}
        linked = [out for out in rule.outs if out not in lost]
        if not linked:
            return list(found.values())
        cotangents = [torch.zeros_like(results[out]).detach().requires_grad_() for out in linked]
        pulled = torch.autograd.grad(
            [results[out] for out in linked], wrt, cotangents, create_graph=True, allow_unused=True
        )
        if is_first and any(x is None for x in pulled):
            _note_detached(rule, pulled, [results[out] for out in linked], wrt)
        pairs = [
            (x, t) for x, t in zip(pulled, given, strict=True) if x is not None and x.requires_grad
        ]
        if pairs:
            pushed = torch.autograd.grad(
                [x for x, _ in pairs],
                cotangents,
                [t for _, t in pairs],
                create_graph=around,
                allow_unused=True,
                materialize_grads=True,
            )
            found.update(zip(linked, pushed, strict=True))
        return list(found.values())

    return tangents


# -- derivatives that are zeros, though the results depend on the arguments ------------------------


class _Lost:
    """What has no derivative in a call.

    Args:
        outs: The results without a graph.
        wrt: The inputs that no graph reaches, though it ends in other tensors than the inputs.
    """

    def __init__(self) -> None:
        self.outs: set[int] = set()
        self.wrt: set[int] = set()


def _lost() -> _Lost:
    if _here.lost is None:
        _here.lost = _Lost()
    return _here.lost  # type: ignore[no-any-return]


def _note_lost(outs: Sequence[int]) -> None:
    if outs:
        _lost().outs.update(outs)


def _note_detached(
    rule: Vjp | Jvp, found: Sequence[Any], results: Sequence[Any], wrt: Sequence[Any]
) -> None:
    ours = set(map(id, wrt))
    if any(id(leaf) not in ours for leaf in leaves_of(results)):
        _lost().wrt.update(index for index, x in zip(rule.wrt, found, strict=True) if x is None)


def _refuse_lost(flat: Flat, rules: Sequence[Rule], lost: _Lost, tensors: Sequence[Any]) -> None:
    """Raise if derivatives are zeros only because a graph was lost; in forward mode, warn if some of them are.

    Raises:
        GradientError: They are. PyTorch itself raises an error where no result has a graph.
    """
    rule = next(rule for rule in rules if not isinstance(rule, Vmap))
    extra = tensors[rule.kept : rule.kept + len(rule.outs if isinstance(rule, Vjp) else rule.wrt)]
    asked = set(rule.outs)
    if isinstance(rule, Vjp):
        asked = {out for out, ct in zip(rule.outs, extra, strict=True) if not _is_zero(ct)}
        moved = set(rule.wrt)
    else:
        moved = {i for i, tangent in zip(rule.wrt, extra, strict=True) if not _is_zero(tangent)}
    outs, wrt = lost.outs & asked, lost.wrt & moved
    if not moved or not asked or not (outs or wrt):
        return
    inputs = _sample(tensors[: flat.tensors], rules)
    if inputs is None:
        return
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [
            x.clone().requires_grad_() if i in moved else x.clone() for i, x in enumerate(inputs)
        ]
        copies = [x.clone() for x in leaves]
        flow = Flow(copies)
        with flow, AutogradUse(flow) as use:
            results = called_again(flat, copies)
    origins = {
        out: flow.origins(results[out]) & moved for out in outs if not results[out].requires_grad
    }
    depends = any(origins.values()) or bool(use.takes_values)
    if depends and (outs == asked or use.drops_graph):
        raise _without_graph(flat, use)
    constant = [out for out, found in origins.items() if found or use.takes_values]
    if constant and isinstance(rule, Jvp):
        flat.warn_of_zeros(constant)
    ends = frozenset[int]().union(
        *(flow.origins(leaf) for leaf in leaves_of(results) if leaf not in _Same(leaves))
    )
    if wrt & ends:
        raise GradientError(
            f"{flat.source.name} differentiates a copy of {flat.path(min(wrt & ends))} that is detached from it, so "
            "that no gradient would reach it.",
            f"x.requires_grad_() of the argument itself, without a detach; or {flat.hint_of_zeros()}",
        )


class _Same:
    """Tensors, to look for one of them by identity."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._ids = set(map(id, tensors))

    def __contains__(self, x: object) -> bool:
        return id(x) in self._ids


def _without_graph(flat: Flat, use: AutogradUse) -> GradientError:
    if use.drops_graph:
        why, hint = (
            "takes derivatives without a graph",
            "torch.autograd.grad(y, x, create_graph=True), or torch.func.grad",
        )
    elif use.takes_values:
        why, hint = (
            f"takes values out of PyTorch ({use.takes_values})",
            "tensors of PyTorch from argument to result",
        )
    elif use.switches_off:
        why, hint = (
            "computes under torch.no_grad()",
            "torch.enable_grad(), or the function without torch.no_grad()",
        )
    else:
        why, hint = (
            "detaches its result (detach(), .data, inference_mode)",
            "the function without a detach",
        )
    return GradientError(
        f"{flat.source.name} {why}, so that the gradient of its result would be zeros, though it depends on the "
        "arguments.",
        f"{hint}; or {flat.hint_of_zeros()}",
    )


def _is_zero(x: Any) -> bool:
    return not x.to(torch.complex128 if x.is_complex() else torch.float64).any()


def _sample(inputs: Sequence[Any], rules: Sequence[Rule]) -> list[Any] | None:
    """The first of a batch of inputs; ``None`` if there is none."""
    found = list(inputs)
    for rule in reversed(rules):
        if not isinstance(rule, Vmap):
            continue
        if not rule.size:
            return None
        pairs = zip(found, rule.dims, strict=False)
        found = [x if axis is None else x.select(axis, 0) for x, axis in pairs]
    return found
