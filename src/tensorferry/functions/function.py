"""`Function`: an inner function of tensors alone, and what is derived from it: gradients, batches of calls."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import lru_cache
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends import fast_paths, registry
from ..core import dtypes
from ..core.derivations import Jvp, Vjp, Vmap
from ..core.dtype_names import name_of
from ..errors import ConversionError, CopyRequiredError, LossyCastError, ShapeError, UnsupportedTypeError
from ..execution.recipes import conversion_as
from ..execution.run import convert
from ..host.numpy_dtypes import numpy_dtype
from ..trees.structure import placed
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..backends.functions import Inner
    from ..core.derivations import Rule, Spec
    from ..execution.recipes import Conversion
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


_TENSORS: set[type] = set()
"""Types that have been met as tensors."""
_NO_PATHS: Any = {}
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
        borrows = not source.dtype and source.copy is None and inner.borrows(self)
        self.lent_to = conversion_as(inner.name, copy=False) if borrows else None
        """How memory is lent for the time of a call, where the function cannot keep it."""
        self.asks = source.dtype is not None or source.copy is not None
        """Whether more is asked of a conversion than the target."""
        self.paths = _NO_PATHS if self.asks else fast_paths.paths_to(inner.name)
        self.shares_writable = self.into.target.capabilities.memory.writable
        """Whether the inner framework takes writable memory as it is."""
        self.look = lru_cache(maxsize=256)(self._look)
        self.fit = f'ferry.wrap(function, inner="{inner.name}", dtype="fit")'
        """What lets numbers be narrowed."""
        self.side = f"raised in {source.name}, which is {inner.name}'s and was called across frameworks"
        """What is said of an exception."""
        self.tensors = sum(leaf is TENSOR for leaf in leaves)
        self.tree = _ONE
        """What it gave last."""
        self._structure = structure
        places = tuple(range(len(leaves)))
        self._takes_tensors = self.tensors == len(leaves) and structure.rebuild(places) == (places, {})
        """Whether its arguments are tensors, by position."""
        self._leaves = leaves
        self._here = threading.local()

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments with these tensors."""
        found = iter(tensors)
        args, keywords = self._structure.rebuild([next(found) if leaf is TENSOR else leaf for leaf in self._leaves])
        return args, keywords

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Call it; what it gave besides tensors is kept for this thread, see `take_tree`."""
        if self._takes_tensors:
            return self.parted(self.source.function(*tensors))
        args, keywords = self.arguments(tensors)
        return self.parted(self.source.function(*args, **keywords))

    def parted(self, result: Any) -> tuple[Any, ...]:
        """The tensors of what the function gave."""
        if type(result) in _TENSORS or registry.is_known_tensor(type(result)):
            _TENSORS.add(type(result))
            self._here.tree = self.tree = _ONE
            return (self._tensor(result),)
        leaves, structure = take_apart(result)
        found = [self._tensor(leaf) for leaf in leaves]
        kept = tuple(leaf if tensor is None else TENSOR for leaf, tensor in zip(leaves, found, strict=True))
        self._here.tree = self.tree = OutputTree(structure, kept)
        return tuple(tensor for tensor in found if tensor is not None)

    def _tensor(self, leaf: Any) -> Any:
        """A part of what the function gave, as a tensor of the inner framework; ``None``: it is none."""
        found = self.inner.output(leaf)
        if found is None and registry.is_tensor(type(leaf)):
            raise UnsupportedTypeError(
                f"{self.source.name} is {self.inner.name}'s, and gave a tensor of {registry.backend_of(leaf).name}'s.",
                f'ferry.convert(x, "{self.inner.name}") where it returns',
            )
        return found

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
        lends = flat.lent_to is not None and not lent
        if lent and flat.shares_writable:
            tensors, lent = [tensor.copy() for tensor in tensors], False
        into = flat.into_own if lent else flat.into
        paths = _NO_PATHS if lent else flat.paths
        inside = []
        for index, tensor in enumerate(tensors):
            try:
                inside.append(_carried(tensor, into, paths) if not lends else _lent(tensor, flat))
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
        copy, fit = flat.source.copy, flat.source.dtype
        if fit is None and want is None:
            outside, paths = conversion_as(back, copy=copy), _NO_PATHS if flat.asks else fast_paths.paths_to(back)
            if lends:
                shared, fresh = conversion_as(back, copy=False), flat.inner.fresh(results, inside)
                ways = [(shared, _NO_PATHS) if one else (outside, paths) for one in fresh]
                return [_carried(each, *way) for each, way in zip(results, ways, strict=True)]
            return [_carried(each, outside, paths) for each in results]
        pairs = zip(results, want or repeat(fit), strict=False)
        return [convert(each, conversion_as(back, dtype=name, copy=copy)) for each, name in pairs]

    def checked(self, results: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Sequence[Any]:
        """The results, if they have the shapes that were promised.

        Raises:
            ShapeError: They have not.
        """
        if any(each.shape != shape for each, shape in zip(results, shapes, strict=True)):
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


def _lent(tensor: Any, flat: Flat) -> Any:
    """A tensor for the time of a call, over the same memory if that can be."""
    try:
        return convert(tensor, flat.lent_to or flat.into)
    except CopyRequiredError:
        return convert(tensor, flat.into)


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
