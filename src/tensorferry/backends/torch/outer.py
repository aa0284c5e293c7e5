"""Make functions of other frameworks part of PyTorch's graph, also for `torch.func` and `torch.vmap`."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from ...core.derivations import Jvp, Vjp, Vmap
from .. import registry
from ..functions import Outer
from .compiled import entrance
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.derivations import Spec
    from ..functions import Function

__all__ = ["OUTER"]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]


class TorchOuter(Outer):
    """Makes functions part of PyTorch's graph."""

    name = "torch"
    modes = ("torch.func", "torch.vmap", "forward-mode AD", "torch.compile")

    def spec(self, tensor: Any) -> Spec:
        # While compiling, lengths may be symbols. As numbers, they become conditions of the graph.
        return tuple(map(int, tensor.shape)), BACKEND.names[tensor.dtype]

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        if any(each.is_nested for each in tensors):
            found: Any = _run(function, tensors)  # which raises the error
        elif _is_transformed() or not _are_plain(tensors):
            found = _Call.apply(function, *tensors)
        elif torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            found = _PlainCall.apply(function, *tensors)
        else:
            found = _run(function, tensors)
        return found  # type: ignore[no-any-return]

    def entrance(self, wrapped: Any) -> Any:
        return entrance(wrapped)


class _Call(torch.autograd.Function):  # type: ignore[misc]
    """One call; its derivatives are such calls too.

    See https://docs.pytorch.org/docs/stable/notes/extending.func.html.
    """

    generate_vmap_rule = False

    @staticmethod
    def forward(function: Function, *tensors: Any) -> Any:
        if _are_plain(tensors):
            return tuple(_run(function, tensors))
        return tuple(_operator()(list(tensors), _number(function)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        function, *tensors = inputs
        kept = function.kept(tensors, output)
        ctx.function = function
        ctx.outputs = len(output)
        ctx.outs = tuple(
            index for index, y in enumerate(output) if y.is_floating_point() or y.is_complex()
        )
        ctx.mark_non_differentiable(*(y for index, y in enumerate(output) if index not in ctx.outs))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        wrt = tuple(index for index, needs in enumerate(needed) if needs)
        outs = tuple(index for index in ctx.outs if cotangents[index] is not None)
        if not wrt or not outs:
            return (None,) * (len(needed) + 1)
        kept = ctx.saved_tensors
        derived = ctx.function.derived(Vjp(wrt, outs, len(kept)))
        found = iter(OUTER.apply(derived, [*kept, *(cotangents[index] for index in outs)]))
        return (None, *(next(found) if needs else None for needs in needed))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        wrt = tuple(index for index, tangent in enumerate(tangents) if tangent is not None)
        kept = ctx.saved_tensors
        derived = ctx.function.derived(Jvp(wrt, ctx.outs, len(kept)))
        found = iter(_Call.apply(derived, *kept, *(tangents[index] for index in wrt)))
        return tuple(next(found) if index in ctx.outs else None for index in range(ctx.outputs))

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: Function, *tensors: Any) -> Any:
        derived = function.derived(Vmap(tuple(in_dims[1:]), info.batch_size))
        found = _Call.apply(derived, *tensors)
        return found, (0,) * len(found)


class _PlainCall(torch.autograd.Function):  # type: ignore[misc]
    """`_Call` without transformations, which is faster: PyTorch does not bind the arguments for `setup_context`."""

    backward = staticmethod(_Call.backward)

    @staticmethod
    def forward(ctx: Any, function: Function, *tensors: Any) -> Any:
        outputs = tuple(_run(function, tensors))
        _Call.setup_context(ctx, (function, *tensors), outputs)
        return outputs


def _run(function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
    if any(map(torch._C._functorch.is_legacy_batchedtensor, tensors)):
        return _run_batched(function, tensors)
    if any(map(torch.Tensor._is_zerotensor, tensors)):  # zeros of autograd, which have no memory
        tensors = [torch.zeros_like(each) if each._is_zerotensor() else each for each in tensors]
    results = function.run(tensors, OUTER)
    device = tensors[0].device if tensors else None
    if device is not None and device.type != "cpu":
        return [each.to(device) for each in results]
    return results


def _run_batched(function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
    """`_run` within `torch.autograd.grad(is_grads_batched=True)`, which uses an older kind of batches."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    batched = list(map(torch._C._functorch.is_legacy_batchedtensor, tensors))
    whole = [
        torch._remove_batch_dim(x, level, 1, 0) if one else x
        for x, one in zip(tensors, batched, strict=True)
    ]
    size = whole[batched.index(True)].shape[0]
    derived = function.derived(Vmap(tuple(0 if one else None for one in batched), size))
    return [torch._add_batch_dim(y, 0, level) for y in OUTER.apply(derived, whole)]


for _each in (
    _Call.forward,
    _PlainCall.forward,
    _Call.setup_context,
    _Call.backward,
    _Call.jvp,
    _Call.vmap,
):
    # Autograd calls them, maybe while torch.compile is tracing.
    BACKEND.shield(_each)


# -- in a graph that is traced: one operator for all -----------------------------------------------


def _is_transformed() -> bool:
    """Whether a transformation of `torch.func`, `torch.vmap` or forward-mode AD is running."""
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _are_plain(tensors: Sequence[Any]) -> bool:
    """Whether all tensors have values, and no operation on them is recorded."""
    return not torch._C._len_torch_dispatch_stack() and all(
        type(each) in BACKEND.memories or not hasattr(each, "__torch_dispatch__")
        for each in tensors
    )


_functions: dict[int, Function] = {}
"""The functions in compiled graphs, by number.

They are never removed, because the end of a graph is not known.
"""
_numbers: dict[Function, int] = {}
_next = count()


def _number(function: Function) -> int:
    number = _numbers.setdefault(function, next(_next))
    _functions[number] = function
    return number


_SCHEMA = "(Tensor[] tensors, int number) -> Tensor[]"


def _operator() -> Any:
    """The operator for calls in a graph. See https://docs.pytorch.org/docs/stable/library.html."""
    global _made
    if _made is None:

        @torch.library.custom_op("tensorferry::call", mutates_args=(), schema=_SCHEMA)  # type: ignore[untyped-decorator]
        def call(tensors: Any, number: int) -> Any:
            return list(_run(_functions[number], tensors))

        @call.register_fake  # type: ignore[untyped-decorator]
        def _(tensors: Any, number: int) -> Any:
            function = _functions[number]
            specs = function.specs([OUTER.spec(each) for each in tensors])
            device = tensors[0].device if tensors else None
            return [
                torch.empty(shape, dtype=BACKEND.dtypes[name], device=device)
                for shape, name in specs
            ]

        _made = call
    return _made


_made: Any = None

OUTER = TorchOuter()
