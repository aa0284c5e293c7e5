"""Check shapes and sizes that files declare, before any array is made."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ZSTD_RATIO", "checked", "is_bomb", "is_too_large"]

_MOST_AXES = 64
_MOST_BYTES = 1 << 63
_LEAST_BOMB = 1 << 26
_MOST_RATIO = 2000
"""The largest plausible ratio of compression.

Deflate's limit is 1032 (https://zlib.net/zlib_tech.html).
"""
ZSTD_RATIO = 1 << 15
"""The largest ratio of Zstandard: blocks of 128 KiB in 4 bytes (RFC 8878, 3.1.1.2)."""


def checked(shape: Iterable[int], itemsize: int, where: str) -> tuple[int, ...]:
    """A shape that an array can have; messages begin with `where`.

    Raises:
        FileFormatError: A length is negative, there are too many axes, or their product overflows.
    """
    found = tuple(shape)
    if any(each < 0 for each in found):
        raise FileFormatError(f"{where} has an axis of negative length.")
    if len(found) > _MOST_AXES:
        raise FileFormatError(
            f"{where} has {len(found)} axes; {_MOST_AXES} is the most an array can have."
        )
    if is_too_large(found, itemsize):
        raise FileFormatError(f"{where} has a shape whose bytes no 64-bit number counts.")
    return found


def is_too_large(shape: tuple[int, ...], itemsize: int) -> bool:
    """Whether a shape is too large for any array, even if another axis has length 0."""
    return len(shape) > _MOST_AXES or prod(each or 1 for each in shape) * itemsize >= _MOST_BYTES


def is_bomb(declared: int, held: int, ratio: int = _MOST_RATIO) -> bool:
    """Whether the declared size of values is implausible for the number of bytes in the file."""
    return declared > max(_LEAST_BOMB, ratio * held)
