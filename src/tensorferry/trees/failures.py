"""What goes wrong with the leaves of a tree, all at once, each with its path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.leaf_dtypes import unknown_name
from ..errors import TreeError, UnsupportedTypeError
from .structure import placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.leaf_dtypes import DtypeRule
    from ..errors import ConversionError

__all__ = ["raise_all", "refuse_unknown_name"]


def refuse_unknown_name(rule: DtypeRule, names: Iterable[str]) -> None:
    """Raise if ``dtype=`` has a name that no leaf has.

    Raises:
        UnsupportedTypeError: It has.
    """
    unknown = unknown_name(rule, names)
    if unknown is not None:
        raise UnsupportedTypeError(*unknown)


def raise_all(errors: dict[int, ConversionError], path: Callable[[int], str]) -> None:
    """Raise one leaf's error, or those of several as a group; each message ends in the leaf's path.

    Args:
        errors: Each leaf's by its index; emptied, as an error keeps alive whoever keeps the error.
        path: Where a leaf is.

    Raises:
        ConversionError: There is one.
        TreeError: There are several.
    """
    found = [placed(errors[index], path(index)) for index in sorted(errors)]
    errors.clear()
    try:
        if len(found) == 1:
            raise found[0]
        if found:
            raise TreeError(f"{len(found)} leaves cannot be converted:", found)
    finally:
        del found
