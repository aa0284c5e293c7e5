"""`NamedTuple`, the base of most values; `fields_but`: several fields of one together, for keys."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..hints.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NamedTuple", "fields_but"]


def fields_but(kind: Any, *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the values of a named tuple, without these fields, as a tuple.

    >>> from tensorferry import TensorInfo
    >>> without_lengths = fields_but(TensorInfo, "shape", "strides")
    >>> without_lengths(TensorInfo("numpy", (2, 3))) == without_lengths(TensorInfo("numpy", (4,)))
    True

    Args:
        kind: The class of the named tuples.
        names: Their names. Two fields or more stay.

    Raises:
        KeyError: The class has no such field.
    """
    places = {name: index for index, name in enumerate(kind._fields)}
    for name in names:
        del places[name]
    return itemgetter(*places.values())
