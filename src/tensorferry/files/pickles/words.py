"""Types that the machine and its vocabularies share: globals, dicts with attributes, the protocol `Vocabulary`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..base.keys import Keys

__all__ = ["Global", "Ordered", "UnreadBytes", "Vocabulary", "modern"]

_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_NAMES = {
    "__builtin__.long": "builtins.int",
    "__builtin__.unicode": "builtins.str",
    "__builtin__.xrange": "builtins.range",
    "__builtin__.reduce": "functools.reduce",
}
"""Names in protocols below 3: https://docs.python.org/3/library/pickle.html#pickle.Pickler (fix_imports)."""


def modern(module: str, name: str) -> str:
    """The name in Python 3, with the module, of a class or function in a pickle."""
    return _NAMES.get(f"{module}.{name}") or f"{_MODULES.get(module, module)}.{name}"


class Global(NamedTuple):
    """The name of a class or function in a pickle."""

    name: str


class Ordered(dict[Any, Any]):
    """An ``OrderedDict`` of a pickle, or a ``defaultdict``.

    Args:
        factory: The name of the default factory; ``None`` for an ``OrderedDict``.
    """

    __slots__ = ("attributes", "factory")

    def __init__(self, factory: str | None = None) -> None:
        super().__init__()
        self.attributes: Any = None
        self.factory = factory


class UnreadBytes(NamedTuple):
    """Bytes of a pickle that are not read into memory, because there may be many.

    Args:
        start: The position of the first.
        nbytes: The number of bytes.
        kind: ``bytes`` or ``bytearray``.
    """

    start: int
    nbytes: int
    kind: type


class Vocabulary(Protocol):
    """Defines the meaning of a pickle's names.

    Its methods raise `UnsafeFileError` for everything that they refuse.
    """

    rebuilds: frozenset[Any]
    """Stand-ins of functions that make a tensor from storage, offset, shape, strides, grad and hooks."""

    def find(self, name: str) -> Any:
        """The stand-in for a global, mostly a `Global`."""

    def call(self, function: Any, arguments: Any, keywords: Any = None) -> Any:
        """The stand-in for the result of a call (REDUCE, NEWOBJ, NEWOBJ_EX)."""

    def build(self, instance: Any, state: Any) -> Any:
        """The stand-in after its state was set (BUILD)."""

    def load(self, key: Any) -> Any:
        """The stand-in for a persistent id."""

    keys: Keys
    """Decides which keys dicts may have."""

    machine: Any
    """The machine that runs the pickle, if bytes may be left in the file."""

    span_from: int
    """From this size on, bytes are left in the file, as `UnreadBytes`."""

    def again(self, made: Any, number: int) -> Any:
        """A tensor like an earlier one, in a new storage with this name; ``None`` if the storage may not be new."""

    def fill(self, instance: Any, values: list[Any]) -> None:
        """Add items to a stand-in that is not a list or set (APPENDS, ADDITEMS)."""

    def put(self, instance: Any, values: list[Any]) -> None:
        """Add keys and values, in turn, to a stand-in that is not a dict (SETITEMS)."""

    def refuse(self, demand: str) -> Any:
        """Note what data does not need, and what makes the whole pickle unsafe."""

    def odd(self, key: Any) -> str:
        """What a key is that no dict may have, for messages."""
        ...  # for pyright, which otherwise takes it for a function that returns None
