"""Where the values of each kind stand among many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

__all__ = ["places_by"]


def places_by(facts: Sequence[Hashable]) -> dict[Any, Sequence[int]]:
    """For each of those among many that are not equal, where it stands.

    >>> places_by(["a", "b", "a"]), places_by("aa")
    ({'a': [0, 2], 'b': [1]}, {'a': range(0, 2)})
    """
    found: dict[Any, Any] = dict.fromkeys(facts)
    if len(found) == 1:
        return {next(iter(found)): range(len(facts))}
    for each in found:
        found[each] = []
    for place, each in enumerate(facts):
        found[each].append(place)
    return found
