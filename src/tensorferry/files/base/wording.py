"""Helpers for messages about files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...errors import shown

__all__ = ["RENAME_OR_EXCLUDE", "TENSORS_ONLY", "is_unicode", "named", "path_of", "several"]

RENAME_OR_EXCLUDE = "rename=[…], or exclude=[…]"
TENSORS_ONLY = "tensors_only=True, which leaves out what is not a tensor"


def named(names: Iterable[object], most: int = 5) -> str:
    """Some names for a message: the first few, and the number of the others."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def is_unicode(text: str) -> bool:
    """Whether a string can be stored in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_of(path: object, call: str) -> Path:
    """The path that was given to a function.

    >>> path_of({}, "save(tree, path)")
    Traceback (most recent call last):
    TypeError: the path in save(tree, path) must be a string or a pathlib.Path, not an object of type dict

    Raises:
        TypeError: It is not a path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"the path in {call} must be a string or a pathlib.Path, not {shown(path)}")
    return Path(path)


def several(keyword: str, values: object) -> tuple[str, ...]:
    """The value of a keyword that takes a string or several strings, as a tuple.

    >>> several("include", "encoder.*"), several("include", ["encoder.*", "head"])
    (('encoder.*',), ('encoder.*', 'head'))

    Raises:
        TypeError: It is neither a string nor several strings.
    """
    one = isinstance(values, str) or not isinstance(values, Iterable)
    found: tuple[object, ...] = (values,) if one else tuple(values)  # type: ignore[arg-type]
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"{keyword} takes strings, not {shown(each)}")
    return tuple(map(str, found))
