"""What a framework tells of itself: all that a plan is made from, whether the framework is there or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .capabilities import Capabilities, DeviceFacts
    from .info import TensorInfo
    from .placement import Placement

__all__ = ["Declaration", "Declared"]


class Declaration(Protocol):
    """What is asked of a framework to make a plan; every `Backend` is one."""

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
        """Top-level modules whose types are its own."""
        ...

    @property
    def imports(self) -> Mapping[str, str]:
        """For each name that its snippets use, the line that brings it in."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can hold, adopt and promise."""
        ...

    def __hash__(self) -> int:
        """By what it is, not by what it declares: recipes are kept for it."""
        ...

    def snippet(self, verb: str, arguments: tuple[Any, ...], info: TensorInfo, /) -> str:
        """The code that a person would have typed for a verb on ``{x}``."""
        ...

    def remark(self, info: TensorInfo, /) -> str:
        """What a plan has to say of such a tensor's numbers, if it is not what one expects."""
        ...

    def device_facts(self, kind: str, /) -> DeviceFacts:
        """What it has on a kind of device; of one that is not here, what most kinds have."""
        ...

    def placement(self, device: object, /) -> Placement | None:
        """What ``device=`` asks for, if it is the framework's own object that lays a tensor out over devices."""
        ...

    def misfit(self, placement: Placement, shape: tuple[int, ...], /) -> tuple[str, str] | None:
        """Why a tensor of this shape cannot be laid out so, and what to do; ``None``: it can."""
        ...


class Declared:
    """A declaration by itself: plans are made with it where the framework, and NumPy, cannot be imported.

    >>> from tensorferry.backends.torch.declared import DECLARED
    >>> DECLARED.name, "bfloat16" in DECLARED.capabilities.dtypes.held
    ('torch', True)

    Args:
        name: Its canonical name.
        capabilities: What it can hold, adopt and promise.
        snippet: Gives the code for a verb; see `Declaration.snippet`.
        imports: For each name that its snippets use, the line that brings it in.
    """

    module = ""
    owns: tuple[str, ...] = ()

    def __init__(
        self, name: str, capabilities: Capabilities, snippet: Callable[..., str], imports: Mapping[str, str]
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.snippet = snippet
        self.imports = imports

    def remark(self, _info: TensorInfo, /) -> str:
        """Nothing."""
        return ""

    def device_facts(self, _kind: str, /) -> DeviceFacts:
        """What most kinds of device have: nobody can be asked."""
        from .capabilities import DeviceFacts

        return DeviceFacts()

    def placement(self, _device: object, /) -> Placement | None:
        """None: a layout over devices is an object of the framework's."""
        return None

    def misfit(self, _placement: Placement, _shape: tuple[int, ...], /) -> tuple[str, str] | None:
        """None."""
        return None
