"""Functions of other frameworks inside `torch.compile`: an operator in the graph, or a graph break if that is allowed.

Dynamo traces `entered` and everything that it calls, except marked functions. So this code is simple Python.
See https://docs.pytorch.org/docs/stable/torch.compiler_dynamo_overview.html.
"""

from __future__ import annotations

import warnings
from itertools import count
from typing import TYPE_CHECKING, Any

from .. import registry
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["entrance"]

torch: Any = registry.load(BACKEND).torch  # type: ignore[attr-defined]
_TENSOR, _LIST, _TUPLE, _DICT, _FIXED = range(5)
_wrapped: dict[int, Any] = {}
_calls: dict[int, Any] = {}
"""The calls in compiled graphs, by number. They are never removed, because the end of a graph is not known."""
_next = count()


def entrance(wrapped: Any) -> Callable[..., Any]:
    """The function that is called instead of a wrapped one, with the positional and keyword arguments."""
    number = next(_next)
    is_compiling = torch.compiler.is_compiling

    def entered(args: Any, keywords: Any) -> Any:
        if is_compiling() and _is_whole():
            _keep(number)
            tensors: list[Any] = []
            template = _taken(args, tensors), _taken(keywords, tensors)
            called = _number(number, template)
            results = _in_graph(called, *tensors)
            return _made(_result(called), iter(results))
        return _called(wrapped, args, keywords)

    def _keep(number: int) -> None:
        _wrapped[number] = wrapped

    _keep.__dict__["_dynamo_marked_constant"] = True
    return entered


def _called(wrapped: Any, args: Any, keywords: Any) -> Any:
    return wrapped(args, keywords)


_called.__dict__["_torchdynamo_disable"] = True
# For its effect on the code; its result is only for a tracer that is running now.
BACKEND.shield(_called)


def _at_trace(function: Any) -> Any:
    """Mark a function that Dynamo runs with constants while it traces, instead of tracing it."""
    function.__dict__["_dynamo_marked_constant"] = True
    return function


@_at_trace
def _is_whole() -> bool:
    """Whether the graph must not break, as with ``fullgraph=True``."""
    torch._dynamo.allow_in_graph(_in_graph)
    translator = torch._dynamo.symbolic_convert.InstructionTranslator
    try:
        whole = bool(getattr(translator.current_tx(), "one_graph", False))
    except AttributeError:  # `torch.export` traces without Dynamo
        return False
    if whole:
        _warn_of_limit(translator.current_tx().f_code)
    return whole


def _warn_of_limit(code: Any) -> None:
    """Warn before PyTorch's limit of recompilations is reached, because its error does not say what to do."""
    try:
        limit = torch._dynamo.config.recompile_limit
        made = len(torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code))
    except AttributeError:  # it is not public, and may be missing
        return
    if made == limit - 1:
        warnings.warn(
            f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} is compiled with fullgraph=True and "
            "calls a function of another framework, so that each length is compiled anew; PyTorch compiles "
            f"{limit} times (torch._dynamo.config.recompile_limit), of which this is the last, and then raises "
            "FailOnRecompileLimitHit.\n\nHint: torch.compile(function) without fullgraph= takes every length; or pad "
            "to few lengths; or torch._dynamo.config.recompile_limit = 64",
            UserWarning,
            stacklevel=2,
        )


@_at_trace
def _number(number: int, template: Any) -> int:
    """The number of a call with these arguments, without the tensors."""
    wrapped = _wrapped[number]
    args, keywords = (_rebuilt(each, wrapped.tensor) for each in template)
    function = wrapped.function_of(args, keywords)
    for known, other in _calls.items():
        if other is function:
            return known
    found = next(_next)
    _calls[found] = function
    return found


@_at_trace
def _result(number: int) -> Any:
    """The result of the call, without the tensors."""
    tree = _calls[number].flat.tree
    tensors: list[Any] = []
    marks = [torch.empty(0) for leaf in tree.leaves if leaf is type(_calls[number].flat).tensor]
    return _taken(tree.filled(marks), tensors)


def _in_graph(number: int, *tensors: Any) -> Any:
    from .outer import OUTER

    function = _calls[number]
    function.flat.look(tuple(OUTER.spec(each) for each in tensors))
    return tuple(OUTER.apply(function, tensors))


def _taken(tree: Any, tensors: list[Any]) -> Any:
    """A tree as nested tuples of constants. Its tensors are appended to a list."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return (_TENSOR,)
    if type(tree) is dict:
        return (_DICT, tuple(tree.keys()), tuple([_taken(each, tensors) for each in tree.values()]))
    if type(tree) is list:
        return (_LIST, tuple([_taken(each, tensors) for each in tree]))
    if type(tree) is tuple:
        return (_TUPLE, tuple([_taken(each, tensors) for each in tree]))
    return (_FIXED, tree)


def _made(template: Any, tensors: Any) -> Any:
    """The tree, rebuilt with tensors."""
    kind = template[0]
    if kind == _TENSOR:
        return next(tensors)
    if kind == _DICT:
        return dict(zip(template[1], [_made(each, tensors) for each in template[2]], strict=True))
    if kind == _LIST:
        return [_made(each, tensors) for each in template[1]]
    if kind == _TUPLE:
        return tuple([_made(each, tensors) for each in template[1]])
    return template[1]


def _rebuilt(template: Any, mark: Any) -> Any:
    """The tree, rebuilt with a mark in place of each tensor."""
    from itertools import repeat

    return _made(template, repeat(mark))
