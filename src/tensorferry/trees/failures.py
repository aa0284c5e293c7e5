"""Raise the errors of all leaves of a tree together, each with its path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.leaf_dtypes import quoted, unknown_name, with_others
from ..errors import LossyCastError, TreeError, UnsupportedTypeError
from .structure import placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.leaf_dtypes import DtypeRule
    from ..errors import ConversionError

__all__ = ["ask_for_all", "raise_all", "refuse_unknown_name"]


def refuse_unknown_name(keyword: str, keys: Iterable[tuple[str, object]], names: Iterable[str]) -> None:
    """Raise if a mapping has a name that no leaf has. The arguments are those of `unknown_name`.

    Raises:
        UnsupportedTypeError: It has such a name.
    """
    unknown = unknown_name(keyword, keys, names)
    if unknown is not None:
        raise UnsupportedTypeError(*unknown)


def raise_all(
    errors: dict[int, ConversionError],
    path: Callable[[int], str],
    rule: DtypeRule | None = None,
    name: Callable[[int], str] = str,
) -> None:
    """Raise the error of one leaf, or a group of the errors of several. Each message ends in the path of the leaf.

    Args:
        errors: The error of each leaf, by its index. It is emptied, so that errors do not keep their frames alive.
        path: Gives the path of a leaf.
        rule: The rule for dtypes: a hint with another dtype keeps the rest of it.
        name: Gives the dotted name of a leaf.

    Raises:
        ConversionError: There is one error.
        TreeError: There are several errors.
    """
    found = [placed(errors[index], path(index)) for index in sorted(errors)]
    if rule is not None:
        ask_for_all(rule, [(error, name(index)) for error, index in zip(found, sorted(errors), strict=True)])
    errors.clear()
    try:
        if len(found) == 1:
            raise found[0]
        if found:
            raise TreeError(f"{len(found)} leaves cannot be converted:", found)
    finally:
        del found


def ask_for_all(rule: DtypeRule, errors: Iterable[tuple[ConversionError, str]]) -> None:
    """Complete hints that name another dtype, so that they keep the rest of ``dtype=``.

    Args:
        rule: The rule for dtypes.
        errors: The error of each leaf, and its dotted name.
    """
    found = [(error, error.instead, name) for error, name in errors if isinstance(error, LossyCastError)]
    others = [(*instead, name) for _, instead, name in found if instead is not None]
    asked = with_others(rule, [(dtype, name, instead) for dtype, instead, name in others]) if others else ""
    for error, instead, _ in found:
        if instead is not None and error.hint is not None:
            error.hint = f"dtype={asked}{error.hint.removeprefix(f'dtype={quoted(instead[1])}')}"
            error.args = error.message, error.hint
