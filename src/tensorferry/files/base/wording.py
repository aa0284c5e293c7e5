"""Helpers for messages about files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedTypeError, an, shown

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["EXCLUDE", "METADATA_LESS", "OTHER_FORMAT", "PLAIN_VALUES", "RENAME", "RENAME_OR_EXCLUDE", "TENSORS_ONLY"]
__all__ += ["FileHint", "is_unicode", "named", "other_key", "path_of", "several", "strings_of"]


class FileHint(str):
    """A hint for `convert_files`, with its keywords; `save` has fewer, and therefore a hint of its own.

    Args:
        text: The hint.
        for_save: The hint for `save`, where `x` is the tree.
    """

    __slots__ = ("for_save",)
    for_save: str

    def __new__(cls, text: str, for_save: str) -> Self:  # noqa: D102
        made = super().__new__(cls, text)
        made.for_save = for_save
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return FileHint, (str(self), self.for_save)


TENSORS_ONLY = "tensors_only=True, which leaves out what is not a tensor"
OTHER_FORMAT = FileHint(TENSORS_ONLY, 'to="safetensors", or another format that has a place for it')
PLAIN_VALUES = FileHint(TENSORS_ONLY, "numbers, strings, or dicts, lists and tuples of them, in its place in x")
METADATA_LESS = FileHint(f"{TENSORS_ONLY}, and metadata= without them", "metadata= without them")
EXCLUDE = FileHint("exclude=[…]", "x without them")
RENAME = FileHint("rename=[…]", "other keys for them in x")
RENAME_OR_EXCLUDE = FileHint("rename=[…], or exclude=[…]", "other keys for them in x, or x without them")


def other_key(key: object) -> FileHint:
    """The hint for a key of a dict that is no plain value.

    Args:
        key: The key.
    """
    plain = key.item() if isinstance(key, np.generic) else None
    alike = isinstance(plain, (str, bytes, int, float, complex))
    return FileHint(TENSORS_ONLY, f"{plain!r} as this key of x" if alike else "a string as this key of x")


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
        UnsupportedTypeError: It is a buffer or an open file; the hint is the code that makes a file of it.
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
    one = isinstance(values, str) or not isinstance(values, Iterable)
    found: tuple[object, ...] = (values,) if one else tuple(values)  # type: ignore[arg-type]
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"{keyword} takes strings, not {shown(each)}")
    return tuple(map(str, found))


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
                "metadata={str(key): str(value) for key, value in metadata.items()}",
            )
    # With `str.__str__`, because a subclass of `str` may define another `__str__`.
    return {str.__str__(key): str.__str__(value) for key, value in metadata.items()}
