"""Functions across frameworks, for NumPy: its functions for others, and others for its arrays.

The user gives the derivatives of a function of NumPy's. NumPy has no graph, so functions of other
frameworks are only called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.derivations import Jvp, Vjp, Vmap
from ...core.dtypes import DTYPES
from ...errors import GradientError, ShapeError, UnsupportedTypeError
from ...hints import Hint
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from ..functions import Inner, Outer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.derivations import Rule, Spec
    from ..functions import Function, TensorFunction

__all__ = ["INNER", "OUTER"]

_ONE = "vjp(primals, outputs, cotangents) and jvp(primals, tangents) are first derivatives"


# -- functions of NumPy, called from other frameworks ----------------------------------------------


class NumpyInner(Inner):
    """Calls functions of NumPy."""

    name = "numpy"
    keeps_outputs = True

    def output(self, leaf: Any) -> Any:
        if isinstance(leaf, (np.ndarray, np.generic)):
            return np.asarray(leaf)
        return None

    def native(self, flat: TensorFunction, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        derivatives = [rule for rule in rules if not isinstance(rule, Vmap)]
        if len(derivatives) > 1:
            raise GradientError(
                f"{flat.source.name} is NumPy's, and has no second derivative: {_ONE}.",
                None,
            )
        if not rules:
            return lambda *arrays: [_own(y) for y in flat.plain(*map(_read_only, arrays))]
        return _derived(flat, list(rules))

    def shapes(self, flat: TensorFunction, specs: Sequence[Spec]) -> Sequence[Spec]:
        """Call it once with ones, because NumPy has no arrays without values."""
        trial = [np.ones(shape, numpy_dtype(name)) for shape, name in specs]
        try:
            results = flat(*trial)
        except Exception as error:
            raise UnsupportedTypeError(
                f"The shapes that {flat.source.name} gives were to be found by calling it once "
                "with ones, and it "
                f"raised {type(error).__name__}: {error}",
                Hint(
                    hints.code('wrap(function, inner="numpy", shapes=lambda x: x)'),
                    " says them without a call",
                ),
            ) from error
        return [(y.shape, of_numpy(y.dtype) or "") for y in results]

    def derivatives(self, flat: TensorFunction) -> str:
        derivatives = (("reverse", flat.source.vjp), ("forward", flat.source.jvp))
        modes = " and in ".join(
            f"{mode} mode" for mode, function in derivatives if function is not None
        )
        if modes:
            return f"of the first order in {modes}"
        return "none, without vjp= and jvp="

    def remarks(self, flat: TensorFunction) -> Sequence[str]:
        if flat.source.shapes is None:
            return [
                (
                    "where it is traced, it is called once with ones to find its shapes, unless "
                    "shapes= says them"
                )
            ]
        return ()


def _derived(flat: TensorFunction, rules: list[Rule]) -> Callable[..., Sequence[Any]]:
    """The derived function. Batches of calls are loops."""
    if not rules:
        return lambda *arrays: [np.array(y) for y in flat(*map(_read_only, arrays))]
    *before, rule = rules
    if isinstance(rule, Vmap):
        return _looped(_derived(flat, before), rule)
    if before:
        # The derivative of a batch of calls: a batch of derivatives, summed for inputs that all
        # calls share.
        *earlier, batch = before
        return _batched_derivative(flat, earlier, batch, rule)
    if isinstance(rule, Vjp):
        return _vjp(flat, rule)
    return _jvp(flat, rule)


def _own(y: Any) -> Any:
    """An array that the function cannot write to later; a number of Python's as it is."""
    return np.array(y) if isinstance(y, np.ndarray) else y


def _read_only(array: Any) -> Any:
    """A read-only view, because a function must not change its arguments."""
    view = array.view()
    view.flags.writeable = False
    return view


def _looped(function: Callable[..., Sequence[Any]], rule: Vmap) -> Callable[..., Sequence[Any]]:
    def batch(*arrays: Any) -> Sequence[Any]:
        rows = [
            function(
                *(
                    x if axis is None else np.take(x, i, axis)
                    for x, axis in zip(arrays, rule.dims, strict=True)
                )
            )
            for i in range(rule.size)
        ]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    return batch


def _batched_derivative(
    flat: TensorFunction, earlier: list[Rule], batch: Any, rule: Vjp | Jvp
) -> Callable[..., Sequence[Any]]:
    """The derivative of a batch of calls."""
    derivative_of_one = _derived(flat, [*earlier, rule])
    inputs = len(batch.dims)
    outputs = (0,) * (rule.kept - inputs)
    if isinstance(rule, Vjp):
        others = (0,) * len(rule.outs)
    else:
        others = tuple(batch.dims[index] for index in rule.wrt)
    loop = _looped(derivative_of_one, Vmap((*batch.dims, *outputs, *others), batch.size))

    def derivative(*arrays: Any) -> Sequence[Any]:
        outputs = loop(*arrays)
        if isinstance(rule, Jvp):
            return outputs
        dims = [batch.dims[index] for index in rule.wrt]
        return [
            x.sum(0) if axis is None else np.moveaxis(x, 0, axis)
            for x, axis in zip(outputs, dims, strict=True)
        ]

    return derivative


class _Arguments:
    """The arguments of a derivative that the user has written.

    Raises:
        GradientError: The function was called with keywords.
    """

    def __init__(self, flat: TensorFunction, rule: Vjp | Jvp, arrays: Sequence[Any]) -> None:
        count = flat.tensors
        self.flat, self.rule = flat, rule
        self.inputs = [_read_only(x) for x in arrays[:count]]
        self.outputs = [_read_only(y) for y in arrays[count : rule.kept]]
        self.derivatives = arrays[rule.kept :]
        self.primals, keywords = flat.arguments(self.inputs)
        if keywords:
            raise GradientError(
                f"{flat.source.name} was called with keywords, which vjp= and jvp= do not get.",
                "pass every argument by position",
            )

    def like_inputs(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The positional arguments with other arrays."""
        return self.flat.arguments(arrays)[0]

    def like_outputs(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of the function, as a tuple, with other arrays."""
        outputs = self.flat.tree.filled(arrays)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def read(
        self,
        name: str,
        result: Any,
        like: tuple[Any, ...],
        arrays: Sequence[Any],
        which: Sequence[int],
    ) -> Any:
        """Check the result of a derivative, a tuple like `like`.

        Gives its arrays with the indices in `which`.

        Raises:
            TypeError: It is not a tuple, has another length, or has another kind of number.
            ShapeError: One has another shape.
        """
        where = f"{name}= of {self.flat.source.name}"
        if not isinstance(result, tuple) or len(result) != len(like):
            if isinstance(result, tuple):
                kind = f"a tuple of {len(result)}"
            else:
                kind = type(result).__name__
            raise TypeError(f"{where} gave {kind}, and has to give a tuple of {len(like)}")
        leaves: list[Any] = []
        for part, whole in zip(result, like, strict=True):
            expected = [leaf for leaf in self.flat.leaves_of(whole) if isinstance(leaf, np.ndarray)]
            if part is None:
                mine = [None] * len(expected)
            else:
                mine = self.flat.leaves_of(part)
            if len(mine) != len(self.flat.leaves_of(whole)) and part is not None:
                raise TypeError(
                    f"{where} gave a tree of {len(mine)} leaves in the place of one of "
                    f"{len(expected)}"
                )
            if part is not None:
                pairs = zip(mine, self.flat.leaves_of(whole), strict=True)
                mine = [array for array, leaf in pairs if isinstance(leaf, np.ndarray)]
            leaves += mine
        return [_checked(leaves[index], arrays[index], where) for index in which]


def _checked(result: Any, like: Any, where: str) -> Any:
    if result is None:
        return np.zeros_like(like)
    array = np.asarray(result)
    if array.shape != like.shape:
        raise ShapeError(
            f"{where} gave the shape {array.shape} for one of shape {like.shape}.", None
        )
    if not np.can_cast(array.dtype, like.dtype, "same_kind"):
        raise TypeError(
            f"{where} gave {array.dtype} for {like.dtype}: "
            f"{'its .real' if array.dtype.kind == 'c' else ''}"
        )
    return array.astype(like.dtype)


def _spread(arrays: Sequence[Any], which: Sequence[int], like: Sequence[Any]) -> list[Any]:
    """For each of `like`: one of `arrays` (by `which`), zeros, or ``None`` for integers."""
    spread: list[Any] = [np.zeros_like(x) if _is_inexact(x) else None for x in like]
    for index, x in zip(which, arrays, strict=True):
        spread[index] = _read_only(x)
    return spread


def _is_inexact(x: Any) -> bool:
    return DTYPES[of_numpy(x.dtype) or "bool"].kind in ("float", "complex")


def _vjp(flat: TensorFunction, rule: Vjp) -> Callable[..., Sequence[Any]]:
    vjp = flat.source.vjp
    if vjp is None:
        raise GradientError(
            f"{flat.source.name} is NumPy's, and no gradient of it is known.",
            'wrap(function, inner="numpy", vjp=vjp), with vjp(primals, outputs, cotangents) that '
            "gives gradients",
        )

    def gradients(*arrays: Any) -> Sequence[Any]:
        parts = _Arguments(flat, rule, arrays)
        cotangents = parts.like_outputs(_spread(parts.derivatives, rule.outs, parts.outputs))
        gradients_given = vjp(parts.primals, parts.like_outputs(parts.outputs), cotangents)
        return parts.read("vjp", gradients_given, parts.primals, parts.inputs, rule.wrt)  # type: ignore[no-any-return]

    return gradients


def _jvp(flat: TensorFunction, rule: Jvp) -> Callable[..., Sequence[Any]]:
    jvp = flat.source.jvp
    if jvp is None:
        raise GradientError(
            f"{flat.source.name} is NumPy's, and no forward mode of it is known.",
            'wrap(function, inner="numpy", jvp=jvp), with jvp(primals, tangents) that gives output '
            "tangents",
        )

    def tangents(*arrays: Any) -> Sequence[Any]:
        parts = _Arguments(flat, rule, arrays)
        moved = jvp(
            parts.primals, parts.like_inputs(_spread(parts.derivatives, rule.wrt, parts.inputs))
        )
        return parts.read("jvp", moved, parts.like_outputs(parts.outputs), parts.outputs, rule.outs)  # type: ignore[no-any-return]

    return tangents


INNER = NumpyInner()


# -- functions of other frameworks, called with arrays ---------------------------------------------


class NumpyOuter(Outer):
    """Calls functions with arrays."""

    name = "numpy"
    differentiates = False
    modes = ()

    def spec(self, tensor: Any) -> Spec:
        return tensor.shape, of_numpy(tensor.dtype) or ""

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        return function.run(tensors, self)


OUTER = NumpyOuter()
