"""`wrap`: call a function of one framework with tensors of another, in its autograd graph."""

from __future__ import annotations

from functools import lru_cache, partial, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from .. import hints
from ..backends import registry, tracers
from ..core.names import EXCHANGE
from ..errors import (
    ConversionError,
    GradientError,
    LossyCastError,
    UnknownFrameworkError,
    UnsupportedTypeError,
    shown,
    validate_word,
)
from ..execution.recipes import conversion_as
from ..execution.run import convert
from ..hints import Hint
from ..trees.leaves import leaf_rule
from ..trees.structure import at_path
from ..trees.walk import take_apart
from .flat import (
    TENSOR,
    OutputTree,
    TensorFunction,
    UserFunction,
    hint_to_fit,
    is_text,
    path_of,
    positional_structure,
    refusal_of,
)
from .function import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.functions import Inner, Outer
    from ..trees.structure import Structure


__all__ = [
    "WRAPPED",
    "Call",
    "Key",
    "Wrapped",
    "brings_functions",
    "canonical_keyword",
    "inner_of",
    "outer_of",
    "validate_dtype",
    "wrap",
]


# -- the key of a call -----------------------------------------------------------------------------


class Key:
    """A call's arguments without tensors' values, and the framework that calls, as a key."""

    __slots__ = ("_hash", "environment", "fixed", "leaves", "outer", "structure")

    def __init__(
        self, structure: Structure, leaves: tuple[Any, ...], environment: Hashable, outer: str
    ) -> None:
        self.structure = structure
        self.leaves = leaves
        self.environment = environment
        self.outer = outer
        self.fixed = tuple(_fixed_leaf(leaf) for leaf in leaves)
        self._hash = hash((self.fixed, environment, outer))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.fixed == other.fixed
            and self.environment == other.environment
            and self.outer == other.outer
            and self.structure.is_like(other.structure)
        )


class _Itself:
    """An object that cannot be hashed, compared by identity."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __hash__(self) -> int:
        return id(self._x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._x is other._x


def _fixed_leaf(leaf: Any) -> Hashable:
    kind = type(leaf)
    if kind is float or kind is complex:
        return kind, repr(leaf)
    try:
        hash(leaf)
    except TypeError:
        return _Itself(leaf)
    return kind, leaf


# -- the wrapped function --------------------------------------------------------------------------


@lru_cache(maxsize=64)
def brings_functions(name: str) -> bool:
    """Whether a framework has a module ``functions``, with its `Inner` and its `Outer`."""
    try:
        return find_spec(f"{registry.__package__}.{name}.functions") is not None
    except ModuleNotFoundError:  # the framework has no folder here
        return False


@lru_cache(maxsize=64)
def _side_of(name: str, side: str) -> Any:
    """The `Inner` or the `Outer` of a framework.

    Raises:
        UnsupportedTypeError: It has none.
    """
    if not brings_functions(name):
        known = [name for name in registry.known() if brings_functions(name)]
        raise UnsupportedTypeError(
            f"Functions cross to and from {', '.join(known)}; "
            f"the backend {name!r} brings nothing for them.",
            f'{side}="{known[-1]}"',
        )
    registry.ready(name)
    return getattr(import_module(f"{registry.__package__}.{name}.functions"), side.upper())


def inner_of(name: str) -> Inner:
    """The `Inner` of a framework, which calls its functions."""
    return _side_of(name, "inner")  # type: ignore[no-any-return]


def outer_of(name: str) -> Outer:
    """The `Outer` of a framework, which makes functions a part of it."""
    return _side_of(name, "outer")  # type: ignore[no-any-return]


def _is_of(x: Any, name: str) -> bool:
    owner = registry.BY_TYPE.get(type(x))
    return owner is not None and owner.name == name and registry.is_known_tensor(type(x))


def _is_tensor(leaf: Any) -> bool:
    """Whether an argument is converted; all others are static."""
    try:
        if registry.is_tensor(type(leaf)):
            return not is_text(leaf)
        return leaf_rule("tensors").takes(leaf)
    except UnsupportedTypeError:  # `Wrapped` refuses it, if it is not of the inner framework
        return False


class Call(NamedTuple):
    """A prepared call.

    Args:
        function: The function.
        tensors: Its arguments, of the outer framework.
        outer: The outer framework.
    """

    function: Function
    tensors: Sequence[Any]
    outer: Outer

    def specs(self) -> tuple[Any, ...]:
        """The shapes and dtypes of the tensors; an axis of unknown length counts as two."""
        specs = [self.outer.spec(tensor) for tensor in self.tensors]
        return tuple(
            (tuple(2 if length < 0 else length for length in shape), name) for shape, name in specs
        )


class SameFramework(NamedTuple):
    """A call with tensors of only the inner framework, for which the function itself is called.

    Args:
        args: The positional arguments.
        keywords: The keyword arguments.
    """

    args: tuple[Any, ...]
    keywords: dict[str, Any]


class Wrapped:
    """A function of one framework that other frameworks can call.

    Args:
        source: The user's function.
        inner: The name of its framework.
        outer: The name of the framework that calls; ``None`` if the arguments tell.
    """

    tensor = TENSOR

    def __init__(self, source: UserFunction, inner: str, outer: str | None) -> None:
        self.source = source
        self.inner = inner
        self.outer = outer
        self._function = lru_cache(maxsize=256)(self._make)
        self._of_tensors = lru_cache(maxsize=64)(self._make_of_tensors)
        self._plain: dict[tuple[type, ...], Outer] = {}
        """The outer framework, by the types of positional arguments that are all its tensors."""
        self.enter = self._entrance()
        """Called with the positional and keyword arguments.

        A framework with a tracer may replace it.
        """

    def _entrance(self) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        for backend in registry.known().values():
            if backend.is_traced and backend.is_imported() and brings_functions(backend.name):
                return outer_of(backend.name).entrance(self)

        def enter(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            if tracers.may_be_active():
                self.enter = self._entrance()
            return self(args, keywords)

        # torch.compile reads this attribute, and does not trace the function.
        enter.__dict__["_torchdynamo_disable"] = True
        return enter

    def __call__(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call it with the user's arguments."""
        call = self.ready(args, keywords)
        if isinstance(call, SameFramework):
            return self.source.function(*call.args, **call.keywords)
        function, tensors, outer = call
        flat = function.flat
        if flat.inner.traces_first and not flat.checks_each_call:
            flat.trace_first(lambda: flat.output_specs(call.specs()))
        flat.take_tree()
        results = outer.apply(function, tensors)
        tree = flat.take_tree()
        if tree is None:
            tree = flat.output_specs(call.specs()).tree
        return tree.filled(results)

    def ready(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Call | SameFramework:
        """Prepare a call, in which all tensors are of the outer framework.

        Raises:
            UnsupportedTypeError: The arguments do not tell the outer framework, or name several.
        """
        inner = inner_of(self.inner)
        if not keywords:
            outer = self._plain.get(tuple(map(type, args)))
            if outer is not None and (outer.differentiates or not any(map(is_text, args))):
                return Call(
                    self._of_tensors(len(args), inner.environment(), outer.name), args, outer
                )
        leaves, structure = take_apart((args, keywords))
        places = [index for index, leaf in enumerate(leaves) if _is_tensor(leaf)]
        names = {registry.backend_of(leaves[index]).name for index in places}
        if not places:
            self._refuse_others(structure, leaves)
        outer_name = self.outer or self._outer_of(names)
        if names == {self.inner} and outer_name == self.inner:
            return SameFramework(args, keywords)
        tensors = []
        for index in places:
            tensors.append(self._of_outer(leaves[index], outer_name, structure, index))
            leaves[index] = TENSOR
        if outer_name == self.inner:
            return SameFramework(*OutputTree(structure, tuple(leaves)).filled(tensors))
        outer = outer_of(outer_name)
        if structure.is_like(positional_structure(len(args))) and all(
            _is_of(x, outer_name) for x in args
        ):
            self._plain[tuple(map(type, args))] = outer
        key = Key(structure, tuple(leaves), inner.environment(), outer.name)
        return Call(self._function(key), tensors, outer)

    def _of_outer(self, tensor: Any, outer: str, structure: Structure, index: int) -> Any:
        """A tensor of the framework that calls: all others are converted.

        Args:
            tensor: A tensor among the arguments.
            outer: The name of the framework that calls.
            structure: The structure of the arguments, which has the tensor's path.
            index: The place of the tensor among their leaves.

        Raises:
            ConversionError: It cannot be converted, or requires grad: its gradient would be lost.
        """
        if registry.backend_of(tensor).name == outer:
            return tensor
        try:
            return convert(tensor, conversion_as(outer, grad="error", dtype=self.source.dtype))
        except ConversionError as error:
            if isinstance(error, GradientError):
                error.advise(Hint(hints.code("x.detach()"), " first"))
            if isinstance(error, LossyCastError):
                error.advise(hint_to_fit(self.inner))
            raise at_path(error, f"{path_of(structure, index)} of {self.source.name}") from None

    def function_of(self, args: tuple[Any, ...], keywords: dict[str, Any], outer: str) -> Function:
        """The function for arguments with `TENSOR` in place of tensors, called from a framework."""
        leaves, structure = take_apart((args, keywords))
        return self._function(
            Key(structure, tuple(leaves), inner_of(self.inner).environment(), outer)
        )

    def _make_of_tensors(self, count: int, environment: Hashable, outer: str) -> Function:
        return self._function(
            Key(positional_structure(count), (TENSOR,) * count, environment, outer)
        )

    def _make(self, key: Key) -> Function:
        self._refuse_others(key.structure, key.leaves)
        flat = TensorFunction(
            self.source, inner_of(self.inner), key.structure, key.leaves, key.environment, key.outer
        )
        return Function(flat, flat.tensors)

    def _refuse_others(self, structure: Structure, leaves: Sequence[Any]) -> None:
        """Raise for other frameworks' objects with numbers, not tensors: they would be static."""
        for index, leaf in enumerate(leaves):
            refused = refusal_of(type(leaf))
            top = type(leaf).__module__.partition(".")[0]
            if refused is not None and top not in registry.known()[self.inner].owns:
                raise at_path(refused, f"{path_of(structure, index)} of {self.source.name}")

    def _outer_of(self, names: set[str]) -> str:
        others = sorted(
            names - {self.inner, EXCHANGE, *(name for name in names if not brings_functions(name))}
        )
        if len(others) == 1:
            return others[0]
        what = self.source.name
        if others:
            raise UnsupportedTypeError(
                f"{what} was called with tensors of {' and '.join(others)}: "
                "in whose graph is it to be?",
                f'wrap(function, inner="{self.inner}", outer="{others[0]}")',
            )
        if names:
            # NumPy arrays beside tensors of a framework are converted to it.
            if self.inner in names:
                return self.inner
            return EXCHANGE
        likely = next(
            name
            for name in registry.known()
            if brings_functions(name) and name not in (EXCHANGE, self.inner)
        )
        raise UnsupportedTypeError(
            f"No argument of {what} tells which framework calls it: there are no tensors.",
            f'wrap(function, inner="{self.inner}", outer="{likely}")',
        )


@overload
def wrap(
    function: Callable[..., Any],
    /,
    *,
    inner: object,
    outer: object = ...,
    vjp: Callable[..., Any] | None = ...,
    jvp: Callable[..., Any] | None = ...,
    shapes: Callable[..., Any] | None = ...,
    dtype: str | None = ...,
    copy: bool | None = ...,
) -> Callable[..., Any]: ...
@overload
def wrap(
    *,
    inner: object,
    outer: object = ...,
    vjp: Callable[..., Any] | None = ...,
    jvp: Callable[..., Any] | None = ...,
    shapes: Callable[..., Any] | None = ...,
    dtype: str | None = ...,
    copy: bool | None = ...,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def wrap(
    function: Any = None,
    /,
    *,
    inner: object,
    outer: Any = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    shapes: Callable[..., Any] | None = None,
    dtype: str | None = None,
    copy: bool | None = None,
) -> Any:
    """Let a function of one framework be called with tensors of another, with gradients.

    >>> import jax, torch, tensorferry as ferry
    >>> @ferry.wrap(inner="jax")
    ... @jax.jit
    ... def loss(params, x):
    ...     return ((params["w"] * x) ** 2).sum()
    >>> params = {"w": torch.tensor([1.0, 2.0], requires_grad=True)}
    >>> loss(params, torch.tensor([3.0, 1.0])).backward()
    >>> params["w"].grad
    tensor([18.,  4.])

    If you call it with tensors of PyTorch, JAX or TensorFlow, it is a part of that framework's
    graph, jit and batching. The page on functions says which derivatives and modes each pair has;
    `explain_wrap` says it for one call. Arguments and results can be trees. An argument that is not
    a tensor is static, like a static argument of `jax.jit`. A Python number in a result becomes a
    tensor with the dtype that the framework that calls gives numbers. The function may take
    derivatives itself. Gradients follow the convention of the framework that calls: for complex
    numbers, JAX's gradient is the conjugate of the others'. If all tensors belong to `inner`, the
    function itself is called.

    Args:
        function: What to call; without it, `wrap` gives a decorator.
        inner: The framework that the function is written for.
        outer: The framework that calls it; ``None``: the framework of the arguments that are not
            tensors of `inner`.
        vjp: The gradient of a NumPy function: ``vjp(primals, outputs, cotangents)`` gives
            gradients, all of them tuples. Of ``y = a * x`` the gradient is ``conj(a) * cotangent``.
            ``None`` stands for zeros.
        jvp: Its forward mode: ``jvp(primals, tangents)`` gives the tangents of the outputs, all of
            them tuples.
        shapes: A function that says the shapes and dtypes of the results. It is called with the
            same arguments, whose tensors have only ``shape`` and ``dtype``, and returns such
            objects. Without it the framework is asked; NumPy cannot be asked, so a NumPy function
            is called once with ones when it is traced.
        dtype: ``"fit"``: a dtype that the other framework does not have is replaced, as for
            `convert`.
        copy: ``False`` consents to share memory where the sharing rule copies, as for `convert`.

    Raises:
        UnknownFrameworkError: `inner` or `outer` is not the name of a framework.
        TypeError: `vjp` or `jvp` for a function that is not NumPy's, or a keyword has a value of
            the wrong type.
        ValueError: A keyword has a word that is not listed above.
        UnsupportedTypeError: When it is called: the framework brings nothing for functions; the
            arguments do not tell `outer`; the function draws random numbers, or its shapes depend
            on values where it is traced.
        GradientError: When it is called: there is no such derivative, the function has lost its
            graph, or it uses tensors that require grad and are none of its arguments.
        ConversionError: When it is called: an argument cannot cross.

    .. versionadded:: 0.1
    """
    wrapping = partial(
        wrap, inner=inner, outer=outer, vjp=vjp, jvp=jvp, shapes=shapes, dtype=dtype, copy=copy
    )
    if function is None:
        return wrapping
    name = canonical_keyword("inner", inner)
    if outer is not None:
        outer = canonical_keyword("outer", outer)
    if name != EXCHANGE and (vjp is not None or jvp is not None):
        raise TypeError(
            f"vjp= and jvp= are for functions of {EXCHANGE}'s; {name} differentiates its own"
        )
    validate_dtype(dtype)
    for keyword, function_given in (("vjp", vjp), ("jvp", jvp), ("shapes", shapes)):
        if function_given is not None and not callable(function_given):
            raise TypeError(f"{keyword} must be a function or None, not {shown(function_given)}")
    if copy is not None and copy is not False:
        raise TypeError(f"copy must be None or False, not {shown(copy)}")
    if isinstance(function, (staticmethod, classmethod)):
        # Wrap the function inside a `classmethod` or `staticmethod`.
        return type(function)(wrapping(function.__func__))
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            f"a function is wrapped, or an object that is called, not {shown(function)}"
        )
    what = getattr(function, "__qualname__", None) or type(function).__qualname__
    source = UserFunction(function, vjp, jvp, shapes, dtype, copy, what.replace("<locals>.", ""))
    return _as_function(Wrapped(source, name, outer), function)


def validate_dtype(dtype: object) -> None:
    """Check the ``dtype=`` of a function.

    Raises:
        TypeError, ValueError: It is neither ``None`` nor ``"fit"``.
    """
    if dtype is not None:
        validate_word("dtype", dtype, ("fit",), "None")


def canonical_keyword(keyword: str, framework: object) -> str:
    """The canonical name of the framework that a keyword names.

    Raises:
        TypeError: It is not a name, a module or a class.
        UnknownFrameworkError: No framework has this name.
    """
    try:
        return registry.canonical(framework)
    except TypeError:
        raise TypeError(
            f"{keyword} must be a framework (its name, or its module), not {shown(framework)}"
        ) from None
    except UnknownFrameworkError as error:
        hint = error.advice
        if hint is not None:
            hint = hint.with_name("to", keyword)
        if hint is not None and ", " in str(hint):
            # It names a device or a dtype, for which `wrap` has no keyword.
            hint = hints.one_of(
                [
                    hints.keyword(keyword, name)
                    for name in registry.known()
                    if brings_functions(name)
                ]
            )
        raise UnknownFrameworkError(error.message, hint) from None


def _as_function(wrapped: Wrapped, function: Any) -> Any:
    """The wrapped function as a plain one, so that it binds as a method and can be inspected."""

    @wraps(function, updated=())
    def call(*args: Any, **keywords: Any) -> Any:
        return wrapped.enter(args, keywords)

    call.__dict__[WRAPPED] = wrapped
    # AutoGraph reads this attribute, and does not rewrite the function.
    call.__dict__["autograph_info__"] = None
    return call


WRAPPED = "__tensorferry_wrapped__"
"""The attribute of a wrapped function that has its `Wrapped`."""
