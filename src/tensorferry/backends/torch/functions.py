"""Functions across frameworks, for PyTorch: its functions for others, and others as its part.

They are part of its graph, also for `torch.func`, `torch.vmap` and `torch.compile`. Inside the
latter they are an operator in the graph, or a graph break if that is allowed. Dynamo traces
`entered` and everything that it calls, except marked functions, so that code is simple Python: see
https://docs.pytorch.org/docs/stable/torch.compiler_dynamo_overview.html.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.derivations import Jvp, Vjp, Vmap
from ...errors import UnsupportedTypeError
from ...hints import Hint
from .. import registry
from ..functions import Inner, Outer
from .autograd import AutogradUse, Watch, closed_over, derived, foreign_leaves, forward
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ...core.derivations import Rule, Spec
    from ..functions import Function, TensorFunction

__all__ = ["INNER", "OUTER", "entrance", "opened"]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]


# -- a module as a function of its parameters and buffers ------------------------------------------


def opened(module: Any, state: bool) -> tuple[Callable[..., Any], Sequence[dict[str, Any]]]:
    """A module as a function of its trainable parameters, and these, by name.

    With `state`, also of its buffers.
    """
    trained = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    buffers = dict(module.named_buffers())
    name = type(module).__qualname__

    def apply(params: Any, /, *args: Any, **keywords: Any) -> Any:
        # In training mode, a module may write into its buffers, so it gets copies.
        copies = {key: buffer.clone() for key, buffer in module.named_buffers()}
        tensors = {**params, **copies}
        before = {key: buffer._version for key, buffer in copies.items()}
        result = torch.func.functional_call(module, tensors, args, keywords)
        changed = [
            key
            for key, buffer in copies.items()
            if tensors[key] is not buffer or buffer._version != before[key]
        ]
        if changed:
            raise UnsupportedTypeError(
                f"{name} changes its buffers when it is called ({changed[0]}), which a pure "
                "function must not.",
                "apply, params, state = wrap_module(module, state=True), or module.eval()",
            )
        return result

    def apply_with_state(params: Any, state: Any, /, *args: Any, **keywords: Any) -> Any:
        copies = {key: buffer.clone() for key, buffer in state.items()}
        tensors = {**params, **copies}
        result = torch.func.functional_call(module, tensors, args, keywords)
        return result, {key: tensors[key].detach() for key in copies}

    chosen = apply_with_state if state else apply
    chosen.__qualname__ = chosen.__name__ = name
    return chosen, [trained, buffers] if state else [trained]


# -- functions of PyTorch, called from other frameworks --------------------------------------------


def _keep_guard() -> None:
    """Set PyTorch's guard for GPUs that are not there on a thread that does not end.

    The first fake tensor mode sets it otherwise. In PyTorch 2.11 it is in memory of the thread that
    does, and once that thread has ended, as one that compiled a function may, each backward pass
    ends the process.
    """
    # PyTorch 2.6 sets none, and has no function for it.
    if (
        torch.version.cuda
        and not torch.cuda.is_available()
        and hasattr(torch._C, "_ensureCUDADeviceGuardSet")
    ):
        if threading.current_thread() is threading.main_thread():
            torch._C._ensureCUDADeviceGuardSet()
        else:
            done = threading.Event()
            threading.Thread(target=_keep_guard_here, args=(done,), daemon=True).start()
            done.wait()


def _keep_guard_here(done: threading.Event) -> None:
    torch._C._ensureCUDADeviceGuardSet()
    done.set()
    threading.Event().wait()


_keep_guard()


class TorchInner(Inner):
    """Calls functions of PyTorch."""

    name = "torch"
    traces_first = True

    def environment(self) -> Hashable:
        """The default dtype, and each kind of device's autocast; ``None`` for initial settings."""
        default = torch.get_default_dtype()
        if not _is_any_autocast_on():
            if default is torch.float32:
                return None
            return default, ()
        kinds = ("cpu", "cuda")
        return default, tuple(
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in kinds
        )

    @contextmanager
    def under(self, environment: Any) -> Iterator[None]:
        # The default dtype is global to the process, so it is not changed here.
        with ExitStack() as stack:
            for kind, on, dtype in (environment or (None, ()))[1] or (
                ("cpu", False, None),
                ("cuda", False, None),
            ):
                stack.enter_context(torch.autocast(kind, enabled=on, dtype=dtype))
            yield

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return None
        try:
            return torch.as_tensor(leaf)
        except TypeError:  # a dtype that PyTorch has, and NumPy's arrays have only by an extension
            return BACKEND.adopt(np.asarray(leaf))

    def module(
        self, module: Any, state: bool
    ) -> tuple[Callable[..., Any], Sequence[dict[str, Any]]] | None:
        if isinstance(module, torch.nn.Module):
            return opened(module, state)
        return None

    def remarks(self, flat: TensorFunction) -> Sequence[str]:
        if flat.checks_each_call:
            return [
                (
                    "its values decide what it does, so it cannot be traced without shapes=, and each "
                    "call is watched"
                )
            ]
        return ()

    # -- derivatives -------------------------------------------------------------------------------

    def native(self, flat: TensorFunction, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        if rules:
            return derived(flat, rules)
        return partial(forward, flat)

    def shapes(self, flat: TensorFunction, specs: Sequence[Spec]) -> Sequence[Spec]:
        """Use fake tensors, which have no values.

        See https://docs.pytorch.org/docs/stable/torch.compiler_fake_tensor.html. This also finds
        out whether the function uses random numbers, uses other tensors that require grad, or
        writes into its arguments.
        """
        from torch._subclasses import fake_tensor

        problems = (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
            fake_tensor.UnsupportedOperatorException,
        )
        with (
            self.under(flat.environment),
            Watch(flat) as watch,
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), AutogradUse() as use:
                tensors = [torch.empty(shape, dtype=BACKEND.dtypes[name]) for shape, name in specs]
                versions = [tensor._version for tensor in tensors]
                try:
                    results = flat(*tensors)
                except problems as error:
                    raise _needs_values(flat, _first_line(error)) from error
                except RuntimeError as error:
                    if not use.takes_values:
                        raise
                    raise _needs_values(flat, use.takes_values) from error
            watch.refuse()
        flat.changes_inputs |= versions != [tensor._version for tensor in tensors]
        flat.steers_autograd |= use.steers or any(tensor.requires_grad for tensor in tensors)
        flat.switches_autograd_off |= use.switches_off
        foreign = foreign_leaves(results, tensors)
        flat.makes_leaves |= bool(foreign)
        if not all(isinstance(leaf, fake_tensor.FakeTensor) for leaf in foreign):
            raise closed_over(flat)
        return [(tuple(result.shape), BACKEND.names[result.dtype]) for result in results]


def _needs_values(flat: TensorFunction, why: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"The shapes that {flat.source.name} gives cannot be told without values: {why}",
        Hint("tensors of PyTorch from argument to result")
        | Hint(hints.code('wrap(function, inner="torch", shapes=lambda x: x)'), " says them")
        | "call it outside jit, grad and vmap",
    )


def _autocast_on() -> bool:
    return any(map(torch.is_autocast_enabled, ("cpu", "cuda")))


_is_any_autocast_on: Callable[[], bool] = getattr(
    torch._C, "_is_any_autocast_enabled", _autocast_on
)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]


INNER = TorchInner()


_TENSOR, _LIST, _TUPLE, _DICT, _FIXED = range(5)
_wrapped: dict[int, Any] = {}
_calls: dict[int, Any] = {}
"""The calls in compiled graphs, by number.

They are never removed, because the end of a graph is not known.
"""
_next = count()


# -- functions of other frameworks inside `torch.compile` ------------------------------------------


def entrance(wrapped: Any) -> Callable[..., Any]:
    """The function called instead of a wrapped one, with the positional and keyword arguments."""
    number = next(_next)
    is_compiling = torch.compiler.is_compiling

    def entered(args: Any, keywords: Any) -> Any:
        if is_compiling() and _must_not_break():
            _remember(number)
            tensors: list[Any] = []
            template = _template_of(args, tensors), _template_of(keywords, tensors)
            called = _number_of_call(number, template)
            results = _in_graph(called, *tensors)
            return _filled(_result(called), iter(results))
        return _call_untraced(wrapped, args, keywords)

    def _remember(number: int) -> None:
        _wrapped[number] = wrapped

    _remember.__dict__["_dynamo_marked_constant"] = True
    return entered


def _call_untraced(wrapped: Any, args: Any, keywords: Any) -> Any:
    return wrapped(args, keywords)


_call_untraced.__dict__["_torchdynamo_disable"] = True
# This changes the function. The result would be needed only if a tracer were running now.
BACKEND.shield(_call_untraced)


def _run_while_tracing(function: Any) -> Any:
    """Mark a function that Dynamo runs with constants while it traces, instead of tracing it."""
    function.__dict__["_dynamo_marked_constant"] = True
    return function


@_run_while_tracing
def _must_not_break() -> bool:
    """Whether the graph must not break, as with ``fullgraph=True``."""
    torch._dynamo.allow_in_graph(_in_graph)
    translator = torch._dynamo.symbolic_convert.InstructionTranslator
    try:
        must_not_break = bool(getattr(translator.current_tx(), "one_graph", False))
    except AttributeError:  # `torch.export` traces without Dynamo
        return False
    if must_not_break:
        _warn_of_limit(translator.current_tx().f_code)
    return must_not_break


def _warn_of_limit(code: Any) -> None:
    """Warn before PyTorch's limit of recompilations, whose error does not say what to do."""
    try:
        config = torch._dynamo.config
        # PyTorch 2.6 has the older name.
        if hasattr(config, "recompile_limit"):
            setting = "recompile_limit"
        else:
            setting = "cache_size_limit"
        limit = getattr(config, setting)
        entries = len(torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code))
    except AttributeError:  # it is not public, and may be missing
        return
    if entries == limit - 1:
        warnings.warn(
            f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} is compiled "
            "with fullgraph=True and "
            "calls a function of another framework, "
            "so that each length is compiled anew; PyTorch compiles "
            f"{limit} times (torch._dynamo.config.{setting}), of which this is the last, "
            "and then raises.\n\n"
            "Hint: torch.compile(function) without fullgraph= takes every length; "
            "or pad to few lengths; or "
            f"torch._dynamo.config.{setting} = 64",
            UserWarning,
            stacklevel=2,
        )


@_run_while_tracing
def _number_of_call(number: int, template: Any) -> int:
    """The number of a call with these arguments, without the tensors."""
    wrapped = _wrapped[number]
    args, keywords = (_filled_with_one(tree, wrapped.tensor) for tree in template)
    function = wrapped.function_of(args, keywords, BACKEND.name)
    for known, other in _calls.items():
        if other is function:
            return known
    at = next(_next)
    _calls[at] = function
    return at


@_run_while_tracing
def _result(number: int) -> Any:
    """The result of the call, without the tensors."""
    tree = _calls[number].flat.tree
    tensors: list[Any] = []
    marks = [torch.empty(0) for leaf in tree.leaves if leaf is type(_calls[number].flat).tensor]
    return _template_of(tree.filled(marks), tensors)


def _in_graph(number: int, *tensors: Any) -> Any:
    function = _calls[number]
    function.flat.output_specs(tuple(OUTER.spec(tensor) for tensor in tensors))
    return tuple(OUTER.apply(function, tensors))


def _template_of(tree: Any, tensors: list[Any]) -> Any:
    """A tree without its tensors, as nested tuples of constants.

    The tensors are appended to a list.
    """
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return (_TENSOR,)
    if type(tree) is dict:
        return (
            _DICT,
            tuple(tree.keys()),
            tuple([_template_of(branch, tensors) for branch in tree.values()]),
        )
    if type(tree) is list:
        return (_LIST, tuple([_template_of(branch, tensors) for branch in tree]))
    if type(tree) is tuple:
        return (_TUPLE, tuple([_template_of(branch, tensors) for branch in tree]))
    return (_FIXED, tree)


def _filled(template: Any, tensors: Any) -> Any:
    """The tree of a template, with these tensors."""
    kind = template[0]
    if kind == _TENSOR:
        return next(tensors)
    if kind == _DICT:
        return dict(
            zip(template[1], [_filled(branch, tensors) for branch in template[2]], strict=True)
        )
    if kind == _LIST:
        return [_filled(branch, tensors) for branch in template[1]]
    if kind == _TUPLE:
        return tuple([_filled(branch, tensors) for branch in template[1]])
    return template[1]


def _filled_with_one(template: Any, mark: Any) -> Any:
    """The tree of a template, with the same object in place of each tensor."""
    from itertools import repeat

    return _filled(template, repeat(mark))


# -- functions of other frameworks in PyTorch's graph ----------------------------------------------


class TorchOuter(Outer):
    """Makes functions part of PyTorch's graph."""

    name = "torch"
    modes = ("torch.func", "torch.vmap", "forward-mode AD", "torch.compile")

    def spec(self, tensor: Any) -> Spec:
        # While compiling, lengths may be symbols. As numbers, they become conditions of the graph.
        return tuple(map(int, tensor.shape)), BACKEND.names[tensor.dtype]

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        if any(tensor.is_nested for tensor in tensors):
            results: Any = _run(function, tensors)  # which raises the error
        elif _is_transformed() or not _are_plain(tensors):
            results = _Call.apply(function, *tensors)
        elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            results = _PlainCall.apply(function, *tensors)
        else:
            results = _run(function, tensors)
        return results  # type: ignore[no-any-return]

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
        gradients = iter(OUTER.apply(derived, [*kept, *(cotangents[index] for index in outs)]))
        return (None, *(next(gradients) if needs else None for needs in needed))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        wrt = tuple(index for index, tangent in enumerate(tangents) if tangent is not None)
        kept = ctx.saved_tensors
        derived = ctx.function.derived(Jvp(wrt, ctx.outs, len(kept)))
        pushed = iter(_Call.apply(derived, *kept, *(tangents[index] for index in wrt)))
        return tuple(next(pushed) if index in ctx.outs else None for index in range(ctx.outputs))

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: Function, *tensors: Any) -> Any:
        derived = function.derived(Vmap(tuple(in_dims[1:]), info.batch_size))
        results = _Call.apply(derived, *tensors)
        return results, (0,) * len(results)


class _PlainCall(torch.autograd.Function):  # type: ignore[misc]
    """`_Call` without transformations, faster: no arguments are bound for `setup_context`."""

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
        tensors = [
            torch.zeros_like(tensor) if tensor._is_zerotensor() else tensor for tensor in tensors
        ]
    results = function.run(tensors, OUTER)
    device = tensors[0].device if tensors else None
    if device is not None and device.type != "cpu":
        return [result.to(device) for result in results]
    return results


def _run_batched(function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
    """`_run` in `torch.autograd.grad(is_grads_batched=True)`, which uses an older kind of batch."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    batched = list(map(torch._C._functorch.is_legacy_batchedtensor, tensors))
    whole = [
        torch._remove_batch_dim(x, level, 1, 0) if is_batched else x
        for x, is_batched in zip(tensors, batched, strict=True)
    ]
    size = whole[batched.index(True)].shape[0]
    derived = function.derived(
        Vmap(tuple(0 if is_batched else None for is_batched in batched), size)
    )
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
        type(tensor) in BACKEND.memories or not hasattr(tensor, "__torch_dispatch__")
        for tensor in tensors
    )


_functions: dict[int, Function] = {}
"""The functions in compiled graphs, by number.

They are never removed, because the end of a graph is not known.
"""
_numbers: dict[Function, int] = {}


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
            specs = function.specs([OUTER.spec(tensor) for tensor in tensors])
            device = tensors[0].device if tensors else None
            return [
                torch.empty(shape, dtype=BACKEND.dtypes[name], device=device)
                for shape, name in specs
            ]

        _made = call
    return _made


_made: Any = None

OUTER = TorchOuter()
