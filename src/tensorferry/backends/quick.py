"""`Quick`: what a backend has for speed only. Without it, all results are the same."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.generics import Generic, Protocol, TypeVar
from ..core.signature import places_by

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..core.capabilities import Capabilities
    from ..core.info import TensorInfo
    from ..core.request import Request
    from ..planning.plan import Plan
    from ..planning.step import Step
    from ..typing import Array

__all__ = ["Described", "Quick", "quick_of", "unchanged"]


class Described(Protocol):
    """What is needed here of a `Backend`, which is above."""

    @property
    def quick_code(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    def describe(self, x: Any) -> TensorInfo: ...


Owner = TypeVar("Owner", bound=Described)


def quick_of(backend: Described) -> Quick[Any]:
    """What makes a backend fast, whose framework is loaded: its own, or the default."""
    if not backend.quick_code:
        return Quick(backend)
    return import_module(backend.quick_code).QUICK(backend)  # type: ignore[no-any-return]


def unchanged(x: Any) -> Any:
    """Stands for a step whose work the next step does too: `Quick.specialised` gives it.

    A recipe leaves such a step out, so that it is never called.
    """
    return x


class Quick(Generic[Owner]):
    """What makes a backend fast. Each method has a default that is slow and obvious.

    So a backend needs none of it. One that has it keeps a subclass in a module of its own, as
    ``QUICK``, and names the module in `Backend.quick_code`. It is made once, when the framework is
    loaded. Callers keep its methods, so that it may set them as attributes then.

    >>> from tensorferry.backends.registry import backend_named
    >>> backend = backend_named("numpy")
    >>> Quick(backend).signature([1.0]), Quick(backend).fast_paths()
    (None, {})

    Args:
        backend: The backend, whose framework is loaded.
    """

    def __init__(self, backend: Owner) -> None:
        self.backend = backend

    # -- one tensor: what is read instead of its description ---------------------------------------

    def signature(self, x: Any, /) -> Hashable | None:
        """The signature of `x`, from a few attributes, which is faster than `Backend.describe`.

        Tensors may have the same signature only if they differ in nothing but shape, strides and
        address. It is a tuple that contains `signature.COMPACT` only if there are no gaps. ``None``
        means that the tensor must be described, because it is unusual, or not in host memory.
        """
        return None

    def signature_reader(
        self, kind: type, target: Described, request: Request
    ) -> Callable[[Any], Hashable | None]:
        """A function that reads the signatures of tensors of a type, for conversions to a target.

        It may leave out what does not matter for the target. The first step takes the tensor
        itself.
        """
        return self.signature

    def environment(self) -> Hashable:
        """The present settings on which `Backend.capabilities` depends.

        With equal settings, capabilities are the same.
        """
        return self.backend.capabilities

    def lengths(self, x: Any, /) -> tuple[int, ...]:
        """The shape of a tensor that has a signature."""
        return self.backend.describe(x).shape

    def likeness(self, x: Any, /) -> Hashable | None:
        """A key of ``like=`` that decides dtype and device; ``None`` if it must be described."""
        return self.signature(x)

    # -- many tensors ------------------------------------------------------------------------------

    def signatures(
        self, tensors: Sequence[Any], alignment: int, *, copies: bool = False
    ) -> Hashable | None:
        """What is equal only for as many tensors with equal signatures, one after the other.

        It is found faster than these; ``None`` if it is not known. `alignment` and `copies` are as
        for `grouped`.
        """
        return None

    def grouped(
        self, tensors: Sequence[Any], alignment: int, *, copies: bool = False
    ) -> Mapping[Hashable, Sequence[int]] | None:
        """Positions of tensors of one type by their signatures; ``None`` if one must be described.

        Addresses count only modulo `alignment`; 0 means the alignment of the element. If all
        results have memory of their own (`copies`), it does not matter who else may write.
        """
        signatures = list(map(self.signature, tensors))
        return None if None in signatures else places_by(signatures)

    def extents(
        self, tensors: Sequence[Any], *, compact: bool
    ) -> tuple[Sequence[int] | Array, Sequence[int] | Array] | None:
        """The address of each tensor's first byte, and of the byte after its last, in host memory.

        Only called for tensors with a `signature`; `compact` says that all these are compact.
        ``None`` if it would take as long as to describe them.
        """
        return None

    def owns_memory(self, signature: Any) -> bool:
        """Whether tensors of this signature share no memory with other objects of the framework."""
        return False

    def describe_alike(self, tensors: Sequence[Any]) -> TensorInfo | None:
        """One description of many tensors of one type, if only shape, strides and address differ.

        It is the description of the first one; if any tensor requires grad, it says so. Each tensor
        has a ``shape``. ``None`` if they differ, or if a quick check does not tell.
        """
        return None

    def signature_together(self, tensors: Sequence[Any]) -> Hashable | None:
        """One signature of tensors of one type and of equal shapes, which become one tensor.

        It has all that the steps depend on, also of their number. ``None`` means that each must be
        described: they differ, or one has no signature.
        """
        groups = self.grouped(tensors, 1)
        if groups is None or len(groups) > 1 or len(set(map(self.lengths, tensors))) > 1:
            return None
        (signature,) = groups
        return signature

    def likeness_together(self, tensors: Sequence[Any]) -> Hashable | None:
        """What tensors of one type have in common, in host memory, whatever their shapes are.

        It has all that the steps depend on of tensors that are padded and joined; each has a
        ``shape``. ``None`` means that each must be described.
        """
        return None

    def join(self, tensors: Sequence[Any]) -> Array | None:
        """A new compact array with the values of tensors of one dtype and of equal shapes.

        ``None`` if they differ, or must be joined in another way.
        """
        return None

    def join_alike(self, tensors: Sequence[Any]) -> Any:
        """Tensors of `describe_alike`, concatenated; ``None`` if they must be taken one by one."""
        return None

    # -- steps -------------------------------------------------------------------------------------

    def specialised(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        """A step's function without checks whose results are known; ``None`` for the verb's method.

        Args:
            step: The step: the verb and its arguments.
            plan: The plan that has the step, for all tensors of one signature.
        """
        return None

    def for_many(self) -> Mapping[str, Callable[..., Any]]:
        """Functions by a verb's name, which do for a list of values what the verb does for each.

        They are called only with tensors that have a `signature`, of one dtype, either all in a
        graph or none, and with results of other verbs.
        """
        return {}

    # -- whole conversions -------------------------------------------------------------------------

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        """Fast paths by (type of source, name of target): functions with the result of the plan.

        A fast path returns ``None``, or raises one of `fast_paths.NOT_ACCEPTED`, for a tensor that
        it does not accept. A fast path to NumPy gives `x` itself, or an array that does not own its
        memory. (If an array owns its memory, it is a copy, or its values were never set.)
        """
        return {}

    def views(self) -> frozenset[tuple[type, str]]:
        """Those fast paths that give nothing but views of memory on the host, in their own dtype."""
        return frozenset()
