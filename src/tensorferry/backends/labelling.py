"""Check the values of ``index=`` and ``columns=``, for all libraries with labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from .. import hints
from ..errors import ConversionError, ShapeError, UnsupportedTypeError, an, shown
from ..hints import Hint
from . import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..typing import Array

__all__ = ["checked", "refuse_twice"]

_NUMBERED = '[f"{name}_{place}" for place, name in enumerate(columns)]'


def checked(keyword: str, value: Any, example: str, to_array: Callable[[Any], Array]) -> Any:
    """The value of a keyword for labels; a tensor as an array, or if it has no numbers, as a list.

    Args:
        keyword: ``index`` or ``columns``.
        value: Its value.
        example: What such a value looks like, for the message.
        to_array: Converts a tensor to an array.

    Raises:
        TypeError: It is no sequence of labels.
        ShapeError: It is a tensor with more axes than one, or none.
    """
    if isinstance(value, str):
        raise UnsupportedTypeError(
            f"{keyword}= is one string, of which each letter would be a label.",
            Hint(hints.keyword(keyword, hints.code(f"[{keyword}]"))),
        )
    if isinstance(value, (bytes, Mapping, AbstractSet)) or not isinstance(value, Iterable):
        raise TypeError(
            f"{keyword} must be labels in their order, such as {example}, not {shown(value)}"
        )
    if not registry.is_tensor(type(value)):
        return value
    try:
        labels = to_array(value)
    except ConversionError:
        column: Any = value  # of text, for example
        read = getattr(column, "tolist", None) or column.to_list
        return read()
    if labels.ndim != 1:
        raise ShapeError(
            f"{keyword}= has shape {labels.shape}, and labels have one axis.",
            Hint(hints.keyword(keyword, hints.code(f"{keyword}.reshape(-1)"))),
        )
    return labels


def refuse_twice(names: Iterable[Any]) -> None:
    """Raise if a name occurs twice in ``columns=``: one of the columns could not be found by it.

    Raises:
        ShapeError: It does.
    """
    known: set[Any] = set()
    for name in names:
        if name in known:
            if isinstance(name, (str, int)):
                what = repr(name)
            else:
                what = f"{an(type(name).__name__)}"
            raise ShapeError(
                f"columns= has the name {what} twice.",
                Hint(hints.keyword("columns", hints.code(_NUMBERED))),
            )
        known.add(name)
