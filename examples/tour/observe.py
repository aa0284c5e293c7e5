"""Observe if two tensors share memory, without tensorferry, by the witnesses of its test suite.

There are two ways: by the addresses that the frameworks give; and by mutation, if one side is
writable: its elements are changed, the change is looked for on the other side, and undone.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import tensorferry as ferry
from tensorferry import testing

__all__ = ["Observation", "observe"]


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
    if first is None or second is None:
        return Observation(shared=False, by_address=None, by_mutation=None, writable=None)
    by_address, by_mutation = first == second, None
    if _is_writable(result):
        by_mutation = _shows(result, source)
    elif _is_writable(source):
        by_mutation = _shows(source, result)
    shared = by_address if by_mutation is None else by_mutation
    tells = testing.witness_for(ferry.describe(result).framework).writes
    return Observation(shared, by_address, by_mutation, _is_writable(result) if tells else None)


@cache
def _witness(name: str) -> testing.Witness | None:
    """The witness of a framework, which has only the framework's own operations."""
    return testing.witness_for(name) if name in testing.witnesses() else None


def _witness_of(x: Any) -> testing.Witness | None:
    return _witness(ferry.describe(x).framework)


def _address(x: Any) -> int | None:
    """The address of the first element, from the framework; ``None`` for lists."""
    witness = _witness_of(x)
    place = None if witness is None else witness.place(x)
    return None if place is None else place.address


def _is_writable(x: Any) -> bool:
    witness = _witness_of(x)
    return witness is not None and witness.writable(x)


def _shows(written: Any, other: Any) -> bool:
    """Whether a write to one tensor changes the other. The write is undone."""
    writer: Any = _witness_of(written)
    reader: Any = _witness_of(other)
    before, kept = reader.content(other), writer.content(written)
    writer.poke(written, bytes(byte ^ 1 for byte in kept))
    seen = reader.content(other)
    writer.poke(written, kept)
    return bool(seen != before)
