"""Which keys a file may have dicts of."""

from __future__ import annotations

from typing import Any

__all__ = ["Keys"]

_OWN_HASH = (1 << 61) - 1
"""Integers that are smaller are their own hashes, https://docs.python.org/3/library/stdtypes.html#hashing-of-numeric-types"""
_MOST_ALIKE = 64


class Keys:
    """Says which keys the dicts, and elements the sets, of a file may have: plain ones, and small tuples of such.

    Of those whose hashes anybody can foresee (of strings nobody can) no more may be alike than by chance: a dict
    compares each with all that are.
    """

    def __init__(self) -> None:
        self._alike: dict[int, list[Any]] = {}

    def takes(self, key: Any) -> bool:
        """Whether a key of a pickle may be put into a dict."""
        return _is_plain(key, 4) and self.are_few(key)

    def are_few(self, key: Any) -> bool:
        """Whether there are not too many keys yet that are unlike this one and have its hash."""
        kind = type(key)
        if kind in (str, float, bool, bytes) or key is None or (kind is int and -_OWN_HASH < key < _OWN_HASH):
            return True
        alike = self._alike.setdefault(hash(key), [])
        if key not in alike:
            alike.append(key)
        return len(alike) <= _MOST_ALIKE


def _is_plain(key: Any, depth: int) -> bool:
    if key is None or type(key) in (str, int, float, bool, bytes, complex):
        return True
    if type(key) is not tuple or not depth or len(key) > 16:
        return False
    return all(_is_plain(each, depth - 1) for each in key)
