"""Observe if two tensors share memory, without tensorferry, by the conformance suite's witnesses.

There are two ways: by the addresses that the frameworks give; and by mutation, if one side is
writable: its elements are changed, the change is looked for on the other side, and undone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import to_numpy
from ..backends.registry import backend_of
from ..testing import witness_for, witnesses

if TYPE_CHECKING:
    from ..testing import Witness

__all__ = ["Observation", "observe", "witness_of"]


class Observation(NamedTuple):
    """The result of an observation.

    Args:
        shared: Whether memory is shared.
        by_address: Whether it is by the addresses; ``None`` if one side has none.
        by_mutation: Whether it is by a write; ``None`` if neither side is writable.
        writable: Whether the result is writable; ``None`` if its framework does not tell.
    """

    shared: bool
    by_address: bool | None
    by_mutation: bool | None
    writable: bool | None

    @property
    def agrees(self) -> bool:
        """Whether both ways agree."""
        return self.by_address is None or self.by_mutation in {None, self.by_address}

    @property
    def word(self) -> str:
        """The result in a word or two."""
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
    """Observe whether `result` shares memory with `source`. Both are unchanged afterwards."""
    first, second = _address(source), _address(result)
    by_address = None if first is None or second is None else first == second
    if first is None and result is source and not isinstance(source, list):
        # A frame has memory for each column, and no single address.
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
    return Observation(
        shared, by_address, by_mutation, _is_writable(result) if has_writes else None
    )


def witness_of(x: Any) -> Witness | None:
    """The witness of a tensor's framework, with its own operations; ``None`` without one."""
    return _witness(backend_of(x).name)


@cache
def _witness(name: str) -> Witness | None:
    return witness_for(name) if name in witnesses() else None


def _address(x: Any) -> int | None:
    """The address of the first element, from the framework; ``None`` for lists."""
    witness = witness_of(x)
    if witness is None:
        return backend_of(x).pointer(x)
    place = witness.place(x)
    return None if place is None else place.address


def _content(x: Any) -> object:
    """The values of a tensor, read by the framework."""
    witness = witness_of(x)
    return to_numpy(x).tobytes() if witness is None else witness.content(x)


def _is_writable(x: Any) -> bool:
    witness = witness_of(x)
    return witness is not None and witness.place(x) is not None and witness.writable(x)


def _shows(written: Any, other: Any) -> bool:
    """Whether a write to one tensor changes the other. The write is undone."""
    witness: Any = witness_of(written)
    before, kept = _content(other), witness.content(written)
    witness.poke(written, bytes(byte ^ 1 for byte in kept))
    seen = _content(other)
    witness.poke(written, kept)
    return seen != before
