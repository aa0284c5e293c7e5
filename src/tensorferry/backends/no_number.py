"""What in a list of numbers is no number: the errors, with the code that makes it one."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from .. import hints
from ..errors import ConversionError, UnsupportedTypeError
from ..hints import Hint
from ..sequences.diagnostics import (
    STAYS_AS_IT_IS,
    are_few_others,
    each_of,
    leaves_with_paths,
    why_no_number,
    why_ragged,
)
from . import registry
from .no_tensor import KEEPS_TEXT, TAKEN

__all__ = ["no_number", "refuse_without_dtypes"]

_DATES = (date, timedelta)


def no_number(path: str, element: Any, x: Any) -> ConversionError:
    """The error for an element of a list that is no number.

    Args:
        path: Its place in the list, as code.
        element: The element.
        x: The list.
    """
    name = type(element).__name__
    try:
        owner = registry.backend_of(element)
    except ConversionError as error:
        if not isinstance(element, (str, *_DATES, set, frozenset, dict)):
            unknown = error.advice == TAKEN
            hint = STAYS_AS_IT_IS if unknown else error.advice and error.advice.at(path)
            return UnsupportedTypeError(
                f"The {name} at {path} is not a number: {error.message}", hint
            )
    else:
        if owner.name != "python":
            return UnsupportedTypeError(
                f"The {name} at {path} stands among numbers.", f"to_list({path})"
            )
    return UnsupportedTypeError(
        f"The {name} at {path} is not a number.", _no_number_hint(element, path, x)
    )


def _no_number_hint(element: Any, path: str, x: Any) -> Hint | None:
    members = [leaf for _, leaf in leaves_with_paths(x)]
    if isinstance(element, str):
        return _text_hint(x, members)
    if isinstance(element, _DATES):
        alike = timedelta if isinstance(element, timedelta) else date
        kind = "timedelta64" if alike is timedelta else "datetime64"
        if all(isinstance(leaf, alike) for leaf in members) and not why_ragged(x):
            code = f'np.array(x, dtype="{kind}").astype("int64")'
        elif are_few_others(members):
            code = f'np.{kind}({path}).astype("int64")'
        else:
            return STAYS_AS_IT_IS
        return Hint(hints.code(code, numbered=True), ", which is a count")
    if isinstance(element, (set, frozenset)):
        if all(isinstance(leaf, (set, frozenset)) for leaf in members):
            return Hint(hints.code(each_of("sorted(number)", x), numbered=True))
        if not are_few_others(members):
            return STAYS_AS_IT_IS
        return Hint(hints.code(f"sorted({path})", numbered=True))
    if isinstance(element, dict):
        inside = Hint(hints.tree(), ", which converts what is in it")
        are_samples = len(members) == len(x) and all(isinstance(leaf, dict) for leaf in members)
        if not are_samples:
            return inside
        return inside | Hint(hints.call("collate"), ", which makes one batch of all")
    return Hint(hints.code(f"list({path})", numbered=True))


def _text_hint(x: Any, members: list[Any]) -> Hint:
    """The hint for text in a list: its numbers, if all is written so; else the list as a tree."""
    from ..columns.column import is_number  # here, because only an error needs it

    try:
        for leaf in members:
            float(leaf)
    except (TypeError, ValueError, OverflowError):
        are_words = all(isinstance(leaf, str) and not is_number(leaf) for leaf in members)
        if are_words and not why_ragged(x):
            code = hints.code("np.unique(x, return_inverse=True)[1]", numbered=True)
            return Hint(code, ", which numbers the words")
        return KEEPS_TEXT
    return Hint(hints.code(each_of("float(number)", x), numbered=True))


def refuse_without_dtypes(x: Any) -> None:
    """Raise for the first element of nested lists that is neither ``None`` nor held by a dtype.

    Raises:
        ConversionError: There is one. The hint is for the list as it is, with ``None`` in it.
    """
    error = why_no_number(x, no_number)
    if error is not None:
        raise error
