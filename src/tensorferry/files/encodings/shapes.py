"""Shapes as files claim them, looked at before anything is made of them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["checked"]

_MOST_AXES = 64
_MOST_BYTES = 1 << 63


def checked(shape: Iterable[int], itemsize: int, where: str) -> tuple[int, ...]:
    """A shape that an array can have.

    Args:
        shape: Lengths of the axes, as a file has them.
        itemsize: Bytes of an element.
        where: The file and the tensor, for the message.

    Raises:
        FileFormatError: A length is negative, there are too many axes, or their product overflows.
    """
    found = tuple(shape)
    if any(each < 0 for each in found):
        raise FileFormatError(f"{where} has an axis of negative length.")
    if len(found) > _MOST_AXES:
        raise FileFormatError(f"{where} has {len(found)} axes; {_MOST_AXES} is the most an array can have.")
    if prod(each or 1 for each in found) * itemsize >= _MOST_BYTES:
        raise FileFormatError(f"{where} has a shape whose bytes no 64-bit number counts.")
    return found
