"""Functions across frameworks, for TensorFlow: its functions for others, and others as its part.

They are part of tapes and of `tf.function`.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.derivations import Vjp, Vmap, of_chosen
from ...errors import GradientError, UnsupportedTypeError
from ...host import subnormals
from .. import registry
from ..functions import Inner, Outer
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...core.derivations import Rule, Spec
    from ..functions import Function, TensorFunction

__all__ = ["INNER", "OUTER"]

tf: Any = registry.load(BACKEND).tf  # type: ignore[attr-defined]
_RANDOM = (
    "Random",
    "StatefulRandom",
    "StatefulUniform",
    "StatefulStandard",
    "StatefulTruncated",
    "Multinomial",
)
_UNTRACEABLE = (tf.errors.OperatorNotAllowedInGraphError, AttributeError, NotImplementedError)
"""The exceptions of a function that needs the value of a traced tensor."""
_NO_VARIABLES = ("Unable to lift tensor", "tf.function only supports singleton tf.Variables")
"""How the messages begin of the exceptions of a function that makes variables."""
_CONSTANT = {
    "StopGradient",
    "Floor",
    "Ceil",
    "Round",
    "Rint",
    "Sign",
    "ZerosLike",
    "OnesLike",
    "Fill",
    "NextAfter",
}
"""Operations whose derivative is zero."""
_SHAPES = 'wrap(function, inner="tensorflow", shapes=lambda x: x) says them; or call it outside jit, grad and vmap'
_VARIABLES = (
    "pass them as arguments; of a layer of Keras: layer.stateless_call(trainable, non_trainable, x)"
)


# -- functions of TensorFlow, called from other frameworks -----------------------------------------


class TensorflowInner(Inner):
    """Calls functions of TensorFlow."""

    name = "tensorflow"
    traces_first = True

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, tf.Tensor):
            return leaf
        is_value = isinstance(leaf, (tf.Variable, tf.IndexedSlices, np.ndarray, np.generic))
        return tf.convert_to_tensor(leaf) if is_value else None

    def remarks(self, flat: TensorFunction) -> Sequence[str]:
        if flat.checks_each_call:
            return [
                (
                    "it cannot be traced, so it is not known whether it draws "
                    "random numbers; jit needs shapes="
                )
            ]
        return ()

    def native(self, flat: TensorFunction, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        if not rules:
            return flat.plain
        derived: Callable[..., Sequence[Any]] = flat
        first = next((rule for rule in rules if not isinstance(rule, Vmap)), None)
        for index, rule in enumerate(rules):
            if isinstance(rule, Vmap):
                derived = _vmap(derived, rule)
            else:
                if rule is first:
                    lost = partial(_refuse_lost, flat, rules[:index])
                else:
                    lost = None
                derived = (_vjp if isinstance(rule, Vjp) else _jvp)(flat, derived, rule, lost)
        return derived

    def shapes(self, flat: TensorFunction, specs: Sequence[Spec]) -> Sequence[Spec]:
        """Trace the function, and see if it uses random numbers, or uses or changes variables."""
        traced = _traced(flat, specs)
        _refuse_state(flat, traced.graph)
        output_specs = []
        for output in traced.outputs:
            if not output.shape.is_fully_defined():
                raise UnsupportedTypeError(
                    f"The shapes that {flat.source.name} gives depend on values: "
                    f"one is {output.shape}.",
                    _SHAPES,
                ) from ValueError("a shape is not known")
            output_specs.append((tuple(output.shape), BACKEND.names[output.dtype]))
        return output_specs


def _traced(flat: TensorFunction, specs: Sequence[Spec]) -> Any:
    """The graph of a function.

    Raises:
        UnsupportedTypeError: It needs values, or makes variables.
    """
    signature = [tf.TensorSpec(shape, BACKEND.dtypes[name]) for shape, name in specs]
    try:
        return tf.function(_rewritten(flat), autograph=False).get_concrete_function(*signature)
    except Exception as error:
        text = str(error).strip()
        needs_value = isinstance(error, _UNTRACEABLE) or (
            isinstance(error, TypeError) and "SymbolicTensor" in text
        )
        if not needs_value and not text.startswith(_NO_VARIABLES):
            raise
        raise UnsupportedTypeError(
            f"{flat.source.name} cannot be traced without values, which would tell its shapes: "
            f"{type(error).__name__}: {text.rpartition(chr(10))[2].strip()[:200]}",
            _SHAPES,
        ) from error


def _rewritten(flat: TensorFunction) -> Callable[..., Any]:
    """The function, where AutoGraph rewrites only the user's code, as `tf.function` does."""
    function = flat.source.function
    # A decorated function does it itself. A function that AutoGraph cannot rewrite is called
    # unchanged. On Python 3.13 its own library uses what is deprecated: where warnings are errors,
    # no function would be rewritten.
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


def _refuse_state(flat: TensorFunction, graph: Any) -> None:
    """Raise for a function that depends on more than its arguments.

    Raises:
        GradientError: It uses trainable variables.
        UnsupportedTypeError: It uses random numbers, or changes variables.
    """
    if any(variable.trainable for variable in graph.variables):
        raise GradientError(_closed_over(flat), _VARIABLES)
    for operation in _operations(graph):
        if operation.startswith(_RANDOM):
            raise UnsupportedTypeError(
                f"{flat.source.name} draws random numbers ({operation}), which differ each time "
                "that it is called, "
                "also for its gradient.",
                "tf.random.stateless_normal(shape, seed=seed), with the seed as an argument",
            )
        if operation.startswith("Assign") and operation.endswith("VariableOp"):
            raise UnsupportedTypeError(
                f"{flat.source.name} changes a variable ({operation}): "
                "how often it is called would count.",
                "take the state as an argument and give the new one as a result",
            )


def _closed_over(flat: TensorFunction) -> str:
    return (
        f"{flat.source.name} uses variables that are trained and are not among its arguments: no "
        "gradient would reach "
        "them."
    )


def _vjp(
    flat: TensorFunction, function: Callable[..., Any], rule: Any, refuse_lost: Any
) -> Callable[..., Any]:
    def gradients(*tensors: Any) -> Sequence[Any]:
        inputs, cotangents = tensors[: rule.kept], tensors[rule.kept :]
        some = [tf.identity(inputs[index]) for index in rule.wrt]
        with tf.GradientTape() as tape:
            tape.watch(some)
            results = of_chosen(function, inputs, rule)(*some)
        gradients_of_some = tape.gradient(results, some, output_gradients=list(cotangents))
        if refuse_lost is not None and all(x is None for x in gradients_of_some):
            asked = [out for out, ct in zip(rule.outs, cotangents, strict=True) if _is_nonzero(ct)]
            refuse_lost(inputs, rule.wrt, asked)
        if tape.watched_variables():
            raise GradientError(_closed_over(flat), _VARIABLES)
        return [
            tf.zeros_like(x) if y is None else tf.convert_to_tensor(y)
            for x, y in zip(some, gradients_of_some, strict=True)
        ]

    return gradients


def _jvp(
    _: TensorFunction, function: Callable[..., Any], rule: Any, refuse_lost: Any
) -> Callable[..., Any]:
    def tangents(*tensors: Any) -> Sequence[Any]:
        inputs, input_tangents = tensors[: rule.kept], tensors[rule.kept :]
        primals = [tf.identity(inputs[index]) for index in rule.wrt]
        with tf.autodiff.ForwardAccumulator(primals, list(input_tangents)) as forward:
            results = of_chosen(function, inputs, rule)(*primals)
        pushed = [forward.jvp(y) for y in results]
        absent = [out for out, y in zip(rule.outs, pushed, strict=True) if y is None]
        if refuse_lost is not None and absent:
            moved = [
                index for index, t in zip(rule.wrt, input_tangents, strict=True) if _is_nonzero(t)
            ]
            refuse_lost(inputs, moved, absent, warns=len(absent) < len(pushed))
        return [tf.zeros_like(y) if t is None else t for y, t in zip(results, pushed, strict=True)]

    return tangents


def _is_nonzero(x: Any) -> bool:
    return bool(tf.reduce_any(x != tf.zeros_like(x)))


def _refuse_lost(
    flat: TensorFunction,
    batches: Sequence[Rule],
    inputs: Sequence[Any],
    wrt: Sequence[int],
    outs: Sequence[int],
    warns: bool = False,
) -> None:
    """Raise (or warn) if TensorFlow finds no gradient, though the results depend on the arguments.

    TensorFlow itself gives ``None`` then. Here it would become zeros.

    Raises:
        GradientError: It is so, or it is not known, because the function cannot be traced.
    """
    if not wrt or not outs or any(not rule.size for rule in batches if isinstance(rule, Vmap)):
        return
    for rule in reversed(batches):
        inputs = [
            x if axis is None else tf.gather(x, 0, axis=axis)
            for x, axis in zip(inputs, rule.dims, strict=True)  # type: ignore[union-attr]
        ]
    if not flat.checks_each_call:
        traced = _traced(flat, [(tuple(x.shape), BACKEND.names[x.dtype]) for x in inputs])
        moved = [traced.inputs[index] for index in wrt]
        outs = [out for out in outs if _is_linked(moved, [traced.outputs[out]])]
        if not outs:
            return
    if warns:
        flat.warn_of_zeros(outs)
        return
    raise GradientError(
        f"{flat.source.name} computes its result outside of TensorFlow's operations, or from a "
        "variable that it makes, "
        "so that the gradient would be zeros, though the result depends on the arguments.",
        f"operations of TensorFlow from argument to result; or {flat.hint_of_zeros()}",
    )


def _is_linked(inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether numbers of a traced input reach an output, other than as integers or constants."""
    ends, seen, waiting = {id(x) for x in inputs}, set[int](), list(outputs)
    while waiting:
        x = waiting.pop()
        if id(x) in ends:
            return True
        inexact = x.dtype.is_floating or x.dtype.is_complex
        if id(x) in seen or not inexact or x.op.type in _CONSTANT:
            continue
        seen.add(id(x))
        waiting += x.op.inputs
    return False


def _vmap(function: Callable[..., Any], rule: Any) -> Callable[..., Any]:
    """One call after the other, because `tf.vectorized_map` does not support all operations."""

    def batch(*tensors: Any) -> Sequence[Any]:
        pairs = list(zip(tensors, rule.dims, strict=True))
        rows = [
            function(*(x if axis is None else tf.gather(x, i, axis=axis) for x, axis in pairs))
            for i in range(rule.size)
        ]
        return [tf.stack(column) for column in zip(*rows, strict=True)]

    return batch


INNER = TensorflowInner()


# -- functions of other frameworks as a part of TensorFlow -----------------------------------------


class TensorflowOuter(Outer):
    """Makes functions part of TensorFlow."""

    name = "tensorflow"
    modes = ("tf.GradientTape", "tf.function")

    def spec(self, tensor: Any) -> Spec:
        if tensor.shape.rank is None:
            raise UnsupportedTypeError(
                "How many axes this tensor has is not known while it is traced.",
                "x.set_shape([None, 3])",
            )
        shape = tuple(-1 if length is None else length for length in tensor.shape)
        name = BACKEND.names.get(tensor.dtype.base_dtype)
        if name is None:
            why, hint = BACKEND.capabilities.objects.abstract["text"]
            raise UnsupportedTypeError(
                f"This tensorflow object has no values to convert: {why}.", hint
            )
        return shape, name

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        # Variables are read here, so that the tape records it.
        return _call(function, [tf.convert_to_tensor(tensor) for tensor in tensors])


OUTER = TensorflowOuter()


def _is_inexact(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def _call(function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
    """One call; its gradient is such a call too.

    See https://www.tensorflow.org/api_docs/python/tf/custom_gradient.
    """
    wrt = tuple(index for index, x in enumerate(tensors) if _is_inexact(x))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(*tensors: Any) -> Any:
        outputs = _run(function, tensors)
        outs = tuple(index for index, y in enumerate(outputs) if _is_inexact(y))

        def gradients(*cotangents: Any) -> Any:
            kept = function.kept(tensors, outputs)
            derived = function.derived(Vjp(wrt, outs, len(kept)))
            gradients_given = iter(
                _call(
                    derived, [*kept, *(tf.convert_to_tensor(cotangents[index]) for index in outs)]
                )
            )
            return [
                next(gradients_given) if index in wrt else None for index in range(len(tensors))
            ]

        return outputs, gradients

    if not wrt:
        return _run(function, tensors)
    return call(*tensors)  # type: ignore[no-any-return]


def _run(function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
    if tf.executing_eagerly():
        return function.run(tensors, OUTER)
    specs = [OUTER.spec(tensor) for tensor in tensors]
    known = all(-1 not in shape for shape, _ in specs)
    promised = function.specs(
        [(tuple(2 if length < 0 else length for length in shape), name) for shape, name in specs]
    )
    # To raise errors while it is traced, not when it runs.
    _ = function.native
    types = [BACKEND.dtypes[name] for _, name in promised]
    results = tf.py_function(
        _host(function, [shape for shape, _ in promised] if known else None), tensors, types
    )
    for result, (shape, _) in zip(results, promised, strict=True):
        result.set_shape(shape if known else [None] * len(shape))
    return results  # type: ignore[no-any-return]


def _host(function: Function, shapes: Sequence[tuple[int, ...]] | None) -> Callable[..., Any]:
    """The function that TensorFlow calls with concrete tensors."""

    @subnormals.unflushed_callback
    def host(*tensors: Any) -> Any:
        try:
            results = function.run(tensors, OUTER)
        except Exception as error:
            # TensorFlow replaces the error by one of its own, which keeps the text and the notes.
            told = function.keep_exception(error)
            if hasattr(error, "add_note"):
                raise
            raise RuntimeError(told) from error
        if shapes is None:
            return results
        return function.checked(results, shapes)

    return host
