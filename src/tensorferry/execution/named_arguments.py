"""Functions whose keywords are given by name; an error for a position says which one was meant."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..core.generics import TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["by_name", "refuse_beyond"]

Function = TypeVar("Function", bound="Callable[..., Any]")


def by_name(function: Function) -> Function:
    """Decorate a function with keywords: its error for a position says which one was meant."""
    taken = function.__code__.co_argcount

    def named(*arguments: Any, **keywords: Any) -> Any:
        if len(arguments) > taken:
            refuse_beyond(function, arguments[:taken], arguments[taken:])
        return function(*arguments, **keywords)

    # `refuse_unknown` reads the names of the keywords from here.
    named.__kwdefaults__ = function.__kwdefaults__
    return cast("Function", wraps(function)(named))


def refuse_beyond(
    function: Callable[..., Any], by_position: tuple[Any, ...], beyond: tuple[Any, ...]
) -> NoReturn:
    """Raise for arguments `beyond` those given `by_position`, as a function takes them."""
    from .positions import refuse_positions  # here, because only an error needs it

    refuse_positions(function, by_position, beyond)
