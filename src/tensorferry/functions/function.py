"""`Function`: an inner function of tensors alone, and what is derived from it: gradients, batches of calls."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import fast_paths
from ..core.derivations import Jvp, Vjp, Vmap
from ..errors import ConversionError, CopyRequiredError, LossyCastError, ShapeError
from ..execution.recipes import conversion_as
from ..execution.run import convert
from ..trees.structure import placed
from .flat import NO_PATHS, note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.derivations import Rule, Spec
    from ..execution.recipes import Conversion
    from .flat import Flat

__all__ = ["Adjoint", "Function"]


class Adjoint(NamedTuple):
    """What transposes a linear function.

    Args:
        function: It takes the arguments that are known, and cotangents.
        known: Which arguments those are.
        axes: For each result: the axis along which it is batched, to be moved there from the first; ``None`` to be
            summed over that; ``-1`` where there is no batch.
    """

    function: Function
    known: tuple[int, ...]
    axes: tuple[int | None, ...]


class Function:
    """A function of tensors that gives tensors: a user's, or one that is derived from it.

    It is one object for one derivation, by which a jit knows it again.

    Args:
        flat: The user's.
        arity: How many tensors it takes.
        rules: What it is derived by, the first one first.
        parent: What the last of them was applied to.
    """

    def __init__(self, flat: Flat, arity: int, rules: tuple[Rule, ...] = (), parent: Function | None = None) -> None:
        self.flat = flat
        self.arity = arity
        self.rules = rules
        self.parent = parent
        # By type too: rules of two kinds may be equal as tuples.
        self.derived = lru_cache(maxsize=128, typed=True)(self._derived)
        self._native: Callable[..., Sequence[Any]] | None = None

    def __repr__(self) -> str:
        return "·".join([self.flat.source.name, *(type(rule).__name__.lower() for rule in self.rules)])

    @property
    def native(self) -> Callable[..., Sequence[Any]]:
        """The function of the inner framework's tensors.

        Raises:
            GradientError: There is no such derivative.
        """
        if self._native is None:
            self._native = self.flat.inner.native(self.flat, self.rules)
        return self._native

    def kept(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """What its derivatives take before cotangents and tangents."""
        return (*inputs, *outputs) if self.flat.inner.keeps_outputs else tuple(inputs)

    def _derived(self, rule: Rule) -> Function:
        if isinstance(rule, Vmap):
            arity = self.arity
        else:
            arity = rule.kept + len(rule.outs if isinstance(rule, Vjp) else rule.wrt)
        return Function(self.flat, arity, (*self.rules, rule), self)

    def specs(self, specs: Sequence[Spec]) -> tuple[Spec, ...]:
        """The shapes and dtypes of what it gives, on the inner side, but of gradients, which have their inputs'."""
        if self.parent is None:
            return self.flat.look(tuple(specs)).specs
        rule = self.rules[-1]
        if isinstance(rule, Vjp):
            return tuple(specs[index] for index in rule.wrt)
        if isinstance(rule, Jvp):
            found = self.parent.specs(specs[: self.parent.arity])
            return tuple(found[index] for index in rule.outs)
        one = [_without(spec, axis) for spec, axis in zip(specs, rule.dims, strict=True)]
        return tuple(((rule.size, *shape), name) for shape, name in self.parent.specs(one))

    def adjoint(self, linear: Sequence[int], outs: Sequence[int]) -> Adjoint:
        """What takes cotangents of some outputs to those of the arguments in which it is linear.

        Args:
            linear: Those arguments: tangents of a `Jvp`, cotangents of a `Vjp`.
            outs: The outputs whose cotangents are not zero.
        """
        rule = self.rules[-1]
        parent: Any = self.parent
        if isinstance(rule, Vmap):
            found: Adjoint = parent.adjoint(linear, outs)
            dims = (*(rule.dims[index] for index in found.known), *(0 for _ in outs))
            batched = found.function.derived(Vmap(dims, rule.size))
            return Adjoint(batched, found.known, tuple(rule.dims[index] for index in linear))
        inside = tuple(index - rule.kept for index in linear)
        known = tuple(range(rule.kept))
        turned: Rule
        if isinstance(rule, Jvp):
            turned = Vjp(tuple(rule.wrt[i] for i in inside), tuple(rule.outs[o] for o in outs), rule.kept)
        else:
            turned = Jvp(tuple(rule.wrt[o] for o in outs), tuple(rule.outs[i] for i in inside), rule.kept)
        return Adjoint(parent.derived(turned), known, (-1,) * len(linear))

    # -- the call -------------------------------------------------------------------------------------

    def run(
        self, tensors: Sequence[Any], back: str, *, lent: bool = False, want: Sequence[str] | None = None
    ) -> list[Any]:
        """Carry tensors to the inner framework, call there, and carry back what comes out.

        Args:
            tensors: Of any framework.
            back: The framework of what is to come out.
            lent: Whether their memory is theirs for the time of the call only.
            want: The dtypes of what is to come out, where they may be others than the inner framework's.

        Raises:
            ConversionError: A tensor cannot cross.
        """
        flat = self.flat
        if flat.inner.environment() == flat.environment:
            return self._run(tensors, back, lent, want)
        with flat.inner.under(flat.environment):
            return self._run(tensors, back, lent, want)

    def _run(self, tensors: Sequence[Any], back: str, lent: bool, want: Sequence[str] | None) -> list[Any]:
        flat = self.flat
        lends = flat.lent_to is not None and not lent
        if lent and flat.shares_writable:
            tensors, lent = [tensor.copy() for tensor in tensors], False
        into = flat.into_own if lent else flat.into
        paths = NO_PATHS if lent else flat.paths
        inside = []
        for index, tensor in enumerate(tensors):
            try:
                inside.append(
                    _carried(tensor, into, paths) if not lends else _shared(tensor, flat.lent_to or into, into)
                )
            except ConversionError as error:
                if index >= flat.tensors and isinstance(error, CopyRequiredError):
                    # Consent is to arguments and results: nobody chooses how a gradient lies in memory.
                    inside.append(convert(tensor, conversion_as(flat.inner.name, dtype=flat.source.dtype)))
                    continue
                if isinstance(error, LossyCastError):
                    error.hint = flat.fit if flat.source.dtype is None else None
                raise placed(error, f"{flat.path(index)} of {flat.source.name}") from None
        native = self.native
        try:
            results = native(*inside)
        except Exception as error:
            note(error, flat)
            raise
        copy, fit = flat.source.copy, flat.source.dtype
        if fit is None and want is None and not (copy is False and self.rules):
            outside, paths = conversion_as(back, copy=copy), NO_PATHS if flat.asks else fast_paths.paths_to(back)
            if lends:
                shared, fresh = conversion_as(back, copy=False), flat.inner.fresh(results, inside)
                ways = [(shared, NO_PATHS) if one else (outside, paths) for one in fresh]
                return [_carried(each, *way) for each, way in zip(results, ways, strict=True)]
            return [_carried(each, outside, paths) for each in results]
        pairs = zip(results, want or repeat(fit), strict=False)
        eased = None if self.rules else copy
        return [
            _shared(each, conversion_as(back, dtype=name, copy=copy), conversion_as(back, dtype=name, copy=eased))
            for each, name in pairs
        ]

    def checked(self, results: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Sequence[Any]:
        """The results, if they have the shapes that were promised.

        Raises:
            ShapeError: They have not.
        """
        if len(results) != len(shapes) or any(each.shape != shape for each, shape in zip(results, shapes, strict=True)):
            found = [tuple(each.shape) for each in results]
            raise ShapeError(
                f"{self.flat.source.name} gave the shapes {found}, and before it was traced it promised "
                f"{list(shapes)}: they depend on values, which a traced function must not.",
                "pad to one shape inside the function; or call it outside jit",
            )
        return results


def _carried(tensor: Any, conversion: Conversion, paths: Mapping[type, Callable[[Any], Any]]) -> Any:
    """Convert one tensor, by the fast path of its type if that takes it."""
    try:
        found = paths[type(tensor)](tensor)
    except fast_paths.REFUSALS:
        found = None
    return convert(tensor, conversion) if found is None else found


def _shared(tensor: Any, sharing: Conversion, copying: Conversion) -> Any:
    """Convert one tensor over the same memory if that can be."""
    try:
        return convert(tensor, sharing)
    except CopyRequiredError:
        return convert(tensor, copying)


def _without(spec: Spec, axis: int | None) -> Spec:
    shape, name = spec
    return spec if axis is None else ((*shape[:axis], *shape[axis + 1 :]), name)
