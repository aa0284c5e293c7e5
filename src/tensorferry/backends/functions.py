"""Protocols across frameworks: `Inner` calls functions of one, `Outer` makes others part of it.

They are implemented in ``backends/<framework>/functions.py``, without mention of another framework.
Gradients between them follow PyTorch's convention: the gradient of ``y = a * x`` is
``conj(a) * cotangent``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from ..core.derivations import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from contextlib import AbstractContextManager

    from ..core.derivations import Rule, Spec

__all__ = ["Function", "Inner", "Outer", "TensorFunction"]


class TensorFunction(Protocol):
    """The user's function as a function of the tensors in its arguments: see `functions.flat`."""

    source: Any
    """The user's function, and the keywords of `tensorferry.wrap`."""
    checks_each_call: bool
    """Whether each call is checked, because the function could not be traced before."""
    changes_inputs: bool
    """Whether it has written into its arguments."""
    steers_autograd: bool
    """Whether it takes derivatives itself, or makes tensors require grad."""
    switches_autograd_off: bool
    """Whether it computes a part without recording it."""
    makes_leaves: bool
    """Whether its results have a graph that ends in tensors that it makes."""
    generators: frozenset[Any]
    """Weak references to the random generators that it used."""
    environment: Hashable
    fit: str
    tensors: int
    """The number of tensors that it takes."""
    origin: str
    tree: Any

    def __call__(self, *tensors: Any) -> tuple[Any, ...]: ...
    def plain(self, *tensors: Any) -> tuple[Any, ...]: ...
    def hint_of_zeros(self) -> str: ...
    def warn_of_zeros(self, outs: Sequence[int], /) -> None: ...
    def arguments(self, tensors: Sequence[Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def path(self, index: int, /) -> str: ...
    def leaves_of(self, tree: Any, /) -> list[Any]: ...


class Function(Protocol):
    """A function of tensors for the outer framework: see `functions.function`."""

    @property
    def flat(self) -> TensorFunction: ...
    @property
    def rules(self) -> tuple[Rule, ...]: ...
    @property
    def native(self) -> Callable[..., Sequence[Any]]: ...
    @property
    def derived(self) -> Callable[[Rule], Function]: ...
    def kept(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]: ...
    def specs(self, specs: Sequence[Spec]) -> tuple[Spec, ...]: ...
    def adjoint(self, linear: Sequence[int], outs: Sequence[int]) -> Any: ...
    def run(self, tensors: Sequence[Any], outer: Outer) -> list[Any]: ...
    def keep_exception(self, error: Exception) -> str: ...
    def filler(
        self, want: Sequence[str] | None = None
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]: ...
    def checked(
        self, results: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> Sequence[Any]: ...


class Inner(Protocol):
    """Calls functions of a framework with its own tensors."""

    name: str
    keeps_outputs: bool = False
    """Whether derivatives take the outputs of the function."""
    traces_first: bool = False
    """Whether a function is traced before it is called with inputs of new shapes and dtypes."""

    def environment(self) -> Hashable:
        """The present settings of this thread on which its functions depend."""
        return None

    def under(self, environment: Any) -> AbstractContextManager[Any]:
        """A context with these settings."""
        return nullcontext()

    def output(self, leaf: Any) -> Any:
        """A returned tensor, or number or array of NumPy's, as a tensor of the framework.

        Gives ``None`` for all other objects. Python's numbers have no dtype, so they do not come
        here.
        """
        ...

    def native(self, flat: TensorFunction, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        """A function of its tensors: `flat` with the rules applied in order; without, `flat.plain`.

        Raises:
            GradientError: The function does not have this derivative.
        """
        ...

    def shapes(self, flat: TensorFunction, specs: Sequence[Spec]) -> Sequence[Spec]:
        """The shapes and dtypes of a function's results, without values. `flat` is called.

        Raises:
            UnsupportedTypeError: They cannot be found out.
        """
        ...

    def borrows(self, flat: Any) -> bool:
        """Whether a function can neither keep nor write memory that is valid only for the call."""
        return False

    def unshared(self, results: Sequence[Any], inputs: Sequence[Any]) -> Sequence[bool]:
        """For each result of a function that `borrows`: if nothing else has it or its memory."""
        return [False] * len(results)

    def module(
        self, module: Any, state: bool
    ) -> tuple[Callable[..., Any], Sequence[dict[str, Any]]] | None:
        """A module as a function of its parameters, and these; ``None`` if it is not one.

        With `state`, also of its buffers.
        """
        return None

    def derivatives(self, flat: TensorFunction) -> str:
        """A text that says which derivatives the function has."""
        return EVERY

    def remarks(self, flat: TensorFunction) -> Sequence[str]:
        """Remarks for the user about this function."""
        return ()


class Outer(Protocol):
    """Makes functions of another framework part of a framework."""

    name: str
    differentiates: bool = True
    """Whether it has gradients."""
    modes: tuple[str, ...]
    """Names of the framework's transformations in which such a function can be used: jit, grad …"""

    def spec(self, tensor: Any) -> Spec:
        """The shape and dtype of a tensor, which may be traced.

        The length of an unknown axis is -1.
        """
        ...

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        """Call a function with tensors of the framework, in its graph, jit or other mode."""
        ...

    def entrance(self, wrapped: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """The function that is called instead of a wrapped one, if the backend `is_traced`."""
        return wrapped  # type: ignore[no-any-return]

    def remarks(self) -> Sequence[str]:
        """Remarks for the user about functions on this machine."""
        return ()
