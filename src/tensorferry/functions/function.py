"""`Function`: a function of tensors, or one derived from it: a gradient, a batch of calls."""

from __future__ import annotations

from cmath import isfinite
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.derivations import Jvp, Vjp, Vmap
from ..core.names import EXCHANGE
from ..errors import ConversionError, CopyRequiredError, LossyCastError, ShapeError
from ..execution.recipes import conversion_as
from ..execution.run import convert
from ..host.numpy_dtypes import of_numpy
from ..trees.structure import at_path
from .flat import (
    converter_of_one,
    converter_to,
    first_of,
    is_number,
    keep_exception,
    note_function,
    sharing_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..backends.functions import Outer
    from ..core.derivations import Rule, Spec
    from .flat import TensorFunction

__all__ = ["Adjoint", "Function"]


class Adjoint(NamedTuple):
    """The transpose of a linear function.

    Args:
        function: The transposed function, of the known arguments and of cotangents.
        known: The indices of the known arguments.
        axes: For each result: the axis to which its first axis, the batch, is moved; ``None`` if it
            is summed over the batch; ``-1`` without a batch.
    """

    function: Function
    known: tuple[int, ...]
    axes: tuple[int | None, ...]


class Function:
    """A function from tensors to tensors: the user's, or one that is derived from it.

    The same derivation always gives the same object, so that a jit recognises it.

    Args:
        flat: The user's function.
        arity: The number of tensors that it takes.
        rules: The rules by which it is derived, in order.
        parent: The function to which the last rule was applied.
    """

    def __init__(
        self,
        flat: TensorFunction,
        arity: int,
        rules: tuple[Rule, ...] = (),
        parent: Function | None = None,
    ) -> None:
        self.flat = flat
        self.arity = arity
        self.rules = rules
        self.parent = parent
        # Typed, because rules of two types may be equal as tuples.
        self.derived = lru_cache(maxsize=128, typed=True)(self._derived)
        self._native: Callable[..., Sequence[Any]] | None = None

    def __repr__(self) -> str:
        return "·".join(
            [self.flat.source.name, *(type(rule).__name__.lower() for rule in self.rules)]
        )

    @property
    def native(self) -> Callable[..., Sequence[Any]]:
        """The function for tensors of the inner framework.

        Raises:
            GradientError: There is no such derivative.
        """
        if self._native is None:
            self._native = self.flat.inner.native(self.flat, self.rules)
        return self._native

    def kept(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The tensors that its derivatives take before cotangents or tangents."""
        if self.flat.inner.keeps_outputs:
            return (*inputs, *outputs)
        return tuple(inputs)

    def _derived(self, rule: Rule) -> Function:
        if isinstance(rule, Vmap):
            arity = self.arity
        else:
            arity = rule.kept + len(rule.outs if isinstance(rule, Vjp) else rule.wrt)
        return Function(self.flat, arity, (*self.rules, rule), self)

    def specs(self, specs: Sequence[Spec]) -> tuple[Spec, ...]:
        """The shapes and dtypes of its results in the inner framework.

        Gradients have those of their inputs.
        """
        if self.parent is None:
            return self.flat.output_specs(tuple(specs)).specs
        rule = self.rules[-1]
        if isinstance(rule, Vjp):
            return tuple(specs[index] for index in rule.wrt)
        if isinstance(rule, Jvp):
            arity = self.parent.arity
            # Outputs that were kept are there, and may depend on values, which a look at the
            # function does not have.
            if rule.kept > arity:
                parent_specs = specs[arity : rule.kept]
            else:
                parent_specs = self.parent.specs(specs[:arity])
            return tuple(parent_specs[index] for index in rule.outs)
        unbatched = [_without_axis(spec, axis) for spec, axis in zip(specs, rule.dims, strict=True)]
        return tuple(((rule.size, *shape), name) for shape, name in self.parent.specs(unbatched))

    def adjoint(self, linear: Sequence[int], outs: Sequence[int]) -> Adjoint:
        """The transpose: from cotangents of outputs to those of the arguments it is linear in.

        Args:
            linear: These arguments: the tangents of a `Jvp`, or the cotangents of a `Vjp`.
            outs: The outputs with cotangents that are not zero.
        """
        rule = self.rules[-1]
        parent: Any = self.parent
        if isinstance(rule, Vmap):
            adjoint: Adjoint = parent.adjoint(linear, outs)
            dims = (*(rule.dims[index] for index in adjoint.known), *(0 for _ in outs))
            batched = adjoint.function.derived(Vmap(dims, rule.size))
            return Adjoint(batched, adjoint.known, tuple(rule.dims[index] for index in linear))
        inside = tuple(index - rule.kept for index in linear)
        known = tuple(range(rule.kept))
        turned: Rule
        if isinstance(rule, Jvp):
            turned = Vjp(
                tuple(rule.wrt[i] for i in inside), tuple(rule.outs[o] for o in outs), rule.kept
            )
        else:
            turned = Jvp(
                tuple(rule.wrt[o] for o in outs), tuple(rule.outs[i] for i in inside), rule.kept
            )
        return Adjoint(parent.derived(turned), known, (-1,) * len(linear))

    # -- the call ----------------------------------------------------------------------------------

    def run(self, tensors: Sequence[Any], outer: Outer) -> list[Any]:
        """Convert tensors to the inner framework, call the function, and convert the results back.

        Args:
            tensors: Tensors of the framework that calls.
            outer: The framework that calls.

        Raises:
            ConversionError: A tensor cannot be converted.
        """
        flat = self.flat
        try:
            if flat.inner.environment() == flat.environment:
                return self._run(tensors, outer)
            with flat.inner.under(flat.environment):
                return self._run(tensors, outer)
        except Exception as error:
            first = first_of(error)
            if first is None:
                raise
            note_function(first, flat)
            raise first from error

    def keep_exception(self, error: Exception) -> str:
        """Keep an exception for the runtime's caller; gives the text for the runtime's own."""
        return keep_exception(error, self.flat)

    def _run(self, tensors: Sequence[Any], outer: Outer) -> list[Any]:
        flat, back = self.flat, outer.name
        inside = self._inside(tensors, flat.enter)
        results = self._called(inside)
        if not flat.shares_for_the_call:
            want = None
            if flat.source.dtype is not None and any(isinstance(rule, Vjp) for rule in self.rules):
                # Gradients have the dtypes of their inputs.
                want = [name for _, name in self.specs([*map(outer.spec, tensors)])]
            return self._outside(results, back, want)
        shared, leave = converter_of_one(conversion_as(back, copy=False)), converter_to(back)
        unshared = flat.inner.unshared(results, inside)
        return self._left(results, (shared if is_shared else leave for is_shared in unshared))

    def filler(
        self, want: Sequence[str] | None = None
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """A function that calls it with lent NumPy arrays, and writes results into other arrays.

        Everything that is the same for each call is looked up here, once.

        Args:
            want: The dtypes of the results, if they may differ from those of the inner framework.

        Raises:
            ConversionError: When it is called: results do not have the shapes or dtypes of the
                arrays.
        """
        flat, inner, native = self.flat, self.flat.inner, self.native
        expected, environment = flat.environment, inner.environment
        enter, leave = flat.enter_lent, converter_to(EXCHANGE)

        def fill(arrays: Sequence[Any], outs: Sequence[Any]) -> None:
            if environment() != expected:
                with inner.under(expected):
                    return fill(arrays, outs)
            try:
                inside = [enter(array) for array in arrays]
            except ConversionError:
                inside = self._inside(arrays, enter)
            try:
                results = native(*inside)
            except Exception as error:
                note_function(error, flat)
                raise
            if len(results) == len(outs):
                results = [
                    self._as_promised(y, out) if is_number(y) else y
                    for y, out in zip(results, outs)  # noqa: B905
                ]
            if flat.has_keywords or len(results) != len(outs):
                results = self.checked(
                    self._outside(results, EXCHANGE, want), [out.shape for out in outs]
                )
            for out, result in zip(outs, results):  # noqa: B905 - as many
                array = leave(result)
                if array.shape != out.shape:
                    self.checked([*map(leave, results)], [out.shape for out in outs])
                if array.dtype is not out.dtype and array.dtype != out.dtype:
                    raise LossyCastError(
                        f"{flat.source.name} gave {array.dtype}, "
                        f"and before it promised {out.dtype}."
                    )
                out[...] = array
            return None

        return fill

    def _as_promised(self, number: Any, out: Any) -> Any:
        """A Python number in the dtype of the array into which it is written."""
        array = convert(number, conversion_as(EXCHANGE, dtype=of_numpy(out.dtype)))
        if not isfinite(number) or np.isfinite(array):
            return array
        raise LossyCastError(
            f"{number!r} in the result of {self.flat.source.name} does not fit {out.dtype}.",
            self.flat.hint_of(number),
        )

    def _inside(self, tensors: Sequence[Any], enter: Callable[[Any], Any]) -> list[Any]:
        try:
            return [enter(tensor) for tensor in tensors]
        except ConversionError:
            # Again, one by one, to find the one that fails.
            return [self._eased(tensor, index, enter) for index, tensor in enumerate(tensors)]

    def _eased(self, tensor: Any, index: int, enter: Callable[[Any], Any]) -> Any:
        """Convert one of the tensors after a refusal: copied unless ``copy=False`` is for it."""
        flat = self.flat
        try:
            return enter(tensor)
        except ConversionError as error:
            if index >= flat.tensors and isinstance(error, CopyRequiredError):
                # ``copy=False`` is for arguments and results. The layout of a gradient is not the
                # user's choice.
                return convert(tensor, conversion_as(flat.inner.name, dtype=flat.source.dtype))
            if isinstance(error, LossyCastError):
                if flat.source.dtype is None:
                    error.advise(flat.fit)
                else:
                    error.advise(None)
            raise at_path(error, f"{flat.path(index)} of {flat.source.name}") from None

    def _called(self, inside: Sequence[Any]) -> Sequence[Any]:
        try:
            return (self._native or self.native)(*inside)
        except Exception as error:
            note_function(error, self.flat)
            raise

    def _outside(
        self, results: Sequence[Any], back: str, want: Sequence[str | None] | None
    ) -> list[Any]:
        flat = self.flat
        numbers: dict[int, str] = {}
        if self.rules and all(isinstance(rule, Vmap) for rule in self.rules):
            numbers = dict(flat.tree.numbers)
        if numbers:
            want = [numbers.get(index, flat.source.dtype) for index in range(len(results))]
        elif not flat.has_keywords:
            return self._left(results, repeat(converter_to(back)))
        copy, fit = flat.source.copy, flat.source.dtype
        eased = None if self.rules else copy
        return self._left(
            results,
            (
                sharing_first(
                    conversion_as(back, dtype=name, copy=copy),
                    conversion_as(back, dtype=name, copy=eased),
                )
                for name in want or repeat(fit)
            ),
        )

    def _left(
        self, results: Sequence[Any], converters: Iterable[Callable[[Any], Any]]
    ) -> list[Any]:
        """The results, each converted to the framework that calls.

        Raises:
            ConversionError: One cannot be converted: it is named, and the hint is for `wrap`.
        """
        left: list[Any] = []
        try:
            for result, leave in zip(results, converters):  # noqa: B905 - there may be endless converters
                left.append(leave(result))
        except ConversionError as error:
            flat = self.flat
            if isinstance(error, LossyCastError):
                if flat.source.dtype is None:
                    fits = flat.fit
                else:
                    fits = None
                refused = results[len(left)]
                if is_number(refused):
                    error.advise(flat.hint_of(refused))
                else:
                    error.advise(fits)
            if not self.rules:
                place = flat.tree.path(len(left))
            else:
                place = "a derivative"
            raise at_path(error, f"{place} of {flat.source.name}") from None
        return left

    def checked(self, results: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Sequence[Any]:
        """The results, after a check of their shapes.

        Raises:
            ShapeError: They do not have the promised shapes.
        """
        if len(results) != len(shapes) or any(
            result.shape != shape for result, shape in zip(results, shapes, strict=True)
        ):
            shapes_given = [tuple(result.shape) for result in results]
            raise ShapeError(
                f"{self.flat.source.name} gave the shapes {shapes_given}, "
                "and before it was traced it promised "
                f"{list(shapes)}: they depend on values, which a traced function must not.",
                "pad to one shape inside the function; or call it outside jit",
            )
        return results


def _without_axis(spec: Spec, axis: int | None) -> Spec:
    shape, name = spec
    if axis is None:
        return spec
    return (*shape[:axis], *shape[axis + 1 :]), name
