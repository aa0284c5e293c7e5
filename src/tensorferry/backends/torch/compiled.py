"""Functions of other frameworks inside `torch.compile`: one operator in the graph, or outside of it where it may break.

What Dynamo reads here is plain Python on purpose: it traces `entered` and what that calls, but for what is marked.
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
"""What stands in compiled graphs, by number. Nobody is told of a graph's end."""
_next = count()


def entrance(wrapped: Any) -> Callable[..., Any]:
    """What is called, with the positional and the keyword arguments, in the place of a wrapped function."""
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
# For what it does to the code: what it gives is for a tracer that is at work now.
BACKEND.shield(_called)


def _at_trace(function: Any) -> Any:
    """Mark what Dynamo is to run while it traces, with constants, instead of tracing it."""
    function.__dict__["_dynamo_marked_constant"] = True
    return function


@_at_trace
def _is_whole() -> bool:
    """Whether the graph may not break: what Dynamo traces for ``fullgraph=True``."""
    torch._dynamo.allow_in_graph(_in_graph)
    translator = torch._dynamo.symbolic_convert.InstructionTranslator
    try:
        whole = bool(getattr(translator.current_tx(), "one_graph", False))
    except AttributeError:  # torch.export traces without Dynamo
        return False
    if whole:
        _warn_of_limit(translator.current_tx().f_code)
    return whole


def _warn_of_limit(code: Any) -> None:
    """Say before it is met where PyTorch ends, whose error does not say what to do."""
    try:
        limit = torch._dynamo.config.recompile_limit
        made = len(torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code))
    except AttributeError:  # it is not public
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
    """The number of a call, with these arguments but for the tensors."""
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
    """What the call gives, but for the tensors."""
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
    """A tree as nested tuples of constants; its tensors are put into a list."""
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
    """A tree made again."""
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
    """A tree made again, with one mark in the place of each tensor."""
    from itertools import repeat

    return _made(template, repeat(mark))
