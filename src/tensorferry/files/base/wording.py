"""Helpers for messages about files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ... import hints
from ...errors import UnsupportedTypeError, an, shown
from ...hints import Hint

__all__ = ["as_unicode", "is_unicode", "named", "path_of", "several", "strings_of"]

_ALL_TEXT = "{str(key): str(value) for key, value in metadata.items()}"


def named(names: Iterable[object], most: int = 5) -> str:
    """Some names for a message: the first few, and the number of the others."""
    listed = [str(name) for name in names]
    if len(listed) > most:
        more = f" and {len(listed) - most} more"
    else:
        more = ""
    return ", ".join(listed[:most]) + more


def is_unicode(text: str) -> bool:
    """Whether a string can be stored in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_unicode(text: str) -> str:
    """A string that can be stored in UTF-8, with another character in place of each that cannot."""
    return re.sub("[\ud800-\udfff]", "_", text)


def path_of(path: object, call: str) -> Path:
    """The path that was given to a function.

    >>> path_of({}, "save(tree, path)")
    Traceback (most recent call last):
    TypeError: the path in save(tree, path) must be a string or a pathlib.Path,
            not an object of type dict

    Raises:
        TypeError: It is not a path.
        UnsupportedTypeError: It is a buffer or an open file; the hint is the code that makes a file
            of it.
    """
    if not isinstance(path, (str, os.PathLike)):
        from .urls import refuse_no_path  # here, because only an error needs it

        refuse_no_path(path, call)
        raise TypeError(f"the path in {call} must be a string or a pathlib.Path, not {shown(path)}")
    return Path(path)


def several(keyword: str, values: object) -> tuple[str, ...]:
    """The value of a keyword that takes a string or several strings, as a tuple.

    >>> several("include", "encoder.*"), several("include", ["encoder.*", "head"])
    (('encoder.*',), ('encoder.*', 'head'))

    Raises:
        TypeError: It is neither a string nor several strings.
    """
    if type(values) is tuple and not values:
        return ()
    one = isinstance(values, str) or not isinstance(values, Iterable)
    given: tuple[object, ...] = (values,) if one else tuple(values)  # type: ignore[arg-type]
    for value in given:
        if not isinstance(value, str):
            raise TypeError(f"{keyword} takes strings, not {shown(value)}")
    return tuple(map(str, given))


def strings_of(metadata: object) -> dict[str, str]:
    """The value of the keyword ``metadata``, as a dict; ``None`` is none.

    Raises:
        UnsupportedTypeError: It is not a mapping from strings to strings.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        kind = an(type(metadata).__name__)
        raise UnsupportedTypeError(f"metadata is {kind}, and has to be a mapping of strings.")
    for key, value in metadata.items():
        where, odd = "A key of metadata", key
        if isinstance(key, str):
            where, odd = f"metadata[{key!r}]", value
        if not isinstance(odd, str):
            raise UnsupportedTypeError(
                f"{where} is {an(type(odd).__name__)}; keys and values have to be strings.",
                Hint(hints.keyword("metadata", hints.code(_ALL_TEXT))),
            )
    # With `str.__str__`, because a subclass of `str` may define another `__str__`.
    return {str.__str__(key): str.__str__(value) for key, value in metadata.items()}
