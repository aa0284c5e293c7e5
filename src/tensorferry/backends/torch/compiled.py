"""Functions of other frameworks inside `torch.compile`: an operator in the graph, or a graph break if that is allowed.

Dynamo traces `entered` and everything that it calls, except marked functions. So this code is
simple Python. See https://docs.pytorch.org/docs/stable/torch.compiler_dynamo_overview.html.
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
"""The calls in compiled graphs, by number.

They are never removed, because the end of a graph is not known.
"""
_next = count()


def entrance(wrapped: Any) -> Callable[..., Any]:
    """The function that is called instead of a wrapped one, with the positional and keyword arguments."""
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
    """Warn before PyTorch's limit of recompilations is reached, because its error does not say what to do."""
    try:
        config = torch._dynamo.config
        # PyTorch 2.6 has the older name.
        setting = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
        limit = getattr(config, setting)
        made = len(torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code))
    except AttributeError:  # it is not public, and may be missing
        return
    if made == limit - 1:
        warnings.warn(
            f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} is compiled with fullgraph=True and "
            "calls a function of another framework, so that each length is compiled anew; PyTorch compiles "
            f"{limit} times (torch._dynamo.config.{setting}), of which this is the last, and then raises.\n\n"
            "Hint: torch.compile(function) without fullgraph= takes every length; or pad to few lengths; or "
            f"torch._dynamo.config.{setting} = 64",
            UserWarning,
            stacklevel=2,
        )


@_run_while_tracing
def _number_of_call(number: int, template: Any) -> int:
    """The number of a call with these arguments, without the tensors."""
    wrapped = _wrapped[number]
    args, keywords = (_filled_with_one(each, wrapped.tensor) for each in template)
    function = wrapped.function_of(args, keywords, BACKEND.name)
    for known, other in _calls.items():
        if other is function:
            return known
    found = next(_next)
    _calls[found] = function
    return found


@_run_while_tracing
def _result(number: int) -> Any:
    """The result of the call, without the tensors."""
    tree = _calls[number].flat.tree
    tensors: list[Any] = []
    marks = [torch.empty(0) for leaf in tree.leaves if leaf is type(_calls[number].flat).tensor]
    return _template_of(tree.filled(marks), tensors)


def _in_graph(number: int, *tensors: Any) -> Any:
    from .outer import OUTER

    function = _calls[number]
    function.flat.look(tuple(OUTER.spec(each) for each in tensors))
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
            tuple([_template_of(each, tensors) for each in tree.values()]),
        )
    if type(tree) is list:
        return (_LIST, tuple([_template_of(each, tensors) for each in tree]))
    if type(tree) is tuple:
        return (_TUPLE, tuple([_template_of(each, tensors) for each in tree]))
    return (_FIXED, tree)


def _filled(template: Any, tensors: Any) -> Any:
    """The tree of a template, with these tensors."""
    kind = template[0]
    if kind == _TENSOR:
        return next(tensors)
    if kind == _DICT:
        return dict(zip(template[1], [_filled(each, tensors) for each in template[2]], strict=True))
    if kind == _LIST:
        return [_filled(each, tensors) for each in template[1]]
    if kind == _TUPLE:
        return tuple([_filled(each, tensors) for each in template[1]])
    return template[1]


def _filled_with_one(template: Any, mark: Any) -> Any:
    """The tree of a template, with the same object in place of each tensor."""
    from itertools import repeat

    return _filled(template, repeat(mark))
