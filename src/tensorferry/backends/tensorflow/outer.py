"""Make functions of other frameworks part of TensorFlow: on tapes and in `tf.function`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.derivations import Vjp
from ...errors import UnsupportedTypeError
from ...host import subnormals
from .. import registry
from ..functions import Outer
from .tensors import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.derivations import Spec
    from ..functions import Function

__all__ = ["OUTER"]

tf: Any = registry.load(BACKEND).tf  # type: ignore[attr-defined]


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
        return _call(function, [tf.convert_to_tensor(each) for each in tensors])


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
            found = iter(
                _call(
                    derived, [*kept, *(tf.convert_to_tensor(cotangents[index]) for index in outs)]
                )
            )
            return [next(found) if index in wrt else None for index in range(len(tensors))]

        return outputs, gradients

    if not wrt:
        return _run(function, tensors)
    return call(*tensors)  # type: ignore[no-any-return]


def _run(function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
    if tf.executing_eagerly():
        return function.run(tensors, OUTER)
    specs = [OUTER.spec(each) for each in tensors]
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

    @subnormals.unflushed
    def host(*tensors: Any) -> Any:
        try:
            results = function.run(tensors, OUTER)
        except Exception as error:
            # TensorFlow replaces the error by one of its own, which keeps the text and the notes.
            told = function.aside(error)
            if hasattr(error, "add_note"):
                raise
            raise RuntimeError(told) from error
        return results if shapes is None else function.checked(results, shapes)

    return host
