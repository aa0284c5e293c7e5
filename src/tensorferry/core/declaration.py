"""What a framework declares for the planner, whether it is installed or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..hints import Caller, Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .capabilities import Capabilities, DeviceFacts
    from .info import TensorInfo
    from .placement import Placement

__all__ = ["Declaration", "Declared", "as_now", "caller_of"]


class Declaration(Protocol):
    """What the planner needs to know about a framework. Every `Backend` is a `Declaration`."""

    @property
    def name(self) -> str:
        """Its canonical name."""
        ...

    @property
    def module(self) -> str:
        """The module to import."""
        ...

    @property
    def owns(self) -> tuple[str, ...]:
        """The top-level modules whose types belong to the framework."""
        ...

    @property
    def imports(self) -> Mapping[str, str]:
        """For each module name that its snippets use, the import line."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the framework can do."""
        ...

    def __hash__(self) -> int:
        """By identity, because recipes are cached by their backends."""
        ...

    def snippet(self, verb: str, arguments: tuple[Any, ...], info: TensorInfo, /) -> str:
        """The code that a person would type for a verb, with ``{x}`` for the value."""
        ...

    def remark(self, info: TensorInfo, /) -> str:
        """A warning for the plan if such numbers are unexpected (counts of days, for example)."""
        ...

    def device_facts(self, kind: str, /) -> DeviceFacts:
        """What the framework can do on a kind of device."""
        ...

    def placement(self, device: object, /) -> Placement | None:
        """The placement in ``device=``, if it is the framework's object for that; else ``None``."""
        ...

    def misfit(
        self, placement: Placement, shape: tuple[int, ...], /
    ) -> tuple[str, str | Hint] | None:
        """Why a tensor of this shape cannot have the placement, what to do; ``None`` if it can."""
        ...


class Declared:
    """A declaration without a backend.

    It makes plans where neither the framework nor NumPy can be imported.

    >>> from tensorferry.backends.torch.declared import DECLARED
    >>> DECLARED.name, "bfloat16" in DECLARED.capabilities.dtypes.held
    ('torch', True)

    Args:
        name: Its canonical name.
        capabilities: What the framework can do.
        snippet: The code for a verb; see `Declaration.snippet`.
        imports: For each module name that its snippets use, the import line.
        facts: What it can do on kinds of device that it need not see, if that is known.
    """

    module = ""
    owns: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        capabilities: Capabilities,
        snippet: Callable[..., str],
        imports: Mapping[str, str],
        facts: Mapping[str, DeviceFacts] | None = None,
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.snippet = snippet
        self.imports = imports
        self.facts = facts or {}

    def remark(self, _info: TensorInfo, /) -> str:
        """No warning."""
        return ""

    def device_facts(self, kind: str, /) -> DeviceFacts:
        """What is declared, or else the defaults, because the framework cannot be asked."""
        from .capabilities import DeviceFacts

        return self.facts.get(kind) or DeviceFacts()

    def placement(self, _device: object, /) -> Placement | None:
        """``None``, because only the framework has objects for placements."""
        return None

    def misfit(
        self, _placement: Placement, _shape: tuple[int, ...], /
    ) -> tuple[str, str | Hint] | None:
        """``None``, because there are no placements."""
        return None


class _AsNow:
    """See `as_now`."""

    __slots__ = (
        *("capabilities", "device_facts", "imports", "misfit", "module"),
        *("name", "owns", "placement", "remark", "snippet"),
    )

    def __init__(self, declared: Declaration) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(declared, name))


def as_now(declarations: Sequence[Declaration]) -> list[Declaration]:
    """The declarations with their capabilities now, one for each; equal ones stay the same object.

    Some backends ask their framework for its settings at each look, and a plan looks thirty times.

    >>> from tensorferry.backends.torch.declared import DECLARED
    >>> source, target = as_now([DECLARED, DECLARED])
    >>> source is target, source.capabilities is DECLARED.capabilities
    (True, True)
    """
    found: dict[int, Any] = {}
    return [
        found.get(id(each)) or found.setdefault(id(each), _AsNow(each)) for each in declarations
    ]


def caller_of(function: str, target: Declaration) -> Caller:
    """The call of a function with a target, for hints: with the dtypes that the target has now."""
    dtypes = target.capabilities.dtypes
    return Caller(function, target.name, dtypes.held, dtypes.absent_hint)
