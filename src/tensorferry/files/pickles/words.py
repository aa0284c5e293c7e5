"""What the machine of pickles and its vocabularies speak of: globals, dicts with attributes, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..base.keys import Keys

__all__ = ["Global", "Ordered", "Span", "Vocabulary", "modern"]

_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_NAMES = {"__builtin__.long": "builtins.int", "__builtin__.unicode": "builtins.str"}
"""What protocols below 3 call them: https://docs.python.org/3/library/pickle.html#pickle.Pickler (fix_imports)."""


def modern(module: str, name: str) -> str:
    """What Python 3 calls a class or function that a pickle names, with its module."""
    return _NAMES.get(f"{module}.{name}") or f"{_MODULES.get(module, module)}.{name}"


class Global(NamedTuple):
    """A class or function that a pickle names, by its name only."""

    name: str


class Ordered(dict[Any, Any]):
    """An ``OrderedDict`` of a pickle, or a ``defaultdict``.

    Args:
        factory: What a ``defaultdict`` makes, by name; ``None`` for an ``OrderedDict``.
    """

    __slots__ = ("attributes", "factory")

    def __init__(self, factory: str | None = None) -> None:
        super().__init__()
        self.attributes: Any = None
        self.factory = factory


class Span(NamedTuple):
    """Bytes of a pickle that are left where they stand in it, because there may be many.

    Args:
        start: The first.
        nbytes: How many.
        kind: ``bytes`` or ``bytearray``.
    """

    start: int
    nbytes: int
    kind: type


class Vocabulary(Protocol):
    """What a pickle's names mean. Its methods raise `UnsafeFileError` for what they refuse."""

    rebuilds: frozenset[Any]
    """Stand-ins of the functions that make a tensor of storage, offset, shape, strides, grad and hooks."""

    def find(self, name: str) -> Any:
        """The stand-in for a global, mostly a `Global`."""

    def call(self, function: Any, arguments: Any) -> Any:
        """The stand-in for a call's result (REDUCE, NEWOBJ)."""

    def build(self, instance: Any, state: Any) -> Any:
        """The stand-in after it was given its state (BUILD)."""

    def load(self, key: Any) -> Any:
        """The stand-in for a persistent id."""

    keys: Keys
    """Which keys dicts may have."""

    machine: Any
    """The machine that runs the pickle, if any bytes are left where they stand."""

    span_from: int
    """Bytes from which a run of bytes is left where it stands, as a `Span`."""

    repeated: list[Any]
    """What `again` made, in order."""

    def again(self, made: Any, number: int) -> Any:
        """A tensor like one that was made, in a new storage with that name; ``None`` if it may not be new."""

    def fill(self, instance: Any, values: list[Any]) -> None:
        """Give items to a stand-in that is neither list, dict nor set (APPENDS, SETITEMS, ADDITEMS)."""

    def refuse(self, demand: str) -> None:
        """Note an opcode that no data needs, by what it asks for."""
