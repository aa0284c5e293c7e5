"""Call functions of TensorFlow from other frameworks."""

from __future__ import annotations

import warnings
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.derivations import Jvp, Vjp, Vmap, chosen, derived
from ...errors import GradientError, UnsupportedTypeError
from .. import registry
from ..functions import Inner
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...core.derivations import Rule, Spec
    from ..functions import Flat

__all__ = ["INNER"]

tf: Any = registry.load(BACKEND).tf  # type: ignore[attr-defined]
_RANDOM = ("Random", "StatefulRandom", "StatefulUniform", "StatefulStandard", "StatefulTruncated", "Multinomial")
_UNTRACEABLE = (tf.errors.OperatorNotAllowedInGraphError, AttributeError, NotImplementedError)
"""The exceptions of a function that needs the value of a traced tensor."""
_VARIABLES = "pass them as arguments; of a layer of Keras: layer.stateless_call(trainable, non_trainable, x)"


class TensorflowInner(Inner):
    """Calls functions of TensorFlow."""

    name = "tensorflow"
    traces_first = True

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, tf.Tensor):
            return leaf
        is_number = isinstance(leaf, (bool, int, float, complex, tf.Variable, tf.IndexedSlices))
        return tf.convert_to_tensor(leaf) if is_number or type(leaf).__module__ == "numpy" else None

    def remarks(self, flat: Flat) -> Sequence[str]:
        if flat.careful:
            return ["it cannot be traced, so it is not known whether it draws random numbers; jit needs shapes="]
        return ()

    def native(self, flat: Flat, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        return derived(flat, rules, {Vjp: partial(_vjp, flat), Jvp: _jvp, Vmap: _vmap})  # type: ignore[no-any-return]

    def shapes(self, flat: Flat, specs: Sequence[Spec]) -> Sequence[Spec]:
        """Trace the function, which also finds out whether it uses random numbers, or uses or changes variables."""
        signature = [tf.TensorSpec(shape, BACKEND.dtypes[name]) for shape, name in specs]
        try:
            traced = tf.function(_rewritten(flat), autograph=False).get_concrete_function(*signature)
        except _UNTRACEABLE as error:
            raise UnsupportedTypeError(
                f"{flat.source.name} cannot be traced without values, which would tell its shapes: "
                f"{type(error).__name__}: {str(error).strip().rpartition(chr(10))[2].strip()[:200]}",
                'wrap(function, inner="tensorflow", shapes=lambda x: x) says them; or call it outside jit',
            ) from error
        _refuse_state(flat, traced.graph)
        found = []
        for each in traced.outputs:
            if not each.shape.is_fully_defined():
                raise UnsupportedTypeError(
                    f"The shapes that {flat.source.name} gives depend on values: one is {each.shape}.",
                    'wrap(function, inner="tensorflow", shapes=lambda x: x) says them; or call it outside jit',
                ) from ValueError("a shape is not known")
            found.append((tuple(each.shape), BACKEND.names[each.dtype]))
        return found


def _rewritten(flat: Flat) -> Callable[..., Any]:
    """The function, in which only the user's code is rewritten by AutoGraph, as `tf.function` does."""
    function = flat.source.function
    # A decorated function does it itself. A function that AutoGraph cannot rewrite is called unchanged. On Python 3.13
    # its own library uses what is deprecated: where warnings are errors, no function would be rewritten.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if not hasattr(function, "get_concrete_function"):
            function = tf.autograph.to_graph(function)
    rewritten = copy(flat)
    rewritten.source = flat.source._replace(function=function)
    return rewritten.__call__


def _operations(graph: Any) -> Iterator[str]:
    whole = graph.as_graph_def()
    yield from (node.op for node in whole.node)
    yield from (node.op for function in whole.library.function for node in function.node_def)


def _refuse_state(flat: Flat, graph: Any) -> None:
    """Raise for a function that depends on more than its arguments.

    Raises:
        GradientError: It uses trainable variables.
        UnsupportedTypeError: It uses random numbers, or changes variables.
    """
    if any(each.trainable for each in graph.variables):
        raise GradientError(_closed_over(flat), _VARIABLES)
    for operation in _operations(graph):
        if operation.startswith(_RANDOM):
            raise UnsupportedTypeError(
                f"{flat.source.name} draws random numbers ({operation}), which differ each time that it is called, "
                "also for its gradient.",
                "tf.random.stateless_normal(shape, seed=seed), with the seed as an argument",
            )
        if operation.startswith("Assign") and operation.endswith("VariableOp"):
            raise UnsupportedTypeError(
                f"{flat.source.name} changes a variable ({operation}): how often it is called would count.",
                "take the state as an argument and give the new one as a result",
            )


def _closed_over(flat: Flat) -> str:
    return (
        f"{flat.source.name} uses variables that are trained and are not among its arguments: no gradient would reach "
        "them."
    )


def _vjp(flat: Flat, function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = tensors[: rule.kept], tensors[rule.kept :]
        some = [tf.identity(inputs[index]) for index in rule.wrt]
        with tf.GradientTape() as tape:
            tape.watch(some)
            results = chosen(function, inputs, rule)(*some)
        if tape.watched_variables():
            raise GradientError(_closed_over(flat), _VARIABLES)
        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(results, some, output_gradients=list(cotangents), unconnected_gradients=zero)
        return list(map(tf.convert_to_tensor, found))

    return gradients


def _jvp(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    def tangents(*tensors: Any) -> Sequence[Any]:
        inputs, input_tangents = tensors[: rule.kept], tensors[rule.kept :]
        primals = [tf.identity(inputs[index]) for index in rule.wrt]
        with tf.autodiff.ForwardAccumulator(primals, list(input_tangents)) as forward:
            results = chosen(function, inputs, rule)(*primals)
        return [forward.jvp(y, tf.UnconnectedGradients.ZERO) for y in results]

    return tangents


def _vmap(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    """One call after the other, because `tf.vectorized_map` does not support all operations."""

    def batch(*tensors: Any) -> Sequence[Any]:
        pairs = list(zip(tensors, rule.dims, strict=True))
        each = [
            function(*(x if axis is None else tf.gather(x, i, axis=axis) for x, axis in pairs))
            for i in range(rule.size)
        ]
        return [tf.stack(column) for column in zip(*each, strict=True)]

    return batch


INNER = TensorflowInner()
