"""Check the keys of dicts in files."""

from __future__ import annotations

from typing import Any

__all__ = ["Keys", "is_plain"]

_OWN_HASH = (1 << 61) - 1
"""Integers that are smaller are their own hashes, https://docs.python.org/3/library/stdtypes.html#hashing-of-numeric-types"""
_MOST_ALIKE = 64


class Keys:
    """Decides which keys of dicts, and elements of sets, a file may have: plain values, and small tuples of them.

    The hashes of numbers can be predicted, so a file could make them all equal; then a dict
    compares each key with all others. So only a few keys with the same hash are allowed. (The
    hashes of strings cannot be predicted.)
    """

    def __init__(self) -> None:
        self._alike: dict[int, list[Any]] = {}

    def takes(self, key: Any) -> bool:
        """Whether a key may be put into a dict."""
        return is_plain(key) and self.are_few(key)

    def are_few(self, key: Any) -> bool:
        """Whether there are not too many different keys with the same hash."""
        kind = type(key)
        if (
            kind in (str, float, bool, bytes)
            or key is None
            or (kind is int and -_OWN_HASH < key < _OWN_HASH)
        ):
            return True
        alike = self._alike.setdefault(hash(key), [])
        if key not in alike:
            alike.append(key)
        return len(alike) <= _MOST_ALIKE


def is_plain(key: Any, depth: int = 4) -> bool:
    """Whether a key is a plain value, or a small tuple of them.

    >>> is_plain((1, "a")), is_plain(frozenset())
    (True, False)

    Args:
        key: The key.
        depth: How deep tuples may nest.
    """
    if key is None or type(key) in (str, int, float, bool, bytes, complex):
        return True
    if type(key) is not tuple or not depth or len(key) > 16:
        return False
    return all(is_plain(each, depth - 1) for each in key)
