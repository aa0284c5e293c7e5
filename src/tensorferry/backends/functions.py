"""What a framework brings for functions: an `Inner` to call its own, an `Outer` to put others' among its own.

They stand in ``backends/<framework>/inner.py`` and ``outer.py``, and know no other framework. Between
them gradients follow one convention, PyTorch's: of ``y = a * x`` the gradient is ``conj(a) * cotangent``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from ..core.derivations import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from contextlib import AbstractContextManager

    from ..core.derivations import Rule, Spec

__all__ = ["Flat", "Function", "Inner", "Outer"]


class Flat(Protocol):
    """What a user has written as a function of the tensors among its arguments; `functions.function` has it."""

    source: Any
    """What `tensorferry.wrap` was given."""
    careful: bool
    """Whether it could not be looked at before it is called, so that each call is watched."""
    changes_inputs: bool
    """Whether it was seen to write into its arguments."""
    generators: frozenset[Any]
    """What it was seen to draw random numbers from, as weak references."""
    environment: Hashable
    fit: str
    tensors: int
    """How many it takes."""
    side: str
    tree: Any

    def __call__(self, *tensors: Any) -> tuple[Any, ...]: ...
    def arguments(self, tensors: Sequence[Any], /) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def leaves_of(self, tree: Any, /) -> list[Any]: ...


class Function(Protocol):
    """A function of tensors that a framework is given to put among its own; `functions.function` has it."""

    @property
    def flat(self) -> Flat: ...
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
    def aside(self, error: Exception) -> str: ...
    def filler(self, want: Sequence[str] | None = None) -> Callable[[Sequence[Any], Sequence[Any]], None]: ...
    def checked(self, results: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Sequence[Any]: ...


class Inner(Protocol):
    """Calls functions that are written for a framework, with tensors of its own."""

    name: str
    keeps_outputs: bool = False
    """Whether a derivative is told what the function gave."""
    looks_first: bool = False
    """Whether a function is to be looked at before it is called with inputs such as it has not met."""

    def environment(self) -> Hashable:
        """What its functions depend on besides their arguments, as things are now on this thread."""
        return None

    def under(self, environment: Any) -> AbstractContextManager[Any]:
        """Things as they were then."""
        return nullcontext()

    def output(self, leaf: Any) -> Any:
        """A number or a tensor that a function gave, as a tensor of the framework; ``None``: it is something else."""
        ...

    def native(self, flat: Flat, rules: tuple[Rule, ...]) -> Callable[..., Sequence[Any]]:
        """A function of its own tensors: `flat`, and what is derived from it, by the first rule first.

        Raises:
            GradientError: There is no such derivative.
        """
        ...

    def shapes(self, flat: Flat, specs: Sequence[Spec]) -> Sequence[Spec]:
        """What a function gives for inputs of these shapes, without values. `flat` is called.

        Raises:
            UnsupportedTypeError: It cannot be told.
        """
        ...

    def borrows(self, flat: Any) -> bool:
        """Whether a function cannot keep, nor write into, memory that is lent to it for the time of a call."""
        return False

    def fresh(self, results: Sequence[Any], inputs: Sequence[Any]) -> Sequence[bool]:
        """Of what a function gave that `borrows`: whether nobody else has a result, or memory in common with it."""
        return [False] * len(results)

    def module(self, module: Any, state: bool) -> tuple[Callable[..., Any], Sequence[dict[str, Any]]] | None:
        """A module as a function of its parameters, with `state` of its buffers too, and those; ``None``: none."""
        return None

    def derivatives(self, flat: Flat) -> str:
        """Which derivatives there are, as a person reads it."""
        return EVERY

    def remarks(self, flat: Flat) -> Sequence[str]:
        """What a person should know of this function."""
        return ()


class Outer(Protocol):
    """Puts functions of another framework among a framework's own."""

    name: str
    differentiates: bool = True
    """Whether it has gradients at all."""
    modes: tuple[str, ...]
    """What else of the framework's holds around such a function."""

    def spec(self, tensor: Any) -> Spec:
        """The shape and dtype of a tensor, traced ones too; an axis of unknown length is -1."""
        ...

    def apply(self, function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
        """Call a function with tensors of the framework's, in its graph, jit or whatever else it is at."""
        ...

    def entrance(self, wrapped: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """What is called in the place of a wrapped function, if its backend `is_traced`."""
        return wrapped  # type: ignore[no-any-return]

    def remarks(self) -> Sequence[str]:
        """What a person should know of how functions are put in on this machine."""
        return ()
