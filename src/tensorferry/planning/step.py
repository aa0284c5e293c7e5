"""`Step`: one thing that a plan does."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ..core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from ..core.declaration import Snippet

__all__ = ["WAYS", "Path", "Step"]


class Path(str, Enum):
    """Where the bytes go that a step writes."""

    NONE = "none"
    HOST = "host"
    BUS = "bus"
    DEVICE = "device"

    __str__ = str.__str__

    def __format__(self, spec: str) -> str:
        return str.__format__(self, spec)


WAYS = {
    Path.HOST: "through host memory",
    Path.BUS: "over the bus",
    Path.DEVICE: "within device memory",
}
"""How bytes go that a step writes, in words."""


class Step(NamedTuple):
    """One step of a plan: one call of a backend.

    Args:
        verb: The method of the backend that is called.
        backend: The name of the backend.
        arguments: The arguments of the method, besides the value.
        snippet: The code that a person would type, which is made when it is read.
        why: Why the step is needed.
        copies: Whether it writes the elements into other memory.
        bytes: How many bytes it writes.
        path: Where the bytes go: none, through host memory, over the bus, or within a device.

    .. versionadded:: 0.1
    """

    verb: str
    backend: str
    arguments: tuple[Any, ...]
    snippet: Snippet
    why: str
    copies: bool = False
    bytes: int = 0
    path: Path = Path.NONE

    @property
    def code(self) -> str:
        """What a person would have typed, with ``x`` for the value."""
        return str(self.snippet.code.of("x"))
