"""Group many values by equality, and find one of each type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

__all__ = ["one_of_each", "places_by"]


def one_of_each(values: Sequence[Any]) -> dict[type, Any]:
    """One value of each type.

    >>> one_of_each([1, 2.5, 3])
    {<class 'int'>: 3, <class 'float'>: 2.5}
    """
    # Mostly all values have one type, which this finds out in a third of the time.
    kinds = set(map(type, values))
    if len(kinds) == 1:
        return {kinds.pop(): values[-1]}
    return dict(zip(map(type, values), values, strict=True))


def places_by(facts: Sequence[Hashable]) -> dict[Any, Sequence[int]]:
    """The positions of equal values.

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
