"""Whether two tensors share memory, observed without asking tensorferry: by the witnesses of its conformance suite.

Twice: by address, as each framework itself tells it, and by mutation, where one side can be
written: its elements are changed on one side, looked for on the other, and put back.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorferry import to_numpy
from tensorferry.backends.registry import backend_of
from tensorferry.testing import witness_for, witnesses

if TYPE_CHECKING:
    from tensorferry.testing import Witness

__all__ = ["Observation", "observe", "witness_of"]


class Observation(NamedTuple):
    """What was seen.

    Args:
        shared: Whether the memory is the same.
        by_address: What the addresses say; ``None`` where one side has none.
        by_mutation: What a write says; ``None`` where neither side can be written.
        writable: Whether the result permits writes; ``None`` where its framework has no such thing.
    """

    shared: bool
    by_address: bool | None
    by_mutation: bool | None
    writable: bool | None

    @property
    def agrees(self) -> bool:
        """Whether the two ways of looking tell the same."""
        return self.by_address is None or self.by_mutation in {None, self.by_address}

    @property
    def word(self) -> str:
        """What came out, in a word or two."""
        if not self.shared:
            return "copied"
        return "shared, read-only" if self.writable is False else "shared"

    @property
    def how(self) -> str:
        """The evidence, in words."""
        words = {
            (True, True): "same address, a write shows",
            (True, None): "same address",
            (False, False): "other address, a write does not show",
            (False, None): "other address",
            (None, None): "Python numbers have no memory to share",
        }
        return words.get((self.by_address, self.by_mutation), "address and mutation disagree")


def observe(source: Any, result: Any) -> Observation:
    """Look whether `result` shares `source`'s memory; neither is changed in the end."""
    first, second = _address(source), _address(result)
    by_address = None if first is None or second is None else first == second
    if first is None and result is source and not isinstance(source, list):
        # A frame has a memory for each column, and no address.
        return Observation(shared=True, by_address=True, by_mutation=None, writable=None)
    by_mutation = None
    if by_address is not None:
        if _is_writable(result):
            by_mutation = _shows(result, source)
        elif _is_writable(source):
            by_mutation = _shows(source, result)
    shared = bool(by_address if by_mutation is None else by_mutation)
    memory = backend_of(result).capabilities.memory
    has_writes = memory.exists and memory.writable and witness_of(result) is not None
    return Observation(shared, by_address, by_mutation, _is_writable(result) if has_writes else None)


def witness_of(x: Any) -> Witness | None:
    """Who looks at a tensor with its framework's own operations; ``None``: nobody knows that framework."""
    return _witness(backend_of(x).name)


@cache
def _witness(name: str) -> Witness | None:
    return witness_for(name) if name in witnesses() else None


def _address(x: Any) -> int | None:
    """The address of the first element, as the framework itself tells it; ``None`` for lists."""
    witness = witness_of(x)
    if witness is None:
        return backend_of(x).pointer(x)
    place = witness.place(x)
    return None if place is None else place.address


def _content(x: Any) -> object:
    """What a tensor holds, read by the framework itself, if anybody knows it."""
    witness = witness_of(x)
    return to_numpy(x).tobytes() if witness is None else witness.content(x)


def _is_writable(x: Any) -> bool:
    witness = witness_of(x)
    return witness is not None and witness.place(x) is not None and witness.writable(x)


def _shows(written: Any, other: Any) -> bool:
    """Whether a write to the one tensor is seen in the other; undone afterwards."""
    witness: Any = witness_of(written)
    before, kept = _content(other), witness.content(written)
    witness.poke(written, bytes(byte ^ 1 for byte in kept))
    seen = _content(other)
    witness.poke(written, kept)
    return seen != before
