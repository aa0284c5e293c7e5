"""`Function`: an inner function of tensors alone, and what is derived from it: gradients, batches of calls."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import registry
from ..core import dtypes
from ..core.derivations import Jvp, Vjp, Vmap
from ..core.dtype_names import name_of
from ..errors import ConversionError, LossyCastError, ShapeError
from ..execution.recipes import conversion_as
from ..execution.run import convert
from ..host.numpy_dtypes import numpy_dtype
from ..trees.structure import placed
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.functions import Inner
    from ..core.derivations import Rule, Spec
    from ..trees.structure import Structure

__all__ = ["TENSOR", "Adjoint", "Flat", "Function", "Looked", "OutputTree", "Source"]


class Source(NamedTuple):
    """What a user has written.

    Args:
        function: It takes and gives tensors of the inner framework.
        vjp: ``vjp(primals, outputs, cotangents)`` gives a gradient for each primal, or is not given.
        jvp: ``jvp(primals, tangents)`` gives a tangent for each output, or is not given.
        shapes: Takes objects with ``shape`` and ``dtype``, and gives such for what the function gives.
        dtype: ``"fit"`` narrows what either side has no dtype for.
        copy: ``False`` is consent to share memory with an immutable framework.
        name: What it is called in messages.
    """

    function: Callable[..., Any]
    vjp: Callable[..., Any] | None
    jvp: Callable[..., Any] | None
    shapes: Callable[..., Any] | None
    dtype: str | None
    copy: bool | None
    name: str


class OutputTree(NamedTuple):
    """The tree that a function gave, without its tensors.

    Args:
        structure: The containers; ``None``: it is one tensor.
        leaves: What else is in it; a tensor's place is `TENSOR`.
    """

    structure: Structure | None
    leaves: tuple[Any, ...]

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The same tree with tensors."""
        if self.structure is None:
            return tensors[0]
        found = iter(tensors)
        return self.structure.rebuild([next(found) if leaf is TENSOR else leaf for leaf in self.leaves])


TENSOR: Any = type("Tensor", (), {"__slots__": ()})()
"""Stands for a tensor in a tree."""


_ONE = OutputTree(None, (TENSOR,))


class Shaped:
    """A tensor without values, for ``shapes=``."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype


class Looked(NamedTuple):
    """What a function gives for inputs of some shapes and dtypes."""

    specs: tuple[Spec, ...]
    tree: OutputTree


class Flat:
    """What a user has written, as a function of the tensors among its arguments; the others are fixed.

    Args:
        source: What the user has written.
        inner: Calls it.
        structure: The tree of its positional and its keyword arguments.
        leaves: What is in it; a tensor's place is `TENSOR`.
        environment: What the inner framework was like when it was called.
    """

    tensor = TENSOR

    def __init__(
        self, source: Source, inner: Inner, structure: Structure, leaves: tuple[Any, ...], environment: Hashable
    ) -> None:
        self.source = source
        self.inner = inner
        self.environment = environment
        self.careful = False
        """Whether it could not be looked at before it is called, so that each call is watched."""
        self.changes_inputs = False
        """Whether it was seen to write into its arguments."""
        self.into = conversion_as(inner.name, dtype=source.dtype, copy=source.copy)
        self.into_own = conversion_as(inner.name, dtype=source.dtype, copy=True)
        self.look = lru_cache(maxsize=256)(self._look)
        self.fit = f'ferry.wrap(function, inner="{inner.name}", dtype="fit")'
        """What lets numbers be narrowed."""
        self.side = f"raised in {source.name}, which is {inner.name}'s and was called across frameworks"
        """What is said of an exception."""
        self.tensors = sum(leaf is TENSOR for leaf in leaves)
        self.tree = _ONE
        """What it gave last."""
        self._structure = structure
        self._leaves = leaves
        self._here = threading.local()

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments with these tensors."""
        found = iter(tensors)
        args, keywords = self._structure.rebuild([next(found) if leaf is TENSOR else leaf for leaf in self._leaves])
        return args, keywords

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Call it; what it gave besides tensors is kept for this thread, see `take_tree`."""
        args, keywords = self.arguments(tensors)
        return self.parted(self.source.function(*args, **keywords))

    def parted(self, result: Any) -> tuple[Any, ...]:
        """The tensors of what the function gave."""
        output = self.inner.output
        if registry.is_known_tensor(type(result)) and (tensor := output(result)) is not None:
            self._here.tree = self.tree = _ONE
            return (tensor,)
        leaves, structure = take_apart(result)
        found = [output(leaf) for leaf in leaves]
        kept = tuple(leaf if tensor is None else TENSOR for leaf, tensor in zip(leaves, found, strict=True))
        self._here.tree = self.tree = OutputTree(structure, kept)
        return tuple(tensor for tensor in found if tensor is not None)

    @staticmethod
    def leaves_of(tree: Any) -> list[Any]:
        """What is in a tree."""
        return take_apart(tree)[0]

    def take_tree(self) -> OutputTree | None:
        """The tree that the last call on this thread gave, once."""
        found: OutputTree | None = getattr(self._here, "tree", None)
        self._here.tree = None
        return found

    def path(self, index: int) -> str:
        """What leads to a tensor among the arguments."""
        places = [place for place, leaf in zip(self._structure.paths(), self._leaves, strict=True) if leaf is TENSOR]
        if index >= len(places):
            return f"tensor {index}"
        return places[index].replace("$[0]", "args", 1).replace("$[1]", "keywords", 1)

    def admitted(self, spec: Spec, index: int) -> Spec:
        """What a tensor is on the inner side.

        Raises:
            LossyCastError: The inner framework has no such dtype.
        """
        shape, name = spec
        held = self.into.target.capabilities.dtypes.held
        fitting = dtypes.fit(name, held) if self.source.dtype else name
        if fitting is None or fitting not in held:
            raise LossyCastError(
                f"{self.inner.name} has no {name} as it is set up now, and that is what {self.path(index)} of "
                f"{self.source.name} is.",
                self.fit,
            )
        return shape, fitting

    def _told(self, shapes: Callable[..., Any], specs: Sequence[Spec]) -> Looked:
        """What the user says that it gives."""
        args, keywords = self.arguments([Shaped(shape, numpy_dtype(name)) for shape, name in specs])
        leaves, structure = take_apart(shapes(*args, **keywords))
        told = [hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves]
        found = tuple((tuple(leaf.shape), name_of(leaf.dtype)) for leaf in compress(leaves, told))
        kept = tuple(TENSOR if is_told else leaf for leaf, is_told in zip(leaves, told, strict=True))
        return Looked(found, OutputTree(structure, kept))

    def _look(self, specs: tuple[Spec, ...]) -> Looked:
        inside = [self.admitted(spec, index) for index, spec in enumerate(specs)]
        if self.source.shapes is not None:
            return self._told(self.source.shapes, inside)
        self.take_tree()
        try:
            found = tuple(self.inner.shapes(self, inside))
        except Exception as error:
            note(error, self)
            raise
        tree = self.take_tree()
        self.tree = _ONE if tree is None else tree
        return Looked(found, self.tree)


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
        into = flat.into_own if lent else flat.into
        inside = []
        for index, tensor in enumerate(tensors):
            try:
                inside.append(convert(tensor, into))
            except ConversionError as error:
                if isinstance(error, LossyCastError):
                    error.hint = flat.fit
                raise placed(error, f"{flat.path(index)} of {flat.source.name}") from None
        native = self.native
        try:
            results = native(*inside)
        except Exception as error:
            note(error, flat)
            raise
        if flat.source.dtype is None and want is None:
            outside = conversion_as(back, copy=flat.source.copy)
            return [convert(each, outside) for each in results]
        names = want or ["fit"] * len(results)
        return [
            convert(each, conversion_as(back, dtype=name, copy=flat.source.copy))
            for each, name in zip(results, names, strict=True)
        ]

    def checked(self, results: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Sequence[Any]:
        """The results, if they have the shapes that were promised.

        Raises:
            ShapeError: They have not.
        """
        found = [tuple(each.shape) for each in results]
        if found != list(map(tuple, shapes)):
            raise ShapeError(
                f"{self.flat.source.name} gave the shapes {found}, and before it was traced it promised "
                f"{list(map(tuple, shapes))}: they depend on values, which a traced function must not.",
                "pad to one shape inside the function; or call it outside jit",
            )
        return results


def note(error: BaseException, flat: Flat) -> None:
    """Say on which side an exception was raised; its type stays."""
    text = flat.side
    notes = getattr(error, "__notes__", None)
    if isinstance(error, ConversionError) or (notes and text in notes):
        return
    with suppress(AttributeError, TypeError):  # an exception may refuse attributes
        error.__notes__ = [*(notes or ()), text]  # type: ignore[attr-defined]


def _without(spec: Spec, axis: int | None) -> Spec:
    shape, name = spec
    return spec if axis is None else ((*shape[:axis], *shape[axis + 1 :]), name)
