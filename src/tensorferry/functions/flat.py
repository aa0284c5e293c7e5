"""A user's function as a function of only the tensors among its arguments."""

from __future__ import annotations

import threading
import traceback
import warnings
from collections import deque
from contextlib import suppress
from functools import lru_cache
from itertools import compress, islice
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import hints
from ..backends import fast_paths, registry
from ..backends.base import Backend
from ..core import dtypes
from ..core.dtype_names import name_of
from ..core.names import EXCHANGE
from ..errors import (
    ConversionError,
    CopyRequiredError,
    LossyCastError,
    UnsupportedTypeError,
    an,
    frames_of_ours,
)
from ..execution.recipes import conversion_as
from ..execution.run import convert, prepare_unread
from ..hints import Hint
from ..host.numpy_dtypes import numpy_dtype
from ..trees.containers import is_used_up, may_hold
from ..trees.leaves import leaf_rule
from ..trees.structure import at_path
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.functions import Inner
    from ..core.derivations import Spec
    from ..execution.recipes import Conversion
    from ..trees.structure import Structure

    Converter = Callable[[Any], Any]

__all__ = [
    "TENSOR",
    "OutputSpecs",
    "OutputTree",
    "TensorFunction",
    "UserFunction",
    "converter_of_one",
    "converter_to",
    "first_of",
    "hint_to_fit",
    "is_number",
    "is_text",
    "keep_exception",
    "note_function",
    "path_of",
    "refusal_of",
    "sharing_first",
]


# -- converters of arguments and results -----------------------------------------------------------


def converter_of_one(conversion: Conversion) -> Converter:
    """A function that converts one tensor."""
    return lambda x: convert(x, conversion)


def sharing_first(sharing: Conversion, copying: Conversion) -> Converter:
    """A function that converts one tensor by `sharing` if possible, and otherwise by `copying`."""

    def share(x: Any) -> Any:
        try:
            return convert(x, sharing)
        except CopyRequiredError:
            return convert(x, copying)

    return share


@lru_cache(maxsize=64)
def converter_to(name: str, *, lent: bool = False) -> Converter:
    """A function that converts one tensor, without keywords, by its type's fast path if possible.

    Args:
        name: The name of the framework.
        lent: Whether the tensor is an array whose memory is only lent for the call, so that it must
            be copied.
    """
    conversion, paths, not_accepted = (
        conversion_as(name),
        fast_paths.paths_to(name),
        fast_paths.NOT_ACCEPTED,
    )

    def convert_here(x: Any) -> Any:
        if lent:
            x = x.copy()
        try:
            converted = paths[type(x)](x)
        except not_accepted:
            converted = None
        if converted is None:
            return convert(x, conversion)
        return converted

    return convert_here


registry.on_change.append(converter_to.cache_clear)


# -- the function of the tensors among its arguments -----------------------------------------------


class UserFunction(NamedTuple):
    """The user's function, and the keywords of `wrap`.

    Args:
        function: The function, for tensors of the inner framework.
        vjp: ``vjp(primals, outputs, cotangents)``, which gives a gradient for each primal; or
            ``None``.
        jvp: ``jvp(primals, tangents)``, which gives a tangent for each output; or ``None``.
        shapes: A function from objects with ``shape`` and ``dtype`` to such objects for the
            results; or ``None``.
        dtype: ``"fit"`` to replace dtypes that one side does not have.
        copy: ``False`` consents to share memory with an immutable framework.
        name: The function's name in messages.
    """

    function: Callable[..., Any]
    vjp: Callable[..., Any] | None
    jvp: Callable[..., Any] | None
    shapes: Callable[..., Any] | None
    dtype: str | None
    copy: bool | None
    name: str


class OutputTree(NamedTuple):
    """The tree that a function returned, without its tensors.

    Args:
        structure: The containers; ``None`` if the result is one tensor.
        leaves: The leaves, with `TENSOR` in place of each tensor.
        numbers: The positions of Python's numbers among the tensors, each with its dtype in the
            framework that calls.
    """

    structure: Structure | None
    leaves: tuple[Any, ...]
    numbers: tuple[tuple[int, str], ...] = ()

    def path(self, index: int) -> str:
        """The path of a tensor in the result, in errors."""
        if self.structure is None:
            return "result"
        paths = compress(self.structure.paths(), (leaf is TENSOR for leaf in self.leaves))
        return next(islice(paths, index, None), "$").replace("$", "result", 1)

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The tree, with these tensors."""
        if self.structure is None:
            return tensors[0]
        remaining = iter(tensors)
        return self.structure.rebuild(
            [next(remaining) if leaf is TENSOR else leaf for leaf in self.leaves]
        )


TENSOR: Any = type("Tensor", (), {"__slots__": ()})()
"""A placeholder for a tensor in a tree."""

_ONE = OutputTree(None, (TENSOR,))
_RULE = leaf_rule("tensors")
"""Which objects hold tensors."""


class ShapeDtype:
    """A tensor without values, for ``shapes=``."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype


class OutputSpecs(NamedTuple):
    """What a function returns for inputs of some shapes and dtypes."""

    specs: tuple[Spec, ...]
    tree: OutputTree


@lru_cache(maxsize=64)
def positional_structure(count: int) -> Structure:
    """The structure of `count` positional arguments that are not containers."""
    return take_apart(((TENSOR,) * count, {}))[1]


def refusal_of(kind: type) -> UnsupportedTypeError | None:
    """The error for a framework's type with numbers that is no tensor; ``None`` for all others."""
    refused = registry.refusal_of(kind)
    ordinary = [
        backend for backend in registry.known().values() if not backend.capabilities.memory.exists
    ]
    if refused is None or any(backend.refusal(kind) for backend in ordinary):
        return None
    return refused


def is_text(leaf: Any) -> bool:
    """Whether a leaf of a tensor type holds text: it stays as it is, as in `convert_tree`.

    Text of a framework with a graph is a tensor of this graph, and not fixed.
    """
    if not registry.is_tensor(type(leaf)):
        return False
    backend = registry.backend_of(leaf)
    return _may_be_text(backend) and backend.is_text(leaf)


@lru_cache(maxsize=64)
def _may_be_text(backend: Backend) -> bool:
    gradients = backend.capabilities.gradients
    return type(backend).is_text is not Backend.is_text and not (gradients.graph or gradients.tape)


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a number of Python's, which has no dtype.

    NumPy's have one, also where they are a subclass.
    """
    return isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic)


def _is_later(kind: type) -> bool:
    """Whether objects of a type give what they have only when somebody waits for it."""
    return hasattr(kind, "__await__") or hasattr(kind, "__anext__")


def hint_to_fit(inner: str) -> str:
    """The hint with ``dtype="fit"``."""
    return f'wrap(function, inner="{inner}", dtype="fit")'


def path_of(structure: Structure, index: int) -> str:
    """The path of a leaf among the positional and the keyword arguments."""
    return list(structure.paths())[index].replace("$[0]", "args", 1).replace("$[1]", "keywords", 1)


class TensorFunction:
    """The user's function, as a function of only the tensors among its arguments.

    All other arguments are fixed.

    Args:
        source: The user's function.
        inner: Calls functions of its framework.
        structure: The structure of its positional and keyword arguments.
        leaves: The leaves of the arguments, with `TENSOR` in place of each tensor.
        environment: The settings of the inner framework when it was called.
        outer: The name of the framework that calls.
    """

    tensor = TENSOR

    def __init__(
        self,
        source: UserFunction,
        inner: Inner,
        structure: Structure,
        leaves: tuple[Any, ...],
        environment: Hashable,
        outer: str,
    ) -> None:
        self.source = source
        self.inner = inner
        self.environment = environment
        self.outer = outer
        self.checks_each_call = False
        """Whether each call is checked, because the function could not be traced before."""
        self.generators: frozenset[Any] = frozenset()
        """Weak references to the random generators that it used.

        It may make a new one in each call.
        """
        self.changes_inputs = False
        """Whether it has written into its arguments."""
        self.steers_autograd = False
        """Whether it takes derivatives itself, or makes tensors require grad."""
        self.switches_autograd_off = False
        """Whether it computes a part without recording it."""
        self.makes_leaves = False
        """Whether its results have a graph that ends in tensors that it makes."""
        self.has_keywords = source.dtype is not None or source.copy is not None
        """Whether conversions have keywords."""
        self.into = conversion_as(inner.name, dtype=source.dtype, copy=source.copy)
        self.shares_for_the_call = not self.has_keywords and inner.borrows(self)
        """Whether arguments can use memory valid only in the call: the function cannot keep it."""
        if self.has_keywords:
            ordinary = converter_of_one(self.into)
        else:
            ordinary = converter_to(inner.name)
        self.lent_to = self.into
        """The conversion of arguments."""
        self.enter = ordinary
        """Converts a tensor to the inner framework."""
        if self.shares_for_the_call:
            self.lent_to = conversion_as(inner.name, copy=False)
            self.enter = sharing_first(self.lent_to, self.into)
        self.enter_lent = self._converter_of_lent(ordinary)
        """Converts an array whose memory is only lent for the call."""
        self.output_specs = lru_cache(maxsize=256)(self._output_specs)
        self.fit = hint_to_fit(inner.name)
        self.origin = (
            f"raised in {source.name}, which is {inner.name}'s and was called across frameworks"
        )
        """The note that is added to exceptions."""
        self.tensors = sum(leaf is TENSOR for leaf in leaves)
        self.tree = _ONE
        """The tree that it returned last."""
        self._structure = structure
        self._takes_tensors = self.tensors == len(leaves) and structure.is_like(
            positional_structure(len(leaves))
        )
        """Whether all its arguments are positional tensors."""
        self._leaves = leaves
        self._own: set[type] = set()
        """Types of the inner framework's tensors."""
        self._no_tensors: set[type] = set()
        """Types of other results."""
        self._here = threading.local()

    def _converter_of_lent(self, ordinary: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function that converts an array whose memory is only lent: it never shares it.

        Args:
            ordinary: Converts any other tensor.
        """
        name = self.inner.name
        if not self.into.target.capabilities.memory.writable:
            return converter_of_one(conversion_as(name, dtype=self.source.dtype, copy=True))
        # An ordinary conversion would share writable memory.
        if self.has_keywords:
            return lambda array: ordinary(array.copy())
        return converter_to(name, lent=True)

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments, with these tensors."""
        remaining = iter(tensors)
        args, keywords = self._structure.rebuild(
            [next(remaining) if leaf is TENSOR else leaf for leaf in self._leaves]
        )
        return args, keywords

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Call it.

        The rest of the result, without tensors, is kept for this thread: see `take_tree`.
        """
        result = self._result(tensors)
        if type(result) in self._own:
            self._here.tree = self.tree = _ONE
            return (result,)
        return self._parted(result, plain=False)

    def plain(self, *tensors: Any) -> tuple[Any, ...]:
        """Call it for its values only: Python's numbers in the result stay what they are."""
        result = self._result(tensors)
        if type(result) in self._own:
            self._here.tree = self.tree = _ONE
            return (result,)
        return self._parted(result, plain=True)

    def _result(self, tensors: Sequence[Any]) -> Any:
        if self._takes_tensors:
            return self.source.function(*tensors)
        args, keywords = self.arguments(tensors)
        return self.source.function(*args, **keywords)

    def _parted(self, result: Any, *, plain: bool) -> tuple[Any, ...]:
        """The tensors of the function's result."""
        if not is_number(result) and registry.is_known_tensor(type(result)) and not is_text(result):
            tensors = self._tensor(result)
            if tensors is result and not _may_be_text(registry.backend_of(result)):
                self._own.add(type(result))
            self._here.tree = self.tree = _ONE
            return (tensors,)
        leaves, structure = take_apart(result)
        kept, tensors, numbers = [], [], []
        for leaf in leaves:
            number = is_number(leaf)
            tensor = leaf if number else self._tensor(leaf)
            kept.append(leaf if tensor is None else TENSOR)
            if number:
                numbers.append((len(tensors), self._dtype_of(leaf)))
            if tensor is not None:
                tensors.append(tensor)
        tree = OutputTree(structure, tuple(kept), tuple(numbers))
        self._here.tree = self.tree = tree
        if not plain:
            for place, dtype in numbers:
                tensors[place] = self._tensor_of(tensors[place], dtype)
        return tuple(tensors)

    def _dtype_of(self, number: Any) -> str:
        """The dtype that the framework that calls gives a Python number, which has none itself.

        Raises:
            LossyCastError: It has none that holds the number.
        """
        try:
            return prepare_unread(number, conversion_as(self.outer)).plan.result.dtype
        except LossyCastError as error:
            error.advise(self.hint_of(number))
            raise at_path(error, f"a number in the result of {self.source.name}") from None

    def hint_of(self, number: Any) -> str:
        """What to return for a Python number the calling framework does not hold by default."""
        wide = "float64"
        if isinstance(number, int):
            wide = "int64"
        elif isinstance(number, complex):
            wide = "complex128"
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            return "float(number), which rounds"
        dtypes_there = conversion_as(self.outer).target.capabilities.dtypes
        if wide in dtypes_there.absent_reasons:
            return dtypes_there.absent_hint
        return f"numpy.{wide}(number)"

    def hint_of_zeros(self) -> str:
        """What to type in the framework that calls, if a gradient of zeros is what is meant."""
        stopped = conversion_as(self.outer).target.capabilities.gradients.stopped
        return f"{stopped or 'a constant'} as its argument, if zeros are meant"

    def warn_of_zeros(self, outs: Sequence[int]) -> None:
        """Warn of results whose tangents are zeros, their graph lost, beside others that have one.

        In reverse mode a result that is not used is not asked for. Forward mode asks for all of
        them.
        """
        places = " and ".join(map(self.tree.path, outs))
        warnings.warn(
            f"The tangents of {places} of {self.source.name} are zeros, because the function keeps "
            "no graph of how it "
            "depends on the arguments. That is right only if they are not used. Else: the function "
            "without a detach; "
            f"or {self.hint_of_zeros()}",
            RuntimeWarning,
            stacklevel=frames_of_ours(),
        )

    def _tensor_of(self, number: Any, dtype: str) -> Any:
        """A Python number as a tensor of the inner framework, for derivatives and batches."""
        if dtype not in self.into.target.capabilities.dtypes.held:
            return convert(number, conversion_as(self.inner.name))
        # By way of an array, because a tracing mode of the inner framework may watch all else.
        return self.inner.output(convert(number, conversion_as(EXCHANGE, dtype=dtype)))

    def _tensor(self, leaf: Any) -> Any:
        """A result's leaf as a tensor of the inner framework; ``None`` if it is not a tensor."""
        if type(leaf) in self._no_tensors or is_text(leaf):
            return None
        tensor = self.inner.output(leaf)
        if tensor is None:
            if registry.is_tensor(type(leaf)):
                owner = registry.backend_of(leaf).name
                raise UnsupportedTypeError(
                    f"{self.source.name} is {self.inner.name}'s, and gave a tensor of {owner}'s.",
                    Hint(hints.code(f'convert(x, "{self.inner.name}")'), " where it returns"),
                )
            refused = refusal_of(type(leaf))
            if refused is not None:
                raise at_path(refused, f"what {self.source.name} gives")
            if may_hold(type(leaf)) or _is_later(type(leaf)):
                self._refuse_holder(leaf)
            else:
                self._no_tensors.add(type(leaf))
        return tensor

    def _refuse_holder(self, leaf: Any) -> None:
        """Raise for a result's object that holds tensors, which would stay, or gives them later.

        Raises:
            UnsupportedTypeError: It is one.
        """
        kind = type(leaf)
        stays = f"would stay {self.inner.name}'s, without a gradient"
        if is_used_up(kind):
            raise UnsupportedTypeError(
                f"{self.source.name} gives {an(kind.__name__)}, whose tensors {stays}: a look "
                "would use it up.",
                "a tuple of it where it returns",
            )
        if _is_later(kind):
            if isinstance(leaf, CoroutineType):
                leaf.close()  # nobody gets it, to wait for it
            raise UnsupportedTypeError(
                f"{self.source.name} gives {an(kind.__name__)}, whose tensors {stays}: "
                "they are not there yet.",
                "a function without async, which awaits what it needs",
            )
        inside = _RULE.tensor_inside(leaf)
        if inside is not None:
            raise UnsupportedTypeError(
                f"{self.source.name} gives {an(kind.__name__)}, which is not a container that "
                "tensorferry knows, and "
                f"its tensor at {inside} {stays}.",
                "a dict or a tuple of its tensors where it returns",
            )

    @staticmethod
    def leaves_of(tree: Any) -> list[Any]:
        """The leaves of a tree."""
        return take_apart(tree)[0]

    def take_tree(self) -> OutputTree | None:
        """The tree that the last call on this thread returned. It is given only once."""
        tree: OutputTree | None = getattr(self._here, "tree", None)
        self._here.tree = None
        return tree

    def path(self, index: int) -> str:
        """The path of a tensor among the arguments."""
        places = [place for place, leaf in enumerate(self._leaves) if leaf is TENSOR]
        if index < len(places):
            return path_of(self._structure, places[index])
        return f"tensor {index}"

    def admitted(self, spec: Spec, index: int) -> Spec:
        """The shape and dtype of a tensor in the inner framework.

        Raises:
            LossyCastError: The inner framework has no such dtype.
        """
        shape, name = spec
        held = self.into.target.capabilities.dtypes.held
        if self.source.dtype:
            fitting = dtypes.fitting_dtype(name, held)
        else:
            fitting = name
        if fitting is None or fitting not in held:
            raise LossyCastError(
                f"{self.inner.name} has no {name} as it is set up now, and that is what "
                f"{self.path(index)} of "
                f"{self.source.name} is.",
                self.fit,
            )
        return shape, fitting

    def trace_first(self, trace: Callable[[], object]) -> None:
        """Trace the function before it is called.

        If that is impossible without values, each call is checked instead.
        """
        try:
            trace()
        except UnsupportedTypeError as error:
            if error.__cause__ is None:
                raise
            self.checks_each_call = True

    def _specs_told(self, shapes: Callable[..., Any], specs: Sequence[Spec]) -> OutputSpecs:
        """The shapes and dtypes of the results, from the user's ``shapes=``."""
        args, keywords = self.arguments(
            [ShapeDtype(shape, numpy_dtype(name)) for shape, name in specs]
        )
        leaves, structure = take_apart(shapes(*args, **keywords))
        told = [hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves]
        told_specs = tuple(
            (tuple(leaf.shape), name_of(leaf.dtype)) for leaf in compress(leaves, told)
        )
        kept = tuple(
            TENSOR if is_told else leaf for leaf, is_told in zip(leaves, told, strict=True)
        )
        return OutputSpecs(told_specs, OutputTree(structure, kept))

    def _output_specs(self, specs: tuple[Spec, ...]) -> OutputSpecs:
        inside = [self.admitted(spec, index) for index, spec in enumerate(specs)]
        if self.source.shapes is not None:
            if self.inner.traces_first:
                self.trace_first(lambda: self.inner.shapes(self, inside))
            return self._specs_told(self.source.shapes, inside)
        self.take_tree()
        try:
            inner_shapes = tuple(self.inner.shapes(self, inside))
        except Exception as error:
            note_function(error, self)
            raise
        tree = self.take_tree()
        self.tree = _ONE if tree is None else tree
        numbers = dict(self.tree.numbers)
        inner_specs = enumerate(inner_shapes)
        return OutputSpecs(
            tuple((shape, numbers.get(place, name)) for place, (shape, name) in inner_specs),
            self.tree,
        )


_kept_exceptions: deque[tuple[str, str, Exception]] = deque(maxlen=8)
"""Exceptions that were raised in callbacks of a runtime, with their texts and notes."""


def keep_exception(error: Exception, flat: TensorFunction) -> str:
    """Keep an exception that a runtime will replace by its own; gives the text for that one."""
    error = first_of(error) or error
    words = f"{type(error).__qualname__}: {error}"
    traceback.clear_frames(error.__traceback__)
    _kept_exceptions.append((words, flat.origin, error))
    notes = dict.fromkeys([*getattr(error, "__notes__", ()), flat.origin])
    return f"{words} ({'; '.join(notes)})"


def first_of(error: Exception) -> Exception | None:
    """The kept exception that a runtime replaced, maybe on another thread; ``None`` if none."""
    if not _kept_exceptions:
        return None  # to make the text of an exception may take long
    text = str(error)
    for kept in reversed(list(_kept_exceptions)):
        words, origin, first = kept
        if words in text and origin in text and first is not error:
            with suppress(ValueError):  # another thread has taken it
                _kept_exceptions.remove(kept)
            return first
    return None


def note_function(error: BaseException, flat: TensorFunction) -> None:
    """Add a note to an exception that says in which function it was raised.

    Its type stays the same.
    """
    text = flat.origin
    notes = getattr(error, "__notes__", None)
    if isinstance(error, ConversionError) or (notes and text in notes):
        return
    with suppress(AttributeError, TypeError):  # an exception may refuse attributes
        error.__notes__ = [*(notes or ()), text]  # type: ignore[attr-defined]
